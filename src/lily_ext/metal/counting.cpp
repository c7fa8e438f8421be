// A device that runs nothing and holds nothing: the stream that is encoded for it can be counted at any size. Buffers have
// a length and no memory, what is read from them is zero, and every kernel is there.

#include <algorithm>

#include "drivers.h"

namespace lily::metal {

namespace {

class NoCommands final : public CommandBuffer {
  public:
    void set_pipeline(const Pipeline &) override {}
    void set_buffer(std::uint32_t, const DeviceBuffer &, std::size_t, std::size_t, Access) override {}
    void set_bytes(std::uint32_t, const void *, std::size_t) override {}
    void set_threadgroup_memory(std::uint32_t, std::uint32_t) override {}
    void dispatch(Size, Size) override {}
    void dispatch_indirect(const DeviceBuffer &, std::size_t, Size) override {}
    void barrier() override {}
    void commit() override {}
    void wait() override {}
};

class CountingDevice final : public Device {
  public:
    std::string kind() const override { return "metal"; }
    std::string name() const override { return "counting"; }
    DeviceLimits limits() const override {
        constexpr std::size_t plenty = std::size_t{1} << 50;
        return {plenty, plenty, 32768, false};
    }
    std::size_t allocated() const override { return 0; }
    std::unique_ptr<DeviceBuffer> buffer(std::size_t bytes) override { return std::make_unique<DeviceBuffer>(bytes); }
    std::unique_ptr<DeviceBuffer> buffer_over(std::span<const std::byte> memory) override {
        return std::make_unique<DeviceBuffer>(memory.size());
    }
    void read(const DeviceBuffer &, std::size_t, std::span<std::byte> to) override {
        std::fill(to.begin(), to.end(), std::byte{0});
    }
    void write(DeviceBuffer &, std::size_t, std::span<const std::byte>) override {}
    std::unique_ptr<Pipeline> pipeline(const std::string &, std::span<const Constant>) override {
        return std::make_unique<Pipeline>();
    }
    std::unique_ptr<CommandBuffer> commands() override { return std::make_unique<NoCommands>(); }
};

} // namespace

std::unique_ptr<Device> open_counting() { return std::make_unique<CountingDevice>(); }

} // namespace lily::metal
