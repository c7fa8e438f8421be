// Mathematics on float and half. The core is in float; half rounds the float's result. MSL gives bfloat no functions but
// those of comparison: convert to float first.
#pragma once
#pragma clang system_header
#include "msl/machine.h"
#include "msl/traits.h"

namespace metal {
#define MSL_U1(name, expr)                                                                                             \
    MSL_IN float name(float x) { return expr; }                                                                        \
    MSL_IN half name(half h) {                                                                                         \
        float x = (float)h;                                                                                            \
        return (half)(expr);                                                                                           \
    }                                                                                                                  \
    template <class T, int N> MSL_INT vec<T, N> name(vec<T, N> v) {                                                    \
        vec<T, N> r;                                                                                                   \
        _Pragma("unroll") for (int i = 0; i < N; i++) r[i] = name((T)v[i]);                                            \
        return r;                                                                                                      \
    }
#define MSL_U2(name, expr)                                                                                             \
    MSL_IN float name(float x, float y) { return expr; }                                                               \
    MSL_IN half name(half a, half b) {                                                                                 \
        float x = (float)a, y = (float)b;                                                                              \
        return (half)(expr);                                                                                           \
    }                                                                                                                  \
    template <class T, int N> MSL_INT vec<T, N> name(vec<T, N> v, vec<T, N> w) {                                       \
        vec<T, N> r;                                                                                                   \
        _Pragma("unroll") for (int i = 0; i < N; i++) r[i] = name((T)v[i], (T)w[i]);                                   \
        return r;                                                                                                      \
    }
#define MSL_MATH(F)                                                                                                    \
    F(exp, __msl_exp(x));                                                                                              \
    F(exp2, __msl_exp2(x));                                                                                            \
    F(exp10, __msl_exp(x * 2.302585093f));                                                                             \
    F(log, __msl_log(x));                                                                                              \
    F(log2, __msl_log2(x));                                                                                            \
    F(log10, __msl_log10(x));                                                                                          \
    F(sin, __msl_sin(x));                                                                                              \
    F(cos, __msl_cos(x));                                                                                              \
    F(tan, __msl_tan(x));                                                                                              \
    F(asin, __msl_asin(x));                                                                                            \
    F(acos, __msl_acos(x));                                                                                            \
    F(atan, __msl_atan(x));                                                                                            \
    F(sinh, __msl_sinh(x));                                                                                            \
    F(cosh, __msl_cosh(x));                                                                                            \
    F(tanh, __msl_tanh(x));                                                                                            \
    F(asinh, __msl_asinh(x));                                                                                          \
    F(acosh, __msl_acosh(x));                                                                                          \
    F(atanh, __msl_atanh(x));                                                                                          \
    F(sqrt, __msl_sqrt(x));                                                                                            \
    F(rsqrt, 1.0f / __msl_sqrt(x));                                                                                    \
    F(floor, __msl_floor(x));                                                                                          \
    F(ceil, __msl_ceil(x));                                                                                            \
    F(trunc, __msl_trunc(x));                                                                                          \
    F(rint, __msl_rint(x));                                                                                            \
    F(round, __msl_round(x));                                                                                          \
    F(fabs, __builtin_fabsf(x));                                                                                       \
    F(fract, x - __msl_floor(x));
MSL_MATH(MSL_U1);
MSL_U1(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f);
MSL_U1(saturate, x > 1.0f ? 1.0f : x > 0.0f ? x : 0.0f);
MSL_U2(pow, __msl_pow(x, y));
MSL_U2(powr, __msl_pow(x, y));
MSL_U2(atan2, __msl_atan2(x, y));
MSL_U2(fmod, __msl_fmod(x, y));
MSL_U2(fmin, x != x ? y : y != y ? x : x < y ? x : y);
MSL_U2(fmax, x != x ? y : y != y ? x : x > y ? x : y);
MSL_U2(copysign, __builtin_copysignf(x, y));
MSL_U2(fdim, x > y ? x - y : 0.0f);
MSL_U2(step, y < x ? 0.0f : 1.0f);
namespace precise {

MSL_MATH(MSL_U1);
MSL_U2(pow, __msl_pow(x, y));
MSL_U2(divide, x / y);
MSL_U2(powr, __msl_pow(x, y));
MSL_U2(atan2, __msl_atan2(x, y));

} // namespace precise
namespace fast {

MSL_MATH(MSL_U1);
MSL_U2(pow, __msl_pow(x, y));
MSL_U2(divide, x / y);
MSL_U2(powr, __msl_pow(x, y));
MSL_U2(atan2, __msl_atan2(x, y));

} // namespace fast

MSL_U2(divide, x / y);

MSL_IN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MSL_IN half fma(half a, half b, half c) { return (half)__builtin_fmaf((float)a, (float)b, (float)c); }
template <class T, int N> MSL_INT vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
    vec<T, N> r;
    _Pragma("unroll") for (int i = 0; i < N; i++) r[i] = fma((T)a[i], (T)b[i], (T)c[i]);
    return r;
}
MSL_IN float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
MSL_IN float sincos(float x, __private float &c) {
    c = __msl_cos(x);
    return __msl_sin(x);
}

#define MSL_CMP(T)                                                                                                     \
    MSL_IN constexpr T min(T a, T b) { return b < a ? b : a; }                                                         \
    MSL_IN constexpr T max(T a, T b) { return a < b ? b : a; }                                                         \
    MSL_IN constexpr T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); }                                          \
    MSL_IN constexpr T select(T a, T b, bool c) { return c ? b : a; }
#define MSL_FCMP(T)                                                                                                    \
    MSL_IN T min(T a, T b) { return fmin(a, b); }                                                                      \
    MSL_IN T max(T a, T b) { return fmax(a, b); }                                                                      \
    MSL_IN T clamp(T x, T lo, T hi) { return fmin(fmax(x, lo), hi); }                                                  \
    MSL_IN constexpr T select(T a, T b, bool c) { return c ? b : a; }                                                  \
    MSL_IN T abs(T a) { return fabs(a); }                                                                              \
    MSL_IN T mix(T a, T b, T t) { return a + (b - a) * t; }                                                            \
    MSL_IN T smoothstep(T a, T b, T x) {                                                                               \
        T t = clamp((T)((x - a) / (b - a)), (T)0, (T)1);                                                               \
        return t * t * ((T)3 - (T)2 * t);                                                                              \
    }                                                                                                                  \
    MSL_IN bool isnan(T a) { return a != a; }                                                                          \
    MSL_IN bool isinf(T a) { return __builtin_isinf((float)a); }                                                       \
    MSL_IN bool isfinite(T a) { return __builtin_isfinite((float)a); }                                                 \
    MSL_IN bool signbit(T a) { return __builtin_signbit((float)a); }

MSL_CMP(char);
MSL_CMP(uchar);
MSL_CMP(short);
MSL_CMP(ushort);
MSL_CMP(int);
MSL_CMP(uint);
MSL_CMP(long);
MSL_CMP(ulong);
MSL_CMP(signed char);
MSL_FCMP(float);
MSL_FCMP(half);

// common functions on bfloat as templates: a program's own non-template overloads win
template <class T, class = enable_if_t<is_same_v<T, bfloat>>> MSL_INT T min(T a, T b) {
    return (float)b < (float)a ? b : a;
}
template <class T, class = enable_if_t<is_same_v<T, bfloat>>> MSL_INT T max(T a, T b) {
    return (float)a < (float)b ? b : a;
}
template <class T, class = enable_if_t<is_same_v<T, bfloat>>> MSL_INT T abs(T a) {
    return (T)__builtin_fabsf((float)a);
}
template <class T, class = enable_if_t<is_same_v<T, bfloat>>> MSL_INT T select(T a, T b, bool c) { return c ? b : a; }
template <class T, class = enable_if_t<is_same_v<T, bfloat>>> MSL_INT bool isnan(T a) { return a != a; }
MSL_IN int abs(int a) { return a < 0 ? -a : a; }
MSL_IN short abs(short a) { return a < 0 ? -a : a; }
MSL_IN long abs(long a) { return a < 0 ? -a : a; }
#define MSL_V2(name)                                                                                                   \
    template <class T, int N> MSL_INT vec<T, N> name(vec<T, N> v, vec<T, N> w) {                                       \
        vec<T, N> r;                                                                                                   \
        _Pragma("unroll") for (int i = 0; i < N; i++) r[i] = name((T)v[i], (T)w[i]);                                   \
        return r;                                                                                                      \
    }

MSL_V2(min);
MSL_V2(max);
template <class T, int N> MSL_INT vec<T, N> abs(vec<T, N> v) {
    vec<T, N> r;
    _Pragma("unroll") for (int i = 0; i < N; i++) r[i] = abs((T)v[i]);
    return r;
}
template <class T, int N> MSL_INT vec<T, N> clamp(vec<T, N> v, vec<T, N> a, vec<T, N> b) { return min(max(v, a), b); }
template <class T, int N> MSL_INT vec<T, N> clamp(vec<T, N> v, T a, T b) {
    return min(max(v, (vec<T, N>)a), (vec<T, N>)b);
}
template <class T, int N> MSL_INT vec<T, N> mix(vec<T, N> a, vec<T, N> b, T t) { return a + (b - a) * t; }
template <class T, int N, class M> MSL_INT vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<M, N> c) {
    vec<T, N> r;
    _Pragma("unroll") for (int i = 0; i < N; i++) r[i] = c[i] ? b[i] : a[i];
    return r;
}
template <class M, int N> MSL_INT bool any(vec<M, N> c) {
    bool r = false;
    for (int i = 0; i < N; i++)
        r |= c[i] != 0;
    return r;
}
template <class M, int N> MSL_INT bool all(vec<M, N> c) {
    bool r = true;
    for (int i = 0; i < N; i++)
        r &= c[i] != 0;
    return r;
}
MSL_IN bool any(bool b) { return b; }
MSL_IN bool all(bool b) { return b; }
template <class T, int N> MSL_INT T dot(vec<T, N> a, vec<T, N> b) {
    T s = a[0] * b[0];
    _Pragma("unroll") for (int i = 1; i < N; i++) s += a[i] * b[i];
    return s;
}
template <class T> MSL_INT vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) { return a.yzx * b.zxy - a.zxy * b.yzx; }
template <class T, int N> MSL_INT T length_squared(vec<T, N> a) { return dot(a, a); }
template <class T, int N> MSL_INT T length(vec<T, N> a) { return sqrt(dot(a, a)); }
template <class T, int N> MSL_INT vec<T, N> normalize(vec<T, N> a) { return a * rsqrt(dot(a, a)); }
} // namespace metal
