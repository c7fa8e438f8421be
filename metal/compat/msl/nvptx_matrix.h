// simdgroup_matrix on NVIDIA GPUs: every lane keeps its two elements; a product is one of mma.sync's, fragments moved by
// shuffles (nvptx.h).
#pragma once
#pragma clang system_header
#include "msl/simdgroup.h"

namespace metal {
template <class T, int R, int C> struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "simdgroup_matrix is 8x8");
    typedef vec<T, 2> storage_type;
    storage_type __e;
    simdgroup_matrix() = default;
    MSL_INT explicit simdgroup_matrix(T v) {
        uint l = __msl_lane();
        __e[0] = __sgm_row(l) == __sgm_col(l) ? v : (T)0;
        __e[1] = __sgm_row(l) == __sgm_col(l) + 1 ? v : (T)0;
    }
    MSL_INT __private storage_type &thread_elements() __private { return __e; }
    MSL_INT const __private storage_type &thread_elements() const __private { return __e; }
    MSL_INT void __set_all(T v) __private { __e = (storage_type)v; }
    template <class P> MSL_INT void __load(P p, ulong ld, bool transposed) __private {
        uint l = __msl_lane(), r = __sgm_row(l), c = __sgm_col(l);
        if (!transposed) {
            __e[0] = p[r * ld + c];
            __e[1] = p[r * ld + c + 1];
        } else {
            __e[0] = p[c * ld + r];
            __e[1] = p[(c + 1) * ld + r];
        }
    }
    template <class P> MSL_INT void __store(P p, ulong ld, bool transposed) const __private {
        uint l = __msl_lane(), r = __sgm_row(l), c = __sgm_col(l);
        if (!transposed) {
            p[r * ld + c] = __e[0];
            p[r * ld + c + 1] = __e[1];
        } else {
            p[c * ld + r] = __e[0];
            p[(c + 1) * ld + r] = __e[1];
        }
    }
};
template <class D, class A, class B, class C>
MSL_INT void simdgroup_multiply_accumulate(__private simdgroup_matrix<D, 8, 8> &d,
                                           const __private simdgroup_matrix<A, 8, 8> &a,
                                           const __private simdgroup_matrix<B, 8, 8> &b,
                                           const __private simdgroup_matrix<C, 8, 8> &c) {
    d.__e = __msl_mma<D, A, B, C>(a.__e, b.__e, c.__e);
}
} // namespace metal
