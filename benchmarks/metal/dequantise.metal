// Affine weights of 4 bits to rounded bf16 ones in memory: the off-arm of benchmarks/metal_ideas.py, whose on-arm takes the
// codes from registers (tile.h). A thread takes the 8 codes of a word.

#include "../../metal/affine.h"

struct DequantiseArgs {
    uint words;
};

[[kernel]] void dequantise(device const uint *codes [[buffer(0)]], device const bfloat *scales [[buffer(1)]],
                           device const bfloat *biases [[buffer(2)]], device uint4 *out [[buffer(3)]],
                           constant DequantiseArgs &args [[buffer(4)]], uint word [[thread_position_in_grid]]) {
    if (word >= args.words)
        return;
    const uint code = codes[word];
    const float scale = float(scales[word / (kGroup / 8)]), bias = float(biases[word / (kGroup / 8)]);
    uint4 pairs;
#pragma clang loop unroll(full)
    for (uint i = 0; i < 4; ++i) {
        const float low = float(code >> (8 * i) & 15u), high = float(code >> (8 * i + 4) & 15u);
        pairs[i] = as_type<uint>(bfloat2(bfloat(scale * low + bias), bfloat(scale * high + bias)));
    }
    out[word] = pairs;
}
