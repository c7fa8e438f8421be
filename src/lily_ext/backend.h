// The abstract machine: buffers, a stream of work (begin, commit, wait), and the sublayers of the models. Every sublayer
// takes the residual stream x, bf16 [rows, hidden], and changes it in place: pre-norm, projections, RoPE or convolution,
// router and residual add are inside, so that a backend may fuse across them. Between begin and commit nothing is read
// back: a GPU backend can run a whole chunk in one command buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor.h"

namespace lily {

// Memory of a backend. Opaque: the host reaches it through Backend::read and Backend::write only. It may be let go of
// while committed work still uses it: the backend keeps it as long as that takes.
class Buffer {
  public:
    explicit Buffer(std::size_t bytes) : bytes_(bytes) {}
    virtual ~Buffer() = default;
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    std::size_t bytes() const { return bytes_; }

  private:
    std::size_t bytes_;
};

// A piece of memory, in bytes from its start.
struct Extent {
    std::size_t offset = 0;
    std::size_t bytes = 0;
};

// What Backend::map made: where in the buffer each tensor begins, in the order they were given, and the bytes that had
// to be copied.
struct Mapping {
    std::unique_ptr<Buffer> buffer;
    std::vector<std::size_t> offsets;
    std::size_t copied = 0;
};

struct EmbedWeights {
    Matrix table; // [vocab, hidden]
};

struct AttentionShape {
    std::int64_t hidden = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t rotary_dim = 0; // the first rotary_dim of head_dim are rotated, halves paired (j, j + rotary_dim / 2)
    float theta = 0;
    float eps = 0;
    bool operator==(const AttentionShape &) const = default;
};

struct AttentionWeights {
    Tensor norm; // f32 [hidden]
    Matrix q;    // [heads * 2 * head_dim, hidden], per head: head_dim rows of query, then head_dim rows of gate
    Matrix k, v; // [kv_heads * head_dim, hidden]
    Matrix o;    // [hidden, heads * head_dim]
    Tensor q_norm, k_norm; // f32 [head_dim]
};

struct KvCache {
    Tensor keys, values; // bf16 [kv_heads, capacity, head_dim]
};

struct GatedDeltaShape {
    std::int64_t hidden = 0;
    std::int64_t key_heads = 0;
    std::int64_t value_heads = 0; // value head h uses key head h / (value_heads / key_heads)
    std::int64_t key_dim = 0;
    std::int64_t value_dim = 0;
    std::int64_t conv_width = 0;
    float eps = 0;
    bool operator==(const GatedDeltaShape &) const = default;
};

struct GatedDeltaWeights {
    Tensor norm;       // f32 [hidden]
    Matrix qkv;        // [2 * key_heads * key_dim + value_heads * value_dim, hidden]: q, then k, then v
    Matrix z;          // [value_heads * value_dim, hidden]
    Matrix a, b;       // [value_heads, hidden]
    Tensor conv;       // f32 [conv_width, channels], oldest tap first; channels = rows of qkv
    Tensor decay_rate; // f32 [value_heads]: exp(A_log)
    Tensor dt_bias;    // f32 [value_heads]
    Tensor head_norm;  // f32 [value_dim]
    Matrix out;        // [hidden, value_heads * value_dim]
};

struct GatedDeltaState {
    Tensor state;  // f32 [value_heads, value_dim, key_dim]
    Tensor window; // bf16 [conv_width - 1, channels], oldest first: raw inputs of the convolution
};

struct MoeShape {
    std::int64_t hidden = 0;
    std::int64_t experts = 0;
    std::int64_t top_k = 0;
    std::int64_t width = 0;        // of one expert
    std::int64_t shared_width = 0; // of the shared expert
    bool renormalize = true;       // the top_k probabilities are scaled to sum to 1
    float eps = 0;
    bool operator==(const MoeShape &) const = default;
};

// gate and up are packed alike, and so are shared_gate and shared_up: a backend may run each pair in one pass.
struct MoeWeights {
    Tensor norm;           // f32 [hidden]
    Matrix router;         // [experts, hidden]
    Matrix gate, up, down; // experts x [width, hidden], the same, experts x [hidden, width]
    Matrix shared_router;  // [1, hidden]
    Matrix shared_gate, shared_up, shared_down;
};

struct MlpShape {
    std::int64_t hidden = 0;
    std::int64_t width = 0;
    float eps = 0;
    bool operator==(const MlpShape &) const = default;
};

// gate and up are packed alike: a backend may run the pair in one pass.
struct MlpWeights {
    Tensor norm;     // f32 [hidden]
    Matrix gate, up; // [width, hidden]
    Matrix down;     // [hidden, width]
};

// The heads of a classifier, on the final norm of the stream: one on each row, one on the mean of each window's rows.
struct ClassifyWeights {
    Tensor norm;                          // f32 [hidden]
    Tensor tags, tags_bias;               // f32 [labels, hidden], [labels]
    Tensor sensitivity, sensitivity_bias; // f32 [1, hidden], [1]
    float eps = 0;
};

struct HeadWeights {
    Tensor norm;  // f32 [hidden]
    Matrix table; // [vocab, hidden]
    float eps = 0;
};

// The largest sizes a backend will be asked for: it reserves all its scratch from them, once.
struct Limits {
    std::int64_t rows = 0;      // of one chunk
    std::int64_t head_rows = 0; // of one call of head
    std::int64_t context = 0;   // positions of a KV cache
    std::int64_t hidden = 0;
    std::int64_t vocab = 0;
    AttentionShape attention{};
    GatedDeltaShape gated_delta{};
    MoeShape moe{};
    AttentionShape bidirectional{};
    MlpShape mlp{};
    std::int64_t labels = 0; // of classify
    // Products of affine matrices may round their inputs to 8 bits, each group of 64 with its own scale.
    bool byte_inputs = false;
    bool operator==(const Limits &) const = default;
};

// Threads that a backend may be asked for.
inline constexpr int kMaxThreads = 1024;

class Backend {
  public:
    virtual ~Backend() = default;

    virtual std::string name() const = 0;           // "cpu (avx512bf16, 2 threads)"
    virtual std::string isa() const = 0;            // the instruction set or GPU family of the kernels
    virtual int threads() const = 0;                // of the host that compute
    virtual std::size_t scratch_bytes() const = 0;  // reserved by reserve()
    virtual void reserve(const Limits &limits) = 0; // throws Error(out_of_memory) with the sizes

    // A read-only buffer over memory that outlives it, for views of the tensors in it. The CPU takes it as it is, at any
    // alignment. A GPU does so where it can reach every tensor; otherwise it copies them, once, each to an aligned place.
    virtual Mapping map(std::span<const std::byte> memory, std::span<const Extent> tensors) = 0;
    // Zeroed memory; throws Error(out_of_memory) with the sizes.
    virtual std::unique_ptr<Buffer> allocate(std::size_t bytes) = 0;
    // Host access. Only to bytes that no work under way writes or, for write, reads; offsets in bytes; ranges are checked.
    virtual void read(const Buffer &from, std::size_t offset, std::span<std::byte> to) = 0;
    virtual void write(Buffer &to, std::size_t offset, std::span<const std::byte> from) = 0;

    virtual void begin() = 0;  // drops work that was begun and, because something threw, never committed
    virtual void commit() = 0; // work runs in the order of its commits
    // Until at most `left` of the newest commits are still at work. Throws Error(device) for one that failed; all newer
    // ones are then forgotten, because they may be built on it.
    virtual void wait(std::size_t left) = 0;
    // Whether commit returns before the work is done: then it pays to commit the next piece before waiting for this one.
    virtual bool asynchronous() const = 0;

    // ids: i32 [rows]; x: bf16 [rows, hidden], written.
    virtual void embed(const EmbedWeights &weights, const Tensor &ids, const Tensor &x) = 0;
    // Rows sit at positions position .. position + rows - 1; their keys and values are appended to the cache.
    virtual void attention(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &x,
                           const KvCache &cache, std::int64_t position) = 0;
    // Reads state `from` and writes state `to`; the two may not overlap, because a state cannot rewind.
    // Chunks of the recurrence are cut at absolute positions, so position matters to the last bit.
    virtual void gated_delta(const GatedDeltaShape &shape, const GatedDeltaWeights &weights, const Tensor &x,
                             const GatedDeltaState &from, const GatedDeltaState &to, std::int64_t position) = 0;
    virtual void moe(const MoeShape &shape, const MoeWeights &weights, const Tensor &x) = 0;
    // Rows are windows one after another: window i is rows starts[i] .. starts[i + 1] - 1 of starts, i32 [windows + 1]. A row
    // sees all rows of its own window and no other. The queries have no gate: weights.q is [heads * head_dim, hidden].
    // turns: f32 [positions, rotary_dim], the cosines and then the sines of the angles at each position of a window.
    virtual void bidirectional(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &turns,
                               const Tensor &x, const Tensor &starts) = 0;
    virtual void mlp(const MlpShape &shape, const MlpWeights &weights, const Tensor &x) = 0;
    // logits: f32 [rows, labels], sensitivity: f32 [windows]; x and starts as in bidirectional, x is not changed.
    virtual void classify(const ClassifyWeights &weights, const Tensor &x, const Tensor &starts, const Tensor &logits,
                          const Tensor &sensitivity) = 0;
    // logits: f32 [rows, vocab] of x bf16 [rows, hidden]; x is not changed. token: nothing, or with one row i32 [1], the
    // first id of the largest logit: what the next step may read without the host.
    virtual void head(const HeadWeights &weights, const Tensor &x, const Tensor &logits, const Tensor &token) = 0;

    // The two private words of every backend, here so that they too can be compared with a reference; no graph calls them.
    // x, y: bf16 [rows, cols], weight: f32 [cols].
    virtual void norm(const Tensor &x, const Tensor &weight, float eps, const Tensor &y) = 0;
    // y: f32 [rows, w.rows] = x bf16 [rows, w.cols] . w[expert]^T
    virtual void matmul(const Tensor &x, const Matrix &w, std::int64_t expert, const Tensor &y) = 0;
};

} // namespace lily
