"""The stream report: counts that follow from the graph, at sizes that nothing could run here."""

from __future__ import annotations

import json
import math

import pytest

from lily import cli
from lily.errors import InvalidInput
from lily.synth import FULL, layout
from lily.trace import Tracer


@pytest.fixture(scope="module")
def full() -> Tracer:
    return Tracer(FULL, max_context=131_072, rows=4096)


def active_weights() -> int:
    """Bytes of weights that a token needs: everything but the embedding and the experts that are not chosen."""
    widths = {"U32": 4, "BF16": 2, "F32": 4}
    total = 0
    for name, _, _, dtype, shape in layout(FULL)[0]:
        size = widths[dtype] * math.prod(shape)
        if "embed_tokens" not in name:
            total += size * FULL.top_k // FULL.experts if "switch_mlp" in name else size
    return total


def test_a_token_reads_the_weights_it_needs_once(full: Tracer) -> None:
    report = full.step(4096, 1)
    assert report.read["weights"] <= 1.03 * active_weights()
    assert report.dispatches <= 310
    assert report.barriers <= 260
    assert report.command_buffers == 1


def test_the_cache_is_read_up_to_the_position(full: Tracer) -> None:
    """20,480 bytes of keys and values for each position at full size."""
    near, far = full.step(999, 1), full.step(99_999, 1)
    assert far.read["cache"] - near.read["cache"] == pytest.approx(99_000 * 20_480, rel=0.01)


def test_steps_out_of_bounds_are_refused(full: Tracer) -> None:
    with pytest.raises(InvalidInput, match="2 rows from position 131071 on"):
        full.step(131_071, 2)
    with pytest.raises(InvalidInput, match="4097 rows"):
        full.step(0, 4097)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", "--shape", "tiny", "--position", "10", "--rows", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["position"], report["rows"]) == (10, 3)
    assert sum(report["kernels"].values()) == report["dispatches"]
    assert cli.main(["trace", "--shape", "tiny"]) == 0
    assert "dispatches" in capsys.readouterr().out
