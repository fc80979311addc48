"""Types as the owner writes them, `decimal(12,2)` or `category(["a","b"])`: text comes in, a public type goes out.

The names are DuckDB's, with its aliases. An error underlines what is wrong in the text, which is public.
"""

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches

from scumble.errors import InvalidParameter
from scumble.types.column import (
    INTEGER_WIDTHS,
    MAX_DECIMAL_DIGITS,
    MAX_TEXT_BYTES,
    TIMESTAMP_UNITS,
    Column,
    ColumnType,
    Kind,
)

__all__ = [
    "DEFAULT_TEXT_BYTES",
    "category_type",
    "decimal_type",
    "declaration",
    "parse_type",
    "split_nullability",
    "text_type",
]

DEFAULT_TEXT_BYTES = 64
"""What a text column holds unless the owner says otherwise. It is public, so it must not follow the data."""

MAX_CATEGORIES = 1 << 20
_NOT_NULL = "not null"
_ZONED = "timestamp with time zone"
_ALIASES = {
    "bool": "boolean",
    "logical": "boolean",
    "int1": "tinyint",
    "int2": "smallint",
    "short": "smallint",
    "int": "integer",
    "int4": "integer",
    "signed": "integer",
    "int8": "bigint",
    "long": "bigint",
    "uint8": "utinyint",
    "uint16": "usmallint",
    "uint32": "uinteger",
    "uint64": "ubigint",
    "real": "float",
    "float4": "float",
    "float8": "double",
    "double precision": "double",
    "numeric": "decimal",
    "dec": "decimal",
    "datetime": "timestamp",
    "timestamp_us": "timestamp",
    "timestamp without time zone": "timestamp",
    "timestamptz": _ZONED,
    "varchar": "text",
    "string": "text",
    "char": "text",
    "bpchar": "text",
    "enum": "category",
}
_PLAIN = {
    "boolean": ColumnType(Kind.BOOLEAN, "boolean"),
    **{name: ColumnType(Kind.INTEGER, name) for name in INTEGER_WIDTHS},
    "float": ColumnType(Kind.FLOAT, "float"),
    "double": ColumnType(Kind.FLOAT, "double"),
    "date": ColumnType(Kind.DATE, "date"),
    "time": ColumnType(Kind.TIME, "time"),
    **{name: ColumnType(Kind.TIMESTAMP, name) for name in TIMESTAMP_UNITS},
    _ZONED: ColumnType(Kind.TIMESTAMP, _ZONED, zone="UTC"),
}
_WITH_PARTS = {"decimal": "decimal(12,2)", "text": "text(25)", "category": 'category(["a","b"])'}
_HINT = f"the types are {', '.join(_PLAIN)}, {', '.join(_WITH_PARTS.values())}"
_NAME = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*(?:\s+[A-Za-z]+)*)\s*")
_SHOWN = 60


def parse_type(text: str) -> ColumnType:
    """Read a type; InvalidParameter, with the wrong part underlined, if there is no such type."""
    found = _NAME.match(text)
    if found is None:
        raise _wrong(text, 0, len(text), "this is no type")
    words = " ".join(found[1].lower().split())
    name = _ALIASES.get(words, words)
    rest, start = text[found.end() :].strip(), found.end()
    if name not in _PLAIN and name not in _WITH_PARTS:
        close = get_close_matches(words, [*_PLAIN, *_WITH_PARTS, *_ALIASES], n=1)
        guess = f"did you mean {close[0]}? " if close else ""
        raise _wrong(text, found.start(1), found.end(1), "there is no such type", guess)
    if name in _PLAIN:
        if rest:
            raise _wrong(text, start, len(text), f"{name} takes nothing after its name")
        return _PLAIN[name]
    if name == "category":
        return _parse_category(text, start, rest)
    numbers = _parse_numbers(text, start, rest)
    if name == "text":
        if len(numbers) > 1:
            raise _wrong(text, start, len(text), "a text has one number, its most bytes")
        return _at(text, start, text_type, numbers or [DEFAULT_TEXT_BYTES])
    if len(numbers) > 2:
        raise _wrong(text, start, len(text), "a decimal has two numbers, its digits and those after the point")
    return _at(text, start, decimal_type, [*numbers, 0][:2] if numbers else [18, 3])


def split_nullability(text: str) -> tuple[str, bool]:
    """Return what stands before `not null`, and whether nulls may occur."""
    text = text.strip()
    return (text[: -len(_NOT_NULL)].strip(), False) if text.lower().endswith(_NOT_NULL) else (text, True)


def text_type(max_bytes: int) -> ColumnType:
    """Return the type of texts of at most so many bytes of UTF-8."""
    if not 1 <= max_bytes <= MAX_TEXT_BYTES:
        raise InvalidParameter(f"a text has 1 to {MAX_TEXT_BYTES} bytes at most", hint="write text(25), for example")
    return ColumnType(Kind.TEXT, "varchar", max_bytes=max_bytes)


def decimal_type(digits: int, scale: int) -> ColumnType:
    """Return the type of decimals with so many digits, `scale` of them after the point."""
    if not 1 <= digits <= MAX_DECIMAL_DIGITS or not 0 <= scale <= digits:
        raise InvalidParameter(
            f"a decimal has 1 to {MAX_DECIMAL_DIGITS} digits, and no more of them after the point",
            hint="write decimal(12,2), for example",
        )
    return ColumnType(Kind.DECIMAL, f"decimal({digits},{scale})", scale=scale, digits=digits)


def category_type(categories: Sequence[str]) -> ColumnType:
    """Return the type of a public list of strings, in whatever order they come."""
    listed = sorted(set(categories))
    if not listed or len(listed) > MAX_CATEGORIES:
        raise InvalidParameter(f"a category has 1 to {MAX_CATEGORIES} values", hint='write category(["a","b"])')
    if any("\ud800" <= char <= "\udfff" for text in listed if not text.isascii() for char in text):
        raise InvalidParameter("a category is not valid Unicode", hint="correct its encoding")
    return ColumnType(Kind.CATEGORY, "varchar", categories=tuple(listed))


def _parse_category(text: str, start: int, rest: str) -> ColumnType:
    body = rest[1:] if rest.startswith(":") else rest[1:-1] if rest.startswith("(") and rest.endswith(")") else None
    if body is None:
        raise _wrong(text, start, len(text) + 1, "the list of categories is missing")
    try:
        listed = json.loads(body)
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise _wrong(text, start, len(text), "this is no JSON list of strings")
    if len(set(listed)) != len(listed):
        raise _wrong(text, start, len(text), "a category is there twice")
    return _at(text, start, category_type, [listed])


def _parse_numbers(text: str, start: int, rest: str) -> list[int]:
    if not rest:
        return []
    found = re.fullmatch(r"\(\s*([0-9]{1,9}(?:\s*,\s*[0-9]{1,9})*)\s*\)", rest, re.ASCII)
    if found is None:
        raise _wrong(text, start, len(text), "these are no numbers in parentheses")
    return [int(number) for number in found[1].split(",")]


def _at(text: str, start: int, build: object, parts: Sequence[object]) -> ColumnType:
    """Build the type, and underline its parts if it cannot be."""
    try:
        built: ColumnType = build(*parts)  # type: ignore[operator]
    except InvalidParameter as error:
        refused = error
    else:
        return built
    raise _wrong(text, start, len(text), refused.message)


def _wrong(text: str, start: int, stop: int, trouble: str, guess: str = "") -> InvalidParameter:
    shown = "".join(char if char.isprintable() else "?" for char in text[:_SHOWN]) + "..." * (len(text) > _SHOWN)
    carets = " " * min(start, _SHOWN) + "^" * max(1, min(stop, _SHOWN) - start)
    return InvalidParameter(f"cannot read the type: {trouble}\n    {shown}\n    {carets}", hint=f"{guess}{_HINT}")


def declaration(column: Column) -> str:
    """A column's type as `schema_of` takes it, whole."""
    listed = f"({json.dumps(column.type.categories)})" if column.type.kind is Kind.CATEGORY else ""
    return f"{column.type.label}{listed}{'' if column.nullable else ' ' + _NOT_NULL}"
