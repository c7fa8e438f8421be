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

#include "affine.h"

constant constexpr uint kTilePad = 8;                 // keeps the rows of x apart in the banks of threadgroup memory
constant constexpr uint kTileRow = kGroup + kTilePad; // of one row and one group

inline uint lane_row(uint lane) { return ((lane >> 2) & 4) | ((lane >> 1) & 3); }
inline uint lane_pair(uint lane) { return ((lane >> 2) & 2) | (lane & 1); }

// 16 codes of a group: 2, 4 or 8 words.
template <uint bits> struct Codes {
    uint words[bits / 2];
};

// Pair p of group `group` of a row of codes.
template <uint bits> inline Codes<bits> load_codes(device const uint *row, uint group, uint pair) {
    Codes<bits> codes;
    row += group * (kGroup * bits / 32) + pair * (bits / 2);
    if (bits == 4) {
        const uint2 part = *(device const uint2 *)row;
        codes.words[0] = part.x;
        codes.words[1] = part.y;
    } else {
#pragma clang loop unroll(full)
        for (uint i = 0; i < bits / 8; ++i) {
            const uint4 part = ((device const uint4 *)row)[i];
#pragma clang loop unroll(full)
            for (uint k = 0; k < 4; ++k)
                codes.words[(4 * i + k) % (bits / 2)] = part[k];
        }
    }
    return codes;
}

// Codes 2 s and 2 s + 1.
template <uint bits> inline bfloat2 code_pair(thread const Codes<bits> &codes, uint s) {
    if (bits == 16)
        return as_type<bfloat2>(codes.words[s % (bits / 2)]);
    const uint code = bits == 4 ? codes.words[s / 4] >> (8 * (s % 4)) : codes.words[s / 2] >> (16 * (s % 2));
    const uint mask = (1u << (bits & 15)) - 1;
    return bfloat2(bfloat(float(code & mask)), bfloat(float((code >> (bits & 15)) & mask)));
}

// A thread puts 16 elements of a row of x, pair `pair` of a group, in their places; four neighbouring lanes have the
// four pairs. A row that is not there is zeros.
inline void stage_pair(device const bfloat *from, bool there, uint pair, threadgroup bfloat *row,
                       threadgroup float *sum) {
    uint4 low = 0, high = 0;
    if (there) {
        low = ((device const uint4 *)from)[0];
        high = ((device const uint4 *)from)[1];
    }
    float total = 0;
    threadgroup uint *to = (threadgroup uint *)row + pair;
#pragma clang loop unroll(full)
    for (uint s = 0; s < 8; ++s) {
        const uint both = s < 4 ? low[s % 4] : high[s % 4];
        to[4 * s] = both;
        total += as_type<float>(both << 16) + as_type<float>(both & 0xffff0000u);
    }
    total = quad_sum(total);
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
template <uint NF> struct Outputs {
    size_t row[NF];
};

template <uint NF> inline Outputs<NF> outputs_of(size_t base, uint first, uint outputs, uint lane) {
    Outputs<NF> at;
#pragma clang loop unroll(full)
    for (uint n = 0; n < NF; ++n)
        at.row[n] = base + min(first + 8 * n + lane_row(lane), outputs - 1); // what is beyond the end is not stored
    return at;
}

struct Weights {
    device const uint *codes;
    device const bfloat *scales;
    device const bfloat *biases;
};

// A lane's codes of one group, of M matrices with the same shape.
template <uint bits, uint M, uint NF> struct Loaded {
    Codes<bits> codes[M][NF];
};

template <uint bits, uint M, uint NF> inline Loaded<bits, M, NF>
load_group(thread const Weights (&w)[M], thread const Outputs<NF> &at, uint cols, uint group, uint lane) {
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
                      thread const Outputs<NF> &at, uint groups, uint group, threadgroup const bfloat *rows,
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

// The whole product of M matrices with a tile. from: the row of x that this thread stages, if it is there. first_row: of
// the tile, where this simdgroup's rows begin. staged: [2, depth, tile, kTileRow]; x_sums: [2, depth, tile]. While one
// half is multiplied, the other is filled: one barrier a turn.
template <uint bits, uint M, uint NF, uint MF>
inline void multiply_tile(thread const Weights (&w)[M], thread const Outputs<NF> &at, uint cols, uint tile, uint depth,
                          device const bfloat *from, bool there, Stage stage, uint first_row, uint lane,
                          threadgroup bfloat *staged, threadgroup float *x_sums, thread Sums<NF, MF> (&totals)[M]) {
    const uint groups = cols / kGroup, place = stage.group * tile + stage.row;
#pragma clang loop unroll(full)
    for (uint i = 0; i < M; ++i)
        clear<NF, MF>(totals[i]);
    Loaded<bits, M, NF> next = load_group<bits, M, NF>(w, at, cols, 0, lane);
    for (uint begin = 0, half_of = 0; begin < groups; begin += depth, half_of ^= 1) {
        const uint mine = begin + stage.group, base = half_of * depth * tile;
        stage_pair(from + mine * kGroup + 16 * stage.pair, there && mine < groups, stage.pair,
                   staged + (base + place) * kTileRow, x_sums + base + place);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint g = 0; g < depth && begin + g < groups; ++g) {
            const Loaded<bits, M, NF> loaded = next;
            if (begin + g + 1 < groups)
                next = load_group<bits, M, NF>(w, at, cols, begin + g + 1, lane);
            const uint row = base + g * tile + first_row;
            add_group<bits, M, NF, MF>(loaded, w, at, groups, begin + g, staged + row * kTileRow, x_sums + row, lane,
                                       totals);
        }
    }
}

// A block of a grouped product: the rows first .. end - 1 of one expert.
struct Block {
    uint expert;
    uint first;
    uint end;
};

// Block `index`: of the map, or, without one, the rows of one matrix cut at multiples of `tile`.
inline Block block_at(device const uint4 *map, bool grouped, uint index, uint tile, uint rows, uint expert) {
    Block block;
    if (grouped) {
        const uint4 entry = map[index];
        block.expert = entry.x;
        block.first = entry.y;
        block.end = entry.z;
    } else {
        block.expert = expert;
        block.first = index * tile;
        block.end = min(rows, block.first + tile);
    }
    return block;
}
