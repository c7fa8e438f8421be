// One sublayer, or one private word of a backend, on host arrays: how the comparisons with numpy reach the kernels
// without a model around them. Outputs start as NaN, so that what a kernel forgets to write shows. Nothing of a product
// uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "backend.h"
#include "tensor.h"

namespace lily {

// Of the caller; bf16 is told by its bits, as uint16.
struct HostArray {
    std::span<const std::byte> bytes;
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
};

struct HostMatrix {
    std::string packing; // "affine4", "affine8" or "bf16"
    HostArray codes, scales, biases;
};

struct HostResult {
    std::vector<std::byte> bytes;
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
};

// The fields of a struct of backend.h, by their names. Throws Error(invalid_input) for what is missing or not known.
using HostFields = std::map<std::string, std::variant<double, HostArray, HostMatrix>>;

class Probe {
  public:
    explicit Probe(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

    bool byte_inputs = false; // of Limits, for every call

    HostResult norm(const HostArray &x, const HostArray &weight, float eps);
    HostResult matmul(const HostArray &x, const HostMatrix &matrix, std::int64_t expert);
    HostResult embed(const HostMatrix &table, const HostArray &ids);
    // x, keys, values after the sublayer
    std::tuple<HostResult, HostResult, HostResult> attention(const HostFields &shape, const HostFields &weights,
                                                             const HostArray &x, const HostArray &keys,
                                                             const HostArray &values, std::int64_t position);
    // x, state, window after the sublayer
    std::tuple<HostResult, HostResult, HostResult> gated_delta(const HostFields &shape, const HostFields &weights,
                                                               const HostArray &x, const HostArray &state,
                                                               const HostArray &window, std::int64_t position);
    HostResult moe(const HostFields &shape, const HostFields &weights, const HostArray &x);
    HostResult bidirectional(const HostFields &shape, const HostFields &weights, const HostArray &turns,
                             const HostArray &x, const HostArray &starts);
    HostResult mlp(const HostFields &shape, const HostFields &weights, const HostArray &x);
    // the logits of each row, the sensitivity of each window
    std::tuple<HostResult, HostResult> classify(const HostFields &weights, float eps, const HostArray &x,
                                                const HostArray &starts);
    // the logits, and with one row the id of the first largest
    std::tuple<HostResult, HostResult> head(const HostFields &weights, float eps, const HostArray &x);

  private:
    std::unique_ptr<Backend> backend_;
};

} // namespace lily
