"""For tests of crashes: a process that is killed at one of its calls to the operating system."""

import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

__all__ = ["WRITES", "die_at"]

WRITES = ("write", "pwrite")
"""The calls that can be done by half."""


def die_at(number: int, where: str, calls: Collection[str]) -> None:
    """From now on, kill this process at the call of this number to one of these functions of `os`.

    `where` says when: "before" it, "after" it, or "half-way" through it, where only calls that write count.
    """
    seen = 0

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == number:
                if where == "after":
                    with suppress(OSError):
                        call(*arguments, **options)
                elif where == "half-way":
                    handle, content, *offset = arguments
                    call(handle, content[: len(content) // 2], *offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counted

    for name in calls:
        if where != "half-way" or name in WRITES:
            setattr(os, name, wrap(getattr(os, name)))
