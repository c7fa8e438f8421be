// See peak.h. Work is cut into pieces that the threads take as they come, so that one that is held up delays little.

#include "peak.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>

#include "../error.h"
#include "kernels.h"
#include "machine.h"
#include "memory.h"
#include "pool.h"

namespace lily::cpu {

namespace {

constexpr std::int64_t kPieceFloats = 1 << 20;
constexpr std::int64_t kPieceRounds = 1 << 14;

// Runs piece(item) -> what it did for each item, so many times over.
template <typename Piece> Peak measure(Pool &pool, std::int64_t items, int passes, const Piece &piece) {
    struct Job {
        const Piece &piece;
        std::vector<double> done;
    } job{piece, std::vector<double>(static_cast<std::size_t>(items))};
    Peak peak;
    for (int pass = 0; pass < passes; ++pass) {
        const auto start = std::chrono::steady_clock::now();
        pool.run(
            items,
            [](void *context, std::int64_t item, int) {
                Job &job = *static_cast<Job *>(context);
                job.done[static_cast<std::size_t>(item)] = job.piece(item);
            },
            &job);
        peak.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    peak.work = std::accumulate(job.done.begin(), job.done.end(), 0.0);
    return peak;
}

void require(const char *what, std::int64_t value) {
    if (value < 1) {
        throw Error(ErrorKind::invalid_input,
                    std::string(what) + " is " + std::to_string(value) + ", expected at least 1");
    }
}

} // namespace

Peak read_peak(const std::string &isa, int threads, std::size_t bytes, int passes) {
    require("bytes", static_cast<std::int64_t>(bytes / sizeof(float)));
    require("passes", passes);
    const Kernels &kernels = choose_kernels(isa.c_str());
    Pool pool(count_threads(threads));
    const std::int64_t count = static_cast<std::int64_t>(bytes / sizeof(float)) * pool.threads();
    const std::int64_t items = (count + kPieceFloats - 1) / kPieceFloats;
    Pages pages(static_cast<std::size_t>(count) * sizeof(float));
    auto *ones = reinterpret_cast<float *>(pages.data());
    const auto size = [count](std::int64_t item) { return std::min(kPieceFloats, count - item * kPieceFloats); };
    measure(pool, items, 1, [&](std::int64_t item) {
        std::fill_n(ones + item * kPieceFloats, size(item), 1.0f);
        return 0.0;
    });
    Peak peak = measure(pool, items, passes,
                        [&](std::int64_t item) { return kernels.read_ones(ones + item * kPieceFloats, size(item)); });
    peak.work *= sizeof(float);
    return peak;
}

Peak product_peak(const std::string &isa, int threads, const std::string &numbers, std::int64_t pieces, int passes) {
    static const char *const names[] = {"f32", "bf16", "bytes"};
    const auto *const found = std::find(std::begin(names), std::end(names), numbers);
    if (found == std::end(names)) {
        throw Error(ErrorKind::invalid_input, "numbers is '" + numbers + "', expected f32, bf16 or bytes");
    }
    require("pieces", pieces);
    require("passes", passes);
    const Kernels &kernels = choose_kernels(isa.c_str());
    Pool pool(count_threads(threads));
    const auto kind = static_cast<Numbers>(found - std::begin(names));
    return measure(pool, pieces * pool.threads(), passes,
                   [&](std::int64_t) { return kernels.multiply_ones(kind, kPieceRounds); });
}

} // namespace lily::cpu
