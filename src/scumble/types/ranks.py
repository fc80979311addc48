"""What an enclave checks of loaded words without their values: which rank goes with which words of a column.

Types, domains and the rules made of them are public; the words and ranks that are held against a rule are secret, and
only oblivious kernels do that. A domain that does not map the values of a type, in their order, is refused here.
"""

from dataclasses import dataclass

import numpy as np

from scumble.errors import InvalidKeys, InvalidParameter
from scumble.types.category import CategoryDomain, CategoryType
from scumble.types.column import ColumnType, Interval
from scumble.types.domain import Domain
from scumble.types.float import FloatDomain, FloatType, float_word, least_float_word
from scumble.types.grid import GridDomain
from scumble.types.integer import IntegerType
from scumble.types.keys import KEYS, Ticks
from scumble.types.listed import ExplicitKeys
from scumble.types.text import StringDomain, TextType

__all__ = ["GridRule", "ListRule", "RankRule", "rank_rule"]

MOST_LISTED = 256
"""Up to so many ranks, each one's words are compared with every row; beyond, a rank need only be one of the domain."""

_WORD = 1 << 64
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class GridRule:
    """PUBLIC: words from least to most; the steps (word - origin) scale + rest, `stride` of them to a rank.

    If the steps have to be a multiple of a number, `inverse` is that of its odd part modulo 2^64, `limit` how often
    that part fits in 2^64 - 1, and `low_bits` what its even part leaves 0. Otherwise they are 1, all bits, and 0.
    """

    size: int
    least: int
    most: int
    origin: int
    scale: int
    rest: int
    stride: int
    inverse: int
    limit: int
    low_bits: int


@dataclass(frozen=True)
class ListRule:
    """PUBLIC: the words of each rank, least and greatest; or None if only that there is such a rank is checked."""

    size: int
    intervals: tuple[Interval, ...] | None


RankRule = GridRule | ListRule


def rank_rule(type_: ColumnType, domain: Domain) -> RankRule:
    """How the ranks of a domain follow from the words of a type; InvalidParameter if the domain does not fit it."""
    if type_.words_are_ranks(domain):
        return GridRule(domain.size, 0, domain.size - 1, 0, 1, 0, 1, 1, _WORD - 1, 0)
    if isinstance(domain, GridDomain):
        return _grid_rule(type_, domain)
    if not _fits(type_, domain):
        raise _unfit(type_, domain)
    return ListRule(domain.size, _intervals(type_, domain) if domain.size <= MOST_LISTED else None)


def _unfit(type_: ColumnType, domain: Domain) -> InvalidParameter:
    return InvalidParameter(
        f"a column of type {type_.label} cannot be indexed by {domain.label}",
        hint="declare another type for the column, or give another domain",
    )


def _grid_rule(type_: ColumnType, domain: GridDomain) -> RankRule:
    if type_.is_float and domain.name == "decimal":  # floats near the grid stand for its points
        return ListRule(domain.size, None)
    if type_.tick is None:
        raise _unfit(type_, domain)
    try:
        ticks = domain._ticks(Ticks(np.zeros(1, np.int64), *type_.tick, type_.label), KEYS)
    except InvalidKeys:
        ticks = None
    if ticks is None:
        raise _unfit(type_, domain)
    grid = domain._grid
    axis = grid.axis(ticks.tick)
    if axis.is_wide:
        return ListRule(domain.size, None)
    least, most = max(axis.least, _LEAST), min(axis.most, _MOST)
    divisor = 1 if grid.binned else axis.step
    if not grid.binned and axis.rest_down != axis.rest_up:  # no multiple of the tick lies on the grid
        least, most = 1, 0
    even = divisor & -divisor
    odd = divisor // even
    return GridRule(
        domain.size,
        least,
        most,
        axis.least % _WORD,
        axis.scale % _WORD,
        axis.rest_down,
        (axis.step << grid.shift) % _WORD,
        pow(odd, -1, _WORD),
        (_WORD - 1) // odd,
        even - 1,
    )


def _fits(type_: ColumnType, domain: Domain) -> bool:
    if isinstance(domain, FloatDomain):
        return type_.is_number
    if isinstance(domain, ExplicitKeys) and isinstance(domain.keys[0], int):
        return isinstance(type_, IntegerType)
    return isinstance(type_, TextType | CategoryType) and type_.is_text


def _intervals(type_: ColumnType, domain: Domain) -> tuple[Interval, ...] | None:
    match domain:
        case FloatDomain() if isinstance(type_, FloatType):
            starts = [least_float_word(domain.key(rank)) for rank in range(domain.size)]
            stops = [*starts[1:], float_word(domain.most) + 1]
            return tuple(((start,), (stop - 1,)) for start, stop in zip(starts, stops, strict=True))
        case StringDomain():
            return tuple(_between(type_, domain.splits, rank) for rank in range(domain.size))
        case ExplicitKeys() | CategoryDomain():
            return tuple(_only(type_, domain.key(rank)) for rank in range(domain.size))
    return None


def _only(type_: ColumnType, key: object) -> Interval:
    try:
        words = type_.words_of(key)
    except InvalidParameter:  # no value of the type
        return type_.empty_interval
    return words, words


def _between(type_: ColumnType, splits: tuple[str, ...], rank: int) -> Interval:
    least, most = type_.full_interval
    above = type_.interval(">=", splits[rank - 1]) if rank else (least, most)
    below = type_.interval("<", splits[rank]) if rank < len(splits) else (least, most)
    if above is None or below is None or type_.empty_interval in (above, below):
        return type_.empty_interval
    return above[0], below[1]
