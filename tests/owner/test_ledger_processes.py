"""The ledger under several real processes, locks, kills and forks."""

import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scumble.errors import BudgetError, BudgetUsed, FileError, LedgerBusy
from scumble.owner.ledger import Ledger


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run code in a fresh Python; its `path` is the first argument."""
    preamble = "import os, signal, sqlite3, sys\nfrom scumble.errors import *\n"
    preamble += "from scumble.owner.ledger import Ledger\npath = sys.argv[1]\n"
    return subprocess.Popen(
        [sys.executable, "-c", preamble + textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    return output


def killed(code: str, *arguments: object) -> None:
    """Run code that ends in a kill."""
    process = start(code, *arguments)
    assert process.wait(20) == -signal.SIGKILL
    process.communicate()


def race(racers: list[subprocess.Popen[str]]) -> list[str]:
    """Let processes go once all are ready; what each of them prints."""
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return [finish(racer).strip() for racer in racers]


@contextmanager
def another_process_holds(path: Path, begin: str) -> Iterator[None]:
    holder = start(
        """
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(sys.argv[2])
        connection.execute("SELECT * FROM record").fetchall()
        print("holding", flush=True)
        sys.stdin.read()
        """,
        path,
        begin,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "holding\n"
    yield
    finish(holder)


def test_a_ledger_held_by_another_process_is_busy(path: Path) -> None:
    ledger = Ledger.open(path, limit=2, busy_seconds=0.1)
    budget = ledger.spend(1, "before")
    with another_process_holds(path, "BEGIN EXCLUSIVE"):
        began = time.monotonic()
        for use in (lambda: ledger.spend(1, "x"), budget.draw, ledger.spent, lambda: str(ledger)):
            with pytest.raises(LedgerBusy, match="the ledger is locked by another process") as caught:
                use()
            assert caught.value.hint
        with pytest.raises(LedgerBusy):
            Ledger.open(path, busy_seconds=0.1)
        assert time.monotonic() - began >= 0.4
        assert "1 remaining" in repr(ledger)
    assert budget.state == "open"
    assert ledger.spent() == 1


@pytest.mark.parametrize("begin", ["BEGIN IMMEDIATE", "BEGIN"])
def test_a_spend_that_cannot_be_committed_is_not_counted(path: Path, begin: str) -> None:
    ledger = Ledger.open(path, limit=2, busy_seconds=0.1)
    with another_process_holds(path, begin):  # a writer stops us at the start, a reader at the commit
        with pytest.raises(LedgerBusy):
            ledger.spend(1, "x")
        assert ledger.spent() == 0
    assert ledger.spent() == 0
    assert ledger.spend(1, "x").state == "open"
    assert Ledger.open(path).spent() == 1


def test_a_spend_waits_for_its_turn(path: Path) -> None:
    ledger = Ledger.open(path, limit=2, busy_seconds=15)
    holder = start(
        """
        import time
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        print("holding", flush=True)
        time.sleep(0.4)
        connection.execute("ROLLBACK")
        """,
        path,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "holding\n"
    ledger.spend(1, "x")
    assert ledger.spent() == 1
    finish(holder)


RACE = """
    print("ready", flush=True)
    sys.stdin.readline()
    ledger = Ledger.open(path, limit=10, busy_seconds=15)
    won = 0
    for _ in range(20):
        try:
            ledger.spend("1/2", sys.argv[2])
            won += 1
        except Overdraft:
            pass
    print(won)
"""


def test_racing_processes_create_one_ledger_and_never_overdraw_it(path: Path) -> None:
    won = [int(number) for number in race([start(RACE, path, name) for name in ("one", "two", "three")])]
    assert sum(won) == 20
    ledger = Ledger.open(path)
    assert ledger.remaining() == 0
    labels = [entry.label for entry in ledger.entries()]
    assert [labels.count(name) for name in ("one", "two", "three")] == won
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_only_one_process_draws_a_budget(path: Path) -> None:
    budget = Ledger.open(path, limit=1, busy_seconds=15).spend(1, "x")
    code = """
        import pickle
        budget = pickle.loads(bytes.fromhex(sys.argv[2]))
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            budget.draw()
            print("drawn")
        except BudgetUsed:
            print("refused")
    """
    assert sorted(race([start(code, path, pickle.dumps(budget).hex()) for _ in range(3)])) == [
        "drawn",
        "refused",
        "refused",
    ]
    assert budget.state == "drawn"
    with pytest.raises(BudgetUsed):
        budget.cancel()


@pytest.mark.parametrize("last_step", ["pass", "budget.draw()", "budget.cancel()"])
def test_what_returned_before_a_kill_happened(path: Path, last_step: str) -> None:
    killed(
        f"""
        budget = Ledger.open(path, limit=2).spend(1, "salary")
        {last_step}
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        path,
    )
    state = {"pass": "open", "budget.draw()": "drawn", "budget.cancel()": "cancelled"}[last_step]
    ledger = Ledger.open(path)
    assert [entry.state for entry in ledger.entries()] == [state]
    assert ledger.spent() == (0 if state == "cancelled" else 1)


@pytest.mark.parametrize(("moment", "spent"), [("before", 1), ("after", 2)])
def test_a_kill_around_the_commit(path: Path, moment: str, spent: int) -> None:
    killed(
        """
        from scumble.owner import ledger_log
        ledger = Ledger.open(path, limit=5)
        ledger.spend(1, "first")
        commit = ledger_log._commit
        def killed(connection):
            if sys.argv[2] == "after":
                commit(connection)
            os.kill(os.getpid(), signal.SIGKILL)
        ledger_log._commit = killed
        ledger.spend(1, "second")
        """,
        path,
        moment,
    )
    assert Ledger.open(path).spent() == spent


def test_a_kill_while_the_file_is_being_written_is_undone(path: Path) -> None:
    Ledger.open(path, limit=5).spend(1, "first")
    before = path.read_bytes()
    killed(
        """
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        for id in range(3, 200):
            connection.execute(
                "INSERT INTO record VALUES (?, 'spend', '', ?, '1/1', '0/1', 1, NULL, NULL, 0, x'')",
                (id, "x" * 3000),
            )
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        path,
    )
    # The premise: half a transaction is in the file, and a journal to undo it beside it.
    assert path.read_bytes()[: len(before)] != before or path.stat().st_size > len(before)
    assert path.with_name(path.name + "-journal").stat().st_size > 0
    ledger = Ledger.open(path)
    assert [entry.label for entry in ledger.entries()] == ["first"]
    ledger.spend(1, "second")
    assert Ledger.open(path).spent() == 2


def test_kills_at_random_moments_lose_nothing_that_returned(path: Path) -> None:
    seed = random.Random(7)  # noqa: S311
    Ledger.open(path, limit=10**6)
    total = 0
    for _ in range(8):
        process = start(
            """
            ledger = Ledger.open(path)
            while True:
                ledger.spend(1, "x")
                os.write(1, b"1")
            """,
            path,
        )
        assert process.stdout is not None
        # Past Python's buffer, whose content `communicate` would not return.
        assert os.read(process.stdout.fileno(), 1) == b"1"
        time.sleep(seed.random() * 0.1)
        process.kill()
        returned = 1 + len(process.communicate()[0])
        spent = int(Ledger.open(path).spent())
        assert spent - total in (returned, returned + 1)
        total = spent
    assert total > 16


def in_a_fork(work: Callable[[], bool]) -> int:
    """Run `work` in a forked child; its exit code is 0 if it returned True."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_shares_the_file(path: Path) -> None:
    ledger = Ledger.open(path, limit=2)
    budget = ledger.spend(1, "parent")

    def work() -> bool:
        budget.draw()
        ledger.spend(1, "child")
        return ledger.remaining() == 0

    assert in_a_fork(work) == 0
    assert [(entry.label, entry.state) for entry in ledger.entries()] == [
        ("parent", "drawn"),
        ("child", "open"),
    ]


def test_a_ledger_in_memory_is_not_spent_twice_by_a_fork() -> None:
    ledger = Ledger(limit=1)
    budget = ledger.spend("1/2", "x")

    def work() -> bool:
        for use in (lambda: ledger.spend("1/2", "y"), budget.draw, ledger.spent):
            with pytest.raises(BudgetError, match="after a fork"):
                use()
        return True

    assert in_a_fork(work) == 0
    budget.draw()
    assert ledger.remaining() == 0.5


def test_a_fork_while_a_thread_spends_neither_hangs_nor_harms(path: Path) -> None:
    code = """
        import threading, time
        ledger = Ledger.open(path, limit=10**6, busy_seconds=15)
        done = threading.Event()
        def work():
            while not done.is_set():
                ledger.spend(1, "thread")
                time.sleep(0.002)
        thread = threading.Thread(target=work)
        thread.start()
        codes = []
        for _ in range(8):
            child = os.fork()
            if child == 0:
                ledger.spend(1, "fork")
                os._exit(0)
            codes.append(os.waitpid(child, 0)[1])
        done.set()
        thread.join()
        print(codes == [0] * 8)
    """
    assert finish(start(code, path)) == "True\n"
    labels = [entry.label for entry in Ledger.open(path).entries()]
    assert labels.count("fork") == 8


def test_what_may_not_be_written_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "budget.ledger"
        Ledger.open(path, limit=2).spend(1, "x")
        path.chmod(0o444)
        folder.chmod(0o555)

        def work() -> bool:
            if os.getuid() == 0:  # root may write anything
                os.setgid(65534)
                os.setuid(65534)
            ledger = Ledger.open(path)
            with pytest.raises(FileError, match="cannot be read or written"):
                ledger.spend(1, "y")
            with pytest.raises(FileError, match="cannot be created"):
                Ledger.open(folder / "new", limit=1)
            return ledger.remaining() == 1

        assert in_a_fork(work) == 0
        folder.chmod(0o755)
        assert Ledger.open(path).spent() == 1
