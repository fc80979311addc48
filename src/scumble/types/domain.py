"""What every key domain promises: keys come in, ranks 0..size-1 go out.

A domain is public, the keys it maps are secret, and so is every rank of a loaded key.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scumble.errors import DomainError, InvalidKeys, InvalidParameter, OutOfDomain

Refused = TypeVar("Refused", InvalidKeys, OutOfDomain)


class Place(NamedTuple):
    """Where a key stands: what it is called, its row if it has one, and whether it is a bound of a query."""

    subject: str
    row: int | None = None
    query: bool = False

    def at(self, row: int) -> "Place":
        """Return the same place in a given row."""
        return Place(self.subject, row, self.query)

    def refused(self, kind: type[Refused], trouble: str, hint: str) -> Refused:
        """Build the error for the key that stands here: the subject, its row, and what is wrong with it."""
        subject = "the key" if self.row is not None and self.subject == "the keys" else self.subject
        return kind(trouble, hint=hint, row=self.row, subject=subject)


def is_null(place: Place) -> InvalidKeys:
    """Build the error for a missing key."""
    if place.query:
        return place.refused(InvalidKeys, " is null", "pass None itself for an open-ended query")
    return place.refused(InvalidKeys, " is null", "drop or fill the nulls first: a null has no rank")


def is_nan(place: Place) -> InvalidKeys:
    """Build the error for a key that is not a number."""
    return place.refused(InvalidKeys, " is NaN", "drop or fill the NaNs first: a NaN has no rank")


def wrong_type(place: Place, found: str, label: str, takes: str) -> InvalidKeys:
    """Build the error for a key of a type that the domain cannot map."""
    return place.refused(InvalidKeys, f": {found} is not what the domain {label} maps", f"it takes {takes}")


def unreadable(place: Place, form: str) -> InvalidKeys:
    """Build the error for text that should spell a key and does not."""
    return place.refused(InvalidKeys, f" is text that does not read as {form}", "correct or drop that row")


def too_coarse(place: Place, label: str) -> InvalidKeys:
    """Build the error for a float so large that neighbouring grid points look the same."""
    trouble = f" is a float too large to tell neighbours on the grid of {label} apart"
    return place.refused(InvalidKeys, trouble, "pass Decimal, text or Arrow decimals, which are exact")


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


def uneven(lows: int, highs: int) -> InvalidKeys:
    """Build the error for two columns of bounds that do not pair up."""
    return InvalidKeys(
        f"{lows} lower bounds do not pair up with {highs} upper bounds", hint="pass columns of equal length"
    )


EMPTY = (0, -1)
"""The canonical span of a query that no rank answers."""

MAX_SIZE = 2**26
"""A domain with more keys than this gets a coarser public step: `width` keys share a rank."""

SHOWN = 60  # characters of a domain's text that an error message shows


class DomainPartError(DomainError):
    """A domain that cannot be, and which part of its text is to blame; `parse_domain` underlines it."""

    def __init__(self, part: str, message: str, *, hint: str | None = None, item: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.part = part
        self.item = item


class Domain(ABC):
    """A public, exact, monotone map from keys to the ranks 0..size-1."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of ranks, N."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The canonical text, which `parse_domain` reads back to an equal domain."""

    @property
    def is_list(self) -> bool:
        """Whether the domain carries an explicit public list, so that its text can be long."""
        return False

    @property
    def width(self) -> int:
        """How many neighbouring steps share one rank: 1 unless the domain is larger than `MAX_SIZE`."""
        return 1

    @abstractmethod
    def rank(self, key: object) -> int:
        """Return the rank of one key; raise `OutOfDomain` or `InvalidKeys`."""

    @abstractmethod
    def ranks(self, keys: object) -> NDArray[np.int64]:
        """Return the rank of every key of a numpy, Arrow or pandas column, a sequence or a scalar."""

    @abstractmethod
    def span(self, low: object, high: object) -> tuple[int, int]:
        """Return the first and last rank of the query low <= key <= high, clipped; None is open-ended.

        A query that no rank answers gives `(0, -1)`.
        """

    @abstractmethod
    def spans(self, lows: object, highs: object) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return `span` for many queries at once.

        None in place of a whole column is open-ended; a null inside a column is refused, since there it is
        more often missing data than an open end.
        """

    @abstractmethod
    def key(self, rank: int) -> object:
        """Return the smallest key of a rank."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.label}>"

    @property
    def label(self) -> str:
        """The text, cut to what fits in a message."""
        text = self.text
        return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."

    def _checked_rank(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise InvalidParameter(
                f"there is no such rank in the domain {self.label}", hint=f"ranks are 0 to {self.size - 1}"
            )
        return int(rank)


KEY = Place("the key")
KEYS = Place("the keys")
LOW = Place("the lower bound", query=True)
HIGH = Place("the upper bound", query=True)
