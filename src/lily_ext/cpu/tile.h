// The core of the prefill path, shared by matmul and moe: one panel of kPanel output rows against many rows of
// activations. A few groups of inputs at a time, the words of the panel are transposed into a tile that stays in the
// first-level cache, and every activation row runs against it with its sums in registers.
//
// A group's dot product is taken over the codes alone (exact in bf16 and in f32); then total += scale * dot and
// total += bias * (sum of the inputs), all in f32. The order of these operations does not depend on the number of rows.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

// A panel is made of strips of kLanes rows. Blocks of 6 activation rows by one panel keep their accumulators in registers.
#if defined(LILY_ISA_avx2)
constexpr int kStrips = 2; // 16 registers
#else
constexpr int kStrips = 4; // 32 registers
#endif
constexpr int kPanel = kStrips * kLanes;
constexpr int kUnits = static_cast<int>(kGroup) / kUnitInputs; // of one group
// Most rows of one call: bounds the totals that a thread keeps, so that they stay in its second-level cache.
constexpr std::int64_t kItemRows = 512;

// How many 32-bit words hold a group of a row, and how many units a word unpacks to.
LILY_INLINE constexpr int group_words(Packing packing) {
    return packing == Packing::affine4 ? 8 : packing == Packing::affine8 ? 16 : 32;
}
LILY_INLINE constexpr int word_units(Packing packing) { return kUnits / group_words(packing); }
LILY_INLINE std::int64_t row_bytes(Packing packing, std::int64_t cols) {
    return cols / kGroup * group_words(packing) * 4;
}

template <Packing packing> LILY_INLINE Unit unit_of(Words w, int j) {
    if constexpr (packing == Packing::affine4)
        return unit4(w, j);
    else if constexpr (packing == Packing::affine8)
        return unit8(w, j);
    else
        return unit16(w, j);
}

// How the inputs of a product are taken: as the bf16 that they are, or rounded to 8 bits, each group of a row to whole
// multiples of 1/127 of its largest magnitude. Matrices of bf16 take theirs as they are.
enum class Inputs { as_they_are, bytes };
LILY_INLINE Inputs inputs_of(const Context &context) {
    return context.byte_inputs ? Inputs::bytes : Inputs::as_they_are;
}

// Activation rows in the order in which a packing's codes unpack, group by group, so that one row's share of a group is
// one piece of memory and consecutive rows are neighbours. sums: of each group of inputs, f32. scales: of the bytes.
struct Activations {
    std::uint32_t *units; // [cols / 64, rows, units of a group]
    float *sums;          // [cols / 64, rows]
    float *scales;        // [cols / 64, rows], null as they are
    std::int64_t rows;
};
std::size_t activations_bytes(std::int64_t rows, std::int64_t cols);
Activations activations_at(std::byte *memory, Packing packing, Inputs inputs, std::int64_t rows, std::int64_t cols);
// Writes one row of `to` from x, bf16 [cols].
void arrange_row(Packing packing, const std::uint16_t *x, std::int64_t cols, std::int64_t row, const Activations &to);

// kLanes output rows in memory, of which `rows` exist; lanes beyond repeat the last.
struct Strip {
    const std::uint8_t *codes, *scales, *biases;
    int rows;
};
Strip strip_at(const Linear &w, std::int64_t expert, std::int64_t first);

struct Panel {
    Packing packing;
    std::int64_t cols;
    Strip strips[kStrips]; // of one matrix, or of several with the same packing and cols
};
Panel panel_at(const Linear &w, std::int64_t expert, std::int64_t column); // rows column .. column + kPanel - 1 of w

// What one thread needs.
struct Workspace {
    std::uint32_t *tile;
    float *scales, *biases; // [cols / 64, kPanel]
    float *totals;          // [kItemRows, kPanel]: the result
};
std::size_t workspace_bytes(std::int64_t cols);
Workspace workspace_at(std::byte *memory, std::int64_t cols);

// totals[i] = panel . x[rows ? rows[i] : first + i] for i < count <= kItemRows. next, if known, is the panel that the thread
// will want after this one.
void panel_product(const Panel &panel, const Panel *next, const Activations &x, const std::int32_t *rows,
                   std::int64_t first, std::int64_t count, const Workspace &work);

} // namespace lily::cpu::LILY_ISA
