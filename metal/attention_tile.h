// Softmax attention of 8 rows of one key/value head, by one simdgroup, with simdgroup_matrix. Rows are query heads at
// positions, packed: with 8 query heads to a key/value head they are one position. Scores are computed transposed,
// keys x rows, because then keys, queries and values all lie as they are loaded, 16 bytes a lane; only the weights
// cross lanes, to become the left factor of the product with the values. Rows never mix.
//
// A lane of a factor holds row lane_row(lane) and columns 2 lane_pair(lane) and one more. Dims are permuted within each 32:
// a lane's 8 neighbouring dims 8 pair .. 8 pair + 7 are its columns in four factors.
#pragma once

#include "attention_rows.h"

constant constexpr float kNoScore = -1e30f; // below every score, and far enough from overflow to subtract from

template <uint D> struct RowSums {
    simdgroup_matrix<float, 8, 8> at[D / 8]; // rows x dims: sum of weight * value
    float2 peak;                             // of rows 2 lane_pair(lane) and one more: largest score, in powers of two
    float2 total;                            // and this lane's part of the sum of weights
};

template <uint D> inline void clear_rows(thread RowSums<D> &sums) {
#pragma clang loop unroll(full)
    for (uint i = 0; i < D / 8; ++i)
        sums.at[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    sums.peak = float2(kNoScore);
    sums.total = float2(0.0f);
}

template <uint F> struct Scores {
    simdgroup_matrix<float, 8, 8> at[F]; // 8 keys x 8 rows each
};

template <uint F> inline void clear_scores(thread Scores<F> &scores) {
#pragma clang loop unroll(full)
    for (uint f = 0; f < F; ++f)
        scores.at[f] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// 8 keys x 32 dims times 32 dims x 8 rows.
inline void score_keys(uint4 key, uint4 query, thread simdgroup_matrix<float, 8, 8> &scores) {
#pragma clang loop unroll(full)
    for (uint i = 0; i < 4; ++i) {
        simdgroup_matrix<bfloat, 8, 8> left, right;
        left.thread_elements() = as_type<bfloat2>(key[i]);
        right.thread_elements() = as_type<bfloat2>(query[i]);
        simdgroup_multiply_accumulate(scores, left, right, scores);
    }
}

// The largest, and the sum, over the lanes of a column pair.
inline float2 most_of_rows(float2 value) {
    value = max(value, simd_shuffle_xor(value, 2));
    value = max(value, simd_shuffle_xor(value, 4));
    return max(value, simd_shuffle_xor(value, 16));
}

inline float2 sum_of_rows(float2 value) {
    value += simd_shuffle_xor(value, 2);
    value += simd_shuffle_xor(value, 4);
    return value + simd_shuffle_xor(value, 16);
}

// From a number of rows 2 lane_pair and one more to that of row lane_row.
inline float own_row(float2 value, uint lane) {
    const uint from = lane_of(0, lane_row(lane) / 2);
    const float even = simd_shuffle(value.x, from), odd = simd_shuffle(value.y, from);
    return lane_row(lane) % 2 == 0 ? even : odd;
}

// Scores of 8 F keys to weights exp2(score - peak), in place; sums so far are scaled to the new peak. first: the key of
// this lane's first score; keys from limit (of the lane's two rows) on are hidden where masked says that there are any.
template <uint D, uint F> inline void weigh_scores(float scale, uint first, uint2 limit, bool masked,
                                                   thread Scores<F> &scores, thread RowSums<D> &sums, uint lane) {
    float2 most = sums.peak, score[F];
#pragma clang loop unroll(full)
    for (uint f = 0; f < F; ++f) {
        score[f] = scores.at[f].thread_elements() * scale;
        if (masked) {
            score[f].x = first + 8 * f < limit.x ? score[f].x : kNoScore;
            score[f].y = first + 8 * f < limit.y ? score[f].y : kNoScore;
        }
        most = max(most, score[f]);
    }
    most = most_of_rows(most);
    const float2 keep = exp2(sums.peak - most);
    const bool risen = most.x > sums.peak.x || most.y > sums.peak.y;
    sums.peak = most;
    sums.total *= keep;
#pragma clang loop unroll(full)
    for (uint f = 0; f < F; ++f) {
        score[f] = exp2(score[f] - most);
        sums.total += score[f];
        scores.at[f].thread_elements() = score[f];
    }
    if (simd_any(risen)) { // else every row would be multiplied by one
        const float own = own_row(keep, lane);
#pragma clang loop unroll(full)
        for (uint i = 0; i < D / 8; ++i)
            sums.at[i].thread_elements() *= own;
    }
}

// Weights, keys x rows, as bf16 and crossed: rows x keys, the left factor. Two lanes have what a lane needs.
inline simdgroup_matrix<bfloat, 8, 8> cross_rounded(float2 weights, uint lane) {
    const uint own = as_type<uint>(bfloat2(weights)), row = lane_row(lane), shift = row % 2 * 16;
    const uint even = simd_shuffle(own, lane_of(2 * lane_pair(lane), row / 2));
    const uint odd = simd_shuffle(own, lane_of(2 * lane_pair(lane) + 1, row / 2));
    simdgroup_matrix<bfloat, 8, 8> crossed;
    crossed.thread_elements() = as_type<bfloat2>((even >> shift & 0xffffu) | odd >> shift << 16);
    return crossed;
}

inline simdgroup_matrix<float, 8, 8> cross_whole(float2 weights, uint lane) {
    const uint row = lane_row(lane);
    const float2 even = simd_shuffle(weights, lane_of(2 * lane_pair(lane), row / 2));
    const float2 odd = simd_shuffle(weights, lane_of(2 * lane_pair(lane) + 1, row / 2));
    simdgroup_matrix<float, 8, 8> crossed;
    crossed.thread_elements() = row % 2 == 0 ? float2(even.x, odd.x) : float2(even.y, odd.y);
    return crossed;
}
