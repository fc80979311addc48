"""Building runs: the rows of a load come in, sorted sealed copies of them go out, each with its private index.

Rows are SECRET until they are sealed; the runs' catalog entries are public, and all that they say of the rows is in
their indexes. For each indexed attribute: sort obliviously by its key, count obliviously, learn the index, seal the
columns page by page. The owner has spent and drawn each index's budget before the rows got here.
"""

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from scumble.boundary.catalog import Run, Table
from scumble.boundary.orders import IndexOrder
from scumble.boundary.rows import RowLayout
from scumble.boundary.storage import Storage
from scumble.enclave import kernels
from scumble.enclave.keys import DataKeys
from scumble.enclave.pages import RunWriter
from scumble.enclave.sorting import Rows
from scumble.errors import InvalidParameter
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.model import IndexModel
from scumble.privacy.ledger import Ledger

__all__ = ["Load"]

SEALED_ROWS = 1 << 16  # so many rows are turned into pages at a time

Words = NDArray[np.int64]


class Load:
    """SECRET: rows on their way into a table."""

    def __init__(
        self,
        storage: Storage,
        table: Table,
        orders: tuple[IndexOrder, ...],
        page_rows: int,
        memory_bytes: int,
        batch: str,
    ) -> None:
        self.batch = batch
        self._storage, self.table, self._orders, self._page_rows = storage, table, orders, page_rows
        self._layout = RowLayout(table.schema, tuple(order.domain.size for order in orders))
        # Two chunks are merged at a time, and a third is being read or written.
        chunk_rows = memory_bytes // (24 * self._layout.words) // page_rows * page_rows
        self._rows = Rows(storage, self._layout.words, max(chunk_rows, page_rows))
        self._capacity = 0
        self._writers: list[RunWriter] = []

    def append(self, rows: memoryview) -> None:
        """Take a batch of rows, laid out as boundary/rows.py says."""
        self._rows.append(np.frombuffer(rows, np.int64).reshape(-1, self._layout.words))

    def reserve(self, keys: DataKeys, capacity: int) -> None:
        """Make room for the runs; `capacity`, public, is how many rows were sent, dummies included.

        What can fail here, such as a full disk, fails before the owner draws the indexes' budgets.
        """
        if len(self._rows) != capacity or capacity % self._page_rows:
            raise InvalidParameter("the rows do not fill the capacity", hint="send dummy rows to the end of a page")
        self._capacity = capacity
        pages = capacity // self._page_rows
        self._writers = [
            RunWriter(self._storage, keys, self.table, os.urandom(16).hex(), pages, self._page_rows)
            for _ in self._orders or (None,)
        ]

    def build(self) -> tuple[Run, ...]:
        """Make the runs."""
        if not self._orders:
            return (self._seal(self._writers[0], None, None),)
        runs = []
        for place, (order, writer) in enumerate(zip(self._orders, self._writers, strict=True)):
            key_word = self._layout.key_offset + place
            self._rows.sort(key_word)
            index = self._learn(order, key_word)
            runs.append(self._seal(writer, order.attribute, index))
        return tuple(runs)

    def _learn(self, order: IndexOrder, key_word: int) -> IndexModel:
        """Count the sorted keys at or below each rank, and release the index. Cost: what the owner has drawn."""
        cumulative = np.zeros(order.domain.size, np.int64)
        for chunk in self._rows.chunks():
            cumulative += kernels.cumulative_counts(np.ascontiguousarray(chunk[:, key_word]), order.domain.size)
        counts = np.diff(cumulative, prepend=0)
        paid = Ledger(order.epsilon, delta_limit=order.delta).spend(
            order.epsilon, order.attribute, delta=order.delta, rows_per_user=order.rows_per_user
        )
        index = DPPLRIndex(max_bytes=order.max_bytes, slack=order.slack)
        index.fit_counts(counts, domain=order.domain, budget=paid, beta=order.beta, capacity=self._capacity)
        return index.model

    def _seal(self, writer: RunWriter, attribute: str | None, index: IndexModel | None) -> Run:
        for first_page, rows in self._pieces():
            for place, column in enumerate(self.table.schema):
                offset = self._layout.column_offsets[place]
                words = rows[:, offset] if column.type.words == 1 else rows[:, offset : offset + column.type.words]
                writer.write(place, first_page, words, self._validity(rows, place) if column.nullable else None)
        return Run(writer.run, self.batch, attribute, self._capacity, self._page_rows, index, writer.finish())

    def _pieces(self) -> Iterator[tuple[int, Words]]:
        step = max(1, SEALED_ROWS // self._page_rows) * self._page_rows
        first = 0
        for chunk in self._rows.chunks():
            for at in range(0, len(chunk), step):
                piece = chunk[at : at + step]
                yield first // self._page_rows, piece
                first += len(piece)

    def _validity(self, rows: Words, column: int) -> NDArray[np.uint8]:
        bits = rows[:, self._layout.validity_offset + column // 64]
        return ((bits >> (column % 64)) & 1).astype(np.uint8)
