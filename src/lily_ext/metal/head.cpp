// The final norm and the logits. One row has a kernel of its own, with the norm inside and the largest logit of every
// threadgroup beside the logits (metal/head.metal); more rows are a product like any other.

#include "args.h"
#include "matmul.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

namespace {

constexpr std::int64_t kRows = 256; // of the table, a threadgroup: 8 simdgroups of 32

struct Layout {
    Tensor normed, best;
};

Layout cut(Scratch &scratch, std::int64_t rows, std::int64_t hidden, std::int64_t vocab) {
    return {scratch.take(DType::bf16, {rows, hidden}), scratch.take(DType::u32, {groups_of(vocab, kRows), 2})};
}

} // namespace

std::size_t head_scratch(const Limits &limits) {
    Scratch scratch;
    cut(scratch, limits.head_rows, limits.hidden, limits.vocab);
    return scratch.bytes();
}

void encode_head(Stream &stream, Scratch scratch, const HeadWeights &weights, const Tensor &x, const Tensor &logits,
                 const Tensor &token) {
    const std::int64_t rows = x.dims[0], hidden = x.dims[1], vocab = weights.table.rows;
    const Layout at = cut(scratch, rows, hidden, vocab);
    if (rows > 1) {
        const Norm norm{weights.norm, weights.eps};
        const Projection projection{.w = &weights.table, .y = logits, .add = false, .role = Role::activations};
        encode_projections(stream, x, &norm, at.normed, {&projection, 1});
        return;
    }
    const std::uint32_t groups = groups_of(vocab, kRows);
    stream.kernel("head", weights.table.packing)
        .matrix(weights.table)
        .read(x, Role::activations, {.loaded = groups * hidden * 2})
        .read(weights.norm, Role::weights, {.loaded = groups * hidden * 4})
        .write(logits, Role::activations)
        .write(at.best, Role::scratch)
        .threadgroup((u32(hidden) * 2 + 15) / 16 * 16)
        .run(HeadArgs{u32(hidden), u32(vocab), bits_of(weights.table.packing), weights.eps}, {groups}, {256});
    if (token.buffer != nullptr) {
        stream.kernel("argmax")
            .read(at.best, Role::scratch)
            .write(token, Role::activations)
            .run(ArgmaxArgs{groups}, {1}, {256});
    }
}

} // namespace lily::metal
