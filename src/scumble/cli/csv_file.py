"""A column of a csv file: a path comes in, batches of keys go out, exact.

Cells are read as text and only then turned into what the domain maps, so that no integer or decimal passes through a
float. Everything here is secret, and pyarrow's error texts quote cells: none of them is passed on.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scumble.cli.keys import holds_integers, key_of
from scumble.errors import FileError, InvalidParameter
from scumble.owner.sources.csv_source import UNCLOSED, LentFile
from scumble.types import (
    CategoryDomain,
    DateDomain,
    DecimalDomain,
    Domain,
    ExplicitKeys,
    FloatDomain,
    StringDomain,
    TimestampDomain,
)

__all__ = ["csv_batches"]

_BLOCK_BYTES = 1 << 23
_MOST_DIGITS = 38  # of a decimal128
_PARSE = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


def csv_batches(file: Path, column: str, domain: Domain, delimiter: str) -> Iterator[Any]:
    """Yield the keys of a column, batch by batch. An empty cell is a null; "" is an empty string."""
    import pyarrow as pa
    from pyarrow import csv

    parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    as_text = csv.ConvertOptions(
        include_columns=[column],
        column_types={column: pa.string()},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    try:
        names = csv.open_csv(pa.OSFile(str(file)), csv.ReadOptions(use_threads=False), parsing).schema.names
        _check_column(file, column, names)
        with LentFile(file) as quotes:
            reading = csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
            first_row = 0
            for batch in csv.open_csv(quotes.lend(), reading, parsing, as_text):
                yield _typed(batch.column(0), domain, first_row)
                first_row += len(batch)
            if quotes.unclosed:
                raise FileError(f"a quote in {file} is never closed", hint=UNCLOSED)
    except (pa.ArrowException, OSError) as error:
        raise _explained(file, str(error)) from error


def _typed(texts: Any, domain: Domain, first_row: int) -> Any:
    """Return cells as what the domain maps: an Arrow array where Arrow reads all of them, else one by one."""
    import pyarrow as pa
    from pyarrow import compute

    kinds = _arrow_types(domain)
    if not kinds:
        return texts
    trimmed = compute.utf8_trim_whitespace(texts)
    for kind in kinds:
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    cells = enumerate(trimmed.to_pylist(), first_row)
    return [None if cell is None else key_of(domain, cell, f"the key in row {row}") for row, cell in cells]


def _arrow_types(domain: Domain) -> list[Any]:
    """The Arrow types that hold the domain's keys exactly, likeliest first; none for strings."""
    import pyarrow as pa

    if holds_integers(domain):
        return [pa.int64(), pa.uint64()]
    match domain:
        case FloatDomain():
            return [pa.float64()]
        case DecimalDomain():
            places = max(0, *(-int(number.as_tuple().exponent) for number in (domain.low, domain.high, domain.step)))
            return [pa.decimal128(_MOST_DIGITS, min(places, _MOST_DIGITS))]
        case DateDomain():
            return [pa.date32()]
        case TimestampDomain():
            return [pa.timestamp("ns"), pa.timestamp("ns", "UTC")]
        case CategoryDomain() | StringDomain() | ExplicitKeys():
            return []
    raise InvalidParameter(f"the domain {domain.label} cannot be read from a csv file", hint="use parquet or npy")


def _check_column(file: Path, column: str, names: list[str]) -> None:
    """Refuse a column that is not there. Names are not listed: without a header they would be keys."""
    if names.count(column) == 1:
        return
    if column in names:
        raise InvalidParameter(f"{file} has more than one column {column!r}", hint="rename one of them")
    close = [name for name in names if name.strip().casefold() == column.strip().casefold()]
    raise InvalidParameter(
        f"the first line of {file} names no column {column!r}",
        hint=f"did you mean {close[0]!r}?" if close else "the first line has to hold the columns' names",
    )


def _explained(file: Path, text: str) -> FileError:
    if found := _PARSE.match(text):
        line = "" if found[1] is None else f" in line {found[1]}"
        return FileError(
            f"{file} is broken{line}: {found[3]} cells where the first line has {found[2]}",
            hint="a delimiter or a line break within a cell needs quotes around the cell",
        )
    return FileError(f"{file} cannot be read as csv", hint="it has to be UTF-8, with the columns' names in line 1")
