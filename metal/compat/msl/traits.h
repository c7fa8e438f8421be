// Type traits and numeric limits.
#pragma once
#pragma clang system_header
#include "msl/vector.h"

namespace metal {
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
template <class T> using uniform = T;
template <class T> MSL_INT constexpr T make_uniform(T x) { return x; }
template <class T> using atomic = __msl_atomic<T>;

// type traits
template <class T, T V> struct integral_constant {
    static constexpr const T value = V;
    typedef T value_type;
    constexpr operator T() const { return V; }
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <bool B> using bool_constant = integral_constant<bool, B>;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;
template <bool B, class T, class F> struct conditional {
    typedef T type;
};
template <class T, class F> struct conditional<false, T, F> {
    typedef F type;
};
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> {
    typedef T type;
};
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <class T> struct remove_reference : __rmref<T> {
    typedef typename __rmref<T>::t type;
};
template <class T> using remove_addrspace_t = typename __rmas<T>::t;
template <class T> using remove_reference_t = typename __rmref<T>::t;
template <class T> struct remove_cv {
    typedef T type;
};
template <class T> struct remove_cv<const T> {
    typedef T type;
};
template <class T> struct remove_cv<volatile T> {
    typedef T type;
};
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_const_t = typename remove_cv<T>::type;
template <class T> struct remove_pointer {
    typedef T type;
};
template <class T> struct remove_pointer<T *> {
    typedef T type;
};
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> struct is_floating_point
    : bool_constant<is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>> {};
template <class T> constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> struct is_integral : bool_constant<__is_integral(T)> {};
template <class T> constexpr bool is_integral_v = is_integral<T>::value;
template <class T> struct is_signed : bool_constant<is_floating_point_v<T> || __is_signed(T)> {};
template <class T> constexpr bool is_signed_v = is_signed<T>::value;
template <class T> struct is_unsigned : bool_constant<__is_unsigned(T)> {};
template <class T> constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <class T> struct is_arithmetic : bool_constant<is_integral_v<T> || is_floating_point_v<T>> {};
template <class T> constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <class A, class B> struct is_convertible : bool_constant<__is_convertible(A, B)> {};
template <class A, class B> constexpr bool is_convertible_v = __is_convertible(A, B);
template <class T> struct is_void : is_same<T, void> {};
template <class T> T &&declval();
template <class T> struct make_unsigned;
template <> struct make_unsigned<int> {
    typedef uint type;
};
template <> struct make_unsigned<uint> {
    typedef uint type;
};
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;

template <class T> struct numeric_limits;
#define MSL_LIM(T, MN, MX, SG, DG)                                                                                     \
    template <> struct numeric_limits<T> {                                                                             \
        static constexpr bool is_signed = SG;                                                                          \
        static constexpr const int digits = DG;                                                                        \
        static constexpr T min() { return (T)(MN); }                                                                   \
        static constexpr T max() { return (T)(MX); }                                                                   \
        static constexpr T lowest() { return (T)(MN); }                                                                \
        static constexpr T infinity() { return (T)0; }                                                                 \
    };
MSL_LIM(bool, 0, 1, false, 1);
MSL_LIM(char, -128, 127, true, 7);
MSL_LIM(uchar, 0, 255, false, 8);
MSL_LIM(short, -32768, 32767, true, 15);
MSL_LIM(ushort, 0, 65535, false, 16);
MSL_LIM(int, INT_MIN, INT_MAX, true, 31);
MSL_LIM(uint, 0, UINT_MAX, false, 32);
MSL_LIM(long, -9223372036854775807L - 1, 9223372036854775807L, true, 63);
MSL_LIM(ulong, 0, 18446744073709551615UL, false, 64);
MSL_LIM(signed char, -128, 127, true, 7);

#define MSL_FLIM(T, MN, MX, EPS, DG)                                                                                   \
    template <> struct numeric_limits<T> {                                                                             \
        static constexpr bool is_signed = true;                                                                        \
        static constexpr const int digits = DG;                                                                        \
        static constexpr T min() { return (T)(MN); }                                                                   \
        static constexpr T max() { return (T)(MX); }                                                                   \
        static constexpr T lowest() { return (T)(-(MX)); }                                                             \
        static constexpr T epsilon() { return (T)(EPS); }                                                              \
        static constexpr T infinity() { return (T)__builtin_inff(); }                                                  \
        static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); }                                               \
    };
MSL_FLIM(float, FLT_MIN, FLT_MAX, FLT_EPSILON, 24);
MSL_FLIM(half, 6.103515625e-05f, 65504.0f, 9.765625e-04f, 11);
MSL_FLIM(bfloat, FLT_MIN, 3.3895314e38f, 7.8125e-03f, 8);

} // namespace metal
