// See gemv.h. Not here: which rows go to which thread.
#include "gemv.h"

#include "dots.h"
#include "scratch.h"

namespace lily::cpu::LILY_ISA {

// Inputs with room for any packing: the last vector of words may be partly empty, and a 4-bit word holds the most.
static std::int64_t padded(std::int64_t cols) {
    const std::int64_t widest = 8 * kLanes;
    return (cols + widest - 1) / widest * widest;
}

struct Places {
    std::size_t units, sums, scales, end;
};

static Places places_of(std::int64_t cols) {
    Places at{};
    at.units = carve(at.end, padded(cols) / kUnitInputs * 4);
    at.sums = carve(at.end, cols / kGroup * 4);
    at.scales = carve(at.end, padded(cols) / 4 * 4); // of the words of 8-bit codes, the most
    return at;
}

std::size_t row_activations_bytes(std::int64_t cols) { return places_of(cols).end; }

RowActivations row_activations_at(std::byte *memory, Packing packing, Inputs inputs, std::int64_t cols) {
    const Places at = places_of(cols);
    auto *scales = reinterpret_cast<float *>(memory + at.scales);
    return {reinterpret_cast<std::uint32_t *>(memory + at.units), reinterpret_cast<float *>(memory + at.sums),
            inputs == Inputs::bytes && packing != Packing::bf16 ? scales : nullptr};
}

// One group in the order of the prefill path, then its units spread over the vectors of words.
template <Packing packing, Inputs inputs>
static void arrange(const std::uint16_t *x, std::int64_t cols, const RowActivations &to) {
    constexpr int units = kWordUnits<packing, inputs>;
    const std::int64_t groups = cols / kGroup, words = groups * group_words(packing);
    for (std::int64_t g = 0; g < groups; ++g) {
        std::uint32_t ordered[kUnits];
        float scale = 0;
        arrange_row(packing, x + g * kGroup, kGroup, 0, {ordered, to.sums + g, to.scales ? &scale : nullptr, 1});
        for (int w = 0; w < group_words(packing); ++w) {
            const std::int64_t word = g * group_words(packing) + w;
            std::uint32_t *out = to.units + word / kLanes * units * kLanes + word % kLanes;
            for (int u = 0; u < units; ++u)
                out[u * kLanes] = ordered[w * units + u];
            if constexpr (inputs == Inputs::bytes)
                to.scales[word] = scale;
        }
    }
    for (std::int64_t word = words; word % kLanes != 0; ++word) {
        for (int u = 0; u < units; ++u)
            to.units[(word / kLanes * units + u) * kLanes + word % kLanes] = 0;
        if constexpr (inputs == Inputs::bytes)
            to.scales[word] = 0;
    }
}

void arrange_one(Packing packing, const std::uint16_t *x, std::int64_t cols, const RowActivations &to) {
    if (packing == Packing::bf16)
        arrange<Packing::bf16, Inputs::as_they_are>(x, cols, to);
    else if (packing == Packing::affine4)
        to.scales ? arrange<Packing::affine4, Inputs::bytes>(x, cols, to)
                  : arrange<Packing::affine4, Inputs::as_they_are>(x, cols, to);
    else
        to.scales ? arrange<Packing::affine8, Inputs::bytes>(x, cols, to)
                  : arrange<Packing::affine8, Inputs::as_they_are>(x, cols, to);
}

template <Packing packing> LILY_INLINE F scale_of_words(const std::uint8_t *scales, std::int64_t vector, bool whole) {
    const std::uint8_t *p = scales + vector * kLanes / group_words(packing) * 2;
    return packing == Packing::affine4 && whole ? word_scales4(p) : set1_bf16(p);
}

// sum + what a vector of words of a row adds to it.
template <Packing packing, Inputs inputs> LILY_INLINE F add_words(F sum, Words w, const RowActivations &x,
                                                                  const std::uint8_t *scales, std::int64_t vector,
                                                                  bool whole) {
    using Dot = DotsOf<packing, inputs>;
    constexpr int units = kWordUnits<packing, inputs>;
    const std::uint32_t *from = x.units + vector * units * kLanes;
    typename Dot::Sum products = Dot::start_words(from);
#pragma GCC unroll 8
    for (int u = 0; u < units; ++u)
        products = Dot::step(products, Dot::code(w, u), Dot::load(from + u * kLanes));
    const F dot = Dot::value(Dot::whole(products));
    if constexpr (packing == Packing::bf16) {
        return add(sum, dot);
    } else {
        F scale = scale_of_words<packing>(scales, vector, whole);
        if constexpr (inputs == Inputs::bytes)
            scale = mul(scale, load(x.scales + vector * kLanes));
        return fma(scale, dot, sum);
    }
}

constexpr std::int64_t kAhead = 4096; // bytes between the codes in use and those asked for

// Into the second-level cache: the first one keeps too few requests open for the latency of memory.
LILY_INLINE void prefetch(const std::uint8_t *p) { __builtin_prefetch(p, 0, 2); }

// The first of the rows; `ahead` begins with the one to ask for meanwhile. One row after the other: a machine reads ahead
// of a thread that walks straight through memory, and of no other order so well.
template <Packing packing, Inputs inputs>
static F dot_row(const Rows &row, const Rows &ahead, const RowActivations &x) {
    const std::int64_t groups = row.cols / kGroup, words = groups * group_words(packing), vectors = words / kLanes;
    F sum = zero();
    for (std::int64_t v = 0; v < vectors; ++v) {
        prefetch(ahead.codes + v * kLanes * 4);
        sum = add_words<packing, inputs>(sum, stream_words(row.codes + v * kLanes * 4), x, row.scales, v, true);
    }
    if (const int left = static_cast<int>(words - vectors * kLanes)) {
        const Words w = load_words_n(row.codes + vectors * kLanes * 4, left);
        sum = add_words<packing, inputs>(sum, w, x, row.scales, vectors, false);
    }
    if constexpr (packing != Packing::bf16) {
        prefetch(ahead.scales);
        prefetch(ahead.biases);
        std::int64_t g = 0;
        for (; g + kLanes <= groups; g += kLanes)
            sum = fma(load_bf16(row.biases + g * 2), load(x.sums + g), sum);
        if (const int left = static_cast<int>(groups - g))
            sum = fma(load_bf16_n(row.biases + g * 2, left), load_n(x.sums + g, left), sum);
    }
    return sum;
}

static Rows moved(const Rows &rows, Packing packing, std::int64_t by) {
    Rows to{rows.codes + by * row_bytes(packing, rows.cols), nullptr, nullptr, rows.cols};
    if (packing != Packing::bf16) {
        to.scales = rows.scales + by * (rows.cols / kGroup) * 2;
        to.biases = rows.biases + by * (rows.cols / kGroup) * 2;
    }
    return to;
}

template <Packing packing, Inputs inputs>
static void dot_many(const Rows &rows, const Rows &later, int count, const RowActivations &x, F *out) {
    const std::int64_t stride = row_bytes(packing, rows.cols), lead = (kAhead + stride - 1) / stride;
    for (int r = 0; r < count; ++r) {
        const Rows ahead = r + lead < count ? moved(rows, packing, r + lead) : moved(later, packing, r + lead - count);
        out[r] = dot_row<packing, inputs>(moved(rows, packing, r), ahead, x);
    }
}

template <Inputs inputs> static void dot_affine(Packing packing, const Rows &rows, const Rows &later, int count,
                                                const RowActivations &x, F *out) {
    if (packing == Packing::affine4)
        dot_many<Packing::affine4, inputs>(rows, later, count, x, out);
    else
        dot_many<Packing::affine8, inputs>(rows, later, count, x, out);
}

void dot_rows(Packing packing, const Rows &rows, const Rows &later, int count, const RowActivations &x, F *out) {
    if (packing == Packing::bf16)
        dot_many<Packing::bf16, Inputs::as_they_are>(rows, later, count, x, out);
    else if (x.scales)
        dot_affine<Inputs::bytes>(packing, rows, later, count, x, out);
    else
        dot_affine<Inputs::as_they_are>(packing, rows, later, count, x, out);
}

} // namespace lily::cpu::LILY_ISA
