"""`scumble suggest`: look at rows on the owner's machine, and write a schema file to be read, edited and owned.

SECRET: what it prints tells of rows, and the file is readable by its owner alone. Nothing is sent, spent or changed.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from scumble import durable
from scumble.cli.database import Json
from scumble.cli.terminal import print_result, working
from scumble.errors import FileError
from scumble.owner.schema_file import SchemaFile
from scumble.owner.suggest import Suggestion
from scumble.owner.suggest import suggest as suggest_for

__all__ = ["as_json", "suggest"]


def suggest(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="What is to be loaded: as for `scumble load`.", show_default=False),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write the schema; by default it is printed."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="SQL", help="What to read from a duckdb or postgresql source.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    print_json: Json = False,
) -> None:
    """Suggest a schema for rows that have none, such as a csv file's.

    It looks at all rows, here, and proposes types, lengths, lists of categories
    and indexes. Each line says what it would tell the provider, and which rows
    force it. Read the file and edit it: what you load with becomes public.

    \b
    scumble suggest visits.csv -o visits.schema
    scumble load clinic visits visits.csv --schema visits.schema
    """
    if output is not None and output.exists() and not force:
        raise FileError(f"{output} exists already", hint="--force replaces it")
    if output is not None and output.resolve() == Path(source).resolve():
        raise FileError(f"{output} is the source itself", hint="name another file for the schema")
    with working("looking at the rows"):
        found = suggest_for(source, query=query)
    text = str(found)
    SchemaFile.parse(text)  # what is written can be read
    lines = text.rstrip("\n").split("\n")
    if output is not None:
        _write(output, text)
        lines = [f"{output}: {len(found.columns)} columns; read it, edit it, then load with --schema {output}"]
    print_result(as_json(found), lines, as_json=print_json)


def as_json(found: Suggestion) -> dict[str, Any]:
    """Return a suggestion as JSON."""
    columns = [
        {
            "name": each.column.name,
            "type": each.column.type.declaration,
            "nullable": each.column.nullable,
            "gives_away": each.gives_away,
            "from_rows": each.from_rows,
            "index": each.index,
            "index_gives_away": each.index_gives_away or None,
        }
        for each in found.columns
    ]
    return {"columns": columns}


def _write(path: Path, text: str) -> None:
    try:
        durable.replace(path, text.encode(), 0o600)
    except OSError as error:
        reason = error.strerror
    else:
        return
    raise FileError(f"cannot write {path}: {reason}", hint="check the path and its permissions")
