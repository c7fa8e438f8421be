// The attention sublayer of an encoder: x += o(attention(norm(x))), in which a row sees all rows of its own window. It
// shares the tiles of the causal one (attention_tile.h). A row's result depends on its window only, never on the windows
// beside it in a call, nor on the number of threads.
#pragma once

#include "kernels.h"

namespace lily::cpu::LILY_ISA {

void bidirectional(Context &context, const BidirectionalArgs &args);
std::size_t bidirectional_scratch(const Limits &limits, int threads);

} // namespace lily::cpu::LILY_ISA
