// Vectors of one instruction set, under names that are the same for all: with byte_units.h, which goes on from here, the
// only file with intrinsics. It is included by the per-ISA files alone, each time inside the namespace of its set, and
// everything in it is forced inline, so that no function compiled for one set can stand in for another at link time. No
// loads or stores assume alignment.
//
// Three layers. F is a vector of kLanes floats. P is a vector of kLanes pairs of bf16. The rest is what matmul needs of
// packed weights: a "unit" is the 32-bit operand of one multiply-accumulate lane, a pair of bf16 where the machine has
// a bf16 dot product, one float elsewhere (kUnitInputs says how many inputs it holds).
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(LILY_ISA_neon) || defined(LILY_ISA_neondot)
#include <arm_neon.h>
#else
// g++ 12 takes the deliberately undefined operands in its own AVX-512 header for a mistake of ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#define LILY_INLINE static inline __attribute__((always_inline))

namespace lily::cpu::LILY_ISA {

LILY_INLINE float from_bf16(std::uint16_t bits) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    __builtin_memcpy(&value, &wide, 4);
    return value;
}

// Round to nearest, ties to even; NaN stays NaN.
LILY_INLINE std::uint16_t to_bf16(float value) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return static_cast<std::uint16_t>((bits >> 16) | 0x40);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Keeps a vector in a register, as it is at this point.
template <typename V> LILY_INLINE V pinned(V v) {
#if defined(LILY_ISA_neon) || defined(LILY_ISA_neondot)
    asm("" : "+w"(v));
#elif defined(LILY_ISA_avx2)
    asm("" : "+x"(v));
#else
    asm("" : "+v"(v));
#endif
    return v;
}

#if defined(LILY_ISA_avx512) || defined(LILY_ISA_avx512bf16)

using F = __m512;
using P = __m512i;
using Words = __m512i;
constexpr int kLanes = 16;

LILY_INLINE F zero() { return _mm512_setzero_ps(); }
LILY_INLINE F set1(float v) { return _mm512_set1_ps(v); }
LILY_INLINE F load(const float *p) { return _mm512_loadu_ps(p); }
LILY_INLINE void store(float *p, F v) { _mm512_storeu_ps(p, v); }
// Past the caches; p is aligned to the vector. A fence afterwards, before another thread may read.
LILY_INLINE void stream(float *p, F v) { _mm512_stream_ps(p, v); }
LILY_INLINE void stream_fence() { _mm_sfence(); }
LILY_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }
LILY_INLINE F load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
LILY_INLINE void store_n(float *p, F v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
LILY_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
LILY_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
LILY_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
LILY_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
LILY_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
LILY_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
LILY_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
LILY_INLINE F nearest(F v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
LILY_INLINE F times_power_of_two(F v, F n) { return _mm512_scalef_ps(v, n); }
LILY_INLINE float sum(F v) { return _mm512_reduce_add_ps(v); }
LILY_INLINE float max_lane(F v) { return _mm512_reduce_max_ps(v); }
LILY_INLINE void sum4(const F *v, float *out) { // out[i] = the sum of v[i], for four vectors at once
    const __m512 a = add(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    const __m512 b = add(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    const __m512 c = add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
    const __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1)));
}

LILY_INLINE F widen(__m256i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16)); }
LILY_INLINE F load_bf16(const void *p) { return widen(_mm256_loadu_si256(static_cast<const __m256i *>(p))); }
LILY_INLINE F load_bf16_n(const void *p, int n) { return widen(_mm256_maskz_loadu_epi16(first_lanes(n), p)); }

LILY_INLINE __m256i narrow(F v) {
#if defined(LILY_ISA_avx512bf16)
    return (__m256i)_mm512_cvtneps_pbh(v);
#else
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(quiet, 16));
#endif
}
LILY_INLINE void store_bf16(void *p, F v) { _mm256_storeu_si256(static_cast<__m256i *>(p), narrow(v)); }
LILY_INLINE void store_bf16_n(void *p, F v, int n) { _mm256_mask_storeu_epi16(p, first_lanes(n), narrow(v)); }

LILY_INLINE F low_half(P v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
LILY_INLINE F high_half(P v) {
    return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
LILY_INLINE P load_pairs(const void *p) { return _mm512_loadu_si512(p); }
LILY_INLINE void store_pairs(void *p, P v) { _mm512_storeu_si512(p, v); }
LILY_INLINE P set1_pair(std::uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); }
// The first n pairs at p, over and over; n is a power of two up to kLanes.
template <int n> LILY_INLINE P repeat_pairs(const void *p) {
    if constexpr (n == 16)
        return load_pairs(p);
    if constexpr (n == 8)
        return _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i *>(p)));
    if constexpr (n == 4)
        return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i *>(p)));
    long long bits = 0;
    __builtin_memcpy(&bits, p, n < 2 ? 4 : 8);
    return n == 1 ? _mm512_set1_epi32(static_cast<int>(bits)) : _mm512_set1_epi64(bits);
}
// Pairs (low, high), rounded to bf16.
LILY_INLINE P pack_pairs(F low, F high) {
#if defined(LILY_ISA_avx512bf16)
    const __m512i apart = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    const __m512i order = _mm512_setr_epi32(0x00100000, 0x00110001, 0x00120002, 0x00130003, 0x00140004, 0x00150005,
                                            0x00160006, 0x00170007, 0x00180008, 0x00190009, 0x001a000a, 0x001b000b,
                                            0x001c000c, 0x001d000d, 0x001e000e, 0x001f000f);
    return _mm512_permutexvar_epi16(order, apart);
#else
    const __m512i a = _mm512_cvtepu16_epi32(narrow(low)), b = _mm512_cvtepu16_epi32(narrow(high));
    return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
#endif
}
LILY_INLINE F dot2(F acc, P a, P b) {
#if defined(LILY_ISA_avx512bf16)
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
#else
    return fma(high_half(a), high_half(b), fma(low_half(a), low_half(b), acc));
#endif
}

LILY_INLINE Words load_words(const void *p) { return _mm512_loadu_si512(p); }
LILY_INLINE void store_words(void *p, Words v) { _mm512_storeu_si512(p, v); }
LILY_INLINE Words load_words_n(const void *p, int n) { return _mm512_maskz_loadu_epi32(first_lanes(n), p); }
LILY_INLINE F as_float(Words v) { return _mm512_castsi512_ps(v); }

// A square of 32-bit words, rows to columns.
LILY_INLINE void transpose(Words *v) {
    Words a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        a[i] = _mm512_shuffle_i32x4(b[i], b[4 + i], 0x88);
        a[4 + i] = _mm512_shuffle_i32x4(b[i], b[4 + i], 0xdd);
        a[8 + i] = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0x88);
        a[12 + i] = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; ++i) {
        v[i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0x88);
        v[4 + i] = _mm512_shuffle_i32x4(a[4 + i], a[12 + i], 0x88);
        v[8 + i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0xdd);
        v[12 + i] = _mm512_shuffle_i32x4(a[4 + i], a[12 + i], 0xdd);
    }
}

LILY_INLINE F set1_bf16(const void *p) {
    short bits;
    __builtin_memcpy(&bits, p, 2);
    return _mm512_castsi512_ps(_mm512_maskz_set1_epi16(0xaaaaaaaa, bits));
}
// The scale of every word of a vector of 4-bit words: here two groups, so two scales side by side.
LILY_INLINE F word_scales4(const void *p) {
    int bits;
    __builtin_memcpy(&bits, p, 4);
    const __m512i pick = _mm512_mask_set1_epi32(_mm512_set1_epi32(0x01008080), 0xff00, 0x03028080);
    return _mm512_castsi512_ps(_mm512_shuffle_epi8(_mm512_set1_epi32(bits), pick));
}

#if defined(LILY_ISA_avx512bf16)

using Unit = P;
constexpr int kUnitInputs = 2;
#define LILY_BF16_DOT 1 // one instruction adds up the products of pairs of bf16
LILY_INLINE Unit load_unit(const std::uint32_t *p) { return _mm512_loadu_si512(p); }
LILY_INLINE void store_unit(std::uint32_t *p, Unit v) { _mm512_storeu_si512(p, v); }
LILY_INLINE Unit set1_unit(const std::uint32_t *p) { return _mm512_set1_epi32(static_cast<int>(*p)); }
LILY_INLINE F step(F acc, Unit w, Unit x) { return dot2(acc, w, x); }

// Unit j of a word is the pair (code j, code j + 4): after a shift by 4j they are the low nibbles of the two halves, and
// vpermw looks both up at once. It reads five bits of each half; the table is there twice so that the fifth is ignored.
LILY_INLINE Unit unit4(Words w, int j) {
    const __m256i codes = _mm256_setr_epi16(0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110,
                                            0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170);
    return _mm512_permutexvar_epi16(_mm512_srli_epi32(w, 4 * j), _mm512_broadcast_i64x4(codes));
}
// Unit j: (code j, code j + 2). The upper half of the float of a number below 256 is its bf16.
LILY_INLINE Unit unit8(Words w, int j) {
    const __m512i byte = _mm512_set1_epi32(0xff);
    const __m512i low = _mm512_and_si512(_mm512_srli_epi32(w, 8 * j), byte);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi32(w, 8 * j + 16), byte);
    const __m512i a = _mm512_castps_si512(_mm512_cvtepi32_ps(low)), b = _mm512_castps_si512(_mm512_cvtepi32_ps(high));
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), b);
}
LILY_INLINE Unit unit16(Words w, int) { return w; }

// 2 * kLanes inputs, bf16, into the order in which the expansions above leave the codes.
LILY_INLINE void order4(const std::uint16_t *x, std::uint32_t *units) {
    const __m512i v = _mm512_loadu_si512(x);
    _mm512_storeu_si512(units, _mm512_unpacklo_epi16(v, _mm512_shuffle_epi32(v, _MM_PERM_DCDC)));
}
LILY_INLINE void order8(const std::uint16_t *x, std::uint32_t *units) {
    const __m512i v = _mm512_loadu_si512(x);
    _mm512_storeu_si512(units, _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(v, 0xd8), 0xd8));
}
LILY_INLINE void order16(const std::uint16_t *x, std::uint32_t *units) {
    _mm512_storeu_si512(units, _mm512_loadu_si512(x));
}

#else

using Unit = F;
LILY_INLINE Unit load_unit(const std::uint32_t *p) { return _mm512_loadu_ps(p); }
LILY_INLINE void store_unit(std::uint32_t *p, Unit v) { _mm512_storeu_ps(p, v); }
LILY_INLINE Unit unit4(Words w, int j) { // vpermps reads four bits of each lane
    const F table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(w, 4 * j), table);
}
LILY_INLINE Unit unit8(Words w, int j) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(w, 8 * j), _mm512_set1_epi32(0xff)));
}

#endif

#elif defined(LILY_ISA_avx2)

using F = __m256;
using P = __m256i;
using Words = __m256i;
constexpr int kLanes = 8;

LILY_INLINE F zero() { return _mm256_setzero_ps(); }
LILY_INLINE F set1(float v) { return _mm256_set1_ps(v); }
LILY_INLINE F load(const float *p) { return _mm256_loadu_ps(p); }
LILY_INLINE void store(float *p, F v) { _mm256_storeu_ps(p, v); }
LILY_INLINE void stream(float *p, F v) { _mm256_stream_ps(p, v); }
LILY_INLINE void stream_fence() { _mm_sfence(); }
LILY_INLINE __m256i first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LILY_INLINE F load_n(const float *p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
LILY_INLINE void store_n(float *p, F v, int n) { _mm256_maskstore_ps(p, first_lanes(n), v); }
LILY_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
LILY_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
LILY_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
LILY_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
LILY_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
LILY_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
LILY_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
LILY_INLINE F nearest(F v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// In two steps, because 2^n alone leaves the range of float before the product does.
LILY_INLINE F times_power_of_two(F v, F n) {
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return mul(mul(v, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}
LILY_INLINE float sum(F v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
LILY_INLINE float max_lane(F v) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
LILY_INLINE void sum4(const F *v, float *out) { // out[i] = the sum of v[i], for four vectors at once
    const __m256 d = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1)));
}

LILY_INLINE F load_bf16(const void *p) {
    const __m128i v = _mm_loadu_si128(static_cast<const __m128i *>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
LILY_INLINE F load_bf16_n(const void *p, int n) {
    std::uint16_t padded[8] = {};
    __builtin_memcpy(padded, p, static_cast<std::size_t>(n) * 2);
    return load_bf16(padded);
}
// bf16 in the low half of each word.
LILY_INLINE __m256i narrow(F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
LILY_INLINE void store_bf16(void *p, F v) {
    const __m256i high = narrow(v);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128(static_cast<__m128i *>(p), packed);
}
LILY_INLINE void store_bf16_n(void *p, F v, int n) {
    std::uint16_t whole[8];
    store_bf16(whole, v);
    __builtin_memcpy(p, whole, static_cast<std::size_t>(n) * 2);
}

LILY_INLINE F low_half(P v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
LILY_INLINE F high_half(P v) {
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
LILY_INLINE P load_pairs(const void *p) { return _mm256_loadu_si256(static_cast<const __m256i *>(p)); }
LILY_INLINE void store_pairs(void *p, P v) { _mm256_storeu_si256(static_cast<__m256i *>(p), v); }
LILY_INLINE P set1_pair(std::uint32_t v) { return _mm256_set1_epi32(static_cast<int>(v)); }
template <int n> LILY_INLINE P repeat_pairs(const void *p) {
    if constexpr (n == 8)
        return load_pairs(p);
    if constexpr (n == 4)
        return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i *>(p)));
    long long bits = 0;
    __builtin_memcpy(&bits, p, n < 2 ? 4 : 8);
    return n == 1 ? _mm256_set1_epi32(static_cast<int>(bits)) : _mm256_set1_epi64x(bits);
}
LILY_INLINE P pack_pairs(F low, F high) { return _mm256_or_si256(narrow(low), _mm256_slli_epi32(narrow(high), 16)); }
LILY_INLINE F dot2(F acc, P a, P b) { return fma(high_half(a), high_half(b), fma(low_half(a), low_half(b), acc)); }

LILY_INLINE Words load_words(const void *p) { return _mm256_loadu_si256(static_cast<const __m256i *>(p)); }
LILY_INLINE void store_words(void *p, Words v) { _mm256_storeu_si256(static_cast<__m256i *>(p), v); }
LILY_INLINE Words load_words_n(const void *p, int n) {
    return _mm256_maskload_epi32(static_cast<const int *>(p), first_lanes(n));
}
LILY_INLINE F as_float(Words v) { return _mm256_castsi256_ps(v); }
LILY_INLINE void transpose(Words *v) {
    Words a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        v[i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x20);
        v[4 + i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x31);
    }
}

LILY_INLINE F set1_bf16(const void *p) {
    short bits;
    __builtin_memcpy(&bits, p, 2);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_set1_epi16(bits), 16));
}
LILY_INLINE F word_scales4(const void *p) { return set1_bf16(p); } // a vector of words is one group

using Unit = F;
LILY_INLINE Unit load_unit(const std::uint32_t *p) { return load(reinterpret_cast<const float *>(p)); }
LILY_INLINE void store_unit(std::uint32_t *p, Unit v) { store(reinterpret_cast<float *>(p), v); }
// Codes stay where they are in the word, so unit j is code j times 16^j (256^j), and order4 (order8) divides the inputs
// by the same power: two instructions a code instead of three. The last code would meet the sign bit and is shifted.
LILY_INLINE Unit unit4(Words w, int j) {
    return _mm256_cvtepi32_ps(j == 7 ? _mm256_srli_epi32(w, 28)
                                     : _mm256_and_si256(w, _mm256_set1_epi32(15 << (4 * j))));
}
LILY_INLINE Unit unit8(Words w, int j) {
    return _mm256_cvtepi32_ps(j == 3 ? _mm256_srli_epi32(w, 24)
                                     : _mm256_and_si256(w, _mm256_set1_epi32(255 << (8 * j))));
}

#elif defined(LILY_ISA_neon) || defined(LILY_ISA_neondot)

using F = float32x4_t;
using P = uint32x4_t;
using Words = uint32x4_t;
constexpr int kLanes = 4;

LILY_INLINE F zero() { return vdupq_n_f32(0); }
LILY_INLINE F set1(float v) { return vdupq_n_f32(v); }
LILY_INLINE F load(const float *p) { return vreinterpretq_f32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t *>(p))); }
LILY_INLINE void store(float *p, F v) { vst1q_u8(reinterpret_cast<std::uint8_t *>(p), vreinterpretq_u8_f32(v)); }
LILY_INLINE void stream(float *p, F v) { store(p, v); } // no such store that is worth it
LILY_INLINE void stream_fence() {}
LILY_INLINE F load_n(const float *p, int n) {
    float padded[4] = {};
    __builtin_memcpy(padded, p, static_cast<std::size_t>(n) * 4);
    return load(padded);
}
LILY_INLINE void store_n(float *p, F v, int n) {
    float whole[4];
    store(whole, v);
    __builtin_memcpy(p, whole, static_cast<std::size_t>(n) * 4);
}
LILY_INLINE F add(F a, F b) { return vaddq_f32(a, b); }
LILY_INLINE F sub(F a, F b) { return vsubq_f32(a, b); }
LILY_INLINE F mul(F a, F b) { return vmulq_f32(a, b); }
LILY_INLINE F div(F a, F b) { return vdivq_f32(a, b); }
LILY_INLINE F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
LILY_INLINE F max(F a, F b) { return vmaxq_f32(a, b); }
LILY_INLINE F min(F a, F b) { return vminq_f32(a, b); }
LILY_INLINE F nearest(F v) { return vrndnq_f32(v); }
// In two steps, because 2^n alone leaves the range of float before the product does.
LILY_INLINE F times_power_of_two(F v, F n) {
    const int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    const int32x4_t a = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t b = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
    return mul(mul(v, vreinterpretq_f32_s32(a)), vreinterpretq_f32_s32(b));
}
LILY_INLINE float sum(F v) { return vaddvq_f32(v); }
LILY_INLINE float max_lane(F v) { return vmaxvq_f32(v); }
LILY_INLINE void sum4(const F *v, float *out) { // out[i] = the sum of v[i], for four vectors at once
    store(out, vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])));
}

LILY_INLINE F load_bf16(const void *p) {
    const uint16x4_t v = vreinterpret_u16_u8(vld1_u8(static_cast<const std::uint8_t *>(p)));
    return vreinterpretq_f32_u32(vshll_n_u16(v, 16));
}
LILY_INLINE F load_bf16_n(const void *p, int n) {
    std::uint16_t padded[4] = {};
    __builtin_memcpy(padded, p, static_cast<std::size_t>(n) * 2);
    return load_bf16(padded);
}
LILY_INLINE uint16x4_t narrow(F v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16);
}
LILY_INLINE void store_bf16(void *p, F v) { vst1_u8(static_cast<std::uint8_t *>(p), vreinterpret_u8_u16(narrow(v))); }
LILY_INLINE void store_bf16_n(void *p, F v, int n) {
    std::uint16_t whole[4];
    store_bf16(whole, v);
    __builtin_memcpy(p, whole, static_cast<std::size_t>(n) * 2);
}

LILY_INLINE F low_half(P v) { return vreinterpretq_f32_u32(vshlq_n_u32(v, 16)); }
LILY_INLINE F high_half(P v) { return vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u))); }
LILY_INLINE P load_pairs(const void *p) { return vreinterpretq_u32_u8(vld1q_u8(static_cast<const std::uint8_t *>(p))); }
LILY_INLINE void store_pairs(void *p, P v) { vst1q_u8(static_cast<std::uint8_t *>(p), vreinterpretq_u8_u32(v)); }
LILY_INLINE P set1_pair(std::uint32_t v) { return vdupq_n_u32(v); }
template <int n> LILY_INLINE P repeat_pairs(const void *p) {
    if constexpr (n == 4)
        return load_pairs(p);
    std::uint64_t bits = 0;
    __builtin_memcpy(&bits, p, n < 2 ? 4 : 8);
    return n == 1 ? vdupq_n_u32(static_cast<std::uint32_t>(bits)) : vreinterpretq_u32_u64(vdupq_n_u64(bits));
}
LILY_INLINE F dot2(F acc, P a, P b) { return fma(high_half(a), high_half(b), fma(low_half(a), low_half(b), acc)); }

LILY_INLINE P pack_pairs(F low, F high) { return vorrq_u32(vmovl_u16(narrow(low)), vshll_n_u16(narrow(high), 16)); }

LILY_INLINE Words load_words(const void *p) { return load_pairs(p); }
LILY_INLINE void store_words(void *p, Words v) { vst1q_u8(static_cast<std::uint8_t *>(p), vreinterpretq_u8_u32(v)); }
LILY_INLINE Words load_words_n(const void *p, int n) {
    std::uint32_t padded[4] = {};
    __builtin_memcpy(padded, p, static_cast<std::size_t>(n) * 4);
    return load_words(padded);
}
LILY_INLINE F as_float(Words v) { return vreinterpretq_f32_u32(v); }
LILY_INLINE void transpose(Words *v) {
    const uint32x4_t a = vzip1q_u32(v[0], v[2]), b = vzip2q_u32(v[0], v[2]);
    const uint32x4_t c = vzip1q_u32(v[1], v[3]), d = vzip2q_u32(v[1], v[3]);
    v[0] = vzip1q_u32(a, c);
    v[1] = vzip2q_u32(a, c);
    v[2] = vzip1q_u32(b, d);
    v[3] = vzip2q_u32(b, d);
}

LILY_INLINE F set1_bf16(const void *p) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, p, 2);
    return set1(from_bf16(bits));
}
LILY_INLINE F word_scales4(const void *p) { return set1_bf16(p); } // a vector of words is half a group

using Unit = F;
LILY_INLINE Unit load_unit(const std::uint32_t *p) { return load(reinterpret_cast<const float *>(p)); }
LILY_INLINE void store_unit(std::uint32_t *p, Unit v) { store(reinterpret_cast<float *>(p), v); }
// Codes stay where they are in the word: the conversion divides by a power of two for nothing. That power must be part
// of the instruction; the switch disappears, because j is a constant wherever this is called.
LILY_INLINE Unit unit4(Words w, int j) {
    const uint32x4_t code = vandq_u32(w, vdupq_n_u32(15u << (4 * j)));
    switch (j) {
    case 0:
        return vcvtq_f32_u32(code);
    case 1:
        return vcvtq_n_f32_u32(code, 4);
    case 2:
        return vcvtq_n_f32_u32(code, 8);
    case 3:
        return vcvtq_n_f32_u32(code, 12);
    case 4:
        return vcvtq_n_f32_u32(code, 16);
    case 5:
        return vcvtq_n_f32_u32(code, 20);
    case 6:
        return vcvtq_n_f32_u32(code, 24);
    default:
        return vcvtq_n_f32_u32(code, 28);
    }
}
LILY_INLINE Unit unit8(Words w, int j) {
    const uint32x4_t code = vandq_u32(w, vdupq_n_u32(255u << (8 * j)));
    switch (j) {
    case 0:
        return vcvtq_f32_u32(code);
    case 1:
        return vcvtq_n_f32_u32(code, 8);
    case 2:
        return vcvtq_n_f32_u32(code, 16);
    default:
        return vcvtq_n_f32_u32(code, 24);
    }
}

#endif

#if !defined(LILY_ISA_avx512bf16)

// A unit is one float, and units follow the inputs in their natural order.
constexpr int kUnitInputs = 1;
LILY_INLINE Unit set1_unit(const std::uint32_t *p) { return set1(*reinterpret_cast<const float *>(p)); }
LILY_INLINE F step(F acc, Unit w, Unit x) { return fma(w, x, acc); }
LILY_INLINE Unit unit16(Words w, int j) { return j == 0 ? low_half(w) : high_half(w); }
LILY_INLINE void order16(const std::uint16_t *x, std::uint32_t *units) {
    store(reinterpret_cast<float *>(units), load_bf16(x));
}
#if defined(LILY_ISA_avx2)
LILY_INLINE void order4(const std::uint16_t *x, std::uint32_t *units) {
    const F powers = _mm256_setr_ps(1, 0x1p-4f, 0x1p-8f, 0x1p-12f, 0x1p-16f, 0x1p-20f, 0x1p-24f, 1);
    store(reinterpret_cast<float *>(units), mul(load_bf16(x), powers));
}
LILY_INLINE void order8(const std::uint16_t *x, std::uint32_t *units) {
    const F powers = _mm256_setr_ps(1, 0x1p-8f, 0x1p-16f, 1, 1, 0x1p-8f, 0x1p-16f, 1);
    store(reinterpret_cast<float *>(units), mul(load_bf16(x), powers));
}
#else
LILY_INLINE void order4(const std::uint16_t *x, std::uint32_t *units) { order16(x, units); }
LILY_INLINE void order8(const std::uint16_t *x, std::uint32_t *units) { order16(x, units); }
#endif

#endif

// Words in a register: a compiler would rather read them again for every shift, and a vector that straddles two cache
// lines, as unaligned ones do, costs two reads each time.
LILY_INLINE Words stream_words(const void *p) { return pinned(load_words(p)); }

} // namespace lily::cpu::LILY_ISA
