// See mlp.h. One pass makes h from gate and up together (swiglu.h), the product with down adds to the residual.
#include "mlp.h"

#include "matmul.h"
#include "norm.h"
#include "scratch.h"
#include "swiglu.h"

namespace lily::cpu::LILY_ISA {

constexpr std::int64_t kRowsOfPass = 8;

struct Layout {
    std::size_t normed, inputs, h;     // bf16 [rows, hidden], the same arranged for the packing, bf16 [rows, width]
    std::size_t workspaces, workspace; // per thread, with the bytes of one
    std::size_t matmul, end;
};

struct Run {
    const MlpArgs *args;
    Layout at;
    std::uint16_t *normed, *h;
    Activations inputs;
    std::byte *workspaces;
    std::int64_t panels; // of one piece of the rows
};

static std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

static Layout layout_of(const MlpShape &shape, std::int64_t rows, int threads) {
    Layout l{};
    l.normed = carve(l.end, rows * shape.hidden * 2);
    l.inputs = carve(l.end, static_cast<std::int64_t>(activations_bytes(rows, shape.hidden)));
    l.h = carve(l.end, rows * shape.width * 2);
    carve(l.workspace, static_cast<std::int64_t>(workspace_bytes(shape.hidden)));
    l.workspaces = carve(l.end, threads * static_cast<std::int64_t>(l.workspace));
    l.matmul = l.end;
    l.end += matmul_scratch(rows, shape.width, threads);
    return l;
}

// Norms a few rows and arranges them.
static void prepare(void *context, std::int64_t item, int) {
    const Run &run = *static_cast<const Run *>(context);
    const MlpArgs &args = *run.args;
    const std::int64_t hidden = args.shape.hidden, last = (item + 1) * kRowsOfPass;
    for (std::int64_t r = item * kRowsOfPass; r < (last < args.rows ? last : args.rows); ++r) {
        std::uint16_t *normed = run.normed + r * hidden;
        norm_row(args.x + r * hidden, args.norm, args.shape.eps, hidden, normed);
        arrange_row(args.gate.packing, normed, hidden, r, run.inputs);
    }
}

// An item is one panel against at most kItemRows rows; neighbours share the rows.
static void first_pass(void *context, std::int64_t item, int worker) {
    const Run &run = *static_cast<const Run *>(context);
    const MlpArgs &args = *run.args;
    const std::int64_t width = args.shape.width, column = item % run.panels * kFused;
    const std::int64_t first = item / run.panels * kItemRows, left = args.rows - first;
    const Workspace work =
        workspace_at(run.workspaces + run.at.workspace * static_cast<std::size_t>(worker), args.shape.hidden);
    gate_and_up(fused_panel(args.gate, args.up, 0, column), nullptr, column, width, run.inputs, nullptr, first,
                left < kItemRows ? left : kItemRows, run.h + first * width, work);
}

void mlp(Context &context, const MlpArgs &args) {
    const MlpShape &shape = args.shape;
    std::byte *base = context.scratch;
    Run run{};
    run.args = &args;
    run.at = layout_of(shape, args.rows, context.pool->threads());
    run.normed = reinterpret_cast<std::uint16_t *>(base + run.at.normed);
    run.h = reinterpret_cast<std::uint16_t *>(base + run.at.h);
    run.inputs = activations_at(base + run.at.inputs, args.gate.packing, inputs_of(context), args.rows, shape.hidden);
    run.workspaces = base + run.at.workspaces;
    run.panels = ceil_div(shape.width, kFused);
    context.pool->run(ceil_div(args.rows, kRowsOfPass), prepare, &run);
    context.pool->run(run.panels * ceil_div(args.rows, kItemRows), first_pass, &run);
    const Job job{&args.down, 0, Store::add_bf16, args.x, shape.hidden};
    matmul(context, base + run.at.matmul, run.h, args.rows, &job, 1);
}

std::size_t mlp_scratch(const Limits &limits, int threads) { return layout_of(limits.mlp, limits.rows, threads).end; }

} // namespace lily::cpu::LILY_ISA
