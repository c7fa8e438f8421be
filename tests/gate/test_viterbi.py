"""The path of tags against a plain search in float64, in one piece and in any pieces.

The search knows the rules as a table of 37 x 37 and does nothing clever. Logits of whole numbers make exact ties.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lily import _ext
from lily.errors import InvalidInput
from lily.gate.checkpoint import TAGS
from reference import Array


def follows(before: str, after: str) -> bool:
    if before[0] in "BI":
        return after[0] in "IE" and after[2:] == before[2:]
    return after[0] in "OBS"


ALLOWED = np.array([[follows(before, after) for after in TAGS] for before in TAGS])
FIRST = np.array([tag[0] in "OBS" for tag in TAGS])
LAST = np.array([tag[0] in "OES" for tag in TAGS])
BEGIN = np.array([tag[0] == "B" for tag in TAGS])
END = np.array([tag[0] == "E" for tag in TAGS])


def search(logits: Array, b_bias: float, e_bias: float) -> list[int]:
    steps = np.where(ALLOWED, 0.0, -np.inf) + b_bias * BEGIN[None, :] + e_bias * END[:, None]
    score = np.where(FIRST, logits[0].astype(np.float64), -np.inf)
    back = []
    for row in logits[1:].astype(np.float64):
        options = score[:, None] + steps
        back.append(options.argmax(axis=0))  # the lowest index of the best
        score = options.max(axis=0) + row
    path = [int(np.where(LAST, score, -np.inf).argmax())]
    for came_from in reversed(back):
        path.append(int(came_from[path[-1]]))
    return path[::-1]


def draw_logits(seed: int, rows: int, whole: bool) -> Array:
    random = np.random.default_rng(seed)
    if whole:
        return random.integers(-2, 3, (rows, len(TAGS))).astype(np.float32)
    return (3 * random.standard_normal((rows, len(TAGS)))).astype(np.float32)


biases = st.sampled_from((0.0, -1.5, 2.0))


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.booleans(), biases, biases)
def test_the_path_is_the_best_one(seed: int, rows: int, whole: bool, b_bias: float, e_bias: float) -> None:
    logits = draw_logits(seed, rows, whole)
    assert _ext.viterbi(logits, b_bias, e_bias).tolist() == search(logits, b_bias, e_bias)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4000), st.lists(st.integers(0, 900), max_size=8), st.booleans())
def test_pieces_give_the_same_path(seed: int, rows: int, cuts: list[int], whole: bool) -> None:
    logits = draw_logits(seed, rows, whole)
    viterbi = _ext.Viterbi(0.5, -0.5)
    edges = sorted({0, rows, *(cut for cut in np.cumsum(cuts).tolist() if cut < rows)})
    pieces = [viterbi.push(logits[first:last]) for first, last in itertools.pairwise(edges)]
    pieces.append(viterbi.finish())
    assert np.array_equal(np.concatenate(pieces), _ext.viterbi(logits, 0.5, -0.5))
    assert len(viterbi.finish()) == 0


def test_tags_come_out_before_the_end() -> None:
    """What is undecided stays short, so that a long text needs little memory."""
    viterbi, out = _ext.Viterbi(), 0
    for part in range(20):
        out += len(viterbi.push(draw_logits(part, 1000, whole=False)))
        assert (part + 1) * 1000 - out <= 1000


def test_a_path_that_stays_open_costs_linear_time() -> None:
    """Two labels that are equally good for ever: nothing can be decided, and nobody looks back at every step."""
    logits = np.full((100, len(TAGS)), -50, np.float32)
    for label in (0, 1):
        logits[:, 1 + 4 * label + 1] = 5  # I
    viterbi = _ext.Viterbi()
    assert sum(len(viterbi.push(logits)) for _ in range(3000)) == 0
    tags = viterbi.finish()
    assert len(tags) == 300_000
    assert tags[0] == 1  # the lowest index of a tie: B of the first label
    assert np.all(tags[1:-1] == 2)
    assert tags[-1] == 3


def test_a_long_text_keeps_its_precision() -> None:
    """Scores beyond 2**24 swallow a difference of one in float32."""
    logits = np.zeros((5000, len(TAGS)), np.float32)
    logits[:, 0] = 100_000
    logits[-1, 4] = 100_001
    assert _ext.viterbi(logits)[-1] == 4


def test_no_rows_have_no_tags() -> None:
    assert _ext.viterbi(np.zeros((0, 37), np.float32)).shape == (0,)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_are_refused(value: float) -> None:
    logits = np.zeros((3, 37), np.float32)
    logits[1, 7] = value
    with pytest.raises(InvalidInput, match="row 1"):
        _ext.viterbi(logits)


@pytest.mark.parametrize("logits", [np.zeros((3, 36), np.float32), np.zeros(37, np.float32), np.zeros((3, 37))])
def test_other_shapes_and_types_are_refused(logits: Array) -> None:
    with pytest.raises(InvalidInput, match="float32"):
        _ext.viterbi(logits)


def test_biases_must_be_finite() -> None:
    with pytest.raises(InvalidInput, match="finite"):
        _ext.Viterbi(float("nan"), 0.0)
