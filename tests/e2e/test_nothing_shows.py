"""No value of a table is written in the clear, nor shown by an error: in no file and in no text."""

import datetime
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from databases import create, reopen
from unharmed import MARKER, NUMBER

from scumble.errors import ScumbleError
from scumble.store.files import FileStore

DAY = datetime.date(2019, 7, 23)
AMOUNT = Decimal("987654321.37")


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
