// Threads of our own: as many as asked for, asleep when idle. Work is handed out by index from one counter; every item
// is a fixed piece of the result, so results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>

namespace lily::cpu {

class Pool {
  public:
    using Task = void (*)(void *context, std::int64_t item, int worker);

    // The caller of run() is one of them. Throws Error(device) when the system gives fewer.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    int threads() const;
    // Calls task(context, item, worker) for each item of [0, items), worker in [0, threads). Returns when all are done.
    // One run at a time; tasks may not throw and may not call run().
    void run(std::int64_t items, Task task, void *context);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace lily::cpu
