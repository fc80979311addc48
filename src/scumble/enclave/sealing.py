"""Rows become a run: whatever order they lie in, the columns that a copy holds are sealed page by page.

Rows are SECRET; how many there are, and which columns are sealed, is public. A load's rows come from a client, a
merge's from other runs: these may have been deleted, and a word of each says whether it is alive.
"""

from collections.abc import Iterator

import numpy as np

from scumble.enclave.kernels import Mask, Words
from scumble.enclave.pages import DataKeys, LayerWriter, RunWriter
from scumble.enclave.rows import Rows
from scumble.wire.catalog import LIVE, Run, Table
from scumble.wire.requests import RowLayout
from scumble.wire.storage import Storage

__all__ = ["seal_run", "validity"]

SEALED_ROWS = 1 << 16  # so many rows are turned into pages at a time


def seal_run(
    storage: Storage, keys: DataKeys, table: Table, layout: RowLayout, rows: Rows, made: Run, live_word: int | None
) -> Run:
    """Seal the first rows as a run, as many as it has room for; `made` is its entry without the hashes of tags.

    With a `live_word`, a layer has for each row whether that word is 1.
    """
    pages, page_rows = made.capacity // made.page_rows, made.page_rows
    writer = RunWriter(storage, keys, table, made.id, pages, page_rows, made.columns)
    live = None if live_word is None else LayerWriter(storage, keys, table, made, (LIVE,), (0, pages))
    for first_page, piece in _pieces(rows, made):
        for place in table.held(made):
            column, offset = table.schema.columns[place], layout.column_offsets[place]
            words = piece[:, offset] if column.type.words == 1 else piece[:, offset : offset + column.type.words]
            writer.write(place, first_page, words, validity(piece, layout, place) if column.nullable else None)
        if live is not None and live_word is not None:
            live.write_pages(LIVE, first_page, piece[:, live_word].astype(np.uint8).reshape(-1, page_rows))
    return made.sealed(writer.finish(), () if live is None else (live.finish(),))


def _pieces(rows: Rows, made: Run) -> Iterator[tuple[int, Words]]:
    step = max(1, SEALED_ROWS // made.page_rows) * made.page_rows
    first = 0
    for chunk in rows.chunks():
        for at in range(0, min(len(chunk), made.capacity - first), step):
            piece = chunk[at : min(at + step, made.capacity - first + at)]
            yield first // made.page_rows, piece
            first += len(piece)


def validity(rows: Words, layout: RowLayout, column: int) -> Mask:
    """1 for the rows in which a column is not null."""
    bits = rows[:, layout.validity_offset + column // 64]
    return ((bits >> (column % 64)) & 1).astype(np.uint8)
