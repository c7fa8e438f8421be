// The thread pool. A worker claims an item by lowering the count in one atomic word that also carries the number of the
// run, so a worker that the system delayed can never act on a finished run, and nobody waits for a worker that has
// nothing left to do: on a busy machine a late thread costs nothing but its own share.

#include "pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <unistd.h>

#include "../error.h"

namespace lily::cpu {

namespace {

// Long enough to bridge the gap between two sublayers of a decode step, short enough to leave an idle machine idle.
constexpr int kSpins = 4000;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

constexpr int kItemBits = 40;
constexpr std::uint64_t kItemMask = (std::uint64_t{1} << kItemBits) - 1;

} // namespace

struct Pool::Impl {
    std::atomic<std::uint64_t> ticket{0}; // run number << kItemBits | items not yet claimed
    std::atomic<std::int64_t> unfinished{0};
    // Written by run() before the ticket is published; stable until every claimed item is finished.
    std::atomic<Task> task{nullptr};
    std::atomic<void *> context{nullptr};
    std::atomic<std::int64_t> items{0};

    std::mutex mutex;
    std::condition_variable wake;
    std::condition_variable done;
    std::atomic<int> sleepers{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    pid_t owner = getpid();

    ~Impl() {
        stop.store(true);
        {
            const std::lock_guard lock(mutex);
            wake.notify_all();
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }

    bool has_work() const { return (ticket.load() & kItemMask) != 0; }

    // Claims and runs items until none is left.
    void work(int worker) {
        std::uint64_t seen = ticket.load();
        while ((seen & kItemMask) != 0) {
            if (!ticket.compare_exchange_weak(seen, seen - 1)) {
                continue;
            }
            const std::int64_t item = items.load() - static_cast<std::int64_t>(seen & kItemMask);
            task.load()(context.load(), item, worker);
            if (unfinished.fetch_sub(1) == 1) {
                const std::lock_guard lock(mutex);
                done.notify_one();
            }
            seen = ticket.load();
        }
    }

    void loop(int worker) {
        while (!stop.load()) {
            work(worker);
            int spins = 0;
            while (!has_work() && !stop.load() && spins < kSpins) {
                pause();
                ++spins;
            }
            if (!has_work() && !stop.load()) {
                std::unique_lock lock(mutex);
                sleepers.fetch_add(1);
                wake.wait(lock, [this] { return has_work() || stop.load(); });
                sleepers.fetch_sub(1);
            }
        }
    }
};

Pool::Pool(int threads) : impl_(std::make_unique<Impl>()) {
    if (threads > 1) {
        impl_->threads.reserve(static_cast<std::size_t>(threads) - 1);
    }
    for (int worker = 1; worker < threads; ++worker) {
        try {
            impl_->threads.emplace_back([impl = impl_.get(), worker] { impl->loop(worker); });
        } catch (const std::system_error &refusal) {
            throw Error(ErrorKind::device, std::to_string(threads) + " threads were asked for and the system gave " +
                                               std::to_string(worker) + " (" + refusal.code().message() +
                                               "); ask for fewer threads, or raise the limits of this process on "
                                               "threads and address space (ulimit -u, ulimit -v)");
        }
    }
}

Pool::~Pool() {
    if (impl_->owner != getpid()) {
        // A forked child has this object but not its threads: there is nobody to join, so the memory is left.
        static_cast<void>(impl_.release());
    }
}

int Pool::threads() const { return static_cast<int>(impl_->threads.size()) + 1; }

void Pool::run(std::int64_t items, Task task, void *context) {
    if (items <= 0) {
        return;
    }
    Impl &impl = *impl_;
    if (items == 1 || impl.threads.empty()) {
        for (std::int64_t item = 0; item < items; ++item) {
            task(context, item, 0);
        }
        return;
    }
    impl.task.store(task);
    impl.context.store(context);
    impl.items.store(items);
    impl.unfinished.store(items);
    const std::uint64_t run = (impl.ticket.load() >> kItemBits) + 1;
    impl.ticket.store((run << kItemBits) | static_cast<std::uint64_t>(items));
    if (impl.sleepers.load() > 0) {
        const std::lock_guard lock(impl.mutex);
        impl.wake.notify_all();
    }
    impl.work(0);
    for (int spins = 0; impl.unfinished.load() != 0 && spins < kSpins; ++spins) {
        pause();
    }
    if (impl.unfinished.load() != 0) {
        std::unique_lock lock(impl.mutex);
        impl.done.wait(lock, [&impl] { return impl.unfinished.load() == 0; });
    }
}

} // namespace lily::cpu
