// The stream of work that the sublayers encode into. An encoder names a kernel, its buffers in the order of their
// indices and its sizes; the stream finds the pipeline, puts a barrier in front of the dispatch if, and only if, it
// touches bytes that a dispatch since the last barrier wrote, or writes bytes that one read, and keeps the record. So an
// encoder gets few barriers by putting independent dispatches next to each other; it never asks for one.
//
//     stream.kernel("gemv", w.packing)         // the kernel "gemv_affine4"
//         .matrix(w)                           // buffers 0, 1, 2: codes, scales, biases
//         .read(x, Role::activations)          // buffer 3
//         .write(y, Role::scratch)             // buffer 4
//         .run(GemvArgs{...}, {groups}, {64}); // buffer 5: constant GemvArgs &
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../tensor.h"
#include "device.h"
#include "record.h"

namespace lily::metal {

std::string kernel_name(const std::string &kernel, Packing packing); // "gemv", affine4 -> "gemv_affine4"

class Stream;

// The formulas of record.h; without them the whole view counts once.
struct Bytes {
    std::optional<std::int64_t> unique{};
    std::optional<std::int64_t> loaded{}; // of reads only; without it as many as the unique ones
};

// One dispatch in the making. Views are whole as they are bound: a kernel finds element 0 of the tensor at its pointer.
class Dispatch {
  public:
    Dispatch &read(const Tensor &tensor, Role role, Bytes read = {});
    Dispatch &write(const Tensor &tensor, Role role, Bytes written = {});
    Dispatch &update(const Tensor &tensor, Role role, Bytes read = {}, Bytes written = {}); // read, then written
    // Three buffers: codes, scales, biases. A bf16 matrix has only codes, which then stand in all three places.
    // rows_read: of experts * rows, as many different ones as the kernel reads; rows_loaded: with repeats.
    Dispatch &matrix(const Matrix &matrix, std::optional<std::int64_t> rows_read = {},
                     std::optional<std::int64_t> rows_loaded = {});
    Dispatch &constant(std::uint32_t index, std::uint32_t value);
    Dispatch &threadgroup(std::uint32_t bytes); // the kernel's threadgroup argument at index 0

    template <typename Args> void run(const Args &args, Size groups, Size threads) {
        set_args(args);
        finish(groups, threads, nullptr);
    }
    // groups: u32 [3], read on the device; most: what it can be at the most, for the record.
    template <typename Args> void run_indirect(const Args &args, const Tensor &groups, Size most, Size threads) {
        set_args(args);
        finish(most, threads, &groups);
    }

  private:
    friend class Stream;

    struct Argument {
        Tensor view;
        std::size_t bytes = 0;
        Access access = Access::read;
        Traffic traffic{};
    };

    Dispatch(Stream &stream, std::string kernel) : stream_(stream), kernel_(std::move(kernel)) {}

    template <typename Args> void set_args(const Args &args) {
        static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= sizeof args_, "plain scalars, see args.h");
        args_bytes_ = sizeof(Args);
        std::memcpy(args_.data(), &args, sizeof(Args));
    }
    Dispatch &add(const Tensor &tensor, Role role, Access access, Bytes read, Bytes written);
    void finish(Size groups, Size threads, const Tensor *indirect);

    Stream &stream_;
    std::string kernel_;
    std::vector<Argument> arguments_;
    std::vector<Constant> constants_;
    std::uint32_t threadgroup_bytes_ = 0;
    std::array<std::byte, 256> args_{};
    std::size_t args_bytes_ = 0;
};

class Stream {
  public:
    // records: where every dispatch is noted, or null.
    Stream(Device &device, std::vector<DispatchRecord> *records)
        : device_(device), tensor_units_(device.limits().tensor_units), records_(records) {}

    Dispatch kernel(std::string name) { return {*this, std::move(name)}; }
    Dispatch kernel(const std::string &name, Packing packing) { return {*this, kernel_name(name, packing)}; }

    bool tensor_units() const { return tensor_units_; }

    void begin();  // drops what was encoded and never committed
    void commit(); // runs it after all that was committed before
    // For the oldest, until so many are left. Throws the first Error(device), and then forgets the newer ones.
    void wait(std::size_t left);

  private:
    friend class Dispatch;

    // Bytes that were touched since the last barrier.
    struct Touched {
        const Buffer *buffer = nullptr;
        std::size_t begin = 0;
        std::size_t end = 0;
        bool written = false;
    };

    const Pipeline &pipeline(const std::string &kernel, const std::vector<Constant> &constants);
    bool conflicts(const Dispatch &dispatch) const;

    Device &device_;
    bool tensor_units_;
    std::map<std::string, std::unique_ptr<Pipeline>> pipelines_; // by name and constants
    std::unique_ptr<CommandBuffer> open_;
    std::deque<std::unique_ptr<CommandBuffer>> running_;
    std::vector<Touched> touched_;
    std::vector<DispatchRecord> *records_;
    std::uint32_t commits_ = 0;
};

} // namespace lily::metal
