"""CSV files: a path comes in, typed batches go out; a broken line is refused with its number and nothing that it holds.

SECRET rows. Types are those that are declared, or that an index's domain takes, or else what the first block of the
file looks like; a later cell that is none of that is refused rather than guessed at. An empty cell is a null, "" an
empty text. pyarrow's error texts quote cells, so none of them is passed on.
"""

import csv
import re
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from scumble.errors import BadRows, FileError, NotFound, ScumbleError
from scumble.owner.sources.batches import Source, sliced
from scumble.types import Domain, parse_type, split_nullability

__all__ = ["UNCLOSED", "CountedQuotes", "LentFile", "open_csv"]


UNCLOSED = 'a quote within a cell is written twice, and the cell in quotes: "5"" disk"'
"""What to do about a quote that is never closed."""


class CountedQuotes:
    """A binary file for reading."""

    def __init__(self, path: Path) -> None:
        self._file, self._count = path.open("rb"), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int = -1) -> bytes:
        """Read, and count."""
        block = self._file.read(size)
        self._count += block.count(b'"')
        return block

    def readable(self) -> bool:
        """It is."""
        return True

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._file.closed

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def unclosed(self) -> bool:
        """Whether a quote is left over."""
        return self._count % 2 == 1


T = TypeVar("T")

_BLOCK_BYTES = 1 << 22
_CELL = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?")
_PARSE = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10, 0.0005
_DECLARE = "correct it, or declare the column's type: it was told from the first rows"


def open_csv(
    path: Path, delimiter: str, types: Mapping[str, str], domains: Mapping[str, Domain], batch_rows: int
) -> Source:
    """Open a file that names its columns in line 1."""
    import pyarrow as pa

    file = _CsvFile(path, delimiter)
    names, has_rows = file.head()
    told = _told_types(names, types, domains)
    if not has_rows:
        schema = pa.schema([pa.field(name, told.get(name, pa.null())) for name in names])
        return Source(schema, 0, iter(()))
    schema = file.schema(told)
    return Source(schema, None, sliced(file.batches(schema), batch_rows))


class LentFile(CountedQuotes):
    """A file that is lent to pyarrow, and closed when pyarrow has let go of it and of all that it read.

    It does so in threads of its own some time after the last row, and needs the interpreter for it: a process whose
    interpreter was being shut down meanwhile would hang or die.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lent: list[weakref.ref[Any]] = []

    def __exit__(self, *_: object) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while self.still_lent() and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
        self.close()

    def lend(self) -> "_Lent":
        """The file, for a reader that nobody keeps beyond the `with`."""
        return self._remembered(_Lent(self))

    def block(self, size: int) -> "_Block":
        """Read."""
        return self._remembered(_Block(self.read(size)))

    def still_lent(self) -> list[weakref.ref[Any]]:
        """What somebody still holds."""
        return [lent for lent in self._lent if lent() is not None]

    def _remembered(self, lent: T) -> T:
        self._lent = [*self.still_lent(), weakref.ref(lent)]
        return lent


class _Block(bytearray):
    """Bytes that can be referred to weakly."""


class _Lent:
    """What pyarrow asks of a file."""

    closed = False

    def __init__(self, file: LentFile) -> None:
        self._file = file

    def read(self, size: int) -> _Block:
        return self._file.block(size)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Leave that to the lender."""


class _CsvFile:
    def __init__(self, path: Path, delimiter: str) -> None:
        self._path, self._delimiter = path, delimiter
        self._names: list[str] = []

    def head(self) -> tuple[list[str], bool]:
        """Return the columns' names, and whether there is anything after them."""
        records = self._records()
        try:
            self._names = next(records)[1]
            return self._names, next(records, None) is not None
        except (UnicodeDecodeError, csv.Error):
            return self._names, True
        except StopIteration:
            pass
        raise FileError(f"{self._path} is empty", hint="its first line has to hold the columns' names")

    def schema(self, told: Mapping[str, Any]) -> Any:
        """Return the schema: told types, and for the other columns what the first block looks like."""
        import pyarrow as pa

        try:
            found = self._reader(self._path, told).schema
            found.names  # noqa: B018  decodes them
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            refusal = self._explained(error)
        else:
            return pa.schema([field.with_type(_settled(field.type)) for field in found])
        raise refusal

    def batches(self, schema: Any) -> Iterator[Any]:
        """Read the file with every type settled."""
        import pyarrow as pa

        try:
            with LentFile(self._path) as quotes:
                yield from self._reader(quotes.lend(), dict(zip(schema.names, schema.types, strict=True)))
                if quotes.unclosed:
                    raise BadRows(f"a quote in {self._path} is never closed", hint=UNCLOSED)
        except (pa.ArrowException, OSError) as error:
            refusal = self._explained(error)
        else:
            return
        raise refusal

    def _reader(self, file: Any, types: Mapping[str, Any]) -> Any:
        from pyarrow import csv as arrow_csv

        return arrow_csv.open_csv(
            file,
            arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=dict(types),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )

    def _explained(self, error: Exception) -> ScumbleError:
        """Turn pyarrow's error into ours, without the cell that it quotes."""
        text = str(error)
        if found := _PARSE.match(text):
            return BadRows(
                f"{self._path}{self._line(found[1])}: {found[3]} cells where the first line has {found[2]}",
                hint="a delimiter or a line break within a cell needs quotes around the cell",
            )
        if found := _CELL.match(text):
            place = int(found[1])
            name = f", column {self._names[place]!r}" if place < len(self._names) else ""
            return BadRows(f"{self._path}{self._line(found[2])}{name}: the cell is {_not_a(text)}", hint=_DECLARE)
        if "straddling" in text:
            return BadRows(f"{self._path}: a row is longer than 4 MiB", hint="look for a quote that is never closed")
        return FileError(f"{self._path} cannot be read as csv", hint="it has to be UTF-8, with names in line 1")

    def _line(self, record: str | None) -> str:
        """Say where a record begins: pyarrow counts records, and neither blank lines nor breaks within cells."""
        if record is None:
            return ""
        try:
            for number, (line, _) in enumerate(self._records(), 1):
                if number == int(record):
                    return f", line {line}"
        except (UnicodeDecodeError, csv.Error, OSError):
            pass
        return f", row {int(record) - 1}"

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line on which every record begins, and its cells."""
        with self._path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            reader = csv.reader(lines, delimiter=self._delimiter)
            before = 0
            for cells in reader:
                if cells:
                    yield before + 1, cells
                before = reader.line_num


def _told_types(names: list[str], types: Mapping[str, str], domains: Mapping[str, Domain]) -> dict[str, Any]:
    """Return the Arrow types of the columns that something is said about."""
    by_lower = {name.lower(): name for name in names}
    told: dict[str, Any] = {}
    for name, domain in domains.items():
        if name.lower() in by_lower and (text := domain.cell_type):
            told[by_lower[name.lower()]] = parse_type(text).arrow_type
    for name, declared in types.items():
        if name.lower() not in by_lower:
            raise NotFound(f"there is no column {name!r}", hint=f"the first line names {', '.join(names)[:200]}")
        if text := split_nullability(declared)[0]:
            told[by_lower[name.lower()]] = parse_type(text).arrow_type
    return told


def _settled(type_: Any) -> Any:
    """Return what a type that the first block looks like is read as: times with decimals may follow, and bad UTF-8."""
    import pyarrow as pa

    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_time(type_):
        return pa.time64("us")
    return pa.string() if pa.types.is_binary(type_) else type_


def _not_a(text: str) -> str:
    """Say what a cell is not; only the type's name is taken from pyarrow's text."""
    if "UTF8" in text:
        return "not valid UTF-8"
    found = re.search(r"conversion error to ([a-z]+[0-9]*)", text)
    if found is None:
        return "no value of the column's type, or has too many digits"
    return "there, where none was in the first rows" if found[1] == "null" else f"no {found[1]}"
