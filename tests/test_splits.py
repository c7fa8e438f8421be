"""Reading is one function of the tokens, however they arrive: in chunks of any size, in several calls, one at a time,
after a restored snapshot, with one thread or two; on a CPU and, with fewer examples, on the Metal kernels.

Where nothing but the bookkeeping differs the bits must be the same: thread counts, a snapshot and its restore, a cold
run and one restored at a chunk edge. Where the work is cut differently (a chunk that ends elsewhere, one row instead of
many) float32 sums come in another order and bf16 roundings flip: there the results may differ by no more than the
documented roundings themselves cost, which is measured on the spot against the float32 reference.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import METAL, METAL_SHARE, require_metal
from timelines import open_engine, read, read_pieces, relative, token_by_token

from lily import _ext, synth
from reference import BF16, BYTES, FLOAT32, Array, load_decoder

CHUNK = 64  # of most engines here; the smallest that has a whole block of the recurrence in it
LENGTH = 200
VOCAB = 300
# Every expert is always chosen: a router near-tie would turn a rounding into another expert, and hide what is tested.
SHAPE = dataclasses.replace(
    synth.TINY, hidden=128, layers=4, vocab=VOCAB, heads=4, kv_heads=2, head_dim=64, rotary_dim=16,
    key_heads=2, value_heads=4, key_dim=64, value_dim=64, experts=4, top_k=4, width=64, shared_width=64,
)  # fmt: skip
few_examples = settings(max_examples=25, deadline=None, print_blob=True)
metal_examples = settings(max_examples=12 // METAL_SHARE, deadline=None, print_blob=True)  # of a second or more each
seeds = st.integers(0, 2**32 - 1)
CPUS = [f"cpu:{isa}" for isa in _ext.instruction_sets()]
cpus = pytest.mark.parametrize("device", CPUS)


@dataclasses.dataclass(frozen=True, repr=False)  # an example that fails prints its arguments
class Reader:
    """One engine, and the prompt as it reads it token by token."""

    engine: _ext.Engine
    tokens: Array
    single: Array  # logits of every position
    allowed: Array  # how far another reading of each position may be from that


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synth.write_checkpoint(tmp_path_factory.mktemp("splits") / "model", SHAPE, seed=5, tokenizer=False)


@pytest.fixture(scope="module")
def tokens() -> Array:
    return np.random.default_rng(11).integers(0, VOCAB, LENGTH, dtype=np.int32)


@pytest.fixture(scope="module", params=[False, True], ids=["bf16", "int8"])
def byte_inputs(request: pytest.FixtureRequest) -> bool:
    """Whether products of several rows take their inputs in 8 bits."""
    return bool(request.param)


def tolerance(folder: Path, tokens: Array, byte_inputs: bool) -> Array:
    """How far two readings of each position may be apart: twice what the documented roundings cost there, read at once
    or token by token, and at least what they cost at the median position."""
    decoder = load_decoder(folder)
    exact = decoder.forward(tokens, FLOAT32)
    at_once, step_by_step = (
        decoder.forward(tokens, BYTES if byte_inputs else BF16),
        decoder.forward(tokens, BF16, chunk=1),
    )
    cost = np.maximum(relative(at_once, exact), relative(step_by_step, exact))
    return np.asarray(2 * np.maximum(cost, np.median(cost)))


@pytest.fixture(scope="module")
def allowed(folder: Path, tokens: Array, byte_inputs: bool) -> Array:
    return tolerance(folder, tokens, byte_inputs)


def open_reader(
    folder: Path, tokens: Array, allowed: Array, *, device: str, chunk: int, byte_inputs: bool
) -> Iterator[Reader]:
    with open_engine(folder, chunk=chunk, device=device, threads=2, byte_inputs=byte_inputs) as engine:
        yield Reader(engine, tokens, token_by_token(engine, engine.session(), tokens), allowed)


@pytest.fixture(scope="module", params=CPUS)
def reader(
    request: pytest.FixtureRequest, folder: Path, tokens: Array, allowed: Array, byte_inputs: bool
) -> Iterator[Reader]:
    yield from open_reader(folder, tokens, allowed, device=request.param, chunk=CHUNK, byte_inputs=byte_inputs)


@pytest.fixture(scope="module", params=METAL)
def metal_reader(request: pytest.FixtureRequest, folder: Path, tokens: Array) -> Iterator[Reader]:
    """Chunks of two blocks: the bits are the same after any block, not only at the edges of chunks."""
    require_metal()
    allowed = tolerance(folder, tokens, byte_inputs=False)
    yield from open_reader(folder, tokens, allowed, device=request.param, chunk=2 * CHUNK, byte_inputs=False)


def draw_edges(seed: int, most: int, among: Array) -> list[int]:
    random = np.random.default_rng(seed)
    count = int(random.integers(0, min(most, len(among)) + 1))
    return sorted(int(edge) for edge in random.choice(among, count, replace=False))


def check_all_at_once(reader: Reader) -> None:
    at_once = np.asarray(reader.engine.forward(reader.tokens))
    assert (relative(at_once, reader.single) <= reader.allowed).all()


def check_length(reader: Reader, length: int) -> None:
    last = read(reader.engine, reader.engine.session(), reader.tokens[:length])
    assert relative(last, reader.single[length - 1]) <= reader.allowed[length - 1], f"a prompt of {length} tokens"


def test_every_position_in_one_call(reader: Reader) -> None:
    check_all_at_once(reader)


def test_every_length(reader: Reader) -> None:
    """Prompts of 1 to 129 tokens, each from an empty session: every tail of every tile and block."""
    for length in range(1, 130):
        check_length(reader, length)


def test_the_metal_kernels_read_as_they_decode(metal_reader: Reader) -> None:
    """All positions in one call, and prompts that end before, at and behind the edges of tiles and blocks."""
    check_all_at_once(metal_reader)
    for length in (2, 8, 9, 16, 17, 33, 63, 64, 65, 72, 73):
        check_length(metal_reader, length)


@cpus
@pytest.mark.parametrize("chunk", [1, 2, 3, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 512])
def test_every_chunk_size(
    device: str, chunk: int, folder: Path, tokens: Array, allowed: Array, byte_inputs: bool
) -> None:
    """One prompt through engines of other chunk sizes; lengths of one chunk and one token less and more among them."""
    with open_engine(folder, chunk=chunk, device=device, threads=2, byte_inputs=byte_inputs) as other:
        single = token_by_token(other, other.session(), tokens)
        assert (relative(np.asarray(other.forward(tokens)), single) <= allowed).all()
        for length in {chunk - 1, chunk, chunk + 1, 2 * chunk + 1} & set(range(1, LENGTH + 1)):
            last = read(other, other.session(), tokens[:length])
            assert relative(last, single[length - 1]) <= allowed[length - 1], f"a prompt of {length} tokens"


def any_split(reader: Reader, seed: int) -> None:
    """Pieces of any length, single tokens among them, in any order."""
    edges = draw_edges(seed, 8, np.arange(1, LENGTH))
    logits = read_pieces(reader.engine, reader.engine.session(), reader.tokens, edges)
    ends = np.array([*edges, LENGTH]) - 1
    assert (relative(logits, reader.single[ends]) <= reader.allowed[ends]).all(), f"edges {edges}"


def a_split_between_blocks_keeps_every_bit(reader: Reader, seed: int) -> None:
    engine, tokens = reader.engine, reader.tokens
    edges = draw_edges(seed, 3, np.arange(CHUNK, LENGTH, CHUNK))
    whole, pieces = engine.session(), engine.session()
    expected = read(engine, whole, tokens)
    assert read_pieces(engine, pieces, tokens, edges)[-1].tobytes() == expected.tobytes(), f"edges {edges}"
    assert pieces.snapshot().same_bits(whole.snapshot()), f"edges {edges}"


def a_restored_continuation_is_the_cold_run(reader: Reader, seed: int) -> None:
    """Snapshot between blocks, go elsewhere, restore, read on: bit for bit a cold run; then both decode alike. At least
    two tokens: one alone takes the way of a decode step."""
    engine, tokens = reader.engine, reader.tokens
    random = np.random.default_rng(seed)
    edge = int(random.integers(1, LENGTH // CHUNK + 1)) * CHUNK
    length = int(random.integers(edge + 2, LENGTH + 1))
    cold = engine.session()
    expected = read(engine, cold, tokens[:length])

    session = engine.session()
    read(engine, session, tokens[:edge])
    snapshot = session.snapshot()
    detour = random.integers(0, VOCAB, int(random.integers(1, 100)), dtype=np.int32)
    read(engine, session, detour)
    restored = engine.session() if random.integers(2) else session
    restored.restore(snapshot)
    assert restored.position == edge
    assert read(engine, restored, tokens[edge:length]).tobytes() == expected.tobytes()
    assert restored.snapshot().same_bits(cold.snapshot())
    assert greedy(engine, restored, 5) == greedy(engine, cold, 5)


def a_snapshot_anywhere_is_lossless(reader: Reader, seed: int) -> None:
    """Any position, a pending token or none: what follows a restore or a fork is bit for bit what followed the first
    time, and the logits are there before anything is read."""
    engine, tokens = reader.engine, reader.tokens
    random = np.random.default_rng(seed)
    length, more = (int(random.integers(1, 90)) for _ in range(2))
    session = engine.session()
    read(engine, session, tokens[:length])
    greedy(engine, session, int(random.integers(0, 3)))
    snapshot, pending, logits = session.snapshot(), session.pending, np.asarray(session.logits())
    forked = session.fork()
    first = read(engine, session, tokens[length : length + more])
    first_words = greedy(engine, session, 4)
    end = session.snapshot()

    session.restore(snapshot)
    for again in (session, forked):
        assert again.pending == pending
        assert np.asarray(again.logits()).tobytes() == logits.tobytes()
        assert read(engine, again, tokens[length : length + more]).tobytes() == first.tobytes()
        assert greedy(engine, again, 4) == first_words
        assert again.snapshot().same_bits(end)


def any_mix_of_reading_and_writing(reader: Reader, seed: int) -> None:
    """Prompts and generated tokens in turns; then the whole text again in one go."""
    engine = reader.engine
    random = np.random.default_rng(seed)
    session = engine.session()
    for _ in range(int(random.integers(1, 5))):
        read(engine, session, random.integers(0, VOCAB, int(random.integers(1, 50)), dtype=np.int32))
        greedy(engine, session, int(random.integers(0, 6)))
    # The last generated token is pending: feed it with one more.
    mixed = read(engine, session, np.array([7], np.int32))
    text = np.asarray(session.tokens)
    whole = read(engine, engine.session(), text)
    assert relative(mixed, whole) <= np.max(reader.allowed), f"{len(text)} tokens"


WAYS: list[Callable[[Reader, int], None]] = [
    any_split,
    a_split_between_blocks_keeps_every_bit,
    a_restored_continuation_is_the_cold_run,
    a_snapshot_anywhere_is_lossless,
    any_mix_of_reading_and_writing,
]
ways = pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])


@ways
@few_examples
@given(seed=seeds)
def test_any_way_to_read(reader: Reader, way: Callable[[Reader, int], None], seed: int) -> None:
    way(reader, seed)


@ways
@metal_examples
@given(seed=seeds)
def test_any_way_to_read_on_the_metal_kernels(
    metal_reader: Reader, way: Callable[[Reader, int], None], seed: int
) -> None:
    way(metal_reader, seed)


@cpus
def test_two_threads_give_the_bits_of_one(device: str, folder: Path, tokens: Array) -> None:
    results = []
    for threads in (1, 2):
        with open_engine(folder, chunk=CHUNK, device=device, threads=threads) as other:
            session = other.session()
            logits = [np.asarray(other.forward(tokens)), token_by_token(other, session, tokens[:70])]
            logits += [read(other, session, tokens[70:]), np.array(greedy(other, session, 8))]
            results.append([part.tobytes() for part in logits])
    assert results[0] == results[1]


@cpus
def test_where_the_data_begins_changes_no_bit(device: str, folder: Path, tokens: Array, tmp_path: Path) -> None:
    """A header of any length puts the weights at any address mod 16; they are read where they lie."""
    results = set()
    for residue in (0, 1, 4, 8):
        moved = synth.write_checkpoint(tmp_path / str(residue), SHAPE, seed=5, tokenizer=False, header_residue=residue)
        with open_engine(moved, chunk=CHUNK, device=device) as other:
            logits = [np.asarray(other.forward(tokens[:70])), token_by_token(other, other.session(), tokens[:5])]
        results.add(b"".join(part.tobytes() for part in logits))
    assert len(results) == 1


def greedy(engine: _ext.Engine, session: _ext.Session, count: int) -> list[int]:
    sampler = _ext.Sampler(temperature=0.0)
    return [engine.step(session, sampler) for _ in range(count)]
