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
// four pairs. `from` is null for a row that is not there: zeros.
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

// One group: sums += codes . x^T. rows: the group's x, staged, of the MF * 8 rows.
template <uint bits, uint NF, uint MF> inline void
add_products(thread const Codes<bits> (&codes)[NF], threadgroup const bfloat *rows, thread Sums<NF, MF> &sums) {
#pragma clang loop unroll(full)
    for (uint s = 0; s < 8; ++s) {
        simdgroup_matrix<bfloat, 8, 8> x[MF];
#pragma clang loop unroll(full)
        for (uint m = 0; m < MF; ++m)
            simdgroup_load(x[m], rows + 8 * m * kTileRow + 8 * s, kTileRow, ulong2(0, 0), true);
#pragma clang loop unroll(full)
        for (uint n = 0; n < NF; ++n) {
            simdgroup_matrix<bfloat, 8, 8> w;
            w.thread_elements() = code_pair<bits>(codes[n], s);
#pragma clang loop unroll(full)
            for (uint m = 0; m < MF; ++m)
                simdgroup_multiply_accumulate(sums.at[n][m], w, x[m], sums.at[n][m]);
        }
    }
}

// The matrix rows of a lane: where its codes, scales and biases begin, for each of its NF outputs.
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

template <uint bits, uint NF> inline void load_group(device const uint *codes, thread const Outputs<NF> &at, uint cols,
                                                     uint group, uint lane, thread Codes<bits> (&loaded)[NF]) {
#pragma clang loop unroll(full)
    for (uint n = 0; n < NF; ++n)
        loaded[n] = load_codes<bits>(codes + at.row[n] * (cols * bits / 32), group, lane_pair(lane));
}

// totals += the product with one group.
template <uint bits, uint NF, uint MF>
inline void add_group(thread const Codes<bits> (&codes)[NF], device const bfloat *scales, device const bfloat *biases,
                      thread const Outputs<NF> &at, uint groups, uint group, threadgroup const bfloat *rows,
                      threadgroup const float *x_sums, uint lane, thread Sums<NF, MF> &totals) {
    if (bits == 16) {
        add_products<bits, NF, MF>(codes, rows, totals);
        return;
    }
    Sums<NF, MF> sums;
    clear<NF, MF>(sums);
    add_products<bits, NF, MF>(codes, rows, sums);
#pragma clang loop unroll(full)
    for (uint n = 0; n < NF; ++n) {
        const float scale = float(scales[at.row[n] * groups + group]);
        const float bias = float(biases[at.row[n] * groups + group]);
#pragma clang loop unroll(full)
        for (uint m = 0; m < MF; ++m) {
            const uint row = 8 * m + 2 * lane_pair(lane);
            const float2 x_sum = float2(x_sums[row], x_sums[row + 1]);
            totals.at[n][m].thread_elements() += scale * sums.at[n][m].thread_elements() + bias * x_sum;
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
