// The words of the graph as the Metal backend encodes them: one function a word, each in the file of its name, over the
// kernels of metal/<word>.metal. Shapes, types and ranges have been checked before they are called; every tensor starts
// at a multiple of 16 bytes, but for single rows of a matrix. Beside each word that needs scratch stands what it needs
// for the largest call within the limits; that function and the encoder cut the block by one and the same layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../backend.h"
#include "scratch.h"
#include "stream.h"

namespace lily::metal {

void encode_embed(Stream &stream, const EmbedWeights &weights, const Tensor &ids, const Tensor &x);

std::size_t attention_scratch(const Limits &limits);
void encode_attention(Stream &stream, Scratch scratch, const AttentionShape &shape, const AttentionWeights &weights,
                      const Tensor &x, const KvCache &cache, std::int64_t position);

std::size_t gated_delta_scratch(const Limits &limits);
void encode_gated_delta(Stream &stream, Scratch scratch, const GatedDeltaShape &shape, const GatedDeltaWeights &weights,
                        const Tensor &x, const GatedDeltaState &from, const GatedDeltaState &to, std::int64_t position);

std::size_t moe_scratch(const Limits &limits);
void encode_moe(Stream &stream, Scratch scratch, const MoeShape &shape, const MoeWeights &weights, const Tensor &x);

// borders: the content of starts, for the sizes of the grid.
std::size_t bidirectional_scratch(const Limits &limits);
void encode_bidirectional(Stream &stream, Scratch scratch, const AttentionShape &shape, const AttentionWeights &weights,
                          const Tensor &turns, const Tensor &x, const Tensor &starts,
                          std::span<const std::int32_t> borders);

std::size_t mlp_scratch(const Limits &limits);
void encode_mlp(Stream &stream, Scratch scratch, const MlpShape &shape, const MlpWeights &weights, const Tensor &x);

std::size_t classify_scratch(const Limits &limits);
void encode_classify(Stream &stream, Scratch scratch, const ClassifyWeights &weights, const Tensor &x,
                     const Tensor &starts, std::span<const std::int32_t> borders, const Tensor &logits,
                     const Tensor &sensitivity);

std::size_t head_scratch(const Limits &limits);
void encode_head(Stream &stream, Scratch scratch, const HeadWeights &weights, const Tensor &x, const Tensor &logits,
                 const Tensor &token);

// The private words, which the others use too. x, y: bf16 [rows, cols].
void encode_norm(Stream &stream, const Tensor &x, const Tensor &weight, float eps, const Tensor &y);
// y, f32 or bf16 [rows, w.rows] = x bf16 [rows, w.cols] . w[expert]^T. Sums are f32; a bf16 y is their rounding.
void encode_matmul(Stream &stream, const Tensor &x, const Matrix &w, std::int64_t expert, const Tensor &y);

} // namespace lily::metal
