// Rows of the embedding table. See metal/embed.metal.

#include "args.h"
#include "sizes.h"
#include "words.h"

namespace lily::metal {

void encode_embed(Stream &stream, const EmbedWeights &weights, const Tensor &ids, const Tensor &x) {
    const std::int64_t rows = x.dims[0], cols = x.dims[1];
    stream.kernel("embed", weights.table.packing)
        .matrix(weights.table, rows) // as if no id came twice
        .read(ids, Role::activations, {.loaded = rows * 4 * groups_of(cols, 256)})
        .write(x, Role::activations)
        .run(EmbedArgs{u32(cols)}, {groups_of(cols, 256), u32(rows)}, {32});
}

} // namespace lily::metal
