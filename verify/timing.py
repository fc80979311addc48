"""Check that the time of an answer does not depend on the rows: time tables that agree in everything public.

In the manner of dudect (Reparaz, Balasch and Verbauwhede, 2017): the same request is put to all of them in random order
many times, what lies above a percentile is cropped, and a t says whether the times differ. The clock stands where
the provider's does, from a request's arrival to its answer; the owner plans a query once and reads no answer, so that
nothing it does with one is felt in the next. There are two databases for each kind of rows: what those of one kind
differ by is the machine's doing. docs/verification.md says what of time is promised, and what is not.
"""

import gc
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from statistics import fmean, variance
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from scumble import opening
from scumble.enclave import kernels
from scumble.enclave.lines import TrustedEnclave
from scumble.enclave.loads import Load
from scumble.enclave.queries import Accumulation, Batch
from scumble.owner.database import Database
from scumble.owner.session import Session
from scumble.wire.plan import COUNT
from verify import Row, folder_in_memory

__all__ = ["Found", "Verdict", "found_in", "judged", "rows", "yuen"]

ROWS = 30_000
CAPACITY = 32_768
PAGE_ROWS = 1024
CROPPED = 0.8  # the slower ones, which say more about the rest of the machine than about the enclave
THRESHOLD = 5.0  # |t| beyond
# A smaller share of the time shows for the same rows in two databases as well: it is where they lie in memory.
SMALLEST = 0.005
LEAST_ROUNDS = 300  # of all databases, however busy the machine
LONGER = 3  # times the seconds and rounds, for a second look
PLANTED_SHARE = 0.25  # of a query's seconds: what is planted is larger
KINDS = "varied", "alike", "alike", "varied"  # in the order of making: neither kind comes first
TYPES = {"c": 'category(["blue","green","red"])', "k": "integer not null", "v": "integer", "f": "double"}
QUERIES = {
    "aggregates": "SELECT count(*), sum(v), min(v), max(v), avg(f), stddev(v), sum(v * (100 - k)) FROM t"
    " WHERE v > 5000 AND c <> 'blue'",
    "groups": "SELECT c, count(v), sum(v), max(k), avg(f) FROM t WHERE v BETWEEN 1 AND 9000 GROUP BY c",
    "a range": "SELECT count(*), sum(v) FROM t WHERE k BETWEEN 300 AND 600 AND v > 5000",
    "rows": "SELECT k, v, f FROM t WHERE k BETWEEN 300 AND 330 AND v > 5000",
}

Times = Sequence[list[float]]
"""What the requests took, round by round, for each of KINDS."""


class Found(NamedTuple):
    """What a look at the times gave: Yuen's t, the difference as a share, and the largest one among equal rows."""

    t: float
    share: float
    control: float = 0.0

    @property
    def seen(self) -> bool:
        return abs(self.t) > THRESHOLD and abs(self.share) > SMALLEST

    def __str__(self) -> str:
        return f"t = {self.t:+.1f} ({self.share:+.2%})"


class Verdict(NamedTuple):
    """One look, and a second one if the first saw something."""

    first: Found
    again: Found | None = None

    @property
    def leaks(self) -> bool:
        """Whether a difference was seen twice, with the same sign: a noisy neighbour is not so faithful."""
        return self.again is not None and self.again.seen and self.again.share * self.first.share > 0

    @property
    def control(self) -> float:
        return max(self.first.control, self.again.control if self.again else 0.0)

    def __str__(self) -> str:
        return f"{self.first}" if self.again is None else f"{self.first}, again {self.again}"


Measure = Callable[[int, int], Found]
"""Called with the number of a set of databases, and how many times longer than usual to measure."""


def rows(seconds: float) -> Iterator[Row]:
    """A row for all queries; the time is shared among them and the planted defects."""
    share = max(seconds / (len(QUERIES) + len(PLANTED) * PLANTED_SHARE * (1 + LONGER)), 1)
    caught = []
    with _sets() as databases:
        verdicts = {what: _verdict(databases, query, share) for what, query in QUERIES.items()}
        for what, (place, name, plant) in PLANTED.items():
            with mock.patch.object(place, name, plant(getattr(place, name))):
                if _verdict(databases, QUERIES["aggregates"], PLANTED_SHARE * share).leaks:
                    caught.append(what)
    figures = [f"{what} {verdict}" for what, verdict in verdicts.items()]
    control = max(verdict.control for verdict in verdicts.values())
    yield Row(
        "the time of an answer does not tell two tables apart",
        "Yuen's t, interleaved, two databases of each; again if seen",
        f"{', '.join(figures)}; equal rows differ by up to {control:.2%}",
        not any(verdict.leaks for verdict in verdicts.values()),
        tuple(PLANTED),
        tuple(caught),
    )


def _verdict(databases: "Sets", query: str, seconds: float) -> Verdict:
    def measure(which: int, longer: int) -> Found:
        return found_in(_times(databases(which), query, longer * seconds, longer * LEAST_ROUNDS))

    return judged(measure)


def judged(measure: Measure) -> Verdict:
    """Look once; if there seems to be a difference look once more, for longer and at databases that are made anew."""
    first = measure(0, 1)
    return Verdict(first, measure(1, LONGER) if first.seen else None)


def found_in(times: Times) -> Found:
    """Compare all times of one kind with all of the other, and those of equal rows among themselves."""
    varied, alike = (
        [own for own, its in zip(times, KINDS, strict=True) if its == kind] for kind in ("varied", "alike")
    )
    t, share = yuen(list(chain(*varied)), list(chain(*alike)))
    return Found(t, share, max(abs(yuen(one, two)[1]) for one, two in (varied, alike)))


def yuen(one: Sequence[float], two: Sequence[float]) -> tuple[float, float]:
    """Yuen's t of two samples, each without its own slower part, and the difference of what is left as a share.

    A limit for both together would cut more off the slower one, and make a difference look smaller than it is.
    """
    (mean, error), (other, other_error) = _cropped(one), _cropped(two)
    spread = math.sqrt(error + other_error)
    return (other - mean) / spread if spread else 0.0, other / mean - 1


def _cropped(sample: Sequence[float]) -> tuple[float, float]:
    """The mean of the faster part, and its squared error: from the variance with the others at the limit."""
    kept = sorted(sample)[: max(2, int((1 - CROPPED) * len(sample)))]
    limited = kept + kept[-1:] * (len(sample) - len(kept))
    return fmean(kept), variance(limited) * (len(sample) - 1) / (len(kept) * (len(kept) - 1))


def _times(databases: Sequence[Database], query: str, seconds: float, rounds: int) -> Times:
    """Put a query to all databases in random order, round after round; how long the enclave took, for each."""
    times: list[list[float]] = [[] for _ in databases]
    spent: list[float] = []
    request = TrustedEnclave.request

    def clocked(self: TrustedEnclave, session: int, sealed: bytes | memoryview) -> bytes:
        start = perf_counter_ns()
        answer = request(self, session, sealed)
        spent.append(perf_counter_ns() - start)
        return answer

    asks = [_planned(database, query) for database in databases]
    order = list(range(len(asks)))
    with mock.patch.object(TrustedEnclave, "request", clocked):
        for ask in asks * 3:
            ask()
        gc.collect()
        gc.disable()
        end = perf_counter() + seconds
        while perf_counter() < end or len(times[0]) < rounds:
            random.shuffle(order)
            for which in order:
                spent.clear()
                asks[which]()
                times[which].append(sum(spent))
        gc.enable()
    return times


def _planned(database: Database, query: str) -> Callable[[], None]:
    """Have the owner answer a query once; a function that puts the same requests to the enclave, and no more."""
    kept: list[tuple[Session, tuple[Any, ...]]] = []
    execution = Session.execute

    def keeping(session: Session, *given: Any) -> memoryview:
        kept.append((session, given))
        return execution(session, *given)

    with mock.patch.object(Session, "execute", keeping):
        database.sql(query).fetchall()

    def ask() -> None:
        for session, given in kept:
            session.execute(*given)

    return ask


# --- planted ---------------------------------------------------------------------------------------


def _skipping_batches(add: Any) -> Any:
    def skipping(accumulation: Accumulation, batch: Batch, answer: Any) -> None:
        if batch.mask.any():
            add(accumulation, batch, answer)

    return skipping


def _skipping_sums(add: Any) -> Any:
    def skipping(what: int, x: Any, mask: Any, *given: Any) -> None:
        if what == kernels.CODES[COUNT] or mask.any():
            add(what, x, mask, *given)

    return skipping


PLANTED: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "skipped batches": (Accumulation, "add", _skipping_batches),
    "skipped sums": (kernels, "aggregate", _skipping_sums),
}


# --- the databases ---------------------------------------------------------------------------------


Sets = Callable[[int], Sequence[Database]]


@contextmanager
def _sets() -> Iterator[Sets]:
    """Give databases of KINDS by the number of their set; each set is made when it is first asked for."""
    with folder_in_memory() as home, ExitStack() as opened:
        made: dict[int, Sequence[Database]] = {}

        def given(which: int) -> Sequence[Database]:
            if which not in made:
                folder = home / str(which)
                folder.mkdir()
                made[which] = [opened.enter_context(database) for database in _databases(folder)]
            return made[which]

        yield given


def _databases(folder: Path) -> Iterator[Database]:
    """Databases whose catalogs agree in all that is public: the others are given the first one's index."""
    models: list[Any] = []
    learn = Load._learn

    def learned(self: Load, order: Any, key_word: int) -> Any:
        models.append(learn(self, order, key_word))
        return models[0]

    tables = {"varied": _varied(), "alike": _alike()}
    for number, kind in enumerate(KINDS):
        own = folder / str(number)
        own.mkdir()
        database = opening.create(own / "db", limit=100)
        with mock.patch.object(Load, "_learn", learned):
            options: dict[str, Any] = {"types": TYPES, "page_rows": PAGE_ROWS, "capacity": CAPACITY}
            database.load("t", tables[kind], indexes=["k int:0:1023 epsilon=1"], **options)
        yield database


def _varied() -> Any:
    """Many values, of which half match."""
    import pyarrow as pa

    rng = np.random.default_rng(5)
    colours = np.array(["red", "green", "blue"])
    return pa.table(
        {
            "k": pa.array(rng.integers(0, 1024, ROWS), pa.int32()),
            "v": pa.array(rng.integers(0, 10_000, ROWS), pa.int64(), mask=rng.random(ROWS) < 0.1),
            "c": pa.array(colours[rng.integers(0, 3, ROWS)]),
            "f": pa.array(rng.normal(size=ROWS)),
        }
    )


def _alike() -> Any:
    """Few rows, all of them equal, and none matches."""
    import pyarrow as pa

    few = ROWS // 10
    return pa.table(
        {
            "k": pa.array(np.full(few, 7), pa.int32()),
            "v": pa.array(np.zeros(few, np.int64)),
            "c": pa.array(["blue"] * few),
            "f": pa.array(np.zeros(few)),
        }
    )
