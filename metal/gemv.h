// One row of x times rows of weights, the shape of decoding: memory-bound, so a weight is loaded once, 16 bytes a lane,
// and everything else stays out of its way. The threadgroup puts x, normed if asked, into threadgroup memory; each
// simdgroup holds 2048 columns of it in registers, 64 a lane, while it walks through its rows.
#pragma once

#include "affine.h"

constant constexpr uint kGemvThreads = 256;
constant constexpr uint kGemvSimdgroups = kGemvThreads / 32;
constant constexpr uint kColumns = 2048; // of x in the registers of a simdgroup

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
        const float4 value = float4(from[c]);
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
        to[c] = bfloat4(float4(from[c]) * scale * gains[c]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The lane's share of columns column .. column + 2047 of x: element i of load l is column (32 l + lane) codes + i. Beyond
// the end it is zero. sums: of each load, of x as it is.
template <uint bits, typename Row>
inline void take_columns(Row row, uint cols, uint column, uint lane, thread float *x, thread float *sums) {
    constexpr uint codes = codes_of_load<bits>();
#pragma clang loop unroll(full)
    for (uint l = 0; l < bits / 2; ++l) {
        const uint first = column + (32 * l + lane) * codes;
        float sum = 0;
#pragma clang loop unroll(full)
        for (uint i = 0; i < codes; i += 4) {
            const float4 values = first < cols ? float4(row[(first + i) / 4]) : float4(0.0f);
            sum += values[0] + values[1] + values[2] + values[3];
#pragma clang loop unroll(full)
            for (uint k = 0; k < 4; ++k)
                x[l * codes + i + k] = values[k] * scale_of_place<bits>(i + k);
        }
        sums[l] = sum;
    }
}

// What a lane's columns add to the product with row `row` of a matrix.
template <uint bits> inline float row_product(device const uint4 *codes, device const bfloat *scales,
                                              device const bfloat *biases, size_t row, uint cols, uint column,
                                              uint lane, thread const float *x, thread const float *sums) {
    const uint loads = cols * bits / 128, first = column * bits / 128;
    codes += row * loads;
    float total = 0;
#pragma clang loop unroll(full)
    for (uint l = 0; l < bits / 2; ++l) {
        if (first + 32 * l < loads) { // the same for all lanes; those beyond the end have x = 0
            const uint load = min(first + 32 * l + lane, loads - 1);
            const float sum = dot_codes<bits>(codes[load], x + l * codes_of_load<bits>());
            if (bits == 16) {
                total += sum;
            } else {
                const size_t group = row * (cols / kGroup) + load * codes_of_load<bits>() / kGroup;
                total += float(scales[group]) * sum + float(biases[group]) * sums[l];
            }
        }
    }
    return total;
}

// Rows first .. first + count - 1 (those below `rows` count; others repeat the last) times x in threadgroup memory: the
// whole sums, in every lane.
template <uint bits, uint count> inline void row_products(device const uint4 *codes, device const bfloat *scales,
                                                          device const bfloat *biases, size_t base, uint first,
                                                          uint rows, threadgroup const bfloat *row, uint cols,
                                                          uint lane, thread float *totals) {
    float x[64], sums[bits / 2];
#pragma clang loop unroll(full)
    for (uint r = 0; r < count; ++r)
        totals[r] = 0;
    for (uint column = 0; column < cols; column += kColumns) {
        take_columns<bits>((threadgroup const bfloat4 *)row, cols, column, lane, x, sums);
#pragma clang loop unroll(full)
        for (uint r = 0; r < count; ++r)
            totals[r] +=
                row_product<bits>(codes, scales, biases, base + min(first + r, rows - 1), cols, column, lane, x, sums);
    }
#pragma clang loop unroll(full)
    for (uint r = 0; r < count; ++r)
        totals[r] = simd_sum(totals[r]);
}
