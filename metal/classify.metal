// The heads of the classifier, on the normed rows: float32 weights, small, so a threadgroup takes one row and its
// simdgroups share the labels. The score of a window is a mean over its rows; the product with its weights is
// taken row by row, as one label more, and summed afterwards.

#include "affine.h"
#include "args.h"

// tags: [labels, hidden]; logits: [rows, labels]; row_scores: [rows].
[[kernel]] void classify_rows(device const bfloat *x [[buffer(0)]], device const float *tags [[buffer(1)]],
                              device const float *tags_bias [[buffer(2)]],
                              device const float *sensitivity [[buffer(3)]], device float *logits [[buffer(4)]],
                              device float *row_scores [[buffer(5)]], constant ClassifyArgs &args [[buffer(6)]],
                              uint row [[threadgroup_position_in_grid]], uint groups [[simdgroups_per_threadgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
    const uint hidden = args.hidden;
    device const bfloat4 *from = (device const bfloat4 *)(x + size_t(row) * hidden);
    for (uint label = simdgroup; label <= args.labels; label += groups) {
        const bool score = label == args.labels;
        device const float4 *weight = (device const float4 *)(score ? sensitivity : tags + size_t(label) * hidden);
        float sum = 0;
        for (uint c = lane; c < hidden / 4; c += 32)
            sum += dot(float4(from[c]), weight[c]);
        sum = simd_sum(sum);
        if (lane == 0) {
            if (score)
                row_scores[row] = sum;
            else
                logits[size_t(row) * args.labels + label] = sum + tags_bias[label];
        }
    }
}

// A simdgroup a window: rows starts[window] .. starts[window + 1] - 1.
[[kernel]] void classify_windows(device const float *row_scores [[buffer(0)]], device const int *starts [[buffer(1)]],
                                 device const float *bias [[buffer(2)]], device float *scores [[buffer(3)]],
                                 constant ClassifyWindowsArgs &args [[buffer(4)]],
                                 uint group [[threadgroup_position_in_grid]],
                                 uint groups [[simdgroups_per_threadgroup]],
                                 uint simdgroup [[simdgroup_index_in_threadgroup]],
                                 uint lane [[thread_index_in_simdgroup]]) {
    const uint window = group * groups + simdgroup;
    if (window >= args.windows)
        return;
    const uint start = uint(starts[window]), end = uint(starts[window + 1]);
    float sum = 0;
    for (uint row = start + lane; row < end; row += 32)
        sum += row_scores[row];
    sum = simd_sum(sum);
    if (lane == 0)
        scores[window] = sum / float(end - start) + bias[0];
}
