// h = silu(gate x) * up x of two rows or more, for mlp and for the experts of moe.
#pragma once

#include "../tensor.h"
#include "matmul.h"
#include "stream.h"

namespace lily::metal {

// Rows of the tile for so many rows of one matrix.
std::int64_t swiglu_tile(const Stream &stream, std::int64_t rows);

// x bf16 [tokens, hidden], normed; h bf16 [rows, width]. With blocks, row i of h is the expert's of row list[i] of x;
// list u32 [rows].
void encode_swiglu(Stream &stream, std::int64_t tile, const Tensor &x, const Matrix &gate, const Matrix &up,
                   const Tensor &h, const Blocks *blocks, const Tensor *list);

} // namespace lily::metal
