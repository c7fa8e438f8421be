// The stream of work of the decoder, encoded and counted but not run: how many dispatches and barriers a token or a chunk
// takes, and the bytes they move, at any size and any position. No memory is needed but for the weights' addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "arena.h"
#include "backend.h"
#include "decoder.h"
#include "metal/record.h"
#include "session.h"
#include "weights.h"

namespace lily {

class Trace {
  public:
    // rows: of the largest step.
    Trace(std::shared_ptr<const Weights> weights, const DecoderConfig &config, std::int64_t max_context,
          std::int64_t rows);
    Trace(const Trace &) = delete;
    Trace &operator=(const Trace &) = delete;

    // The dispatches of the step that reads `rows` tokens from `position` on, up to the logits of the last one.
    std::vector<metal::DispatchRecord> step(std::int64_t position, std::int64_t rows);

  private:
    std::vector<metal::DispatchRecord> records_;
    std::shared_ptr<Backend> backend_;
    WeightViews views_;
    Decoder decoder_;
    Arena arena_;
    std::shared_ptr<EngineCore> core_;
    std::shared_ptr<Session> session_;
    Tensor ids_, x_;
};

} // namespace lily
