// Two rows or more times a packed matrix, or times the matrices of experts, each against its own rows (see moe.metal).
// A threadgroup makes 4 * 8 * NF outputs of MG * 8 * MF rows: tiles of 8 and 16 rows for short prompts, which are bound
// by the reading of weights, of 32 and 64 for long ones.

#include "args.h"
#include "tile.h"

constant constexpr uint kMatmulSimdgroups = 4; // side by side along the outputs

template <uint bits, uint NF, uint MF, uint MG> [[kernel]] [[max_total_threads_per_threadgroup(128 * MG)]] void
matmul(device const uint *codes [[buffer(0)]], device const bfloat *scales [[buffer(1)]],
       device const bfloat *biases [[buffer(2)]], device const bfloat *x [[buffer(3)]],
       device const uint4 *map [[buffer(4)]], device bfloat *y [[buffer(5)]], constant MatmulArgs &args [[buffer(6)]],
       uint2 position [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
       uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    constexpr uint tile = 8 * MF * MG;                               // rows
    constexpr uint depth = 32 * kMatmulSimdgroups * MG / (4 * tile); // groups that the threads stage at once
    threadgroup bfloat staged[2 * depth * tile * kTileRow];
    threadgroup float x_sums[2 * depth * tile];

    const Block block = block_at(map, args.grouped != 0, position.y, tile, args.rows, args.expert);
    if (block.expert == LILY_NO_EXPERT)
        return;
    const uint first = args.first + (position.x * kMatmulSimdgroups + simdgroup % kMatmulSimdgroups) * 8 * NF;
    const uint rows = simdgroup / kMatmulSimdgroups * 8 * MF; // of the tile, where this simdgroup's begin
    const Outputs<NF> at = outputs_of<NF>(size_t(block.expert) * args.outputs, first, args.outputs, lane);
    const Stage stage = stage_of(thread_index, tile);
    const bool there = block.first + stage.row < block.end;
    const Weights w[1] = {{codes, scales, biases}};
    Sums<NF, MF> totals[1];
    multiply_tile<bits, 1, NF, MF>(w, at, args.cols, tile, depth,
                                   x + size_t(block.first + (there ? stage.row : 0)) * args.cols, there, stage, rows,
                                   lane, staged, x_sums, totals);

#pragma clang loop unroll(full)
    for (uint n = 0; n < NF; ++n)
#pragma clang loop unroll(full)
        for (uint m = 0; m < MF; ++m) {
            const float2 total = totals[0].at[n][m].thread_elements();
            const uint output = first + 8 * n + lane_row(lane);
#pragma clang loop unroll(full)
            for (uint e = 0; e < 2; ++e) {
                const uint row = block.first + rows + 8 * m + 2 * lane_pair(lane) + e;
                if (row < block.end && output < args.outputs && output < args.first + args.stride) {
                    const size_t to = size_t(row) * args.stride + output - args.first;
                    if (args.store == LILY_STORE_F32)
                        ((device float *)y)[to] = total[e];
                    else if (args.store == LILY_STORE_BF16)
                        y[to] = bfloat(total[e]);
                    else
                        y[to] = bfloat(float(y[to]) + total[e]);
                }
            }
        }
}

#define LILY_MATMUL(rows, NF, MF, MG)                                                                                  \
    template                                                                                                           \
        [[host_name("matmul_" #rows "_affine4")]] [[kernel]] decltype(matmul<4, NF, MF, MG>) matmul<4, NF, MF, MG>;    \
    template                                                                                                           \
        [[host_name("matmul_" #rows "_affine8")]] [[kernel]] decltype(matmul<8, NF, MF, MG>) matmul<8, NF, MF, MG>;    \
    template [[host_name("matmul_" #rows "_bf16")]] [[kernel]] decltype(matmul<16, NF, MF, MG>) matmul<16, NF, MF, MG>;

LILY_MATMUL(8, 1, 1, 1)
LILY_MATMUL(16, 1, 2, 1)
LILY_MATMUL(32, 4, 4, 1)
LILY_MATMUL(64, 4, 4, 2)
