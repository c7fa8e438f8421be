// Several rows of x times rows of weights, with simdgroup_matrix. A simdgroup computes y^T = w . x^T for 8 NF outputs and
// 8 MF rows: the weights are the left factor and go from device memory into registers, as exact bf16 codes, without a
// stop; x is the right factor and is shared by the threadgroup through threadgroup memory. The sum over a group of 64
// codes is scaled before it joins the total, so weights are never rounded. Every shape of tile adds in one order:
// a row has the same bits whatever its neighbours are.
//
// Lane l of a simdgroup holds two neighbouring elements of an 8x8 matrix: row lane_row(l), columns 2 lane_pair(l) and one
// more. Within a group the inner index is permuted so that a lane's 16 codes lie together: product s takes elements
// 16 p + 2 s and 16 p + 2 s + 1 of pair p.
#pragma once

#include "operands.h"

constant constexpr uint kTilePad = 8;                 // keeps the rows of x apart in the banks of threadgroup memory
constant constexpr uint kTileRow = kGroup + kTilePad; // of one row and one group

inline uint lane_row(uint lane) { return ((lane >> 2) & 4) | ((lane >> 1) & 3); }
inline uint lane_pair(uint lane) { return ((lane >> 2) & 2) | (lane & 1); }

// A thread puts 16 elements of a row of x, pair `pair` of a group, in their places; four neighbouring lanes have the
// four pairs. A row that is not there is zeros.
inline void stage_pair(device const bfloat *from, bool there, uint pair, threadgroup bfloat *row,
                       threadgroup float *sum) {
    const Pair x = load_pair(from, there);
    threadgroup uint *to = (threadgroup uint *)row + pair;
#pragma clang loop unroll(full)
    for (uint s = 0; s < 8; ++s)
        to[4 * s] = s < 4 ? x.low[s % 4] : x.high[s % 4];
    const float total = sum_of_group(x);
    if (pair == 0)
        *sum = total;
}

template <uint NF, uint MF> struct Sums {
    simdgroup_matrix<float, 8, 8> at[NF][MF];
};

template <uint NF, uint MF> inline void clear(thread Sums<NF, MF> &sums) {
#pragma clang loop unroll(full)
    for (uint n = 0; n < NF; ++n)
#pragma clang loop unroll(full)
        for (uint m = 0; m < MF; ++m)
            sums.at[n][m] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// The matrix rows of a lane, for each of its NF outputs.
template <uint NF> struct LaneRows {
    size_t row[NF];
};

template <uint NF> inline LaneRows<NF> rows_of_lane(Outputs outputs, uint first, uint lane) {
    LaneRows<NF> at;
#pragma clang loop unroll(full)
    for (uint n = 0; n < NF; ++n)
        at.row[n] = row_of_output(outputs, first + 8 * n + lane_row(lane));
    return at;
}

// A lane's codes of one group, of M matrices with the same shape.
template <uint bits, uint M, uint NF> struct Loaded {
    Codes<bits> codes[M][NF];
};

template <uint bits, uint M, uint NF> inline Loaded<bits, M, NF>
load_group(thread const Weights (&w)[M], thread const LaneRows<NF> &at, uint cols, uint group, uint lane) {
    Loaded<bits, M, NF> loaded;
#pragma clang loop unroll(full)
    for (uint i = 0; i < M; ++i)
#pragma clang loop unroll(full)
        for (uint n = 0; n < NF; ++n)
            loaded.codes[i][n] = load_codes<bits>(w[i].codes + at.row[n] * (cols * bits / 32), group, lane_pair(lane));
    return loaded;
}

// One group: sums += codes . x^T. rows: the group's x, staged, of the MF * 8 rows.
template <uint bits, uint M, uint NF, uint MF> inline void
add_products(thread const Loaded<bits, M, NF> &loaded, threadgroup const bfloat *rows, thread Sums<NF, MF> (&sums)[M]) {
#pragma clang loop unroll(full)
    for (uint s = 0; s < 8; ++s) {
        simdgroup_matrix<bfloat, 8, 8> x[MF];
#pragma clang loop unroll(full)
        for (uint m = 0; m < MF; ++m)
            simdgroup_load(x[m], rows + 8 * m * kTileRow + 8 * s, kTileRow, ulong2(0, 0), true);
#pragma clang loop unroll(full)
        for (uint i = 0; i < M; ++i)
#pragma clang loop unroll(full)
            for (uint n = 0; n < NF; ++n) {
                simdgroup_matrix<bfloat, 8, 8> w;
                w.thread_elements() = code_pair<bits>(loaded.codes[i][n], s);
#pragma clang loop unroll(full)
                for (uint m = 0; m < MF; ++m)
                    simdgroup_multiply_accumulate(sums[i].at[n][m], w, x[m], sums[i].at[n][m]);
            }
    }
}

// totals += the product with one group, scaled.
template <uint bits, uint M, uint NF, uint MF>
inline void add_group(thread const Loaded<bits, M, NF> &loaded, thread const Weights (&w)[M],
                      thread const LaneRows<NF> &at, uint groups, uint group, threadgroup const bfloat *rows,
                      threadgroup const float *x_sums, uint lane, thread Sums<NF, MF> (&totals)[M]) {
    if (bits == 16) {
        add_products<bits, M, NF, MF>(loaded, rows, totals);
        return;
    }
    Sums<NF, MF> sums[M];
#pragma clang loop unroll(full)
    for (uint i = 0; i < M; ++i)
        clear<NF, MF>(sums[i]);
    add_products<bits, M, NF, MF>(loaded, rows, sums);
#pragma clang loop unroll(full)
    for (uint i = 0; i < M; ++i)
#pragma clang loop unroll(full)
        for (uint n = 0; n < NF; ++n) {
            const float scale = float(w[i].scales[at.row[n] * groups + group]);
            const float bias = float(w[i].biases[at.row[n] * groups + group]);
#pragma clang loop unroll(full)
            for (uint m = 0; m < MF; ++m) {
                const uint row = 8 * m + 2 * lane_pair(lane);
                const float2 x_sum = float2(x_sums[row], x_sums[row + 1]);
                totals[i].at[n][m].thread_elements() += scale * sums[i].at[n][m].thread_elements() + bias * x_sum;
            }
        }
}

// What a thread stages: one pair of one row of one of the `depth` groups that the threads stage at once.
struct Stage {
    uint pair;
    uint row; // of the tile
    uint group;
};

inline Stage stage_of(uint thread_index, uint tile) {
    Stage stage;
    stage.pair = thread_index % 4;
    stage.row = thread_index / 4 % tile;
    stage.group = thread_index / 4 / tile;
    return stage;
}

// How a threadgroup divides `rows` x `outputs`: four simdgroups along the outputs, and two along 64 rows.
constant constexpr uint kSimdgroups = 4;

constexpr uint tile_threads(uint, uint rows, uint) { return 32 * kSimdgroups * (rows == 64 ? 2 : 1); }

// Groups that the threads stage at once.
constexpr uint tile_depth(uint rows) { return tile_threads(1, rows, 0) / (4 * rows); }

// Threadgroup memory: bytes of x, and numbers beside it. Two halves: while one is multiplied, the other is filled.
constexpr uint tile_bytes(uint, uint rows, uint) { return 2 * tile_depth(rows) * rows * kTileRow * 2; }
constexpr uint tile_floats(uint, uint rows, uint) { return 2 * tile_depth(rows) * rows; }

// The products of M matrices with a block of up to `rows` rows, `outputs` outputs of each, one `store.put` for each sum.
// memory: tile_bytes; x_sums: tile_floats. One barrier a turn.
template <uint bits, uint M, uint rows, uint outputs, typename Store>
inline void multiply_tile(thread const Weights (&w)[M], Outputs of, Rows x, Place place, threadgroup uint4 *memory,
                          threadgroup float *x_sums, thread const Store &store) {
    constexpr uint NF = outputs / (8 * kSimdgroups), MF = (rows == 64 ? 32 : rows) / 8, depth = tile_depth(rows);
    threadgroup bfloat *staged = (threadgroup bfloat *)memory;
    const uint first_output = place.simdgroup % kSimdgroups * 8 * NF, lane = place.lane;
    const uint first_row = place.simdgroup / kSimdgroups * 8 * MF;
    const LaneRows<NF> at = rows_of_lane<NF>(of, first_output, lane);
    const Stage stage = stage_of(place.thread_index, rows);
    const bool there = is_there(x, stage.row);
    device const bfloat *from = row_of_block(x, stage.row);
    const uint groups = of.cols / kGroup, own = stage.group * rows + stage.row;

    Sums<NF, MF> totals[M];
#pragma clang loop unroll(full)
    for (uint i = 0; i < M; ++i)
        clear<NF, MF>(totals[i]);
    Loaded<bits, M, NF> next = load_group<bits, M, NF>(w, at, of.cols, 0, lane);
    for (uint begin = 0, half_of = 0; begin < groups; begin += depth, half_of ^= 1) {
        const uint mine = begin + stage.group, base = half_of * depth * rows;
        stage_pair(from + mine * kGroup + 16 * stage.pair, there && mine < groups, stage.pair,
                   staged + (base + own) * kTileRow, x_sums + base + own);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint g = 0; g < depth && begin + g < groups; ++g) {
            const Loaded<bits, M, NF> loaded = next;
            if (begin + g + 1 < groups)
                next = load_group<bits, M, NF>(w, at, of.cols, begin + g + 1, lane);
            const uint row = base + g * rows + first_row;
            add_group<bits, M, NF, MF>(loaded, w, at, groups, begin + g, staged + row * kTileRow, x_sums + row, lane,
                                       totals);
        }
    }

#pragma clang loop unroll(full)
    for (uint n = 0; n < NF; ++n)
#pragma clang loop unroll(full)
        for (uint m = 0; m < MF; ++m) {
            float2 sums[M];
#pragma clang loop unroll(full)
            for (uint i = 0; i < M; ++i)
                sums[i] = totals[i].at[n][m].thread_elements();
#pragma clang loop unroll(full)
            for (uint e = 0; e < 2; ++e) {
                float sum[M];
#pragma clang loop unroll(full)
                for (uint i = 0; i < M; ++i)
                    sum[i] = sums[i][e];
                store.put(x.block.first + first_row + 8 * m + 2 * lane_pair(lane) + e,
                          of.first + first_output + 8 * n + lane_row(lane), sum);
            }
        }
}
