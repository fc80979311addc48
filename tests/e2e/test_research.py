"""Comparators as the indexes of tables, end to end: in a program for research, and refused in any other.

Three ways in which it could be wrong and still answer: noise that is drawn anew if a build is killed, an ordinary
program that reads comparators because something imported the lab, and a lossy index of which EXPLAIN says 1e-6.
"""

import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import scumble
from scumble.enclave.dummies import Dummies
from scumble.enclave.loads import Load
from scumble.errors import FileError, InvalidParameter, Unavailable
from scumble.index import kinds
from scumble.index.summary import summarize
from scumble.lab import research
from scumble.lab.comparators import COMPARATORS, DPRMIIndex, FMIIndex, FMIPerceptronsIndex
from scumble.owner import versions as owner_versions
from scumble.owner.database import Database
from scumble.owner.indexes import IndexSpec
from scumble.store.files import FileStore
from scumble.wire.catalog import Run

ROWS = 20_000
DELTA = "delta=1e-7 beta=1e-8"
TERMS = {
    "crypt-epsilon": "epsilon=1",
    "crypt-epsilon-published": "epsilon=1",
    "special": f"epsilon=1 {DELTA}",
    "dp-bplus-tree": "epsilon=1",
    "dp-rmi": f"epsilon=1 {DELTA}",
    "fmi": f"epsilon=1 {DELTA}",
    "fmi-perceptrons": f"epsilon=1 {DELTA}",
    "exact": "epsilon=256",
}
CHANCE = {"crypt-epsilon": 1, "crypt-epsilon-published": 1, "special": 0, "dp-bplus-tree": 1e-6, "exact": 0}
LOSSLESS = [kind for kind in TERMS if CHANCE.get(kind, 1e-8) < 1]
RANGES = [(0, 0), (17, 17), (40, 60), (0, 499), (250, 498), (499, 499)]
AGGREGATES = "SELECT count(*), sum(v) FROM ? WHERE k BETWEEN ? AND ?"
OPTIONS: dict[str, Any] = {"capacity": 20_480, "page_rows": 64}
BRIEF = {
    "fmi": partial(FMIIndex, steps=4),
    "dp-rmi": partial(DPRMIIndex, steps=4),
    "fmi-perceptrons": partial(FMIPerceptronsIndex, hidden=(4, 3, 2), epochs=2),
}


def _rows(rows: int = ROWS, *, nulls: bool = False) -> pa.Table:
    keys = np.minimum(np.random.default_rng(7).lognormal(4, 0.8, rows), 499).astype(np.int64)
    missing = np.arange(rows) % 9 == 0 if nulls else None
    return pa.table({"k": pa.array(keys, pa.int64(), mask=missing), "v": pa.array(np.arange(rows) % 1000, pa.int64())})


def _index(kind: str, domain: str = "int:0:499") -> str:
    return f"k {domain} {TERMS[kind]} mechanism={kind}"


def _name(kind: str) -> str:
    return kind.replace("-", "_")


@pytest.fixture(autouse=True)
def _no_research_outside() -> Iterator[None]:
    assert not research.is_enabled()
    yield
    assert not research.is_enabled()


@pytest.fixture
def _researching(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program for research, which trains as little as a test needs."""
    for kind, brief in BRIEF.items():
        monkeypatch.setattr(research.KINDS[kind], "kind", brief)
    with research.enabled():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a table for each comparator, and one with the ordinary index."""
    place = tmp_path_factory.mktemp("research") / "db"
    with pytest.MonkeyPatch.context() as patched, research.enabled():
        for kind, brief in BRIEF.items():
            patched.setattr(research.KINDS[kind], "kind", brief)
        with scumble.create(place, limit=300, delta_limit="1e-3") as db:
            for kind in TERMS:
                db.load(_name(kind), _rows(), indexes=[_index(kind)], **OPTIONS)
            db.load("ordinary", _rows(), indexes=["k int:0:499 epsilon=1"], **OPTIONS)
    return place


def _truth(table: pa.Table, low: int, high: int) -> tuple[int, int]:
    keys, values = table["k"].to_numpy(), table["v"].to_numpy()
    inside = (keys >= low) & (keys <= high)
    return int(inside.sum()), int(values[inside].sum())


def _asked(db: Database, table: str, low: int, high: int) -> tuple[int, int]:
    ((rows, total),) = db.sql(AGGREGATES.replace("?", table, 1), [low, high]).fetchall()
    return rows, int(total or 0)


# --- what it answers --------------------------------------------------------------------------------


def test_every_comparator_is_tried() -> None:
    assert set(TERMS) == set(COMPARATORS)


@pytest.mark.usefixtures("_researching")
@pytest.mark.parametrize("kind", LOSSLESS)
def test_a_comparator_that_loses_no_row_answers_exactly(folder: Path, kind: str) -> None:
    """Of those that promise a beta it fails once in a million builds, or more seldom."""
    table = _rows()
    with scumble.open(folder) as db:
        for low, high in RANGES:
            assert _asked(db, _name(kind), low, high) == _truth(table, low, high)


@pytest.mark.usefixtures("_researching")
def test_crypt_epsilon_loses_rows_and_invents_none(folder: Path) -> None:
    """Noise of scale 500 at either end of every lookup: that none of 50 loses a row has a chance below 2^-50."""
    table = _rows()
    points = [(low, low) for low in range(20, 70)]
    with scumble.open(folder) as db:
        lost = [_truth(table, *ends)[0] - _asked(db, "crypt_epsilon", *ends)[0] for ends in points]
    assert min(lost) >= 0
    assert max(lost) > 0


@pytest.mark.usefixtures("_researching")
@pytest.mark.parametrize("kind", TERMS)
def test_explain_says_what_is_promised_and_what_is_read(folder: Path, kind: str) -> None:
    text = AGGREGATES.replace("?", _name(kind), 1)
    with scumble.open(folder) as db:
        told = db.explain(text, [40, 60])
        (run,) = db.table(_name(kind)).runs
        assert run.index is not None
        model = kinds.decoded(run.index)
        about = summarize(model)
        entry = next(each for each in db.ledger.entries() if each.table_name == _name(kind))
    assert told.beta == told.tables[0].beta == CHANCE.get(kind, 1e-8)
    assert about.beta == CHANCE.get(kind, 1e-8)
    assert (about.mechanism, about.bytes) == (kind, len(run.index))
    assert (model.epsilon, model.delta) == (entry.epsilon, entry.delta)
    assert model.to_bytes() == run.index
    if told.tables[0].indexes:
        read = sum(stop - start for scan in told.tables[0].scans for start, stop in scan.positions)
        assert read <= told.tables[0].rows_read
        answer, extra = _truth(_rows(), 40, 60)[0], told.tables[0].expected_overhead_rows
        assert kind in ("crypt-epsilon", "crypt-epsilon-published") or answer / 2 <= read <= 2 * (answer + extra)


@pytest.mark.usefixtures("_researching")
def test_the_scan_cost_of_a_point_can_be_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPECIAL's noise is wider than the table at this epsilon, a leaf of the tree holds dummies, and exact reads least.

    What the provider is asked for is what EXPLAIN says.
    """
    fetched: list[tuple[str, int]] = []
    original, read = FileStore.read, {}

    def listen(store: FileStore, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        fetched.append((run, pages))
        original(store, run, column, first_page, pages, into)

    monkeypatch.setattr(FileStore, "read", listen)
    with scumble.open(folder) as db:
        for table in ("exact", "ordinary", "dp_bplus_tree", "special"):
            text = AGGREGATES.replace("?", table, 1)
            told = db.explain(text, [300, 300]).tables[0]
            fetched.clear()
            db.sql(text, [300, 300]).fetchall()
            (run,) = db.table(table).runs
            assert fetched
            assert {name for name, _ in fetched} == {run.id}
            assert sum(pages for _, pages in fetched) == told.pages_read * len(told.columns_read)
            read[table] = told.rows_read
    assert read["exact"] <= read["ordinary"] < read["special"]
    assert read["exact"] < read["dp_bplus_tree"] < read["special"]


# --- where rows lie ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("_researching")
@pytest.mark.parametrize("kind", ["special", "dp-bplus-tree", "exact", "fmi"])
@pytest.mark.parametrize("size", [1, 2, 7, 500])
def test_rows_without_a_key_and_odd_domains(tmp_path: Path, kind: str, size: int) -> None:
    """A tree's leaves are laid out in pairs, and the last one of an odd number alone; nulls follow all of them."""
    table = _rows(3000, nulls=True)
    keys = np.minimum(table["k"].to_numpy(zero_copy_only=False), size - 1)
    mask = table["k"].is_null().to_numpy()
    table = pa.table({"k": pa.array(keys, mask=mask, from_pandas=True).cast(pa.int64()), "v": table["v"]})
    values = table["v"].to_numpy()
    with scumble.create(tmp_path / "db", limit=300, delta_limit="1e-3") as db:
        db.load("t", table, indexes=[_index(kind, f"int:0:{size - 1}")], capacity=3072, page_rows=16)
        for low, high in {(0, 0), (0, size - 1), (size // 2, size - 1), (size - 1, size - 1)}:
            inside = ~mask & (keys >= low) & (keys <= high)
            assert _asked(db, "t", low, high) == (int(inside.sum()), int(values[inside].sum()))
        ((nulls,),) = db.sql("SELECT count(*) FROM t WHERE k IS NULL").fetchall()
        ((every,),) = db.sql("SELECT count(*) FROM t").fetchall()
        ((either,),) = db.sql("SELECT sum(v) FROM t WHERE k IS NULL OR k = 0").fetchall()
    assert (nulls, every) == (mask.sum(), 3000)
    assert either == values[mask | (keys == 0)].sum()


@pytest.mark.usefixtures("_researching")
def test_a_second_batch_and_copies_with_some_columns(tmp_path: Path) -> None:
    first, second = _rows(1000), _rows(2000).slice(1000)
    indexes = ["k int:0:499 epsilon=2 mechanism=dp-bplus-tree columns=k,v", "v int:0:999 epsilon=1 columns=v"]
    with scumble.create(tmp_path / "db", limit=30, delta_limit="1e-3") as db:
        for part in (first, second):
            db.load("t", part, indexes=indexes, capacity=1024, page_rows=16)
        whole = pa.concat_tables([first, second])
        assert _asked(db, "t", 30, 60) == _truth(whole, 30, 60)
        assert db.explain("SELECT sum(v) FROM t WHERE k BETWEEN 30 AND 60").beta == 2e-6


# --- who may have one -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TERMS)
def test_an_ordinary_program_refuses_a_comparator_before_it_is_paid(tmp_path: Path, kind: str) -> None:
    with scumble.create(tmp_path / "db", limit=300, delta_limit="1e-3") as db:
        with pytest.raises(InvalidParameter, match="no such mechanism") as refused:
            db.load("t", _rows(100), indexes=[_index(kind)])
        assert "scumble --research" in str(refused.value.hint)
        assert db.ledger.spent() == db.ledger.spent_delta() == 0
        assert not db.tables


def test_an_ordinary_enclave_refuses_what_a_program_for_research_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's side knows comparators, the enclave does not: it refuses when the load begins."""
    order = IndexSpec.order

    def ordered(spec: IndexSpec, *more: Any) -> Any:
        with research.enabled():
            return order(spec, *more)

    monkeypatch.setattr(IndexSpec, "order", ordered)
    with scumble.create(tmp_path / "db", limit=300, delta_limit="1e-3") as db:
        with pytest.raises(InvalidParameter, match="no such mechanism"):
            db.load("t", _rows(100), indexes=[_index("special")])
        assert db.ledger.spent() == db.ledger.spent_delta() == 0


def test_without_research_the_table_is_refused_and_all_else_works(folder: Path) -> None:
    with scumble.open(folder) as db:
        with pytest.raises(FileError, match="does not know") as refused:
            db.sql("SELECT count(*) FROM special WHERE k = 3")
        assert "scumble --research" in str(refused.value.hint)
        with pytest.raises(FileError, match="does not know"):
            db.explain("SELECT count(*) FROM exact")
        assert _asked(db, "ordinary", 40, 60) == _truth(_rows(), 40, 60)
        assert "?" in db.table("special")._repr_html_()
        db.check()


IMPORTING = """
import scumble.lab, scumble.lab.comparators, scumble.lab.research, scumble.lab.compare, scumble.lab.scans
import scumble.lab.enclave, scumble.cli
from scumble.index import kinds
assert not scumble.lab.research.is_enabled()
assert set(kinds._KINDS) == {"scumble", "paper"}
assert not kinds._READERS
print("nothing")
"""


def test_importing_the_lab_teaches_a_program_nothing() -> None:
    told = subprocess.run([sys.executable, "-c", IMPORTING], check=False, capture_output=True, text=True)
    assert (told.returncode, told.stdout, told.stderr) == (0, "nothing\n", "")


def test_research_ends_with_its_block_unless_it_was_there() -> None:
    with research.enabled():
        with research.enabled():
            assert research.is_enabled()
        assert research.is_enabled()
    assert not research.is_enabled()


# --- what it costs ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("_researching")
@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ("epsilon=1 mechanism=special", "needs a delta"),
        ("epsilon=1 delta=1e-9 mechanism=special", "needs a delta"),
        ("epsilon=1 mechanism=fmi", "needs a delta"),
        ("epsilon=1 mechanism=dp-rmi", "needs a delta"),
        ("epsilon=1 mechanism=fmi-perceptrons", "needs a delta"),
        ("epsilon=1 delta=1e-7 mechanism=crypt-epsilon", "costs no delta"),
        ("epsilon=1 delta=1e-7 mechanism=dp-bplus-tree", "costs no delta"),
        ("epsilon=1 delta=1e-7", "costs no delta"),
        ("epsilon=1 delta=1e-7 slack=lossless", "costs no delta"),
        ("epsilon=1 delta=0 mechanism=fmi", "between 0 and 1"),
        ("epsilon=1 delta=1 mechanism=fmi", "between 0 and 1"),
        ("epsilon=1 mechanism=exact", "no epsilon covers it"),
        ("epsilon=255 mechanism=exact", "no epsilon covers it"),
        ("epsilon=256 rows_per_user=2 mechanism=exact", "no epsilon covers it"),
        ("epsilon=257 mechanism=exact", "2\\^8"),
        ("epsilon=1 mechanism=crypt-epsilon blocks=2", "neither max_bytes nor"),
        ("epsilon=1 mechanism=crypt-epsilon slack=lossless", "neither max_bytes nor"),
        ("epsilon=1 mechanism=crypt-epsilon slack=paper alpha_s=8", "neither max_bytes nor"),
        ("epsilon=1 mechanism=crypt-epsilon max_bytes=500", "neither max_bytes nor"),
    ],
)
def test_terms_that_would_not_be_true_are_refused_for_nothing(tmp_path: Path, terms: str, why: str) -> None:
    with scumble.create(tmp_path / "db", limit=600, delta_limit="0.5") as db:
        with pytest.raises(InvalidParameter, match=why):
            db.load("t", _rows(100), indexes=[f"k int:0:499 {terms}"])
        assert db.ledger.spent() == db.ledger.spent_delta() == 0


@pytest.mark.usefixtures("_researching")
@pytest.mark.parametrize(("kind", "size", "why"), [("special", 1 << 19, "numbers"), ("dp-bplus-tree", 8193, "leaves")])
def test_a_domain_for_which_a_table_has_no_room_is_refused(kind: str, size: int, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        IndexSpec.parse(_index(kind, f"int:0:{size}")).order()


def test_a_delta_is_read_and_written_again() -> None:
    spec = IndexSpec.parse("k int:0:9 epsilon=1 mechanism=special delta=1e-7")
    assert spec.delta == "1e-7"
    assert IndexSpec.parse(f"k {spec.terms}") == spec
    with research.enabled():
        order = spec.__class__.parse("k int:0:9 epsilon=1 mechanism=special delta=1e-7 beta=1e-8").order()
    assert (order.epsilon, order.delta, order.mechanism) == (Fraction(1), Fraction(1, 10**7), "special")


# --- noise ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_researching")
@pytest.mark.parametrize("kind", [kind for kind in TERMS if kind != "exact"])
def test_a_build_that_is_killed_and_made_again_releases_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The provider cannot have a comparator's noise drawn anew, and the ledger is charged once."""
    built: list[bytes | None] = []
    original = Load.build

    def killed(load: Load, *more: Any) -> tuple[tuple[Run, Dummies], ...]:
        runs = original(load, *more)
        built.append(runs[0][0].index)
        if len(built) == 1:
            raise Unavailable("the enclave was killed", hint="connect again")
        return runs

    monkeypatch.setattr(Load, "build", killed)
    monkeypatch.setattr(owner_versions, "PAUSES_SECONDS", (0, 0, 0))
    monkeypatch.setattr(owner_versions, "UNFINISHED_SECONDS", 0.1)
    with scumble.create(tmp_path / "db", limit=3, delta_limit="1e-3") as db:
        for _ in range(2):
            db.load("t", _rows(200), indexes=[_index(kind)], capacity=256, page_rows=16, again=True)
        assert built[0] == built[1]
        assert built[2] != built[0]  # another batch of the same rows
        assert db.ledger.spent() == 2
