"""One column under `scumble suggest`: what is asked of its rows, and what follows from the answers.

SECRET throughout. A look asks in two passes: which forms all values have and how far they reach; then, of the type and
the bounds that it has decided on, which rows force them. `suggested` puts that into words, with rows but no values.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scumble.owner.suggest.bounds import Proposal, propose_domain
from scumble.owner.suggest.forms import Form, forms_of
from scumble.types import Column, family, parse_type, split_nullability
from scumble.types.text import DEFAULT_BYTES, MAX_BYTES

__all__ = ["Ask", "Look", "SuggestedColumn"]

Ask = tuple[str, str]
"""The name of an answer, and an aggregate in DuckDB's SQL."""

_SIZES = tuple(1 << power for power in range(3, 17))
_MOST_CATEGORIES, _ROWS_EACH = 32, 20
_SHOWN_ROWS = 3
_KEYLESS = ("boolean", "time")


@dataclass(frozen=True)
class SuggestedColumn:
    """SECRET: a column as it could be declared, what that gives away, and an index on it that could be had."""

    column: Column
    gives_away: str
    from_rows: bool
    always_there: bool
    index: str | None = None
    index_gives_away: str = ""


@dataclass
class Look:
    """SECRET: what is known of a column so far; `arrow` is its field, `x` what the rows call it."""

    arrow: Any
    x: str
    declared: str
    guessed: bool
    found: dict[str, Any] = field(default_factory=dict)
    form: Form | None = None
    narrower: Form | None = None
    size: int = DEFAULT_BYTES
    may_be_category: bool = False
    proposal: Proposal | None = None

    @property
    def _is_declared(self) -> bool:
        return bool(split_nullability(self.declared)[0])

    @property
    def _forms(self) -> tuple[Form, ...]:
        return () if self._is_declared else forms_of(self.arrow.type, guessed=self.guessed)

    @property
    def _is_text(self) -> bool:
        """Whether its values are texts: if no form fits, the column is to be one."""
        type_ = getattr(self.arrow.type, "value_type", self.arrow.type)
        return not self._is_declared and family(type_) == "string"

    @property
    def _decimals(self) -> str:
        return f"length(split_part({self.x}, '.', 2))"

    # --- what to ask ------------------------------------------------------------------------------

    def first_asks(self) -> Iterator[Ask]:
        """Ask which forms the values have, and how far they reach."""
        yield "present", f"count({self.x})"
        yield "missing", f"count(*) - count({self.x})"
        for form in self._forms:
            yield f"{form.type} misfits", f"count(*) FILTER ({form.misfits(self.x)})"
            if form.type not in _KEYLESS:
                key = f"year({form.key_of(self.x)})" if form.has_years else form.key_of(self.x)
                yield f"{form.type} low", f"min({key})"
                yield f"{form.type} high", f"max({key})"
            if form.type == "decimal":
                yield "scale", f"max({self._decimals}) FILTER ({form.fits.replace('{x}', self.x)})"
        if self._is_text:
            yield "bytes", f"max(strlen({self.x}))"
            yield "distinct", f"approx_count_distinct({self.x})"

    def decide(self) -> None:
        """Choose the narrowest form that all values have, a length for texts, and bounds for keys."""
        present = self.found["present"]
        if not present:
            return
        fitting = [form for form in self._forms if not self.found[f"{form.type} misfits"]]
        self.form = fitting[0] if fitting else None
        tried = self._forms[: self._forms.index(self.form)] if self.form is not None else self._forms
        nearly = [form for form in tried if self.found[f"{form.type} misfits"] * 2 < present]
        self.narrower = min(nearly, key=lambda form: self.found[f"{form.type} misfits"], default=None)
        if self.form is None and self._is_text:
            self.size = next((size for size in _SIZES if size >= self.found["bytes"]), MAX_BYTES)
            self.may_be_category = self.found["distinct"] <= min(2 * _MOST_CATEGORIES, present // _ROWS_EACH)
        elif self.form is not None and self.form.type not in _KEYLESS:
            kind, scale = self._kind_and_scale(self.form)
            low, high = self.found[f"{self.form.type} low"], self.found[f"{self.form.type} high"]
            self.proposal = propose_domain(kind, low, high, scale)

    def _kind_and_scale(self, form: Form) -> tuple[str, int]:
        return form.type.partition("(")[0].strip(), self.found["scale"] if form.type == "decimal" else form.scale

    def second_asks(self) -> Iterator[Ask]:
        """Ask which rows force what was decided."""
        if self.narrower is not None:
            yield from self._asks("narrower", self.narrower.misfits(self.x))
        if self.form is not None and self.form.type == "decimal":
            yield from self._asks("decimals", f"{self._decimals} = {self.found['scale']}")
        if self.form is None and self._is_text and self.size > _SIZES[0]:
            yield from self._asks("length", f"strlen({self.x}) > {self.size // 2}")
        if self.may_be_category:
            yield "values", f"histogram({self.x})"
        if self.proposal is not None and self.form is not None:
            for number, (condition, _) in enumerate(self.proposal.forces):
                yield from self._asks(f"force {number}", condition.replace("{k}", f"({self.form.key_of(self.x)})"))

    def _asks(self, name: str, condition: str) -> Iterator[Ask]:
        yield f"{name} count", f"count(*) FILTER ({condition})"
        yield f"{name} rows", f"min(row, {_SHOWN_ROWS}) FILTER ({condition})"

    # --- what to say ------------------------------------------------------------------------------

    def suggested(self) -> SuggestedColumn:
        _, nullable = split_nullability(self.declared)
        nullable &= self.guessed or self.arrow.nullable
        type_, says, from_rows = self._type()
        column = Column(self.arrow.name, parse_type(type_), nullable)
        there = nullable and not self._is_declared and self.found["present"] > 0 and not self.found["missing"]
        if self._values is not None:
            index, tells = f"category:{type_[len('category(') : -1]}".replace(", ", ","), "the same list"
        elif self.proposal is not None:
            index, tells = self.proposal.domain, "; ".join(self._forced()) or "no row lies outside of it"
        else:
            index, tells = None, ""
        return SuggestedColumn(column, says, from_rows, there, index, tells)

    def _type(self) -> tuple[str, str, bool]:
        """Return the type, what it gives away, and whether any row has a say in it."""
        if self._is_declared:
            return split_nullability(self.declared)[0], "as you declare it", False
        if not self.found["present"]:
            return f"text({DEFAULT_BYTES})", "no row has a value: say what it is to hold", True
        if self._values is not None:
            rarest = min(self._values.values())
            types = parse_type(_category(self._values)).declaration
            return types, f"lists every value that occurs; the rarest is in {_counted(rarest)}", True
        if self.form is None:
            return f"text({self.size})", self._nearly() + self._length(), True
        return self._formed(self.form)

    def _formed(self, form: Form) -> tuple[str, str, bool]:
        if form.type == "decimal":
            scale = self.found["scale"]
            says = f"{self._rows('decimals')} with {scale} decimals, none with more"
            return f"decimal(18,{scale})", self._nearly() + says, True
        if not self.guessed and len(self._forms) == 1:
            return form.type, "the source's own type, whatever the rows are", False
        return form.type, self._nearly() + f"no row holds anything but {form.type}", True

    @property
    def _values(self) -> Mapping[str, int] | None:
        """The values of a category and how many rows have each; None if there are too many, or too rare ones."""
        values: Mapping[str, int] | None = self.found.get("values")
        return values if values and len(values) <= _MOST_CATEGORIES else None

    def _nearly(self) -> str:
        if self.narrower is None:
            return ""
        return f"{self._rows('narrower')} cannot be {self.narrower.type.partition('(')[0]}, all others can; "

    def _length(self) -> str:
        if self.size == _SIZES[0]:
            return f"no text is longer than {self.size} bytes"
        return f"{self._rows('length')} longer than {self.size // 2} bytes, none than {self.size}"

    def _forced(self) -> list[str]:
        forces = enumerate(self.proposal.forces if self.proposal is not None else ())
        return [f"{self._rows(f'force {number}')} {words}" for number, (_, words) in forces]

    def _rows(self, name: str) -> str:
        count, rows = self.found[f"{name} count"], self.found[f"{name} rows"] or []
        if count <= _SHOWN_ROWS:
            return f"row{'s' * (count > 1)} " + " and ".join(map(str, rows))
        return f"{count:,} rows"


def _counted(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _category(values: Mapping[str, int]) -> str:
    return f"category({json.dumps(sorted(values))})"
