"""Where rows are loaded from: `open_source` turns a path, an address or an object into a `Source` of Arrow batches.

    sales.csv, sales.tsv                              with the columns' names in line 1
    sales.parquet, sales.arrow, sales.feather
    sales.duckdb or duckdb://PATH                     with query= or table=
    postgresql://USER@HOST/DATABASE                   with query= or table=
    Arrow tables, batches and readers; pandas and polars frames; DuckDB relations; anything with an Arrow stream

Each kind has a file of its own and a line in one of the two tables below. Everything in a source is SECRET except the
names and types of its columns: no error shows a value, a password or a line of a file.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from scumble.errors import FileError, InvalidParameter
from scumble.owner.sources.csv_source import open_csv
from scumble.owner.sources.duckdb_source import open_duckdb
from scumble.owner.sources.files import open_ipc, open_parquet
from scumble.owner.sources.frames import open_object
from scumble.owner.sources.postgres import open_postgres
from scumble.owner.sources.source import Reading, Source
from scumble.types import Domain

__all__ = ["BATCH_ROWS", "FILES", "Source", "open_column", "open_source"]

BATCH_ROWS = 1 << 16
FILES: dict[str, Callable[[Path, Reading], Source]] = {
    ".csv": open_csv,
    ".tsv": open_csv,
    ".parquet": open_parquet,
    ".arrow": open_ipc,
    ".feather": open_ipc,
}
DATABASES: dict[str, Callable[[str, Reading], Source]] = {
    "duckdb": open_duckdb,
    "postgres": open_postgres,
    "postgresql": open_postgres,
}
_ADDRESS = re.compile(rf"({'|'.join(DATABASES)})://.*", re.DOTALL)


def open_source(
    source: object,
    *,
    query: str | None = None,
    table: str | None = None,
    types: Mapping[str, str] | None = None,
    domains: Mapping[str, Domain] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Source:
    """Open a source and read its schema, but no rows yet.

    `query` or `table` says what to read from a database. `types` declares types of columns as `schema_of` takes them,
    and `domains` gives those of indexed columns: both say how to read the cells of a CSV file, which are text.
    """
    if batch_rows < 1:
        raise InvalidParameter("a batch needs at least one row", hint="some ten thousand are usual")
    address = _address(source)
    if address is not None:
        reading = Reading(batch_rows, _select(query, table), types or {}, domains or {})
        return DATABASES[address.partition("://")[0]](address, reading)
    if query is not None or table is not None:
        raise InvalidParameter(
            "only a database can be queried", hint="leave the query out, or name a duckdb:// or postgresql:// address"
        )
    reading = Reading(batch_rows, "", types or {}, domains or {})
    if isinstance(source, str | os.PathLike):
        return _open_file(Path(source), reading)
    return open_object(source, reading)


def open_column(path: Path, column: str) -> Source:
    """Open a file to read one column of it. From a CSV file the column comes as text."""
    return _open_file(path, Reading(BATCH_ROWS, column=column))


def _address(source: object) -> str | None:
    """Return the address of a database, or None if the source is something else."""
    if isinstance(source, str) and _ADDRESS.fullmatch(source):
        return source
    if isinstance(source, str | os.PathLike) and Path(source).suffix.lower() == ".duckdb":
        return f"duckdb://{os.fspath(source)}"
    return None


def _open_file(path: Path, reading: Reading) -> Source:
    opener = FILES.get(path.suffix.lower())
    if opener is None:
        known = ", ".join([*FILES, ".duckdb"])
        raise InvalidParameter(
            f"{path} is not a kind of file that can be loaded",
            hint=f"its name has to end in one of {known}; databases are postgresql:// and duckdb://",
        )
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        reason = error.strerror
    else:
        return opener(path, reading)
    raise FileError(f"cannot read {path}: {reason}", hint="check the path and its permissions")


def _select(query: str | None, table: str | None) -> str:
    if (query is None) == (table is None):
        raise InvalidParameter(
            "loading from a database needs either a query or a table", hint='query="SELECT * FROM sales", for example'
        )
    if query is not None:
        return query.strip().rstrip(";")
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in str(table).split("."))
    return f"SELECT * FROM {quoted}"  # noqa: S608  the owner's own name, quoted
