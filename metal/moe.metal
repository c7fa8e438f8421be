// The experts of one row, in two dispatches after the router's logits (a gemv). `moe_open` chooses the experts, in the
// first simdgroup of every threadgroup while the others norm x, and makes h = silu(gate) * up of the chosen and of the
// shared expert; `moe_close` multiplies with down, weights, sums, and adds the residual. Prompts: moe_sort.metal.

#include "args.h"
#include "choice.h"
#include "gemv.h"

constant constexpr uint kOpenRows = 4;  // of gate, and as many of up, a simdgroup
constant constexpr uint kCloseRows = 4; // of the residual stream, a simdgroup

template <uint bits> inline void open_rows(thread const Rows (&w)[2], uint first, threadgroup const bfloat *row,
                                           uint cols, uint lane, device bfloat *h) {
    Coming<bits, 2 * kOpenRows> coming = first_loads<bits, 2, kOpenRows>(w, first, cols, lane);
    const float total = row_products<bits, 2, kOpenRows>(w, first, row, cols, lane, coming);
    const float opened = silu(total) * simd_shuffle(total, (lane + kOpenRows) % 32);
    if (lane < kOpenRows && first + lane < w[0].rows)
        h[first + lane] = bfloat(opened);
}

// h: [top_k, width], then [shared_width]. ids: [top_k]; weights: [top_k + 1], the shared expert's behind the others.
[[kernel]] [[max_total_threads_per_threadgroup(kGemvThreads)]] void
moe_open(device const uint4 *gate [[buffer(0)]], device const bfloat *gate_scales [[buffer(1)]],
         device const bfloat *gate_biases [[buffer(2)]], device const uint4 *up [[buffer(3)]],
         device const bfloat *up_scales [[buffer(4)]], device const bfloat *up_biases [[buffer(5)]],
         device const uint4 *shared_gate [[buffer(6)]], device const bfloat *shared_gate_scales [[buffer(7)]],
         device const bfloat *shared_gate_biases [[buffer(8)]], device const uint4 *shared_up [[buffer(9)]],
         device const bfloat *shared_up_scales [[buffer(10)]], device const bfloat *shared_up_biases [[buffer(11)]],
         device const bfloat *x [[buffer(12)]], device const float *gain [[buffer(13)]],
         device const float *logits [[buffer(14)]], device const float *shared_logit [[buffer(15)]],
         device bfloat *h [[buffer(16)]], device uint *ids [[buffer(17)]], device float *weights [[buffer(18)]],
         constant MoeOpenArgs &args [[buffer(19)]], threadgroup bfloat *row [[threadgroup(0)]],
         uint2 position [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
         uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[kGemvSimdgroups];
    threadgroup uint chosen[kMostChosen];
    const uint slot = position.y;
    const bool shared = slot == args.top_k;
    if (simdgroup == 0 && !shared) {
        const Choice choice = choose_experts(logits, args.experts, args.top_k, args.renormalize != 0, lane);
        chosen[lane] = choice.id;
        if (slot == 0 && position.x == 0) {
            if (lane < args.top_k) {
                ids[lane] = choice.id;
                weights[lane] = choice.weight;
            }
            if (lane == 0)
                weights[args.top_k] = sigmoid(shared_logit[0]);
        }
    }
    stage_row(x, gain, true, args.eps, args.hidden, row, partial, thread_index, simdgroup, lane);

    const uint first = (position.x * kGemvSimdgroups + simdgroup) * kOpenRows;
    const uint rows = shared ? args.shared_width : args.width, bits = shared ? args.shared_bits : args.bits;
    if (first >= rows)
        return;
    const size_t base = shared ? 0 : size_t(chosen[slot]) * args.width;
    const Rows w[2] = {{shared ? shared_gate : gate, shared ? shared_gate_scales : gate_scales,
                        shared ? shared_gate_biases : gate_biases, base, rows},
                       {shared ? shared_up : up, shared ? shared_up_scales : up_scales,
                        shared ? shared_up_biases : up_biases, base, rows}};
    device bfloat *to = h + size_t(slot) * args.width;
    if (bits == 4)
        open_rows<4>(w, first, row, args.hidden, lane, to);
    else if (bits == 8)
        open_rows<8>(w, first, row, args.hidden, lane, to);
    else
        open_rows<16>(w, first, row, args.hidden, lane, to);
}

// totals[r] += this lane's part of sum over slots of weights[slot] * down[slot] . h[slot]. The loads of all slots are
// dealt to the lanes in one row: with 512 columns of 4 bits a load instruction covers two experts.
template <uint bits> inline void close_rows(device const uint4 *down, device const bfloat *scales,
                                            device const bfloat *biases, device const bfloat *h, device const uint *ids,
                                            bool shared, device const float *weights, uint slots, uint width,
                                            uint hidden, uint first, uint lane, thread float (&totals)[kCloseRows]) {
    constexpr uint codes = codes_of_load<bits>();
    const uint loads = width / codes; // of a row
    for (uint t = lane; t < slots * loads; t += 32) {
        const uint slot = t / loads, load = t - slot * loads;
        const Rows w = {down, scales, biases, shared ? 0 : size_t(ids[slot]) * hidden, hidden};
        RowLoad<bits> rows[kCloseRows];
        load_rows<bits>(w, first, width, load, rows);
        float products[kCloseRows];
#pragma clang loop unroll(full)
        for (uint r = 0; r < kCloseRows; ++r)
            products[r] = 0;
        multiply_rows<bits>(rows, (device const uint4 *)(h + size_t(slot) * width + load * codes), products);
        const float weight = weights[slot];
#pragma clang loop unroll(full)
        for (uint r = 0; r < kCloseRows; ++r)
            totals[r] += weight * products[r];
    }
}

[[kernel]] [[max_total_threads_per_threadgroup(128)]] void
moe_close(device const uint4 *down [[buffer(0)]], device const bfloat *down_scales [[buffer(1)]],
          device const bfloat *down_biases [[buffer(2)]], device const uint4 *shared_down [[buffer(3)]],
          device const bfloat *shared_scales [[buffer(4)]], device const bfloat *shared_biases [[buffer(5)]],
          device const bfloat *h [[buffer(6)]], device const uint *ids [[buffer(7)]],
          device const float *weights [[buffer(8)]], device bfloat *x [[buffer(9)]],
          constant MoeCloseArgs &args [[buffer(10)]], uint group [[threadgroup_position_in_grid]],
          uint groups [[simdgroups_per_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
          uint lane [[thread_index_in_simdgroup]]) {
    const uint first = (group * groups + simdgroup) * kCloseRows, hidden = args.hidden;
    if (first >= hidden)
        return;
    float totals[kCloseRows];
#pragma clang loop unroll(full)
    for (uint r = 0; r < kCloseRows; ++r)
        totals[r] = 0;
    const uint top_k = args.top_k, width = args.width;
    if (args.bits == 4)
        close_rows<4>(down, down_scales, down_biases, h, ids, false, weights, top_k, width, hidden, first, lane,
                      totals);
    else if (args.bits == 8)
        close_rows<8>(down, down_scales, down_biases, h, ids, false, weights, top_k, width, hidden, first, lane,
                      totals);
    else
        close_rows<16>(down, down_scales, down_biases, h, ids, false, weights, top_k, width, hidden, first, lane,
                       totals);
    device const bfloat *shared_h = h + size_t(top_k) * width;
    if (args.shared_bits == 4)
        close_rows<4>(shared_down, shared_scales, shared_biases, shared_h, ids, true, weights + top_k, 1,
                      args.shared_width, hidden, first, lane, totals);
    else if (args.shared_bits == 8)
        close_rows<8>(shared_down, shared_scales, shared_biases, shared_h, ids, true, weights + top_k, 1,
                      args.shared_width, hidden, first, lane, totals);
    else
        close_rows<16>(shared_down, shared_scales, shared_biases, shared_h, ids, true, weights + top_k, 1,
                       args.shared_width, hidden, first, lane, totals);
    float total = 0; // of row r in lane r, so that they are stored side by side
#pragma clang loop unroll(full)
    for (uint r = 0; r < kCloseRows; ++r) {
        const float sum = simd_sum(totals[r]);
        total = lane == r ? sum : total;
    }
    if (lane < kCloseRows && first + lane < hidden)
        x[first + lane] = bfloat(float(x[first + lane]) + total);
}
