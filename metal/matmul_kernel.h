// Two rows or more times a packed matrix, or times the matrices of experts, each against its own rows (see moe.metal). How
// the tile of a threadgroup is multiplied, the header that was included before this one says: tile.h or tile_matmul2d.h.
#pragma once

#include "args.h"
#include "operands.h"

// What becomes of a sum: y [rows, stride], whose column 0 is output `first`.
struct MatmulResult {
    device bfloat *y;
    uint first;
    uint stride;
    uint outputs;
    uint end; // of the rows
    uint store;

    void put(uint row, uint output, thread const float (&sum)[1]) const thread {
        if (row >= end || output >= outputs || output >= first + stride)
            return;
        const size_t to = size_t(row) * stride + output - first;
        if (store == LILY_STORE_F32)
            ((device float *)y)[to] = sum[0];
        else if (store == LILY_STORE_BF16)
            y[to] = bfloat(sum[0]);
        else
            y[to] = bfloat(float(y[to]) + sum[0]);
    }
};

template <uint bits, uint rows, uint outputs>
[[kernel]] [[max_total_threads_per_threadgroup(tile_threads(1, rows, outputs))]] void
matmul(device const uint *codes [[buffer(0)]], device const bfloat *scales [[buffer(1)]],
       device const bfloat *biases [[buffer(2)]], device const bfloat *x [[buffer(3)]],
       device const uint4 *map [[buffer(4)]], device bfloat *y [[buffer(5)]], constant MatmulArgs &args [[buffer(6)]],
       uint2 position [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
       uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup uint4 memory[tile_bytes(1, rows, outputs) / 16];
    threadgroup float floats[tile_floats(1, rows, outputs)];

    const Block block = block_at(map, args.grouped != 0, position.y, rows, args.rows, args.expert);
    if (block.expert == LILY_NO_EXPERT)
        return;
    const Weights w[1] = {{codes, scales, biases}};
    const Outputs of = {size_t(block.expert) * args.outputs, args.first + position.x * outputs, args.outputs,
                        args.cols};
    const Rows from = {x, nullptr, false, args.cols, block};
    const MatmulResult result = {y, args.first, args.stride, args.outputs, block.end, args.store};
    multiply_tile<bits, 1, rows, outputs>(w, of, from, {thread_index, simdgroup, lane}, memory, floats, result);
}

#define LILY_MATMUL_OF(name, bits, rows, outputs)                                                                      \
    template [[host_name(name)]] [[kernel]] decltype(matmul<bits, rows, outputs>) matmul<bits, rows, outputs>;

#define LILY_MATMUL(name, rows, outputs)                                                                               \
    LILY_MATMUL_OF(name #rows "_affine4", 4, rows, outputs)                                                            \
    LILY_MATMUL_OF(name #rows "_affine8", 8, rows, outputs)                                                            \
    LILY_MATMUL_OF(name #rows "_bf16", 16, rows, outputs)
