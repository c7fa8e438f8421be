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

// A whole number below 2^23 as a float, without a conversion, which costs a GPU more than other arithmetic: it becomes the
// last bits of 2^23, and that is taken off again. Exact.
inline float whole_number(uint code) { return as_type<float>(code | 0x4b000000u) - 8388608.0f; }

// The sum of x times the codes of one load. Codes are not shifted into place: those of 4 bits at place i of a half word
// are 16^i too large, and x has been made so much smaller before (gemv.h), which is exact.
template <uint bits> inline float dot_codes(uint4 codes, thread const float *x) {
    float low_sum = 0, high_sum = 0;
#pragma clang loop unroll(full)
    for (uint word = 0; word < 4; ++word) {
        const uint code = codes[word];
        if (bits == 16) {
            low_sum += x[2 * word] * as_type<float>(code << 16);
            high_sum += x[2 * word + 1] * as_type<float>(code & 0xffff0000u);
        } else {
            const uint high = code >> 16;
            constexpr uint half_codes = 16 / bits;
            thread const float *from = x + 2 * half_codes * word;
#pragma clang loop unroll(full)
            for (uint i = 0; i < half_codes; ++i) {
                const uint mask = ((1u << (bits & 15)) - 1) << (bits * i & 15);
                low_sum += from[i] * whole_number(code & mask);
                high_sum += from[half_codes + i] * whole_number(high & mask);
            }
        }
    }
    return low_sum + high_sum;
}

// By how much dot_codes wants x at element i of a load smaller.
template <uint bits> inline float scale_of_place(uint i) {
    if (bits == 4)
        return i % 4 == 0 ? 1.0f : i % 4 == 1 ? 0.0625f : i % 4 == 2 ? 0.00390625f : 0.000244140625f;
    if (bits == 8)
        return i % 2 == 0 ? 1.0f : 0.00390625f;
    return 1.0f;
}
