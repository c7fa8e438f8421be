// The executor of Metal compute kernels on the CPU, as a C API: load a module that the toolchain has built, dispatch its
// kernels. A thread of the grid is a fiber; 32 of them form a simdgroup. Modules built for the checker report races,
// accesses out of bounds and uninitialised threadgroup memory as errors of the dispatch. Nothing here knows lily.
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct msl_module msl_module;
typedef struct msl_kernel msl_kernel;

// ---- the tables that the toolchain puts into each module ----

// What an entry function gets: the same layout as __msl_args in metal/compat/msl/machine.h, on every device.
typedef struct {
    uint64_t buf[31];
    uint32_t tgoff[8]; // CUDA: byte offsets of the [[threadgroup(n)]] arguments
    uint32_t grid[3];  // threads in the grid
    uint32_t tgs[3];   // threadgroups in the grid
    uint32_t tptg[3];  // threads per threadgroup
} msl_args;

enum { MSL_BUFFER = 0, MSL_THREADGROUP = 1 };

typedef struct {
    int kind; // MSL_BUFFER or MSL_THREADGROUP
    int index;
    int writable;
    const char *name;
    const char *type;
    const char *optional; // the function constant that decides whether it is there; NULL: always
} msl_arg;

typedef struct {
    const char *name;
    void (*fn)(const msl_args *);
    int nargs;
    const msl_arg *args;
    int max_threads;   // per threadgroup; 0: no limit of its own
    const char *place; // file:line
} msl_kinfo;

typedef struct {
    const char *name;
    int index;
    const char *type;
    void *value;
    unsigned char *defined;
} msl_const;

typedef struct {
    const msl_kinfo *kernels;
    int nkernels;
    const msl_const *consts;
    int nconsts;
    int checked; // built for the checker
} msl_table;     // the symbol __msl_table

// ---- modules and kernels ----

msl_module *msl_load(const char *path); // NULL: see msl_error()
int msl_count(msl_module *);
msl_kernel *msl_at(msl_module *, int i);
msl_kernel *msl_get(msl_module *, const char *name); // NULL: see msl_error()
const msl_kinfo *msl_info(msl_kernel *);
int msl_const_index(msl_module *, const char *name); // -1: none of that name

// ---- dispatch ----

typedef struct {
    void *buf[31];
    size_t len[31];    // bytes
    uint32_t tgmem[8]; // bytes of the [[threadgroup(n)]] arguments
    uint32_t grid[3];  // in threads or in threadgroups
    uint32_t tptg[3];  // threads per threadgroup
    int grid_is_threads;
    struct {
        int index;
        int size;
        unsigned char v[16];
    } fc[32]; // function constants of the pipeline
    int nfc;
} msl_launch;

// Runs to the end. 0: done; else see msl_error(). One dispatch runs at a time, on several threads of its own.
int msl_dispatch(msl_kernel *, const msl_launch *);
const char *msl_error(void); // of the calling thread's last failure

// Settings, for every later dispatch:
//   workers  threads to run on (0: all processors that this process may use; checked modules take one)
//   order    of lanes and threadgroups: 0 ascending, 1 descending, else the seed of a random order
//   stack    bytes of a lane's stack
//   ftz      1: float denormals flush to zero, as on the GPU
//   strict   1: divergent simdgroup functions, and writes ordered behind reads by a collective only, are errors too
void msl_set(const char *key, long value);

typedef struct {
    uint64_t threads, switches, collectives, barriers, reports, tgmem, divergent;
} msl_stats;
void msl_get_stats(msl_stats *); // of the last dispatch

// What the last dispatch of a checked module touched of the buffer bound at an index.
typedef struct {
    uint64_t unique_read, unique_written; // different bytes
    uint64_t loaded;                      // different bytes that a threadgroup read, of all threadgroups together
    uint64_t read, written;               // bytes, each access counted
} msl_touched;
void msl_get_touched(int index, msl_touched *);

#ifdef __cplusplus
}
#endif
