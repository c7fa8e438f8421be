// Drivers that this build lacks. The rest of the program need not know which those are.

#include "../error.h"
#include "drivers.h"

namespace lily::metal {

#if !defined(__APPLE__)
std::unique_ptr<Device> open_apple() {
    throw Error(ErrorKind::device,
                "the device 'metal' needs macOS; use 'cpu', or 'metal:host' to run the same kernels");
}
#endif

std::unique_ptr<Device> open_cuda(const std::vector<std::string> &) {
    throw Error(ErrorKind::device, "the device 'metal:cuda' is not in this build; use 'cpu' or 'metal:host'");
}

} // namespace lily::metal
