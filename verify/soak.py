"""A soak test: loads, queries, drops, rekeys and checks on one database, by a process killed at random moments.

    python -m verify.soak [--seconds 3600] [--seed 1]

The parent knows what every table should hold. A writer carries out its orders and acknowledges each; a reader, which is
never killed, answers queries meanwhile. Checked after every step: each answer is right; an acknowledged load is there
exactly once, one that was cut short wholly or not at all; the ledger forgets nothing; the reader's memory stays flat;
and after a last clean writer the folder holds what the head names and nothing else. Every few hundred versions a new
database is begun.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Literal

import pyarrow as pa

from scumble import opening
from scumble.errors import BadQuery, ScumbleError
from scumble.owner import loading  # noqa: F401  here, so that no child has to import them anew
from scumble.owner.database import Database
from scumble.owner.ledger import Ledger
from verify import Row, folder_in_memory, patch
from verify.service_checker import wrong_files

__all__ = ["FAULTS", "Broken", "Soak", "Tally", "rows", "soak"]

TABLES = ("t", "u", "v")
PAGE_ROWS, CAPACITY, MOST_ROWS = 16, 48, 48
MOST_BATCHES = 6
LIFE_VERSIONS = 300
PATIENCE_SECONDS = 60
PLANTED_SECONDS, TRIES = 6, 4
WARM, ASKED, GROWTH_MEBIBYTES = 30, 200, 12  # answers to begin with, answers to judge by, and what they may leave
TREND_SAMPLES, TREND_SHARE = 2000, 0.1
# Lossless, so that no answer may ever lack a row: a false alarm is not a matter of chance.
INDEXES = ("k int:0:127 epsilon=1 slack=lossless", "amount int:0:1023 epsilon=1 slack=lossless")
TYPES = {
    "k": "integer not null",
    "amount": "integer not null",
    "colour": 'category(["blue","green","red"])',
    "name": "text(16)",
    "batch": "integer not null",
}
COLOURS = ("blue", "green", "red", None)
QUERIES = {
    "batches": "SELECT batch, count(*), sum(k) FROM {0} WHERE ? <= ? GROUP BY batch",
    "range": "SELECT count(*), sum(amount), min(k), max(k) FROM {0} WHERE k BETWEEN ? AND ?",
    "other": "SELECT count(*), sum(k), max(name) FROM {0} WHERE amount BETWEEN ? AND ?",
    "groups": "SELECT colour, count(*), min(amount) FROM {0} WHERE k BETWEEN ? AND ? GROUP BY colour",
    "rows": "SELECT k, amount, colour, name, batch FROM {0} WHERE k BETWEEN ? AND ?",
}

Kind = Literal["answer", "load", "state", "ledger", "memory", "files", "refusal", "hang"]
Batch = tuple[int, int]
Values = tuple[int, int, str | None, str | None, int]
FORK = multiprocessing.get_context("fork")


class Broken(Exception):
    """An invariant that does not hold."""

    def __init__(self, kind: Kind, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


def rows(seconds: float) -> Iterator[Row]:
    """Soak for half of the time; then plant faults, each of which has to be found."""
    share = seconds / (2 * len(FAULTS))
    tally, broken = soak(seconds / 2, seed=int(time.time()))
    caught = []
    for name, (_, kinds) in FAULTS.items():
        for seed in range(TRIES):  # a fault that only a kill at the right moment shows may take more than one
            found = soak(max(share, PLANTED_SECONDS), seed, name)[1]
            if found is not None and found.kind in kinds:
                caught.append(name)
                break
    yield Row(
        "a process killed at any moment loses nothing, doubles nothing and leaves nothing behind; memory stays flat",
        "soak: random loads, queries, drops, rekeys and checks, random SIGKILLs",
        f"{tally}" if broken is None else f"{tally}; {broken}",
        broken is None and tally.kills > 0,
        tuple(FAULTS),
        tuple(caught),
    )


def soak(seconds: float, seed: int, fault: str = "") -> "tuple[Tally, Broken | None]":
    """Run for so long, or until something is broken; what was done, and what broke."""
    with folder_in_memory() as folder:
        run = Soak(folder, Random(seed), fault)
        try:
            run.go_on(seconds)
        except Broken as error:
            return run.tally, error
        finally:
            run.close()
        return run.tally, None


@dataclass
class Tally:
    """What was done."""

    steps: int = 0
    loads: int = 0
    queries: int = 0
    kills: int = 0
    cut_short: int = 0
    lives: int = 0
    growth: float = 0.0
    memory: list[float] = field(default_factory=list)

    def trend(self) -> float:
        """By how many MiB the reader grew from the second quarter of the time to the last."""
        quarter = len(self.memory) // 4
        return median(self.memory[-quarter:]) - median(self.memory[quarter : 2 * quarter]) if quarter else 0.0

    def __str__(self) -> str:
        return (
            f"{self.steps:,} steps, {self.loads:,} loads, {self.queries:,} answers, {self.kills:,} kills "
            f"({self.cut_short:,} undone), {self.lives} databases, memory {self.growth:+.1f} MiB over {ASKED} answers, "
            f"{self.trend():+.1f} MiB over the run"
        )


# --- the truth -------------------------------------------------------------------------------------


def values_of(batch: Batch) -> list[Values]:
    """The rows of a load: all follows from its seed."""
    seed, count = batch
    rng = Random(seed)
    return [
        (
            rng.randrange(128),
            rng.randrange(1024),
            rng.choice(COLOURS),
            None if rng.random() < 0.1 else f"n{rng.randrange(1000)}",
            seed,
        )
        for _ in range(count)
    ]


def answer_of(kind: str, batches: list[Batch], low: int, high: int) -> Any:
    """What a query has to give, in the form of `_comparable`."""
    every = [row for batch in batches for row in values_of(batch)]
    found = [row for row in every if low <= (row[1] if kind == "other" else row[0]) <= high]
    match kind:
        case "batches":
            totals = [(seed, [row for row in every if row[4] == seed]) for seed in {row[4] for row in every}]
            result: list[Any] = [(seed, len(some), sum(row[0] for row in some)) for seed, some in totals]
        case "range":
            keys = [row[0] for row in found]
            total = sum(row[1] for row in found) if found else None
            result = [(len(found), total, min(keys, default=None), max(keys, default=None))]
        case "other":
            names = [row[3] for row in found if row[3] is not None]
            result = [(len(found), sum(row[0] for row in found) if found else None, max(names, default=None))]
        case "groups":
            by = {colour: [row[1] for row in found if row[2] == colour] for colour in COLOURS}
            result = [(colour, len(amounts), min(amounts)) for colour, amounts in by.items() if amounts]
        case _:
            result = list(found)
    return _comparable(result)


def _comparable(answer: list[Any]) -> Any:
    return Counter(map(tuple, answer))


# --- in the child ----------------------------------------------------------------------------------


def _work(line: Connection, home: Path, fault: str) -> None:
    """Do what comes down the line, one thing after the other, until it is closed or the process is killed."""
    if fault:
        FAULTS[fault][0]()
    db: Database | None = None
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            task, *arguments = line.recv()
            if task == "open":
                home = arguments[0]
            try:
                if db is None or task == "open":
                    if db is not None:
                        db.close()
                    db = opening.open(home / "db")
                if fault == "acknowledged before it is done" and task == "load":
                    line.send(("done", None))
                    _do(db, task, arguments)
                    continue
                line.send(("done", _do(db, task, arguments)))
            except ScumbleError as error:
                line.send(("refused", f"{task}: {type(error).__name__}: {error.message}"))
            except Exception as error:
                line.send(("refused", f"{task}: {type(error).__name__} (no ScumbleError): {error}"))
    os._exit(0)


def _do(db: Database, task: str, arguments: list[Any]) -> Any:  # noqa: PLR0911  one for each task
    match task:
        case "load":
            table, batch = arguments
            return _load(db, table, batch)
        case "drop":
            return db.drop(*arguments)
        case "rekey":
            return db.rekey()
        case "check":
            return db.check()
        case "ask":
            table, kind, low, high = arguments
            return _asked(db, table, QUERIES[kind].format(table), [low, high])
        case "files":
            return db.version, {run.id for table in db.tables for run in table.runs}
    return None


def _asked(db: Database, table: str, query: str, bounds: list[int], tries: int = 5) -> Any:
    """An answer; None if there is no such table. It may be dropped, or made, between the question and a look."""
    try:
        return _comparable(db.sql(query, bounds).fetchall())
    except BadQuery:
        if table not in [there.name for there in db.tables]:
            return None
        if not tries:
            raise
        return _asked(db, table, query, bounds, tries - 1)


def _load(db: Database, table: str, batch: Batch) -> None:
    kinds = (pa.int32(), pa.int32(), pa.string(), pa.string(), pa.int32())
    columns = list(zip(*values_of(batch), strict=True)) or [()] * len(kinds)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    source = pa.table(arrays, names=list(TYPES))
    db.load(table, source, indexes=INDEXES, types=TYPES, page_rows=PAGE_ROWS, capacity=CAPACITY, again=True)


# --- planted: what each does to a child, and what must be found broken -----------------------------


def _tear_commits() -> None:
    """HEAD is renamed before the tags that it vouches for are written."""
    from scumble.store import runs
    from scumble.store.files import FileStore

    late: list[tuple[Any, ...]] = []
    replace = runs.replace
    commit = FileStore.commit

    def committed(store: FileStore, version: int, manifest: bytes) -> None:
        commit(store, version, manifest)
        time.sleep(0.5)
        while late:
            replace(*late.pop())

    patch(runs, "replace", lambda *arguments: late.append(arguments))
    patch(FileStore, "commit", committed)


def _clear_nothing() -> None:
    """What a dead writer has left stays."""
    from scumble.provider.front import Provider
    from scumble.store.files import FileStore

    patch(FileStore, "_clear_leftovers", lambda store: None)
    patch(Provider, "drop_unreferenced", lambda provider, keep=(): 0)


def _keep_answers() -> None:
    """Every answer stays in memory, and more with it."""
    kept: list[bytes] = []
    sql = Database.sql

    def keeping(db: Database, *arguments: Any) -> Any:
        kept.append(os.urandom(1 << 19))
        return sql(db, *arguments)

    patch(Database, "sql", keeping)


def _load_twice() -> None:
    """Now and then a load is made twice."""
    load = Database.load

    def twice(db: Database, *arguments: Any, **options: Any) -> Any:
        if time.time_ns() // 1000 % 2 == 0:
            load(db, *arguments, **options)
        return load(db, *arguments, **options)

    patch(Database, "load", twice)


def _forget_spending() -> None:
    """Opening the database puts an old copy of the ledger back."""
    enter = opening.open

    def forgetting(folder: Path, **options: Any) -> Database:
        ledger = folder.with_suffix(".ledger")
        copy = folder.parent.parent / f"{folder.parent.name}.copy"
        with suppress(OSError):
            shutil.copy(*((copy, ledger) if copy.exists() else (ledger, copy)))
        return enter(folder, **options)

    patch(opening, "open", forgetting)


FAULTS: dict[str, tuple[Callable[[], None], tuple[Kind, ...]]] = {
    "acknowledged before it is done": (lambda: None, ("load",)),
    "loaded twice": (_load_twice, ("load", "state")),
    "HEAD before its tags": (_tear_commits, ("refusal",)),
    "leftovers stay": (_clear_nothing, ("files",)),
    "answers pile up": (_keep_answers, ("memory",)),
    "old ledger put back": (_forget_spending, ("ledger",)),
}


# --- the parent ------------------------------------------------------------------------------------


class Child:
    """A process that works on the database, and the line to it."""

    def __init__(self, home: Path, fault: str) -> None:
        self.line, far = FORK.Pipe()
        self.process = FORK.Process(target=_work, args=(far, home, fault), daemon=True)
        self.process.start()
        far.close()

    def say(self, *task: Any) -> None:
        self.line.send(task)

    def heard(self, seconds: float = PATIENCE_SECONDS) -> tuple[str, Any] | None:
        try:
            if not self.line.poll(seconds):
                return None
            answer: tuple[str, Any] = self.line.recv()
        except (EOFError, ConnectionError):
            return None
        return answer

    def ask(self, *task: Any) -> Any:
        """Have something done that has to succeed."""
        self.say(*task)
        return self.done(self.heard())

    def done(self, answer: tuple[str, Any] | None) -> Any:
        """What it answered; Broken if that is a refusal, or nothing."""
        if answer is None:
            raise Broken("hang", "no answer")
        if answer[0] == "refused":
            raise Broken("refusal", answer[1])
        return answer[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def memory(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Soak:
    """The parent: it orders every change, so it knows what the database has to hold."""

    def __init__(self, folder: Path, rng: Random, fault: str) -> None:
        self._folder, self._rng, self._fault = folder, rng, fault
        self.tally = Tally()
        self._next_seed = 0
        self._took: dict[str, float] = {}
        self._make_home()
        self._reader, self._writer = Child(self._home, fault), Child(self._home, fault)

    def go_on(self, seconds: float) -> None:
        """Take steps for so long; then look at what is left."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()
        self._check_end()
        self._check_memory()

    def step(self) -> None:
        """Do one thing, and hold what came of it against the truth."""
        self.tally.steps += 1
        chance = self._rng.random()
        table = self._rng.choice(TABLES)
        if chance < 0.55:
            self._ask(self._rng.choice([self._reader, self._writer]), table, self._rng.choice(list(QUERIES)))
        elif len(self._held[table]) >= MOST_BATCHES or (chance < 0.6 and self._held[table]):
            self._write("drop", table, [])
        elif chance < 0.94:
            self._next_seed += 1
            batch = (self._next_seed, self._rng.choice([1, MOST_ROWS, self._rng.randint(2, MOST_ROWS)]))
            self._write("load", table, [*self._held[table], batch], batch)
        elif chance < 0.97:
            self._write("rekey", table, self._held[table])
        else:
            self._write("check", table, self._held[table])
        self.tally.memory.append(self._reader.memory())
        if self.tally.steps % 20 == 0:
            self._check_ledger()
        if self._versions >= LIFE_VERSIONS:
            self._check_end()
            self._begin_again()

    def close(self) -> None:
        self._writer.kill()
        self._reader.kill()

    # --- one life of a database --------------------------------------------------------------------

    def _make_home(self) -> None:
        self.tally.lives += 1
        self._home = self._folder / f"home{self.tally.lives}"
        self._home.mkdir()
        if _in_a_child(lambda: opening.create(self._home / "db", limit=10**6, delta_limit="1e-2").close()):
            raise Broken("refusal", "the database cannot be made")
        self._held: dict[str, list[Batch]] = {table: [] for table in TABLES}
        self._versions = 0
        self._spent: dict[int, tuple[str, str]] = {}

    def _begin_again(self) -> None:
        """Go on with a new database; the reader stays."""
        self._writer.kill()
        old = self._home
        self._make_home()
        self._reader.ask("open", self._home)
        self._writer = Child(self._home, self._fault)
        shutil.rmtree(old)

    def _write(self, task: str, table: str, after: list[Batch], *more: Any) -> None:
        """Have the writer change something; perhaps kill it meanwhile. The table holds what it did, or `after`."""
        before = self._held[table]
        given = {"load": (table, *more), "drop": (table,)}.get(task, ())
        self._versions += 1
        start = time.monotonic()
        self._writer.say(task, *given)
        if self._rng.random() < 0.3:  # a reader meanwhile sees the one or the other
            self._is_one_of(table, before, after)
        killing = self._rng.random() < 0.5
        delay = self._rng.uniform(0, 1.3) * self._took.get(task, 0.1) - (time.monotonic() - start)
        answer = self._writer.heard(max(0.0, delay) if killing else PATIENCE_SECONDS)
        if answer is None and killing:
            self._writer.kill()
            self.tally.kills += 1
            answer = self._writer.heard(0)  # it may have been done just before
            self._writer = Child(self._home, self._fault)
        elif answer is not None:
            self._took[task] = 0.5 * self._took.get(task, 0.1) + 0.5 * (time.monotonic() - start)
        if answer is None and killing:
            self._held[table] = self._is_one_of(table, before, after)
            self.tally.cut_short += self._held[table] is before and before != after
            self._check_ledger()
            return
        self._writer.done(answer)
        self._held[table] = after
        if task == "load":
            self.tally.loads += 1
            self._is_loaded(table)

    def _is_one_of(self, table: str, before: list[Batch], after: list[Batch]) -> list[Batch]:
        """Which of two states the reader sees."""
        for state in self._seen(table, after, before):
            return state
        raise Broken("state", f"{table} holds neither what it held nor what it was to hold")

    def _is_loaded(self, table: str) -> None:
        if not self._seen(table, self._held[table]):
            raise Broken("load", f"an acknowledged load into {table} is not there exactly once")

    def _seen(self, table: str, *states: list[Batch]) -> list[list[Batch]]:
        """Those of some states that agree with what the reader sees."""
        self.tally.queries += 1
        found = self._reader.ask("ask", table, "batches", 0, 1) or Counter()
        return [state for state in states if found == answer_of("batches", state, 0, 1)]

    def _ask(self, child: Child, table: str, kind: str) -> None:
        most = 1023 if kind == "other" else 127
        low = self._rng.randint(0, most)
        high = self._rng.randint(low, most)
        self.tally.queries += 1
        found = child.ask("ask", table, kind, low, high)
        if found is None and not self._held[table]:
            return
        if found != answer_of(kind, self._held[table], low, high):
            raise Broken("answer", f"{kind} {low}..{high} of {table}")

    # --- what has to hold of the files -------------------------------------------------------------

    def _check_ledger(self) -> None:
        """Every spend that was ever seen is there, for as much; one that was drawn, or given back, stays so."""
        with Ledger.open(self._home / "db.ledger") as ledger:
            entries = {entry.id: (str(entry.epsilon), str(entry.state)) for entry in ledger.entries()}
        for number, (epsilon, state) in self._spent.items():
            if number not in entries or entries[number][0] != epsilon or state not in ("open", entries[number][1]):
                raise Broken("ledger", f"spend {number} is gone or changed")
        self._spent = entries
        drawn = sum(state == "drawn" for _, state in entries.values())
        if drawn < len(INDEXES) * sum(len(batches) for batches in self._held.values()):
            raise Broken("ledger", "there are loads that nothing was drawn for")

    def _check_end(self) -> None:
        """After a clean writer: all tables right, every page whole, and no file that the head does not name."""
        self._next_seed += 1
        batch = (self._next_seed, MOST_ROWS)
        if self._held[TABLES[0]]:
            self._writer.ask("drop", TABLES[0])
        self._writer.ask("load", TABLES[0], batch)
        self._held[TABLES[0]] = [batch]
        self._writer.ask("check")
        for table in TABLES:
            self._is_loaded(table)
            for kind in QUERIES:
                self._ask(self._reader, table, kind)
        self._check_ledger()
        version, runs = self._writer.ask("files")
        names = wrong_files(self._home / "db", version, runs)
        names += sorted({path.name for path in self._home.iterdir()} ^ {"db", "db.key", "db.ledger", "db.anchor"})
        if names:
            raise Broken("files", f"left behind or missing: {len(names)}, {', '.join(names[:4])}")

    def _check_memory(self) -> None:
        """The same queries again and again leave nothing in the reader; nor did a long run."""
        kinds = list(QUERIES)
        for number in range(WARM):
            self._ask(self._reader, TABLES[number % len(TABLES)], kinds[number % len(kinds)])
        before = self._reader.memory()
        for number in range(ASKED):
            self._ask(self._reader, TABLES[number % len(TABLES)], kinds[number % len(kinds)])
        self.tally.growth, memory = self._reader.memory() - before, self.tally.memory
        if self.tally.growth > GROWTH_MEBIBYTES:
            raise Broken("memory", f"{ASKED} answers left {self.tally.growth:.0f} MiB")
        if len(memory) >= TREND_SAMPLES and self.tally.trend() > max(GROWTH_MEBIBYTES, TREND_SHARE * median(memory)):
            raise Broken("memory", f"the reader grew by {self.tally.trend():.0f} MiB to {memory[-1]:.0f} MiB")


def _in_a_child(work: Callable[[], object]) -> int:
    process = FORK.Process(target=work)
    process.start()
    process.join(PATIENCE_SECONDS)
    return 1 if process.exitcode is None else process.exitcode


def main() -> int:
    """Soak, and say how it went every minute or so; 1 if anything broke."""
    parser = argparse.ArgumentParser(description="Mixed loads and queries with random kills.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", choices=list(FAULTS), default="", help="plant this, which has to be found")
    given = parser.parse_args()
    tally, broken = soak(given.seconds, given.seed, given.fault)
    print(tally)
    if broken is not None:
        print(f"broken: {broken}")
    return 0 if broken is None else 1


if __name__ == "__main__":
    sys.exit(main())
