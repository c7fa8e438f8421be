// See placement.h.

#include "placement.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace lily::metal {

namespace {

constexpr std::size_t kLoad = 16;                    // bytes
constexpr std::size_t kStart = 256;                  // bytes, what every GPU asks of the start of a view
constexpr std::size_t kPiece = std::size_t{8} << 20; // bytes that one thread copies at a time
constexpr int kMostThreads = 8;                      // more do not make a disk faster

struct Piece {
    std::size_t from, to, bytes;
};

} // namespace

bool reachable(const Extent &tensor) { return tensor.offset % kLoad == 0; }

std::vector<std::size_t> offsets_of(std::span<const Extent> tensors) {
    std::vector<std::size_t> offsets;
    for (const Extent &tensor : tensors) {
        offsets.push_back(tensor.offset);
    }
    return offsets;
}

Placement place(std::span<const Extent> tensors) {
    Placement placement;
    for (const Extent &tensor : tensors) {
        placement.offsets.push_back(placement.bytes);
        placement.bytes += (tensor.bytes + kStart - 1) / kStart * kStart;
    }
    return placement;
}

void stream_in(Device &device, DeviceBuffer &to, std::span<const std::byte> memory, std::span<const Extent> tensors,
               const Placement &placement, int threads) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        for (std::size_t done = 0; done < tensors[i].bytes; done += kPiece) {
            pieces.push_back(
                {tensors[i].offset + done, placement.offsets[i] + done, std::min(kPiece, tensors[i].bytes - done)});
        }
    }
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
        try {
            for (std::size_t i = next++; i < pieces.size(); i = next++) {
                device.write(to, pieces[i].to, memory.subspan(pieces[i].from, pieces[i].bytes));
            }
        } catch (...) {
            const std::lock_guard lock(mutex);
            failure = std::current_exception();
        }
    };
    const std::size_t helpers = std::min(pieces.size(), static_cast<std::size_t>(std::clamp(threads, 1, kMostThreads)));
    std::vector<std::thread> pool;
    for (std::size_t i = 1; i < helpers; ++i) {
        pool.emplace_back(work);
    }
    work();
    for (std::thread &thread : pool) {
        thread.join();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

} // namespace lily::metal
