"""A source of rows as the loader sees it: an Arrow schema, perhaps a row count, and batches.

The rows are SECRET and so is their number; the names and types of the columns become public. A source is read once, and
holds about one batch in memory.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from scumble.errors import ScumbleError
from scumble.types import Domain

__all__ = ["Reading", "Source", "needs", "sliced"]


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


def _nothing() -> None:
    pass


@dataclass
class Source:
    """Rows to load, in batches of bounded size; `rows` is None if their number is not known in advance."""

    schema: Any
    rows: int | None
    batches: Iterator[Any]
    close: Callable[[], None] = _nothing

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self.batches
        finally:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Source<{len(self.schema)} columns>"


def sliced(batches: Iterator[Any], batch_rows: int) -> Iterator[Any]:
    """Cut batches that are too long, and skip empty ones."""
    for batch in batches:
        for start in range(0, len(batch), batch_rows):
            yield batch.slice(start, batch_rows)


def needs(module: str, extra: str, what: str) -> Any:
    """Import a module that only some installations have, or say how to install it."""
    try:
        return import_module(module)
    except ImportError:
        pass
    raise ScumbleError(f"{what} needs {module}, which is not installed", hint=f"pip install 'scumble[{extra}]'")
