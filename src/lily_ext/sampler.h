// Logits to a token. It owns the options, the random numbers and the count of the tokens it produced, so that one
// sampler is one answer. It knows no session and no text.
//
// Order, each step on what the one before left:
//   penalties    for each token this sampler produced, n > 0 times: a positive logit is divided by repetition_penalty,
//                another multiplied with it (Keskar et al. 2019); then presence_penalty + n *
//                frequency_penalty is subtracted (OpenAI API). Tokens of the prompt do not count.
//   logit bias   added; minus infinity bans a token.
//   temperature  0 takes the largest logit, ties to the lowest id, and ends here; else logits are divided by it.
//   top-k        the k largest logits stay, ties to the lowest ids; 0 keeps all.
//   top-p        of those, renormalised, the smallest set of the most probable ones whose sum reaches p stays
//                (Holtzman et al. 2020); 1 keeps all.
//   min-p        of those, the ones at least min_p times as probable as the most probable one stay; 0 keeps all.
// Then one uniform number picks by inverting the distribution function of the rest, in the order of ids.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace lily {

struct Candidate {
    float logit;
    std::int32_t id;
};

// The count largest logits in falling order, ties to the lowest id, without sorting the rest.
void select_top(std::span<const float> logits, std::size_t count, std::vector<Candidate> &top);

struct SamplerOptions {
    double temperature = 0;
    std::int64_t top_k = 0;
    double top_p = 1;
    double min_p = 0;
    double repetition_penalty = 1;
    double presence_penalty = 0;
    double frequency_penalty = 0;
    std::map<std::int64_t, double> logit_bias;
    std::uint64_t seed = 0;
};

class Sampler {
  public:
    // Throws Error(invalid_input) with the name and value of an option that is out of range.
    explicit Sampler(SamplerOptions options);

    // Throws Error(invalid_input) if the options do not fit so many tokens. Engines ask before any work.
    void require_vocab(std::int64_t vocab) const;
    // Whether every sample is the first largest logit, as a device finds it too.
    bool greedy() const;
    // Changes the logits in place: they are a scratch copy. Throws Error(invalid_input) if every token is banned.
    std::int32_t sample(std::span<float> logits);

  private:
    void adjust(std::span<float> logits) const;
    std::int32_t draw(std::span<const float> logits);
    void keep_nucleus();
    double uniform();

    SamplerOptions options_;
    std::mutex lock_; // two engines may share a sampler
    std::uint64_t random_;
    std::unordered_map<std::int32_t, std::int64_t> produced_;
    std::vector<Candidate> kept_;
    std::vector<double> weights_; // of the kept ones
};

} // namespace lily
