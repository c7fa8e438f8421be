// h = silu(gate x) * up x of two rows or more: gate and up in one pass over x, so that neither leaves the registers. Also
// for the experts of moe, each against its own rows, which are gathered while they are staged. The product with down
// is matmul.metal's.

#include "args.h"
#include "tile.h"

constant constexpr uint kSwigluSimdgroups = 4; // side by side along the outputs

template <uint bits, uint NF, uint MF> [[kernel]] [[max_total_threads_per_threadgroup(128)]] void
swiglu(device const uint *gate [[buffer(0)]], device const bfloat *gate_scales [[buffer(1)]],
       device const bfloat *gate_biases [[buffer(2)]], device const uint *up [[buffer(3)]],
       device const bfloat *up_scales [[buffer(4)]], device const bfloat *up_biases [[buffer(5)]],
       device const bfloat *x [[buffer(6)]], device const uint4 *map [[buffer(7)]],
       device const uint *tokens [[buffer(8)]], device bfloat *h [[buffer(9)]],
       constant SwigluArgs &args [[buffer(10)]], uint2 position [[threadgroup_position_in_grid]],
       uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
       uint lane [[thread_index_in_simdgroup]]) {
    constexpr uint tile = 8 * MF;  // rows
    constexpr uint depth = 4 / MF; // groups that the threads stage at once
    threadgroup bfloat staged[2 * depth * tile * kTileRow];
    threadgroup float x_sums[2 * depth * tile];

    const Block block = block_at(map, args.grouped != 0, position.y, tile, args.rows, 0);
    if (block.expert == LILY_NO_EXPERT)
        return;
    const uint first = (position.x * kSwigluSimdgroups + simdgroup) * 8 * NF;
    const Outputs<NF> at = outputs_of<NF>(size_t(block.expert) * args.outputs, first, args.outputs, lane);
    const Stage stage = stage_of(thread_index, tile);
    const bool there = block.first + stage.row < block.end;
    const uint slot = block.first + (there ? stage.row : 0);
    const uint row = args.grouped != 0 ? tokens[slot] : slot;
    const Weights w[2] = {{gate, gate_scales, gate_biases}, {up, up_scales, up_biases}};
    Sums<NF, MF> totals[2];
    multiply_tile<bits, 2, NF, MF>(w, at, args.cols, tile, depth, x + size_t(row) * args.cols, there, stage, 0, lane,
                                   staged, x_sums, totals);

#pragma clang loop unroll(full)
    for (uint n = 0; n < NF; ++n)
#pragma clang loop unroll(full)
        for (uint m = 0; m < MF; ++m) {
            const float2 gate_sum = totals[0].at[n][m].thread_elements(), up_sum = totals[1].at[n][m].thread_elements();
            const uint output = first + 8 * n + lane_row(lane);
#pragma clang loop unroll(full)
            for (uint e = 0; e < 2; ++e) {
                const uint to = block.first + 8 * m + 2 * lane_pair(lane) + e;
                if (to < block.end && output < args.outputs)
                    h[size_t(to) * args.outputs + output] = bfloat(silu(gate_sum[e]) * up_sum[e]);
            }
        }
}

#define LILY_SWIGLU(rows, NF, MF)                                                                                      \
    template [[host_name("swiglu_" #rows "_affine4")]] [[kernel]] decltype(swiglu<4, NF, MF>) swiglu<4, NF, MF>;       \
    template [[host_name("swiglu_" #rows "_affine8")]] [[kernel]] decltype(swiglu<8, NF, MF>) swiglu<8, NF, MF>;       \
    template [[host_name("swiglu_" #rows "_bf16")]] [[kernel]] decltype(swiglu<16, NF, MF>) swiglu<16, NF, MF>;

LILY_SWIGLU(8, 1, 1)
LILY_SWIGLU(16, 1, 2)
LILY_SWIGLU(32, 2, 4)
