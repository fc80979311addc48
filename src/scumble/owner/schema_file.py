"""Schema files: what the owner declares of a table, as plain text with one line for each column.

    # what each line tells the provider is for you to decide
    visit     bigint not null
    "odd name"  text(25)
    ward      category(["cardiology", "surgery"])
    amount    decimal(12,2)
    --index amount decimal:0:5000:0.01 epsilon=0.5

Text comes in, columns and indexes come out, all of it public. Comments stay on the owner's side: those of `scumble
suggest` tell of rows. An error names the line and says what is wrong with it.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from scumble.errors import FileError, InvalidParameter, ScumbleError
from scumble.owner.indexes import IndexSpec
from scumble.types import Column, parse_type, split_nullability

__all__ = ["INDEX", "SchemaFile", "quoted"]

INDEX = "--index"
_FORM = "write a column's name and its type, such as: amount decimal(12,2) not null"
_BARE = re.compile(r"[^\s\"#-][^\s\"#]*")
_UNQUOTED = re.compile(r"[^\"#]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True)
class SchemaFile:
    """PUBLIC: the columns of a table in their order, and indexes to make at every load."""

    columns: tuple[Column, ...]
    indexes: tuple[IndexSpec, ...] = ()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            trouble = f"cannot read {path}: {error.strerror}"
        except UnicodeDecodeError:
            trouble = f"{path} is not UTF-8 text"
        else:
            return cls.parse(text, str(path))
        raise FileError(trouble, hint="`scumble suggest FILE -o SCHEMA` writes a schema file")

    @classmethod
    def parse(cls, text: str, name: str = "the schema") -> Self:
        """Read a schema; InvalidParameter, with the line, if something in it cannot be read."""
        columns: dict[str, tuple[int, Column]] = {}
        indexes: list[tuple[int, IndexSpec]] = []
        for number, line in enumerate(text.split("\n"), 1):
            refusal: ScumbleError | None = None
            try:
                read = _read_line(_without_comment(line).strip())
                if isinstance(read, IndexSpec):
                    indexes.append((number, read))
                elif read is not None:
                    first, _ = columns.setdefault(read.name.lower(), (number, read))
                    if first != number:
                        raise InvalidParameter(
                            f"line {first} declares that column already",
                            hint="names that differ in case only are the same",
                        )
            except ScumbleError as error:
                refusal = error
            if refusal is not None:
                raise InvalidParameter(f"{name}, line {number}: {refusal.message}", hint=refusal.hint)
        for number, spec in indexes:
            if spec.column.lower() not in columns:
                raise InvalidParameter(
                    f"{name}, line {number}: an index on {spec.column!r}, which no line declares", hint=_FORM
                )
        if not columns:
            raise InvalidParameter(f"{name} declares no column", hint=_FORM)
        return cls(tuple(column for _, column in columns.values()), tuple(spec for _, spec in indexes))

    @property
    def types(self) -> dict[str, str]:
        """The columns as `types=` takes them."""
        return {column.name: column.declaration for column in self.columns}

    @property
    def text(self) -> str:
        """The schema as `parse` reads it."""
        lines = [f"{quoted(column.name)}  {column.declaration}" for column in self.columns]
        lines += [f"{INDEX} {quoted(spec.column)} {spec.terms}" for spec in self.indexes]
        return "\n".join(lines) + "\n"


def quoted(name: str) -> str:
    """Return a column's name as a schema file has it: in quotes, like a string of JSON, unless it is a plain word."""
    return name if _BARE.fullmatch(name) and name.isprintable() else json.dumps(name)


def _read_line(line: str) -> Column | IndexSpec | None:
    if not line:
        return None
    if line.split(maxsplit=1)[0] == INDEX:
        name, rest = _split_name(line[len(INDEX) :].strip())
        return replace(IndexSpec.parse(f"column {rest}"), column=name)
    name, rest = _split_name(line)
    text, nullable = split_nullability(rest)
    if not text:
        raise InvalidParameter(f"column {name!r} has no type", hint=_FORM)
    return Column(name, parse_type(text), nullable)


def _split_name(line: str) -> tuple[str, str]:
    """Return a column's name and what follows it."""
    found = _QUOTED.match(line) or _BARE.match(line)
    if found is None:
        raise InvalidParameter("there is no column's name", hint=_FORM)
    rest = line[found.end() :]
    if rest and not rest[0].isspace():
        raise InvalidParameter("there is no space after the column's name", hint=_FORM)
    if not line.startswith('"'):
        return found[0], rest.strip()
    try:
        name = json.loads(found[0])
    except ValueError:
        name = ""
    if not name:
        raise InvalidParameter("the name in quotes cannot be read", hint='it is a string of JSON: "odd name"')
    return str(name), rest.strip()


def _without_comment(line: str) -> str:
    """Return a line up to the first # that is not in quotes."""
    return "".join(_pieces(line))


def _pieces(line: str) -> Iterator[str]:
    at = 0
    while at < len(line) and line[at] != "#":
        found = (_QUOTED if line[at] == '"' else _UNQUOTED).match(line, at)
        if found is None:
            raise InvalidParameter("a quote is never closed", hint='a quote within quotes is written \\"')
        yield found[0]
        at = found.end()
