// The functions of libcuda that the CUDA driver uses, found when a device is opened; no header of CUDA is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <dlfcn.h>

#include "../error.h"

namespace lily::metal {

using Pointer = std::uint64_t; // on the device
using Handle = void *;
using Code = int;

[[noreturn]] inline void fail(const std::string &message) { throw Error(ErrorKind::device, message); }

// The functions of libcuda in use. The names carry the versions of their interfaces.
class Cuda {
  public:
    Cuda() {
        for (const char *name : {"libcuda.so.1", "libcuda.so"}) {
            library_ = library_ == nullptr ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : library_;
        }
        if (library_ == nullptr) {
            fail("the device 'metal:cuda' needs an NVIDIA GPU and its driver, but libcuda.so.1 is not here; use 'cpu'");
        }
        find(init, "cuInit");
        find(device_get, "cuDeviceGet");
        find(device_name, "cuDeviceGetName");
        find(retain, "cuDevicePrimaryCtxRetain");
        find(make_current, "cuCtxSetCurrent");
        find(memory_info, "cuMemGetInfo_v2");
        find(allocate, "cuMemAlloc_v2");
        find(release, "cuMemFree_v2");
        find(allocate_host, "cuMemHostAlloc");
        find(release_host, "cuMemFreeHost");
        find(clear, "cuMemsetD8Async");
        find(to_device, "cuMemcpyHtoDAsync_v2");
        find(to_host, "cuMemcpyDtoHAsync_v2");
        find(load, "cuModuleLoadData");
        find(unload, "cuModuleUnload");
        find(function, "cuModuleGetFunction");
        find(global, "cuModuleGetGlobal_v2");
        find(launch, "cuLaunchKernel");
        find(make_stream, "cuStreamCreate");
        find(end_stream, "cuStreamDestroy_v2");
        find(synchronize, "cuStreamSynchronize");
        find(make_event, "cuEventCreate");
        find(end_event, "cuEventDestroy_v2");
        find(record, "cuEventRecord");
        find(wait_for, "cuEventSynchronize");
        find(error_text, "cuGetErrorString");
    }

    void check(const char *what, Code code) const {
        if (code != 0) {
            const char *text = nullptr;
            error_text(code, &text);
            fail(std::string("CUDA failed to ") + what + ": " + (text == nullptr ? std::to_string(code) : text));
        }
    }

    Code (*init)(unsigned) = nullptr;
    Code (*device_get)(int *, int) = nullptr;
    Code (*device_name)(char *, int, int) = nullptr;
    Code (*retain)(Handle *, int) = nullptr;
    Code (*make_current)(Handle) = nullptr;
    Code (*memory_info)(std::size_t *, std::size_t *) = nullptr;
    Code (*allocate)(Pointer *, std::size_t) = nullptr;
    Code (*release)(Pointer) = nullptr;
    Code (*allocate_host)(void **, std::size_t, unsigned) = nullptr;
    Code (*release_host)(void *) = nullptr;
    Code (*clear)(Pointer, unsigned char, std::size_t, Handle) = nullptr;
    Code (*to_device)(Pointer, const void *, std::size_t, Handle) = nullptr;
    Code (*to_host)(void *, Pointer, std::size_t, Handle) = nullptr;
    Code (*load)(Handle *, const void *) = nullptr;
    Code (*unload)(Handle) = nullptr;
    Code (*function)(Handle *, Handle, const char *) = nullptr;
    Code (*global)(Pointer *, std::size_t *, Handle, const char *) = nullptr;
    Code (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **,
                   void **) = nullptr;
    Code (*make_stream)(Handle *, unsigned) = nullptr;
    Code (*end_stream)(Handle) = nullptr;
    Code (*synchronize)(Handle) = nullptr;
    Code (*make_event)(Handle *, unsigned) = nullptr;
    Code (*end_event)(Handle) = nullptr;
    Code (*record)(Handle, Handle) = nullptr;
    Code (*wait_for)(Handle) = nullptr;
    Code (*error_text)(Code, const char **) = nullptr;

  private:
    template <typename Function> void find(Function &to, const char *name) {
        to = reinterpret_cast<Function>(dlsym(library_, name));
        if (to == nullptr) {
            fail(std::string("the NVIDIA driver has no ") + name + "; install a newer one");
        }
    }

    Handle library_ = nullptr;
};

} // namespace lily::metal
