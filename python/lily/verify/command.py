"""The command `lily verify`: two sides, one text, a report in lines or JSON.

cli.py has the parser and the exit codes; `add` puts this command into it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..arguments import count
from ..command_options import add_device_options, add_hub_options, device_options, hub_options
from ..console import Line, read_text
from ..errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..engine import Engine
    from ..tokenizer import Tokenizer
    from .comparison import Report
    from .golden import Golden

MLX = "mlx-lm"
STORED = ".npz"  # the ending by which --against tells a stored reference from a device


def add(commands: Any) -> None:
    """The command, as a sub-parser of argparse."""
    words = "Compares what two engines or devices think of a text: perplexity, best tokens, divergence."
    verify = commands.add_parser("verify", help=words, description=words, allow_abbrev=False)
    verify.set_defaults(run=_verify)
    verify.add_argument("model", help="folder, hub repository or embedded model")
    verify.add_argument(
        "--text", metavar="FILE", help="a UTF-8 text; - reads standard input; a stored reference brings its own"
    )
    verify.add_argument(
        "--against", default=MLX, metavar="R",
        help=f"{MLX} (float32, must be installed), a file of --save, or a device of lily in bf16 (%(default)s)",
    )  # fmt: skip
    add_device_options(verify)
    verify.add_argument("--window", type=int, default=512, metavar="N", help="tokens read at a time (%(default)s)")
    verify.add_argument("--positions", type=int, metavar="N", help="tokens of the text at most; left out, all of it")
    verify.add_argument(
        "--save", metavar="FILE", help="a .npz file: keep what the reference said, for later comparisons"
    )
    add_hub_options(verify)
    verify.add_argument("--json", action="store_true", help="print the report as JSON")


def _verify(options: argparse.Namespace) -> None:
    from ..engine import Engine
    from .comparison import compare
    from .sides import EngineSide

    if options.save is not None and not options.save.endswith(STORED):
        raise InvalidInput(
            f"--save {options.save} does not end in {STORED}, by which --against knows a stored reference"
        )
    line = Line()
    loaded = Engine.load(
        options.model,
        max_context=max(options.window, 2),
        **device_options(options),
        **hub_options(options),
        progress=line.progress("downloading", "bytes"),
    )
    with loaded as engine:
        golden = _golden(options, engine, line.progress("reference has read", "windows"))
        if options.save is not None:
            golden.save(options.save, engine.tokenizer.digest)
        report = compare(golden, EngineSide(engine), line.progress("tested has read", "windows"))
        line.clear()
        if options.json:
            print(json.dumps(asdict(report), indent=2))
        else:
            print("\n".join(lines(report, _speller(engine, golden))))


def _golden(options: argparse.Namespace, engine: Engine, progress: Callable[[int, int], object]) -> Golden:
    from .golden import Golden, read_windows
    from .sides import EngineSide, MlxSide

    if options.against.endswith(STORED):
        for name in ("text", "positions", "save"):
            if getattr(options, name) is not None:
                raise InvalidInput(f"--{name} is given, and a stored reference brings its own text; leave --{name} out")
        golden = Golden.load(options.against, engine.tokenizer.digest)
        for window in golden.windows:
            largest = max(window.tokens.max(), window.top_ids.max())
            if largest >= engine.vocab or len(window.tokens) > engine.max_context + 1:
                raise InvalidInput(
                    f"{options.against}: has windows of {len(window.tokens)} tokens up to id {largest}, "
                    f"expected at most --window {options.window} and ids below {engine.vocab}; it is of another model, "
                    "or --window is too small"
                )
        return golden
    if options.text is None:
        raise InvalidInput("there is no text to compare on; name a UTF-8 file with --text")
    tokens = _tokens(options.text, engine.tokenizer, options.positions)
    if options.against == MLX:
        return read_windows(MlxSide(engine.checkpoint.path), tokens, options.window, progress)
    with type(engine).load(
        engine.checkpoint.path,
        device=options.against,
        threads=options.threads,
        activations="bf16",
        max_context=max(options.window, 2),
    ) as reference:
        return read_windows(EngineSide(reference), tokens, options.window, progress)


def _tokens(path: str, tokenizer: Tokenizer, most: int | None) -> npt.NDArray[np.int32]:
    import numpy as np

    if most is not None:
        count(most, "positions", 2**31 - 1)
    return np.array(tokenizer.encode(read_text(path))[:most], dtype=np.int32)


def _speller(engine: Engine, golden: Golden) -> Callable[[int, int], tuple[str, Callable[[int], str]]]:
    """For a window and a position: the text before the prediction, and how to spell a token."""

    def spell(window: int, position: int) -> tuple[str, Callable[[int], str]]:
        tokens = golden.windows[window].tokens[: position + 1].tolist()
        return engine.tokenizer.decode(tokens[-16:]), lambda token: repr(engine.tokenizer.decode([token]))

    return spell


def lines(report: Report, spell: Callable[[int, int], tuple[str, Callable[[int], str]]]) -> Iterator[str]:
    """A report in words."""
    from ..display import counted
    from .comparison import GAP

    yield f"reference    {report.reference}"
    yield f"tested       {report.tested}"
    yield f"text         {counted(report.positions, 'prediction')} in {counted(report.windows, 'window')}"
    yield f"perplexity   {report.reference_perplexity:.4f} reference, {report.tested_perplexity:.4f} tested"
    yield f"difference   {100 * report.difference:+.4f} % (standard error {100 * report.standard_error:.4f} %)"
    yield f"best token   the same at {100 * report.agreement:.2f} %"
    yield (
        f"             at {100 * report.clear_agreement:.3f} % of the {report.clear:,} positions where the reference's "
        f"leads by {GAP} nats or more"
    )
    yield f"divergence   {report.divergence:.2e} nats on average, {report.largest_divergence:.2e} at most"
    yield "worst"
    for one in report.worst:
        context, token = spell(one.window, one.position)
        yield f"  {one.divergence:.3f} nats after {context[-60:]!r} comes {token(one.following)}"
        yield (
            f"        reference {token(one.reference_best)} {one.reference_probability:.3f}, tested "
            f"{token(one.tested_best)} {one.tested_probability:.3f}"
        )
