// The graph of Qwen3.5/3.6 MoE, written once against backend.h: which sublayer follows which, over which weights. It
// keeps no state of a text and reads nothing back, so that a GPU can run a whole chunk in one command buffer. No
// arithmetic here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "backend.h"
#include "session.h"
#include "tensor.h"
#include "weights.h"

namespace lily {

struct DecoderConfig {
    std::int64_t hidden = 0;
    std::int64_t layers = 0;
    std::int64_t vocab = 0;
    std::int64_t attention_every = 0; // layer i attends in full when (i + 1) % attention_every == 0
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t rotary_dim = 0;
    float theta = 0;
    float eps = 0;
    std::int64_t key_heads = 0;
    std::int64_t value_heads = 0;
    std::int64_t key_dim = 0;
    std::int64_t value_dim = 0;
    std::int64_t conv_width = 0;
    std::int64_t experts = 0;
    std::int64_t top_k = 0;
    std::int64_t width = 0;
    std::int64_t shared_width = 0;
    bool renormalize = true;

    // By the names of the fields. Throws Error(invalid_input) for a missing, unknown or fractional one and
    // Error(unsupported_checkpoint) for sizes that do not go together.
    static DecoderConfig from(const std::map<std::string, double> &fields);

    AttentionShape attention() const;
    GatedDeltaShape gated_delta() const;
    MoeShape moe() const;
    TimelineShape timeline() const;
    bool attends(std::int64_t layer) const { return (layer + 1) % attention_every == 0; }
};

class Decoder {
  public:
    Decoder(const DecoderConfig &config, WeightViews &weights);

    // ids i32 [rows] -> x bf16 [rows, hidden], the residual stream after the last layer. The first row sits at
    // position.
    void layers(Backend &backend, const TimelineViews &timeline, const Tensor &ids, const Tensor &x,
                std::int64_t position) const;
    // x bf16 [rows, hidden] -> logits f32 [rows, vocab]; token as in Backend::head
    void head(Backend &backend, const Tensor &x, const Tensor &logits, const Tensor &token) const;

  private:
    struct Layer {
        std::variant<AttentionWeights, GatedDeltaWeights> mixer;
        MoeWeights moe;
    };

    DecoderConfig config_;
    EmbedWeights embed_;
    std::vector<Layer> layers_;
    HeadWeights head_;
};

} // namespace lily
