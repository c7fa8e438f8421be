// A timeline: the one owner of everything that depends on the tokens read so far. Tokens, position, KV caches, GDN
// states, convolution windows, last logits and the pending token change together or not at all; snapshot, restore and
// fork act on all of them. It holds views of backend buffers, never pointers, and knows no graph: only the sizes in
// TimelineShape.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <sys/types.h>

#include "arena.h"
#include "backend.h"
#include "tensor.h"

namespace lily {

// What a timeline of a graph consists of.
struct TimelineShape {
    std::int64_t vocab = 0;
    std::int64_t attention_layers = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t gated_delta_layers = 0;
    std::int64_t value_heads = 0;
    std::int64_t value_dim = 0;
    std::int64_t key_dim = 0;
    std::int64_t window_rows = 0; // conv_width - 1
    std::int64_t channels = 0;    // of the convolution
};

// A lock that serves its callers in the order in which they came. With a plain mutex, a prefill that lets go between
// two chunks takes it again before a waiting thread has woken up, and the other sessions of the engine starve.
class FairLock {
  public:
    void lock();
    void unlock();

  private:
    std::mutex mutex_;
    std::condition_variable turn_;
    std::uint64_t arrived_ = 0;
    std::uint64_t served_ = 0;
};

class Session;

// The part of an engine that its sessions share: the device, the lock, and who is alive. A step holds the lock, never a
// whole call, and nobody waits for Python while holding it.
class EngineCore {
  public:
    EngineCore(std::shared_ptr<Backend> backend, TimelineShape shape);

    // The lock, for one step. Throws Error(device) in a forked child (before touching the lock, which may never be
    // freed there) and Error(invalid_input) when the engine is closed.
    std::unique_lock<FairLock> enter();
    bool forked() const;
    // Waits for the running step, refuses all later ones and closes the sessions. False if it was closed before.
    bool close();

    Backend &backend() { return *backend_; }
    // Backend::wait, by the holder of the lock. When a step failed, no session counts on the one that it has under way.
    void wait(std::size_t left);
    const TimelineShape &shape() const { return shape_; }
    std::uint64_t id() const { return id_; }
    std::size_t session_bytes() const { return session_bytes_.load(); }

  private:
    friend class Session;

    std::shared_ptr<Backend> backend_; // let go of at close; memory of a session holds it too
    TimelineShape shape_;
    std::uint64_t id_;
    pid_t pid_;
    FairLock lock_;
    bool closed_ = false;
    std::atomic<std::size_t> session_bytes_{0};
    std::vector<std::weak_ptr<Session>> sessions_;
};

// Views for one step: the caches, and for each GDN layer the slot to read and the slot to write.
struct TimelineViews {
    std::span<const KvCache> caches;
    std::span<const GatedDeltaState> from, to;
};

// A copy of a timeline in host memory. Immutable; good for any session of the same engine.
class Snapshot {
  public:
    std::int64_t position() const { return static_cast<std::int64_t>(tokens_.size()); }
    std::size_t bytes() const;
    bool operator==(const Snapshot &) const = default; // the same bits, of the same engine

  private:
    friend class Session;

    std::uint64_t engine_ = 0;
    std::vector<std::int32_t> tokens_;
    std::optional<std::int32_t> pending_;
    std::vector<std::byte> content_; // KV up to the position, states, windows, logits, in the order of Session::visit
};

class Session : public std::enable_shared_from_this<Session> {
  public:
    // Reserves all memory of the session; throws Error(out_of_memory) with the sizes.
    static std::shared_ptr<Session> open(std::shared_ptr<EngineCore> core, std::int64_t capacity);
    ~Session();
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    // From any thread. Each waits for the running step of the engine, except cancel, capacity and memory.
    std::vector<std::int32_t> tokens() const; // those that were read; the pending one is not
    std::int64_t position() const;
    std::optional<std::int32_t> pending() const;
    std::vector<float> logits() const; // f32 [vocab], after the last token read
    std::int64_t capacity() const { return capacity_; }
    std::size_t memory() const { return memory_.load(); } // bytes; 0 when closed
    // Asks the running prefill, or the next step, to stop. false takes the request back.
    void cancel(bool wanted) { cancelled_.store(wanted); }
    // Makes the caller the one writer of the session and returns its number, for Engine::prefill and Engine::step. It
    // holds until somebody else claims, resets or restores the session; then a writer that went on would write into a
    // timeline that is not the one it began.
    std::uint64_t claim();
    std::shared_ptr<Snapshot> snapshot() const;
    // Both end the claims of others and return one on the timeline that they made.
    std::uint64_t restore(const Snapshot &snapshot);
    std::uint64_t reset(); // as it was when it was opened; the memory stays reserved
    std::shared_ptr<Session> fork() const;
    void close(); // waits for the running step; closing twice is fine

    // For the engine, which holds the lock of the core.

    // A prefill owns the session until the object dies, so that no other call slips in between its chunks.
    class Reading {
      public:
        explicit Reading(Session &session);
        ~Reading();
        Reading(const Reading &) = delete;
        Reading &operator=(const Reading &) = delete;

      private:
        Session &session_;
    };

    void require_open(const EngineCore &core) const; // and of this engine
    void require_idle() const;                       // no prefill under way
    void require_writer(std::uint64_t claim) const;  // the last to claim
    void require_room(std::int64_t tokens) const;    // throws ContextOverflow
    bool take_cancel() { return cancelled_.exchange(false); }
    std::int64_t read_count() const;
    std::optional<std::int32_t> next_to_feed() const; // the pending token
    void expect(std::int32_t token);                  // makes it the pending one
    // What a step works on. ahead 0: the next one; 1: the one after it, whose input the next one has yet to write.
    TimelineViews views(int ahead) const;
    Tensor last_logits() const;          // f32 [1, vocab]
    Tensor next_logits(int ahead) const; // of the slot that the step writes
    Tensor next_token(int ahead) const;  // i32 [1], likewise: its most probable token, left on the device
    // The step is done: its tokens count as read, the next slot is the one that counts, and the pending token was the
    // first of them.
    void commit(std::span<const std::int32_t> tokens) noexcept;
    // The token that a step under way is reading, on the bet that it will be the pending one.
    std::optional<std::int32_t> running() const;
    void run(std::optional<std::int32_t> token);

  private:
    struct State;

    Session(std::shared_ptr<EngineCore> core, std::int64_t capacity);
    State &state() const; // throws Error(invalid_input) when closed
    std::unique_ptr<State> retire();
    // Calls visit(buffer, offset, bytes) for each piece of memory that holds the timeline up to position.
    void visit(std::int64_t position, int slot,
               const std::function<void(Buffer &, std::size_t, std::size_t)> &visit) const;
    std::shared_ptr<Snapshot> copy() const;
    void paste(const Snapshot &snapshot);
    std::uint64_t claim_for(const char *event);

    friend class EngineCore;

    std::shared_ptr<EngineCore> core_;
    std::int64_t capacity_;
    std::atomic<std::size_t> memory_{0};
    std::atomic<bool> cancelled_{false};
    std::atomic<bool> reading_{false};
    std::uint64_t claim_ = 0;
    const char *claimed_by_ = "";  // what the last claim was for, as the end of a sentence
    std::unique_ptr<State> state_; // gone when closed
};

} // namespace lily
