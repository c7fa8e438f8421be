// In place of apple.mm where there is no Metal.

#include "../error.h"
#include "drivers.h"

namespace lily::metal {

std::unique_ptr<Device> open_apple(const std::vector<std::string> &) {
    throw Error(ErrorKind::device, "the device 'metal' needs macOS; use 'cpu', or 'metal:host' to run its kernels");
}

} // namespace lily::metal
