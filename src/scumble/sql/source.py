"""The text of a query, and errors that underline the part of it that they are about.

SQL text and character positions come in, errors go out. The text belongs to the asker, who may see all of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp

from scumble.errors import BadQuery, QueryError, UnsupportedQuery

E = TypeVar("E", bound=QueryError)

__all__ = ["Span", "bad", "edited", "span_of", "underlined", "unsupported"]


@dataclass(frozen=True)
class Span:
    """Characters start, start + 1, ..., stop - 1 of the text."""

    start: int
    stop: int


def underlined(text: str, span: Span | None) -> str:
    """The line that the span begins in, with a line of ^^^ under it; empty if it is not known where."""
    if span is None:
        return ""
    begin = text.rfind("\n", 0, span.start) + 1
    end = text.find("\n", span.start)
    line = text[begin : len(text) if end < 0 else end]
    width = max(1, min(span.stop, begin + len(line)) - span.start)
    margin = "".join("\t" if letter == "\t" else " " for letter in line[: span.start - begin])
    return f"\n  {line}\n  {margin}{'^' * width}"


def bad(text: str, message: str, at: "Span | exp.Expr | None", *, hint: str | None = None) -> BadQuery:
    """The query is not SQL, or names what is not there."""
    return _error(BadQuery, text, message, at, hint)


def unsupported(text: str, message: str, at: "Span | exp.Expr | None", *, hint: str | None = None) -> UnsupportedQuery:
    """The query is SQL, and is refused."""
    return _error(UnsupportedQuery, text, message, at, hint)


def _error(kind: type[E], text: str, message: str, at: "Span | exp.Expr | None", hint: str | None) -> E:
    span = span_of(at) if isinstance(at, exp.Expr) else at
    return kind(message + underlined(text, span), hint=hint)


def span_of(node: exp.Expr) -> Span | None:
    """From the first to the last character that the parser remembers for a node and what is below it."""
    places = [part.meta for part in node.walk() if part._meta and "start" in part.meta]
    if not places:
        return None if node.parent is None else span_of(node.parent)
    return Span(min(place["start"] for place in places), max(place["end"] for place in places) + 1)


def edited(text: str, edits: Iterable[tuple[Span, str]]) -> str:
    """The text with some spans replaced; an edit inside of another one is dropped."""
    parts, at = [], 0
    for span, replacement in sorted(edits, key=lambda edit: (edit[0].start, -edit[0].stop)):
        if span.start >= at:
            parts += [text[at : span.start], replacement]
            at = span.stop
    return "".join([*parts, text[at:]])
