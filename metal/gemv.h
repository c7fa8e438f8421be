// One row of x times rows of weights, the shape of decoding: memory-bound, so a weight is loaded once, 16 bytes a lane,
// and everything else stays out of its way. The threadgroup puts x, normed if asked, into threadgroup memory; each
// simdgroup holds a block of its columns in registers, as many as a load of codes, so that enough simdgroups fit a core,
// while it walks through its rows, whose loads are two rows ahead: those of the first go out before x is staged.
#pragma once

#include "affine.h"

constant constexpr uint kGemvThreads = 256;
constant constexpr uint kGemvSimdgroups = kGemvThreads / 32;
constant constexpr uint kRowLoads = 1;  // of 16 bytes, of a row and a lane at a time
constant constexpr uint kRowsAhead = 2; // whose loads are on their way

// Columns of x in the registers of a simdgroup: 1024 at 4 bits.
template <uint bits> constexpr uint columns_of_block() { return kRowLoads * 32 * codes_of_load<bits>(); }

// Stages x [cols], rounded as norm rounds it. partial: [kGemvSimdgroups]. Ends with a barrier; all threads take part.
inline void stage_row(device const bfloat *x, device const float *gain, bool normed, float eps, uint cols,
                      threadgroup bfloat *row, threadgroup float *partial, uint thread_index, uint simdgroup,
                      uint lane) {
    device const bfloat4 *from = (device const bfloat4 *)x;
    threadgroup bfloat4 *to = (threadgroup bfloat4 *)row;
    if (!normed) {
        for (uint c = thread_index; c < cols / 4; c += kGemvThreads)
            to[c] = from[c];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return;
    }
    float squares = 0;
    for (uint c = thread_index; c < cols / 4; c += kGemvThreads) {
        to[c] = from[c];
        const float4 value = float4(to[c]);
        squares += dot(value, value);
    }
    squares = simd_sum(squares);
    if (lane == 0)
        partial[simdgroup] = squares;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0;
    for (uint s = 0; s < kGemvSimdgroups; ++s)
        total += partial[s];
    const float scale = rsqrt(total / float(cols) + eps);
    device const float4 *gains = (device const float4 *)gain;
    for (uint c = thread_index; c < cols / 4; c += kGemvThreads)
        to[c] = bfloat4(float4(to[c]) * scale * gains[c]); // its own ones
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// A matrix of `rows` rows that begins at row `base` of a stack. Rows beyond the end repeat the last.
struct Rows {
    device const uint4 *codes;
    device const bfloat *scales;
    device const bfloat *biases;
    size_t base;
    uint rows;
};

// What a lane loads of a block of columns of a row; scales and biases as they are, because turning them into
// float32 would wait for them.
template <uint bits> struct RowLoads {
    uint4 codes[kRowLoads];
    bfloat scales[kRowLoads];
    bfloat biases[kRowLoads];
};

template <uint bits> inline RowLoads<bits> load_row(thread const Rows &w, uint row, uint cols, uint column, uint lane) {
    const uint loads = cols * bits / 128, first = column * bits / 128 + lane;
    const size_t at = w.base + min(row, w.rows - 1);
    device const uint4 *codes = w.codes + at * loads;
    device const bfloat *scales = w.scales + at * (cols / kGroup), *biases = w.biases + at * (cols / kGroup);
    RowLoads<bits> loaded;
#pragma clang loop unroll(full)
    for (uint l = 0; l < kRowLoads; ++l) {
        const uint load = min(first + 32 * l, loads - 1); // x is zero where a lane repeats the last load
        loaded.codes[l] = codes[load];
        if (bits < 16) {
            loaded.scales[l] = scales[load * codes_of_load<bits>() / kGroup];
            loaded.biases[l] = biases[load * codes_of_load<bits>() / kGroup];
        }
    }
    return loaded;
}

// The lane's share of the block of x from `column` on: element i of load l is column (32 l + lane) codes + i; those
// beyond the end are zero. sums: of each load; starts: where dot_codes has to begin.
template <uint bits> inline void take_columns(threadgroup const bfloat *row, uint cols, uint column, uint lane,
                                              thread float *x, thread float *sums, thread float *starts) {
    constexpr uint codes = codes_of_load<bits>();
    threadgroup const bfloat4 *from = (threadgroup const bfloat4 *)row;
#pragma clang loop unroll(full)
    for (uint l = 0; l < kRowLoads; ++l) {
        const uint first = column + (32 * l + lane) * codes;
        float sum = 0, start = 0;
#pragma clang loop unroll(full)
        for (uint i = 0; i < codes; i += 4) {
            const float4 values = first < cols ? float4(from[(first + i) / 4]) : float4(0.0f);
            sum += values[0] + values[1] + values[2] + values[3];
#pragma clang loop unroll(full)
            for (uint k = 0; k < 4; ++k) {
                x[l * codes + i + k] = values[k];
                start -= values[k] * offset_of_code<bits>(i + k);
            }
        }
        sums[l] = sum;
        starts[l] = start;
    }
}

// What a lane's columns add to the product with a row.
template <uint bits> inline float row_product(thread const RowLoads<bits> &row, thread const float *x,
                                              thread const float *sums, thread const float *starts) {
    float total = 0;
#pragma clang loop unroll(full)
    for (uint l = 0; l < kRowLoads; ++l) {
        const float sum = dot_codes<bits>(row.codes[l], x + l * codes_of_load<bits>(), starts[l]);
        total += bits == 16 ? sum : float(row.scales[l]) * sum + float(row.biases[l]) * sums[l];
    }
    return total;
}

// Lane m * count + r gets the product of row first + r of matrix m with x in threadgroup memory; nothing the others.
// ahead: load_row of the first of them, column 0.
template <uint bits, uint M, uint count> inline float row_products(thread const Rows (&w)[M], uint first,
                                                                   threadgroup const bfloat *row, uint cols, uint lane,
                                                                   thread RowLoads<bits> &ahead) {
    constexpr uint block = columns_of_block<bits>(), all = M * count, deep = all < kRowsAhead ? all : kRowsAhead;
    float x[kRowLoads * codes_of_load<bits>()], sums[kRowLoads], starts[kRowLoads], total = 0;
    RowLoads<bits> coming[deep];
    coming[0] = ahead;
#pragma clang loop unroll(full)
    for (uint d = 1; d < deep; ++d)
        coming[d] = load_row<bits>(d < count ? w[0] : w[M - 1], first + d % count, cols, 0, lane);
    for (uint column = 0; column < cols; column += block) {
        take_columns<bits>(row, cols, column, lane, x, sums, starts);
        for (uint base = 0; base < all; base += deep) {
#pragma clang loop unroll(full)
            for (uint d = 0; d < deep; ++d) {
                const RowLoads<bits> loaded = coming[d];
                const bool again = base + deep >= all; // at the next columns
                const uint next = again ? d : base + deep + d, next_column = again ? column + block : column;
                if (next_column < cols)
                    coming[d] =
                        load_row<bits>(next < count ? w[0] : w[M - 1], first + next % count, cols, next_column, lane);
                const float sum = simd_sum(row_product<bits>(loaded, x, sums, starts));
                total += lane == base + d ? sum : 0.0f;
            }
        }
    }
    return total;
}
