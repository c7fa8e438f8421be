// Weights as the kernels read them: MLX's affine codes of 4 and 8 bits in groups of 64, and plain bf16, told apart by
// `bits` (4, 8, 16). Codes are taken in loads of 16 bytes and never become rounded weights: a sum runs over codes in
// float32, and scale * sum + bias * (sum of x) joins the total. For one row of x see gemv.h, for several tile.h. The gate of
// SwiGLU is here too.
#pragma once

#include <metal_stdlib>
using namespace metal;

constant constexpr uint kGroup = 64;

// Codes of one load of 16 bytes.
template <uint bits> constexpr uint codes_of_load() { return 128 / bits; }

// Without an infinity on the way: fast arithmetic may do anything with one.
inline float sigmoid(float value) {
    const float small = exp(-fabs(value));
    return (value >= 0 ? 1.0f : small) / (1.0f + small);
}

inline float silu(float value) { return value * sigmoid(value); }

// A code as a float without a conversion, and nearly without arithmetic, which is what one row costs on a GPU: its bits are
// shifted into the upper ones of the significand of a power of two, kept and completed. So the value is too large by that
// power; what this adds to a sum follows from x alone, and float32 has room for it: it is 256 at most.

// sum + x times the codes of one word, each too large.
template <uint bits> inline float dot_word(uint code, thread const float *x, float sum) {
    if (bits == 16) {
        sum += x[0] * as_type<float>(code << 16);
        sum += x[1] * as_type<float>(code & 0xffff0000u);
    } else if (bits == 8) {
#pragma clang loop unroll(full)
        for (uint i = 0; i < 4; ++i) { // to bits 15 to 22
            const uint moved = i < 2 ? code << (15 - 8 * i & 15) : code >> (8 * i - 15 & 15);
            sum += x[i] * as_type<float>((moved & 0x7f8000u) | 0x43800000u);
        }
    } else {
#pragma clang loop unroll(full)
        for (uint i = 0; i < 8; i += 2) { // the even one to bits 15 to 18, the odd one to 19 to 22
            const uint moved = i < 4 ? code << (15 - 4 * i & 15) : code >> (4 * i - 15 & 15);
            sum += x[i] * as_type<float>((moved & 0x078000u) | 0x43800000u);
            sum += x[i + 1] * as_type<float>((moved & 0x780000u) | 0x41800000u);
        }
    }
    return sum;
}

// What dot_word adds too much, from the sums of x at even and at odd places.
template <uint bits> inline float excess_of_codes(float even, float odd) {
    if (bits == 4)
        return 256.0f * even + 16.0f * odd;
    return bits == 8 ? 256.0f * (even + odd) : 0.0f;
}
