// See moe_step.h.
#include "moe_step.h"

#include "gemv.h"
#include "matmul.h"
#include "moe_route.h"
#include "norm.h"
#include "scratch.h"

namespace lily::cpu::LILY_ISA {

constexpr int kMaxBlock = 128; // output rows of an item

struct Layout {
    std::size_t normed, logits, shared_logit, ids, weights, h;
    std::size_t inputs, shared_inputs, h_units, h_stride; // of every chosen expert, then of the shared one
    std::size_t matmul, end;
};

static std::int64_t widest_of(const MoeShape &shape) {
    return shape.width > shape.shared_width ? shape.width : shape.shared_width;
}

static Layout layout_of(const MoeShape &shape) {
    Layout l{};
    l.normed = carve(l.end, shape.hidden * 2);
    l.logits = carve(l.end, shape.experts * 4);
    l.shared_logit = carve(l.end, 4);
    l.ids = carve(l.end, shape.top_k * 4);
    l.weights = carve(l.end, (shape.top_k + 1) * 4); // the shared expert's behind the chosen ones'
    l.h = carve(l.end, (shape.top_k + 1) * widest_of(shape) * 2);
    l.inputs = carve(l.end, static_cast<std::int64_t>(row_activations_bytes(shape.hidden)));
    l.shared_inputs = carve(l.end, static_cast<std::int64_t>(row_activations_bytes(shape.hidden)));
    carve(l.h_stride, static_cast<std::int64_t>(row_activations_bytes(widest_of(shape))));
    l.h_units = carve(l.end, static_cast<std::int64_t>(l.h_stride) * (shape.top_k + 1));
    l.matmul = l.end;
    return l;
}

struct Step {
    const MoeArgs *args;
    Layout at;
    std::byte *scratch;
    Inputs taken;
    std::int32_t *ids;
    float *weights;
    RowActivations inputs, shared_inputs;
    int threads;
    std::int64_t block, blocks,
        items; // rows of an item; items of one chosen expert and of all, the shared one included
};

static std::uint16_t *h_of(const Step &step, std::int64_t slot) {
    return reinterpret_cast<std::uint16_t *>(step.scratch + step.at.h) + slot * widest_of(step.args->shape);
}

static RowActivations h_units_of(const Step &step, std::int64_t slot) {
    const Linear &down = slot < step.args->shape.top_k ? step.args->down : step.args->shared_down;
    std::byte *memory = step.scratch + step.at.h_units + step.at.h_stride * static_cast<std::size_t>(slot);
    return row_activations_at(memory, down.packing, step.taken, down.cols);
}

// Blocks of `rows` rows for all experts: small enough to give every thread several, a multiple of four.
static std::int64_t block_rows(std::int64_t rows, int threads) {
    std::int64_t block = kMaxBlock;
    while (block > 4 && rows / block < 8 * threads)
        block /= 2;
    return block;
}

// One block of gate and up: of a chosen expert or, after those, of the shared one.
struct Block {
    std::int64_t slot, expert, first;
    const Linear *gate, *up;
    const RowActivations *x;
};

static Block block_at(const Step &step, std::int64_t item) {
    const MoeArgs &args = *step.args;
    const std::int64_t chosen = step.blocks * args.shape.top_k;
    if (item < chosen)
        return {item / step.blocks, step.ids[item / step.blocks], item % step.blocks * step.block, &args.gate, &args.up,
                &step.inputs};
    return {args.shape.top_k, 0, (item - chosen) * step.block, &args.shared_gate, &args.shared_up, &step.shared_inputs};
}

static Rows gate_rows(const Block &block) { return rows_of(*block.gate, block.expert, block.first); }

// h = silu(gate) * up.
static void first_pass(void *context, std::int64_t claim, int) {
    const Step &step = *static_cast<const Step *>(context);
    const std::int64_t item = block_of_claim(claim, step.items, step.threads);
    const Block block = block_at(step, item);
    const std::int64_t left = block.gate->rows - block.first;
    const int count = static_cast<int>(left < step.block ? left : step.block);
    F gates[kMaxBlock], ups[kMaxBlock];
    for (int r = count; r % 4 != 0; ++r)
        gates[r] = ups[r] = zero();
    const Rows up = rows_of(*block.up, block.expert, block.first);
    const Rows next = item + 1 < step.items ? gate_rows(block_at(step, item + 1)) : up;
    dot_rows(block.gate->packing, gate_rows(block), up, count, *block.x, gates);
    dot_rows(block.up->packing, up, next, count, *block.x, ups);
    float g[kMaxBlock + kLanes], u[kMaxBlock + kLanes];
    for (int r = 0; r < count; r += 4) {
        sum4(gates + r, g + r);
        sum4(ups + r, u + r);
    }
    std::uint16_t *h = h_of(step, block.slot) + block.first;
    for (int r = 0; r < count; r += kLanes) {
        const int lanes = count - r < kLanes ? count - r : kLanes;
        store_bf16_n(h + r, mul(silu(load_n(g + r, lanes)), load_n(u + r, lanes)), lanes);
    }
}

static Rows down_rows(const Step &step, std::int64_t slot, std::int64_t first) {
    const bool shared = slot == step.args->shape.top_k;
    return rows_of(shared ? step.args->shared_down : step.args->down, shared ? 0 : step.ids[slot], first);
}

// One block of the residual stream: every expert's down, weighted, in slot order, the shared expert last.
static void second_pass(void *context, std::int64_t claim, int) {
    const Step &step = *static_cast<const Step *>(context);
    const std::int64_t item = block_of_claim(claim, step.items, step.threads);
    const MoeArgs &args = *step.args;
    const std::int64_t top_k = args.shape.top_k, first = item * step.block, left = args.shape.hidden - first;
    const int count = static_cast<int>(left < step.block ? left : step.block);
    F sums[kMaxBlock], dots[kMaxBlock];
    for (F &sum : sums)
        sum = zero();
    for (std::int64_t slot = 0; slot <= top_k; ++slot) {
        const Packing packing = slot < top_k ? args.down.packing : args.shared_down.packing;
        const Rows rows = down_rows(step, slot, first);
        const Rows later = slot < top_k ? down_rows(step, slot + 1, first) : down_rows(step, 0, first + step.block);
        dot_rows(packing, rows, later, count, h_units_of(step, slot), dots);
        const F weight = set1(step.weights[slot]);
        for (int r = 0; r < count; ++r)
            sums[r] = fma(weight, dots[r], sums[r]);
    }
    for (int r = 0; r < count; r += 4) {
        float out[4];
        sum4(sums + r, out);
        for (int i = 0; i < 4 && r + i < count; ++i) {
            std::uint16_t &x = args.x[first + r + i];
            x = to_bf16(from_bf16(x) + out[i]);
        }
    }
}

void moe_step(Context &context, const MoeArgs &args) {
    const MoeShape &shape = args.shape;
    Step step{};
    step.args = &args;
    step.threads = context.pool->threads();
    step.at = layout_of(shape);
    step.scratch = context.scratch;
    auto *normed = reinterpret_cast<std::uint16_t *>(context.scratch + step.at.normed);
    auto *logits = reinterpret_cast<float *>(context.scratch + step.at.logits);
    auto *shared_logit = reinterpret_cast<float *>(context.scratch + step.at.shared_logit);
    step.ids = reinterpret_cast<std::int32_t *>(context.scratch + step.at.ids);
    step.weights = reinterpret_cast<float *>(context.scratch + step.at.weights);
    step.taken = inputs_of(context);
    step.inputs = row_activations_at(context.scratch + step.at.inputs, args.gate.packing, step.taken, shape.hidden);
    step.shared_inputs =
        row_activations_at(context.scratch + step.at.shared_inputs, args.shared_gate.packing, step.taken, shape.hidden);

    norm_row(args.x, args.norm, shape.eps, shape.hidden, normed);
    const Job jobs[] = {{&args.router, 0, Store::f32, logits, shape.experts},
                        {&args.shared_router, 0, Store::f32, shared_logit, 1}};
    Context exact{context.pool, context.scratch, false};
    matmul(exact, context.scratch + step.at.matmul, normed, 1, jobs, 2);
    choose_experts(shape, logits, step.ids, step.weights);
    step.weights[shape.top_k] = sigmoid_of(*shared_logit);
    arrange_one(args.gate.packing, normed, shape.hidden, step.inputs);
    if (args.shared_gate.packing == args.gate.packing)
        step.shared_inputs = step.inputs;
    else
        arrange_one(args.shared_gate.packing, normed, shape.hidden, step.shared_inputs);

    step.block = block_rows(shape.top_k * shape.width + shape.shared_width, step.threads);
    step.blocks = (shape.width + step.block - 1) / step.block;
    step.items = step.blocks * shape.top_k + (shape.shared_width + step.block - 1) / step.block;
    context.pool->run(step.items, first_pass, &step);

    for (std::int64_t slot = 0; slot <= shape.top_k; ++slot) {
        const Linear &down = slot < shape.top_k ? args.down : args.shared_down;
        arrange_one(down.packing, h_of(step, slot), down.cols, h_units_of(step, slot));
    }
    step.block = block_rows(shape.hidden, step.threads);
    step.items = (shape.hidden + step.block - 1) / step.block;
    context.pool->run(step.items, second_pass, &step);
}

std::size_t moe_step_scratch(const MoeShape &shape) {
    return layout_of(shape).end + matmul_scratch(1, shape.hidden, 1);
}

} // namespace lily::cpu::LILY_ISA
