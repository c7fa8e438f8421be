// The dense feed-forward of an encoder: norm, gate and up in one pass, down onto the residual. See metal/mlp.metal.

#include "mlp.h"

#include <algorithm>
#include <string>

#include "args.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

namespace {

struct Layout {
    Tensor normed, h;
};

Layout cut(Scratch &scratch, std::int64_t rows, std::int64_t hidden, std::int64_t width) {
    return {scratch.take(DType::bf16, {rows, hidden}), scratch.take(DType::bf16, {rows, width})};
}

} // namespace

std::int64_t swiglu_tile(const Stream &stream, std::int64_t rows) {
    return std::min<std::int64_t>(tile_rows(stream, rows), 32);
}

// Reads: each row of weights once a row of tiles, each row of x once a column of tiles.
void encode_swiglu(Stream &stream, std::int64_t tile, const Tensor &x, const Matrix &gate, const Matrix &up,
                   const Tensor &h, const Blocks *blocks, const Tensor *list) {
    const std::int64_t rows = h.dims[0], width = gate.rows;
    const std::int64_t outputs = tile <= 16 ? 32 : 64; // of a threadgroup
    const std::uint32_t across = groups_of(width, outputs);
    const std::uint32_t down = blocks != nullptr ? u32(blocks->count) : groups_of(rows, tile);
    const std::int64_t matrices = blocks != nullptr ? blocks->experts : 1;
    Dispatch dispatch =
        stream.kernel((stream.tensor_units() ? "swiglu2d_" : "swiglu_") + std::to_string(tile), gate.packing);
    dispatch.matrix(gate, matrices * width, down * width)
        .matrix(up, matrices * width, down * width)
        .read(x, Role::scratch, {.loaded = across * rows * gate.cols * 2});
    if (blocks != nullptr) {
        dispatch.read(blocks->map, Role::scratch, blocks->read(across))
            .read(*list, Role::scratch, {.loaded = across * rows * 4});
    } else {
        dispatch.read(x, Role::scratch, {.unique = 0}).read(x, Role::scratch, {.unique = 0});
    }
    dispatch.write(h, Role::scratch)
        .run(SwigluArgs{u32(rows), u32(gate.cols), u32(width), blocks != nullptr ? 1u : 0u}, {across, down},
             {tile_threads(stream, 2, tile, outputs)});
}

std::size_t mlp_scratch(const Limits &limits) {
    Scratch scratch;
    cut(scratch, limits.rows, limits.mlp.hidden, limits.mlp.width);
    return scratch.bytes();
}

void encode_mlp(Stream &stream, Scratch scratch, const MlpShape &shape, const MlpWeights &weights, const Tensor &x) {
    const std::int64_t rows = x.dims[0];
    const Layout at = cut(scratch, rows, shape.hidden, shape.width);
    encode_norm(stream, x, weights.norm, shape.eps, at.normed);
    encode_swiglu(stream, swiglu_tile(stream, rows), at.normed, weights.gate, weights.up, at.h, nullptr, nullptr);
    const Projection down{.w = &weights.down, .y = x, .add = true, .role = Role::activations};
    encode_projections(stream, at.h, nullptr, {}, {&down, 1});
}

} // namespace lily::metal
