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

// The lane's share of columns column .. column + 2047 of x: element i of load l is column (32 l + lane) codes + i. Unless
// the block is whole, those beyond the end are zero. sums: of each load, of x as it is.
template <uint bits, bool whole> inline void take_columns(threadgroup const bfloat *row, uint cols, uint column,
                                                          uint lane, thread float *x, thread float *sums) {
    constexpr uint codes = codes_of_load<bits>();
    threadgroup const bfloat4 *from = (threadgroup const bfloat4 *)row;
#pragma clang loop unroll(full)
    for (uint l = 0; l < bits / 2; ++l) {
        const uint first = column + (32 * l + lane) * codes;
        float sum = 0;
#pragma clang loop unroll(full)
        for (uint i = 0; i < codes; i += 4) {
            const float4 values = whole || first < cols ? float4(from[(first + i) / 4]) : float4(0.0f);
            sum += values[0] + values[1] + values[2] + values[3];
#pragma clang loop unroll(full)
            for (uint k = 0; k < 4; ++k)
                x[l * codes + i + k] = values[k] * scale_of_place<bits>(i + k);
        }
        sums[l] = sum;
    }
}

// What a lane's columns add to the product with row `row` of a matrix. All loads go out before the first is used.
template <uint bits, bool whole> inline float row_product(device const uint4 *codes, device const bfloat *scales,
                                                          device const bfloat *biases, size_t row, uint cols,
                                                          uint column, uint lane, thread const float *x,
                                                          thread const float *sums) {
    const uint loads = cols * bits / 128, first = column * bits / 128 + lane;
    codes += row * loads;
    scales += row * (cols / kGroup);
    biases += row * (cols / kGroup);
    uint4 loaded[bits / 2];
    float scale[bits / 2], bias[bits / 2];
#pragma clang loop unroll(full)
    for (uint l = 0; l < bits / 2; ++l) { // x is zero where a lane repeats the last load
        const uint load = whole ? first + 32 * l : min(first + 32 * l, loads - 1);
        loaded[l] = codes[load];
        scale[l] = bits == 16 ? 1.0f : float(scales[load * codes_of_load<bits>() / kGroup]);
        bias[l] = bits == 16 ? 0.0f : float(biases[load * codes_of_load<bits>() / kGroup]);
    }
    float total = 0;
#pragma clang loop unroll(full)
    for (uint l = 0; l < bits / 2; ++l) {
        const float sum = dot_codes<bits>(loaded[l], x + l * codes_of_load<bits>());
        total += bits == 16 ? sum : scale[l] * sum + bias[l] * sums[l];
    }
    return total;
}

// totals[r] += the lane's part of the product with row first + r of a matrix of `rows` rows that begins at row `base`;
// rows beyond the end repeat the last.
template <uint bits, bool whole, uint count>
inline void add_rows(device const uint4 *codes, device const bfloat *scales, device const bfloat *biases, size_t base,
                     uint first, uint rows, uint cols, uint column, uint lane, thread const float *x,
                     thread const float *sums, thread float *totals) {
#pragma clang loop unroll(full)
    for (uint r = 0; r < count; ++r)
        totals[r] += row_product<bits, whole>(codes, scales, biases, base + min(first + r, rows - 1), cols, column,
                                              lane, x, sums);
}

template <uint count> inline void clear_totals(thread float *totals) {
#pragma clang loop unroll(full)
    for (uint r = 0; r < count; ++r)
        totals[r] = 0;
}

// The total of row r in lane r, so that a simdgroup stores them side by side; nothing in the other lanes.
template <uint count> inline float total_of_lane(thread const float *totals, uint lane) {
    float total = 0;
#pragma clang loop unroll(full)
    for (uint r = 0; r < count; ++r) {
        const float sum = simd_sum(totals[r]);
        total = lane == r ? sum : total;
    }
    return total;
}

// Rows first .. first + count - 1 of a matrix times x in threadgroup memory: the lane's parts.
template <uint bits, uint count> inline void row_products(device const uint4 *codes, device const bfloat *scales,
                                                          device const bfloat *biases, size_t base, uint first,
                                                          uint rows, threadgroup const bfloat *row, uint cols,
                                                          uint lane, thread float *totals) {
    float x[64], sums[bits / 2];
    clear_totals<count>(totals);
    uint column = 0;
    for (; column + kColumns <= cols; column += kColumns) {
        take_columns<bits, true>(row, cols, column, lane, x, sums);
        add_rows<bits, true, count>(codes, scales, biases, base, first, rows, cols, column, lane, x, sums, totals);
    }
    if (column < cols) {
        take_columns<bits, false>(row, cols, column, lane, x, sums);
        add_rows<bits, false, count>(codes, scales, biases, base, first, rows, cols, column, lane, x, sums, totals);
    }
}
