// Binding of buffers and positions to a kernel's parameters, in the entry functions that the toolchain generates.
#pragma once
#pragma clang system_header
#include "msl/vector.h"

template <class F, int I> struct __msl_parx;
template <class R, class P0, class... P> struct __msl_parx<R(P0, P...), 0> {
    typedef P0 t;
};
template <class R, class P0, class... P, int I> struct __msl_parx<R(P0, P...), I> : __msl_parx<R(P...), I - 1> {};
template <class F, int I> using __msl_par = typename __msl_parx<F, I>::t;
template <class P> struct __msl_bufx;
template <class T> struct __msl_bufx<T *> {
    static MSL_INT T *get(ulong a) { return (T *)a; }
    static MSL_INT T *get(__local void *a) { return (T *)a; }
};
template <class T> struct __msl_bufx<T &> {
    static MSL_INT T &get(ulong a) { return *(T *)a; }
    static MSL_INT T &get(__local void *a) { return *(T *)a; }
};
template <class P, class A> MSL_INT P __msl_buf(A a) { return __msl_bufx<P>::get(a); }
MSL_IN uint3 __msl_v3(uint x, uint y, uint z) {
    uint3 r;
    r.x = x;
    r.y = y;
    r.z = z;
    return r;
}
template <class P> MSL_INT P __msl_posarg(uint x) { return (P)x; }
template <class P> MSL_INT P __msl_posarg(uint3 v) {
    typedef __bare<P> B;
    if constexpr (__vinfo<B>::n == 0)
        return (B)v.x;
    else {
        B r;
        for (int i = 0; i < __vinfo<B>::n; i++)
            r[i] = (typename __vinfo<B>::e)v[i];
        return r;
    }
}
