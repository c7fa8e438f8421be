// One row of x times rows of weights, the shape of decoding: memory-bound, so a weight is loaded once, 16 bytes a lane,
// and many loads are on their way at once: the first ones go out before x is staged. The threadgroup puts x, normed if
// asked, into threadgroup memory; a simdgroup multiplies what it reads of it with up to four rows of weights.
#pragma once

#include "affine.h"

constant constexpr uint kGemvThreads = 256;
constant constexpr uint kGemvSimdgroups = kGemvThreads / 32;
constant constexpr uint kRowsAtOnce = 4;
constant constexpr uint kLoadsAhead = 4; // of 16 bytes, of a lane: more take registers, and so simdgroups, from a core

// Columns that the loads of a simdgroup cover: 1024 at 4 bits.
template <uint bits> constexpr uint columns_of_block() { return 32 * codes_of_load<bits>(); }

// Rows of `all` that are multiplied at once.
template <uint all> constexpr uint rows_at_once() { return all < kRowsAtOnce ? all : kRowsAtOnce; }

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

// What a lane loads of a row at a time; scale and bias as they are, because turning them into float32 would wait.
template <uint bits> struct RowLoad {
    uint4 codes;
    bfloat scale;
    bfloat bias;
};

// Load `load` of n rows from `row` on.
template <uint bits, uint n>
inline void load_rows(thread const Rows &w, uint row, uint cols, uint load, thread RowLoad<bits> (&loaded)[n]) {
    const uint loads = cols / codes_of_load<bits>(), group = load * codes_of_load<bits>() / kGroup;
#pragma clang loop unroll(full)
    for (uint r = 0; r < n; ++r) {
        const size_t at = w.base + min(row + r, w.rows - 1);
        loaded[r].codes = w.codes[at * loads + load];
        if (bits < 16) {
            loaded[r].scale = w.scales[at * (cols / kGroup) + group];
            loaded[r].bias = w.biases[at * (cols / kGroup) + group];
        }
    }
}

// totals[r] += the part of row r times x, from whose elements at the same columns `x` begins.
template <uint bits, uint n, typename Parts>
inline void multiply_rows(thread const RowLoad<bits> (&rows)[n], Parts x, thread float (&totals)[n]) {
    constexpr uint words = bits / 4; // of the codes of 8 elements
    float sums[n], even = 0, odd = 0;
#pragma clang loop unroll(full)
    for (uint r = 0; r < n; ++r)
        sums[r] = 0;
#pragma clang loop unroll(full)
    for (uint part = 0; part < codes_of_load<bits>() / 8; ++part) {
        const uint4 pairs = x[part];
        float values[8];
#pragma clang loop unroll(full)
        for (uint k = 0; k < 4; ++k) {
            values[2 * k] = as_type<float>(pairs[k] << 16);
            values[2 * k + 1] = as_type<float>(pairs[k] & 0xffff0000u);
            even += values[2 * k];
            odd += values[2 * k + 1];
        }
#pragma clang loop unroll(full)
        for (uint r = 0; r < n; ++r) {
#pragma clang loop unroll(full)
            for (uint word = 0; word < words; ++word)
                sums[r] = dot_word<bits>(rows[r].codes[part * words + word], values + 8 / words * word, sums[r]);
        }
    }
    const float excess = excess_of_codes<bits>(even, odd), sum = even + odd;
#pragma clang loop unroll(full)
    for (uint r = 0; r < n; ++r)
        totals[r] += bits == 16 ? sums[r] : float(rows[r].scale) * (sums[r] - excess) + float(rows[r].bias) * sum;
}

// Where a simdgroup is on its way through M matrices of `count` rows: a block of columns after the other of the rows
// from `row` on, then the next rows.
struct Step {
    uint row;
    uint column;
};

template <uint bits, uint n> inline void advance(thread Step &step, uint cols) {
    step.column += columns_of_block<bits>();
    if (step.column >= cols) {
        step.column = 0;
        step.row += n;
    }
}

// The loads on their way.
template <uint bits, uint all> struct Coming {
    RowLoad<bits> loads[kLoadsAhead / rows_at_once<all>()][rows_at_once<all>()];
    Step next; // not loaded yet
};

template <uint bits, uint M, uint count>
inline void load_step(thread const Rows (&w)[M], uint first, uint cols, uint lane, thread Step &step,
                      thread RowLoad<bits> (&loaded)[rows_at_once<M * count>()]) {
    if (step.row >= M * count)
        return;
    // A lane beyond the end repeats the last load, for nothing.
    const uint load = min(step.column / codes_of_load<bits>() + lane, cols / codes_of_load<bits>() - 1);
    load_rows<bits>(step.row < count ? w[0] : w[M - 1], first + step.row % count, cols, load, loaded);
    advance<bits, rows_at_once<M * count>()>(step, cols);
}

// The first loads of row_products.
template <uint bits, uint M, uint count>
inline Coming<bits, M * count> first_loads(thread const Rows (&w)[M], uint first, uint cols, uint lane) {
    Coming<bits, M * count> coming;
    coming.next = {0, 0};
#pragma clang loop unroll(full)
    for (uint s = 0; s < kLoadsAhead / rows_at_once<M * count>(); ++s)
        load_step<bits, M, count>(w, first, cols, lane, coming.next, coming.loads[s]);
    return coming;
}

// Lane m * count + r gets the product of row first + r of matrix m with x in threadgroup memory; nothing the others.
template <uint bits, uint M, uint count> inline float row_products(thread const Rows (&w)[M], uint first,
                                                                   threadgroup const bfloat *row, uint cols, uint lane,
                                                                   thread Coming<bits, M * count> &coming) {
    constexpr uint n = rows_at_once<M * count>();
    static_assert(count % n == 0, "rows at once are of one matrix");
    float total = 0, sums[n];
#pragma clang loop unroll(full)
    for (uint r = 0; r < n; ++r)
        sums[r] = 0;
    Step step = {0, 0};
    while (step.row < M * count) {
#pragma clang loop unroll(full)
        for (uint s = 0; s < kLoadsAhead / n; ++s) {
            if (step.row < M * count) {
                const uint column = step.column + lane * codes_of_load<bits>(), done = step.row;
                if (column < cols)
                    multiply_rows<bits>(coming.loads[s], (threadgroup const uint4 *)(row + column), sums);
                load_step<bits, M, count>(w, first, cols, lane, coming.next, coming.loads[s]);
                advance<bits, n>(step, cols);
                if (step.row != done) {
#pragma clang loop unroll(full)
                    for (uint r = 0; r < n; ++r) {
                        const float sum = simd_sum(sums[r]);
                        total = lane == done + r ? sum : total;
                        sums[r] = 0;
                    }
                }
            }
        }
    }
    return total;
}
