"""Which names of a text may denote vector types: the built-in ones, aliases of them, and template parameters."""

from __future__ import annotations

from .dialect import VECTORS
from .tokens import Source


def template_parameters(source: Source) -> set[str]:
    """The type parameters of the text's templates."""
    return {
        source[i + 1]
        for i in range(len(source))
        if source[i] in ("typename", "class")
        and source[i - 1] in ("<", ",")
        and source.is_name(i + 1)
        and source[i + 2] in (",", ">", "=")
    }


def vector_names(source: Source, parameters: set[str]) -> set[str]:
    """Built-in vector types and every alias that may be one, followed to the end of the chain."""
    names = set(VECTORS)
    aliases = list(_aliases(source))
    while True:
        found = {
            name
            for name, words in aliases
            if not words & {"*", "&"} and (words & names or words & parameters or words & {"vec", "typename"})
        }
        if found <= names:
            return names
        names |= found


def _aliases(source: Source) -> list[tuple[str, set[str]]]:
    found = []
    for i in range(len(source)):
        if source[i] == "using" and source[i + 2] == "=":
            found.append((source[i + 1], set(source.words(i + 3, source.statement_end(i)))))
        elif source[i] == "typedef":
            end = source.statement_end(i)
            if source.is_name(end - 1) and "{" not in source.words(i, end):
                found.append((source[end - 1], set(source.words(i + 1, end - 1))))
    return found
