"""A batch: some consecutive pages of a run, opened all before any row of them is looked at. SECRET.

So an error that depends on a row, wherever it comes from, changes nothing about what is read.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scumble.boundary.plan import Expression
from scumble.enclave import kernels
from scumble.enclave.pages import FetchedColumn, RunReader
from scumble.enclave.predicates import Evaluate

__all__ = ["Batch"]

Words = NDArray[np.int64]
Mask = NDArray[np.uint8]


class Batch:
    """SECRET: the rows of some pages, and which of them match."""

    mask: Mask

    def __init__(
        self,
        reader: RunReader,
        first_page: int,
        pages: int,
        columns: Sequence[int],
        real_rows: int,
        predicate: Evaluate,
    ) -> None:
        self._columns = {place: reader.fetch(place, first_page, pages) for place in columns}
        self._wide: dict[Expression, Words] = {}
        self._real_rows, self._predicate = real_rows, predicate
        self._first_row = first_page * reader.run.page_rows
        self.rows = pages * reader.run.page_rows

    def match(self, bounds: Words) -> None:
        """Find out which rows match."""
        self.mask = kernels.mask_rows(self._first_row, self.rows, self._real_rows)
        self.mask &= self._predicate(self.column, bounds, self.rows)

    def column(self, place: int) -> FetchedColumn:
        """A column's rows."""
        return self._columns[place]

    def valid(self, columns: frozenset[int]) -> Mask | None:
        """1 where none of the columns is null; None if none of them is nullable."""
        given = [valid for place in sorted(columns) if (valid := self.column(place).valid) is not None]
        if not given:
            return None
        first, *others = given
        for other in others:
            first = first & other
        return first

    def codes(self, columns: tuple[int, ...], sizes: tuple[int, ...]) -> Words:
        """The group of every row: the columns' codes as digits, of which null is the greatest."""
        combined: Words = np.zeros(self.rows, np.int64)
        for place, size in zip(columns, sizes, strict=True):
            fetched = self.column(place)
            code = fetched.words
            if fetched.valid is not None:
                code = code * fetched.valid + (size - 1) * (1 - fetched.valid.astype(np.int64))
            combined = combined * size + code
        return combined

    def wide(self, expression: Expression, overflow: Mask) -> Words:
        """An expression's value for every row, in 128 bits; rows that match and overflow set `overflow`, one byte."""
        known = self._wide.get(expression)
        if known is None:
            known = self._wide[expression] = self._evaluate(expression, overflow)
        return known

    def _evaluate(self, expression: Expression, overflow: Mask) -> Words:
        match expression:
            case ("column", place):
                return kernels.wide_load(self.column(place).words)
            case ("constant", value):
                return kernels.wide_fill(value, self.rows)
        operator, left, right = expression
        kernel = {"+": kernels.wide_add, "-": kernels.wide_subtract, "*": kernels.wide_multiply}[operator]
        return kernel(self.wide(left, overflow), self.wide(right, overflow), self.mask, overflow)
