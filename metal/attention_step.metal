// The gated attention of one row, which is reading the cache: a threadgroup reads a block of keys and values once for
// all query heads of their key/value head, 8 at the most, and leaves their sums; attention_join adds the blocks. Blocks
// are cut at positions that depend on the number of keys alone. All float32, the weights too.

#include "args.h"
#include "attention_tile.h"

constant constexpr uint kStepSimdgroups = 4;
constant constexpr uint kStepKeys = 16; // of a simdgroup at a time

// Key or value 8 f + lane_row of 8 F from `first` on, this lane's 16 bytes of dims 32 c ..; keys past the end repeat the
// last one.
template <uint D> inline uint4 take_key(device const bfloat *rows, uint key, uint end, uint c, uint lane) {
    return *(device const uint4 *)(rows + size_t(min(key, end - 1)) * D + 32 * c + 8 * lane_pair(lane));
}

template <uint D> [[kernel]] [[max_total_threads_per_threadgroup(32 * kStepSimdgroups)]] void
attention_step(device const bfloat *query [[buffer(0)]], device const bfloat *key [[buffer(1)]],
               device const bfloat *value [[buffer(2)]], device const float *q_norm [[buffer(3)]],
               device const float *k_norm [[buffer(4)]], device bfloat *keys [[buffer(5)]],
               device bfloat *values [[buffer(6)]], device float *sums_out [[buffer(7)]],
               device float2 *shares [[buffer(8)]], constant AttentionArgs &args [[buffer(9)]],
               uint2 position [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
               uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
               uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float turns[2 * LILY_MOST_TURNS];
    threadgroup float turned[kStepSimdgroups][D];
    threadgroup bfloat queries[8 * D];
    threadgroup float merged[kStepSimdgroups][8][64];
    threadgroup float2 peaks[kStepSimdgroups][4]; // of two rows
    threadgroup float2 totals[kStepSimdgroups][4];

    const uint group = args.heads / args.kv_heads, kv_head = position.y;
    fill_turns(args.frequency, args.turns, args.position, turns, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint row = simdgroup; row < 8; row += kStepSimdgroups) {
        const bool there = row < group; // the same for the whole simdgroup
        if (there)
            norm_and_turn<D>(query + (kv_head * group + row) * 2 * D, q_norm, args.eps, args.turns, turns,
                             turned[simdgroup], lane);
        for (uint d = lane; d < D; d += 32)
            queries[crossed_place(row, d)] = there ? bfloat(turned[simdgroup][d]) : bfloat(0.0f);
    }
    keys += size_t(kv_head) * args.capacity * D;
    values += size_t(kv_head) * args.capacity * D;
    if (position.x + 1 == groups.x && simdgroup == 0) { // the row's own key is in the last block
        norm_and_turn<D>(key + kv_head * D, k_norm, args.eps, args.turns, turns, turned[0], lane);
        for (uint d = lane; d < D; d += 32) {
            keys[size_t(args.position) * D + d] = bfloat(turned[0][d]);
            values[size_t(args.position) * D + d] = value[kv_head * D + d];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);

    const uint begin = position.x * args.block, end = min(begin + args.block, args.position + 1);
    RowSums<D> sums;
    clear_rows<D>(sums);
    for (uint first = begin + simdgroup * kStepKeys; first < end; first += kStepSimdgroups * kStepKeys) {
        const uint own = first + lane_row(lane);
        Scores<2> scores;
        clear_scores<2>(scores);
#pragma clang loop unroll(full)
        for (uint c = 0; c < D / 32; ++c) {
            const uint4 part = ((threadgroup const uint4 *)queries)[32 * c + lane];
            score_keys(take_key<D>(keys, own, end, c, lane), part, scores.at[0]);
            score_keys(take_key<D>(keys, own + 8, end, c, lane), part, scores.at[1]);
        }
        weigh_scores<D, 2>(args.scale, own, uint2(end), first + kStepKeys > end, scores, sums, lane);
        simdgroup_matrix<float, 8, 8> weights[2];
        weights[0] = cross_whole(scores.at[0].thread_elements(), lane);
        weights[1] = cross_whole(scores.at[1].thread_elements(), lane);
#pragma clang loop unroll(full)
        for (uint c = 0; c < D / 32; ++c)
#pragma clang loop unroll(full)
            for (uint f = 0; f < 2; ++f) {
                const uint4 part = take_key<D>(values, own + 8 * f, end, c, lane);
#pragma clang loop unroll(full)
                for (uint i = 0; i < 4; ++i) {
                    simdgroup_matrix<float, 8, 8> right;
                    right.thread_elements() = float2(as_type<bfloat2>(part[i]));
                    simdgroup_multiply_accumulate(sums.at[4 * c + i], weights[f], right, sums.at[4 * c + i]);
                }
            }
    }

    // The simdgroups' sums become one, 64 dims at a time.
    const uint pair = lane_pair(lane);
    const float2 total = sum_of_rows(sums.total);
    if (lane_row(lane) == 0) {
        peaks[simdgroup][pair] = sums.peak;
        totals[simdgroup][pair] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float2 peak = peaks[0][pair];
    for (uint s = 1; s < kStepSimdgroups; ++s)
        peak = max(peak, peaks[s][pair]);
    const float own = own_row(exp2(sums.peak - peak), lane);
    const size_t out = size_t(position.x) * args.heads + kv_head * group;
    if (simdgroup == 0 && lane_row(lane) == 0) {
        float2 whole = 0;
        for (uint s = 0; s < kStepSimdgroups; ++s)
            whole += exp2(peaks[s][pair] - peak) * totals[s][pair];
        if (2 * pair < group)
            shares[out + 2 * pair] = float2(peak.x, whole.x);
        if (2 * pair + 1 < group)
            shares[out + 2 * pair + 1] = float2(peak.y, whole.y);
    }
#pragma clang loop unroll(full)
    for (uint d = 0; d < D; d += 64) {
#pragma clang loop unroll(full)
        for (uint i = 0; i < 8; ++i) {
            const uint dim = i / 4 * 32 + 8 * pair + i % 4 * 2;
            *(threadgroup float2 *)&merged[simdgroup][lane_row(lane)][dim] = sums.at[d / 8 + i].thread_elements() * own;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = thread_index; i < group * 64; i += 32 * kStepSimdgroups) {
            float sum = 0;
            for (uint s = 0; s < kStepSimdgroups; ++s)
                sum += merged[s][i / 64][i % 64];
            sums_out[(out + i / 64) * D + d + i % 64] = sum;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

constant constexpr uint kJoinDims = 64;
constant constexpr uint kJoinParts = 4;

// mixed = the blocks' sums over the sum of all weights, times sigmoid(gate), rounded. A threadgroup has 64 dims of one
// head; a quarter of it takes every fourth block.
[[kernel]] [[max_total_threads_per_threadgroup(kJoinDims * kJoinParts)]] void
attention_join(device const float *sums [[buffer(0)]], device const float2 *shares [[buffer(1)]],
               device const bfloat *query [[buffer(2)]], device bfloat *mixed [[buffer(3)]],
               constant AttentionJoinArgs &args [[buffer(4)]], uint2 position [[threadgroup_position_in_grid]],
               uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float parts[kJoinParts][kJoinDims];
    const uint head = position.y, dim = position.x * kJoinDims + thread_index % kJoinDims;
    const uint part = thread_index / kJoinDims;
    float peak = kNoScore;
    for (uint b = lane; b < args.blocks; b += 32)
        peak = max(peak, shares[b * args.heads + head].x);
    peak = simd_max(peak);
    float total = 0;
    for (uint b = lane; b < args.blocks; b += 32) {
        const float2 share = shares[b * args.heads + head];
        total += exp2(share.x - peak) * share.y;
    }
    total = simd_sum(total);
    float sum = 0;
    for (uint b = part; b < args.blocks; b += kJoinParts) {
        const size_t at = size_t(b) * args.heads + head;
        sum += exp2(shares[at].x - peak) * sums[at * args.head_dim + dim];
    }
    parts[part][thread_index % kJoinDims] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (part == 0) {
        for (uint p = 1; p < kJoinParts; ++p)
            sum += parts[p][thread_index];
        const float gate = float(query[(2 * head + 1) * args.head_dim + dim]);
        mixed[head * args.head_dim + dim] = bfloat(sum / total * sigmoid(gate));
    }
}

#define LILY_ATTENTION_STEP(D)                                                                                         \
    template [[host_name("attention_step_" #D)]] [[kernel]] decltype(attention_step<D>) attention_step<D>;

LILY_ATTENTION_STEP(64)
LILY_ATTENTION_STEP(128)
LILY_ATTENTION_STEP(256)
