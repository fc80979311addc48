"""Resealing: a run under one data key comes in, one with the same pages under another goes out. SECRET in between."""

import os
from dataclasses import replace

from scumble.enclave.pages import DataKeys, RunReader, RunWriter
from scumble.wire.catalog import Run, Table
from scumble.wire.storage import Storage

__all__ = ["reseal"]

PAGES = 64  # at a time


def reseal(storage: Storage, table: Table, run: Run, reader: RunReader, keys: DataKeys) -> Run:
    """Open every page and seal it again, under a new name and so a new key."""
    name = os.urandom(16).hex()
    writer = RunWriter(storage, keys, table, name, run.pages, run.page_rows)
    for column in range(len(table.schema)):
        for first in range(0, run.pages, PAGES):
            count = min(PAGES, run.pages - first)
            writer.write_pages(column, first, reader.open_pages(column, first, count).reshape(count, -1))
    return replace(run, id=name, tag_hashes=writer.finish())
