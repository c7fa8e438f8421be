// The private word matmul: spreads the panels (two rows or more) or the output rows (one row) of several products over
// the threads and stores the results. The arithmetic is in tile.h and gemv.h.
#include "matmul.h"

#include "gemv.h"
#include "scratch.h"
#include "tile.h"

namespace lily::cpu::LILY_ISA {

constexpr int kMaxJobs = 8;
constexpr int kMaxBlock = 64;            // output rows of an item of the one-row path
constexpr std::int64_t kLeastPiece = 64; // rows of a piece, so that it pays for its tiles

static std::int64_t panels_of(const Linear &w) { return (w.rows + kPanel - 1) / kPanel; }

// Products of the same packing, on activations arranged for it.
struct Group {
    Packing packing;
    const std::uint16_t *x;
    std::int64_t rows, cols;
    const Job *jobs[kMaxJobs];
    std::int64_t ends[kMaxJobs]; // one past the last item of each job
    int count;
    std::int64_t pieces, piece; // how often, and into how many rows at most, the rows are cut
    Activations many;
    RowActivations one;
    std::byte *workspaces;
    int threads;
    std::int64_t block; // output rows of an item, one-row path
};

// Finds the job of an item; `item` becomes its number within the job.
static const Job &job_of(const Group &group, std::int64_t &item) {
    int j = 0;
    while (item >= group.ends[j])
        ++j;
    item -= j == 0 ? 0 : group.ends[j - 1];
    return *group.jobs[j];
}

static void store_lanes(const Job &job, std::int64_t at, F value, int lanes) {
    if (job.store == Store::f32) {
        store_n(static_cast<float *>(job.y) + at, value, lanes);
        return;
    }
    std::uint16_t *y = static_cast<std::uint16_t *>(job.y) + at;
    if (job.store == Store::add_bf16)
        value = add(load_bf16_n(y, lanes), value);
    store_bf16_n(y, value, lanes);
}

static void store_one(const Job &job, std::int64_t at, float value) {
    if (job.store == Store::f32) {
        static_cast<float *>(job.y)[at] = value;
        return;
    }
    std::uint16_t *y = static_cast<std::uint16_t *>(job.y) + at;
    *y = to_bf16(job.store == Store::add_bf16 ? from_bf16(*y) + value : value);
}

static void run_panel(void *context, std::int64_t item, int worker) {
    const Group &group = *static_cast<const Group *>(context);
    const Workspace work =
        workspace_at(group.workspaces + static_cast<std::size_t>(worker) * workspace_bytes(group.cols), group.cols);
    const Job &job = job_of(group, item);
    const std::int64_t first = item % group.pieces * group.piece, column = item / group.pieces * kPanel;
    const std::int64_t left = group.rows - first, count = left < group.piece ? left : group.piece;
    const Panel panel = panel_at(*job.w, job.expert, column);
    // The item that this thread will probably get next, if all threads keep pace.
    const std::int64_t next_column = column + (group.threads + group.pieces - 1) / group.pieces * kPanel;
    const Panel next = panel_at(*job.w, job.expert, next_column);
    panel_product(panel, next_column < job.w->rows ? &next : nullptr, group.many, nullptr, first, count, work);
    for (std::int64_t r = 0; r < count; ++r)
        for (int s = 0; s < kStrips; ++s) {
            const std::int64_t at = column + s * kLanes, width = job.w->rows - at;
            if (width > 0)
                store_lanes(job, (first + r) * job.stride + at, load(work.totals + r * kPanel + s * kLanes),
                            width < kLanes ? static_cast<int>(width) : kLanes);
        }
}

static void arrange_item(void *context, std::int64_t item, int) {
    const Group &group = *static_cast<const Group *>(context);
    const std::int64_t end = (item + 1) * 8 < group.rows ? (item + 1) * 8 : group.rows;
    for (std::int64_t row = item * 8; row < end; ++row)
        arrange_row(group.packing, group.x + row * group.cols, group.cols, row, group.many);
}

static void run_many(Context &context, Group &group) {
    std::int64_t panels = 0;
    for (int j = 0; j < group.count; ++j)
        panels += panels_of(*group.jobs[j]->w);
    // Enough items that the last ones to finish do not leave many threads idle, none of them too short to pay its tile.
    const std::int64_t wanted = (4 * context.pool->threads() + panels - 1) / panels;
    group.pieces = (group.rows + kItemRows - 1) / kItemRows;
    while (group.pieces < wanted && group.rows / (group.pieces + 1) >= kLeastPiece)
        ++group.pieces;
    group.piece = (group.rows + group.pieces - 1) / group.pieces;
    group.pieces = (group.rows + group.piece - 1) / group.piece;
    std::int64_t items = 0;
    for (int j = 0; j < group.count; ++j)
        group.ends[j] = items += panels_of(*group.jobs[j]->w) * group.pieces;
    context.pool->run((group.rows + 7) / 8, arrange_item, &group);
    context.pool->run(items, run_panel, &group);
}

static void run_rows(void *context, std::int64_t claim, int) {
    const Group &group = *static_cast<const Group *>(context);
    std::int64_t item = block_of_claim(claim, group.ends[group.count - 1], group.threads);
    const Job &job = job_of(group, item);
    const std::int64_t first = item * group.block, left = job.w->rows - first;
    const int count = static_cast<int>(left < group.block ? left : group.block);
    F dots[kMaxBlock + 3]; // sum4 reads past a last block that is not a multiple of 4, and its results are ignored
    for (int r = count; r % 4 != 0; ++r)
        dots[r] = zero();
    const Rows rows = rows_of(*job.w, job.expert, first), later = rows_of(*job.w, job.expert, first + count);
    dot_rows(group.packing, rows, later, count, group.one, dots);
    for (int r = 0; r < count; r += 4) {
        float sums[4];
        sum4(dots + r, sums);
        for (int i = 0; i < 4 && r + i < count; ++i)
            store_one(job, first + r + i, sums[i]);
    }
}

static void run_one(Context &context, Group &group) {
    std::int64_t rows = 0, items = 0;
    for (int j = 0; j < group.count; ++j)
        rows += group.jobs[j]->w->rows;
    group.block = kMaxBlock;
    while (group.block > 8 && rows / group.block < 8 * context.pool->threads())
        group.block /= 2;
    for (int j = 0; j < group.count; ++j)
        group.ends[j] = items += (group.jobs[j]->w->rows + group.block - 1) / group.block;
    arrange_one(group.packing, group.x, group.cols, group.one);
    context.pool->run(items, run_rows, &group);
}

void matmul(Context &context, std::byte *scratch, const std::uint16_t *x, std::int64_t rows, const Job *jobs,
            int count) {
    constexpr Packing packings[] = {Packing::affine4, Packing::affine8, Packing::bf16};
    for (const Packing packing : packings) {
        Group group{};
        group.packing = packing;
        group.threads = context.pool->threads();
        group.x = x;
        group.rows = rows;
        group.cols = jobs[0].w->cols;
        for (int j = 0; j < count; ++j)
            if (jobs[j].w->packing == packing)
                group.jobs[group.count++] = &jobs[j];
        if (group.count == 0)
            continue;
        if (rows == 1) {
            group.one = row_activations_at(scratch, packing, inputs_of(context), group.cols);
            run_one(context, group);
        } else {
            group.many = activations_at(scratch, packing, inputs_of(context), rows, group.cols);
            group.workspaces = scratch + activations_bytes(rows, group.cols);
            run_many(context, group);
        }
    }
}

std::size_t matmul_scratch(std::int64_t rows, std::int64_t cols, int threads) {
    const std::size_t many = activations_bytes(rows, cols) + static_cast<std::size_t>(threads) * workspace_bytes(cols);
    return many + row_activations_bytes(cols);
}

} // namespace lily::cpu::LILY_ISA
