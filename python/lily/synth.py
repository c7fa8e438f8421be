"""Random checkpoints of the exact format and shapes that mlx_lm.convert writes, for tests and benchmarks.

The weights are noise with sane statistics: activations of unit size, logits with a deviation near 1, routers that
spread, decays from slow to fast. Speed and numerics of such a model are those of a trained one of its shape; its words
are nonsense. Every tensor depends on the seed and its own name only, and none is ever held whole in memory.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .architecture import ATTENTION_EVERY, GROUP, QWEN36_35B_A3B, Architecture, Projection, Vector
from .arguments import callback, switch
from .errors import InvalidInput
from .local_files import user_path
from .shard_writer import Outgoing, Progress, staged_folder, write_shard
from .shards import INDEX
from .toy_tokenizer import write_tokenizer

FULL = QWEN36_35B_A3B
TINY = Architecture(
    hidden=256, layers=8, vocab=1024, heads=4, kv_heads=2, head_dim=256, rotary_dim=64, theta=1e7, eps=1e-6,
    key_heads=4, value_heads=8, key_dim=128, value_dim=128, conv_width=4, experts=16, top_k=4, width=128,
    shared_width=128,
)  # fmt: skip

SHARD_BYTES = 5 << 30  # the converter's limit
_PIECE_WORDS = 4 << 20  # 32 MiB of random words at a time

Bytes = npt.NDArray[np.uint8]


def write_checkpoint(
    out: str | Path,
    shape: Architecture = TINY,
    *,
    seed: int = 0,
    bits: int = 4,
    shard_bytes: int = SHARD_BYTES,
    header_residue: int | None = None,
    tokenizer: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Writes a random checkpoint of `shape` to the folder `out` (new or empty) and returns its path.

    Args:
        out: the folder; it appears when everything is written.
        shape: FULL (19.5 GB), TINY (13 MB) or any other dimensions.
        seed: the same seed gives the same bytes.
        bits: 4 or 8, of all matrices but the routers, which always have 8.
        shard_bytes: a file takes tensors up to this size, as the converter does.
        header_residue: where tensor data begins modulo 16; None leaves the header as long as it is, like MLX.
        tokenizer: also write a toy tokenizer and a chat template.
        progress: called with bytes done and bytes in all.

    Raises InvalidInput for arguments out of range and CheckpointError if the folder is in use or the disk too full.

    """
    callback(progress, "progress")
    out = user_path(out, "the output folder")
    switch(tokenizer, "tokenizer")
    if bits not in (4, 8):
        raise InvalidInput(f"bits is {bits!r}, expected 4 or 8")
    if header_residue is not None and not 0 <= header_residue < 16:
        raise InvalidInput(f"header_residue is {header_residue!r}, expected None or 0 to 15")
    tensors = _tensors(shape, seed, bits)
    total = sum(tensor.nbytes for tensor in tensors)
    done = 0

    def written(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    with staged_folder(out, total) as stage:
        shards = _shards(tensors, shard_bytes)
        weight_map: dict[str, str] = {}
        for number, shard in enumerate(shards, 1):
            name = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
            align, residue = (1, 0) if header_residue is None else (16, header_residue)
            write_shard(stage / name, shard, align=align, residue=residue, written=written)
            weight_map |= {tensor.name: name for tensor in shard}
        # The converter counts leaf modules only, and A_log and dt_bias hang on the layer itself.
        uncounted = 2 * shape.delta_layers * shape.value_heads
        totals = {"total_size": total, "total_parameters": shape.parameters - uncounted}
        _write_json(stage / INDEX, {"metadata": totals, "weight_map": dict(sorted(weight_map.items()))})
        special: dict[str, int] = {}
        if tokenizer:
            special = write_tokenizer(stage, shape.vocab)
        stop = [special["<|im_end|>"], special["<|endoftext|>"]] if special else [1]
        _write_json(stage / "config.json", _config(shape, bits, stop[0]))
        _write_json(stage / "generation_config.json", _generation_config(stop))
    return out


def layout(shape: Architecture, bits: int = 4) -> tuple[list[tuple[str, int, int, str, list[int]]], int]:
    """Where the tensors of a checkpoint of `shape` would lie in one aligned file: name, file 0, offset, dtype and shape
    of each, and the bytes of the file. Nothing is drawn."""
    place, placed = 0, []
    for tensor in _tensors(shape, 0, bits):
        placed.append((tensor.name, 0, place, tensor.dtype, list(tensor.shape)))
        place += -(-tensor.nbytes // 256) * 256
    return placed, place


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=4), encoding="utf-8")


def _shards(tensors: list[Outgoing], limit: int) -> list[list[Outgoing]]:
    shards: list[list[Outgoing]] = []
    size = 0
    for tensor in tensors:
        if not shards or size + tensor.nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor.nbytes
    return shards


def _tensors(shape: Architecture, seed: int, bits: int) -> list[Outgoing]:
    """Every tensor, layer by layer."""
    tensors: list[Outgoing] = []
    for projection in shape.projections():
        tensors += _matrix(projection, seed, 8 if projection.is_router else bits)
    tensors += [_vector(vector, seed) for vector in shape.vectors()]
    return sorted(tensors, key=_place_in_model)


def _place_in_model(tensor: Outgoing) -> int:
    parts = tensor.name.split(".")
    if "layers" in parts:
        return int(parts[parts.index("layers") + 1])
    return -1 if "embed_tokens" in parts else 1 << 30


def _random(seed: int, name: str, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM([seed, zlib.crc32(name.encode()), stream]))


def _bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """float32 rounded to bfloat16, ties to even, as its 16 bits."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)


def _matrix(projection: Projection, seed: int, bits: int) -> list[Outgoing]:
    """Codes, scales and biases of one matrix: uniform codes, entries of zero mean and deviation gain / sqrt(cols)."""
    path, lead, cols = projection.path, projection.lead, projection.cols
    gain = math.sqrt(cols) if path.endswith("embed_tokens") else 2.0 if path.endswith("mlp.gate") else 1.0
    levels = 1 << bits
    step = gain / math.sqrt(cols) / math.sqrt((levels * levels - 1) / 12)
    groups = math.prod(lead) * cols // GROUP

    def scales() -> npt.NDArray[np.uint16]:
        spread = _random(seed, path, 1).random(groups, dtype=np.float32)
        return _bf16(np.float32(step) * (np.float32(0.8) + np.float32(0.4) * spread))

    def biases() -> npt.NDArray[np.uint16]:
        # Zero mean, give or take half a code: a reader that ignores biases and centres the codes itself is caught.
        scale = (scales().astype(np.uint32) << 16).view(np.float32)
        jitter = _random(seed, path, 2).random(groups, dtype=np.float32) - np.float32(0.5)
        return _bf16(-scale * (np.float32((levels - 1) / 2) + jitter))

    def codes() -> Iterator[Bytes]:
        source, left = np.random.PCG64DXSM([seed, zlib.crc32(path.encode()), 0]), groups * GROUP * bits // 64
        while left:
            count = min(left, _PIECE_WORDS)
            yield source.random_raw(count).view(np.uint8)
            left -= count

    packed, grouped = (*lead, cols * bits // 32), (*lead, cols // GROUP)
    return [
        Outgoing(f"{path}.weight", "U32", packed, groups * GROUP * bits // 8, codes),
        Outgoing(f"{path}.scales", "BF16", grouped, groups * 2, _whole(scales)),
        Outgoing(f"{path}.biases", "BF16", grouped, groups * 2, _whole(biases)),
    ]


def _vector(vector: Vector, seed: int) -> Outgoing:
    name, count = vector.name, math.prod(vector.shape)
    wide = name.endswith("A_log")  # the converter keeps it in float32

    def values() -> npt.NDArray[Any]:
        random = _random(seed, name, 0)
        if wide:
            return np.log(16 * 1000 ** -random.random(count)).astype(np.float32)  # rates of 0.016 to 16
        if name.endswith("dt_bias"):
            return _bf16((5 * random.random(count) - 4).astype(np.float32))
        if name.endswith("conv1d.weight"):
            return _bf16(0.5 * random.standard_normal(count, np.float32))
        return _bf16(1 + np.float32(0.1) * random.standard_normal(count, np.float32))  # norms, as 1 + w

    return Outgoing(name, "F32" if wide else "BF16", vector.shape, count * (4 if wide else 2), _whole(values))


def _whole(make: Callable[[], npt.NDArray[Any]]) -> Callable[[], Iterator[Bytes]]:
    def pieces() -> Iterator[Bytes]:
        yield make().view(np.uint8)

    return pieces


def _config(a: Architecture, bits: int, eos: int) -> dict[str, Any]:
    """config.json as the converter writes it: sorted, with the quantisation twice."""
    quantization: dict[str, Any] = {"group_size": GROUP, "bits": bits, "mode": "affine"}
    for projection in a.projections():
        if projection.is_router:
            quantization[projection.path] = {"group_size": GROUP, "bits": 8}
    layer_types = ["full_attention" if a.is_attention(i) else "linear_attention" for i in range(a.layers)]
    text = {
        "attention_bias": False,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": eos,
        "full_attention_interval": ATTENTION_EVERY,
        "head_dim": a.head_dim,
        "hidden_act": "silu",
        "hidden_size": a.hidden,
        "layer_types": layer_types,
        "linear_conv_kernel_dim": a.conv_width,
        "linear_key_head_dim": a.key_dim,
        "linear_num_key_heads": a.key_heads,
        "linear_num_value_heads": a.value_heads,
        "linear_value_head_dim": a.value_dim,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": a.width,
        "num_attention_heads": a.heads,
        "num_experts": a.experts,
        "num_experts_per_tok": a.top_k,
        "num_hidden_layers": a.layers,
        "num_key_value_heads": a.kv_heads,
        "rms_norm_eps": a.eps,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": a.rotary_dim / a.head_dim,
            "rope_theta": a.theta,
            "type": "default",
        },
        "shared_expert_intermediate_size": a.shared_width,
        "tie_word_embeddings": False,
        "vocab_size": a.vocab,
    }
    if not a.renormalize:
        text["norm_topk_prob"] = False
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "quantization": quantization,
        "quantization_config": quantization,
        "text_config": text,
        "tie_word_embeddings": False,
    }


def _generation_config(stop: list[int]) -> dict[str, Any]:
    return {"do_sample": True, "eos_token_id": stop, "temperature": 1.0, "top_k": 20, "top_p": 0.95}
