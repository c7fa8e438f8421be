// The Gated DeltaNet sublayer: projections, causal convolution, norms of queries and keys, decay, and the gated norm of
// the result, around the recurrence of recurrence.h. A work item owns a head: it takes its own channels from the raw
// projections, so nothing but those and the result crosses between threads.
#include "gated_delta.h"

#include "convolution.h"
#include "exponential.h"
#include "matmul.h"
#include "norm.h"
#include "recurrence.h"
#include "scratch.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

namespace {

constexpr std::int64_t kStepRows = 64;  // rows of the state of a work item, for one row of x
constexpr std::int64_t kFewTokens = 12; // up to so many, the recurrence goes token by token
constexpr std::int64_t kFewRows = 16;   // of the state, together

struct Layout {
    std::size_t normed; // bf16 [rows, hidden]
    std::size_t raw;    // bf16 [rows, channels]: inputs of the convolution
    std::size_t z;      // bf16 [rows, value_heads * value_dim]
    std::size_t a, b;   // f32 [rows, value_heads]; later decay and beta
    std::size_t y;      // one row: f32 [value_heads * value_dim]
    std::size_t gated;  // bf16 [rows, value_heads * value_dim]: input of the output projection
    std::size_t matmul;
    std::size_t workers, worker_bytes;
    std::size_t bytes;
};

// A thread's piece.
struct WorkerLayout {
    std::size_t queries, keys, values; // f32 [kSubChunk][dim]; values hold y afterwards
    std::size_t crossed, grams, values_crossed, out_crossed, solve, mix, system, begun, left, decay, beta, rows[2];
    std::size_t bytes;
};

WorkerLayout lay_out_worker(const GatedDeltaShape &shape) {
    constexpr std::int64_t square = kSubChunk * kSubChunk * 4, line = kSubChunk * 4;
    WorkerLayout at{};
    at.queries = carve(at.bytes, line * shape.key_dim);
    at.keys = carve(at.bytes, line * shape.key_dim);
    at.values = carve(at.bytes, line * shape.value_dim);
    at.crossed = carve(at.bytes, 2 * line * shape.key_dim);
    at.grams = carve(at.bytes, 2 * square);
    at.values_crossed = carve(at.bytes, line * shape.value_dim);
    at.out_crossed = carve(at.bytes, line * shape.value_dim);
    at.solve = carve(at.bytes, square);
    at.mix = carve(at.bytes, square);
    at.system = carve(at.bytes, square);
    at.begun = carve(at.bytes, line);
    at.left = carve(at.bytes, line);
    at.decay = carve(at.bytes, line);
    at.beta = carve(at.bytes, line);
    at.rows[0] = carve(at.bytes, line * kProductRows);
    at.rows[1] = carve(at.bytes, line * kProductRows);
    return at;
}

std::int64_t channel_count(const GatedDeltaShape &shape) {
    return 2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim;
}

Layout lay_out(const GatedDeltaShape &shape, std::int64_t rows, int threads) {
    Layout at{};
    const std::int64_t width = shape.value_heads * shape.value_dim;
    at.normed = carve(at.bytes, rows * shape.hidden * 2);
    at.raw = carve(at.bytes, rows * channel_count(shape) * 2);
    at.z = carve(at.bytes, rows * width * 2);
    at.a = carve(at.bytes, rows * shape.value_heads * 4);
    at.b = carve(at.bytes, rows * shape.value_heads * 4);
    at.y = carve(at.bytes, width * 4);
    at.gated = carve(at.bytes, rows * width * 2);
    const std::size_t in = matmul_scratch(rows, shape.hidden, threads), out = matmul_scratch(rows, width, threads);
    at.matmul = carve(at.bytes, static_cast<std::int64_t>(in > out ? in : out));
    at.worker_bytes = lay_out_worker(shape).bytes;
    at.workers = carve(at.bytes, threads * static_cast<std::int64_t>(at.worker_bytes));
    return at;
}

// One call: the arguments, and its pieces of scratch by name.
struct Call {
    const GatedDeltaArgs *args;
    std::uint16_t *raw, *z, *gated;
    float *a, *b, *y;
    std::byte *workers;
    std::size_t worker_bytes;
    Convolution inputs;
    std::int64_t channels, width;
    std::int64_t group;          // value heads of a key head
    std::int64_t heads_per_item; // value heads of a work item, for several rows
    std::int64_t items;
};

struct Worker {
    float *queries, *keys, *values, *crossed, *grams, *values_crossed, *out_crossed, *decay, *beta;
    ChunkScratch chunk;
};

Worker worker_at(const Call &call, int index) {
    std::byte *base = call.workers + static_cast<std::size_t>(index) * call.worker_bytes;
    const WorkerLayout at = lay_out_worker(call.args->shape);
    Worker mine;
    mine.queries = reinterpret_cast<float *>(base + at.queries);
    mine.keys = reinterpret_cast<float *>(base + at.keys);
    mine.values = reinterpret_cast<float *>(base + at.values);
    mine.crossed = reinterpret_cast<float *>(base + at.crossed);
    mine.grams = reinterpret_cast<float *>(base + at.grams);
    mine.values_crossed = reinterpret_cast<float *>(base + at.values_crossed);
    mine.out_crossed = reinterpret_cast<float *>(base + at.out_crossed);
    mine.decay = reinterpret_cast<float *>(base + at.decay);
    mine.beta = reinterpret_cast<float *>(base + at.beta);
    mine.chunk.solve = reinterpret_cast<float *>(base + at.solve);
    mine.chunk.mix = reinterpret_cast<float *>(base + at.mix);
    mine.chunk.system = reinterpret_cast<float *>(base + at.system);
    mine.chunk.begun = reinterpret_cast<float *>(base + at.begun);
    mine.chunk.left = reinterpret_cast<float *>(base + at.left);
    mine.chunk.rows[0] = reinterpret_cast<float *>(base + at.rows[0]);
    mine.chunk.rows[1] = reinterpret_cast<float *>(base + at.rows[1]);
    return mine;
}

// Queries and keys of one key head, for rows row .. row + tokens - 1: convolved, normed, the queries scaled.
void take_keys(const Call &call, std::int64_t key_head, std::int64_t row, std::int64_t tokens, const Worker &mine) {
    const GatedDeltaShape &shape = call.args->shape;
    const std::int64_t dim = shape.key_dim, channel = key_head * dim;
    convolve(call.inputs, row, tokens, channel, dim, mine.queries);
    convolve(call.inputs, row, tokens, shape.key_heads * dim + channel, dim, mine.keys);
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
    for (std::int64_t t = 0; t < tokens; ++t) {
        normalize(mine.queries + t * dim, dim, scale);
        normalize(mine.keys + t * dim, dim, 1.0f);
    }
}

// Work item: of some rows, a becomes decay = exp(-rate * softplus(a + dt_bias)) and b becomes beta = sigmoid(b).
void gate_item(void *context, std::int64_t item, int) {
    const Call &call = *static_cast<const Call *>(context);
    const GatedDeltaArgs &args = *call.args;
    const std::int64_t heads = args.shape.value_heads;
    const std::int64_t end = (item + 1) * kSubChunk < args.rows ? (item + 1) * kSubChunk : args.rows;
    for (std::int64_t row = item * kSubChunk; row < end; ++row)
        for (std::int64_t head = 0; head < heads; head += kLanes) {
            const int n = static_cast<int>(heads - head < kLanes ? heads - head : kLanes);
            float *a = call.a + row * heads + head, *b = call.b + row * heads + head;
            const F x = add(load_n(a, n), load_n(args.dt_bias + head, n));
            const F softplus = add(max(zero(), x), log1p(exp(min(x, sub(zero(), x)))));
            store_n(a, exp(sub(zero(), mul(load_n(args.decay_rate + head, n), softplus))), n);
            store_n(b, sigmoid(load_n(b, n)), n);
        }
}

// bf16(norm(y) * head_norm * silu(z)) of one head of one row.
void gate_head(const Call &call, std::int64_t row, std::int64_t head, const float *y) {
    const GatedDeltaArgs &args = *call.args;
    const std::int64_t dim = args.shape.value_dim, at = row * call.width + head * dim;
    F squares = zero();
    for (std::int64_t d = 0; d < dim; d += kLanes)
        squares = fma(load(y + d), load(y + d), squares);
    const float mean = sum(squares) / static_cast<float>(dim);
    const F scale = set1(1.0f / __builtin_sqrtf(mean + args.shape.eps));
    for (std::int64_t d = 0; d < dim; d += kLanes) {
        const F normed = mul(mul(load(y + d), scale), load(args.head_norm + d));
        store_bf16(call.gated + at + d, mul(normed, silu(load_bf16(call.z + at + d))));
    }
}

// The item's share of the new window: the last conv_width - 1 raw inputs, those from before the call included.
void keep_window(const Call &call, std::int64_t item) {
    const GatedDeltaArgs &args = *call.args;
    const std::int64_t before = args.shape.conv_width - 1;
    const std::int64_t first = item * call.channels / call.items, end = (item + 1) * call.channels / call.items;
    for (std::int64_t i = 0; i < before; ++i) {
        const std::int64_t at = args.rows - before + i;
        const std::uint16_t *from =
            at < 0 ? args.window_in + (at + before) * call.channels : call.raw + at * call.channels;
        __builtin_memcpy(args.window_out + i * call.channels + first, from + first,
                         static_cast<std::size_t>(end - first) * 2);
    }
}

// mine.values, y of `tokens` rows of one head, to its part of `gated`.
void gate_rows(const Call &call, std::int64_t head, std::int64_t row, std::int64_t tokens, const Worker &mine) {
    const std::int64_t dim = call.args->shape.value_dim;
    for (std::int64_t t = 0; t < tokens; ++t) {
        fetch(call.z + (row + t + kRowsAhead) * call.width + head * dim, dim);
        gate_head(call, row + t, head, mine.values + t * dim);
    }
}

// Rows first .. first + count - 1 of one head's state through at most kFewTokens tokens; y to
// mine.values [tokens, count].
void step_head(const Call &call, std::int64_t head, std::int64_t row, std::int64_t tokens, std::int64_t first,
               std::int64_t count, const Worker &mine) {
    const GatedDeltaArgs &args = *call.args;
    const GatedDeltaShape &shape = args.shape;
    const std::int64_t channel = 2 * shape.key_heads * shape.key_dim + head * shape.value_dim + first;
    convolve(call.inputs, row, tokens, channel, count, mine.values);
    Step steps[kFewTokens];
    for (std::int64_t t = 0; t < tokens; ++t) {
        const float *key = mine.keys + t * shape.key_dim, *query = mine.queries + t * shape.key_dim;
        F inner = zero();
        for (std::int64_t k = 0; k < shape.key_dim; k += kLanes)
            inner = fma(load(key + k), load(query + k), inner);
        const std::int64_t gate = (row + t) * shape.value_heads + head;
        steps[t] = {key, query, shape.key_dim, call.a[gate], call.b[gate], sum(inner)};
    }
    const std::int64_t at = (head * shape.value_dim + first) * shape.key_dim;
    const float *from = (row == 0 ? args.state_in : args.state_out) + at;
    float *to = args.state_out + at;
    const bool past_caches = args.rows == 1 && reinterpret_cast<std::uintptr_t>(to) % sizeof(F) == 0;
    // A few rows stay in the first cache from the first token to the last.
    for (std::int64_t r = 0; r < count; r += kFewRows)
        for (std::int64_t t = 0; t < tokens; ++t) {
            float *y = mine.values + t * count + r;
            step_rows(steps[t], kFewRows, y, (t == 0 ? from : to) + r * shape.key_dim, to + r * shape.key_dim, y,
                      past_caches);
        }
    if (past_caches)
        stream_fence();
}

// Rows of zeros behind the tokens, up to `padded`.
void pad(float *rows, std::int64_t tokens, std::int64_t padded, std::int64_t dim) {
    __builtin_memset(rows + tokens * dim, 0, static_cast<std::size_t>((padded - tokens) * dim) * 4);
}

// One value head through one sub-chunk; y to mine.values [tokens, value_dim].
void advance_head(const Call &call, const KeyChunk &keys, std::int64_t head, std::int64_t row, const Worker &mine) {
    const GatedDeltaArgs &args = *call.args;
    const GatedDeltaShape &shape = args.shape;
    const std::int64_t dim = shape.value_dim, state = head * dim * shape.key_dim;
    convolve(call.inputs, row, keys.tokens, 2 * shape.key_heads * shape.key_dim + head * dim, dim, mine.values);
    pad(mine.values, keys.tokens, keys.padded, dim);
    cross(mine.values, dim, keys.padded, dim, mine.values_crossed, kSubChunk);
    for (std::int64_t t = 0; t < keys.padded; ++t) {
        const std::int64_t gate = (row + t) * shape.value_heads + head;
        mine.decay[t] = t < keys.tokens ? call.a[gate] : 0;
        mine.beta[t] = t < keys.tokens ? call.b[gate] : 0;
        mine.chunk.left[t] = 0;
    }
    const ValueChunk values{dim,
                            mine.values_crossed,
                            mine.decay,
                            mine.beta,
                            (row == 0 ? args.state_in : args.state_out) + state,
                            args.state_out + state,
                            mine.out_crossed};
    advance(keys, values, mine.chunk);
    cross(mine.out_crossed, kSubChunk, dim, keys.padded, mine.values, dim);
}

// What the value heads of a key head share, from its queries and keys.
KeyChunk make_key_chunk(std::int64_t tokens, std::int64_t dim, const Worker &mine) {
    KeyChunk keys;
    keys.tokens = tokens;
    keys.padded = (tokens + kProductCols - 1) / kProductCols * kProductCols;
    keys.key_dim = dim;
    keys.keys = mine.keys;
    keys.crossed = mine.crossed;
    keys.grams = mine.grams;
    pad(mine.keys, tokens, keys.padded, dim);
    pad(mine.queries, tokens, keys.padded, dim);
    cross(mine.keys, dim, keys.padded, dim, mine.crossed, 2 * kSubChunk);
    cross(mine.queries, dim, keys.padded, dim, mine.crossed + kSubChunk, 2 * kSubChunk);
    fill_grams(keys, mine.grams);
    return keys;
}

// Work item, several rows: some value heads of one key head, all rows, cut where the absolute position is a multiple of
// kSubChunk. A few tokens are cheaper one by one.
void chunk_item(void *context, std::int64_t item, int worker) {
    const Call &call = *static_cast<const Call *>(context);
    const GatedDeltaArgs &args = *call.args;
    const Worker mine = worker_at(call, worker);
    const std::int64_t first = item * call.heads_per_item, last = first + call.heads_per_item;
    keep_window(call, item);
    for (std::int64_t row = 0; row < args.rows;) {
        const std::int64_t room = kSubChunk - (args.position + row) % kSubChunk;
        const std::int64_t tokens = room < args.rows - row ? room : args.rows - row;
        take_keys(call, first / call.group, row, tokens, mine);
        KeyChunk keys{};
        if (tokens > kFewTokens)
            keys = make_key_chunk(tokens, args.shape.key_dim, mine);
        for (std::int64_t head = first; head < last; ++head) {
            if (tokens > kFewTokens)
                advance_head(call, keys, head, row, mine);
            else
                step_head(call, head, row, tokens, 0, args.shape.value_dim, mine);
            gate_rows(call, head, row, tokens, mine);
        }
        row += tokens;
    }
}

// Work item, one row: kStepRows rows of the state of one value head.
void step_item(void *context, std::int64_t item, int worker) {
    const Call &call = *static_cast<const Call *>(context);
    const Worker mine = worker_at(call, worker);
    const std::int64_t dim = call.args->shape.value_dim, blocks = call.items / call.args->shape.value_heads;
    const std::int64_t head = item / blocks, first = item % blocks * kStepRows;
    const std::int64_t rows = kStepRows < dim - first ? kStepRows : dim - first;
    keep_window(call, item);
    take_keys(call, head / call.group, 0, 1, mine);
    step_head(call, head, 0, 1, first, rows, mine);
    __builtin_memcpy(call.y + head * dim + first, mine.values, static_cast<std::size_t>(rows) * 4);
}

} // namespace

void gated_delta(Context &context, const GatedDeltaArgs &args) {
    const GatedDeltaShape &shape = args.shape;
    const int threads = context.pool->threads();
    const Layout at = lay_out(shape, args.rows, threads);
    std::byte *base = context.scratch;
    auto *normed = reinterpret_cast<std::uint16_t *>(base + at.normed);
    Call call{};
    call.args = &args;
    call.raw = reinterpret_cast<std::uint16_t *>(base + at.raw);
    call.z = reinterpret_cast<std::uint16_t *>(base + at.z);
    call.gated = reinterpret_cast<std::uint16_t *>(base + at.gated);
    call.a = reinterpret_cast<float *>(base + at.a);
    call.b = reinterpret_cast<float *>(base + at.b);
    call.y = reinterpret_cast<float *>(base + at.y);
    call.workers = base + at.workers;
    call.worker_bytes = at.worker_bytes;
    call.channels = channel_count(shape);
    call.width = shape.value_heads * shape.value_dim;
    call.inputs = {args.window_in, call.raw, args.conv, call.channels, shape.conv_width};
    call.group = shape.value_heads / shape.key_heads;

    norm(context, args.x, args.norm, shape.eps, args.rows, shape.hidden, normed);
    const Job in[] = {{&args.qkv, 0, Store::bf16, call.raw, call.channels},
                      {&args.z, 0, Store::bf16, call.z, call.width},
                      {&args.a, 0, Store::f32, call.a, shape.value_heads},
                      {&args.b, 0, Store::f32, call.b, shape.value_heads}};
    matmul(context, base + at.matmul, normed, args.rows, in, 4);
    context.pool->run((args.rows + kSubChunk - 1) / kSubChunk, gate_item, &call);
    if (args.rows > 1) {
        // Heads of a key head share its inner products, unless that leaves threads without work.
        call.heads_per_item = shape.key_heads < threads ? 1 : call.group;
        call.items = shape.value_heads / call.heads_per_item;
        context.pool->run(call.items, chunk_item, &call);
    } else {
        call.items = shape.value_heads * ((shape.value_dim + kStepRows - 1) / kStepRows);
        context.pool->run(call.items, step_item, &call);
        for (std::int64_t head = 0; head < shape.value_heads; ++head)
            gate_head(call, 0, head, call.y + head * shape.value_dim);
    }
    const Job out[] = {{&args.out, 0, Store::add_bf16, args.x, shape.hidden}};
    matmul(context, base + at.matmul, call.gated, args.rows, out, 1);
}

std::size_t gated_delta_scratch(const Limits &limits, int threads) {
    if (limits.gated_delta.value_heads == 0)
        return 0;
    return lay_out(limits.gated_delta, limits.rows, threads).bytes;
}

} // namespace lily::cpu::LILY_ISA
