// Attention of an encoder: projections, every row to its place, the walk of each window over its own keys, output. See
// metal/bidirectional.metal.

#include <algorithm>

#include "../error.h"
#include "args.h"
#include "attention.h"
#include "matmul.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

namespace {

struct Layout {
    Tensor normed, query, key, value; // the last three as the projections leave them
    Tensor queries;                   // bf16 [kv_heads, tiles, 8 * head_dim]
    Tensor keys, values;              // bf16 [kv_heads, rows, head_dim]
    Tensor mixed;
};

// Every window begins with a tile of its own.
std::int64_t tiles_of(const AttentionShape &shape, std::int64_t rows, std::int64_t windows) {
    return query_tiles(shape, rows) + windows;
}

Layout cut(Scratch &scratch, const AttentionShape &shape, std::int64_t rows, std::int64_t windows) {
    const std::int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
    Layout at;
    at.normed = scratch.take(DType::bf16, {rows, shape.hidden});
    at.query = scratch.take(DType::bf16, {rows, width});
    at.key = scratch.take(DType::bf16, {rows, kv_width});
    at.value = scratch.take(DType::bf16, {rows, kv_width});
    at.queries = scratch.take(DType::bf16, {shape.kv_heads, tiles_of(shape, rows, windows), 8 * shape.head_dim});
    at.keys = scratch.take(DType::bf16, {shape.kv_heads, rows, shape.head_dim});
    at.values = scratch.take(DType::bf16, {shape.kv_heads, rows, shape.head_dim});
    at.mixed = scratch.take(DType::bf16, {rows, width});
    return at;
}

// How many borders a row of a window reads until it knows its window (metal/bidirectional.metal).
std::int64_t borders_read(std::int64_t windows, std::int64_t window) {
    std::int64_t low = 0, high = windows, read = 0;
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (middle <= window ? low : high) = middle;
        ++read;
    }
    return low == 0 ? read + 1 : read; // and where the window begins, which the search has seen of all but the first
}

} // namespace

std::size_t bidirectional_scratch(const Limits &limits) {
    require_head_dim("bidirectional", limits.bidirectional.head_dim);
    Scratch scratch;
    cut(scratch, limits.bidirectional, limits.rows, limits.rows); // a window has a row or more
    return scratch.bytes();
}

// Reads: a window's keys and values once a tile of its rows.
void encode_bidirectional(Stream &stream, Scratch scratch, const AttentionShape &shape, const AttentionWeights &weights,
                          const Tensor &turns, const Tensor &x, const Tensor &starts,
                          std::span<const std::int32_t> borders) {
    require_head_dim("bidirectional", shape.head_dim);
    const std::int64_t rows = x.dims[0], dim = shape.head_dim, group = shape.heads / shape.kv_heads;
    const std::int64_t windows = static_cast<std::int64_t>(borders.size()) - 1, kv_width = shape.kv_heads * dim;
    const Layout at = cut(scratch, shape, rows, windows);
    const Norm norm{weights.norm, shape.eps};
    const Projection in[] = {
        {.w = &weights.q, .y = at.query}, {.w = &weights.k, .y = at.key}, {.w = &weights.v, .y = at.value}};
    encode_projections(stream, x, &norm, at.normed, in);

    std::int64_t longest = 0, keys = 0, read_tiles = 0, searched = 0; // keys: of all tiles of 128 packed rows
    for (std::int64_t window = 0; window < windows; ++window) {
        const std::int64_t length = borders[window + 1] - borders[window];
        longest = std::max(longest, length);
        keys += groups_of(length * group, kWalkRows) * length;
        read_tiles += groups_of(length * group, 8);
        searched += length * borders_read(windows, window);
    }
    const BidirectionalArgs args{u32(shape.heads),        u32(shape.kv_heads),       u32(rows), u32(windows),
                                 u32(at.queries.dims[1]), u32(shape.rotary_dim / 2), shape.eps, score_scale(dim)};
    const std::int64_t queries = rows * shape.heads * dim * 2;
    stream.kernel("bidirectional_prepare_" + std::to_string(dim))
        .read(at.query, Role::scratch)
        .read(at.key, Role::scratch)
        .read(at.value, Role::scratch)
        .read(weights.q_norm, Role::weights, {.loaded = rows * dim * 4})
        .read(weights.k_norm, Role::weights, {.loaded = rows * dim * 4})
        .read(turns, Role::activations,
              {.unique = longest * shape.rotary_dim * 4, .loaded = rows * shape.rotary_dim * 4})
        .read(starts, Role::activations, {.unique = windows * 4, .loaded = searched * 4})
        .write(at.queries, Role::scratch, {.unique = queries})
        .write(at.keys, Role::scratch)
        .write(at.values, Role::scratch)
        .run(args, {u32(rows)}, {128});

    const std::uint32_t across = groups_of(longest * group, kWalkRows);
    stream.kernel("bidirectional_rows_" + std::to_string(dim))
        .read(at.queries, Role::scratch, {.unique = read_tiles * shape.kv_heads * 8 * dim * 2})
        .read(at.keys, Role::scratch, {.loaded = keys * kv_width * 2})
        .read(at.values, Role::scratch, {.loaded = keys * kv_width * 2})
        .read(starts, Role::activations, {.loaded = across * shape.kv_heads * windows * 8})
        .write(at.mixed, Role::scratch)
        .run(args, {across, u32(shape.kv_heads), u32(windows)}, {kWalkThreads});

    const Projection out{.w = &weights.o, .y = x, .add = true, .role = Role::activations};
    encode_projections(stream, at.mixed, nullptr, {}, {&out, 1});
}

} // namespace lily::metal
