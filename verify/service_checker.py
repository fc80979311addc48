"""An independent checker: compare a table's rows with what the clients' journals say was loaded and answered.

It knows nothing of any client's state but its journal, and imports nothing of Scumble. Journals hold what was sent,
acknowledged and answered, with the machine's monotonic time; all rows follow from the numbers of their batches
(`rows_of`), so that DuckDB can make them again and compare. Batches are only ever added. So an answer is right if it is
the table after some load: it has what was acknowledged, or seen by anybody, before it was asked for; nothing that was
sent only after it; whole batches; and of two answers one has all that the other has.
"""

import json
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

__all__ = ["KEYS", "Events", "Verdict", "checked", "read_journals", "rows_of", "wrong_files"]

KEYS = 128
MOST_ROWS = 12
MOST_UNCERTAIN = 12

Row = tuple[int, int, int, int]
"""Of the table: batch, row, k, v."""


def rows_of(batch: int) -> list[Row]:
    """The rows of a batch."""
    return [(batch, row, (batch * 79 + row * 31) % KEYS, batch * 100 + row) for row in range(1 + batch % MOST_ROWS)]


EXPECTED = f"""
    SELECT batch, row, (batch * 79 + row * 31) % {KEYS} AS k, batch * 100 + row AS v
    FROM (SELECT batch, unnest(range(1 + batch % {MOST_ROWS})) AS row FROM (SELECT DISTINCT batch FROM there))
"""  # noqa: S608  names of our own

# What must not be: each query gives the batches, or the answers, that it is true of.
FINDINGS = {
    "acknowledged, and not there": "SELECT batch FROM acknowledged ANTI JOIN there USING (batch)",
    "there more than once": "SELECT batch FROM there GROUP BY batch, row HAVING count(*) > 1",
    "there in part": "SELECT batch FROM expected ANTI JOIN there USING (batch, row)",
    "there, and never sent": "SELECT batch FROM there ANTI JOIN sent USING (batch)",
    "rows are altered": "SELECT batch FROM there ANTI JOIN expected USING (batch, row, k, v)",
    "an answer lacks what was known": """
        SELECT a.id FROM answers a JOIN known k ON k.stamp < a.began
        ANTI JOIN answered s ON s.id = a.id AND s.batch = k.batch""",
    "an answer has what was not sent": """
        SELECT s.id FROM answered s JOIN answers a USING (id)
        ANTI JOIN sent t ON t.batch = s.batch AND t.stamp < a.ended""",
    "an answer has what is not there": "SELECT id FROM answered ANTI JOIN there USING (batch)",
    "an answer has part of a batch": """
        SELECT s.id FROM answered s
        ANTI JOIN (SELECT batch, count(*) AS rows, sum(v) AS total FROM expected GROUP BY batch) e
        USING (batch, rows, total)""",
    "answers are no chain of versions": """
        WITH sizes AS (SELECT id, count(*) AS size FROM answered GROUP BY id),
             since AS (SELECT batch, min(size) AS size FROM answered JOIN sizes USING (id) GROUP BY batch)
        SELECT z.id FROM sizes z JOIN since e ON e.size <= z.size
        ANTI JOIN answered s ON s.id = z.id AND s.batch = e.batch""",
    "two parts of one statement disagree": "SELECT id FROM pairs WHERE one <> other",
}
TABLES = {
    "sent": {"batch": pa.int64(), "stamp": pa.float64()},
    "acknowledged": {"batch": pa.int64(), "stamp": pa.float64()},
    "answers": {"id": pa.int64(), "began": pa.float64(), "ended": pa.float64()},
    "answered": {"id": pa.int64(), "batch": pa.int64(), "rows": pa.int64(), "total": pa.int64()},
    "pairs": {"id": pa.int64(), "one": pa.int64(), "other": pa.int64()},
    "there": {"batch": pa.int64(), "row": pa.int64(), "k": pa.int64(), "v": pa.int64()},
}


@dataclass
class Events:
    """What all clients wrote down."""

    sent: list[tuple[int, float]] = field(default_factory=list)
    acknowledged: list[tuple[int, float]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    refused: int = 0


@dataclass(frozen=True)
class Verdict:
    """What was found, by how often; and how much there was to look at."""

    findings: dict[str, int]
    batches: int
    acknowledged: int
    answers: int
    undecided: int = 0


def read_journals(folder: Path) -> Events:
    """All journals of a folder; a last line that a kill has cut is none."""
    events = Events()
    for path in sorted(folder.glob("*.journal")):
        for line in path.read_text().split("\n")[:-1]:
            event = json.loads(line)
            match event["event"]:
                case "sent":
                    events.sent.append((event["batch"], event["at"]))
                case "acknowledged":
                    events.acknowledged.append((event["batch"], event["at"]))
                case "answer":
                    events.answers.append(event)
                case "failed":
                    events.failed.append(event["error"])
                case "refused":
                    events.refused += 1
    return events


def checked(events: Events, there: Sequence[Row], asked_at: float) -> Verdict:
    """Compare; `there` are the rows of the table, asked for at a time up to which the journals are complete."""
    acknowledged = [(batch, at) for batch, at in events.acknowledged if at < asked_at]
    answers = [answer for answer in events.answers if answer["ended"] < asked_at]
    with duckdb.connect() as db:
        _fill(db, "sent", events.sent)
        _fill(db, "acknowledged", acknowledged)
        _fill(db, "there", there)
        _fill(db, "answers", ((i, a["began"], a["ended"]) for i, a in enumerate(answers) if a["kind"] == "groups"))
        _fill(db, "answered", _groups(answers))
        _fill(db, "pairs", ((i, *a["answer"][0]) for i, a in enumerate(answers) if a["kind"] == "pair"))
        db.execute(f"CREATE TABLE expected AS {EXPECTED}")
        db.execute(
            "CREATE TABLE known AS SELECT batch, min(stamp) AS stamp FROM (FROM acknowledged UNION ALL "
            "SELECT batch, ended FROM answered JOIN answers USING (id)) GROUP BY batch"
        )
        found = {name: len(db.execute(query).fetchall()) for name, query in FINDINGS.items()}
        known = dict(db.execute("SELECT batch, stamp FROM known").fetchall())
    misfits, undecided = _misfits(answers, events.sent, known, {row[0] for row in there})
    found["an aggregate fits no version"] = misfits
    found["a client failed"] = len(events.failed)
    findings = {name: count for name, count in found.items() if count}
    return Verdict(findings, len({row[0] for row in there}), len(acknowledged), len(answers), undecided)


def _fill(db: duckdb.DuckDBPyConnection, name: str, rows: Iterable[Sequence[Any]]) -> None:
    """A table, made without looking at Python's variables."""
    given = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in TABLES[name]]
    columns = [pa.array(values, kind) for values, kind in zip(given, TABLES[name].values(), strict=True)]
    db.register("given", pa.table(dict(zip(TABLES[name], columns, strict=True))))
    db.execute(f"CREATE TABLE {name} AS FROM given")
    db.unregister("given")


def _groups(answers: list[dict[str, Any]]) -> Iterator[tuple[int, int, int, int]]:
    for number, answer in enumerate(answers):
        if answer["kind"] == "groups":
            yield from ((number, *group) for group in answer["answer"])


def _misfits(
    answers: list[dict[str, Any]], sent: list[tuple[int, float]], known: dict[int, float], there: set[int]
) -> tuple[int, int]:
    """How many aggregates of a range are those of no version; and of how many that could not be said."""
    sent_at, misfits, undecided = dict(sent), 0, 0
    for answer in answers:
        if answer["kind"] != "range":
            continue
        certain = [batch for batch in there if known.get(batch, answer["ended"]) < answer["began"]]
        uncertain = [b for b in there if b not in certain and sent_at.get(b, 0.0) < answer["ended"]]
        if len(uncertain) > MOST_UNCERTAIN:
            undecided += 1
            continue
        chosen = chain.from_iterable(combinations(uncertain, count) for count in range(len(uncertain) + 1))
        count, total = answer["answer"][0]
        base, parts = _total(certain, answer), {batch: _total([batch], answer) for batch in uncertain}
        sums = ((base[0] + sum(parts[b][0] for b in c), base[1] + sum(parts[b][1] for b in c)) for c in chosen)
        misfits += (count, total or 0) not in sums
    return misfits, undecided


def _total(batches: Iterable[int], answer: dict[str, Any]) -> tuple[int, int]:
    values = [v for b in batches for _, _, k, v in rows_of(b) if answer["low"] <= k <= answer["high"]]
    return len(values), sum(values)


def wrong_files(folder: Path, version: int, runs: Iterable[str]) -> list[str]:
    """The files of a provider's folder that should not be there or are missing, after a writer that ended cleanly.

    There are to be the runs that the head names, one manifest or link for each version so far, and nothing else of a
    load.
    """
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    packs = [name for name in names if name.endswith(".links")]
    numbered = (re.sub(r"^(manifests/\d{8}).*", r"\1", name) for name in names if name not in packs)
    there = Counter(name for name in numbered if not name.startswith("transcript.log"))
    for pack in packs:
        first, count = struct.unpack_from("<QI", (folder / pack).read_bytes(), 16)
        there.update(f"manifests/{version:08d}" for version in range(first, first + count))
    wanted = Counter(
        ["HEAD", "database.json", "lock", *(f"manifests/{number:08d}" for number in range(1, version + 1))]
    )
    wanted.update(f"runs/{run}.{suffix}" for run in runs for suffix in ("pages", "tags"))
    return sorted((there - wanted) + (wanted - there))
