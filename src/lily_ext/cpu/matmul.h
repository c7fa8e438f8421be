// Products with weight matrices, y = x . w^T, for every packing. Private to the CPU backend; one row takes the decode
// path (memory-bound, lanes along the inputs), two or more the prefill path (compute-bound, lanes along the outputs).
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

enum class Store { f32, bf16, add_bf16 }; // add_bf16: y = bf16(y + product), the residual add

// One product: row r of y begins at element r * stride and receives w->rows numbers.
struct Job {
    const Linear *w;
    std::int64_t expert;
    Store store;
    void *y; // float or bf16, by store
    std::int64_t stride;
};

// At most 8 products of the same x, bf16 [rows, cols], cols being that of every job's matrix, in one pass over the
// threads. scratch: 64-byte aligned, matmul_scratch bytes, disjoint from x and y. y may not overlap x.
void matmul(Context &context, std::byte *scratch, const std::uint16_t *x, std::int64_t rows, const Job *jobs,
            int count);
std::size_t matmul_scratch(std::int64_t rows, std::int64_t cols, int threads);

} // namespace lily::cpu::LILY_ISA
