"""The sampler of the extension: greedy, the order of its steps, penalties, random numbers, and refusals.

Expected tokens come from a second implementation here, in float64 and with full sorts. The engine around it is tested
in test_reading.py, the options as Python sees them in test_sampling.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from lily import _ext, errors

Logits = npt.NDArray[np.float32]
MASK = 2**64 - 1


class SplitMix:
    """The random numbers of the sampler, written from the paper."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def bits(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return mixed ^ (mixed >> 31)

    def uniform(self) -> float:
        return (self.bits() >> 11) * 2.0**-53


def test_the_random_numbers_are_the_published_ones() -> None:
    stream = SplitMix(1234567)
    assert [stream.bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


class UndecidedError(Exception):
    """Rounding could decide this draw either way."""


def decided(values: npt.NDArray[np.float64], threshold: float) -> None:
    if np.abs(values - threshold).min() < 1e-9:
        raise UndecidedError


class Reference:
    """The sampler's definition, in float64 and with full sorts."""

    def __init__(self, seed: int = 0, logit_bias: Mapping[int, float] | None = None, **options: float) -> None:
        self.options: dict[str, float] = {
            "temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0,
            "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0,
        }  # fmt: skip
        self.options |= options
        self.bias = logit_bias or {}
        self.random = SplitMix(seed)
        self.counts: Counter[int] = Counter()

    def sample(self, logits: Logits) -> int:
        values = logits.astype(np.float32)
        for token, count in self.counts.items():
            scaled = float(values[token])
            penalty = self.options["repetition_penalty"]
            scaled = scaled / penalty if scaled > 0 else scaled * penalty
            values[token] = scaled - self.options["presence_penalty"] - count * self.options["frequency_penalty"]
        for token, bias in self.bias.items():
            values[token] = float(values[token]) + bias
        token = self._draw(values) if self.options["temperature"] > 0 else int(np.argmax(values))
        self.counts[token] += 1
        return token

    def _draw(self, values: Logits) -> int:
        order = np.lexsort((np.arange(len(values)), -values))
        if self.options["top_k"] > 0:
            order = order[: int(self.options["top_k"])]
        scaled = values[order].astype(np.float64)
        weights = np.exp((scaled - scaled[0]) / self.options["temperature"])
        if self.options["top_p"] < 1:
            shares = np.cumsum(weights) / weights.sum()
            decided(shares, self.options["top_p"])
            keep = int(np.searchsorted(shares, self.options["top_p"])) + 1
            order, weights = order[:keep], weights[:keep]
        if self.options["min_p"] > 0:
            decided(weights, self.options["min_p"])
            order, weights = order[weights >= self.options["min_p"]], weights[weights >= self.options["min_p"]]
        by_id = np.argsort(order)
        shares = np.cumsum(weights[by_id]) / weights.sum()
        target = self.random.uniform()
        decided(shares, target)
        return int(order[by_id][np.searchsorted(shares, target)])


def logits_of(seed: int, vocab: int, ties: bool) -> Logits:
    values = 3 * np.random.default_rng(seed).standard_normal(vocab)
    return (np.round(values) if ties else values).astype(np.float32)


@pytest.mark.parametrize("vocab", [1, 2, 300, 5000])
def test_greedy_takes_the_largest_and_the_lowest_id_of_a_tie(vocab: int) -> None:
    sampler = _ext.Sampler()
    for seed in range(20):
        logits = logits_of(seed, vocab, ties=seed % 2 == 0)
        before = logits.copy()
        assert sampler.sample(logits) == int(np.argmax(logits))
        assert np.array_equal(logits, before)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, MASK),
    vocab=st.sampled_from([1, 3, 63, 64, 65, 400, 3000]),
    ties=st.booleans(),
    temperature=st.sampled_from([0.0, 0.05, 0.7, 1.0, 3.0, 50.0]),
    top_k=st.sampled_from([0, 1, 2, 20, 64, 100_000]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 0.999]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    presence_penalty=st.sampled_from([0.0, 1.5, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    biased=st.booleans(),
)
def test_every_option_in_its_order(seed: int, vocab: int, ties: bool, biased: bool, **options: Any) -> None:
    bias = {0: 2.5, vocab - 1: -np.inf} if biased and vocab > 1 else {}
    sampler = _ext.Sampler(**options, logit_bias=bias, seed=seed)
    reference = Reference(seed, bias, **options)
    logits = logits_of(seed % 2**32, vocab, ties)
    try:
        expected = [reference.sample(logits) for _ in range(12)]
    except UndecidedError:
        reject()
    assert [sampler.sample(logits) for _ in range(12)] == expected


def test_the_order_of_penalty_and_bias() -> None:
    # Token 0 wins once. Then its logit is halved before the bias is added: 4. The other order would give 3.
    logits = np.array([4.0, 3.5], np.float32)
    sampler = _ext.Sampler(repetition_penalty=2.0, logit_bias={0: 2.0})
    assert [sampler.sample(logits) for _ in range(2)] == [0, 0]
    sampler = _ext.Sampler(repetition_penalty=2.0, logit_bias={0: 1.0})
    assert [sampler.sample(logits) for _ in range(2)] == [0, 1]


def test_penalties_count_what_this_sampler_produced() -> None:
    logits = np.array([1.0, 0.75, 0.5, 0.25], np.float32)
    sampler = _ext.Sampler(presence_penalty=10.0)
    assert [sampler.sample(logits) for _ in range(4)] == [0, 1, 2, 3]
    assert _ext.Sampler(presence_penalty=10.0).sample(logits) == 0
    sampler = _ext.Sampler(frequency_penalty=0.3)
    assert [sampler.sample(logits) for _ in range(6)] == [0, 1, 0, 2, 1, 0]
    negative = np.array([-1.0, -1.5], np.float32)
    sampler = _ext.Sampler(repetition_penalty=2.0)
    assert [sampler.sample(negative) for _ in range(3)] == [0, 1, 0]


def test_a_seed_is_a_sequence() -> None:
    logits = logits_of(5, 1000, ties=False)
    draws = {
        seed: tuple(sampler.sample(logits) for _ in range(30))
        for seed in (0, 1, 2, MASK)
        for sampler in [_ext.Sampler(temperature=1.5, seed=seed)]
    }
    assert len(set(draws.values())) == 4
    again = _ext.Sampler(temperature=1.5, seed=MASK)
    assert draws[MASK] == tuple(again.sample(logits) for _ in range(30))


def test_draws_follow_the_distribution() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.07, 0.03], np.float32))
    count = 40_000
    sampler = _ext.Sampler(temperature=1.0, seed=20)
    drawn = np.bincount([sampler.sample(logits) for _ in range(count)], minlength=5)
    expected = count * np.exp(logits.astype(np.float64))
    chi_square = float(np.sum((drawn - expected) ** 2 / expected))
    assert chi_square < 18.5  # 4 degrees of freedom, p = 0.001; the seed is fixed


def test_a_whole_vocabulary_with_a_wide_nucleus() -> None:
    logits = logits_of(9, 248_320, ties=False)
    options: dict[str, Any] = {"temperature": 2.0, "top_p": 0.95}
    sampler, reference = _ext.Sampler(**options, seed=4), Reference(4, **options)
    for _ in range(5):
        assert sampler.sample(logits) == reference.sample(logits)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1e-300])
def test_huge_options_stay_finite(temperature: float) -> None:
    logits = np.array([1.0, 3.0e38, -3.0e38], np.float32)
    sampler = _ext.Sampler(temperature=temperature, repetition_penalty=1e-300, logit_bias={0: 1e300})
    assert sampler.sample(logits) in (0, 1)
    assert sampler.sample(logits) in (0, 1)


def test_a_ban_of_every_token_is_refused() -> None:
    for temperature in (0.0, 1.0):
        sampler = _ext.Sampler(temperature=temperature, logit_bias={0: -np.inf, 1: -np.inf})
        with pytest.raises(errors.InvalidInput, match="bans all 2 tokens"):
            sampler.sample(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.5}, "temperature is -0.5"),
        ({"temperature": np.nan}, "temperature is nan"),
        ({"temperature": np.inf}, "temperature is inf"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"min_p": 1.1}, "min_p is 1.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"presence_penalty": np.inf}, "presence_penalty is inf"),
        ({"frequency_penalty": np.nan}, "frequency_penalty is nan"),
        ({"logit_bias": {7: np.nan}}, "logit_bias of token 7 is nan"),
        ({"logit_bias": {7: np.inf}}, "logit_bias of token 7 is inf"),
        ({"logit_bias": {-7: 1.0}}, "logit_bias names token -7"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, f"seed is {2**64}"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidInput, match=message):
        _ext.Sampler(**options)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros(3, np.float64), "logits has 1 dimensions and 8 bytes"),
        (np.zeros((1, 3), np.float32), "logits has 2 dimensions"),
        (np.zeros(6, np.float32)[::2], "logits is not contiguous"),
        (np.zeros(0, np.float32), "no logits"),
        ([0.0, 1.0], "logits is a list"),
    ],
)
def test_other_logits_are_refused(logits: Any, message: str) -> None:
    with pytest.raises(errors.InvalidInput, match=message):
        _ext.Sampler().sample(logits)


def test_a_bias_beyond_the_vocabulary_is_refused() -> None:
    with pytest.raises(errors.InvalidInput, match="token 3, expected ids under the vocabulary of 3"):
        _ext.Sampler(logit_bias={3: 1.0}).sample(np.zeros(3, np.float32))
