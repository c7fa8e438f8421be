// The way of one row through the mixture of experts: memory-bound, so the codes of the chosen experts are read once, in
// the order in which they lie in memory. Two passes over the threads after the router: gate and up of all chosen experts
// and the shared one, then their downs, where the weighted sum is taken lane by lane before it is added up.
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

void moe_step(Context &context, const MoeArgs &args);
std::size_t moe_step_scratch(const MoeShape &shape);

} // namespace lily::cpu::LILY_ISA
