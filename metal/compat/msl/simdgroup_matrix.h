// 8x8 matrices of a simdgroup. How their elements are kept is the machine's affair (host_matrix.h, nvptx_matrix.h); a lane
// sees two of them, row r, columns c and c + 1 (the layout that Apple's GPUs have).
#pragma once
#pragma clang system_header
#include "msl/simdgroup.h"

namespace metal {
MSL_IN uint __sgm_row(uint l) { return ((l >> 2) & 4) | ((l >> 1) & 3); }
MSL_IN uint __sgm_col(uint l) { return ((l >> 1) & 4) | ((l & 1) << 1); }
} // namespace metal

#if defined(__NVPTX__)
#include "msl/nvptx_matrix.h"
#else
#include "msl/host_matrix.h"
#endif

namespace metal {
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int R, int C> MSL_INT simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v) {
    simdgroup_matrix<T, R, C> m;
    m.__set_all(v);
    return m;
}
#define MSL_MATRIX_LOAD(AS)                                                                                            \
    template <class T, int R, int C> MSL_INT void simdgroup_load(                                                      \
        __private simdgroup_matrix<T, R, C> &m, const AS T *p, ulong ld = 8, ulong2 o = 0, bool transposed = false) {  \
        m.__load(p + o.y * ld + o.x, ld, transposed);                                                                  \
    }
#define MSL_MATRIX_STORE(AS)                                                                                           \
    template <class T, int R, int C> MSL_INT void simdgroup_store(                                                     \
        const __private simdgroup_matrix<T, R, C> &m, AS T *p, ulong ld = 8, ulong2 o = 0, bool transposed = false) {  \
        m.__store(p + o.y * ld + o.x, ld, transposed);                                                                 \
    }

MSL_MATRIX_LOAD(MSL_DEV);
MSL_MATRIX_LOAD(MSL_TG);
MSL_MATRIX_LOAD(__attribute__((opencl_global_host)));
MSL_MATRIX_STORE(MSL_DEV);
MSL_MATRIX_STORE(MSL_TG);
template <class D, class A, class B> MSL_INT void simdgroup_multiply(__private simdgroup_matrix<D, 8, 8> &d,
                                                                     const __private simdgroup_matrix<A, 8, 8> &a,
                                                                     const __private simdgroup_matrix<B, 8, 8> &b) {
    simdgroup_matrix<D, 8, 8> zero = make_filled_simdgroup_matrix<D, 8, 8>((D)0);
    simdgroup_multiply_accumulate(d, a, b, zero);
}
template <class T> MSL_INT simdgroup_matrix<T, 8, 8> operator*(const __private simdgroup_matrix<T, 8, 8> &a,
                                                               const __private simdgroup_matrix<T, 8, 8> &b) {
    simdgroup_matrix<T, 8, 8> d;
    simdgroup_multiply(d, a, b);
    return d;
}
} // namespace metal
