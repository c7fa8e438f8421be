// Where the tensors of a mapped file go on the device: nowhere, if the kernels can read them where they lie, or into a
// buffer of its own, each at an aligned place, filled by one pass over the file on several threads.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "../backend.h"
#include "device.h"

namespace lily::metal {

struct Placement {
    std::vector<std::size_t> offsets; // of each tensor, in their order
    std::size_t bytes = 0;            // of the buffer
};

bool reachable(const Extent &tensor); // by kernels, which load 16 bytes at once
std::vector<std::size_t> offsets_of(std::span<const Extent> tensors);
Placement place(std::span<const Extent> tensors);

void stream_in(Device &device, DeviceBuffer &to, std::span<const std::byte> memory, std::span<const Extent> tensors,
               const Placement &placement, int threads);

} // namespace lily::metal
