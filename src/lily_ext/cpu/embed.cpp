// See embed.h. scale * code is exact in f32, so each number is rounded once by the sum and once to bf16.
#include "embed.h"

#include "simd.h"

namespace lily::cpu::LILY_ISA {

constexpr std::int64_t kItemRows = 4;

struct Lookup {
    const Linear &table;
    const std::int32_t *ids;
    std::int64_t rows;
    std::uint16_t *x;
};

static float bf16_at(const std::uint8_t *p, std::int64_t i) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, p + 2 * i, 2);
    return from_bf16(bits);
}

template <int bits> static void unpack_row(const std::uint8_t *codes, const std::uint8_t *scales,
                                           const std::uint8_t *biases, std::int64_t cols, std::uint16_t *x) {
    for (std::int64_t g = 0; g < cols / kGroup; ++g) {
        const float scale = bf16_at(scales, g), bias = bf16_at(biases, g);
        for (int i = 0; i < kGroup; ++i, ++x) {
            const unsigned byte = codes[(g * kGroup + i) * bits / 8];
            const unsigned code = bits == 8 ? byte : (byte >> (i % 2 * 4)) & 15;
            *x = to_bf16(scale * static_cast<float>(code) + bias);
        }
    }
}

static void look_up(void *context, std::int64_t item, int) {
    const Lookup &job = *static_cast<const Lookup *>(context);
    const Linear &table = job.table;
    const std::int64_t cols = table.cols, groups = cols / kGroup;
    const std::int64_t last = (item + 1) * kItemRows, end = last < job.rows ? last : job.rows;
    for (std::int64_t r = item * kItemRows; r < end; ++r) {
        const std::int64_t id = job.ids[r];
        std::uint16_t *x = job.x + r * cols;
        if (table.packing == Packing::affine4)
            unpack_row<4>(table.codes + id * cols / 2, table.scales + id * groups * 2, table.biases + id * groups * 2,
                          cols, x);
        else if (table.packing == Packing::affine8)
            unpack_row<8>(table.codes + id * cols, table.scales + id * groups * 2, table.biases + id * groups * 2, cols,
                          x);
        else
            __builtin_memcpy(x, table.codes + id * cols * 2, static_cast<std::size_t>(cols) * 2);
    }
}

void embed(Context &context, const Linear &table, const std::int32_t *ids, std::int64_t rows, std::uint16_t *x) {
    Lookup job{table, ids, rows, x};
    context.pool->run((rows + kItemRows - 1) / kItemRows, look_up, &job);
}

} // namespace lily::cpu::LILY_ISA
