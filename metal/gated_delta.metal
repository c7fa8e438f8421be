// Gated DeltaNet for one row, and for few: the recurrence token by token, with the convolution, the lengths and the
// gates inside, and the output projection of one row with the gated norm inside. Also that norm alone, for more rows.

#include "gated_delta.h"
#include "gemv.h"

constant constexpr uint kStepSimdgroups = 4;
constant constexpr uint kStepRows = 8; // rows of the state of a simdgroup

// A simdgroup has 8 rows of a value head's state in registers from the first token to the last: it is read once and
// written once. A lane holds K / 32 neighbouring key dims of each. Every simdgroup convolves the queries and keys of its
// head for itself; that is less than waiting for another one.
template <uint K> [[kernel]] [[max_total_threads_per_threadgroup(32 * kStepSimdgroups)]] void
gated_delta_step(device const bfloat *raw [[buffer(0)]], device const bfloat *window [[buffer(1)]],
                 device const float *conv [[buffer(2)]], device const float *a [[buffer(3)]],
                 device const float *b [[buffer(4)]], device const float *decay_rate [[buffer(5)]],
                 device const float *dt_bias [[buffer(6)]], device const float *state [[buffer(7)]],
                 device float *state_out [[buffer(8)]], device bfloat *window_out [[buffer(9)]],
                 device float *y [[buffer(10)]], constant GatedDeltaArgs &args [[buffer(11)]],
                 uint2 position [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]]) {
    constexpr uint each = K / 32;
    typedef vec<float, each> Numbers;
    const uint head = position.y, group = args.value_heads / args.key_heads;
    const uint first = (position.x * kStepSimdgroups + simdgroup) * kStepRows; // row of the state
    const uint query_channel = head / group * K + lane * each, key_channel = args.key_heads * K + query_channel;
    const uint value_channel = 2 * args.key_heads * K + head * args.value_dim + first;
    const size_t at = (size_t(head) * args.value_dim + first) * K + lane * each;

    Numbers rows[kStepRows];
#pragma clang loop unroll(full)
    for (uint r = 0; r < kStepRows; ++r)
        rows[r] = *(device const Numbers *)(state + at + r * K);
    for (uint token = args.first; token < args.first + args.count; ++token) {
        Numbers query = convolve<each>(window, raw, conv, args, int(token), query_channel);
        Numbers key = convolve<each>(window, raw, conv, args, int(token), key_channel);
        query *= rsqrt(simd_sum(dot(query, query)) + kLengthEps) * args.query_scale;
        key *= rsqrt(simd_sum(dot(key, key)) + kLengthEps);
        // Lane r of the first four convolves the values of rows 2 r and 2 r + 1.
        const float2 values = convolve<2>(window, raw, conv, args, int(token), value_channel + lane % 4 * 2);
        const uint gate = token * args.value_heads + head;
        const float decay = decay_of(decay_rate[head], a[gate] + dt_bias[head]), beta = sigmoid(b[gate]);
        const float key_query = simd_sum(dot(key, query));
        float own = 0;
#pragma clang loop unroll(full)
        for (uint r = 0; r < kStepRows; ++r) {
            const float old_key = simd_sum(dot(rows[r], key)), old_query = simd_sum(dot(rows[r], query));
            const float value = simd_shuffle(r % 2 == 0 ? values.x : values.y, r / 2);
            const float delta = (value - decay * old_key) * beta;
            own = lane == r ? decay * old_query + delta * key_query : own;
            rows[r] = rows[r] * decay + key * delta;
        }
        if (lane < kStepRows)
            y[(size_t(token - args.y_first) * args.value_heads + head) * args.value_dim + first + lane] = own;
    }
#pragma clang loop unroll(full)
    for (uint r = 0; r < kStepRows; ++r)
        *(device Numbers *)(state_out + at + r * K) = rows[r];

    if (args.last != 0) {
        if (lane < kStepRows / 2)
            keep_window<2>(window, raw, window_out, args, value_channel + 2 * lane);
        if (first == 0 && head % group == 0) {
            keep_window<each>(window, raw, window_out, args, query_channel);
            keep_window<each>(window, raw, window_out, args, key_channel);
        }
    }
}

// norm(y) * gain * silu(z) of one head, rounded, by one simdgroup.
template <typename Out> inline void gate_head(device const float *y, device const bfloat *z, device const float *gain,
                                              float eps, uint dims, Out out, uint lane) {
    float squares = 0;
    for (uint d = lane; d < dims; d += 32)
        squares += y[d] * y[d];
    const float scale = rsqrt(simd_sum(squares) / float(dims) + eps);
    for (uint d = lane; d < dims; d += 32)
        out[d] = bfloat(y[d] * scale * gain[d] * silu(float(z[d])));
}

constant constexpr uint kGateHeads = 4; // of a threadgroup

// gated: bf16 [rows, heads, dims] from y, f32; rows first .. of z and gated are rows 0 .. of y.
[[kernel]] [[max_total_threads_per_threadgroup(32 * kGateHeads)]] void
gated_delta_gate(device const float *y [[buffer(0)]], device const bfloat *z [[buffer(1)]],
                 device const float *gain [[buffer(2)]], device bfloat *gated [[buffer(3)]],
                 constant GatedDeltaGateArgs &args [[buffer(4)]], uint group [[threadgroup_position_in_grid]],
                 uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint head = group * kGateHeads + simdgroup;
    if (head >= args.heads) // the same for the whole simdgroup
        return;
    const size_t from = size_t(head) * args.dims, to = (size_t(args.first_head) + head) * args.dims;
    gate_head(y + from, z + to, gain, args.eps, args.dims, gated + to, lane);
}

constant constexpr uint kOutRows = 2; // of a simdgroup

// x += out . (norm(y) * gain * silu(z)), one row.
template <uint bits> [[kernel]] [[max_total_threads_per_threadgroup(kGemvThreads)]] void
gated_delta_out(device const uint4 *codes [[buffer(0)]], device const bfloat *scales [[buffer(1)]],
                device const bfloat *biases [[buffer(2)]], device const float *y [[buffer(3)]],
                device const bfloat *z [[buffer(4)]], device const float *gain [[buffer(5)]],
                device bfloat *x [[buffer(6)]], constant GatedDeltaOutArgs &args [[buffer(7)]],
                threadgroup bfloat *row [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]],
                uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint first = (group * kGemvSimdgroups + simdgroup) * kOutRows, cols = args.heads * args.dims;
    const Rows w[1] = {{codes, scales, biases, 0, args.rows}};
    Coming<bits, kOutRows> coming = first_loads<bits, 1, kOutRows>(w, first, cols, lane);
    for (uint head = simdgroup; head < args.heads; head += kGemvSimdgroups) {
        const uint at = head * args.dims;
        gate_head(y + at, z + at, gain, args.eps, args.dims, row + at, lane);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (first >= args.rows)
        return;
    const float total = row_products<bits, 1, kOutRows>(w, first, row, cols, lane, coming);
    if (lane < kOutRows && first + lane < args.rows)
        x[first + lane] = bfloat(float(x[first + lane]) + total);
}

template [[host_name("gated_delta_step_64")]] [[kernel]] decltype(gated_delta_step<64>) gated_delta_step<64>;
template [[host_name("gated_delta_step_128")]] [[kernel]] decltype(gated_delta_step<128>) gated_delta_step<128>;
template [[host_name("gated_delta_out_affine4")]] [[kernel]] decltype(gated_delta_out<4>) gated_delta_out<4>;
template [[host_name("gated_delta_out_affine8")]] [[kernel]] decltype(gated_delta_out<8>) gated_delta_out<8>;
template [[host_name("gated_delta_out_bf16")]] [[kernel]] decltype(gated_delta_out<16>) gated_delta_out<16>;
