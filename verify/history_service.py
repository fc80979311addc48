"""Long histories at a service: two enclaves, three clients at a time, and kills meanwhile.

Each client changes a table of its own, as `verify.histories` does, and compares every result with its own DuckDB; it
reads the others' tables, and adds to a column of its own in a table that all of them change. Enclaves, and now and then
the front, are killed at random. Checked:

- a statement that is reported as done is done; one that fails with an error is done as a whole or not at all, and not
  at all unless the error says that nobody can tell;
- what a client sees of another's table is that table after some statement, no older than the last one that was done
  before it asked, and no newer than those that had begun when it was answered;
- no client's additions to the shared table are lost by another's;
- in the end all tables, read over a new connection, are what the clients say, and every page opens.
"""

# ruff: noqa: S608  statements are made of parts here

import hashlib
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import scumble
from scumble.errors import Busy, ScumbleError, Stale, Unavailable, Unfinished
from scumble.owner.database import Database
from scumble.owner.ledger import Ledger
from scumble.owner.remote import service
from verify import folder_in_memory, patch
from verify.history_mirror import REFUSED, TableShape
from verify.history_orders import carry_out, rooms_of
from verify.history_statements import WEIGHTS, Entry, History
from verify.service_front import Front

__all__ = ["SERVICE_FAULTS", "Report", "ServiceTally", "digest_of", "serve_history", "wrong_sights"]

CLIENTS, KEYS, LOOK_EVERY = 3, 40, 8
MOST_BETWEEN = 120  # statements, from one kill to the next
SERVERS = multiprocessing.get_context("forkserver")
LEASE_SECONDS, RENEW_SECONDS, PATIENCE_SECONDS = 20.0, 3.0, 180.0
LATER = (Unavailable, Busy, Stale)  # a client is told to try again
LEFT_OUT = ("rekey", "backup", "rename table", "drop table", "reopen")
SHARED = "CREATE TABLE shared (k integer not null, c0 integer not null, c1 integer not null, c2 integer not null)"
SHARED_INDEX = " WITH (index = 'k int:0:63 epsilon=1 slack=lossless')"

T = TypeVar("T")
State = tuple[str, float, float]
"""A table's rows as a digest, when the statement that made it was sent, and when it was done."""
Seen = tuple[str, float, float, str]


@dataclass
class Report:
    """What a client did, and what it found wrong."""

    number: int = 0
    statements: int = 0
    answers: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    states: list[State] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Wrong(Exception):
    """Something that does not hold."""


# --- a client ----------------------------------------------------------------------------------------


def client(
    line: Connection, url: str, key: Path, number: int, seed: int, statements: int, end: float, fault: str
) -> None:
    """So many statements, or until a time: a word for each goes down the line, and what was done in the end."""
    service.RENEW_SECONDS = RENEW_SECONDS  # the service's lease is shorter here too
    if fault:
        SERVICE_FAULTS[fault]()
    made = Client(url, key, number, seed, lambda: line.send(None))
    try:
        made.go_on(statements, end)
    except Wrong as error:
        made.report.wrong.append(str(error))
    except Exception as error:
        where = " < ".join(
            f"{frame.name}:{frame.lineno}" for frame in reversed(traceback.extract_tb(error.__traceback__))
        )
        made.report.wrong.append(f"{type(error).__name__}: {error} at {where}")
    made.report.number = number
    line.send(made.report)


class Client:
    """One that changes its own table, reads the others, and adds to the shared one."""

    def __init__(self, url: str, key: Path, number: int, seed: int, told: Callable[[], None]) -> None:
        self._number, self._told = number, told
        self._rng = Random(100 * seed + number)
        weights = {kind: weight for kind, weight in WEIGHTS.items() if kind not in LEFT_OUT}
        self._history = History(Random(100 * seed + 50 + number), (f"w{number}",), weights)
        self._table = self._history.tables[0]
        self.report = Report(added=[0] * KEYS)
        self._db: Database = opened(url, key)

    def go_on(self, statements: int, end: float) -> None:
        for entry in self._history.first():
            if entry.kind != "create table":  # which the parent has done
                self._change(entry)
        turns = 0
        while self.report.statements < statements and time.monotonic() < end:
            chance = self._rng.random()
            if chance < 0.12:
                self._add()
            else:
                self._change(self._history.next())
            if chance > 0.5:
                self._read_another()
            self._told()
            turns += 1
            if turns % LOOK_EVERY == 0:
                self._look()
        self._look()
        self._db.close()

    def _change(self, entry: Entry) -> None:
        """Do one thing to the own table."""
        self.report.statements += len(entry.order[1]) if entry.order[0] == "all" else 1
        before, sent = self._history.saved(), time.monotonic()
        found, error = self._tried(lambda: carry_out(self._db, entry.order))
        expected = entry.follow()
        if error is not None:
            if not self._was_done(lambda: self._asked(self._table.name), self._digest, before, error):
                self._history.put_back(before)
        elif entry.order[0] == "all" and entry.order[2] and not found[1]:
            if REFUSED not in found[0]:
                raise Wrong(f"a transaction was rolled back: {entry.order}"[:600])
            self._history.put_back(before)
        else:
            found = found[0] if entry.order[0] == "all" else found
            if expected is not None and found != expected:
                raise Wrong(f"{entry.kind} gave {found}, not {expected}: {entry.order}"[:600])
            self._table.room = rooms_of(self._db).get(self._table.name, 0)
        self.report.states.append((self._digest(), sent, time.monotonic()))

    def _tried(self, work: Callable[[], Any]) -> tuple[Any, ScumbleError | None]:
        """What came of it, or the error of a service that was lost or kept busy."""
        try:
            return work(), None
        except LATER as error:
            self.report.errors[type(error).__name__] += 1
            if self._db.in_transaction:
                with suppress(*LATER):
                    self._db.execute("ROLLBACK")
            return None, error

    def _was_done(self, asked: Callable[[], str], digest: Callable[[], str], before: Any, error: ScumbleError) -> bool:
        """Whether a statement that ended with an error was done after all: the mirror is as if it was."""
        there, after, saved = asked(), digest(), self._history.saved()
        self._history.put_back(before)
        old = digest()
        self._history.put_back(saved)
        if there not in (old, after):
            raise Wrong(f"neither before nor after: {type(error).__name__}: {error.message}")
        if there == old:
            return False
        if not isinstance(error, Unfinished):
            raise Wrong(f"done in spite of {type(error).__name__}: {error.message}")
        return True

    def _add(self) -> None:
        """Add 1 to the own column of some rows of the table that all clients change."""
        self.report.statements += 1
        low = self._rng.randrange(KEYS)
        high = min(KEYS - 1, low + self._rng.choice([0, 3, KEYS]))
        column = f"c{self._number}"
        text = f"UPDATE shared SET {column} = {column} + 1 WHERE k BETWEEN {low} AND {high}"
        found, error = self._tried(lambda: carry_out(self._db, ("sql", text, (), None)))
        before = list(self.report.added)
        after = [count + (low <= key <= high) for key, count in enumerate(before)]
        if error is None:
            self.report.added = after
            if found != high - low + 1:
                raise Wrong(f"an addition to the shared table changed {found} rows")
            return
        there = self._own_column()
        if there not in (before, after) or (there == after and not isinstance(error, Unfinished)):
            raise Wrong(f"the shared table after {type(error).__name__}: {error.message}")
        self.report.added = there

    def _own_column(self) -> list[int]:
        query = f"SELECT k, c{self._number} FROM shared"
        return [count for _, count in sorted(self._persisting(lambda: self._db.sql(query).fetchall()))]

    def _look(self) -> None:
        """The own table, a query about it and the own column are what they should be."""
        if self._asked(self._table.name) != self._digest():
            raise Wrong("the table is not that of DuckDB")
        query = self._history.question(self._table, self._rng)
        found = self._persisting(lambda: carry_out(self._db, ("ask", query)))
        if found != self._history.mirror.ask(query):
            raise Wrong(f"another answer: {query}")
        if self._own_column() != self.report.added:
            raise Wrong("additions to the shared table are lost, or made twice")
        self.report.answers += 3

    def _read_another(self) -> None:
        table = f"w{self._rng.choice([number for number in range(CLIENTS) if number != self._number])}"
        began = time.monotonic()
        found = self._asked(table)
        self.report.seen.append((table, began, time.monotonic(), found))
        self.report.answers += 1

    def _asked(self, table: str) -> str:
        return digest_of(self._persisting(lambda: carry_out(self._db, ("ask", f"SELECT * FROM {table}"))))

    def _digest(self) -> str:
        return digest_of(self._history.mirror.ask(f"SELECT * FROM {self._table.name}"))

    def _persisting(self, work: Callable[[], T]) -> T:
        """Ask until the service is there."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return work()
            except LATER as error:
                self.report.errors[f"{type(error).__name__} of a query"] += 1
                if time.monotonic() > end:
                    raise


def digest_of(rows: list[Any]) -> str:
    """What tells rows from others."""
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def opened(url: str, key: Path) -> Database:
    """A connection of the owner's."""
    return scumble.open(url, key=key, insecure_simulated_enclave=True, timeout_seconds=60, connect_seconds=60)


# --- planted: clients that do wrong --------------------------------------------------------------------


def _stay_behind() -> None:
    """A client does not listen to what the service says of newer versions."""
    patch(service.RemoteService, "stamp", lambda remote: "")


def _repeat() -> None:
    """A change whose answer is lost, or is taken for lost, is made once more."""
    run, chance = Database._run_change, Random(7)

    def twice(db: Database, *given: Any) -> Any:
        if chance.random() < 0.1:
            run(db, *given)
        return run(db, *given)

    patch(Database, "_run_change", twice)


SERVICE_FAULTS: dict[str, Callable[[], None]] = {"an old version shown": _stay_behind, "a change made twice": _repeat}


# --- the parent --------------------------------------------------------------------------------------


@dataclass
class ServiceTally:
    """What all clients did."""

    statements: int = 0
    answers: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} of {victim}" for victim, count in sorted(self.kills.items()))
        errors = ", ".join(f"{count} {name}" for name, count in self.errors.most_common())
        return (
            f"{self.statements:,} statements of {CLIENTS} clients, {self.answers:,} answers, "
            f"{self.kills.total()} kills "
            f"({kills or 'none'}), errors: {errors or 'none'}" + "".join(f"; wrong: {each}" for each in self.wrong)
        )


def serve_history(
    statements: int, seed: int, *, kills: bool, fault: str = "", seconds: float = float("inf"), trace: bool = False
) -> ServiceTally:
    """So many statements in all, or as many as there is time for; what was done, and what was wrong."""
    with folder_in_memory() as folder:
        served = folder / "served"
        served.mkdir()
        SERVERS.set_forkserver_preload(["verify.history_service"])
        front = Front(served, folder / "front.log", lease_seconds=LEASE_SECONDS)
        try:
            return _served(front, folder, statements, seed, fault, seconds, kills=kills, trace=trace)
        finally:
            front.stop()


def _served(
    front: Front, folder: Path, statements: int, seed: int, fault: str, seconds: float, *, kills: bool, trace: bool
) -> ServiceTally:
    url, key, tally = f"scumble://127.0.0.1:{front.port}/db", folder / "db.key", ServiceTally()
    rows = [(number, 0, 0, 0) for number in range(KEYS)]
    options = {"limit": 10**6, "delta_limit": "1e-1", "insecure_simulated_enclave": True}
    with scumble.create(url, key=key, **options) as db:  # type: ignore[arg-type]
        db.execute(SHARED + SHARED_INDEX)
        db.insert("shared", rows)
        db.flush("shared")
        for number in range(CLIENTS):
            db.execute(TableShape(f"w{number}").definition())
    end, running = time.monotonic() + seconds, []
    for number in range(CLIENTS):
        line, far = SERVERS.Pipe()
        given = (far, url, key, number, seed, -(-statements // CLIENTS), end, fault)
        process = SERVERS.Process(target=client, args=given, daemon=True)
        process.start()
        far.close()
        running.append((line, process))
    reports = _awaited(front, running, Random(seed), tally, kills=kills, trace=trace)
    for report in reports:
        tally.statements += report.statements
        tally.answers += report.answers
        tally.errors += report.errors
        tally.wrong += report.wrong
    if not tally.wrong:
        tally.wrong += wrong_sights(reports)
        tally.wrong += _wrong_end(url, key, reports)
    return tally


def _awaited(
    front: Front, running: list[Any], rng: Random, tally: ServiceTally, *, kills: bool, trace: bool
) -> list[Report]:
    """Kill now and then until all clients have reported."""
    reports: list[Report] = []
    waiting, left, steps = [line for line, _ in running], rng.randint(1, MOST_BETWEEN), 0
    while waiting and not any(report.wrong for report in reports):
        for line in wait(waiting, PATIENCE_SECONDS) or waiting:
            report = _heard(line)
            if report is not None:
                waiting.remove(line)
                reports.append(report)
            left -= 1
            steps += 1
        if kills and waiting and left < 0:
            time.sleep(rng.uniform(0, 0.3))
            _kill(front, rng, tally)
            if trace:
                print(f"{steps} steps, {tally.kills.total()} kills", flush=True)
            left = rng.randint(1, MOST_BETWEEN)
    for _, process in running:
        process.kill()
        process.join()
    return sorted(reports, key=lambda report: report.number)


def _heard(line: Any) -> Report | None:
    """A client's report; None if it has done one more thing."""
    try:
        if not line.poll(0):
            return Report(wrong=[f"no client has got anything done for {PATIENCE_SECONDS} seconds"])
        heard: Report | None = line.recv()
    except EOFError:
        return Report(wrong=["a client died"])
    return heard


def _kill(front: Front, rng: Random, tally: ServiceTally) -> None:
    if rng.random() < 0.05:
        if front.kill():
            tally.wrong.append("an enclave outlives its front")
        time.sleep(rng.uniform(0, 0.5))
        front.start()
        tally.kills["the front"] += 1
    elif there := front.enclaves():
        with suppress(ProcessLookupError):
            os.kill(rng.choice(there), signal.SIGKILL)
            tally.kills["enclaves"] += 1


def wrong_sights(reports: list[Report]) -> list[str]:
    """What was seen of another's table, and was not one of its states at that time."""
    wrong = []
    for seer, report in enumerate(reports):
        for table, began, ended, digest in report.seen:
            states = [(digest_of([]), 0.0, 0.0), *reports[int(table[1:])].states]
            oldest = max((place for place, (_, _, done) in enumerate(states) if done < began), default=0)
            fits = [each for place, (each, sent, _) in enumerate(states) if place >= oldest and sent <= ended]
            if digest not in fits:
                known = "another state" if digest in [each for each, _, _ in states] else "no state"
                wrong.append(f"client {seer} saw {known} of {table}")
    return wrong


def _wrong_end(url: str, key: Path, reports: list[Report]) -> list[str]:
    """The tables, read over a new connection, are what the clients say; every page opens."""
    wrong = []
    with opened(url, key) as db:
        for number, report in enumerate(reports):
            if digest_of(carry_out(db, ("ask", f"SELECT * FROM w{number}"))) != report.states[-1][0]:
                wrong.append(f"the table of client {number} is another in the end")
            column = [count for _, count in sorted(db.sql(f"SELECT k, c{number} FROM shared").fetchall())]
            if column != report.added:
                wrong.append(f"additions of client {number} are lost, or made twice")
        db.check()
    with Ledger.open(key.with_suffix(".ledger")) as ledger:
        if not any(entry.state == "drawn" for entry in ledger.entries()):
            wrong.append("nothing was drawn")
    return wrong
