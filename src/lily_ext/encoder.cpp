// See encoder.h. The names of the tensors are those of the reference checkpoint.

#include "encoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <unistd.h>

#include "error.h"

namespace lily {

namespace {

[[noreturn]] void refuse(const std::string &message) { throw Error(ErrorKind::invalid_input, message); }

[[noreturn]] void unsupported(const std::string &message) {
    throw Error(ErrorKind::unsupported_checkpoint, message + "; expected the sizes of a bidirectional Qwen3 tagger");
}

using Count = std::int64_t EncoderConfig::*;

constexpr std::pair<const char *, Count> kCounts[] = {
    {"hidden", &EncoderConfig::hidden}, {"layers", &EncoderConfig::layers},     {"vocab", &EncoderConfig::vocab},
    {"heads", &EncoderConfig::heads},   {"kv_heads", &EncoderConfig::kv_heads}, {"head_dim", &EncoderConfig::head_dim},
    {"width", &EncoderConfig::width},   {"labels", &EncoderConfig::labels},     {"window", &EncoderConfig::window},
};

// What the kernels of every backend take.
constexpr std::int64_t kVector = 32;
constexpr std::int64_t kLargest = std::int64_t{1} << 20; // of any one size: products of three stay far from overflow

void require_sizes(const EncoderConfig &config) {
    for (const auto &[name, member] : kCounts) {
        if (config.*member < 1 || config.*member > kLargest) {
            unsupported(std::string(name) + " is " + std::to_string(config.*member) + ", not from 1 to " +
                        std::to_string(kLargest));
        }
    }
    const auto multiple = [](const std::string &what, std::int64_t size, const std::string &of, std::int64_t unit) {
        if (size % unit != 0) {
            unsupported(what + " is " + std::to_string(size) + ", not a multiple of " + of + " " +
                        std::to_string(unit));
        }
    };
    const std::string group = "the quantisation group of";
    multiple("hidden", config.hidden, group, kGroup);
    multiple("heads * head_dim", config.heads * config.head_dim, group, kGroup);
    multiple("width", config.width, group, kGroup);
    multiple("head_dim", config.head_dim, "the vectors of the kernels,", kVector);
    multiple("heads", config.heads, "kv_heads", config.kv_heads);
    if (!(config.theta > 1) || !std::isfinite(config.theta) || !(config.eps > 0) || !(config.eps < 1)) {
        unsupported("theta is " + std::to_string(config.theta) + " and eps is " + std::to_string(config.eps) +
                    ", not over 1 and between 0 and 1");
    }
}

} // namespace

EncoderConfig EncoderConfig::from(const std::map<std::string, double> &fields) {
    EncoderConfig config;
    std::map<std::string, double> rest = fields;
    const auto take = [&rest](const std::string &name) {
        const auto found = rest.find(name);
        if (found == rest.end()) {
            refuse("the encoder config has no '" + name + "'");
        }
        const double value = found->second;
        rest.erase(found);
        return value;
    };
    for (const auto &[name, member] : kCounts) {
        const double value = take(name);
        if (!(std::abs(value) < 1e15) || value != std::floor(value)) {
            refuse("the encoder config has " + std::string(name) + " = " + std::to_string(value) +
                   ", expected a whole number");
        }
        config.*member = static_cast<std::int64_t>(value);
    }
    config.theta = static_cast<float>(take("theta"));
    config.eps = static_cast<float>(take("eps"));
    if (!rest.empty()) {
        refuse("the encoder config has an unknown field '" + rest.begin()->first + "'");
    }
    require_sizes(config);
    return config;
}

namespace {

struct Layer {
    AttentionWeights attention;
    MlpWeights mlp;
};

Layer layer_of(const EncoderConfig &config, const std::string &name, WeightViews &weights) {
    const std::int64_t width = config.heads * config.head_dim;
    const std::int64_t kv_width = config.kv_heads * config.head_dim;
    const std::string at = name + "self_attn.";
    const std::string mlp = name + "mlp.";
    Layer layer{
        .attention =
            {
                .norm = weights.vector(name + "input_layernorm.weight", config.hidden),
                .q = weights.matrix(at + "q_proj", width, config.hidden, Bits::any),
                .k = weights.matrix(at + "k_proj", kv_width, config.hidden, Bits::any),
                .v = weights.matrix(at + "v_proj", kv_width, config.hidden, Bits::any),
                .o = weights.matrix(at + "o_proj", config.hidden, width, Bits::any),
                .q_norm = weights.vector(at + "q_norm.weight", config.head_dim),
                .k_norm = weights.vector(at + "k_norm.weight", config.head_dim),
            },
        .mlp =
            {
                .norm = weights.vector(name + "post_attention_layernorm.weight", config.hidden),
                .gate = weights.matrix(mlp + "gate_proj", config.width, config.hidden, Bits::any),
                .up = weights.matrix(mlp + "up_proj", config.width, config.hidden, Bits::any),
                .down = weights.matrix(mlp + "down_proj", config.hidden, config.width, Bits::any),
            },
    };
    if (layer.mlp.gate.packing != layer.mlp.up.packing) {
        throw Error(ErrorKind::unsupported_checkpoint,
                    "tensors " + mlp + "gate_proj.weight and " + mlp +
                        "up_proj.weight are packed differently, expected them alike; quantise them alike");
    }
    return layer;
}

// f32 [positions, head_dim]: cosines, then sines. The angle is an f32 by definition (docs/internals.md).
std::vector<float> turns_of(const EncoderConfig &config, std::int64_t positions) {
    const std::int64_t half = config.head_dim / 2;
    std::vector<float> turns(static_cast<std::size_t>(positions * config.head_dim));
    for (std::int64_t j = 0; j < half; ++j) {
        const auto frequency = static_cast<float>(std::pow(
            static_cast<double>(config.theta), -2.0 * static_cast<double>(j) / static_cast<double>(config.head_dim)));
        for (std::int64_t position = 0; position < positions; ++position) {
            const float angle = static_cast<float>(position) * frequency;
            float *row = turns.data() + position * config.head_dim;
            row[j] = std::cos(angle);
            row[j + half] = std::sin(angle);
        }
    }
    return turns;
}

Limits limits_of(const EncoderConfig &config, std::int64_t rows) {
    return {
        .rows = rows,
        .hidden = config.hidden,
        .vocab = config.vocab,
        .bidirectional = config.attention(),
        .mlp = config.mlp(),
        .labels = config.labels,
        .byte_inputs = true,
    };
}

} // namespace

// What close() frees.
struct Encoder::State {
    State(std::shared_ptr<Backend> device, std::shared_ptr<const Weights> weights, const EncoderConfig &config,
          std::int64_t rows)
        : backend(std::move(device)), views(std::move(weights), *backend),
          arena(*backend, "the activations of the encoder", std::size_t{1} << 16) {
        const std::string model = "backbone.";
        embed.table = views.matrix(model + "embed_tokens", config.vocab, config.hidden, Bits::any);
        for (std::int64_t i = 0; i < config.layers; ++i) {
            layers.push_back(layer_of(config, model + "layers." + std::to_string(i) + ".", views));
        }
        heads.norm = views.vector(model + "norm.weight", config.hidden);
        heads.tags = views.dense("token_cls_head.weight", config.labels, config.hidden);
        heads.tags_bias = views.vector("token_cls_head.bias", config.labels);
        heads.sensitivity = views.dense("sensitivity_head.weight", 1, config.hidden);
        heads.sensitivity_bias = views.vector("sensitivity_head.bias", 1);
        heads.eps = config.eps;
        views.require_all_used("the tensors of a bidirectional Qwen3 tagger with a token and a sensitivity head");
        ids = arena.take(DType::i32, {rows});
        starts = arena.take(DType::i32, {rows + 1});
        x = arena.take(DType::bf16, {rows, config.hidden});
        logits = arena.take(DType::f32, {rows, config.labels});
        sensitivity = arena.take(DType::f32, {rows});
        const std::int64_t positions = std::min(rows, config.window);
        turns = arena.take(DType::f32, {positions, config.head_dim});
        const std::vector<float> angles = turns_of(config, positions);
        backend->write(*turns.buffer, turns.offset, std::as_bytes(std::span(angles)));
    }

    std::shared_ptr<Backend> backend;
    WeightViews views;
    Arena arena;
    EmbedWeights embed;
    std::vector<Layer> layers;
    ClassifyWeights heads;
    Tensor ids, starts, x, logits, sensitivity, turns;
};

Encoder::Encoder(std::shared_ptr<Backend> backend, std::shared_ptr<const Weights> weights, const EncoderConfig &config,
                 std::int64_t max_rows)
    : config_(config), max_rows_(max_rows), device_name_(backend->name()), owner_(getpid()) {
    if (max_rows < config.window || max_rows > kLargest) {
        refuse("max_rows is " + std::to_string(max_rows) + ", expected at least a window of " +
               std::to_string(config.window) + " tokens, at most " + std::to_string(kLargest));
    }
    state_ = std::make_unique<State>(backend, std::move(weights), config_, max_rows_);
    backend->reserve(limits_of(config_, max_rows_));
}

Encoder::~Encoder() {
    if (getpid() != owner_) {
        static_cast<void>(state_.release()); // the device belongs to the parent process
    }
}

std::unique_lock<std::mutex> Encoder::enter() {
    if (getpid() != owner_) {
        throw Error(ErrorKind::device, "the encoder was loaded in process " + std::to_string(owner_) +
                                           " and its threads stayed there; load it again in this process");
    }
    std::unique_lock lock(mutex_);
    if (state_ == nullptr) {
        refuse("the encoder is closed; load it again");
    }
    return lock;
}

void Encoder::close() {
    if (getpid() != owner_) {
        return;
    }
    std::unique_ptr<State> last;
    const std::lock_guard lock(mutex_);
    last = std::move(state_);
}

std::map<std::string, std::size_t> Encoder::memory() {
    const auto lock = enter();
    return {{"weights_mapped", state_->views.mapped_bytes()},
            {"weights_copied", state_->views.copied_bytes()},
            {"weights_converted", state_->views.converted_bytes()},
            {"scratch", state_->backend->scratch_bytes() + state_->arena.bytes()}};
}

void Encoder::require_windows(std::span<const std::int32_t> ids, std::span<const std::int32_t> lengths) const {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        if (lengths[i] < 1 || lengths[i] > config_.window) {
            refuse("window " + std::to_string(i) + " has " + std::to_string(lengths[i]) + " tokens, expected 1 to " +
                   std::to_string(config_.window));
        }
        total += lengths[i];
    }
    if (total != static_cast<std::int64_t>(ids.size())) {
        refuse("the windows have " + std::to_string(total) + " tokens together, expected the " +
               std::to_string(ids.size()) + " ids");
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= config_.vocab) {
            refuse("token " + std::to_string(i) + " is " + std::to_string(ids[i]) + ", expected an id from 0 to " +
                   std::to_string(config_.vocab - 1));
        }
    }
}

// The windows of one pass; starts count from its first row.
void Encoder::run(std::span<const std::int32_t> ids, std::span<const std::int32_t> starts, float *logits,
                  float *sensitivity) {
    State &state = *state_;
    Backend &backend = *state.backend;
    const auto rows = static_cast<std::int64_t>(ids.size());
    const auto windows = static_cast<std::int64_t>(starts.size()) - 1;
    const auto cut = [](Tensor tensor, std::int64_t count) {
        tensor.dims[0] = count;
        return tensor;
    };
    const Tensor borders = cut(state.starts, windows + 1);
    const Tensor tokens = cut(state.ids, rows);
    const Tensor x = cut(state.x, rows);
    const Tensor tags = cut(state.logits, rows);
    const Tensor scores = cut(state.sensitivity, windows);
    backend.write(*tokens.buffer, tokens.offset, std::as_bytes(ids));
    backend.write(*borders.buffer, borders.offset, std::as_bytes(starts));
    backend.begin();
    backend.embed(state.embed, tokens, x);
    for (const Layer &layer : state.layers) {
        backend.bidirectional(config_.attention(), layer.attention, state.turns, x, borders);
        backend.mlp(config_.mlp(), layer.mlp, x);
    }
    backend.classify(state.heads, x, borders, tags, scores);
    backend.commit();
    backend.wait(0);
    backend.read(*tags.buffer, tags.offset,
                 std::as_writable_bytes(std::span(logits, static_cast<std::size_t>(rows * config_.labels))));
    backend.read(*scores.buffer, scores.offset,
                 std::as_writable_bytes(std::span(sensitivity, static_cast<std::size_t>(windows))));
}

Classification Encoder::classify(std::span<const std::int32_t> ids, std::span<const std::int32_t> lengths) {
    require_windows(ids, lengths);
    Classification result;
    result.logits.resize(ids.size() * static_cast<std::size_t>(config_.labels));
    result.sensitivity.resize(lengths.size());
    const auto lock = enter();
    std::size_t row = 0;
    for (std::size_t window = 0; window < lengths.size();) {
        // As many windows as fit.
        const std::size_t first = window;
        std::vector<std::int32_t> starts{0};
        while (window < lengths.size() && starts.back() + lengths[window] <= max_rows_) {
            starts.push_back(starts.back() + lengths[window++]);
        }
        const auto rows = static_cast<std::size_t>(starts.back());
        run(ids.subspan(row, rows), starts, result.logits.data() + row * static_cast<std::size_t>(config_.labels),
            result.sensitivity.data() + first);
        row += rows;
    }
    const auto bad =
        std::find_if(result.logits.begin(), result.logits.end(), [](float v) { return !std::isfinite(v); });
    if (bad != result.logits.end()) {
        throw Error(ErrorKind::numerical,
                    "the logits of token " + std::to_string((bad - result.logits.begin()) / config_.labels) + " hold " +
                        std::to_string(*bad) + ", expected finite numbers; check the weights");
    }
    return result;
}

} // namespace lily
