// See viterbi.h.

#include "viterbi.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "error.h"

namespace lily {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr std::size_t kLeastCheck = 512; // undecided rows before the first look back

enum Part : std::size_t { begin, inside, end, single }; // of a label

constexpr std::size_t tag_of(std::size_t label, Part part) { return 1 + 4 * label + part; }
constexpr bool is_inside(std::size_t tag) { return tag > 0 && ((tag - 1) % 4 == inside || (tag - 1) % 4 == end); }
constexpr bool may_end(std::size_t tag) { return tag == 0 || (tag - 1) % 4 == end || (tag - 1) % 4 == single; }

} // namespace

Viterbi::Viterbi(float begin_bias, float end_bias)
    : begin_bias_(static_cast<double>(begin_bias)), end_bias_(static_cast<double>(end_bias)), next_check_(kLeastCheck) {
    if (!std::isfinite(begin_bias) || !std::isfinite(end_bias)) {
        throw Error(ErrorKind::invalid_input, "the biases of the path are " + std::to_string(begin_bias) + " and " +
                                                  std::to_string(end_bias) + ", expected finite numbers");
    }
}

void Viterbi::step(const float *logits) {
    double scores[kTags];
    Step made{0, 0};
    if (!begun_) {
        begun_ = true;
        for (std::size_t tag = 0; tag < kTags; ++tag) {
            scores[tag] = is_inside(tag) ? kNever : static_cast<double>(logits[tag]);
        }
    } else {
        double best = scores_[0];
        for (std::size_t label = 0; label < kLabels; ++label) {
            const double ended = scores_[tag_of(label, end)] + end_bias_;
            if (ended > best) {
                best = ended;
                made.outside = static_cast<std::uint8_t>(tag_of(label, end));
            }
            if (scores_[tag_of(label, single)] > best) {
                best = scores_[tag_of(label, single)];
                made.outside = static_cast<std::uint8_t>(tag_of(label, single));
            }
        }
        scores[0] = best + static_cast<double>(logits[0]);
        for (std::size_t label = 0; label < kLabels; ++label) {
            const double *from = scores_ + tag_of(label, begin);
            const float *logit = logits + tag_of(label, begin);
            double *to = scores + tag_of(label, begin);
            if (from[inside] > from[begin]) {
                made.inside = static_cast<std::uint16_t>(made.inside | 1U << label);
            }
            const double within = std::max(from[begin], from[inside]);
            to[begin] = best + begin_bias_ + static_cast<double>(logit[begin]);
            to[inside] = within + static_cast<double>(logit[inside]);
            to[end] = within + static_cast<double>(logit[end]);
            to[single] = best + static_cast<double>(logit[single]);
        }
    }
    std::copy(scores, scores + kTags, scores_);
    steps_.push_back(made);
}

// The tag of the row before `row` on the best path to `tag`; rows count from the first undecided one.
std::size_t Viterbi::before(std::size_t row, std::size_t tag) const {
    if (!is_inside(tag)) {
        return steps_[row].outside;
    }
    const std::size_t label = (tag - 1) / 4;
    return tag_of(label, (steps_[row].inside >> label & 1U) != 0 ? inside : begin);
}

// Decides the first `rows` undecided rows, the last of them being `tag`.
std::vector<std::int32_t> Viterbi::take(std::size_t rows, std::size_t tag) {
    std::vector<std::int32_t> tags(rows);
    for (std::size_t row = rows; row-- > 0;) {
        tags[row] = static_cast<std::int32_t>(tag);
        if (row > 0) {
            tag = before(row, tag);
        }
    }
    steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(rows));
    return tags;
}

std::vector<std::int32_t> Viterbi::push(std::span<const float> logits) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (!std::isfinite(logits[i])) {
            throw Error(ErrorKind::invalid_input, "row " + std::to_string(i / kTags) + " of the logits holds " +
                                                      std::to_string(logits[i]) + ", expected finite numbers");
        }
    }
    for (std::size_t at = 0; at < logits.size(); at += kTags) {
        step(logits.data() + at);
    }
    if (steps_.size() < next_check_) {
        return {};
    }
    // Back from every tag that has a path, until all of them are the same tag of the same row.
    bool alive[kTags];
    for (std::size_t tag = 0; tag < kTags; ++tag) {
        alive[tag] = scores_[tag] > kNever;
    }
    for (std::size_t row = steps_.size(); row-- > 0;) {
        if (std::count(alive, alive + kTags, true) == 1) {
            const auto tag = static_cast<std::size_t>(std::find(alive, alive + kTags, true) - alive);
            std::vector<std::int32_t> tags = take(row + 1, tag);
            next_check_ = std::max(kLeastCheck, 2 * steps_.size());
            return tags;
        }
        if (row > 0) {
            bool earlier[kTags] = {};
            for (std::size_t tag = 0; tag < kTags; ++tag) {
                if (alive[tag]) {
                    earlier[before(row, tag)] = true;
                }
            }
            std::copy(earlier, earlier + kTags, alive);
        }
    }
    next_check_ = 2 * steps_.size(); // looking again only then keeps the time linear
    return {};
}

std::vector<std::int32_t> Viterbi::finish() {
    std::size_t best = 0;
    for (std::size_t tag = 1; tag < kTags; ++tag) {
        if (may_end(tag) && scores_[tag] > scores_[best]) {
            best = tag;
        }
    }
    std::vector<std::int32_t> tags = take(steps_.size(), best);
    begun_ = false;
    next_check_ = kLeastCheck;
    return tags;
}

} // namespace lily
