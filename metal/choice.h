// Which numbers are the largest, ties to the lowest id: the order of floats for head, and the choice of experts as a
// simdgroup makes it, from the router's logits to ids and weights, for moe with one row and with many.
#pragma once

#include "affine.h"

constant constexpr uint kMostExperts = 512;
constant constexpr uint kMostChosen = 32; // a lane each
constant constexpr uint kLogitsOfLane = kMostExperts / 32;

// An unsigned number that orders as the float does; 1 for NaN, which is never chosen before a number. 0 is free to mark
// what was chosen. Whole numbers, because fast arithmetic knows no NaN.
inline uint order_of(float value) {
    const uint pattern = as_type<uint>(value), size = pattern & 0x7fffffffu;
    if (size > 0x7f800000u)
        return 1;
    if (size == 0)
        return 0x80000000u; // both zeros
    return pattern >> 31 ? ~pattern : pattern | 0x80000000u;
}

struct Choice {
    uint id;      // of lane k: the expert of slot k, best first, ties to the lowest id
    float weight; // and its weight
};

// The softmax over all experts, the top_k of them by logit, scaled to sum to 1 where renormalize says so. All lanes of a
// simdgroup call it with the same logits.
inline Choice choose_experts(device const float *logits, uint experts, uint top_k, bool renormalize, uint lane) {
    uint keys[kLogitsOfLane];
#pragma clang loop unroll(full)
    for (uint i = 0; i < kLogitsOfLane; ++i) {
        const uint expert = 32 * i + lane;
        keys[i] = expert < experts ? order_of(logits[expert]) : 0;
    }
    Choice choice;
    choice.id = 0;
    for (uint k = 0; k < top_k; ++k) {
        uint best = 0;
#pragma clang loop unroll(full)
        for (uint i = 0; i < kLogitsOfLane; ++i)
            best = max(best, keys[i]);
        best = simd_max(best);
        uint id = kMostExperts;
#pragma clang loop unroll(full)
        for (uint i = 0; i < kLogitsOfLane; ++i)
            id = keys[i] == best ? min(id, 32 * i + lane) : id;
        id = simd_min(id);
#pragma clang loop unroll(full)
        for (uint i = 0; i < kLogitsOfLane; ++i)
            keys[i] = 32 * i + lane == id ? 0 : keys[i];
        choice.id = lane == k ? id : choice.id;
    }
    const float most = logits[simd_broadcast(choice.id, 0)];
    const float mine = lane < top_k ? exp(logits[choice.id] - most) : 0.0f;
    float total = mine;
    if (!renormalize) {
        total = 0;
        for (uint expert = lane; expert < experts; expert += 32)
            total += exp(logits[expert] - most);
    }
    choice.weight = mine / simd_sum(total);
    return choice;
}
