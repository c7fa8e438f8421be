// See tile.h. Not here: what becomes of the totals, and how panels are spread over threads.
#include "tile.h"

#include "scratch.h"

namespace lily::cpu::LILY_ISA {

constexpr int kBlock = 6;
// Groups of one tile: as many as its units leave room for in a first-level cache of 32 KiB.
constexpr int kTileGroups = kPanel * kUnits * 4 > 8192 ? 1 : 2;
// From how many rows on it pays to store a tile unpacked. Below, every block unpacks it again: the wide sets do that almost
// for free, beside the multiplications, while the stores are not; the narrow ones do it once for the first block only.
constexpr std::int64_t kUnpackedRows = kLanes == 16 ? 48 : kBlock + 1;

std::size_t activations_bytes(std::int64_t rows, std::int64_t cols) {
    const std::int64_t groups = rows * (cols / kGroup);
    std::size_t bytes = 0;
    carve(bytes, groups * kUnits * 4);
    carve(bytes, groups * 4);
    return bytes;
}

Activations activations_at(std::byte *memory, std::int64_t rows, std::int64_t cols) {
    const std::int64_t groups = rows * (cols / kGroup);
    std::size_t end = 0;
    auto *units = reinterpret_cast<std::uint32_t *>(memory + carve(end, groups * kUnits * 4));
    return {units, reinterpret_cast<float *>(memory + carve(end, groups * 4)), rows};
}

void arrange_row(Packing packing, const std::uint16_t *x, std::int64_t cols, std::int64_t row, const Activations &to) {
    constexpr int step = kLanes * kUnitInputs;
    for (std::int64_t g = 0; g < cols / kGroup; ++g, x += kGroup) {
        std::uint32_t *units = to.units + (g * to.rows + row) * kUnits;
        if (packing == Packing::affine4)
            for (int i = 0; i < kGroup / step; ++i)
                order4(x + i * step, units + i * kLanes);
        else if (packing == Packing::affine8)
            for (int i = 0; i < kGroup / step; ++i)
                order8(x + i * step, units + i * kLanes);
        else
            for (int i = 0; i < kGroup / step; ++i)
                order16(x + i * step, units + i * kLanes);
        F total = zero();
        for (int i = 0; i < kGroup / kLanes; ++i)
            total = add(total, load_bf16(x + i * kLanes));
        to.sums[g * to.rows + row] = sum(total);
    }
}

Strip strip_at(const Linear &w, std::int64_t expert, std::int64_t first) {
    // A panel may reach past the matrix; it then reads the last row again.
    const std::int64_t row = first < w.rows ? first : w.rows - 1;
    const std::int64_t left = w.rows - row, at = expert * w.rows + row;
    Strip strip{w.codes + at * row_bytes(w.packing, w.cols), nullptr, nullptr,
                static_cast<int>(left < kLanes ? left : kLanes)};
    if (w.packing != Packing::bf16) {
        strip.scales = w.scales + at * (w.cols / kGroup) * 2;
        strip.biases = w.biases + at * (w.cols / kGroup) * 2;
    }
    return strip;
}

Panel panel_at(const Linear &w, std::int64_t expert, std::int64_t column) {
    Panel panel;
    panel.packing = w.packing;
    panel.cols = w.cols;
    for (int s = 0; s < kStrips; ++s)
        panel.strips[s] = strip_at(w, expert, column + s * kLanes);
    return panel;
}

std::size_t workspace_bytes(std::int64_t cols) {
    const std::size_t groups = static_cast<std::size_t>(cols / kGroup);
    return 4 * kPanel * (std::size_t{kTileGroups} * kUnits + 2 * groups + static_cast<std::size_t>(kItemRows));
}

Workspace workspace_at(std::byte *memory, std::int64_t cols) {
    const std::int64_t groups = cols / kGroup;
    float *scales = reinterpret_cast<float *>(memory) + kTileGroups * kUnits * kPanel;
    return {reinterpret_cast<std::uint32_t *>(memory), scales, scales + groups * kPanel, scales + 2 * groups * kPanel};
}

// The same words of kLanes rows, transposed: word i of each row is in out[i].
LILY_INLINE void load_columns(const std::uint8_t *words, std::int64_t stride, int rows, int count, Words *out) {
    if (rows == kLanes && count == kLanes) {
        for (int r = 0; r < kLanes; ++r)
            out[r] = load_words(words + r * stride);
    } else {
        for (int r = 0; r < kLanes; ++r)
            out[r] = load_words_n(words + (r < rows ? r : rows - 1) * stride, count);
    }
    transpose(out);
}

// Asks memory for part `part` of `parts` of the next panel, into the second-level cache. A panel is read across many rows,
// which the machine's own prefetching does not follow; asked for in the order in which it lies in memory, while there is
// a whole panel's time left, it costs nothing. Inline, because g++ takes a function that only prefetches for an empty one.
LILY_INLINE void prefetch(const std::uint8_t *from, std::int64_t bytes, std::int64_t part, std::int64_t parts) {
    const std::int64_t end = bytes * (part + 1) / parts;
    for (std::int64_t at = bytes * part / parts; at < end; at += 64)
        __builtin_prefetch(from + at, 0, 2);
}

LILY_INLINE void prefetch_panel(const Panel &panel, std::int64_t part, std::int64_t parts) {
    for (const Strip &strip : panel.strips) {
        prefetch(strip.codes, strip.rows * row_bytes(panel.packing, panel.cols), part, parts);
        if (panel.packing != Packing::bf16) {
            prefetch(strip.scales, strip.rows * (panel.cols / kGroup) * 2, part, parts);
            prefetch(strip.biases, strip.rows * (panel.cols / kGroup) * 2, part, parts);
        }
    }
}

// `groups` groups of one strip, from `group` on, into its part of the tile: words [groups * group_words, kPanel], or their
// units [groups * kUnits, kPanel].
template <Packing packing, bool unpacked>
static void fill(const Strip &strip, std::int64_t cols, std::int64_t group, int groups, std::uint32_t *tile) {
    constexpr int units = word_units(packing);
    const std::int64_t stride = row_bytes(packing, cols);
    const std::uint8_t *codes = strip.codes + group * group_words(packing) * 4;
    const int words = groups * group_words(packing);
    for (int first = 0; first < words; first += kLanes) {
        const int count = words - first < kLanes ? words - first : kLanes;
        Words columns[kLanes];
        load_columns(codes + first * 4, stride, strip.rows, count, columns);
        for (int i = 0; i < count; ++i) {
            if constexpr (unpacked)
                for (int u = 0; u < units; ++u)
                    store_unit(tile + ((first + i) * units + u) * kPanel, unit_of<packing>(columns[i], u));
            else
                store_words(tile + (first + i) * kPanel, columns[i]);
        }
    }
}

// bf16 [kLanes rows, groups] to f32 [groups, kPanel], one half of it.
static void spread(const std::uint8_t *from, int rows, std::int64_t groups, float *to) {
    const std::int64_t stride = groups * 2;
    std::int64_t g = 0;
    while (g + 1 < groups) {
        const int pairs = static_cast<int>(groups - g < 2 * kLanes ? (groups - g) / 2 : kLanes);
        Words columns[kLanes];
        load_columns(from + g * 2, stride, rows, pairs, columns);
        for (int i = 0; i < pairs; ++i, g += 2) {
            store(to + g * kPanel, low_half(columns[i]));
            store(to + (g + 1) * kPanel, high_half(columns[i]));
        }
    }
    if (g < groups)
        for (int r = 0; r < kLanes; ++r) {
            std::uint16_t bits;
            __builtin_memcpy(&bits, from + (r < rows ? r : rows - 1) * stride + g * 2, 2);
            to[g * kPanel + r] = from_bf16(bits);
        }
}

struct Block {
    const std::uint32_t *x[kBlock]; // each row's units of the first group
    const float *sums[kBlock];
    std::int64_t next_units, next_sum; // from one group to the next
    const std::uint32_t *tile;
    const float *scales, *biases;
    float *totals;
    int groups;
};

template <int rows, Packing packing, bool unpacked> static void run_block(const Block &block) {
    constexpr int units = word_units(packing);
    const std::uint32_t *tile = block.tile;
    for (int g = 0; g < block.groups; ++g) {
        const std::uint32_t *x[rows];
        float inputs[rows]; // the sum of each row's
        F dots[rows][kStrips];
        for (int m = 0; m < rows; ++m) {
            x[m] = block.x[m] + g * block.next_units;
            inputs[m] = block.sums[m][g * block.next_sum];
            for (int s = 0; s < kStrips; ++s)
                dots[m][s] = zero();
        }
        for (int word = 0; word < group_words(packing); ++word) {
#pragma GCC unroll 8
            for (int u = 0; u < units; ++u) {
                Unit w[kStrips];
                for (int s = 0; s < kStrips; ++s)
                    w[s] = unpacked ? load_unit(tile + u * kPanel + s * kLanes)
                                    : unit_of<packing>(load_words(tile + s * kLanes), u);
#pragma GCC unroll 8
                for (int m = 0; m < rows; ++m) {
                    const Unit v = set1_unit(x[m] + word * units + u);
                    for (int s = 0; s < kStrips; ++s)
                        dots[m][s] = step(dots[m][s], w[s], v);
                }
            }
            tile += unpacked ? units * kPanel : kPanel;
        }
        float *const totals = block.totals;
        const float *scales = block.scales + g * kPanel, *biases = block.biases + g * kPanel;
#pragma GCC unroll 4
        for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 8
            for (int m = 0; m < rows; ++m) {
                float *total = totals + m * kPanel + s * kLanes;
                F value = load(total);
                if constexpr (packing == Packing::bf16)
                    value = add(dots[m][s], value);
                else
                    value = fma(load(biases + s * kLanes), set1(inputs[m]),
                                fma(load(scales + s * kLanes), dots[m][s], value));
                store(total, value);
            }
        }
    }
}

using RunBlock = void (*)(const Block &);
template <Packing packing, bool unpacked> constexpr RunBlock kRunBlock[kBlock] = {
    run_block<1, packing, unpacked>, run_block<2, packing, unpacked>, run_block<3, packing, unpacked>,
    run_block<4, packing, unpacked>, run_block<5, packing, unpacked>, run_block<6, packing, unpacked>,
};

template <Packing packing, bool unpacked>
static void product(const Panel &panel, const Panel *next, const Activations &x, const std::int32_t *rows,
                    std::int64_t first, std::int64_t count, const Workspace &work) {
    const std::int64_t groups = panel.cols / kGroup;
    if constexpr (packing != Packing::bf16)
        for (int s = 0; s < kStrips; ++s) {
            const Strip &strip = panel.strips[s];
            spread(strip.scales, strip.rows, groups, work.scales + s * kLanes);
            spread(strip.biases, strip.rows, groups, work.biases + s * kLanes);
        }
    __builtin_memset(work.totals, 0, static_cast<std::size_t>(count) * kPanel * 4);

    // Blocks of nearly equal size: a short one is bound by the latency of its few accumulators.
    const std::int64_t blocks = (count + kBlock - 1) / kBlock, tiles = (groups + kTileGroups - 1) / kTileGroups;
    for (std::int64_t group = 0; group < groups; group += kTileGroups) {
        Block block;
        block.groups = static_cast<int>(groups - group < kTileGroups ? groups - group : kTileGroups);
        for (int s = 0; s < kStrips; ++s)
            fill<packing, unpacked>(panel.strips[s], panel.cols, group, block.groups, work.tile + s * kLanes);
        block.tile = work.tile;
        block.scales = work.scales + group * kPanel;
        block.biases = work.biases + group * kPanel;
        block.next_units = x.rows * kUnits;
        block.next_sum = x.rows;
        for (std::int64_t i = 0, row = 0; i < blocks; ++i) {
            const int height = static_cast<int>(count / blocks + (i < count % blocks ? 1 : 0));
            block.totals = work.totals + row * kPanel;
            for (int m = 0; m < height; ++m, ++row) {
                const std::int64_t at = group * x.rows + (rows ? rows[row] : first + row);
                block.x[m] = x.units + at * kUnits;
                block.sums[m] = x.sums + at;
            }
            if (next)
                prefetch_panel(*next, group / kTileGroups * blocks + i, tiles * blocks);
            kRunBlock<packing, unpacked>[height - 1](block);
        }
    }
}

void panel_product(const Panel &panel, const Panel *next, const Activations &x, const std::int32_t *rows,
                   std::int64_t first, std::int64_t count, const Workspace &work) {
    const bool unpacked = count >= kUnpackedRows;
    if (panel.packing == Packing::bf16)
        product<Packing::bf16, false>(panel, next, x, rows, first, count, work);
    else if (panel.packing == Packing::affine8)
        product<Packing::affine8, true>(panel, next, x, rows, first, count, work);
    else if (unpacked)
        product<Packing::affine4, true>(panel, next, x, rows, first, count, work);
    else
        product<Packing::affine4, false>(panel, next, x, rows, first, count, work);
}

} // namespace lily::cpu::LILY_ISA
