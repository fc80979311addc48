"""Many clients at once: a reader has one version throughout a statement, sees what others loaded, and none is lost."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import scumble
from scumble.errors import BadQuery, Busy
from serving import SIMULATED, Serving

BATCH_ROWS = 8
LOADING: dict[str, Any] = {
    "types": {"k": "integer not null", "v": "integer not null"},
    "indexes": ["k int:0:99 epsilon=1 slack=lossless"],
    "capacity": 16,
    "page_rows": 16,
}
TWICE = (
    "SELECT (SELECT count(*) FROM t), (SELECT sum(v) FROM t), (SELECT count(*) FROM t WHERE k >= 0), "
    "(SELECT count(*) FROM t a JOIN t b ON a.v = b.v)"
)


def batch(number: int) -> pa.Table:
    values = [BATCH_ROWS * number + row for row in range(BATCH_ROWS)]
    return pa.table({"k": pa.array([v % 100 for v in values], pa.int64()), "v": pa.array(values, pa.int64())})


@pytest.fixture
def keys(service: Serving, tmp_path: Path) -> Path:
    """A folder with the key of a database `many` that has one batch."""
    with service.create(tmp_path.name.replace("_", "-"), tmp_path, limit=1000, delta_limit="1e-2") as db:
        db.load("t", batch(0), **LOADING)
    return tmp_path


def connected(service: Serving, keys: Path) -> scumble.Database:
    name = keys.name.replace("_", "-")
    return scumble.open(service.url(name), key=keys / f"{name}.key", **SIMULATED)


def numbers(db: scumble.Database) -> list[int]:
    return sorted(row[0] for row in db.sql("SELECT v FROM t").fetchall())


def test_what_one_client_has_loaded_the_next_query_of_another_sees(service: Serving, keys: Path) -> None:
    with connected(service, keys) as one, connected(service, keys) as other:
        for number in range(1, 6):
            loading, asking = (one, other) if number % 2 else (other, one)
            loading.load("t", batch(number), **LOADING)
            assert asking.sql("SELECT count(*) FROM t").fetchall() == [(BATCH_ROWS * (number + 1),)]


def test_a_table_that_one_client_has_just_made_is_there_for_another(service: Serving, keys: Path) -> None:
    with connected(service, keys) as one, connected(service, keys) as other:
        one.load("u", batch(1), **LOADING)
        assert other.sql("SELECT count(*) FROM u").fetchall() == [(BATCH_ROWS,)]
        one.drop("u")
        with pytest.raises(BadQuery):
            other.sql("SELECT count(*) FROM u")


def test_reader_has_one_version_throughout_a_statement_while_others_load(service: Serving, keys: Path) -> None:
    done = threading.Event()

    def read() -> list[tuple[int, ...]]:
        answers: list[tuple[int, ...]] = []
        with connected(service, keys) as db:
            while not done.is_set() or not answers:
                answers.append(tuple(map(int, db.sql(TWICE).fetchall()[0])))
        return answers

    with ThreadPoolExecutor(3) as threads, connected(service, keys) as writer:
        reading = [threads.submit(read) for _ in range(3)]
        try:
            for number in range(1, 13):
                writer.load("t", batch(number), **LOADING)
        finally:
            done.set()
        answers = [each.result() for each in reading]
    for each in answers:
        for count, total, again, joined in each:
            assert count == again == joined
            assert count % BATCH_ROWS == 0
            assert total == count * (count - 1) // 2
        assert each == sorted(each)
    assert len({answer for each in answers for answer in each}) > 1


def persisting(load: Callable[[], object]) -> int:
    """Load, again as long as others keep the database; how often that was."""
    for tries in range(1000):
        try:
            load()
        except Busy:
            time.sleep(0.01)
        else:
            return tries
    raise AssertionError("it stays busy")


def test_of_many_writers_at_once_none_is_lost_and_none_counts_twice(service: Serving, keys: Path) -> None:
    writers, each = 5, 4
    with connected(service, keys) as shared, ThreadPoolExecutor(writers) as threads:

        def write(first: int) -> None:
            numbered = range(first, first + each)
            if first // each % 2:  # some share a connection, others have one of their own
                for number in numbered:
                    persisting(lambda number=number: shared.load("t", batch(number), **LOADING))  # type: ignore[misc]
                return
            with connected(service, keys) as own:
                for number in numbered:
                    persisting(lambda number=number: own.load("t", batch(number), **LOADING))  # type: ignore[misc]

        list(threads.map(write, range(1, 1 + writers * each, each)))
        assert numbers(shared) == list(range(BATCH_ROWS * (1 + writers * each)))
        assert shared.version == 3 + 2 * writers * each  # a load is paid for in a version of its own
        assert len(shared.table("t").runs) == 1 + writers * each


def test_second_writer_waits_or_is_told_that_another_one_writes(service: Serving, keys: Path) -> None:
    with connected(service, keys) as one, connected(service, keys) as other:
        with one.service.writer():
            with pytest.raises(Busy), other.service.writer(busy_seconds=0.2):
                pass
            assert other.sql("SELECT count(*) FROM t").fetchall() == [(BATCH_ROWS,)]
            waiting = threading.Thread(target=lambda: other.load("t", batch(1), **LOADING))
            waiting.start()
            time.sleep(0.3)
            assert numbers(one) == list(range(BATCH_ROWS))
        waiting.join()
        assert numbers(one) == list(range(2 * BATCH_ROWS))


# --- idle and active -------------------------------------------------------------------------------


def resident_mebibytes(pids: list[int]) -> float:
    status = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(text.split("VmRSS:")[1].split()[0]) for text in status) / 1024


def ask_on(db: scumble.Database, until: float) -> int:
    """Ask one thing after the other; how many answers there were, each of them right."""
    count = 0
    while time.monotonic() < until:
        low = count * 7 % BATCH_ROWS
        assert db.sql("SELECT count(*) FROM t WHERE k BETWEEN ? AND 99", [low]).fetchall() == [(BATCH_ROWS - low,)]
        count += 1
    return count


def crowd(service: Serving, keys: Path, idle: int, active: int, seconds: float) -> Iterator[tuple[int, float]]:
    """So many clients at once, in the first third of the time and in the rest: the fewest answers that one of them got,
    and the service's memory in MiB.
    """
    with ExitStack() as stack, ThreadPoolExecutor(active) as threads:
        connections = list(threads.map(lambda _: connected(service, keys), range(idle + active)))
        for db in connections:
            stack.callback(db.close)
        pids = [service.process.pid, *service.enclaves()]
        for share in (1 / 3, 2 / 3):
            until = time.monotonic() + seconds * share
            counts = list(threads.map(lambda db: ask_on(db, until), connections[idle:]))  # noqa: B023  done in here
            yield min(counts), resident_mebibytes(pids)
        for db in connections[:idle]:
            assert db.sql("SELECT count(*) FROM t").fetchall() == [(BATCH_ROWS,)]


def test_many_idle_and_some_active_clients_get_their_answers(service: Serving, keys: Path) -> None:
    (early, _), (late, _) = crowd(service, keys, idle=50, active=8, seconds=4)
    assert min(early, late) > 0


@pytest.mark.slow
def test_two_hundred_idle_and_thirty_two_active_clients_leave_memory_flat(service: Serving, keys: Path) -> None:
    (early, before), (late, after) = crowd(service, keys, idle=200, active=32, seconds=30)
    assert min(early, late) > 0
    assert after - before < 0.1 * before + 16
