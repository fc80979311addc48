"""A writer that dies: killed at every call that changes a file, and around every commit of the ledger.

Each time the database opens in the old state or the new one, checks, can be loaded into, and has nothing left over
after that; and the ledger has every spend that was made before, drawn if noise may have been drawn.
"""

import builtins
import io
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databases import clean_files, copy, counted, create, expected, files, in_a_child, load, reopen, rows, stored, sums

from scumble.errors import ScumbleError
from scumble.owner import ledger_log
from scumble.owner.database import Database
from scumble.owner.ledger import Ledger, RecordedBudget
from scumble.privacy import noise

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CALLS = ("write", "pwrite", "posix_fallocate", "ftruncate", "fsync", "replace", "rename", "link", "unlink", "mkdir")
EVERY = 21  # of the calls one is tried by `make test`, all by `make verify`
Job = Callable[[Path], None]
_RANDOM = re.compile(r"[0-9a-f]{32}|(?<=\.)[a-z0-9_]{8}(?=\.new)")


def _die_at(number: int, half: bool, report: int) -> None:
    """From now on, kill this process at the call of this number, and say what the ledger was asked until then."""
    seen, write = 0, os.write

    def reach(call: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            if half and name in ("write", "pwrite"):
                handle, content, *offset = arguments
                call(handle, content[: len(content) // 2], *offset)
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(name: str, call: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            if counts(*arguments, **options):
                reach(call, name, arguments)
            return call(*arguments, **options)

        return counted

    def says(call: Callable[..., Any], text: Callable[[Any, Any], str]) -> Any:
        def saying(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            write(report, f"{text(arguments, result)}\n".encode())
            return result

        return saying

    for name in CALLS:
        setattr(os, name, wrap(name, getattr(os, name)))
    os.open = wrap("open", os.open, lambda _, flags, *__, **___: bool(flags & WRITING))
    opened = wrap("open", io.open, lambda _, mode="r", *__, **___: mode[0] in "wxa" or "+" in mode)
    io.open = builtins.open = opened
    commit = ledger_log._commit
    ledger_log._commit = lambda connection: (reach(commit, "", ()), commit(connection), reach(commit, "", ()))[1]  # type: ignore[func-returns-value]
    Ledger.spend = says(Ledger.spend, lambda _, budget: f"spent {budget._id}")  # type: ignore[method-assign]
    RecordedBudget.draw = says(RecordedBudget.draw, lambda budget, _: f"drawn {budget[0]._id}")  # type: ignore[method-assign]
    noise._key_stream = says(noise._key_stream, lambda *_: "noise 0")


def _dies(home: Path, job: Job, number: int, half: bool) -> tuple[bool, list[list[str]]]:
    """Do the job in a child that is killed at that call; whether it was, and what the ledger had said by then."""
    reading, writing = os.pipe()

    def work() -> None:
        _die_at(number, half, writing)
        job(home)

    code = in_a_child(work)
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = [line.split() for line in said.read().splitlines()]
    assert code in (0, -signal.SIGKILL)
    return code != 0, lines


def _check_ledger(home: Path, before: int, said: list[list[str]]) -> None:
    """Nothing that was spent is forgotten or given back; what was drawn is drawn; noise came after a draw."""
    with Ledger.open(home / "db.ledger") as ledger:
        states = {entry.id: entry.state for entry in ledger.entries()}
    assert len(states) >= before
    drawn: set[int] = set()
    for kind, number in said:
        if kind == "spent":
            assert states[int(number)] in ("open", "drawn")
        elif kind == "drawn":
            assert states[int(number)] == "drawn"
            drawn.add(int(number))
        elif {int(number) for kind, number in said if kind == "spent"}:
            assert drawn, "noise before any draw"


def _check_goes_on(home: Path, db: Database) -> None:
    """It checks, takes a further table, and nothing is left of the dead writer."""
    db.check()
    load(db, "further", 20, 5)
    assert counted(db, "further") == sums(5, count=20)
    db.check()
    there, wanted = files(home), clean_files(home, db)
    assert wanted <= there
    left = {_RANDOM.sub("*", name) for name in there - wanted}
    assert not left, f"left over: {', '.join(sorted(left))}"


def _text(error: Exception, home: Path) -> str:
    first = str(error).partition("\n")[0].replace(str(home), "home")
    return f"{type(error).__name__}: {first}"


def _state(db: Database, table: str, old: tuple[int, int], new: tuple[int, int]) -> str:
    found = counted(db, table)
    assert found in (old, new)
    return "old" if found == old else "new"


def _opened(work: Callable[[Database], object]) -> Job:
    def job(home: Path) -> None:
        with reopen(home) as db:
            work(db)

    return job


_second_batch = _opened(lambda db: load(db, "t", 100, 2, capacity=112))


def _all_at_once(db: Database) -> None:
    with db.transaction():
        db.insert("t", rows(20, 2))
        db.execute("DELETE FROM t WHERE k >= 50")
        db.execute("UPDATE t SET k = 1 WHERE k = 0")


def _keys(*seeds: int, count: int = 100) -> list[int]:
    return [key for seed in seeds for key in rows(count, seed)["k"].to_pylist()]


LOADED, MOVED = sums(1, count=100), [min(key, 60) for key in _keys(1)]
KEPT = [key for key in _keys(1) if key < 50]
SETTLED = [max(key, 1) for key in [*_keys(1), *_keys(2, count=20)] if key < 50]
WITH_TAIL = LOADED[0] + 20, LOADED[1] + sum(_keys(2, count=20))
JOBS = {
    "first load": (_opened(lambda db: load(db, "t", 100, 1, capacity=None)), "", (0, 0), LOADED),
    "second batch": (_second_batch, "t", LOADED, sums(1, 2, count=100)),
    "drop": (_opened(lambda db: db.drop("t")), "t", LOADED, (0, 0)),
    "rekey": (_opened(Database.rekey), "t and tail", WITH_TAIL, WITH_TAIL),
    "insert": (_opened(lambda db: db.insert("t", rows(20, 2))), "t", LOADED, WITH_TAIL),
    "delete": (_opened(lambda db: db.execute("DELETE FROM t WHERE k >= 50")), "t", LOADED, (len(KEPT), sum(KEPT))),
    "move": (_opened(lambda db: db.execute("UPDATE t SET k = 60 WHERE k > 60")), "t", LOADED, (100, sum(MOVED))),
    "transaction": (_opened(_all_at_once), "t", LOADED, (len(SETTLED), sum(SETTLED))),
    "flush": (_opened(lambda db: db.flush("t")), "t and tail", WITH_TAIL, WITH_TAIL),
    "compact": (_opened(lambda db: db.compact("t")), "t and tail", WITH_TAIL, WITH_TAIL),
    "vacuum": (_opened(lambda db: db.vacuum()), "t and tail", WITH_TAIL, WITH_TAIL),
}
LOADS_AND_KEYS = ("first load", "second batch", "drop", "rekey")
TWO_VERSIONS = ("first load", "second batch", "flush")  # they are paid for in one, and built in the next


def _origin(home: Path, prepared: str) -> tuple[int, int]:
    with create(home) as db:
        load(db, "other", 30, 3)
        if prepared:
            load(db, "t", 100, 1, capacity=112)
        if prepared == "t and tail":
            for some in (rows(10, 2), rows(20, 2).slice(10)):
                db.insert("t", some)
            db.execute("UPDATE t SET good = NULL WHERE k < 40")
        return db.version, len(db.ledger.entries())


def _check_job(tmp_path: Path, name: str, half: bool, every: int) -> None:
    job, prepared, old, new = JOBS[name]
    origin, home = tmp_path / "origin", tmp_path / "home"
    version, spends = _origin(origin, prepared)
    outcomes = []
    failures: dict[str, list[int]] = {}
    number, died = 1 - every, True
    while died:
        number += every
        copy(origin, home)
        died, said = _dies(home, job, number, half)
        try:
            _check_ledger(home, spends, said)
            with reopen(home) as db:
                state = _state(db, "t", old, new)
                if old == new:
                    state = "new" if db.version - version == (2 if name in TWO_VERSIONS else 1) else "old"
                done, steps = db.version - version, 2 if name in TWO_VERSIONS else 1
                assert done == steps if state == "new" else done < steps  # a load is paid for before it is built
                assert counted(db, "other") == sums(3, count=30)
                _check_goes_on(home, db)
            outcomes.append(state)
        except (AssertionError, ScumbleError) as error:
            failures.setdefault(_text(error, home), []).append(number)
        assert number < 1000
    assert number > 20
    assert failures == {}
    assert outcomes == sorted(outcomes, reverse=True)  # first old, then new, and never back
    assert set(outcomes) == {"old", "new"}


@pytest.mark.parametrize("name", JOBS)
def test_a_killed_writer_leaves_the_old_state_or_the_new_one(tmp_path: Path, name: str) -> None:
    _check_job(tmp_path, name, half=True, every=EVERY)


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", JOBS)
def test_a_writer_killed_at_every_call(tmp_path: Path, name: str, half: bool) -> None:
    """Of changes, at every third: they write with the same calls as loads do."""
    _check_job(tmp_path, name, half=half, every=1 if name in LOADS_AND_KEYS else 3)


def _check_init(tmp_path: Path, every: int) -> None:
    """A database whose making was cut short opens, or can be made again in the same tmp_path."""
    failures: dict[str, list[int]] = {}
    number, died = 1 - every, True
    while died:
        number += every
        home = tmp_path / f"home{number}"
        home.mkdir()
        died, _ = _dies(home, lambda home: create(home).close(), number, half=True)
        try:
            with _opened_or_made(home) as db:
                assert db.version == 1
                assert db.check() == 0
                _check_goes_on(home, db)
        except (AssertionError, ScumbleError) as error:
            failures.setdefault(_text(error, home), []).append(number)
        assert number < 1000
    assert number > 10
    assert failures == {}


def _opened_or_made(home: Path) -> Database:
    try:
        return reopen(home)
    except ScumbleError:
        return create(home)


def test_a_database_whose_making_was_cut_short_can_be_made(tmp_path: Path) -> None:
    _check_init(tmp_path, 5)


@pytest.mark.slow
def test_a_database_whose_making_was_cut_short_at_any_call_can_be_made(tmp_path: Path) -> None:
    _check_init(tmp_path, 1)


def test_all_rows_are_there_after_a_kill_in_the_second_batch(tmp_path: Path) -> None:
    """The premise of the counts above: they are those of whole tables, row by row."""
    origin, home = tmp_path / "origin", tmp_path / "home"
    _origin(origin, "t")
    for number in (30, 10_000):
        copy(origin, home)
        died, _ = _dies(home, _second_batch, number, half=True)
        seeds = (1,) if died else (1, 2)
        with reopen(home) as db:
            assert stored(db, "t") == expected(*seeds, count=100)
            assert stored(db, "t", "k < 1000") == expected(*seeds, count=100)


def test_a_spend_outlives_the_one_who_made_it(tmp_path: Path) -> None:
    """Killed right after the draw, before the noise: the ledger says drawn, and it stays spent."""
    with create(tmp_path) as db:
        before = db.ledger.spent()

    def work() -> None:
        def killed(*_: Any, **__: Any) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        noise._key_stream = killed  # type: ignore[assignment]
        with reopen(tmp_path) as db:
            load(db, "t")

    assert in_a_child(work) == -signal.SIGKILL
    with reopen(tmp_path) as db:
        assert db.ledger.spent() == before + 2
        assert {entry.state for entry in db.ledger.entries()} == {"drawn"}
        load(db, "t")  # the same rows: it is the same release
        assert db.ledger.spent() == before + 2
        assert stored(db, "t") == expected(1)
