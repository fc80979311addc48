"""A batch of rows as the words that the enclave gets: values, validity bits and the ranks of indexed columns. SECRET.

Values that fit neither their column nor their domain are refused, with the row and the column but never the value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import BadRows, InvalidKeys, OutOfDomain
from scumble.types import Column, Domain, convert, encode
from scumble.wire.requests import RowLayout

__all__ = ["dummy_rows", "encode_rows"]


def encode_rows(
    batch: Any, layout: RowLayout, indexes: Sequence[tuple[int, Domain]], first_row: int = 1
) -> NDArray[np.int64]:
    """Return the words of a batch's rows, [rows, layout.words].

    `indexes` names the place of each indexed column and its domain, in the layout's order; `first_row` is the number of
    the batch's first row within the load, from 1. BadRows if a value fits neither its column nor its domain.
    """
    if batch.schema.names != [column.name for column in layout.schema]:
        raise BadRows("the batch has other columns than the table", hint="load columns of the same names and order")
    rows = np.zeros((len(batch), layout.words), np.int64)
    bits = rows[:, layout.validity_offset : layout.key_offset].view(np.uint64)
    keys: dict[int, list[int]] = {}
    for index, (place, _) in enumerate(indexes):
        keys.setdefault(place, []).append(index)
    for place, (column, offset) in enumerate(zip(layout.schema, layout.column_offsets, strict=True)):
        array = convert(column, batch.column(place), first_row)
        words, valid = encode(column, array, first_row)
        rows[:, offset : offset + column.type.words] = words.reshape(len(rows), column.type.words)
        if bits.shape[1]:
            _set_bit(bits[:, place // 64], place % 64, valid)
        for index in keys.get(place, []):
            ranks = rows[:, layout.key_offset + index]
            keyed = _Keys(column, array, words, valid, first_row)
            keyed.put_ranks(ranks, indexes[index][1])
    return rows


def dummy_rows(count: int, layout: RowLayout) -> NDArray[np.int64]:
    """Return rows that sort after every real one, and are zeros otherwise."""
    rows = np.zeros((count, layout.words), np.int64)
    rows[:, layout.key_offset :] = layout.dummy_keys()
    return rows


def _set_bit(bits: NDArray[np.uint64], bit: int, valid: NDArray[np.uint8] | None) -> None:
    if valid is None:
        bits |= np.uint64(1 << bit)
    else:
        bits |= valid.astype(np.uint64) << np.uint64(bit)


@dataclass(frozen=True)
class _Keys:
    """SECRET: an indexed column of a batch, as Arrow and as words."""

    column: Column
    array: Any
    words: NDArray[np.int64]
    valid: NDArray[np.uint8] | None
    first_row: int

    def put_ranks(self, ranks: NDArray[np.int64], domain: Domain) -> None:
        """Write the ranks of the keys; a null's is the domain's size."""
        present = None if self.valid is None or self.valid.all() else np.flatnonzero(self.valid)
        if self.column.type.words_are_ranks(domain):
            found = self.words if present is None else self.words[present]
        else:
            found = self._ranks(domain, present)
        if present is None:
            ranks[:] = found
        else:
            ranks[:] = domain.size
            ranks[present] = found

    def _ranks(self, domain: Domain, present: NDArray[np.int64] | None) -> NDArray[np.int64]:
        try:
            return domain.ranks(self.array if present is None else self.array.drop_null())
        except (InvalidKeys, OutOfDomain) as error:
            refusal = error
        name, trouble = self.column.name, refusal.at(None).message
        if refusal.row is None:  # of the wrong type altogether
            raise BadRows(f"column {name!r}: {trouble}", hint=refusal.hint, column=name)
        row = self.first_row + (refusal.row if present is None else int(present[refusal.row]))
        raise BadRows(f"column {name!r}, row {row}: {trouble}", hint=refusal.hint, row=row, column=name)
