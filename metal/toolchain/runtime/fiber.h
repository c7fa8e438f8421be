// Fibers: a stack each, and a switch between two of them that saves what the calling convention asks for. Nothing here
// knows lanes or kernels.
#pragma once
#include <cstddef>

extern "C" void msl_switch(void **saved_stack, void *next_stack);

// The stack pointer of a fiber that will call msl_fiber_main() when it is first switched to. `top` is the end of its
// memory.
void *msl_new_fiber(char *top);

// What a fiber runs; it never returns. Defined by the scheduler (threadgroup.cpp).
extern "C" [[noreturn]] void msl_fiber_main();

// Denormals of float flush to zero while one lives, in the calling thread.
class FlushDenormals {
  public:
    explicit FlushDenormals(bool on);
    ~FlushDenormals();

  private:
    unsigned long saved_;
};
