"""The commands `lily gate` and `lily audit`: the Gate's calls, with files in and lines out.

cli.py has the parser and the exit codes; `add` puts these two into it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..command_options import add_hub_options, hub_options
from ..console import read_text
from ..display import counted
from ..errors import InvalidInput

if TYPE_CHECKING:
    from .policy import Policy
    from .verdict import Verdict


def add(commands: Any) -> None:
    """The two commands, as sub-parsers of argparse."""
    _add_gate(commands)
    _add_audit(commands)


def _add_gate(commands: Any) -> None:
    words = "What may leave the device: finds personal data and secrets in a text and decides."
    gate = commands.add_parser("gate", help=words, description=words, allow_abbrev=False)
    gate.set_defaults(run=_gate)
    gate.add_argument("file", metavar="FILE", help="a UTF-8 text; - reads standard input")
    gate.add_argument("--policy", metavar="P", help="a TOML file, strict or balanced (left out: balanced)")
    gate.add_argument("--destination", metavar="D", help="where the text is to go, for the policy's rules about that")
    gate.add_argument("--model", help="another classifier, a folder or hub repository; left out, the embedded one")
    add_hub_options(gate)
    gate.add_argument("--messages", action="store_true", help="the text is a JSON list of chat messages")
    gate.add_argument("--audit", metavar="DB", help="record the decision in this audit log")
    shape = gate.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="the verdict as JSON, without the values")
    shape.add_argument("--mask", action="store_true", help="only the masked text; an error if nothing may leave")
    shape.add_argument("--html", action="store_true", help="the text with coloured spans, as HTML")


def _add_audit(commands: Any) -> None:
    words = "Checks or exports the record of what left and what was refused."
    audit = commands.add_parser("audit", help=words, description=words, allow_abbrev=False)
    actions = audit.add_subparsers(title="actions", metavar="ACTION", required=True)
    verify = actions.add_parser(
        "verify", help="read every record and check the chain", description="Reads every record and checks the chain."
    )
    verify.set_defaults(run=_verify)
    verify.add_argument("db", metavar="DB")
    verify.add_argument("--head", metavar="HEAD", help="a head that was kept, or the file it is in: finds a cut end")
    export = actions.add_parser(
        "export",
        help="the records as JSON lines, then the head",
        description="The records as JSON lines, then the head.",
    )
    export.set_defaults(run=_export)
    export.add_argument("db", metavar="DB")
    export.add_argument("--head", action="store_true", help="only the head, to be kept elsewhere")


def _gate(options: argparse.Namespace) -> None:
    from .audit import AuditLog
    from .gate import Gate

    if options.model is None and options.revision is not None:
        raise InvalidInput("--revision belongs to --model, which is missing; the embedded classifier has none.")
    policy = _policy(options.policy)
    text = read_text(options.file)
    content = _messages(text) if options.messages else text
    audit = None if options.audit is None else AuditLog(options.audit)
    if options.model is None:
        gate = Gate(policy, audit)
    else:
        gate = Gate.load(options.model, policy=policy, audit=audit, **hub_options(options))
    with gate:
        verdict = gate.classify(content, destination=options.destination)
    if audit is not None:
        audit.close()
    if options.json:
        print(json.dumps(verdict.to_dict(), ensure_ascii=False, indent=2))
    elif options.html:
        print(f'<!doctype html><meta charset="utf-8"><title>lily gate</title>{verdict._repr_html_()}')
    elif options.mask:
        masked = verdict.outgoing()
        sys.stdout.write(masked if isinstance(masked, str) else json.dumps(masked, ensure_ascii=False) + "\n")
    else:
        print("\n".join(_lines(verdict)))


def _lines(verdict: Verdict) -> Iterator[str]:
    yield f"outcome      {verdict.outcome.name}"
    yield f"sensitivity  {verdict.sensitivity:.2f}"
    for number, reason in enumerate(verdict.reasons):
        yield f"{'' if number else 'reasons':<13}{reason}"
    if verdict.spans:
        yield ""
    for span in verdict.spans:
        name = f"{span.label}/{span.sub}" if span.sub else span.label
        value = " ".join(verdict.text[span.start : span.end].split())
        short = value if len(value) <= 40 else value[:39] + "\u2026"
        yield f"{span.start:>6}-{span.end:<6} {name:<28} {span.score:.2f}  {short:<40} {span.why}".rstrip()
    yield ""
    masked = verdict.masked
    yield masked.rstrip("\n") if isinstance(masked, str) else json.dumps(masked, ensure_ascii=False, indent=2)


def _policy(name: str | None) -> Policy | None:
    from .policy import Policy

    if name is None:
        return None
    built_in = {"strict": Policy.strict, "balanced": Policy.balanced}
    return built_in[name]() if name in built_in else Policy.load(name)


def _messages(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the messages are not JSON: {error}.") from None


def _verify(options: argparse.Namespace) -> None:
    from .audit import AuditLog, Head

    wanted = None
    if options.head is not None:
        text = options.head if options.head.startswith("lily-audit:") else read_text(options.head)
        wanted = Head.parse(text)
    with AuditLog(options.db, create=False) as log:
        head = log.verify(wanted)
    print(f"{counted(head.seq, 'record')}, unbroken\n{head}")


def _export(options: argparse.Namespace) -> None:
    from .audit import AuditLog

    with AuditLog(options.db, create=False) as log:
        if options.head:
            print(log.head())
            return
        for line in log.export():
            print(line)
