"""Why a key or a query bound was refused, as errors that never show it.

What comes in is where the key stood, what goes out is an error for its owner: it names the row, the kind of
trouble and the public domain, and no key.
"""

from typing import NamedTuple

from scumble.errors import InvalidKeys, OutOfDomain


class Place(NamedTuple):
    """Where a key stands: what it is called, its row if it has one, and whether it is a bound of a query."""

    subject: str
    row: int | None = None
    query: bool = False

    def at(self, row: int) -> "Place":
        """Return the same place in a given row."""
        return Place(self.subject, row, self.query)

    def __str__(self) -> str:
        subject = "the key" if self.row is not None and self.subject == "the keys" else self.subject
        return subject if self.row is None else f"{subject} in row {self.row}"


def is_null(place: Place) -> InvalidKeys:
    """Build the error for a missing key."""
    if place.query:
        return InvalidKeys(f"{place} is null", hint="pass None itself for an open-ended query")
    return InvalidKeys(f"{place} is null", hint="drop or fill the nulls first: a null has no rank")


def is_nan(place: Place) -> InvalidKeys:
    """Build the error for a key that is not a number."""
    return InvalidKeys(f"{place} is NaN", hint="drop or fill the NaNs first: a NaN has no rank")


def wrong_type(place: Place, found: str, label: str, takes: str) -> InvalidKeys:
    """Build the error for a key of a type that the domain cannot map."""
    return InvalidKeys(f"{place}: {found} is not what the domain {label} maps", hint=f"it takes {takes}")


def unreadable(place: Place, form: str) -> InvalidKeys:
    """Build the error for text that should spell a key and does not."""
    return InvalidKeys(f"{place} is text that does not read as {form}", hint="correct or drop that row")


def too_coarse(place: Place, label: str) -> InvalidKeys:
    """Build the error for a float so large that neighbouring grid points look the same."""
    return InvalidKeys(
        f"{place} is a float too large to tell neighbours on the grid of {label} apart",
        hint="pass Decimal, text or Arrow decimals, which are exact",
    )


def outside(place: Place, label: str) -> OutOfDomain:
    """Build the error for a key beyond the bounds of its domain."""
    return OutOfDomain(f"{place} is outside the domain {label}", hint="widen the domain, or drop that row")


def off_grid(place: Place, label: str) -> OutOfDomain:
    """Build the error for a key between two grid points of its domain."""
    return OutOfDomain(
        f"{place} lies between two steps of the domain {label}",
        hint="use a finer step, or round the keys first",
    )


def unlisted(place: Place, label: str) -> OutOfDomain:
    """Build the error for a key that is not in the domain's list."""
    return OutOfDomain(f"{place} is not in the list of the domain {label}", hint="add it to the list, or drop that row")


def uneven(lows: int, highs: int) -> InvalidKeys:
    """Build the error for two columns of bounds that do not pair up."""
    return InvalidKeys(
        f"{lows} lower bounds do not pair up with {highs} upper bounds", hint="pass columns of equal length"
    )
