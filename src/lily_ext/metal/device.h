// A GPU as the Metal backend sees it: memory, pipelines by kernel name and constants, and command buffers of dispatches
// that run concurrently between barriers. Three drivers implement it: Apple's Metal, the host executor and CUDA. It
// knows no model and decides nothing: what to keep, what to order and how long to wait is the business of its callers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "../backend.h"

namespace lily::metal {

struct Size {
    std::uint32_t x = 1;
    std::uint32_t y = 1;
    std::uint32_t z = 1;
};

// A function constant. Kernels declare all of theirs as uint.
struct Constant {
    std::uint32_t index = 0;
    std::uint32_t value = 0;

    bool operator==(const Constant &) const = default;
};

enum class Access : std::uint8_t { read, write, update };

// Memory of one device. A buffer of another device is refused.
class DeviceBuffer : public Buffer {
  public:
    using Buffer::Buffer;
};

// A kernel of one name, with its constants. Owned by whoever asked for it; not tied to a command buffer.
class Pipeline {
  public:
    Pipeline() = default;
    virtual ~Pipeline() = default;
    Pipeline(const Pipeline &) = delete;
    Pipeline &operator=(const Pipeline &) = delete;
};

// One command buffer. Dispatches after the last barrier may run in any order and at the same time.
class CommandBuffer {
  public:
    CommandBuffer() = default;
    virtual ~CommandBuffer() = default; // of one that was not committed: forgets it. Of a running one: waits
    CommandBuffer(const CommandBuffer &) = delete;
    CommandBuffer &operator=(const CommandBuffer &) = delete;

    virtual void set_pipeline(const Pipeline &pipeline) = 0;
    // The view that the kernel gets: bytes and access are for the drivers that check them.
    virtual void set_buffer(std::uint32_t index, const DeviceBuffer &buffer, std::size_t offset, std::size_t bytes,
                            Access access) = 0;
    virtual void set_bytes(std::uint32_t index, const void *data, std::size_t bytes) = 0; // copied; at most 4096
    virtual void set_threadgroup_memory(std::uint32_t index, std::uint32_t bytes) = 0;    // a multiple of 16
    // groups threadgroups of threads threads each. What was set stays set for the next dispatch.
    virtual void dispatch(Size groups, Size threads) = 0;
    // The number of groups is read on the device from three uint at offset, when the dispatch runs.
    virtual void dispatch_indirect(const DeviceBuffer &groups, std::size_t offset, Size threads) = 0;
    // Everything before it is finished, and seen, before anything after it begins.
    virtual void barrier() = 0;

    virtual void commit() = 0; // command buffers run in the order of their commits, each after the one before it
    virtual void wait() = 0;   // for the end; throws Error(device) with the driver's words when it failed
};

struct DeviceLimits {
    std::size_t buffer_bytes = 0;        // of one buffer
    std::size_t working_set_bytes = 0;   // of all buffers together, if the GPU is never to wait for memory
    std::uint32_t threadgroup_bytes = 0; // threadgroup memory of one threadgroup
    bool tensor_units = false;           // it has matrix hardware for matmul2d, and the kernels for that were given
};

class Device {
  public:
    Device() = default;
    virtual ~Device() = default;
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    virtual std::string kind() const = 0; // "metal", "metal:host", "metal:cuda"
    virtual std::string name() const = 0; // of the hardware
    virtual DeviceLimits limits() const = 0;
    virtual std::size_t allocated() const = 0; // bytes of all its buffers

    // Zeroed; its start suits every type. Throws Error(out_of_memory) when the system has no such memory.
    virtual std::unique_ptr<DeviceBuffer> buffer(std::size_t bytes) = 0;
    // A read-only buffer over memory that outlives it, or null where the device cannot reach that memory as it lies.
    virtual std::unique_ptr<DeviceBuffer> buffer_over(std::span<const std::byte> memory) = 0;
    // Host access; the range lies inside. The caller has waited for whatever touches the same bytes.
    virtual void read(const DeviceBuffer &from, std::size_t offset, std::span<std::byte> to) = 0;
    virtual void write(DeviceBuffer &to, std::size_t offset, std::span<const std::byte> from) = 0;

    // Throws Error(device) when the device has no such kernel. Slow: callers keep what they get.
    virtual std::unique_ptr<Pipeline> pipeline(const std::string &kernel, std::span<const Constant> constants) = 0;
    virtual std::unique_ptr<CommandBuffer> commands() = 0;
};

} // namespace lily::metal
