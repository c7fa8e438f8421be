// Runs the decoder over sessions: chunked reading, single steps, whole-text scores; cancel, progress and the memory
// report. One lock, taken for each chunk or token, so that calls of several threads take turns. It knows no Python, no
// text and no files. Every method throws Error(device) in a forked child and Error(invalid_input) after close().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend.h"
#include "decoder.h"
#include "sampler.h"
#include "session.h"
#include "weights.h"

namespace lily {

struct DeviceOptions {
    std::string name = "cpu"; // or "metal", "metal:host", "metal:cuda"
    std::string isa;          // the instruction set of the CPU, or the order of metal:host; "" leaves the choice
    int threads = 0;          // of the host; 0 for one a usable processor
    std::vector<std::string> kernels; // files that metal:host and metal:cuda load: see metal/drivers.h
};

std::unique_ptr<Backend> open_device(const DeviceOptions &options);

// For open_device: the sets of the CPU that this machine can run, best first, and the processors it may use.
std::vector<std::string> instruction_sets();
int usable_cpus();

struct EngineOptions {
    DeviceOptions device{};
    std::int64_t max_context = 0; // tokens of a session
    std::int64_t chunk = 0;       // tokens of a step of prefill; chunks end at multiples of it
    bool byte_inputs = false;     // of Limits
};

// Bytes.
struct MemoryReport {
    std::size_t weights_mapped = 0;    // files, as they are
    std::size_t weights_copied = 0;    // of them, to the device, because it could not read them where they lie
    std::size_t weights_converted = 0; // small vectors as f32
    std::size_t scratch = 0;           // of the device and of a chunk
    std::size_t sessions = 0;          // reserved by the open ones
};

// For n tokens.
struct Scores {
    std::vector<float> logprob;      // [n - 1], of token i + 1 after tokens 0 .. i
    std::vector<std::int32_t> ids;   // [n, top], most probable first
    std::vector<float> top_logprobs; // [n, top]
    std::vector<float> lse;          // [n], log of the sum of exp(logits)
};

class Engine {
  public:
    // Called between chunks, without the lock. What it throws ends the call; chunks that were read stay read.
    using Between = std::function<void(std::int64_t done, std::int64_t total)>;

    Engine(std::shared_ptr<const Weights> weights, const DecoderConfig &config, const EngineOptions &options);
    ~Engine();
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    const std::string &device_name() const { return device_name_; }
    const std::string &isa() const { return isa_; }
    int threads() const { return threads_; }
    std::int64_t chunk() const { return options_.chunk; }
    bool byte_inputs() const { return options_.byte_inputs; }
    std::int64_t max_context() const { return options_.max_context; }
    std::int64_t vocab() const { return config_.vocab; }
    MemoryReport memory();

    std::shared_ptr<Session> session();
    // Reads the pending token of the session, if any, and then the tokens. After each chunk the session holds the
    // logits of its last token. Throws ContextOverflow before any work, Error(cancelled) between chunks, and
    // Error(numerical) when logits are not finite: the session then stays as it was before that chunk. With a claim of
    // the session, throws Error(invalid_input) before any work if somebody else has claimed it since.
    void prefill(Session &session, std::span<const std::int32_t> tokens, const Between &between,
                 std::optional<std::uint64_t> claim);
    // Reads the pending token, if any; samples from the last logits; makes the sample the new pending token. With a
    // claim as in prefill.
    std::int32_t step(Session &session, Sampler &sampler, std::optional<std::uint64_t> claim);
    // f32 [tokens, vocab], on a fresh timeline. Refuses results over 512 MB.
    std::vector<float> forward(std::span<const std::int32_t> tokens, const Between &between);
    Scores score(std::span<const std::int32_t> tokens, std::int64_t top, const Between &between);

    // Waits for the running step, frees all memory and lets go of the weights. Sessions are closed too.
    void close();

  private:
    struct State;
    // Gets the logits of one row, whose position is given. Runs with the lock held.
    using Visitor = std::function<void(std::int64_t position, std::span<const float> logits)>;

    void require_ids(std::span<const std::int32_t> tokens) const;
    std::int64_t rows_to_edge(std::int64_t position, std::int64_t left) const;
    Tensor upload(std::span<const std::int32_t> tokens);
    void begin_rows(const Session &session, const Tensor &ids, std::int64_t position, int ahead);
    void start(Session &session, const Tensor &ids, std::int64_t position, int ahead);
    void finish(Session &session, std::span<const std::int32_t> tokens, std::size_t left);
    void advance(Session &session, std::int32_t pending, bool greedy);
    std::span<float> fetch(const Tensor &logits);
    void require_finite(std::span<const float> logits, std::int64_t position, const std::string &consequence) const;
    void read_all(std::span<const std::int32_t> tokens, const Visitor &visitor, const Between &between);

    DecoderConfig config_;
    EngineOptions options_;
    std::string device_name_;
    std::string isa_;
    int threads_ = 0;
    std::shared_ptr<EngineCore> core_;
    std::unique_ptr<State> state_; // gone when closed
};

} // namespace lily
