// What every backend demands of the arguments of a word before it computes: types, shapes, ranges of memory, and sizes
// within the limits that scratch was reserved for. Each check throws Error(invalid_input) with the numbers. It reads no
// buffer; a backend hands it the content of small ones where that matters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend.h"

namespace lily {

// [offset, offset + bytes) lies inside the buffer.
void require_range(const Buffer &buffer, std::size_t offset, std::size_t bytes);

class Contract {
  public:
    Contract() = default; // allows nothing
    explicit Contract(const Limits &limits) : limits_(limits) {}

    // One check a word, with its arguments in its order. What comes back is the number of rows.
    std::int64_t embed(const EmbedWeights &weights, const Tensor &ids, const Tensor &x) const;
    std::int64_t attention(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &x,
                           const KvCache &cache, std::int64_t position) const;
    std::int64_t gated_delta(const GatedDeltaShape &shape, const GatedDeltaWeights &weights, const Tensor &x,
                             const GatedDeltaState &from, const GatedDeltaState &to) const;
    std::int64_t moe(const MoeShape &shape, const MoeWeights &weights, const Tensor &x) const;
    std::int64_t bidirectional(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &turns,
                               const Tensor &x, const Tensor &starts) const;
    std::int64_t mlp(const MlpShape &shape, const MlpWeights &weights, const Tensor &x) const;
    std::int64_t classify(const ClassifyWeights &weights, const Tensor &x, const Tensor &starts, const Tensor &logits,
                          const Tensor &sensitivity) const;
    std::int64_t head(const HeadWeights &weights, const Tensor &x, const Tensor &logits, const Tensor &token) const;
    std::int64_t norm(const Tensor &x, const Tensor &weight, const Tensor &y) const;
    std::int64_t matmul(const Tensor &x, const Matrix &w, std::int64_t expert, const Tensor &y) const;

    // The borders of windows, which must cut the rows into pieces of 1 to `longest`.
    static void windows(const char *word, std::span<const std::int32_t> borders, std::int64_t rows,
                        std::int64_t longest);

  private:
    std::int64_t row_count(const Tensor &x, std::int64_t hidden) const;

    Limits limits_{};
};

} // namespace lily
