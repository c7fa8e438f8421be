// RMSNorm: y = x * rsqrt(mean(x^2) + eps) * weight, computed in f32, one rounding to bf16 at the end. The inline form is
// for the sublayers that fuse it into their own pass over the rows.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

// x, y: bf16 [cols], weight: f32 [cols]; y may be x. Any cols.
LILY_INLINE void norm_row(const std::uint16_t *x, const float *weight, float eps, std::int64_t cols, std::uint16_t *y) {
    F squares[4] = {zero(), zero(), zero(), zero()};
    std::int64_t c = 0;
    for (; c + 4 * kLanes <= cols; c += 4 * kLanes)
        for (int i = 0; i < 4; ++i) {
            const F v = load_bf16(x + c + i * kLanes);
            squares[i] = fma(v, v, squares[i]);
        }
    for (; c + kLanes <= cols; c += kLanes) {
        const F v = load_bf16(x + c);
        squares[0] = fma(v, v, squares[0]);
    }
    const int tail = static_cast<int>(cols - c);
    const F last = load_bf16_n(x + c, tail);
    squares[0] = fma(last, last, squares[0]);
    const float total = sum(add(add(squares[0], squares[1]), add(squares[2], squares[3])));
    const F scale = set1(1.0f / __builtin_sqrtf(total / static_cast<float>(cols) + eps));
    for (c = 0; c + kLanes <= cols; c += kLanes)
        store_bf16(y + c, mul(mul(load_bf16(x + c), scale), load(weight + c)));
    store_bf16_n(y + c, mul(mul(load_bf16_n(x + c, tail), scale), load_n(weight + c, tail)), tail);
}

void norm(Context &context, const std::uint16_t *x, const float *weight, float eps, std::int64_t rows,
          std::int64_t cols, std::uint16_t *y);

} // namespace lily::cpu::LILY_ISA
