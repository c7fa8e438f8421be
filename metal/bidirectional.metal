// Attention of an encoder between its projections: rows of all windows to their places, then the softmax, in which a row
// sees its whole window and no other.

#include "args.h"
#include "attention_walk.h"

// The last window that begins at or before `row`.
inline uint window_of(device const int *starts, uint windows, uint row) {
    uint low = 0, high = windows;
    while (high - low > 1) {
        const uint middle = low + (high - low) / 2;
        if (uint(starts[middle]) <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// Windows begin with a tile of their own: so many tiles lie before this one's, or fewer.
inline uint first_tile(uint start, uint group, uint window) { return start * group / 8 + window; }

// A threadgroup has one row. turn: cosines, then sines, of the angles at each position of a window.
template <uint D> [[kernel]] [[max_total_threads_per_threadgroup(128)]] void
bidirectional_prepare(device const bfloat *query [[buffer(0)]], device const bfloat *key [[buffer(1)]],
                      device const bfloat *value [[buffer(2)]], device const float *q_norm [[buffer(3)]],
                      device const float *k_norm [[buffer(4)]], device const float *turn [[buffer(5)]],
                      device const int *starts [[buffer(6)]], device bfloat *queries [[buffer(7)]],
                      device bfloat *keys [[buffer(8)]], device bfloat *values [[buffer(9)]],
                      constant BidirectionalArgs &args [[buffer(10)]], uint row [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float turns[D];
    threadgroup float turned[kPrepareSimdgroups][D];
    const uint group = args.heads / args.kv_heads;
    const uint window = window_of(starts, args.windows, row), start = uint(starts[window]);
    for (uint i = thread_index; i < 2 * args.turns; i += 32 * kPrepareSimdgroups)
        turns[i] = turn[(row - start) * 2 * args.turns + i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    prepare_heads<D>(query, D, key, value, q_norm, k_norm, queries + size_t(first_tile(start, group, window)) * (8 * D),
                     keys, values, args.heads, args.kv_heads, args.tiles, row, row - start, row, args.rows, args.eps,
                     args.turns, turns, turned[simdgroup], simdgroup, lane);
}

// The grid has as many tiles of 128 packed rows as the longest window.
template <uint D> [[kernel]] [[max_total_threads_per_threadgroup(kWalkThreads)]] void
bidirectional_rows(device const bfloat *queries [[buffer(0)]], device const bfloat *keys [[buffer(1)]],
                   device const bfloat *values [[buffer(2)]], device const int *starts [[buffer(3)]],
                   device bfloat *mixed [[buffer(4)]], constant BidirectionalArgs &args [[buffer(5)]],
                   uint3 position [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup bfloat staged[2 * kPiece];
    const uint group = args.heads / args.kv_heads, kv_head = position.y, window = position.z;
    const uint start = uint(starts[window]), length = uint(starts[window + 1]) - start;
    Walk walk;
    walk.group = group;
    walk.heads = args.heads;
    walk.head = kv_head * group;
    walk.rows = length * group;
    walk.position = length;
    walk.scale = args.scale;
    if (position.x * kWalkRows >= walk.rows)
        return;
    const size_t tile = size_t(kv_head) * args.tiles + first_tile(start, group, window);
    const size_t from = (size_t(kv_head) * args.rows + start) * D;
    walk_rows<D, false, false>((device const uint4 *)(queries + tile * (8 * D)), keys + from, values + from, mixed,
                               mixed + size_t(start) * args.heads * D, walk, position.x, staged, thread_index,
                               simdgroup, lane);
}

#define LILY_BIDIRECTIONAL(D)                                                                                          \
    template [[host_name(                                                                                              \
        "bidirectional_prepare_" #D)]] [[kernel]] decltype(bidirectional_prepare<D>) bidirectional_prepare<D>;         \
    template [[host_name("bidirectional_rows_" #D)]] [[kernel]] decltype(bidirectional_rows<D>) bidirectional_rows<D>;

LILY_BIDIRECTIONAL(64)
LILY_BIDIRECTIONAL(128)
LILY_BIDIRECTIONAL(256)
