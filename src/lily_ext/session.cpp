// See session.h.

#include "session.h"

#include <algorithm>
#include <string>
#include <utility>

#include <unistd.h>

#include "error.h"

namespace lily {

// All memory of an open session. A step reads one slot and writes the next, because a recurrent state cannot rewind and
// a step that fails must leave the session as it was; a commit moves on by one. A device that works on its own has a third
// slot: a step is under way while the one before it is looked at, and neither may touch the slot that counts.
struct Session::State {
    State(std::shared_ptr<Backend> device, const TimelineShape &shape, std::int64_t capacity)
        : backend(std::move(device)), arena(*backend, "a session of " + std::to_string(capacity) + " tokens",
                                            total(shape, capacity, slots_of(*backend))) {
        tokens.reserve(static_cast<std::size_t>(capacity));
        for (std::int64_t layer = 0; layer < shape.attention_layers; ++layer) {
            const Tensor keys = arena.take(DType::bf16, {shape.kv_heads, capacity, shape.head_dim});
            caches.push_back({keys, arena.take(DType::bf16, {shape.kv_heads, capacity, shape.head_dim})});
        }
        for (int i = 0; i < slots_of(*backend); ++i) {
            Slot &made = slots.emplace_back();
            for (std::int64_t layer = 0; layer < shape.gated_delta_layers; ++layer) {
                const Tensor state = arena.take(DType::f32, {shape.value_heads, shape.value_dim, shape.key_dim});
                made.deltas.push_back({state, arena.take(DType::bf16, {shape.window_rows, shape.channels})});
            }
            made.logits = arena.take(DType::f32, {1, shape.vocab});
            made.token = arena.take(DType::i32, {1});
        }
    }

    static int slots_of(const Backend &backend) { return backend.asynchronous() ? 3 : 2; }

    static std::size_t total(const TimelineShape &shape, std::int64_t capacity, int slots) {
        const auto padded = [](std::int64_t elements, DType dtype) {
            return Arena::padded(static_cast<std::size_t>(elements) * size_of(dtype));
        };
        const std::size_t cache = padded(shape.kv_heads * capacity * shape.head_dim, DType::bf16);
        const std::size_t state = padded(shape.value_heads * shape.value_dim * shape.key_dim, DType::f32);
        const std::size_t window = padded(shape.window_rows * shape.channels, DType::bf16);
        const std::size_t slot = static_cast<std::size_t>(shape.gated_delta_layers) * (state + window) +
                                 padded(shape.vocab, DType::f32) + padded(1, DType::i32);
        return 2 * static_cast<std::size_t>(shape.attention_layers) * cache + static_cast<std::size_t>(slots) * slot;
    }

    struct Slot {
        std::vector<GatedDeltaState> deltas;
        Tensor logits, token;
    };

    // The slot so many steps after the one that counts.
    int after(int steps) const { return (slot + steps) % static_cast<int>(slots.size()); }

    std::shared_ptr<Backend> backend;
    Arena arena;
    std::vector<std::int32_t> tokens;
    std::optional<std::int32_t> pending;
    std::optional<std::int32_t> running;
    int slot = 0; // the one that holds the state after the last token
    std::vector<KvCache> caches;
    std::vector<Slot> slots;
};

namespace {

[[noreturn]] void refuse(const std::string &message) { throw Error(ErrorKind::invalid_input, message); }

std::uint64_t next_engine_id() {
    static std::atomic<std::uint64_t> count{0};
    return ++count;
}

} // namespace

void FairLock::lock() {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::uint64_t mine = arrived_++;
    turn_.wait(lock, [&] { return mine == served_; });
}

void FairLock::unlock() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++served_;
    }
    turn_.notify_all();
}

EngineCore::EngineCore(std::shared_ptr<Backend> backend, TimelineShape shape)
    : backend_(std::move(backend)), shape_(shape), id_(next_engine_id()), pid_(getpid()) {}

bool EngineCore::forked() const { return getpid() != pid_; }

std::unique_lock<FairLock> EngineCore::enter() {
    if (forked()) {
        throw Error(ErrorKind::device, "this engine was loaded in process " + std::to_string(pid_) +
                                           " and its threads are not in the forked process " +
                                           std::to_string(getpid()) + "; load the model in the child process");
    }
    std::unique_lock<FairLock> lock(lock_);
    if (closed_) {
        refuse("the engine is closed; load the model again");
    }
    return lock;
}

void EngineCore::wait(std::size_t left) {
    try {
        backend_->wait(left);
    } catch (const Error &) {
        for (const std::weak_ptr<Session> &weak : sessions_) {
            const std::shared_ptr<Session> session = weak.lock();
            if (session && session->state_) {
                session->run({});
            }
        }
        throw;
    }
}

bool EngineCore::close() {
    // Freed after the lock, the device last.
    std::shared_ptr<Backend> device;
    std::vector<std::unique_ptr<Session::State>> retired;
    const std::lock_guard<FairLock> lock(lock_);
    for (const std::weak_ptr<Session> &weak : sessions_) {
        if (const std::shared_ptr<Session> session = weak.lock()) {
            retired.push_back(session->retire());
        }
    }
    sessions_.clear();
    device = std::move(backend_);
    return !std::exchange(closed_, true);
}

std::size_t Snapshot::bytes() const { return content_.size() + tokens_.size() * sizeof(std::int32_t); }

std::shared_ptr<Session> Session::open(std::shared_ptr<EngineCore> core, std::int64_t capacity) {
    const auto lock = core->enter();
    std::shared_ptr<Session> session(new Session(core, capacity));
    std::erase_if(core->sessions_, [](const std::weak_ptr<Session> &weak) { return weak.expired(); });
    core->sessions_.push_back(session);
    return session;
}

Session::Session(std::shared_ptr<EngineCore> core, std::int64_t capacity)
    : core_(std::move(core)), capacity_(capacity) {
    state_ = std::make_unique<State>(core_->backend_, core_->shape(), capacity);
    memory_.store(state_->arena.bytes() + static_cast<std::size_t>(capacity) * sizeof(std::int32_t));
    core_->session_bytes_ += memory_.load();
}

Session::~Session() {
    if (core_->forked()) {
        // The device belongs to the parent process. Its objects are left alone here, with the core that holds them.
        static_cast<void>(state_.release());
        static_cast<void>(new std::shared_ptr<EngineCore>(core_));
        return;
    }
    retire();
}

std::unique_ptr<Session::State> Session::retire() {
    core_->session_bytes_ -= memory_.exchange(0);
    return std::move(state_);
}

void Session::close() {
    if (core_->forked()) {
        return;
    }
    std::unique_ptr<State> retired; // freed after the lock
    {
        const std::lock_guard<FairLock> lock(core_->lock_);
        retired = retire();
    }
}

Session::State &Session::state() const {
    if (!state_) {
        refuse("the session is closed; open a new one with engine.session()");
    }
    return *state_;
}

std::vector<std::int32_t> Session::tokens() const {
    const auto lock = core_->enter();
    return state().tokens;
}

std::int64_t Session::position() const {
    const auto lock = core_->enter();
    return read_count();
}

std::optional<std::int32_t> Session::pending() const {
    const auto lock = core_->enter();
    return state().pending;
}

std::vector<float> Session::logits() const {
    const auto lock = core_->enter();
    if (state().tokens.empty()) {
        refuse("the session has read no tokens, so it has no logits; prefill it first");
    }
    std::vector<float> result(static_cast<std::size_t>(core_->shape().vocab));
    const Tensor last = last_logits();
    core_->backend().read(*last.buffer, last.offset, std::as_writable_bytes(std::span(result)));
    return result;
}

void Session::visit(std::int64_t position, int slot,
                    const std::function<void(Buffer &, std::size_t, std::size_t)> &visit) const {
    const State &all = state();
    const TimelineShape &shape = core_->shape();
    const std::size_t row = static_cast<std::size_t>(shape.head_dim) * size_of(DType::bf16);
    for (const KvCache &cache : all.caches) {
        for (const Tensor &tensor : {cache.keys, cache.values}) {
            for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
                visit(*tensor.buffer, tensor.offset + static_cast<std::size_t>(head * capacity_) * row,
                      static_cast<std::size_t>(position) * row);
            }
        }
    }
    const State::Slot &one = all.slots[static_cast<std::size_t>(slot)];
    for (const GatedDeltaState &delta : one.deltas) {
        visit(*delta.state.buffer, delta.state.offset, byte_size(delta.state));
        visit(*delta.window.buffer, delta.window.offset, byte_size(delta.window));
    }
    visit(*one.logits.buffer, one.logits.offset, byte_size(one.logits));
}

std::shared_ptr<Snapshot> Session::copy() const {
    const State &all = state();
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->engine_ = core_->id();
    snapshot->tokens_ = all.tokens;
    snapshot->pending_ = all.pending;
    const std::int64_t position = read_count();
    std::size_t total = 0;
    visit(position, all.slot, [&](Buffer &, std::size_t, std::size_t bytes) { total += bytes; });
    snapshot->content_.resize(total);
    std::span<std::byte> rest(snapshot->content_);
    visit(position, all.slot, [&](Buffer &buffer, std::size_t offset, std::size_t bytes) {
        core_->backend().read(buffer, offset, rest.first(bytes));
        rest = rest.subspan(bytes);
    });
    return snapshot;
}

void Session::paste(const Snapshot &snapshot) {
    State &all = state();
    if (snapshot.engine_ != core_->id()) {
        refuse("the snapshot is of engine " + std::to_string(snapshot.engine_) + ", this session belongs to engine " +
               std::to_string(core_->id()) + "; a snapshot fits sessions of the engine that made it");
    }
    if (snapshot.position() > capacity_) {
        throw ContextOverflow("the snapshot holds " + std::to_string(snapshot.position()) +
                                  " tokens, this session has room for " + std::to_string(capacity_),
                              snapshot.position(), capacity_);
    }
    run({});
    core_->wait(0); // a step under way may be at work on what is written here
    std::span<const std::byte> rest(snapshot.content_);
    visit(snapshot.position(), all.after(1), [&](Buffer &buffer, std::size_t offset, std::size_t bytes) {
        core_->backend().write(buffer, offset, rest.first(bytes));
        rest = rest.subspan(bytes);
    });
    all.tokens.assign(snapshot.tokens_.begin(), snapshot.tokens_.end());
    all.pending = snapshot.pending_;
    all.slot = all.after(1);
}

std::shared_ptr<Snapshot> Session::snapshot() const {
    const auto lock = core_->enter();
    return copy();
}

std::uint64_t Session::restore(const Snapshot &snapshot) {
    const auto lock = core_->enter();
    require_idle();
    paste(snapshot);
    return claim_for("the session was restored from a snapshot");
}

std::uint64_t Session::reset() {
    const auto lock = core_->enter();
    require_idle();
    State &all = state();
    const int slot = all.after(1);
    run({});
    core_->wait(0);
    std::vector<std::byte> zeros;
    visit(0, slot, [&](Buffer &buffer, std::size_t offset, std::size_t bytes) {
        zeros.resize(
            std::max(zeros.size(), bytes)); // the caches need none: what lies beyond the position is never read
        core_->backend().write(buffer, offset, std::span(zeros).first(bytes));
    });
    all.tokens.clear();
    all.pending.reset();
    all.slot = slot;
    return claim_for("the session was reset");
}

std::uint64_t Session::claim() {
    const auto lock = core_->enter();
    state();
    require_idle();
    return claim_for("another decode or stream began on the session");
}

std::uint64_t Session::claim_for(const char *event) {
    claimed_by_ = event;
    return ++claim_;
}

std::shared_ptr<Session> Session::fork() const {
    const std::shared_ptr<Snapshot> content = snapshot();
    const std::shared_ptr<Session> twin = open(core_, capacity_);
    twin->restore(*content);
    return twin;
}

Session::Reading::Reading(Session &session) : session_(session) {
    session.require_idle();
    session.reading_.store(true);
}

Session::Reading::~Reading() { session_.reading_.store(false); }

void Session::require_open(const EngineCore &core) const {
    if (core_.get() != &core) {
        refuse("the session belongs to engine " + std::to_string(core_->id()) + ", not to this engine " +
               std::to_string(core.id()) + "; open one with this engine's session()");
    }
    state();
}

void Session::require_idle() const {
    if (reading_.load()) {
        refuse("the session is in the middle of a prefill; wait for it, or work on a fork()");
    }
}

void Session::require_writer(std::uint64_t claim) const {
    if (claim != claim_) {
        refuse("this decode or stream is over, because " + std::string(claimed_by_) +
               " after it began; nothing was fed. Begin a new one, or give each its own session.fork()");
    }
}

void Session::require_room(std::int64_t tokens) const {
    const std::int64_t needed = read_count() + tokens;
    if (needed > capacity_) {
        throw ContextOverflow("the session has read " + std::to_string(read_count()) + " tokens and " +
                                  std::to_string(tokens) + " more need room for " + std::to_string(needed) +
                                  ", but max_context is " + std::to_string(capacity_) +
                                  "; load the model with a larger max_context, or shorten the text",
                              needed, capacity_);
    }
}

std::int64_t Session::read_count() const { return static_cast<std::int64_t>(state().tokens.size()); }

std::optional<std::int32_t> Session::next_to_feed() const { return state().pending; }

void Session::expect(std::int32_t token) { state().pending = token; }

TimelineViews Session::views(int ahead) const {
    const State &all = state();
    const auto deltas = [&](int steps) {
        return std::span<const GatedDeltaState>(all.slots[static_cast<std::size_t>(all.after(steps))].deltas);
    };
    return {all.caches, deltas(ahead), deltas(ahead + 1)};
}

Tensor Session::last_logits() const { return state().slots[static_cast<std::size_t>(state().slot)].logits; }

Tensor Session::next_logits(int ahead) const {
    return state().slots[static_cast<std::size_t>(state().after(ahead + 1))].logits;
}

Tensor Session::next_token(int ahead) const {
    return state().slots[static_cast<std::size_t>(state().after(ahead + 1))].token;
}

std::optional<std::int32_t> Session::running() const { return state().running; }

void Session::run(std::optional<std::int32_t> token) { state().running = token; }

void Session::commit(std::span<const std::int32_t> tokens) noexcept {
    // No allocation: the room for all tokens was reserved with the session.
    state_->tokens.insert(state_->tokens.end(), tokens.begin(), tokens.end());
    state_->pending.reset();
    state_->slot = state_->after(1);
}

} // namespace lily
