// What the machine does at most when nothing else is asked of it: bytes read from memory, products added up. Measured, for
// reports that say how far a sublayer is from it. Nothing of a product uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lily::cpu {

// Bytes or products of one pass as the sums show them, 0 where the instruction set has no such instruction; and the time
// that each pass took.
struct Peak {
    double work = 0;
    std::vector<double> seconds;
};

// isa and threads as in make_backend, and the same errors; passes at least 1.
// Each thread reads as many bytes as are given, from its share of fresh memory.
Peak read_peak(const std::string &isa, int threads, std::size_t bytes, int passes);
// Each thread takes as many pieces, of some 50 microseconds.
// numbers: "f32", "bf16" (pairs into f32) or "bytes" (fours into whole numbers). Throws Error(invalid_input) for others.
Peak product_peak(const std::string &isa, int threads, const std::string &numbers, std::int64_t pieces, int passes);

} // namespace lily::cpu
