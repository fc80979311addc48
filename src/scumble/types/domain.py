"""Key domains: the public, exact maps from keys to ranks 0..size-1, and their texts, `int:0:1000`.

Here are what every domain promises, the errors for keys that have no rank, and `parse_domain`; the domains themselves
lie with the column types whose keys they map. The keys are secret, and so is every rank of a loaded key: an error
names the row and the kind of trouble, and never shows a key. In a domain's text, which is public, it underlines what is
wrong.
"""

import json
import re
from abc import ABC, abstractmethod
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble.errors import DomainError, InvalidKeys, InvalidParameter, OutOfDomain
from scumble.types.keys import HIGH, KEY, KEYS, LOW, KeyColumn, Place, read_column

if TYPE_CHECKING:
    from scumble.types.column import ColumnType


def is_nan(place: Place) -> InvalidKeys:
    """Build the error for a key that is not a number."""
    return place.refused(InvalidKeys, " is NaN", "drop or fill the NaNs first: a NaN has no rank")


def unreadable(place: Place, form: str) -> InvalidKeys:
    """Build the error for text that should spell a key and does not."""
    return place.refused(InvalidKeys, f" is text that does not read as {form}", "correct or drop that row")


def outside(place: Place, label: str) -> OutOfDomain:
    """Build the error for a key beyond the bounds of its domain."""
    return place.refused(OutOfDomain, f" is outside the domain {label}", "widen the domain, or drop that row")


def off_grid(place: Place, label: str) -> OutOfDomain:
    """Build the error for a key between two grid points of its domain."""
    trouble = f" lies between two steps of the domain {label}"
    return place.refused(OutOfDomain, trouble, "use a finer step, or round the keys first")


def unlisted(place: Place, label: str) -> OutOfDomain:
    """Build the error for a key that is not in the domain's list."""
    trouble = f" is not in the list of the domain {label}"
    return place.refused(OutOfDomain, trouble, "add it to the list, or drop that row")


Ranks = NDArray[np.int64]

EMPTY = (0, -1)
"""The canonical span of a query that no rank answers."""

MAX_SIZE = 2**26
"""A domain with more keys than this gets a coarser public step: `width` keys share a rank."""

_SHOWN = 60  # characters of a domain's text that an error message shows
_BESIDE = 24  # and on either side of a mistake in a long text


class DomainPartError(DomainError):
    """A domain that cannot be, and which part of its text is to blame; `parse_domain` underlines it."""

    def __init__(self, part: str, message: str, *, hint: str | None = None, item: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.part = part
        self.item = item


class Part(NamedTuple):
    """One field of a domain's text: its name, what it looks like, and what it is not when it doesn't."""

    name: str
    title: str
    form: re.Pattern[str]
    kind: str
    field: re.Pattern[str] = re.compile(r"[^:]*")  # how far it reaches, where it may hold colons itself
    optional: bool = False


TITLES = {"low": "the lower bound", "high": "the upper bound", "step": "the step"}


def number_parts(form: re.Pattern[str], kind: str, *, optional_step: bool = False) -> tuple[Part, ...]:
    """Return the parts of `LOW:HIGH:STEP`."""
    return tuple(
        Part(name, title, form, kind, optional=optional_step and name == "step") for name, title in TITLES.items()
    )


def check_bounds(low: Any, high: Any, step: Any, step_hint: str) -> None:
    """Refuse numbers that are no bounds and step of a domain."""
    if step <= 0:
        raise DomainPartError("step", "the step is not positive", hint=step_hint)
    if high < low:
        raise DomainPartError("high", "the upper bound is below the lower bound", hint="swap the bounds")


class Domain(ABC):
    """A public, exact, monotone map from keys to the ranks 0..size-1."""

    name: ClassVar[str]  # the kind, with which the text starts
    parts: ClassVar[tuple[Part, ...]] = ()  # what follows it; none for a list in JSON
    example: ClassVar[str]
    takes: ClassVar[str]  # the types of key that it maps, for messages
    is_list: ClassVar[bool] = False  # whether it carries an explicit public list, so that its text can be long

    @classmethod
    def of_parts(cls, *parts: Any) -> "Domain":
        """Build the domain from the parts of its text, or from its list."""
        return cls(*parts)

    @property
    @abstractmethod
    def cell_type(self) -> str:
        """The column type that holds every key, as which a file's cells are read; nothing if there is none."""

    @property
    def column_type(self) -> "ColumnType | None":
        """The type of every column that the domain indexes, if it says so."""
        return None

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of ranks, N."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The canonical text, which `parse_domain` reads back to an equal domain."""

    @property
    def width(self) -> int:
        """How many neighbouring steps share one rank: 1 unless the domain is larger than `MAX_SIZE`."""
        return 1

    def rank(self, key: object) -> int:
        """Return the rank of one key; raise `OutOfDomain` or `InvalidKeys`."""
        return self._rank_of(self._exact(key, KEY), KEY)

    def ranks(self, keys: object) -> Ranks:
        """Return the rank of every key of a numpy, Arrow or pandas column, a sequence or a scalar."""
        column = read_column(keys, KEYS)
        ranks = self._column_ranks(column)
        if ranks is not None:
            return ranks
        places = ((key, KEY.at(row)) for row, key in enumerate(column.keys()))
        return np.array([self._rank_of(self._exact(key, place), place) for key, place in places], np.int64)

    def span(self, low: object, high: object) -> tuple[int, int]:
        """Return the first and last rank of the query low <= key <= high, clipped; None is open-ended.

        A query that no rank answers gives `(0, -1)`.
        """
        return self._span_of(
            None if low is None else self._exact(low, LOW), None if high is None else self._exact(high, HIGH)
        )

    def spans(self, lows: object, highs: object) -> tuple[Ranks, Ranks]:
        """Return `span` for many queries at once.

        None in place of a whole column is open-ended; a null inside a column is refused, since there it is
        more often missing data than an open end.
        """
        low = None if lows is None else read_column(lows, LOW)
        high = None if highs is None else read_column(highs, HIGH)
        if low is None and high is None:
            return np.array([0]), np.array([self.size - 1])
        if low is not None and high is not None and len(low) != len(high):
            raise InvalidKeys(
                f"{len(low)} lower bounds do not pair up with {len(high)} upper bounds",
                hint="pass columns of equal length",
            )
        spans = self._column_spans(low, high)
        if spans is not None:
            return spans
        count = len(low if low is not None else high or [])
        each_low = [None] * count if low is None else self._each(low, LOW)
        each_high = [None] * count if high is None else self._each(high, HIGH)
        both = np.array(list(map(self._span_of, each_low, each_high)), np.int64).reshape(-1, 2)
        return both[:, 0].copy(), both[:, 1].copy()

    @abstractmethod
    def _exact(self, key: object, place: Place) -> Any:
        """Return a key in the exact form that the domain computes with, or refuse its type."""

    def _each(self, column: KeyColumn, place: Place) -> list[Any]:
        return [self._exact(key, place.at(row)) for row, key in enumerate(column.keys())]

    @abstractmethod
    def _rank_of(self, exact: Any, place: Place) -> int:
        """Return the rank of a key in its exact form, or refuse it."""

    @abstractmethod
    def _span_of(self, low: Any, high: Any) -> tuple[int, int]:
        """Return the span of a query whose bounds are exact, or None for open ends."""

    def _column_ranks(self, column: KeyColumn) -> Ranks | None:
        """Return the ranks of a whole column at once; None if it has to be read key by key."""
        return None

    def _column_spans(self, low: KeyColumn | None, high: KeyColumn | None) -> tuple[Ranks, Ranks] | None:
        """Return the spans between two columns of the same length at once; None if they have to be read key by key."""
        return None

    @abstractmethod
    def key(self, rank: int) -> object:
        """Return the smallest key of a rank."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.label}>"

    @property
    def label(self) -> str:
        """The text, cut to what fits in a message."""
        text = self.text
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."

    def _set(self, **fields: Any) -> None:
        """Set the fields of a frozen domain, once, as it is made."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _wrong_type(self, place: Place, type_name: str) -> InvalidKeys:
        """Build the error for a key or a column of a type that the domain cannot map."""
        trouble = f": {type_name} is not what the domain {self.label} maps"
        return place.refused(InvalidKeys, trouble, f"it takes {self.takes}")

    def _checked_rank(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise InvalidParameter(
                f"there is no such rank in the domain {self.label}", hint=f"ranks are 0 to {self.size - 1}"
            )
        return int(rank)


DOMAINS: dict[str, type[Domain]] = {}


def register_domains(*domains: type[Domain]) -> None:
    """Make domains known to `parse_domain`; hints list them in this order."""
    DOMAINS.update({domain.name: domain for domain in domains})


def parse_domain(text: str) -> Domain:
    """Read a domain from its text; raise `DomainError` with the wrong part underlined."""
    kinds = f"the kinds are {', '.join(DOMAINS)}"
    if not isinstance(text, str):
        raise DomainError("a domain's text is not a string", hint=kinds)
    name, colon, _ = text.partition(":")
    kind = DOMAINS.get(name)
    if kind is None:
        close = get_close_matches(name, DOMAINS, n=1)
        guess = f"did you mean {close[0]}? " if close else ""
        raise _wrong(text, 0, len(name), "there is no such kind of domain", guess + kinds)
    if not colon:
        raise _wrong(text, len(text), len(text) + 1, "nothing follows the kind", f"write {kind.example}")
    return _parse_parts(text, len(name) + 1, kind) if kind.parts else _parse_list(text, len(name) + 1, kind)


def _parse_parts(text: str, start: int, kind: type[Domain]) -> Domain:
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
        return kind.of_parts(*(text[first:last] for first, last in places.values()))
    except DomainPartError as error:
        found_wrong = error
    raise _wrong(text, *places[found_wrong.part], found_wrong.message, found_wrong.hint)


def _parse_list(text: str, start: int, kind: type[Domain]) -> Domain:
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
        return kind.of_parts(listed)
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
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    first = max(0, start - _BESIDE) if len(text) > _SHOWN else 0
    last = min(len(text), start + _BESIDE) if len(text) > _SHOWN else len(text)
    before, after = "..." if first else "", "..." if last < len(text) else ""
    window = "".join(char if char.isprintable() else "?" for char in text[first:last])
    carets = "^" * max(1, min(stop, last) - start)
    indent = " " * (len(before) + start - first)
    return DomainError(
        f"cannot read the domain {shown!r}: {trouble}\n    {before}{window}{after}\n    {indent}{carets}", hint=hint
    )
