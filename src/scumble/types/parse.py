"""Domains written as text: `int:0:1000` comes in, a domain goes out; both are public.

An error underlines the part of the text that is wrong.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scumble.errors import DomainError
from scumble.types.category import CategoryDomain
from scumble.types.decimals import NUMBER, DecimalDomain
from scumble.types.domain import SHOWN, Domain, DomainPartError
from scumble.types.floats import FloatDomain
from scumble.types.instants import ISO_DATE, ISO_TIME
from scumble.types.integer import IntegerDomain
from scumble.types.listed import ExplicitKeys
from scumble.types.strings import StringDomain
from scumble.types.times import RESOLUTION, DateDomain, TimestampDomain

_INTEGER = re.compile(r"[+-]?\d{1,100}", re.ASCII)
_PLAIN_FIELD = re.compile(r"[^:]*")
_BESIDE = 24  # characters shown on either side of a mistake in a long text


@dataclass(frozen=True, slots=True)
class _Part:
    """One field of a domain's text: its name, what it looks like, and what it is not when it doesn't."""

    name: str
    title: str
    form: re.Pattern[str]
    kind: str
    field: re.Pattern[str] = _PLAIN_FIELD  # how far it reaches, where it may hold colons itself
    optional: bool = False


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of domain: its fields, how to build it from them, and the right form for hints."""

    parts: tuple[_Part, ...]
    build: Callable[..., Domain]
    example: str


def _numbers(form: re.Pattern[str], kind: str, *, optional_step: bool = False) -> tuple[_Part, ...]:
    return (
        _Part("low", "the lower bound", form, kind),
        _Part("high", "the upper bound", form, kind),
        _Part("step", "the step", form, kind, optional=optional_step),
    )


_DATES = (
    _Part("low", "the first day", ISO_DATE, "a date"),
    _Part("high", "the last day", ISO_DATE, "a date"),
)
# A time takes up to the colon after its seconds, so that a wrong one is still underlined as a whole.
_TIME_FIELD = re.compile(r"[^:T ]*(?:[T ][^:]*(?::\d\d){0,2}[^:]*(?:[+-]\d\d:\d\d)?)?")
_TIMES = (
    _Part("low", "the first time", ISO_TIME, "a time", field=_TIME_FIELD),
    _Part("high", "the last time", ISO_TIME, "a time", field=_TIME_FIELD),
    _Part("step", "the resolution", RESOLUTION, "a number and ns, us, ms, s, min, h or d"),
)

_KINDS = {
    "int": _Kind(
        _numbers(_INTEGER, "an integer", optional_step=True),
        lambda low, high, step="1": IntegerDomain(int(low), int(high), int(step)),
        "int:LOW:HIGH or int:LOW:HIGH:STEP, for example int:0:1000",
    ),
    "decimal": _Kind(
        _numbers(NUMBER, "a decimal number"),
        DecimalDomain,
        "decimal:LOW:HIGH:STEP, for example decimal:0:1000000:0.01",
    ),
    "date": _Kind(_DATES, DateDomain, "date:FIRST:LAST, for example date:2000-01-01:2030-12-31"),
    "timestamp": _Kind(
        _TIMES,
        TimestampDomain,
        "timestamp:FIRST:LAST:RESOLUTION, for example timestamp:2020-01-01T00:00:00:2020-12-31T23:59:59:1s",
    ),
    "float": _Kind(
        _numbers(NUMBER, "a decimal number"), FloatDomain, "float:LOW:HIGH:STEP, for example float:0:1:0.001"
    ),
    "category": _Kind((), CategoryDomain, 'category:LIST, for example category:["a","b","c"]'),
    "keys": _Kind((), ExplicitKeys, "keys:LIST, for example keys:[1,5,9]"),
    "string": _Kind((), StringDomain, 'string:LIST, for example string:["d","m","t"]'),
}


def parse_domain(text: str) -> Domain:
    """Read a domain from its text; raise `DomainError` with the wrong part underlined."""
    if not isinstance(text, str):
        raise DomainError("a domain's text is not a string", hint=f"the kinds are {', '.join(_KINDS)}")
    name, colon, _ = text.partition(":")
    kind = _KINDS.get(name)
    if kind is None:
        from difflib import get_close_matches

        close = get_close_matches(name, _KINDS, n=1)
        guess = f"did you mean {close[0]}? " if close else ""
        raise _wrong(text, 0, len(name), "there is no such kind of domain", f"{guess}the kinds are {', '.join(_KINDS)}")
    if not colon:
        raise _wrong(text, len(text), len(text) + 1, "nothing follows the kind", f"write {kind.example}")
    return _parse_parts(text, len(name) + 1, kind) if kind.parts else _parse_list(text, len(name) + 1, kind)


def _parse_parts(text: str, start: int, kind: _Kind) -> Domain:
    hint = f"write {kind.example}"
    places: dict[str, tuple[int, int]] = {}
    for part in kind.parts:
        if start > len(text):
            if part.optional:
                break
            raise _wrong(text, len(text), len(text) + 1, f"{part.title} is missing", hint)
        found = part.field.match(text, start)
        stop = found.end() if found else len(text)
        if stop < len(text) and text[stop] != ":":
            stop = len(text)
        if part.form.fullmatch(text, start, stop) is None:
            trouble = "is missing" if start == stop else f"is not {part.kind}"
            raise _wrong(text, start, stop, f"{part.title} {trouble}", hint)
        places[part.name] = (start, stop)
        start = stop + 1
    if start <= len(text):
        raise _wrong(text, start - 1, len(text), "there is more than the domain needs", hint)
    try:
        return kind.build(*(text[first:last] for first, last in places.values()))
    except DomainPartError as error:
        found_wrong = error
    raise _wrong(text, *places[found_wrong.part], found_wrong.message, found_wrong.hint)


def _parse_list(text: str, start: int, kind: _Kind) -> Domain:
    body, hint = text[start:], f"write {kind.example}"
    position, trouble = 0, ""
    listed: Any = None
    try:
        listed = json.loads(body)
    except json.JSONDecodeError as error:
        position, trouble = error.pos, "the list is not valid JSON"
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        trouble = "the list is not valid JSON"
    if trouble:
        raise _wrong(text, start + position, start + position + 1, trouble, hint)
    if not isinstance(listed, list):
        raise _wrong(text, start, len(text), "this is not a list", hint)
    try:
        return kind.build(listed)
    except DomainPartError as error:
        found_wrong = error
    first, last = (0, len(body)) if found_wrong.item is None else _place_of_item(body, found_wrong.item)
    raise _wrong(text, start + first, start + last, found_wrong.message, found_wrong.hint)


def _place_of_item(body: str, item: int) -> tuple[int, int]:
    """Return where an item of a valid JSON list starts and stops."""
    decoder = json.JSONDecoder()
    first = stop = body.index("[") + 1
    for _ in range(item + 1):
        first = stop
        while body[first] in " \t\r\n,":
            first += 1
        _, stop = decoder.raw_decode(body, first)
    return first, stop


def _wrong(text: str, start: int, stop: int, trouble: str, hint: str | None) -> DomainError:
    """Build the error that underlines text[start:stop], in a window if the text is long."""
    shown = text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
    first = max(0, start - _BESIDE) if len(text) > SHOWN else 0
    last = min(len(text), start + _BESIDE) if len(text) > SHOWN else len(text)
    before, after = "..." if first else "", "..." if last < len(text) else ""
    window = "".join(char if char.isprintable() else "?" for char in text[first:last])
    carets = "^" * max(1, min(stop, last) - start)
    indent = " " * (len(before) + start - first)
    return DomainError(
        f"cannot read the domain {shown!r}: {trouble}\n    {before}{window}{after}\n    {indent}{carets}",
        hint=hint,
    )
