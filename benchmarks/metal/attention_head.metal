// Attention of one row without packing: every query head has its own threadgroups, which read the keys and values of its
// key/value head for themselves. The off-arm of benchmarks/metal_ideas.py; attention_step.metal is what lily runs. The
// row's own key and value lie in the cache already. A simdgroup takes four keys at a time, a lane 8 dims of 256.

#include "../../metal/args.h"
#include "../../metal/attention_rows.h"

constant constexpr uint kDims = 256;
constant constexpr uint kHeadSimdgroups = 4;
constant constexpr uint kKeys = 4; // whose loads go out together
constant constexpr float kNoScore = -1e30f;

inline void widen(uint4 eight, thread float *values) {
#pragma clang loop unroll(full)
    for (uint i = 0; i < 4; ++i) {
        values[2 * i] = as_type<float>(eight[i] << 16);
        values[2 * i + 1] = as_type<float>(eight[i] & 0xffff0000u);
    }
}

[[kernel]] [[max_total_threads_per_threadgroup(32 * kHeadSimdgroups)]] void
attention_head(device const bfloat *query [[buffer(0)]], device const bfloat *key [[buffer(1)]],
               device const bfloat *value [[buffer(2)]], device const float *q_norm [[buffer(3)]],
               device const float *k_norm [[buffer(4)]], device const bfloat *keys [[buffer(5)]],
               device const bfloat *values [[buffer(6)]], device float *sums_out [[buffer(7)]],
               device float2 *shares [[buffer(8)]], constant AttentionArgs &args [[buffer(9)]],
               uint2 position [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
               uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float turns[2 * LILY_MOST_TURNS];
    threadgroup float turned[kDims];
    threadgroup float merged[kHeadSimdgroups][kDims];
    threadgroup float2 parts[kHeadSimdgroups]; // largest score, sum of weights

    const uint head = position.y, kv_head = head / (args.heads / args.kv_heads);
    fill_turns(args.frequency, args.turns, args.position, turns, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0)
        norm_and_turn<kDims>(query + head * 2 * kDims, q_norm, args.eps, args.turns, turns, turned, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float own[8], sums[8];
#pragma clang loop unroll(full)
    for (uint i = 0; i < 8; ++i) {
        own[i] = float(bfloat(turned[8 * lane + i]));
        sums[i] = 0;
    }

    const size_t offset = size_t(kv_head) * args.capacity * kDims;
    device const uint4 *key_rows = (device const uint4 *)(keys + offset) + lane;
    device const uint4 *value_rows = (device const uint4 *)(values + offset) + lane;
    const uint begin = position.x * args.block, end = min(begin + args.block, args.position + 1);
    float peak = kNoScore, total = 0;
    for (uint first = begin + simdgroup * kKeys; first < end; first += kHeadSimdgroups * kKeys) {
        uint4 key_loads[kKeys], value_loads[kKeys];
#pragma clang loop unroll(full)
        for (uint k = 0; k < kKeys; ++k) {
            const size_t at = size_t(min(first + k, end - 1)) * (kDims / 8);
            key_loads[k] = key_rows[at];
            value_loads[k] = value_rows[at];
        }
        float scores[kKeys], most = peak;
#pragma clang loop unroll(full)
        for (uint k = 0; k < kKeys; ++k) {
            float wide[8], sum = 0;
            widen(key_loads[k], wide);
#pragma clang loop unroll(full)
            for (uint i = 0; i < 8; ++i)
                sum += own[i] * wide[i];
            scores[k] = first + k < end ? simd_sum(sum) * args.scale : kNoScore;
            most = max(most, scores[k]);
        }
        const float keep = exp2(peak - most);
        peak = most;
        total *= keep;
#pragma clang loop unroll(full)
        for (uint i = 0; i < 8; ++i)
            sums[i] *= keep;
#pragma clang loop unroll(full)
        for (uint k = 0; k < kKeys; ++k) {
            float wide[8];
            widen(value_loads[k], wide);
            const float weight = exp2(scores[k] - most);
            total += weight;
#pragma clang loop unroll(full)
            for (uint i = 0; i < 8; ++i)
                sums[i] += weight * wide[i];
        }
    }

    if (lane == 0)
        parts[simdgroup] = float2(peak, total);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float most = parts[0].x;
    for (uint s = 1; s < kHeadSimdgroups; ++s)
        most = max(most, parts[s].x);
    const float share = exp2(peak - most);
#pragma clang loop unroll(full)
    for (uint i = 0; i < 8; ++i)
        merged[simdgroup][8 * lane + i] = sums[i] * share;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const size_t out = size_t(position.x) * args.heads + head;
    for (uint d = thread_index; d < kDims; d += 32 * kHeadSimdgroups) {
        float sum = 0;
        for (uint s = 0; s < kHeadSimdgroups; ++s)
            sum += merged[s][d];
        sums_out[out * kDims + d] = sum;
    }
    if (thread_index == 0) {
        float whole = 0;
        for (uint s = 0; s < kHeadSimdgroups; ++s)
            whole += exp2(parts[s].x - most) * parts[s].y;
        shares[out] = float2(most, whole);
    }
}
