// RMSNorm of the rows of a prompt: a simdgroup a row, which it reads twice (the second time from a cache). Decoding has
// no such kernel: there the norm is part of whatever reads its result.

#include "affine.h"
#include "args.h"

[[kernel]] void norm(device const bfloat *x [[buffer(0)]], device const float *gain [[buffer(1)]],
                     device bfloat *y [[buffer(2)]], constant NormArgs &args [[buffer(3)]],
                     uint group [[threadgroup_position_in_grid]], uint groups [[simdgroups_per_threadgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint row = group * groups + simdgroup, cols = args.cols;
    if (row >= args.rows) // the same for the whole simdgroup
        return;
    x += size_t(row) * cols;
    y += size_t(row) * cols;
    const bool wide = cols % 4 == 0;
    device const bfloat4 *wide_x = (device const bfloat4 *)x;
    float squares = 0;
    if (wide) {
        for (uint c = lane; c < cols / 4; c += 32) {
            const float4 value = float4(wide_x[c]);
            squares += dot(value, value);
        }
    } else {
        for (uint c = lane; c < cols; c += 32)
            squares += float(x[c]) * float(x[c]);
    }
    const float scale = rsqrt(simd_sum(squares) / float(cols) + args.eps);
    if (wide) {
        for (uint c = lane; c < cols / 4; c += 32)
            ((device bfloat4 *)y)[c] = bfloat4(float4(wide_x[c]) * scale * ((device const float4 *)gain)[c]);
    } else {
        for (uint c = lane; c < cols; c += 32)
            y[c] = bfloat(float(x[c]) * scale * gain[c]);
    }
}
