// What lies around the softmax, for both kinds of attention: norm and rotation of queries and keys, and the tiles of a
// work item in a thread's piece of scratch. Which rows a tile holds, and which keys they may see, is the caller's.
#pragma once

#include "attention_tile.h"
#include "kernels.h"
#include "scratch.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

// x to q = norm(x) * weight with its first rotary_dim numbers turned; f32 throughout, one rounding. turns: cosines, then
// sines. turned: head_dim floats.
static void norm_and_turn(const AttentionShape &shape, const std::uint16_t *x, const float *weight, const float *turns,
                          float *turned, std::uint16_t *q) {
    F squares = zero();
    for (std::int64_t d = 0; d < shape.head_dim; d += kLanes) {
        const F v = load_bf16(x + d);
        squares = fma(v, v, squares);
    }
    const float mean = sum(squares) / static_cast<float>(shape.head_dim);
    const F scale = set1(1.0f / __builtin_sqrtf(mean + shape.eps));
    for (std::int64_t d = 0; d < shape.head_dim; d += kLanes)
        store(turned + d, mul(mul(load_bf16(x + d), scale), load(weight + d)));
    const std::int64_t half = shape.rotary_dim / 2;
    for (std::int64_t j = 0; j < half; j += kLanes) {
        const int lanes = static_cast<int>(at_most(kLanes, half - j));
        const F a = load_n(turned + j, lanes), b = load_n(turned + half + j, lanes);
        const F cosine = load_n(turns + j, lanes), sine = load_n(turns + half + j, lanes);
        store_n(turned + j, sub(mul(a, cosine), mul(b, sine)), lanes);
        store_n(turned + half + j, add(mul(b, cosine), mul(a, sine)), lanes);
    }
    for (std::int64_t d = 0; d < shape.head_dim; d += kLanes)
        store_bf16(q + d, load(turned + d));
}

// A thread's piece of scratch.
struct TileLayout {
    std::size_t turned, packed, values, scores, weights, queries, out, peaks, totals, positions, bytes;
};

static TileLayout lay_out_tiles(std::int64_t item_rows, std::int64_t head_dim) {
    TileLayout at{};
    const std::int64_t rows = (item_rows + kTileRows - 1) / kTileRows * kTileRows;
    at.turned = carve(at.bytes, head_dim * 4);
    at.packed = carve(at.bytes, head_dim * 2);
    at.values = carve(at.bytes, head_dim / kTileSteps * kPanelStride * 4);
    at.scores = carve(at.bytes, kKeyBlock * kTileRows * 4);
    at.weights = carve(at.bytes, kKeyBlock / 2 * kTileRows * 4);
    at.queries = carve(at.bytes, rows * head_dim * 2);
    at.out = carve(at.bytes, rows * head_dim * 4);
    at.peaks = carve(at.bytes, rows * 4);
    at.totals = carve(at.bytes, rows * 4);
    at.positions = carve(at.bytes, rows * 4);
    return at;
}

struct TileWorker {
    float *turned;         // [head_dim]
    std::uint16_t *packed; // [head_dim]
    std::uint32_t *values; // of a block of keys
    TileScratch scratch;
    std::byte *base;
    TileLayout at;
};

static TileWorker tile_worker(std::byte *base, const TileLayout &at) {
    return {reinterpret_cast<float *>(base + at.turned),
            reinterpret_cast<std::uint16_t *>(base + at.packed),
            reinterpret_cast<std::uint32_t *>(base + at.values),
            {reinterpret_cast<float *>(base + at.scores), reinterpret_cast<std::uint32_t *>(base + at.weights)},
            base,
            at};
}

// Rows [index * kTileRows, ...) of the item, as far as there are any; the positions of the first and the last are the
// caller's to set.
static Tile tile_of(const TileWorker &mine, std::int64_t index, std::int64_t item_rows, std::int64_t head_dim) {
    const std::int64_t first = index * kTileRows;
    Tile tile;
    tile.queries = reinterpret_cast<std::uint32_t *>(mine.base + mine.at.queries) + first * (head_dim / 2);
    tile.out = reinterpret_cast<float *>(mine.base + mine.at.out) + first * head_dim;
    tile.peak = reinterpret_cast<float *>(mine.base + mine.at.peaks) + first;
    tile.total = reinterpret_cast<float *>(mine.base + mine.at.totals) + first;
    tile.positions = reinterpret_cast<float *>(mine.base + mine.at.positions) + first;
    tile.rows = at_most(kTileRows, item_rows - first);
    tile.first = tile.last = 0;
    return tile;
}

// No queries, no keys seen yet; every lane at the position of the first row, which sees a key.
static void clear_tile(const Tile &tile, std::int64_t head_dim) {
    __builtin_memset(tile.out, 0, static_cast<std::size_t>(head_dim * kTileRows) * 4);
    __builtin_memset(tile.queries, 0, static_cast<std::size_t>(head_dim * kTileRows) * 2);
    for (std::int64_t lane = 0; lane < kTileRows; ++lane) {
        tile.peak[lane] = kNoScore;
        tile.total[lane] = 0;
        tile.positions[lane] = static_cast<float>(tile.first);
    }
}

// The query in mine.packed into a lane.
LILY_INLINE void put_query(const TileWorker &mine, const Tile &tile, std::int64_t lane, std::int64_t head_dim) {
    for (std::int64_t pair = 0; pair < head_dim / 2; ++pair)
        __builtin_memcpy(tile.queries + pair * kTileRows + lane, mine.packed + 2 * pair, 4);
}

// use(lane, dim, numbers) for each row and vector of dims of the tile's result: sums over the sum of the weights.
template <typename Use> LILY_INLINE void each_result(const Tile &tile, std::int64_t head_dim, const Use &use) {
    for (std::int64_t lane = 0; lane < tile.rows; lane += kLanes)
        for (std::int64_t d = 0; d < head_dim; d += kLanes) {
            Words square[kLanes];
            for (int i = 0; i < kLanes; ++i)
                square[i] = load_words(tile.out + (d + i) * kTileRows + lane);
            transpose(square);
            const std::int64_t count = at_most(kLanes, tile.rows - lane);
            for (std::int64_t i = 0; i < count; ++i)
                use(lane + i, d, mul(as_float(square[i]), set1(1.0f / tile.total[lane + i])));
        }
}

} // namespace lily::cpu::LILY_ISA
