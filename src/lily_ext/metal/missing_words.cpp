// Words that have no kernels yet. CMake builds this file while one is missing and names those that are.

#include <string>

#include "../error.h"
#include "words.h"

namespace lily::metal {

namespace {

[[noreturn]] void missing(const char *word) {
    throw Error(ErrorKind::device, "the Metal backend has no kernels for " + std::string(word) + "; use 'cpu'");
}

} // namespace

#if defined(LILY_LACKS_EMBED)
void encode_embed(Stream &, const EmbedWeights &, const Tensor &, const Tensor &) { missing("embed"); }
#endif

#if defined(LILY_LACKS_ATTENTION)
std::size_t attention_scratch(const Limits &) { return 0; }
void encode_attention(Stream &, Scratch, const AttentionShape &, const AttentionWeights &, const Tensor &,
                      const KvCache &, std::int64_t) {
    missing("attention");
}
#endif

#if defined(LILY_LACKS_GATED_DELTA)
std::size_t gated_delta_scratch(const Limits &) { return 0; }
void encode_gated_delta(Stream &, Scratch, const GatedDeltaShape &, const GatedDeltaWeights &, const Tensor &,
                        const GatedDeltaState &, const GatedDeltaState &, std::int64_t) {
    missing("gated_delta");
}
#endif

#if defined(LILY_LACKS_MOE)
std::size_t moe_scratch(const Limits &) { return 0; }
void encode_moe(Stream &, Scratch, const MoeShape &, const MoeWeights &, const Tensor &) { missing("moe"); }
#endif

#if defined(LILY_LACKS_BIDIRECTIONAL)
std::size_t bidirectional_scratch(const Limits &) { return 0; }
void encode_bidirectional(Stream &, Scratch, const AttentionShape &, const AttentionWeights &, const Tensor &,
                          const Tensor &, const Tensor &, std::span<const std::int32_t>) {
    missing("bidirectional");
}
#endif

#if defined(LILY_LACKS_MLP)
std::size_t mlp_scratch(const Limits &) { return 0; }
void encode_mlp(Stream &, Scratch, const MlpShape &, const MlpWeights &, const Tensor &) { missing("mlp"); }
#endif

#if defined(LILY_LACKS_CLASSIFY)
std::size_t classify_scratch(const Limits &) { return 0; }
void encode_classify(Stream &, Scratch, const ClassifyWeights &, const Tensor &, const Tensor &,
                     std::span<const std::int32_t>, const Tensor &, const Tensor &) {
    missing("classify");
}
#endif

#if defined(LILY_LACKS_HEAD)
std::size_t head_scratch(const Limits &) { return 0; }
void encode_head(Stream &, Scratch, const HeadWeights &, const Tensor &, const Tensor &, const Tensor &) {
    missing("head");
}
#endif

#if defined(LILY_LACKS_NORM)
void encode_norm(Stream &, const Tensor &, const Tensor &, float, const Tensor &) { missing("norm"); }
#endif

#if defined(LILY_LACKS_MATMUL)
void encode_matmul(Stream &, const Tensor &, const Matrix &, std::int64_t, const Tensor &) { missing("matmul"); }
#endif

} // namespace lily::metal
