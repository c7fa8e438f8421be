// Where in a .metal file a code address of a module comes from.
#pragma once
#include <cstdint>
#include <string>

namespace checker {

class Module {
  public:
    Module() = default;
    explicit Module(const char *path); // as it is mapped into this process

    bool holds(uintptr_t address) const { return address >= low_ && address < high_; }
    // file:line of the instruction before a return address, the places that it was inlined into behind it; "?" where
    // the machine has no addr2line.
    std::string place(const void *return_address) const;

  private:
    std::string path_;
    uintptr_t low_ = 0, high_ = 0;
};

} // namespace checker
