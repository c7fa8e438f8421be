// The two processor-specific parts of the executor: the switch of fibers, and the mode in which denormals flush.
#include "fiber.h"
#include <cstdint>
#include <cstring>

extern "C" void msl_fiber_start();

#if defined(__x86_64__)

asm(R"(
.text
.globl msl_switch
.hidden msl_switch
msl_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.globl msl_fiber_start
.hidden msl_fiber_start
msl_fiber_start:
  xorl %ebp, %ebp
  call msl_fiber_main
  ud2
)");

void *msl_new_fiber(char *top) {
    void **sp = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
    *--sp = nullptr;
    *--sp = nullptr;
    *--sp = reinterpret_cast<void *>(msl_fiber_start);
    for (int i = 0; i < 6; i++) {
        *--sp = nullptr;
    }
    return sp;
}

FlushDenormals::FlushDenormals(bool on) : saved_(__builtin_ia32_stmxcsr()) {
    constexpr unsigned flush_to_zero = 0x8000, denormals_are_zero = 0x0040;
    if (on) {
        __builtin_ia32_ldmxcsr(static_cast<unsigned>(saved_) | flush_to_zero | denormals_are_zero);
    }
}
FlushDenormals::~FlushDenormals() { __builtin_ia32_ldmxcsr(static_cast<unsigned>(saved_)); }

#elif defined(__aarch64__)

asm(R"(
.text
.globl msl_switch
.hidden msl_switch
msl_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.globl msl_fiber_start
.hidden msl_fiber_start
msl_fiber_start:
  mov x29, xzr
  bl msl_fiber_main
  brk #1
)");

void *msl_new_fiber(char *top) {
    constexpr size_t saved = 160, link_register = 11; // as msl_switch lays them out
    void **sp = reinterpret_cast<void **>((reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15}) - saved);
    memset(sp, 0, saved);
    sp[link_register] = reinterpret_cast<void *>(msl_fiber_start);
    return sp;
}

FlushDenormals::FlushDenormals(bool on) {
    constexpr unsigned long flush_to_zero = 1ul << 24;
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    if (on) {
        asm volatile("msr fpcr, %0" ::"r"(saved_ | flush_to_zero));
    }
}
FlushDenormals::~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }

#else
#error "the executor switches fibers on x86-64 and aarch64; fiber.cpp has no code for this processor"
#endif
