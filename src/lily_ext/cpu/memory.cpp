// See memory.h.

#include "memory.h"

#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../error.h"
#include "machine.h"

namespace lily::cpu {

namespace {

// The blocks of this process, and the lock under which one is checked and added.
struct Ledger {
    std::mutex mutex;
    std::map<std::byte *, std::size_t> blocks;
};

// Never destroyed: a buffer may outlive the statics of the program.
Ledger &ledger() {
    static Ledger &one = []() -> Ledger & {
        // A child of fork() starts with a free lock and without the promises of its parent, whose buffers it never uses.
        pthread_atfork([] { ledger().mutex.lock(); }, [] { ledger().mutex.unlock(); },
                       [] {
                           ledger().blocks.clear();
                           ledger().mutex.unlock();
                       });
        return *new Ledger;
    }();
    return one;
}

// Bytes of all blocks that were promised and not touched yet.
std::int64_t untouched(const Ledger &ledger) {
#if defined(__APPLE__)
    using Residence = char;
#else
    using Residence = unsigned char;
#endif
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::int64_t total = 0;
    std::vector<Residence> resident;
    for (const auto &[data, bytes] : ledger.blocks) {
        resident.resize((bytes + page - 1) / page);
        if (mincore(data, bytes, resident.data()) == 0) {
            for (const Residence one : resident) {
                total += (one & 1) == 0 ? static_cast<std::int64_t>(page) : 0;
            }
        }
    }
    return total;
}

std::string megabytes(std::int64_t bytes) { return std::to_string((bytes + 999999) / 1000000) + " MB"; }

[[noreturn]] void refuse(const std::string &message) { throw Error(ErrorKind::out_of_memory, message); }

// The limits of this process on its own size, for a message.
std::string own_limits() {
    std::string text;
    const auto add = [&text](const char *name, int resource) {
        rlimit limit{};
        if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
            text += std::string(text.empty() ? "" : ", ") + name + " is " +
                    megabytes(static_cast<std::int64_t>(limit.rlim_cur));
        }
    };
    add("ulimit -v", RLIMIT_AS);
    add("ulimit -d", RLIMIT_DATA);
    return text.empty() ? "ulimit -v and ulimit -d set no limit" : text;
}

} // namespace

Pages::Pages(std::size_t bytes) : bytes_(bytes) {
    const auto needed = static_cast<std::int64_t>(bytes);
    Ledger &all = ledger();
    const std::lock_guard lock(all.mutex);
    const std::int64_t free = available_memory();
    const std::int64_t promised = untouched(all);
    if (needed >= free - promised) {
        refuse(
            megabytes(needed) + " are needed and " + megabytes(free) + " are free" +
            (promised > 0 ? ", of which " + megabytes(promised) + " are promised to open engines and sessions" : "") +
            "; lower max_context, close sessions, or free memory");
    }
    void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        const std::string reason = std::generic_category().message(errno);
        refuse(megabytes(needed) + " are needed and " + megabytes(free) + " are free, but the system refused them (" +
               reason + "; " + own_limits() + "); raise the limit, lower max_context, or close sessions");
    }
#if defined(MADV_HUGEPAGE)
    madvise(data, bytes, MADV_HUGEPAGE);
#endif
    data_ = static_cast<std::byte *>(data);
    all.blocks.emplace(data_, bytes);
}

Pages::~Pages() {
    Ledger &all = ledger();
    const std::lock_guard lock(all.mutex);
    all.blocks.erase(data_);
    munmap(data_, bytes_);
}

} // namespace lily::cpu
