// See probe.h.

#include "probe.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "arena.h"
#include "cpu/backend_cpu.h"
#include "error.h"

namespace lily {

namespace {

constexpr std::int64_t kOtherCols = 64;

[[noreturn]] void refuse(const std::string &message) { throw Error(ErrorKind::invalid_input, message); }

// The buffers of one call.
class Bench {
  public:
    explicit Bench(Backend &backend) : backend_(backend) {}

    // As the weights of a file are, at any alignment.
    Tensor map(const HostArray &array) {
        const Extent whole{0, array.bytes.size()};
        Mapping mapping = backend_.map(array.bytes, {&whole, 1});
        buffers_.push_back(std::move(mapping.buffer));
        Tensor tensor = shaped(array.dtype, array.shape);
        tensor.offset = mapping.offsets[0];
        return tensor;
    }

    Tensor copy(const HostArray &array) {
        buffers_.push_back(backend_.allocate(array.bytes.size()));
        backend_.write(*buffers_.back(), 0, array.bytes);
        return shaped(array.dtype, array.shape);
    }

    // All bits set: NaN in f32 and in bf16.
    Tensor output(DType dtype, const std::vector<std::int64_t> &shape) {
        Tensor tensor = shaped(dtype, shape);
        const std::vector<std::byte> poison(byte_size(tensor), std::byte{0xff});
        buffers_.push_back(backend_.allocate(poison.size()));
        backend_.write(*buffers_.back(), 0, poison);
        tensor.buffer = buffers_.back().get();
        return tensor;
    }

    HostResult result(const Tensor &tensor) {
        HostResult result{std::vector<std::byte>(byte_size(tensor)), tensor.dtype,
                          std::vector<std::int64_t>(tensor.dims, tensor.dims + tensor.rank)};
        backend_.read(*tensor.buffer, tensor.offset, result.bytes);
        return result;
    }

    Matrix matrix(const std::string &name, const HostMatrix &from) {
        static const std::map<std::string, std::pair<Packing, std::int64_t>> packings{
            {"affine4", {Packing::affine4, 8}}, {"affine8", {Packing::affine8, 4}}, {"bf16", {Packing::bf16, 1}}};
        const auto found = packings.find(from.packing);
        if (found == packings.end()) {
            refuse(name + " has the packing '" + from.packing + "', expected affine4, affine8 or bf16");
        }
        const std::vector<std::int64_t> &shape = from.codes.shape;
        if (shape.size() != 2 && shape.size() != 3) {
            refuse(name + " has codes of " + std::to_string(shape.size()) + " dimensions, expected 2 or 3");
        }
        Matrix matrix{.packing = found->second.first,
                      .experts = shape.size() == 3 ? shape[0] : 1,
                      .rows = shape[shape.size() - 2],
                      .cols = shape.back() * found->second.second};
        matrix.codes = map(from.codes);
        if (matrix.packing != Packing::bf16) {
            matrix.scales = map(from.scales);
            matrix.biases = map(from.biases);
        }
        return matrix;
    }

  private:
    // A view of the newest buffer.
    Tensor shaped(DType dtype, const std::vector<std::int64_t> &shape) {
        if (shape.size() > 4) {
            refuse("an array has " + std::to_string(shape.size()) + " dimensions, expected at most 4");
        }
        Tensor tensor{
            buffers_.empty() ? nullptr : buffers_.back().get(), 0, dtype, static_cast<int>(shape.size()), {1, 1, 1, 1}};
        std::copy(shape.begin(), shape.end(), tensor.dims);
        return tensor;
    }

    Backend &backend_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
};

// Hands out fields by name and refuses what is left over.
class Fields {
  public:
    Fields(const char *what, const HostFields &fields, Bench &bench) : what_(what), fields_(fields), bench_(bench) {}

    void get(const char *name, std::int64_t &value) { value = static_cast<std::int64_t>(take<double>(name, "number")); }
    void get(const char *name, float &value) { value = static_cast<float>(take<double>(name, "number")); }
    void get(const char *name, bool &value) { value = take<double>(name, "number") != 0; }
    void get(const char *name, Tensor &value) { value = bench_.copy(take<HostArray>(name, "array")); }
    void get(const char *name, Matrix &value) { value = bench_.matrix(name, take<HostMatrix>(name, "matrix")); }

    void done() const {
        for (const auto &[name, value] : fields_) {
            if (!taken_.contains(name)) {
                refuse(std::string(what_) + " has an unknown field '" + name + "'");
            }
        }
    }

  private:
    template <typename T> const T &take(const char *name, const char *kind) {
        const auto found = fields_.find(name);
        const T *value = found == fields_.end() ? nullptr : std::get_if<T>(&found->second);
        if (value == nullptr) {
            refuse(std::string(what_) + (found == fields_.end() ? " has no '" : " has a wrong '") + name +
                   "', expected a " + kind);
        }
        taken_.insert(name);
        return *value;
    }

    const char *what_;
    const HostFields &fields_;
    Bench &bench_;
    std::set<std::string> taken_;
};

AttentionShape attention_shape(const HostFields &from, Bench &bench) {
    Fields fields("the attention shape", from, bench);
    AttentionShape shape;
    fields.get("hidden", shape.hidden);
    fields.get("heads", shape.heads);
    fields.get("kv_heads", shape.kv_heads);
    fields.get("head_dim", shape.head_dim);
    fields.get("rotary_dim", shape.rotary_dim);
    fields.get("theta", shape.theta);
    fields.get("eps", shape.eps);
    fields.done();
    return shape;
}

AttentionWeights attention_weights(const HostFields &from, Bench &bench) {
    Fields fields("the attention weights", from, bench);
    AttentionWeights weights;
    fields.get("norm", weights.norm);
    fields.get("q", weights.q);
    fields.get("k", weights.k);
    fields.get("v", weights.v);
    fields.get("o", weights.o);
    fields.get("q_norm", weights.q_norm);
    fields.get("k_norm", weights.k_norm);
    fields.done();
    return weights;
}

GatedDeltaShape gated_delta_shape(const HostFields &from, Bench &bench) {
    Fields fields("the gated_delta shape", from, bench);
    GatedDeltaShape shape;
    fields.get("hidden", shape.hidden);
    fields.get("key_heads", shape.key_heads);
    fields.get("value_heads", shape.value_heads);
    fields.get("key_dim", shape.key_dim);
    fields.get("value_dim", shape.value_dim);
    fields.get("conv_width", shape.conv_width);
    fields.get("eps", shape.eps);
    fields.done();
    return shape;
}

GatedDeltaWeights gated_delta_weights(const HostFields &from, Bench &bench) {
    Fields fields("the gated_delta weights", from, bench);
    GatedDeltaWeights weights;
    fields.get("norm", weights.norm);
    fields.get("qkv", weights.qkv);
    fields.get("z", weights.z);
    fields.get("a", weights.a);
    fields.get("b", weights.b);
    fields.get("conv", weights.conv);
    fields.get("decay_rate", weights.decay_rate);
    fields.get("dt_bias", weights.dt_bias);
    fields.get("head_norm", weights.head_norm);
    fields.get("out", weights.out);
    fields.done();
    return weights;
}

MoeShape moe_shape(const HostFields &from, Bench &bench) {
    Fields fields("the moe shape", from, bench);
    MoeShape shape;
    fields.get("hidden", shape.hidden);
    fields.get("experts", shape.experts);
    fields.get("top_k", shape.top_k);
    fields.get("width", shape.width);
    fields.get("shared_width", shape.shared_width);
    fields.get("renormalize", shape.renormalize);
    fields.get("eps", shape.eps);
    fields.done();
    return shape;
}

MoeWeights moe_weights(const HostFields &from, Bench &bench) {
    Fields fields("the moe weights", from, bench);
    MoeWeights weights;
    fields.get("norm", weights.norm);
    fields.get("router", weights.router);
    fields.get("gate", weights.gate);
    fields.get("up", weights.up);
    fields.get("down", weights.down);
    fields.get("shared_router", weights.shared_router);
    fields.get("shared_gate", weights.shared_gate);
    fields.get("shared_up", weights.shared_up);
    fields.get("shared_down", weights.shared_down);
    fields.done();
    return weights;
}

MlpShape mlp_shape(const HostFields &from, Bench &bench) {
    Fields fields("the mlp shape", from, bench);
    MlpShape shape;
    fields.get("hidden", shape.hidden);
    fields.get("width", shape.width);
    fields.get("eps", shape.eps);
    fields.done();
    return shape;
}

MlpWeights mlp_weights(const HostFields &from, Bench &bench) {
    Fields fields("the mlp weights", from, bench);
    MlpWeights weights;
    fields.get("norm", weights.norm);
    fields.get("gate", weights.gate);
    fields.get("up", weights.up);
    fields.get("down", weights.down);
    fields.done();
    return weights;
}

ClassifyWeights classify_weights(const HostFields &from, float eps, Bench &bench) {
    Fields fields("the heads", from, bench);
    ClassifyWeights weights;
    fields.get("norm", weights.norm);
    fields.get("tags", weights.tags);
    fields.get("tags_bias", weights.tags_bias);
    fields.get("sensitivity", weights.sensitivity);
    fields.get("sensitivity_bias", weights.sensitivity_bias);
    fields.done();
    weights.eps = eps;
    return weights;
}

std::int64_t row_count(const HostArray &x) {
    if (x.shape.size() != 2) {
        refuse("x has " + std::to_string(x.shape.size()) + " dimensions, expected 2: rows and columns");
    }
    return x.shape[0];
}

} // namespace

void Probe::run(Limits limits, const std::function<void()> &call) {
    limits.byte_inputs = byte_inputs;
    if (!reserved_ || *reserved_ != limits) {
        reserved_.reset();
        backend_->reserve(limits);
        reserved_ = limits;
    }
    push_out();
    const auto start = std::chrono::steady_clock::now();
    backend_->begin();
    call();
    backend_->commit();
    backend_->wait(0);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Probe::push_out() {
    const auto rows = static_cast<std::int64_t>(evict / (kOtherCols * 2));
    if (rows == 0) {
        return;
    }
    Bench bench(*backend_);
    if (!others_ || others_->bytes() != evict) {
        others_ = backend_->allocate(evict);
        backend_->write(*others_, 0, std::vector<std::byte>(evict)); // pages that nobody wrote are one page of zeros
    }
    Matrix others{.packing = Packing::bf16, .rows = rows, .cols = kOtherCols};
    others.codes = {others_.get(), 0, DType::bf16, 2, {rows, kOtherCols, 1, 1}};
    const Tensor y = bench.output(DType::f32, {1, rows});
    const Tensor x = bench.output(DType::bf16, {1, kOtherCols});
    backend_->begin();
    backend_->matmul(x, others, 0, y);
    backend_->commit();
    backend_->wait(0);
}

HostResult Probe::norm(const HostArray &x, const HostArray &weight, float eps) {
    Bench bench(*backend_);
    const Limits limits{.rows = row_count(x), .hidden = x.shape[1]};
    const Tensor y = bench.output(DType::bf16, x.shape);
    const Tensor from = bench.copy(x);
    const Tensor scale = bench.copy(weight);
    run(limits, [&] { backend_->norm(from, scale, eps, y); });
    return bench.result(y);
}

HostResult Probe::matmul(const HostArray &x, const HostMatrix &matrix, std::int64_t expert) {
    Bench bench(*backend_);
    const Matrix w = bench.matrix("the matrix", matrix);
    const std::int64_t rows = row_count(x);
    const Tensor y = bench.output(DType::f32, {rows, w.rows});
    const Tensor from = bench.copy(x);
    const Limits limits{.rows = rows, .head_rows = rows, .hidden = w.cols, .vocab = w.rows};
    run(limits, [&] { backend_->matmul(from, w, expert, y); });
    return bench.result(y);
}

HostResult Probe::embed(const HostMatrix &table, const HostArray &ids) {
    Bench bench(*backend_);
    const EmbedWeights weights{bench.matrix("the table", table)};
    const std::int64_t rows = ids.shape.empty() ? 1 : ids.shape[0];
    const Tensor x = bench.output(DType::bf16, {rows, weights.table.cols});
    const Tensor from = bench.copy(ids);
    const Limits limits{.rows = rows, .hidden = weights.table.cols, .vocab = weights.table.rows};
    run(limits, [&] { backend_->embed(weights, from, x); });
    return bench.result(x);
}

std::tuple<HostResult, HostResult, HostResult> Probe::attention(const HostFields &shape, const HostFields &weights,
                                                                const HostArray &x, const HostArray &keys,
                                                                const HostArray &values, std::int64_t position) {
    Bench bench(*backend_);
    const AttentionShape sizes = attention_shape(shape, bench);
    const AttentionWeights matrices = attention_weights(weights, bench);
    const Limits limits{.rows = row_count(x),
                        .context = keys.shape.size() > 1 ? keys.shape[1] : 0,
                        .hidden = sizes.hidden,
                        .attention = sizes};
    const KvCache cache{bench.copy(keys), bench.copy(values)};
    const Tensor stream = bench.copy(x);
    run(limits, [&] { backend_->attention(sizes, matrices, stream, cache, position); });
    return {bench.result(stream), bench.result(cache.keys), bench.result(cache.values)};
}

std::tuple<HostResult, HostResult, HostResult> Probe::gated_delta(const HostFields &shape, const HostFields &weights,
                                                                  const HostArray &x, const HostArray &state,
                                                                  const HostArray &window, std::int64_t position) {
    Bench bench(*backend_);
    const GatedDeltaShape sizes = gated_delta_shape(shape, bench);
    const GatedDeltaWeights matrices = gated_delta_weights(weights, bench);
    const Limits limits{.rows = row_count(x), .hidden = sizes.hidden, .gated_delta = sizes};
    const GatedDeltaState from{bench.copy(state), bench.copy(window)};
    const GatedDeltaState to{bench.output(DType::f32, state.shape), bench.output(DType::bf16, window.shape)};
    const Tensor stream = bench.copy(x);
    run(limits, [&] { backend_->gated_delta(sizes, matrices, stream, from, to, position); });
    return {bench.result(stream), bench.result(to.state), bench.result(to.window)};
}

HostResult Probe::moe(const HostFields &shape, const HostFields &weights, const HostArray &x) {
    Bench bench(*backend_);
    const MoeShape sizes = moe_shape(shape, bench);
    const MoeWeights matrices = moe_weights(weights, bench);
    const Tensor stream = bench.copy(x);
    run({.rows = row_count(x), .hidden = sizes.hidden, .moe = sizes}, [&] { backend_->moe(sizes, matrices, stream); });
    return bench.result(stream);
}

HostResult Probe::bidirectional(const HostFields &shape, const HostFields &weights, const HostArray &turns,
                                const HostArray &x, const HostArray &starts) {
    Bench bench(*backend_);
    const AttentionShape sizes = attention_shape(shape, bench);
    const AttentionWeights matrices = attention_weights(weights, bench);
    const Tensor angles = bench.copy(turns);
    const Tensor borders = bench.copy(starts);
    const Tensor stream = bench.copy(x);
    run({.rows = row_count(x), .hidden = sizes.hidden, .bidirectional = sizes},
        [&] { backend_->bidirectional(sizes, matrices, angles, stream, borders); });
    return bench.result(stream);
}

HostResult Probe::mlp(const HostFields &shape, const HostFields &weights, const HostArray &x) {
    Bench bench(*backend_);
    const MlpShape sizes = mlp_shape(shape, bench);
    const MlpWeights matrices = mlp_weights(weights, bench);
    const Tensor stream = bench.copy(x);
    run({.rows = row_count(x), .hidden = sizes.hidden, .mlp = sizes}, [&] { backend_->mlp(sizes, matrices, stream); });
    return bench.result(stream);
}

std::tuple<HostResult, HostResult> Probe::classify(const HostFields &weights, float eps, const HostArray &x,
                                                   const HostArray &starts) {
    Bench bench(*backend_);
    const ClassifyWeights heads = classify_weights(weights, eps, bench);
    const std::int64_t rows = row_count(x);
    const std::int64_t labels = heads.tags_bias.dims[0];
    const Tensor logits = bench.output(DType::f32, {rows, labels});
    const Tensor scores = bench.output(DType::f32, {starts.shape.empty() ? 0 : starts.shape[0] - 1});
    const Tensor from = bench.copy(x);
    const Tensor borders = bench.copy(starts);
    run({.rows = rows, .hidden = x.shape[1], .labels = labels},
        [&] { backend_->classify(heads, from, borders, logits, scores); });
    return {bench.result(logits), bench.result(scores)};
}

std::tuple<HostResult, HostResult> Probe::head(const HostFields &weights, float eps, const HostArray &x) {
    Bench bench(*backend_);
    HeadWeights matrices;
    Fields fields("the head weights", weights, bench);
    fields.get("norm", matrices.norm);
    fields.get("table", matrices.table);
    fields.done();
    matrices.eps = eps;
    const std::int64_t rows = row_count(x);
    const Tensor logits = bench.output(DType::f32, {rows, matrices.table.rows});
    const Tensor token = bench.output(DType::i32, {rows == 1 ? 1 : 0});
    const Tensor from = bench.copy(x);
    run({.rows = rows, .head_rows = rows, .hidden = matrices.table.cols, .vocab = matrices.table.rows},
        [&] { backend_->head(matrices, from, logits, rows == 1 ? token : Tensor{}); });
    return {bench.result(logits), bench.result(token)};
}

std::pair<double, std::vector<double>> read_peak(const std::string &isa, int threads, std::size_t bytes, int passes) {
    const cpu::Peak peak = cpu::read_peak(isa, threads, bytes, passes);
    return {peak.work, peak.seconds};
}

std::pair<double, std::vector<double>> product_peak(const std::string &isa, int threads, const std::string &numbers,
                                                    std::int64_t pieces, int passes) {
    const cpu::Peak peak = cpu::product_peak(isa, threads, numbers, pieces, passes);
    return {peak.work, peak.seconds};
}

} // namespace lily
