// The gated delta rule for many rows, in chunks of 64 tokens (the WY form of arXiv 2406.06484 with the decay of
// 2412.06464). With c_t the product of the decays up to token t of a chunk, and r_ti = c_t / c_i for i <= t:
//   A[t,i] = beta_t r_ti k_i.k_t (i < t)        U = (I + A)^-1 diag(beta) (V - c K S0^T)
//   y_t = c_t q_t S0^T + sum over i <= t of r_ti (k_i.q_t) u_i        S = c_C S0 + sum of r_Ci u_i k_i^T
// `prepare` makes what does not depend on the state, for all chunks at once; `scan` goes through the chunks, 8 rows of
// the state a simdgroup, which hold together no more than registers. Keys and queries are kept as they leave the
// convolution, in bf16, which is exact; their lengths are factors in float32 like everything else.

#include "crossed.h"
#include "gated_delta.h"

constant constexpr uint kChunk = 64;
constant constexpr uint kChunkTiles = kChunk / 8;
constant constexpr uint kTileLoads = kChunkTiles * kChunkTiles / 2 * 32; // float4 of a 64x64 matrix of a chunk

struct Chunk {
    uint first;  // row of the call
    uint tokens; // at the most 64
};

inline Chunk chunk_at(constant GatedDeltaArgs &args, uint index) {
    const uint begin = max(index * kChunk, args.offset) - args.offset;
    const uint end = min((index + 1) * kChunk - args.offset, args.count);
    Chunk chunk;
    chunk.first = args.first + begin;
    chunk.tokens = end - begin;
    return chunk;
}

inline simdgroup_matrix<float, 8, 8> matrix_of(float2 elements) {
    simdgroup_matrix<float, 8, 8> matrix;
    matrix.thread_elements() = elements;
    return matrix;
}

inline void add_product(float2 left, thread const simdgroup_matrix<float, 8, 8> &right,
                        thread simdgroup_matrix<float, 8, 8> &sum) {
    const simdgroup_matrix<float, 8, 8> factor = matrix_of(left);
    simdgroup_multiply_accumulate(sum, factor, right, sum);
}

inline float2 product_of(float2 left, float2 right) {
    const simdgroup_matrix<float, 8, 8> factor = matrix_of(right);
    simdgroup_matrix<float, 8, 8> product = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    add_product(left, factor, product);
    return product.thread_elements();
}

// (I + a)^-1 for a strictly lower 8x8 matrix, whose eighth power is zero: (I - a) (I + a^2) (I + a^4).
inline float2 inverse_of(float2 a, float2 unit) {
    const float2 square = product_of(a, a);
    const float2 fourth = product_of(square, square);
    return product_of(product_of(unit - a, unit + square), unit + fourth);
}

// silu(convolution) of the 8 channels of a lane's load, and their squares.
inline uint4 convolve_load(device const bfloat *window, device const bfloat *raw, device const float *conv,
                           constant GatedDeltaArgs &args, uint row, uint channel, thread float &squares) {
    const float4 low = convolve<4>(window, raw, conv, args, int(row), channel);
    const float4 high = convolve<4>(window, raw, conv, args, int(row), channel + 4);
    squares += dot(low, low) + dot(high, high);
    return uint4(as_type<uint>(bfloat2(low.xy)), as_type<uint>(bfloat2(low.zw)), as_type<uint>(bfloat2(high.xy)),
                 as_type<uint>(bfloat2(high.zw)));
}

// What a token is to its chunk and one value head: what scan multiplies with.
struct Gates {
    float key;      // c times what makes the key a unit vector
    float query;    // c times the same of the query
    float kept_key; // r from the token to the chunk's end, times the same of the key
    float whole;    // c of the chunk's end
};

// A threadgroup has one chunk of one key head, a simdgroup 8 tokens of it.
template <uint K> [[kernel]] [[max_total_threads_per_threadgroup(32 * kChunkTiles)]] void
gated_delta_prepare(device const bfloat *raw [[buffer(0)]], device const bfloat *window [[buffer(1)]],
                    device const float *conv [[buffer(2)]], device const float *a [[buffer(3)]],
                    device const float *b [[buffer(4)]], device const float *decay_rate [[buffer(5)]],
                    device const float *dt_bias [[buffer(6)]], device uint4 *keys [[buffer(7)]],
                    device uint4 *crossed [[buffer(8)]], device uint4 *queries [[buffer(9)]],
                    device Gates *gates [[buffer(10)]], device float2 *solve [[buffer(11)]],
                    device float2 *mix [[buffer(12)]], device bfloat *window_out [[buffer(13)]],
                    constant GatedDeltaArgs &args [[buffer(14)]], uint2 position [[threadgroup_position_in_grid]],
                    uint2 groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    constexpr uint loads = K / 32;      // of a lane, of one row
    threadgroup uint4 pool[kTileLoads]; // the crossed keys, then A
    threadgroup float key_factor[kChunk], query_factor[kChunk], decay[kChunk], beta[kChunk];
    threadgroup float from_edge[kChunk], to_edge[kChunk]; // products of decays within the token's tile

    const Chunk chunk = chunk_at(args, position.x);
    const uint key_head = position.y, group = args.value_heads / args.key_heads;
    const uint token = 8 * simdgroup + lane_row(lane), row = chunk.first + token;
    const uint query_channel = key_head * K, key_channel = (args.key_heads + key_head) * K;
    const size_t base = (size_t(position.x) * args.key_heads + key_head) * (kChunkTiles * loads * 32);

    uint4 key[loads], query[loads];
    float key_squares = 0, query_squares = 0;
#pragma clang loop unroll(full)
    for (uint c = 0; c < loads; ++c) {
        const uint dim = 32 * c + 8 * lane_pair(lane);
        key[c] = query[c] = uint4(0);
        if (token < chunk.tokens) {
            key[c] = convolve_load(window, raw, conv, args, row, key_channel + dim, key_squares);
            query[c] = convolve_load(window, raw, conv, args, row, query_channel + dim, query_squares);
        }
        const uint at = (simdgroup * loads + c) * 32 + lane;
        keys[base + at] = key[c];
        queries[base + at] = query[c];
#pragma clang loop unroll(full)
        for (uint m = 0; m < 8; ++m) {
            const bfloat2 both = as_type<bfloat2>(key[c][m / 2]);
            ((threadgroup bfloat *)pool)[simdgroup * 8 * K + crossed_place(lane_row(lane), dim + m)] = both[m % 2];
        }
    }
    key_squares += simd_shuffle_xor(key_squares, 1);
    key_squares += simd_shuffle_xor(key_squares, 8);
    query_squares += simd_shuffle_xor(query_squares, 1);
    query_squares += simd_shuffle_xor(query_squares, 8);
    if (lane_pair(lane) == 0) {
        key_factor[token] = rsqrt(key_squares + kLengthEps);
        query_factor[token] = rsqrt(query_squares + kLengthEps) * args.query_scale;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = thread_index; i < kChunkTiles * loads * 32; i += 32 * kChunkTiles)
        crossed[base + i] = pool[i];

    // The inner products of the simdgroup's keys and queries with the keys of this tile and those before it.
    float2 key_key[kChunkTiles], query_key[kChunkTiles];
#pragma clang loop unroll(full)
    for (uint tile = 0; tile < kChunkTiles; ++tile) {
        if (tile <= simdgroup) {
            simdgroup_matrix<float, 8, 8> with_key = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            simdgroup_matrix<float, 8, 8> with_query = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#pragma clang loop unroll(full)
            for (uint c = 0; c < loads; ++c) {
                const uint4 part = pool[(tile * loads + c) * 32 + lane];
#pragma clang loop unroll(full)
                for (uint i = 0; i < 4; ++i) {
                    simdgroup_matrix<bfloat, 8, 8> left, right;
                    right.thread_elements() = as_type<bfloat2>(part[i]);
                    left.thread_elements() = as_type<bfloat2>(key[c][i]);
                    simdgroup_multiply_accumulate(with_key, left, right, with_key);
                    left.thread_elements() = as_type<bfloat2>(query[c][i]);
                    simdgroup_multiply_accumulate(with_query, left, right, with_query);
                }
            }
            key_key[tile] = with_key.thread_elements();
            query_key[tile] = with_query.thread_elements();
        }
    }

    threadgroup float2 *system = (threadgroup float2 *)pool; // A by 8x8 matrices, and in its diagonal their inverses
    const uint pair = 2 * lane_pair(lane);
    const float2 unit = float2(lane_row(lane) == pair ? 1.0f : 0.0f, lane_row(lane) == pair + 1 ? 1.0f : 0.0f);
    for (uint head = key_head * group; head < (key_head + 1) * group; ++head) {
        const size_t place = size_t(position.x) * args.value_heads + head;
        device float2 *solve_out = solve + place * (2 * kTileLoads), *mix_out = mix + place * (2 * kTileLoads);
        threadgroup_barrier(mem_flags::mem_threadgroup); // the pool and the factors are free
        if (thread_index < kChunk) {
            const bool there = thread_index < chunk.tokens;
            const size_t at = size_t(chunk.first + (there ? thread_index : 0)) * args.value_heads + head;
            decay[thread_index] = there ? decay_of(decay_rate[head], a[at] + dt_bias[head]) : 1.0f;
            beta[thread_index] = there ? sigmoid(b[at]) : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (thread_index < kChunk) {
            float from = 1, to = 1;
            for (uint t = thread_index / 8 * 8; t <= thread_index; ++t)
                from *= decay[t];
            for (uint t = thread_index + 1; t < (thread_index / 8 + 1) * 8; ++t)
                to *= decay[t];
            from_edge[thread_index] = from;
            to_edge[thread_index] = to;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (thread_index < kChunk) {
            float before = from_edge[thread_index], after = to_edge[thread_index];
            for (uint tile = 0; tile < kChunkTiles; ++tile) {
                const float whole = from_edge[8 * tile + 7];
                before *= tile < thread_index / 8 ? whole : 1.0f;
                after *= tile > thread_index / 8 ? whole : 1.0f;
            }
            Gates gate;
            gate.key = before * key_factor[thread_index];
            gate.query = before * query_factor[thread_index];
            gate.kept_key = after * key_factor[thread_index];
            gate.whole = from_edge[7];
            for (uint tile = 1; tile < kChunkTiles; ++tile)
                gate.whole *= from_edge[8 * tile + 7];
            gates[place * kChunk + thread_index] = gate;
        }

        float between = from_edge[token]; // product of the decays from the end of a tile to the token
#pragma clang loop unroll(full)
        for (uint back = 0; back < kChunkTiles; ++back) {
            const uint tile = kChunkTiles - 1 - back;
            if (tile <= simdgroup) {
                const uint column = 8 * tile + pair;
                float2 ratio = 1;
                if (tile == simdgroup) {
                    for (uint t = 8 * tile + 1; t < 8 * tile + 8; ++t) {
                        ratio.x *= t > column && t <= token ? decay[t] : 1.0f;
                        ratio.y *= t > column + 1 && t <= token ? decay[t] : 1.0f;
                    }
                } else {
                    ratio = between * float2(to_edge[column], to_edge[column + 1]);
                    between *= from_edge[8 * tile + 7];
                }
                ratio *= float2(key_factor[column], key_factor[column + 1]);
                float2 after = ratio * query_key[tile] * query_factor[token];
                float2 entry = ratio * key_key[tile] * (key_factor[token] * beta[token]);
                if (tile == simdgroup) {
                    after = float2(column <= token ? after.x : 0.0f, column + 1 <= token ? after.y : 0.0f);
                    entry = float2(column < token ? entry.x : 0.0f, column + 1 < token ? entry.y : 0.0f);
                    entry = inverse_of(entry, unit);
                }
                mix_out[((simdgroup * 4 + tile / 2) * 32 + lane) * 2 + tile % 2] = after;
                system[(simdgroup * kChunkTiles + tile) * 32 + lane] = entry;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);

        // Column `simdgroup` of the inverse, from the diagonal down.
        simdgroup_matrix<float, 8, 8> column[kChunkTiles];
#pragma clang loop unroll(full)
        for (uint tile = 0; tile < kChunkTiles; ++tile) {
            if (tile >= simdgroup) {
                const float2 diagonal = system[(tile * kChunkTiles + tile) * 32 + lane];
                simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#pragma clang loop unroll(full)
                for (uint before = 0; before < tile; ++before)
                    if (before >= simdgroup)
                        add_product(system[(tile * kChunkTiles + before) * 32 + lane], column[before], sum);
                if (tile == simdgroup)
                    column[tile] = matrix_of(diagonal);
                else
                    column[tile] = matrix_of(product_of(-diagonal, sum.thread_elements()));
                const float2 scaled =
                    column[tile].thread_elements() * float2(beta[8 * simdgroup + pair], beta[8 * simdgroup + pair + 1]);
                solve_out[((tile * 4 + simdgroup / 2) * 32 + lane) * 2 + simdgroup % 2] = scaled;
            }
        }
    }

    if (args.last != 0 && position.x + 1 == groups.x) {
        const uint dims = group * args.value_dim, value_channel = 2 * args.key_heads * K + key_head * dims;
        for (uint c = 4 * thread_index; c < 2 * K + dims; c += 128 * kChunkTiles)
            keep_window<4>(window, raw, window_out, args,
                           c < K       ? query_channel + c
                           : c < 2 * K ? key_channel + c - K
                                       : value_channel + c - 2 * K);
    }
}

constant constexpr uint kScanSimdgroups = 4;

// sum += rows of tile `tile` of a lower triangle of 8x8 matrices, times a column of them.
inline void add_triangle(device const float4 *matrix, uint tile,
                         thread const simdgroup_matrix<float, 8, 8> (&column)[kChunkTiles],
                         thread simdgroup_matrix<float, 8, 8> &sum, uint lane) {
#pragma clang loop unroll(full)
    for (uint two = 0; two <= tile / 2; ++two) {
        const float4 both = matrix[(tile * 4 + two) * 32 + lane];
        add_product(both.xy, column[2 * two], sum);
        if (2 * two + 1 <= tile)
            add_product(both.zw, column[2 * two + 1], sum);
    }
}

// A simdgroup has 8 rows of a value head's state, crossed: key dims x rows, as right factors. It needs no other one.
template <uint K> [[kernel]] [[max_total_threads_per_threadgroup(32 * kScanSimdgroups)]] void
gated_delta_scan(device const bfloat *raw [[buffer(0)]], device const bfloat *window [[buffer(1)]],
                 device const float *conv [[buffer(2)]], device const uint4 *keys [[buffer(3)]],
                 device const uint4 *crossed [[buffer(4)]], device const uint4 *queries [[buffer(5)]],
                 device const Gates *gates [[buffer(6)]], device const float4 *solve [[buffer(7)]],
                 device const float4 *mix [[buffer(8)]], device const float *state [[buffer(9)]],
                 device float *state_out [[buffer(10)]], device float *y [[buffer(11)]],
                 constant GatedDeltaArgs &args [[buffer(12)]], uint2 position [[threadgroup_position_in_grid]],
                 uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    constexpr uint loads = K / 32;
    const uint head = position.y, key_head = head / (args.value_heads / args.key_heads);
    const uint value =
        (position.x * kScanSimdgroups + simdgroup) * 8 + 2 * lane_pair(lane); // this lane's, and one more
    const uint channel = 2 * args.key_heads * K + head * args.value_dim + value;
    // Row lane_row of factor 4 c + i of the state is key dim 32 c + 2 i + dim.
    const uint dim = lane_row(lane) / 2 * 8 + lane_row(lane) % 2;
    const size_t at = (size_t(head) * args.value_dim + value) * K + dim;

    simdgroup_matrix<float, 8, 8> rows[K / 8];
#pragma clang loop unroll(full)
    for (uint f = 0; f < K / 8; ++f) {
        const size_t from = at + f / 4 * 32 + f % 4 * 2;
        rows[f] = matrix_of(float2(state[from], state[from + K]));
    }

    const uint chunks = (args.offset + args.count + kChunk - 1) / kChunk;
    for (uint index = 0; index < chunks; ++index) {
        const Chunk chunk = chunk_at(args, index);
        const size_t base = (size_t(index) * args.key_heads + key_head) * (kChunkTiles * loads * 32) + lane;
        const size_t place = size_t(index) * args.value_heads + head;
        device const Gates *gate = gates + place * kChunk + lane_row(lane);

        simdgroup_matrix<float, 8, 8> update[kChunkTiles]; // tokens x rows of the state: V - c K S^T, then U
#pragma clang loop unroll(full)
        for (uint tile = 0; tile < kChunkTiles; ++tile) {
            update[tile] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            if (8 * tile < chunk.tokens) { // the same for all lanes, as below
                simdgroup_matrix<float, 8, 8> old = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#pragma clang loop unroll(full)
                for (uint c = 0; c < loads; ++c) {
                    const uint4 key = keys[base + (tile * loads + c) * 32];
#pragma clang loop unroll(full)
                    for (uint i = 0; i < 4; ++i)
                        add_product(float2(as_type<bfloat2>(key[i])), rows[4 * c + i], old);
                }
                const uint token = 8 * tile + lane_row(lane);
                float2 wanted = 0;
                if (token < chunk.tokens)
                    wanted = convolve<2>(window, raw, conv, args, int(chunk.first + token), channel);
                update[tile].thread_elements() = wanted - gate[8 * tile].key * old.thread_elements();
            }
        }
#pragma clang loop unroll(full)
        for (uint back = 0; back < kChunkTiles; ++back) { // the last first: a tile needs those before it as they were
            const uint tile = kChunkTiles - 1 - back;
            if (8 * tile < chunk.tokens) {
                simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
                add_triangle(solve + place * kTileLoads, tile, update, sum, lane);
                update[tile] = sum;
            }
        }
#pragma clang loop unroll(full)
        for (uint tile = 0; tile < kChunkTiles; ++tile)
            if (8 * tile < chunk.tokens) {
                simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#pragma clang loop unroll(full)
                for (uint c = 0; c < loads; ++c) {
                    const uint4 query = queries[base + (tile * loads + c) * 32];
#pragma clang loop unroll(full)
                    for (uint i = 0; i < 4; ++i)
                        add_product(float2(as_type<bfloat2>(query[i])), rows[4 * c + i], sum);
                }
                sum.thread_elements() *= gate[8 * tile].query;
                add_triangle(mix + place * kTileLoads, tile, update, sum, lane);
                const float2 out = sum.thread_elements();
                const uint token = 8 * tile + lane_row(lane);
                const size_t row = chunk.first + token - args.y_first;
                if (token < chunk.tokens)
                    *(device float2 *)(y + (row * args.value_heads + head) * args.value_dim + value) = out;
            }

        const float whole = gate[0].whole;
#pragma clang loop unroll(full)
        for (uint f = 0; f < K / 8; ++f)
            rows[f].thread_elements() *= whole;
#pragma clang loop unroll(full)
        for (uint tile = 0; tile < kChunkTiles; ++tile)
            if (8 * tile < chunk.tokens) {
                update[tile].thread_elements() *= gate[8 * tile].kept_key;
#pragma clang loop unroll(full)
                for (uint c = 0; c < loads; ++c) {
                    const uint4 key = crossed[base + (tile * loads + c) * 32];
#pragma clang loop unroll(full)
                    for (uint i = 0; i < 4; ++i)
                        add_product(float2(as_type<bfloat2>(key[i])), update[tile], rows[4 * c + i]);
                }
            }
    }

#pragma clang loop unroll(full)
    for (uint f = 0; f < K / 8; ++f) {
        const size_t to = at + f / 4 * 32 + f % 4 * 2;
        const float2 out = rows[f].thread_elements();
        state_out[to] = out.x;
        state_out[to + K] = out.y;
    }
}

#define LILY_GATED_DELTA(K)                                                                                            \
    template                                                                                                           \
        [[host_name("gated_delta_prepare_" #K)]] [[kernel]] decltype(gated_delta_prepare<K>) gated_delta_prepare<K>;   \
    template [[host_name("gated_delta_scan_" #K)]] [[kernel]] decltype(gated_delta_scan<K>) gated_delta_scan<K>;

LILY_GATED_DELTA(64)
LILY_GATED_DELTA(128)
