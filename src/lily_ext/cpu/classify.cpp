// See classify.h. The heads are f32 and small: lanes lie along the inputs, four outputs at a time.
#include "classify.h"

#include "norm.h"
#include "scratch.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

constexpr std::int64_t kItemRows = 8;

struct Run {
    const ClassifyArgs *args;
    std::uint16_t *normed; // bf16 [rows, hidden]
};

// sums[i] = x . w[i] for up to four rows of w.
static void dot_four(const std::uint16_t *x, const float *w, int count, std::int64_t cols, float *sums) {
    F dots[4] = {zero(), zero(), zero(), zero()};
    for (std::int64_t c = 0; c < cols; c += kLanes) {
        const F v = load_bf16(x + c);
        for (int i = 0; i < 4; ++i)
            dots[i] = fma(v, load(w + (i < count ? i : 0) * cols + c), dots[i]);
    }
    sum4(dots, sums);
}

static void tag_rows(void *context, std::int64_t item, int) {
    const Run &run = *static_cast<const Run *>(context);
    const ClassifyArgs &args = *run.args;
    const std::int64_t last = (item + 1) * kItemRows, end = last < args.rows ? last : args.rows;
    for (std::int64_t r = item * kItemRows; r < end; ++r) {
        std::uint16_t *normed = run.normed + r * args.hidden;
        norm_row(args.x + r * args.hidden, args.norm, args.eps, args.hidden, normed);
        float *logits = args.logits + r * args.labels;
        for (std::int64_t tag = 0; tag < args.labels; tag += 4) {
            const int count = static_cast<int>(args.labels - tag < 4 ? args.labels - tag : 4);
            float sums[4];
            dot_four(normed, args.tags + tag * args.hidden, count, args.hidden, sums);
            for (int i = 0; i < count; ++i)
                logits[tag + i] = sums[i] + args.tags_bias[tag + i];
        }
    }
}

// One window: a vector of columns at a time, its mean over the rows in order, times the head.
static void score_window(void *context, std::int64_t window, int) {
    const Run &run = *static_cast<const Run *>(context);
    const ClassifyArgs &args = *run.args;
    const std::int64_t start = args.starts[window], end = args.starts[window + 1];
    const F share = set1(1.0f / static_cast<float>(end - start));
    F score = zero();
    for (std::int64_t c = 0; c < args.hidden; c += kLanes) {
        F total = zero();
        for (std::int64_t r = start; r < end; ++r)
            total = add(total, load_bf16(run.normed + r * args.hidden + c));
        score = fma(mul(total, share), load(args.sensitivity + c), score);
    }
    args.scores[window] = sum(score) + args.sensitivity_bias[0];
}

void classify(Context &context, const ClassifyArgs &args) {
    Run run{&args, reinterpret_cast<std::uint16_t *>(context.scratch)};
    context.pool->run((args.rows + kItemRows - 1) / kItemRows, tag_rows, &run);
    context.pool->run(args.windows, score_window, &run);
}

std::size_t classify_scratch(const Limits &limits) {
    std::size_t end = 0;
    carve(end, limits.rows * limits.hidden * 2);
    return end;
}

} // namespace lily::cpu::LILY_ISA
