// Softmax attention of many rows: a threadgroup has 128 packed rows of one key/value head, 8 a simdgroup, and walks over
// the keys with them, 64 at a time, so that a key or value is loaded once for 16 positions of 8 query heads. Keys and
// values pass through threadgroup memory in pieces of 64 dims, one piece ahead of the products. Causal for the
// attention of a decoder, whose keys start at position 0; an encoder's rows see their whole window.
#pragma once

#include "attention_tile.h"

constant constexpr uint kWalkSimdgroups = 16;
constant constexpr uint kWalkThreads = 32 * kWalkSimdgroups;
constant constexpr uint kWalkRows = 8 * kWalkSimdgroups;
constant constexpr uint kBlockKeys = 64;
constant constexpr uint kPieceDims = 64;
constant constexpr uint kPieceLoads = kPieceDims / 8;       // of a key; with all keys of a block, one a thread
constant constexpr uint kPieceStride = kPieceDims + 16;     // keeps keys apart in the banks of threadgroup memory
constant constexpr uint kPiece = kBlockKeys * kPieceStride; // numbers

struct Walk {
    uint group;    // query heads of the key/value head
    uint heads;    // of a row
    uint head;     // the first of the group
    uint rows;     // positions * group
    uint position; // causal: of the first row; else the number of keys
    float scale;   // of scores, in powers of two
};

template <bool causal> inline uint visible_keys(Walk walk, uint row) {
    return causal ? walk.position + min(row, walk.rows - 1) / walk.group + 1 : walk.position;
}

// The thread's 16 bytes of step `step` of a block: first the pieces of the keys, then those of the values.
template <uint D> inline uint4 fetch_piece(device const bfloat *keys, device const bfloat *values, uint first,
                                           uint step, uint end, uint thread_index) {
    constexpr uint pieces = D / kPieceDims;
    const uint key = first + thread_index / kPieceLoads;
    if (key >= end)
        return uint4(0);
    device const bfloat *from = (step < pieces ? keys : values) + size_t(key) * D + step % pieces * kPieceDims;
    return ((device const uint4 *)from)[thread_index % kPieceLoads];
}

inline void stage_piece(uint4 fetched, threadgroup bfloat *piece, uint thread_index) {
    *(threadgroup uint4 *)(piece + thread_index / kPieceLoads * kPieceStride + thread_index % kPieceLoads * 8) =
        fetched;
}

// This lane's 16 bytes of key or value 8 f + lane_row, dims 32 c ..
inline uint4 take_piece(threadgroup const bfloat *piece, uint f, uint c, uint lane) {
    return *(threadgroup const uint4 *)(piece + (8 * f + lane_row(lane)) * kPieceStride + 32 * c + 8 * lane_pair(lane));
}

// The rows' sums over the sum of their weights, times sigmoid(gate) where there is one, rounded. gates: per head two
// times D numbers, the gate in the second.
template <uint D, bool gated> inline void finish_rows(thread RowSums<D> &sums, Walk walk, uint first,
                                                      device const bfloat *gates, device bfloat *mixed, uint lane) {
    const float share = own_row(1.0f / sum_of_rows(sums.total), lane);
    const uint row = first + lane_row(lane);
    const bool there = row < walk.rows;
    const size_t head = size_t(row / walk.group) * walk.heads + walk.head + row % walk.group;
#pragma clang loop unroll(full)
    for (uint c = 0; c < D / 32; ++c) {
        const uint dim = 32 * c + 8 * lane_pair(lane);
        uint4 gate = 0, out;
        if (gated && there)
            gate = *(device const uint4 *)(gates + (2 * head + 1) * D + dim);
#pragma clang loop unroll(full)
        for (uint i = 0; i < 4; ++i) {
            float2 value = sums.at[4 * c + i].thread_elements() * share;
            if (gated) {
                const float2 by = float2(as_type<bfloat2>(gate[i]));
                value *= float2(sigmoid(by.x), sigmoid(by.y));
            }
            out[i] = as_type<uint>(bfloat2(value));
        }
        if (there)
            *(device uint4 *)(mixed + head * D + dim) = out;
    }
}

// queries: the key/value head's tiles of 8 rows, as prepare_heads leaves them. keys, values: its [.., D]. piece: two
// pieces of threadgroup memory. tile: which 128 rows.
template <uint D, bool causal, bool gated>
inline void walk_rows(device const uint4 *queries, device const bfloat *keys, device const bfloat *values,
                      device const bfloat *gates, device bfloat *mixed, Walk walk, uint tile,
                      threadgroup bfloat *staged, uint thread_index, uint simdgroup, uint lane) {
    constexpr uint pieces = D / kPieceDims, chunks = kPieceDims / 32, factors = kBlockKeys / 8;
    const uint first = tile * kWalkRows + simdgroup * 8;
    const uint end = visible_keys<causal>(walk, tile * kWalkRows + kWalkRows - 1);
    const uint open = visible_keys<causal>(walk, first); // keys that all rows of the simdgroup see
    const uint own_end = first < walk.rows ? visible_keys<causal>(walk, first + 7) : 0;
    const uint pair = first + 2 * lane_pair(lane);
    const uint2 limit = uint2(visible_keys<causal>(walk, pair), visible_keys<causal>(walk, pair + 1));
    queries += size_t(first / 8) * (D / 32) * 32 + lane;

    RowSums<D> sums;
    clear_rows<D>(sums);
    stage_piece(fetch_piece<D>(keys, values, 0, 0, end, thread_index), staged, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint key = 0; key < end; key += kBlockKeys) {
        Scores<factors> scores;
        clear_scores<factors>(scores);
        simdgroup_matrix<bfloat, 8, 8> weights[factors];
#pragma clang loop unroll(full)
        for (uint step = 0; step < 2 * pieces; ++step) {
            const bool last = step + 1 == 2 * pieces;
            const uint4 ahead =
                fetch_piece<D>(keys, values, last ? key + kBlockKeys : key, last ? 0 : step + 1, end, thread_index);
            threadgroup bfloat *piece = staged + step % 2 * kPiece;
            if (key < own_end && step < pieces) { // the same for the whole simdgroup
                for (uint c = 0; c < chunks; ++c) {
                    const uint4 query = queries[(step * chunks + c) * 32];
#pragma clang loop unroll(full)
                    for (uint f = 0; f < factors; ++f)
                        score_keys(take_piece(piece, f, c, lane), query, scores.at[f]);
                }
                if (step + 1 == pieces) {
                    weigh_scores<D, factors>(walk.scale, key + lane_row(lane), limit, key + kBlockKeys > open, scores,
                                             sums, lane);
#pragma clang loop unroll(full)
                    for (uint f = 0; f < factors; ++f)
                        weights[f] = cross_rounded(scores.at[f].thread_elements(), lane);
                }
            } else if (key < own_end) {
#pragma clang loop unroll(full)
                for (uint c = 0; c < chunks; ++c)
#pragma clang loop unroll(full)
                    for (uint f = 0; f < factors; ++f) {
                        const uint4 value = take_piece(piece, f, c, lane);
#pragma clang loop unroll(full)
                        for (uint i = 0; i < 4; ++i) {
                            simdgroup_matrix<bfloat, 8, 8> right;
                            right.thread_elements() = as_type<bfloat2>(value[i]);
                            thread simdgroup_matrix<float, 8, 8> &sum =
                                sums.at[(step - pieces) * 4 * chunks + 4 * c + i];
                            simdgroup_multiply_accumulate(sum, weights[f], right, sum);
                        }
                    }
            }
            stage_piece(ahead, staged + (step + 1) % 2 * kPiece, thread_index);
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }
    if (first < walk.rows)
        finish_rows<D, gated>(sums, walk, first, gates, mixed, lane);
}
