"""Long histories of statements, step by step against DuckDB: embedded, with kills at every write, and at a service.

    python -m verify.histories [--statements 10000] [--seed 1] [--kills] [--service]

Statements of every kind by chance (verify/history_statements.py) go to one database of two small tables: INSERT,
UPDATE, DELETE, upserts, transactions, definitions, indexes, loads, flushes, merges, vacuums, rekeys, backups and
reopenings. DuckDB does the same. Compared are the number of rows that each statement has changed, and every few
statements all tables and some queries, by the writer or by a second process that reads.

With --kills the writer dies at a chosen write of many statements, from kill to kill spread evenly over all writes that
a statement of that kind has, so that each of them has its turn. Then the tables are those before the statement
or those after it, the ledger has every spend it had, and no more was charged than for the whole statement; often the
same statement is tried again, at no further cost. With --service, see verify/history_service.py.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import scumble
from scumble.owner.ledger import Ledger
from verify import Row, folder_in_memory
from verify.history_mirror import REFUSED
from verify.history_orders import FAULTS, work
from verify.history_service import SERVICE_FAULTS, serve_history
from verify.history_statements import WEIGHTS, Entry, History

__all__ = ["Broken", "Run", "Tally", "planted", "rows", "run"]

SERVERS = multiprocessing.get_context("forkserver")
PATIENCE_SECONDS = 300
LOOK_EVERY, LEDGER_EVERY = 8, 50
KILLED, RARE_KILLED, AGAIN = 0.25, 0.8, 0.5  # of the statements, of the rare kinds, and of those that were killed
UNKNOWN_WRITES, GOLDEN = 40, 0.6180339887
MANY, PLANTED, PLANTED_SECONDS = 10**9, 400, 60.0
NEVER_KILLED = ("reopen", "check", "backup", "create table")


def rows(seconds: float) -> Iterator[Row]:
    """Histories for half of the time; then faults are planted, each of which has to be found."""
    seed = int(time.time())
    tally, broken = run(MANY, seed, kills=True, seconds=0.3 * seconds)
    found = {name: planted(name) for name in FAULTS}
    yield Row(
        "after any history of statements, cut short at any write, the tables are those of DuckDB",
        "statements of every kind by chance against DuckDB; a writer that dies at one write after the other",
        f"{tally}" if broken is None else f"{tally}; {broken}",
        broken is None and tally.statements > 0,
        tuple(FAULTS),
        tuple(name for name, error in found.items() if error is not None and error.kind in FAULTS[name].shows),
    )
    served = serve_history(MANY, seed, kills=True, seconds=0.3 * seconds)
    yield Row(
        "clients of a service that change tables at a time lose nothing and see whole statements only",
        "three clients with a DuckDB each, two enclaves, random SIGKILLs",
        str(served),
        not served.wrong and served.statements > 0,
        tuple(SERVICE_FAULTS),
        tuple(
            name
            for name in SERVICE_FAULTS
            if serve_history(PLANTED, 1, kills=False, fault=name, seconds=PLANTED_SECONDS).wrong
        ),
    )


def planted(name: str) -> "Broken | None":
    """What is found broken of a history with a fault."""
    return run(PLANTED, 1, kills=FAULTS[name].kills, fault=name, seconds=PLANTED_SECONDS)[1]


class Broken(Exception):
    """Something that does not hold."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


@dataclass
class Tally:
    """What was done."""

    kinds: Counter[str] = field(default_factory=Counter)
    within: int = 0
    answers: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    undone: int = 0
    writes: Counter[str] = field(default_factory=Counter)

    @property
    def statements(self) -> int:
        """Those within transactions too."""
        return self.kinds.total() + self.within

    def __str__(self) -> str:
        killed = f", {self.kills.total():,} kills ({self.undone:,} undone)" if self.kills else ""
        return f"{self.statements:,} statements, {self.answers:,} answers{killed}"


class Worker:
    """A process that carries out orders, and the line to it."""

    def __init__(self, home: Path, fault: str) -> None:
        self._line, far = SERVERS.Pipe()
        self._process = SERVERS.Process(target=work, args=(far, home, fault), daemon=True)
        self._process.start()
        far.close()

    def do(self, order: tuple[Any, ...], dying: int = 0) -> tuple[Any, dict[str, int], int] | None:
        """Have something done: what came of it, the room of each table and the number of writes. None if it died."""
        try:
            self._line.send((dying, order))
            if not self._line.poll(PATIENCE_SECONDS):
                raise Broken("hang", f"no answer to {order[0]}")
            what, found, rooms, writes = self._line.recv()
        except (EOFError, ConnectionError):
            self.close()
            if not dying:
                raise Broken("death", f"a process died of {order[0]}") from None
            return None
        if what == "error":
            raise Broken("error", f"{_said(order)}: {found}")
        return found, rooms, writes

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def _said(order: tuple[Any, ...]) -> str:
    """Rows are made up here, and no secret."""
    return str(order[1])[:200] if order[0] in ("sql", "ask") else str(order)[:400]


class Run:
    """One history on one database in a folder."""

    def __init__(self, folder: Path, seed: int, *, kills: bool, fault: str = "", trace: bool = False) -> None:
        SERVERS.set_forkserver_preload(["verify.history_orders"])
        self._rng, self._asking, self._kills, self._fault = Random(seed), Random(seed + 2), kills, fault
        weights = dict.fromkeys(FAULTS[fault].kinds, 1.0) if fault else None
        self._trace, self.history, self.tally = trace, History(Random(seed + 1), weights=weights), Tally()
        self._home = folder / "home"
        self._home.mkdir()
        self._spends: dict[int, tuple[Fraction, str]] = {}
        self._turns: Counter[str] = Counter()
        scumble.create(self._home / "db", limit=10**6, delta_limit="1e-1").close()
        self._writer, self._reader = Worker(self._home, fault), Worker(self._home, "")

    def go_on(self, statements: int, seconds: float = float("inf")) -> None:
        """So many statements, within so many seconds; then a last look."""
        end = time.monotonic() + seconds
        for entry in self.history.first():
            self._step(entry)
        while self.tally.statements < statements and time.monotonic() < end:
            self._step(self.history.next())
        self._writer.do(("check",))
        self._look()
        self._check_ledger()

    def close(self) -> None:
        self._writer.close()
        self._reader.close()

    def _step(self, entry: Entry) -> None:
        """Do one thing, perhaps in more than one attempt, and compare."""
        spent = self._check_ledger() if entry.cost or self.tally.kinds.total() % LEDGER_EVERY == 0 else None
        self.tally.kinds[entry.kind] += 1
        self.tally.within += len(entry.order[1]) if entry.order[0] == "all" else 0
        if self._trace:
            print(f"{self.tally.statements} {entry.kind}: {entry.order}", flush=True)
        while not self._try(entry, spent):
            if self._rng.random() > AGAIN:
                break
        if entry.cost and spent is not None:
            self._check_ledger(spent + entry.cost)
        if self.tally.kinds.total() % (2 if self._fault else LOOK_EVERY) == 0:
            self._look()

    def _try(self, entry: Entry, spent: Fraction | None) -> bool:
        """Whether it was done; if not, the tables are as they were."""
        dying = self._chosen(entry)
        saved = self.history.saved() if dying or entry.order[0] == "all" else None
        answer = self._writer.do(entry.order, dying)
        expected = entry.follow()
        if answer is None:
            self._writer = Worker(self._home, self._fault)
            self.tally.kills[entry.kind] += 1
            return self._is_whole(entry, saved, spent)
        found, rooms, writes = answer
        self.tally.writes[entry.kind] = max(writes, self.tally.writes[entry.kind])
        if entry.order[0] == "all":
            found = self._settled(entry, saved, *found)
        if expected is not None and found != expected:
            raise Broken("result", f"{entry.kind} gave {_said((entry.kind, found, expected))}: {_said(entry.order)}")
        for shape in self.history.tables:
            shape.room = rooms.get(shape.name, 0)
        return True

    def _chosen(self, entry: Entry) -> int:
        """At which write to die: spread evenly over all that such a statement has, from one to the next. 0 for none."""
        if not self._kills or entry.kind in NEVER_KILLED:
            return 0
        often = self._fault or WEIGHTS.get(entry.kind, 1) < 1
        if self._rng.random() > (RARE_KILLED if often else KILLED):
            return 0
        self._turns[entry.kind] += 1
        most = self.tally.writes[entry.kind] or UNKNOWN_WRITES
        return 1 + int(self._turns[entry.kind] * GOLDEN % 1 * (most + 1))

    def _settled(self, entry: Entry, saved: Any, found: list[Any], made: bool) -> list[Any]:
        """Whether a transaction was made or not is as it was asked, unless a statement has failed half-way."""
        if entry.order[2] and not made:
            if REFUSED not in found:
                raise Broken("result", f"a transaction was rolled back: {_said(entry.order)}")
            self.history.put_back(saved)
        return found

    def _is_whole(self, entry: Entry, saved: Any, spent: Fraction | None) -> bool:
        """After a kill: whether the tables are those after the statement; else they are those before it."""
        self._check_ledger(None if spent is None else spent + entry.cost)
        there = self._writer.do(("whole",))
        assert there is not None
        if there[0] == self._truth():
            return True
        self.history.put_back(saved)
        if there[0] != self._truth():
            raise Broken("state", f"neither before nor after, killed in: {_said(entry.order)}")
        self.tally.undone += 1
        return False

    # --- what has to hold --------------------------------------------------------------------------

    def _truth(self) -> dict[str, Any]:
        return self.history.whole()

    def _look(self) -> None:
        """All tables, and a query about each, are what DuckDB has."""
        worker = self._asking.choice([self._writer, self._reader])
        there = worker.do(("whole",))
        assert there is not None
        if there[0] != self._truth():
            raise Broken("rows", "the tables are not those of DuckDB")
        self.tally.answers += len(self.history.tables)
        for shape in self.history.tables:
            query = self.history.question(shape, self._asking)
            found = worker.do(("ask", query))
            assert found is not None
            if found[0] != self.history.mirror.ask(query):
                raise Broken("answer", query)
            self.tally.answers += 1

    def _check_ledger(self, most: Fraction | None = None) -> Fraction:
        """Every spend that was ever seen is there, as dear as it was and drawn if it was; all of them are no more."""
        with Ledger.open(self._home / "db.ledger") as ledger:
            spends, spent = {entry.id: (entry.epsilon, str(entry.state)) for entry in ledger.entries()}, ledger.spent()
        for number, (epsilon, state) in self._spends.items():
            if number not in spends or spends[number][0] != epsilon or state not in ("open", spends[number][1]):
                raise Broken("ledger", f"spend {number} is gone or changed")
        self._spends = spends
        if most is not None and spent > most:
            raise Broken("ledger", f"{spent} is charged, which should be {most} at most")
        return spent


def run(
    statements: int, seed: int, *, kills: bool, fault: str = "", seconds: float = float("inf"), trace: bool = False
) -> tuple[Tally, Broken | None]:
    """One history; what was done, and what broke."""
    with folder_in_memory() as folder:
        made = Run(folder, seed, kills=kills, fault=fault, trace=trace)
        try:
            made.go_on(statements, seconds)
        except Broken as error:
            return made.tally, error
        finally:
            made.close()
        return made.tally, None


def main() -> int:
    """Run one, and say how it went; 1 if anything broke."""
    parser = argparse.ArgumentParser(
        prog="python -m verify.histories", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--statements", type=int, default=10_000, help="how many, 10,000 unless told")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long, whatever is left")
    parser.add_argument("--seed", type=int, default=1, help="the same seed asks for the same, kills included")
    parser.add_argument("--kills", action="store_true", help="let the writer die at its writes, one after the other")
    parser.add_argument("--service", action="store_true", help="by three clients at a service with two enclaves")
    parser.add_argument(
        "--fault", choices=[*FAULTS, *SERVICE_FAULTS], default="", help="plant this, which has to be found"
    )
    parser.add_argument(
        "--trace", action="store_true", help="print each statement before it is carried out, or each kill"
    )
    given = parser.parse_args()
    start = time.monotonic()
    options = {name: getattr(given, name) for name in ("kills", "fault", "seconds", "trace")}
    if given.service:
        done = serve_history(given.statements, given.seed, **options)
        print(f"{done}, {time.monotonic() - start:.0f} seconds")
        return 1 if done.wrong else 0
    tally, broken = run(given.statements, given.seed, **options)
    print(f"{tally}, {time.monotonic() - start:.0f} seconds")
    print("  " + ", ".join(f"{kind} {count}" for kind, count in tally.kinds.most_common()))
    if broken is not None:
        print(f"broken: {broken}")
    return 0 if broken is None else 1


if __name__ == "__main__":
    sys.exit(main())
