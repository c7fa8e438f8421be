"""The one oracle: every sublayer of the models in numpy, slow and obvious, one file a word.

Everything here takes an `Arithmetic`: float64 or float32, with or without the documented roundings to bf16. Nothing is
shared with the library: dequantisation, the reading of a checkpoint and the maths are written a second time, so that
agreement means something. It is not fast, and no code of the library may use it.
"""

from reference.attention import AttentionShape, AttentionWeights, KvCache, attention
from reference.bidirectional import bidirectional
from reference.classify import ClassifyWeights, classify
from reference.decoder import Decoder, DecoderState, load_decoder
from reference.embed import embed
from reference.encoder import Encoder, load_encoder
from reference.gated_delta import GatedDeltaShape, GatedDeltaState, GatedDeltaWeights, gated_delta
from reference.head import HeadWeights, head
from reference.matmul import Matrix, matmul
from reference.mlp import MlpShape, MlpWeights, mlp
from reference.moe import MoeShape, MoeWeights, moe, route
from reference.norm import norm
from reference.numbers import (
    BF16,
    BF16_FLOAT64,
    BYTES,
    BYTES_FLOAT64,
    FLOAT32,
    FLOAT64,
    Arithmetic,
    Array,
    bf16_bits,
    bf16_values,
    half_step,
    round_bf16,
)

__all__ = [
    "BF16",
    "BF16_FLOAT64",
    "BYTES",
    "BYTES_FLOAT64",
    "FLOAT32",
    "FLOAT64",
    "Arithmetic",
    "Array",
    "AttentionShape",
    "AttentionWeights",
    "ClassifyWeights",
    "Decoder",
    "DecoderState",
    "Encoder",
    "GatedDeltaShape",
    "GatedDeltaState",
    "GatedDeltaWeights",
    "HeadWeights",
    "KvCache",
    "Matrix",
    "MlpShape",
    "MlpWeights",
    "MoeShape",
    "MoeWeights",
    "attention",
    "bf16_bits",
    "bf16_values",
    "bidirectional",
    "classify",
    "embed",
    "gated_delta",
    "half_step",
    "head",
    "load_decoder",
    "load_encoder",
    "matmul",
    "mlp",
    "moe",
    "norm",
    "round_bf16",
    "route",
]
