// The Gated DeltaNet sublayer of the CPU (gated delta rule, arXiv 2412.06464): x += out(norm(recurrence(norm(x))) *
// silu(z)). Two or more rows go through the recurrence in sub-chunks (recurrence.h) that are cut at absolute positions;
// one row is one pass over the state. Results do not depend on the number of threads.
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

void gated_delta(Context &context, const GatedDeltaArgs &args);
std::size_t gated_delta_scratch(const Limits &limits, int threads);

} // namespace lily::cpu::LILY_ISA
