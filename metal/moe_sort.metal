// The routing of a prompt, from logits to a map that the grouped products read, and back to the residual stream. Nothing
// is read back by the host: a stable counting sort of the (row, slot) pairs by expert, whose counts are scanned by
// one threadgroup with a thread an expert, and a map of blocks of rows of one expert, as long as it can ever get,
// whose rest has no work. Pairs are cut into pieces; within a piece their order is kept, so the result does not depend
// on which threadgroup comes first.

#include "args.h"
#include "choice.h"

constant constexpr uint kSortPiece = 256; // pairs, and threads

// A simdgroup a row. ids, weights: [rows, top_k]; shared_weights: [rows], from their logits.
[[kernel]] void moe_route(device const float *logits [[buffer(0)]], device const float *shared_logits [[buffer(1)]],
                          device uint *ids [[buffer(2)]], device float *weights [[buffer(3)]],
                          device float *shared_weights [[buffer(4)]], constant MoeRouteArgs &args [[buffer(5)]],
                          uint group [[threadgroup_position_in_grid]], uint groups [[simdgroups_per_threadgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint row = group * groups + simdgroup;
    if (row >= args.rows)
        return;
    const Choice choice =
        choose_experts(logits + size_t(row) * args.experts, args.experts, args.top_k, args.renormalize != 0, lane);
    if (lane < args.top_k) {
        ids[row * args.top_k + lane] = choice.id;
        weights[row * args.top_k + lane] = choice.weight;
    }
    if (lane == 0)
        shared_weights[row] = sigmoid(shared_logits[row]);
}

// counts: [pieces, experts], how many pairs of a piece go to each expert.
[[kernel]] void moe_count(device const uint *ids [[buffer(0)]], device uint *counts [[buffer(1)]],
                          constant MoeSortArgs &args [[buffer(2)]], uint piece [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
    threadgroup atomic_uint count[kMostExperts];
    for (uint e = thread_index; e < args.experts; e += kSortPiece)
        atomic_store_explicit(&count[e], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint pair = piece * kSortPiece + thread_index;
    if (pair < args.pairs)
        atomic_fetch_add_explicit(&count[ids[pair]], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = thread_index; e < args.experts; e += kSortPiece)
        counts[piece * args.experts + e] = atomic_load_explicit(&count[e], memory_order_relaxed);
}

// The sum of value over the threads before this one; totals: [kMostExperts / 32], a barrier behind it is the caller's.
inline uint sum_before(uint value, threadgroup uint *totals, uint simdgroup, uint lane) {
    const uint before = simd_prefix_exclusive_sum(value);
    if (lane == 31)
        totals[simdgroup] = before + value;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint earlier = 0;
    for (uint s = 0; s < simdgroup; ++s)
        earlier += totals[s];
    return earlier + before;
}

// One threadgroup, a thread an expert (rounded up to whole simdgroups). counts becomes where, in the sorted pairs, those
// of each piece and expert begin; map: [blocks] of {expert, first pair, end, 0}.
[[kernel]] [[max_total_threads_per_threadgroup(kMostExperts)]] void
moe_scan(device uint *counts [[buffer(0)]], device uint4 *map [[buffer(1)]], constant MoeSortArgs &args [[buffer(2)]],
         uint expert [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
         uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup uint totals[2][kMostExperts / 32];
    const bool there = expert < args.experts;
    uint count = 0;
    if (there)
        for (uint piece = 0; piece < args.pieces; ++piece)
            count += counts[piece * args.experts + expert];
    const uint first = sum_before(count, totals[0], simdgroup, lane);
    const uint blocks = (count + args.tile - 1) / args.tile;
    const uint first_block = sum_before(blocks, totals[1], simdgroup, lane);
    if (there) {
        uint begin = first;
        for (uint piece = 0; piece < args.pieces; ++piece) {
            const uint some = counts[piece * args.experts + expert];
            counts[piece * args.experts + expert] = begin;
            begin += some;
        }
        for (uint b = 0; b < blocks; ++b)
            map[first_block + b] =
                uint4(expert, first + b * args.tile, min(first + (b + 1) * args.tile, first + count), 0);
    }
    uint used = 0;
    for (uint s = 0; s < (threads + 31) / 32; ++s)
        used += totals[1][s];
    for (uint b = used + expert; b < args.blocks; b += threads)
        map[b] = uint4(LILY_NO_EXPERT, 0, 0, 0);
}

// tokens: [pairs], the row of each sorted pair; slots: [pairs], where each pair went.
[[kernel]] void moe_scatter(device const uint *ids [[buffer(0)]], device const uint *begins [[buffer(1)]],
                            device uint *tokens [[buffer(2)]], device uint *slots [[buffer(3)]],
                            constant MoeSortArgs &args [[buffer(4)]], uint piece [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]]) {
    threadgroup uint experts[kSortPiece];
    const uint pair = piece * kSortPiece + thread_index;
    const bool there = pair < args.pairs;
    const uint expert = there ? ids[pair] : LILY_NO_EXPERT;
    experts[thread_index] = expert;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (!there)
        return;
    uint before = 0;
    for (uint i = 0; i < thread_index; ++i)
        before += experts[i] == expert ? 1 : 0;
    const uint to = begins[piece * args.experts + expert] + before;
    tokens[to] = pair / args.top_k;
    slots[pair] = to;
}

// x += the weighted sum of the experts' outputs, in slot order, and of the shared one's, for a slice of the columns:
// parts [pairs, cols] in sorted order, shared [rows, cols], both float32. A thread makes four columns.
[[kernel]] void moe_combine(device const float4 *parts [[buffer(0)]], device const float4 *shared [[buffer(1)]],
                            device const uint *slots [[buffer(2)]], device const float *weights [[buffer(3)]],
                            device const float *shared_weights [[buffer(4)]], device bfloat *x [[buffer(5)]],
                            constant MoeCombineArgs &args [[buffer(6)]], uint2 position [[thread_position_in_grid]]) {
    const uint column = position.x, row = position.y, width = args.cols / 4;
    if (column >= width)
        return;
    float4 total = 0;
    for (uint k = 0; k < args.top_k; ++k) {
        const uint pair = row * args.top_k + k;
        total += weights[pair] * parts[size_t(slots[pair]) * width + column];
    }
    total += shared_weights[row] * shared[size_t(row) * width + column];
    device bfloat4 *to = (device bfloat4 *)(x + size_t(row) * args.hidden + args.first) + column;
    *to = bfloat4(float4(*to) + total);
}
