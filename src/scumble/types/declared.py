"""Types as the owner writes them, `decimal(12,2)`, and the schema of what is about to be loaded.

Text and an Arrow schema become a public `Schema`. A text column's greatest length and a category's list come from the
owner and never from the data, since they are public. An error underlines what is wrong in the text.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from scumble.errors import InvalidParameter, NotFound
from scumble.types.arrow import unstorable
from scumble.types.column import TYPES, Column, ColumnType, Schema
from scumble.types.domain import Domain

_NOT_NULL = "not null"
_NAME = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*(?:\s+[A-Za-z]+)*)\s*")
_SHOWN = 60


def parse_type(text: str) -> ColumnType:
    """Read a type, `decimal(12,2)`; InvalidParameter, with the wrong part underlined, if there is no such type."""
    found = _NAME.match(text)
    if found is None:
        raise _wrong(text, 0, len(text), "this is no type")
    name = " ".join(found[1].lower().split())
    kind = next((type_ for type_ in TYPES.values() if name in type_.names), None)
    if kind is None:
        close = get_close_matches(name, [known for type_ in TYPES.values() for known in type_.names], n=1)
        guess = f"did you mean {close[0]}? " if close else ""
        raise _wrong(text, found.start(1), found.end(1), "there is no such type", guess)
    try:
        return kind.of_text(kind.names[name], text[found.end() :].strip())
    except InvalidParameter as error:
        refused = error
    raise _wrong(text, found.end(), len(text), refused.message)


def split_nullability(text: str) -> tuple[str, bool]:
    """Return what stands before `not null`, and whether nulls may occur."""
    text = text.strip()
    return (text[: -len(_NOT_NULL)].strip(), False) if text.lower().endswith(_NOT_NULL) else (text, True)


def schema_of(
    arrow: Any, *, types: Mapping[str, str] | None = None, domains: Mapping[str, Domain] | None = None
) -> Schema:
    """Return the public schema of an Arrow schema.

    `types` declares types by column, `text(25)` or `decimal(12,2)`; with `not null` after the type, or in its place, no
    null may occur. A column indexed by a list of categories becomes a category.
    """
    declared = {name.lower(): text for name, text in (types or {}).items()}
    indexed = {name.lower(): domain for name, domain in (domains or {}).items()}
    names = {name.lower() for name in arrow.names}
    for name in [*(types or {}), *(domains or {})]:
        if name.lower() not in names:
            raise NotFound(f"there is no column {name!r}", hint=f"there are {', '.join(arrow.names)}")
    if "" in names:
        raise InvalidParameter("a column has no name", hint="name it")
    return Schema(
        tuple(_column(field, declared.get(field.name.lower()), indexed.get(field.name.lower())) for field in arrow)
    )


def _column(field: Any, declared: str | None, domain: Domain | None) -> Column:
    text, nullable = split_nullability(declared or "")
    stated = None if domain is None else domain.column_type
    if not text:
        return Column(field.name, stated or _type_of(field), nullable and field.nullable)
    type_ = parse_type(text).as_in(field)
    if stated is not None and stated.kind == type_.kind and stated != type_:
        raise InvalidParameter(
            f"column {field.name!r} is declared with other categories than its index",
            hint="declare no type for it: the index's list is taken",
        )
    return Column(field.name, type_, nullable and field.nullable)


def _type_of(field: Any) -> ColumnType:
    from pyarrow import types as kinds

    plain = field.with_type(field.type.value_type) if kinds.is_dictionary(field.type) else field
    for type_ in TYPES.values():
        if (found := type_.of_arrow(plain)) is not None:
            return found
    if kinds.is_null(field.type):
        raise unstorable(field, "declare its type: there is no value to tell it from")
    raise unstorable(field, "leave it out, or cast it before loading")


def _wrong(text: str, start: int, stop: int, trouble: str, guess: str = "") -> InvalidParameter:
    shown = "".join(char if char.isprintable() else "?" for char in text[:_SHOWN]) + "..." * (len(text) > _SHOWN)
    carets = " " * min(start, _SHOWN) + "^" * max(1, min(stop, _SHOWN) - start)
    examples = ", ".join(example for type_ in TYPES.values() for example in type_.examples)
    return InvalidParameter(
        f"cannot read the type: {trouble}\n    {shown}\n    {carets}", hint=f"{guess}the types are {examples}"
    )
