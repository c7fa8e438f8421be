// See arena.h.

#include "arena.h"

#include <algorithm>

#include "error.h"

namespace lily {

std::size_t size_of(DType dtype) { return dtype == DType::bf16 ? 2 : 4; }

std::size_t byte_size(const Tensor &tensor) {
    std::size_t bytes = size_of(tensor.dtype);
    for (int i = 0; i < tensor.rank; ++i) {
        bytes *= static_cast<std::size_t>(tensor.dims[i]);
    }
    return bytes;
}

Tensor rows_of(const Tensor &tensor, std::int64_t first, std::int64_t count) {
    Tensor rows = tensor;
    rows.offset += static_cast<std::size_t>(first * tensor.dims[1]) * size_of(tensor.dtype);
    rows.dims[0] = count;
    return rows;
}

Arena::Arena(Backend &backend, std::string purpose, std::size_t block_bytes)
    : backend_(backend), purpose_(std::move(purpose)), block_bytes_(block_bytes) {}

std::size_t Arena::padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

Tensor Arena::take(DType dtype, std::initializer_list<std::int64_t> dims) {
    Tensor tensor{nullptr, 0, dtype, 0, {1, 1, 1, 1}};
    for (const std::int64_t dim : dims) {
        tensor.dims[tensor.rank++] = dim;
    }
    const std::size_t bytes = padded(byte_size(tensor));
    if (blocks_.empty() || used_ + bytes > blocks_.back()->bytes()) {
        try {
            blocks_.push_back(backend_.allocate(std::max(bytes, block_bytes_)));
        } catch (const Error &error) {
            throw Error(error.kind(), purpose_ + ": " + error.what());
        }
        used_ = 0;
    }
    tensor.buffer = blocks_.back().get();
    tensor.offset = used_;
    used_ += bytes;
    return tensor;
}

std::size_t Arena::bytes() const {
    std::size_t total = 0;
    for (const std::unique_ptr<Buffer> &block : blocks_) {
        total += block->bytes();
    }
    return total;
}

} // namespace lily
