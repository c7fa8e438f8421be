"""The pass over declarations: walks the text by scope and hands each statement to the rule that rewrites it.

A scope is a namespace, a record, a function's block, or a list of values in braces. Which one a '{' opens is told from
the words before it.
"""

from __future__ import annotations

from .constants import Constants, rewrite_constant
from .kernels import Kernels
from .lint import check_local, check_parameters, qualify_method
from .threadgroup import rewrite_threadgroup_variables
from .tokens import Source

_RECORD_WORDS = frozenset({"struct", "class", "union"})


class Scopes:
    """One walk over a text. What it learns: the function constants."""

    def __init__(self, source: Source, kernels: Kernels, vectors: set[str]) -> None:
        self._source = source
        self._kernels = kernels
        self._vectors = vectors
        self._stack: list[str] = []
        self._open_records: list[str] = []
        self._records: set[str] = set()
        self._kernel_sites: int | None = None  # threadgroup variables of the kernel that we are in, so far
        self.constants = Constants()

    def walk(self) -> None:
        """Rewrites every declaration of the text."""
        source, position, start, depth = self._source, 0, 0, 0
        while position < len(source):
            word = source[position]
            depth += (word in ("(", "[")) - (word in (")", "]"))
            if word == "{":
                if self._open(start, position, depth) != "values":
                    start = position + 1
            elif word == "}":
                if self._close() != "values":
                    start = position + 1
            elif depth == 0 and (word == ";" or (word == ":" and source[position - 1] in ("public", "private"))):
                start = position + 1
            else:
                end = self._statement(position, position == start, depth)
                if end is not None:
                    position, start = end, end + 1
            position += 1

    def _scope(self) -> str:
        return self._stack[-1] if self._stack else "namespace"

    def _open(self, start: int, brace: int, depth: int) -> str:
        source = self._source
        head = source.words(start, brace)
        kind = "values" if depth else self._kind(start, brace, head)
        if kind == "record":
            name = next((head[i + 1] for i in range(len(head) - 1) if head[i] in _RECORD_WORDS), "")
            self._open_records.append(name)
            self._records.add(name)
        elif kind == "function" and self._scope() != "function":
            check_parameters(source, start, brace)
            if self._scope() == "record":
                qualify_method(source, start, brace, self._open_records[-1], self._records)
            elif "::" in head:
                qualify_method(source, start, brace, None, self._records)
            self._kernel_sites = 0 if any(word in self._kernels.functions for word in head) else None
        self._stack.append(kind)
        return kind

    def _kind(self, start: int, brace: int, head: list[str]) -> str:
        source, before = self._source, self._source[brace - 1]
        while source[start] == "template" and source[start + 1] == "<":
            start = source.close_angle(start + 1) + 1
        if before in ("=", ",", "return", "]", ">", "("):
            return "values"
        if source[start] in _RECORD_WORDS and before != ")":
            return "record"
        if "namespace" in head or head[:1] == ["extern"]:
            return "namespace"
        if "enum" in head:
            return "values"
        if before in (")", "const", "noexcept", "else", "do") or before in ("thread", "device", "constant"):
            return "function"
        if source.is_name(brace - 1) and ")" not in head:
            return "values"
        return "function"

    def _close(self) -> str:
        kind = self._stack.pop() if self._stack else "namespace"
        if kind == "record":
            self._open_records.pop()
        return kind

    def _statement(self, position: int, is_first: bool, depth: int) -> int | None:
        """Applies the rules to what begins at a position; the end of a statement that was replaced."""
        source, scope = self._source, self._scope()
        if scope == "function" and depth == 0 and source[position] == "threadgroup":
            end = self._threadgroup(position)
            if end is not None:
                return end
        if not is_first or scope == "values":
            return None
        if scope == "function":
            self._vector_declaration(position)
            check_local(source, position)
        return rewrite_constant(source, position, scope, self.constants)

    def _threadgroup(self, position: int) -> int | None:
        source, previous = self._source, position - 1
        while previous >= 0 and not source[previous]:  # a declaration that was replaced
            previous -= 1
        before = source[previous]
        if before not in (";", "{", "}", ")", ":", "static", "volatile") and not before.endswith((";", "}", "\n")):
            return None
        done = rewrite_threadgroup_variables(source, position, self._kernel_sites or 0)
        if done is None:
            return None
        end, count = done
        if self._kernel_sites is None:
            source.complain(position, "threadgroup variables can be declared in kernel functions only")
        else:
            self._kernel_sites += count
        if before == "static":
            source[previous] = ""
        return end

    def _vector_declaration(self, position: int) -> None:
        """float4 v(a, b, c, d);   ->   float4 v = __mk<float4>(a, b, c, d);"""
        source, first = self._source, position
        while source[first] in ("const", "constexpr", "static", "thread"):
            first += 1
        last = first
        while source.is_name(last) and source[last + 1] == "::":
            last += 2
        if source[last] == "vec" and source[last + 1] == "<":
            last = source.close_angle(last + 1)
        elif source[last] not in self._vectors:
            return
        end = source.statement_end(position)
        type_name = source.join(first, last + 1)
        for name, part_end in source.split(last + 1, end):
            opening = name + 1
            if source.is_name(name) and source[opening] == "(" and source.close(opening) == part_end - 1:
                source.insert_before(opening, f" = __mk<{type_name}>")
