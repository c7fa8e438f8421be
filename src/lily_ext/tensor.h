// Views: a buffer of the backend, an offset in bytes, a type and a shape. A view owns nothing; whoever made the buffer
// (weights, session, arena) keeps it alive. Plain data, so that it can cross into code compiled for any instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lily {

class Buffer;

enum class DType : std::uint8_t { u32, i32, bf16, f32 };

struct Tensor {
    Buffer *buffer = nullptr;
    std::size_t offset = 0; // bytes from the start of the buffer, of any alignment
    DType dtype = DType::f32;
    int rank = 0;
    std::int64_t dims[4] = {1, 1, 1, 1};
};

// How the numbers of a matrix are stored. affine: w = scale * code + bias, one bf16 scale and bias for each 64 inputs,
// codes in little-endian u32 words, lowest bits first (MLX's affine mode with group size 64).
enum class Packing : std::uint8_t { affine4, affine8, bf16 };

inline constexpr std::int64_t kGroup = 64;

// A weight matrix [experts, rows, cols]; y = x . w^T, so rows are outputs and cols are inputs. experts is 1 for a plain one.
struct Matrix {
    Packing packing = Packing::affine4;
    Tensor codes{};  // u32 [experts, rows, cols * bits / 32], or bf16 [experts, rows, cols]
    Tensor scales{}; // bf16 [experts, rows, cols / 64]; unused for bf16
    Tensor biases{}; // bf16 [experts, rows, cols / 64]; unused for bf16
    std::int64_t experts = 1;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
};

} // namespace lily
