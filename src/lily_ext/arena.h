// Memory of a backend, handed out as tensors and given back as a whole. For what lives as long as its owner: converted
// weights, a session, the activations of a chunk. It never moves and never frees a single tensor.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "backend.h"
#include "tensor.h"

namespace lily {

std::size_t size_of(DType dtype);
std::size_t byte_size(const Tensor &tensor);

// A view of rows [first, first + count) of a tensor of rank 2.
Tensor rows_of(const Tensor &tensor, std::int64_t first, std::int64_t count);

class Arena {
  public:
    // purpose opens the message of an OutOfMemory error. Blocks of block_bytes are allocated as they are needed; an
    // owner that knows its total gets one block.
    Arena(Backend &backend, std::string purpose, std::size_t block_bytes);

    Tensor take(DType dtype, std::initializer_list<std::int64_t> dims);

    // What take() needs for so many bytes: tensors start at multiples of 256, which suits every GPU.
    static std::size_t padded(std::size_t bytes);

    std::size_t bytes() const; // allocated

  private:
    Backend &backend_;
    std::string purpose_;
    std::size_t block_bytes_;
    std::size_t used_ = 0; // of the last block
    std::vector<std::unique_ptr<Buffer>> blocks_;
};

} // namespace lily
