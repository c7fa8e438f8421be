// Functions of a simdgroup: votes, shuffles, reductions and scans over its 32 lanes.
#pragma once
#pragma clang system_header
#include "msl/math.h"

namespace metal {
struct simd_vote {
    typedef ulong vote_t;
    vote_t v;
    explicit constexpr simd_vote(vote_t x = 0) : v(x) {}
    explicit constexpr operator vote_t() const { return v; }
    bool all() const { return v == 0xffffffffUL; }
    bool any() const { return v != 0; }
};
MSL_IN simd_vote simd_ballot(bool b) { return simd_vote((ulong)__msl_ballot(b)); }
MSL_IN simd_vote simd_active_threads_mask() { return simd_vote((ulong)__msl_active()); }
MSL_IN bool simd_any(bool b) { return __msl_ballot(b) != 0; }
MSL_IN bool simd_all(bool b) { return __msl_ballot(!b) == 0; }
MSL_IN bool simd_is_first() {
    uint m = __msl_active();
    return __builtin_ctz(m) == __msl_lane();
}

// kind: 0 shuffle(i) 1 xor 2 up 3 down 4 rotate_up 5 rotate_down, 6 broadcast_first
template <class T> MSL_INT T __shfl(T x, int kind, uint k) {
    if constexpr (sizeof(T) <= 4) {
        uint u = 0;
        __builtin_memcpy(&u, &x, sizeof(T));
        u = __msl_shfl(u, kind, k);
        T r;
        __builtin_memcpy(&r, &u, sizeof(T));
        return r;
    } else {
        uint u[(sizeof(T) + 3) / 4] = {};
        __builtin_memcpy(u, &x, sizeof(T));
        for (uint i = 0; i < sizeof(u) / 4; i++)
            u[i] = __msl_shfl(u[i], kind, k);
        T r;
        __builtin_memcpy(&r, u, sizeof(T));
        return r;
    }
}
template <class T> MSL_INT T simd_shuffle(T x, ushort lane) { return __shfl(x, 0, lane); }
template <class T> MSL_INT T simd_broadcast(T x, ushort lane) { return __shfl(x, 0, lane); }
template <class T> MSL_INT T simd_broadcast_first(T x) { return __shfl(x, 6, 0); }
template <class T> MSL_INT T simd_shuffle_xor(T x, ushort m) { return __shfl(x, 1, m); }
template <class T> MSL_INT T simd_shuffle_up(T x, ushort d) { return __shfl(x, 2, d); }
template <class T> MSL_INT T simd_shuffle_down(T x, ushort d) { return __shfl(x, 3, d); }
template <class T> MSL_INT T simd_shuffle_rotate_up(T x, ushort d) { return __shfl(x, 4, d); }
template <class T> MSL_INT T simd_shuffle_rotate_down(T x, ushort d) { return __shfl(x, 5, d); }
template <class T> MSL_INT T simd_shuffle_and_fill_up(T x, T f, ushort d) {
    T r = __shfl(x, 4, d);
    T g = __shfl(f, 4, d);
    return __msl_lane() < d ? g : r;
}
template <class T> MSL_INT T simd_shuffle_and_fill_down(T x, T f, ushort d) {
    T r = __shfl(x, 5, d);
    T g = __shfl(f, 5, d);
    return __msl_lane() + d >= 32 ? g : r;
}
template <class T> MSL_INT T quad_shuffle(T x, ushort l) { return __shfl(x, 0, (__msl_lane() & ~3u) + l); }
template <class T> MSL_INT T quad_shuffle_xor(T x, ushort m) { return __shfl(x, 1, m & 3); }
template <class T> MSL_INT T quad_broadcast(T x, ushort l) { return quad_shuffle(x, l); }
template <class T> MSL_INT T quad_sum(T x) {
    x += quad_shuffle_xor(x, 1);
    x += quad_shuffle_xor(x, 2);
    return x;
}
template <class T> MSL_INT T quad_max(T x) {
    x = max(x, quad_shuffle_xor(x, 1));
    return max(x, quad_shuffle_xor(x, 2));
}
template <class T> MSL_INT T quad_min(T x) {
    x = min(x, quad_shuffle_xor(x, 1));
    return min(x, quad_shuffle_xor(x, 2));
}
// op: 0 sum 1 product 2 min 3 max 4 and 5 or 6 xor; scan: 0 reduce 1 inclusive 2 exclusive
template <class T> MSL_INT T __red(T x, int op, int scan) {
    if constexpr (__vinfo<T>::n != 0) {
        T r;
        _Pragma("unroll") for (int i = 0; i < __vinfo<T>::n; i++) r[i] = __red((typename __vinfo<T>::e)x[i], op, scan);
        return r;
    } else if constexpr (is_floating_point_v<T>)
        return (T)__msl_red_f32((float)x, op, scan);
    else if constexpr (sizeof(T) == 8)
        return (T)__msl_red_u64((ulong)x, op, scan);
    else if constexpr (__is_signed(T))
        return (T)__msl_red_i32((int)x, op, scan);
    else
        return (T)__msl_red_u32((uint)x, op, scan);
}
template <class T> MSL_INT T simd_sum(T x) { return __red(x, 0, 0); }
template <class T> MSL_INT T simd_product(T x) { return __red(x, 1, 0); }
template <class T> MSL_INT T simd_min(T x) { return __red(x, 2, 0); }
template <class T> MSL_INT T simd_max(T x) { return __red(x, 3, 0); }
template <class T> MSL_INT T simd_and(T x) { return __red(x, 4, 0); }
template <class T> MSL_INT T simd_or(T x) { return __red(x, 5, 0); }
template <class T> MSL_INT T simd_xor(T x) { return __red(x, 6, 0); }
template <class T> MSL_INT T simd_prefix_inclusive_sum(T x) { return __red(x, 0, 1); }
template <class T> MSL_INT T simd_prefix_exclusive_sum(T x) { return __red(x, 0, 2); }
template <class T> MSL_INT T simd_prefix_inclusive_product(T x) { return __red(x, 1, 1); }
template <class T> MSL_INT T simd_prefix_exclusive_product(T x) { return __red(x, 1, 2); }
} // namespace metal
