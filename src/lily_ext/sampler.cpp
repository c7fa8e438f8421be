// See sampler.h.

#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "error.h"

namespace lily {

namespace {

// A strict order of all candidates, so that every selection has one answer on every platform.
bool before(const Candidate &a, const Candidate &b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

void require(const char *name, double value, bool good, const char *expected) {
    if (!good) {
        throw Error(ErrorKind::invalid_input,
                    std::string(name) + " is " + std::to_string(value) + ", expected " + expected);
    }
}

// A huge option must not turn a logit into infinity; minus infinity is a ban and stays.
float narrow(double value) {
    constexpr double most = std::numeric_limits<float>::max();
    return static_cast<float>(value == -std::numeric_limits<double>::infinity() ? value
                                                                                : std::clamp(value, -most, most));
}

// Not normalised: the largest logit has weight 1.
double weight(float logit, float largest, double temperature) {
    return std::exp((static_cast<double>(logit) - static_cast<double>(largest)) / temperature);
}

} // namespace

void select_top(std::span<const float> logits, std::size_t count, std::vector<Candidate> &top) {
    top.clear();
    count = std::min(count, logits.size());
    // A heap whose front is the last of the best so far: most logits meet one comparison and go.
    for (std::size_t i = 0; i < logits.size() && count > 0; ++i) {
        const Candidate candidate{logits[i], static_cast<std::int32_t>(i)};
        if (top.size() == count) {
            if (!before(candidate, top.front())) {
                continue;
            }
            std::pop_heap(top.begin(), top.end(), before);
            top.pop_back();
        }
        top.push_back(candidate);
        std::push_heap(top.begin(), top.end(), before);
    }
    std::sort_heap(top.begin(), top.end(), before);
}

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)), random_(options_.seed) {
    const auto finite = [](double value) { return std::isfinite(value); };
    require("temperature", options_.temperature, finite(options_.temperature) && options_.temperature >= 0,
            "0 (greedy) or a positive number");
    require("top_k", static_cast<double>(options_.top_k), options_.top_k >= 0, "0 (off) or a positive count");
    require("top_p", options_.top_p, options_.top_p > 0 && options_.top_p <= 1, "more than 0 and at most 1 (off)");
    require("min_p", options_.min_p, options_.min_p >= 0 && options_.min_p <= 1, "from 0 (off) to 1");
    require("repetition_penalty", options_.repetition_penalty,
            finite(options_.repetition_penalty) && options_.repetition_penalty > 0, "a positive number, 1 for off");
    require("presence_penalty", options_.presence_penalty, finite(options_.presence_penalty), "a finite number");
    require("frequency_penalty", options_.frequency_penalty, finite(options_.frequency_penalty), "a finite number");
    for (const auto &[id, bias] : options_.logit_bias) {
        require(("logit_bias of token " + std::to_string(id)).c_str(), bias,
                bias < std::numeric_limits<double>::infinity(), "a finite number, or minus infinity to ban the token");
        if (id < 0) {
            throw Error(ErrorKind::invalid_input,
                        "logit_bias names token " + std::to_string(id) + ", expected ids of 0 or more");
        }
    }
}

void Sampler::require_vocab(std::int64_t vocab) const {
    if (!options_.logit_bias.empty() && options_.logit_bias.rbegin()->first >= vocab) {
        throw Error(ErrorKind::invalid_input, "logit_bias names token " +
                                                  std::to_string(options_.logit_bias.rbegin()->first) +
                                                  ", expected ids under the vocabulary of " + std::to_string(vocab));
    }
}

std::int32_t Sampler::sample(std::span<float> logits) {
    const std::lock_guard<std::mutex> lock(lock_);
    if (logits.empty()) {
        throw Error(ErrorKind::invalid_input, "there are no logits to sample from, expected one for each token");
    }
    require_vocab(static_cast<std::int64_t>(logits.size()));
    adjust(logits);
    std::int32_t token = 0;
    if (options_.temperature == 0) {
        select_top(logits, 1, kept_);
        token = kept_.front().id;
    } else {
        token = draw(logits);
    }
    if (logits[static_cast<std::size_t>(token)] == -std::numeric_limits<float>::infinity()) {
        throw Error(ErrorKind::invalid_input, "logit_bias bans all " + std::to_string(logits.size()) +
                                                  " tokens, expected it to leave at least one");
    }
    ++produced_[token];
    return token;
}

bool Sampler::greedy() const {
    return options_.temperature == 0 && options_.repetition_penalty == 1 && options_.presence_penalty == 0 &&
           options_.frequency_penalty == 0 && options_.logit_bias.empty();
}

void Sampler::adjust(std::span<float> logits) const {
    for (const auto &[id, count] : produced_) {
        if (static_cast<std::size_t>(id) >= logits.size()) {
            continue; // produced for a larger vocabulary: there is no such logit here
        }
        float &logit = logits[static_cast<std::size_t>(id)];
        const double scaled = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
        logit = narrow(scaled - options_.presence_penalty - static_cast<double>(count) * options_.frequency_penalty);
    }
    for (const auto &[id, bias] : options_.logit_bias) {
        float &logit = logits[static_cast<std::size_t>(id)];
        logit = narrow(logit + bias);
    }
}

std::int32_t Sampler::draw(std::span<const float> logits) {
    if (options_.top_k > 0) {
        select_top(logits, static_cast<std::size_t>(options_.top_k), kept_);
    } else {
        kept_.clear();
        for (std::size_t i = 0; i < logits.size(); ++i) {
            kept_.push_back({logits[i], static_cast<std::int32_t>(i)});
        }
    }
    float largest = kept_.front().logit;
    for (const Candidate &candidate : kept_) {
        largest = std::max(largest, candidate.logit);
    }
    if (options_.top_p < 1) {
        keep_nucleus();
    }
    if (options_.min_p > 0) {
        std::erase_if(kept_, [&](const Candidate &candidate) {
            return weight(candidate.logit, largest, options_.temperature) < options_.min_p;
        });
    }
    const auto by_id = [](const Candidate &a, const Candidate &b) { return a.id < b.id; };
    if (!std::is_sorted(kept_.begin(), kept_.end(), by_id)) { // nothing was selected
        std::sort(kept_.begin(), kept_.end(), by_id);
    }
    weights_.clear();
    double total = 0;
    for (const Candidate &candidate : kept_) {
        total += weights_.emplace_back(weight(candidate.logit, largest, options_.temperature));
    }
    const double target = uniform() * total;
    double sum = 0;
    std::size_t picked = 0; // of positive weight: rounding must not pick a token without
    for (std::size_t i = 0; i < kept_.size() && sum <= target; ++i) {
        sum += weights_[i];
        picked = weights_[i] > 0 ? i : picked;
    }
    return kept_[picked].id;
}

// Leaves the smallest set of the largest candidates whose share of the total reaches top_p. The order is made block by
// block, each larger than the one before, because the set is nearly always small.
void Sampler::keep_nucleus() {
    const float largest = std::min_element(kept_.begin(), kept_.end(), before)->logit;
    double total = 0;
    for (const Candidate &candidate : kept_) {
        total += weight(candidate.logit, largest, options_.temperature);
    }
    const double wanted = options_.top_p * total;
    double sum = 0;
    std::size_t sorted = 0;
    for (std::size_t block = 64; sorted < kept_.size(); block *= 4) {
        const std::size_t end = std::min(sorted + block, kept_.size());
        const auto at = [this](std::size_t index) { return kept_.begin() + static_cast<std::ptrdiff_t>(index); };
        if (end < kept_.size()) {
            std::nth_element(at(sorted), at(end), kept_.end(), before);
        }
        std::sort(at(sorted), at(end), before);
        for (; sorted < end; ++sorted) {
            sum += weight(kept_[sorted].logit, largest, options_.temperature);
            if (sum >= wanted) {
                kept_.resize(sorted + 1);
                return;
            }
        }
    }
}

// SplitMix64 (Steele, Lea and Flood 2014): a counter and a mixing function, the same on every platform. The
// upper 53 bits make a number of [0, 1).
double Sampler::uniform() {
    random_ += 0x9e3779b97f4a7c15u;
    std::uint64_t mixed = random_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
    return static_cast<double>(mixed >> 11) * 0x1.0p-53;
}

} // namespace lily
