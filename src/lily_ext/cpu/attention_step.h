// Attention for one row, which is reading the cache: every key and value is read once and serves all query heads of its
// key/value head. Keys are cut into blocks at absolute positions; each block leaves, for every query head, the largest
// score, the sum of the weights and the weighted sum of the values, all f32, and merge_blocks joins them in the order
// of the blocks. Not for several rows: see attention_tile.h.
#pragma once

#include "attention_tile.h"

namespace lily::cpu::LILY_ISA {

inline constexpr int kStepBlock = 256;
inline constexpr int kStepKeys = 8;                   // keys of one pass of score_step
inline constexpr int kMixHeads = kLanes == 8 ? 4 : 8; // query heads of one pass of mix_step
inline constexpr int kMixKeys = 32;                   // keys whose values are mixed before the next are fetched
inline constexpr std::int64_t kLine = 64;
// The first cache keeps too few requests open for the latency of memory, so the second one asks for the next page too.
inline constexpr std::int64_t kFarAhead = 4096;

// Query heads of one key/value head fill the lanes of a vector. Where they are fewer than the lanes, a lane holds one
// head and every repeat-th pair of dims, so that a broadcast of `repeat` pairs of a key meets all of them.
LILY_INLINE int heads_in_lanes(std::int64_t group) {
    int lanes = 1;
    while (lanes < group && lanes < kLanes)
        lanes *= 2;
    return lanes;
}

// queries[pair / repeat][kLanes] from q, bf16 [heads, head_dim]; heads <= lanes. Unused lanes are zero.
static void pack_step_queries(const std::uint16_t *q, std::int64_t heads, int lanes, std::int64_t head_dim,
                              std::uint32_t *queries) {
    const int repeat = kLanes / lanes;
    for (int lane = 0; lane < lanes; ++lane)
        for (std::int64_t pair = 0; pair < head_dim / 2; ++pair) {
            std::uint32_t bits = 0;
            if (lane < heads)
                __builtin_memcpy(&bits, q + lane * head_dim + 2 * pair, 4);
            queries[pair / repeat * kLanes + lane * repeat + pair % repeat] = bits;
        }
}

// scores[head][kStepBlock] of kStepKeys keys, `stride` apart, of which the first `count` are kept. While they are
// computed, as many bytes are fetched at `ahead`.
template <int repeat> LILY_INLINE void score_step(const std::uint16_t *keys, std::int64_t stride,
                                                  const std::uint32_t *queries, std::int64_t head_dim, float scale,
                                                  std::int64_t heads, std::int64_t count, const std::uint16_t *ahead,
                                                  float *scores) {
    constexpr std::int64_t lines = repeat > 2 ? repeat / 2 : 1; // of each step; one too many where repeat is 1
    const char *fetch = reinterpret_cast<const char *>(ahead);
    F acc[kStepKeys];
    for (int k = 0; k < kStepKeys; ++k)
        acc[k] = zero();
    for (std::int64_t dim = 0; dim < head_dim; dim += 2 * repeat, queries += kLanes) {
        const P query = load_pairs(queries);
        for (std::int64_t line = 0; line < lines; ++line, fetch += kLine) {
            __builtin_prefetch(fetch);
            __builtin_prefetch(fetch + kFarAhead, 0, 2);
        }
        for (int k = 0; k < kStepKeys; ++k)
            acc[k] = dot2(acc[k], repeat_pairs<repeat>(keys + k * stride + dim), query);
    }
    float parts[kStepKeys][kLanes];
    for (int k = 0; k < kStepKeys; ++k)
        store(parts[k], acc[k]);
    for (std::int64_t head = 0; head < heads; ++head)
        for (std::int64_t k = 0; k < count; ++k) {
            float score = 0;
            for (int i = 0; i < repeat; ++i)
                score += parts[k][head * repeat + i];
            scores[head * kStepBlock + k] = score * scale;
        }
}

// All keys of a block; those that do not fill a pass go one by one (the stride of one key is 0).
template <int repeat> static void score_block(const std::uint16_t *keys, const std::uint32_t *queries,
                                              std::int64_t head_dim, float scale, std::int64_t heads,
                                              std::int64_t count, const std::uint16_t *values, float *scores) {
    std::int64_t k = 0;
    for (; k + kStepKeys <= count; k += kStepKeys) {
        const std::uint16_t *at = keys + k * head_dim;
        const std::uint16_t *ahead = k + kStepKeys < count ? at + kStepKeys * head_dim : values;
        score_step<repeat>(at, head_dim, queries, head_dim, scale, heads, kStepKeys, ahead, scores + k);
    }
    for (; k < count; ++k)
        score_step<repeat>(keys + k * head_dim, 0, queries, head_dim, scale, heads, 1, values, scores + k);
}

static void score_heads(const std::uint16_t *keys, const std::uint32_t *queries, int lanes, std::int64_t head_dim,
                        float scale, std::int64_t heads, std::int64_t count, const std::uint16_t *values,
                        float *scores) {
    const int repeat = kLanes / lanes;
    if (repeat == 1)
        score_block<1>(keys, queries, head_dim, scale, heads, count, values, scores);
    else if (repeat == 2)
        score_block<2>(keys, queries, head_dim, scale, heads, count, values, scores);
    else if (repeat == 4)
        score_block<4>(keys, queries, head_dim, scale, heads, count, values, scores);
    if constexpr (kLanes >= 8) {
        if (repeat == 8)
            score_block<8>(keys, queries, head_dim, scale, heads, count, values, scores);
    }
    if constexpr (kLanes >= 16) {
        if (repeat == 16)
            score_block<16>(keys, queries, head_dim, scale, heads, count, values, scores);
    }
}

// Scores of one head to weights, in place. scores has room for a whole block.
static void weigh_step(float *scores, std::int64_t count, float *peak, float *total) {
    const std::int64_t end = round_up(count, kLanes);
    for (std::int64_t k = count; k < end; ++k)
        scores[k] = kNoScore;
    F most = set1(kNoScore), sums = zero();
    for (std::int64_t k = 0; k < end; k += kLanes)
        most = max(most, load(scores + k));
    *peak = max_lane(most);
    for (std::int64_t k = 0; k < end; k += kLanes) {
        const F weight = exp(sub(load(scores + k), set1(*peak)));
        sums = add(sums, weight);
        store(scores + k, weight);
    }
    *total = sum(sums);
}

// out[head][head_dim] += weights[head][key] * values[key] for H heads. Meanwhile the next values are fetched, in the order in
// which they lie in memory.
template <int H> static void mix_step(const float *weights, const std::uint16_t *values, std::int64_t head_dim,
                                      std::int64_t count, float *out) {
    for (std::int64_t dim = 0; dim < head_dim; dim += 2 * kLanes) {
        F acc[H][2];
        for (int h = 0; h < H; ++h)
            for (int v = 0; v < 2; ++v)
                acc[h][v] = load(out + h * head_dim + dim + v * kLanes);
        const std::uint16_t *value = values + dim, *next = values + kMixKeys * head_dim + dim * count;
        for (std::int64_t k = 0; k < count; ++k, value += head_dim, next += 2 * kLanes) {
            __builtin_prefetch(next, 0, 2);
            const F low = load_bf16(value), high = load_bf16(value + kLanes);
            for (int h = 0; h < H; ++h) {
                const F weight = set1(weights[h * kStepBlock + k]);
                acc[h][0] = fma(weight, low, acc[h][0]);
                acc[h][1] = fma(weight, high, acc[h][1]);
            }
        }
        for (int h = 0; h < H; ++h)
            for (int v = 0; v < 2; ++v)
                store(out + h * head_dim + dim + v * kLanes, acc[h][v]);
    }
}

static void mix_block(const float *weights, const std::uint16_t *values, std::int64_t head_dim, std::int64_t group,
                      std::int64_t count, float *out) {
    __builtin_memset(out, 0, static_cast<std::size_t>(group * head_dim) * sizeof(float));
    for (std::int64_t k = 0; k < count; k += kMixKeys) {
        const std::int64_t keys = at_most(kMixKeys, count - k);
        const std::uint16_t *from = values + k * head_dim;
        std::int64_t head = 0;
        for (; head + kMixHeads <= group; head += kMixHeads)
            mix_step<kMixHeads>(weights + head * kStepBlock + k, from, head_dim, keys, out + head * head_dim);
        for (; head + 2 <= group; head += 2)
            mix_step<2>(weights + head * kStepBlock + k, from, head_dim, keys, out + head * head_dim);
        if (head < group)
            mix_step<1>(weights + head * kStepBlock + k, from, head_dim, keys, out + head * head_dim);
    }
}

// One head's blocks, in order, into out[head_dim] = attention * sigmoid(gate), bf16. The peak and total of block b are
// at b * stride, its sums at b * stride * head_dim; the peaks become the blocks' weights.
static void merge_blocks(float *peaks, const float *totals, const float *sums, std::int64_t blocks, std::int64_t stride,
                         std::int64_t head_dim, const std::uint16_t *gate, std::uint16_t *out) {
    float peak = kNoScore, total = 0;
    for (std::int64_t b = 0; b < blocks; ++b)
        peak = peaks[b * stride] > peak ? peaks[b * stride] : peak;
    for (std::int64_t b = 0; b < blocks; ++b) {
        peaks[b * stride] = __builtin_expf(peaks[b * stride] - peak);
        total += peaks[b * stride] * totals[b * stride];
    }
    const F share = set1(1.0f / total);
    for (std::int64_t dim = 0; dim < head_dim; dim += kLanes) {
        F mix = zero();
        for (std::int64_t b = 0; b < blocks; ++b)
            mix = fma(load(sums + b * stride * head_dim + dim), set1(peaks[b * stride]), mix);
        store_bf16(out + dim, mul(mul(mix, share), sigmoid(load_bf16(gate + dim))));
    }
}

} // namespace lily::cpu::LILY_ISA
