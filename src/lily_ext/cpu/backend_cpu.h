// The door to the CPU backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../backend.h"
#include "machine.h" // usable_cpus
#include "peak.h"

namespace lily::cpu {

// isa: a name of instruction_sets(), or "" for the best one (LILY_ISA in the environment is a choice too).
// threads: 0 for usable_cpus(). Throws Error(device) when the machine has no such set, Error(invalid_input) on a bad count.
std::unique_ptr<Backend> make_backend(const std::string &isa, int threads);

std::vector<std::string> instruction_sets(); // that this machine can run, best first

} // namespace lily::cpu
