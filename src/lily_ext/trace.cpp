// See trace.h.

#include "trace.h"

#include <string>
#include <utility>

#include "error.h"
#include "metal/backend_metal.h"

namespace lily {

Trace::Trace(std::shared_ptr<const Weights> weights, const DecoderConfig &config, std::int64_t max_context,
             std::int64_t rows)
    : backend_(metal::make_counter(&records_)), views_(std::move(weights), *backend_), decoder_(config, views_),
      arena_(*backend_, "the activations of a chunk", 1),
      core_(std::make_shared<EngineCore>(backend_, config.timeline())), session_(Session::open(core_, max_context)),
      ids_(arena_.take(DType::i32, {rows})), x_(arena_.take(DType::bf16, {rows, config.hidden})) {
    backend_->reserve({.rows = rows,
                       .head_rows = 1,
                       .context = max_context,
                       .hidden = config.hidden,
                       .vocab = config.vocab,
                       .attention = config.attention(),
                       .gated_delta = config.gated_delta(),
                       .moe = config.moe()});
}

std::vector<metal::DispatchRecord> Trace::step(std::int64_t position, std::int64_t rows) {
    if (rows < 1 || rows > x_.dims[0] || position < 0 || position > session_->capacity() - rows) {
        throw Error(ErrorKind::invalid_input, std::to_string(rows) + " rows from position " + std::to_string(position) +
                                                  " on are more than this trace was made for, expected up to " +
                                                  std::to_string(x_.dims[0]) + " rows within " +
                                                  std::to_string(session_->capacity()));
    }
    Tensor ids = ids_;
    ids.dims[0] = rows;
    backend_->begin();
    decoder_.layers(*backend_, session_->views(0), ids, rows_of(x_, 0, rows), position);
    decoder_.head(*backend_, rows_of(x_, rows - 1, 1), session_->next_logits(0), session_->next_token(0));
    backend_->commit();
    backend_->wait(0);
    return std::exchange(records_, {});
}

} // namespace lily
