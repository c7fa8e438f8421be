// A probe on metal:host that stands beside every dispatch: what the formula beside the kernel says of its bytes, and what
// the checker saw it touch. How the formulas are proved; nothing of a product uses it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "metal/backend_metal.h"
#include "probe.h"

namespace lily {

// Of the same dispatch at the same place.
struct Testimony {
    std::vector<metal::DispatchRecord> said;
    std::vector<metal::Touches> seen;
};

class Witness {
  public:
    // kernels: as of metal:host, built for the checker.
    explicit Witness(const std::vector<std::string> &kernels)
        : probe_(metal::make_witness(kernels, &testimony_.said, &testimony_.seen)) {}
    Witness(const Witness &) = delete;
    Witness &operator=(const Witness &) = delete;

    Probe &probe() { return probe_; }
    // Of all dispatches since it was last asked.
    Testimony take() { return std::exchange(testimony_, {}); }

  private:
    Testimony testimony_;
    Probe probe_; // writes into the one above
};

} // namespace lily
