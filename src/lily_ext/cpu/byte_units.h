// Products of codes and inputs of 8 bits, where the machine multiplies bytes (LILY_BYTE_UNITS; LILY_BYTE_DOT where one
// instruction adds up four of them). In the manner of simd.h, which has the vectors. All sums are whole numbers and exact, so
// every set gives the same bits.
//
// A byte unit is the operand of one such step, codes below and inputs in the same places:
//   affine4  byte_unit4(w, j), j < 2: codes j, j + 2, j + 4, j + 6 of a word
//   affine8  byte_unit8(w, j), kByteInputs8 = 4: the four codes of a word; 2: codes j and j + 2, in 16 bits
// order_bytes4 and order_bytes8 bring kLanes whole numbers from -127 to 127, part so many of a group, into that order.
// step_bytes4 and step_bytes8 add the products of a unit to sums, which are pinned where a compiler would otherwise add in
// another order that takes more registers than there are. counts4 makes counts of 32 bits of the sums of up to kByteSteps4
// units; those of 8-bit codes are counts all along, and begin with start_bytes8 of the inputs of the group or, where the
// lanes are words of one row, with start_words8 of their inputs.
#pragma once

#include "simd.h"

namespace lily::cpu::LILY_ISA {

#if !defined(LILY_ISA_neon)
#define LILY_BYTE_UNITS 1
#endif

#if defined(LILY_ISA_avx512) || defined(LILY_ISA_avx512bf16)

LILY_INLINE Words byte_unit4(Words w, int j) {
    return _mm512_and_si512(_mm512_srli_epi32(w, 4 * j), _mm512_set1_epi32(0x0f0f0f0f));
}
LILY_INLINE void order_bytes4(F v, int part, std::uint32_t *units) {
    const __m128i apart = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(units + part * 4), _mm_shuffle_epi8(bytes, apart));
}
LILY_INLINE Words no_counts() { return _mm512_setzero_si512(); }
LILY_INLINE Words start_bytes8(const std::uint32_t *) { return no_counts(); }
LILY_INLINE Words start_words8(const std::uint32_t *) { return no_counts(); }
LILY_INLINE Words add_counts(Words a, Words b) { return _mm512_add_epi32(a, b); }
LILY_INLINE F counts_to_float(Words v) { return _mm512_cvtepi32_ps(v); }

#if defined(LILY_ISA_avx512bf16)

#define LILY_BYTE_DOT 1
constexpr int kByteInputs8 = 4;
constexpr int kByteSteps4 = 16;
// In assembly, because g++ 12 copies the sums of this intrinsic around.
LILY_INLINE Words step_bytes4(Words acc, Words w, Words x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
}
LILY_INLINE Words step_bytes8(Words acc, Words w, Words x) { return step_bytes4(acc, w, x); }
LILY_INLINE Words counts4(Words sums) { return sums; }
LILY_INLINE Words byte_unit8(Words w, int) { return w; }
LILY_INLINE void order_bytes8(F v, int part, std::uint32_t *units) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(units + part * 4), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

#else

// In 16 bits first, as on AVX2.
constexpr int kByteInputs8 = 2;
constexpr int kByteSteps4 = 8;
LILY_INLINE Words step_bytes4(Words acc, Words w, Words x) {
    return pinned(_mm512_add_epi16(acc, _mm512_maddubs_epi16(w, x)));
}
LILY_INLINE Words step_bytes8(Words acc, Words w, Words x) {
    return pinned(_mm512_add_epi32(acc, _mm512_madd_epi16(w, x)));
}
LILY_INLINE Words counts4(Words sums) { return _mm512_madd_epi16(sums, _mm512_set1_epi16(1)); }
LILY_INLINE Words byte_unit8(Words w, int j) {
    return _mm512_and_si512(_mm512_srli_epi32(w, 8 * j), _mm512_set1_epi32(0x00ff00ff));
}
LILY_INLINE void order_bytes8(F v, int part, std::uint32_t *units) {
    const __m256i numbers = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v));
    const __m256i apart = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(numbers, 0xd8), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(units + part * 8), apart);
}

#endif

#elif defined(LILY_ISA_avx2)

// A product of two bytes and its neighbour make a sum of 16 bits, of which eight can be added up: 8 * 2 * 15 * 127 < 2^15.
// Codes of 8 bits would pass that at once.
constexpr int kByteInputs8 = 2;
constexpr int kByteSteps4 = 8;
LILY_INLINE Words step_bytes4(Words acc, Words w, Words x) {
    return pinned(_mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x)));
}
LILY_INLINE Words step_bytes8(Words acc, Words w, Words x) {
    return pinned(_mm256_add_epi32(acc, _mm256_madd_epi16(w, x)));
}
LILY_INLINE Words counts4(Words sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
LILY_INLINE Words no_counts() { return _mm256_setzero_si256(); }
LILY_INLINE Words start_bytes8(const std::uint32_t *) { return no_counts(); }
LILY_INLINE Words start_words8(const std::uint32_t *) { return no_counts(); }
LILY_INLINE Words add_counts(Words a, Words b) { return _mm256_add_epi32(a, b); }
LILY_INLINE F counts_to_float(Words v) { return _mm256_cvtepi32_ps(v); }
LILY_INLINE Words byte_unit4(Words w, int j) {
    return _mm256_and_si256(_mm256_srli_epi32(w, 4 * j), _mm256_set1_epi32(0x0f0f0f0f));
}
LILY_INLINE Words byte_unit8(Words w, int j) {
    return _mm256_and_si256(_mm256_srli_epi32(w, 8 * j), _mm256_set1_epi32(0x00ff00ff));
}
LILY_INLINE __m128i to_halves(F v) {
    const __m256i whole = _mm256_cvtps_epi32(v);
    return _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
}
LILY_INLINE void order_bytes4(F v, int part, std::uint32_t *units) {
    const __m128i apart = _mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, -1, -1, -1, -1, -1, -1, -1, -1);
    _mm_storel_epi64(reinterpret_cast<__m128i *>(units + part * 2), _mm_shuffle_epi8(to_halves(v), apart));
}
LILY_INLINE void order_bytes8(F v, int part, std::uint32_t *units) {
    const __m128i apart = _mm_shufflehi_epi16(_mm_shufflelo_epi16(to_halves(v), 0xd8), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(units + part * 4), apart);
}

#elif defined(LILY_ISA_neondot)

#define LILY_BYTE_DOT 1
// Both factors are signed, so 128 is taken off the codes of 8 bits; the sums of a group begin with what that takes off them.
constexpr int kByteInputs8 = 4;
constexpr int kByteSteps4 = 16;
LILY_INLINE int8x16_t as_bytes(Words v) { return vreinterpretq_s8_u32(v); }
LILY_INLINE Words step_bytes4(Words acc, Words w, Words x) {
    return vreinterpretq_u32_s32(vdotq_s32(vreinterpretq_s32_u32(acc), as_bytes(w), as_bytes(x)));
}
LILY_INLINE Words step_bytes8(Words acc, Words w, Words x) { return step_bytes4(acc, w, x); }
LILY_INLINE Words counts4(Words sums) { return sums; }
LILY_INLINE Words start_words8(const std::uint32_t *x) {
    return vreinterpretq_u32_s32(vnegq_s32(vdotq_s32(vdupq_n_s32(0), as_bytes(load_pairs(x)), vdupq_n_s8(-128))));
}
LILY_INLINE Words start_bytes8(const std::uint32_t *x) {
    Words sums = start_words8(x);
    for (int i = 1; i < 4; ++i) // the 64 inputs of a group
        sums = vaddq_u32(sums, start_words8(x + 4 * i));
    return vdupq_n_u32(vaddvq_u32(sums));
}
LILY_INLINE Words no_counts() { return vdupq_n_u32(0); }
LILY_INLINE Words add_counts(Words a, Words b) { return vaddq_u32(a, b); }
LILY_INLINE F counts_to_float(Words v) { return vcvtq_f32_s32(vreinterpretq_s32_u32(v)); }
LILY_INLINE Words byte_unit4(Words w, int j) {
    return vandq_u32(j == 0 ? w : vshrq_n_u32(w, 4), vdupq_n_u32(0x0f0f0f0f));
}
LILY_INLINE Words byte_unit8(Words w, int) { return veorq_u32(w, vdupq_n_u32(0x80808080)); }
LILY_INLINE int8x8_t to_bytes(F v) {
    const int16x4_t halves = vmovn_s32(vcvtq_s32_f32(v));
    return vmovn_s16(vcombine_s16(halves, halves));
}
// Half of a word's inputs: two bytes of each of its units.
LILY_INLINE void order_bytes4(F v, int part, std::uint32_t *units) {
    const int8x8_t bytes = to_bytes(v), even = vuzp1_s8(bytes, bytes), odd = vuzp2_s8(bytes, bytes);
    std::byte *const to = reinterpret_cast<std::byte *>(units + part / 2 * 2) + part % 2 * 2;
    __builtin_memcpy(to, &even, 2);
    __builtin_memcpy(to + 4, &odd, 2);
}
LILY_INLINE void order_bytes8(F v, int part, std::uint32_t *units) {
    const int8x8_t bytes = to_bytes(v);
    __builtin_memcpy(units + part, &bytes, 4);
}

#endif

} // namespace lily::cpu::LILY_ISA
