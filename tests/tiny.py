"""A small random model of the right architecture, made of numpy arrays in memory, and an engine of the extension on it.

For tests of the extension itself, without Python's classes around it. It writes no file: checkpoints on disk are tested
elsewhere. The weights are drawn so that activations keep their size through the layers and the logits differ from
position to position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lily import _ext

Config = dict[str, float]
Ids = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]
# name -> (dtype as safetensors spells it, values; bf16 as uint16)
Arrays = dict[str, tuple[str, npt.NDArray[Any]]]

MODEL = "language_model.model."
HEAD = "language_model.lm_head"

SMALL: Mapping[str, float] = {
    "hidden": 128, "layers": 4, "vocab": 320, "attention_every": 4,
    "heads": 4, "kv_heads": 2, "head_dim": 64, "rotary_dim": 16, "theta": 1e7, "eps": 1e-6,
    "key_heads": 2, "value_heads": 4, "key_dim": 64, "value_dim": 64, "conv_width": 4,
    "experts": 8, "top_k": 2, "width": 64, "shared_width": 64, "renormalize": True,
}  # fmt: skip


VOCAB = int(SMALL["vocab"])
CHUNK = 64
CONTEXT = 256


def bf16(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint16]:
    """Bits of float values rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class _Draw:
    """Tensors of one random stream, collected under their names."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.arrays: Arrays = {}

    def matrix(self, name: str, *shape: int, bits: int = 4, gain: float = 1.0) -> None:
        """Affine codes for [.., rows, cols], of values with the variance gain^2 / cols."""
        cols = shape[-1]
        codes = self.random.integers(0, 2**32, (*shape[:-1], cols * bits // 32), dtype=np.uint32)
        levels = 2**bits - 1
        scale = gain / np.sqrt(cols) / np.sqrt((levels**2 + 2 * levels) / 12)
        scales = scale * self.random.uniform(0.8, 1.2, (*shape[:-1], cols // 64))
        self.arrays[name + ".weight"] = ("U32", codes)
        self.arrays[name + ".scales"] = ("BF16", bf16(scales))
        self.arrays[name + ".biases"] = ("BF16", bf16(-scales * levels / 2))

    def vector(self, name: str, *shape: int, mean: float, spread: float) -> None:
        self.arrays[name] = ("BF16", bf16(mean + spread * self.random.standard_normal(shape)))


def tiny_model(seed: int, **changes: float) -> tuple[Arrays, Config]:
    """Weights and config of a random model; `changes` replaces sizes of SMALL."""
    config = {**SMALL, **changes}
    size = {name: int(value) for name, value in config.items()}
    draw = _Draw(seed)
    hidden, vocab = size["hidden"], size["vocab"]
    draw.matrix(MODEL + "embed_tokens", vocab, hidden, gain=float(np.sqrt(hidden)))
    for layer in range(size["layers"]):
        at = f"{MODEL}layers.{layer}."
        draw.vector(at + "input_layernorm.weight", hidden, mean=1, spread=0.1)
        if (layer + 1) % size["attention_every"] == 0:
            _attention(draw, at + "self_attn.", size)
        else:
            _gated_delta(draw, at + "linear_attn.", size)
        draw.vector(at + "post_attention_layernorm.weight", hidden, mean=1, spread=0.1)
        _moe(draw, at + "mlp.", size)
    draw.vector(MODEL + "norm.weight", hidden, mean=1, spread=0.1)
    draw.matrix(HEAD, vocab, hidden, gain=2.0)
    return draw.arrays, config


def _attention(draw: _Draw, at: str, size: dict[str, int]) -> None:
    width, kv_width = size["heads"] * size["head_dim"], size["kv_heads"] * size["head_dim"]
    draw.matrix(at + "q_proj", 2 * width, size["hidden"])
    draw.matrix(at + "k_proj", kv_width, size["hidden"])
    draw.matrix(at + "v_proj", kv_width, size["hidden"])
    draw.matrix(at + "o_proj", size["hidden"], width)
    draw.vector(at + "q_norm.weight", size["head_dim"], mean=1, spread=0.1)
    draw.vector(at + "k_norm.weight", size["head_dim"], mean=1, spread=0.1)


def _gated_delta(draw: _Draw, at: str, size: dict[str, int]) -> None:
    heads, values = size["value_heads"], size["value_heads"] * size["value_dim"]
    channels = 2 * size["key_heads"] * size["key_dim"] + values
    draw.matrix(at + "in_proj_qkv", channels, size["hidden"])
    draw.matrix(at + "in_proj_z", values, size["hidden"])
    draw.matrix(at + "in_proj_a", heads, size["hidden"])
    draw.matrix(at + "in_proj_b", heads, size["hidden"])
    draw.vector(at + "conv1d.weight", channels, size["conv_width"], 1, mean=0, spread=0.5)
    draw.arrays[at + "A_log"] = ("F32", np.log(draw.random.uniform(0.05, 1, heads)).astype(np.float32))
    draw.vector(at + "dt_bias", heads, mean=0, spread=0.5)
    draw.vector(at + "norm.weight", size["value_dim"], mean=1, spread=0.1)
    draw.matrix(at + "out_proj", size["hidden"], values)


def _moe(draw: _Draw, at: str, size: dict[str, int]) -> None:
    hidden, experts, width, shared = size["hidden"], size["experts"], size["width"], size["shared_width"]
    draw.matrix(at + "gate", experts, hidden, bits=8, gain=2.0)
    draw.matrix(at + "switch_mlp.gate_proj", experts, width, hidden)
    draw.matrix(at + "switch_mlp.up_proj", experts, width, hidden)
    draw.matrix(at + "switch_mlp.down_proj", experts, hidden, width)
    draw.matrix(at + "shared_expert_gate", 1, hidden, bits=8)
    draw.matrix(at + "shared_expert.gate_proj", shared, hidden)
    draw.matrix(at + "shared_expert.up_proj", shared, hidden)
    draw.matrix(at + "shared_expert.down_proj", hidden, shared)


Record = tuple[str, int, int, str, tuple[int, ...]]


def pack(arrays: Arrays, base: int = 0) -> tuple[list[npt.NDArray[np.uint8]], list[Record]]:
    """One file in memory that starts its data at an address of `base` mod 16, and the records of its tensors."""
    total = sum(values.nbytes for _, values in arrays.values())
    memory = np.zeros(total + 32, np.uint8)
    first = (base - memory.ctypes.data) % 16
    file = memory[first : first + total]
    records: list[Record] = []
    offset = 0
    for name, (dtype, values) in arrays.items():
        file[offset : offset + values.nbytes] = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        records.append((name, 0, offset, dtype, values.shape))
        offset += values.nbytes
    file.flags.writeable = False
    return [file], records


def tiny_engine(
    arrays: Arrays,
    config: Config,
    *,
    base: int = 0,
    isa: str = "",
    threads: int = 1,
    max_context: int = CONTEXT,
    chunk: int = CHUNK,
) -> _ext.Engine:
    """An engine of the compiled module on such a model."""
    weights = _ext.Weights(*pack(arrays, base))
    return _ext.Engine(weights, config, device="cpu", isa=isa, threads=threads, max_context=max_context, chunk=chunk)


def prompt(seed: int, count: int) -> Ids:
    """Draw token ids of SMALL's vocabulary."""
    return np.random.default_rng(seed).integers(0, VOCAB, count, dtype=np.int32)


def greedy(engine: _ext.Engine, session: _ext.Session, count: int) -> list[int]:
    """Go on for some tokens."""
    sampler = _ext.Sampler()
    return [engine.step(session, sampler) for _ in range(count)]


def read(engine: _ext.Engine, *parts: Ids) -> _ext.Session:
    """Open a session and prefill it part by part."""
    session = engine.session()
    for part in parts:
        engine.prefill(session, part, None)
    return session


def close_to(actual: Logits, expected: Logits) -> bool:
    """Whether two logits differ by no more than the noise of bf16: other kernels or another split of one function."""
    spread = float(np.sqrt(np.mean(expected.astype(np.float64) ** 2)))
    return float(np.sqrt(np.mean((actual.astype(np.float64) - expected) ** 2))) < 0.05 * spread


def same_content(engine: _ext.Engine, one: _ext.Session, two: _ext.Session) -> bool:
    """Whether two sessions hold the same bits, seen by what can be seen: their tokens, logits, and how they go on."""
    if one.pending != two.pending or not np.array_equal(one.tokens, two.tokens):
        return False
    more = prompt(999, 5)
    logits = []
    for session in (one, two):
        twin = session.fork()
        engine.prefill(twin, more, None)
        logits.append(np.concatenate((session.logits(), twin.logits())))
        twin.close()
    return np.array_equal(logits[0], logits[1])
