"""`scumble index` and its ledger, where a script is not enough: columns, damaged files, budgets, signals."""

import os
import re
import signal
import subprocess
import sys
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cli_setup import here, scumble, start
from pyarrow import feather, parquet

from scumble import DPPLRIndex, Ledger, parse_domain
from scumble.cli import columns
from scumble.errors import LedgerBusy
from scumble.index.slack import SLACKS, lossless_delta
from scumble.owner import ledger_log
from scumble.owner.indexes import capacity_cost, index_cost
from scumble.owner.sources import csv_source
from scumble.privacy.budget import row_delta

__all__ = ["here"]

KEYS = {"segments": int, "bytes": int, "max_error": int, "slack_rows": int, "epsilon": float, "delta": float}
KEYS |= {"beta": float, "levels": int, "domain_size": int, "mechanism": str, "slack": str, "capacity": int, "path": str}

# --- reading columns -------------------------------------------------------------------------------

BIG = 2**62
COLUMNS: list[tuple[str, list[Any]]] = [
    ("int:0:999", [5, 5, 17, 990]),
    (f"int:{BIG}:{BIG + 9}", [BIG, BIG + 1, BIG + 1, BIG + 9]),
    (f"int:{2**64 - 10}:{2**64 - 1}", [2**64 - 10, 2**64 - 3, 2**64 - 1]),
    (f"int:{-(2**63)}:{-(2**63) + 9}", [-(2**63), -(2**63) + 1]),
    (f"keys:[3,{BIG + 1},{BIG + 2}]", [BIG + 2, 3, BIG + 1, BIG + 1]),
    ("decimal:999999999999990:1000000000000000:0.01", [Decimal("999999999999999.99"), Decimal(10**15)]),
    ("date:2000-01-01:2030-12-31", ["2000-01-01", "2024-02-29", "2030-12-31"]),
    (
        "timestamp:2020-01-01T00:00:00:2020-01-01T00:00:01:100ns",
        ["2020-01-01T00:00:00.1234567", "2020-01-01T00:00:00.1234568", "2020-01-01T00:00:00"],
    ),
    ("timestamp:1500-01-01:1500-12-31:1h", ["1500-06-01T12:30:00", "1500-01-01"]),
    ("timestamp:2020-01-01:2020-12-31:1h", ["2020-06-01T12:30:00Z", "2020-01-01 00:00:00+00:00"]),
    ("float:0:1:0.1", [0.3, 0.1, 0.7, 1.0]),
    ('category:["","a b","é"]', ["é", "", "a b"]),
    ('keys:["x","y"]', ["y", "x"]),
    ('string:["d","m"]', ["", "dd", 'quo"te, and\nnewline']),
]


def quoted(cell: object) -> str:
    return '"' + str(cell).replace('"', '""') + '"'


@pytest.mark.parametrize(("text", "keys"), COLUMNS, ids=[text for text, _ in COLUMNS])
def test_a_csv_column_is_counted_exactly(text: str, keys: list[Any], here: Path) -> None:
    domain = parse_domain(text)
    for write in (quoted, str):
        if write is str and any(key == "" or "\n" in str(key) for key in keys):
            continue
        rows = "".join(f"x,{write(key)},y\n" for key in keys)
        (here / "k.csv").write_text("a,key,b\n" + rows, encoding="utf-8")
        counts = columns.count_keys(here / "k.csv", "key", domain)
        assert np.array_equal(counts, np.bincount(domain.ranks(keys), minlength=domain.size))


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "arrow", "feather", "npy"])
def test_lookups_cover_the_truth_whatever_the_file(form: str, here: Path) -> None:
    keys = np.sort(np.random.default_rng(7).integers(BIG, BIG + 5000, 4000))
    file = write_column(here / f"keys.{form}", keys)
    column = [] if form == "npy" else ["--column", "k.1"]
    options = [*column, "--domain", f"int:{BIG}:{BIG + 4999}", "--epsilon", 1, "--slack", "lossless"]
    made = scumble("index", "fit", file, *options, "-o", "k.scumble", "--json").json()
    shown = scumble("index", "show", "k.scumble", "--json").json()
    assert made.pop("ledger") is None
    assert made == shown
    assert {name: type(shown[name]) for name in KEYS} == KEYS
    assert (shown["domain_size"], shown["epsilon"], shown["beta"]) == (5000, 1, 0)
    assert shown["bytes"] == Path("k.scumble").stat().st_size
    for low, high in ((BIG, BIG + 4999), (BIG + 17, BIG + 17), (BIG + 1000, BIG + 1999)):
        found = scumble("index", "lookup", "k.scumble", "--between", low, high, "--json").json()
        assert found["start"] <= np.searchsorted(keys, low, "left")
        assert found["stop"] >= np.searchsorted(keys, high, "right")
        assert found["rows"] == found["stop"] - found["start"] <= found["capacity"]
        assert (found["start"], found["stop"]) == DPPLRIndex.load("k.scumble").lookup(low, high)


def write_column(file: Path, keys: "np.ndarray[Any, Any]") -> Path:
    table = pa.table({"other": ["x"] * len(keys), "k.1": keys})
    match file.suffix:
        case ".csv" | ".tsv":
            between = "," if file.suffix == ".csv" else "\t"
            rows = [f"x{between}{key}" for key in ["k.1", *keys.tolist()]]
            file.write_text("\n".join(rows) + "\n")
        case ".parquet":
            parquet.write_table(table, file, row_group_size=1000)
        case ".npy":
            np.save(file, keys)
        case _:
            feather.write_feather(table, file)
    return file


def test_a_key_is_looked_up_in_the_bin_that_its_csv_cell_went_to(here: Path) -> None:
    # 0.3 is a double below three tenths: exactly on the edge of a bin, text and double part ways.
    (here / "k.csv").write_text("k\n" + "0.3\n" * 500)
    scumble("index", "fit", "k.csv", "--column", "k", "--domain", "float:0:1:0.1", "--epsilon", 5, "-o", "k.scumble")
    found = scumble("index", "lookup", "k.scumble", "--at", "0.3", "--json").json()
    assert found["rows"] >= 500


def test_rows_are_counted_from_the_start_of_the_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_NPY_ROWS", 100)
    monkeypatch.setattr(csv_source, "_BLOCK_BYTES", 256)
    keys = np.arange(1000)
    keys[765] = 47_114_711
    fit = ["--domain", "int:0:999", "--epsilon", 1, "-o", "k.scumble"]
    for name in ("k.npy", "k.csv", "k.parquet"):
        result = scumble("index", "fit", write_column(here / name, keys), "--column", "k.1", *fit)
        assert result.code == 2
        assert "the key in row 765 is outside the domain" in result.err
        assert "4711" not in result.err
    text = [str(key) for key in keys]
    text[765], text[800] = "x4711", "+5"
    (here / "k.csv").write_text("k\n" + "\n".join(text) + "\n")
    result = scumble("index", "fit", "k.csv", "--column", "k", *fit)
    assert "the key in row 765 is text that does not read as an integer" in result.err
    text[765] = " +007 "
    (here / "k.csv").write_text("k\n" + "\n".join(text) + "\n")
    assert scumble("index", "fit", "k.csv", "--column", "k", *fit).code == 0


@pytest.mark.parametrize(
    ("keys", "domain", "message"),
    [
        (np.array([1.0, np.nan]), "float:0:9:1", "the key in row 1 is NaN"),
        (np.array([1.0, 4711.5]), "float:0:9:1", "the key in row 1 is outside the domain"),
        (np.array([1.0, 4711.5]), "int:0:9", "float64 is not what the domain int:0:9 maps"),
        (np.array([[1, 4711]]), "int:0:9", "does not hold one column"),
        (np.array([1, "4711"], dtype=object), "int:0:9", "is not a whole npy file"),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), "date:2000-01-01:2030-12-31", "the key in row 1 is null"),
    ],
)
def test_bad_npy(keys: "np.ndarray[Any, Any]", domain: str, message: str, here: Path) -> None:
    np.save(here / "k.npy", keys)
    spend = ["--epsilon", 1, "--ledger", "b.ledger", "--limit", 1]
    result = scumble("index", "fit", "k.npy", "--domain", domain, *spend, "-o", "k.scumble")
    assert result.code == 2
    assert message in result.err
    assert "hint: " in result.err
    assert "4711" not in result.err
    assert not list(here.glob("*.scumble")) + list(here.glob("*.ledger"))


def test_bad_parquet(here: Path) -> None:
    parquet.write_table(pa.table({"k": [1, None, 3], "s": ["1", "2", "4711"]}), "k.parquet")
    fit = ["--domain", "int:0:9", "--epsilon", 1, "-o", "k.scumble"]
    assert "the key in row 1 is null" in scumble("index", "fit", "k.parquet", "--column", "k", *fit).err
    text = scumble("index", "fit", "k.parquet", "--column", "s", *fit).err
    assert text.startswith("error: the keys: str is not what the domain int:0:9 maps\nhint: ")
    assert "4711" not in text
    missing = scumble("index", "fit", "k.parquet", "--column", "key", *fit)
    assert (missing.code, "hint: its columns are 'k', 's'" in missing.err) == (2, True)
    Path("k.parquet").write_bytes(Path("k.parquet").read_bytes()[:-20])
    assert "is not a whole Parquet file" in scumble("index", "fit", "k.parquet", "--column", "k", *fit).err


@pytest.fixture
def ten(here: Path) -> list[Any]:
    """The command that fits an index of ten keys, but for its output."""
    np.save(here / "k.npy", np.arange(10))
    return ["index", "fit", "k.npy", "--domain", "int:0:9", "--epsilon", 1, "-o", "k.scumble"]


# --- index files -----------------------------------------------------------------------------------


@pytest.fixture
def index_file(here: Path) -> Path:
    np.save(here / "k.npy", np.arange(1000))
    assert scumble("index", "fit", "k.npy", "--domain", "int:0:999", "--epsilon", 1, "-o", "k.scumble").code == 0
    return here / "k.scumble"


@pytest.mark.parametrize("command", [["show"], ["lookup", "--at", "4"], ["plot", "-o", "x.png"]], ids=lambda c: c[0])
def test_a_damaged_index_file_is_refused(command: list[str], index_file: Path) -> None:
    whole = index_file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    newer = bytearray(whole)
    newer[8] = 9
    for data, message in (
        (whole[:-5], "truncated or altered"),
        (whole[:20], "truncated or altered"),
        (b"", "not a Scumble index file"),
        (bytes(flipped), "truncated or altered"),
        (bytes(newer), "format version 9; this Scumble reads up to 4"),
    ):
        index_file.write_bytes(data)
        name, *options = command
        result = scumble("index", name, index_file, *options)
        assert (result.code, result.out) == (2, "")
        assert message in result.err
        assert "\nhint: " in result.err
    index_file.unlink()
    assert "cannot read the index file: No such file" in scumble("index", command[0], index_file, *command[1:]).err


def test_an_index_follows_the_umask_like_any_public_file(index_file: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert index_file.stat().st_mode & 0o777 == 0o666 & ~umask


def test_an_index_that_cannot_be_written_in_the_end_is_kept(
    here: Path, ten: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scumble.durable.Draft.write", full)
    monkeypatch.setattr("tempfile.tempdir", str(here))
    result = scumble(*ten)
    assert result.code == 1
    assert (
        "error: the index was built and its epsilon is spent, but k.scumble cannot be written: No space" in result.err
    )
    (kept,) = re.findall(r"hint: it was kept as (\S+):", result.err)
    assert scumble("index", "show", kept).code == 0
    assert not list(here.glob("*.new"))


# --- budgets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows_per_user", [1, 2, 7, 1000])
@pytest.mark.parametrize("epsilon", ["1/1000", "1", "12.5"])
def test_a_lossless_price_covers_its_rows_and_not_much_more(epsilon: str, rows_per_user: int) -> None:
    for (charged, delta), costs in (
        (index_cost(epsilon, "1e-12", rows_per_user, "lossless"), SLACKS["lossless"].delta),
        (capacity_cost(epsilon, "1e-12", rows_per_user), lossless_delta),
    ):
        needed = costs(charged / rows_per_user, Fraction(1, 10**12))
        assert row_delta(charged, delta, rows_per_user) >= needed
        assert row_delta(charged, delta * (1 - Fraction(1, 10**9)), rows_per_user) < needed


_HOLD = """
import sqlite3, sys
holder = sqlite3.connect(sys.argv[1], isolation_level=None)
holder.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_ledger_locked_by_another_process(here: Path, ten: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open("b.ledger", limit=1).close()
    connect = ledger_log._connect
    monkeypatch.setattr(ledger_log, "_connect", lambda path, busy_seconds: connect(path, min(busy_seconds, 0.2)))
    holding = [sys.executable, "-c", _HOLD, "b.ledger"]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        refused = scumble(*ten, "--ledger", "b.ledger")
        holder.communicate("")
    assert refused.code == 3
    assert refused.err == (
        "error: the ledger is locked by another process\nhint: try again when it is done; nothing was spent\n"
    )
    assert not (here / "k.scumble").exists()
    assert scumble("ledger", "show", "b.ledger", "--json").json()["entries"] == []


def test_a_ledger_that_is_busy_after_the_build_costs_no_index(
    here: Path, ten: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(self: Ledger) -> Fraction:
        assert (here / "k.scumble").exists()
        raise LedgerBusy("the ledger is locked by another process")

    monkeypatch.setattr(Ledger, "remaining", busy)
    assert scumble(*ten, "--ledger", "b.ledger", "--limit", 1, "--json").json()["ledger"] == {"path": "b.ledger"}
    assert scumble("index", "show", "k.scumble").code == 0


def test_a_refusal_after_the_spend_gives_it_back(ten: list[Any]) -> None:
    assert scumble(*ten, "--capacity", 3, "--ledger", "b.ledger", "--limit", 1).code == 2
    account = scumble("ledger", "show", "b.ledger", "--json").json()
    assert (account["spent"], [entry["state"] for entry in account["entries"]]) == (0, ["cancelled"])
    assert [type(account[name]) for name in ("limit", "remaining", "delta_limit", "delta_remaining")] == [float] * 4


# --- ends ------------------------------------------------------------------------------------------


def test_what_nobody_foresaw_shows_no_data(ten: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def surprise(*_: object) -> None:
        raise ValueError("cannot convert '4711'")

    monkeypatch.setattr("scumble.cli.index.count_keys", surprise)
    result = scumble(*ten)
    assert (result.code, "4711" in result.err) == (1, False)
    assert re.match(r"error: this should not happen: ValueError in test_cli_index.py, line \d+\nhint: ", result.err)
    monkeypatch.setenv("SCUMBLE_DEBUG", "1")
    with pytest.raises(ValueError, match="4711"):
        scumble(*ten)


def test_ctrl_c_is_quiet_and_leaves_nothing(here: Path) -> None:
    os.mkfifo(here / "k.csv")  # the command waits for data until it is interrupted
    fit = ["--column", "k", "--domain", "int:0:9", "--epsilon", 1, "--ledger", "b.ledger", "--limit", 1]
    process = start("index", "fit", "k.csv", *fit, "-o", "k.scumble", folder=here)
    for _ in range(600):
        if list(here.glob(".k.scumble.*")):
            break
        time.sleep(0.05)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")
    assert [path.name for path in here.iterdir()] == ["k.csv"]


def test_a_closed_pipe_is_quiet(here: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "scumble.cli", "index", "fit", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_help_loads_neither_arrow_nor_matplotlib() -> None:
    code = (
        "import sys; from scumble.cli import main; main(['index', 'fit', '--help']); "
        "sys.exit('pyarrow' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
