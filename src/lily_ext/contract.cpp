// See contract.h.

#include "contract.h"

#include <array>
#include <initializer_list>
#include <sstream>
#include <string>

#include "error.h"

namespace lily {

namespace {

[[noreturn]] void refuse(const std::string &message) { throw Error(ErrorKind::invalid_input, message); }

const char *name_of(DType dtype) {
    switch (dtype) {
    case DType::u32:
        return "u32";
    case DType::i32:
        return "i32";
    case DType::bf16:
        return "bf16";
    case DType::f32:
        return "f32";
    }
    return "?";
}

std::string shape_text(const Tensor &tensor) {
    std::ostringstream text;
    text << name_of(tensor.dtype) << " [";
    for (int i = 0; i < tensor.rank; ++i) {
        text << (i > 0 ? ", " : "") << tensor.dims[i];
    }
    text << "]";
    return text.str();
}

void require(const std::string &what, const Tensor &tensor, DType dtype, std::initializer_list<std::int64_t> dims) {
    Tensor expected{tensor.buffer, tensor.offset, dtype, static_cast<int>(dims.size()), {1, 1, 1, 1}};
    std::int64_t elements = 1;
    int rank = 0;
    bool same = tensor.dtype == dtype && tensor.rank == expected.rank;
    for (const std::int64_t dim : dims) {
        same = same && tensor.dims[rank] == dim;
        expected.dims[rank++] = dim;
        elements *= dim;
    }
    if (!same) {
        refuse(what + " is " + shape_text(tensor) + ", expected " + shape_text(expected));
    }
    if (tensor.buffer == nullptr) {
        refuse(what + " has no memory behind it");
    }
    const std::size_t bytes = static_cast<std::size_t>(elements) * (dtype == DType::bf16 ? 2 : 4);
    if (tensor.offset > tensor.buffer->bytes() || bytes > tensor.buffer->bytes() - tensor.offset) {
        refuse(what + " needs bytes " + std::to_string(tensor.offset) + " to " + std::to_string(tensor.offset + bytes) +
               " of a buffer of " + std::to_string(tensor.buffer->bytes()));
    }
}

void require(const std::string &what, const Matrix &matrix, std::int64_t experts, std::int64_t rows,
             std::int64_t cols) {
    if (matrix.experts != experts || matrix.rows != rows || matrix.cols != cols) {
        refuse(what + " is " + std::to_string(matrix.experts) + " x [" + std::to_string(matrix.rows) + ", " +
               std::to_string(matrix.cols) + "], expected " + std::to_string(experts) + " x [" + std::to_string(rows) +
               ", " + std::to_string(cols) + "]");
    }
    if (cols % kGroup != 0) {
        refuse(what + " has " + std::to_string(cols) + " inputs, expected a multiple of 64");
    }
    const auto part = [&what](const Tensor &tensor, DType dtype, std::int64_t e, std::int64_t r, std::int64_t c) {
        if (tensor.rank == 3) {
            require(what, tensor, dtype, {e, r, c});
        } else {
            require(what, tensor, dtype, {r, c});
        }
    };
    if (matrix.packing == Packing::bf16) {
        part(matrix.codes, DType::bf16, experts, rows, cols);
        return;
    }
    part(matrix.codes, DType::u32, experts, rows, matrix.packing == Packing::affine4 ? cols / 8 : cols / 4);
    part(matrix.scales, DType::bf16, experts, rows, cols / kGroup);
    part(matrix.biases, DType::bf16, experts, rows, cols / kGroup);
}

} // namespace

void require_range(const Buffer &buffer, std::size_t offset, std::size_t bytes) {
    if (offset > buffer.bytes() || bytes > buffer.bytes() - offset) {
        refuse("bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) +
               " are not inside a buffer of " + std::to_string(buffer.bytes()));
    }
}

std::int64_t Contract::row_count(const Tensor &x, std::int64_t hidden) const {
    if (x.rank != 2 || x.dims[1] != hidden || x.dims[0] < 1 || x.dims[0] > limits_.rows) {
        refuse("x is " + shape_text(x) + ", expected 1 to " + std::to_string(limits_.rows) + " rows of " +
               std::to_string(hidden));
    }
    return x.dims[0];
}

std::int64_t Contract::embed(const EmbedWeights &weights, const Tensor &ids, const Tensor &x) const {
    const std::int64_t rows = row_count(x, weights.table.cols);
    require("embed: table", weights.table, 1, weights.table.rows, weights.table.cols);
    require("embed: ids", ids, DType::i32, {rows});
    require("embed: x", x, DType::bf16, {rows, weights.table.cols});
    return rows;
}

std::int64_t Contract::attention(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &x,
                                 const KvCache &cache, std::int64_t position) const {
    const std::int64_t rows = row_count(x, shape.hidden);
    const std::int64_t capacity = cache.keys.dims[1];
    if (position < 0 || position + rows > capacity) {
        refuse("attention: positions " + std::to_string(position) + " to " + std::to_string(position + rows) +
               " do not fit a cache of " + std::to_string(capacity));
    }
    const std::int64_t width = shape.heads * shape.head_dim;
    const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
    require("attention: norm", weights.norm, DType::f32, {shape.hidden});
    require("attention: q_norm", weights.q_norm, DType::f32, {shape.head_dim});
    require("attention: k_norm", weights.k_norm, DType::f32, {shape.head_dim});
    require("attention: q", weights.q, 1, 2 * width, shape.hidden);
    require("attention: k", weights.k, 1, kv_width, shape.hidden);
    require("attention: v", weights.v, 1, kv_width, shape.hidden);
    require("attention: o", weights.o, 1, shape.hidden, width);
    require("attention: keys", cache.keys, DType::bf16, {shape.kv_heads, capacity, shape.head_dim});
    require("attention: values", cache.values, DType::bf16, {shape.kv_heads, capacity, shape.head_dim});
    require("attention: x", x, DType::bf16, {rows, shape.hidden});
    return rows;
}

std::int64_t Contract::gated_delta(const GatedDeltaShape &shape, const GatedDeltaWeights &weights, const Tensor &x,
                                   const GatedDeltaState &from, const GatedDeltaState &to) const {
    const std::int64_t rows = row_count(x, shape.hidden);
    const std::int64_t values = shape.value_heads * shape.value_dim;
    const std::int64_t channels = 2 * shape.key_heads * shape.key_dim + values;
    const std::initializer_list<std::int64_t> state{shape.value_heads, shape.value_dim, shape.key_dim};
    const std::initializer_list<std::int64_t> window{shape.conv_width - 1, channels};
    require("gated_delta: norm", weights.norm, DType::f32, {shape.hidden});
    require("gated_delta: conv", weights.conv, DType::f32, {shape.conv_width, channels});
    require("gated_delta: decay_rate", weights.decay_rate, DType::f32, {shape.value_heads});
    require("gated_delta: dt_bias", weights.dt_bias, DType::f32, {shape.value_heads});
    require("gated_delta: head_norm", weights.head_norm, DType::f32, {shape.value_dim});
    require("gated_delta: qkv", weights.qkv, 1, channels, shape.hidden);
    require("gated_delta: z", weights.z, 1, values, shape.hidden);
    require("gated_delta: a", weights.a, 1, shape.value_heads, shape.hidden);
    require("gated_delta: b", weights.b, 1, shape.value_heads, shape.hidden);
    require("gated_delta: out", weights.out, 1, shape.hidden, values);
    require("gated_delta: state", from.state, DType::f32, state);
    require("gated_delta: new state", to.state, DType::f32, state);
    require("gated_delta: window", from.window, DType::bf16, window);
    require("gated_delta: new window", to.window, DType::bf16, window);
    require("gated_delta: x", x, DType::bf16, {rows, shape.hidden});
    const auto same = [](const Tensor &one, const Tensor &other) {
        return one.buffer == other.buffer && one.offset == other.offset;
    };
    if (same(from.state, to.state) || same(from.window, to.window)) {
        refuse("gated_delta: the old and the new state are the same memory, but a state cannot rewind");
    }
    return rows;
}

std::int64_t Contract::moe(const MoeShape &shape, const MoeWeights &weights, const Tensor &x) const {
    const std::int64_t rows = row_count(x, shape.hidden);
    if (shape.top_k < 1 || shape.top_k > shape.experts) {
        refuse("moe: top_k is " + std::to_string(shape.top_k) + ", expected 1 to " + std::to_string(shape.experts) +
               " experts");
    }
    if (weights.gate.packing != weights.up.packing || weights.shared_gate.packing != weights.shared_up.packing) {
        refuse("moe: gate and up differ in their packing, or shared_gate and shared_up do; expected it alike");
    }
    const auto [hidden, experts, width, shared] =
        std::array{shape.hidden, shape.experts, shape.width, shape.shared_width};
    require("moe: norm", weights.norm, DType::f32, {hidden});
    require("moe: router", weights.router, 1, experts, hidden);
    require("moe: gate", weights.gate, experts, width, hidden);
    require("moe: up", weights.up, experts, width, hidden);
    require("moe: down", weights.down, experts, hidden, width);
    require("moe: shared_router", weights.shared_router, 1, 1, hidden);
    require("moe: shared_gate", weights.shared_gate, 1, shared, hidden);
    require("moe: shared_up", weights.shared_up, 1, shared, hidden);
    require("moe: shared_down", weights.shared_down, 1, hidden, shared);
    require("moe: x", x, DType::bf16, {rows, hidden});
    return rows;
}

std::int64_t Contract::bidirectional(const AttentionShape &shape, const AttentionWeights &weights, const Tensor &turns,
                                     const Tensor &x, const Tensor &starts) const {
    const std::int64_t rows = row_count(x, shape.hidden);
    const std::int64_t width = shape.heads * shape.head_dim;
    const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
    require("bidirectional: norm", weights.norm, DType::f32, {shape.hidden});
    require("bidirectional: q_norm", weights.q_norm, DType::f32, {shape.head_dim});
    require("bidirectional: k_norm", weights.k_norm, DType::f32, {shape.head_dim});
    require("bidirectional: q", weights.q, 1, width, shape.hidden);
    require("bidirectional: k", weights.k, 1, kv_width, shape.hidden);
    require("bidirectional: v", weights.v, 1, kv_width, shape.hidden);
    require("bidirectional: o", weights.o, 1, shape.hidden, width);
    require("bidirectional: turns", turns, DType::f32, {turns.dims[0], shape.rotary_dim});
    require("bidirectional: starts", starts, DType::i32, {starts.dims[0]});
    require("bidirectional: x", x, DType::bf16, {rows, shape.hidden});
    return rows;
}

std::int64_t Contract::mlp(const MlpShape &shape, const MlpWeights &weights, const Tensor &x) const {
    const std::int64_t rows = row_count(x, shape.hidden);
    if (weights.gate.packing != weights.up.packing) {
        refuse("mlp: gate and up differ in their packing; expected it alike");
    }
    require("mlp: norm", weights.norm, DType::f32, {shape.hidden});
    require("mlp: gate", weights.gate, 1, shape.width, shape.hidden);
    require("mlp: up", weights.up, 1, shape.width, shape.hidden);
    require("mlp: down", weights.down, 1, shape.hidden, shape.width);
    require("mlp: x", x, DType::bf16, {rows, shape.hidden});
    return rows;
}

std::int64_t Contract::classify(const ClassifyWeights &weights, const Tensor &x, const Tensor &starts,
                                const Tensor &logits, const Tensor &sensitivity) const {
    const std::int64_t hidden = weights.norm.dims[0];
    const std::int64_t labels = weights.tags_bias.dims[0];
    const std::int64_t rows = row_count(x, hidden);
    if (hidden % kGroup != 0) {
        refuse("classify: hidden is " + std::to_string(hidden) + ", expected a multiple of 64");
    }
    require("classify: norm", weights.norm, DType::f32, {hidden});
    require("classify: tags", weights.tags, DType::f32, {labels, hidden});
    require("classify: tags_bias", weights.tags_bias, DType::f32, {labels});
    require("classify: sensitivity", weights.sensitivity, DType::f32, {1, hidden});
    require("classify: sensitivity_bias", weights.sensitivity_bias, DType::f32, {1});
    require("classify: starts", starts, DType::i32, {starts.dims[0]});
    require("classify: x", x, DType::bf16, {rows, hidden});
    require("classify: logits", logits, DType::f32, {rows, labels});
    require("classify: the scores", sensitivity, DType::f32, {starts.dims[0] - 1});
    return rows;
}

std::int64_t Contract::head(const HeadWeights &weights, const Tensor &x, const Tensor &logits,
                            const Tensor &token) const {
    const std::int64_t rows = x.dims[0];
    if (x.rank != 2 || rows < 1 || rows > limits_.head_rows) {
        refuse("head: x is " + shape_text(x) + ", expected 1 to " + std::to_string(limits_.head_rows) + " rows");
    }
    require("head: norm", weights.norm, DType::f32, {weights.table.cols});
    require("head: table", weights.table, 1, weights.table.rows, weights.table.cols);
    require("head: x", x, DType::bf16, {rows, weights.table.cols});
    require("head: logits", logits, DType::f32, {rows, weights.table.rows});
    if (token.buffer != nullptr) {
        require("head: token, of one row,", token, DType::i32, {rows == 1 ? 1 : 0});
    }
    return rows;
}

std::int64_t Contract::norm(const Tensor &x, const Tensor &weight, const Tensor &y) const {
    const std::int64_t cols = weight.dims[0];
    const std::int64_t rows = row_count(x, cols);
    require("norm: x", x, DType::bf16, {rows, cols});
    require("norm: weight", weight, DType::f32, {cols});
    require("norm: y", y, DType::bf16, {rows, cols});
    return rows;
}

std::int64_t Contract::matmul(const Tensor &x, const Matrix &w, std::int64_t expert, const Tensor &y) const {
    const std::int64_t rows = row_count(x, w.cols);
    if (expert < 0 || expert >= w.experts) {
        refuse("matmul: expert " + std::to_string(expert) + " of " + std::to_string(w.experts));
    }
    require("matmul: w", w, w.experts, w.rows, w.cols);
    require("matmul: x", x, DType::bf16, {rows, w.cols});
    require("matmul: y", y, DType::f32, {rows, w.rows});
    return rows;
}

void Contract::windows(const char *word, std::span<const std::int32_t> borders, std::int64_t rows,
                       std::int64_t longest) {
    const std::string name = std::string(word) + ": starts";
    if (borders.size() < 2 || borders.front() != 0 || borders.back() != rows) {
        refuse(name + " do not begin at 0 and end at the " + std::to_string(rows) + " rows");
    }
    for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
        const std::int64_t length = std::int64_t{borders[i + 1]} - borders[i];
        if (length < 1 || length > longest) {
            refuse(name + ": window " + std::to_string(i) + " has " + std::to_string(length) + " rows, expected 1 to " +
                   std::to_string(longest));
        }
    }
}

} // namespace lily
