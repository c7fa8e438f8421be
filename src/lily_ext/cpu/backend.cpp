// The CPU as a backend: memory, contracts, and the hand-over to the kernels of one instruction set. Work runs at once,
// so begin, commit and wait have nothing to do. No arithmetic happens here.

#include "backend_cpu.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "../error.h"
#include "kernels.h"
#include "memory.h"
#include "pool.h"

namespace lily::cpu {

namespace {

class HostBuffer : public Buffer {
  public:
    HostBuffer(std::byte *data, std::size_t bytes) : Buffer(bytes), data_(data) {}
    std::byte *data() const { return data_; }

  private:
    std::byte *data_;
};

class OwnedBuffer : public HostBuffer {
  public:
    explicit OwnedBuffer(std::size_t bytes) : OwnedBuffer(std::make_unique<Pages>(bytes), bytes) {}

  private:
    OwnedBuffer(std::unique_ptr<Pages> pages, std::size_t bytes)
        : HostBuffer(pages->data(), bytes), pages_(std::move(pages)) {}

    std::unique_ptr<Pages> pages_;
};

[[noreturn]] void contract(const std::string &message) { throw Error(ErrorKind::invalid_input, message); }

const char *name_of(DType dtype) {
    switch (dtype) {
    case DType::u32:
        return "u32";
    case DType::i32:
        return "i32";
    case DType::bf16:
        return "bf16";
    case DType::f32:
        return "f32";
    }
    return "?";
}

std::size_t size_of(DType dtype) { return dtype == DType::bf16 ? 2 : 4; }

std::string shape_text(const Tensor &tensor) {
    std::ostringstream text;
    text << name_of(tensor.dtype) << " [";
    for (int i = 0; i < tensor.rank; ++i) {
        text << (i > 0 ? ", " : "") << tensor.dims[i];
    }
    text << "]";
    return text.str();
}

// The memory behind a view, after a look at its type, its shape and its range.
std::byte *resolve(const char *what, const Tensor &tensor, DType dtype, std::initializer_list<std::int64_t> dims) {
    Tensor expected{tensor.buffer, tensor.offset, dtype, static_cast<int>(dims.size()), {1, 1, 1, 1}};
    std::int64_t elements = 1;
    int rank = 0;
    bool same = tensor.dtype == dtype && tensor.rank == expected.rank;
    for (const std::int64_t dim : dims) {
        same = same && tensor.dims[rank] == dim;
        expected.dims[rank++] = dim;
        elements *= dim;
    }
    if (!same) {
        contract(std::string(what) + " is " + shape_text(tensor) + ", expected " + shape_text(expected));
    }
    const auto *buffer = dynamic_cast<const HostBuffer *>(tensor.buffer);
    if (buffer == nullptr) {
        contract(std::string(what) + " has no memory of the CPU backend behind it");
    }
    const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(dtype);
    if (tensor.offset > buffer->bytes() || bytes > buffer->bytes() - tensor.offset) {
        contract(std::string(what) + " needs bytes " + std::to_string(tensor.offset) + " to " +
                 std::to_string(tensor.offset + bytes) + " of a buffer of " + std::to_string(buffer->bytes()));
    }
    return buffer->data() + tensor.offset;
}

float *resolve_f32(const char *what, const Tensor &tensor, std::initializer_list<std::int64_t> dims) {
    return reinterpret_cast<float *>(resolve(what, tensor, DType::f32, dims));
}

std::uint16_t *resolve_bf16(const char *what, const Tensor &tensor, std::initializer_list<std::int64_t> dims) {
    return reinterpret_cast<std::uint16_t *>(resolve(what, tensor, DType::bf16, dims));
}

Linear resolve(const char *what, const Matrix &matrix, std::int64_t experts, std::int64_t rows, std::int64_t cols) {
    if (matrix.experts != experts || matrix.rows != rows || matrix.cols != cols) {
        contract(std::string(what) + " is " + std::to_string(matrix.experts) + " x [" + std::to_string(matrix.rows) +
                 ", " + std::to_string(matrix.cols) + "], expected " + std::to_string(experts) + " x [" +
                 std::to_string(rows) + ", " + std::to_string(cols) + "]");
    }
    if (cols % kGroup != 0) {
        contract(std::string(what) + " has " + std::to_string(cols) + " inputs, expected a multiple of 64");
    }
    const auto bytes = [what](const Tensor &tensor, DType dtype, std::int64_t e, std::int64_t r, std::int64_t c) {
        return reinterpret_cast<const std::uint8_t *>(tensor.rank == 3 ? resolve(what, tensor, dtype, {e, r, c})
                                                                       : resolve(what, tensor, dtype, {r, c}));
    };
    Linear linear{matrix.packing, nullptr, nullptr, nullptr, experts, rows, cols};
    if (matrix.packing == Packing::bf16) {
        linear.codes = bytes(matrix.codes, DType::bf16, experts, rows, cols);
        return linear;
    }
    const std::int64_t words = matrix.packing == Packing::affine4 ? cols / 8 : cols / 4;
    linear.codes = bytes(matrix.codes, DType::u32, experts, rows, words);
    linear.scales = bytes(matrix.scales, DType::bf16, experts, rows, cols / kGroup);
    linear.biases = bytes(matrix.biases, DType::bf16, experts, rows, cols / kGroup);
    return linear;
}

class CpuBackend final : public Backend {
  public:
    CpuBackend(const Kernels &kernels, int threads) : kernels_(kernels), pool_(threads) {}

    std::string name() const override {
        return std::string("cpu (") + kernels_.isa + ", " + std::to_string(pool_.threads()) +
               (pool_.threads() == 1 ? " thread)" : " threads)");
    }

    std::string isa() const override { return kernels_.isa; }

    int threads() const override { return pool_.threads(); }

    std::size_t scratch_bytes() const override { return scratch_ ? scratch_->bytes() : 0; }

    void reserve(const Limits &limits) override {
        scratch_.reset();
        scratch_ = std::make_unique<OwnedBuffer>(kernels_.scratch_bytes(limits, pool_.threads()));
        limits_ = limits;
    }

    std::unique_ptr<Buffer> map(std::span<const std::byte> memory) override {
        // Only ever read: the views made over it are weights.
        return std::make_unique<HostBuffer>(const_cast<std::byte *>(memory.data()), memory.size());
    }

    std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
        return std::make_unique<OwnedBuffer>(bytes == 0 ? 1 : bytes);
    }

    void read(const Buffer &from, std::size_t offset, std::span<std::byte> to) override {
        if (!to.empty()) { // an empty span has no address to copy to
            std::memcpy(to.data(), range(from, offset, to.size()), to.size());
        }
    }

    void write(Buffer &to, std::size_t offset, std::span<const std::byte> from) override {
        if (!from.empty()) {
            std::memcpy(range(to, offset, from.size()), from.data(), from.size());
        }
    }

    void begin() override {}
    void commit() override {}
    void wait() override {}

    void embed(const EmbedWeights &weights, const Tensor &ids, const Tensor &x) override {
        const std::int64_t rows = row_count(x, weights.table.cols);
        const Linear table = resolve("embed: table", weights.table, 1, weights.table.rows, weights.table.cols);
        Context context = start();
        kernels_.embed(context, table,
                       reinterpret_cast<const std::int32_t *>(resolve("embed: ids", ids, DType::i32, {rows})), rows,
                       resolve_bf16("embed: x", x, {rows, table.cols}));
    }

    void attention(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &x, const KvCache &cache,
                   std::int64_t position) override {
        const std::int64_t rows = row_count(x, shape.hidden);
        const std::int64_t capacity = cache.keys.dims[1];
        if (position < 0 || position + rows > capacity) {
            contract("attention: positions " + std::to_string(position) + " to " + std::to_string(position + rows) +
                     " do not fit a cache of " + std::to_string(capacity));
        }
        const std::int64_t width = shape.heads * shape.head_dim;
        const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
        const AttentionArgs args{
            .shape = shape,
            .norm = resolve_f32("attention: norm", weights.norm, {shape.hidden}),
            .q_norm = resolve_f32("attention: q_norm", weights.q_norm, {shape.head_dim}),
            .k_norm = resolve_f32("attention: k_norm", weights.k_norm, {shape.head_dim}),
            .q = resolve("attention: q", weights.q, 1, 2 * width, shape.hidden),
            .k = resolve("attention: k", weights.k, 1, kv_width, shape.hidden),
            .v = resolve("attention: v", weights.v, 1, kv_width, shape.hidden),
            .o = resolve("attention: o", weights.o, 1, shape.hidden, width),
            .keys = resolve_bf16("attention: keys", cache.keys, {shape.kv_heads, capacity, shape.head_dim}),
            .values = resolve_bf16("attention: values", cache.values, {shape.kv_heads, capacity, shape.head_dim}),
            .capacity = capacity,
            .position = position,
            .rows = rows,
            .x = resolve_bf16("attention: x", x, {rows, shape.hidden}),
        };
        Context context = start();
        kernels_.attention(context, args);
    }

    void gated_delta(const GatedDeltaShape &shape, const GatedDeltaWeights &weights, const Tensor &x,
                     const GatedDeltaState &from, const GatedDeltaState &to, std::int64_t position) override {
        const std::int64_t rows = row_count(x, shape.hidden);
        const std::int64_t values = shape.value_heads * shape.value_dim;
        const std::int64_t channels = 2 * shape.key_heads * shape.key_dim + values;
        const std::initializer_list<std::int64_t> state{shape.value_heads, shape.value_dim, shape.key_dim};
        const std::initializer_list<std::int64_t> window{shape.conv_width - 1, channels};
        const GatedDeltaArgs args{
            .shape = shape,
            .norm = resolve_f32("gated_delta: norm", weights.norm, {shape.hidden}),
            .conv = resolve_f32("gated_delta: conv", weights.conv, {shape.conv_width, channels}),
            .decay_rate = resolve_f32("gated_delta: decay_rate", weights.decay_rate, {shape.value_heads}),
            .dt_bias = resolve_f32("gated_delta: dt_bias", weights.dt_bias, {shape.value_heads}),
            .head_norm = resolve_f32("gated_delta: head_norm", weights.head_norm, {shape.value_dim}),
            .qkv = resolve("gated_delta: qkv", weights.qkv, 1, channels, shape.hidden),
            .z = resolve("gated_delta: z", weights.z, 1, values, shape.hidden),
            .a = resolve("gated_delta: a", weights.a, 1, shape.value_heads, shape.hidden),
            .b = resolve("gated_delta: b", weights.b, 1, shape.value_heads, shape.hidden),
            .out = resolve("gated_delta: out", weights.out, 1, shape.hidden, values),
            .state_in = resolve_f32("gated_delta: state", from.state, state),
            .state_out = resolve_f32("gated_delta: new state", to.state, state),
            .window_in = resolve_bf16("gated_delta: window", from.window, window),
            .window_out = resolve_bf16("gated_delta: new window", to.window, window),
            .position = position,
            .rows = rows,
            .x = resolve_bf16("gated_delta: x", x, {rows, shape.hidden}),
        };
        if (args.state_in == args.state_out || args.window_in == args.window_out) {
            contract("gated_delta: the old and the new state are the same memory, but a state cannot rewind");
        }
        Context context = start();
        kernels_.gated_delta(context, args);
    }

    void moe(const MoeShape &shape, const MoeWeights &weights, const Tensor &x) override {
        const std::int64_t rows = row_count(x, shape.hidden);
        if (shape.top_k < 1 || shape.top_k > shape.experts) {
            contract("moe: top_k is " + std::to_string(shape.top_k) + ", expected 1 to " +
                     std::to_string(shape.experts) + " experts");
        }
        if (weights.gate.packing != weights.up.packing || weights.shared_gate.packing != weights.shared_up.packing) {
            contract("moe: gate and up differ in their packing, or shared_gate and shared_up do; expected it alike");
        }
        const auto [hidden, experts, width, shared] =
            std::array{shape.hidden, shape.experts, shape.width, shape.shared_width};
        const MoeArgs args{
            .shape = shape,
            .norm = resolve_f32("moe: norm", weights.norm, {hidden}),
            .router = resolve("moe: router", weights.router, 1, experts, hidden),
            .gate = resolve("moe: gate", weights.gate, experts, width, hidden),
            .up = resolve("moe: up", weights.up, experts, width, hidden),
            .down = resolve("moe: down", weights.down, experts, hidden, width),
            .shared_router = resolve("moe: shared_router", weights.shared_router, 1, 1, hidden),
            .shared_gate = resolve("moe: shared_gate", weights.shared_gate, 1, shared, hidden),
            .shared_up = resolve("moe: shared_up", weights.shared_up, 1, shared, hidden),
            .shared_down = resolve("moe: shared_down", weights.shared_down, 1, hidden, shared),
            .rows = rows,
            .x = resolve_bf16("moe: x", x, {rows, hidden}),
        };
        Context context = start();
        kernels_.moe(context, args);
    }

    void bidirectional(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &turns,
                       const Tensor &x, const Tensor &starts) override {
        const std::int64_t rows = row_count(x, shape.hidden);
        const std::int64_t width = shape.heads * shape.head_dim;
        const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
        const std::int64_t positions = turns.dims[0];
        const BidirectionalArgs args{
            .shape = shape,
            .norm = resolve_f32("bidirectional: norm", weights.norm, {shape.hidden}),
            .q_norm = resolve_f32("bidirectional: q_norm", weights.q_norm, {shape.head_dim}),
            .k_norm = resolve_f32("bidirectional: k_norm", weights.k_norm, {shape.head_dim}),
            .q = resolve("bidirectional: q", weights.q, 1, width, shape.hidden),
            .k = resolve("bidirectional: k", weights.k, 1, kv_width, shape.hidden),
            .v = resolve("bidirectional: v", weights.v, 1, kv_width, shape.hidden),
            .o = resolve("bidirectional: o", weights.o, 1, shape.hidden, width),
            .turns = resolve_f32("bidirectional: turns", turns, {positions, shape.rotary_dim}),
            .starts = window_starts("bidirectional", starts, rows, positions),
            .windows = starts.dims[0] - 1,
            .rows = rows,
            .x = resolve_bf16("bidirectional: x", x, {rows, shape.hidden}),
        };
        Context context = start();
        kernels_.bidirectional(context, args);
    }

    void mlp(const MlpShape &shape, const MlpWeights &weights, const Tensor &x) override {
        const std::int64_t rows = row_count(x, shape.hidden);
        if (weights.gate.packing != weights.up.packing) {
            contract("mlp: gate and up differ in their packing; expected it alike");
        }
        const MlpArgs args{
            .shape = shape,
            .norm = resolve_f32("mlp: norm", weights.norm, {shape.hidden}),
            .gate = resolve("mlp: gate", weights.gate, 1, shape.width, shape.hidden),
            .up = resolve("mlp: up", weights.up, 1, shape.width, shape.hidden),
            .down = resolve("mlp: down", weights.down, 1, shape.hidden, shape.width),
            .rows = rows,
            .x = resolve_bf16("mlp: x", x, {rows, shape.hidden}),
        };
        Context context = start();
        kernels_.mlp(context, args);
    }

    void classify(const ClassifyWeights &weights, const Tensor &x, const Tensor &starts, const Tensor &logits,
                  const Tensor &sensitivity) override {
        const std::int64_t hidden = weights.norm.dims[0];
        const std::int64_t labels = weights.tags_bias.dims[0];
        const std::int64_t rows = row_count(x, hidden);
        const std::int64_t windows = starts.dims[0] - 1;
        if (hidden % kGroup != 0) {
            contract("classify: hidden is " + std::to_string(hidden) + ", expected a multiple of 64");
        }
        const ClassifyArgs args{
            .norm = resolve_f32("classify: norm", weights.norm, {hidden}),
            .tags = resolve_f32("classify: tags", weights.tags, {labels, hidden}),
            .tags_bias = resolve_f32("classify: tags_bias", weights.tags_bias, {labels}),
            .sensitivity = resolve_f32("classify: sensitivity", weights.sensitivity, {1, hidden}),
            .sensitivity_bias = resolve_f32("classify: sensitivity_bias", weights.sensitivity_bias, {1}),
            .eps = weights.eps,
            .hidden = hidden,
            .labels = labels,
            .starts = window_starts("classify", starts, rows, rows),
            .windows = windows,
            .rows = rows,
            .x = resolve_bf16("classify: x", x, {rows, hidden}),
            .logits = resolve_f32("classify: logits", logits, {rows, labels}),
            .scores = resolve_f32("classify: the scores", sensitivity, {windows}),
        };
        Context context = start();
        kernels_.classify(context, args);
    }

    void head(const HeadWeights &weights, const Tensor &x, const Tensor &logits) override {
        const std::int64_t rows = x.dims[0];
        if (x.rank != 2 || rows < 1 || rows > limits_.head_rows) {
            contract("head: x is " + shape_text(x) + ", expected 1 to " + std::to_string(limits_.head_rows) + " rows");
        }
        const HeadArgs args{
            .norm = resolve_f32("head: norm", weights.norm, {weights.table.cols}),
            .eps = weights.eps,
            .table = resolve("head: table", weights.table, 1, weights.table.rows, weights.table.cols),
            .rows = rows,
            .x = resolve_bf16("head: x", x, {rows, weights.table.cols}),
            .logits = resolve_f32("head: logits", logits, {rows, weights.table.rows}),
        };
        Context context = start();
        kernels_.head(context, args);
    }

    void norm(const Tensor &x, const Tensor &weight, float eps, const Tensor &y) override {
        const std::int64_t cols = weight.dims[0];
        const std::int64_t rows = row_count(x, cols);
        const std::uint16_t *from = resolve_bf16("norm: x", x, {rows, cols});
        const float *scale = resolve_f32("norm: weight", weight, {cols});
        Context context = start();
        kernels_.norm(context, from, scale, eps, rows, cols, resolve_bf16("norm: y", y, {rows, cols}));
    }

    void matmul(const Tensor &x, const Matrix &w, std::int64_t expert, const Tensor &y) override {
        const std::int64_t rows = row_count(x, w.cols);
        if (expert < 0 || expert >= w.experts) {
            contract("matmul: expert " + std::to_string(expert) + " of " + std::to_string(w.experts));
        }
        const Linear linear = resolve("matmul: w", w, w.experts, w.rows, w.cols);
        const std::uint16_t *from = resolve_bf16("matmul: x", x, {rows, w.cols});
        Context context = start();
        kernels_.matmul(context, from, linear, expert, rows, resolve_f32("matmul: y", y, {rows, w.rows}));
    }

  private:
    std::byte *range(const Buffer &buffer, std::size_t offset, std::size_t bytes) const {
        const Tensor view{const_cast<Buffer *>(&buffer), offset, DType::f32, 0, {1, 1, 1, 1}};
        const auto *host = dynamic_cast<const HostBuffer *>(view.buffer);
        if (host == nullptr || offset > host->bytes() || bytes > host->bytes() - offset) {
            contract("bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) +
                     " are not inside a buffer of " + std::to_string(buffer.bytes()));
        }
        return host->data() + offset;
    }

    std::int64_t row_count(const Tensor &x, std::int64_t hidden) const {
        if (x.rank != 2 || x.dims[1] != hidden || x.dims[0] < 1 || x.dims[0] > limits_.rows) {
            contract("x is " + shape_text(x) + ", expected 1 to " + std::to_string(limits_.rows) + " rows of " +
                     std::to_string(hidden));
        }
        return x.dims[0];
    }

    // The borders of windows, which must cut the rows into pieces of 1 to `longest`.
    const std::int32_t *window_starts(const char *what, const Tensor &starts, std::int64_t rows,
                                      std::int64_t longest) const {
        const std::string name = std::string(what) + ": starts";
        const auto *at = reinterpret_cast<const std::int32_t *>(
            resolve(name.c_str(), starts, DType::i32, {starts.rank == 1 ? starts.dims[0] : 0}));
        const std::int64_t windows = starts.dims[0] - 1;
        if (windows < 1 || at[0] != 0 || at[windows] != rows) {
            contract(name + " do not begin at 0 and end at the " + std::to_string(rows) + " rows");
        }
        for (std::int64_t i = 0; i < windows; ++i) {
            if (at[i + 1] <= at[i] || at[i + 1] - at[i] > longest) {
                contract(name + ": window " + std::to_string(i) + " has " + std::to_string(at[i + 1] - at[i]) +
                         " rows, expected 1 to " + std::to_string(longest));
            }
        }
        return at;
    }

    Context start() { return Context{&pool_, scratch_->data()}; }

    const Kernels &kernels_;
    Pool pool_;
    std::unique_ptr<OwnedBuffer> scratch_;
    Limits limits_;
};

} // namespace

std::vector<std::string> instruction_sets() {
    int count = 0;
    const Kernels *const *sets = available_kernels(&count);
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) {
        names.emplace_back(sets[i]->isa);
    }
    return names;
}

std::unique_ptr<Backend> make_backend(const std::string &isa, int threads) {
    if (threads < 0 || threads > kMaxThreads) {
        throw Error(ErrorKind::invalid_input, "threads is " + std::to_string(threads) + ", expected 1 to " +
                                                  std::to_string(kMaxThreads) + ", or 0 for one a usable processor");
    }
    const char *environment = std::getenv("LILY_ISA");
    const bool from_environment = isa.empty() && environment != nullptr;
    const std::string wanted = from_environment ? environment : isa;
    const Kernels *kernels = find_kernels(wanted.c_str());
    if (kernels == nullptr) {
        std::string known;
        for (const std::string &name : instruction_sets()) {
            known += (known.empty() ? "" : ", ") + name;
        }
        throw Error(ErrorKind::device,
                    known.empty() ? "this processor has none of the instruction sets that lily has kernels for "
                                    "(AVX2 with FMA on x86-64, NEON on arm64)"
                                  : "the instruction set '" + wanted + "'" +
                                        (from_environment ? " of LILY_ISA in the environment" : "") +
                                        " is not available here, expected one of: " + known);
    }
    return std::make_unique<CpuBackend>(*kernels, threads == 0 ? usable_cpus() : threads);
}

} // namespace lily::cpu
