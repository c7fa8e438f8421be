"""What the extension says to weights that are not what it expects: names, and numbers found and expected.

The tensors come as arrays in memory. Files and their headers are for the checkpoint tests, which stop most of this
before it gets here; the extension must not depend on that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiny import HEAD, MODEL, SMALL, Arrays, Config, Record, close_to, pack, tiny_engine, tiny_model

from lily import _ext, errors

ROUTER = MODEL + "layers.0.mlp.gate"
SHARED_GATE = MODEL + "layers.2.mlp.shared_expert_gate"
GATE = MODEL + "layers.1.mlp.switch_mlp.gate_proj"
UP = MODEL + "layers.1.mlp.switch_mlp.up_proj"
CONV = MODEL + "layers.1.linear_attn.conv1d.weight"
NORM = MODEL + "layers.3.self_attn.q_norm.weight"
DECAY = MODEL + "layers.0.linear_attn.A_log"


@pytest.fixture(scope="module")
def weights() -> Arrays:
    return tiny_model(seed=21)[0]


def load(arrays: Arrays, **changes: float) -> _ext.Engine:
    return tiny_engine(arrays, {**SMALL, **changes})


def replaced(arrays: Arrays, name: str, change: Callable[[Any], Any], dtype: str | None = None) -> Arrays:
    old_dtype, values = arrays[name]
    return {**arrays, name: (dtype or old_dtype, np.ascontiguousarray(change(values.copy())))}


def with_bits(arrays: Arrays, name: str, bits: int) -> Arrays:
    """Repack the codes of one matrix, cut to what `bits` can hold."""
    words = arrays[name + ".weight"][1]
    old = 8 if name in (ROUTER, SHARED_GATE) else 4
    codes = (words[..., None] >> np.arange(0, 32, old, dtype=np.uint32)) & (2**old - 1)
    codes = codes.reshape(*words.shape[:-1], -1, 32 // bits) % 2**bits
    packed = (codes << np.arange(0, 32, bits, dtype=np.uint32)).sum(axis=-1).astype(np.uint32)
    return {**arrays, name + ".weight": ("U32", packed)}


def test_a_missing_tensor_is_named(weights: Arrays) -> None:
    for name in (HEAD + ".weight", ROUTER + ".scales", GATE + ".biases", CONV, NORM, DECAY, MODEL + "norm.weight"):
        with pytest.raises(errors.CheckpointError, match=f"tensor {name} is missing"):
            load({key: value for key, value in weights.items() if key != name})


def test_a_tensor_too_many_is_named(weights: Arrays) -> None:
    extra = {f"vision_tower.{name}": ("F32", np.zeros(4, np.float32)) for name in ("b", "a")}
    with pytest.raises(errors.UnsupportedCheckpoint, match=r"2 tensors are not part .* the first is vision_tower\.a;"):
        load({**weights, **extra})


@pytest.mark.parametrize("name", [ROUTER, SHARED_GATE])
def test_a_router_of_fewer_bits_is_refused(weights: Arrays, name: str) -> None:
    with pytest.raises(errors.UnsupportedCheckpoint, match=f"tensor {name}.weight has 4 bits, expected 8"):
        load(with_bits(weights, name, 4))


def test_eight_bits_anywhere_are_fine() -> None:
    # The same codes in wider fields are the same weights. All experts are chosen, so no rounding picks others.
    narrow, config = tiny_model(seed=21, top_k=8)
    wide = narrow
    for name in (GATE, UP, HEAD, MODEL + "embed_tokens", MODEL + "layers.3.self_attn.q_proj"):
        wide = with_bits(wide, name, 8)
    tokens = np.arange(20, dtype=np.int32)
    assert close_to(tiny_engine(wide, config).forward(tokens), tiny_engine(narrow, config).forward(tokens))


@pytest.mark.parametrize("expert", ["switch_mlp", "shared_expert"])
def test_gate_and_up_of_other_bits_each_are_refused(weights: Arrays, expert: str) -> None:
    at = f"{MODEL}layers.2.mlp.{expert}."
    with pytest.raises(
        errors.UnsupportedCheckpoint, match=f"{at}gate_proj.weight has 4 bits and {at}up_proj.weight has 8,"
    ):
        load(with_bits(weights, at + "up_proj", 8))


@pytest.mark.parametrize("bits", [1, 2, 16])
def test_other_bits_are_refused(weights: Arrays, bits: int) -> None:
    with pytest.raises(
        errors.UnsupportedCheckpoint,
        match=f"packs 128 inputs into {128 * bits // 32} words of 32 bits, expected 4 or 8 bits an input: 16 or 32",
    ):
        load(with_bits(weights, HEAD, bits))


def test_other_group_sizes_are_refused(weights: Arrays) -> None:
    arrays = weights
    for part in (".scales", ".biases"):
        arrays = replaced(arrays, GATE + part, lambda values: np.repeat(values, 2, axis=-1))
    with pytest.raises(errors.UnsupportedCheckpoint, match=f"{GATE}.scales has groups of 32 inputs, expected 64"):
        load(arrays)


def test_a_matrix_that_is_not_quantised_is_refused(weights: Arrays) -> None:
    arrays = replaced(weights, HEAD + ".weight", lambda _: np.zeros((320, 128), np.uint16), "BF16")
    with pytest.raises(errors.UnsupportedCheckpoint, match=r"lm_head.weight is BF16 \[320, 128\], expected U32"):
        load(arrays)


@pytest.mark.parametrize(
    ("name", "change", "dtype", "message"),
    [
        (HEAD + ".weight", lambda v: v[:-1], None, r"U32 \[319, 16\], expected U32 \[320, 16\]"),
        (HEAD + ".scales", lambda v: v[:-1], None, r"BF16 \[319, 2\], expected BF16 \[320, 2\]"),
        (HEAD + ".biases", lambda v: v.view(np.float32), "F32", r"F32 \[320, 1\], expected BF16 \[320, 2\]"),
        (GATE + ".weight", lambda v: v.reshape(-1, v.shape[-1]), None, r"\[512, 16\], expected U32 \[8, 64, 16\]"),
        (GATE + ".scales", lambda v: v.transpose(1, 0, 2), None, r"\[64, 8, 2\], expected BF16 \[8, 64, 2\]"),
        (CONV, lambda v: v.transpose(0, 2, 1), None, r"BF16 \[512, 1, 4\], expected BF16 \[512, 4, 1\]"),
        (NORM, lambda v: v[:-1], None, r"\[63\], expected BF16 \[64\]"),
        (NORM, lambda v: v.view(np.uint32), "U32", r"U32 \[32\], expected BF16 \[64\]"),
        (DECAY, lambda v: v[:, None], None, r"F32 \[4, 1\], expected F32 \[4\]"),
    ],
)
def test_another_shape_or_dtype_is_named(
    weights: Arrays, name: str, change: Callable[[Any], Any], dtype: str | None, message: str
) -> None:
    with pytest.raises(errors.CheckpointError, match=message):
        load(replaced(weights, name, change, dtype))


@pytest.mark.parametrize(("bits", "word"), [(0x7FC0, "nan"), (0xFF80, "-inf")])
def test_a_small_vector_must_be_finite(weights: Arrays, bits: int, word: str) -> None:
    def spoil(values: Any) -> Any:
        values[5] = bits
        return values

    with pytest.raises(errors.CheckpointError, match=f"{NORM} holds {word} at element 5"):
        load(replaced(weights, NORM, spoil))


def test_a_decay_must_be_finite(weights: Arrays) -> None:
    with pytest.raises(errors.CheckpointError, match=r"A_log holds 90\.0"):
        load(replaced(weights, DECAY, lambda values: values + np.float32(100) - values - np.float32(10)))


def test_vectors_may_be_float32(weights: Arrays) -> None:
    arrays = replaced(weights, NORM, lambda values: (values.astype(np.uint32) << 16).view(np.float32), "F32")
    tokens = np.arange(30, dtype=np.int32)
    assert np.array_equal(load(arrays).forward(tokens), load(weights).forward(tokens))


# ---- records


def records_with(weights: Arrays, index: int, record: Any) -> tuple[list[Any], list[Any]]:
    files, records = pack(weights)
    changed: list[Any] = list(records)
    changed[index] = record(changed[index])
    return files, changed


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda r: (r[0], 1, *r[2:]), errors.CheckpointError, "lies in file 1, but there are 1 files"),
        (lambda r: (r[0], -1, *r[2:]), errors.CheckpointError, "lies in file -1"),
        (lambda r: (*r[:2], -4, *r[3:]), errors.CheckpointError, "at byte -4, does not fit its file"),
        (lambda r: (*r[:2], 2**62, *r[3:]), errors.CheckpointError, "does not fit its file"),
        (lambda r: (*r[:4], (2**40, 2**40)), errors.CheckpointError, "does not fit its file"),
        (lambda r: (*r[:4], (2**62,)), errors.CheckpointError, "does not fit its file"),
        (lambda r: (*r[:4], (0, 16)), errors.CheckpointError, "expected every dimension to be 1 or more"),
        (lambda r: (*r[:4], (-1, -1)), errors.CheckpointError, "expected every dimension to be 1 or more"),
        (lambda r: (*r[:4], ()), errors.CheckpointError, "has 0 dimensions, expected 1 to 4"),
        (lambda r: (*r[:4], (1, 1, 1, 1, 1)), errors.CheckpointError, "has 5 dimensions"),
        (lambda r: (*r[:3], "F16", r[4]), errors.UnsupportedCheckpoint, "is F16, expected U32, BF16 or F32"),
        (lambda r: r[:4], errors.InvalidInput, r"tensors\[0\] is .*expected \(name, file, offset, dtype, shape\)"),
        (lambda r: (*r[:4], (2**64,)), errors.InvalidInput, r"tensors\[0\] is"),
        (lambda r: (7, *r[1:]), errors.InvalidInput, r"tensors\[0\] is"),
    ],
)
def test_records_that_lie_are_refused(
    weights: Arrays, change: Callable[[Record], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _ext.Weights(*records_with(weights, 0, change))


def test_a_record_may_end_with_the_file_but_not_after_it(weights: Arrays) -> None:
    files, records = pack(weights)
    _ext.Weights(files, records)
    with pytest.raises(errors.CheckpointError, match="truncated"):
        _ext.Weights([files[0][:-1]], records)


def test_a_name_may_be_there_once(weights: Arrays) -> None:
    files, records = pack(weights)
    with pytest.raises(errors.CheckpointError, match=f"tensor {records[3][0]} is there twice"):
        _ext.Weights(files, [*records, records[3]])


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (np.zeros(8, np.int32), "4 bytes an element, expected one dimension of uint8"),
        (np.zeros((2, 4), np.uint8), "2 dimensions"),
        (np.zeros(8, np.uint8)[::2], "not contiguous"),
        ("file", r"files\[0\] is a str"),
    ],
)
def test_files_must_be_bytes(file: Any, message: str) -> None:
    with pytest.raises(errors.InvalidInput, match=message):
        _ext.Weights([file], [])


# ---- config and options


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"hidden": 100}, errors.UnsupportedCheckpoint, "hidden is 100, not a multiple of the quantisation group"),
        ({"layers": 0}, errors.UnsupportedCheckpoint, "layers is 0, not from 1 to"),
        ({"vocab": 2**40}, errors.UnsupportedCheckpoint, f"vocab is {2**40}"),
        ({"kv_heads": 3}, errors.UnsupportedCheckpoint, "heads is 4, not a multiple of kv_heads 3"),
        ({"rotary_dim": 15}, errors.UnsupportedCheckpoint, "rotary_dim is 15"),
        ({"rotary_dim": 128}, errors.UnsupportedCheckpoint, "rotary_dim is 128, more than head_dim 64"),
        ({"value_heads": 3}, errors.UnsupportedCheckpoint, "value_heads is 3, not a multiple of key_heads 2"),
        ({"top_k": 9}, errors.UnsupportedCheckpoint, "top_k is 9, more than the 8 experts"),
        ({"conv_width": 1}, errors.UnsupportedCheckpoint, "conv_width is 1, not from 2 to 8"),
        ({"conv_width": 9}, errors.UnsupportedCheckpoint, "conv_width is 9"),
        ({"head_dim": 48}, errors.UnsupportedCheckpoint, "head_dim is 48, not a multiple of the vectors"),
        ({"key_dim": 16}, errors.UnsupportedCheckpoint, "key_dim is 16, not a multiple"),
        ({"value_dim": 80}, errors.UnsupportedCheckpoint, "value_dim is 80, not a multiple"),
        ({"theta": float("nan")}, errors.UnsupportedCheckpoint, "theta is nan"),
        ({"eps": 0.0}, errors.UnsupportedCheckpoint, "eps is 0"),
        ({"hidden": 128.5}, errors.InvalidInput, "hidden = 128.5"),
        ({"hidden": float("nan")}, errors.InvalidInput, "hidden = -?nan"),
        ({"hidden": "128"}, errors.InvalidInput, "'hidden' = '128', expected names with numbers"),
        ({"bottom_k": 1}, errors.InvalidInput, "unknown field 'bottom_k'"),
        ({"hidden": 256}, errors.CheckpointError, r"embed_tokens.weight"),
        ({"heads": 8}, errors.CheckpointError, r"q_proj.weight is U32 \[512, 16\], expected U32 \[1024, 16\]"),
        ({"layers": 5}, errors.CheckpointError, r"layers\.4\..* is missing"),
        ({"layers": 3}, errors.UnsupportedCheckpoint, r"tensors are not part .*layers\.3\."),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    weights: Arrays, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load(weights, **changes)


def test_a_config_without_a_field_is_refused(weights: Arrays) -> None:
    for name in SMALL:
        config: Config = {key: value for key, value in SMALL.items() if key != name}
        with pytest.raises(errors.InvalidInput, match=f"the decoder config has no '{name}'"):
            tiny_engine(weights, config)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_context": 0}, errors.InvalidInput, "max_context is 0"),
        ({"max_context": 2**24 + 1}, errors.InvalidInput, "max_context is 16777217"),
        ({"chunk": 0}, errors.InvalidInput, "chunk is 0"),
        ({"threads": -1}, errors.InvalidInput, "threads is -1"),
        ({"device": "vulkan"}, errors.DeviceError, "no device 'vulkan', expected cpu, metal, metal:host or metal:cuda"),
        ({"isa": "mmx"}, errors.DeviceError, "instruction set 'mmx' is not available here"),
    ],
)
def test_options_are_refused_by_name(
    weights: Arrays, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    usual: dict[str, Any] = {"device": "cpu", "isa": "", "threads": 1, "max_context": 64, "chunk": 32}
    with pytest.raises(error, match=message):
        _ext.Engine(_ext.Weights(*pack(weights)), dict(SMALL), **usual | options)


def test_a_session_that_cannot_fit_is_refused_with_the_sizes() -> None:
    wide = tiny_model(seed=22, layers=16, attention_every=1, heads=8, kv_heads=8)
    engine = tiny_engine(*wide, max_context=2**24, chunk=32)  # a session would take 550 GB
    with pytest.raises(
        errors.OutOfMemory, match=r"a session of 16777216 tokens: \d+ MB are needed and \d+ MB are free"
    ):
        engine.session()
    assert engine.memory()["sessions"] == 0
    engine.close()
