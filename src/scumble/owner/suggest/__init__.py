"""A schema for rows that have none: `suggest` looks at a source and writes down what it could be declared as.

SECRET rows come in and are read on the owner's machine alone; out comes a `Suggestion`, a schema file to be read,
edited and owned. Each of its lines says what it would give away if it were published as it stands, and which rows
force it. No load uses any of it unless the owner passes the file on, or asks for `types_from_data`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scumble.errors import InvalidParameter
from scumble.owner.schema_file import INDEX, SchemaFile, quoted
from scumble.owner.sources import Source, can_reopen, open_source
from scumble.owner.suggest.forms import plain
from scumble.owner.suggest.looks import Ask, Look, SuggestedColumn
from scumble.types import Domain, split_nullability

__all__ = ["PublishedFromData", "SuggestedColumn", "Suggestion", "suggest"]

_EPSILON = "epsilon=0.5"
_INDEXES = "\n# Indexes to choose from: remove the first #. Each costs its epsilon with every load."
_ALIGNED = 40  # letters of a type
_HEAD = """\
# A proposal, made from the rows. All that stands left of a # becomes public when it is loaded, and then tells the
# provider what the comment on its line says. Better: take types, lengths, lists and bounds from what a column means.
# The comments tell of rows as well: keep them to yourself.
"""


class PublishedFromData(UserWarning):
    """A load has published a schema that was derived from the rows, because it was asked to."""


@dataclass(frozen=True)
class Suggestion:
    """SECRET: a schema for some rows, which becomes public if it is loaded with. `str()` is the schema file's text."""

    columns: tuple[SuggestedColumn, ...]

    @property
    def file(self) -> SchemaFile:
        """The schema without comments and proposals."""
        return SchemaFile(tuple(each.column for each in self.columns))

    @property
    def warning(self) -> str:
        """What publishing the schema tells, in words and without a value."""
        derived = [each for each in self.columns if each.from_rows]
        told = [f"  {each.column.name} {each.column.type.label}: {each.gives_away}" for each in derived]
        return "\n".join(["this schema was derived from the rows, and is public now. It gives away:", *told])

    @property
    def column_lines(self) -> list[str]:
        """The columns as the schema file has them, each with a comment that says what it gives away."""
        names = [quoted(each.column.name) for each in self.columns]
        types = [each.column.declaration for each in self.columns]
        wide, long = max(map(len, names)), max((len(text) for text in types if len(text) <= _ALIGNED), default=0)
        lines = []
        for each, name, type_ in zip(self.columns, names, types, strict=True):
            there = "; not null? no value is missing" if each.always_there else ""
            lines.append(f"{name:{wide}}  {type_:{long}}  # {each.gives_away}{there}")
        return lines

    def __str__(self) -> str:
        indexes = [
            f"# {INDEX} {quoted(each.column.name)} {each.index} {_EPSILON}  # {each.index_gives_away}"
            for each in self.columns
            if each.index is not None
        ]
        return "\n".join([_HEAD, *self.column_lines, *([_INDEXES, *indexes] if indexes else []), ""])


def suggest(
    source: object,
    *,
    query: str | None = None,
    types: Mapping[str, str] | None = None,
    domains: Mapping[str, Domain] | None = None,
) -> Suggestion:
    """Look at a source's rows and suggest a schema for them. Nothing leaves this machine.

    Columns that `types` declares, or that `domains` state the type of, are left as they are.
    """
    if not can_reopen(source):
        raise InvalidParameter(
            "a stream can be read only once, so that its rows cannot be looked at before they are loaded",
            hint="give a file or a table, or declare the types",
        )

    def opened() -> Source:
        return open_source(source, query=query, types=types, domains=domains)

    with opened() as rows:
        looks = _looks(rows, types or {}, domains or {})
    _look(opened(), [(look, ask) for look in looks for ask in look.first_asks()])
    for look in looks:
        look.decide()
    _look(opened(), [(look, ask) for look in looks for ask in look.second_asks()])
    return Suggestion(tuple(look.suggested() for look in looks))


def _looks(rows: Source, types: Mapping[str, str], domains: Mapping[str, Domain]) -> list[Look]:
    if len({name.lower() for name in rows.schema.names}) < len(rows.schema.names):
        raise InvalidParameter("two columns have the same name", hint="names that differ in case only are the same")
    declared = {name.lower(): text for name, text in types.items()}
    for name, domain in domains.items():
        text, nullable = split_nullability(declared.get(name.lower(), ""))
        stated = domain.cell_type if domain.column_type is None else domain.column_type.declaration
        if not text and stated and (domain.column_type is not None or name in rows.guessed):
            declared[name.lower()] = stated + ("" if nullable else " not null")
    return [
        Look(each, f"c{place}", declared.get(each.name.lower(), ""), guessed=each.name in rows.guessed)
        for place, each in enumerate(rows.schema)
    ]


def _look(rows: Source, asks: list[tuple[Look, Ask]]) -> None:
    """Ask many things about the rows in one pass, and note the answers."""
    import duckdb
    import pyarrow as pa

    fields = [pa.field(f"c{place}", plain(column.type)) for place, column in enumerate(rows.schema)]
    schema = pa.schema([*fields, pa.field("row", pa.int64())])

    def batches() -> Iterator[Any]:
        first = 1
        for batch in rows:
            arrays = [_as(batch.column(place), each.type) for place, each in enumerate(fields)]
            yield pa.record_batch([*arrays, pa.array(range(first, first + len(batch)), pa.int64())], schema=schema)
            first += len(batch)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    asked = ", ".join(f"{sql} AS a{number}" for number, (_, (_, sql)) in enumerate(asks))
    with duckdb.connect() as connection:
        connection.execute("SET temp_directory = ''")  # rows are not spilled to disk in the clear
        connection.register("given", reader)
        answers = connection.sql(f"SELECT {asked or 1} FROM given").fetchall()[0]  # noqa: S608  made here
    for (look, (name, _)), answer in zip(asks, answers, strict=False):
        look.found[name] = answer


def _as(array: Any, type_: Any) -> Any:
    from pyarrow import types as kinds

    return (array.dictionary_decode() if kinds.is_dictionary(array.type) else array).cast(type_)
