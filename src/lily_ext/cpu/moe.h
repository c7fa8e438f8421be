// The mixture-of-experts sublayer of the CPU: x += sum of the chosen experts' weighted outputs + the shared expert's.
// Two or more rows are sorted by expert and go through the panels of tile.h (moe.cpp); one row streams the rows of its
// experts (moe_step.h). A row's result does not depend on the rows beside it in a call of two or more, nor on the threads.
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

void moe(Context &context, const MoeArgs &args);
std::size_t moe_scratch(const Limits &limits, int threads);

} // namespace lily::cpu::LILY_ISA
