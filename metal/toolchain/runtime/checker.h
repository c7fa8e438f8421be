// The checker, as the executor drives it: it is told of a dispatch, its threadgroups, their memory and their barriers,
// and of every access by the instrumented code (instrumentation.cpp). It serves one dispatch of one thread at a time.
#pragma once
#include "exec.h"
#include <cstdint>
#include <string>

namespace checker {

// Between begin and finish, accesses are checked. `strict`: as in msl_set.
void begin(const msl_kinfo &kernel, const msl_launch &launch, const char *module_path, bool strict);
// Memory of the lanes themselves.
void stacks(const void *low, size_t bytes);
// The number of reports; their text, a line each.
uint64_t finish();
const std::string &text();
msl_touched touched(int index);

// A threadgroup begins, with its memory; variables and arguments in it become known as they are handed out.
void begin_threadgroup(uint32_t number, const char *memory);
void threadgroup_variable(uint32_t offset, uint32_t bytes);

// Barriers (flags as metal::mem_flags) and collectives of all lanes of a simdgroup.
void threadgroup_barrier(uint32_t flags);
void simdgroup_barrier(uint32_t simdgroup, uint32_t flags);
void collective(uint32_t simdgroup);

// A finding of the executor's own, at a code address.
void note(const char *what, const void *pc);

// An access by the running lane.
void access(uintptr_t address, size_t bytes, bool write, bool atomic, const void *pc);

} // namespace checker
