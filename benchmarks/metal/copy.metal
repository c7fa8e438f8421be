// Memory to memory, 16 bytes a thread and step: what a kernel can reach of the bandwidth that benchmarks/metal_gemv.py
// compares products with.

#include <metal_stdlib>
using namespace metal;

struct CopyArgs {
    uint loads;
};

[[kernel]] void copy(device const uint4 *from [[buffer(0)]], device uint4 *to [[buffer(1)]],
                     constant CopyArgs &args [[buffer(2)]], uint thread_index [[thread_position_in_grid]],
                     uint threads [[threads_per_grid]]) {
    uint i = thread_index;
    for (; i + 3 * threads < args.loads; i += 4 * threads) {
        const uint4 a = from[i], b = from[i + threads], c = from[i + 2 * threads], d = from[i + 3 * threads];
        to[i] = a;
        to[i + threads] = b;
        to[i + 2 * threads] = c;
        to[i + 3 * threads] = d;
    }
    for (; i < args.loads; i += threads)
        to[i] = from[i];
}
