"""Figures 1 to 3 of the service: a point aggregate's latency, throughput with 16 clients, and a crowd for a minute.

Clients are processes of their own, each with a connection and a prepared statement, on the same cores as the service.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil

import scumble
from benchmarks.database.aggregates import QUERY
from benchmarks.database.clock import shown, side_by_side
from benchmarks.database.tables import INDEX, SPARE_ROWS, asking, bounds, loaded, reader
from benchmarks.figure import Figure, Size, say
from benchmarks.service.running import Running, running

__all__ = ["measure"]

SIZES: dict[Size, dict[str, Any]] = {
    "full": {"rows": 10**6, "rounds": 40, "calls": 30, "clients": 16, "each": 1000, "crowd": (200, 32, 60.0)},
    "quick": {"rows": 10**6, "rounds": 10, "calls": 20, "clients": 16, "each": 200, "crowd": (200, 32, 10.0)},
    "tiny": {"rows": 5_000, "rounds": 1, "calls": 3, "clients": 2, "each": 3, "crowd": (3, 1, 0.3)},
}
MOST_TIMES, MORE_SECONDS = 3.0, 0.001
MOST_OF_MEDIAN = 10.0
LEAST_PER_SECOND = 500.0
MOST_GROWTH = 0.05
SIMULATED: dict[str, Any] = {"insecure_simulated_enclave": True}

Ranges = list[tuple[int, int]]


class Served(NamedTuple):
    """A database at a running service, its key, and bounds for point queries."""

    service: Running
    url: str
    key: Path
    ranges: Ranges

    def open(self) -> scumble.Database:
        return scumble.open(self.url, key=self.key, **SIMULATED)


def measure(size: Size) -> Figure:
    """All of it, over one service."""
    terms = SIZES[size]
    figure = Figure("service.clients")
    with _served(terms["rows"]) as served:
        say("service.clients: latency")
        _latency(figure, served, terms)
        say(f"service.clients: {terms['clients']} clients")
        _throughput(figure, served, terms["clients"], terms["each"])
        say("service.clients: a crowd")
        _crowd(figure, served, *terms["crowd"])
    return figure


@contextmanager
def _served(rows: int) -> Iterator[Served]:
    with TemporaryDirectory() as name, running(Path(name) / "served") as service:
        key, url = Path(name) / "bench.key", service.url("bench")
        with scumble.create(url, key=key, limit=100, **SIMULATED) as database:
            database.load("t", reader(rows), indexes=[INDEX], capacity=rows + SPARE_ROWS)
        yield Served(service, url, key, bounds(rows, 1, 500))


def _latency(figure: Figure, served: Served, terms: dict[str, Any]) -> None:
    with served.open() as database:
        asks = {"embedded": asking(loaded(terms["rows"]).database, QUERY), "loopback": asking(database, QUERY)}
        times = side_by_side(asks, served.ranges, terms["rounds"], terms["calls"])
    most = MOST_TIMES * times["embedded"] + MORE_SECONDS
    figure.values["latency"] = times
    figure.add(
        "a point aggregate over loopback / embedded",
        f"{shown(times['loopback'])} / {shown(times['embedded'])}",
        f"≤ {MOST_TIMES:.0f} times + 1 ms = {shown(most)}",
        times["loopback"] <= most,
    )


def _throughput(figure: Figure, served: Served, clients: int, each: int) -> None:
    times, seconds, busy = _at_once(served, clients, each)
    ordered = sorted(times)
    typical, slow = median(ordered), ordered[int(0.99 * len(ordered))]
    rate = len(ordered) / seconds
    figure.values["throughput"] = {"per_second": rate, "median": typical, "p99": slow, "processor": busy}
    figure.add(
        f"point aggregates with {clients} clients and 2 enclaves",
        f"{rate:,.0f} a second",
        f"≥ {LEAST_PER_SECOND:.0f}",
        rate >= LEAST_PER_SECOND,
    )
    figure.add(
        f"their 99th percentile / median, with {clients} clients",
        f"{shown(slow)} / {shown(typical)} = {slow / typical:.1f}",
        f"≤ {MOST_OF_MEDIAN:.0f}",
        slow <= MOST_OF_MEDIAN * typical,
    )
    figure.add("where the processor's time goes", ", ".join(f"{who} {share:.0%}" for who, share in busy.items()))


def _at_once(served: Served, clients: int, each: int) -> tuple[list[float], float, dict[str, float]]:
    """What each call took, how long all of it took, and whose the processor's time was."""
    context = _context()
    ready, go, results = context.Semaphore(0), context.Event(), context.Queue()
    arguments = (served, each, ready, go, results)
    processes = [context.Process(target=_client, args=(number, *arguments)) for number in range(clients)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    before, start = _processor(served.service.pid), time.perf_counter()
    go.set()
    found = [results.get() for _ in processes]
    seconds = time.perf_counter() - start
    after = _processor(served.service.pid)
    for process in processes:
        process.join()
    used = {who: after[who] - before[who] for who in after}
    used["clients"] = sum(spent for _, spent in found)
    whole = sum(used.values()) or 1.0
    return [t for times, _ in found for t in times], seconds, {who: spent / whole for who, spent in used.items()}


def _context() -> Any:
    """Processes that are started from one without threads, which has read the modules already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _client(number: int, served: Served, each: int, ready: Any, go: Any, results: Any) -> None:
    with served.open() as database:
        ask = asking(database, QUERY)
        ask(*served.ranges[0])
        ready.release()
        go.wait()
        times, spent = [], time.process_time()
        for call in range(each):
            start = time.perf_counter()
            ask(*served.ranges[(31 * number + call) % len(served.ranges)])
            times.append(time.perf_counter() - start)
        results.put((times, time.process_time() - spent))


def _crowd(figure: Figure, served: Served, resting: int, active: int, seconds: float) -> None:
    idle = [served.open() for _ in range(resting)]
    try:
        context = _context()
        results = context.Queue()
        processes = [context.Process(target=_active, args=(n, served, seconds, results)) for n in range(active)]
        for process in processes:
            process.start()
        time.sleep(seconds / 4)
        early = _memory(served.service.pid)
        time.sleep(seconds / 2)
        late = _memory(served.service.pid)
        answers = [results.get() for _ in processes]
        for process in processes:
            process.join()
        errors = sum(failed for _, failed in answers) + sum(_fails(database, served) for database in idle)
    finally:
        for database in idle:
            database.close()
    growth = late / early - 1
    figure.values["crowd"] = {"answers": sum(done for done, _ in answers), "errors": errors, "bytes": [early, late]}
    figure.add(f"{resting} idle and {active} active clients for {seconds:.0f} s: errors", f"{errors}", "0", errors == 0)
    figure.add(
        "their service's memory, after a quarter of the time and after three",
        f"{early >> 20} MiB, {late >> 20} MiB: {growth:+.1%}",
        f"≤ {MOST_GROWTH:+.0%}",
        growth <= MOST_GROWTH,
    )


def _active(number: int, served: Served, seconds: float, results: Any) -> None:
    done = failed = 0
    end = time.monotonic() + seconds
    with served.open() as database:
        ask = asking(database, QUERY)
        while time.monotonic() < end:
            try:
                ask(*served.ranges[(31 * number + done) % len(served.ranges)])
                done += 1
            except scumble.ScumbleError:
                failed += 1
    results.put((done, failed))


def _fails(database: scumble.Database, served: Served) -> int:
    try:
        database.sql(QUERY.format("?", "?"), served.ranges[0]).fetchall()
    except scumble.ScumbleError:
        return 1
    return 0


def _processor(pid: int) -> dict[str, float]:
    front = psutil.Process(pid)
    children = front.children()
    return {"front": _spent(front), "enclaves": sum(map(_spent, children))}


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _memory(pid: int) -> int:
    front = psutil.Process(pid)
    return sum(int(process.memory_info().rss) for process in (front, *front.children()))
