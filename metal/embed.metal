// Rows of the embedding table, rounded once: scale * code is exact in float32, so only the sum and bf16 round. A thread
// makes 8 numbers.

#include "affine.h"
#include "args.h"

template <uint bits>
[[kernel]] void embed(device const uint *codes [[buffer(0)]], device const bfloat *scales [[buffer(1)]],
                      device const bfloat *biases [[buffer(2)]], device const int *ids [[buffer(3)]],
                      device bfloat *x [[buffer(4)]], constant EmbedArgs &args [[buffer(5)]],
                      uint2 position [[thread_position_in_grid]]) {
    const uint column = position.x * 8, row = position.y;
    if (column >= args.cols)
        return;
    const size_t at = size_t(ids[row]) * args.cols + column;
    device const uint *words = codes + at * bits / 32;
    device bfloat4 *out = (device bfloat4 *)(x + size_t(row) * args.cols + column);
    if (bits == 16) {
        out[0] = bfloat4(as_type<bfloat2>(words[0]), as_type<bfloat2>(words[1]));
        out[1] = bfloat4(as_type<bfloat2>(words[2]), as_type<bfloat2>(words[3]));
        return;
    }
    const float scale = float(scales[at / kGroup]), bias = float(biases[at / kGroup]);
    const uint mask = (1u << (bits & 15)) - 1;
#pragma clang loop unroll(full)
    for (uint half_of = 0; half_of < 2; ++half_of) {
        const uint word = bits == 4 ? words[0] >> (16 * half_of) : words[half_of];
        const uint4 code = uint4(word, word >> bits, word >> (2 * bits & 31), word >> (3 * bits & 31)) & mask;
        out[half_of] = bfloat4(scale * float4(code) + bias);
    }
}

template [[host_name("embed_affine4")]] [[kernel]] decltype(embed<4>) embed<4>;
template [[host_name("embed_affine8")]] [[kernel]] decltype(embed<8>) embed<8>;
template [[host_name("embed_bf16")]] [[kernel]] decltype(embed<16>) embed<16>;
