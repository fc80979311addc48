"""Runs of pytest that begin warm: a process that has imported every library already forks for each of them.

Starting pytest with its plugins takes three seconds, a test that notices a mutant often a hundredth of one. Nothing of
Scumble is imported before the fork, so each run sees the sources as they are then.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

__all__ = ["Warm"]

LOOK_SECONDS = 0.005
BROKEN = 100
"""The exit code of a run in which pytest itself has failed."""
WAITING = 10
"""A run may take so many times longer than it computes: on a busy machine, no mutant is killed for that."""
READY = 0
"""The first answer, when the libraries are imported."""


class Warm:
    """A warm process for the tests of one tree; `close` it."""

    def __init__(self, tree: Path, files: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verify.warm", *files],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Return when it is warm. A tree must not be changed before: a mutant might be imported, and never end."""
        ready = self._answer()
        assert ready == READY

    def run(self, tests: Sequence[str], most_seconds: float) -> int | None:
        """Run tests, up to the first that fails; pytest's exit code, or None if it took too long.

        Too long is so many seconds of the processor's time, or `WAITING` times as many by the clock.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([list(tests), most_seconds]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> int | None:
        assert self._process.stdout is not None
        code: int | None = json.loads(self._process.stdout.readline())
        return code

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class _Only:
    """Keep these tests, in this order; a name is a test's, with or without its parameters, or a file's."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._order = {name: number for number, name in enumerate(wanted)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        def place(item: pytest.Item) -> int | None:
            names = item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]
            return next((self._order[name] for name in names if name in self._order), None)

        kept = [(number, item) for item in items if (number := place(item)) is not None]
        items[:] = [item for _, item in sorted(kept, key=lambda one: one[0])]


def _run(tests: Sequence[str], *more: str) -> int:
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "--tb=no", "--no-header"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # the plugins are there already
    return int(pytest.main([*words, *more, *files], plugins=[_Only(tests)]))


def _busy_seconds(process: int) -> float:
    """The processor's seconds that a process has taken, with its threads; 0 for one that has ended."""
    try:
        times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def _forked(tests: Sequence[str], most_seconds: float) -> int | None:
    """Run tests in a fork, in a session of their own that ends with them, whatever they have started."""
    child = os.fork()
    if not child:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        try:
            os._exit(_run(tests))
        finally:
            os._exit(BROKEN)
    stop, code = time.monotonic() + WAITING * most_seconds, None
    while code is None and time.monotonic() < stop and _busy_seconds(child) < most_seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(LOOK_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return code


def _warm_up(files: Sequence[str]) -> None:
    """Import what collecting the tests imports, but for the tests and Scumble themselves."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        with open(os.devnull, "w") as null, suppress(BaseException):  # noqa: PTH123
            os.dup2(null.fileno(), 1)
            _run([*files], "--collect-only")
            libraries = [
                name
                for name, module in list(sys.modules.items())
                if "site-packages" in (getattr(module, "__file__", None) or "") and not name.startswith("scumble")
            ]
            os.write(send, json.dumps(libraries).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as names:
        for name in json.loads(names.read() or b"[]"):
            with suppress(Exception):
                importlib.import_module(name)
    os.waitpid(child, 0)


def main(files: Sequence[str]) -> None:
    """Answer every line of standard input, tests and seconds, with a line: pytest's exit code or null."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    _warm_up(files)
    answers.write(f"{READY}\n")
    for line in sys.stdin:
        answers.write(json.dumps(_forked(*json.loads(line))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
