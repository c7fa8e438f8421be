// The Gated DeltaNet sublayer. One row: projections, the step, output with the gated norm inside. More rows: projections,
// then pieces of the call one after another, few tokens by the step and many by chunks of 64, each followed by the gated
// norm, then output. See metal/gated_delta.metal and metal/gated_delta_chunk.metal.

#include <algorithm>
#include <cmath>
#include <vector>

#include "../error.h"
#include "args.h"
#include "matmul.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

namespace {

constexpr std::int64_t kChunk = 64;         // tokens, cut at absolute positions
constexpr std::int64_t kMostChunks = 16;    // of a piece, whose scratch is reused by the next
constexpr std::int64_t kFewTokens = 8;      // of a chunk, up to which the recurrence goes token by token
constexpr std::int64_t kSliceRows = 32;     // rows of a state of a threadgroup
constexpr std::int64_t kGateHeads = 4;      // of a threadgroup, gated_delta.metal
constexpr std::int64_t kOutRows = 16;       // of a threadgroup, gated_delta.metal
constexpr std::int64_t kTriangle = 36 * 64; // numbers of the 8x8 matrices in the lower triangle of 64x64

std::int64_t channel_count(const GatedDeltaShape &shape) {
    return 2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim;
}

void require_supported(const GatedDeltaShape &shape) {
    if ((shape.key_dim != 64 && shape.key_dim != 128) || shape.value_dim % kSliceRows != 0) {
        throw Error(ErrorKind::unsupported_checkpoint,
                    "gated_delta: heads of " + std::to_string(shape.key_dim) + " key dims and " +
                        std::to_string(shape.value_dim) +
                        " value dims; the Metal kernels take 64 or 128 key dims and " + "a multiple of " +
                        std::to_string(kSliceRows) + " value dims; use the device 'cpu'");
    }
}

// Tokens that go together.
struct Piece {
    std::int64_t first, count;
    std::int64_t offset; // of the first in its chunk
    bool few;

    std::int64_t chunks() const { return groups_of(offset + count, kChunk); }
};

// What way a token goes depends on how many of its chunk are in the call, and on nothing else.
std::vector<Piece> pieces_of(std::int64_t position, std::int64_t rows) {
    std::vector<Piece> pieces;
    for (std::int64_t row = 0; row < rows;) {
        const std::int64_t offset = (position + row) % kChunk, count = std::min(kChunk - offset, rows - row);
        const bool few = count <= kFewTokens;
        if (!few && !pieces.empty() && !pieces.back().few && pieces.back().chunks() < kMostChunks) {
            pieces.back().count += count;
        } else {
            pieces.push_back({row, count, offset, few});
        }
        row += count;
    }
    return pieces;
}

struct Inputs {
    Tensor raw, z, a, b; // as the projections leave them
};

Inputs cut_inputs(Scratch &scratch, const GatedDeltaShape &shape, std::int64_t rows) {
    Inputs at;
    at.raw = scratch.take(DType::bf16, {rows, channel_count(shape)});
    at.z = scratch.take(DType::bf16, {rows, shape.value_heads * shape.value_dim});
    at.a = scratch.take(DType::f32, {rows, shape.value_heads});
    at.b = scratch.take(DType::f32, {rows, shape.value_heads});
    return at;
}

struct StepLayout {
    Inputs in;
    Tensor y; // f32 [1, value_heads * value_dim]
};

StepLayout cut_step(Scratch &scratch, const GatedDeltaShape &shape) {
    return {cut_inputs(scratch, shape, 1), scratch.take(DType::f32, {1, shape.value_heads * shape.value_dim})};
}

struct RowsLayout {
    Inputs in;
    Tensor normed, gated;
};

RowsLayout cut_rows(Scratch &scratch, const GatedDeltaShape &shape, std::int64_t rows) {
    RowsLayout at;
    at.in = cut_inputs(scratch, shape, rows);
    at.normed = scratch.take(DType::bf16, {rows, shape.hidden});
    at.gated = scratch.take(DType::bf16, {rows, shape.value_heads * shape.value_dim});
    return at;
}

struct PieceLayout {
    Tensor y;                      // f32 [rows, value_heads * value_dim]
    Tensor keys, crossed, queries; // bf16 [chunks, key_heads, kChunk, key_dim], by 8x8 matrices
    Tensor gates;                  // f32 [chunks, value_heads, kChunk, 4]
    Tensor solve, mix;             // f32 [chunks, value_heads, kChunk, kChunk], by 8x8 matrices
};

PieceLayout cut_piece(Scratch &scratch, const GatedDeltaShape &shape, std::int64_t rows, std::int64_t chunks) {
    PieceLayout at;
    at.y = scratch.take(DType::f32, {rows, shape.value_heads * shape.value_dim});
    at.keys = scratch.take(DType::bf16, {chunks, shape.key_heads, kChunk, shape.key_dim});
    at.crossed = scratch.take(DType::bf16, {chunks, shape.key_heads, kChunk, shape.key_dim});
    at.queries = scratch.take(DType::bf16, {chunks, shape.key_heads, kChunk, shape.key_dim});
    at.gates = scratch.take(DType::f32, {chunks, shape.value_heads, kChunk, 4});
    at.solve = scratch.take(DType::f32, {chunks, shape.value_heads, kChunk, kChunk});
    at.mix = scratch.take(DType::f32, {chunks, shape.value_heads, kChunk, kChunk});
    return at;
}

// One call, as its pieces see it.
struct Call {
    const GatedDeltaShape &shape;
    const GatedDeltaWeights &weights;
    const Inputs &in;
    const GatedDeltaState &from, &to;
    std::int64_t rows;

    std::int64_t before() const { return shape.conv_width - 1; }

    GatedDeltaArgs args(const Piece &piece) const {
        return {u32(shape.key_heads),
                u32(shape.value_heads),
                u32(shape.value_dim),
                u32(channel_count(shape)),
                u32(shape.conv_width),
                u32(rows),
                u32(piece.first),
                u32(piece.count),
                u32(piece.offset),
                u32(piece.first),
                piece.first + piece.count == rows ? 1u : 0u,
                1.0f / std::sqrt(static_cast<float>(shape.key_dim))};
    }

    const Tensor &state(const Piece &piece) const { return piece.first == 0 ? from.state : to.state; }
    bool last(const Piece &piece) const { return piece.first + piece.count == rows; }

    // Bytes of `channels` of the inputs of the piece's tokens: those of the call, and those of the window.
    std::int64_t raw_bytes(const Piece &piece, std::int64_t channels) const {
        return (std::min(piece.first, before()) + piece.count) * channels * 2;
    }
    std::int64_t window_bytes(const Piece &piece, std::int64_t channels) const {
        return std::max<std::int64_t>(0, before() - piece.first) * channels * 2;
    }
};

// Reads: the state once; each threadgroup convolves the queries and keys of its head.
void encode_tokens(Stream &stream, const Call &call, const Piece &piece, const Tensor &y) {
    const GatedDeltaShape &shape = call.shape;
    const std::int64_t channels = channel_count(shape), gates = piece.count * shape.value_heads * 4;
    const std::int64_t slices = shape.value_dim / kSliceRows, seen = slices * shape.value_heads; // threadgroups
    const std::int64_t own = 2 * shape.key_dim + kSliceRows;                                     // channels of one
    const bool last = call.last(piece);
    stream.kernel("gated_delta_step_" + std::to_string(shape.key_dim))
        .read(call.in.raw, Role::scratch,
              {.unique = call.raw_bytes(piece, channels), .loaded = seen * call.raw_bytes(piece, own)})
        .read(call.from.window, Role::state,
              {.unique = call.window_bytes(piece, channels), .loaded = seen * call.window_bytes(piece, own)})
        .read(call.weights.conv, Role::weights, {.loaded = seen * own * shape.conv_width * 4})
        .read(call.in.a, Role::scratch, {.unique = gates, .loaded = slices * gates})
        .read(call.in.b, Role::scratch, {.unique = gates, .loaded = slices * gates})
        .read(call.weights.decay_rate, Role::weights, {.loaded = seen * 4})
        .read(call.weights.dt_bias, Role::weights, {.loaded = seen * 4})
        .read(call.state(piece), Role::state)
        .write(call.to.state, Role::state)
        .write(call.to.window, Role::state, {.unique = last ? call.before() * channels * 2 : 0})
        .write(y, Role::scratch)
        .run(call.args(piece), {u32(slices), u32(shape.value_heads)}, {128});
}

// Reads: `prepare` each input once a chunk; `scan` what `prepare` made, once for each 32 rows of the state.
void encode_chunks(Stream &stream, const Call &call, const Piece &piece, const PieceLayout &at) {
    const GatedDeltaShape &shape = call.shape;
    const GatedDeltaArgs args = call.args(piece);
    const std::int64_t chunks = piece.chunks(), slices = shape.value_dim / kSliceRows,
                       group = shape.value_heads / shape.key_heads;
    const std::int64_t channels = channel_count(shape), values = shape.value_heads * shape.value_dim;
    const std::int64_t keys = channels - values, gates = piece.count * shape.value_heads * 4;
    const std::int64_t kept = call.last(piece) ? std::min(call.before(), call.rows) * values * 2 : 0;
    const std::int64_t kept_window =
        call.last(piece) ? std::max<std::int64_t>(0, call.before() - call.rows) * values * 2 : 0;
    const std::int64_t again = (chunks - 1) * call.before() * keys * 2; // inputs that the next chunk convolves too
    const std::int64_t triangles = chunks * shape.value_heads * kTriangle * 4;
    const std::string dim = std::to_string(shape.key_dim);
    stream.kernel("gated_delta_prepare_" + dim)
        .read(call.in.raw, Role::scratch,
              {.unique = call.raw_bytes(piece, keys) + kept, .loaded = call.raw_bytes(piece, keys) + again + kept})
        .read(call.from.window, Role::state, {.unique = call.window_bytes(piece, keys) + kept_window})
        .read(call.weights.conv, Role::weights,
              {.unique = keys * shape.conv_width * 4, .loaded = chunks * keys * shape.conv_width * 4})
        .read(call.in.a, Role::scratch, {.unique = gates})
        .read(call.in.b, Role::scratch, {.unique = gates})
        .read(call.weights.decay_rate, Role::weights, {.loaded = chunks * shape.value_heads * 4})
        .read(call.weights.dt_bias, Role::weights, {.loaded = chunks * shape.value_heads * 4})
        .write(at.keys, Role::scratch)
        .write(at.crossed, Role::scratch)
        .write(at.queries, Role::scratch)
        .write(at.gates, Role::scratch)
        .write(at.solve, Role::scratch, {.unique = triangles})
        .write(at.mix, Role::scratch, {.unique = triangles})
        .write(call.to.window, Role::state, {.unique = call.last(piece) ? call.before() * channels * 2 : 0})
        .run(args, {u32(chunks), u32(shape.key_heads)}, {256});

    // Of a chunk with fewer tokens, only the tiles of 8 that have one; of a triangle, matrices in pairs.
    std::int64_t tiles = 0, pairs = 0;
    for (std::int64_t c = 0; c < chunks; ++c) {
        const std::int64_t begin = std::max(c * kChunk, piece.offset),
                           end = std::min((c + 1) * kChunk, piece.offset + piece.count);
        for (std::int64_t tile = 0; 8 * tile < end - begin; ++tile) {
            ++tiles;
            pairs += tile / 2 + 1;
        }
    }
    const std::int64_t factors = tiles * shape.key_heads * 8 * shape.key_dim * 2;
    const Bytes factor{.unique = factors, .loaded = factors * slices * group};
    // Three numbers of each token, and the fourth of the eight that every lane can reach.
    const std::int64_t gate = (tiles * 8 * 12 + chunks * 8 * 4) * shape.value_heads;
    const std::int64_t triangle = pairs * 512 * shape.value_heads;
    const Bytes matrix{.unique = triangle, .loaded = triangle * slices};
    stream.kernel("gated_delta_scan_" + dim)
        .read(call.in.raw, Role::scratch, {.unique = call.raw_bytes(piece, values)})
        .read(call.from.window, Role::state, {.unique = call.window_bytes(piece, values)})
        .read(call.weights.conv, Role::weights, {.unique = values * shape.conv_width * 4})
        .read(at.keys, Role::scratch, factor)
        .read(at.crossed, Role::scratch, factor)
        .read(at.queries, Role::scratch, factor)
        .read(at.gates, Role::scratch, {.unique = gate, .loaded = gate * slices})
        .read(at.solve, Role::scratch, matrix)
        .read(at.mix, Role::scratch, matrix)
        .read(call.state(piece), Role::state)
        .write(call.to.state, Role::state)
        .write(at.y, Role::scratch)
        .run(args, {u32(slices), u32(shape.value_heads)}, {128});
}

void encode_inputs(Stream &stream, const Tensor &x, const Norm &norm, const Tensor &normed, const GatedDeltaWeights &w,
                   const Inputs &at) {
    const Projection in[] = {
        {.w = &w.qkv, .y = at.raw}, {.w = &w.z, .y = at.z}, {.w = &w.a, .y = at.a}, {.w = &w.b, .y = at.b}};
    encode_projections(stream, x, &norm, normed, in);
}

// Reads: the weights once; y, z and the norm of heads in every threadgroup.
void encode_out(Stream &stream, const GatedDeltaShape &shape, const GatedDeltaWeights &w, const StepLayout &at,
                const Tensor &x) {
    const std::int64_t width = shape.value_heads * shape.value_dim;
    const std::uint32_t groups = groups_of(shape.hidden, kOutRows);
    stream.kernel("gated_delta_out", w.out.packing)
        .matrix(w.out)
        .read(at.y, Role::scratch, {.loaded = groups * width * 4})
        .read(at.in.z, Role::scratch, {.loaded = groups * width * 2})
        .read(w.head_norm, Role::weights, {.loaded = groups * shape.value_dim * 4})
        .update(x, Role::activations)
        .threadgroup(u32(width) * 2)
        .run(GatedDeltaOutArgs{u32(shape.hidden), u32(shape.value_heads), u32(shape.value_dim), shape.eps}, {groups},
             {256});
}

void encode_gate(Stream &stream, const Call &call, const Piece &piece, const Tensor &y, const Tensor &gated) {
    const GatedDeltaShape &shape = call.shape;
    const std::int64_t heads = piece.count * shape.value_heads, numbers = heads * shape.value_dim;
    const std::uint32_t groups = groups_of(heads, kGateHeads);
    stream.kernel("gated_delta_gate")
        .read(y, Role::scratch)
        .read(call.in.z, Role::scratch, {.unique = numbers * 2})
        .read(call.weights.head_norm, Role::weights, {.loaded = groups * shape.value_dim * 4})
        .write(gated, Role::scratch, {.unique = numbers * 2})
        .run(GatedDeltaGateArgs{u32(heads), u32(piece.first * shape.value_heads), u32(shape.value_dim), shape.eps},
             {groups}, {u32(32 * kGateHeads)});
}

} // namespace

std::size_t gated_delta_scratch(const Limits &limits) {
    const GatedDeltaShape &shape = limits.gated_delta;
    require_supported(shape);
    Scratch step, rows;
    cut_step(step, shape);
    cut_rows(rows, shape, limits.rows);
    // A piece may begin in the middle of a chunk.
    const std::int64_t chunks = std::min<std::int64_t>(kMostChunks, groups_of(limits.rows, kChunk) + 1);
    cut_piece(rows, shape, std::min(limits.rows, kMostChunks * kChunk), chunks);
    return std::max(step.bytes(), rows.bytes());
}

void encode_gated_delta(Stream &stream, Scratch scratch, const GatedDeltaShape &shape, const GatedDeltaWeights &weights,
                        const Tensor &x, const GatedDeltaState &from, const GatedDeltaState &to,
                        std::int64_t position) {
    require_supported(shape);
    const std::int64_t rows = x.dims[0];
    const Norm norm{weights.norm, shape.eps};
    if (rows == 1) {
        const StepLayout at = cut_step(scratch, shape);
        encode_inputs(stream, x, norm, {}, weights, at.in);
        encode_tokens(stream, {shape, weights, at.in, from, to, 1}, {0, 1, position % kChunk, true}, at.y);
        encode_out(stream, shape, weights, at, x);
        return;
    }
    const RowsLayout at = cut_rows(scratch, shape, rows);
    encode_inputs(stream, x, norm, at.normed, weights, at.in);
    const Call call{shape, weights, at.in, from, to, rows};
    for (const Piece &piece : pieces_of(position, rows)) {
        Scratch rest = scratch;
        const PieceLayout own = cut_piece(rest, shape, piece.count, piece.chunks());
        if (piece.few) {
            encode_tokens(stream, call, piece, own.y);
        } else {
            encode_chunks(stream, call, piece, own);
        }
        encode_gate(stream, call, piece, own.y, at.gated);
    }
    const Projection out{.w = &weights.out, .y = x, .add = true, .role = Role::activations};
    encode_projections(stream, at.gated, nullptr, {}, {&out, 1});
}

} // namespace lily::metal
