"""A sign of life on a terminal for work that takes more than a moment; nothing anywhere else, and nothing left over."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

__all__ = ["bar", "working"]

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


@contextmanager
def bar(unit: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """What to call with (what is done, how many are, of how many): it draws a bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:,.0f}} {unit}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("starting", total=None)

        def show(what: str, done: int, total: int | None) -> None:
            # A step that reports itself only once, with all of it done, has just begun.
            whole = None if total is None or done > total or what == "building" else total
            drawn.update(task, description=what, completed=done, total=whole)

        yield show
