// The Metal backend: memory, scratch, the order of command buffers, and the hand-over of each word to its encoder. One
// code for every driver of device.h. No kernel is named here.

#include "backend_metal.h"

#include <algorithm>
#include <utility>

#include "../contract.h"
#include "../error.h"
#include "drivers.h"
#include "placement.h"
#include "stream.h"
#include "words.h"

namespace lily::metal {

namespace {

std::string megabytes(std::size_t bytes) { return std::to_string((bytes + 999999) / 1000000) + " MB"; }

const DeviceBuffer &of_device(const Buffer &buffer) {
    const auto *memory = dynamic_cast<const DeviceBuffer *>(&buffer);
    if (memory == nullptr) {
        throw Error(ErrorKind::invalid_input, "a buffer is not memory of the Metal backend");
    }
    return *memory;
}

class MetalBackend final : public Backend {
  public:
    MetalBackend(std::unique_ptr<Device> device, int threads, std::vector<DispatchRecord> *records = nullptr)
        : device_(std::move(device)), threads_(threads), stream_(*device_, records) {}

    ~MetalBackend() override {
        try {
            stream_.wait(0);
        } catch (const Error &) { // nobody is left to be told
        }
    }

    std::string name() const override {
        const char *tensor = device_->limits().tensor_units ? ", matmul2d" : "";
        return device_->kind() + " (" + device_->name() + tensor + ")";
    }
    std::string isa() const override { return device_->kind(); }
    int threads() const override { return threads_; }
    std::size_t scratch_bytes() const override { return scratch_ ? scratch_->bytes() : 0; }

    void reserve(const Limits &limits) override {
        scratch_.reset();
        std::size_t bytes = 1;
        const auto need = [&](bool wanted, std::size_t (*of)(const Limits &)) {
            bytes = wanted ? std::max(bytes, of(limits)) : bytes;
        };
        need(limits.attention.heads > 0, attention_scratch);
        need(limits.gated_delta.value_heads > 0, gated_delta_scratch);
        need(limits.moe.experts > 0, moe_scratch);
        need(limits.bidirectional.heads > 0, bidirectional_scratch);
        need(limits.mlp.width > 0, mlp_scratch);
        need(limits.labels > 0, classify_scratch);
        need(limits.head_rows > 0, head_scratch);
        scratch_ = buffer(bytes);
        contract_ = Contract(limits);
    }

    Mapping map(std::span<const std::byte> memory, std::span<const Extent> tensors) override {
        if (std::all_of(tensors.begin(), tensors.end(), reachable)) {
            require_room(memory.size(), kWeights);
            if (std::unique_ptr<DeviceBuffer> over = device_->buffer_over(memory)) {
                return {std::move(over), offsets_of(tensors), 0};
            }
        }
        Placement placed = place(tensors);
        std::unique_ptr<DeviceBuffer> copy = buffer(std::max<std::size_t>(placed.bytes, 1), kWeights);
        stream_in(*device_, *copy, memory, tensors, placed, threads_);
        return {std::move(copy), std::move(placed.offsets), placed.bytes};
    }

    std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return buffer(std::max<std::size_t>(bytes, 1)); }

    void read(const Buffer &from, std::size_t offset, std::span<std::byte> to) override {
        if (!to.empty()) {
            require_range(from, offset, to.size());
            device_->read(of_device(from), offset, to);
        }
    }

    void write(Buffer &to, std::size_t offset, std::span<const std::byte> from) override {
        if (!from.empty()) {
            require_range(to, offset, from.size());
            device_->write(const_cast<DeviceBuffer &>(of_device(to)), offset, from);
        }
    }

    void begin() override { stream_.begin(); }
    void commit() override { stream_.commit(); }
    void wait(std::size_t left) override { stream_.wait(left); }
    bool asynchronous() const override { return true; }

    void embed(const EmbedWeights &weights, const Tensor &ids, const Tensor &x) override {
        contract_.embed(weights, ids, x);
        encode_embed(stream_, weights, ids, x);
    }

    void attention(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &x, const KvCache &cache,
                   std::int64_t position) override {
        contract_.attention(shape, weights, x, cache, position);
        encode_attention(stream_, scratch(), shape, weights, x, cache, position);
    }

    void gated_delta(const GatedDeltaShape &shape, const GatedDeltaWeights &weights, const Tensor &x,
                     const GatedDeltaState &from, const GatedDeltaState &to, std::int64_t position) override {
        contract_.gated_delta(shape, weights, x, from, to);
        encode_gated_delta(stream_, scratch(), shape, weights, x, from, to, position);
    }

    void moe(const MoeShape &shape, const MoeWeights &weights, const Tensor &x) override {
        contract_.moe(shape, weights, x);
        encode_moe(stream_, scratch(), shape, weights, x);
    }

    void bidirectional(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &turns,
                       const Tensor &x, const Tensor &starts) override {
        const std::int64_t rows = contract_.bidirectional(shape, weights, turns, x, starts);
        const std::vector<std::int32_t> borders = borders_of("bidirectional", starts, rows, turns.dims[0]);
        encode_bidirectional(stream_, scratch(), shape, weights, turns, x, starts, borders);
    }

    void mlp(const MlpShape &shape, const MlpWeights &weights, const Tensor &x) override {
        contract_.mlp(shape, weights, x);
        encode_mlp(stream_, scratch(), shape, weights, x);
    }

    void classify(const ClassifyWeights &weights, const Tensor &x, const Tensor &starts, const Tensor &logits,
                  const Tensor &sensitivity) override {
        const std::int64_t rows = contract_.classify(weights, x, starts, logits, sensitivity);
        const std::vector<std::int32_t> borders = borders_of("classify", starts, rows, rows);
        encode_classify(stream_, scratch(), weights, x, starts, borders, logits, sensitivity);
    }

    void head(const HeadWeights &weights, const Tensor &x, const Tensor &logits, const Tensor &token) override {
        contract_.head(weights, x, logits, token);
        encode_head(stream_, scratch(), weights, x, logits, token);
    }

    void norm(const Tensor &x, const Tensor &weight, float eps, const Tensor &y) override {
        contract_.norm(x, weight, y);
        encode_norm(stream_, x, weight, eps, y);
    }

    void matmul(const Tensor &x, const Matrix &w, std::int64_t expert, const Tensor &y) override {
        contract_.matmul(x, w, expert, y);
        encode_matmul(stream_, x, w, expert, y);
    }

  private:
    static constexpr const char *kWeights = "the weights of one file: "; // an arena names itself

    // Memory within what the GPU can hold without waiting for it.
    void require_room(std::size_t bytes, const std::string &purpose) const {
        const DeviceLimits limits = device_->limits();
        const std::size_t used = device_->allocated();
        if (bytes > limits.buffer_bytes || used + bytes > limits.working_set_bytes) {
            throw Error(ErrorKind::out_of_memory,
                        purpose + megabytes(bytes) + " are needed in one buffer, and " + megabytes(used) +
                            " are in use; " + device_->name() + " takes buffers of up to " +
                            megabytes(limits.buffer_bytes) + " and " + megabytes(limits.working_set_bytes) +
                            " in all; lower max_context, close sessions and engines, or use device='cpu'");
        }
    }

    std::unique_ptr<DeviceBuffer> buffer(std::size_t bytes, const std::string &purpose = "") {
        require_room(bytes, purpose);
        return device_->buffer(bytes);
    }

    Scratch scratch() { return Scratch(*scratch_); }

    // Written before begin, and small: the host reads what it wrote, to size the grids.
    std::vector<std::int32_t> borders_of(const char *word, const Tensor &starts, std::int64_t rows,
                                         std::int64_t longest) {
        std::vector<std::int32_t> borders(static_cast<std::size_t>(starts.dims[0]));
        device_->read(of_device(*starts.buffer), starts.offset, std::as_writable_bytes(std::span(borders)));
        Contract::windows(word, borders, rows, longest);
        return borders;
    }

    std::unique_ptr<Device> device_;
    int threads_;
    Stream stream_;
    std::unique_ptr<DeviceBuffer> scratch_;
    Contract contract_;
};

} // namespace

std::unique_ptr<Backend> make_backend(const std::string &device, const std::vector<std::string> &kernels,
                                      const std::string &order, int threads) {
    if (device == "metal") {
        return std::make_unique<MetalBackend>(open_apple(kernels), threads);
    }
    if (device == "metal:host") {
        return std::make_unique<MetalBackend>(open_host(kernels, order, threads, nullptr), threads);
    }
    if (device == "metal:cuda") {
        return std::make_unique<MetalBackend>(open_cuda(kernels), threads);
    }
    throw Error(ErrorKind::device,
                "there is no device '" + device + "', expected cpu, metal, metal:host or metal:cuda");
}

std::unique_ptr<Backend> make_counter(std::vector<DispatchRecord> *records) {
    return std::make_unique<MetalBackend>(open_counting(), 1, records);
}

std::unique_ptr<Backend> make_witness(const std::vector<std::string> &kernels, std::vector<DispatchRecord> *records,
                                      std::vector<Touches> *touches) {
    return std::make_unique<MetalBackend>(open_host(kernels, "", 1, touches), 1, records);
}

} // namespace lily::metal
