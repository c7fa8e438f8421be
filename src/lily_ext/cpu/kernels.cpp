// The table of one instruction set; see kernels.h.
#include "kernels.h"

#include "attention.h"
#include "bidirectional.h"
#include "classify.h"
#include "embed.h"
#include "gated_delta.h"
#include "head.h"
#include "matmul.h"
#include "mlp.h"
#include "moe.h"
#include "norm.h"
#include "peak_loops.h"

#define LILY_NAME(isa) LILY_TEXT(isa)
#define LILY_TEXT(isa) #isa

namespace lily::cpu::LILY_ISA {

static std::size_t larger(std::size_t a, std::size_t b) { return a > b ? a : b; }

// Alone, outside a sublayer, matmul is given whatever scratch there is: it reserves for the widest input of the model.
static std::int64_t widest_input(const Limits &limits) {
    const std::int64_t inputs[] = {limits.hidden,
                                   limits.attention.heads * limits.attention.head_dim,
                                   limits.gated_delta.value_heads * limits.gated_delta.value_dim,
                                   limits.moe.width,
                                   limits.moe.shared_width,
                                   limits.bidirectional.heads * limits.bidirectional.head_dim,
                                   limits.mlp.width};
    std::int64_t widest = 0;
    for (const std::int64_t input : inputs)
        widest = input > widest ? input : widest;
    return widest;
}

static std::size_t scratch_bytes(const Limits &limits, int threads) {
    std::size_t bytes = matmul_scratch(limits.rows, widest_input(limits), threads);
    // A graph without a sublayer leaves its shape empty.
    if (limits.attention.hidden > 0)
        bytes = larger(bytes, attention_scratch(limits, threads));
    if (limits.gated_delta.hidden > 0)
        bytes = larger(bytes, gated_delta_scratch(limits, threads));
    if (limits.moe.hidden > 0)
        bytes = larger(bytes, moe_scratch(limits, threads));
    if (limits.bidirectional.hidden > 0)
        bytes = larger(bytes, bidirectional_scratch(limits, threads));
    if (limits.mlp.hidden > 0)
        bytes = larger(bytes, mlp_scratch(limits, threads));
    if (limits.labels > 0)
        bytes = larger(bytes, classify_scratch(limits));
    return larger(bytes, head_scratch(limits, threads));
}

static void matmul_alone(Context &context, const std::uint16_t *x, const Linear &w, std::int64_t expert,
                         std::int64_t rows, float *y) {
    const Job job{&w, expert, Store::f32, y, w.rows};
    matmul(context, context.scratch, x, rows, &job, 1);
}

extern const Kernels kernels;
const Kernels kernels = {
    LILY_NAME(LILY_ISA), scratch_bytes, embed,    attention, gated_delta,  moe,       head,
    bidirectional,       mlp,           classify, norm,      matmul_alone, read_ones, multiply_ones};

} // namespace lily::cpu::LILY_ISA
