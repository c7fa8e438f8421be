// The scheduler of a threadgroup's lanes. A lane runs until it needs its simdgroup (a shuffle, a reduction, a barrier)
// or its threadgroup (a barrier); then the next ready lane runs. Lanes that never wait share one stack. What a kernel
// asks of its threadgroup, barrier and memory, ends the file.
#include "threadgroup.h"
#include "checker.h"
#include "fiber.h"
#include <cstdarg>
#include <cstdio>
#include <cstring>

thread_local Threadgroup *running;
thread_local uint32_t msl_current_lane;

namespace {

uint32_t random_number(Threadgroup &group) {
    group.random_state = group.random_state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(group.random_state >> 33);
}

int random_bit(Threadgroup &group, uint32_t mask) {
    for (int n = static_cast<int>(random_number(group) % static_cast<uint32_t>(__builtin_popcount(mask))); n > 0; n--) {
        mask &= mask - 1;
    }
    return lowest(mask);
}

// The bit of a mask that follows `bit`, going around.
int next_bit(uint32_t mask, uint32_t bit) {
    const uint32_t above = bit == 31 ? 0 : mask & ~((2u << bit) - 1);
    return lowest(above ? above : mask);
}

int previous_bit(uint32_t mask, uint32_t bit) {
    const uint32_t below = mask & ((1u << bit) - 1);
    return 31 - __builtin_clz(below ? below : mask);
}

// Of lanes that wait at different places, those at the earliest code address: inner blocks come before their join.
uint32_t earliest(const Simdgroup &simdgroup, int &places) {
    const void *best = nullptr;
    uint32_t found = 0;
    places = 0;
    for (uint32_t left = simdgroup.waiting; left;) {
        const void *site = simdgroup.lanes[lowest(left)].site;
        uint32_t here = 0;
        for (uint32_t mask = left; mask; mask &= mask - 1) {
            if (simdgroup.lanes[lowest(mask)].site == site) {
                here |= 1u << lowest(mask);
            }
        }
        left &= ~here;
        places++;
        if (!best || site < best) {
            best = site;
            found = here;
        }
    }
    return found;
}

void release_barrier(Threadgroup &group) {
    if (group.barriers_differ) {
        die(group, "divergent threadgroup_barrier: threads wait at different barriers");
    }
    if (group.checked) {
        checker::threadgroup_barrier(group.barrier_flags);
    }
    for (int i = 0; i < group.simdgroup_count; i++) {
        group.simdgroups[i].ready = group.simdgroups[i].alive;
        group.ready_simdgroups |= 1u << i;
    }
    group.barrier_count = 0;
    group.stats.barriers++;
}

// No lane is ready: they wait at collectives with part of their simdgroup elsewhere, or at the barrier.
__attribute__((noinline)) void resolve(Threadgroup &group) {
    for (int i = 0; i < group.simdgroup_count; i++) {
        Simdgroup &simdgroup = group.simdgroups[i];
        if (!simdgroup.waiting) {
            continue;
        }
        int places = 0;
        const uint32_t mask = earliest(simdgroup, places);
        if (places > 1) {
            group.stats.divergent++;
            if (group.strict) {
                die(group, "divergent simdgroup operation: lanes of simdgroup %d wait at %d different operations", i,
                    places);
            }
        }
        complete(group, simdgroup, mask);
        return;
    }
    if (group.barrier_count != group.lane_count) {
        die(group, "divergent threadgroup_barrier: %d of %d threads reached it, %d have returned", group.barrier_count,
            group.lane_count, group.done_count);
    }
    release_barrier(group);
}

Lane *pick_random(Threadgroup &group) {
    uint32_t mask = 0;
    for (int i = 0; i < group.simdgroup_count; i++) {
        mask |= group.simdgroups[i].ready ? 1u << i : 0;
    }
    if (!mask) {
        return nullptr;
    }
    Simdgroup &simdgroup = group.simdgroups[random_bit(group, mask)];
    return &simdgroup.lanes[random_bit(group, simdgroup.ready)];
}

// In order, a simdgroup runs as long as it can.
Lane *pick_ordered(Threadgroup &group, const Lane &from) {
    Simdgroup &own = group.simdgroups[from.simdgroup];
    if (own.ready) {
        return &own.lanes[group.reverse ? previous_bit(own.ready, from.lane) : next_bit(own.ready, from.lane)];
    }
    group.ready_simdgroups &= ~(1u << from.simdgroup);
    if (!group.ready_simdgroups) {
        return nullptr;
    }
    Simdgroup &other = group.simdgroups[next_bit(group.ready_simdgroups, from.simdgroup)];
    return &other.lanes[group.reverse ? 31 - __builtin_clz(other.ready) : lowest(other.ready)];
}

Lane *pick(Threadgroup &group, const Lane &from) {
    for (;;) {
        if (Lane *lane = group.random ? pick_random(group) : pick_ordered(group, from)) {
            return lane;
        }
        resolve(group);
    }
}

void enter(Threadgroup &group, Lane &lane) {
    group.current = &lane;
    msl_current_lane = lane.lane;
}

void start(Threadgroup &group, Lane &lane) {
    lane.started = true;
    lane.stack = msl_new_fiber(group.stacks + lane.index * group.stack_stride + group.stack_bytes);
}

void number_lanes(Threadgroup &group) {
    int i = 0;
    for (uint32_t z = 0; z < group.size[2]; z++) {
        for (uint32_t y = 0; y < group.size[1]; y++) {
            for (uint32_t x = 0; x < group.size[0]; x++, i++) {
                Lane &lane = group.lanes[i];
                lane.index = static_cast<uint16_t>(i);
                lane.lane = static_cast<uint8_t>(i % simdgroup_size);
                lane.simdgroup = static_cast<uint8_t>(i / simdgroup_size);
                lane.position[0] = static_cast<uint16_t>(x);
                lane.position[1] = static_cast<uint16_t>(y);
                lane.position[2] = static_cast<uint16_t>(z);
            }
        }
    }
    group.lane_count = i;
    group.simdgroup_count = (i + simdgroup_size - 1) / simdgroup_size;
    for (int s = 0; s < group.simdgroup_count; s++) {
        group.simdgroups[s].lanes = &group.lanes[s * simdgroup_size];
    }
}

void ready_lanes(Threadgroup &group) {
    for (int s = 0; s < group.simdgroup_count; s++) {
        const int lanes = group.lane_count - s * simdgroup_size;
        Simdgroup &simdgroup = group.simdgroups[s];
        simdgroup.alive = simdgroup.ready = lanes >= simdgroup_size ? ~0u : (1u << lanes) - 1;
        simdgroup.waiting = 0;
        simdgroup.matrices = 0;
    }
    for (int i = 0; i < group.lane_count; i++) {
        group.lanes[i].started = false;
    }
    group.ready_simdgroups = group.simdgroup_count == 32 ? ~0u : (1u << group.simdgroup_count) - 1;
    group.done_count = group.barrier_count = 0;
}

// Memory that nobody wrote holds NaN in every float type.
void ready_memory(Threadgroup &group, const msl_launch &launch, uint32_t number) {
    memset(group.variable_offset, 0, sizeof group.variable_offset);
    if (group.checked) {
        checker::begin_threadgroup(number, group.memory);
    }
    uint32_t offset = 0;
    for (int i = 0; i < 8; i++) {
        group.argument_offset[i] = offset;
        if (launch.tgmem[i]) {
            if (group.checked) {
                checker::threadgroup_variable(offset, launch.tgmem[i]);
            }
            offset = (offset + launch.tgmem[i] + 15) & ~15u;
        }
    }
    memset(group.memory, 0xFF, offset);
    group.memory_used = offset;
}

} // namespace

void die(Threadgroup &group, const char *format, ...) {
    char what[900], whole[1100];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(whole, sizeof whole, "kernel %s (%s), threadgroup (%u,%u,%u): %s", group.kernel->name, group.kernel->place,
             group.position[0], group.position[1], group.position[2], what);
    group.failed = true;
    group.error = whole;
    void *abandoned;
    msl_switch(&abandoned, group.caller_stack);
    __builtin_unreachable();
}

bool same_site(const Simdgroup &simdgroup, uint32_t mask) {
    const void *site = simdgroup.lanes[lowest(mask)].site;
    for (; mask; mask &= mask - 1) {
        if (simdgroup.lanes[lowest(mask)].site != site) {
            return false;
        }
    }
    return true;
}

void block(Threadgroup &group) {
    Lane *from = group.current, *to = pick(group, *from);
    if (from == to) {
        return;
    }
    enter(group, *to);
    group.stats.switches++;
    if (!to->started) {
        start(group, *to);
    }
    // In order, the lane behind this one is the next: its stack comes from memory while this one runs.
    const Lane &behind = to[to->lane + 1 < simdgroup_size ? 1 : 0];
    __builtin_prefetch(behind.stack);
    __builtin_prefetch(static_cast<const char *>(behind.stack) + 64);
    msl_switch(&from->stack, to->stack);
}

extern "C" void msl_fiber_main() {
    Threadgroup &group = *running;
    void *abandoned;
    for (;;) {
        group.kernel->fn(&group.args);
        Lane &lane = *group.current;
        Simdgroup &simdgroup = group.simdgroups[lane.simdgroup];
        simdgroup.alive &= ~(1u << lane.lane);
        simdgroup.ready &= ~(1u << lane.lane);
        if (++group.done_count == group.lane_count) {
            msl_switch(&abandoned, group.caller_stack);
        }
        if (simdgroup.waiting && simdgroup.waiting == simdgroup.alive && same_site(simdgroup, simdgroup.waiting)) {
            complete(group, simdgroup, simdgroup.waiting); // the rest was waiting for us
        }
        Lane *next = pick(group, lane);
        enter(group, *next);
        if (next->started) {
            group.stats.switches++;
            msl_switch(&abandoned, next->stack);
        }
        next->started = true; // on this stack
    }
}

bool run_threadgroup(Threadgroup &group, const msl_launch &launch, uint32_t x, uint32_t y, uint32_t z) {
    const uint32_t position[3] = {x, y, z};
    uint32_t size[3];
    for (int i = 0; i < 3; i++) {
        const uint32_t left = group.args.grid[i] - position[i] * launch.tptg[i];
        size[i] = left < launch.tptg[i] ? left : launch.tptg[i];
    }
    memcpy(group.position, position, sizeof position);
    if (group.lane_count == 0 || memcmp(size, group.size, sizeof size) != 0) {
        memcpy(group.size, size, sizeof size);
        number_lanes(group);
    }
    ready_lanes(group);
    ready_memory(group, launch, x + group.args.tgs[0] * (y + group.args.tgs[1] * z));
    group.stats.threads += static_cast<uint64_t>(group.lane_count);
    group.stats.switches++;
    const int last = group.lane_count - 1;
    const int first = group.random ? static_cast<int>(random_number(group) % static_cast<uint32_t>(last + 1)) : 0;
    enter(group, group.lanes[group.reverse ? last : first]);
    start(group, *group.current);
    msl_switch(&group.caller_stack, group.current->stack);
    if (group.memory_used > group.stats.tgmem) {
        group.stats.tgmem = group.memory_used;
    }
    return !group.failed;
}

// ---- what a kernel asks of its threadgroup (metal/compat/msl/host.h) ----

extern "C" {

struct msl_position {
    uint32_t tid[3], tg[3], lane, simdgroup, simdgroups, index, size[3];
};

void __msl_pos_get(msl_position *position) {
    const Threadgroup &group = *running;
    const Lane &lane = *group.current;
    for (int i = 0; i < 3; i++) {
        position->tid[i] = lane.position[i];
        position->tg[i] = group.position[i];
        position->size[i] = group.size[i];
    }
    position->lane = lane.lane;
    position->simdgroup = lane.simdgroup;
    position->simdgroups = static_cast<uint32_t>(group.simdgroup_count);
    position->index = lane.index;
}

uint32_t __msl_index() { return running->current->index; }

void __msl_tg_barrier(uint32_t flags) {
    Threadgroup &group = *running;
    const Lane &lane = *group.current;
    const void *site = __builtin_return_address(0);
    if (group.barrier_count++ == 0) {
        group.barrier_site = site;
        group.barrier_flags = flags;
        group.barriers_differ = false;
    } else {
        group.barriers_differ |= site != group.barrier_site;
    }
    group.simdgroups[lane.simdgroup].ready &= ~(1u << lane.lane);
    block(group);
}

void *__msl_tg(int number, uint64_t bytes) {
    Threadgroup &group = *running;
    uint32_t &known = group.variable_offset[number];
    if (!known) {
        const uint32_t offset = (group.memory_used + 15) & ~15u;
        if (offset + bytes > threadgroup_memory_limit) {
            die(group, "threadgroup memory: %llu bytes used, the limit is %u",
                static_cast<unsigned long long>(offset + bytes), threadgroup_memory_limit);
        }
        known = offset + 1;
        group.memory_used = offset + static_cast<uint32_t>(bytes);
        memset(group.memory + offset, 0xFF, bytes);
        if (group.checked) {
            checker::threadgroup_variable(offset, static_cast<uint32_t>(bytes));
        }
    }
    return group.memory + known - 1;
}

void *__msl_tgarg(uint32_t number) {
    Threadgroup &group = *running;
    return group.memory + group.argument_offset[number];
}

void __msl_fence(uint32_t, int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
}
