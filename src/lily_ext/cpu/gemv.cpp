// See gemv.h. Not here: which rows go to which thread.
#include "gemv.h"

#include "scratch.h"

namespace lily::cpu::LILY_ISA {

// Room for any packing: the last vector of words may be partly empty, and a 4-bit word holds the most inputs.
static std::int64_t padded_units(std::int64_t cols) {
    const std::int64_t widest = 8 * kLanes; // inputs in a vector of 4-bit words
    return (cols + widest - 1) / widest * widest / kUnitInputs;
}

std::size_t row_activations_bytes(std::int64_t cols) {
    std::size_t bytes = 0;
    carve(bytes, padded_units(cols) * 4);
    carve(bytes, cols / kGroup * 4);
    return bytes;
}

RowActivations row_activations_at(std::byte *memory, std::int64_t cols) {
    std::size_t end = 0;
    auto *units = reinterpret_cast<std::uint32_t *>(memory + carve(end, padded_units(cols) * 4));
    return {units, reinterpret_cast<float *>(memory + carve(end, cols / kGroup * 4))};
}

// One group in the order of the prefill path, then its units spread over the vectors of words.
template <Packing packing> static void arrange(const std::uint16_t *x, std::int64_t cols, const RowActivations &to) {
    constexpr int units = word_units(packing);
    const std::int64_t groups = cols / kGroup, words = groups * group_words(packing);
    for (std::int64_t g = 0; g < groups; ++g) {
        std::uint32_t ordered[kUnits];
        arrange_row(packing, x + g * kGroup, kGroup, 0, {ordered, to.sums + g, nullptr, 1});
        for (int w = 0; w < group_words(packing); ++w) {
            const std::int64_t word = g * group_words(packing) + w;
            std::uint32_t *out = to.units + word / kLanes * units * kLanes + word % kLanes;
            for (int u = 0; u < units; ++u)
                out[u * kLanes] = ordered[w * units + u];
        }
    }
    for (std::int64_t word = words; word % kLanes != 0; ++word)
        for (int u = 0; u < units; ++u)
            to.units[(word / kLanes * units + u) * kLanes + word % kLanes] = 0;
}

void arrange_one(Packing packing, const std::uint16_t *x, std::int64_t cols, const RowActivations &to) {
    if (packing == Packing::affine4)
        arrange<Packing::affine4>(x, cols, to);
    else if (packing == Packing::affine8)
        arrange<Packing::affine8>(x, cols, to);
    else
        arrange<Packing::bf16>(x, cols, to);
}

template <Packing packing> LILY_INLINE F scale_of_words(const std::uint8_t *scales, std::int64_t vector, bool whole) {
    const std::uint8_t *p = scales + vector * kLanes / group_words(packing) * 2;
    return packing == Packing::affine4 && whole ? word_scales4(p) : set1_bf16(p);
}

// What a vector of words of each of several rows adds to their sums. The rows take turns, so that none waits for its own
// last step and an input, once read, meets them all.
template <Packing packing, int count> LILY_INLINE void multiply(const Words *w, const std::uint32_t *inputs,
                                                                const std::uint8_t *const *scales, std::int64_t vector,
                                                                bool whole, F *sums) {
    constexpr bool affine = packing != Packing::bf16;
    F dots[count];
    for (int r = 0; r < count; ++r)
        dots[r] = affine ? zero() : sums[r];
    for (int u = 0; u < word_units(packing); ++u) {
        const Unit input = load_unit(inputs + u * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < count; ++r)
            dots[r] = step(dots[r], unit_of<packing>(w[r], u), input);
    }
    for (int r = 0; r < count; ++r)
        sums[r] = affine ? fma(scale_of_words<packing>(scales[r], vector, whole), dots[r], sums[r]) : dots[r];
}

constexpr std::int64_t kAhead = 8192; // bytes between the codes in use and those asked for

// Not to stay in any cache: they are used once, and what they would push out is used again.
LILY_INLINE void prefetch(const std::uint8_t *p) { __builtin_prefetch(p, 0, 0); }

// Several rows at once, from `first` on, share the inputs and hide each other's latency.
// `ahead`: the rows to ask for meanwhile, as many.
template <Packing packing, int count>
static void dot_few(const Rows &rows, const Rows &ahead, std::int64_t first, const RowActivations &x, F *out) {
    constexpr int units = word_units(packing);
    const std::int64_t groups = rows.cols / kGroup, stride = row_bytes(packing, rows.cols);
    const std::int64_t words = groups * group_words(packing), vectors = words / kLanes;
    const std::uint8_t *codes[count], *scales[count];
    F sums[count];
    for (int r = 0; r < count; ++r) {
        codes[r] = rows.codes + (first + r) * stride;
        scales[r] = packing == Packing::bf16 ? nullptr : rows.scales + (first + r) * groups * 2;
        sums[r] = zero();
    }
    Words w[count];
    for (std::int64_t v = 0; v < vectors; ++v) {
#pragma GCC unroll 4
        for (int r = 0; r < count; ++r) {
            prefetch(ahead.codes + r * stride + v * kLanes * 4);
            w[r] = stream_words(codes[r] + v * kLanes * 4);
        }
        multiply<packing, count>(w, x.units + v * units * kLanes, scales, v, true, sums);
    }
    if (const int left = static_cast<int>(words - vectors * kLanes)) {
#pragma GCC unroll 4
        for (int r = 0; r < count; ++r)
            w[r] = load_words_n(codes[r] + vectors * kLanes * 4, left);
        multiply<packing, count>(w, x.units + vectors * units * kLanes, scales, vectors, false, sums);
    }
#pragma GCC unroll 4
    for (int r = 0; r < count; ++r) {
        if constexpr (packing != Packing::bf16) {
            const std::int64_t at = (first + r) * groups * 2;
            prefetch(ahead.scales + r * groups * 2);
            prefetch(ahead.biases + r * groups * 2);
            std::int64_t g = 0;
            for (; g + kLanes <= groups; g += kLanes)
                sums[r] = fma(load_bf16(rows.biases + at + g * 2), load(x.sums + g), sums[r]);
            if (const int left = static_cast<int>(groups - g))
                sums[r] = fma(load_bf16_n(rows.biases + at + g * 2, left), load_n(x.sums + g, left), sums[r]);
        }
        out[r] = sums[r];
    }
}

static Rows moved(const Rows &rows, Packing packing, std::int64_t by) {
    Rows to{rows.codes + by * row_bytes(packing, rows.cols), nullptr, nullptr, rows.cols};
    if (packing != Packing::bf16) {
        to.scales = rows.scales + by * (rows.cols / kGroup) * 2;
        to.biases = rows.biases + by * (rows.cols / kGroup) * 2;
    }
    return to;
}

template <Packing packing>
static void dot_many(const Rows &rows, const Rows &later, int count, const RowActivations &x, F *out) {
    const std::int64_t stride = row_bytes(packing, rows.cols), lead = (kAhead + stride - 1) / stride;
    const auto ahead = [&](int r) {
        return r + lead < count ? moved(rows, packing, r + lead) : moved(later, packing, r + lead - count);
    };
    int r = 0;
    for (; r + 4 <= count; r += 4)
        dot_few<packing, 4>(rows, ahead(r), r, x, out + r);
    for (; r < count; ++r)
        dot_few<packing, 1>(rows, ahead(r), r, x, out + r);
}

void dot_rows(Packing packing, const Rows &rows, const Rows &later, int count, const RowActivations &x, F *out) {
    if (packing == Packing::affine4)
        dot_many<Packing::affine4>(rows, later, count, x, out);
    else if (packing == Packing::affine8)
        dot_many<Packing::affine8>(rows, later, count, x, out);
    else
        dot_many<Packing::bf16>(rows, later, count, x, out);
}

} // namespace lily::cpu::LILY_ISA
