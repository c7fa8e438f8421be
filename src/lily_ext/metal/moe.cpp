// The mixture of experts. One row: the router's logits with the norm inside, then the two kernels of metal/moe.metal.
// More rows: norm, router, then the sort and the grouped products of metal/moe_sort.metal, metal/mlp.metal and
// metal/matmul.metal. Routing stays on the device: grids are as large as any routing can need, and the map of blocks
// says which of their threadgroups have work.

#include <algorithm>

#include "../error.h"
#include "args.h"
#include "matmul.h"
#include "mlp.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

namespace {

constexpr std::int64_t kPiece = 256;           // pairs of a piece of the sort, moe_sort.metal
constexpr std::int64_t kMostExperts = 512;     // choice.h
constexpr std::int64_t kMostChosen = 32;       // choice.h
constexpr std::int64_t kOpenRows = 32;         // of gate and of up, a threadgroup of moe_open
constexpr std::int64_t kCloseRows = 16;        // of x, a threadgroup of moe_close
constexpr std::int64_t kRouteRows = 4;         // a threadgroup of moe_route
constexpr std::int64_t kPartsBytes = 64 << 20; // of the experts' outputs that wait to be summed
constexpr std::int64_t kSliceColumns = 128;    // of x: a slice is a multiple of it
constexpr std::int64_t kSmallestBlock = 8;     // of any device

// The most that any routing fills: every expert has a block that it does not fill with more than one pair.
std::int64_t most_blocks(const MoeShape &shape, std::int64_t rows, std::int64_t tile) {
    const std::int64_t pairs = rows * shape.top_k, experts = std::min(shape.experts, pairs);
    return experts + (pairs - experts) / tile;
}

// Rows of a block: what an expert gets on average, or less.
std::int64_t block_rows(const Stream &stream, const MoeShape &shape, std::int64_t rows) {
    const std::int64_t each = rows * shape.top_k / shape.experts;
    return std::max<std::int64_t>(each <= 4 ? 8 : each <= 16 ? 16 : 32, smallest_tile(stream));
}

// Columns of x whose parts fit the memory for them.
std::int64_t slice_columns(const MoeShape &shape, std::int64_t rows) {
    const std::int64_t fit = kPartsBytes / (rows * shape.top_k * 4) / kSliceColumns * kSliceColumns;
    return std::min(shape.hidden, std::max(fit, kSliceColumns));
}

struct StepLayout {
    Tensor logits, shared_logit, ids, weights, h;
};

StepLayout cut_step(Scratch &scratch, const MoeShape &shape) {
    StepLayout at;
    at.logits = scratch.take(DType::f32, {1, shape.experts});
    at.shared_logit = scratch.take(DType::f32, {1, 1});
    at.ids = scratch.take(DType::u32, {shape.top_k});
    at.weights = scratch.take(DType::f32, {shape.top_k + 1});
    at.h = scratch.take(DType::bf16, {shape.top_k * shape.width + shape.shared_width});
    return at;
}

struct RowsLayout {
    Tensor normed, logits, shared_logits, ids, weights, shared_weights, counts, map, tokens, slots, h, shared_h;
    Tensor parts, shared_parts; // as large as any slice of so many rows or fewer
};

RowsLayout cut_rows(Scratch &scratch, const MoeShape &shape, std::int64_t rows) {
    const std::int64_t pairs = rows * shape.top_k;
    const std::int64_t parts = std::min(pairs * shape.hidden, std::max(kPartsBytes / 4, pairs * kSliceColumns));
    RowsLayout at;
    at.normed = scratch.take(DType::bf16, {rows, shape.hidden});
    at.logits = scratch.take(DType::f32, {rows, shape.experts});
    at.shared_logits = scratch.take(DType::f32, {rows, 1});
    at.ids = scratch.take(DType::u32, {rows, shape.top_k});
    at.weights = scratch.take(DType::f32, {rows, shape.top_k});
    at.shared_weights = scratch.take(DType::f32, {rows});
    at.counts = scratch.take(DType::u32, {groups_of(pairs, kPiece), shape.experts});
    at.map = scratch.take(DType::u32, {most_blocks(shape, rows, kSmallestBlock), 4});
    at.tokens = scratch.take(DType::u32, {pairs});
    at.slots = scratch.take(DType::u32, {pairs});
    at.h = scratch.take(DType::bf16, {pairs, shape.width});
    at.shared_h = scratch.take(DType::bf16, {rows, shape.shared_width});
    at.parts = scratch.take(DType::f32, {parts});
    at.shared_parts = scratch.take(DType::f32, {(parts + shape.top_k - 1) / shape.top_k});
    return at;
}

Tensor shaped(Tensor tensor, std::int64_t rows, std::int64_t cols) {
    tensor.rank = 2;
    tensor.dims[0] = rows;
    tensor.dims[1] = cols;
    return tensor;
}

// Reads: the logits in every threadgroup, the chosen experts' rows once.
void encode_step(Stream &stream, Scratch scratch, const MoeShape &shape, const MoeWeights &w, const Tensor &x) {
    const StepLayout at = cut_step(scratch, shape);
    const std::int64_t hidden = shape.hidden, top_k = shape.top_k;
    const Norm norm{w.norm, shape.eps};
    const Projection logits[] = {{.w = &w.router, .y = at.logits}, {.w = &w.shared_router, .y = at.shared_logit}};
    encode_projections(stream, x, &norm, {}, logits);

    const std::uint32_t open = groups_of(std::max(shape.width, shape.shared_width), kOpenRows);
    const std::int64_t all = open * (top_k + 1);
    const std::uint32_t bits = bits_of(w.gate.packing), shared_bits = bits_of(w.shared_gate.packing);
    stream.kernel("moe_open")
        .matrix(w.gate, top_k * shape.width)
        .matrix(w.up, top_k * shape.width)
        .matrix(w.shared_gate)
        .matrix(w.shared_up)
        .read(x, Role::activations, {.loaded = all * hidden * 2})
        .read(w.norm, Role::weights, {.loaded = all * hidden * 4})
        .read(at.logits, Role::scratch, {.loaded = open * top_k * shape.experts * 4})
        .read(at.shared_logit, Role::scratch)
        .write(at.h, Role::scratch)
        .write(at.ids, Role::scratch)
        .write(at.weights, Role::scratch)
        .threadgroup((u32(hidden) * 2 + 15) / 16 * 16)
        .run(MoeOpenArgs{u32(hidden), u32(shape.experts), u32(top_k), u32(shape.width), u32(shape.shared_width),
                         shape.renormalize ? 1u : 0u, bits, shared_bits, shape.eps},
             {open, u32(top_k + 1)}, {256});

    const std::uint32_t close = groups_of(hidden, kCloseRows);
    stream.kernel("moe_close")
        .matrix(w.down, top_k * hidden)
        .matrix(w.shared_down)
        .read(at.h, Role::scratch, {.loaded = close * at.h.dims[0] * 2})
        .read(at.ids, Role::scratch, {.loaded = close * top_k * 4})
        .read(at.weights, Role::scratch, {.loaded = close * (top_k + 1) * 4})
        .update(x, Role::activations)
        .run(MoeCloseArgs{u32(hidden), u32(top_k), u32(shape.width), u32(shape.shared_width), bits_of(w.down.packing),
                          bits_of(w.shared_down.packing)},
             {close}, {128});
}

// From logits to the map of blocks.
void encode_routing(Stream &stream, const MoeShape &shape, const RowsLayout &at, std::int64_t rows, std::int64_t tile,
                    const Blocks &blocks) {
    const std::int64_t pairs = rows * shape.top_k, pieces = groups_of(pairs, kPiece);
    const MoeSortArgs args{u32(pairs), u32(shape.experts), u32(shape.top_k), u32(pieces), u32(tile), u32(blocks.count)};
    stream.kernel("moe_route")
        .read(at.logits, Role::scratch)
        .read(at.shared_logits, Role::scratch)
        .write(at.ids, Role::scratch)
        .write(at.weights, Role::scratch)
        .write(at.shared_weights, Role::scratch)
        .run(MoeRouteArgs{u32(rows), u32(shape.experts), u32(shape.top_k), shape.renormalize ? 1u : 0u},
             {groups_of(rows, kRouteRows)}, {u32(32 * kRouteRows)});
    stream.kernel("moe_count")
        .read(at.ids, Role::scratch)
        .write(at.counts, Role::scratch)
        .run(args, {u32(pieces)}, {u32(kPiece)});
    stream.kernel("moe_scan")
        .update(at.counts, Role::scratch)
        .write(blocks.map, Role::scratch)
        .run(args, {1}, {groups_of(shape.experts, 32) * 32});
    stream.kernel("moe_scatter")
        .read(at.ids, Role::scratch)
        .read(at.counts, Role::scratch, {.unique = std::min(pairs, pieces * shape.experts) * 4})
        .write(at.tokens, Role::scratch)
        .write(at.slots, Role::scratch)
        .run(args, {u32(pieces)}, {u32(kPiece)});
}

void encode_rows(Stream &stream, Scratch scratch, const MoeShape &shape, const MoeWeights &w, const Tensor &x) {
    const std::int64_t rows = x.dims[0], pairs = rows * shape.top_k, hidden = shape.hidden;
    RowsLayout at = cut_rows(scratch, shape, rows);
    const Norm norm{w.norm, shape.eps};
    const Projection logits[] = {{.w = &w.router, .y = at.logits}, {.w = &w.shared_router, .y = at.shared_logits}};
    encode_projections(stream, x, &norm, at.normed, logits);

    const std::int64_t tile = block_rows(stream, shape, rows), count = most_blocks(shape, rows, tile);
    const Blocks blocks{shaped(at.map, count, 4), count, std::min(shape.experts, pairs)};
    encode_swiglu(stream, swiglu_tile(stream, rows), at.normed, w.shared_gate, w.shared_up, at.shared_h, nullptr,
                  nullptr);
    encode_routing(stream, shape, at, rows, tile, blocks);
    encode_swiglu(stream, tile, at.normed, w.gate, w.up, at.h, &blocks, &at.tokens);

    const std::int64_t slice = slice_columns(shape, rows);
    for (std::int64_t first = 0; first < hidden; first += slice) {
        const std::int64_t cols = std::min(slice, hidden - first);
        const Tensor parts = shaped(at.parts, pairs, cols), shared_parts = shaped(at.shared_parts, rows, cols);
        encode_tiles(stream, tile, at.h, {.w = &w.down, .y = parts}, first, &blocks);
        encode_tiles(stream, tile_rows(stream, rows), at.shared_h, {.w = &w.shared_down, .y = shared_parts}, first,
                     nullptr);
        stream.kernel("moe_combine")
            .read(parts, Role::scratch)
            .read(shared_parts, Role::scratch)
            .read(at.slots, Role::scratch, {.loaded = groups_of(cols, 256) * pairs * 4})
            .read(at.weights, Role::scratch, {.loaded = groups_of(cols, 256) * pairs * 4})
            .read(at.shared_weights, Role::scratch, {.loaded = groups_of(cols, 256) * rows * 4})
            .update(x, Role::activations, {.unique = rows * cols * 2}, {.unique = rows * cols * 2})
            .run(MoeCombineArgs{u32(rows), u32(hidden), u32(shape.top_k), u32(first), u32(cols)},
                 {groups_of(cols, 256), u32(rows)}, {64});
    }
}

} // namespace

std::size_t moe_scratch(const Limits &limits) {
    Scratch step, rows;
    cut_step(step, limits.moe);
    cut_rows(rows, limits.moe, limits.rows);
    return std::max(step.bytes(), rows.bytes());
}

void encode_moe(Stream &stream, Scratch scratch, const MoeShape &shape, const MoeWeights &weights, const Tensor &x) {
    if (shape.experts > kMostExperts || shape.top_k > kMostChosen) {
        throw Error(ErrorKind::unsupported_checkpoint,
                    "moe: " + std::to_string(shape.top_k) + " of " + std::to_string(shape.experts) +
                        " experts; the Metal kernels take up to " + std::to_string(kMostChosen) + " of " +
                        std::to_string(kMostExperts));
    }
    if (x.dims[0] == 1) {
        encode_step(stream, scratch, shape, weights, x);
    } else {
        encode_rows(stream, scratch, shape, weights, x);
    }
}

} // namespace lily::metal
