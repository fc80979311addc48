"""A table as wide as earlier versions wrote it is read, and loaded into, as it is; a new one beside it is narrow."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from scumble import opening
from scumble.types import Column, Schema, arrow
from scumble.wire.catalog import Table

LISTED = json.dumps([f"v{number:03d}" for number in range(201)])
TYPES = {"s": "text(3)", "c": f"category({LISTED})"}
INDEXES = ["k int:0:99 epsilon=1", f"c category:{LISTED} epsilon=1"]
QUERIES = [
    "SELECT * FROM t ORDER BY k",
    "SELECT sum(u8), max(u16), sum(u32), max(f), min(g), count(s), count(b) FROM t WHERE c IS NOT NULL OR f > 0",
    "SELECT k FROM t WHERE c = 'v200' AND u8 > 200 ORDER BY k",
    "SELECT count(*) FROM t WHERE g = 0 AND s < 'b' AND u32 >= 4294967295",
]
WIDE_BITS = [72, 24, 40, 72, 72, 72, 136, 24, 16]
NARROW_BITS = [65, 9, 17, 33, 33, 65, 33, 9, 9]


def rows(at: int) -> pa.Table:
    return pa.table(
        {
            "k": [at, at + 1, at + 2],
            "u8": pa.array([255, None, 128], pa.uint8()),
            "u16": pa.array([65535, 1, None], pa.uint16()),
            "u32": pa.array([2**32 - 1, 0, 5], pa.uint32()),
            "f": pa.array([1.5, None, math.inf], pa.float32()),
            "g": [-0.0, 2.5, -1.5],
            "s": ["a", None, "xyz"],
            "c": ["v200", "v001", None],
            "b": [True, None, False],
        }
    )


def _wide(column: Column) -> Column:
    return replace(column, type=replace(column.type, narrow=False), null_bits=not column.nullable)


def _answers(db: Any) -> list[Any]:
    return [db.sql(query).fetchall() for query in QUERIES]


def test_an_earlier_table_keeps_its_widths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"indexes": INDEXES, "capacity": 32, "page_rows": 16}
    with opening.create(tmp_path / "db", limit=100) as db:
        declared = arrow._column
        with monkeypatch.context() as earlier:
            earlier.setattr(arrow, "_column", lambda *given: _wide(declared(*given)))
            db.load("t", rows(0), types=TYPES, **options)
        db.load("new", rows(0), types=TYPES, **options)
        db.load("t", rows(10), new_rows=True, **options)
    with opening.open(tmp_path / "db") as db, duckdb.connect() as plain:
        plain.register("t", pa.concat_tables([rows(0), rows(10)]))
        assert list(map(repr, _answers(db))) == [repr(plain.execute(query).fetchall()) for query in QUERIES]
        assert [column.page_row_bits for column in db.table("t").schema] == WIDE_BITS
        assert [column.page_row_bits for column in db.table("new").schema] == NARROW_BITS
        assert "narrow" not in json.dumps(db.table("t").schema.to_json())


def test_widths_in_bytes_of_narrow_texts_are_read() -> None:
    """As they were stated between release 0.1 and bits for nulls."""
    stated = [
        {"name": "s", "type": {"kind": "text", "sql": "varchar", "max_bytes": 3, "narrow": True}, "nullable": True}
    ]
    table = Table.from_json({"id": "t0", "name": "t", "schema": stated, "row_bytes": [5], "runs": []})
    assert table.slot_bytes(0, 16) == 16 * 5 + 16
    assert table.schema == Schema.from_json(table.schema.to_json())
    assert table.schema.to_json() == stated
