// The dot product of a group's codes and inputs, whichever way the inputs are taken: what a unit is, how units are
// multiplied and summed, and what a sum is worth. Lanes are output rows (tile.cpp, sums begin with `start` of a group's inputs)
// or the words of one row (gemv.cpp, with `start_words` of the inputs of a vector).
#pragma once

#include "byte_units.h"
#include "tile.h"

namespace lily::cpu::LILY_ISA {

// Units of a group whose inputs are bytes.
#if defined(LILY_BYTE_UNITS)
LILY_INLINE constexpr int byte_units(Packing packing) {
    return static_cast<int>(kGroup) / (packing == Packing::affine4 ? 4 : kByteInputs8);
}
#else
LILY_INLINE constexpr int byte_units(Packing) { return kUnits; } // the same whole numbers, in the units of this machine
#endif

// How a group's products are taken and summed: in the units of this machine.
template <Packing packing, bool bytes> struct Dots {
    using Operand = Unit;
    using Sum = F;
    static constexpr int kOfGroup = kUnits, kMostSteps = kUnits; // units of a group, and how many a sum can take
    LILY_INLINE Operand load(const std::uint32_t *p) { return load_unit(p); }
    LILY_INLINE Operand repeat(const std::uint32_t *p) { return set1_unit(p); }
    LILY_INLINE void store(std::uint32_t *p, Operand v) { store_unit(p, v); }
    LILY_INLINE Operand code(Words w, int j) { return unit_of<packing>(w, j); }
    LILY_INLINE Sum start(const std::uint32_t *) { return zero(); }
    LILY_INLINE Sum start_words(const std::uint32_t *) { return zero(); }
    LILY_INLINE Sum step(Sum sum, Operand w, Operand x) { return LILY_ISA::step(sum, w, x); }
    LILY_INLINE Sum whole(Sum sum) { return sum; }
    LILY_INLINE Sum join(Sum a, Sum b) { return add(a, b); }
    LILY_INLINE F value(Sum sum) { return sum; }
};
#if defined(LILY_BYTE_UNITS)
template <Packing packing> struct Dots<packing, true> {
    using Operand = Words;
    using Sum = Words;
    static constexpr bool kShort = packing == Packing::affine4;
    static constexpr int kOfGroup = byte_units(packing), kMostSteps = kShort ? kByteSteps4 : kOfGroup;
    LILY_INLINE Operand load(const std::uint32_t *p) { return load_words(p); }
    LILY_INLINE Operand repeat(const std::uint32_t *p) { return set1_pair(*p); }
    LILY_INLINE void store(std::uint32_t *p, Operand v) { store_words(p, v); }
    LILY_INLINE Operand code(Words w, int j) { return kShort ? byte_unit4(w, j) : byte_unit8(w, j); }
    LILY_INLINE Sum start(const std::uint32_t *x) { return kShort ? no_counts() : start_bytes8(x); }
    LILY_INLINE Sum start_words(const std::uint32_t *x) { return kShort ? no_counts() : start_words8(x); }
    LILY_INLINE Sum step(Sum sum, Operand w, Operand x) {
        return kShort ? step_bytes4(sum, w, x) : step_bytes8(sum, w, x);
    }
    LILY_INLINE Sum whole(Sum sum) { return kShort ? counts4(sum) : sum; }
    LILY_INLINE Sum join(Sum a, Sum b) { return add_counts(a, b); }
    LILY_INLINE F value(Sum sum) { return counts_to_float(sum); }
};
#endif
template <Packing packing, Inputs inputs> using DotsOf = Dots<packing, inputs == Inputs::bytes>;
template <Packing packing, Inputs inputs> constexpr int kWordUnits =
    DotsOf<packing, inputs>::kOfGroup / group_words(packing);

} // namespace lily::cpu::LILY_ISA
