// The drivers of device.h, each behind a function that opens it. A driver that this build or machine lacks throws
// Error(device).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "record.h"

namespace lily::metal {

// Whether a file of kernels needs Metal 4: the first part of its name, up to a dot, ends in _metal4.
inline bool needs_metal4(const std::string &path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    return name.substr(0, name.find('.')).ends_with("_metal4");
}

// Apple's Metal, on the GPU that the system prefers. kernels: .metallib files; or the texts of the kernels, each complete,
// and the file in which their code is to be kept, .binarchive, which need not be there yet. What needs Metal 4 is loaded
// only on a GPU with tensor units.
std::unique_ptr<Device> open_apple(const std::vector<std::string> &kernels);

// The executor, on the CPU. kernels: the executor's library, then the modules compiled for it; with one that needs
// Metal 4 it is a GPU with tensor units. order:
// "", "reverse" or "random", the order in which lanes, threadgroups and unordered dispatches run. touches: where every
// dispatch of modules built for the checker notes what it touched, as it runs, or null.
std::unique_ptr<Device> open_host(const std::vector<std::string> &kernels, const std::string &order, int threads,
                                  std::vector<Touches> *touches);

// An NVIDIA GPU. kernels: the modules, as PTX.
std::unique_ptr<Device> open_cuda(const std::vector<std::string> &kernels);

// No hardware: nothing runs, see counting.cpp.
std::unique_ptr<Device> open_counting();

} // namespace lily::metal
