// What attention and bidirectional share: the sizes of the kernels of metal/attention_walk.h.
#pragma once

#include <cstdint>

#include "../backend.h"

namespace lily::metal {

inline constexpr std::int64_t kWalkRows = 128;     // packed rows (positions x query heads) of a threadgroup
inline constexpr std::uint32_t kWalkThreads = 512; // of a threadgroup

// Throws Error(unsupported_checkpoint) where no kernel has heads of this size.
void require_head_dim(const char *word, std::int64_t head_dim);

// Of scores, whose softmax is taken in powers of two.
float score_scale(std::int64_t head_dim);

// Tiles of 8 packed rows of a key/value head.
std::int64_t query_tiles(const AttentionShape &shape, std::int64_t rows);

} // namespace lily::metal
