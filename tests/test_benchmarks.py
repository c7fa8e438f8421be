"""The benchmarks run: on tiny shapes, with a stand-in for llama-bench, their counts against the architecture's."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import encoders
import numpy as np
import pytest
from kernels import INSTRUCTION_SETS, Draw, hand_over

from benchmarks import cpu_peers, encoder_speed, peer_arms, roofline
from benchmarks.peer_arms import Block
from lily import _ext
from lily.checkpoint import open_checkpoint
from lily.errors import DeviceError, InvalidInput
from lily.hub import EMBEDDED
from lily.synth import TINY

LLAMA_BENCH = """#!{python}
import json, sys
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1]
repeats, prompt = int(value("-r")), int(value("-p"))
print("llama-bench: benchmark 1/1: warmup run", file=sys.stderr)
for i in range(repeats):
    for kind in ("depth", "prompt" if prompt else "generation"):
        print(f"llama-bench: benchmark 1/1: {{kind}} run {{i + 1}}/{{repeats}}", file=sys.stderr, flush=True)
print(json.dumps(dict(
    build_commit="0", model_type=value("-m"), n_threads=int(value("-t")),
    samples_ns=[int(1e9) * (i + 1) for i in range(repeats)],
)), flush=True)
"""


@pytest.fixture
def llama_bench(tmp_path: Path) -> str:
    path = tmp_path / "llama-bench"
    path.write_text(LLAMA_BENCH.format(python=sys.executable), encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_the_peaks_did_what_their_sums_say(isa: str) -> None:
    """What is read and multiplied are ones, so that nothing can be left out unseen; 4099 is no multiple of a vector."""
    for threads in (1, 2):
        work, seconds = _ext.read_peak(isa, threads, 4 * 4099, 3)
        assert work == 4 * 4099 * threads
        assert len(seconds) == 3
        assert min(seconds) > 0
        products = {numbers: _ext.product_peak(isa, threads, numbers, 3, 1)[0] for numbers in roofline.NUMBERS}
        lanes = 16 if isa.startswith("avx512") else 8 if isa == "avx2" else 4
        one = 3 * threads * 2**14 * 12 * lanes
        assert products["f32"] == one
        assert (products["bf16"], products["bytes"]) == ((2 * one, 4 * one) if isa == "avx512bf16" else (0, 0))


@pytest.mark.parametrize(
    "call",
    [
        lambda: _ext.read_peak("", 1, 0, 1),
        lambda: _ext.read_peak("", 1, 4096, 0),
        lambda: _ext.product_peak("", 1, "f16", 1, 1),
        lambda: _ext.product_peak("", -1, "f32", 1, 1),
    ],
)
def test_peaks_of_nothing_are_refused(call: Any) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        call()


def test_pushing_the_caches_out_changes_no_result() -> None:
    draw = Draw(1)
    x, matrix = draw.bits(3, 128), hand_over(draw.matrix(64, 128, "affine4"), 0)
    probe = _ext.Probe("cpu", threads=2)
    first = probe.matmul(x, matrix)
    probe.evict = 1 << 20
    np.testing.assert_array_equal(probe.matmul(x, matrix), first)
    assert probe.seconds > 0


def test_the_roofline_counts_every_matrix_of_the_model() -> None:
    """The products of a token, without those of attention, of the recurrence and of the embedding, are its weights."""
    decoder = roofline.Decoder(TINY, _ext.Probe("cpu", threads=1), Draw(1), byte_inputs=True)
    counted = bytes_moved = 0.0
    for sublayer in decoder.sublayers(1, [64]):
        matrices = {
            "embed": 0,
            "head": sublayer.whole.products,
            "moe": sublayer.whole.products,
        }.get(sublayer.whole.name, sum(part.products for part in sublayer.parts))
        counted += sublayer.times * matrices
        bytes_moved += sublayer.times * sublayer.whole.bytes
    expected = sum(
        projection.parameters * (TINY.top_k / TINY.experts if projection.experts else 1)
        for projection in TINY.projections()
        if not projection.path.endswith(("embed_tokens", "shared_expert_gate"))
    )
    assert counted == pytest.approx(expected)
    assert bytes_moved > expected * 4.5 / 8


def test_the_roofline_runs(capsys: pytest.CaptureFixture[str]) -> None:
    shared = ["--rows", "8", "--contexts", "16,32", "--seconds", "0", "--mebibytes", "1", "--threads", "1"]
    roofline.main([*shared, "--json"], TINY)
    found = json.loads(capsys.readouterr().out)
    for title in ("decode, 1 row", "prefill, 8 rows"):
        rows = [row for row in found[title] if "share" in row]
        wholes = [row for row in rows if not row["op"].startswith("  ") and row["context"] in (None, 16)]
        assert sum(row["share"] for row in wholes) == pytest.approx(1)
        assert {row["op"] for row in rows} >= {"embed", "gated_delta", "moe", "head", "attention at 32 keys"}
        assert all(row["microseconds"] > 0 for row in wholes)
    roofline.main(shared, TINY)
    assert "attention at 16 keys" in capsys.readouterr().out


def test_blocks_take_turns_and_more_are_added_until_enough_is_undisturbed() -> None:
    quiet: Iterator[bool] = iter([True, True, False, True, True, True])
    order: list[str] = []

    def measure(arm: str) -> Block:
        order.append(arm)
        return Block(arm, [(2.0 if arm == "lily" else 4.0, next(quiet))])

    row = cpu_peers.Row("reading", 8)
    sides = cpu_peers.compare(row, ["lily", "llama.cpp"], 2, 1, False, measure, lambda: 5e9, lambda _: None)
    assert order == ["lily", "llama.cpp", "llama.cpp", "lily", "lily", "llama.cpp"]
    own, other = (side.figures(row) for side in sides.values())
    assert (own["median"], own["undisturbed"]) == (4.0, "3 of 3")
    assert (other["median"], other["undisturbed"]) == (2.0, "2 of 3")
    assert own["read_GB_per_s"] == [5.0] * 3
    assert cpu_peers.ratio(own, other, row) == 2.0
    loading = cpu_peers.Row("loading", 16)
    assert cpu_peers.ratio({"median": 1.0}, {"median": 3.0}, loading) == 3.0
    assert cpu_peers.ratio(own, {}, row) is None


def test_what_was_disturbed_is_not_counted() -> None:
    side = cpu_peers.Side(rounds=[(1.0, False), (2.0, True)])
    row = cpu_peers.Row("reading", 8)
    assert side.figures(row)["median"] == 4.0
    assert side.figures(row, ignore_load=True)["highest"] == 8.0
    assert "median" not in cpu_peers.Side(rounds=[(1.0, False)]).figures(row)


@pytest.mark.parametrize("work", ["reading", "writing", "loading"])
def test_a_block_of_llama_cpp(llama_bench: str, work: str) -> None:
    options = {"llama_bench": llama_bench, "gguf": "a.gguf", "threads": 1, "tokens": 8, "steps": 4, "repeats": 2}
    block = peer_arms.measure("llama.cpp", {**options, "work": work})
    assert len(block.rounds) == 2
    if work != "loading":
        assert [seconds for seconds, _ in block.rounds] == [2.0, 3.0]  # the first did not count
        assert "a.gguf" in block.device


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(DeviceError, match=r"code 3: no such model"):
        list(peer_arms.said([sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]))


def test_the_comparison_runs(
    tiny: Path, llama_bench: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of a few tokens; the blocks of lily in this process, but for one that loads."""
    rows = {
        "read": cpu_peers.Row("reading", 8),
        "write": cpu_peers.Row("writing", 8, 2),
        "load": cpu_peers.Row("loading", 4, arms=("lily",)),
        "encode": cpu_peers.Row("encoding", 16, arms=("lily bf16", "lily affine8")),
    }
    monkeypatch.setattr(cpu_peers, "ROWS", rows)
    monkeypatch.setattr(encoder_speed, "FULL", encoders.Shape(layers=3))
    measure = peer_arms.measure

    def here(engine: str, options: peer_arms.Options) -> Block:
        inside = engine == "lily" and options["work"] != "loading"
        return peer_arms.ARMS[engine, options["work"]](options) if inside else measure(engine, options)

    monkeypatch.setattr(peer_arms, "measure", here)
    arguments = [str(tiny), "--gguf", "a.gguf", "--llama-bench", llama_bench, "--rows", ",".join(rows)]
    arguments += ["--repeats", "1", "--threads", "1", "--mebibytes", "1", "--ignore-load"]
    cpu_peers.main([*arguments, "--json"])
    found = json.loads(capsys.readouterr().out)["rows"]
    assert found["read"]["ratios"]["lily against llama.cpp"] > 0
    assert all(figures["median"] > 0 for row in found.values() for figures in row["arms"].values())
    assert len(found["write"]["arms"]["lily"]["samples"]) == 2
    cpu_peers.main([*arguments, "--rows", "read"])
    assert "lily against llama.cpp" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--rows", "prefill-513"], ["--blocks", "1"], ["--repeats", "0"]])
def test_the_comparison_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cpu_peers.main(["folder", *arguments])
    assert "expected at least" in (said := capsys.readouterr().err) or "no row prefill-513" in said


def test_a_random_gguf_has_the_parameters_of_the_architecture(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is missing: pip install gguf")
    from benchmarks.random_gguf import write

    write(tmp_path / "decoder.gguf", TINY)
    reader = gguf.GGUFReader(tmp_path / "decoder.gguf")
    assert sum(int(tensor.n_elements) for tensor in reader.tensors) == TINY.parameters
    assert reader.fields["general.architecture"].contents() == "qwen35moe"
    names = {tensor.name for tensor in reader.tensors}
    assert names >= {"token_embd.weight", "blk.0.ssm_a", "blk.0.ssm_dt.bias", "blk.3.attn_q.weight"}
    table = next(tensor for tensor in reader.tensors if tensor.name == "output.weight")
    weights = gguf.dequantize(table.data, table.tensor_type)
    assert weights.shape == (TINY.vocab, TINY.hidden)
    assert weights.std() == pytest.approx(TINY.hidden**-0.5, rel=0.1)
    write(tmp_path / "encoder.gguf", encoders.Shape())
    assert len(gguf.GGUFReader(tmp_path / "encoder.gguf").tensors) == 2 + 2 * 11


def test_a_random_gguf_has_the_dimensions_of_a_checkpoint(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is missing: pip install gguf")
    from benchmarks import random_gguf

    random_gguf.main(["nano", str(tmp_path / "nano.gguf")])
    reader = gguf.GGUFReader(tmp_path / "nano.gguf")
    names = {
        "block_count": 8, "embedding_length": 384, "context_length": 262144, "vocab_size": 8192, "expert_count": 10,
        "expert_used_count": 4, "expert_feed_forward_length": 128, "attention.head_count": 2,
        "attention.head_count_kv": 1, "ssm.group_count": 2, "ssm.time_step_rank": 4, "rope.freq_base": 1e5,
    }  # fmt: skip
    assert {name: reader.fields[f"qwen35moe.{name}"].contents() for name in names} == names
    with open_checkpoint(EMBEDDED["nano"]) as checkpoint:
        assert sum(int(tensor.n_elements) for tensor in reader.tensors) == checkpoint.architecture.parameters
    assert random_gguf.shape_of("encoder") == encoder_speed.FULL
