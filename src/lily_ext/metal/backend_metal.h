// The factory of the Metal backend: all that the rest of the program knows of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../backend.h"
#include "record.h"

namespace lily::metal {

// device: "metal", "metal:host" or "metal:cuda". kernels and order: what the driver takes, see drivers.h. threads: of the
// host. Throws Error(device) for a device that this build or machine lacks.
std::unique_ptr<Backend> make_backend(const std::string &device, const std::vector<std::string> &kernels,
                                      const std::string &order, int threads);

// A backend that runs nothing; what is encoded is noted in records.
std::unique_ptr<Backend> make_counter(std::vector<DispatchRecord> *records);

// One on metal:host, under the checker: dispatches run in the order of their records, and what each touched is noted
// beside them. kernels: as of metal:host, built for the checker.
std::unique_ptr<Backend> make_witness(const std::vector<std::string> &kernels, std::vector<DispatchRecord> *records,
                                      std::vector<Touches> *touches);

} // namespace lily::metal
