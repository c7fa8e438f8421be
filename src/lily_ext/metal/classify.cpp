// The heads of the classifier. See metal/classify.metal.

#include "args.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

namespace {

constexpr std::uint32_t kRowThreads = 256;
constexpr std::int64_t kWindows = 4; // of a threadgroup

struct Layout {
    Tensor normed, row_scores;
};

Layout cut(Scratch &scratch, std::int64_t rows, std::int64_t hidden) {
    return {scratch.take(DType::bf16, {rows, hidden}), scratch.take(DType::f32, {rows})};
}

} // namespace

std::size_t classify_scratch(const Limits &limits) {
    Scratch scratch;
    cut(scratch, limits.rows, limits.hidden);
    return scratch.bytes();
}

void encode_classify(Stream &stream, Scratch scratch, const ClassifyWeights &weights, const Tensor &x,
                     const Tensor &starts, std::span<const std::int32_t> borders, const Tensor &logits,
                     const Tensor &sensitivity) {
    const std::int64_t rows = x.dims[0], hidden = x.dims[1], labels = logits.dims[1];
    const auto windows = static_cast<std::int64_t>(borders.size()) - 1;
    const Layout at = cut(scratch, rows, hidden);
    encode_norm(stream, x, weights.norm, weights.eps, at.normed);
    stream.kernel("classify_rows")
        .read(at.normed, Role::scratch)
        .read(weights.tags, Role::weights, {.loaded = rows * labels * hidden * 4})
        .read(weights.tags_bias, Role::weights, {.loaded = rows * labels * 4})
        .read(weights.sensitivity, Role::weights, {.loaded = rows * hidden * 4})
        .write(logits, Role::activations)
        .write(at.row_scores, Role::scratch)
        .run(ClassifyArgs{u32(hidden), u32(labels)}, {u32(rows)}, {kRowThreads});
    const std::uint32_t groups = groups_of(windows, kWindows);
    stream.kernel("classify_windows")
        .read(at.row_scores, Role::scratch)
        .read(starts, Role::activations, {.loaded = (windows + groups) * 4})
        .read(weights.sensitivity_bias, Role::weights, {.loaded = groups * 4})
        .write(sensitivity, Role::activations)
        .run(ClassifyWindowsArgs{u32(windows)}, {groups}, {u32(32 * kWindows)});
}

} // namespace lily::metal
