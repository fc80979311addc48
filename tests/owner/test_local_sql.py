"""DuckDB on the owner's side leaves nothing on disk: rows that a query works on stay in memory."""

import os
from pathlib import Path

import pytest

from scumble.errors import QueryError
from scumble.owner.queries import LocalSQL

LARGE = "SELECT i, hash(i) AS h FROM range(4000000) r(i) ORDER BY h"


def test_a_query_that_needs_more_memory_fails_rather_than_spill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    local = LocalSQL(memory_bytes=24 << 20)
    with pytest.raises(QueryError, match="more memory than it may have"):
        local.run(LARGE, {}, {})
    assert local.evaluate("current_setting('temp_directory')") == ""
    assert os.listdir(tmp_path) == []  # noqa: PTH208  hidden ones too
    local.close()


def test_planted_duckdb_spills_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DEFECT: with its own settings it writes what it works on into the folder where the program runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scumble.owner.queries.SETTINGS", ("threads = 1",))
    local = LocalSQL(memory_bytes=24 << 20)
    seen: list[str] = []
    relation = local._connection.sql(LARGE)
    with relation.to_arrow_reader(1000) as reader:
        reader.read_next_batch()
        seen = os.listdir(tmp_path)  # noqa: PTH208
    local.close()
    assert seen
