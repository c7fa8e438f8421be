// h = silu(gate x) * up x of two rows or more: gate and up in one pass over x, so that neither leaves the registers. Also
// for the experts of moe, each against its own rows, which are gathered while they are staged. The product with down is
// matmul_kernel.h's. How the tile of a threadgroup is multiplied, the header that was included before this one says:
// tile.h or tile_matmul2d.h.
#pragma once

#include "args.h"
#include "operands.h"

struct SwigluResult {
    device bfloat *h;
    uint outputs;
    uint end; // of the rows

    void put(uint row, uint output, thread const float (&sums)[2]) const thread {
        if (row < end && output < outputs)
            h[size_t(row) * outputs + output] = bfloat(silu(sums[0]) * sums[1]);
    }
};

template <uint bits, uint rows, uint outputs>
[[kernel]] [[max_total_threads_per_threadgroup(tile_threads(2, rows, outputs))]] void
swiglu(device const uint *gate [[buffer(0)]], device const bfloat *gate_scales [[buffer(1)]],
       device const bfloat *gate_biases [[buffer(2)]], device const uint *up [[buffer(3)]],
       device const bfloat *up_scales [[buffer(4)]], device const bfloat *up_biases [[buffer(5)]],
       device const bfloat *x [[buffer(6)]], device const uint4 *map [[buffer(7)]],
       device const uint *tokens [[buffer(8)]], device bfloat *h [[buffer(9)]],
       constant SwigluArgs &args [[buffer(10)]], uint2 position [[threadgroup_position_in_grid]],
       uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
       uint lane [[thread_index_in_simdgroup]]) {
    threadgroup uint4 memory[tile_bytes(2, rows, outputs) / 16];
    threadgroup float floats[tile_floats(2, rows, outputs)];

    const Block block = block_at(map, args.grouped != 0, position.y, rows, args.rows, 0);
    if (block.expert == LILY_NO_EXPERT)
        return;
    const Weights w[2] = {{gate, gate_scales, gate_biases}, {up, up_scales, up_biases}};
    const Outputs of = {size_t(block.expert) * args.outputs, position.x * outputs, args.outputs, args.cols};
    const Rows from = {x, tokens, args.grouped != 0, args.cols, block};
    const SwigluResult result = {h, args.outputs, block.end};
    multiply_tile<bits, 2, rows, outputs>(w, of, from, {thread_index, simdgroup, lane}, memory, floats, result);
}

#define LILY_SWIGLU_OF(name, bits, rows, outputs)                                                                      \
    template [[host_name(name)]] [[kernel]] decltype(swiglu<bits, rows, outputs>) swiglu<bits, rows, outputs>;

#define LILY_SWIGLU(name, rows, outputs)                                                                               \
    LILY_SWIGLU_OF(name #rows "_affine4", 4, rows, outputs)                                                            \
    LILY_SWIGLU_OF(name #rows "_affine8", 8, rows, outputs)                                                            \
    LILY_SWIGLU_OF(name #rows "_bf16", 16, rows, outputs)
