// Vector constructors and conversions, which the toolchain writes as calls: T(a, b) is __mk<T>(a, b), (T)x is
// __castto<T>() ->* x. Arguments go by value: a swizzle cannot bind to a reference.
#pragma once
#pragma clang system_header
#include "msl/types.h"

template <class T> struct __rmref {
    typedef T t;
};
template <class T> struct __rmref<T &> {
    typedef T t;
};
template <class T> struct __rmref<T &&> {
    typedef T t;
};
template <class T> struct __rmas {
    typedef T t;
};
template <class T> struct __rmas<const T> : __rmas<T> {};
template <class T> struct __rmas<volatile T> : __rmas<T> {};
template <class T> struct __rmas<const volatile T> : __rmas<T> {};
#define MSL_AS(Q)                                                                                                      \
    template <class T> struct __rmas<Q T> {                                                                            \
        typedef T t;                                                                                                   \
    };                                                                                                                 \
    template <class T> struct __rmas<const Q T> {                                                                      \
        typedef T t;                                                                                                   \
    };
MSL_AS(__private);
MSL_AS(__local);
MSL_AS(__generic);
MSL_AS(__global);
template <class T> struct __rmas<MSL_DEV T> {
    typedef T t;
};
template <class T> struct __rmas<const MSL_DEV T> {
    typedef T t;
};
template <class T> struct __rmas<__attribute__((opencl_global_host)) T> {
    typedef T t;
};
template <class T> struct __rmas<MSL_CST T> {
    typedef T t;
};
template <class T> using __bare = typename __rmas<typename __rmref<T>::t>::t;

template <class T> struct __vinfo {
    static constexpr int n = 0;
    typedef T e;
};
#define MSL_VI(N)                                                                                                      \
    template <class T> struct __vinfo<T __attribute__((ext_vector_type(N)))> {                                         \
        static constexpr int n = N;                                                                                    \
        typedef T e;                                                                                                   \
    };
MSL_VI(2);
MSL_VI(3);
MSL_VI(4);

// vector constructor T(args...): the rewritten text calls __mk<T>(args...).
// Arguments go by value: a swizzle cannot bind to a reference.
template <class A> struct __vn {
    static constexpr int n = __vinfo<__bare<A>>::n ? __vinfo<__bare<A>>::n : 1;
};
template <int D, class V, class A> MSL_INT constexpr void __put(__private V &v, A a) {
    typedef typename __vinfo<V>::e E;
    if constexpr (__vinfo<__bare<A>>::n == 0)
        v[D] = (E)a;
    else {
#pragma unroll
        for (int i = 0; i < __vinfo<__bare<A>>::n; i++)
            v[D + i] = (E)a[i];
    }
}
template <int D, class V> MSL_INT constexpr void __fill(__private V &) {
    static_assert(D == __vinfo<V>::n, "vector constructor: wrong number of components");
}
template <int D, class V, class A, class... R> MSL_INT constexpr void __fill(__private V &v, A a, R... r) {
    __put<D, V, A>(v, a);
    __fill<D + __vn<A>::n, V>(v, r...);
}
template <class T, class A> MSL_INT constexpr T __mk1(A a) {
    if constexpr (__vinfo<T>::n != 0 && __vinfo<__bare<A>>::n != 0) {
        static_assert(__vinfo<T>::n == __vinfo<__bare<A>>::n, "vector conversion: lengths differ");
        return __builtin_convertvector(a, T);
    } else if constexpr (__vinfo<T>::n != 0)
        return (T)(typename __vinfo<T>::e)a;
    else if constexpr ((__is_same(T, half) && __is_same(__bare<A>, bfloat)) ||
                       (__is_same(T, bfloat) && __is_same(__bare<A>, half)))
        return T((float)a);
    else
        return T(a);
}
template <class T> MSL_INT constexpr T __mk() { return T{}; }
template <class T, class A> MSL_INT constexpr T __mk(A a) { return __mk1<__bare<T>, A>(a); }
template <class T, class A, class B, class... R> MSL_INT constexpr T __mk(A a, B b, R... r) {
    if constexpr (__vinfo<__bare<T>>::n != 0) {
        __bare<T> v{};
        __fill<0, __bare<T>>(v, a, b, r...);
        return v;
    } else
        return T(a, b, r...);
}
// C-style cast (T)x of vectors: rewritten as __castto<T>() ->* x
template <class T> struct __castto {
    typedef T type;
};
template <class T, class U> struct __castto2 {};
template <class T, class U> MSL_INT constexpr T operator->*(__castto<T>, U u) { return __mk1<T, U>(u); }
template <class T, class U> MSL_INT constexpr __castto2<T, U> operator->*(__castto<T>, __castto<U>) { return {}; }
template <class T, class U, class V> MSL_INT constexpr T operator->*(__castto2<T, U>, V v) {
    return __mk1<T, U>(__mk1<U, V>(v));
}

template <class D, class S> MSL_INT constexpr D as_type(S s) { return __builtin_bit_cast(D, s); }
// program-scope `constant T x[]` lives in __global; hand it out as `constant`
template <class T, int N> MSL_INT constexpr MSL_CST T (&__as_const(const __global T (&a)[N]))
    [N] { return *(MSL_CST T(*)[N]) & a; }
