"""Where rows are loaded from: `open_source` turns a path, an address or an object into a `Source` of Arrow batches.

    sales.csv, sales.tsv                              with the columns' names in line 1
    sales.parquet, sales.arrow, sales.feather
    sales.duckdb or duckdb://PATH                     with query= or table=
    postgresql://USER@HOST/DATABASE                   with query= or table=
    Arrow tables, batches and readers; pandas and polars frames; DuckDB relations; anything with an Arrow stream

Each kind has a file of its own and a line in one of the two tables below. Everything in a source is SECRET except the
names of its columns and the types that it declares: no error shows a value, a password or a line of a file. A type that
was made up from the rows (`guesses.py`) is as secret as they are, and `Source.declared` lets none of them through.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from scumble.errors import Exists, FileError, InvalidParameter, ScumbleError
from scumble.owner.sources.guesses import guessed_by_pandas
from scumble.types import Domain, Schema, schema_of, split_nullability

__all__ = [
    "BATCH_ROWS",
    "FILES",
    "Reading",
    "Source",
    "can_reopen",
    "fits",
    "guarded",
    "needs",
    "open_column",
    "open_source",
    "sliced",
]

BATCH_ROWS = 1 << 16
FILES = {
    ".csv": "csv_source.open_csv",
    ".tsv": "csv_source.open_csv",
    ".parquet": "files.open_parquet",
    ".arrow": "files.open_ipc",
    ".feather": "files.open_ipc",
}
DATABASES = {
    "duckdb": "duckdb_source.open_duckdb",
    "postgres": "postgres.open_postgres",
    "postgresql": "postgres.open_postgres",
}
_MOST_NAMES = 20  # in an error
_ADDRESS = re.compile(rf"({'|'.join(DATABASES)})://.*", re.DOTALL)


@dataclass(frozen=True)
class Reading:
    """How to read a source.

    `query` is the SQL to send to a database. `types` are declared by the owner, `domains` belong to indexed columns:
    both say how to read the cells of a CSV file. `column`, if given, is the only column to read from a file.
    """

    batch_rows: int
    query: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, Domain] = field(default_factory=dict)
    column: str | None = None


@dataclass
class Source:
    """Rows to load, in batches of bounded size; `rows` is None if their number is not known in advance.

    The types of the columns in `guessed` were made up from the rows, so that only what the owner declares counts.
    """

    schema: Any
    rows: int | None
    batches: Iterator[Any]
    close: Callable[[], object] = lambda: None
    guessed: frozenset[str] = frozenset()

    def declared(self, types: Mapping[str, str], domains: Mapping[str, Domain]) -> Schema:
        """Return the public schema: declared types, those that domains need, and those of the source's own schema.

        InvalidParameter if there is a column without any of these. No type that was guessed can get into the schema.
        """
        import pyarrow as pa

        given = {name.lower(): text for name, text in types.items()}
        needed = {name.lower(): domain for name, domain in domains.items()}
        stated, untyped = dict(types), []
        for name in (name for name in self.schema.names if name in self.guessed):
            text, nullable = split_nullability(given.get(name.lower(), ""))
            domain = needed.get(name.lower())
            if text or (domain is not None and domain.column_type is not None):
                continue
            needs_type = "" if domain is None else domain.cell_type
            if not needs_type:
                untyped.append(name)
            stated = {known: text for known, text in stated.items() if known.lower() != name.lower()}
            stated[name] = (needs_type or "text") + ("" if nullable else " not null")
        own = [pa.field(field.name, pa.null()) if field.name in self.guessed else field for field in self.schema]
        schema = schema_of(pa.schema(own), types=stated, domains=domains)  # which also refuses unknown names
        if untyped:
            raise _undeclared(untyped)
        return schema

    def arranged(self, schema: Schema) -> "Source":
        """Return the source with the columns of a schema, in its order and under its names; Exists if it has others."""
        import pyarrow as pa

        places = {name.lower(): place for place, name in enumerate(self.schema.names)}
        names = [column.name for column in schema]
        if len(places) != len(self.schema) or places.keys() != {name.lower() for name in names}:
            raise Exists(
                "the rows have other columns than the table",
                hint=f"the table's are {_listed(names)}; give these, or load into a table of another name",
            )
        order = [places[name.lower()] for name in names]
        if self.schema.names == names:
            return self
        batches = (batch.select(order).rename_columns(names) for batch in self.batches)
        fields = [self.schema.field(place).with_name(name) for place, name in zip(order, names, strict=True)]
        guessed = frozenset(name for name in names if self.schema.names[places[name.lower()]] in self.guessed)
        return replace(self, schema=pa.schema(fields), batches=batches, guessed=guessed)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self.batches
        finally:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Source<{len(self.schema)} columns>"


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
        return _marked(_opener(DATABASES[address.partition("://")[0]])(address, reading))
    if query is not None or table is not None:
        raise InvalidParameter(
            "only a database can be queried", hint="leave the query out, or name a duckdb:// or postgresql:// address"
        )
    reading = Reading(batch_rows, "", types or {}, domains or {})
    if isinstance(source, str | os.PathLike):
        return _marked(_open_file(Path(source), reading))
    return _marked(_opener("frames.open_object")(source, reading))


def _marked(source: Source) -> Source:
    """Mark the columns whose types pandas made up, however its frame got here."""
    return replace(source, guessed=source.guessed | guessed_by_pandas(source.schema))


def _undeclared(names: list[str]) -> InvalidParameter:
    return InvalidParameter(
        f"no type is declared for {_listed(names)}, and one that is guessed would tell the provider about the rows",
        hint="declare it (--type, types=), or have `scumble suggest FILE` write a schema to edit and pass (--schema, "
        "schema=); --types-from-data publishes a guess",
    )


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")


def can_reopen(source: object) -> bool:
    """Whether a source gives the same rows when it is opened again: one that streams them does not."""
    library, name = type(source).__module__.partition(".")[0], type(source).__name__
    held = ("pyarrow", "Table"), ("pyarrow", "RecordBatch"), ("pandas", "DataFrame"), ("polars", "DataFrame")
    return isinstance(source, str | os.PathLike) or (library, name) in held


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
    kind = FILES.get(path.suffix.lower())
    if kind is None:
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
        return _opener(kind)(path, reading)
    raise FileError(f"cannot read {path}: {reason}", hint="check the path and its permissions")


def _opener(name: str) -> Callable[[Any, Reading], Source]:
    """The function that a table above names, imported only now: its module imports this one."""
    module, function = name.split(".")
    opener: Callable[[Any, Reading], Source] = getattr(import_module(f"{__name__}.{module}"), function)
    return opener


def _select(query: str | None, table: str | None) -> str:
    if (query is None) == (table is None):
        raise InvalidParameter(
            "loading from a database needs either a query or a table", hint='query="SELECT * FROM sales", for example'
        )
    if query is not None:
        return query.strip().rstrip(";")
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in str(table).split("."))
    return f"SELECT * FROM {quoted}"  # noqa: S608  the owner's own name, quoted


def sliced(batches: Iterator[Any], batch_rows: int) -> Iterator[Any]:
    """Cut batches that are too long, and skip empty ones."""
    for batch in batches:
        for start in range(0, len(batch), batch_rows):
            yield batch.slice(start, batch_rows)


def guarded(batches: Iterator[Any], failures: tuple[type[Exception], ...], refusal: ScumbleError) -> Iterator[Any]:
    """Pass batches on; where reading one fails, raise the refusal without the failure, whose text may quote a value."""
    try:
        yield from batches
    except failures:
        pass
    else:
        return
    raise refusal


def fits(value: object, type_: Any) -> bool:
    """Whether an Arrow array of a type holds a value; pandas' missing values are nulls."""
    import pyarrow as pa

    try:
        pa.array([value], type_, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


def needs(module: str, extra: str, what: str) -> Any:
    """Import a module that only some installations have, or say how to install it."""
    try:
        return import_module(module)
    except ImportError:
        pass
    raise ScumbleError(f"{what} needs {module}, which is not installed", hint=f"pip install 'scumble[{extra}]'")
