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
    threadgroup bfloat staged[2][depth * tile * kTileRow];
    threadgroup float x_sums[2][depth * tile];

    const Block block = block_at(map, args.grouped != 0, position.y, tile, args.rows, 0);
    if (block.expert == LILY_NO_EXPERT)
        return;
    const uint cols = args.cols, groups = cols / kGroup;
    const uint first = (position.x * kSwigluSimdgroups + simdgroup) * 8 * NF;
    const Outputs<NF> at = outputs_of<NF>(size_t(block.expert) * args.outputs, first, args.outputs, lane);

    // What this thread stages: one pair of one row of one of the groups.
    const uint pair = thread_index % 4, stage_row = thread_index / 4 % tile, stage_group = thread_index / 4 / tile;
    const uint place = stage_group * tile + stage_row;
    const bool row_there = block.first + stage_row < block.end;
    const uint slot = block.first + (row_there ? stage_row : 0);
    const uint row = args.grouped != 0 ? tokens[slot] : slot;
    device const bfloat *from = x + size_t(row) * cols + 16 * pair;

    Sums<NF, MF> gates, ups;
    clear<NF, MF>(gates);
    clear<NF, MF>(ups);
    for (uint begin = 0, turn = 0; begin < groups; begin += depth, turn ^= 1) {
        const uint mine = begin + stage_group;
        stage_pair(from + mine * kGroup, row_there && mine < groups, pair, staged[turn] + place * kTileRow,
                   x_sums[turn] + place);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint g = 0; g < depth && begin + g < groups; ++g) {
            const uint group = begin + g;
            Codes<bits> gate_codes[NF], up_codes[NF];
            load_group<bits, NF>(gate, at, cols, group, lane, gate_codes);
            load_group<bits, NF>(up, at, cols, group, lane, up_codes);
            threadgroup const bfloat *rows = staged[turn] + g * tile * kTileRow;
            threadgroup const float *sums = x_sums[turn] + g * tile;
            add_group<bits, NF, MF>(gate_codes, gate_scales, gate_biases, at, groups, group, rows, sums, lane, gates);
            add_group<bits, NF, MF>(up_codes, up_scales, up_biases, at, groups, group, rows, sums, lane, ups);
        }
    }

#pragma clang loop unroll(full)
    for (uint n = 0; n < NF; ++n)
#pragma clang loop unroll(full)
        for (uint m = 0; m < MF; ++m) {
            const float2 gate_sum = gates.at[n][m].thread_elements(), up_sum = ups.at[n][m].thread_elements();
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
