// The CPU as a backend: memory, contracts, and the hand-over to the kernels of one instruction set. Work runs at once,
// so begin, commit and wait have nothing to do. No arithmetic happens here.

#include "backend_cpu.h"

#include <algorithm>
#include <cstring>

#include "../contract.h"
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

// The memory behind a view. The contract has looked at its type, its shape and its range.
std::byte *data_of(const Buffer *buffer, std::size_t offset) {
    const auto *host = dynamic_cast<const HostBuffer *>(buffer);
    if (host == nullptr) {
        throw Error(ErrorKind::invalid_input, "a buffer is not memory of the CPU backend");
    }
    return host->data() + offset;
}

float *f32(const Tensor &tensor) { return reinterpret_cast<float *>(data_of(tensor.buffer, tensor.offset)); }

std::uint16_t *bf16(const Tensor &tensor) {
    return reinterpret_cast<std::uint16_t *>(data_of(tensor.buffer, tensor.offset));
}

std::int32_t *i32(const Tensor &tensor) {
    return reinterpret_cast<std::int32_t *>(data_of(tensor.buffer, tensor.offset));
}

Linear linear(const Matrix &matrix) {
    const auto bytes = [](const Tensor &tensor) {
        return reinterpret_cast<const std::uint8_t *>(data_of(tensor.buffer, tensor.offset));
    };
    const bool affine = matrix.packing != Packing::bf16;
    return {matrix.packing,
            bytes(matrix.codes),
            affine ? bytes(matrix.scales) : nullptr,
            affine ? bytes(matrix.biases) : nullptr,
            matrix.experts,
            matrix.rows,
            matrix.cols};
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
        contract_ = Contract(limits);
        byte_inputs_ = limits.byte_inputs;
    }

    Mapping map(std::span<const std::byte> memory, std::span<const Extent> tensors) override {
        // Only ever read: the views made over it are weights.
        Mapping mapping{std::make_unique<HostBuffer>(const_cast<std::byte *>(memory.data()), memory.size()), {}, 0};
        for (const Extent &tensor : tensors) {
            mapping.offsets.push_back(tensor.offset);
        }
        return mapping;
    }

    std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
        return std::make_unique<OwnedBuffer>(bytes == 0 ? 1 : bytes);
    }

    void read(const Buffer &from, std::size_t offset, std::span<std::byte> to) override {
        if (!to.empty()) { // an empty span has no address to copy to
            require_range(from, offset, to.size());
            std::memcpy(to.data(), data_of(&from, offset), to.size());
        }
    }

    void write(Buffer &to, std::size_t offset, std::span<const std::byte> from) override {
        if (!from.empty()) {
            require_range(to, offset, from.size());
            std::memcpy(data_of(&to, offset), from.data(), from.size());
        }
    }

    void begin() override {}
    void commit() override {}
    void wait(std::size_t) override {}
    bool asynchronous() const override { return false; }

    void embed(const EmbedWeights &weights, const Tensor &ids, const Tensor &x) override {
        const std::int64_t rows = contract_.embed(weights, ids, x);
        Context context = start();
        kernels_.embed(context, linear(weights.table), i32(ids), rows, bf16(x));
    }

    void attention(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &x, const KvCache &cache,
                   std::int64_t position) override {
        const std::int64_t rows = contract_.attention(shape, weights, x, cache, position);
        const AttentionArgs args{
            .shape = shape,
            .norm = f32(weights.norm),
            .q_norm = f32(weights.q_norm),
            .k_norm = f32(weights.k_norm),
            .q = linear(weights.q),
            .k = linear(weights.k),
            .v = linear(weights.v),
            .o = linear(weights.o),
            .keys = bf16(cache.keys),
            .values = bf16(cache.values),
            .capacity = cache.keys.dims[1],
            .position = position,
            .rows = rows,
            .x = bf16(x),
        };
        Context context = start();
        kernels_.attention(context, args);
    }

    void gated_delta(const GatedDeltaShape &shape, const GatedDeltaWeights &weights, const Tensor &x,
                     const GatedDeltaState &from, const GatedDeltaState &to, std::int64_t position) override {
        const std::int64_t rows = contract_.gated_delta(shape, weights, x, from, to);
        const GatedDeltaArgs args{
            .shape = shape,
            .norm = f32(weights.norm),
            .conv = f32(weights.conv),
            .decay_rate = f32(weights.decay_rate),
            .dt_bias = f32(weights.dt_bias),
            .head_norm = f32(weights.head_norm),
            .qkv = linear(weights.qkv),
            .z = linear(weights.z),
            .a = linear(weights.a),
            .b = linear(weights.b),
            .out = linear(weights.out),
            .state_in = f32(from.state),
            .state_out = f32(to.state),
            .window_in = bf16(from.window),
            .window_out = bf16(to.window),
            .position = position,
            .rows = rows,
            .x = bf16(x),
        };
        Context context = start();
        kernels_.gated_delta(context, args);
    }

    void moe(const MoeShape &shape, const MoeWeights &weights, const Tensor &x) override {
        const std::int64_t rows = contract_.moe(shape, weights, x);
        const MoeArgs args{
            .shape = shape,
            .norm = f32(weights.norm),
            .router = linear(weights.router),
            .gate = linear(weights.gate),
            .up = linear(weights.up),
            .down = linear(weights.down),
            .shared_router = linear(weights.shared_router),
            .shared_gate = linear(weights.shared_gate),
            .shared_up = linear(weights.shared_up),
            .shared_down = linear(weights.shared_down),
            .rows = rows,
            .x = bf16(x),
        };
        Context context = start();
        kernels_.moe(context, args);
    }

    void bidirectional(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &turns,
                       const Tensor &x, const Tensor &starts) override {
        const std::int64_t rows = contract_.bidirectional(shape, weights, turns, x, starts);
        const BidirectionalArgs args{
            .shape = shape,
            .norm = f32(weights.norm),
            .q_norm = f32(weights.q_norm),
            .k_norm = f32(weights.k_norm),
            .q = linear(weights.q),
            .k = linear(weights.k),
            .v = linear(weights.v),
            .o = linear(weights.o),
            .turns = f32(turns),
            .starts = borders("bidirectional", starts, rows, turns.dims[0]),
            .windows = starts.dims[0] - 1,
            .rows = rows,
            .x = bf16(x),
        };
        Context context = start();
        kernels_.bidirectional(context, args);
    }

    void mlp(const MlpShape &shape, const MlpWeights &weights, const Tensor &x) override {
        const std::int64_t rows = contract_.mlp(shape, weights, x);
        const MlpArgs args{
            .shape = shape,
            .norm = f32(weights.norm),
            .gate = linear(weights.gate),
            .up = linear(weights.up),
            .down = linear(weights.down),
            .rows = rows,
            .x = bf16(x),
        };
        Context context = start();
        kernels_.mlp(context, args);
    }

    void classify(const ClassifyWeights &weights, const Tensor &x, const Tensor &starts, const Tensor &logits,
                  const Tensor &sensitivity) override {
        const std::int64_t rows = contract_.classify(weights, x, starts, logits, sensitivity);
        const ClassifyArgs args{
            .norm = f32(weights.norm),
            .tags = f32(weights.tags),
            .tags_bias = f32(weights.tags_bias),
            .sensitivity = f32(weights.sensitivity),
            .sensitivity_bias = f32(weights.sensitivity_bias),
            .eps = weights.eps,
            .hidden = weights.norm.dims[0],
            .labels = weights.tags_bias.dims[0],
            .starts = borders("classify", starts, rows, rows),
            .windows = starts.dims[0] - 1,
            .rows = rows,
            .x = bf16(x),
            .logits = f32(logits),
            .scores = f32(sensitivity),
        };
        Context context = start();
        kernels_.classify(context, args);
    }

    void head(const HeadWeights &weights, const Tensor &x, const Tensor &logits, const Tensor &token) override {
        const std::int64_t rows = contract_.head(weights, x, logits, token);
        const HeadArgs args{
            .norm = f32(weights.norm),
            .eps = weights.eps,
            .table = linear(weights.table),
            .rows = rows,
            .x = bf16(x),
            .logits = f32(logits),
        };
        Context context{&pool_, scratch_->data(), false};
        kernels_.head(context, args);
        if (token.buffer != nullptr) {
            *i32(token) = static_cast<std::int32_t>(std::max_element(args.logits, args.logits + weights.table.rows) -
                                                    args.logits);
        }
    }

    void norm(const Tensor &x, const Tensor &weight, float eps, const Tensor &y) override {
        const std::int64_t rows = contract_.norm(x, weight, y);
        Context context = start();
        kernels_.norm(context, bf16(x), f32(weight), eps, rows, weight.dims[0], bf16(y));
    }

    void matmul(const Tensor &x, const Matrix &w, std::int64_t expert, const Tensor &y) override {
        const std::int64_t rows = contract_.matmul(x, w, expert, y);
        Context context = start();
        kernels_.matmul(context, bf16(x), linear(w), expert, rows, f32(y));
    }

  private:
    static const std::int32_t *borders(const char *word, const Tensor &starts, std::int64_t rows,
                                       std::int64_t longest) {
        const std::int32_t *at = i32(starts);
        Contract::windows(word, {at, static_cast<std::size_t>(starts.dims[0])}, rows, longest);
        return at;
    }

    Context start() { return Context{&pool_, scratch_->data(), byte_inputs_}; }

    const Kernels &kernels_;
    Pool pool_;
    std::unique_ptr<OwnedBuffer> scratch_;
    Contract contract_;
    bool byte_inputs_ = false;
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
    return std::make_unique<CpuBackend>(choose_kernels(isa.c_str()), count_threads(threads));
}

} // namespace lily::cpu
