// The exponential of a vector and the functions made of it. Plain arithmetic on the vectors of simd.h: the same bits from
// every instruction set.
#pragma once

#include "simd.h"

namespace lily::cpu::LILY_ISA {

// e^v to about 1 ulp: v = n ln 2 + r with |r| <= ln(2) / 2, a polynomial for e^r (minimax of degree 6), times 2^n.
// Saturates to 0 and infinity; NaN stays NaN (the order of the operands of min and max sees to it).
LILY_INLINE F exp(F v) {
    const F x = min(set1(89.0f), max(set1(-104.0f), v));
    const F n = nearest(mul(x, set1(1.44269504f)));
    const F r = fma(n, set1(-1.42860677e-6f), fma(n, set1(-0.693145752f), x));
    F q = set1(0x1.6a2432p-10f);
    q = fma(q, r, set1(0x1.1239e2p-7f));
    q = fma(q, r, set1(0x1.5558f2p-5f));
    q = fma(q, r, set1(0x1.555492p-3f));
    q = fma(q, r, set1(0x1.fffffcp-2f));
    return times_power_of_two(add(fma(mul(r, r), q, r), set1(1.0f)), n);
}
LILY_INLINE F sigmoid(F v) { return div(set1(1.0f), add(set1(1.0f), exp(sub(zero(), v)))); }
LILY_INLINE F silu(F v) { return div(v, add(set1(1.0f), exp(sub(zero(), v)))); }

} // namespace lily::cpu::LILY_ISA
