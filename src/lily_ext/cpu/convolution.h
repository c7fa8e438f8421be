// What stands before the recurrence of Gated DeltaNet: the causal depthwise convolution with its window, vectors of
// unit length, and log(1 + u) for the softplus of the decay. Not the recurrence: see recurrence.h.
#pragma once

#include "exponential.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

inline constexpr int kMaxTaps = 8;
inline constexpr std::int64_t kRowsAhead = 4; // rows fetched before their turn
inline constexpr float kLengthEps = 1e-6f;

struct Convolution {
    const std::uint16_t *window; // bf16 [width - 1, channels]: the inputs before row 0, oldest first
    const std::uint16_t *rows;   // bf16 [rows, channels]
    const float *taps;           // f32 [width, channels], oldest first
    std::int64_t channels, width;
};

// Asks for `count` numbers from p on, which may be past the end of memory.
LILY_INLINE void fetch(const std::uint16_t *p, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += 32)
        __builtin_prefetch(p + i);
}

// out[token][count] = silu(convolution) of `count` channels, rounded to bf16 and kept as floats, for rows row .. row +
// tokens - 1. count is a multiple of kLanes.
static void convolve(const Convolution &from, std::int64_t row, std::int64_t tokens, std::int64_t channel,
                     std::int64_t count, float *out) {
    // Rows lie far apart, and a set of the first cache would hold pieces of only a few of them: one row after the
    // other.
    for (std::int64_t t = 0; t < tokens; ++t) {
        const std::uint16_t *inputs[kMaxTaps] = {};
        for (std::int64_t tap = 0; tap < from.width; ++tap) {
            const std::int64_t at = row + t + tap - (from.width - 1);
            inputs[tap] = channel + (at < 0 ? from.window + (at + from.width - 1) * from.channels
                                            : from.rows + at * from.channels);
        }
        fetch(from.rows + (row + t + kRowsAhead) * from.channels + channel, count);
        for (std::int64_t c = 0; c < count; c += kLanes) {
            const float *taps = from.taps + channel + c;
            F mixed = zero();
            for (std::int64_t tap = 0; tap < from.width; ++tap)
                mixed = fma(load_bf16(inputs[tap] + c), load(taps + tap * from.channels), mixed);
            std::uint16_t rounded[kLanes];
            store_bf16(rounded, silu(mixed));
            store(out + t * count + c, load_bf16(rounded));
        }
    }
}

// x *= scale / |x|
static void normalize(float *x, std::int64_t count, float scale) {
    F squares = zero();
    for (std::int64_t i = 0; i < count; i += kLanes)
        squares = fma(load(x + i), load(x + i), squares);
    const F factor = set1(scale / __builtin_sqrtf(sum(squares) + kLengthEps));
    for (std::int64_t i = 0; i < count; i += kLanes)
        store(x + i, mul(load(x + i), factor));
}

// log(1 + u) for u in [0, 1]: 2 artanh(u / (2 + u)), whose argument is at most 1/3, by its series.
LILY_INLINE F log1p(F u) {
    const F s = div(u, add(set1(2.0f), u)), square = mul(s, s);
    F series = set1(1.0f / 15);
    for (int odd = 13; odd > 0; odd -= 2)
        series = fma(series, square, set1(1.0f / static_cast<float>(odd)));
    return mul(mul(set1(2.0f), s), series);
}

} // namespace lily::cpu::LILY_ISA
