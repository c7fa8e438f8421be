// What stands before the recurrence of Gated DeltaNet: the causal depthwise convolution with its window, the decay of a
// token and its rate of change. Not the recurrence: see gated_delta.metal and gated_delta_chunk.metal.
#pragma once

#include "affine.h"
#include "args.h"

constant constexpr float kLengthEps = 1e-6f;

// silu(convolution) of N = 2 or 4 neighbouring channels at one row, rounded to bf16. Rows below 0 are in the window.
template <uint N> inline vec<float, N> convolve(device const bfloat *window, device const bfloat *raw,
                                                device const float *conv, constant GatedDeltaArgs &args, int row,
                                                uint channel) {
    typedef vec<bfloat, N> Inputs;
    typedef vec<float, N> Numbers;
    const int before = int(args.taps) - 1;
    Numbers mixed = Numbers(0.0f);
    for (int tap = 0; tap <= before; ++tap) {
        const int at = row + tap - before;
        device const bfloat *from =
            at < 0 ? window + size_t(at + before) * args.channels : raw + size_t(at) * args.channels;
        mixed = fma(Numbers(*(device const Inputs *)(from + channel)),
                    *(device const Numbers *)(conv + size_t(tap) * args.channels + channel), mixed);
    }
#pragma clang loop unroll(full)
    for (uint i = 0; i < N; ++i)
        mixed[i] = float(bfloat(silu(mixed[i])));
    return mixed;
}

// A thread keeps its channels of the window after the last row: the last inputs, those from before the call included.
template <uint N> inline void keep_window(device const bfloat *window, device const bfloat *raw,
                                          device bfloat *window_out, constant GatedDeltaArgs &args, uint channel) {
    typedef vec<bfloat, N> Inputs;
    const int before = int(args.taps) - 1;
    for (int i = 0; i < before; ++i) {
        const int at = int(args.rows) - before + i;
        device const bfloat *from =
            at < 0 ? window + size_t(at + before) * args.channels : raw + size_t(at) * args.channels;
        *(device Inputs *)(window_out + size_t(i) * args.channels + channel) = *(device const Inputs *)(from + channel);
    }
}

// log(1 + u) for u in [0, 1]: 2 artanh(u / (2 + u)), whose argument is at most 1/3, by its series.
inline float log1p_of(float u) {
    const float s = u / (2.0f + u), square = s * s;
    float series = 1.0f / 15.0f;
    series = fma(series, square, 1.0f / 13.0f);
    series = fma(series, square, 1.0f / 11.0f);
    series = fma(series, square, 1.0f / 9.0f);
    series = fma(series, square, 1.0f / 7.0f);
    series = fma(series, square, 1.0f / 5.0f);
    series = fma(series, square, 1.0f / 3.0f);
    series = fma(series, square, 1.0f);
    return 2.0f * s * series;
}

// exp(-rate * softplus(x))
inline float decay_of(float rate, float x) { return exp(-rate * (max(x, 0.0f) + log1p_of(exp(-fabs(x))))); }
