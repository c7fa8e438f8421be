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
// shifted into the upper ones of the significand of a power of two, kept and completed. So the value is 2^k too large, by
// offset_of_code; the sum of what that adds follows from x alone (gemv.h), and float32 has room for it: 2^k is 256 at most.

// The sum of x times the codes of one load, onto `start`, which takes the offsets off.
template <uint bits> inline float dot_codes(uint4 codes, thread const float *x, float start) {
    float low_sum = start, high_sum = 0;
#pragma clang loop unroll(full)
    for (uint word = 0; word < 4; ++word) {
        const uint code = codes[word];
        thread const float *from = x + codes_of_load<bits>() / 4 * word;
        if (bits == 16) {
            low_sum += from[0] * as_type<float>(code << 16);
            high_sum += from[1] * as_type<float>(code & 0xffff0000u);
        } else if (bits == 8) {
#pragma clang loop unroll(full)
            for (uint i = 0; i < 4; ++i) { // to bits 15 to 22
                const uint moved = i < 2 ? code << (15 - 8 * i & 15) : code >> (8 * i - 15 & 15);
                const float value = as_type<float>((moved & 0x7f8000u) | 0x43800000u);
                if (i % 2 == 0)
                    low_sum += from[i] * value;
                else
                    high_sum += from[i] * value;
            }
        } else {
#pragma clang loop unroll(full)
            for (uint i = 0; i < 8; i += 2) { // the even one to bits 15 to 18, the odd one to 19 to 22
                const uint moved = i < 4 ? code << (15 - 4 * i & 15) : code >> (4 * i - 15 & 15);
                low_sum += from[i] * as_type<float>((moved & 0x078000u) | 0x43800000u);
                high_sum += from[i + 1] * as_type<float>((moved & 0x780000u) | 0x41800000u);
            }
        }
    }
    return low_sum + high_sum;
}

// By how much dot_codes takes the code at element i of a load for larger.
template <uint bits> inline float offset_of_code(uint i) {
    if (bits == 4)
        return i % 2 == 0 ? 256.0f : 16.0f;
    return bits == 8 ? 256.0f : 0.0f;
}
