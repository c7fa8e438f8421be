// See tile.h. Not here: what becomes of the totals, and how panels are spread over threads.
#include "tile.h"

#include "dots.h"
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
    carve(bytes, groups * 4);
    return bytes;
}

Activations activations_at(std::byte *memory, Packing packing, Inputs inputs, std::int64_t rows, std::int64_t cols) {
    const std::int64_t groups = rows * (cols / kGroup);
    std::size_t end = 0;
    auto *units = reinterpret_cast<std::uint32_t *>(memory + carve(end, groups * kUnits * 4));
    auto *sums = reinterpret_cast<float *>(memory + carve(end, groups * 4));
    auto *scales = reinterpret_cast<float *>(memory + carve(end, groups * 4));
    return {units, sums, inputs == Inputs::bytes && packing != Packing::bf16 ? scales : nullptr, rows};
}

// Inputs of a group into units, as they are.
static void order_group(Packing packing, const std::uint16_t *x, std::uint32_t *units) {
    constexpr int step = kLanes * kUnitInputs;
    for (int i = 0; i < kGroup / step; ++i) {
        if (packing == Packing::affine4)
            order4(x + i * step, units + i * kLanes);
        else if (packing == Packing::affine8)
            order8(x + i * step, units + i * kLanes);
        else
            order16(x + i * step, units + i * kLanes);
    }
}

static float sum_of_group(const std::uint16_t *x) {
    F total = zero();
    for (int i = 0; i < kGroup / kLanes; ++i)
        total = add(total, load_bf16(x + i * kLanes));
    return sum(total);
}

// Inputs of a group into byte units or, where there are none, back to bf16, which holds the whole numbers; returns their
// scale. What is not finite makes the scale NaN.
static float round_group(Packing packing, const std::uint16_t *x, std::uint32_t *units, float &sum_of_rounded) {
    F peaks = zero(), nothing = zero();
    for (int i = 0; i < kGroup / kLanes; ++i) {
        const F v = load_bf16(x + i * kLanes);
        peaks = max(peaks, max(v, sub(zero(), v)));
        nothing = add(nothing, sub(v, v));
    }
    const float peak = max_lane(peaks), scale = peak / 127.0f + sum(nothing);
    const F inverse = set1(peak > 0 ? 127.0f / peak : 0.0f);
    F total = zero();
    [[maybe_unused]] std::uint16_t rounded[kGroup];
    for (int i = 0; i < kGroup / kLanes; ++i) {
        const F v = nearest(mul(load_bf16(x + i * kLanes), inverse));
        total = add(total, v);
#if defined(LILY_BYTE_UNITS)
        if (packing == Packing::affine4)
            order_bytes4(v, i, units);
        else
            order_bytes8(v, i, units);
#else
        store_bf16(rounded + i * kLanes, v);
#endif
    }
#if !defined(LILY_BYTE_UNITS)
    order_group(packing, rounded, units);
#endif
    sum_of_rounded = sum(total) * scale;
    return scale;
}

void arrange_row(Packing packing, const std::uint16_t *x, std::int64_t cols, std::int64_t row, const Activations &to) {
    for (std::int64_t g = 0; g < cols / kGroup; ++g, x += kGroup) {
        const std::int64_t at = g * to.rows + row;
        if (to.scales) {
            to.scales[at] = round_group(packing, x, to.units + at * byte_units(packing), to.sums[at]);
        } else {
            order_group(packing, x, to.units + at * kUnits);
            to.sums[at] = sum_of_group(x);
        }
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
// units [groups * kOfGroup, kPanel].
template <Packing packing, Inputs inputs, bool unpacked>
static void fill(const Strip &strip, std::int64_t cols, std::int64_t group, int groups, std::uint32_t *tile) {
    using Dot = DotsOf<packing, inputs>;
    constexpr int units = kWordUnits<packing, inputs>;
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
                    Dot::store(tile + ((first + i) * units + u) * kPanel, Dot::code(columns[i], u));
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
    const float *sums[kBlock], *x_scales[kBlock];
    std::int64_t next_units, next_sum; // from one group to the next
    const std::uint32_t *tile;
    const float *scales, *biases;
    float *totals;
    int groups;
};

template <int rows, Packing packing, Inputs inputs, bool unpacked> static void run_block(const Block &block) {
    using Dot = DotsOf<packing, inputs>;
    constexpr int units = kWordUnits<packing, inputs>, words = group_words(packing);
    constexpr int part_words = words * units <= Dot::kMostSteps ? words : Dot::kMostSteps / units;
    const std::uint32_t *tile = block.tile;
    for (int g = 0; g < block.groups; ++g) {
        const std::uint32_t *x[rows];
        typename Dot::Sum dots[rows][kStrips];
        for (int m = 0; m < rows; ++m)
            x[m] = block.x[m] + g * block.next_units;
        for (int part = 0; part < words / part_words; ++part) {
            typename Dot::Sum sums[rows][kStrips];
            for (int m = 0; m < rows; ++m) {
                sums[m][0] = Dot::start(x[m]);
                for (int s = 1; s < kStrips; ++s)
                    sums[m][s] = sums[m][0];
            }
            for (int word = part * part_words; word < (part + 1) * part_words; ++word) {
#pragma GCC unroll 8
                for (int u = 0; u < units; ++u) {
                    typename Dot::Operand w[kStrips];
                    for (int s = 0; s < kStrips; ++s)
                        w[s] = unpacked ? Dot::load(tile + u * kPanel + s * kLanes)
                                        : Dot::code(load_words(tile + s * kLanes), u);
#pragma GCC unroll 8
                    for (int m = 0; m < rows; ++m) {
                        const typename Dot::Operand v = Dot::repeat(x[m] + word * units + u);
                        for (int s = 0; s < kStrips; ++s)
                            sums[m][s] = Dot::step(sums[m][s], w[s], v);
                    }
                }
                tile += unpacked ? units * kPanel : kPanel;
            }
            for (int m = 0; m < rows; ++m)
                for (int s = 0; s < kStrips; ++s) {
                    const typename Dot::Sum whole = Dot::whole(sums[m][s]);
                    dots[m][s] = part == 0 ? whole : Dot::join(dots[m][s], whole);
                }
        }
        float *const totals = block.totals;
        const float *scales = block.scales + g * kPanel, *biases = block.biases + g * kPanel;
#pragma GCC unroll 4
        for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 8
            for (int m = 0; m < rows; ++m) {
                float *total = totals + m * kPanel + s * kLanes;
                F value = load(total), dot = Dot::value(dots[m][s]);
                if constexpr (inputs == Inputs::bytes)
                    dot = mul(dot, set1(block.x_scales[m][g * block.next_sum]));
                if constexpr (packing == Packing::bf16)
                    value = add(dot, value);
                else
                    value = fma(load(biases + s * kLanes), set1(block.sums[m][g * block.next_sum]),
                                fma(load(scales + s * kLanes), dot, value));
                store(total, value);
            }
        }
    }
}

using RunBlock = void (*)(const Block &);
template <Packing packing, Inputs inputs, bool unpacked> constexpr RunBlock kRunBlock[kBlock] = {
    run_block<1, packing, inputs, unpacked>, run_block<2, packing, inputs, unpacked>,
    run_block<3, packing, inputs, unpacked>, run_block<4, packing, inputs, unpacked>,
    run_block<5, packing, inputs, unpacked>, run_block<6, packing, inputs, unpacked>,
};

template <Packing packing, Inputs inputs, bool unpacked>
static void product(const Panel &panel, const Panel *next, const Activations &x, const std::int32_t *rows,
                    std::int64_t first, std::int64_t count, const Workspace &work) {
    constexpr int units = DotsOf<packing, inputs>::kOfGroup, tile_groups = kTileGroups * kUnits / units;
    const std::int64_t groups = panel.cols / kGroup;
    if constexpr (packing != Packing::bf16)
        for (int s = 0; s < kStrips; ++s) {
            const Strip &strip = panel.strips[s];
            spread(strip.scales, strip.rows, groups, work.scales + s * kLanes);
            spread(strip.biases, strip.rows, groups, work.biases + s * kLanes);
        }
    __builtin_memset(work.totals, 0, static_cast<std::size_t>(count) * kPanel * 4);

    // Blocks of nearly equal size: a short one is bound by the latency of its few accumulators.
    const std::int64_t blocks = (count + kBlock - 1) / kBlock, tiles = (groups + tile_groups - 1) / tile_groups;
    for (std::int64_t group = 0; group < groups; group += tile_groups) {
        Block block;
        block.groups = static_cast<int>(groups - group < tile_groups ? groups - group : tile_groups);
        for (int s = 0; s < kStrips; ++s)
            fill<packing, inputs, unpacked>(panel.strips[s], panel.cols, group, block.groups, work.tile + s * kLanes);
        block.tile = work.tile;
        block.scales = work.scales + group * kPanel;
        block.biases = work.biases + group * kPanel;
        block.next_units = x.rows * units;
        block.next_sum = x.rows;
        for (std::int64_t i = 0, row = 0; i < blocks; ++i) {
            const int height = static_cast<int>(count / blocks + (i < count % blocks ? 1 : 0));
            block.totals = work.totals + row * kPanel;
            for (int m = 0; m < height; ++m, ++row) {
                const std::int64_t at = group * x.rows + (rows ? rows[row] : first + row);
                block.x[m] = x.units + at * units;
                block.sums[m] = x.sums + at;
                if constexpr (inputs == Inputs::bytes)
                    block.x_scales[m] = x.scales + at;
            }
            if (next)
                prefetch_panel(*next, group / tile_groups * blocks + i, tiles * blocks);
            kRunBlock<packing, inputs, unpacked>[height - 1](block);
        }
    }
}

template <Inputs inputs> static void affine_product(const Panel &panel, const Panel *next, const Activations &x,
                                                    const std::int32_t *rows, std::int64_t first, std::int64_t count,
                                                    const Workspace &work) {
    if (panel.packing == Packing::affine8)
        product<Packing::affine8, inputs, true>(panel, next, x, rows, first, count, work);
    else if (count >= kUnpackedRows)
        product<Packing::affine4, inputs, true>(panel, next, x, rows, first, count, work);
    else
        product<Packing::affine4, inputs, false>(panel, next, x, rows, first, count, work);
}

void panel_product(const Panel &panel, const Panel *next, const Activations &x, const std::int32_t *rows,
                   std::int64_t first, std::int64_t count, const Workspace &work) {
    if (panel.packing == Packing::bf16)
        product<Packing::bf16, Inputs::as_they_are, false>(panel, next, x, rows, first, count, work);
    else if (x.scales)
        affine_product<Inputs::bytes>(panel, next, x, rows, first, count, work);
    else
        affine_product<Inputs::as_they_are>(panel, next, x, rows, first, count, work);
}

} // namespace lily::cpu::LILY_ISA
