// The state of a threadgroup while a worker runs it: its lanes (threads of the grid), its simdgroups, its memory. What
// the scheduler (threadgroup.cpp) and the simdgroup functions (simdgroup.cpp) share; nothing else includes it but the
// dispatch that drives it.
#pragma once
#include "exec.h"
#include <cstddef>
#include <cstdint>
#include <string>

constexpr int simdgroup_size = 32;
constexpr int max_threads = 1024;
constexpr uint32_t threadgroup_memory_limit = 32768;
constexpr int max_matrices = 512; // of a simdgroup at once
constexpr int max_variables = 64; // of a kernel; MAX_VARIABLES of metal/toolchain/threadgroup.py

// What a lane asks of its simdgroup.
enum class Op : uint8_t {
    shuffle,
    reduce_float,
    reduce_int,
    reduce_uint,
    reduce_ulong,
    ballot,
    active,
    barrier,
    spread,
    gather,
    matrix
};

struct alignas(64) Lane {       // one line of the cache
    void *stack = nullptr;      // saved stack pointer
    const void *site = nullptr; // code address of what it waits at
    uint64_t in[2] = {}, out = 0;
    uint32_t argument = 0; // of the operation: kind of shuffle, flags of a barrier
    uint16_t index = 0;
    uint16_t position[3] = {};
    uint8_t lane = 0, simdgroup = 0;
    Op op = Op::shuffle;
    bool started = false;
};

struct Simdgroup {
    uint32_t alive = 0, ready = 0, waiting = 0; // masks of lanes
    int matrices = 0;                           // that live, for simdgroup_matrix
    Lane *lanes = nullptr;
};

struct Threadgroup {
    // Of the dispatch.
    msl_args args;
    const msl_kinfo *kernel = nullptr;
    bool checked = false, strict = false;
    bool reverse = false, random = false;
    uint64_t random_state = 0;
    char *stacks = nullptr;
    size_t stack_bytes = 0, stack_stride = 0;

    // Of the threadgroup that runs.
    uint32_t position[3], size[3];
    int lane_count = 0, simdgroup_count = 0, done_count = 0, barrier_count = 0;
    uint32_t ready_simdgroups = 0;
    const void *barrier_site = nullptr;
    uint32_t barrier_flags = 0;
    bool barriers_differ = false;
    Lane *current = nullptr;
    Lane lanes[max_threads];
    Simdgroup simdgroups[simdgroup_size];
    void *caller_stack = nullptr; // of the worker that runs us
    uint32_t memory_used = 0, argument_offset[8];
    uint32_t variable_offset[max_variables]; // plus 1; 0: not handed out yet
    alignas(64) char memory[2 * threadgroup_memory_limit];
    float matrices[simdgroup_size][max_matrices][64];

    msl_stats stats{};
    bool failed = false;
    std::string error;
};

// The threadgroup that the calling thread runs.
extern thread_local Threadgroup *running;
// Its lane that runs, for metal/compat/msl/host.h.
extern "C" thread_local uint32_t msl_current_lane;

// Runs one threadgroup to its end. False: `error` says why.
bool run_threadgroup(Threadgroup &group, const msl_launch &launch, uint32_t x, uint32_t y, uint32_t z);

// Ends the threadgroup with an error.
[[noreturn]] void die(Threadgroup &group, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The current lane waits for its simdgroup or threadgroup; returns when it is ready again.
void block(Threadgroup &group);

// Does what the lanes of a mask wait for, and makes them ready (simdgroup.cpp).
void complete(Threadgroup &group, Simdgroup &simdgroup, uint32_t mask);
// Whether the lanes of a mask wait at the same place.
bool same_site(const Simdgroup &simdgroup, uint32_t mask);

inline int lowest(uint32_t mask) { return __builtin_ctz(mask); }
