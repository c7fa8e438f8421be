"""The options: each is checked by name and range, the defaults come from the checkpoint, and on an engine each option
changes the choice as it says."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lily import Engine, Sampling
from lily.errors import CheckpointError, InvalidInput
from lily.sampling import GREEDY, checkpoint_sampling


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", -0.1, "from 0 to 100"),
        ("temperature", 100.5, "from 0 to 100"),
        ("temperature", math.nan, "from 0 to 100"),
        ("temperature", "hot", "from 0 to 100"),
        ("temperature", None, "from 0 to 100"),
        ("temperature", True, "from 0 to 100"),
        ("temperature", "1", "from 0 to 100"),
        ("temperature", b"1", "from 0 to 100"),
        ("temperature", bytearray(b"1"), "from 0 to 100"),
        ("temperature", np.True_, "from 0 to 100"),
        ("temperature", 10**400, "from 0 to 100"),
        ("top_k", -1, "from 0 to 2147483647"),
        ("top_k", 2**31, "from 0 to 2147483647"),
        ("top_k", 1.0, "from 0 to"),
        ("top_p", 0, "above 0, up to 1"),
        ("top_p", 1.01, "above 0, up to 1"),
        ("min_p", -0.01, "from 0 to 1"),
        ("min_p", math.inf, "from 0 to 1"),
        ("repetition_penalty", 0, "above 0, up to 100"),
        ("presence_penalty", -101, "from -100 to 100"),
        ("frequency_penalty", 101, "from -100 to 100"),
        ("logit_bias", [1], "a mapping of token id to number"),
        ("logit_bias", {-1: 0.0}, "a whole number from 0"),
        ("logit_bias", {"a": 0.0}, "a whole number from 0"),
        ("logit_bias", {3: b"1"}, "from -1000 to 1000, or -inf"),
        ("logit_bias", {3: "1"}, "from -1000 to 1000, or -inf"),
        ("logit_bias", {b"3": 1}, "a whole number from 0"),
        ("logit_bias", b"1", "a mapping of token id to number"),
        ("logit_bias", {3: math.nan}, "from -1000 to 1000, or -inf"),
        ("logit_bias", {3: math.inf}, "from -1000 to 1000, or -inf"),
        ("seed", -1, f"from 0 to {2**64 - 1}"),
        ("seed", 2**64, f"from 0 to {2**64 - 1}"),
        ("seed", 0.5, "a whole number"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_range(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Sampling(**{name: value})
    assert name in str(caught.value)
    assert allowed in str(caught.value)


def test_edges_are_allowed() -> None:
    Sampling(temperature=100, top_k=0, top_p=1, min_p=1, repetition_penalty=100, presence_penalty=-100, seed=2**64 - 1)
    Sampling(temperature=0, top_k=2**31 - 1, min_p=0, logit_bias={0: -math.inf, 5: 1000}, frequency_penalty=100, seed=0)


def test_numpy_numbers_become_plain_ones() -> None:
    options = Sampling(temperature=np.float32(0.5), top_k=np.int64(3), seed=np.uint64(7), logit_bias={np.int32(1): 2})
    assert type(options.top_k) is int
    assert type(options.seed) is int
    assert options == Sampling(temperature=0.5, top_k=3, seed=7, logit_bias={1: 2.0})
    assert json.loads(json.dumps(vars(options)))["top_k"] == 3


def test_options_are_frozen_hashable_and_detached() -> None:
    bias = {1: 2.0}
    options = Sampling(logit_bias=bias)
    bias[1] = 3.0
    assert options.logit_bias == {1: 2.0}
    assert hash(options) == hash(Sampling(logit_bias={1: 2.0}))
    with pytest.raises(AttributeError):
        options.seed = 1  # type: ignore[misc]


def test_a_seed_is_drawn_once_and_then_kept() -> None:
    drawn = {Sampling().with_seed().seed for _ in range(20)}
    assert len(drawn) == 20
    assert all(seed is not None and seed < 2**53 for seed in drawn)
    assert Sampling(seed=5).with_seed().seed == 5
    once = Sampling().with_seed()
    assert once.with_seed() is once


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, GREEDY),
        ({"eos_token_id": [1, 2], "transformers_version": "5.0"}, GREEDY),
        ({"do_sample": False, "temperature": 0.7}, GREEDY),
        ({"do_sample": True}, Sampling()),
        ({"temperature": 0.7}, Sampling(temperature=0.7)),
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": None, "eos_token_id": 3},
            Sampling(temperature=0.6, top_k=20, top_p=0.95),
        ),
        ({"do_sample": True, "seed": 3, "logit_bias": 7}, Sampling()),
    ],
)
def test_defaults_of_a_checkpoint(config: dict[str, Any], expected: Sampling) -> None:
    assert checkpoint_sampling(config, "generation_config.json") == expected


@pytest.mark.parametrize("config", [{"temperature": -1}, {"top_p": "high"}, {"do_sample": "yes"}, {"top_k": 1.5}])
def test_defaults_that_make_no_sense_are_the_checkpoints_fault(config: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"generation_config\.json.*" + next(iter(config))):
        checkpoint_sampling(config, "generation_config.json")


def draw(engine: Engine, count: int, **options: Any) -> list[int]:
    """`count` first tokens after one fixed prompt, each with a seed of its own."""
    with engine.session() as session:
        engine.prefill(session, [3, 1, 4, 1, 5])
        start = session.snapshot()
        tokens = []
        for seed in range(count):
            session.restore(start)
            sampler = Sampling(seed=seed, **options).sampler(engine.vocab)
            tokens.append(next(engine.steps(session, sampler, 1)))
        return tokens


def after(engine: Engine) -> np.ndarray[Any, np.dtype[np.float64]]:
    with engine.session() as session:
        return engine.prefill(session, [3, 1, 4, 1, 5]).logits.astype(np.float64)


def test_greedy_takes_the_largest_logit(engine: Engine) -> None:
    assert set(draw(engine, 3, temperature=0)) == {int(after(engine).argmax())}


def test_a_seed_means_the_same_tokens(engine: Engine) -> None:
    prompt = "one two three"
    options = Sampling(temperature=1.5, seed=11)
    first, again = (engine.generate(prompt, max_tokens=24, sampling=options) for _ in range(2))
    assert first.tokens == again.tokens
    assert first.stats.seed == 11
    assert engine.generate(prompt, max_tokens=24, sampling=Sampling(temperature=1.5, seed=12)).tokens != first.tokens


def test_a_drawn_seed_is_reported_and_repeats(engine: Engine) -> None:
    first = engine.generate("abc", max_tokens=16, sampling=Sampling(temperature=2.0))
    assert first.stats.seed is not None
    again = engine.generate("abc", max_tokens=16, sampling=Sampling(temperature=2.0, seed=first.stats.seed))
    assert again.tokens == first.tokens
    assert engine.generate("abc", max_tokens=2, sampling=GREEDY).stats.seed is None


def test_a_restored_session_draws_the_distribution(engine: Engine) -> None:
    """Chi-square of 600 draws against the softmax over the eight most likely tokens."""
    logits = after(engine)
    best = np.argsort(-logits, kind="stable")[:8]
    weights = np.exp(logits[best] - logits[best[0]])
    expected = 600 * weights / weights.sum()
    counts = Counter(draw(engine, 600, temperature=1.0, top_k=8))
    assert set(counts) <= set(best.tolist())
    observed = np.array([counts[token] for token in best.tolist()])
    assert ((observed - expected) ** 2 / expected).sum() < 30  # 7 degrees of freedom: passed by all but 1 in 10,000


def test_top_p_and_min_p_keep_what_they_say(engine: Engine) -> None:
    logits = after(engine)
    order = np.argsort(-logits, kind="stable")
    likely = np.exp(logits[order] - logits[order[0]])
    share = np.cumsum(likely) / likely.sum()
    nucleus = order[: int(np.searchsorted(share, 0.2)) + 1]
    assert set(draw(engine, 60, temperature=1.0, top_p=0.2)) <= set(nucleus.tolist())
    assert set(draw(engine, 60, temperature=1.0, min_p=0.5)) <= set(order[likely >= 0.5].tolist())


def test_bias_forbids_and_forces(engine: Engine) -> None:
    best = int(after(engine).argmax())
    other = (best + 1) % engine.vocab
    assert best not in draw(engine, 20, temperature=3.0, logit_bias={best: -math.inf})
    assert set(draw(engine, 5, temperature=0, logit_bias={other: 1000})) == {other}


@pytest.mark.parametrize(
    ("penalty", "expected"),
    [
        ({}, [True, True, True, True]),
        ({"presence_penalty": 40}, [True, True, True, True]),  # once, however often the token was generated
        ({"presence_penalty": 90}, [True, False, False, False]),
        ({"frequency_penalty": 40}, [True, True, False, False]),  # twice 40 is more than the bias
        ({"presence_penalty": 40, "frequency_penalty": 40}, [True, False, False, False]),
    ],
)
def test_penalties_count_generated_tokens_only(engine: Engine, penalty: dict[str, Any], expected: list[bool]) -> None:
    """One token is 60 above all others, and is in the prompt, which does not count; penalties may take it down."""
    favourite = 5
    options = Sampling(temperature=0, logit_bias={favourite: 60}, **penalty)
    with engine.session() as session:
        engine.prefill(session, [favourite] * 9)
        tokens = list(engine.steps(session, options.sampler(engine.vocab), 4))
    assert [token == favourite for token in tokens] == expected


def test_repetition_penalty_divides_what_was_generated(engine: Engine) -> None:
    with engine.session() as session:
        best = int(engine.prefill(session, [3, 1, 4, 1, 5]).logits.argmax())
        start = session.snapshot()
        for penalty, again in ((1.0, True), (100.0, False)):
            sampler = Sampling(temperature=0, repetition_penalty=penalty).sampler(engine.vocab)
            taken: list[int] = []
            for _ in range(2):  # twice from the same logits, with one sampler
                session.restore(start)
                taken += engine.steps(session, sampler, 1)
            assert taken[0] == best
            assert (taken[1] == best) is again


def test_a_biased_id_outside_the_vocabulary_is_refused(engine: Engine) -> None:
    options = Sampling(logit_bias={1024: 1.0})
    with pytest.raises(InvalidInput, match=r"token 1024; the vocabulary has 0 to 1023"):
        engine.generate("a", 8, sampling=options)
    with engine.session() as session:
        engine.prefill(session, [1])
        with pytest.raises(InvalidInput, match="token 1024"):
            engine.decode(session, sampling=options)


def test_the_default_is_the_checkpoints(engine: Engine, tiny: Path) -> None:
    config = json.loads((tiny / "generation_config.json").read_text(encoding="utf-8"))
    assert engine.default_sampling == checkpoint_sampling(config, "")
    assert not engine.default_sampling.greedy
    assert engine.generate("abc", max_tokens=1).stats.seed is not None
