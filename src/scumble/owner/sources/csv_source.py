"""CSV files. A broken line is refused by its number, without what is in it.

SECRET rows. A file has no types of its own: cells are read as the type that is declared for their column, or that its
index's domain needs, and otherwise as text, which `Source.declared` then refuses. An empty cell is a null, "" is an
empty text. Pyarrow's error texts quote cells, so none of them is passed on.
"""

import csv
import re
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from traceback import clear_frames
from types import TracebackType
from typing import Any, Self, TypeVar

from scumble.errors import BadRows, FileError, InvalidParameter, NotFound, ScumbleError
from scumble.owner.sources import Reading, Source, sliced
from scumble.types import Domain, parse_type, split_nullability

__all__ = ["LentFile", "key_type", "open_csv", "read_csv_text"]

T = TypeVar("T")

_BLOCK_BYTES = 1 << 22
_CELL = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?")
_PARSE = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10, 0.0005
_FITTING = "cells have to be of the table's types"
_DECLARE = "correct it, or declare another type for the column"
_UNCLOSED = 'a quote within a cell is written twice, and the cell in quotes: "5"" disk"'


def open_csv(path: Path, reading: Reading) -> Source:
    """Open a file that names its columns in line 1; the suffix .tsv means that tabs separate the cells."""
    import pyarrow as pa

    file = _CsvFile(path, "\t" if path.suffix.lower() == ".tsv" else ",", reading.column)
    names, has_rows = file.head()
    if reading.column is None:
        known = _known_types(names, reading.types, reading.domains)
    else:
        _check_column(path, reading.column, names)
        names, known = [reading.column], {reading.column: pa.string()}
    known = {name: pa.string() for name in names} | known
    guessed = frozenset(names)
    if not has_rows:
        schema = pa.schema([pa.field(name, known[name]) for name in names])
        return Source(schema, 0, iter(()), guessed=guessed)
    schema = file.schema(known)
    return Source(schema, None, sliced(file.batches(schema), reading.batch_rows), guessed=guessed)


def read_csv_text(text: str, types: Mapping[str, str]) -> Any:
    """An Arrow table of some lines, the first of which names the columns, whose types are all declared."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = next(csv.reader([text.partition("\n")[0]]), [])
    options = arrow_csv.ConvertOptions(
        column_types={name: pa.string() for name in names} | _known_types(names, types, {}),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(text.encode()),
            arrow_csv.ReadOptions(use_threads=False, block_size=max(_BLOCK_BYTES, 2 * len(text.encode()))),
            arrow_csv.ParseOptions(newlines_in_values=True),
            options,
        )
    except pa.ArrowException as error:
        found, trouble = _CELL.match(str(error)), str(error)
    if found is None:
        raise BadRows("the lines have other numbers of cells than the first", hint="a cell with a comma needs quotes")
    place = int(found[1])
    column = names[place] if place < len(names) else None
    raise BadRows(f"column {column!r}: a cell is {_not_a(trouble)}", hint=_FITTING, column=column)


class LentFile:
    """A file for pyarrow to read. It counts quotes, and closes only once pyarrow has dropped it and all that it read.

    Pyarrow drops them in threads of its own some time after the last row, and needs the interpreter to do so: a process
    whose interpreter is shutting down at that moment would hang or crash.
    """

    def __init__(self, path: Path) -> None:
        self._file, self._quotes = path.open("rb"), 0
        self._lent: list[weakref.ref[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: TracebackType | None) -> None:
        clear_frames(trace)  # of an error on the way: pyarrow's reader is in their variables
        end = time.monotonic() + _PATIENCE_SECONDS
        while self.still_lent() and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
        self._file.close()

    def lend(self) -> "_Lent":
        """Return the file for a reader that must not be kept beyond the `with` block."""
        return self._remembered(_Lent(self))

    def block(self, size: int) -> "_Block":
        block = self._file.read(size)
        self._quotes += block.count(b'"')
        return self._remembered(_Block(block))

    def still_lent(self) -> list[weakref.ref[Any]]:
        """Return references to what pyarrow still holds."""
        return [lent for lent in self._lent if lent() is not None]

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def unclosed(self) -> bool:
        """Whether what was read has an odd number of quotes: one of them is never closed."""
        return self._quotes % 2 == 1

    def _remembered(self, lent: T) -> T:
        self._lent = [*self.still_lent(), weakref.ref(lent)]
        return lent


class _Block(bytearray):
    """Bytes that can have weak references."""


class _Lent:
    """The methods that pyarrow needs of a file."""

    closed = False

    def __init__(self, file: LentFile) -> None:
        self._file = file

    def read(self, size: int) -> _Block:
        return self._file.block(size)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: `LentFile` closes the file."""


class _CsvFile:
    def __init__(self, path: Path, delimiter: str, column: str | None) -> None:
        self._path, self._delimiter, self._column = path, delimiter, column
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

    def schema(self, known: Mapping[str, Any]) -> Any:
        """Return the schema as pyarrow reads it, every column with its known type."""
        import pyarrow as pa

        try:
            found = self._reader(self._path, known).schema
            found.names  # noqa: B018  decodes them
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            refusal = self._explained(error)
        else:
            return found
        raise refusal

    def batches(self, schema: Any) -> Iterator[Any]:
        """Read the rows; every column has its type now."""
        import pyarrow as pa

        try:
            with LentFile(self._path) as file:
                yield from self._reader(file.lend(), dict(zip(schema.names, schema.types, strict=True)))
                if file.unclosed:
                    raise BadRows(f"a quote in {self._path} is never closed", hint=_UNCLOSED)
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
                include_columns=None if self._column is None else [self._column],
                column_types=dict(types),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )

    def _explained(self, error: Exception) -> ScumbleError:
        """Turn pyarrow's error into one that does not quote the cell."""
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
        return FileError(
            f"{self._path} cannot be read as csv", hint="it has to be UTF-8, with the columns' names in line 1"
        )

    def _line(self, record: str | None) -> str:
        """Say on which line a record begins: pyarrow counts records, not blank lines or line breaks within cells."""
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


def _known_types(names: list[str], types: Mapping[str, str], domains: Mapping[str, Domain]) -> dict[str, Any]:
    """Return the Arrow types of the columns that are declared or indexed."""
    by_lower = {name.lower(): name for name in names}
    known: dict[str, Any] = {}
    for name, domain in domains.items():
        if name.lower() in by_lower and (type_ := key_type(domain)) is not None:
            known[by_lower[name.lower()]] = type_
    for name, declared in types.items():
        if name.lower() not in by_lower:
            raise NotFound(f"there is no column {name!r}", hint=f"the first line names {', '.join(names)[:200]}")
        if text := split_nullability(declared)[0]:
            known[by_lower[name.lower()]] = parse_type(text).cell_type
    return known


def key_type(domain: Domain) -> Any:
    """Return the Arrow type that holds the keys of a domain exactly; None if there is none."""
    return parse_type(domain.cell_type).arrow_type if domain.cell_type else None


def _check_column(path: Path, column: str, names: list[str]) -> None:
    """Refuse a column that is not there. Do not list the names: without a header they would be data."""
    if names.count(column) == 1:
        return
    if column in names:
        raise InvalidParameter(f"{path} has more than one column {column!r}", hint="rename one of them")
    close = [name for name in names if name.strip().casefold() == column.strip().casefold()]
    raise InvalidParameter(
        f"{path} has no column {column!r}",
        hint=f"did you mean {close[0]!r}?" if close else "its first line has to hold the columns' names",
    )


def _not_a(text: str) -> str:
    """Say what is wrong with a cell, taking only the type's name from pyarrow's text."""
    if "UTF8" in text:
        return "not valid UTF-8"
    found = re.search(r"conversion error to ([a-z]+[0-9]*)", text)
    if found is None:
        return "no value of the column's type, or has too many digits"
    return f"no {found[1]}"
