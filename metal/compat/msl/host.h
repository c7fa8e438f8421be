// What a thread asks of the machine, on the host: calls into the executor (metal/toolchain/runtime), where threads are
// fibers.
// C++ for OpenCL treats every function as convergent, so that calls are neither duplicated nor moved into or out of
// branches. What is the same during a thread's life need not be.
#define MSL_SAME __attribute__((const, noconvergent))
extern "C" {
MSL_SAME __attribute__((opencl_local)) void *__msl_tg(int number, ulong size); // a threadgroup variable of the kernel
MSL_SAME __attribute__((opencl_local)) void *__msl_tgarg(uint n);              // a [[threadgroup(n)]] argument
MSL_SAME uint __msl_index(void);                                               // thread_index_in_threadgroup
void __msl_pos_get(__private __msl_pos *p);
void __msl_tg_barrier(uint flags);
void __msl_sg_barrier(uint flags);
void __msl_fence(uint flags, int scope);
uint __msl_ballot(bool b);
uint __msl_active(void);
uint __msl_shfl(uint v, int kind, uint k);
float __msl_red_f32(float v, int op, int scan);
int __msl_red_i32(int v, int op, int scan);
uint __msl_red_u32(uint v, int op, int scan);
ulong __msl_red_u64(ulong v, int op, int scan);
// 8x8 matrices of the simdgroup, for its first lane to keep; the last one made is the first one to go.
__private float *__msl_matrix_new(void);
void __msl_matrix_delete(void);
ulong __msl_matrix_spread(const __private float *whole);     // the first lane's matrix -> each lane's two elements
void __msl_matrix_gather(__private float *whole, ulong own); // and back
void __msl_matrix_meet(void);                                // all lanes of the simdgroup must come
}
// The lane that runs, a variable of the executor's thread. Read in assembly, because the language has no such variables.
MSL_IN uint __msl_lane() {
    ulong lane;
#if defined(__x86_64__)
    asm("movq msl_current_lane@gottpoff(%%rip), %0\n\tmovl %%fs:(%0), %k0" : "=r"(lane));
#elif defined(__aarch64__)
    asm("adrp %0, :gottprel:msl_current_lane\n\tldr %0, [%0, :gottprel_lo12:msl_current_lane]\n\t"
        "mrs x16, tpidr_el0\n\tldr %w0, [x16, %0]"
        : "=r"(lane)
        :
        : "x16");
#endif
    return (uint)lane;
}

// Conversion of float to bfloat, which clang calls on processors without an instruction for it: to nearest, ties to even.
#if defined(__x86_64__)
extern "C" inline __attribute__((used, weak)) __bf16 __truncsfbf2(float x) {
    uint bits = __builtin_bit_cast(uint, x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return __builtin_bit_cast(__bf16, (ushort)((bits >> 16) | 0x40));
    return __builtin_bit_cast(__bf16, (ushort)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
}
#endif
#define __msl_exp __builtin_expf
#define __msl_exp2 __builtin_exp2f
#define __msl_log __builtin_logf
#define __msl_log2 __builtin_log2f
#define __msl_log10 __builtin_log10f
#define __msl_sin __builtin_sinf
#define __msl_cos __builtin_cosf
#define __msl_tan __builtin_tanf
#define __msl_asin __builtin_asinf
#define __msl_acos __builtin_acosf
#define __msl_atan __builtin_atanf
#define __msl_sinh __builtin_sinhf
#define __msl_cosh __builtin_coshf
#define __msl_tanh __builtin_tanhf
#define __msl_asinh __builtin_asinhf
#define __msl_acosh __builtin_acoshf
#define __msl_atanh __builtin_atanhf
#define __msl_sqrt __builtin_sqrtf
#define __msl_floor __builtin_floorf
#define __msl_ceil __builtin_ceilf
#define __msl_trunc __builtin_truncf
#define __msl_rint __builtin_rintf
#define __msl_round __builtin_roundf
#define __msl_pow __builtin_powf
#define __msl_atan2 __builtin_atan2f
#define __msl_fmod __builtin_fmodf
template <int N> struct __msl_bits;
template <> struct __msl_bits<1> {
    typedef uchar t;
};
template <> struct __msl_bits<4> {
    typedef uint t;
};
template <> struct __msl_bits<8> {
    typedef ulong t;
};
template <class T> using __msl_ub = typename __msl_bits<sizeof(T)>::t;
#define MSL_HAT(AS)                                                                                                    \
    template <class T> MSL_INT T __msl_at_load(const volatile AS T *p) {                                               \
        return __builtin_bit_cast(T, __atomic_load_n((AS __msl_ub<T> *)p, 0));                                         \
    }                                                                                                                  \
    template <class T> MSL_INT void __msl_at_store(volatile AS T *p, T v) {                                            \
        __atomic_store_n((AS __msl_ub<T> *)p, __builtin_bit_cast(__msl_ub<T>, v), 0);                                  \
    }                                                                                                                  \
    template <class T> MSL_INT T __msl_at_xchg(volatile AS T *p, T v) {                                                \
        return __builtin_bit_cast(T, __atomic_exchange_n((AS __msl_ub<T> *)p, __builtin_bit_cast(__msl_ub<T>, v), 0)); \
    }                                                                                                                  \
    template <class T> MSL_INT bool __msl_at_cas(volatile AS T *p, __private T *e, T d) {                              \
        typedef __msl_ub<T> U;                                                                                         \
        U o = __builtin_bit_cast(U, *e), r = __sync_val_compare_and_swap((AS U *)p, o, __builtin_bit_cast(U, d));      \
        *e = __builtin_bit_cast(T, r);                                                                                 \
        return r == o;                                                                                                 \
    }                                                                                                                  \
    template <class T> MSL_INT T __msl_at_add(volatile AS T *p, T v) { return __atomic_fetch_add((AS T *)p, v, 0); }   \
    template <class T> MSL_INT T __msl_at_or(volatile AS T *p, T v) { return __atomic_fetch_or((AS T *)p, v, 0); }     \
    template <class T> MSL_INT T __msl_at_and(volatile AS T *p, T v) { return __atomic_fetch_and((AS T *)p, v, 0); }   \
    template <class T> MSL_INT T __msl_at_xor(volatile AS T *p, T v) { return __atomic_fetch_xor((AS T *)p, v, 0); }   \
    template <class T> MSL_INT T __msl_at_min(volatile AS T *p, T v) { return __atomic_fetch_min((AS T *)p, v, 0); }   \
    template <class T> MSL_INT T __msl_at_max(volatile AS T *p, T v) { return __atomic_fetch_max((AS T *)p, v, 0); }

MSL_HAT(__attribute__((opencl_global_device)));
MSL_HAT(__local);
