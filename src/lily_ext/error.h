// The one exception type of the extension. Each kind maps to one class of lily.errors in bindings.cpp.
// Not for programming mistakes: those are asserts in debug builds.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace lily {

enum class ErrorKind {
    invalid_input,
    checkpoint,
    unsupported_checkpoint,
    context_overflow,
    out_of_memory,
    cancelled,
    numerical,
    device,
};

class Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, std::string message) : std::runtime_error(std::move(message)), kind_(kind) {}
    ErrorKind kind() const { return kind_; }

  private:
    ErrorKind kind_;
};

// An overflow carries its numbers, positions both, for a caller that wants to act on them.
class ContextOverflow : public Error {
  public:
    ContextOverflow(std::string message, std::int64_t needed, std::int64_t limit)
        : Error(ErrorKind::context_overflow, std::move(message)), needed_(needed), limit_(limit) {}
    std::int64_t needed() const { return needed_; }
    std::int64_t limit() const { return limit_; }

  private:
    std::int64_t needed_;
    std::int64_t limit_;
};

} // namespace lily
