// What each instruction set offers, as a table of functions over plain pointers. The files behind it are compiled once
// per instruction set, each in its own namespace; they share no inline function with the rest of the program (a linker
// would keep one copy, perhaps the one that this machine cannot run), so only plain structs cross this line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../backend.h"
#include "pool.h"

namespace lily::cpu {

// Matrix of tensor.h with its buffers resolved. Pointers have any alignment.
struct Linear {
    Packing packing;
    const std::uint8_t *codes;
    const std::uint8_t *scales;
    const std::uint8_t *biases;
    std::int64_t experts, rows, cols;
};

struct AttentionArgs {
    AttentionShape shape;
    const float *norm, *q_norm, *k_norm;
    Linear q, k, v, o;
    std::uint16_t *keys, *values; // bf16 [kv_heads, capacity, head_dim]
    std::int64_t capacity, position, rows;
    std::uint16_t *x; // bf16 [rows, hidden]
};

struct GatedDeltaArgs {
    GatedDeltaShape shape;
    const float *norm, *conv, *decay_rate, *dt_bias, *head_norm;
    Linear qkv, z, a, b, out;
    const float *state_in;
    float *state_out;
    const std::uint16_t *window_in;
    std::uint16_t *window_out;
    std::int64_t position, rows;
    std::uint16_t *x;
};

struct MoeArgs {
    MoeShape shape;
    const float *norm;
    Linear router, gate, up, down, shared_router, shared_gate, shared_up, shared_down;
    std::int64_t rows;
    std::uint16_t *x;
};

struct BidirectionalArgs {
    AttentionShape shape;
    const float *norm, *q_norm, *k_norm;
    Linear q, k, v, o;
    const float *turns;         // [longest window, rotary_dim]
    const std::int32_t *starts; // [windows + 1]
    std::int64_t windows, rows;
    std::uint16_t *x;
};

struct MlpArgs {
    MlpShape shape;
    const float *norm;
    Linear gate, up, down;
    std::int64_t rows;
    std::uint16_t *x;
};

struct ClassifyArgs {
    const float *norm, *tags, *tags_bias, *sensitivity, *sensitivity_bias;
    float eps;
    std::int64_t hidden, labels;
    const std::int32_t *starts; // [windows + 1]
    std::int64_t windows, rows;
    const std::uint16_t *x;
    float *logits, *scores; // [rows, labels], [windows]
};

struct HeadArgs {
    const float *norm;
    float eps;
    Linear table;
    std::int64_t rows;
    const std::uint16_t *x;
    float *logits;
};

// What a sublayer works with: the threads, and one block of scratch, 64-byte aligned, of at least the bytes that the
// function beside it asks for.
struct Context {
    Pool *pool;
    std::byte *scratch;
    bool byte_inputs; // of Limits
};

enum class Numbers { f32, bf16, bytes };

struct Kernels {
    const char *isa;
    // Bytes of scratch the largest call within the limits needs.
    std::size_t (*scratch_bytes)(const Limits &limits, int threads);
    void (*embed)(Context &context, const Linear &table, const std::int32_t *ids, std::int64_t rows, std::uint16_t *x);
    void (*attention)(Context &context, const AttentionArgs &args);
    void (*gated_delta)(Context &context, const GatedDeltaArgs &args);
    void (*moe)(Context &context, const MoeArgs &args);
    void (*head)(Context &context, const HeadArgs &args);
    void (*bidirectional)(Context &context, const BidirectionalArgs &args);
    void (*mlp)(Context &context, const MlpArgs &args);
    void (*classify)(Context &context, const ClassifyArgs &args);
    // The two private words, here so that they can be tested. norm: y = x * rsqrt(mean(x^2) + eps) * weight, bf16 to bf16.
    void (*norm)(Context &context, const std::uint16_t *x, const float *weight, float eps, std::int64_t rows,
                 std::int64_t cols, std::uint16_t *y);
    // y[rows, w.rows] f32 = x[rows, w.cols] bf16 . w[expert]^T
    void (*matmul)(Context &context, const std::uint16_t *x, const Linear &w, std::int64_t expert, std::int64_t rows,
                   float *y);
    // The sum of ones that were read, of products of ones (0 where the set has no instruction for such sums of products).
    double (*read_ones)(const float *from, std::int64_t count);
    double (*multiply_ones)(Numbers numbers, std::int64_t rounds);
};

// The sets this build has and this machine can run, best first; choose_kernels gives the one of that name, or
// the best one for "" (LILY_ISA in the environment is a choice too). Throws Error(device) when the machine has no such set.
const Kernels *const *available_kernels(int *count);
const Kernels &choose_kernels(const char *isa);

} // namespace lily::cpu
