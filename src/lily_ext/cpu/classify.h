// The heads of a classifier on the CPU: final norm, then the tag logits of each row and the sensitivity of each window.
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

void classify(Context &context, const ClassifyArgs &args);
std::size_t classify_scratch(const Limits &limits);

} // namespace lily::cpu::LILY_ISA
