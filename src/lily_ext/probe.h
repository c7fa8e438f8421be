// One sublayer, or one private word of a backend, on host arrays: how the comparisons with numpy reach the kernels
// without a model around them, and how long they take. Outputs start as NaN, so that what a kernel forgets to write shows.
// Nothing of a product uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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
    // Bytes of another matrix that each call reads before its clock starts: what it then needs is in no cache and its
    // threads are awake, as in a model of many layers.
    std::size_t evict = 0;
    double seconds = 0; // of the last call's sublayer alone

    std::string isa() const { return backend_->isa(); }
    int threads() const { return backend_->threads(); }

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
    // Runs a call with scratch for exactly these limits. It is kept while they are the same, so that it is warm, as it is
    // in an engine.
    void run(Limits limits, const std::function<void()> &call);

    void push_out();

    std::unique_ptr<Backend> backend_;
    std::optional<Limits> reserved_;
    std::unique_ptr<Buffer> others_;
};

// What the machine does at most, as the work of one pass and the seconds of each: see cpu/peak.h.
std::pair<double, std::vector<double>> read_peak(const std::string &isa, int threads, std::size_t bytes, int passes);
std::pair<double, std::vector<double>> product_peak(const std::string &isa, int threads, const std::string &numbers,
                                                    std::int64_t pieces, int passes);

} // namespace lily
