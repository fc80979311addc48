"""A sign of life on a terminal for work that takes more than a moment; nothing anywhere else, and nothing left over."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

__all__ = ["working"]

_PATIENCE_SECONDS = 0.5


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` with a spinner on stderr while the block runs, if that is a terminal and it takes long."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # slow to import

    spinner = Console(stderr=True).status(what)
    timer = Timer(_PATIENCE_SECONDS, spinner.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        spinner.stop()
