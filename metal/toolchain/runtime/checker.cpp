// The checker of one dispatch: which memory may be accessed, what was, and what to report. The rule of races is in
// shadow.h, the accesses come from instrumentation.cpp.
#include "checker.h"
#include "places.h"
#include "shadow.h"
#include "threadgroup.h"
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <sys/mman.h>
#include <vector>

namespace checker {
namespace {

enum class Finding { out_of_bounds, unwritten, race, read_only, other };
constexpr size_t max_reports = 20;

// Memory that is zero when it is made and costs only what is touched of it.
class Zeroed {
  public:
    explicit Zeroed(size_t bytes)
        : bytes_(bytes),
          data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
    ~Zeroed() { munmap(data_, bytes_); }
    Zeroed(const Zeroed &) = delete;
    Zeroed &operator=(const Zeroed &) = delete;
    template <class T> T *as() { return data_ == MAP_FAILED ? nullptr : static_cast<T *>(data_); }

  private:
    size_t bytes_;
    void *data_;
};

// Of each byte of a buffer, the threadgroup that touched it last: threadgroups run one after another.
class Touched {
  public:
    explicit Touched(size_t bytes) : groups_(bytes * sizeof(uint32_t) + 1) {}
    void add(size_t offset, size_t count, uint32_t group) {
        total_ += count;
        for (uint32_t *last = groups_.as<uint32_t>() + offset; count > 0; count--, last++) {
            unique_ += *last == 0;
            of_groups_ += *last != group;
            *last = group;
        }
    }
    uint64_t total() const { return total_; }
    uint64_t unique() const { return unique_; }
    uint64_t of_groups() const { return of_groups_; }

  private:
    Zeroed groups_;
    uint64_t total_ = 0, unique_ = 0, of_groups_ = 0;
};

struct Range {
    uintptr_t low, high;
    int index;
    bool writable;
    const char *name;
    Cell *cells; // of writable ones; overlapping buffers share theirs
    std::unique_ptr<Touched> read, written;
};

// State of the dispatch that is checked.
const msl_kinfo *kernel;
bool strict;
std::vector<Range> ranges;
std::vector<std::unique_ptr<Zeroed>> shadows;
Range *last_range;
uintptr_t stacks_low, stacks_high;
Module module;
std::set<std::pair<const void *, Finding>> seen;
std::string report_text;
uint64_t report_count;

// State of the threadgroup that runs.
std::vector<std::pair<uint32_t, uint32_t>> variables; // offset, bytes
uintptr_t memory_low;
uint32_t threadgroup_number, threadgroup_generation; // the latter of all dispatches, from 1
Epochs epochs;
Cell memory_cells[2 * threadgroup_memory_limit];

__attribute__((format(printf, 3, 4))) void report(const void *pc, Finding finding, const char *format, ...) {
    report_count++;
    if (seen.size() >= max_reports || !seen.insert({pc, finding}).second) {
        return;
    }
    char what[500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    report_text += report_text.empty() ? "" : "\n";
    report_text += std::string(kernel->name) + ": " + what + " at " + module.place(pc) + " [thread " +
                   std::to_string(running->current->index) + " of threadgroup " + std::to_string(threadgroup_number) +
                   "]";
}

void access_cell(Cell &cell, uint32_t generation, const Access &access, const void *pc, const char *what,
                 size_t offset) {
    if (cell.generation != generation) {
        cell = Cell{};
        cell.generation = generation;
    }
    const char *kind =
        access.atomic ? (access.write ? "atomic write" : "atomic read") : (access.write ? "write" : "read");
    if (access.memory == 1 && !access.write && !cell.written) {
        report(pc, Finding::unwritten, "read of threadgroup memory that nobody wrote, %s+%zu", what, offset);
    }
    if (cell.races_with_write(access, epochs)) {
        report(pc, Finding::race, "race: %s of %s+%zu; thread %d of threadgroup %u wrote it without a barrier between",
               kind, what, offset, cell.writer - 1, cell.writer_group);
    }
    if (access.write && cell.races_with_read(access, epochs)) {
        report(pc, Finding::race, "race: %s of %s+%zu; thread %d of threadgroup %u read it without a barrier between",
               kind, what, offset, cell.reader - 1, cell.reader_group);
    }
    cell.record(access, epochs);
}

void access_threadgroup(size_t offset, size_t bytes, Access access, const void *pc) {
    const bool known = std::any_of(variables.begin(), variables.end(), [&](const auto &variable) {
        return offset >= variable.first && offset + bytes <= variable.first + variable.second;
    });
    if (!known) {
        report(pc, Finding::out_of_bounds, "%s of %zu bytes outside the threadgroup variables (offset %zu)",
               access.write ? "write" : "read", bytes, offset);
        return;
    }
    access.memory = 1;
    for (size_t i = offset; i < offset + bytes; i++) {
        access_cell(memory_cells[i], threadgroup_generation, access, pc, "threadgroup memory", i);
    }
}

// The buffer at an address, a writable one before others.
Range *find(uintptr_t address) {
    if (last_range && address >= last_range->low && address < last_range->high) {
        return last_range;
    }
    Range *found = nullptr;
    for (Range &range : ranges) {
        if (address >= range.low && address < range.high && (!found || range.writable)) {
            found = &range;
        }
    }
    return last_range = found;
}

void report_outside(uintptr_t address, size_t bytes, bool write, const void *pc) {
    const char *kind = write ? "write" : "read";
    const auto distance = [&](const Range &range) {
        return address < range.low ? range.low - address : address - range.low;
    };
    const auto near = std::min_element(ranges.begin(), ranges.end(),
                                       [&](const Range &a, const Range &b) { return distance(a) < distance(b); });
    if (near == ranges.end()) {
        report(pc, Finding::out_of_bounds, "%s of %zu bytes; no buffer is bound", kind, bytes);
        return;
    }
    report(pc, Finding::out_of_bounds,
           "%s of %zu bytes outside every bound buffer; nearest is buffer %d (%s, %zu bytes), "
           "offset %td",
           kind, bytes, near->index, near->name, static_cast<size_t>(near->high - near->low),
           static_cast<ptrdiff_t>(address - near->low));
}

void bind(const msl_kinfo &info, const msl_launch &launch) {
    ranges.clear();
    shadows.clear();
    for (int i = 0; i < info.nargs; i++) {
        const msl_arg &argument = info.args[i];
        if (argument.kind != MSL_BUFFER || !launch.buf[argument.index]) {
            continue;
        }
        const uintptr_t low = reinterpret_cast<uintptr_t>(launch.buf[argument.index]);
        const size_t bytes = launch.len[argument.index];
        ranges.push_back({low, low + bytes, argument.index, argument.writable != 0, argument.name, nullptr,
                          std::make_unique<Touched>(bytes), std::make_unique<Touched>(bytes)});
    }
}

// A buffer that overlaps one the kernel may write is watched as if it were writable too; both share their cells.
void shadow() {
    for (Range &a : ranges) {
        for (const Range &b : ranges) {
            a.writable |= b.writable && a.low < b.high && b.low < a.high;
        }
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return a.low < b.low; });
    uintptr_t base = 0, end = 0;
    for (size_t i = 0; i < ranges.size(); i++) {
        Range &range = ranges[i];
        if (!range.writable) {
            continue;
        }
        if (range.low >= end) {
            base = range.low;
            end = range.high;
            for (size_t j = i; j < ranges.size(); j++) {
                end = ranges[j].writable && ranges[j].low < end ? std::max(end, ranges[j].high) : end;
            }
            shadows.push_back(std::make_unique<Zeroed>((end - base) * sizeof(Cell)));
        }
        Cell *cells = shadows.back()->as<Cell>();
        range.cells = cells ? cells + (range.low - base) : nullptr;
    }
}

} // namespace

void begin(const msl_kinfo &info, const msl_launch &launch, const char *module_path, bool is_strict) {
    kernel = &info;
    strict = is_strict;
    last_range = nullptr;
    seen.clear();
    report_text.clear();
    report_count = 0;
    module = Module(module_path);
    bind(info, launch);
    shadow();
}

void stacks(const void *low, size_t bytes) {
    stacks_low = reinterpret_cast<uintptr_t>(low);
    stacks_high = stacks_low + bytes;
}

uint64_t finish() { return report_count; }

const std::string &text() { return report_text; }

msl_touched touched(int index) {
    for (const Range &range : ranges) {
        if (range.index == index) {
            return {range.read->unique(), range.written->unique(), range.read->of_groups(), range.read->total(),
                    range.written->total()};
        }
    }
    return {};
}

void begin_threadgroup(uint32_t number, const char *memory) {
    threadgroup_number = number;
    threadgroup_generation++;
    memory_low = reinterpret_cast<uintptr_t>(memory);
    variables.clear();
    epochs = Epochs{};
}

void threadgroup_variable(uint32_t offset, uint32_t bytes) { variables.emplace_back(offset, bytes); }

void threadgroup_barrier(uint32_t flags) {
    epochs.threadgroup[0] = static_cast<uint16_t>(epochs.threadgroup[0] + (flags & 1));
    epochs.threadgroup[1] = static_cast<uint16_t>(epochs.threadgroup[1] + (flags >> 1 & 1));
}

void simdgroup_barrier(uint32_t simdgroup, uint32_t flags) {
    uint16_t (&own)[2] = epochs.simdgroup[simdgroup];
    own[0] = static_cast<uint16_t>(own[0] + (flags & 1));
    own[1] = static_cast<uint16_t>(own[1] + (flags >> 1 & 1));
}

void collective(uint32_t simdgroup) { epochs.collectives[simdgroup]++; }

void note(const char *what, const void *pc) { report(pc, Finding::other, "%s", what); }

void access(uintptr_t address, size_t bytes, bool write, bool atomic, const void *pc) {
    Access access{threadgroup_number, running->current->index, write, atomic, 0, strict};
    if (address - memory_low < sizeof running->memory) {
        access_threadgroup(address - memory_low, bytes, access, pc);
        return;
    }
    const bool own_state = address - reinterpret_cast<uintptr_t>(running) < sizeof *running; // arguments, matrices
    if (own_state || (address >= stacks_low && address < stacks_high)) {
        return;
    }
    Range *range = find(address);
    if (!range) {
        if (!module.holds(address)) { // its constants
            report_outside(address, bytes, write, pc);
        }
        return;
    }
    const size_t offset = address - range->low;
    if (address + bytes > range->high) {
        report(pc, Finding::out_of_bounds, "%s of %zu bytes runs past the end of buffer %d (%s, %zu bytes), offset %zu",
               write ? "write" : "read", bytes, range->index, range->name,
               static_cast<size_t>(range->high - range->low), offset);
        return;
    }
    if (write && !range->writable) {
        report(pc, Finding::read_only, "write to buffer %d (%s), which is bound read-only", range->index, range->name);
        return;
    }
    (write ? *range->written : *range->read).add(offset, bytes, threadgroup_generation);
    for (size_t i = 0; range->cells && i < bytes; i++) {
        access_cell(range->cells[offset + i], 1, access, pc, range->name, offset + i);
    }
}

} // namespace checker
