// The two loops behind peak.h: nothing but reads, nothing but products. What they read and multiply are ones, so that the
// sum that comes out says how much was done.
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

double read_ones(const float *from, std::int64_t count);
double multiply_ones(Numbers numbers, std::int64_t rounds);

} // namespace lily::cpu::LILY_ISA
