"""A file of random weights for llama.cpp, of the exact shape of a model that lily runs: for speed, never for words.

    python -m benchmarks.random_gguf MODEL decoder.gguf      the dimensions of any checkpoint of lily; in full 19.6 GB
    python -m benchmarks.random_gguf nano nano.gguf          those of the embedded decoder, 15 MB
    python -m benchmarks.random_gguf encoder encoder.gguf    28 layers of 1024 in BF16, 0.9 GB, as encoder_speed.py

Needs `pip install gguf`. Types are those that llama.cpp's own converter chooses for Q4_0: the router stays float32,
the two small projections of the gated delta net have 8 bits. There is no tokenizer inside.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

from lily.architecture import ATTENTION_EVERY, Architecture
from lily.checkpoint import open_checkpoint
from lily.location import locate

from .encoder_speed import FULL

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from encoders import Shape, matrices, vectors

CLASSIFIER = "encoder"
CONTEXT = 262_144
PIECE = 1 << 20  # blocks that are drawn together

# llama.cpp's names for the tensors of both models, of the decoder, and of the encoder.
BOTH = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
DECODER = BOTH | {
    "lm_head": "output",
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.switch_mlp.gate_proj": "ffn_gate_exps",
    "mlp.switch_mlp.up_proj": "ffn_up_exps",
    "mlp.switch_mlp.down_proj": "ffn_down_exps",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
ENCODER = BOTH | {
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class Tensor:
    """Rows of the last dimension, and the deviation of the weights around `mean`."""

    name: str
    shape: tuple[int, ...]
    type: Type
    deviation: float
    mean: float = 0.0


def blocks(tensor: Tensor, count: int, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Blocks of a tensor's type, [count, bytes of a block]: codes of all values, one scale of either sign a block."""
    if tensor.type == Type.F32:
        values = tensor.mean + tensor.deviation * random.standard_normal((count, 1), np.float32)
        return values.astype(np.float32).view(np.uint8)
    if tensor.type == Type.BF16:
        values = tensor.deviation * random.standard_normal((count, 1), np.float32)
        halves: npt.NDArray[np.uint8] = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return halves
    spread = {Type.Q4_0: 16, Type.Q8_0: 256}[tensor.type] / math.sqrt(12)
    size = gguf.GGML_QUANT_SIZES[tensor.type][1]
    drawn: npt.NDArray[np.uint8] = np.frombuffer(random.bytes(count * size), np.uint8).reshape(count, size).copy()
    scales = (tensor.deviation / spread * random.choice((-1.0, 1.0), (count, 1))).astype(np.float16)
    drawn[:, :2] = scales.view(np.uint8)
    return drawn


def called(name: str, names: Mapping[str, str]) -> str:
    """llama.cpp's name for a tensor of a checkpoint."""
    place = re.fullmatch(r"(?:language_model\.)?(?:model\.)?(?:layers\.(\d+)\.)?(.+?)(\.weight)?", name)
    assert place is not None
    layer, part, weight = place.groups(default="")
    return f"{f'blk.{layer}.' if layer else ''}{names[part]}{weight}"


def decoder(a: Architecture) -> Iterator[Tensor]:
    """Every tensor of architecture qwen35moe."""
    for matrix in a.projections():
        name = called(f"{matrix.path}.weight", DECODER)
        kind = Type.F32 if matrix.is_router else Type.Q8_0 if "ssm_alpha" in name or "ssm_beta" in name else Type.Q4_0
        shape = (matrix.cols,) if matrix.rows == 1 else (*matrix.lead, matrix.cols)
        gain = {"token_embd": math.sqrt(a.hidden), "ffn_gate_inp": 2.0}.get(name.split(".")[-2], 1.0)
        yield Tensor(name, shape, kind, gain / math.sqrt(matrix.cols))
    for vector in a.vectors():
        name = called(vector.name, DECODER)
        spread = {"ssm_conv1d": (0.5, 0.0), "ssm_dt": (1.0, -2.0), "ssm_a": (0.5, -3.0)}
        deviation, mean = next((of for part, of in spread.items() if f".{part}" in name), (0.1, 1.0))
        yield Tensor(name, vector.shape[:2], Type.F32, deviation, mean)  # the convolution's third dimension is 1


def encoder(a: Shape) -> Iterator[Tensor]:
    """Every tensor of architecture qwen3, which llama.cpp runs with a causal mask."""
    for path, (rows, cols) in matrices(a).items():
        deviation = 1.0 if path == "embed_tokens" else 1 / math.sqrt(cols)
        yield Tensor(called(f"{path}.weight", ENCODER), (rows, cols), Type.BF16, deviation)
    for path, size in vectors(a).items():
        yield Tensor(called(f"{path}.weight", ENCODER), (size,), Type.F32, 0.1, 1.0)


def header(writer: gguf.GGUFWriter, a: Architecture | Shape) -> None:
    """The sizes, under llama.cpp's names."""
    writer.add_block_count(a.layers)
    writer.add_embedding_length(a.hidden)
    writer.add_head_count(a.heads)
    writer.add_head_count_kv(a.kv_heads)
    writer.add_key_length(a.head_dim)
    writer.add_value_length(a.head_dim)
    writer.add_rope_freq_base(a.theta)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(a.vocab)
    if isinstance(a, Shape):
        writer.add_context_length(a.window)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_feed_forward_length(a.width)
        return
    pairs = a.rotary_dim // 2
    writer.add_context_length(CONTEXT)
    writer.add_layer_norm_rms_eps(a.eps)
    writer.add_rope_dimension_count(a.rotary_dim)
    writer.add_rope_dimension_sections([pairs - 2 * (pairs // 3), pairs // 3, pairs // 3, 0])
    writer.add_expert_count(a.experts)
    writer.add_expert_used_count(a.top_k)
    writer.add_expert_feed_forward_length(a.width)
    writer.add_expert_shared_feed_forward_length(a.shared_width)
    writer.add_ssm_conv_kernel(a.conv_width)
    writer.add_ssm_state_size(a.key_dim)
    writer.add_ssm_group_count(a.key_heads)
    writer.add_ssm_time_step_rank(a.value_heads)
    writer.add_ssm_inner_size(a.value_heads * a.value_dim)
    writer.add_full_attention_interval(ATTENTION_EVERY)


def write(out: Path, shape: Architecture | Shape, seed: int = 1) -> None:
    """Writes the file, tensor by tensor."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(out), "qwen3" if isinstance(shape, Shape) else "qwen35moe")
    header(writer, shape)
    tensors = list(encoder(shape) if isinstance(shape, Shape) else decoder(shape))
    for tensor in tensors:
        packed = gguf.quant_shape_to_byte_shape(tensor.shape, tensor.type)
        writer.add_tensor_info(tensor.name, packed, np.dtype(np.uint8), math.prod(packed), raw_dtype=tensor.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        weights, size = gguf.GGML_QUANT_SIZES[tensor.type]
        count = math.prod(tensor.shape) // weights
        drawn = np.empty((count, size), np.uint8)
        for start in range(0, count, PIECE):
            drawn[start : start + PIECE] = blocks(tensor, min(PIECE, count - start), random)
        writer.write_tensor_data(drawn)
    writer.close()


def shape_of(model: str) -> Architecture | Shape:
    """The dimensions of a model, as the command line names it."""
    if model == CLASSIFIER:
        return FULL
    with open_checkpoint(locate(model)) as checkpoint:
        return checkpoint.architecture


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("model", help=f"folder, hub repository or embedded model; or {CLASSIFIER}, the Gate's in full")
    parser.add_argument("out", type=Path, help="the file to write")
    options = parser.parse_args(arguments)
    write(options.out, shape_of(options.model))


if __name__ == "__main__":
    main()
