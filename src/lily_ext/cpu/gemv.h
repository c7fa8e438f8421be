// The core of the decode path, shared by matmul and moe: output rows of a matrix against one row of activations, lanes
// along the inputs, so that the codes are read once, in the order in which they lie in memory. Sums stay spread over the
// lanes for the caller to add up, once an output.
#pragma once

#include "tile.h"

namespace lily::cpu::LILY_ISA {

// One activation row, in the order in which vectors of kLanes words unpack, padded with zeros to whole vectors.
struct RowActivations {
    std::uint32_t *units; // [vectors of words, units of a word, kLanes]
    float *sums;          // of each group
    float *scales;        // of the bytes, of each word's group, null as they are
};
std::size_t row_activations_bytes(std::int64_t cols);
RowActivations row_activations_at(std::byte *memory, Packing packing, Inputs inputs, std::int64_t cols);
void arrange_one(Packing packing, const std::uint16_t *x, std::int64_t cols, const RowActivations &to);

// Rows of a matrix, one after the other in memory.
struct Rows {
    const std::uint8_t *codes, *scales, *biases;
    std::int64_t cols;
};
LILY_INLINE Rows rows_of(const Linear &w, std::int64_t expert, std::int64_t first) {
    const std::int64_t at = expert * w.rows + first;
    Rows rows{w.codes + at * row_bytes(w.packing, w.cols), nullptr, nullptr, w.cols};
    if (w.packing != Packing::bf16) {
        rows.scales = w.scales + at * (w.cols / kGroup) * 2;
        rows.biases = w.biases + at * (w.cols / kGroup) * 2;
    }
    return rows;
}

// Blocks of rows are claimed one after the other by whichever thread is free, but each thread should walk on through memory:
// where one reads ahead of a block that another has claimed, a fifth of the bandwidth is wasted. Of `items` blocks, the one
// for claim number `claim` if all threads keep pace: each gets a stretch of its own, and after block b it gets b + 1.
LILY_INLINE std::int64_t block_of_claim(std::int64_t claim, std::int64_t items, std::int64_t threads) {
    const std::int64_t stretch = claim % threads, longer = items % threads;
    return stretch * (items / threads) + (stretch < longer ? stretch : longer) + claim / threads;
}

// The dot products of the first `count` rows with x, still spread over the lanes: out[r] sums to the product. Memory is
// asked for rows some way ahead; behind these, for `later`, the rows that the thread will want next. A guess will do.
void dot_rows(Packing packing, const Rows &rows, const Rows &later, int count, const RowActivations &x, F *out);

} // namespace lily::cpu::LILY_ISA
