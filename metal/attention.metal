// The gated attention of two rows or more, between its projections: queries, keys and values to their places, then
// the softmax. Tiles with the most keys come first.

#include "args.h"
#include "attention_walk.h"

// A threadgroup has one row.
template <uint D> [[kernel]] [[max_total_threads_per_threadgroup(128)]] void
attention_prepare(device const bfloat *query [[buffer(0)]], device const bfloat *key [[buffer(1)]],
                  device const bfloat *value [[buffer(2)]], device const float *q_norm [[buffer(3)]],
                  device const float *k_norm [[buffer(4)]], device bfloat *queries [[buffer(5)]],
                  device bfloat *keys [[buffer(6)]], device bfloat *values [[buffer(7)]],
                  constant AttentionArgs &args [[buffer(8)]], uint row [[threadgroup_position_in_grid]],
                  uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                  uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float turns[2 * LILY_MOST_TURNS];
    threadgroup float turned[kPrepareSimdgroups][D];
    fill_turns(args.frequency, args.turns, args.position + row, turns, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint tiles = (args.rows * (args.heads / args.kv_heads) + 7) / 8;
    prepare_heads<D>(query, 2 * D, key, value, q_norm, k_norm, queries, keys, values, args.heads, args.kv_heads, tiles,
                     row, row, args.position + row, args.capacity, args.eps, args.turns, turns, turned[simdgroup],
                     simdgroup, lane);
}

template <uint D> [[kernel]] [[max_total_threads_per_threadgroup(kWalkThreads)]] void
attention_rows(device const bfloat *queries [[buffer(0)]], device const bfloat *keys [[buffer(1)]],
               device const bfloat *values [[buffer(2)]], device const bfloat *gates [[buffer(3)]],
               device bfloat *mixed [[buffer(4)]], constant AttentionArgs &args [[buffer(5)]],
               uint2 position [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
               uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
               uint lane [[thread_index_in_simdgroup]]) {
    threadgroup bfloat staged[2 * kPiece];
    const uint group = args.heads / args.kv_heads, kv_head = position.y;
    Walk walk;
    walk.group = group;
    walk.heads = args.heads;
    walk.head = kv_head * group;
    walk.rows = args.rows * group;
    walk.position = args.position;
    walk.scale = args.scale;
    const size_t cache = size_t(kv_head) * args.capacity * D, tiles = (walk.rows + 7) / 8;
    walk_rows<D, true, true>((device const uint4 *)(queries + kv_head * tiles * (8 * D)), keys + cache, values + cache,
                             gates, mixed, walk, groups.x - 1 - position.x, staged, thread_index, simdgroup, lane);
}

#define LILY_ATTENTION(D)                                                                                              \
    template [[host_name("attention_prepare_" #D)]] [[kernel]] decltype(attention_prepare<D>) attention_prepare<D>;    \
    template [[host_name("attention_rows_" #D)]] [[kernel]] decltype(attention_rows<D>) attention_rows<D>;

LILY_ATTENTION(64)
LILY_ATTENTION(128)
LILY_ATTENTION(256)
