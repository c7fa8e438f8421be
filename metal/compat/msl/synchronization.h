// Barriers, fences and atomics. Orders are relaxed, as below Metal 3.2: the fence carries the rest.
#pragma once
#pragma clang system_header
#include "msl/machine.h"
#include "msl/traits.h"

namespace metal {
enum class mem_flags : uint {
    mem_none = 0,
    mem_device = 1,
    mem_threadgroup = 2,
    mem_texture = 4,
    mem_threadgroup_imageblock = 8,
    mem_object_data = 16,
    mem_device_and_threadgroup = 3
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((uint)a | (uint)b); }
struct os_log {
    constexpr os_log(__constant const char *, __constant const char *) {}
    template <class... A> void log(A...) const {}
    template <class... A> void log_debug(A...) const {}
    template <class... A> void log_info(A...) const {}
    template <class... A> void log_error(A...) const {}
};
enum thread_scope {
    thread_scope_thread,
    thread_scope_simdgroup,
    thread_scope_threadgroup,
    thread_scope_device,
    thread_scope_system
};
MSL_IN void threadgroup_barrier(mem_flags f) { __msl_tg_barrier((uint)f); }
MSL_IN void threadgroup_barrier(mem_flags f, thread_scope) { __msl_tg_barrier((uint)f); }
MSL_IN void simdgroup_barrier(mem_flags f) { __msl_sg_barrier((uint)f); }
MSL_IN void simdgroup_barrier(mem_flags f, thread_scope) { __msl_sg_barrier((uint)f); }
MSL_IN void atomic_thread_fence(mem_flags f, memory_order o, thread_scope s = thread_scope_device) {
    __msl_fence((uint)f, (int)s);
}
using ::memory_order;
using ::memory_order_acq_rel;
using ::memory_order_acquire;
using ::memory_order_relaxed;
using ::memory_order_release;
using ::memory_order_seq_cst;

// atomics; MSL allows device and threadgroup objects. Orders: relaxed only below Metal 3.2; the fence carries the rest.
#define MSL_ATOM(AS)                                                                                                   \
    template <class T> MSL_INT T atomic_load_explicit(const volatile AS __msl_atomic<T> *p, memory_order) {            \
        return __msl_at_load(&p->v);                                                                                   \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MSL_INT void atomic_store_explicit(volatile AS __msl_atomic<T> *p, typename __rmas<T>::t v, memory_order) {        \
        __msl_at_store(&p->v, v);                                                                                      \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MSL_INT T atomic_exchange_explicit(volatile AS __msl_atomic<T> *p, typename __rmas<T>::t v, memory_order) {        \
        return __msl_at_xchg(&p->v, v);                                                                                \
    }                                                                                                                  \
    template <class T> MSL_INT bool atomic_compare_exchange_weak_explicit(                                             \
        volatile AS __msl_atomic<T> *p, __private T *e, typename __rmas<T>::t d, memory_order, memory_order) {         \
        return __msl_at_cas(&p->v, e, d);                                                                              \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MSL_INT T atomic_fetch_add_explicit(volatile AS __msl_atomic<T> *p, typename __rmas<T>::t v, memory_order) {       \
        return __msl_at_add(&p->v, v);                                                                                 \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MSL_INT T atomic_fetch_sub_explicit(volatile AS __msl_atomic<T> *p, typename __rmas<T>::t v, memory_order) {       \
        return __msl_at_add(&p->v, (T) - v);                                                                           \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MSL_INT T atomic_fetch_or_explicit(volatile AS __msl_atomic<T> *p, typename __rmas<T>::t v, memory_order) {        \
        return __msl_at_or(&p->v, v);                                                                                  \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MSL_INT T atomic_fetch_and_explicit(volatile AS __msl_atomic<T> *p, typename __rmas<T>::t v, memory_order) {       \
        return __msl_at_and(&p->v, v);                                                                                 \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MSL_INT T atomic_fetch_xor_explicit(volatile AS __msl_atomic<T> *p, typename __rmas<T>::t v, memory_order) {       \
        return __msl_at_xor(&p->v, v);                                                                                 \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MSL_INT T atomic_fetch_min_explicit(volatile AS __msl_atomic<T> *p, typename __rmas<T>::t v, memory_order) {       \
        return __msl_at_min(&p->v, v);                                                                                 \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    MSL_INT T atomic_fetch_max_explicit(volatile AS __msl_atomic<T> *p, typename __rmas<T>::t v, memory_order) {       \
        return __msl_at_max(&p->v, v);                                                                                 \
    }

MSL_ATOM(MSL_DEV);
MSL_ATOM(MSL_TG);

} // namespace metal
