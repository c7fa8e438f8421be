// simdgroup_matrix on the host. The first lane keeps the whole matrix, in float, and does the products, so that a product
// needs no exchange between lanes; the others go on. Where a kernel looks at its lane's elements, they are spread over
// the simdgroup, and gathered again before the next operation on the matrix.
#pragma once
#pragma clang system_header
#include "msl/simdgroup.h"

namespace metal {
// For the checker, every operation meets: all lanes must take part.
#ifdef MSL_CHECK
MSL_IN void __msl_matrix_operation() { __msl_matrix_meet(); }
#else
MSL_IN void __msl_matrix_operation() {}
#endif
MSL_IN bool __msl_first_lane() { return __msl_lane() == 0; }

template <class T, int R, int C> struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "simdgroup_matrix is 8x8");
    typedef vec<T, 2> storage_type;
    __private float *__whole;   // in the first lane: its 64 elements
    mutable storage_type __own; // the lane's two elements
    mutable bool __is_spread;   // which of the two counts; the same in every lane

    MSL_INT simdgroup_matrix() : __whole(__msl_first_lane() ? __msl_matrix_new() : nullptr), __is_spread(true) {}
    MSL_INT explicit simdgroup_matrix(T v) : simdgroup_matrix() {
        __is_spread = false;
        for (int i = 0; __whole && i < 64; i++)
            __whole[i] = i % 9 == 0 ? (float)v : 0.0f;
    }
    MSL_INT simdgroup_matrix(const simdgroup_matrix &other) : simdgroup_matrix() { __copy(other); }
    MSL_INT ~simdgroup_matrix() {
        if (__whole)
            __msl_matrix_delete();
    }
    MSL_INT __private simdgroup_matrix &operator=(const simdgroup_matrix &other) __private {
        __copy(other);
        return *this;
    }

    MSL_INT __private storage_type &thread_elements() __private {
        __spread();
        return __own;
    }
    MSL_INT const __private storage_type &thread_elements() const __private {
        __spread();
        return __own;
    }
    MSL_INT void __set_all(T v) __private {
        __is_spread = false;
        for (int i = 0; __whole && i < 64; i++)
            __whole[i] = (float)v;
    }
    template <class P> MSL_INT void __load(P p, ulong ld, bool transposed) __private {
        __msl_matrix_operation();
        __is_spread = false;
        if (!__whole)
            return;
        const ulong row = transposed ? 1 : ld, column = transposed ? ld : 1;
#pragma unroll
        for (ulong r = 0; r < 8; r++)
#pragma unroll
            for (ulong c = 0; c < 8; c++)
                __whole[r * 8 + c] = (float)p[r * row + c * column];
    }
    template <class P> MSL_INT void __store(P p, ulong ld, bool transposed) const __private {
        __msl_matrix_operation();
        __gather();
        if (!__whole)
            return;
        const ulong row = transposed ? 1 : ld, column = transposed ? ld : 1;
#pragma unroll
        for (ulong r = 0; r < 8; r++)
#pragma unroll
            for (ulong c = 0; c < 8; c++)
                p[r * row + c * column] = (T)__whole[r * 8 + c];
    }
    MSL_INT void __spread() const __private {
        if (__is_spread)
            return;
        float2 own = as_type<float2>(__msl_matrix_spread(__whole));
        __own[0] = (T)own[0];
        __own[1] = (T)own[1];
        __is_spread = true;
    }
    MSL_INT void __gather() const __private {
        if (!__is_spread)
            return;
        float2 own;
        own[0] = (float)__own[0];
        own[1] = (float)__own[1];
        __msl_matrix_gather(__whole, as_type<ulong>(own));
        __is_spread = false;
    }
    MSL_INT void __copy(const simdgroup_matrix &other) {
        __own = other.__own;
        __is_spread = other.__is_spread;
        for (int i = 0; __whole && i < 64; i++)
            __whole[i] = other.__whole[i];
    }
};

template <class D, class A, class B, class C>
MSL_INT void simdgroup_multiply_accumulate(__private simdgroup_matrix<D, 8, 8> &d,
                                           const __private simdgroup_matrix<A, 8, 8> &a,
                                           const __private simdgroup_matrix<B, 8, 8> &b,
                                           const __private simdgroup_matrix<C, 8, 8> &c) {
    typedef float __row __attribute__((ext_vector_type(8), aligned(4)));
    typedef D __rounded __attribute__((ext_vector_type(8)));
    __msl_matrix_operation();
    a.__gather();
    b.__gather();
    c.__gather();
    d.__is_spread = false;
    if (!__msl_first_lane())
        return;
    __row rows[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
        rows[k] = *(const __private __row *)(b.__whole + 8 * k);
#pragma unroll
    for (int r = 0; r < 8; r++) { // d may be a or c: a row of theirs is read before this row of d is written
        __row sum = *(const __private __row *)(c.__whole + 8 * r);
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum = __builtin_elementwise_fma((__row)a.__whole[8 * r + k], rows[k], sum);
        if constexpr (!__is_same(D, float))
            sum = __builtin_convertvector(__builtin_convertvector(sum, __rounded), __row);
        *(__private __row *)(d.__whole + 8 * r) = sum;
    }
}
} // namespace metal
