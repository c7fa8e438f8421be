// The head of the CPU: final norm and the products with the vocabulary, as f32 logits.
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

void head(Context &context, const HeadArgs &args);
std::size_t head_scratch(const Limits &limits, int threads);

} // namespace lily::cpu::LILY_ISA
