"""The whole classifier: reads a checkpoint with nothing but json and numpy, and runs windows through it.

It takes the reference checkpoint's names (`backbone.` before those of Qwen3) and plain bf16 or MLX affine matrices.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reference.attention import AttentionShape, AttentionWeights
from reference.bidirectional import bidirectional
from reference.classify import ClassifyWeights, classify
from reference.decoder import Reader, read_tensors
from reference.embed import embed
from reference.matmul import Matrix
from reference.mlp import MlpShape, MlpWeights, mlp
from reference.numbers import Arithmetic, Array


@dataclass(frozen=True)
class Encoder:
    attention: AttentionShape
    mlp: MlpShape
    table: Matrix
    layers: tuple[tuple[AttentionWeights, MlpWeights], ...]
    heads: ClassifyWeights

    def run(self, ids: Any, lengths: tuple[int, ...], arithmetic: Arithmetic) -> tuple[Array, Array]:
        """Read the windows `lengths` of ids, one after another -> logits [tokens, labels] and scores [windows]."""
        x = embed(self.table, np.asarray(ids), arithmetic)
        for attention, dense in self.layers:
            x = bidirectional(self.attention, attention, x, lengths, arithmetic)
            x = mlp(self.mlp, dense, x, arithmetic)
        return classify(self.heads, self.attention.eps, x, lengths, arithmetic)


def matrix(reader: Reader, name: str) -> Matrix:
    if f"{reader.prefix}{name}.scales" in reader.tensors:
        return reader.matrix(name)
    return Matrix("bf16", reader.tensors[f"{reader.prefix}{name}.weight"])


def load_layer(layer: Reader) -> tuple[AttentionWeights, MlpWeights]:
    part = layer.under("self_attn.")
    q, k, v, o = (matrix(part, f"{name}_proj") for name in "qkvo")
    norms = [layer.vector(f"{name}_layernorm.weight") for name in ("input", "post_attention")]
    heads = [part.vector(f"{name}_norm.weight") for name in "qk"]
    gate, up, down = (matrix(layer.under("mlp."), f"{name}_proj") for name in ("gate", "up", "down"))
    return AttentionWeights(norms[0], q, k, v, o, heads[0], heads[1]), MlpWeights(norms[1], gate, up, down)


def load_encoder(folder: Path) -> Encoder:
    """Load a checkpoint folder in the reference's own names."""
    config = json.loads((folder / "config.json").read_text())["backbone"]
    hidden, eps, head_dim = config["hidden_size"], config["rms_norm_eps"], config["head_dim"]
    theta = config["rope_theta"] if "rope_theta" in config else config["rope_parameters"]["rope_theta"]
    tensors = {name: value for name, value in read_tensors(folder).items() if not name.startswith("viterbi.")}
    reader, heads = Reader(tensors, "backbone."), Reader(tensors, "")
    return Encoder(
        attention=AttentionShape(
            hidden, config["num_attention_heads"], config["num_key_value_heads"], head_dim, head_dim, theta, eps
        ),
        mlp=MlpShape(hidden, config["intermediate_size"], eps),
        table=matrix(reader, "embed_tokens"),
        layers=tuple(load_layer(reader.under(f"layers.{i}.")) for i in range(config["num_hidden_layers"])),
        heads=ClassifyWeights(
            norm=reader.vector("norm.weight"),
            tags=heads.vector("token_cls_head.weight"),
            tags_bias=heads.vector("token_cls_head.bias"),
            sensitivity=heads.vector("sensitivity_head.weight"),
            sensitivity_bias=heads.vector("sensitivity_head.bias"),
        ),
    )
