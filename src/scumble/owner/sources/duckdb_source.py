"""Rows of a query against a DuckDB file, which is opened read-only.

SECRET rows. DuckDB's errors about the query are passed on; those about values are not, because they quote the values.
The types of its tables are declared ones. Those of a query that reads a CSV or JSON file on the way are guesses, even
where it casts them: what is cast cannot be told from what is not.
"""

from pathlib import Path

from scumble.errors import BadQuery, BadRows, FileError, ScumbleError
from scumble.owner.sources import Reading, Source, guarded, sliced
from scumble.owner.sources.guesses import is_sniffed

__all__ = ["open_duckdb"]

_ABOUT_THE_QUERY = ("ParserException", "BinderException", "CatalogException", "SyntaxException")


def open_duckdb(address: str, reading: Reading) -> Source:
    """Open the file at duckdb://PATH and run a query."""
    import duckdb
    import pyarrow as pa

    path = Path(address.removeprefix("duckdb://"))
    if not path.is_file():
        raise FileError(f"there is no file {path}", hint="the path follows duckdb://, absolute if it starts with /")
    connection = None
    try:
        connection = duckdb.connect(str(path), read_only=True)
        connection.execute("SET explain_output = 'all'")  # the plan before it is optimised has all that is read
        relation = connection.sql(reading.query)
        sniffed = relation is not None and is_sniffed(relation.explain())
        reader = None if relation is None else relation.to_arrow_reader(reading.batch_rows)
    except duckdb.Error as error:
        refusal = _explained(path, error, opened=connection is not None)
    else:
        if reader is None:
            connection.close()
            raise BadQuery("the query returns no rows to load", hint="write a SELECT")
        batches = guarded(reader, (duckdb.Error, pa.ArrowException, OSError), _failed(path))
        guessed = frozenset(reader.schema.names if sniffed else ())
        return Source(reader.schema, None, sliced(batches, reading.batch_rows), connection.close, guessed)
    if connection is not None:
        connection.close()
    raise refusal


def _explained(path: Path, error: Exception, *, opened: bool) -> ScumbleError:
    if not opened:
        return FileError(f"{path} cannot be opened as a DuckDB database", hint="another program may be writing to it")
    if type(error).__name__ in _ABOUT_THE_QUERY:
        return BadQuery(f"DuckDB refuses the query: {error}", hint="correct it, and try it in DuckDB")
    return _failed(path)


def _failed(path: Path) -> BadRows:
    return BadRows(f"the query against {path} failed half-way", hint="run it in DuckDB to see why")
