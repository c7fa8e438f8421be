// h = silu(gate) * up, for moe and mlp: a panel holds rows of gate beside the same rows of up, so that neither product
// goes to memory. gate and up share their packing.
#pragma once

#include "exponential.h"
#include "simd.h"
#include "tile.h"

namespace lily::cpu::LILY_ISA {

constexpr int kFused = kPanel / 2; // outputs of a panel that holds gate and up

// Rows column .. column + kFused - 1 of gate beside the same rows of up.
static inline Panel fused_panel(const Linear &gate, const Linear &up, std::int64_t expert, std::int64_t column) {
    Panel panel;
    panel.packing = gate.packing;
    panel.cols = gate.cols;
    for (int s = 0; s < kStrips / 2; ++s) {
        panel.strips[s] = strip_at(gate, expert, column + s * kLanes);
        panel.strips[kStrips / 2 + s] = strip_at(up, expert, column + s * kLanes);
    }
    return panel;
}

// h[i, column ...] = silu(gate) * up, bf16, for `count` rows: rows[0 ..] of x, or `first` and those after it.
static inline void gate_and_up(const Panel &panel, const Panel *next, std::int64_t column, std::int64_t width,
                               const Activations &x, const std::int32_t *rows, std::int64_t first, std::int64_t count,
                               std::uint16_t *h, const Workspace &work) {
    for (std::int64_t done = 0; done < count; done += kItemRows) {
        const std::int64_t some = count - done < kItemRows ? count - done : kItemRows;
        panel_product(panel, next, x, rows ? rows + done : nullptr, first + done, some, work);
        for (std::int64_t r = 0; r < some; ++r)
            for (int s = 0; s < kStrips / 2; ++s) {
                const std::int64_t at = column + s * kLanes, left = width - at;
                const float *total = work.totals + r * kPanel + s * kLanes;
                if (left > 0)
                    store_bf16_n(h + (done + r) * width + at, mul(silu(load(total)), load(total + kFused)),
                                 left < kLanes ? static_cast<int>(left) : kLanes);
            }
    }
}

} // namespace lily::cpu::LILY_ISA
