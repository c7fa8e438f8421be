// Products with packed matrices, as the words use them: one row goes through the kernels of gemv.metal, several matrices
// at once and with the norm inside; more rows go through the tiles of matmul.metal.
#pragma once

#include <cstdint>
#include <span>

#include "../tensor.h"
#include "record.h"
#include "stream.h"

namespace lily::metal {

struct Norm {
    Tensor weight; // f32 [hidden]
    float eps = 0;
};

// y, f32 or bf16 [rows, w.rows], becomes the product, or has it added (bf16 only) with one rounding.
struct Projection {
    const Matrix *w = nullptr;
    Tensor y{};
    bool add = false;
    Role role = Role::scratch; // of y
    std::int64_t expert = 0;
};

inline constexpr std::size_t kMostProjections = 4; // of one dispatch of one row

// x bf16 [rows, cols]. With a norm, every matrix reads x normed; normed bf16 [rows, cols] is scratch for more than one
// row.
void encode_projections(Stream &stream, const Tensor &x, const Norm *norm, const Tensor &normed,
                        std::span<const Projection> projections);

// A product whose rows, and their experts, come from a map of blocks (see moe.cpp), or the plain one.
struct Blocks {
    Tensor map{};             // u32 [count, 4]
    std::int64_t count = 0;   // the most there can be
    std::int64_t experts = 0; // the most that have rows

    // Of the map, three numbers of each block, read by `across` threadgroups.
    Bytes read(std::int64_t across) const { return {.unique = count * 12, .loaded = across * count * 12}; }
};

// Of the tile of a kernel, on the device of a stream: the fewest rows there are, the rows for so many, and the threads for
// so many rows and outputs of each of some matrices.
std::int64_t smallest_tile(const Stream &stream);
std::int64_t tile_rows(const Stream &stream, std::int64_t rows);
std::uint32_t tile_threads(const Stream &stream, std::int64_t matrices, std::int64_t tile, std::int64_t outputs);

// y [rows, cols of y] = x . w[.., first .. first + cols of y]^T by tiles of `tile` rows.
void encode_tiles(Stream &stream, std::int64_t tile, const Tensor &x, const Projection &projection, std::int64_t first,
                  const Blocks *blocks);

} // namespace lily::metal
