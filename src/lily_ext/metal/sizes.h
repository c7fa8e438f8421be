// Sizes of grids and arguments, for the encoders.
#pragma once

#include <cstdint>

#include "../tensor.h"
#include "device.h"

namespace lily::metal {

inline std::uint32_t u32(std::int64_t value) { return static_cast<std::uint32_t>(value); }

// How many groups of `each` hold count.
inline std::uint32_t groups_of(std::int64_t count, std::int64_t each) { return u32((count + each - 1) / each); }

// Bits of a code, as the kernels tell packings apart.
inline std::uint32_t bits_of(Packing packing) {
    return packing == Packing::affine4 ? 4 : packing == Packing::affine8 ? 8 : 16;
}

} // namespace lily::metal
