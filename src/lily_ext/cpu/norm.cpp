// The private word norm over many rows; see norm.h.
#include "norm.h"

namespace lily::cpu::LILY_ISA {

constexpr std::int64_t kItemRows = 8;

struct NormRows {
    const std::uint16_t *x;
    const float *weight;
    float eps;
    std::int64_t rows, cols;
    std::uint16_t *y;
};

static void run(void *context, std::int64_t item, int) {
    const NormRows &job = *static_cast<const NormRows *>(context);
    const std::int64_t last = (item + 1) * kItemRows, end = last < job.rows ? last : job.rows;
    for (std::int64_t row = item * kItemRows; row < end; ++row)
        norm_row(job.x + row * job.cols, job.weight, job.eps, job.cols, job.y + row * job.cols);
}

void norm(Context &context, const std::uint16_t *x, const float *weight, float eps, std::int64_t rows,
          std::int64_t cols, std::uint16_t *y) {
    NormRows job{x, weight, eps, rows, cols, y};
    context.pool->run((rows + kItemRows - 1) / kItemRows, run, &job);
}

} // namespace lily::cpu::LILY_ISA
