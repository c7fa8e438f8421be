// See moe.h. Here: the way of two rows or more.
//
// Rows are sorted by expert (a stable counting sort of the (row, slot) pairs). One pass makes every expert's h =
// silu(gate) * up, a panel holding rows of gate beside the same rows of up; a second pass takes a panel of the hidden
// dimension through the down matrices of all experts, so that the weighted sum, the shared expert and the residual are
// added where the panel is.
#include "moe.h"

#include "matmul.h"
#include "moe_route.h"
#include "moe_step.h"
#include "norm.h"
#include "scratch.h"
#include "swiglu.h"
#include "tile.h"

namespace lily::cpu::LILY_ISA {

constexpr std::int64_t kRowsOfPass = 8;
constexpr std::int64_t kLeastPiece = 64;

static std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Where everything lies in the scratch.
struct Layout {
    std::size_t normed, logits, shared_logits, ids, weights, shared_weights; // per row
    std::size_t first, active, tokens, places;                               // per expert; per (row, slot), sorted
    std::size_t inputs, shared_inputs, h, shared_h, h_units, shared_h_units;
    std::size_t workspaces, workspace, parts, part; // per thread, with the bytes of one
    std::size_t matmul, end;
    std::int64_t pieces, piece; // into how many the rows are cut in the pass over the down matrices
};

static Layout layout_of(const MoeShape &shape, std::int64_t rows, int threads) {
    const std::int64_t pairs = rows * shape.top_k;
    Layout l{};
    l.normed = carve(l.end, rows * shape.hidden * 2);
    l.logits = carve(l.end, rows * shape.experts * 4);
    l.shared_logits = carve(l.end, rows * 4);
    l.ids = carve(l.end, pairs * 4);
    l.weights = carve(l.end, pairs * 4);
    l.shared_weights = carve(l.end, rows * 4);
    l.first = carve(l.end, (shape.experts + 1) * 4);
    l.active = carve(l.end, shape.experts * 4);
    l.tokens = carve(l.end, pairs * 4);
    l.places = carve(l.end, pairs * 4);
    const auto carve_bytes = [&l](std::size_t bytes) { return carve(l.end, static_cast<std::int64_t>(bytes)); };
    l.inputs = carve_bytes(activations_bytes(rows, shape.hidden));
    l.shared_inputs = carve_bytes(activations_bytes(rows, shape.hidden));
    l.h = carve(l.end, pairs * shape.width * 2);
    l.shared_h = carve(l.end, rows * shape.shared_width * 2);
    l.h_units = carve_bytes(activations_bytes(pairs, shape.width));
    l.shared_h_units = carve_bytes(activations_bytes(rows, shape.shared_width));

    std::int64_t widest = shape.hidden > shape.width ? shape.hidden : shape.width;
    widest = widest > shape.shared_width ? widest : shape.shared_width;
    carve(l.workspace, static_cast<std::int64_t>(workspace_bytes(widest)));
    l.workspaces = carve_bytes(l.workspace * static_cast<std::size_t>(threads));

    // A piece runs through every expert with its own share of the rows, so few pieces are best; but every thread needs
    // panels to work on.
    l.pieces = ceil_div(2 * threads, ceil_div(shape.hidden, kPanel));
    const std::int64_t most = ceil_div(rows, kLeastPiece);
    l.pieces = l.pieces < most ? l.pieces : most;
    l.piece = ceil_div(rows, l.pieces);
    l.pieces = ceil_div(rows, l.piece);
    // Fewer rows may be cut into fewer pieces: room for the largest piece of any call with no more rows than this.
    const std::int64_t least = rows < kLeastPiece ? rows : kLeastPiece, largest = l.piece > least ? l.piece : least;
    carve(l.part, largest * shape.top_k * kPanel * 4);
    l.parts = carve_bytes(l.part * static_cast<std::size_t>(threads));
    l.matmul = l.end;
    return l;
}

struct Run {
    const MoeArgs *args;
    Layout at;
    std::uint16_t *normed, *h, *shared_h;
    float *logits, *shared_logits, *weights, *shared_weights;
    std::int32_t *ids, *first, *active, *tokens, *places;
    std::int64_t active_count;
    std::int64_t shares, share; // items of an expert in the first pass, and the columns of one
    Activations inputs, shared_inputs, h_units, shared_h_units;
    std::byte *scratch;
};

static Workspace workspace_of(const Run &run, int worker, std::int64_t cols) {
    return workspace_at(run.scratch + run.at.workspaces + run.at.workspace * static_cast<std::size_t>(worker), cols);
}

static Run run_at(const MoeArgs &args, const Context &context) {
    std::byte *scratch = context.scratch;
    const Inputs inputs = inputs_of(context);
    const MoeShape &shape = args.shape;
    Run run{};
    run.args = &args;
    run.at = layout_of(shape, args.rows, context.pool->threads());
    run.scratch = scratch;
    const auto at = [scratch](std::size_t offset) { return scratch + offset; };
    run.normed = reinterpret_cast<std::uint16_t *>(at(run.at.normed));
    run.h = reinterpret_cast<std::uint16_t *>(at(run.at.h));
    run.shared_h = reinterpret_cast<std::uint16_t *>(at(run.at.shared_h));
    run.logits = reinterpret_cast<float *>(at(run.at.logits));
    run.shared_logits = reinterpret_cast<float *>(at(run.at.shared_logits));
    run.weights = reinterpret_cast<float *>(at(run.at.weights));
    run.shared_weights = reinterpret_cast<float *>(at(run.at.shared_weights));
    run.ids = reinterpret_cast<std::int32_t *>(at(run.at.ids));
    run.first = reinterpret_cast<std::int32_t *>(at(run.at.first));
    run.active = reinterpret_cast<std::int32_t *>(at(run.at.active));
    run.tokens = reinterpret_cast<std::int32_t *>(at(run.at.tokens));
    run.places = reinterpret_cast<std::int32_t *>(at(run.at.places));
    run.inputs = activations_at(at(run.at.inputs), args.gate.packing, inputs, args.rows, shape.hidden);
    run.shared_inputs =
        activations_at(at(run.at.shared_inputs), args.shared_gate.packing, inputs, args.rows, shape.hidden);
    run.h_units = activations_at(at(run.at.h_units), args.down.packing, inputs, args.rows * shape.top_k, shape.width);
    run.shared_h_units =
        activations_at(at(run.at.shared_h_units), args.shared_down.packing, inputs, args.rows, shape.shared_width);
    return run;
}

static void route(void *context, std::int64_t item, int) {
    Run &run = *static_cast<Run *>(context);
    const MoeArgs &args = *run.args;
    const MoeShape &shape = args.shape;
    const std::int64_t last = (item + 1) * kRowsOfPass, end = last < args.rows ? last : args.rows;
    for (std::int64_t r = item * kRowsOfPass; r < end; ++r) {
        choose_experts(shape, run.logits + r * shape.experts, run.ids + r * shape.top_k, run.weights + r * shape.top_k);
        run.shared_weights[r] = sigmoid_of(run.shared_logits[r]);
        const std::uint16_t *x = run.normed + r * shape.hidden;
        arrange_row(args.gate.packing, x, shape.hidden, r, run.inputs);
        if (args.shared_gate.packing != args.gate.packing)
            arrange_row(args.shared_gate.packing, x, shape.hidden, r, run.shared_inputs);
    }
}

// first[e] .. first[e + 1] are the pairs of expert e: tokens holds their rows, places their row * top_k + slot.
static void sort_by_expert(Run &run) {
    const MoeShape &shape = run.args->shape;
    const std::int64_t pairs = run.args->rows * shape.top_k;
    for (std::int64_t e = 0; e <= shape.experts; ++e)
        run.first[e] = 0;
    for (std::int64_t i = 0; i < pairs; ++i)
        ++run.first[run.ids[i] + 1];
    run.active_count = 0;
    for (std::int32_t e = 0; e < shape.experts; ++e) {
        if (run.first[e + 1] > 0)
            run.active[run.active_count++] = e;
        run.first[e + 1] += run.first[e];
    }
    for (std::int64_t i = 0; i < pairs; ++i) {
        const std::int32_t at = run.first[run.ids[i]]++;
        run.tokens[at] = static_cast<std::int32_t>(i / shape.top_k);
        run.places[at] = static_cast<std::int32_t>(i);
    }
    for (std::int64_t e = shape.experts; e > 0; --e) // each first has moved to the next one's
        run.first[e] = run.first[e - 1];
    run.first[0] = 0;
}

// An item is one panel of the shared expert, the longest and therefore first, or some panels of a chosen one.
static void first_pass(void *context, std::int64_t item, int worker) {
    Run &run = *static_cast<Run *>(context);
    const MoeArgs &args = *run.args;
    const std::int64_t width = args.shape.width, shared_width = args.shape.shared_width;
    const std::int64_t shared = ceil_div(shared_width, kFused);
    const Workspace work = workspace_of(run, worker, args.shape.hidden);
    if (item < shared) {
        const bool same = args.shared_gate.packing == args.gate.packing;
        const Panel panel = fused_panel(args.shared_gate, args.shared_up, 0, item * kFused);
        gate_and_up(panel, nullptr, item * kFused, shared_width, same ? run.inputs : run.shared_inputs, nullptr, 0,
                    args.rows, run.shared_h, work);
        return;
    }
    const std::int32_t expert = run.active[(item - shared) / run.shares];
    const std::int32_t first = run.first[expert], count = run.first[expert + 1] - first;
    std::int64_t column = (item - shared) % run.shares * run.share;
    const std::int64_t end = column + run.share < width ? column + run.share : width;
    Panel panel = fused_panel(args.gate, args.up, expert, column);
    for (; column < end; column += kFused) {
        const Panel next = fused_panel(args.gate, args.up, expert, column + kFused);
        gate_and_up(panel, column + kFused < end ? &next : nullptr, column, width, run.inputs, run.tokens + first, 0,
                    count, run.h + first * width, work);
        panel = next;
    }
}

static void arrange_h(void *context, std::int64_t item, int) {
    Run &run = *static_cast<Run *>(context);
    const MoeArgs &args = *run.args;
    const MoeShape &shape = args.shape;
    const std::int64_t pairs = args.rows * shape.top_k, last = (item + 1) * kRowsOfPass;
    for (std::int64_t i = item * kRowsOfPass; i < last; ++i) {
        if (i < pairs)
            arrange_row(args.down.packing, run.h + i * shape.width, shape.width, i, run.h_units);
        else if (i < pairs + args.rows)
            arrange_row(args.shared_down.packing, run.shared_h + (i - pairs) * shape.shared_width, shape.shared_width,
                        i - pairs, run.shared_h_units);
    }
}

// The first of the sorted pairs first .. last whose place is not before `place`.
static std::int32_t find_place(const std::int32_t *places, std::int32_t first, std::int32_t last, std::int64_t place) {
    while (first < last) {
        const std::int32_t middle = first + (last - first) / 2;
        if (places[middle] < place)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

// One panel of the hidden dimension for one piece of the rows: the experts' outputs into `parts` [row, slot, kPanel].
static void down_of_experts(const Run &run, std::int64_t column, std::int64_t begin, std::int64_t end, float *parts,
                            const Workspace &work) {
    const MoeArgs &args = *run.args;
    const std::int64_t top_k = args.shape.top_k;
    for (std::int64_t a = 0; a < run.active_count; ++a) {
        const std::int32_t expert = run.active[a], stop = run.first[expert + 1];
        const std::int32_t first = find_place(run.places, run.first[expert], stop, begin * top_k);
        const std::int32_t last = find_place(run.places, first, stop, end * top_k);
        const Panel panel = panel_at(args.down, expert, column);
        const Panel next = a + 1 < run.active_count ? panel_at(args.down, run.active[a + 1], column)
                                                    : panel_at(args.shared_down, 0, column);
        for (std::int64_t done = first; done < last; done += kItemRows) {
            const std::int64_t some = last - done < kItemRows ? last - done : kItemRows;
            panel_product(panel, &next, run.h_units, nullptr, done, some, work);
            for (std::int64_t i = 0; i < some; ++i) {
                float *part = parts + (run.places[done + i] - begin * top_k) * kPanel;
                for (int s = 0; s < kStrips; ++s)
                    store(part + s * kLanes, load(work.totals + i * kPanel + s * kLanes));
            }
        }
    }
}

static void second_pass(void *context, std::int64_t item, int worker) {
    Run &run = *static_cast<Run *>(context);
    const MoeArgs &args = *run.args;
    const std::int64_t hidden = args.shape.hidden, top_k = args.shape.top_k;
    const std::int64_t column = item / run.at.pieces * kPanel, begin = item % run.at.pieces * run.at.piece;
    const std::int64_t end = begin + run.at.piece < args.rows ? begin + run.at.piece : args.rows;
    auto *parts =
        reinterpret_cast<float *>(run.scratch + run.at.parts + run.at.part * static_cast<std::size_t>(worker));
    down_of_experts(run, column, begin, end, parts, workspace_of(run, worker, args.shape.width));

    const Workspace work = workspace_of(run, worker, args.shape.shared_width);
    const Panel shared = panel_at(args.shared_down, 0, column);
    for (std::int64_t row = begin; row < end; row += kItemRows) {
        const std::int64_t some = end - row < kItemRows ? end - row : kItemRows;
        panel_product(shared, nullptr, run.shared_h_units, nullptr, row, some, work);
        for (std::int64_t r = 0; r < some; ++r)
            for (int s = 0; s < kStrips; ++s) {
                const std::int64_t at = column + s * kLanes;
                const int lanes = hidden - at >= kLanes ? kLanes : static_cast<int>(hidden - at);
                if (lanes <= 0)
                    continue;
                const float *part = parts + (row - begin + r) * top_k * kPanel + s * kLanes;
                const float *weights = run.weights + (row + r) * top_k;
                F sum = zero();
                for (std::int64_t k = 0; k < top_k; ++k)
                    sum = fma(set1(weights[k]), load(part + k * kPanel), sum);
                sum = fma(set1(run.shared_weights[row + r]), load(work.totals + r * kPanel + s * kLanes), sum);
                std::uint16_t *x = args.x + (row + r) * hidden + at;
                store_bf16_n(x, add(load_bf16_n(x, lanes), sum), lanes);
            }
    }
}

static void moe_rows(Context &context, const MoeArgs &args) {
    const MoeShape &shape = args.shape;
    Run run = run_at(args, context);
    norm(context, args.x, args.norm, shape.eps, args.rows, shape.hidden, run.normed);
    const Job jobs[] = {{&args.router, 0, Store::f32, run.logits, shape.experts},
                        {&args.shared_router, 0, Store::f32, run.shared_logits, 1}};
    // Where a row goes should not hang on a rounding that could be avoided.
    Context exact{context.pool, context.scratch, false};
    matmul(exact, context.scratch + run.at.matmul, run.normed, args.rows, jobs, 2);
    context.pool->run(ceil_div(args.rows, kRowsOfPass), route, &run);
    sort_by_expert(run);
    const std::int64_t panels = ceil_div(shape.width, kFused);
    run.shares = ceil_div(8 * context.pool->threads(), run.active_count);
    run.share = ceil_div(panels, run.shares < panels ? run.shares : panels) * kFused;
    run.shares = ceil_div(shape.width, run.share);
    context.pool->run(ceil_div(shape.shared_width, kFused) + run.active_count * run.shares, first_pass, &run);
    context.pool->run(ceil_div(args.rows * (shape.top_k + 1), kRowsOfPass), arrange_h, &run);
    context.pool->run(ceil_div(shape.hidden, kPanel) * run.at.pieces, second_pass, &run);
}

void moe(Context &context, const MoeArgs &args) {
    if (args.rows == 1)
        moe_step(context, args);
    else
        moe_rows(context, args);
}

std::size_t moe_scratch(const Limits &limits, int threads) {
    const Layout layout = layout_of(limits.moe, limits.rows, threads);
    const std::size_t rows = layout.end + matmul_scratch(limits.rows, limits.moe.hidden, threads);
    const std::size_t step = moe_step_scratch(limits.moe);
    return rows > step ? rows : step;
}

} // namespace lily::cpu::LILY_ISA
