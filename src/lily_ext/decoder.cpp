// See decoder.h. The names of the tensors are those that mlx_lm.convert writes.

#include "decoder.h"

#include <cmath>
#include <functional>
#include <utility>

#include "error.h"

namespace lily {

namespace {

[[noreturn]] void unsupported(const std::string &message) {
    throw Error(ErrorKind::unsupported_checkpoint, message + "; expected the sizes of a Qwen3.5/3.6 MoE model");
}

using Count = std::int64_t DecoderConfig::*;

constexpr std::pair<const char *, Count> kCounts[] = {
    {"hidden", &DecoderConfig::hidden},
    {"layers", &DecoderConfig::layers},
    {"vocab", &DecoderConfig::vocab},
    {"attention_every", &DecoderConfig::attention_every},
    {"heads", &DecoderConfig::heads},
    {"kv_heads", &DecoderConfig::kv_heads},
    {"head_dim", &DecoderConfig::head_dim},
    {"rotary_dim", &DecoderConfig::rotary_dim},
    {"key_heads", &DecoderConfig::key_heads},
    {"value_heads", &DecoderConfig::value_heads},
    {"key_dim", &DecoderConfig::key_dim},
    {"value_dim", &DecoderConfig::value_dim},
    {"conv_width", &DecoderConfig::conv_width},
    {"experts", &DecoderConfig::experts},
    {"top_k", &DecoderConfig::top_k},
    {"width", &DecoderConfig::width},
    {"shared_width", &DecoderConfig::shared_width},
};

// What the kernels of every backend take.
constexpr std::int64_t kVector = 32;
constexpr std::int64_t kMostTaps = 8;
constexpr std::int64_t kLargest = std::int64_t{1} << 24; // of any one size: products of three stay far from overflow

void require_sizes(const DecoderConfig &config) {
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
    multiple("value_heads * value_dim", config.value_heads * config.value_dim, group, kGroup);
    multiple("width", config.width, group, kGroup);
    multiple("shared_width", config.shared_width, group, kGroup);
    const std::string vector = "the vectors of the kernels,";
    multiple("head_dim", config.head_dim, vector, kVector);
    multiple("key_dim", config.key_dim, vector, kVector);
    multiple("value_dim", config.value_dim, vector, kVector);
    multiple("heads", config.heads, "kv_heads", config.kv_heads);
    multiple("value_heads", config.value_heads, "key_heads", config.key_heads);
    multiple("rotary_dim", config.rotary_dim, "two halves:", 2);
    if (config.rotary_dim > config.head_dim) {
        unsupported("rotary_dim is " + std::to_string(config.rotary_dim) + ", more than head_dim " +
                    std::to_string(config.head_dim));
    }
    if (config.top_k > config.experts) {
        unsupported("top_k is " + std::to_string(config.top_k) + ", more than the " + std::to_string(config.experts) +
                    " experts");
    }
    if (config.conv_width < 2 || config.conv_width > kMostTaps) {
        unsupported("conv_width is " + std::to_string(config.conv_width) + ", not from 2 to " +
                    std::to_string(kMostTaps));
    }
    if (!(config.theta > 1) || !std::isfinite(config.theta) || !(config.eps > 0) || !(config.eps < 1)) {
        unsupported("theta is " + std::to_string(config.theta) + " and eps is " + std::to_string(config.eps) +
                    ", not over 1 and between 0 and 1");
    }
}

} // namespace

DecoderConfig DecoderConfig::from(const std::map<std::string, double> &fields) {
    DecoderConfig config;
    std::map<std::string, double> rest = fields;
    const auto take = [&rest](const std::string &name) {
        const auto found = rest.find(name);
        if (found == rest.end()) {
            throw Error(ErrorKind::invalid_input, "the decoder config has no '" + name + "'");
        }
        const double value = found->second;
        rest.erase(found);
        return value;
    };
    for (const auto &[name, member] : kCounts) {
        const double value = take(name);
        if (!(std::abs(value) < 1e15) || value != std::floor(value)) {
            throw Error(ErrorKind::invalid_input, "the decoder config has " + std::string(name) + " = " +
                                                      std::to_string(value) + ", expected a whole number");
        }
        config.*member = static_cast<std::int64_t>(value);
    }
    config.theta = static_cast<float>(take("theta"));
    config.eps = static_cast<float>(take("eps"));
    config.renormalize = take("renormalize") != 0;
    if (!rest.empty()) {
        throw Error(ErrorKind::invalid_input, "the decoder config has an unknown field '" + rest.begin()->first + "'");
    }
    require_sizes(config);
    return config;
}

AttentionShape DecoderConfig::attention() const { return {hidden, heads, kv_heads, head_dim, rotary_dim, theta, eps}; }

GatedDeltaShape DecoderConfig::gated_delta() const {
    return {hidden, key_heads, value_heads, key_dim, value_dim, conv_width, eps};
}

MoeShape DecoderConfig::moe() const { return {hidden, experts, top_k, width, shared_width, renormalize, eps}; }

TimelineShape DecoderConfig::timeline() const {
    const std::int64_t attention_layers = layers / attention_every;
    return {
        .vocab = vocab,
        .attention_layers = attention_layers,
        .kv_heads = kv_heads,
        .head_dim = head_dim,
        .gated_delta_layers = layers - attention_layers,
        .value_heads = value_heads,
        .value_dim = value_dim,
        .key_dim = key_dim,
        .window_rows = conv_width - 1,
        .channels = 2 * key_heads * key_dim + value_heads * value_dim,
    };
}

namespace {

AttentionWeights attention_weights(const DecoderConfig &config, const std::string &layer, WeightViews &weights) {
    const std::int64_t width = config.heads * config.head_dim;
    const std::int64_t kv_width = config.kv_heads * config.head_dim;
    const std::string at = layer + "self_attn.";
    return {
        .norm = weights.vector(layer + "input_layernorm.weight", config.hidden),
        .q = weights.matrix(at + "q_proj", 2 * width, config.hidden),
        .k = weights.matrix(at + "k_proj", kv_width, config.hidden),
        .v = weights.matrix(at + "v_proj", kv_width, config.hidden),
        .o = weights.matrix(at + "o_proj", config.hidden, width),
        .q_norm = weights.vector(at + "q_norm.weight", config.head_dim),
        .k_norm = weights.vector(at + "k_norm.weight", config.head_dim),
    };
}

GatedDeltaWeights gated_delta_weights(const DecoderConfig &config, const std::string &layer, WeightViews &weights) {
    const std::int64_t values = config.value_heads * config.value_dim;
    const std::int64_t channels = config.timeline().channels;
    const std::string at = layer + "linear_attn.";
    return {
        .norm = weights.vector(layer + "input_layernorm.weight", config.hidden),
        .qkv = weights.matrix(at + "in_proj_qkv", channels, config.hidden),
        .z = weights.matrix(at + "in_proj_z", values, config.hidden),
        .a = weights.matrix(at + "in_proj_a", config.value_heads, config.hidden),
        .b = weights.matrix(at + "in_proj_b", config.value_heads, config.hidden),
        .conv = weights.taps(at + "conv1d.weight", channels, config.conv_width),
        .decay_rate = weights.exponential(at + "A_log", config.value_heads),
        .dt_bias = weights.vector(at + "dt_bias", config.value_heads),
        .head_norm = weights.vector(at + "norm.weight", config.value_dim),
        .out = weights.matrix(at + "out_proj", config.hidden, values),
    };
}

void require_alike(const std::string &one, const Matrix &gate, const std::string &other, const Matrix &up) {
    if (gate.packing != up.packing) {
        const auto bits = [](const Matrix &matrix) { return matrix.packing == Packing::affine4 ? " 4" : " 8"; };
        throw Error(ErrorKind::unsupported_checkpoint,
                    "tensor " + one + ".weight has" + bits(gate) + " bits and " + other + ".weight has" + bits(up) +
                        ", expected the same of both; quantise them alike with mlx_lm.convert");
    }
}

MoeWeights moe_weights(const DecoderConfig &config, const std::string &layer, WeightViews &weights) {
    const std::string at = layer + "mlp.";
    const std::string routed = at + "switch_mlp.";
    const std::string shared = at + "shared_expert.";
    const MoeWeights made{
        .norm = weights.vector(layer + "post_attention_layernorm.weight", config.hidden),
        .router = weights.matrix(at + "gate", config.experts, config.hidden, Bits::eight),
        .gate = weights.stacked(routed + "gate_proj", config.experts, config.width, config.hidden),
        .up = weights.stacked(routed + "up_proj", config.experts, config.width, config.hidden),
        .down = weights.stacked(routed + "down_proj", config.experts, config.hidden, config.width),
        .shared_router = weights.matrix(at + "shared_expert_gate", 1, config.hidden, Bits::eight),
        .shared_gate = weights.matrix(shared + "gate_proj", config.shared_width, config.hidden),
        .shared_up = weights.matrix(shared + "up_proj", config.shared_width, config.hidden),
        .shared_down = weights.matrix(shared + "down_proj", config.hidden, config.shared_width),
    };
    require_alike(routed + "gate_proj", made.gate, routed + "up_proj", made.up);
    require_alike(shared + "gate_proj", made.shared_gate, shared + "up_proj", made.shared_up);
    return made;
}

} // namespace

Decoder::Decoder(const DecoderConfig &config, WeightViews &weights) : config_(config) {
    const std::string model = "language_model.model.";
    embed_.table = weights.matrix(model + "embed_tokens", config.vocab, config.hidden);
    for (std::int64_t i = 0; i < config.layers; ++i) {
        const std::string layer = model + "layers." + std::to_string(i) + ".";
        Layer &made = layers_.emplace_back();
        if (config.attends(i)) {
            made.mixer = attention_weights(config, layer, weights);
        } else {
            made.mixer = gated_delta_weights(config, layer, weights);
        }
        made.moe = moe_weights(config, layer, weights);
    }
    head_.norm = weights.vector(model + "norm.weight", config.hidden);
    head_.table = weights.matrix("language_model.lm_head", config.vocab, config.hidden);
    head_.eps = config.eps;
    weights.require_all_used("a Qwen3.5/3.6 MoE checkpoint as mlx_lm.convert writes it");
}

void Decoder::layers(Backend &backend, const TimelineViews &timeline, const Tensor &ids, const Tensor &x,
                     std::int64_t position) const {
    backend.embed(embed_, ids, x);
    std::size_t caches = 0;
    std::size_t states = 0;
    for (const Layer &layer : layers_) {
        if (const auto *attention = std::get_if<AttentionWeights>(&layer.mixer)) {
            backend.attention(config_.attention(), *attention, x, timeline.caches[caches++], position);
        } else {
            backend.gated_delta(config_.gated_delta(), std::get<GatedDeltaWeights>(layer.mixer), x,
                                timeline.from[states], timeline.to[states], position);
            ++states;
        }
        backend.moe(config_.moe(), layer.moe, x);
    }
}

void Decoder::head(Backend &backend, const Tensor &x, const Tensor &logits, const Tensor &token) const {
    backend.head(head_, x, logits, token);
}

} // namespace lily
