"""The front's log: one JSON object to a line. Kinds, sizes, times and names of databases; never a byte of a body."""

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

__all__ = ["Log", "passed_on"]

FIXED_TEXTS = "uvicorn.error"
"""The logger whose warnings are fixed texts; those of others may have anything in them."""


class Log:
    """Writes lines, or nothing if there is nowhere to write to."""

    def __init__(self, to: TextIO | None = sys.stderr) -> None:
        self._to = to
        self._turn = threading.Lock()

    def write(self, event: str, **facts: Any) -> None:
        """Write a line."""
        if self._to is None:
            return
        line = json.dumps({"time": round(time.time(), 3), "event": event, **facts}) + "\n"
        with self._turn:
            self._to.write(line)
            self._to.flush()


class _PassingOn(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write what a library has to say: the kind of an error, and no more of it."""
        facts = {"message": str(record.msg).strip()} if record.name == FIXED_TEXTS else {}
        if record.exc_info and record.exc_info[0] is not None:
            facts["error"] = record.exc_info[0].__name__
        self._log.write("server", level=record.levelname.lower(), by=record.name, **facts)


@contextmanager
def passed_on(log: Log) -> Iterator[None]:
    """Meanwhile, what the server's libraries log goes to our log, in its form."""
    handler, loggers = _PassingOn(log), [logging.getLogger(name) for name in ("uvicorn", "asyncio")]
    kept = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, kept, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
