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
import sys
from collections.abc import Iterator, Sequence
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
from encoders import Shape

ENCODER = "encoder"
CONTEXT = 262_144
PIECE = 1 << 20  # blocks that are drawn together


@dataclass(frozen=True)
class Tensor:
    """Rows of the last dimension, and the deviation of the weights around `mean`."""

    name: str
    shape: tuple[int, ...]
    type: Type
    deviation: float
    mean: float = 0.0


def blocks(kind: Type, count: int, tensor: Tensor, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Random blocks of a type, [count, bytes of a block]: codes of all values, one scale of either sign a block."""
    if kind == Type.F32:
        values = tensor.mean + tensor.deviation * random.standard_normal((count, 1), np.float32)
        return values.astype(np.float32).view(np.uint8)
    if kind == Type.BF16:
        values = tensor.deviation * random.standard_normal((count, 1), np.float32)
        halves: npt.NDArray[np.uint8] = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return halves
    spread = {Type.Q4_0: 16, Type.Q8_0: 256}[kind] / math.sqrt(12)
    size = gguf.GGML_QUANT_SIZES[kind][1]
    drawn: npt.NDArray[np.uint8] = np.frombuffer(random.bytes(count * size), np.uint8).reshape(count, size).copy()
    scales = (tensor.deviation / spread * random.choice((-1.0, 1.0), (count, 1))).astype(np.float16)
    drawn[:, :2] = scales.view(np.uint8)
    return drawn


def decoder(a: Architecture) -> Iterator[Tensor]:
    """Every tensor of architecture qwen35moe."""

    def matrix(name: str, *shape: int, kind: Type = Type.Q4_0, gain: float = 1.0) -> Tensor:
        return Tensor(f"{name}.weight", shape, kind, gain / math.sqrt(shape[-1]))

    def gains(name: str, width: int) -> Tensor:
        return Tensor(f"{name}.weight", (width,), Type.F32, 0.1, 1.0)

    queries, keys, values = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.value_heads * a.value_dim
    yield matrix("token_embd", a.vocab, a.hidden, gain=math.sqrt(a.hidden))
    yield matrix("output", a.vocab, a.hidden)
    yield gains("output_norm", a.hidden)
    for layer in range(a.layers):
        at = f"blk.{layer}."
        yield gains(f"{at}attn_norm", a.hidden)
        yield gains(f"{at}post_attention_norm", a.hidden)
        if a.is_attention(layer):
            yield matrix(f"{at}attn_q", 2 * queries, a.hidden)
            yield matrix(f"{at}attn_k", keys, a.hidden)
            yield matrix(f"{at}attn_v", keys, a.hidden)
            yield matrix(f"{at}attn_output", a.hidden, queries)
            yield gains(f"{at}attn_q_norm", a.head_dim)
            yield gains(f"{at}attn_k_norm", a.head_dim)
        else:
            yield matrix(f"{at}attn_qkv", a.channels, a.hidden)
            yield matrix(f"{at}attn_gate", values, a.hidden)
            yield matrix(f"{at}ssm_beta", a.value_heads, a.hidden, kind=Type.Q8_0)
            yield matrix(f"{at}ssm_alpha", a.value_heads, a.hidden, kind=Type.Q8_0)
            yield Tensor(f"{at}ssm_conv1d.weight", (a.channels, a.conv_width), Type.F32, 0.5)
            yield Tensor(f"{at}ssm_dt.bias", (a.value_heads,), Type.F32, 1.0, -2.0)
            yield Tensor(f"{at}ssm_a", (a.value_heads,), Type.F32, 0.5, -3.0)
            yield gains(f"{at}ssm_norm", a.value_dim)
            yield matrix(f"{at}ssm_out", a.hidden, values)
        yield matrix(f"{at}ffn_gate_inp", a.experts, a.hidden, kind=Type.F32, gain=2.0)
        yield matrix(f"{at}ffn_gate_inp_shexp", a.hidden, kind=Type.F32)
        for suffix, width, experts in (("exps", a.width, (a.experts,)), ("shexp", a.shared_width, ())):
            yield matrix(f"{at}ffn_gate_{suffix}", *experts, width, a.hidden)
            yield matrix(f"{at}ffn_up_{suffix}", *experts, width, a.hidden)
            yield matrix(f"{at}ffn_down_{suffix}", *experts, a.hidden, width)


def encoder(a: Shape) -> Iterator[Tensor]:
    """Every tensor of architecture qwen3, which llama.cpp runs with a causal mask."""
    width, kv_width = a.heads * a.head_dim, a.kv_heads * a.head_dim

    def matrix(name: str, rows: int, cols: int, gain: float = 1.0) -> Tensor:
        return Tensor(f"{name}.weight", (rows, cols), Type.BF16, gain / math.sqrt(cols))

    def gains(name: str, width: int) -> Tensor:
        return Tensor(f"{name}.weight", (width,), Type.F32, 0.1, 1.0)

    yield matrix("token_embd", a.vocab, a.hidden, gain=math.sqrt(a.hidden))
    yield gains("output_norm", a.hidden)
    for layer in range(a.layers):
        at = f"blk.{layer}."
        yield gains(f"{at}attn_norm", a.hidden)
        yield gains(f"{at}ffn_norm", a.hidden)
        yield matrix(f"{at}attn_q", width, a.hidden)
        yield matrix(f"{at}attn_k", kv_width, a.hidden)
        yield matrix(f"{at}attn_v", kv_width, a.hidden)
        yield matrix(f"{at}attn_output", a.hidden, width)
        yield gains(f"{at}attn_q_norm", a.head_dim)
        yield gains(f"{at}attn_k_norm", a.head_dim)
        yield matrix(f"{at}ffn_gate", a.width, a.hidden)
        yield matrix(f"{at}ffn_up", a.width, a.hidden)
        yield matrix(f"{at}ffn_down", a.hidden, a.width)


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
        weights, size = gguf.GGML_QUANT_SIZES[tensor.type]
        count = math.prod(tensor.shape) // weights
        packed = (*tensor.shape[:-1], tensor.shape[-1] // weights * size)
        writer.add_tensor_info(tensor.name, packed, np.dtype(np.uint8), count * size, raw_dtype=tensor.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        weights, size = gguf.GGML_QUANT_SIZES[tensor.type]
        count = math.prod(tensor.shape) // weights
        drawn = np.empty((count, size), np.uint8)
        for start in range(0, count, PIECE):
            drawn[start : start + PIECE] = blocks(tensor.type, min(PIECE, count - start), tensor, random)
        writer.write_tensor_data(drawn)
    writer.close()


def shape_of(model: str) -> Architecture | Shape:
    """The dimensions of a model, as the command line names it."""
    if model == ENCODER:
        return FULL
    with open_checkpoint(locate(model)) as checkpoint:
        return checkpoint.architecture


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("model", help=f"folder, hub repository or embedded model; or {ENCODER}, the Gate's in full")
    parser.add_argument("out", type=Path, help="the file to write")
    options = parser.parse_args(arguments)
    write(options.out, shape_of(options.model))


if __name__ == "__main__":
    main()
