// The C API: modules, settings, and the dispatch, which checks what Metal's validation layer would and deals the
// threadgroups to workers.
#include "checker.h"
#include "fiber.h"
#include "threadgroup.h"
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <numeric>
#include <sched.h>
#include <sys/mman.h>
#include <thread>
#include <vector>

struct msl_kernel {
    const msl_kinfo *info;
    msl_module *module;
};
struct msl_module {
    std::string path;
    const msl_table *table;
    std::vector<msl_kernel> kernels;
};

namespace {

thread_local std::string last_error;

struct Settings {
    long workers = 0, order = 0, stack = 64 << 10, ftz = 1, strict = 0;
} settings;

msl_stats last_stats;
std::mutex one_dispatch;

__attribute__((format(printf, 1, 2))) int fail(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    last_error = text;
    return 1;
}

int processors() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// A threadgroup's state with its stacks, kept for the next dispatch.
class Workers {
  public:
    std::unique_ptr<Threadgroup> take(size_t stack_bytes) {
        std::unique_ptr<Threadgroup> group;
        {
            std::lock_guard lock(mutex_);
            if (!idle_.empty()) {
                group = std::move(idle_.back());
                idle_.pop_back();
            }
        }
        if (!group) {
            group = std::make_unique<Threadgroup>();
        }
        return reserve_stacks(*group, stack_bytes) ? std::move(group) : nullptr;
    }

    void give_back(std::unique_ptr<Threadgroup> group) {
        std::lock_guard lock(mutex_);
        idle_.push_back(std::move(group));
    }

  private:
    static bool reserve_stacks(Threadgroup &group, size_t bytes) {
        if (group.stacks && group.stack_bytes == bytes) {
            return true;
        }
        if (group.stacks) {
            munmap(group.stacks, group.stack_stride * max_threads);
        }
        group.stack_bytes = bytes;
        group.stack_stride = bytes + 17 * 64; // odd in cache lines: the lanes' frames fall into different sets
        void *memory = mmap(nullptr, group.stack_stride * max_threads, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        group.stacks = memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
        return group.stacks != nullptr;
    }

    std::mutex mutex_;
    std::vector<std::unique_ptr<Threadgroup>> idle_;
} workers;

bool validate(const msl_kinfo &kernel, const msl_launch &launch, bool checked) {
    const uint64_t threads = uint64_t{launch.tptg[0]} * launch.tptg[1] * launch.tptg[2];
    const int limit = kernel.max_threads ? kernel.max_threads : max_threads;
    if (threads == 0 || threads > static_cast<uint64_t>(limit)) {
        return !fail("kernel %s: %llu threads per threadgroup; expected 1 to %d", kernel.name,
                     static_cast<unsigned long long>(threads), limit);
    }
    if (!launch.grid[0] || !launch.grid[1] || !launch.grid[2]) {
        return !fail("kernel %s: the grid is empty (%u x %u x %u)", kernel.name, launch.grid[0], launch.grid[1],
                     launch.grid[2]);
    }
    uint64_t memory = 0;
    for (int i = 0; i < kernel.nargs; i++) {
        const msl_arg &argument = kernel.args[i];
        if (argument.kind == MSL_BUFFER) {
            if (!launch.buf[argument.index] && !argument.optional) {
                return !fail("kernel %s: buffer %d (%s) is not set", kernel.name, argument.index, argument.name);
            }
            if (checked && launch.buf[argument.index] && !launch.len[argument.index]) {
                return !fail("kernel %s: buffer %d (%s) is bound without its length, which the checker needs",
                             kernel.name, argument.index, argument.name);
            }
            continue;
        }
        const uint32_t bytes = launch.tgmem[argument.index];
        if (!bytes || bytes % 16) {
            return !fail("kernel %s: threadgroup memory %d (%s) has %u bytes; expected a multiple of 16", kernel.name,
                         argument.index, argument.name, bytes);
        }
        memory += bytes;
    }
    if (memory > threadgroup_memory_limit) {
        return !fail("kernel %s: its threadgroup arguments have %llu bytes, the limit is %u", kernel.name,
                     static_cast<unsigned long long>(memory), threadgroup_memory_limit);
    }
    return true;
}

// Function constants are variables of the module, which is why one dispatch runs at a time.
void set_constants(const msl_module &module, const msl_launch &launch) {
    const msl_table &table = *module.table;
    for (int i = 0; i < table.nconsts; i++) {
        *table.consts[i].defined = 0;
    }
    for (int given = 0; given < launch.nfc; given++) {
        for (int i = 0; i < table.nconsts; i++) {
            if (table.consts[i].index == launch.fc[given].index) {
                memcpy(table.consts[i].value, launch.fc[given].v, static_cast<size_t>(launch.fc[given].size));
                *table.consts[i].defined = 1;
            }
        }
    }
}

msl_args arguments(const msl_launch &launch) {
    msl_args args{};
    for (int i = 0; i < 31; i++) {
        args.buf[i] = reinterpret_cast<uint64_t>(launch.buf[i]);
    }
    for (int i = 0; i < 3; i++) {
        args.tptg[i] = launch.tptg[i];
        args.grid[i] = launch.grid_is_threads ? launch.grid[i] : launch.grid[i] * launch.tptg[i];
        args.tgs[i] = (args.grid[i] + launch.tptg[i] - 1) / launch.tptg[i];
    }
    return args;
}

// One dispatch, shared by its workers.
class Dispatch {
  public:
    Dispatch(const msl_kernel &kernel, const msl_launch &launch)
        : kernel_(kernel), launch_(launch), args_(arguments(launch)),
          total_(uint64_t{args_.tgs[0]} * args_.tgs[1] * args_.tgs[2]), checked_(kernel.module->table->checked != 0) {
        uint64_t count =
            settings.workers ? static_cast<uint64_t>(settings.workers) : static_cast<uint64_t>(processors());
        workers_ = checked_ ? 1 : std::min(count, total_);
        for (step_ = 7919 % total_; settings.order > 1 && std::gcd(step_, total_) != 1;) {
            step_ = step_ + 1; // a step that visits every threadgroup once
        }
    }

    void run() {
        if (workers_ == 1) {
            work();
            return;
        }
        std::vector<std::thread> threads;
        for (uint64_t i = 0; i < workers_; i++) {
            threads.emplace_back([this] { work(); });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }

    msl_stats stats{};
    std::atomic<bool> failed = false;
    std::string error;

  private:
    void work() {
        std::unique_ptr<Threadgroup> taken = workers.take(static_cast<size_t>(settings.stack));
        if (!taken) {
            finish(nullptr, "no memory for the stacks of a threadgroup");
            return;
        }
        Threadgroup &group = *taken;
        running = &group;
        FlushDenormals flush(settings.ftz != 0);
        group.args = args_;
        group.kernel = kernel_.info;
        group.checked = checked_;
        group.strict = settings.strict != 0;
        group.reverse = settings.order == 1;
        group.random = settings.order > 1;
        group.random_state = static_cast<uint64_t>(settings.order) * 0x9E3779B97F4A7C15ull;
        group.stats = {};
        group.failed = false;
        group.lane_count = 0;
        if (checked_) {
            checker::stacks(group.stacks, group.stack_stride * max_threads);
        }
        for (uint64_t i; !failed && (i = next_.fetch_add(1)) < total_;) {
            const uint64_t at = placed(i);
            group.random_state += at * 977;
            const uint32_t x = static_cast<uint32_t>(at % args_.tgs[0]);
            const uint32_t y = static_cast<uint32_t>(at / args_.tgs[0] % args_.tgs[1]);
            const uint32_t z = static_cast<uint32_t>(at / args_.tgs[0] / args_.tgs[1]);
            if (!run_threadgroup(group, launch_, x, y, z)) {
                break;
            }
        }
        running = nullptr;
        finish(&group.stats, group.failed ? group.error : "");
        workers.give_back(std::move(taken));
    }

    uint64_t placed(uint64_t i) const {
        if (settings.order == 1) {
            return total_ - 1 - i;
        }
        return settings.order > 1 ? (i * step_ + static_cast<uint64_t>(settings.order)) % total_ : i;
    }

    void finish(const msl_stats *own, const std::string &why) {
        std::lock_guard lock(mutex_);
        if (own) {
            stats.threads += own->threads;
            stats.switches += own->switches;
            stats.collectives += own->collectives;
            stats.barriers += own->barriers;
            stats.divergent += own->divergent;
            stats.tgmem = std::max(stats.tgmem, own->tgmem);
        }
        if (!why.empty()) {
            failed = true;
            error = why;
        }
    }

    const msl_kernel &kernel_;
    const msl_launch &launch_;
    const msl_args args_;
    const uint64_t total_;
    const bool checked_;
    uint64_t workers_ = 1, step_ = 1;
    std::atomic<uint64_t> next_ = 0;
    std::mutex mutex_;
};

} // namespace

extern "C" {

const char *msl_error(void) { return last_error.c_str(); }

void msl_set(const char *key, long value) {
    const std::pair<const char *, long *> known[] = {{"workers", &settings.workers},
                                                     {"order", &settings.order},
                                                     {"stack", &settings.stack},
                                                     {"ftz", &settings.ftz},
                                                     {"strict", &settings.strict}};
    for (const auto &[name, place] : known) {
        if (!strcmp(name, key)) {
            *place = value;
        }
    }
}

void msl_get_stats(msl_stats *stats) { *stats = last_stats; }

void msl_get_touched(int index, msl_touched *touched) { *touched = checker::touched(index); }

msl_module *msl_load(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fail("%s", dlerror());
        return nullptr;
    }
    const auto *table = static_cast<const msl_table *>(dlsym(handle, "__msl_table"));
    if (!table) {
        fail("%s has no table of kernels; expected a module that the toolchain built", path);
        return nullptr;
    }
    auto *module = new msl_module{path, table, {}};
    for (int i = 0; i < table->nkernels; i++) {
        module->kernels.push_back({&table->kernels[i], module});
    }
    return module;
}

int msl_count(msl_module *module) { return static_cast<int>(module->kernels.size()); }

msl_kernel *msl_at(msl_module *module, int i) { return &module->kernels[static_cast<size_t>(i)]; }

msl_kernel *msl_get(msl_module *module, const char *name) {
    for (msl_kernel &kernel : module->kernels) {
        if (!strcmp(kernel.info->name, name)) {
            return &kernel;
        }
    }
    fail("%s has no kernel %s", module->path.c_str(), name);
    return nullptr;
}

const msl_kinfo *msl_info(msl_kernel *kernel) { return kernel->info; }

int msl_const_index(msl_module *module, const char *name) {
    for (int i = 0; i < module->table->nconsts; i++) {
        if (!strcmp(module->table->consts[i].name, name)) {
            return module->table->consts[i].index;
        }
    }
    return -1;
}

int msl_dispatch(msl_kernel *kernel, const msl_launch *launch) {
    std::lock_guard lock(one_dispatch);
    const bool checked = kernel->module->table->checked != 0;
    if (!validate(*kernel->info, *launch, checked)) {
        return 1;
    }
    set_constants(*kernel->module, *launch);
    if (checked) {
        checker::begin(*kernel->info, *launch, kernel->module->path.c_str(), settings.strict != 0);
    }
    Dispatch dispatch(*kernel, *launch);
    dispatch.run();
    last_stats = dispatch.stats;
    if (checked) {
        last_stats.reports = checker::finish();
    }
    if (dispatch.failed) {
        return fail("%s", dispatch.error.c_str());
    }
    return last_stats.reports ? fail("%s", checker::text().c_str()) : 0;
}
}
