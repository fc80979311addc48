"""The forms that a column's values may have: which types hold them all, asked in SQL over every row.

An Arrow type comes in, conditions for DuckDB come out, narrow types first. What they are asked of is SECRET and stays
on the owner's machine. A cell fits a form only if a load would read it as that type without change.
"""

from dataclasses import dataclass, replace
from typing import Any

from scumble.types import family, schema_of

__all__ = ["Form", "forms_of", "plain"]

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?"
_ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_WHOLE = "-?(0|[1-9][0-9]*)"
_MOST_DIGITS = 18  # of what is guessed
_STORED_DIGITS = 38
_UUID = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"


@dataclass(frozen=True)
class Form:
    """A type, which values {x} fit it, and the value as a key, for its least and greatest."""

    type: str
    fits: str = "TRUE"
    key: str = "{x}"
    scale: int = 0

    def misfits(self, column: str) -> str:
        return f"({column} IS NOT NULL AND NOT coalesce({self.fits.replace('{x}', column)}, FALSE))"

    def key_of(self, column: str) -> str:
        return f"CASE WHEN {self.fits.replace('{x}', column)} THEN {self.key.replace('{x}', column)} END"

    def finite(self) -> "Form":
        """Return the form with keys that are numbers: neither infinite nor NaN."""
        return replace(self, key=f"CASE WHEN isfinite({self.key}) THEN {self.key} END")

    @property
    def has_years(self) -> bool:
        return self.type.startswith(("date", "timestamp"))


def _matching(pattern: str, cast: str) -> tuple[str, str]:
    """Return the condition that a text is of a form and means something, and what it means."""
    value = f"try_cast({{x}} AS {cast})"
    return f"(regexp_full_match({{x}}, '{pattern}') AND {value} IS NOT NULL)", value


_TEXTS = (
    Form("bigint", *_matching("-?(0|[1-9][0-9]{0,17})", "BIGINT")),
    Form("boolean", "{x} IN ('true', 'false', 'True', 'False', 'TRUE', 'FALSE')"),
    Form("decimal", *_matching("-?(0|[1-9][0-9]{0,11})([.][0-9]{1,6})?", "DECIMAL(18, 6)")),
    Form("double", *_matching(f"{_WHOLE}([.][0-9]*)?([eE][+-]?[0-9]+)?", "DOUBLE")).finite(),
    Form("date", *_matching(_DAY, "DATE")),
    Form("timestamp", *_matching(f"{_DAY}([T ]{_CLOCK})?", "TIMESTAMP")),
    Form("timestamptz", *_matching(f"{_DAY}[T ]{_CLOCK}{_ZONE}", "TIMESTAMP")),
    Form("time", *_matching(_CLOCK, "TIME")),
    Form("uuid", *_matching(_UUID, "UUID")),
)


def plain(type_: Any) -> Any:
    """Return the Arrow type that rows are looked at as, without dictionaries and time zones."""
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return plain(type_.value_type)
    return pa.timestamp(type_.unit) if pa.types.is_timestamp(type_) else type_


_GUESSES = {
    "string": _TEXTS,
    "integer": (Form("bigint", "{x} <= 9223372036854775807", "{x}::BIGINT"), Form("ubigint")),
    "float": (
        Form("bigint", "({x} = floor({x}) AND abs({x}) < 9007199254740992)", "{x}::BIGINT"),
        Form("double").finite(),
    ),
    "timestamp": (
        Form("date", "{x} = date_trunc('day', {x})"),
        Form("timestamp", "epoch_ns({x}) % 1000 = 0"),
        Form("timestamp_ns"),
    ),
}


def forms_of(type_: Any, *, guessed: bool) -> tuple[Form, ...]:
    """Return the forms to try for a column of an Arrow type, narrow ones first.

    There are none for a text with a type of its own, and where no form fits a text it stays one. Any other column with
    a type of its own has that form alone.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    kind = family(type_)
    if kind == "decimal":
        return _decimal_forms(type_, guessed=guessed)
    if guessed and kind in _GUESSES:
        return _GUESSES[kind]
    if kind in ("string", "null"):
        return ()
    form = Form("timestamptz" if kind == "zoned" else _own(type_))
    return (form.finite() if kind == "float" else form,)


def _decimal_forms(type_: Any, *, guessed: bool) -> tuple[Form, ...]:
    scale = max(0, type_.scale)
    if not guessed and type_.precision <= _STORED_DIGITS:
        return (Form(f"decimal({type_.precision},{scale})", scale=scale),)
    room = f"abs({{x}}) < 1{'0' * max(0, _MOST_DIGITS - scale)}"
    double = Form("double", key="{x}::DOUBLE").finite()
    return Form(f"decimal({_MOST_DIGITS},{scale})", room, scale=scale), double


def _own(type_: Any) -> str:
    """Return the declaration of a type that a source has of its own."""
    import pyarrow as pa

    return schema_of(pa.schema([("column", type_)]))["column"].type.declaration
