// What clang's -fsanitize=thread calls for every access to memory: handed to the checker. The thread sanitizer's own
// library is not used. Lanes run one at a time, so that atomics need no atomic instruction.
#include "checker.h"
#include <cstring>

#define PC __builtin_return_address(0)

namespace {

void check(const volatile void *address, size_t bytes, bool write, bool atomic, const void *pc) {
    checker::access(reinterpret_cast<uintptr_t>(address), bytes, write, atomic, pc);
}

template <class T, class F> T exchange(volatile T *address, const void *pc, F update) {
    check(address, sizeof(T), true, true, pc);
    const T old = *address;
    *address = static_cast<T>(update(old));
    return old;
}

} // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

#define ACCESS(kind, n)                                                                                                \
    void __tsan_##kind##read##n(void *p) { check(p, n, false, false, PC); }                                            \
    void __tsan_##kind##write##n(void *p) { check(p, n, true, false, PC); }                                            \
    void __tsan_##kind##read_write##n(void *p) {                                                                       \
        check(p, n, false, false, PC);                                                                                 \
        check(p, n, true, false, PC);                                                                                  \
    }
#define ACCESSES(n) ACCESS(, n) ACCESS(unaligned_, n) ACCESS(volatile_, n) ACCESS(unaligned_volatile_, n)
ACCESSES(1);
ACCESSES(2);
ACCESSES(4);
ACCESSES(8);
ACCESSES(16);

void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    check(from, bytes, false, false, PC);
    check(to, bytes, true, false, PC);
    return memcpy(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    check(from, bytes, false, false, PC);
    check(to, bytes, true, false, PC);
    return memmove(to, from, bytes);
}

void *__tsan_memset(void *to, int value, size_t bytes) {
    check(to, bytes, true, false, PC);
    return memset(to, value, bytes);
}

#define ATOMICS(T, bits)                                                                                               \
    T __tsan_atomic##bits##_load(const volatile T *p, int) {                                                           \
        check(p, sizeof(T), false, true, PC);                                                                          \
        return *p;                                                                                                     \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile T *p, T v, int) {                                                        \
        check(p, sizeof(T), true, true, PC);                                                                           \
        *p = v;                                                                                                        \
    }                                                                                                                  \
    T __tsan_atomic##bits##_exchange(volatile T *p, T v, int) {                                                        \
        return exchange(p, PC, [v](T) { return v; });                                                                  \
    }                                                                                                                  \
    T __tsan_atomic##bits##_fetch_add(volatile T *p, T v, int) {                                                       \
        return exchange(p, PC, [v](T old) { return old + v; });                                                        \
    }                                                                                                                  \
    T __tsan_atomic##bits##_fetch_sub(volatile T *p, T v, int) {                                                       \
        return exchange(p, PC, [v](T old) { return old - v; });                                                        \
    }                                                                                                                  \
    T __tsan_atomic##bits##_fetch_and(volatile T *p, T v, int) {                                                       \
        return exchange(p, PC, [v](T old) { return old & v; });                                                        \
    }                                                                                                                  \
    T __tsan_atomic##bits##_fetch_or(volatile T *p, T v, int) {                                                        \
        return exchange(p, PC, [v](T old) { return old | v; });                                                        \
    }                                                                                                                  \
    T __tsan_atomic##bits##_fetch_xor(volatile T *p, T v, int) {                                                       \
        return exchange(p, PC, [v](T old) { return old ^ v; });                                                        \
    }                                                                                                                  \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T *p, T expected, T v, int, int) {                           \
        return exchange(p, PC, [expected, v](T old) { return old == expected ? v : old; });                            \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *expected, T v, int, int) {                     \
        const T wanted = *expected;                                                                                    \
        *expected = exchange(p, PC, [wanted, v](T old) { return old == wanted ? v : old; });                           \
        return *expected == wanted;                                                                                    \
    }
ATOMICS(uint8_t, 8);
ATOMICS(uint16_t, 16);
ATOMICS(uint32_t, 32);
ATOMICS(uint64_t, 64);
}
