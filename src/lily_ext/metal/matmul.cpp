// See matmul.h.

#include "matmul.h"

#include <algorithm>
#include <string>

#include "args.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

namespace {

constexpr std::int64_t kGemvSimdgroups = 8; // of a threadgroup, gemv.h

std::uint32_t store_of(const Projection &projection) {
    if (projection.add) {
        return LILY_STORE_ADD;
    }
    return projection.y.dtype == DType::f32 ? LILY_STORE_F32 : LILY_STORE_BF16;
}

Dispatch &bind_result(Dispatch &dispatch, const Projection &projection) {
    return projection.add ? dispatch.update(projection.y, projection.role)
                          : dispatch.write(projection.y, projection.role);
}

// Rows of a simdgroup. Many for wide matrices, where the threadgroups are enough for any GPU: then the norm and the x in
// registers serve more rows.
std::int64_t gemv_rows(std::span<const Projection> projections) {
    std::int64_t outputs = 0;
    for (const Projection &projection : projections) {
        outputs += projection.w->rows;
    }
    return outputs >= 8192 ? 4 : outputs >= 1024 ? 2 : 1;
}

// Reads: each row of weights once; x and the norm once, and again in every threadgroup.
void encode_gemv(Stream &stream, const Tensor &x, const Norm *norm, std::span<const Projection> projections) {
    const std::int64_t cols = x.dims[1], count = gemv_rows(projections);
    GemvArgs args{};
    args.cols = u32(cols);
    args.normed = norm != nullptr ? 1 : 0;
    args.eps = norm != nullptr ? norm->eps : 0;
    args.jobs = u32(static_cast<std::int64_t>(projections.size()));
    std::uint32_t groups = 0;
    for (std::size_t j = 0; j < projections.size(); ++j) {
        const Projection &p = projections[j];
        const std::uint32_t own = groups_of(p.w->rows, kGemvSimdgroups * count);
        args.job[j] = {bits_of(p.w->packing), u32(p.w->rows), u32(p.expert), store_of(p), own};
        groups += own;
    }
    Dispatch dispatch = stream.kernel("gemv_" + std::to_string(count));
    dispatch.read(x, Role::activations, {.loaded = groups * cols * 2});
    if (norm != nullptr) {
        dispatch.read(norm->weight, Role::weights, {.loaded = groups * cols * 4});
    } else {
        dispatch.read(x, Role::activations, {.unique = 0});
    }
    for (std::size_t j = 0; j < kMostProjections; ++j) {
        if (j < projections.size()) {
            dispatch.matrix(*projections[j].w, projections[j].w->rows);
            bind_result(dispatch, projections[j]);
        } else { // places that no job has
            dispatch.matrix(*projections[0].w, 0);
            dispatch.write(projections[0].y, projections[0].role, {.unique = 0});
        }
    }
    dispatch.threadgroup((u32(cols) * 2 + 15) / 16 * 16).run(args, {groups}, {u32(32 * kGemvSimdgroups)});
}

} // namespace

std::int64_t smallest_tile(const Stream &stream) { return stream.tensor_units() ? 16 : 8; } // matmul2d takes no 8 rows

std::int64_t tile_rows(const Stream &stream, std::int64_t rows) {
    // Below 64 rows a product waits for weights: a small tile gives more threadgroups, which ask for them together.
    return std::max<std::int64_t>(rows <= 8 ? 8 : rows <= 32 ? 16 : rows < 512 ? 32 : 64, smallest_tile(stream));
}

// As tile_threads of tile_matmul2d.h and of tile.h.
std::uint32_t tile_threads(const Stream &stream, std::int64_t matrices, std::int64_t tile, std::int64_t outputs) {
    if (stream.tensor_units()) {
        return u32(32 * (tile / std::min(tile, 32 / matrices)) * (outputs / 32));
    }
    return tile == 64 ? 256 : 128;
}

// Reads: each row of weights once a row of tiles, each row of x once a column of tiles.
void encode_tiles(Stream &stream, std::int64_t tile, const Tensor &x, const Projection &projection, std::int64_t first,
                  const Blocks *blocks) {
    const Matrix &w = *projection.w;
    const std::int64_t rows = x.dims[0], outputs = projection.y.dims[1];
    const std::int64_t own = tile <= 16 ? 32 : 128; // outputs of a threadgroup
    const std::uint32_t across = groups_of(outputs, own);
    const std::uint32_t down = blocks != nullptr ? u32(blocks->count) : groups_of(rows, tile);
    const std::int64_t matrices = blocks != nullptr ? blocks->experts : 1;
    const MatmulArgs args{u32(rows),
                          u32(w.cols),
                          u32(w.rows),
                          u32(first),
                          u32(outputs),
                          u32(projection.expert),
                          store_of(projection),
                          blocks != nullptr ? 1u : 0u};
    Dispatch dispatch =
        stream.kernel((stream.tensor_units() ? "matmul2d_" : "matmul_") + std::to_string(tile), w.packing);
    dispatch.matrix(w, matrices * outputs, down * outputs)
        .read(x, Role::scratch, {.loaded = across * rows * w.cols * 2});
    if (blocks != nullptr) {
        dispatch.read(blocks->map, Role::scratch, blocks->read(across));
    } else {
        dispatch.read(x, Role::scratch, {.unique = 0});
    }
    bind_result(dispatch, projection).run(args, {across, down}, {tile_threads(stream, 1, tile, own)});
}

void encode_projections(Stream &stream, const Tensor &x, const Norm *norm, const Tensor &normed,
                        std::span<const Projection> projections) {
    if (x.dims[0] == 1) {
        for (std::size_t first = 0; first < projections.size(); first += kMostProjections) {
            encode_gemv(stream, x, norm,
                        projections.subspan(first, std::min(kMostProjections, projections.size() - first)));
        }
        return;
    }
    if (norm != nullptr) {
        encode_norm(stream, x, norm->weight, norm->eps, normed);
    }
    for (const Projection &projection : projections) {
        encode_tiles(stream, tile_rows(stream, x.dims[0]), norm != nullptr ? normed : x, projection, 0, nullptr);
    }
}

void encode_matmul(Stream &stream, const Tensor &x, const Matrix &w, std::int64_t expert, const Tensor &y) {
    const Projection projection{.w = &w, .y = y, .add = false, .role = Role::activations, .expert = expert};
    encode_projections(stream, x, nullptr, {}, {&projection, 1});
}

} // namespace lily::metal
