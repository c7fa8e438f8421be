// RMSNorm of the rows of a prompt. See metal/norm.metal.

#include "args.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

void encode_norm(Stream &stream, const Tensor &x, const Tensor &weight, float eps, const Tensor &y) {
    constexpr std::int64_t kRows = 4; // a simdgroup each
    const std::int64_t rows = x.dims[0], cols = x.dims[1];
    const std::uint32_t groups = groups_of(rows, kRows);
    stream.kernel("norm")
        .read(x, Role::activations)
        .read(weight, Role::weights, {.loaded = groups * cols * 4})
        .write(y, Role::scratch)
        .run(NormArgs{u32(rows), u32(cols), eps}, {groups}, {32 * kRows});
}

} // namespace lily::metal
