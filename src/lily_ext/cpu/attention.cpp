// The gated attention sublayer: projections, norm and rotation of queries and keys, the cache, and the two ways through
// the softmax. The arithmetic of those is in attention_tile.h (two or more rows) and attention_step.h (one row).
#include "attention.h"

#include "attention_rows.h"
#include "attention_step.h"
#include "exponential.h"
#include "matmul.h"
#include "norm.h"
#include "scratch.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

namespace {

constexpr std::int64_t kAppendRows = 16; // rows of a work item that fills the cache
constexpr std::int64_t kItemRows = 96;   // rows (positions x query heads) of a work item of the tiles, about
constexpr std::int64_t kItemsPerThread = 3;

// Offsets into the scratch of one call.
struct Layout {
    std::size_t normed;             // bf16 [rows, hidden]
    std::size_t query, key, value;  // bf16, as the projections leave them
    std::size_t frequencies, turns; // f32 [rotary_dim / 2]; f32 [rows, rotary_dim]: cosines, then sines
    std::size_t mixed;              // bf16 [rows, heads * head_dim]: input of the output projection
    std::size_t matmul;
    std::size_t workers, worker_bytes; // one piece a thread
    std::size_t step_queries;          // one row: packed queries of all heads
    std::size_t peaks, totals, sums;   // one row: f32 [blocks, heads], the same, [blocks, heads, head_dim]
    std::size_t bytes;
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

TileLayout tiles_of(const AttentionShape &shape) {
    return lay_out_tiles(larger(kItemRows, shape.heads / shape.kv_heads), shape.head_dim);
}

Layout lay_out(const AttentionShape &shape, std::int64_t rows, std::int64_t context, int threads) {
    Layout at{};
    const std::int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
    at.normed = carve(at.bytes, rows * shape.hidden * 2);
    at.query = carve(at.bytes, rows * width * 4);
    at.key = carve(at.bytes, rows * kv_width * 2);
    at.value = carve(at.bytes, rows * kv_width * 2);
    at.frequencies = carve(at.bytes, shape.rotary_dim * 2);
    at.turns = carve(at.bytes, rows * shape.rotary_dim * 4);
    at.mixed = carve(at.bytes, rows * width * 2);
    const std::size_t in = matmul_scratch(rows, shape.hidden, threads), out = matmul_scratch(rows, width, threads);
    at.matmul = carve(at.bytes, static_cast<std::int64_t>(in > out ? in : out));
    const std::int64_t group = shape.heads / shape.kv_heads;
    if (rows > 1) {
        at.worker_bytes = tiles_of(shape).bytes;
    } else {
        const std::int64_t blocks = ceil_div(context, kStepBlock);
        at.worker_bytes = static_cast<std::size_t>(larger(group * kStepBlock, shape.head_dim) * 4); // scores, or a row
        at.step_queries = carve(at.bytes, shape.kv_heads * ceil_div(group, kLanes) * kLanes * shape.head_dim * 2);
        at.peaks = carve(at.bytes, blocks * shape.heads * 4);
        at.totals = carve(at.bytes, blocks * shape.heads * 4);
        at.sums = carve(at.bytes, blocks * shape.heads * shape.head_dim * 4);
    }
    at.workers = carve(at.bytes, threads * static_cast<std::int64_t>(at.worker_bytes));
    return at;
}

// One call: the arguments, and its pieces of scratch by name.
struct Call {
    const AttentionArgs *args;
    std::uint16_t *query, *key, *value, *mixed;
    float *frequencies, *turns;
    std::byte *workers;
    std::size_t worker_bytes;
    std::uint32_t *step_queries;
    float *peaks, *totals, *sums;
    std::int64_t group;    // query heads of a key/value head
    std::int64_t per_item; // positions of a work item of the tiles
    float scale;
};

// Work item: the cosines and sines of kAppendRows rows, and their keys and values into the cache.
void append_rows(void *context, std::int64_t item, int worker) {
    const Call &call = *static_cast<const Call *>(context);
    const AttentionArgs &args = *call.args;
    const AttentionShape &shape = args.shape;
    const std::int64_t half = shape.rotary_dim / 2, dim = shape.head_dim;
    auto *turned = reinterpret_cast<float *>(call.workers + static_cast<std::size_t>(worker) * call.worker_bytes);
    const std::int64_t end = at_most((item + 1) * kAppendRows, args.rows);
    for (std::int64_t row = item * kAppendRows; row < end; ++row) {
        float *turns = call.turns + row * shape.rotary_dim;
        const std::int64_t position = args.position + row;
        for (std::int64_t j = 0; j < half; ++j) {
            const float angle = static_cast<float>(position) * call.frequencies[j];
            turns[j] = __builtin_cosf(angle);
            turns[j + half] = __builtin_sinf(angle);
        }
        for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
            const std::int64_t from = (row * shape.kv_heads + head) * dim;
            const std::int64_t to = (head * args.capacity + position) * dim;
            norm_and_turn(shape, call.key + from, args.k_norm, turns, turned, args.keys + to);
            __builtin_memcpy(args.values + to, call.value + from, static_cast<std::size_t>(dim) * 2);
        }
    }
}

// ---- several rows

// Row r of the item is query head r % group of the key/value head, at the item's position r / group.
Tile tile_at(const Call &call, const TileWorker &mine, std::int64_t index, std::int64_t first_position,
             std::int64_t item_rows) {
    Tile tile = tile_of(mine, index, item_rows, call.args->shape.head_dim);
    const std::int64_t first = index * kTileRows;
    tile.first = first_position + first / call.group;
    tile.last = first_position + (first + tile.rows - 1) / call.group;
    return tile;
}

// Queries of the tile, normed and turned, into its lanes; no keys seen yet.
void start_tile(const Call &call, const TileWorker &mine, const Tile &tile, std::int64_t first_row,
                std::int64_t first_position, std::int64_t kv_head) {
    const AttentionArgs &args = *call.args;
    const std::int64_t dim = args.shape.head_dim;
    clear_tile(tile, dim);
    for (std::int64_t lane = 0; lane < tile.rows; ++lane) {
        const std::int64_t position = first_position + (first_row + lane) / call.group;
        const std::int64_t head = kv_head * call.group + (first_row + lane) % call.group;
        const std::int64_t row = position - args.position;
        tile.positions[lane] = static_cast<float>(position);
        norm_and_turn(args.shape, call.query + (row * args.shape.heads + head) * 2 * dim, args.q_norm,
                      call.turns + row * args.shape.rotary_dim, mine.turned, mine.packed);
        put_query(mine, tile, lane, dim);
    }
}

// The tile's rows over their sums, times sigmoid(gate), to bf16.
void finish_tile(const Call &call, const Tile &tile, std::int64_t first_row, std::int64_t first_position,
                 std::int64_t kv_head) {
    const AttentionArgs &args = *call.args;
    const std::int64_t dim = args.shape.head_dim;
    each_result(tile, dim, [&](std::int64_t lane, std::int64_t d, F mixed) {
        const std::int64_t at = first_row + lane;
        const std::int64_t row = first_position + at / call.group - args.position;
        const std::int64_t head = row * args.shape.heads + kv_head * call.group + at % call.group;
        const F gate = sigmoid(load_bf16(call.query + (2 * head + 1) * dim + d));
        store_bf16(call.mixed + head * dim + d, mul(mixed, gate));
    });
}

// Work item: one key/value head, per_item positions. The last positions come first, because they see the most keys.
void attend_item(void *context, std::int64_t item, int worker) {
    const Call &call = *static_cast<const Call *>(context);
    const AttentionArgs &args = *call.args;
    const std::int64_t dim = args.shape.head_dim, kv_head = item % args.shape.kv_heads;
    const std::int64_t chunk = ceil_div(args.rows, call.per_item) - 1 - item / args.shape.kv_heads;
    const std::int64_t count = at_most(call.per_item, args.rows - chunk * call.per_item);
    const std::int64_t first = args.position + chunk * call.per_item, rows = count * call.group;
    const TileWorker mine =
        tile_worker(call.workers + static_cast<std::size_t>(worker) * call.worker_bytes, tiles_of(args.shape));
    for (std::int64_t i = 0; i * kTileRows < rows; ++i)
        start_tile(call, mine, tile_at(call, mine, i, first, rows), i * kTileRows, first, kv_head);
    const std::uint16_t *keys = args.keys + kv_head * args.capacity * dim;
    const std::uint16_t *values = args.values + kv_head * args.capacity * dim;
    for (std::int64_t key = 0; key < first + count; key += kKeyBlock) {
        const std::int64_t next = (key + kKeyBlock) * dim;
        const KeyBlock block{keys + key * dim, mine.values,  key, at_most(kKeyBlock, first + count - key),
                             keys + next,      values + next};
        pack_values(values + key * dim, dim, dim, block.count, mine.values);
        for (std::int64_t i = 0; i * kTileRows < rows; ++i)
            attend(tile_at(call, mine, i, first, rows), block, dim, call.scale, mine.scratch);
    }
    for (std::int64_t i = 0; i * kTileRows < rows; ++i)
        finish_tile(call, tile_at(call, mine, i, first, rows), i * kTileRows, first, kv_head);
}

// Fewer positions an item where there are too few items for the threads, down to a vector of rows.
std::int64_t positions_per_item(const AttentionArgs &args, std::int64_t group, int threads) {
    std::int64_t positions = larger(1, kItemRows / group);
    while (positions > 1 && (positions / 2) * group >= kLanes &&
           ceil_div(args.rows, positions) * args.shape.kv_heads < kItemsPerThread * threads)
        positions /= 2;
    return positions;
}

// ---- one row

void step_item(void *context, std::int64_t item, int worker) {
    const Call &call = *static_cast<const Call *>(context);
    const AttentionArgs &args = *call.args;
    const std::int64_t dim = args.shape.head_dim, kv_head = item % args.shape.kv_heads;
    const std::int64_t block = item / args.shape.kv_heads, first = block * kStepBlock;
    const std::int64_t count = at_most(kStepBlock, args.position + 1 - first);
    auto *scores = reinterpret_cast<float *>(call.workers + static_cast<std::size_t>(worker) * call.worker_bytes);
    const std::uint16_t *keys = args.keys + (kv_head * args.capacity + first) * dim;
    const std::uint16_t *values = args.values + (kv_head * args.capacity + first) * dim;
    const int lanes = heads_in_lanes(call.group);
    const std::uint32_t *queries = call.step_queries + kv_head * ceil_div(call.group, kLanes) * lanes * (dim / 2);
    for (std::int64_t head = 0; head < call.group; head += kLanes, queries += lanes * (dim / 2))
        score_heads(keys, queries, lanes, dim, call.scale, at_most(kLanes, call.group - head), count, values,
                    scores + head * kStepBlock);
    const std::int64_t out = block * args.shape.heads + kv_head * call.group;
    for (std::int64_t head = 0; head < call.group; ++head)
        weigh_step(scores + head * kStepBlock, count, call.peaks + out + head, call.totals + out + head);
    mix_block(scores, values, dim, call.group, count, call.sums + out * dim);
}

void merge_item(void *context, std::int64_t head, int) {
    const Call &call = *static_cast<const Call *>(context);
    const AttentionArgs &args = *call.args;
    const std::int64_t dim = args.shape.head_dim;
    merge_blocks(call.peaks + head, call.totals + head, call.sums + head * dim, ceil_div(args.position + 1, kStepBlock),
                 args.shape.heads, dim, call.query + (2 * head + 1) * dim, call.mixed + head * dim);
}

// The row's queries, normed and turned, packed as score_step wants them. `mixed` holds them in between.
void pack_row(const Call &call) {
    const AttentionArgs &args = *call.args;
    const std::int64_t dim = args.shape.head_dim;
    auto *turned = reinterpret_cast<float *>(call.workers);
    for (std::int64_t head = 0; head < args.shape.heads; ++head)
        norm_and_turn(args.shape, call.query + 2 * head * dim, args.q_norm, call.turns, turned,
                      call.mixed + head * dim);
    const int lanes = heads_in_lanes(call.group);
    std::uint32_t *queries = call.step_queries;
    for (std::int64_t kv_head = 0; kv_head < args.shape.kv_heads; ++kv_head)
        for (std::int64_t head = 0; head < call.group; head += kLanes, queries += lanes * (dim / 2))
            pack_step_queries(call.mixed + (kv_head * call.group + head) * dim, at_most(kLanes, call.group - head),
                              lanes, dim, queries);
}

} // namespace

void attention(Context &context, const AttentionArgs &args) {
    const AttentionShape &shape = args.shape;
    const int threads = context.pool->threads();
    const Layout at = lay_out(shape, args.rows, args.position + args.rows, threads);
    std::byte *base = context.scratch;
    auto *normed = reinterpret_cast<std::uint16_t *>(base + at.normed);
    Call call{};
    call.args = &args;
    call.query = reinterpret_cast<std::uint16_t *>(base + at.query);
    call.key = reinterpret_cast<std::uint16_t *>(base + at.key);
    call.value = reinterpret_cast<std::uint16_t *>(base + at.value);
    call.mixed = reinterpret_cast<std::uint16_t *>(base + at.mixed);
    call.frequencies = reinterpret_cast<float *>(base + at.frequencies);
    call.turns = reinterpret_cast<float *>(base + at.turns);
    call.workers = base + at.workers;
    call.worker_bytes = at.worker_bytes;
    call.step_queries = reinterpret_cast<std::uint32_t *>(base + at.step_queries);
    call.peaks = reinterpret_cast<float *>(base + at.peaks);
    call.totals = reinterpret_cast<float *>(base + at.totals);
    call.sums = reinterpret_cast<float *>(base + at.sums);
    call.group = shape.heads / shape.kv_heads;
    call.per_item = positions_per_item(args, call.group, threads);
    call.scale = 1.0f / __builtin_sqrtf(static_cast<float>(shape.head_dim));

    norm(context, args.x, args.norm, shape.eps, args.rows, shape.hidden, normed);
    const std::int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
    const Job in[] = {{&args.q, 0, Store::bf16, call.query, 2 * width},
                      {&args.k, 0, Store::bf16, call.key, kv_width},
                      {&args.v, 0, Store::bf16, call.value, kv_width}};
    matmul(context, base + at.matmul, normed, args.rows, in, 3);

    for (std::int64_t j = 0; j < shape.rotary_dim / 2; ++j)
        call.frequencies[j] = static_cast<float>(__builtin_pow(
            static_cast<double>(shape.theta), -2.0 * static_cast<double>(j) / static_cast<double>(shape.rotary_dim)));
    context.pool->run(ceil_div(args.rows, kAppendRows), append_rows, &call);
    if (args.rows > 1) {
        context.pool->run(ceil_div(args.rows, call.per_item) * shape.kv_heads, attend_item, &call);
    } else {
        pack_row(call);
        context.pool->run(ceil_div(args.position + 1, kStepBlock) * shape.kv_heads, step_item, &call);
        context.pool->run(shape.heads, merge_item, &call);
    }
    const Job out[] = {{&args.o, 0, Store::add_bf16, args.x, shape.hidden}};
    matmul(context, base + at.matmul, call.mixed, args.rows, out, 1);
}

std::size_t attention_scratch(const Limits &limits, int threads) {
    if (limits.attention.heads == 0)
        return 0;
    const std::size_t tiles = lay_out(limits.attention, limits.rows, limits.context, threads).bytes;
    const std::size_t step = lay_out(limits.attention, 1, limits.context, threads).bytes;
    return tiles > step ? tiles : step;
}

} // namespace lily::cpu::LILY_ISA
