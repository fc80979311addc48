"""Spans of a statement's text: errors underline them, and edits replace them.

In comes the text as the owner wrote it; errors show the line that they are about. Only the owner's side sees it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp

from scumble.errors import BadQuery, QueryError, UnsupportedQuery

__all__ = ["Span", "bad", "edited", "span_of", "unsupported"]

Error = TypeVar("Error", bound=QueryError)


@dataclass(frozen=True)
class Span:
    """Characters start, start + 1, ..., stop - 1 of the text."""

    start: int
    stop: int


def _underlined(text: str, span: Span | None) -> str:
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


def _error(kind: type[Error], text: str, message: str, at: "Span | exp.Expr | None", hint: str | None) -> Error:
    span = span_of(at) if isinstance(at, exp.Expr) else at
    return kind(message + _underlined(text, span), hint=hint)


def span_of(node: exp.Expr) -> Span | None:
    """From the first to the last character that the parser remembers for a node and what is below it."""
    known = [part.meta for part in node.walk() if part._meta and "start" in part.meta]
    if not known:
        return None if node.parent is None else span_of(node.parent)
    return Span(min(meta["start"] for meta in known), max(meta["end"] for meta in known) + 1)


def edited(text: str, edits: Iterable[tuple[Span, str]]) -> str:
    """The text with some spans replaced; an edit inside of another one is dropped."""
    parts, at = [], 0
    for span, replacement in sorted(edits, key=lambda edit: (edit[0].start, -edit[0].stop)):
        if span.start >= at:
            parts += [text[at : span.start], replacement]
            at = span.stop
    return "".join([*parts, text[at:]])
