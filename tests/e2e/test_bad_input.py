"""Input that cannot be: refused in a sentence with a hint, nothing lost, nothing spent, and no value shown anywhere."""

import datetime
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from databases import (
    INDEXES,
    clean_files,
    copy,
    counted,
    create,
    expected,
    files,
    in_a_child,
    load,
    reopen,
    rows,
    stored,
    sums,
)

from scumble.errors import (
    BadRows,
    Busy,
    Exists,
    FileError,
    InvalidKeys,
    InvalidParameter,
    KeyRefused,
    NotFound,
    Overdraft,
    ScumbleError,
    Tampered,
)
from scumble.owner.database import Database
from scumble.store.files import FileStore

MARKER = "PlantedQuokka"
NUMBER = 7_307_011_997_531
DAY = datetime.date(2019, 7, 23)
AMOUNT = Decimal("987654321.37")


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("origin")
    with create(home) as db:
        load(db, "t")
    return home


@pytest.fixture
def home(origin: Path, tmp_path: Path) -> Path:
    copy(origin, tmp_path / "home")
    return tmp_path / "home"


@contextmanager
def refused(error: type[ScumbleError], match: str | None = None) -> Iterator[pytest.ExceptionInfo[ScumbleError]]:
    """What is inside raises such an error, with a hint."""
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert caught.value.hint


def _with(name: str, value: object, kind: pa.DataType | None = None) -> pa.Table:
    """Good rows but for the value of one column in row 8."""
    table = rows(12, 2)
    values = table[name].to_pylist()
    values[7] = value
    return table.set_column(
        table.schema.get_field_index(name), name, pa.array(values, kind or table.schema.field(name).type)
    )


def _states(db: Database) -> list[str]:
    return [entry.state for entry in db.ledger.entries()]


def _check_as_before(home: Path) -> None:
    with reopen(home) as db:
        assert stored(db, "t") == expected(1)
        db.check()
        assert "open" not in _states(db)
        assert _states(db)[:2] == ["drawn", "drawn"]
        assert set(_states(db)[2:]) <= {"cancelled"}
        assert db.ledger.spent() == 2
        assert files(home) == clean_files(home, db)
    copy(home, home.with_name("copy"))
    with reopen(home.with_name("copy")) as db:
        load(db, "t", seed=2)
        assert stored(db, "t") == expected(1, 2)


def _check_refused(home: Path, use: Callable[[Database], object], error: type[ScumbleError], *words: str) -> str:
    with reopen(home) as db:
        with pytest.raises(error) as caught:
            use(db)
        assert type(caught.value) is error
        assert caught.value.hint
        text = str(caught.value)
        for word in words:
            assert word in text
        assert counted(db, "t") == sums(1)  # the same object goes on working
        assert "open" not in _states(db)
    _check_as_before(home)
    return text


BAD_ROWS = {
    "key out of its domain": (_with("k", 128), ("'k'", "row 8")),
    "key below its domain": (_with("k", -1), ("'k'", "row 8")),
    "decimal out of its domain": (_with("amount", Decimal("100.25")), ("'amount'", "row 8")),
    "null where none may be": (_with("k", None), ("'k'", "row 8")),
    "too long a text": (_with("name", MARKER * 3), ("'name'", "row 8")),
    "no such category": (_with("colour", MARKER), ("'colour'", "row 8")),
    "a number that does not fit": (_with("k", NUMBER, pa.int64()), ("'k'", "row 8")),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_do_not_fit(home: Path, name: str) -> None:
    table, words = BAD_ROWS[name]
    for target in ("t", "new"):
        text = _check_refused(home, partial(load, table=target, source=table), BadRows, *words)
        assert MARKER not in text
        assert str(NUMBER) not in text
        assert "128" not in text.partition("hint")[0]


def test_a_decimal_between_the_steps_is_found_again(home: Path) -> None:
    """A step is coarser than the column: the key falls into its bin, and the value stays what it is."""
    table = _with("amount", Decimal("1.13"))
    with reopen(home) as db:
        try:
            load(db, "new", source=table)
        except BadRows:
            assert _states(db) == ["drawn", "drawn", "cancelled", "cancelled"]
            return
        assert db.sql("SELECT k FROM new WHERE amount = 1.13").fetchall() == [(table["k"][7].as_py(),)]


@pytest.mark.parametrize(("value", "scale"), [(AMOUNT, 2), (Decimal("1.537"), 3)])
def test_decimals_with_too_many_digits(home: Path, value: Decimal, scale: int) -> None:
    table = pa.table({"x": pa.array([Decimal("1.5"), value], pa.decimal128(38, scale))})
    use = partial(Database.load, table="new", source=table, types={"x": "decimal(5,2)"}, capacity=16)
    assert str(value) not in _check_refused(home, use, BadRows, "row 2")


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1, 2], pa.int64()), (["a", "b"], pa.string()), ([b"a", b"b"], pa.binary()), ([[1], [2]], pa.list_(pa.int64()))],
)
def test_columns_of_the_wrong_type(home: Path, values: list[Any], kind: pa.DataType) -> None:
    table = pa.table({"day": pa.array(values, kind)})
    with reopen(home) as db:
        with pytest.raises(ScumbleError) as caught:
            db.load("new", table, indexes=["day date:2013-01-01:2013-12-31 epsilon=1"], capacity=16)
        assert type(caught.value) in (BadRows, InvalidParameter, InvalidKeys)
        assert caught.value.hint
    _check_as_before(home)


@pytest.mark.parametrize(
    ("lines", "more", "words"),
    [
        (f"2,3.5\n\n3,4.5,{MARKER}\n4,5\n", {}, ("line 5", "3 cells")),
        (f"{MARKER},3.5\n", {"types": {"k": "integer", "amount": "double"}}, ("line 3", "'k'")),
        (f'"{MARKER},3.5\n', {"types": {"k": "integer", "amount": "double"}}, ()),
        (f"{NUMBER},3.5\n", {"indexes": ["k int:0:9 epsilon=1"]}, ("'k'", "row 2")),
    ],
)
def test_a_broken_line_of_a_csv(home: Path, lines: str, more: dict[str, Any], words: tuple[str, ...]) -> None:
    path = home.with_name("rows.csv")
    path.write_text(f"k,amount\n1,2.5\n{lines}")
    options = {"types": {"k": "bigint", "amount": "double"}} | more
    text = _check_refused(home, lambda db: db.load("new", path, capacity=16, **options), BadRows, *words)
    assert MARKER not in text
    assert str(NUMBER) not in text


@pytest.mark.parametrize(
    ("source", "error"),
    [("nowhere.csv", FileError), ("nowhere.txt", InvalidParameter), (42, ScumbleError), (None, ScumbleError)],
)
def test_sources_that_are_none(home: Path, source: object, error: type[ScumbleError]) -> None:
    with reopen(home) as db, refused(error):
        db.load("new", source)
    _check_as_before(home)


# --- keys and folders ------------------------------------------------------------------------------


def test_no_key_file(home: Path) -> None:
    (home / "db.key").rename(home / "away")
    with refused(KeyRefused, match="there is no key file"):
        reopen(home)
    (home / "away").rename(home / "db.key")
    _check_as_before(home)


def test_a_wrong_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCUMBLE_PASSPHRASE", raising=False)
    home = tmp_path / "home"
    with create(home, passphrase="open, sesame") as db:  # noqa: S106
        load(db, "t")
    for given in ("open barley", "", None):
        with refused(KeyRefused) as caught:
            reopen(home, passphrase=given)
        assert "barley" not in str(caught.value)
    with reopen(home, passphrase="open, sesame") as db:  # noqa: S106
        assert stored(db, "t") == expected(1)


def test_the_key_of_another_database(home: Path, tmp_path: Path) -> None:
    with create(tmp_path / "other"):
        pass
    with refused(KeyRefused, match="another database"):
        reopen(home, key=tmp_path / "other/db.key")
    _check_as_before(home)


def test_no_database_and_one_that_is_there(home: Path, tmp_path: Path) -> None:
    with refused(NotFound):
        reopen(tmp_path / "nothing")
    with refused(Exists):
        create(home)
    with refused(Exists):
        create(home, key=tmp_path / "another.key")
    assert not (tmp_path / "another.key").exists()
    _check_as_before(home)


def test_a_key_that_would_lie_in_the_folder(tmp_path: Path) -> None:
    with refused(InvalidParameter):
        create(tmp_path / "home", key=tmp_path / "home/db/my.key")
    assert not (tmp_path / "home/db").exists()


def test_no_ledger(home: Path) -> None:
    (home / "db.ledger").rename(home / "away")
    with reopen(home) as db:
        assert stored(db, "t") == expected(1)  # a query needs none
        with pytest.raises(NotFound, match="there is no ledger"):
            load(db, "new")
    (home / "away").rename(home / "db.ledger")
    _check_as_before(home)


def test_a_folder_that_may_not_be_read_or_written(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        with create(home) as db:
            load(db, "t")
        for path in (Path(name), home, *home.rglob("*")):
            if os.getuid() == 0:
                os.chown(path, 65534, 65534)

        def as_nobody(mode: int, work: Callable[[], None]) -> None:
            for path in [home / "db", *(p for p in (home / "db").rglob("*") if p.is_dir())]:
                path.chmod(mode)

            def child() -> None:
                if os.getuid() == 0:  # root may do anything
                    os.setgid(65534)
                    os.setuid(65534)
                work()

            try:
                assert in_a_child(child) == 0
            finally:
                for path in [home / "db", *(p for p in (home / "db").rglob("*"))]:
                    path.chmod(0o755 if path.is_dir() else 0o644)

        def unreadable() -> None:
            with refused(FileError):
                reopen(home)

        def unwritable() -> None:
            with reopen(home) as db:
                assert counted(db, "t") == sums(1)
                for write in (lambda: load(db, "new"), lambda: db.drop("t"), db.rekey):
                    with refused(FileError):
                        write()
                assert "open" not in _states(db)  # but perhaps drawn: the noise comes before the pages
                assert counted(db, "t") == sums(1)

        as_nobody(0o000, unreadable)
        as_nobody(0o555, unwritable)
        with reopen(home) as db:
            assert stored(db, "t") == expected(1)
            db.check()


# --- room ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most_bytes", [0, 100, 1000, 2000, 5000, 10_000])
def test_a_disk_that_is_full(home: Path, most_bytes: int) -> None:
    """A limit on the size of files stands for the disk: every larger write fails."""

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with reopen(home) as db:
            before = len(db.ledger.entries())
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
            with pytest.raises(ScumbleError) as caught:
                load(db, "big", 120, 2, capacity=128)
            assert isinstance(caught.value, FileError)
            assert caught.value.hint
            assert counted(db, "t") == sums(1)
            assert len(db.ledger.entries()) >= before

    assert in_a_child(work) == 0
    with reopen(home) as db:
        assert stored(db, "t") == expected(1)
        db.check()
        load(db, "t", seed=2)
        assert files(home) == clean_files(home, db)
        assert counted(db, "t") == sums(1, 2)


def test_a_disk_of_its_own_that_is_full(home: Path, tmp_path: Path) -> None:
    """A small file system, all of it: the ledger's and the key's too."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no small file system can be mounted here; the limit on file sizes stands for it")
    try:
        with create(disk / "home") as db:
            load(db, "t")
            filler = disk / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(1024)):
                    pass
            for _ in range(3):
                with refused(FileError):
                    load(db, "new", 120, 2, capacity=128)
            with pytest.raises(FileError):
                db.rekey()
            assert stored(db, "t") == expected(1)
            filler.unlink()
            load(db, "new", seed=2)
            assert stored(db, "new") == expected(2)
            db.rekey()
            db.check()
        with reopen(disk / "home") as db:
            assert stored(db, "t") == expected(1)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_too_small_a_capacity(home: Path) -> None:
    for target in ("t", "new"):
        _check_refused(home, partial(load, table=target, count=40, seed=2, capacity=39), BadRows, "capacity")
    for capacity in (0, -5, 1 << 40):
        _check_refused(home, partial(load, table="new", capacity=capacity), InvalidParameter)


# --- the same table again --------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_its_table(home: Path) -> None:
    others: dict[str, dict[str, Any]] = {
        "other indexes": {"indexes": INDEXES[:1]},
        "no index": {"indexes": ()},
        "other types": {
            "types": {"name": "text(40)", "k": "integer not null", "colour": 'category(["blue","green","red"])'}
        },
    }
    for more in others.values():
        with reopen(home) as db:
            before = len(db.ledger.entries())
            with refused(Exists):
                load(db, "t", seed=2, **more)
            assert "open" not in _states(db)
            assert set(_states(db)[before:]) <= {"cancelled"}
    _check_as_before(home)


def test_a_batch_with_other_columns(home: Path) -> None:
    table = rows(10, 2)
    for other in (table.drop_columns(["share"]), table.rename_columns(["k2", *table.column_names[1:]])):
        with reopen(home) as db, refused(ScumbleError):
            load(db, "t", source=other)
    _check_as_before(home)


def test_a_batch_with_another_domain_still_finds_every_row(home: Path) -> None:
    """If a batch with another domain is let in, its rows must not be lost."""
    with reopen(home) as db:
        try:
            load(db, "t", seed=2, indexes=("k int:0:255 epsilon=1", INDEXES[1]))
        except Exists:
            return
        assert stored(db, "t", "k >= 0") == expected(1, 2)


# --- money -----------------------------------------------------------------------------------------


def test_an_overdraft_is_refused_before_any_work(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with create(home, limit=3) as db:
        load(db, "t")
        before = files(home), (home / "db.ledger").read_bytes(), db.service.transcript.flush()  # type: ignore[attr-defined]
        seen = (home / "db/transcript.log").read_bytes()

        def never() -> Iterator[pa.RecordBatch]:
            yield pytest.fail("a row was read")

        reader = pa.RecordBatchReader.from_batches(rows().schema, never())
        with refused(Overdraft) as caught:
            load(db, "new", source=reader)
        assert "limit 3" in str(caught.value)
        assert files(home) == before[0]
        assert [entry.state for entry in db.ledger.entries()][:2] == ["drawn", "drawn"]
        assert set(_states(db)[2:]) <= {"cancelled"}
        assert db.ledger.spent() == 2
        db.service.transcript.flush()  # type: ignore[attr-defined]
        added = (home / "db/transcript.log").read_bytes()[len(seen) :]
        assert b'"write' not in added
        assert b"create_run" not in added
        load(db, "new", indexes=INDEXES[:1])
        assert db.ledger.remaining() == 0


def test_the_ledger_is_as_it_was_after_an_overdraft(tmp_path: Path) -> None:
    """One index fits the budget and two do not: neither is charged, not even for a moment that a crash could keep."""
    home = tmp_path / "home"
    with create(home, limit=1) as db:
        before = (home / "db.ledger").read_bytes()
        with pytest.raises(Overdraft):
            load(db, "t")
        assert (home / "db.ledger").read_bytes() == before


def test_an_overdraft_of_delta(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with create(home, limit=100, delta_limit="1e-9") as db:
        with refused(Overdraft, match="delta"):
            load(db, "t", indexes=("k int:0:127 epsilon=1 beta=1e-6 slack=lossless",))
        assert db.ledger.spent_delta() == 0
        assert db.ledger.spent() == 0
        load(db, "t")
        assert stored(db, "t") == expected(1)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"indexes": ["nowhere int:0:9 epsilon=1"]}, NotFound),
        ({"indexes": ["k int:0:127 epsilon=1", "k int:0:255 epsilon=1"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1", "K int:0:127 epsilon=1"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=0"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=-1"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1024"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1024 rows_per_user=3 slack=paper"]}, InvalidParameter),
        ({"indexes": ["k int:0:127"]}, InvalidParameter),
        ({"indexes": ["k int:9:0 epsilon=1"]}, ScumbleError),
        ({"indexes": ["k int:0:127 epsilon=1 slack=none"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1 beta=2"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1 max_bytes=1"]}, ScumbleError),
        ({"indexes": ["name int:0:127 epsilon=1"]}, ScumbleError),
        ({"types": {"nowhere": "integer"}}, NotFound),
        ({"types": {"k": "integr"}}, InvalidParameter),
        ({"page_rows": 17}, InvalidParameter),
        ({"page_rows": 0}, InvalidParameter),
        ({"memory_bytes": 10}, InvalidParameter),
        ({"query": "SELECT 1"}, InvalidParameter),
        ({"capacity": None, "capacity_epsilon": 0}, InvalidParameter),
        ({"capacity": None, "capacity_epsilon": 1024}, InvalidParameter),
        ({"capacity_epsilon": 1}, InvalidParameter),
    ],
)
def test_parameters_that_cannot_be(home: Path, more: dict[str, Any], error: type[ScumbleError]) -> None:
    with reopen(home) as db:
        with refused(error):
            load(db, "new", **more)
        assert "open" not in _states(db)
    _check_as_before(home)


@pytest.mark.parametrize("name", ["", " ", "a b", "1a", "a-b", "../x", "x" * 65, "a;drop", 'a"', "ä b", "\0"])
def test_names_that_no_table_has(home: Path, name: str) -> None:
    _check_refused(home, lambda db: load(db, name), InvalidParameter, "name")


@pytest.mark.parametrize("name", ["select", "Table1", "größe", "order", "_"])
def test_names_that_a_table_can_have(home: Path, name: str) -> None:
    """A name that a load accepts can be queried."""
    with reopen(home) as db:
        try:
            load(db, name)
        except InvalidParameter as error:
            assert error.hint  # noqa: PT017
            return
        assert db.sql(f'SELECT count(*) FROM "{name}"').fetchall() == [(40,)]  # noqa: S608
        db.drop(name.upper() if name.isascii() else name)


def test_a_table_that_is_not_there(home: Path) -> None:
    _check_refused(home, lambda db: db.drop("nowhere"), NotFound, "nowhere", "the tables are t")
    _check_refused(home, lambda db: db.table("nowhere"), NotFound, "nowhere")


# --- others at the same time -----------------------------------------------------------------------


def test_two_writers_at_once(home: Path) -> None:
    code = (
        "import sys; from scumble.store.files import FileStore\n"
        "with FileStore(sys.argv[1]).writer(): print('holding', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        with reopen(home) as db:
            provider: Any = db.service
            writer = provider.writer
            provider.writer = lambda _=0: writer(0.1)  # it waits for five seconds otherwise
            for write in (lambda: load(db, "new"), lambda: db.drop("t"), db.rekey):
                with refused(Busy):
                    write()
            assert counted(db, "t") == sums(1)
    finally:
        holder.kill()
        holder.communicate()
    _check_as_before(home)


def test_a_reader_during_a_load(home: Path) -> None:
    """While a load has sent its rows, another opening sees the old version; after it, the new one."""
    with reopen(home) as reader, reopen(home) as writer:
        seen: list[tuple[int, int]] = []

        def progress(what: str, done: int, total: int | None) -> None:
            seen.append(counted(reader, "t"))

        load(writer, "t", seed=2, progress=progress)
        assert set(seen) == {sums(1)}
        assert len(seen) >= 2
        assert counted(reader, "t") == sums(1, 2)
        assert stored(reader, "t") == expected(1, 2)
        reader.check()


def test_a_reader_whose_table_is_dropped(home: Path) -> None:
    with reopen(home) as reader, reopen(home) as writer:
        assert counted(reader, "t") == sums(1)
        prepared = reader.prepare("SELECT count(*) FROM t")
        writer.drop("t")
        with pytest.raises(ScumbleError) as caught:
            prepared.execute()
        assert not isinstance(caught.value, Tampered)
        assert caught.value.hint
        load(writer, "t", seed=3)
        assert prepared.execute().fetchall() == [(40,)]
        assert stored(reader, "t") == expected(3)


# --- nothing shows ---------------------------------------------------------------------------------


def _planted() -> pa.Table:
    count = 40
    return pa.table(
        {
            "number": pa.array([NUMBER + place for place in range(count)], pa.int64()),
            "text": pa.array([f"{MARKER}{place:04d}" for place in range(count)]),
            "day": pa.array([DAY] * count, pa.date32()),
            "amount": pa.array([AMOUNT] * count, pa.decimal128(12, 2)),
            "share": pa.array([1234.56789] * count, pa.float64()),
        }
    )


def _traces() -> list[bytes]:
    """The planted values in every form in which they could be written."""
    numbers = [NUMBER + place for place in range(40)]
    texts = [MARKER, str(DAY), str(AMOUNT), "1234.56789", *map(str, numbers)]
    days = (DAY - datetime.date(1970, 1, 1)).days
    cents = int(AMOUNT * 100)
    forms = [text.encode() for text in texts]
    forms += [MARKER[at : at + 8].encode() for at in range(len(MARKER) - 7)]
    forms += [MARKER[:8].encode()[::-1], (int.from_bytes(MARKER[:8].encode()) ^ 1 << 63).to_bytes(8, "little")]
    for order in "<>":
        forms += [struct.pack(f"{order}q", number) for number in numbers]
        forms += [struct.pack(f"{order}q", cents), struct.pack(f"{order}d", 1234.56789)]
        forms += [struct.pack(f"{order}ii", days, days)]
    forms += [form.hex().encode() for form in forms]
    return forms


def _check_no_trace(home: Path, *texts: str) -> None:
    forms = _traces()
    paths = [path for path in home.rglob("*") if path.is_file()]
    assert len(paths) > 8
    for path in paths:
        content = path.read_bytes()
        assert not [form for form in forms if form in content], path.name
    for text in texts:
        assert not [form for form in forms if form in text.encode()]


def test_the_search_for_traces_finds_them(tmp_path: Path) -> None:
    """Were a page written in the clear, it would be found."""
    home = tmp_path / "home"
    with create(home) as db:
        db.load("p", _planted(), capacity=48, page_rows=16, types={"text": "text(20)"})
    (home / "db/scratch/x").write_bytes(b"..." + struct.pack("<q", NUMBER + 3))
    with pytest.raises(AssertionError):
        _check_no_trace(home)
    (home / "db/scratch/x").write_bytes(f"... {MARKER}".encode())
    with pytest.raises(AssertionError):
        _check_no_trace(home)
    (home / "db/scratch/x").unlink()
    _check_no_trace(home)


def test_no_value_is_written_in_the_clear(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither by a load, nor by queries, nor by one that fails; not even in scratch files while they are there."""
    home = tmp_path / "home"
    scratch: list[bytes] = []
    texts: list[str] = []
    write = FileStore.write_scratch

    def kept(self: FileStore, name: str, sealed: bytes | memoryview) -> None:
        scratch.append(bytes(sealed))
        write(self, name, sealed)

    indexes = [f"number int:{NUMBER // 1000 * 1000}:{NUMBER // 1000 * 1000 + 1023} epsilon=1"]
    with pytest.MonkeyPatch.context() as patch, create(home) as db:
        patch.setattr(FileStore, "write_scratch", kept)
        report = db.load("p", _planted(), indexes=indexes, capacity=48, page_rows=16, types={"text": "text(20)"})
        wide = pa.table({"text": [f"{MARKER}{place:06d}" for place in range(4000)], "n": list(range(4000))})
        db.load(
            "w",
            wide,
            indexes=["n int:0:4095 epsilon=1"],
            capacity=4096,
            page_rows=16,
            memory_bytes=1 << 20,
            types={"text": "text(400)"},
        )
        assert scratch
        assert not [form for form in _traces() if any(form in piece for piece in scratch)]
        for query, parameters in (
            (f"SELECT * FROM p WHERE text >= '{MARKER}'", ()),  # noqa: S608
            ("SELECT * FROM p WHERE number = ?", (NUMBER,)),
            (f"SELECT count(*) FROM p WHERE number BETWEEN {NUMBER} AND {NUMBER + 9} AND day = DATE '{DAY}'", ()),  # noqa: S608
            ("SELECT count(*) FROM p WHERE text LIKE ?", (f"{MARKER}%",)),
        ):
            assert db.sql(query, parameters).fetchall()
        bad = _planted().append_column("bad", pa.array([MARKER] * 40))
        uses: list[Callable[[], object]] = [
            lambda: db.load("q", bad, types={"bad": "text(3)"}, capacity=48),
            lambda: db.load("q", bad, types={"bad": 'category(["a"])'}, capacity=48),
            lambda: db.load("q", bad, types={"bad": "integer"}, capacity=48),
            lambda: db.load("q", bad, types={"amount": "decimal(4,2)"}, capacity=48),
            lambda: db.load("q", bad, types={"number": "smallint"}, capacity=48),
            lambda: db.load("q", bad, indexes=["number int:0:9 epsilon=1"], capacity=48),
            lambda: db.load("q", bad, indexes=["day date:2020-01-01:2020-12-31 epsilon=1"], capacity=48),
            lambda: db.load("q", bad, indexes=['text category:["a","b"] epsilon=1'], capacity=48),
            lambda: db.load("q", bad, indexes=["share float:0:1:0.1 epsilon=1"], capacity=48),
            lambda: db.load("q", bad, capacity=3),
        ]
        for use in uses:
            with pytest.raises(ScumbleError) as caught:
                use()
            error: BaseException | None = caught.value
            while error is not None:  # what a traceback would print
                texts += [str(error), repr(error)]
                error = None if error.__suppress_context__ else error.__cause__ or error.__context__
        texts += [repr(db), str(db.ledger), repr(db.ledger), repr(report), repr(db.table("p")), caplog.text]
    with reopen(home) as db:
        db.rekey()
        db.check()
        texts.append(repr(db))
    _check_no_trace(home, *texts)
