"""One client's statement that takes for ever keeps no other from being served, and is stopped in the end."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gateway_setup import ALICE, BOB, Bare, make_databases, running
from pyarrow import flight

from scumble.errors import Busy, QueryError
from scumble.gateway.config import DatabaseConfig, Limits
from scumble.gateway.messages import new
from scumble.gateway.turns import Runs

ENDLESS = "SELECT count(*) FROM visits a, visits b, visits c, visits d WHERE a.id + b.id + c.id + d.id = 7"
QUICK = "SELECT count(*) FROM visits WHERE id < 10"


@pytest.fixture(name="sources", scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DatabaseConfig]:
    return make_databases(tmp_path_factory.mktemp("turns"))


def query(sql: str) -> object:
    return new("CommandStatementQuery", query=sql)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it does not come to hold"
        time.sleep(0.02)


def peak_bytes() -> int:
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def test_others_are_served_while_one_statement_runs_and_it_is_stopped(sources: dict[str, DatabaseConfig]) -> None:
    limits = Limits(run_seconds=3, running_per_client=1)
    with (
        running(sources, limits=limits) as (gateway, _),
        ThreadPoolExecutor(2) as threads,
        Bare(gateway, ALICE) as alice,
        Bare(gateway, BOB) as bob,
    ):
        endless = [threads.submit(alice.info, query(ENDLESS)) for _ in range(2)]
        time.sleep(0.5)
        for _ in range(3):
            assert bob.ask(query(QUICK)).column(0).to_pylist() == [10]
        assert not any(each.done() for each in endless)
        for each in endless:
            with pytest.raises(flight.FlightServerError, match="took longer than 3 s"):
                each.result()
        assert alice.ask(query(QUICK)).column(0).to_pylist() == [10]


def test_a_statement_is_stopped_when_its_client_goes(sources: dict[str, DatabaseConfig]) -> None:
    with running(sources) as (gateway, lines), Bare(gateway, ALICE) as alice:
        alice.options = flight.FlightCallOptions(headers=alice.headers, timeout=1)
        with pytest.raises(flight.FlightTimedOutError):
            alice.info(query(ENDLESS))
        until(lambda: any(line["call"] == "get_flight_info" and line["status"] != "ok" for line in lines))


def test_a_result_that_is_too_large_is_refused_before_it_fills_the_memory(sources: dict[str, DatabaseConfig]) -> None:
    with running(sources, limits=Limits(result_bytes=1 << 20)) as (gateway, _), Bare(gateway, ALICE) as alice:
        alice.ask(query(QUICK))
        before = peak_bytes()
        with pytest.raises(flight.FlightServerError, match="larger than it may be"):
            alice.info(query("SELECT a.id, b.id AS other, c.id AS third FROM visits a, visits b, visits c"))
        assert peak_bytes() - before < 256 << 20


def test_a_statement_that_needs_too_much_memory_is_refused(sources: dict[str, DatabaseConfig]) -> None:
    with running(sources, limits=Limits(statement_bytes=8 << 20)) as (gateway, _), Bare(gateway, ALICE) as alice:
        wide = "SELECT count(DISTINCT a.id * 160000 + b.id * 400 + c.id) FROM visits a, visits b, visits c"
        with pytest.raises(flight.FlightServerError, match="more memory than it may have"):
            alice.info(query(wide))
        assert alice.ask(query(QUICK)).column(0).to_pylist() == [10]


# --- turns alone -------------------------------------------------------------------------------------


def present() -> bool:
    return False


def test_clients_take_turns() -> None:
    runs, order, ready = Runs(Limits(running=1)), [], threading.Event()

    def run(client: str) -> None:
        with runs.turn(client, present):
            order.append(client)
            ready.wait()

    with ThreadPoolExecutor(8) as threads:
        threads.submit(run, "first")
        until(lambda: order == ["first"])
        for number, client in enumerate(["greedy"] * 5 + ["modest"]):
            threads.submit(run, client)
            until(lambda number=number: sum(map(len, runs._waiting.values())) == number + 1)  # type: ignore[misc]
        ready.set()
    assert order.index("modest") <= 2
    assert not runs._waiting


def test_a_client_has_so_many_waiting_and_running() -> None:
    runs = Runs(Limits(running=4, running_per_client=1, waiting_per_client=1))
    gone = threading.Event()

    def wait() -> Iterator[None]:
        with runs.turn("a", gone.is_set):
            yield

    with ThreadPoolExecutor(1) as threads, runs.turn("a", present):
        waiting = threads.submit(lambda: list(wait()))
        until(lambda: len(runs._waiting.get("a", ())) == 1)
        with pytest.raises(Busy, match="too many statements"), runs.turn("a", present):
            pass
        with runs.turn("b", present):
            pass
        gone.set()
        assert "gone" in str(waiting.exception())


def test_an_error_of_the_statements_own_stays_as_it_is() -> None:
    runs = Runs(Limits())
    with pytest.raises(QueryError, match="its own"), runs.watched(None, present):  # type: ignore[arg-type]
        raise QueryError("its own")
