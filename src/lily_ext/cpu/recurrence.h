// The gated delta rule, S = g S (I - beta k k^T) + beta v k^T and y = S q, for up to kSubChunk tokens at once (the WY
// form of arXiv 2406.06484 with the decay of 2412.06464), and for one. All f32.
//
// With c_t the product of the decays up to token t, and r_ti = c_t / c_i for i <= t:
//   A[t,i] = beta_t r_ti k_i.k_t (i < t)        U = (I + A)^-1 (beta V - beta c K S0^T)
//   y_t = c_t S0 q_t + sum over i <= t of r_ti (k_i.q_t) u_i        S = c_C S0 + sum of r_Ci u_i k_i^T
// Every product has the value dims as its rows and is independent for each of them, so a few rows of the state at a
// time go through the whole chain in the first cache. Tokens are lanes, but for the update of S; then every left
// operand lies as it is broadcast, and the state keeps the layout it has in memory. (I + A)^-1 is formed outright: its
// entries are products of contractions, at most 1.
#pragma once

#include "simd.h"

namespace lily::cpu::LILY_ISA {

inline constexpr int kSubChunk = 64;
// The register tile of product(): kProductRows x kProductVectors, for 32 vector registers or 16.
inline constexpr int kProductVectors = 2;
inline constexpr int kProductRows = kLanes == 8 ? 4 : 8;
inline constexpr int kProductCols = kProductVectors * kLanes;

// What the value heads of one key head share.
struct KeyChunk {
    std::int64_t tokens, padded; // padded: to whole kProductCols; what is behind the tokens is zero
    std::int64_t key_dim;
    const float *keys;    // [padded, key_dim]
    const float *crossed; // [key_dim][2 * kSubChunk]: keys, then queries, tokens as columns
    const float *grams;   // [padded][2 * kSubChunk]: k_i.k_t, then k_i.q_t, for t >= i
};

// One value head.
struct ValueChunk {
    std::int64_t value_dim;
    const float *values;   // [value_dim][kSubChunk], tokens as columns
    const float *decay;    // [kSubChunk]: g, in (0, 1]
    const float *beta;     // [kSubChunk]
    const float *state_in; // [value_dim, key_dim]
    float *state_out;      // the same; may be state_in
    float *out;            // [value_dim][kSubChunk]: y
};

struct ChunkScratch {
    float *solve;   // [kSubChunk][kSubChunk]: the transpose of (I + A)^-1
    float *mix;     // [kSubChunk][kSubChunk]: r_ti k_i.q_t in row i, column t
    float *system;  // [kSubChunk][kSubChunk]: -A, transposed
    float *begun;   // [kSubChunk]: c_t
    float *left;    // [kSubChunk]: r_Ci
    float *rows[2]; // [kProductRows][kSubChunk]
};

// acc[m][n] += sum over k of a[m][k] * b[k][n]
template <int N> LILY_INLINE void product(const float *a, std::int64_t a_stride, const float *b, std::int64_t b_stride,
                                          std::int64_t depth, F (&acc)[kProductRows][N]) {
    for (std::int64_t k = 0; k < depth; ++k, b += b_stride) {
        F right[N];
        for (int n = 0; n < N; ++n)
            right[n] = load(b + n * kLanes);
        for (int m = 0; m < kProductRows; ++m) {
            const F left = set1(a[m * a_stride + k]);
            for (int n = 0; n < N; ++n)
                acc[m][n] = fma(left, right[n], acc[m][n]);
        }
    }
}

LILY_INLINE void clear(F (&acc)[kProductRows][kProductVectors]) {
    for (int m = 0; m < kProductRows; ++m)
        for (int n = 0; n < kProductVectors; ++n)
            acc[m][n] = zero();
}

LILY_INLINE void store_rows(const F (&acc)[kProductRows][kProductVectors], float *to, std::int64_t stride) {
    for (int m = 0; m < kProductRows; ++m)
        for (int n = 0; n < kProductVectors; ++n)
            store(to + m * stride + n * kLanes, acc[m][n]);
}

// to[cols][to_stride] = from[rows][from_stride] transposed; rows and cols are multiples of kLanes.
static void cross(const float *from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols, float *to,
                  std::int64_t to_stride) {
    for (std::int64_t r = 0; r < rows; r += kLanes)
        for (std::int64_t c = 0; c < cols; c += kLanes) {
            Words square[kLanes];
            for (int i = 0; i < kLanes; ++i)
                square[i] = load_words(from + (r + i) * from_stride + c);
            transpose(square);
            for (int i = 0; i < kLanes; ++i)
                store(to + (c + i) * to_stride + r, as_float(square[i]));
        }
}

// The inner products of the keys with keys and queries. Column blocks before the row block's first token stay
// unwritten.
static void fill_grams(const KeyChunk &chunk, float *grams) {
    for (std::int64_t i = 0; i < chunk.padded; i += kProductRows)
        for (std::int64_t t = i / kProductCols * kProductCols; t < chunk.padded; t += kProductCols)
            for (std::int64_t side = 0; side < 2 * kSubChunk; side += kSubChunk) {
                F acc[kProductRows][kProductVectors];
                clear(acc);
                product(chunk.keys + i * chunk.key_dim, chunk.key_dim, chunk.crossed + side + t, 2 * kSubChunk,
                        chunk.key_dim, acc);
                store_rows(acc, grams + i * 2 * kSubChunk + side + t, 2 * kSubChunk);
            }
}

// From the last token to the first, r_ti of all later t is a product that grows by one decay a step: never a quotient,
// never a logarithm. What is left of a vanishing one is pushed to zero, out of the range where arithmetic is slow.
static void fill_decays(const KeyChunk &keys, const ValueChunk &values, const ChunkScratch &scratch) {
    const F vanished = set1(1e-30f);
    float *ratio = scratch.begun;
    for (std::int64_t t = 0; t < kSubChunk; ++t)
        ratio[t] = 0;
    for (std::int64_t i = keys.tokens - 1; i >= 0; --i) {
        const float *key_key = keys.grams + i * 2 * kSubChunk, *key_query = key_key + kSubChunk;
        float *system = scratch.system + i * kSubChunk, *mix = scratch.mix + i * kSubChunk;
        const F decay = set1(values.decay[i]);
        for (std::int64_t t = 0; t < i / kLanes * kLanes; t += kLanes) {
            store(system + t, zero());
            store(mix + t, zero());
        }
        for (std::int64_t t = i / kLanes * kLanes; t < keys.padded; t += kLanes) { // ratio[i] and before are still 0
            const F now = load(ratio + t);
            store(system + t, mul(mul(now, load(values.beta + t)), sub(zero(), load(key_key + t))));
            store(mix + t, mul(now, load(key_query + t)));
            store(ratio + t, max(zero(), sub(mul(now, decay), vanished)));
        }
        scratch.left[i] = i + 1 == keys.tokens ? 1 : scratch.left[i + 1] * values.decay[i + 1];
        mix[i] = key_query[i];
        ratio[i] = values.decay[i];
    }
}

// Row j of the transposed inverse is unit vector j minus A[i,j] times row i for the later i. Latest first in the order
// of rows, earliest last within a row: what the row before has just finished is needed last.
static void invert(const KeyChunk &keys, const ChunkScratch &scratch) {
    for (std::int64_t j = keys.tokens - 1; j >= 0; --j) {
        const float *system = scratch.system + j * kSubChunk;
        float *row = scratch.solve + j * kSubChunk;
        for (std::int64_t t = 0; t < kSubChunk; t += kLanes) {
            F even = zero(), odd = zero();
            const std::int64_t last = t + kLanes < keys.tokens ? t + kLanes : keys.tokens;
            std::int64_t i = last - 1;
            for (; i > j + 1; i -= 2) {
                even = fma(set1(system[i]), load(scratch.solve + i * kSubChunk + t), even);
                odd = fma(set1(system[i - 1]), load(scratch.solve + (i - 1) * kSubChunk + t), odd);
            }
            if (i == j + 1)
                even = fma(set1(system[i]), load(scratch.solve + i * kSubChunk + t), even);
            store(row + t, add(even, odd));
        }
        row[j] += 1;
    }
}

// How many tokens may act on the columns of one block from `column` on: none after its last.
LILY_INLINE std::int64_t triangle_depth(const KeyChunk &keys, std::int64_t column) {
    return column + kProductCols < keys.tokens ? column + kProductCols : keys.tokens;
}

// The state's next kProductRows rows: N vectors of columns from `column` on.
template <int N> LILY_INLINE void advance_state(const KeyChunk &keys, const float *state, const float *update, F whole,
                                                std::int64_t column, float *next) {
    F acc[kProductRows][N];
    for (int m = 0; m < kProductRows; ++m)
        for (int n = 0; n < N; ++n)
            acc[m][n] = mul(whole, load(state + m * keys.key_dim + column + n * kLanes));
    product(update, kSubChunk, keys.keys + column, keys.key_dim, keys.tokens, acc);
    for (int m = 0; m < kProductRows; ++m)
        for (int n = 0; n < N; ++n)
            store(next + m * keys.key_dim + column + n * kLanes, acc[m][n]);
}

// kProductRows rows of the state, from value dim `dim` on, through the sub-chunk.
static void advance_rows(const KeyChunk &keys, const ValueChunk &values, const ChunkScratch &scratch,
                         std::int64_t dim) {
    const float *state = values.state_in + dim * keys.key_dim;
    float *wanted = scratch.rows[0], *update = scratch.rows[1];
    F acc[kProductRows][kProductVectors];
    for (std::int64_t t = 0; t < keys.padded; t += kProductCols) { // beta (V - c K S^T)
        clear(acc);
        product(state, keys.key_dim, keys.crossed + t, 2 * kSubChunk, keys.key_dim, acc);
        for (int n = 0; n < kProductVectors; ++n) {
            const std::int64_t at = t + n * kLanes;
            const F begun = load(scratch.begun + at), beta = load(values.beta + at);
            for (int m = 0; m < kProductRows; ++m) {
                const F value = load(values.values + (dim + m) * kSubChunk + at);
                acc[m][n] = mul(beta, sub(value, mul(begun, acc[m][n])));
            }
        }
        store_rows(acc, wanted + t, kSubChunk);
    }
    for (std::int64_t t = 0; t < keys.padded; t += kProductCols) { // U
        clear(acc);
        product(wanted, kSubChunk, scratch.solve + t, kSubChunk, triangle_depth(keys, t), acc);
        store_rows(acc, update + t, kSubChunk);
    }
    for (std::int64_t t = 0; t < keys.padded; t += kProductCols) { // Y
        clear(acc);
        product(state, keys.key_dim, keys.crossed + kSubChunk + t, 2 * kSubChunk, keys.key_dim, acc);
        for (int m = 0; m < kProductRows; ++m)
            for (int n = 0; n < kProductVectors; ++n)
                acc[m][n] = mul(acc[m][n], load(scratch.begun + t + n * kLanes));
        product(update, kSubChunk, scratch.mix + t, kSubChunk, triangle_depth(keys, t), acc);
        store_rows(acc, values.out + dim * kSubChunk + t, kSubChunk);
    }
    for (int m = 0; m < kProductRows; ++m)
        for (std::int64_t t = 0; t < keys.padded; t += kLanes)
            store(update + m * kSubChunk + t, mul(load(update + m * kSubChunk + t), load(scratch.left + t)));
    const F whole = set1(scratch.begun[keys.tokens - 1]);
    float *next = values.state_out + dim * keys.key_dim;
    std::int64_t k = 0;
    for (; k + kProductCols <= keys.key_dim; k += kProductCols)
        advance_state<kProductVectors>(keys, state, update, whole, k, next);
    for (; k < keys.key_dim; k += kLanes)
        advance_state<1>(keys, state, update, whole, k, next);
}

static void advance(const KeyChunk &keys, const ValueChunk &values, const ChunkScratch &scratch) {
    fill_decays(keys, values, scratch);
    invert(keys, scratch);
    for (std::int64_t dim = 0; dim < values.value_dim; dim += kProductRows)
        advance_rows(keys, values, scratch, dim);
}

// One token. A row of the state is read once and written once: with p = S k, the old row's part of y = S q and the new
// row follow without a second reading.
struct Step {
    const float *key, *query; // [key_dim]
    std::int64_t key_dim;
    float decay, beta, key_query; // key_query: key . query
};

// Rows `from` of the state to rows `to`, which may be the same; out may be values. `past_caches`: nobody reads `to`
// soon, so it need not be fetched to be overwritten; a stream_fence() has to follow, and `to` must be aligned to a
// vector.
static void step_rows(const Step &step, std::int64_t rows, const float *values, const float *from, float *to,
                      float *out, bool past_caches) {
    const F decay = set1(step.decay);
    for (std::int64_t r = 0; r < rows; ++r, from += step.key_dim, to += step.key_dim) {
        F old_key = zero(), old_query = zero();
        for (std::int64_t k = 0; k < step.key_dim; k += kLanes) {
            const F state = load(from + k);
            old_key = fma(state, load(step.key + k), old_key);
            old_query = fma(state, load(step.query + k), old_query);
        }
        const float delta = (values[r] - step.decay * sum(old_key)) * step.beta;
        out[r] = step.decay * sum(old_query) + delta * step.key_query;
        if (past_caches)
            for (std::int64_t k = 0; k < step.key_dim; k += kLanes)
                stream(to + k, fma(set1(delta), load(step.key + k), mul(decay, load(from + k))));
        else
            for (std::int64_t k = 0; k < step.key_dim; k += kLanes)
                store(to + k, fma(set1(delta), load(step.key + k), mul(decay, load(from + k))));
    }
}

} // namespace lily::cpu::LILY_ISA
