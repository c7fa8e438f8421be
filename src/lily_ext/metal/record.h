// What one dispatch costs, by the formulas that the encoders give: the material of the stream report. Counting needs no
// device to run anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device.h"

namespace lily::metal {

// What a buffer is to the model.
enum class Role : std::uint8_t { weights, cache, state, activations, scratch };

// Bytes of one buffer. Unique ones count each byte once a dispatch; loaded ones count it once for each threadgroup that
// loads it, which is what the caches of a GPU have to serve.
struct Traffic {
    Role role = Role::scratch;
    std::uint64_t read = 0;    // unique
    std::uint64_t written = 0; // unique
    std::uint64_t loaded = 0;
};

// The same of one buffer as a dispatch that was watched really touched it.
struct Touch {
    std::uint64_t place = 0; // of its first byte: buffers that lie in the same memory share what is touched of it
    std::uint64_t bytes = 0;
    std::uint64_t read = 0;
    std::uint64_t written = 0;
    std::uint64_t loaded = 0;
};

using Touches = std::vector<Touch>; // of each buffer of a dispatch, in the order of their indices

struct DispatchRecord {
    std::string kernel;
    Size groups{};
    Size threads{};
    std::uint32_t commit = 0; // command buffers before this one
    bool after_barrier = false;
    bool indirect = false;          // groups is the most it can be
    std::vector<Traffic> traffic{}; // of each buffer, in the order of their indices
};

} // namespace lily::metal
