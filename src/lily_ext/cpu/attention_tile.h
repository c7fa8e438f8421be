// Flash attention for several rows, one tile at a time. A tile is a few vectors of rows, the rows of all query heads of
// one key/value head at a few positions, and a lane is a row: maximum, sum and mask of the softmax are vertical, a
// row's numbers never mix with its neighbours', and a key is broadcast from the cache as it lies there. Only values are
// repacked, once for all tiles of a work item. Scores exist for one block of keys at a time; blocks are cut at absolute
// positions, so that a row sees the same blocks whatever call it comes in. Not for one row: see attention_step.h.
#pragma once

#include "exponential.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

inline constexpr int kKeyBlock = 128;
// The register tile: kTileSteps keys (or dims) times kTileVectors vectors of rows, for 32 vector registers or 16.
inline constexpr int kTileVectors = kLanes == 8 ? 2 : 3;
inline constexpr int kTileSteps = kLanes == 8 ? 4 : 8;
inline constexpr int kTileRows = kTileVectors * kLanes;
// Values of kTileSteps dims and all pairs of keys of a block. One line more than that, or every dim would start in the
// same few sets of the first cache.
inline constexpr std::int64_t kPanelStride = kKeyBlock / 2 * kTileSteps + 16;

// Below every score; the maximum of no keys, and far enough from overflow to subtract from.
inline constexpr float kNoScore = -1e38f;

struct Tile {
    std::uint32_t *queries;         // [head_dim / 2][kTileRows]: pairs of dims
    float *out;                     // [head_dim][kTileRows]: sum of exp(score - peak) * value
    float *peak, *total;            // [kTileRows]: largest score, sum of exp(score - peak)
    float *positions;               // [kTileRows]
    std::int64_t rows, first, last; // rows in use; positions of the first and the last of them
};

struct KeyBlock {
    const std::uint16_t *keys;                    // [count, head_dim]
    const std::uint32_t *values;                  // packed by pack_values
    std::int64_t first, count;                    // position of the first key
    const std::uint16_t *next_keys, *next_values; // of the block after this one, to fetch meanwhile
};

struct TileScratch {
    float *scores;          // [kKeyBlock][kTileRows]
    std::uint32_t *weights; // [kKeyBlock / 2][kTileRows]: pairs of keys
};

LILY_INLINE std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }
LILY_INLINE std::int64_t at_most(std::int64_t n, std::int64_t most) { return n < most ? n : most; }

// Asks for `count` numbers from p on, into the second cache. p may point past the end of memory.
LILY_INLINE void fetch(const std::uint16_t *p, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += 32)
        __builtin_prefetch(p + i, 0, 2);
}

LILY_INLINE P set1_pair_at(const std::uint16_t *p) {
    std::uint32_t pair;
    __builtin_memcpy(&pair, p, 4);
    return set1_pair(pair);
}

// Pairs of keys side by side, a broadcast's worth of dims at a time:
// [head_dim / kTileSteps][kKeyBlock / 2][kTileSteps]. Keys past the end repeat the last one; their weights are zero.
// Consecutive keys are `stride` numbers apart.
static void pack_values(const std::uint16_t *values, std::int64_t stride, std::int64_t head_dim, std::int64_t count,
                        std::uint32_t *panel) {
    for (std::int64_t pair = 0; 2 * pair < round_up(count, kTileSteps); ++pair) {
        const std::uint16_t *even = values + at_most(2 * pair, count - 1) * stride;
        const std::uint16_t *odd = values + at_most(2 * pair + 1, count - 1) * stride;
        std::uint32_t *out = panel + pair * kTileSteps;
        for (std::int64_t dim = 0; dim < head_dim; dim += kTileSteps, out += kPanelStride)
            for (int i = 0; i < kTileSteps; ++i)
                out[i] = static_cast<std::uint32_t>(even[dim + i]) | static_cast<std::uint32_t>(odd[dim + i]) << 16;
    }
}

// scores[key][row] = scale * key . query for kTileSteps keys.
template <int V> LILY_INLINE void score_keys(const std::uint16_t *const *keys, const std::uint32_t *queries,
                                             std::int64_t head_dim, F scale, float *scores) {
    F acc[kTileSteps][V];
    for (int k = 0; k < kTileSteps; ++k)
        for (int v = 0; v < V; ++v)
            acc[k][v] = zero();
    for (std::int64_t dim = 0; dim < head_dim; dim += 2, queries += kTileRows) {
        P query[V];
        for (int v = 0; v < V; ++v)
            query[v] = load_pairs(queries + v * kLanes);
        for (int k = 0; k < kTileSteps; ++k) {
            const P key = set1_pair_at(keys[k] + dim);
            for (int v = 0; v < V; ++v)
                acc[k][v] = dot2(acc[k][v], key, query[v]);
        }
    }
    for (int k = 0; k < kTileSteps; ++k)
        for (int v = 0; v < V; ++v)
            store(scores + k * kTileRows + v * kLanes, mul(acc[k][v], scale));
}

// Lifts nothing and sinks the scores of keys after the row's own position far below any real one. The smaller of the
// score and a huge number of the right sign needs no compare; NaN goes through.
template <int V> LILY_INLINE void mask_scores(const Tile &tile, std::int64_t first, std::int64_t count, float *scores) {
    for (std::int64_t k = 0; k < count; ++k, scores += kTileRows) {
        const F key = set1(static_cast<float>(first + k) - 0.5f);
        for (int v = 0; v < V; ++v) {
            const F side = mul(sub(load(tile.positions + v * kLanes), key), set1(1e36f));
            store(scores + v * kLanes, min(side, load(scores + v * kLanes)));
        }
    }
}

// Scores to weights exp(score - peak), bf16 pairs of keys; `count` is even. The sum takes the weights before rounding.
// keep[row] is what the sums so far are worth under the new peak.
template <int V> LILY_INLINE void weigh_scores(const Tile &tile, const float *scores, std::int64_t count,
                                               std::uint32_t *weights, F *keep) {
    F peak[V], total[V];
    for (int v = 0; v < V; ++v)
        peak[v] = load(tile.peak + v * kLanes);
    for (std::int64_t k = 0; k < count; ++k)
        for (int v = 0; v < V; ++v)
            peak[v] = max(peak[v], load(scores + k * kTileRows + v * kLanes));
    for (int v = 0; v < V; ++v) {
        keep[v] = exp(sub(load(tile.peak + v * kLanes), peak[v]));
        total[v] = mul(load(tile.total + v * kLanes), keep[v]);
        store(tile.peak + v * kLanes, peak[v]);
    }
    for (std::int64_t k = 0; k < count; k += 2, weights += kTileRows)
        for (int v = 0; v < V; ++v) {
            const float *pair = scores + k * kTileRows + v * kLanes;
            const F even = exp(sub(load(pair), peak[v])), odd = exp(sub(load(pair + kTileRows), peak[v]));
            total[v] = add(add(total[v], even), odd);
            store_pairs(weights + v * kLanes, pack_pairs(even, odd));
        }
    for (int v = 0; v < V; ++v)
        store(tile.total + v * kLanes, total[v]);
}

// out[dim][row] = keep[row] * out[dim][row] + values . weights for kTileSteps dims.
template <int V> LILY_INLINE void mix_values(const std::uint32_t *values, const std::uint32_t *weights,
                                             std::int64_t pairs, const F *keep, float *out) {
    F acc[kTileSteps][V];
    for (int d = 0; d < kTileSteps; ++d)
        for (int v = 0; v < V; ++v)
            acc[d][v] = mul(load(out + d * kTileRows + v * kLanes), keep[v]);
    for (std::int64_t p = 0; p < pairs; ++p, values += kTileSteps, weights += kTileRows) {
        P weight[V];
        for (int v = 0; v < V; ++v)
            weight[v] = load_pairs(weights + v * kLanes);
        for (int d = 0; d < kTileSteps; ++d) {
            const P value = set1_pair(values[d]);
            for (int v = 0; v < V; ++v)
                acc[d][v] = dot2(acc[d][v], value, weight[v]);
        }
    }
    for (int d = 0; d < kTileSteps; ++d)
        for (int v = 0; v < V; ++v)
            store(out + d * kTileRows + v * kLanes, acc[d][v]);
}

// One block of keys into a tile of V vectors. Keys that no row of the tile may see are left out: they would add zeros.
template <int V> static void attend_vectors(const Tile &tile, const KeyBlock &block, std::int64_t head_dim, float scale,
                                            const TileScratch &scratch) {
    const std::int64_t seen = at_most(block.count, tile.last + 1 - block.first);
    if (seen <= 0)
        return;
    const std::int64_t count = round_up(seen, kTileSteps);
    for (std::int64_t k = 0; k < count; k += kTileSteps) {
        const std::uint16_t *keys[kTileSteps];
        for (int i = 0; i < kTileSteps; ++i)
            keys[i] = block.keys + at_most(k + i, block.count - 1) * head_dim;
        fetch(block.next_keys + k * head_dim, kTileSteps * head_dim);
        score_keys<V>(keys, tile.queries, head_dim, set1(scale), scratch.scores + k * kTileRows);
    }
    if (block.first + count - 1 > tile.first)
        mask_scores<V>(tile, block.first, count, scratch.scores);
    F keep[V];
    weigh_scores<V>(tile, scratch.scores, count, scratch.weights, keep);
    const std::uint32_t *values = block.values;
    for (std::int64_t dim = 0; dim < head_dim; dim += kTileSteps, values += kPanelStride) {
        fetch(block.next_values + dim * kKeyBlock, kTileSteps * kKeyBlock);
        mix_values<V>(values, scratch.weights, count / 2, keep, tile.out + dim * kTileRows);
    }
}

static void attend(const Tile &tile, const KeyBlock &block, std::int64_t head_dim, float scale,
                   const TileScratch &scratch) {
    if (tile.rows <= kLanes)
        attend_vectors<1>(tile, block, head_dim, scale, scratch);
    else if (tile.rows <= 2 * kLanes)
        attend_vectors<2>(tile, block, head_dim, scale, scratch);
    else
        attend_vectors<kTileVectors>(tile, block, head_dim, scale, scratch);
}

} // namespace lily::cpu::LILY_ISA
