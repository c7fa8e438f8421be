// See peak_loops.h.
#include "peak_loops.h"

#include "byte_units.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

// Sums in flight: more than the latency of an addition times the additions of a cycle, and 12 leave room for the operands
// in 16 registers.
constexpr int kSums = 12;

static double in_all(F sums) { return static_cast<double>(sum(sums)); }
#if defined(LILY_BYTE_DOT)
static double in_all(Words counts) { return in_all(counts_to_float(counts)); }
#endif

double read_ones(const float *from, std::int64_t count) {
    F sums[kSums];
    for (F &one : sums)
        one = zero();
    std::int64_t i = 0;
    for (; i + kSums * kLanes <= count; i += kSums * kLanes)
        for (int j = 0; j < kSums; ++j)
            sums[j] = add(sums[j], load(from + i + j * kLanes));
    double total = 0;
    for (; i < count; ++i)
        total += static_cast<double>(from[i]);
    for (const F &one : sums)
        total += in_all(one);
    return total;
}

// Every sum is pinned to its register after each step: otherwise a compiler would fold the steps, which are all alike.
template <typename Sum, typename Step> LILY_INLINE double repeat(Sum none, const Step &step, std::int64_t rounds) {
    Sum sums[kSums];
    for (Sum &one : sums)
        one = none;
    for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
        for (int j = 0; j < kSums; ++j)
            sums[j] = pinned(step(sums[j]));
    }
    double total = 0;
    for (const Sum &one : sums)
        total += in_all(one);
    return total;
}

double multiply_ones(Numbers numbers, std::int64_t rounds) {
    const F one = pinned(set1(1));
#if defined(LILY_BF16_DOT)
    if (numbers == Numbers::bf16) {
        const P ones = pinned(set1_pair(0x3f803f80u));
        return repeat(zero(), [&](F acc) { return dot2(acc, ones, ones); }, rounds);
    }
#endif
#if defined(LILY_BYTE_DOT)
    if (numbers == Numbers::bytes) {
        const Words ones = pinned(set1_pair(0x01010101u));
        return repeat(no_counts(), [&](Words acc) { return step_bytes4(acc, ones, ones); }, rounds);
    }
#endif
    return numbers == Numbers::f32 ? repeat(zero(), [&](F acc) { return fma(one, one, acc); }, rounds) : 0;
}

} // namespace lily::cpu::LILY_ISA
