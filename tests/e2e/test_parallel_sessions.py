"""Lookups at the same time: what the provider sees of a session does not depend on what others do meanwhile.

Noise is drawn when an index is built, so a lookup draws nothing and changes nothing, and sessions share no state.
"""
# ruff: noqa: S608  the SQL is the test's own

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from databases import events

from scumble import opening
from scumble.store.transcript import comparable

SESSIONS, ASKED = 4, 12


def queries(session: int) -> list[str]:
    """Points and ranges: some that other sessions ask as well, and some that they do not."""
    points = [f"SELECT count(*), sum(v) FROM t WHERE k = {(37 * number) % 200}" for number in range(ASKED // 2)]
    ranges = [
        f"SELECT v FROM t WHERE k BETWEEN {20 * session + number} AND {20 * session + 9 * number}"
        for number in range(ASKED // 2)
    ]
    return points + ranges


def ask(path: Path, session: int, begin: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """The answers of a session of its own, and what the provider saw of it."""
    with opening.open(path) as db:
        begin()
        answers = [sorted(db.sql(query).fetchall()) for query in queries(session)]
        return answers, list(comparable(events(db)))


@pytest.mark.parametrize("blocks", [1, 4])
def test_transcripts_of_parallel_sessions_are_those_of_one_after_the_other(tmp_path: Path, blocks: int) -> None:
    path = tmp_path / "db"
    rows = pa.table({"k": [number % 200 for number in range(3000)], "v": list(range(3000))})
    with opening.create(path, limit=10) as db:
        db.load("t", rows, indexes=[f"k int:0:199 epsilon=5 blocks={blocks}"], page_rows=32, capacity=3200)
    alone = [ask(path, session, lambda: None) for session in range(SESSIONS)]
    begin = Barrier(SESSIONS).wait
    with ThreadPoolExecutor(SESSIONS) as pool:
        together = list(pool.map(lambda session: ask(path, session, begin), range(SESSIONS)))
    assert [answers for answers, _ in together] == [answers for answers, _ in alone]
    assert [seen for _, seen in together] == [seen for _, seen in alone]
    assert all(len(seen) > ASKED for _, seen in alone)
    assert alone[0][1] != alone[1][1]  # or nothing would have been compared
