"""Round bounds for a column's keys: what `scumble suggest` proposes as the domain of an index.

The least and the greatest key come in, which are SECRET; out come a domain that somebody could have written down
without seeing them, and which keys keep it from being smaller. The owner sees both, and decides what to publish.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from scumble.types import MAX_SIZE

__all__ = ["Proposal", "propose_domain"]

_MOST_DIGITS = 60  # on either side of the point
_MOST_HOURS = 1 << 20
_LEAST_INTEGER = 10


@dataclass(frozen=True)
class Proposal:
    """A domain's text, and what forces its bounds: SQL conditions on a key, {k}, each with words for its rows."""

    domain: str
    forces: tuple[tuple[str, str], ...]


def propose_domain(form: str, low: Any, high: Any, scale: int) -> Proposal | None:
    """Return a domain for keys of a type, from the least key to the greatest; dates and times come as years."""
    make = _MAKERS.get(form)
    return None if make is None or low is None else make(low, high, scale)


def round_up(value: Decimal) -> Decimal:
    """Return the least of 1, 2, 5, 10, 20, 50, ... (and 0.5, 0.2, ...) that is at least a positive number."""
    power = Decimal(1).scaleb(value.adjusted())
    return next(power * first for first in (1, 2, 5, 10) if value <= power * first)


def _below(bound: Decimal) -> Decimal:
    """Return the number before one that `round_up` gave."""
    power = Decimal(1).scaleb(bound.adjusted())
    return {1: power / 2, 2: power, 5: power * 2}[int(bound / power)]


def _rounded(low: Decimal, high: Decimal, least: int = 0) -> tuple[Decimal, Decimal, tuple[tuple[str, str], ...]]:
    """Return bounds around 0, none but 0 itself closer to it than `least`, and what forces them."""
    forces = []
    first = last = Decimal(0)
    if low < 0:
        first = -round_up(max(-low, Decimal(least)))
        if low < (before := -_below(-first)):
            forces.append((f"{{k}} < {before:f}", f"below {before:f}"))
    if high > 0 or low == high == 0:
        last = round_up(max(high, Decimal(least)) or Decimal(1))
        if high > (before := _below(last)):
            forces.append((f"{{k}} > {before:f}", f"above {before:f}"))
    return first, last, tuple(forces)


def _integers(low: Any, high: Any, scale: int) -> Proposal | None:
    least, most, forces = _rounded(Decimal(low), Decimal(high), _LEAST_INTEGER)
    return Proposal(f"int:{least:.0f}:{most:.0f}", forces) if most - least < MAX_SIZE else None


def _decimals(low: Any, high: Any, scale: int) -> Proposal | None:
    unit = Decimal(1).scaleb(-scale)
    least, most, forces = _rounded(Decimal(low), Decimal(high))
    if (most - least) / unit >= MAX_SIZE:
        return None
    return Proposal(f"decimal:{_plain(least)}:{_plain(most)}:{unit:f}", forces)


def _floats(low: Any, high: Any, scale: int) -> Proposal | None:
    least, most, forces = _rounded(Decimal(repr(float(low))), Decimal(repr(float(high))))
    step = Decimal(1).scaleb((most - least).adjusted() - 3)
    fits = all(abs(part.adjusted()) < _MOST_DIGITS for part in (least, most, step) if part)
    return Proposal(f"float:{_plain(least)}:{_plain(most)}:{_plain(step)}", forces) if fits else None


def _decades(low: int, high: int) -> tuple[date, date, tuple[tuple[str, str], ...]] | None:
    """Return whole decades around years, and what forces them."""
    first, last = low - low % 10, high - high % 10 + 9
    if first < 1 or last > 9999:
        return None
    forces: tuple[tuple[str, str], ...] = ()
    if last - first > 10:
        early, late = date(first + 10, 1, 1), date(last - 9, 1, 1)
        forces = (f"{{k}} < '{early}'", f"before {early.year}"), (f"{{k}} >= '{late}'", f"in {late.year} or later")
    return date(first, 1, 1), date(last, 12, 31), forces


def _dates(low: Any, high: Any, scale: int) -> Proposal | None:
    found = _decades(low, high)
    return found and Proposal(f"date:{found[0]}:{found[1]}", found[2])


def _timestamps(low: Any, high: Any, scale: int) -> Proposal | None:
    found = _decades(low, high)
    if found is None:
        return None
    first, last, forces = found
    unit = "1h" if ((last - first).days + 1) * 24 <= _MOST_HOURS else "1d"
    return Proposal(f"timestamp:{first}T00:00:00:{last}T23:59:59:{unit}", forces)


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_MAKERS: dict[str, Callable[[Any, Any, int], Proposal | None]] = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint"), _integers),
    **dict.fromkeys(("utinyint", "usmallint", "uinteger", "ubigint"), _integers),
    "decimal": _decimals,
    **dict.fromkeys(("float", "double"), _floats),
    "date": _dates,
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz"), _timestamps),
}
