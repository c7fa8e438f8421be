// See head.h.
#include "head.h"

#include "matmul.h"
#include "norm.h"
#include "scratch.h"

namespace lily::cpu::LILY_ISA {

static std::int64_t normed_bytes(std::int64_t rows, std::int64_t hidden) {
    return rows * hidden * static_cast<std::int64_t>(sizeof(std::uint16_t));
}

void head(Context &context, const HeadArgs &args) {
    const std::int64_t hidden = args.table.cols;
    std::size_t end = 0;
    auto *normed = reinterpret_cast<std::uint16_t *>(context.scratch + carve(end, normed_bytes(args.rows, hidden)));
    norm(context, args.x, args.norm, args.eps, args.rows, hidden, normed);
    const Job job{&args.table, 0, Store::f32, args.logits, args.table.rows};
    matmul(context, context.scratch + end, normed, args.rows, &job, 1);
}

std::size_t head_scratch(const Limits &limits, int threads) {
    std::size_t end = 0;
    carve(end, normed_bytes(limits.head_rows, limits.hidden));
    return end + matmul_scratch(limits.head_rows, limits.hidden, threads);
}

} // namespace lily::cpu::LILY_ISA
