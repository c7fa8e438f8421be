// Attention of many rows without packing: a threadgroup has 128 positions of one query head, so that every query head
// reads the keys and values of its key/value head for itself. Queries are laid out as if each head had keys of its own.
// The off-arm of benchmarks/metal_ideas.py; attention.metal, where a threadgroup has 16 positions of 8 heads, is what
// lily runs.

#include "../../metal/args.h"
#include "../../metal/attention_walk.h"

constant constexpr uint kDims = 256;

[[kernel]] [[max_total_threads_per_threadgroup(kWalkThreads)]] void
attention_rows_head(device const bfloat *queries [[buffer(0)]], device const bfloat *keys [[buffer(1)]],
                    device const bfloat *values [[buffer(2)]], device const bfloat *gates [[buffer(3)]],
                    device bfloat *mixed [[buffer(4)]], constant AttentionArgs &args [[buffer(5)]],
                    uint2 position [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
                    uint thread_index [[thread_index_in_threadgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup bfloat staged[2 * kPiece];
    const uint head = position.y, kv_head = head / (args.heads / args.kv_heads);
    Walk walk;
    walk.group = 1;
    walk.heads = args.heads;
    walk.head = head;
    walk.rows = args.rows;
    walk.position = args.position;
    walk.scale = args.scale;
    const size_t cache = size_t(kv_head) * args.capacity * kDims, tiles = (walk.rows + 7) / 8;
    walk_rows<kDims, true, true>((device const uint4 *)(queries + head * tiles * (8 * kDims)), keys + cache,
                                 values + cache, gates, mixed, walk, groups.x - 1 - position.x, staged, thread_index,
                                 simdgroup, lane);
}
