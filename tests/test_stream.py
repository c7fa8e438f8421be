"""Text generation: stop strings at any chunking, pieces, finish reasons, prefix reuse, async."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lily import Engine, Generation, Piece, Sampling
from lily.errors import Cancelled, ContextOverflow, InvalidInput
from lily.sampling import GREEDY
from lily.stream import StopStrings, hand_off

CHUNK = 64  # of the shared engine
alphabet = "ab\u00e9"


def first_to_end(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The rule, letter by letter: the first stop string to become complete; of several at one letter, the longest."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(
    st.lists(st.text(alphabet, max_size=4), max_size=12),
    st.lists(st.text(alphabet, min_size=1, max_size=5), max_size=4),
)
@example(["a", "ab", "c"], ["aab"])
@example(["abc"], ["bc", "abcd"])
@example(["xabc"], ["c", "abc", "bc"])
def test_stop_strings_do_not_depend_on_chunks(chunks: list[str], stops: list[str]) -> None:
    text = "".join(chunks)
    expected, stop = first_to_end(text, stops)
    seen = StopStrings(stops)
    shown = ""
    for chunk in chunks:
        shown += seen.push(chunk)
        assert expected.startswith(shown), "text was shown that a stop string cuts off"
        if seen.matched is None:
            held = len("".join(chunks[: chunks.index(chunk) + 1])) - len(shown)
            assert held < max(map(len, stops), default=1)
    shown += seen.flush()
    assert (shown, seen.matched) == (expected, stop)


def test_text_is_held_only_while_it_may_be_a_stop_string() -> None:
    seen = StopStrings(["<end>"])
    assert [seen.push(chunk) for chunk in ("a<", "en", "c<e", "nd", ">tail", "more")] == ["a", "", "<enc", "", "", ""]
    assert seen.matched == "<end>"
    assert seen.flush() == ""


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        ([""], r"stop\[0\] is empty"),
        ("", r"stop\[0\] is empty"),
        (["a", 3], r"stop\[1\] is a int"),
        (["\udc00"], r"stop\[0\] has the lone surrogate"),
        (7, "stop is a int"),
    ],
)
def test_useless_stop_strings_are_refused(engine: Engine, stop: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        engine.stream("a", 8, stop=stop)


def pieces_of(engine: Engine, prompt: Any = "A lily is", **options: Any) -> list[Piece]:
    options.setdefault("max_tokens", 24)
    options.setdefault("sampling", Sampling(temperature=1.0, seed=3))
    return list(engine.stream(prompt, **options))


def test_pieces_join_to_the_decoded_tokens(engine: Engine) -> None:
    pieces = pieces_of(engine)
    assert all(len(piece.tokens) == 1 and piece.finish_reason is None and piece.stats is None for piece in pieces[:-1])
    closing = pieces[-1]
    assert (closing.tokens, closing.finish_reason) == ((), "length")
    tokens = [token for piece in pieces for token in piece.tokens]
    assert len(tokens) == 24
    assert "".join(piece.text for piece in pieces) == engine.tokenizer.decode(tokens)
    assert closing.stats is not None
    assert closing.stats.generated_tokens == 24
    assert closing.stats.prompt_tokens == closing.stats.prefill_tokens == len(engine.tokenizer.encode("A lily is"))
    assert closing.stats.decode_tokens == 23  # the first one costs no feeding
    assert closing.stats.seed == 3
    assert closing.stats.cache_miss is None


def test_a_stream_is_decode_with_text(engine: Engine) -> None:
    with engine.session() as session:
        engine.prefill(session, engine.tokenizer.encode("A lily is"))
        tokens = tuple(engine.decode(session, 24, Sampling(temperature=1.0, seed=3)))
    assert engine.generate("A lily is", 24, Sampling(temperature=1.0, seed=3)).tokens[: len(tokens)] == tokens


def test_generate_is_the_stream_collected(engine: Engine) -> None:
    result = engine.generate("A lily is", max_tokens=24, sampling=Sampling(temperature=1.0, seed=3))
    pieces = pieces_of(engine)
    assert isinstance(result, Generation)
    assert result.text == "".join(piece.text for piece in pieces)
    assert result.tokens == tuple(token for piece in pieces for token in piece.tokens)
    assert result.finish_reason == "length"
    assert result.prompt_tokens == result.stats.prompt_tokens
    assert result.cached_tokens == 0
    assert result.prefill_tps > 0
    assert result.decode_tps > 0


def only(token: int) -> Sampling:
    """Sampling that cannot choose anything but `token`."""
    return Sampling(temperature=0, logit_bias={token: 1000.0})


def test_a_stop_id_ends_the_text_and_stays_pending(engine: Engine) -> None:
    stop_id = min(engine.stop_ids)
    with engine.session() as session:
        result = engine.generate("Hi", 8, only(stop_id), session=session)
        assert (result.text, result.tokens, result.finish_reason) == ("", (), "stop")
        assert result.stats.stopped_by == stop_id
        assert session.pending == stop_id
        assert session.position == result.prompt_tokens


def test_a_stop_string_is_cut_out(engine: Engine) -> None:
    whole = engine.generate("A lily is", 48, Sampling(temperature=1.0, seed=5)).text
    stop = whole[10:13]
    assert len(stop) == 3
    result = engine.generate("A lily is", 48, Sampling(temperature=1.0, seed=5), stop=["never seen", stop])
    assert (result.text, result.stats.stopped_by) == first_to_end(whole, [stop])
    assert result.finish_reason == "stop"
    streamed = pieces_of(engine, max_tokens=48, sampling=Sampling(temperature=1.0, seed=5), stop=stop)
    assert "".join(piece.text for piece in streamed) == result.text
    assert sum(len(piece.tokens) for piece in streamed) == len(result.tokens) < 48


def test_what_was_held_back_comes_at_the_end(engine: Engine) -> None:
    a = engine.tokenizer.encode("a")[0]
    result = engine.generate("x", 3, only(a), stop=["aaaa"])
    assert (result.text, result.finish_reason) == ("aaa", "length")
    pieces = pieces_of(engine, "x", max_tokens=3, sampling=only(a), stop="aaaa")
    assert [piece.text for piece in pieces] == ["", "", "", "aaa"]


def test_a_character_cut_off_by_the_limit_shows_once(engine: Engine) -> None:
    byte = next(token for token in range(engine.vocab) if engine.tokenizer.token_bytes(token) == b"\xf0")
    pieces = pieces_of(engine, "x", max_tokens=1, sampling=only(byte))
    assert [piece.text for piece in pieces] == ["", "\ufffd"]


def test_arguments_are_checked_before_the_first_piece(engine: Engine) -> None:
    for options, words in (
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 2.5}, "max_tokens is 2.5"),
        ({"sampling": 0.7}, "sampling is a float"),
        ({"thinking": True}, "thinking is an option of messages"),
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": "\ud800"}, "lone surrogate"),
        ({"prompt": 5}, "messages is a int"),
        ({"session": "mine"}, "'mine' is not a session"),
    ):
        arguments: dict[str, Any] = {"prompt": "Hi", "max_tokens": 8} | options
        with pytest.raises(InvalidInput, match=words):
            engine.stream(**arguments)


def test_a_prompt_that_does_not_fit_is_refused_with_the_numbers(engine: Engine) -> None:
    prompt = "a b " * 40
    size = len(engine.tokenizer.encode(prompt))
    room = engine.max_context - size - 1
    assert 0 < room < 250
    engine.stream(prompt, max_tokens=room)
    with pytest.raises(ContextOverflow, match=rf"a prompt of {size} tokens, {room + 1} to generate") as caught:
        engine.stream(prompt, max_tokens=room + 1)
    assert (caught.value.needed, caught.value.limit) == (257, 256)
    with pytest.raises(ContextOverflow):
        engine.stream(prompt * 9, max_tokens=None)


@pytest.mark.parametrize("unit", ["a", "é", "漢", "e\u0301", " ", "👩‍👩‍👧‍👦 "])
def test_a_text_that_is_far_too_long_is_refused_at_once(engine: Engine, unit: str) -> None:
    """Before it is encoded, which takes seconds for millions of characters."""
    text = unit * (4_000_000 // len(unit))
    for prompt in (text, [{"role": "user", "content": text}], [{"role": "user", "content": text + "<|im_end|>"}]):
        start = time.process_time()
        with pytest.raises(ContextOverflow, match=r"has at least [\d,]+ tokens; max_context is 256") as caught:
            engine.stream(prompt)
        assert caught.value.limit == 256
        assert caught.value.needed is not None
        assert caught.value.needed > 256
        assert time.process_time() - start < 2


def test_without_a_limit_the_context_is_the_limit(engine: Engine) -> None:
    a = engine.tokenizer.encode("a")[0]
    prompt = [{"role": "user", "content": "b c " * 50}]
    result = engine.generate(prompt, None, only(a))
    assert result.finish_reason == "length"
    assert result.prompt_tokens + len(result.tokens) + 1 == engine.max_context


def test_messages_go_through_the_template(engine: Engine) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    result = engine.generate(messages, max_tokens=1)
    assert result.prompt_tokens == len(engine.chat_template.encode(messages))
    assert engine.generate(messages, max_tokens=1, thinking=False).prompt_tokens > result.prompt_tokens


def test_a_chat_reads_only_what_is_new(engine: Engine) -> None:
    stop_id = engine.tokenizer.control_tokens["<|im_end|>"]
    messages = [{"role": "user", "content": "Hello there"}]
    with engine.session() as session:
        first = engine.generate(messages, 8, only(stop_id), session=session)
        assert first.cached_tokens == 0
        messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And more"}]
        second = engine.generate(messages, 8, GREEDY, session=session)
        assert (
            second.cached_tokens == first.prompt_tokens
        )  # the stop id was pending: it is read now, for the first time
        assert second.stats.prefill_tokens == second.prompt_tokens - first.prompt_tokens
        assert second.stats.cache_miss is None
        assert session.stats.cached_tokens == second.cached_tokens
    ids = engine.chat_template.encode(messages)
    with engine.session() as by_hand:  # cut at the same place: elsewhere the rounding is another
        engine.prefill(by_hand, ids[: first.prompt_tokens])
        engine.prefill(by_hand, ids[first.prompt_tokens :])
        assert tuple(engine.decode(by_hand, 8)) == second.tokens


def test_the_same_prompt_again_reads_nothing(engine: Engine) -> None:
    with engine.session() as session:
        tokens = engine.tokenizer.encode("A lily is")
        engine.prefill(session, tokens)
        result = engine.generate("A lily is", 4, GREEDY, session=session)
        assert result.cached_tokens == len(tokens)
        assert result.stats.prefill_tokens == 0
        assert result.prefill_tps == 0
        assert result.tokens == engine.generate("A lily is", 4, GREEDY).tokens


@pytest.mark.parametrize("prompt", ["A rose is", "A"])
def test_a_miss_says_why_and_reads_from_the_start(engine: Engine, prompt: str) -> None:
    held = engine.tokenizer.encode("A lily is")
    new = engine.tokenizer.encode(prompt)
    with engine.session() as session:
        engine.prefill(session, held)
        result = engine.generate(prompt, 4, GREEDY, session=session)
        assert result.cached_tokens == 0
        assert result.stats.prefill_tokens == len(new)
        assert result.stats.cache_miss == session.stats.cache_miss
        if prompt == "A":
            assert result.stats.cache_miss == f"the prompt ends at {len(new)} of the {len(held)} tokens held"
        else:
            at = int(np.flatnonzero(np.array(held[: len(new)]) != np.array(new[: len(held)]))[0])
            assert result.stats.cache_miss is not None
            assert result.stats.cache_miss.startswith(f"position {at} holds token {held[at]}, the prompt has {new[at]}")
        assert result.tokens == engine.generate(prompt, 4, GREEDY).tokens
        assert session.tokens[: len(new)].tolist() == new


def test_a_stream_left_early_leaves_the_session_usable(engine: Engine) -> None:
    with engine.session() as session:
        stream = engine.stream("A lily is", 50, GREEDY, session=session)
        taken = [next(stream).tokens[0] for _ in range(3)]
        stream.close()
        assert session.pending == taken[-1]
        rest = list(engine.decode(session, 3))
        assert taken + rest == list(engine.generate("A lily is", 6, GREEDY).tokens)


def test_a_stream_left_early_frees_its_own_session(engine: Engine) -> None:
    before = engine.memory["sessions"]
    stream = engine.stream("A lily is", 50, GREEDY)
    assert engine.memory["sessions"] == before  # nothing is reserved before the first piece is asked for
    next(stream)
    assert engine.memory["sessions"] > before
    stream.close()
    assert engine.memory["sessions"] == before


def test_progress_of_reading(engine: Engine) -> None:
    seen: list[tuple[int, int]] = []
    result = engine.generate("a b " * 40, 1, progress=lambda done, total: seen.append((done, total)))
    total = result.prompt_tokens
    assert total > CHUNK
    assert seen == [(done, total) for done in [*range(CHUNK, total, CHUNK), total]]


async def collect_async(engine: Engine, **options: Any) -> list[Piece]:
    return [piece async for piece in engine.astream("A lily is", 24, Sampling(temperature=1.0, seed=3), **options)]


def test_async_gives_the_same_pieces(engine: Engine) -> None:
    async def both() -> tuple[list[Piece], list[Piece]]:
        first, second = await asyncio.gather(collect_async(engine), collect_async(engine))
        return first, second

    before = engine.memory["sessions"]
    for pieces in asyncio.run(both()):
        assert [(piece.text, piece.tokens) for piece in pieces] == [
            (piece.text, piece.tokens) for piece in pieces_of(engine)
        ]
    assert engine.memory["sessions"] == before


def test_async_errors_arrive(engine: Engine) -> None:
    with pytest.raises(InvalidInput, match="is empty"):
        asyncio.run(collect_async(engine, stop=[""]))


def test_cancelling_the_task_stops_the_work(engine: Engine) -> None:
    reading = threading.Event()

    async def scenario() -> None:
        session = engine.session()

        async def consume() -> None:
            prompt = "a b " * 50
            async for _ in engine.astream(prompt, 100, GREEDY, session=session, progress=lambda *_: reading.set()):
                pass

        task = asyncio.create_task(consume())
        while not reading.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.position > 0
        assert list(engine.steps(session, GREEDY.sampler(engine.vocab), 2))  # free, usable, and no longer cancelled
        session.close()

    asyncio.run(scenario())


def test_a_cancel_that_nobody_took_is_taken_back(engine: Engine) -> None:
    """The worker was past its last look at the flag: the cancelled task must not stop the session's next call."""

    def deaf() -> Generator[Piece, None, None]:
        time.sleep(0.1)
        yield Piece("too late")

    async def scenario() -> None:
        with engine.session() as session:
            engine.prefill(session, [1, 2, 3])
            pieces = hand_off(deaf(), session)
            task = asyncio.ensure_future(anext(pieces))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert list(engine.steps(session, GREEDY.sampler(engine.vocab), 1))

    asyncio.run(scenario())


def test_cancel_ends_a_stream_with_an_error(engine: Engine) -> None:
    with engine.session() as session:
        stream = engine.stream("A lily is", 50, GREEDY, session=session)
        next(stream)
        session.cancel()
        with pytest.raises(Cancelled):
            next(stream)
        assert engine.generate("A lily is", 4, GREEDY, session=session).text
