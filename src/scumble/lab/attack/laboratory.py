"""What is attacked: made-up rows and queries, databases of them in temporary folders, and what their provider sees.

The table is t(k, v): k is indexed, v is not; both are integers. A planted enclave may take the place of the real one.
Rows and queries come from hashing a label: the same every time, and not secret. Nothing here may serve as noise.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import shake_256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scumble import opening
from scumble.enclave.lines import TrustedEnclave
from scumble.errors import ScumbleError
from scumble.owner.database import Database
from scumble.owner.keys import OwnerKey
from scumble.privacy.budget import Exact, exact, show
from scumble.provider.front import Provider
from scumble.store import open_store
from scumble.store.transcript import Transcript
from scumble.wire.storage import Enclave, Storage

__all__ = [
    "VALUES",
    "Laboratory",
    "Seen",
    "fractions",
    "laboratory",
    "load_made_up",
    "made_up_counts",
    "opened",
    "second_column",
    "uniform_ranges",
]

VALUES = 100  # v is in 0..99
QUERIES_TO_A_LOOK = 5_000  # at the transcript, which keeps the latest events only
IntArray = NDArray[np.int64]


class Seen(NamedTuple):
    """PUBLIC: what the provider saw of one query: the pages read, and how many bytes went in and out."""

    first_page: int
    pages: int
    request_bytes: int
    answer_bytes: int


class Laboratory(NamedTuple):
    """A database under attack, and the transcript that its provider keeps."""

    db: Database
    transcript: Transcript

    def watch(self, query: str, parameters: Sequence[Sequence[int]]) -> list[Seen]:
        """What the provider sees of a query with each of some parameters: an entry for each request that reads pages.

        What the owner gets is of no interest here, and may be unreadable where a planted enclave has cut it.
        """
        statement = self.db.prepare(query)
        seen: list[Seen] = []
        for begin in range(0, len(parameters), QUERIES_TO_A_LOOK):
            before = max((event.number for event in self.transcript.events()), default=0)
            for given in parameters[begin : begin + QUERIES_TO_A_LOOK]:
                with suppress(ScumbleError, ValueError):
                    statement.execute(list(given))
            seen += _queries(self.transcript, before)
        return seen


def fractions(label: str, count: int) -> NDArray[np.float64]:
    """`count` numbers in [0, 1), evenly spread: 53 bits each of SHAKE-256 of the label, the same ones every time."""
    words = np.frombuffer(shake_256(label.encode()).digest(8 * count), dtype="<u8")
    return (words >> np.uint64(11)).astype(np.float64) / 2**53


def made_up_counts(rows: int, size: int) -> IntArray:
    """How many of `rows` rows have each of `size` keys: two hills and a heavy key, and at least one row everywhere.

    That every key occurs is what the literature calls dense data; some attacks then succeed sooner.
    """
    places = np.arange(size) / size
    hills = np.exp(-(((places - 0.3) / 0.1) ** 2) / 2) + 0.6 * np.exp(-(((places - 0.7) / 0.06) ** 2) / 2) + 0.05
    cumulative = np.cumsum(hills * (0.5 + fractions("made-up weights", size)))
    free = max(0, rows - size)
    heavy = free // 20
    drawn = np.searchsorted(cumulative, fractions("made-up rows", free - heavy) * cumulative[-1], side="right")
    counts = np.bincount(np.minimum(drawn, size - 1), minlength=size) + 1
    counts[size // 2] += heavy
    return counts.astype(np.int64)


def uniform_ranges(label: str, count: int, size: int) -> tuple[IntArray, IntArray]:
    """First and last ranks of `count` ranges, each of the size (size + 1) / 2 ranges equally likely."""
    ends = np.cumsum(np.arange(size, 0, -1))  # how many ranges start at or before each rank
    drawn = (fractions(label, count) * int(ends[-1])).astype(np.int64)
    firsts = np.searchsorted(ends, drawn, side="right")
    lasts = size - 1 - (ends[firsts] - 1 - drawn)
    return firsts.astype(np.int64), lasts.astype(np.int64)


def second_column(rows: int) -> IntArray:
    """The values of v, in the order of k."""
    return (fractions("made-up values", rows) * VALUES).astype(np.int64)


@contextmanager
def laboratory(
    counts: IntArray, epsilon: Exact, *, page_rows: int, enclave: Callable[[Storage], Enclave] = TrustedEnclave
) -> Iterator[Laboratory]:
    """A database of the table t with so many rows of each key; gone afterwards."""
    rows, cost = int(counts.sum()), exact(epsilon, "epsilon")
    with TemporaryDirectory(prefix="scumble-attack-") as name:
        home = Path(name)
        with opening.create(home / "db", key=home / "db.key", limit=cost) as db:
            keys = np.repeat(np.arange(len(counts)), counts)
            load_made_up(db, "t", keys, second_column(rows), len(counts), cost, page_rows)
        with opened(home, enclave) as lab:
            yield lab


def load_made_up(
    db: Database, table: str, keys: IntArray, values: IntArray, size: int, epsilon: Exact, page_rows: int
) -> None:
    """Load rows of k and v, with an index of k, whose keys are below `size`."""
    db.load(
        table,
        pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(values, pa.int32())}),
        indexes=[f"k int:0:{size - 1} epsilon={show(exact(epsilon, 'epsilon'))}"],
        types={"k": "integer not null", "v": "integer not null"},
        capacity=-(-len(keys) // page_rows) * page_rows,
        page_rows=page_rows,
    )


@contextmanager
def opened(
    home: Path, enclave: Callable[[Storage], Enclave] = TrustedEnclave, *, accept_restored: bool = False
) -> Iterator[Laboratory]:
    """Open the database in home/db, whose key is beside it, with an enclave of one's own."""
    key = OwnerKey.open(home / "db.key")
    provider = Provider(open_store(home / "db"), enclave)
    with Database(provider, key, home / "db.key", accept_restored=accept_restored) as db:
        yield Laboratory(db, provider.transcript)


def _queries(transcript: Transcript, before: int) -> Iterator[Seen]:
    for exchange in transcript.exchanges():
        reads = [event for event in exchange.inside if event.kind == "read"]
        if exchange.opened.number <= before or exchange.closed is None or not reads:
            continue
        first = min(int(event["first_page"]) for event in reads)
        end = max(int(event["first_page"]) + int(event["pages"]) for event in reads)
        yield Seen(first, end - first, int(exchange.opened["bytes"]), int(exchange.closed["bytes"]))
