// The dense feed-forward sublayer (SwiGLU) of the CPU: x += down(silu(gate(norm(x))) * up(norm(x))).
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

void mlp(Context &context, const MlpArgs &args);
std::size_t mlp_scratch(const Limits &limits, int threads);

} // namespace lily::cpu::LILY_ISA
