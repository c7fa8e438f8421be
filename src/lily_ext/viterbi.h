// The best allowed path through the logits of a BIOES tagger: O is tag 0, then B, I, E, S of each label. A path begins
// in O, B or S and ends in O, E or S; B and I go on to I or E of their own label, O, E and S to O, B or S. Ties go to the
// lowest index. Scores add up in f64, so that a text of any length is decoded alike.
//
// Tags come out as soon as every path that can still win agrees on them, so that a long text needs memory for its
// undecided end only: one byte and one bit a label for each row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lily {

class Viterbi {
  public:
    // begin_bias is added to every step into a B, end_bias to every step out of an E. Throws Error(invalid_input) unless
    // both are finite.
    Viterbi(float begin_bias, float end_bias);

    static constexpr std::size_t kLabels = 9;
    static constexpr std::size_t kTags = 1 + 4 * kLabels;

    // logits: [rows, kTags], the rows after those of the last call. Returns the tags that are now decided, in order;
    // they follow those of the last call. Throws Error(invalid_input) for a NaN or infinity.
    std::vector<std::int32_t> push(std::span<const float> logits);
    // The rest of the path. The object is as new afterwards.
    std::vector<std::int32_t> finish();

  private:
    // How the best path came to each tag of a row: `outside` is where O, B and S come from, bit i of `inside` says
    // whether I and E of label i come from I rather than B.
    struct Step {
        std::uint8_t outside;
        std::uint16_t inside;
    };

    void step(const float *logits);
    std::size_t before(std::size_t row, std::size_t tag) const;
    std::vector<std::int32_t> take(std::size_t rows, std::size_t tag);

    double begin_bias_, end_bias_;
    bool begun_ = false;
    double scores_[kTags] = {};
    std::vector<Step> steps_;    // of the undecided rows
    std::size_t next_check_ = 0; // so many undecided rows are worth a look
};

} // namespace lily
