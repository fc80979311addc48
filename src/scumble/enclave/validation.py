"""Validation: every word of a batch is held against its column's public type, and every rank against its domain.

Rows are SECRET, and so is which of them is wrong, and in what: all of them take the same way through the same kernels,
and fold into two row numbers. Out of those comes one bit at the end, whether the whole batch is taken, which is public.
Nobody need trust whoever sent the rows: an owner's queries find no word that its types do not have.
"""

from collections.abc import Sequence

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.kernels import Mask, Words
from scumble.errors import BadRows, InvalidParameter
from scumble.types import ColumnType, Domain, GridRule, Interval, RankRule, Schema, rank_rule
from scumble.wire.requests import IndexOrder, RowLayout

__all__ = ["ColumnCheck", "RankCheck", "RowCheck", "bounds_of", "rule_of", "rules_of"]

BLOCK_ROWS = 1 << 13  # looked at at a time, so that columns stay in the cache
_ZERO = np.zeros((1, 2), np.int64)
_TOP = np.int64(-(1 << 63))


def rules_of(schema: Schema, orders: Sequence[IndexOrder]) -> tuple[tuple[int, RankRule], ...]:
    """Each index's column, and how its ranks follow from that; InvalidParameter if a domain does not fit its column."""
    names = [order.attribute for order in orders]
    if len(set(names)) < len(names) or any(schema[name].name != name for name in names):
        raise InvalidParameter("a column is indexed twice, or under another name", hint="name each column once")
    return tuple(rule_of(schema, order.attribute, order.domain) for order in orders)


def rule_of(schema: Schema, attribute: str, domain: Domain) -> tuple[int, RankRule]:
    """A column's place, and how the ranks of a domain follow from its words."""
    return schema.place(attribute), rank_rule(schema[attribute].type, domain)


class RowCheck:
    """SECRET: what the rows so far can be. Real rows come first, each with the words of its types; dummies follow."""

    def __init__(self, layout: RowLayout, rules: Sequence[tuple[int, RankRule]]) -> None:
        self._layout = layout
        self._rows, self._ends = 0, kernels.no_ends()
        self._dummy = np.zeros((1, 2, layout.words), np.int64)
        self._dummy[:, :, layout.key_offset :] = layout.dummy_keys()
        self._columns = [ColumnCheck(column.type) for column in layout.schema]
        self._ranks = [(place, RankCheck(rule)) for place, rule in rules]
        self._bits = _fixed_bits(layout)

    def look_at(self, batch: Words) -> None:
        """Look at further rows, [n, words]."""
        for at in range(0, len(batch), BLOCK_ROWS):
            block = batch[at : at + BLOCK_ROWS]
            kernels.fold_rows(self._real(block), kernels.mask_intervals(block, self._dummy), self._rows, self._ends)
            self._rows += len(block)

    def settle(self, least: int, most: int) -> None:
        """Refuse the batch unless it is r real rows and then dummies, for some r from least to most.

        After the last row comes one that cannot be real, or r could be more than there are.
        """
        ends = self._ends.copy()
        kernels.fold_rows(np.zeros(1, np.uint8), np.full(1, 1, np.uint8), self._rows, ends)
        if not kernels.rows_agree(ends, least, most):
            raise BadRows("a row does not fit the table's types or indexes", hint="load rows as Scumble encodes them")

    def _real(self, block: Words) -> Mask:
        """1 for the rows that have the words of a real row."""
        layout = self._layout
        fits = np.full(len(block), 1, np.uint8)
        for word, (ones, free) in enumerate(self._bits):
            bits = block[:, layout.validity_offset + word]
            fits &= kernels.mask_intervals((bits ^ ones) & ~free, _ZERO)
        columns = []
        for place, (check, offset) in enumerate(zip(self._columns, layout.column_offsets, strict=True)):
            x = np.ascontiguousarray(block[:, offset : offset + check.words])
            valid = self._validity(block, place) if self._bits else None
            fits &= check.fits(x, valid)
            columns.append((x, valid))
        for index, (place, ranks) in enumerate(self._ranks):
            fits &= ranks.fits(np.ascontiguousarray(block[:, layout.key_offset + index]), *columns[place])
        return fits

    def _validity(self, block: Words, place: int) -> Mask:
        bits = block[:, self._layout.validity_offset + place // 64]
        return ((bits >> (place % 64)) & 1).astype(np.uint8)


class ColumnCheck:
    """PUBLIC: which words the values of a type have."""

    def __init__(self, type_: ColumnType) -> None:
        self._type, self.words = type_, type_.words
        self._bounds = bounds_of(type_.word_intervals)
        self._null = bounds_of([((0,) * self.words, (0,) * self.words)])

    def fits(self, x: Words, valid: Mask | None) -> Mask:
        """1 where the words are those of a value or, all 0, of a null."""
        value = kernels.mask_intervals(x, self._bounds)
        if self._type.max_bytes:
            value &= kernels.check_text(x, self._type.max_bytes, utf8=self._type.is_text)
        if self._type.is_single:
            value &= kernels.check_single(x)
        return _chosen(value, kernels.mask_intervals(x, self._null), valid)


class RankCheck:
    """PUBLIC: which ranks go with which words. A null's is the domain's size."""

    def __init__(self, rule: RankRule) -> None:
        self._rule, self.size = rule, rule.size
        self._null = bounds_of([((rule.size,), (rule.size,))])
        self._any = bounds_of([((0,), (rule.size - 1,))])
        listed = () if isinstance(rule, GridRule) else rule.intervals or ()
        self._listed = [(bounds_of([words]), bounds_of([((rank,), (rank,))])) for rank, words in enumerate(listed)]

    def fits(self, ranks: Words, x: Words, valid: Mask | None) -> Mask:
        """1 where a rank is that of the words."""
        if isinstance(self._rule, GridRule):
            words, fit = _one_word(x)
            right = kernels.check_grid(words, ranks, self._rule) & fit
        elif self._listed:
            right = np.full(len(ranks), 0, np.uint8)
            for words, rank in self._listed:
                right |= kernels.mask_intervals(x, words) & kernels.mask_intervals(ranks, rank)
        else:
            right = kernels.mask_intervals(ranks, self._any)
        return _chosen(right, kernels.mask_intervals(ranks, self._null), valid)

    @property
    def can_rank(self) -> bool:
        """Whether the enclave can find the ranks of words by itself."""
        return isinstance(self._rule, GridRule) or bool(self._listed)

    def ranks(self, x: Words) -> tuple[Words, Mask]:
        """The ranks of words, and 1 where they have one."""
        if isinstance(self._rule, GridRule):
            words, fit = _one_word(x)
            words = np.ascontiguousarray(words).reshape(-1)
            found = kernels.grid_ranks(words, self._rule)
            return found, kernels.check_grid(words, found, self._rule) & fit
        found, right = np.zeros(len(x), np.int64), np.zeros(len(x), np.uint8)
        for rank, (words, _) in enumerate(self._listed):
            here = kernels.mask_intervals(x, words)
            found += here * np.int64(rank)
            right |= here
        return found, right


def _one_word(x: Words) -> tuple[Words, Mask]:
    """Numbers of one word, or of two (types/wide.py) as their lower halves; and 1 where these are the numbers."""
    if x.shape[1] == 1:
        return x, np.full(len(x), 1, np.uint8)
    lower = x[:, 1] ^ _TOP
    return lower, kernels.mask_intervals((lower >> 63) ^ x[:, 0], _ZERO)


def _chosen(present: Mask, absent: Mask, valid: Mask | None) -> Mask:
    """The first where there is a value, the second where there is none."""
    if valid is None:
        return present
    chosen: Mask = (present & valid) | (absent & ~valid)
    return chosen


def bounds_of(intervals: Sequence[Interval]) -> Words:
    """Intervals as the kernels take them."""
    words = len(intervals[0][0])
    out = np.empty((len(intervals), 2, words), np.int64)
    for place, (low, high) in enumerate(intervals):
        out[place, 0], out[place, 1] = low, high
    return out


def _fixed_bits(layout: RowLayout) -> list[tuple[np.int64, np.int64]]:
    """For each word of validity bits: those that have to be 1, and those that may be either; the others are 0."""
    words = layout.key_offset - layout.validity_offset
    fixed = []
    for columns in (layout.schema.columns[64 * word : 64 * word + 64] for word in range(words)):
        ones = sum(1 << place for place, column in enumerate(columns) if not column.nullable)
        free = sum(1 << place for place, column in enumerate(columns) if column.nullable)
        fixed.append((_signed(ones), _signed(free)))
    return fixed


def _signed(bits: int) -> np.int64:
    return np.int64(bits - (bits >> 63 << 64))
