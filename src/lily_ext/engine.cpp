// See engine.h.

#include "engine.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "cpu/backend_cpu.h"
#include "error.h"
#include "metal/backend_metal.h"

namespace lily {

namespace {

constexpr std::int64_t kHeadRows = 16; // rows of logits that are on the device at a time
constexpr std::int64_t kLargestResult = 512'000'000;
constexpr std::int64_t kLargestContext = std::int64_t{1} << 24; // the positions that f32 can tell apart

[[noreturn]] void refuse(const std::string &message) { throw Error(ErrorKind::invalid_input, message); }

void require_range(const char *name, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most) {
        refuse(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " +
               std::to_string(most));
    }
}

EngineOptions checked(EngineOptions options) {
    require_range("max_context", options.max_context, 1, kLargestContext);
    require_range("chunk", options.chunk, 1, kLargestContext);
    return options;
}

Limits limits_of(const DecoderConfig &config, const EngineOptions &options) {
    return {
        .rows = std::min(options.chunk, options.max_context),
        .head_rows = kHeadRows,
        .context = options.max_context,
        .hidden = config.hidden,
        .vocab = config.vocab,
        .attention = config.attention(),
        .gated_delta = config.gated_delta(),
        .moe = config.moe(),
        .byte_inputs = options.byte_inputs,
    };
}

double log_sum_exp(std::span<const float> logits) {
    const float largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) {
        sum += static_cast<double>(std::exp(logit - largest)); // f32 terms, each good to its last bit; the sum in f64
    }
    return static_cast<double>(largest) + std::log(sum);
}

} // namespace

std::unique_ptr<Backend> open_device(const DeviceOptions &options) {
    if (options.name == "cpu") {
        return cpu::make_backend(options.isa, options.threads);
    }
    return metal::make_backend(options.name, options.kernels, options.isa,
                               options.threads == 0 ? usable_cpus() : options.threads);
}

std::vector<std::string> instruction_sets() { return cpu::instruction_sets(); }

int usable_cpus() { return cpu::usable_cpus(); }

// What close() frees: the views over the weights, the graph, and the memory of a chunk.
struct Engine::State {
    State(std::shared_ptr<Backend> device, std::shared_ptr<const Weights> weights, const DecoderConfig &config,
          const Limits &limits)
        : backend(std::move(device)), views(std::move(weights), *backend), decoder(config, views),
          arena(*backend, "the activations of a chunk",
                2 * Arena::padded(static_cast<std::size_t>(limits.rows) * size_of(DType::i32)) +
                    Arena::padded(static_cast<std::size_t>(limits.rows * limits.hidden) * size_of(DType::bf16)) +
                    Arena::padded(static_cast<std::size_t>(limits.head_rows * limits.vocab) * size_of(DType::f32))),
          ids{arena.take(DType::i32, {limits.rows}), arena.take(DType::i32, {limits.rows})},
          x(arena.take(DType::bf16, {limits.rows, limits.hidden})),
          logits(arena.take(DType::f32, {limits.head_rows, limits.vocab})),
          host(static_cast<std::size_t>(limits.head_rows * limits.vocab)) {}

    ~State() {
        try {
            backend->wait(0);     // a step under way reads the weights
        } catch (const Error &) { // nobody is left to be told
        }
    }
    State(const State &) = delete;
    State &operator=(const State &) = delete;

    std::shared_ptr<Backend> backend;
    WeightViews views;
    Decoder decoder;
    Arena arena;
    Tensor ids[2]; // in turn: the host writes one while the other may still be read
    int turn = 0;
    Tensor x, logits;
    std::vector<float> host; // a copy of logits that a sampler may change
};

Engine::Engine(std::shared_ptr<const Weights> weights, const DecoderConfig &config, const EngineOptions &options)
    : config_(config), options_(checked(options)) {
    const std::shared_ptr<Backend> backend = open_device(options_.device);
    device_name_ = backend->name();
    isa_ = backend->isa();
    threads_ = backend->threads();
    core_ = std::make_shared<EngineCore>(backend, config_.timeline());
    const Limits limits = limits_of(config_, options_);
    // The graph first: a checkpoint that does not fit is told before memory is asked for.
    state_ = std::make_unique<State>(backend, std::move(weights), config_, limits);
    backend->reserve(limits);
}

Engine::~Engine() {
    if (core_->forked()) {
        // As with sessions: the device belongs to the parent process, so everything on it is left alone.
        static_cast<void>(state_.release());
        static_cast<void>(new std::shared_ptr<EngineCore>(core_));
    }
}

void Engine::close() {
    if (core_->forked()) {
        return;
    }
    // Nobody enters any more, so the rest goes without the lock: the owner of the weights may wait for Python.
    if (core_->close()) {
        state_.reset();
    }
}

MemoryReport Engine::memory() {
    const auto lock = core_->enter();
    return {
        .weights_mapped = state_->views.mapped_bytes(),
        .weights_copied = state_->views.copied_bytes(),
        .weights_converted = state_->views.converted_bytes(),
        .scratch =
            core_->backend().scratch_bytes() + state_->arena.bytes() + state_->host.size() * sizeof state_->host[0],
        .sessions = core_->session_bytes(),
    };
}

std::shared_ptr<Session> Engine::session() { return Session::open(core_, options_.max_context); }

void Engine::require_ids(std::span<const std::int32_t> tokens) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] < 0 || tokens[i] >= config_.vocab) {
            refuse("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) + ", expected an id from 0 to " +
                   std::to_string(config_.vocab - 1));
        }
    }
}

// Rows of the next chunk. Chunks end at absolute positions, so that a continued text is cut like a whole one.
std::int64_t Engine::rows_to_edge(std::int64_t position, std::int64_t left) const {
    return std::min(left, options_.chunk - position % options_.chunk);
}

// Puts the tokens where the layers read them. The one before the last may not be under way any more.
Tensor Engine::upload(std::span<const std::int32_t> tokens) {
    Tensor ids = state_->ids[state_->turn];
    state_->turn = 1 - state_->turn;
    ids.dims[0] = static_cast<std::int64_t>(tokens.size());
    core_->backend().write(*ids.buffer, ids.offset, std::as_bytes(tokens));
    return ids;
}

// Opens the stream of work and runs the layers over the ids, at `position`; the caller adds to it and commits.
void Engine::begin_rows(const Session &session, const Tensor &ids, std::int64_t position, int ahead) {
    Backend &backend = core_->backend();
    backend.begin();
    state_->decoder.layers(backend, session.views(ahead), ids, rows_of(state_->x, 0, ids.dims[0]), position);
}

std::span<float> Engine::fetch(const Tensor &logits) {
    const std::span<float> host = std::span(state_->host).first(byte_size(logits) / sizeof(float));
    core_->backend().read(*logits.buffer, logits.offset, std::as_writable_bytes(host));
    return host;
}

void Engine::require_finite(std::span<const float> logits, std::int64_t position,
                            const std::string &consequence) const {
    const auto bad = std::find_if(logits.begin(), logits.end(), [](float logit) { return !std::isfinite(logit); });
    if (bad != logits.end()) {
        throw Error(ErrorKind::numerical, "the logits at position " + std::to_string(position) + " hold " +
                                              std::to_string(*bad) + " for token " +
                                              std::to_string(bad - logits.begin()) + ", expected finite numbers; " +
                                              consequence);
    }
}

// Sets a step going: a chunk, or one token, at `position`, which is `ahead` steps after what the session has read.
void Engine::start(Session &session, const Tensor &ids, std::int64_t position, int ahead) {
    Backend &backend = core_->backend();
    begin_rows(session, ids, position, ahead);
    const Tensor token = backend.asynchronous() ? session.next_token(ahead) : Tensor{};
    state_->decoder.head(backend, rows_of(state_->x, ids.dims[0] - 1, 1), session.next_logits(ahead), token);
    backend.commit();
}

// Waits for the oldest step, with `left` newer ones under way. Nothing of the session changes unless all of it went well.
void Engine::finish(Session &session, std::span<const std::int32_t> tokens, std::size_t left) {
    core_->wait(left);
    const std::int64_t position = session.read_count();
    const auto rows = static_cast<std::int64_t>(tokens.size());
    require_finite(fetch(session.next_logits(0)), position + rows - 1,
                   "the session stays at position " + std::to_string(position) + ", without the last " +
                       std::to_string(rows) + " tokens; check the weights with lily info");
    session.commit(tokens);
}

void Engine::prefill(Session &session, std::span<const std::int32_t> tokens, const Between &between,
                     std::optional<std::uint64_t> claim) {
    require_ids(tokens);
    std::vector<std::int32_t> queue;
    auto lock = core_->enter();
    session.require_open(*core_);
    const Session::Reading reading(session);
    if (claim) {
        session.require_writer(*claim);
    }
    session.take_cancel(); // an old request is not about this call
    if (const auto pending = session.next_to_feed()) {
        queue.push_back(*pending);
    }
    queue.insert(queue.end(), tokens.begin(), tokens.end());
    session.require_room(static_cast<std::int64_t>(queue.size()));
    if (queue.empty() && session.read_count() == 0) {
        refuse("there are no tokens to read and the session is empty, expected at least one token");
    }
    session.run({});
    core_->wait(0); // for steps that nobody will ask about any more
    const auto total = static_cast<std::int64_t>(queue.size());
    const int ahead = core_->backend().asynchronous() ? 1 : 0; // chunks under way beside the one that is waited for
    std::deque<std::span<const std::int32_t>> running;
    std::int64_t started = 0;
    for (std::int64_t done = 0; done < total;) {
        if (session.take_cancel()) {
            throw Error(ErrorKind::cancelled, "the prefill was cancelled after " + std::to_string(done) + " of " +
                                                  std::to_string(total) +
                                                  " tokens; the session keeps these and is at " + "position " +
                                                  std::to_string(session.read_count()));
        }
        while (started < total && static_cast<int>(running.size()) <= ahead) {
            const std::int64_t position = session.read_count() + started - done;
            const std::int64_t rows = rows_to_edge(position, total - started);
            running.push_back(
                std::span(queue).subspan(static_cast<std::size_t>(started), static_cast<std::size_t>(rows)));
            start(session, upload(running.back()), position, static_cast<int>(running.size()) - 1);
            started += rows;
        }
        finish(session, running.front(), running.size() - 1);
        done += static_cast<std::int64_t>(running.front().size());
        running.pop_front();
        lock.unlock();
        between(done, total);
        lock = core_->enter();
        session.require_open(*core_);
    }
}

std::int32_t Engine::step(Session &session, Sampler &sampler, std::optional<std::uint64_t> claim) {
    const auto lock = core_->enter();
    session.require_open(*core_);
    session.require_idle();
    if (claim) {
        session.require_writer(*claim);
    }
    sampler.require_vocab(config_.vocab);
    if (session.take_cancel()) {
        throw Error(ErrorKind::cancelled, "the session was cancelled at position " +
                                              std::to_string(session.read_count()) +
                                              "; everything read so far stays, and the next call goes on");
    }
    if (const auto pending = session.next_to_feed()) {
        session.require_room(1);
        advance(session, *pending, sampler.greedy());
    } else if (session.read_count() == 0) {
        refuse("the session has read no tokens, so there is nothing to continue; prefill it first");
    }
    const std::int32_t token = sampler.sample(fetch(session.last_logits()));
    session.expect(token);
    return token;
}

// Reads the pending token. A greedy caller will want the most probable token next: on a device that works on its own, the
// step that reads it is set going before this one is waited for, with an id that the device has found itself.
void Engine::advance(Session &session, std::int32_t pending, bool greedy) {
    Backend &backend = core_->backend();
    const std::int64_t position = session.read_count();
    const bool begun = session.running() == pending;
    session.run({});
    if (!begun) {
        start(session, upload({&pending, 1}), position, 0);
    }
    const bool more = greedy && backend.asynchronous() && position + 2 <= session.capacity();
    if (more) {
        start(session, session.next_token(0), position + 1, 1);
    }
    const Tensor token = session.next_token(0);
    finish(session, {&pending, 1}, more ? 1 : 0);
    if (more) {
        std::int32_t next = 0;
        backend.read(*token.buffer, token.offset, std::as_writable_bytes(std::span(&next, 1)));
        session.run(next);
    }
}

// Reads the tokens on a timeline of its own and shows the logits of every position, in order.
void Engine::read_all(std::span<const std::int32_t> tokens, const Visitor &visitor, const Between &between) {
    require_ids(tokens);
    if (tokens.empty()) {
        refuse("there are no tokens, expected at least one");
    }
    const auto total = static_cast<std::int64_t>(tokens.size());
    if (total > options_.max_context) {
        throw ContextOverflow(std::to_string(total) + " tokens do not fit, max_context is " +
                                  std::to_string(options_.max_context) +
                                  "; load the model with a larger max_context, or pass a shorter text",
                              total, options_.max_context);
    }
    const std::shared_ptr<Session> session = Session::open(core_, total);
    for (std::int64_t done = 0; done < total;) {
        const std::int64_t rows = rows_to_edge(done, total - done);
        {
            const auto lock = core_->enter();
            Backend &backend = core_->backend();
            const auto chunk = tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows));
            begin_rows(*session, upload(chunk), session->read_count(), 0);
            for (std::int64_t first = 0; first < rows; first += kHeadRows) {
                const std::int64_t count = std::min(kHeadRows, rows - first);
                const Tensor logits = rows_of(state_->logits, 0, count);
                if (first > 0) {
                    backend.begin();
                }
                state_->decoder.head(backend, rows_of(state_->x, first, count), logits, Tensor{});
                backend.commit();
                core_->wait(0);
                const std::span<float> host = fetch(logits);
                for (std::int64_t row = 0; row < count; ++row) {
                    const auto size = static_cast<std::size_t>(config_.vocab);
                    const std::span<const float> one = host.subspan(static_cast<std::size_t>(row) * size, size);
                    require_finite(one, done + first + row, "there is no result; check the weights with lily info");
                    visitor(done + first + row, one);
                }
            }
            session->commit(chunk);
        }
        done += rows;
        between(done, total);
    }
}

std::vector<float> Engine::forward(std::span<const std::int32_t> tokens, const Between &between) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const std::int64_t row_bytes = config_.vocab * static_cast<std::int64_t>(sizeof(float));
    if (count > kLargestResult / row_bytes) {
        refuse("the logits of " + std::to_string(count) + " tokens would take " +
               std::to_string(count * row_bytes / 1'000'000) + " MB, expected at most " +
               std::to_string(kLargestResult / 1'000'000) + " MB: " + std::to_string(kLargestResult / row_bytes) +
               " tokens of this vocabulary; score() takes any length");
    }
    std::vector<float> result;
    result.reserve(static_cast<std::size_t>(count * config_.vocab));
    read_all(
        tokens,
        [&result](std::int64_t, std::span<const float> logits) {
            result.insert(result.end(), logits.begin(), logits.end());
        },
        between);
    return result;
}

Scores Engine::score(std::span<const std::int32_t> tokens, std::int64_t top, const Between &between) {
    require_range("top", top, 0, config_.vocab);
    const auto count = static_cast<std::int64_t>(tokens.size());
    if (top > 0 && count > kLargestResult / (8 * top)) {
        refuse("the top " + std::to_string(top) + " of " + std::to_string(count) + " tokens would take " +
               std::to_string(count * top * 8 / 1'000'000) + " MB, expected at most " +
               std::to_string(kLargestResult / 1'000'000) + " MB; ask for a smaller top");
    }
    Scores scores;
    std::vector<Candidate> best;
    read_all(
        tokens,
        [&](std::int64_t position, std::span<const float> logits) {
            const double lse = log_sum_exp(logits);
            const auto logprob = [lse](float logit) { return static_cast<float>(static_cast<double>(logit) - lse); };
            scores.lse.push_back(static_cast<float>(lse));
            if (position + 1 < count) {
                const std::int32_t next = tokens[static_cast<std::size_t>(position) + 1];
                scores.logprob.push_back(logprob(logits[static_cast<std::size_t>(next)]));
            }
            select_top(logits, static_cast<std::size_t>(top), best);
            for (const Candidate &candidate : best) {
                scores.ids.push_back(candidate.id);
                scores.top_logprobs.push_back(logprob(candidate.logit));
            }
        },
        between);
    return scores;
}

} // namespace lily
