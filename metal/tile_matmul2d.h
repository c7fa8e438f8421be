// Several rows of x times rows of weights, with matmul2d of Metal 4, which runs on the matrix hardware of an M5: the same
// interface and the same roundings as tile.h. The threadgroup puts the codes of a group, as exact bf16, and the rows of x
// beside each other in threadgroup memory; each simdgroup multiplies its part of them, and scales the sum over the group
// of 64 in float32 when it joins the total. Operands are plain tensors in threadgroup memory, and where an element of the
// result lies is asked, never assumed, because the layouts differ between GPUs.
#pragma once

#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_tensor>

#include "operands.h"

constant constexpr uint kSimdgroupOutputs = 32;

// A simdgroup has sums for so many rows: with two matrices for half as many, because it has a total for each.
constexpr uint simdgroup_rows(uint matrices, uint rows) { return rows < 32 / matrices ? rows : 32 / matrices; }

constexpr uint tile_threads(uint matrices, uint rows, uint outputs) {
    return 32 * (rows / simdgroup_rows(matrices, rows)) * (outputs / kSimdgroupOutputs);
}

// Threadgroup memory: bytes of x and of codes, one group of each, and numbers beside them: the sums of x, the scales and
// the biases of the group.
constexpr uint tile_bytes(uint matrices, uint rows, uint outputs) { return (rows + matrices * outputs) * kGroup * 2; }
constexpr uint tile_floats(uint matrices, uint rows, uint outputs) { return rows + 2 * matrices * outputs; }

constant constexpr uint kGroupVectors = kGroup * 2 / 16; // of 16 bytes, of a row of a group
constant constexpr uint kGroupPairs = kGroup / 16;

// 16 codes as bf16.
template <uint bits> inline Pair pair_of_codes(thread const Codes<bits> &codes) {
    Pair pair;
#pragma clang loop unroll(full)
    for (uint s = 0; s < 4; ++s) {
        pair.low[s] = as_type<uint>(code_pair<bits>(codes, s));
        pair.high[s] = as_type<uint>(code_pair<bits>(codes, s + 4));
    }
    return pair;
}

inline void store_pair(threadgroup uint4 *rows, uint row, uint pair, Pair values) {
    threadgroup uint4 *to = rows + row * kGroupVectors + 2 * pair;
    to[0] = values.low;
    to[1] = values.high;
}

// What a thread brings to one group: its pairs of x, of codes, and its scales and biases, each dealt to all threads in
// turn. So that they are on their way while the group before is multiplied, they pass through registers.
template <uint bits, uint M, uint rows, uint outputs> struct Share {
    Pair x[rows * kGroupPairs / tile_threads(M, rows, outputs)];
    Codes<bits> codes[M * outputs * kGroupPairs / tile_threads(M, rows, outputs)];
    float scales[(M * outputs + tile_threads(M, rows, outputs) - 1) / tile_threads(M, rows, outputs)];
    float biases[(M * outputs + tile_threads(M, rows, outputs) - 1) / tile_threads(M, rows, outputs)];
};

template <uint bits, uint M, uint rows, uint outputs> inline Share<bits, M, rows, outputs>
load_share(thread const Weights (&w)[M], Outputs of, Rows x, uint group, uint thread_index) {
    constexpr uint threads = tile_threads(M, rows, outputs);
    Share<bits, M, rows, outputs> share;
#pragma clang loop unroll(full)
    for (uint k = 0; k < rows * kGroupPairs / threads; ++k) {
        const uint row = (k * threads + thread_index) / kGroupPairs, pair = thread_index % kGroupPairs;
        share.x[k] = load_pair(row_of_block(x, row) + group * kGroup + 16 * pair, is_there(x, row));
    }
#pragma clang loop unroll(full)
    for (uint k = 0; k < M * outputs * kGroupPairs / threads; ++k) {
        const uint output = (k * threads + thread_index) / kGroupPairs, pair = thread_index % kGroupPairs;
        const size_t row = row_of_output(of, output % outputs);
        share.codes[k] = load_codes<bits>(w[output / outputs].codes + row * (of.cols * bits / 32), group, pair);
    }
    if (bits == 16)
        return share;
#pragma clang loop unroll(full)
    for (uint k = 0; k * threads < M * outputs; ++k) {
        const uint output = k * threads + thread_index;
        if (output < M * outputs) {
            const size_t at = row_of_output(of, output % outputs) * (of.cols / kGroup) + group;
            share.scales[k] = float(w[output / outputs].scales[at]);
            share.biases[k] = float(w[output / outputs].biases[at]);
        }
    }
    return share;
}

template <uint bits, uint M, uint rows, uint outputs>
inline void store_share(thread const Share<bits, M, rows, outputs> &share, uint thread_index, threadgroup uint4 *memory,
                        threadgroup float *floats) {
    constexpr uint threads = tile_threads(M, rows, outputs);
    const uint pair = thread_index % kGroupPairs;
#pragma clang loop unroll(full)
    for (uint k = 0; k < rows * kGroupPairs / threads; ++k) {
        const uint row = (k * threads + thread_index) / kGroupPairs;
        store_pair(memory, row, pair, share.x[k]);
        const float sum = sum_of_group(share.x[k]);
        if (pair == 0)
            floats[row] = sum;
    }
#pragma clang loop unroll(full)
    for (uint k = 0; k < M * outputs * kGroupPairs / threads; ++k)
        store_pair(memory, rows + (k * threads + thread_index) / kGroupPairs, pair,
                   pair_of_codes<bits>(share.codes[k]));
    if (bits == 16)
        return;
#pragma clang loop unroll(full)
    for (uint k = 0; k * threads < M * outputs; ++k) {
        const uint output = k * threads + thread_index;
        if (output < M * outputs) {
            floats[rows + output] = share.scales[k];
            floats[rows + M * outputs + output] = share.biases[k];
        }
    }
}

template <typename Sums> inline void clear_sums(thread Sums &sums) {
#pragma clang loop unroll(full)
    for (ushort e = 0; e < sums.get_capacity(); ++e)
        if (sums.is_valid_element(e))
            sums[e] = 0;
}

// totals += scale * sums + bias * x_sum. Index 0 of an element is its output, index 1 its row.
template <typename Sums> inline void add_scaled(thread Sums &totals, thread Sums &sums, threadgroup const float *scales,
                                                threadgroup const float *biases, threadgroup const float *x_sums) {
#pragma clang loop unroll(full)
    for (ushort e = 0; e < sums.get_capacity(); ++e)
        if (sums.is_valid_element(e)) {
            const auto at = sums.get_multidimensional_index(e);
            totals[e] += scales[at[0]] * sums[e] + biases[at[0]] * x_sums[at[1]];
        }
}

// The products of one or two matrices with a block of up to `rows` rows, `outputs` outputs of each, one `store.put` for
// each sum. memory: tile_bytes; floats: tile_floats.
template <uint bits, uint M, uint rows, uint outputs, typename Store>
inline void multiply_tile(thread const Weights (&w)[M], Outputs of, Rows x, Place place, threadgroup uint4 *memory,
                          threadgroup float *floats, thread const Store &store) {
    typedef tensor<threadgroup bfloat, dextents<int, 2>, tensor_inline> Operand;
    constexpr int part = simdgroup_rows(M, rows), columns = kSimdgroupOutputs, depth = kGroup;
    // With an operation that adds to its result, a sum begins with zeros: no mode of a result that it overwrites is needed.
    constexpr auto descriptor = mpp::tensor_ops::matmul2d_descriptor(
        part, columns, depth, false, true, false, mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate);
    mpp::tensor_ops::matmul2d<descriptor, execution_simdgroup> product;

    constexpr uint across = outputs / kSimdgroupOutputs;
    const uint first_row = place.simdgroup / across * part, first_output = place.simdgroup % across * columns;
    threadgroup bfloat *operands = (threadgroup bfloat *)memory;
    threadgroup const float *x_sums = floats + first_row, *scales = floats + rows + first_output;
    threadgroup const float *biases = scales + M * outputs;
    Operand left(operands + first_row * kGroup, dextents<int, 2>(depth, part));
    Operand first_right(operands + (rows + first_output) * kGroup, dextents<int, 2>(depth, columns));
    Operand second_right(operands + (rows + outputs * (M - 1) + first_output) * kGroup,
                         dextents<int, 2>(depth, columns));

    auto first_total = product.template get_destination_cooperative_tensor<Operand, Operand, float>();
    auto second_total = product.template get_destination_cooperative_tensor<Operand, Operand, float>();
    clear_sums(first_total);
    clear_sums(second_total);
    const uint groups = of.cols / kGroup;
    Share<bits, M, rows, outputs> next = load_share<bits, M, rows, outputs>(w, of, x, 0, place.thread_index);
    for (uint group = 0; group < groups; ++group) {
        threadgroup_barrier(mem_flags::mem_threadgroup); // the group before has been multiplied
        store_share<bits, M, rows, outputs>(next, place.thread_index, memory, floats);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (group + 1 < groups)
            next = load_share<bits, M, rows, outputs>(w, of, x, group + 1, place.thread_index);
        if (bits == 16) {
            product.run(left, first_right, first_total);
            if (M == 2)
                product.run(left, second_right, second_total);
            continue;
        }
        auto sums = product.template get_destination_cooperative_tensor<Operand, Operand, float>();
        clear_sums(sums);
        product.run(left, first_right, sums);
        add_scaled(first_total, sums, scales, biases, x_sums);
        if (M == 2) {
            clear_sums(sums);
            product.run(left, second_right, sums);
            add_scaled(second_total, sums, scales + outputs, biases + outputs, x_sums);
        }
    }

#pragma clang loop unroll(full)
    for (ushort e = 0; e < first_total.get_capacity(); ++e)
        if (first_total.is_valid_element(e)) {
            const auto at = first_total.get_multidimensional_index(e);
            float sum[M];
            sum[0] = first_total[e];
            if (M == 2)
                sum[M - 1] = second_total[e];
            store.put(x.block.first + first_row + at[1], of.first + first_output + at[0], sum);
        }
}
