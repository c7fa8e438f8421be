// Routing, shared by the two ways through the mixture of experts: from router logits to experts and weights.
#pragma once

#include "exponential.h"
#include "kernels.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

LILY_INLINE float sigmoid_of(float value) {
    float result;
    store_n(&result, sigmoid(set1(value)), 1);
    return result;
}

// Softmax over all experts, the top_k of them by logit (ties to the lowest id), their weights in falling order, scaled to
// sum to 1 where the shape says so. logits: f32 [experts], overwritten. ids and weights: [top_k].
LILY_INLINE void choose_experts(const MoeShape &shape, float *logits, std::int32_t *ids, float *weights) {
    const int experts = static_cast<int>(shape.experts), top_k = static_cast<int>(shape.top_k);
    for (int k = 0; k < top_k; ++k) { // valid whatever the logits are: NaN is never larger
        ids[k] = k;
        weights[k] = -__builtin_inff();
    }
    for (int e = 0; e < experts; ++e) {
        if (!(logits[e] > weights[top_k - 1]))
            continue;
        int k = top_k - 1;
        for (; k > 0 && logits[e] > weights[k - 1]; --k) {
            weights[k] = weights[k - 1];
            ids[k] = ids[k - 1];
        }
        weights[k] = logits[e];
        ids[k] = e;
    }
    const F most = set1(weights[0]);
    F total = zero();
    for (int e = 0; e < experts; e += kLanes) {
        const int lanes = experts - e < kLanes ? experts - e : kLanes;
        store_n(logits + e, exp(sub(load_n(logits + e, lanes), most)), lanes);
        total = add(total, load_n(logits + e, lanes));
    }
    float scale = sum(total);
    if (shape.renormalize) {
        scale = 0;
        for (int k = 0; k < top_k; ++k)
            scale += logits[ids[k]];
    }
    for (int k = 0; k < top_k; ++k)
        weights[k] = logits[ids[k]] / scale;
}

} // namespace lily::cpu::LILY_ISA
