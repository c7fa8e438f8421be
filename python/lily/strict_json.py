"""JSON from strangers: the headers and config files of a checkpoint, read with limits.

Python's parser accepts things that a checkpoint must not contain, because two readers would disagree about them:
repeated keys, NaN, invalid UTF-8. Here each of them is a CheckpointError that names the file. This is not a general
JSON layer: what lily writes itself goes through the json module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from .errors import CheckpointError
from .local_files import read_small_file

_MAX_SHOWN = 80


class _Duplicate(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Duplicate(f"the key {shown(key)} appears twice in one object")
            seen.add(key)
    return result


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def shown(value: object) -> str:
    """repr of a value that a stranger chose, cut to a length that fits a message."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def parse_object(data: bytes, where: str, advice: str) -> dict[str, Any]:
    """The JSON object in `data`, UTF-8, without repeated keys. `where` and `advice` go into the error message.

    Raises CheckpointError.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except _Duplicate as error:
        raise CheckpointError(f"{where}: {error}, expected unique keys; {advice}") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where}: byte {error.start} is not UTF-8, expected JSON text; {advice}") from None
    except RecursionError:
        raise CheckpointError(f"{where}: found JSON nested too deeply, expected a few levels; {advice}") from None
    except ValueError as error:
        raise CheckpointError(f"{where}: found no valid JSON ({error}), expected one JSON object; {advice}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: found a JSON {type(value).__name__}, expected an object; {advice}")
    return value


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a config file. Raises CheckpointError."""
    advice = "download or convert the checkpoint again"
    return parse_object(read_small_file(path, "a JSON file", advice), str(path), advice)
