// See bidirectional.h. Every row of a window stands at the window's last position as far as the mask is concerned, so
// that the causal tile lets it see every key; only lanes past the last key are masked. Its rotation has its own place.
#include "bidirectional.h"

#include "attention_rows.h"
#include "matmul.h"
#include "norm.h"
#include "scratch.h"
#include "simd.h"

namespace lily::cpu::LILY_ISA {

namespace {

constexpr std::int64_t kKeyRows = 16; // rows of a work item that turns keys
// Rows (positions x query heads) of a work item: each packs the values of the whole window, so that few are best.
constexpr std::int64_t kItemRows = 192;

struct Layout {
    std::size_t normed;            // bf16 [rows, hidden]
    std::size_t query, key, value; // bf16, as the projections leave them
    std::size_t keys;              // bf16 [kv_heads, rows, head_dim]: normed and turned
    std::size_t mixed;             // bf16 [rows, heads * head_dim]: input of the output projection
    std::size_t items;             // i32 [windows + 1]: the first work item of each window
    std::size_t matmul;
    std::size_t workers, worker_bytes; // one piece a thread
    std::size_t bytes;
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t positions_per_item(const AttentionShape &shape) {
    const std::int64_t positions = kItemRows / (shape.heads / shape.kv_heads);
    return positions > 1 ? positions : 1;
}

TileLayout tiles_of(const AttentionShape &shape) {
    return lay_out_tiles(positions_per_item(shape) * (shape.heads / shape.kv_heads), shape.head_dim);
}

Layout lay_out(const AttentionShape &shape, std::int64_t rows, int threads) {
    Layout at{};
    const std::int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
    at.normed = carve(at.bytes, rows * shape.hidden * 2);
    at.query = carve(at.bytes, rows * width * 2);
    at.key = carve(at.bytes, rows * kv_width * 2);
    at.value = carve(at.bytes, rows * kv_width * 2);
    at.keys = carve(at.bytes, rows * kv_width * 2);
    at.mixed = carve(at.bytes, rows * width * 2);
    at.items = carve(at.bytes, (rows + 1) * 4); // a window has a row or more
    const std::size_t in = matmul_scratch(rows, shape.hidden, threads), out = matmul_scratch(rows, width, threads);
    at.matmul = carve(at.bytes, static_cast<std::int64_t>(in > out ? in : out));
    at.worker_bytes = tiles_of(shape).bytes;
    at.workers = carve(at.bytes, threads * static_cast<std::int64_t>(at.worker_bytes));
    return at;
}

// One call: the arguments, and its pieces of scratch by name.
struct Call {
    const BidirectionalArgs *args;
    std::uint16_t *query, *key, *value, *keys, *mixed;
    std::int32_t *items;
    std::byte *workers;
    std::size_t worker_bytes;
    std::int64_t group;    // query heads of a key/value head
    std::int64_t per_item; // positions of a work item
    float scale;
};

// The last window that begins at or before `place`, of places that do not fall.
std::int64_t window_of(const std::int32_t *firsts, std::int64_t windows, std::int64_t place) {
    std::int64_t low = 0, high = windows;
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        if (firsts[middle] <= place)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void turn_keys(void *context, std::int64_t item, int worker) {
    const Call &call = *static_cast<const Call *>(context);
    const BidirectionalArgs &args = *call.args;
    const AttentionShape &shape = args.shape;
    auto *turned = reinterpret_cast<float *>(call.workers + static_cast<std::size_t>(worker) * call.worker_bytes);
    const std::int64_t end = at_most((item + 1) * kKeyRows, args.rows), dim = shape.head_dim;
    std::int64_t window = window_of(args.starts, args.windows, item * kKeyRows);
    for (std::int64_t row = item * kKeyRows; row < end; ++row) {
        while (row >= args.starts[window + 1])
            ++window;
        const float *turns = args.turns + (row - args.starts[window]) * shape.rotary_dim;
        for (std::int64_t head = 0; head < shape.kv_heads; ++head)
            norm_and_turn(shape, call.key + (row * shape.kv_heads + head) * dim, args.k_norm, turns, turned,
                          call.keys + (head * args.rows + row) * dim);
    }
}

Tile tile_at(const Call &call, const TileWorker &mine, std::int64_t index, std::int64_t item_rows,
             std::int64_t length) {
    Tile tile = tile_of(mine, index, item_rows, call.args->shape.head_dim);
    tile.first = tile.last = length - 1;
    return tile;
}

// Queries of the tile, normed and turned, into its lanes. Row r of the item is query head r % group of the key/value
// head, at position first + r / group of the window that begins at row `start`.
void start_tile(const Call &call, const TileWorker &mine, const Tile &tile, std::int64_t first_row, std::int64_t start,
                std::int64_t first, std::int64_t kv_head) {
    const BidirectionalArgs &args = *call.args;
    const std::int64_t dim = args.shape.head_dim;
    clear_tile(tile, dim);
    for (std::int64_t lane = 0; lane < tile.rows; ++lane) {
        const std::int64_t position = first + (first_row + lane) / call.group;
        const std::int64_t head = kv_head * call.group + (first_row + lane) % call.group;
        norm_and_turn(args.shape, call.query + ((start + position) * args.shape.heads + head) * dim, args.q_norm,
                      args.turns + position * args.shape.rotary_dim, mine.turned, mine.packed);
        put_query(mine, tile, lane, dim);
    }
}

void finish_tile(const Call &call, const Tile &tile, std::int64_t first_row, std::int64_t row, std::int64_t kv_head) {
    const BidirectionalArgs &args = *call.args;
    const std::int64_t dim = args.shape.head_dim;
    each_result(tile, dim, [&](std::int64_t lane, std::int64_t d, F mixed) {
        const std::int64_t at = first_row + lane;
        const std::int64_t head = (row + at / call.group) * args.shape.heads + kv_head * call.group + at % call.group;
        store_bf16(call.mixed + head * dim + d, mixed);
    });
}

// Work item: per_item positions of one window, one key/value head.
void attend_item(void *context, std::int64_t item, int worker) {
    const Call &call = *static_cast<const Call *>(context);
    const BidirectionalArgs &args = *call.args;
    const std::int64_t dim = args.shape.head_dim, kv_width = args.shape.kv_heads * dim;
    const std::int64_t window = window_of(call.items, args.windows, item), within = item - call.items[window];
    const std::int64_t start = args.starts[window], length = args.starts[window + 1] - start;
    const std::int64_t kv_head = within % args.shape.kv_heads, first = within / args.shape.kv_heads * call.per_item;
    const std::int64_t rows = at_most(call.per_item, length - first) * call.group;
    const TileWorker mine =
        tile_worker(call.workers + static_cast<std::size_t>(worker) * call.worker_bytes, tiles_of(args.shape));
    for (std::int64_t i = 0; i * kTileRows < rows; ++i)
        start_tile(call, mine, tile_at(call, mine, i, rows, length), i * kTileRows, start, first, kv_head);
    const std::uint16_t *keys = call.keys + (kv_head * args.rows + start) * dim;
    const std::uint16_t *values = call.value + start * kv_width + kv_head * dim;
    for (std::int64_t key = 0; key < length; key += kKeyBlock) {
        const std::int64_t next = key + kKeyBlock;
        const KeyBlock block{
            keys + key * dim,        mine.values, key, at_most(kKeyBlock, length - key), keys + next * dim,
            values + next * kv_width};
        pack_values(values + key * kv_width, kv_width, dim, block.count, mine.values);
        for (std::int64_t i = 0; i * kTileRows < rows; ++i)
            attend(tile_at(call, mine, i, rows, length), block, dim, call.scale, mine.scratch);
    }
    for (std::int64_t i = 0; i * kTileRows < rows; ++i)
        finish_tile(call, tile_at(call, mine, i, rows, length), i * kTileRows, start + first, kv_head);
}

} // namespace

void bidirectional(Context &context, const BidirectionalArgs &args) {
    const AttentionShape &shape = args.shape;
    const Layout at = lay_out(shape, args.rows, context.pool->threads());
    std::byte *base = context.scratch;
    auto *normed = reinterpret_cast<std::uint16_t *>(base + at.normed);
    Call call{};
    call.args = &args;
    call.query = reinterpret_cast<std::uint16_t *>(base + at.query);
    call.key = reinterpret_cast<std::uint16_t *>(base + at.key);
    call.value = reinterpret_cast<std::uint16_t *>(base + at.value);
    call.keys = reinterpret_cast<std::uint16_t *>(base + at.keys);
    call.mixed = reinterpret_cast<std::uint16_t *>(base + at.mixed);
    call.items = reinterpret_cast<std::int32_t *>(base + at.items);
    call.workers = base + at.workers;
    call.worker_bytes = at.worker_bytes;
    call.group = shape.heads / shape.kv_heads;
    call.per_item = positions_per_item(shape);
    call.scale = 1.0f / __builtin_sqrtf(static_cast<float>(shape.head_dim));

    norm(context, args.x, args.norm, shape.eps, args.rows, shape.hidden, normed);
    const std::int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
    const Job in[] = {{&args.q, 0, Store::bf16, call.query, width},
                      {&args.k, 0, Store::bf16, call.key, kv_width},
                      {&args.v, 0, Store::bf16, call.value, kv_width}};
    matmul(context, base + at.matmul, normed, args.rows, in, 3);
    context.pool->run(ceil_div(args.rows, kKeyRows), turn_keys, &call);
    std::int64_t items = 0;
    for (std::int64_t window = 0; window < args.windows; ++window) {
        call.items[window] = static_cast<std::int32_t>(items);
        items += ceil_div(args.starts[window + 1] - args.starts[window], call.per_item) * shape.kv_heads;
    }
    context.pool->run(items, attend_item, &call);
    const Job out[] = {{&args.o, 0, Store::add_bf16, args.x, shape.hidden}};
    matmul(context, base + at.matmul, call.mixed, args.rows, out, 1);
}

std::size_t bidirectional_scratch(const Limits &limits, int threads) {
    return lay_out(limits.bidirectional, limits.rows, threads).bytes;
}

} // namespace lily::cpu::LILY_ISA
