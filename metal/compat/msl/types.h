// Scalar and vector types, limits and constants of the Metal shading language.
// The address spaces stay distinct types: device is opencl_global_device, constant is const opencl_global_host,
// threadgroup is __local, thread is __private (metal/toolchain writes them).
#pragma once
#pragma clang system_header

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#pragma OPENCL EXTENSION __cl_clang_variadic_functions : enable
#pragma OPENCL EXTENSION __cl_clang_bitfields : enable
#define MSL_DEV __attribute__((opencl_global_device))
#define MSL_CST const __attribute__((opencl_global_host))
#define MSL_TG __local
#define MSL_THR __private
#define METAL_FUNC inline __attribute__((__always_inline__))
#define MSL_IN static inline __attribute__((__always_inline__))
#define MSL_INT inline __attribute__((__always_inline__))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef __bf16 bfloat;
#define MSL_VEC(T)                                                                                                     \
    typedef T T##2 __attribute__((ext_vector_type(2)));                                                                \
    typedef T T##3 __attribute__((ext_vector_type(3)));                                                                \
    typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_VEC(char);
MSL_VEC(uchar);
MSL_VEC(short);
MSL_VEC(ushort);
MSL_VEC(int);
MSL_VEC(uint);
MSL_VEC(long);
MSL_VEC(ulong);
MSL_VEC(half);
MSL_VEC(float);
MSL_VEC(bfloat);

#undef MSL_VEC
template <class T, int N> struct __packed_vec { // packed_float3 etc.: N scalars, scalar alignment
    T e[N];
    typedef T __v __attribute__((ext_vector_type(N)));
    __packed_vec() = default;
    MSL_INT __packed_vec(__v v) {
        for (int i = 0; i < N; i++)
            e[i] = v[i];
    }
    MSL_INT operator __v() const {
        __v r;
        for (int i = 0; i < N; i++)
            r[i] = e[i];
        return r;
    }
    MSL_INT T operator[](int i) const { return e[i]; }
};
#define MSL_P(T)                                                                                                       \
    typedef __packed_vec<T, 2> packed_##T##2;                                                                          \
    typedef __packed_vec<T, 3> packed_##T##3;                                                                          \
    typedef __packed_vec<T, 4> packed_##T##4;
MSL_P(char);
MSL_P(uchar);
MSL_P(short);
MSL_P(ushort);
MSL_P(int);
MSL_P(uint);
MSL_P(half);
MSL_P(float);
MSL_P(bfloat);

#undef MSL_P

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX ((half)65504.0f)
#define HALF_MIN ((half)6.103515625e-05f)
#define HALF_EPSILON ((half)9.765625e-04f)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN10_F 2.30258509299404568402f
#define M_LN2_F 0.69314718055994530942f
#define M_SQRT2_F 1.41421356237309504880f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT1_2_F 0.70710678118654752440f
#define assert(x) ((void)0)

enum __msl_memory_order {
    memory_order_relaxed = 0,
    memory_order_acquire = 2,
    memory_order_release = 3,
    memory_order_acq_rel = 4,
    memory_order_seq_cst = 5
};
typedef __msl_memory_order memory_order;
template <class T> struct __msl_atomic {
    T v;
};
typedef __msl_atomic<int> __msl_atomic_int;
typedef __msl_atomic<uint> __msl_atomic_uint;
typedef __msl_atomic<ulong> __msl_atomic_ulong;
typedef __msl_atomic<float> __msl_atomic_float;
typedef __msl_atomic<bool> __msl_atomic_bool;
