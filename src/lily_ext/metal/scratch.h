// How a sublayer cuts the one block of scratch into tensors. The same layout function gives the tensors of a call and,
// over no block at all, the bytes to reserve. Every sublayer cuts from the start: the stream orders the ones that share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "../tensor.h"

namespace lily::metal {

class Scratch {
  public:
    Scratch() = default; // measures
    explicit Scratch(Buffer &block) : block_(&block) {}

    // A tensor that starts at a multiple of 256 bytes. Its content is whatever was there.
    Tensor take(DType dtype, std::initializer_list<std::int64_t> dims) {
        Tensor tensor{block_, end_, dtype, 0, {1, 1, 1, 1}};
        std::size_t bytes = dtype == DType::bf16 ? 2 : 4;
        for (const std::int64_t dim : dims) {
            tensor.dims[tensor.rank++] = dim;
            bytes *= static_cast<std::size_t>(dim);
        }
        end_ += (bytes + 255) / 256 * 256;
        return tensor;
    }

    std::size_t bytes() const { return end_; }

  private:
    Buffer *block_ = nullptr;
    std::size_t end_ = 0;
};

} // namespace lily::metal
