"""Where tables are loaded from: a path, an address or an object comes in, a `Source` of Arrow batches goes out.

    sales.csv, sales.tsv                              with the columns' names in line 1
    sales.parquet, sales.arrow, sales.feather
    sales.duckdb or duckdb://PATH                     with query= or table=
    postgresql://USER@HOST/DATABASE                   with query= or table=
    Arrow tables, batches and readers; pandas and polars frames; DuckDB relations; anything with an Arrow stream

Everything in a source is SECRET but the names and types of its columns; no error shows a value, a password or a line.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from scumble.errors import FileError, InvalidParameter
from scumble.owner.sources.batches import Source
from scumble.owner.sources.csv_source import open_csv
from scumble.owner.sources.duckdb_source import open_duckdb
from scumble.owner.sources.files import open_ipc, open_parquet
from scumble.owner.sources.frames import open_object
from scumble.owner.sources.postgres import open_postgres
from scumble.types import Domain

__all__ = ["BATCH_ROWS", "SUFFIXES", "Source", "open_source"]

BATCH_ROWS = 1 << 16
SUFFIXES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".duckdb")
_ADDRESS = re.compile(r"(duckdb|postgres|postgresql)://(.*)", re.DOTALL)


def open_source(
    source: object,
    *,
    query: str | None = None,
    table: str | None = None,
    types: Mapping[str, str] | None = None,
    domains: Mapping[str, Domain] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Source:
    """Open a source; nothing but its head is read yet.

    `query` or `table` says what to read from a database. `types` declares columns' types as `schema_of` takes them, and
    `domains` names those of indexed columns: both tell a CSV file's cells apart, which are text without them.
    """
    if batch_rows < 1:
        raise InvalidParameter("a batch needs at least one row", hint="some ten thousand are usual")
    address = _ADDRESS.fullmatch(source) if isinstance(source, str) else None
    if address is not None and address[1] == "duckdb":
        return open_duckdb(Path(address[2]), _wanted(query, table), batch_rows)
    if address is not None:
        return open_postgres(str(source), _wanted(query, table), types or {}, batch_rows)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.suffix.lower() == ".duckdb":
            return open_duckdb(path, _wanted(query, table), batch_rows)
        _refuse_query(query, table)
        return _open_file(path, types or {}, domains or {}, batch_rows)
    _refuse_query(query, table)
    return open_object(source, batch_rows)


def _open_file(path: Path, types: Mapping[str, str], domains: Mapping[str, Domain], batch_rows: int) -> Source:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidParameter(
            f"{path} is of no kind that can be loaded",
            hint=f"a file's name ends in one of {', '.join(SUFFIXES)}; databases are postgresql:// and duckdb://",
        )
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        reason = error.strerror
    else:
        if suffix in (".csv", ".tsv"):
            return open_csv(path, "," if suffix == ".csv" else "\t", types, domains, batch_rows)
        return open_parquet(path, batch_rows) if suffix == ".parquet" else open_ipc(path, batch_rows)
    raise FileError(f"cannot read {path}: {reason}", hint="check the path and its permissions")


def _wanted(query: str | None, table: str | None) -> str:
    if (query is None) == (table is None):
        raise InvalidParameter(
            "a database is loaded from with either a query or a table", hint='query="SELECT * FROM sales", for example'
        )
    if query is not None:
        return query.strip().rstrip(";")
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in str(table).split("."))
    return f"SELECT * FROM {quoted}"  # noqa: S608  the owner's own name, quoted


def _refuse_query(query: str | None, table: str | None) -> None:
    if query is not None or table is not None:
        raise InvalidParameter(
            "only a database can be asked a query", hint="leave it out, or name a duckdb:// or postgresql:// address"
        )
