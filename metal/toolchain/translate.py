"""From the output of `clang -E` to C++ for OpenCL: the passes in their order."""

from __future__ import annotations

from dataclasses import dataclass

from .attributes import take_attributes
from .constants import FunctionConstant
from .entries import Entry, write_entries
from .expressions import rewrite_expressions
from .kernels import find_kernels
from .qualifiers import rewrite_qualifiers
from .scopes import Scopes
from .tokens import Source
from .types import template_parameters, vector_names


@dataclass(frozen=True)
class Translation:
    """A text for clang, what a driver must know of it, and the complaints that a compiler would not make."""

    text: str
    entries: tuple[Entry, ...]
    constants: tuple[FunctionConstant, ...]
    complaints: tuple[str, ...]


def translate(preprocessed: str, *, cuda: bool = False) -> Translation:
    """Rewrites a preprocessed .metal text, with entry functions for the host executor or for CUDA."""
    source = Source(preprocessed)
    take_attributes(source)
    parameters = template_parameters(source)
    vectors = vector_names(source, parameters)
    kernels = find_kernels(source)
    rewrite_expressions(source, vectors, parameters)
    scopes = Scopes(source, kernels, vectors)
    scopes.walk()
    rewrite_qualifiers(source)
    entry_text, entries = write_entries(kernels, cuda)
    return Translation(
        f'{source.text()}\n#line 1 "<entries>"\n{entry_text}',
        tuple(entries),
        tuple(scopes.constants.declared),
        tuple(source.complaints),
    )
