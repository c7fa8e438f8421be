// Memory of the CPU backend that is promised in full before the first byte is touched. The system hands out pages only
// when they are written, so what it calls free still counts the untouched pages of every buffer: they are taken off here,
// or several sessions would each find room for themselves and run out in the middle of a prefill. Not for weights: those
// are pages of a file, which the system can drop.
#pragma once

#include <cstddef>

namespace lily::cpu {

// Anonymous pages: zero, aligned to a page, in huge pages where the system has them, given back as a whole.
class Pages {
  public:
    explicit Pages(std::size_t bytes); // at least 1; throws Error(out_of_memory) with the sizes
    ~Pages();
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;

    std::byte *data() const { return data_; }

  private:
    std::byte *data_ = nullptr;
    std::size_t bytes_;
};

} // namespace lily::cpu
