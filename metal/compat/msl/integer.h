// Functions on integers: bits, products, packed formats.
#pragma once
#pragma clang system_header
#include "msl/traits.h"

namespace metal {
#define MSL_BITS(T, U)                                                                                                 \
    MSL_IN T popcount(T x) { return (T)__builtin_popcountg((U)x); }                                                    \
    MSL_IN T clz(T x) { return (T)__builtin_clzg((U)x, (int)sizeof(T) * 8); }                                          \
    MSL_IN T ctz(T x) { return (T)__builtin_ctzg((U)x, (int)sizeof(T) * 8); }                                          \
    MSL_IN T extract_bits(T x, uint o, uint n) {                                                                       \
        return n == 0 ? (T)0 : (T)((T)((U)x << (sizeof(T) * 8 - o - n)) >> (sizeof(T) * 8 - n));                       \
    }                                                                                                                  \
    MSL_IN T insert_bits(T b, T x, uint o, uint n) {                                                                   \
        U m = (U)(n >= sizeof(T) * 8 ? (U) ~(U)0 : (U)((((U)1 << n) - 1) << o));                                       \
        return (T)(((U)b & ~m) | (((U)x << o) & m));                                                                   \
    }                                                                                                                  \
    MSL_IN T rotate(T x, T n) {                                                                                        \
        uint b = sizeof(T) * 8, s = (uint)n & (b - 1);                                                                 \
        return s ? (T)(((U)x << s) | ((U)x >> (b - s))) : x;                                                           \
    }

MSL_BITS(char, uchar);
MSL_BITS(uchar, uchar);
MSL_BITS(short, ushort);
MSL_BITS(ushort, ushort);
MSL_BITS(int, uint);
MSL_BITS(uint, uint);
MSL_BITS(long, ulong);
MSL_BITS(ulong, ulong);
MSL_IN uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
MSL_IN uint mulhi(uint a, uint b) { return (uint)(((ulong)a * b) >> 32); }
MSL_IN int mulhi(int a, int b) { return (int)(((long)a * b) >> 32); }
MSL_IN uint mad24(uint a, uint b, uint c) { return a * b + c; }
MSL_IN int mad24(int a, int b, int c) { return a * b + c; }
MSL_IN uint absdiff(int a, int b) { return a > b ? (uint)a - (uint)b : (uint)b - (uint)a; }
MSL_IN float4 unpack_unorm4x8_to_float(uint x) {
    return (float4)(x & 255, (x >> 8) & 255, (x >> 16) & 255, x >> 24) / 255.0f;
}
MSL_IN float2 unpack_unorm2x16_to_float(uint x) { return (float2)(x & 65535, x >> 16) / 65535.0f; }
} // namespace metal
