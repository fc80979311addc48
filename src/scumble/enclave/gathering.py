"""Rows of runs that are there, read back as a load would have sent them: to build other runs of them.

All of it is SECRET but which pages are read, which is all of them. Ranks are worked out here, from the words of the
keys: a row that has none in the domain, since nobody looked when it was inserted, is found out, and nothing is built.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.kernels import Mask, Words
from scumble.enclave.pages import FetchedColumn, blanked
from scumble.enclave.queries import Batch, pieces
from scumble.enclave.validation import RankCheck
from scumble.enclave.versions import OpenVersion
from scumble.errors import BadRows, InvalidParameter
from scumble.types import RankRule
from scumble.wire.catalog import Run, Table
from scumble.wire.plan import COUNT
from scumble.wire.requests import RowLayout

__all__ = ["Gathering"]

GATHERED_ROWS = 1 << 16  # at a time
_COUNT = kernels.CODES[COUNT]
_ONE = np.uint8(1)


class Gathering:
    """SECRET: rows on their way out of runs: words as `layout` has them, and with `live` one more, 1 for rows alive.

    Without it, rows that were deleted are dummies. `rules` say how each index's ranks follow from a column's words.
    """

    def __init__(
        self,
        version: OpenVersion,
        table: Table,
        layout: RowLayout,
        rules: Sequence[tuple[int, RankRule]],
        *,
        live: bool,
    ) -> None:
        self._version, self._table, self._layout, self._live = version, table, layout, live
        self._checks = [(place, RankCheck(rule)) for place, rule in rules]
        if not all(check.can_rank for _, check in self._checks):
            raise InvalidParameter(
                "the enclave cannot find the ranks of this domain by itself",
                hint="load the rows again: ranks of long lists, and of floats on a decimal grid, come from the owner",
            )
        self._right = np.full(1, 1, np.uint8)
        self._counted = np.zeros(1, np.int64)

    @property
    def words(self) -> int:
        return self._layout.words + self._live

    @property
    def real_rows(self) -> Words:
        """One word: how many rows there are so far that are no dummies."""
        return self._counted

    def rows_of(self, run: Run) -> Iterator[Words]:
        """The rows of a run, dummies among them wherever they lie; each piece is good until the next."""
        reader, dummies = self._version.reader(run.id)
        places = self._table.held(run)
        for first, count in pieces([(0, run.pages)], max(1, GATHERED_ROWS // run.page_rows)):
            batch = Batch(reader, first, count, places, dummies)
            alive = batch.alive()
            there = batch.real() if self._live else alive
            rows = np.zeros((batch.rows, self.words), np.int64)
            for place in places:
                self._put(rows, place, batch.column(place), there)
            for index, (place, check) in enumerate(self._checks):
                rows[:, self._layout.key_offset + index] = self._ranks(check, batch.column(place), there)
            if self._live:
                rows[:, -1] = alive
            kernels.aggregate(_COUNT, None, there, None, None, self._counted)
            yield rows

    def check(self) -> None:
        """BadRows if the key of some row is not in its index's domain: which one it is, nobody learns."""
        if not kernels.is_set(self._right):
            raise BadRows(
                "a row's key is not in the domain of an index", hint="find it with a query; update or delete it"
            )

    def _put(self, rows: Words, place: int, column: FetchedColumn, there: Mask) -> None:
        offset, width = self._layout.column_offsets[place], self._table.schema.columns[place].type.words
        words = blanked(column.words, there if column.valid is None else there & column.valid)
        rows[:, offset : offset + width] = words.reshape(len(rows), width)
        if self._layout.key_offset > self._layout.validity_offset:
            valid = there if column.valid is None else there & column.valid
            rows[:, self._layout.validity_offset + place // 64] |= valid.astype(np.int64) << (place % 64)

    def _ranks(self, check: RankCheck, column: FetchedColumn, there: Mask) -> Words:
        """The ranks of keys: a null's is the domain's size, a dummy's one more."""
        ranks, fit = check.ranks(column.words.reshape(len(there), -1))
        valid = there if column.valid is None else there & column.valid
        self._right &= np.bitwise_and.reduce(fit | (valid ^ _ONE), keepdims=True)
        size = np.int64(check.size)
        keyed = valid.astype(np.int64)
        found: Words = (ranks & -keyed) + (size & (keyed - 1)) + (there ^ _ONE)
        return found
