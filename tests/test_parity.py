"""The whole model against mlx-lm in float32, on checkpoints that mlx-lm's own converter wrote.

Three things are compared with it, at every position, read at once and token by token: the reference in float32 (does it
mean the same model?), the reference with the documented roundings (the yardstick; at once there are two, with inputs of
products in 8 bits and without), and lily. The measure of a
position is the root mean square of the difference of its logits over that of the logits. Lily may be 1.3 times as far
as the yardstick at the median position.

The routers of random models have near-ties. A rounding there picks another expert, and the position is off by ten times
the median or more: that is the tail. It is counted and reported apart; how long it may be follows from the yardstick's.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hf_source import Model
from kernels import METAL, TENSOR_UNITS, require_metal
from mlx_oracle import MlxOracle, convert, require_mlx
from timelines import RecordProperty, relative

import lily
from lily import _ext
from reference import BF16, BYTES, FLOAT32, Array, load_decoder

LENGTH = 160
RATIO = 1.3
FLOAT32_LIMIT = 2e-5
TAIL = 4.0  # times the yardstick's median: a position beyond is in the tail
# A difference of two logits has the noise of both; the gap that the noise cannot close is stated as this many times
# the yardstick's median error of one logit.
GAP = 12.0
METAL_STEPS = 24

MODELS = {
    "narrow": Model(),
    "all experts": Model(experts=4, top_k=4, value_heads=2, layers=8),
    "odd": Model(
        hidden=192, layers=6, vocab=509, heads=6, kv_heads=1, head_dim=128, key_heads=2, value_heads=6, key_dim=64,
        value_dim=128, experts=12, top_k=8, shared_width=192, renormalize=False,
    ),
    "heads of the large one": Model(
        hidden=256, layers=8, vocab=1024, head_dim=256, key_heads=4, value_heads=8, key_dim=128, value_dim=128,
        experts=16, top_k=4, width=128, shared_width=128,
    ),
}  # fmt: skip
CASES = [(name, seed) for name in MODELS for seed in (1, 2)]
instruction_sets = pytest.mark.parametrize("isa", _ext.instruction_sets())


@dataclass(frozen=True)
class Case:
    """One checkpoint, and what is known about it. Logits are [LENGTH, vocab]."""

    name: str
    folder: Path
    tokens: Array
    oracle: dict[str, Array]  # by way of reading
    yardstick: dict[str, Array]


WAYS = ("at once", "token by token")
INT8 = "at once in int8"


@pytest.fixture(scope="module", params=CASES, ids=[f"{name} {seed}" for name, seed in CASES])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    require_mlx()
    name, seed = request.param
    model = MODELS[name]
    folder = convert(model, seed, tmp_path_factory.mktemp("parity"))
    tokens = np.random.default_rng(seed).integers(0, model.vocab, LENGTH, dtype=np.int32)
    mlx = MlxOracle(folder)
    decoder = load_decoder(folder)
    return Case(
        name,
        folder,
        tokens,
        oracle={"at once": mlx.logits(tokens), "token by token": mlx.token_by_token(tokens)},
        yardstick={
            "at once": decoder.forward(tokens, BF16),
            INT8: decoder.forward(tokens, BYTES),
            "token by token": decoder.forward(tokens, BF16, chunk=1),
        },
    )


def test_the_reference_is_the_same_model(case: Case, record_property: RecordProperty) -> None:
    decoder = load_decoder(case.folder)
    for way, chunk in zip(WAYS, (None, 1), strict=True):
        off = relative(decoder.forward(case.tokens, FLOAT32, chunk), case.oracle[way])
        report(record_property, f"float32 reference, {way}", f"median {np.median(off):.1e}, worst {off.max():.1e}")
        assert np.median(off) <= FLOAT32_LIMIT
        assert np.quantile(off, 0.95) <= FLOAT32_LIMIT, "more than a near-tie here and there"


def test_the_converter_kept_what_it_should(case: Case) -> None:
    """The premise of the whole file: a converted checkpoint, not a look-alike."""
    from reference.decoder import read_tensors

    names = read_tensors(case.folder)
    assert not [name for name in names if "mtp" in name or "visual" in name]
    router, scales = (names[f"language_model.model.layers.0.mlp.gate.{part}"] for part in ("weight", "scales"))
    assert router.shape[-1] * 32 // (64 * scales.shape[-1]) == 8
    assert (case.folder / "config.json").read_text().count('"bits": 8') >= 2


@instruction_sets
def test_lily_is_as_close_as_its_roundings_allow(case: Case, isa: str, record_property: RecordProperty) -> None:
    with lily.Engine.load(case.folder, device=f"cpu:{isa}", max_context=LENGTH) as engine:
        judge(case, WAYS[0], engine.forward(case.tokens), f"{isa}, {INT8}", record_property, yardstick=INT8)
    with lily.Engine.load(case.folder, device=f"cpu:{isa}", max_context=LENGTH, activations="bf16") as engine:
        session = engine.session()
        logits = {
            "at once": engine.forward(case.tokens),
            "token by token": np.stack(
                [engine.prefill(session, case.tokens[index : index + 1]).logits for index in range(LENGTH)]
            ),
        }
    for way in WAYS:
        judge(case, way, logits[way], f"{isa}, {way}", record_property)


def judge(
    case: Case, way: str, logits: Array, label: str, record_property: RecordProperty, *, yardstick: str | None = None
) -> None:
    oracle, emulated = case.oracle[way], case.yardstick[yardstick or way]
    off, usual = relative(logits, oracle), relative(emulated, oracle)
    median = float(np.median(usual))
    tail, own_tail = off > TAIL * median, usual > TAIL * median
    report(
        record_property,
        label,
        f"median {np.median(off):.2e}, yardstick {median:.2e}, ratio {np.median(off) / median:.2f}; "
        f"tail {tail.sum()} of {LENGTH} positions, worst {off.max():.2f} (yardstick {own_tail.sum()}, "
        f"{usual.max():.2f}); best token equal at {np.mean(logits.argmax(-1) == oracle.argmax(-1)):.3f} "
        f"(yardstick {np.mean(emulated.argmax(-1) == oracle.argmax(-1)):.3f})",
    )
    assert np.median(off) <= RATIO * median
    assert tail.sum() <= 2 * own_tail.sum() + LENGTH // 20, "more near-ties than the roundings explain"

    ranked = np.sort(oracle, axis=-1)
    gap = (ranked[:, -1] - ranked[:, -2]) / np.sqrt(np.mean(np.square(oracle), axis=-1))
    clear = (gap > GAP * median) & ~tail
    least = LENGTH // 10 if yardstick is None else 0  # the noise of int8 closes most gaps of a random model
    assert clear.sum() >= least, "no position of this checkpoint has a clear best token"
    assert np.array_equal(logits[clear].argmax(-1), oracle[clear].argmax(-1))


@pytest.mark.parametrize("device", METAL)
def test_the_metal_kernels_are_as_close(case: Case, device: str, record_property: RecordProperty) -> None:
    """The graph, the encoders and the kernels of Metal, on whatever runs them here: all positions at once; and as many
    token by token as the executor can afford, where decode has kernels of its own."""
    require_metal()
    with lily.Engine.load(case.folder, device=device, max_context=LENGTH) as engine:
        judge(case, WAYS[0], engine.forward(case.tokens), f"{device}, {WAYS[0]}", record_property)
        session = engine.session()
        steps = [engine.prefill(session, case.tokens[index : index + 1]).logits for index in range(METAL_STEPS)]
        fork, words = session.fork(), list(engine.decode(session, max_tokens=4))
        best = [int(steps[-1].argmax())]
        best += [int(engine.prefill(fork, [word]).logits.argmax()) for word in words[:-1]]
    oracle, yardstick = (source[WAYS[1]][:METAL_STEPS] for source in (case.oracle, case.yardstick))
    off, usual = float(np.median(relative(np.stack(steps), oracle))), float(np.median(relative(yardstick, oracle)))
    report(record_property, f"{device}, {WAYS[1]}", f"median {off:.2e}, yardstick {usual:.2e}, ratio {off / usual:.2f}")
    assert off <= RATIO * usual
    assert words == best[: len(words)]


@pytest.mark.parametrize("device", TENSOR_UNITS)
@pytest.mark.parametrize("case", CASES[-1:], ids=["{} {}".format(*CASES[-1])], indirect=True)
def test_the_kernels_for_tensor_units_are_as_close(case: Case, device: str, record_property: RecordProperty) -> None:
    """They are products of two rows and more, so only what is read at once differs."""
    require_metal()
    with lily.Engine.load(case.folder, device=device, max_context=LENGTH) as engine:
        assert "matmul2d" in engine.device
        judge(case, WAYS[0], engine.forward(case.tokens), f"{device}, {WAYS[0]}", record_property)


@instruction_sets
def test_greedy_words_are_the_best_tokens(case: Case, isa: str) -> None:
    """The loop of decode feeds what it yields: its words are the best tokens of the same text, teacher-forced."""
    prompt = case.tokens[:40]
    with lily.Engine.load(case.folder, device=f"cpu:{isa}", max_context=LENGTH) as engine:
        session = engine.session()
        engine.prefill(session, prompt)
        words = list(engine.decode(session, max_tokens=12))
        other = engine.session()
        best = [int(engine.prefill(other, prompt).logits.argmax())]
        best += [int(engine.prefill(other, [word]).logits.argmax()) for word in words[:-1]]
    assert words == best[: len(words)]


def report(record_property: RecordProperty, label: str, text: str) -> None:
    """Keep a figure in the report of the run, and print it (pytest -rP shows it)."""
    record_property(label, text)
    print(f"{label}: {text}")
