// The bidirectional Qwen3 of the Gate's classifier: its graph, written once against backend.h, and the windows that one
// call runs through it. Rows of all windows go through the matrices together; attention keeps to a window. It knows no
// text and no tags' meaning; cutting a text into windows is the caller's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "arena.h"
#include "backend.h"
#include "weights.h"

namespace lily {

struct EncoderConfig {
    std::int64_t hidden = 0;
    std::int64_t layers = 0;
    std::int64_t vocab = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t width = 0;
    std::int64_t labels = 0;
    std::int64_t window = 0; // the longest, in tokens
    float theta = 0;
    float eps = 0;

    // By the names of the fields. Throws Error(invalid_input) for a missing, unknown or fractional one and
    // Error(unsupported_checkpoint) for sizes that do not go together.
    static EncoderConfig from(const std::map<std::string, double> &fields);

    AttentionShape attention() const { return {hidden, heads, kv_heads, head_dim, head_dim, theta, eps}; }
    MlpShape mlp() const { return {hidden, width, eps}; }
};

struct Classification {
    std::vector<float> logits;      // [tokens, labels]
    std::vector<float> sensitivity; // [windows], before the sigmoid
};

class Encoder {
  public:
    // max_rows: tokens that go through the matrices together, at least a window. Windows are never split.
    Encoder(std::shared_ptr<Backend> backend, std::shared_ptr<const Weights> weights, const EncoderConfig &config,
            std::int64_t max_rows);
    ~Encoder();
    Encoder(const Encoder &) = delete;
    Encoder &operator=(const Encoder &) = delete;

    const EncoderConfig &config() const { return config_; }
    const std::string &device_name() const { return device_name_; }
    std::int64_t max_rows() const { return max_rows_; }
    // Bytes: of the files, as they are; of converted weights; of the activations and the device's scratch.
    std::map<std::string, std::size_t> memory();

    // ids: the windows one after another; lengths: tokens of each window. One call at a time; others wait. Throws
    // Error(invalid_input) for an id or a length out of range, Error(numerical) when a logit is not finite,
    // Error(device) in a forked child.
    Classification classify(std::span<const std::int32_t> ids, std::span<const std::int32_t> lengths);
    // Gives the memory back. Later calls throw Error(invalid_input).
    void close();

  private:
    struct State;

    std::unique_lock<std::mutex> enter();
    void require_windows(std::span<const std::int32_t> ids, std::span<const std::int32_t> lengths) const;
    void run(std::span<const std::int32_t> ids, std::span<const std::int32_t> starts, float *logits,
             float *sensitivity);

    EncoderConfig config_;
    std::int64_t max_rows_;
    std::string device_name_;
    std::mutex mutex_;
    pid_t owner_;
    std::unique_ptr<State> state_;
};

} // namespace lily
