"""Storage attacks: swap, put back or cut the pages and versions in a database's folder, and see what queries answer.

The attacker has the folder, as a provider does, and all earlier copies of it, but no key. It wins if any query gives a
wrong answer, or an old one. A refusal, or a right answer because nothing that was spoiled was needed, is no win; and
`check` has to find every change.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from scumble import opening
from scumble.enclave.lines import TrustedEnclave
from scumble.errors import ScumbleError, Tampered
from scumble.lab.attack.laboratory import Laboratory, fractions, load_made_up, opened
from scumble.lab.attack.planted import UnsafeUncheckedEnclave
from scumble.lab.attack.report import Finding, Report
from scumble.owner.database import Database
from scumble.store import open_store
from scumble.wire.catalog import TAG_BYTES, Catalog, Run
from scumble.wire.storage import Enclave, Storage, public_part

__all__ = ["ATTEMPTS", "Attempt", "Outcome", "Spoiling", "attack", "attempts", "spoiling"]

ROWS, PAGE_ROWS, SIZE = 100, 16, 128
TABLES = ("a", "b")
Answers = list[tuple[int, int, int]]


class Spoiling(NamedTuple):
    """What the attacker has: the folder, an older copy of it, and the public catalog."""

    home: Path
    older: Path
    catalog: Catalog

    def run(self, table: str, batch: int) -> Run:
        return self.catalog.table(table).runs[batch]

    def slot(self, table: str, batch: int, column: int, page: int) -> tuple[Path, int, int]:
        """Where a sealed page lies: its file, its first byte, and how many it has."""
        whole, run = self.catalog.table(table), self.run(table, batch)
        sizes = [whole.slot_bytes(place, run.page_rows) for place in range(len(whole.schema))]
        start = sum(run.pages * size for size in sizes[:column]) + page * sizes[column]
        return self.home / f"db/runs/{run.id}.pages", start, sizes[column]

    def tag(self, table: str, batch: int, column: int, page: int) -> tuple[Path, int, int]:
        run = self.run(table, batch)
        return self.home / f"db/runs/{run.id}.tags", TAG_BYTES * (column * run.pages + page), TAG_BYTES

    def files(self, kind: str) -> list[Path]:
        return sorted((self.home / "db").rglob(f"*{kind}"))


Place = tuple[str, int, int, int]  # table, batch, column, page
Spoil = Callable[[Spoiling], None]


class Attempt(NamedTuple):
    """Something that the attacker tries. Pages are named by table, batch, column and page."""

    name: str
    spoil: Spoil


class Outcome(NamedTuple):
    """What an attempt ended in: what queries gave, and whether `check` found it."""

    name: str
    queries: str
    found_by_check: bool

    @property
    def won(self) -> bool:
        return self.queries == "WRONG" or not self.found_by_check


def _swap(one: Place, other: Place, *, tags: bool = True) -> Spoil:
    def spoil(at: Spoiling) -> None:
        for where in (at.slot, at.tag) if tags else (at.slot,):
            first, second = _read(*where(*one)), _read(*where(*other))
            _write(*where(*one), second)
            _write(*where(*other), first)

    return spoil


def _replay_run(table: str, batch: int, other_table: str, other_batch: int) -> Spoil:
    def spoil(at: Spoiling) -> None:
        for suffix in (".pages", ".tags"):
            names = [at.run(*run).id + suffix for run in ((table, batch), (other_table, other_batch))]
            shutil.copy(at.home / "db/runs" / names[1], at.home / "db/runs" / names[0])

    return spoil


def _flip(place: Place) -> Spoil:
    def spoil(at: Spoiling) -> None:
        path, start, size = at.slot(*place)
        page = bytearray(_read(path, start, size))
        page[0] ^= 1
        _write(path, start, size, bytes(page))

    return spoil


def _zeros(place: Place) -> Spoil:
    def spoil(at: Spoiling) -> None:
        path, start, size = at.slot(*place)
        _write(path, start, size, bytes(size))

    return spoil


def _truncate(kind: str) -> Spoil:
    def spoil(at: Spoiling) -> None:
        for path in at.files(kind):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return spoil


def _old_head(at: Spoiling) -> None:
    (at.home / "db/HEAD").write_bytes((at.older / "HEAD").read_bytes())


def _old_folder(at: Spoiling) -> None:
    shutil.rmtree(at.home / "db")
    shutil.copytree(at.older, at.home / "db")


def _old_manifest_renamed(at: Spoiling) -> None:
    """The old version under the name that the newest one would have."""
    content = (at.older / "manifests" / (at.older / "HEAD").read_text().strip()).read_bytes()
    name = f"{at.catalog.version:08d}-{sha256(content).hexdigest()[:16]}.manifest"
    (at.home / "db/manifests" / name).write_bytes(content)
    (at.home / "db/HEAD").write_text(f"{name}\n")


def _lost_run(at: Spoiling) -> None:
    (at.home / f"db/runs/{at.run('a', 0).id}.pages").unlink()


def _missing_version(at: Spoiling) -> None:
    at.files(".manifest")[1].unlink()


ATTEMPTS = (
    Attempt("a bit of a page flipped", _flip(("a", 0, 0, 2))),
    Attempt("a page of zeros", _zeros(("a", 0, 1, 1))),
    Attempt("two pages of a column swapped, not their tags", _swap(("a", 0, 0, 1), ("a", 0, 0, 3), tags=False)),
    Attempt("two pages of a column swapped with their tags", _swap(("a", 0, 0, 1), ("a", 0, 0, 3))),
    Attempt("pages of two columns swapped", _swap(("a", 0, 0, 2), ("a", 0, 1, 2))),
    Attempt("pages of two runs swapped", _swap(("a", 0, 0, 2), ("a", 1, 0, 2))),
    Attempt("pages of two tables swapped", _swap(("a", 0, 0, 2), ("b", 0, 0, 2))),
    Attempt("a run replayed in the place of another", _replay_run("a", 1, "a", 0)),
    Attempt("another table's run in the place of one", _replay_run("a", 0, "b", 0)),
    Attempt("runs cut in half", _truncate(".pages")),
    Attempt("tags cut in half", _truncate(".tags")),
    Attempt("manifests cut in half", _truncate(".manifest")),
    Attempt("a run deleted", _lost_run),
    Attempt("a version in between deleted", _missing_version),
    Attempt("the head put back to an older version", _old_head),
    Attempt("an older manifest under the newest one's name", _old_manifest_renamed),
    Attempt("the whole folder put back", _old_folder),
)


# --- the attack ------------------------------------------------------------------------------------


def attack(attempts_made: tuple[Attempt, ...] = ATTEMPTS) -> Report:
    """Try everything on our database; on one that checks no tags, and on an owner who remembers no version."""
    ours = list(attempts(attempts_made))
    unchecked = list(attempts(ATTEMPTS[:2], UnsafeUncheckedEnclave))
    forgetful = list(attempts(ATTEMPTS[-1:], accept_restored=True))
    findings = [
        _finding("planted: an enclave that checks no tags", True, unchecked),
        _finding("planted: an owner who accepts any version", True, forgetful),
        *(_finding(f"database: {outcome.name}", False, [outcome]) for outcome in ours),
    ]
    return Report(
        "storage",
        "The attacker alters what it stores: pages, tags and versions of another place or time. Every attempt has to"
        " end in an error, never in a wrong answer.",
        f"{len(ours)} ways to swap, replay, roll back and truncate, on 2 tables with 2 batches each",
        tuple(findings),
        {},
    )


def attempts(
    tried: tuple[Attempt, ...],
    enclave: Callable[[Storage], Enclave] = TrustedEnclave,
    *,
    accept_restored: bool = False,
) -> Iterator[Outcome]:
    """Make a database, and try each on a copy of it."""
    with TemporaryDirectory(prefix="scumble-attack-") as name:
        origin = Path(name) / "origin"
        spoiled, right = spoiling(origin)
        for attempt in tried:
            home = Path(name) / "spoiled"
            shutil.copytree(origin, home)
            attempt.spoil(spoiled._replace(home=home))
            yield _outcome(attempt.name, home, right, enclave, accept_restored=accept_restored)
            shutil.rmtree(home)


def spoiling(home: Path) -> tuple[Spoiling, Answers]:
    """Make a database of several versions in a folder; what the attacker has, and the right answers."""
    home.mkdir()
    with opening.create(home / "db", key=home / "db.key", limit=8) as db:
        _load(db, "a", 0)
        shutil.copytree(home / "db", home / "older")
        for table, batch in (("a", 1), ("b", 0), ("b", 1)):
            _load(db, table, batch)
    store = open_store(home / "db")
    catalog = Catalog.from_json(json.loads(public_part(store.head())))
    store.close()
    with opened(home) as lab:
        return Spoiling(home, home / "older", catalog), _answers(lab)


def _load(db: Database, table: str, batch: int) -> None:
    drawn = (fractions(f"stored {table} {batch}", 2 * ROWS) * SIZE).astype(np.int64)
    load_made_up(db, table, drawn[:ROWS], drawn[ROWS:], SIZE, 1, PAGE_ROWS)


def _answers(lab: Laboratory) -> Answers:
    """Counts and sums that need every page, with and without the index."""
    there = [table.name for table in lab.db.tables]
    return [
        tuple(lab.db.sql(f"SELECT count(*), sum(k), sum(v) FROM {table} WHERE {where}").fetchall()[0])  # noqa: S608
        for table in TABLES
        if table in there
        for where in ("true", "k BETWEEN 20 AND 90", "k >= 0 AND v >= 0")
    ]


def _outcome(
    name: str, home: Path, right: Answers, enclave: Callable[[Storage], Enclave], *, accept_restored: bool
) -> Outcome:
    try:
        with opened(home, enclave, accept_restored=accept_restored) as lab:
            try:
                queries = "right" if _answers(lab) == right else "WRONG"
            except ScumbleError as error:
                queries = type(error).__name__
            try:
                lab.db.check()
                return Outcome(name, queries, found_by_check=False)
            except ScumbleError:
                return Outcome(name, queries, found_by_check=True)
    except Tampered:
        return Outcome(name, "Tampered", found_by_check=True)


def _finding(target: str, leaky: bool, outcomes: list[Outcome]) -> Finding:
    ends = sorted({outcome.queries for outcome in outcomes})
    found = all(outcome.found_by_check for outcome in outcomes)
    return Finding(
        target,
        leaky,
        f"queries: {', '.join(ends)}; check: {'found' if found else 'NOT FOUND'}",
        all(outcome.won for outcome in outcomes) if leaky else any(outcome.won for outcome in outcomes),
        {"queries": ", ".join(ends), "found_by_check": found},
    )


def _read(path: Path, start: int, size: int) -> bytes:
    return path.read_bytes()[start : start + size]


def _write(path: Path, start: int, size: int, content: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + content + whole[start + size :])
