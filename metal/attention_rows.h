// What stands in front of a softmax: queries and keys are normed per head and turned (RoPE), and queries are laid out as
// the right factor of 8x8 products wants them (attention_tile.h). One simdgroup takes one head of one row.
#pragma once

#include "affine.h"
#include "crossed.h"

constant constexpr uint kPrepareSimdgroups = 4;

// turns: cosines, then sines, of the angles at a position. The angle is one rounded product; `precise` reduces it well
// even after 40,000 turns. Threads of one threadgroup; a barrier has to follow.
inline void fill_turns(constant const float *frequencies, uint pairs, uint position, threadgroup float *turns,
                       uint thread_index) {
    if (thread_index < pairs) {
        const float angle = float(position) * frequencies[thread_index];
        turns[thread_index] = precise::cos(angle);
        turns[pairs + thread_index] = precise::sin(angle);
    }
}

// turned = norm(x) * gain with the first 2 pairs dims turned, in float32. All lanes read it afterwards.
template <uint D> inline void norm_and_turn(device const bfloat *x, device const float *gain, float eps, uint pairs,
                                            threadgroup const float *turns, threadgroup float *turned, uint lane) {
    float2 values[D / 64];
    float squares = 0;
#pragma clang loop unroll(full)
    for (uint k = 0; k < D / 64; ++k) {
        values[k] = float2(((device const bfloat2 *)x)[32 * k + lane]);
        squares += dot(values[k], values[k]);
    }
    const float scale = rsqrt(simd_sum(squares) / float(D) + eps);
    simdgroup_barrier(mem_flags::mem_threadgroup); // whoever read the row before this one is done
#pragma clang loop unroll(full)
    for (uint k = 0; k < D / 64; ++k)
        ((threadgroup float2 *)turned)[32 * k + lane] =
            values[k] * scale * ((device const float2 *)gain)[32 * k + lane];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = lane; j < pairs; j += 32) {
        const float a = turned[j], b = turned[pairs + j], cosine = turns[j], sine = turns[pairs + j];
        turned[j] = a * cosine - b * sine;
        turned[pairs + j] = b * cosine + a * sine;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

// The heads of one row: queries to their tiles of 8, keys and values to place `to` of theirs. With `local` the row's number
// among those that are packed together, row local * group + head in group of its key/value head is the query's.
// queries: [kv_heads][tiles][8 * D], of which the first tile is the first of those rows.
template <uint D>
inline void prepare_heads(device const bfloat *query, uint query_stride, device const bfloat *key,
                          device const bfloat *value, device const float *q_norm, device const float *k_norm,
                          device bfloat *queries, device bfloat *keys, device bfloat *values, uint heads, uint kv_heads,
                          uint tiles, uint row, uint local, uint to, uint capacity, float eps, uint pairs,
                          threadgroup const float *turns, threadgroup float *turned, uint simdgroup, uint lane) {
    const uint group = heads / kv_heads;
    for (uint head = simdgroup; head < heads + 2 * kv_heads; head += kPrepareSimdgroups) {
        if (head < heads) {
            norm_and_turn<D>(query + (size_t(row) * heads + head) * query_stride, q_norm, eps, pairs, turns, turned,
                             lane);
            const uint packed = local * group + head % group;
            device bfloat *tile = queries + (size_t(head / group) * tiles + packed / 8) * (8 * D);
            for (uint d = lane; d < D; d += 32)
                tile[crossed_place(packed % 8, d)] = bfloat(turned[d]);
        } else if (head < heads + kv_heads) {
            const uint kv_head = head - heads;
            norm_and_turn<D>(key + (size_t(row) * kv_heads + kv_head) * D, k_norm, eps, pairs, turns, turned, lane);
            device bfloat *place = keys + (size_t(kv_head) * capacity + to) * D;
            for (uint d = lane; d < D; d += 32)
                place[d] = bfloat(turned[d]);
        } else {
            const uint kv_head = head - heads - kv_heads;
            device const bfloat *from = value + (size_t(row) * kv_heads + kv_head) * D;
            device bfloat *place = values + (size_t(kv_head) * capacity + to) * D;
            for (uint d = lane; d < D; d += 32)
                place[d] = from[d];
        }
    }
}
