// The logits of one row, and the greedy token without a second look at them: each threadgroup of `head` leaves the
// largest of its logits and where it stands, and `argmax` finds the first largest of those. Prompts whose every
// row wants logits go through matmul.metal.

#include "args.h"
#include "choice.h"
#include "gemv.h"

constant constexpr uint kHeadRows = 32; // a simdgroup, one a lane

template <uint bits> [[kernel]] [[max_total_threads_per_threadgroup(kGemvThreads)]] void
head(device const uint4 *codes [[buffer(0)]], device const bfloat *scales [[buffer(1)]],
     device const bfloat *biases [[buffer(2)]], device const bfloat *x [[buffer(3)]],
     device const float *gain [[buffer(4)]], device float *logits [[buffer(5)]], device uint2 *best [[buffer(6)]],
     constant HeadArgs &args [[buffer(7)]], threadgroup bfloat *row [[threadgroup(0)]],
     uint group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
     uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[kGemvSimdgroups];
    threadgroup uint2 bests[kGemvSimdgroups];
    const uint first = (group * kGemvSimdgroups + simdgroup) * kHeadRows;
    const Rows w[1] = {{codes, scales, biases, 0, args.vocab}};
    Coming<bits, kHeadRows> coming = first_loads<bits, 1, kHeadRows>(w, first, args.cols, lane);
    stage_row(x, gain, true, args.eps, args.cols, row, partial, thread_index, simdgroup, lane);
    const float total = row_products<bits, 1, kHeadRows>(w, first, row, args.cols, lane, coming);
    const bool mine = first + lane < args.vocab;
    if (mine)
        logits[first + lane] = total;
    const uint key = mine ? order_of(total) : 0;
    const uint most = simd_max(key);
    const uint id = simd_min(key == most ? first + lane : 0xffffffffu);
    if (lane == 0)
        bests[simdgroup] = uint2(most, id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index == 0) {
        uint2 top = bests[0];
        for (uint s = 1; s < kGemvSimdgroups; ++s)
            top = bests[s].x > top.x ? bests[s] : top;
        best[group] = top;
    }
}

// token: the id of the first largest logit. One threadgroup.
[[kernel]] [[max_total_threads_per_threadgroup(kGemvThreads)]] void
argmax(device const uint2 *best [[buffer(0)]], device int *token [[buffer(1)]], constant ArgmaxArgs &args [[buffer(2)]],
       uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
       uint lane [[thread_index_in_simdgroup]]) {
    threadgroup uint2 bests[kGemvSimdgroups];
    uint2 top = uint2(0, 0xffffffffu);
    for (uint i = thread_index; i < args.count; i += kGemvThreads)
        top = best[i].x > top.x ? best[i] : top; // ids rise with i
    const uint most = simd_max(top.x), id = simd_min(top.x == most ? top.y : 0xffffffffu);
    if (lane == 0)
        bests[simdgroup] = uint2(most, id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index == 0) {
        top = bests[0];
        for (uint s = 1; s < kGemvSimdgroups; ++s)
            if (bests[s].x > top.x || (bests[s].x == top.x && bests[s].y < top.y))
                top = bests[s];
        *token = int(top.y);
    }
}

template [[host_name("head_affine4")]] [[kernel]] decltype(head<4>) head<4>;
template [[host_name("head_affine8")]] [[kernel]] decltype(head<8>) head<8>;
template [[host_name("head_bf16")]] [[kernel]] decltype(head<16>) head<16>;
