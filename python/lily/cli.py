"""The command `lily`: arguments in, lines out, exit codes. Everything it does is a call of the Python API.

Results go to standard output, everything else (progress, numbers, errors) to standard error. Exit codes: 0 success, 1
an error in one line, 2 wrong arguments, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import __version__, console, trace_command
from .bench import command as bench_command
from .command_options import add_device_options, add_hub_options, device_options, hub_options
from .console import Line, fail
from .display import counted, size
from .errors import LilyError
from .gate import command as gate_command
from .verify import command as verify_command

if TYPE_CHECKING:
    from .stream import Piece

_DEBUG = "LILY_DEBUG"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; wrong arguments leave by SystemExit(2), as argparse does."""
    console.claim()
    options = parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to stop
    try:
        with console.ctrl_c() as pressed:
            code = _run(options, pressed)
    except KeyboardInterrupt:
        code = fail("interrupted", 130)
    if sys.stdout is not None:
        console.finish_output()
    return code


def _run(options: argparse.Namespace, pressed: list[int]) -> int:
    try:
        console.require_output()
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, and knows it
        return 1
    except (LilyError, OSError) as error:
        return fail(str(error), 1)
    except MemoryError:
        return fail("out of memory; lower --max-context, or close other programs", 1)
    except Exception as error:
        if pressed:
            raise KeyboardInterrupt from None
        if os.environ.get(_DEBUG):
            raise
        return fail(
            f"defect: {type(error).__name__}: {error}. Please report it; {_DEBUG}=1 shows where it happened.", 1
        )
    return 0


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="lily", description="Runs Qwen3.6-35B-A3B on this machine.", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"lily {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        _add_info,
        _add_generate,
        _add_repack,
        _add_synth,
        bench_command.add,
        trace_command.add,
        verify_command.add,
        gate_command.add,
    ):
        add(commands)
    return top


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], words: str
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words, allow_abbrev=False)
    command.set_defaults(run=run, refuse=command.error)
    return command


def _add_info(commands: Any) -> None:
    info = _command(commands, "info", _info, "What this machine is, what a model is, and whether it fits.")
    info.add_argument(
        "model", nargs="?", help="folder, hub repository or embedded model; left out, the default repository"
    )
    info.add_argument("--max-context", type=int, default=4096, metavar="N", help="tokens of a session (%(default)s)")
    info.add_argument("--download", action="store_true", help="ask the hub how much a download would be")
    add_hub_options(info)
    info.add_argument("--json", action="store_true", help="print the report as JSON")


def _add_generate(commands: Any) -> None:
    generate = _command(commands, "generate", _generate, "Writes the model's answer to a prompt.")
    generate.add_argument("prompt", help="a user message, or with --raw a text to continue; - reads standard input")
    generate.add_argument("--model", required=True, help="folder, hub repository or embedded model")
    generate.add_argument("--system", help="a system message")
    generate.add_argument("--raw", action="store_true", help="continue the prompt as it is, without the chat template")
    generate.add_argument("--thinking", choices=("on", "off"), help="ask the chat template for thinking, or none")
    generate.add_argument("--max-tokens", type=int, default=256, metavar="N", help="the most to write (%(default)s)")
    generate.add_argument("--temperature", type=float, metavar="T", help="0 is greedy; left out, the checkpoint's own")
    generate.add_argument("--seed", type=_seed, metavar="S", help="the same seed gives the same text")
    add_device_options(generate)
    generate.add_argument("--max-context", type=int, default=4096, metavar="N", help="prompt and answer (%(default)s)")
    add_hub_options(generate)
    generate.add_argument("--quiet", action="store_true", help="no progress and no numbers on standard error")


def _add_repack(commands: Any) -> None:
    repack = _command(commands, "repack", _repack, "Copies a checkpoint with aligned data, for devices that map files.")
    repack.add_argument("model", help="folder, hub repository or embedded model")
    repack.add_argument("out", help="a new or empty folder")
    add_hub_options(repack)


def _add_synth(commands: Any) -> None:
    synth = _command(
        commands, "synth", _synth, "Writes a random checkpoint of the exact format, for tests and benchmarks."
    )
    synth.add_argument("out", help="a new or empty folder")
    shape = synth.add_mutually_exclusive_group(required=True)
    shape.add_argument("--full", action="store_true", help="the shapes of the real model, 19.5 GB")
    shape.add_argument("--tiny", action="store_true", help="a small model of the same kind, 13 MB")
    synth.add_argument(
        "--seed", type=_seed, default=0, metavar="S", help="the same seed gives the same files (%(default)s)"
    )


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 20 and (number := int(text)) < 2**64):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 to {2**64 - 1}")
    return number


def _info(options: argparse.Namespace) -> None:
    from . import info

    found = info.report(
        options.model,
        max_context=options.max_context,
        download=options.download,
        **hub_options(options),
    )
    print(json.dumps(found, indent=2) if options.json else "\n".join(info.lines(found)))


def _generate(options: argparse.Namespace) -> None:
    import dataclasses

    from .engine import Engine
    from .stream import collect

    prompt = _prompt(options)
    line = Line(shown=not options.quiet)
    engine = Engine.load(
        options.model,
        max_context=options.max_context,
        **device_options(options),
        **hub_options(options),
        progress=line.progress("downloading", "bytes"),
    )
    with engine:
        given = {name: value for name in ("temperature", "seed") if (value := getattr(options, name)) is not None}
        stream = engine.stream(
            prompt,
            max_tokens=options.max_tokens,
            sampling=dataclasses.replace(engine.default_sampling, **given),
            progress=line.progress("reading", "tokens"),
            thinking=None if options.thinking is None else options.thinking == "on",
        )
        result = collect(_printed(stream, line))
        seed = "" if result.stats.seed is None else f", seed {result.stats.seed}"
        line.say(
            f"{counted(result.prompt_tokens, 'token')} read at {result.prefill_tps:.1f} tok/s, {len(result.tokens)} "
            f"written at {result.decode_tps:.1f} tok/s, finish reason {result.finish_reason}{seed}, {engine.device}"
        )


def _printed(stream: Iterator[Piece], line: Line) -> Iterator[Piece]:
    """The same pieces, printed as they pass; the line is ended whatever happens."""
    try:
        for piece in stream:
            line.clear()
            print(piece.text, end="", flush=True)
            yield piece
    finally:
        print(flush=True)


def _prompt(options: argparse.Namespace) -> str | list[dict[str, str]]:
    if options.raw:
        for name in ("system", "thinking"):
            if getattr(options, name) is not None:
                options.refuse(f"--{name} belongs to the chat template, which --raw leaves out")
    text = options.prompt
    if text == "-":
        text = console.read_text(text)
    if options.raw:
        return str(text)
    system = [] if options.system is None else [{"role": "system", "content": options.system}]
    return [*system, {"role": "user", "content": text}]


def _repack(options: argparse.Namespace) -> None:
    from .location import locate
    from .repack import repack

    line = Line()
    folder = locate(options.model, **hub_options(options), progress=line.progress("downloading", "bytes"))
    done = repack(folder, options.out, progress=line.progress("copying", "bytes"))
    print(done.path)
    left_out = f"; not copied: {', '.join(done.left_out)}" if done.left_out else ""
    line.say(
        f"{counted(done.tensors, 'tensor')} in {counted(done.files, 'file')}, {size(done.nbytes)}, compared with the "
        f"source; every tensor is aligned to {done.alignment} bytes{left_out}"
    )


def _synth(options: argparse.Namespace) -> None:
    from . import synth

    line = Line()
    shape = synth.FULL if options.full else synth.TINY
    path = synth.write_checkpoint(options.out, shape, seed=options.seed, progress=line.progress("writing", "bytes"))
    line.clear()
    print(path)
