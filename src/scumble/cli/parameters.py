"""Parameters of a query as typed: `--param` texts come in, what the query binds goes out. They are the asker's own."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from scumble.cli.describe import count
from scumble.errors import InvalidParameter
from scumble.sql.parse import parse

__all__ = ["read_parameters"]

_INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)\.\d+", re.ASCII)
_FLOAT = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?e[+-]?\d{1,3}", re.ASCII | re.IGNORECASE)
_QUOTED = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}


def read_parameters(sql: str, texts: Sequence[str]) -> list[Any] | dict[str, Any]:
    """The values by place for a query with `?` or `$1`, by name for one with `$name`."""
    keys = parse(sql).keys.values()
    names = [key for key in keys if isinstance(key, str)]
    if not names:
        needed = max((key for key in keys if isinstance(key, int)), default=-1) + 1
        if len(texts) != needed:
            raise InvalidParameter(
                f"the query has {count(needed, 'parameter')}, and {len(texts)} are given", hint="--param VALUE for each"
            )
        return [_value(text) for text in texts]
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidParameter(f"{text!r} does not say which parameter it is for", hint="--param name=value")
        values[name.removeprefix("$")] = _value(value)
    if values.keys() != set(names):
        listed = ", ".join(dict.fromkeys(names))
        raise InvalidParameter(
            "the parameters are not those of the query", hint=f"--param NAME=VALUE for each of {listed}"
        )
    return values


def _value(text: str) -> Any:
    """A number, true, false, null, or text: in single quotes, as in SQL, if it reads as one of the others."""
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= 40 else Decimal(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1].replace("''", "'")
    return _WORDS.get(text.lower(), text)
