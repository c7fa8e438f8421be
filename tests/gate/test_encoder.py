"""The whole encoder: every form of checkpoint against the float reference, and against another library's Qwen3.

Errors are judged by the size of what the documented roundings do: the same graph in numpy with exactly these roundings.
"""

import dataclasses
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoders import Shape, draw_tensors, write
from kernels import INSTRUCTION_SETS, rms

from lily import _ext
from lily.errors import CheckpointError, DeviceError, InvalidInput, NumericalError, UnsupportedCheckpoint
from lily.gate.checkpoint import open_encoder
from reference import BYTES, FLOAT32, Array, Encoder, load_encoder

SMALL = Shape()
LENGTHS = (1, 64, 7, 33, 2, 50)


def load(folder: Path, isa: str = "", threads: int = 2, max_rows: int = 128) -> _ext.Encoder:
    checkpoint = open_encoder(folder)
    weights = _ext.Weights(checkpoint.files, checkpoint.tensors)
    return _ext.Encoder(weights, checkpoint.config, device="cpu", isa=isa, threads=threads, max_rows=max_rows)


def draw_ids(count: int, vocab: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, vocab, count).astype(np.int32)


def run(encoder: _ext.Encoder, ids: Array, lengths: tuple[int, ...]) -> tuple[Array, Array]:
    return encoder.logits(ids, np.array(lengths, np.int32))


def check_parity(reference: Encoder, encoder: _ext.Encoder, ids: Array, lengths: tuple[int, ...]) -> None:
    """As close to float32 as the documented roundings allow."""
    exact, emulated = (reference.run(ids, lengths, arithmetic) for arithmetic in (FLOAT32, BYTES))
    for name, actual, wanted, rounded in zip(
        ("logits", "scores"), run(encoder, ids, lengths), exact, emulated, strict=True
    ):
        assert actual.shape == wanted.shape
        noise = rms(rounded - wanted)
        assert noise < 0.1 * rms(wanted), f"{name}: the case is too noisy to tell: {noise:.2e} of {rms(wanted):.2e}"
        assert rms(actual - wanted) < 2 * noise + 1e-6, f"{name}: off by {rms(actual - wanted):.2e}, noise {noise:.2e}"
        assert np.abs(actual - wanted).max() < 10 * noise + 1e-6, name


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("packing", ["bf16", "affine8", "affine4"])
def test_parity(tmp_path: Path, isa: str, packing: str) -> None:
    folder = write(tmp_path, SMALL, packing=packing)
    check_parity(load_encoder(folder), load(folder, isa), draw_ids(sum(LENGTHS), SMALL.vocab), LENGTHS)


@pytest.mark.parametrize("packing", ["bf16", "affine8"])
def test_full_shape(tmp_path: Path, packing: str) -> None:
    """28 layers of 1024, as the reference has. Two layers are drawn and take turns, and the vocabulary is small, so
    that a test can afford it."""
    full = Shape(1024, 28, 512, 16, 8, 128, 3072, 1e6, 4096)
    drawn = dataclasses.replace(full, layers=2)
    checkpoint = open_encoder(write(tmp_path, drawn, packing=packing))
    views = {view[0]: view[1:] for view in checkpoint.tensors}
    for layer in range(2, full.layers):
        for name in [name for name in views if name.startswith(f"backbone.layers.{layer % 2}.")]:
            views[name.replace(f".{layer % 2}.", f".{layer}.", 1)] = views[name]
    weights = _ext.Weights(checkpoint.files, [(name, *view) for name, view in views.items()])
    config = checkpoint.config | {"layers": full.layers}
    encoder = _ext.Encoder(weights, config, device="cpu", max_rows=4096)
    reference = load_encoder(tmp_path)
    deep = dataclasses.replace(reference, layers=reference.layers * (full.layers // 2))
    lengths = (12, 7, 9, 3, 11, 5, 8, 6)  # the noise of two scores would be a matter of luck
    check_parity(deep, encoder, draw_ids(sum(lengths), full.vocab), lengths)


def test_a_causal_mask_would_show(tmp_path: Path) -> None:
    """The same weights under a causal mask give other logits by far, for every token but the last."""
    folder = write(tmp_path, SMALL)
    encoder, ids = load(folder), draw_ids(40, SMALL.vocab)
    whole, _ = run(encoder, ids, (40,))
    for seen in (1, 10, 39):
        prefix, _ = run(encoder, ids[:seen], (seen,))
        assert rms(whole[:seen] - prefix) > 0.05 * rms(whole)


def test_windows_and_passes_do_not_matter(tmp_path: Path) -> None:
    """A window gives the same bits beside any others, in any pass, on any number of threads."""
    folder = write(tmp_path, SMALL)
    ids = draw_ids(sum(LENGTHS), SMALL.vocab)
    logits, scores = run(load(folder), ids, LENGTHS)
    for encoder in (load(folder, threads=1), load(folder, max_rows=64), load(folder, max_rows=5000)):
        other, other_scores = run(encoder, ids, LENGTHS)
        assert np.array_equal(logits, other)
        assert np.array_equal(scores, other_scores)
    first = sum(LENGTHS[:3])
    alone, score = run(load(folder), ids[first : first + LENGTHS[3]], (LENGTHS[3],))
    assert np.array_equal(alone, logits[first : first + LENGTHS[3]])
    assert score[0] == scores[3]


@pytest.mark.parametrize("prefix", ["", "model.", "backbone.", "backbone.model."])
def test_styles_of_keys(tmp_path: Path, prefix: str) -> None:
    plain = write(tmp_path / "plain", SMALL, seed=4)
    other = write(tmp_path / "other", SMALL, seed=4, prefix=prefix)
    ids = draw_ids(30, SMALL.vocab)
    assert np.array_equal(run(load(plain), ids, (30,))[0], run(load(other), ids, (30,))[0])


def test_mixed_packings(tmp_path: Path) -> None:
    """Some matrices in 8 bits, some in 4, some plain, as converters leave them."""
    kinds = {packing: draw_tensors(SMALL, 7, packing) for packing in ("affine8", "affine4", "bf16")}
    tensors = {}
    for name, value in kinds["affine8"].items():
        kind = "bf16" if "o_proj" in name else "affine4" if "down_proj" in name else "affine8"
        if name in kinds[kind]:
            tensors[name] = value if kind == "affine8" else kinds[kind][name]
    folder = write(tmp_path, SMALL, tensors=tensors)
    check_parity(load_encoder(folder), load(folder), draw_ids(20, SMALL.vocab), (20,))


def test_another_librarys_qwen3(tmp_path: Path) -> None:
    """transformers' Qwen3Model in float32 with is_causal off, on the same weights."""
    torch: Any = pytest.importorskip("torch")
    transformers: Any = pytest.importorskip("transformers")
    folder = write(tmp_path, SMALL, packing="bf16")
    reference = load_encoder(folder)
    config = transformers.Qwen3Config(**SMALL.config()["backbone"])
    config._attn_implementation = "eager"
    model = transformers.Qwen3Model(config).eval()
    state = {
        name.removeprefix("backbone."): torch.tensor(array.astype(np.uint32) << 16, dtype=torch.int64)
        .to(torch.int32)
        .view(torch.float32)
        for name, (dtype, array) in draw_tensors(SMALL, 0, "bf16").items()
        if name.startswith("backbone.") and dtype == "BF16"
    }
    model.load_state_dict(state)
    ids = draw_ids(40, SMALL.vocab)
    mask = {"full_attention": torch.zeros(1, 1, 40, 40)}
    with torch.no_grad():
        hidden = model(torch.tensor(ids[None].astype(np.int64)), attention_mask=mask).last_hidden_state[0].numpy()
    expected = hidden @ reference.heads.tags.T + reference.heads.tags_bias
    ours, _ = reference.run(ids, (40,), FLOAT32)
    assert np.allclose(ours, expected, atol=1e-3 * rms(expected))
    assert rms(run(load(folder), ids, (40,))[0] - expected) < 0.05 * rms(expected)


def test_mlx_qwen3_without_a_mask(tmp_path: Path) -> None:
    """mlx-lm's Qwen3 blocks in float32, called without a mask, on the same weights."""
    mx: Any = pytest.importorskip("mlx.core")
    qwen3: Any = pytest.importorskip("mlx_lm.models.qwen3")
    folder = write(tmp_path, SMALL, packing="bf16")
    backbone = SMALL.config()["backbone"] | {"max_position_embeddings": 64, "tie_word_embeddings": True}
    model = qwen3.Qwen3Model(qwen3.ModelArgs.from_dict(backbone))
    model.load_weights(
        [
            (name.removeprefix("backbone."), mx.array((array.astype(np.uint32) << 16).view(np.float32)))
            for name, (dtype, array) in draw_tensors(SMALL, 0, "bf16").items()
            if name.startswith("backbone.") and dtype == "BF16"
        ]
    )
    ids = draw_ids(40, SMALL.vocab)
    hidden = model.embed_tokens(mx.array(ids[None]))
    for layer in model.layers:
        hidden = layer(hidden, None, None)
    heads = load_encoder(folder).heads
    expected = np.array(model.norm(hidden))[0] @ heads.tags.T + heads.tags_bias
    exact, _ = load_encoder(folder).run(ids, (40,), FLOAT32)
    assert np.allclose(exact, expected, atol=2e-3 * rms(expected))
    assert rms(run(load(folder), ids, (40,))[0] - expected) < 0.05 * rms(expected)


@pytest.mark.parametrize(
    ("ids", "lengths", "message"),
    [
        ([1, 2, 3], [2], "2 tokens together, expected the 3"),
        ([1, 2, 3], [3, 0], "window 1 has 0 tokens"),
        ([1] * 65, [65], "window 0 has 65 tokens, expected 1 to 64"),
        ([1, 320], [2], "token 1 is 320"),
        ([-1], [1], "token 0 is -1"),
    ],
)
def test_bad_windows_are_refused(tmp_path: Path, ids: list[int], lengths: list[int], message: str) -> None:
    encoder = load(write(tmp_path, SMALL))
    with pytest.raises(InvalidInput, match=message):
        encoder.logits(np.array(ids, np.int32), np.array(lengths, np.int32))


def test_no_windows(tmp_path: Path) -> None:
    logits, scores = run(load(write(tmp_path, SMALL)), np.zeros(0, np.int32), ())
    assert logits.shape == (0, 37)
    assert scores.shape == (0,)


def test_max_rows_must_hold_a_window(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="max_rows is 63"):
        load(write(tmp_path, SMALL), max_rows=63)


def test_logits_that_are_no_numbers_are_an_error(tmp_path: Path) -> None:
    tensors = draw_tensors(SMALL, 0, "bf16")
    tensors["backbone.embed_tokens.weight"][1][5, 3] = 0x7FC1
    encoder = load(write(tmp_path, SMALL, tensors=tensors))
    with pytest.raises(NumericalError, match="token 2 "):
        run(encoder, np.array([1, 2, 5], np.int32), (2, 1))
    assert np.isfinite(run(encoder, np.array([1, 2], np.int32), (2,))[0]).all()


def test_close_and_memory(tmp_path: Path) -> None:
    encoder = load(write(tmp_path, SMALL))
    memory = encoder.memory()
    assert set(memory) == {"weights_mapped", "weights_copied", "weights_converted", "scratch"}
    assert memory.pop("weights_copied") == 0  # the CPU reads them where they lie
    assert min(memory.values()) > 0
    encoder.close()
    encoder.close()
    with pytest.raises(InvalidInput, match="closed"):
        run(encoder, draw_ids(3, 300), (3,))


def test_threads_take_turns(tmp_path: Path) -> None:
    encoder = load(write(tmp_path, SMALL))
    inputs = [draw_ids(60, SMALL.vocab, seed) for seed in range(6)]
    expected = [run(encoder, ids, (60,))[0] for ids in inputs]
    found: list[Any] = [None] * 6
    workers = [
        threading.Thread(target=lambda i=i: found.__setitem__(i, run(encoder, inputs[i], (60,))[0])) for i in range(6)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_to_load_again(tmp_path: Path) -> None:
    encoder = load(write(tmp_path, SMALL))
    child = os.fork()
    if child == 0:
        try:
            run(encoder, draw_ids(3, 300), (3,))
        except DeviceError as error:
            os._exit(0 if "load it again" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_tensor_too_many_or_too_few(tmp_path: Path) -> None:
    tensors = draw_tensors(SMALL, 0, "bf16")
    more = tensors | {"backbone.layers.0.self_attn.q_proj.bias": ("BF16", np.zeros(256, np.uint16))}
    with pytest.raises(UnsupportedCheckpoint, match=r"q_proj\.bias"):
        load(write(tmp_path / "more", SMALL, tensors=more))
    for name in ("backbone.layers.1.mlp.up_proj.weight", "backbone.norm.weight", "sensitivity_head.bias"):
        less = {key: value for key, value in tensors.items() if key != name}
        with pytest.raises(CheckpointError, match=name):
            load(write(tmp_path / name, SMALL, tensors=less))


def test_other_sizes_than_the_config_says(tmp_path: Path) -> None:
    tensors = draw_tensors(dataclasses.replace(SMALL, width=256), 0, "bf16")
    with pytest.raises(CheckpointError, match=r"gate_proj\.weight is BF16 \[256, 128\], expected BF16 \[192, 128\]"):
        load(write(tmp_path, SMALL, tensors=tensors))


def test_float32_matrices_are_refused(tmp_path: Path) -> None:
    tensors = draw_tensors(SMALL, 0, "bf16")
    tensors["backbone.layers.0.mlp.up_proj.weight"] = ("F32", np.zeros((192, 128), np.float32))
    with pytest.raises(UnsupportedCheckpoint, match=r"up_proj\.weight is F32 .*BF16"):
        load(write(tmp_path, SMALL, tensors=tensors))
