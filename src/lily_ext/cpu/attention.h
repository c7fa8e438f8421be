// The gated attention sublayer of the CPU: x += o(attention(norm(x)) * sigmoid(gate)), keys and values appended to the
// cache. Two ways through it: two or more rows go tile by tile (attention_tile.h), one row streams the cache
// (attention_step.h). A row's result depends only on its position and the cache, never on the rows beside it in a call of
// two or more, nor on the number of threads.
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

void attention(Context &context, const AttentionArgs &args);
std::size_t attention_scratch(const Limits &limits, int threads);

} // namespace lily::cpu::LILY_ISA
