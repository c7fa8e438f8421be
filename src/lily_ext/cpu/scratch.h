// How a sublayer cuts its block of scratch into pieces: offsets from the start, each on a cache line of its own. The
// same layout function gives the pieces and, with the limits in place of a call's sizes, the bytes to reserve.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lily::cpu::LILY_ISA {

inline constexpr std::size_t kCacheLine = 64;

// The offset of the next `bytes` bytes; moves `end` behind them.
static inline __attribute__((always_inline)) std::size_t carve(std::size_t &end, std::int64_t bytes) {
    const std::size_t at = end;
    end += (static_cast<std::size_t>(bytes) + kCacheLine - 1) / kCacheLine * kCacheLine;
    return at;
}

} // namespace lily::cpu::LILY_ISA
