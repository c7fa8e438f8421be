// The gated attention sublayer. One row: projections, the step over the cache, the join of its blocks, output. More rows:
// projections, everything to its place, the walk over the keys, output. See metal/attention_step.metal and
// metal/attention.metal.

#include <algorithm>
#include <cmath>

#include "../error.h"
#include "args.h"
#include "attention.h"
#include "matmul.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

namespace {

constexpr std::int64_t kMostGroup = 8;    // query heads of a key/value head, of one row
constexpr std::int64_t kStepBlock = 64;   // keys of a block are a multiple of it
constexpr std::int64_t kMostBlocks = 128; // so that their sums stay small beside the cache
constexpr std::int64_t kJoinDims = 64;    // of a threadgroup, attention_step.metal

void require_supported(const AttentionShape &shape) {
    require_head_dim("attention", shape.head_dim);
    if (shape.rotary_dim > 2 * LILY_MOST_TURNS || shape.heads > kMostGroup * shape.kv_heads) {
        throw Error(ErrorKind::unsupported_checkpoint,
                    "attention: " + std::to_string(shape.heads) + " query heads over " +
                        std::to_string(shape.kv_heads) + ", of which " + std::to_string(shape.rotary_dim) +
                        " dims turn; the Metal kernels take up to " + std::to_string(kMostGroup) +
                        " query heads to a key/value head and turn up to " + std::to_string(2 * LILY_MOST_TURNS) +
                        " dims; use the device 'cpu'");
    }
}

// The more keys, the larger the blocks, but of the same size whatever the GPU: the sums have one order.
std::int64_t block_keys(std::int64_t keys) { return kStepBlock * groups_of(keys, kStepBlock * kMostBlocks); }

struct StepLayout {
    Tensor query, key, value; // as the projections leave them
    Tensor sums, shares;      // f32 [blocks, heads, head_dim], [blocks, heads, 2]
    Tensor mixed;
};

StepLayout cut_step(Scratch &scratch, const AttentionShape &shape, std::int64_t blocks) {
    const std::int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
    StepLayout at;
    at.query = scratch.take(DType::bf16, {1, 2 * width});
    at.key = scratch.take(DType::bf16, {1, kv_width});
    at.value = scratch.take(DType::bf16, {1, kv_width});
    at.mixed = scratch.take(DType::bf16, {1, width});
    at.shares = scratch.take(DType::f32, {blocks, shape.heads, 2});
    at.sums = scratch.take(DType::f32, {blocks, shape.heads, shape.head_dim});
    return at;
}

struct RowsLayout {
    Tensor normed, query, key, value;
    Tensor queries; // bf16 [kv_heads, tiles, 8 * head_dim]
    Tensor mixed;
};

RowsLayout cut_rows(Scratch &scratch, const AttentionShape &shape, std::int64_t rows) {
    const std::int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
    RowsLayout at;
    at.normed = scratch.take(DType::bf16, {rows, shape.hidden});
    at.query = scratch.take(DType::bf16, {rows, 2 * width});
    at.key = scratch.take(DType::bf16, {rows, kv_width});
    at.value = scratch.take(DType::bf16, {rows, kv_width});
    at.queries = scratch.take(DType::bf16, {shape.kv_heads, query_tiles(shape, rows), 8 * shape.head_dim});
    at.mixed = scratch.take(DType::bf16, {rows, width});
    return at;
}

AttentionArgs args_of(const AttentionShape &shape, std::int64_t rows, std::int64_t capacity, std::int64_t position) {
    AttentionArgs args{};
    args.heads = u32(shape.heads);
    args.kv_heads = u32(shape.kv_heads);
    args.rows = u32(rows);
    args.position = u32(position);
    args.capacity = u32(capacity);
    args.block = u32(block_keys(position + 1));
    args.turns = u32(shape.rotary_dim / 2);
    args.eps = shape.eps;
    args.scale = score_scale(shape.head_dim);
    for (std::int64_t j = 0; j < shape.rotary_dim / 2; ++j) {
        args.frequency[j] = static_cast<float>(std::pow(
            static_cast<double>(shape.theta), -2.0 * static_cast<double>(j) / static_cast<double>(shape.rotary_dim)));
    }
    return args;
}

// Reads: the cache up to the row once; queries, their norm in every threadgroup; the gate's half of `query` in the join.
void encode_step(Stream &stream, Scratch scratch, const AttentionShape &shape, const AttentionWeights &w,
                 const Tensor &x, const KvCache &cache, std::int64_t position) {
    const AttentionArgs args = args_of(shape, 1, cache.keys.dims[1], position);
    const std::int64_t blocks = groups_of(position + 1, args.block), dim = shape.head_dim;
    const std::int64_t width = shape.heads * dim, kv_width = shape.kv_heads * dim;
    const StepLayout at = cut_step(scratch, shape, blocks);
    const Norm norm{w.norm, shape.eps};
    const Projection in[] = {{.w = &w.q, .y = at.query}, {.w = &w.k, .y = at.key}, {.w = &w.v, .y = at.value}};
    encode_projections(stream, x, &norm, {}, in);

    const Bytes cache_read{.unique = (position + 1) * kv_width * 2}, cache_written{.unique = kv_width * 2};
    stream.kernel("attention_step_" + std::to_string(dim))
        .read(at.query, Role::scratch, {.unique = width * 2, .loaded = blocks * width * 2})
        .read(at.key, Role::scratch)
        .read(at.value, Role::scratch)
        .read(w.q_norm, Role::weights, {.loaded = blocks * shape.kv_heads * dim * 4})
        .read(w.k_norm, Role::weights, {.loaded = shape.kv_heads * dim * 4})
        .update(cache.keys, Role::cache, cache_read, cache_written)
        .update(cache.values, Role::cache, cache_read, cache_written)
        .write(at.sums, Role::scratch)
        .write(at.shares, Role::scratch)
        .run(args, {u32(blocks), u32(shape.kv_heads)}, {128});

    const std::int64_t across = dim / kJoinDims;
    stream.kernel("attention_join")
        .read(at.sums, Role::scratch)
        .read(at.shares, Role::scratch, {.loaded = across * blocks * shape.heads * 8})
        .read(at.query, Role::scratch, {.unique = width * 2})
        .write(at.mixed, Role::scratch)
        .run(AttentionJoinArgs{u32(shape.heads), u32(dim), u32(blocks)}, {u32(across), u32(shape.heads)}, {256});

    const Projection out{.w = &w.o, .y = x, .add = true, .role = Role::activations};
    encode_projections(stream, at.mixed, nullptr, {}, {&out, 1});
}

// Reads: a tile's keys and values once a tile, of which a causal one has those up to its last row.
void encode_rows(Stream &stream, Scratch scratch, const AttentionShape &shape, const AttentionWeights &w,
                 const Tensor &x, const KvCache &cache, std::int64_t position) {
    const std::int64_t rows = x.dims[0], dim = shape.head_dim, group = shape.heads / shape.kv_heads;
    const std::int64_t width = shape.heads * dim, kv_width = shape.kv_heads * dim;
    const AttentionArgs args = args_of(shape, rows, cache.keys.dims[1], position);
    const RowsLayout at = cut_rows(scratch, shape, rows);
    const Norm norm{w.norm, shape.eps};
    const Projection in[] = {{.w = &w.q, .y = at.query}, {.w = &w.k, .y = at.key}, {.w = &w.v, .y = at.value}};
    encode_projections(stream, x, &norm, at.normed, in);

    stream.kernel("attention_prepare_" + std::to_string(dim))
        .read(at.query, Role::scratch, {.unique = rows * width * 2})
        .read(at.key, Role::scratch)
        .read(at.value, Role::scratch)
        .read(w.q_norm, Role::weights, {.loaded = rows * dim * 4})
        .read(w.k_norm, Role::weights, {.loaded = rows * dim * 4})
        .write(at.queries, Role::scratch, {.unique = rows * width * 2})
        .write(cache.keys, Role::cache, {.unique = rows * kv_width * 2})
        .write(cache.values, Role::cache, {.unique = rows * kv_width * 2})
        .run(args, {u32(rows)}, {128});

    const std::int64_t tiles = groups_of(rows * group, kWalkRows);
    std::int64_t keys = 0; // of all tiles
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
        keys += position + (std::min((tile + 1) * kWalkRows, rows * group) - 1) / group + 1;
    }
    const Bytes cache_read{.unique = (position + rows) * kv_width * 2, .loaded = keys * kv_width * 2};
    stream.kernel("attention_rows_" + std::to_string(dim))
        .read(at.queries, Role::scratch)
        .read(cache.keys, Role::cache, cache_read)
        .read(cache.values, Role::cache, cache_read)
        .read(at.query, Role::scratch, {.unique = rows * width * 2})
        .write(at.mixed, Role::scratch)
        .run(args, {u32(tiles), u32(shape.kv_heads)}, {kWalkThreads});

    const Projection out{.w = &w.o, .y = x, .add = true, .role = Role::activations};
    encode_projections(stream, at.mixed, nullptr, {}, {&out, 1});
}

} // namespace

void require_head_dim(const char *word, std::int64_t head_dim) {
    if (head_dim != 64 && head_dim != 128 && head_dim != 256) {
        throw Error(ErrorKind::unsupported_checkpoint, std::string(word) + ": heads of " + std::to_string(head_dim) +
                                                           " dims; the Metal kernels take 64, 128 or 256; use the "
                                                           "device 'cpu'");
    }
}

float score_scale(std::int64_t head_dim) {
    constexpr double kLog2E = 1.4426950408889634;
    return static_cast<float>(kLog2E / std::sqrt(static_cast<double>(head_dim)));
}

std::int64_t query_tiles(const AttentionShape &shape, std::int64_t rows) {
    return groups_of(rows * (shape.heads / shape.kv_heads), 8);
}

std::size_t attention_scratch(const Limits &limits) {
    require_supported(limits.attention);
    Scratch step, rows;
    cut_step(step, limits.attention, std::min(kMostBlocks, std::int64_t{groups_of(limits.context, kStepBlock)}));
    cut_rows(rows, limits.attention, limits.rows);
    return std::max(step.bytes(), rows.bytes());
}

void encode_attention(Stream &stream, Scratch scratch, const AttentionShape &shape, const AttentionWeights &weights,
                      const Tensor &x, const KvCache &cache, std::int64_t position) {
    require_supported(shape);
    if (x.dims[0] == 1) {
        encode_step(stream, scratch, shape, weights, x, cache, position);
    } else {
        encode_rows(stream, scratch, shape, weights, x, cache, position);
    }
}

} // namespace lily::metal
