"""Aggregates: batches of rows come in, words of a fixed number go out, for every group that there could be.

Rows and results are SECRET. Every group is touched for every row; how many groups and aggregates there are is public.
"""

from math import prod

import numpy as np
from numpy.typing import NDArray

from scumble.boundary.plan import Aggregate, Aggregates, Part
from scumble.enclave import kernels
from scumble.enclave.batch import Batch
from scumble.schema import Schema

__all__ = ["Accumulation"]

Words = NDArray[np.int64]

_KERNELS = {
    "count": kernels.COUNT,
    "sum": kernels.SUM,
    "squares": kernels.SQUARES,
    "extremes": kernels.EXTREMES,
    "doubles": kernels.DOUBLES,
    "double_squares": kernels.DOUBLE_SQUARES,
    "wide_sum": kernels.WIDE_SUM,
}


class Accumulation:
    """PUBLIC: which words of the answer each aggregate adds to; made once for a plan."""

    def __init__(self, wanted: Aggregates, schema: Schema) -> None:
        self._group_by, self._sizes = wanted.group_by, wanted.group_sizes(schema)
        self._groups = prod(self._sizes)
        self._rows = slice(1, 1 + self._groups)
        parts, words = wanted.layout(schema)
        self._aggregates = [
            (aggregate, self._words(count), [(part, self._words(part)) for part in others])
            for aggregate, (count, *others) in zip(wanted.aggregates, parts, strict=True)
        ]
        self.answer_bytes = 8 * words
        self._empty = np.zeros(words, np.int64)
        for part in (part for own in parts for part in own if part.kind == "extremes"):
            self._empty[self._words(part)] = kernels.no_extremes(part.words // 2, self._groups).reshape(-1)
        # Where no column read can be null, as many rows count as there are in the group.
        nullable = {place for place, column in enumerate(schema.columns) if column.nullable}
        self._nullable = [aggregate.columns & nullable for aggregate in wanted.aggregates]
        self._all_count = [
            count for (_, count, _), columns in zip(self._aggregates, self._nullable, strict=True) if not columns
        ]

    def begin(self) -> Words:
        """The answer before any row."""
        return self._empty.copy()

    def add(self, batch: Batch, answer: Words) -> None:
        """Add a batch's matching rows to the answer."""
        codes = batch.codes(self._group_by, self._sizes) if self._group_by else None
        mask = batch.mask
        kernels.aggregate(kernels.COUNT, None, mask, None, codes, answer[self._rows])
        for (aggregate, count, parts), nullable in zip(self._aggregates, self._nullable, strict=True):
            valid = batch.valid(nullable) if nullable else None
            if valid is not None:
                kernels.aggregate(kernels.COUNT, None, mask, valid, codes, answer[count])
            for part, place in parts:
                out = answer[place] if codes is None else answer[place].reshape(self._groups, part.words)
                values = _values(batch, aggregate, part, answer)
                kernels.aggregate(_KERNELS[part.kind], values, mask, valid, codes, out)

    def finish(self, answer: Words) -> bytes:
        """The answer after all rows."""
        for count in self._all_count:
            answer[count] = answer[self._rows]
        return answer.tobytes()

    def _words(self, part: Part) -> slice:
        return slice(part.offset, part.offset + part.words * self._groups)


def _values(batch: Batch, aggregate: Aggregate, part: Part, answer: Words) -> Words:
    if aggregate.column is not None:
        return batch.column(aggregate.column).words
    assert aggregate.argument is not None  # noqa: S101  only a count has none, and it has no other parts
    wide = batch.wide(aggregate.argument, answer[:1].view(np.uint8)[:1])
    return kernels.wide_ordered(wide) if part.kind == "extremes" else wide
