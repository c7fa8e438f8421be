// The embedding sublayer of the CPU: rows of the table, unpacked to bf16.
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

// ids: [rows], in range; x: bf16 [rows, table.cols].
void embed(Context &context, const Linear &table, const std::int32_t *ids, std::int64_t rows, std::uint16_t *x);

} // namespace lily::cpu::LILY_ISA
