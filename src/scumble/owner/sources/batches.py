"""What every source of rows is to the loader: an Arrow schema, perhaps a number of rows, and batches.

The rows are SECRET and so is their number; names and types of the columns will be public. A source is read once, and
holds no more than a batch or so in memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from scumble.errors import ScumbleError

__all__ = ["Source", "needs", "sliced"]


def _nothing() -> None:
    pass


@dataclass
class Source:
    """Rows to be loaded, in batches of bounded size; `rows` is None where it cannot be told beforehand."""

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
    """Cut batches that are too long; leave out the empty ones."""
    for batch in batches:
        for start in range(0, len(batch), batch_rows):
            yield batch.slice(start, batch_rows)


def needs(module: str, extra: str, what: str) -> Any:
    """Return a module that not every installation has."""
    try:
        return import_module(module)
    except ImportError:
        pass
    raise ScumbleError(f"{what} needs {module}, which is not installed", hint=f"pip install 'scumble[{extra}]'")
