// What this process may use of the machine: processors and memory, as the affinity mask and the control groups allow.
#pragma once

#include <cstdint>

namespace lily::cpu {

// CPUs of the affinity mask, no more than the quota of the control group (v1 or v2) rounded up; at least 1.
int usable_cpus();

// The threads that were asked for, 0 for usable_cpus(). Throws Error(invalid_input) on a bad count.
int count_threads(int threads);

// Bytes that can still be allocated without swapping: the smaller of what the system and the control group have left.
std::int64_t available_memory();

} // namespace lily::cpu
