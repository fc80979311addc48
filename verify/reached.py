"""Which tests reach which lines, and how long each takes: so that a mutant meets only the tests that can notice it.

`Reached.of(tests)` runs tests once, with `coverage` and one context for each test; this module is also the pytest
plugin that does so. What another process does, such as the enclaves of a service, is not seen.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import coverage

__all__ = ["Reached"]

FOLDER = "SCUMBLE_REACHED"
"""The variable that tells the plugin where to write."""
ENOUGH_SECONDS = 15.0
"""Of tests for one mutant: what these do not notice, no test of the thing itself does."""


@dataclass(frozen=True)
class Reached:
    """For each module, which tests reach each line; and for each test, its seconds."""

    lines: dict[str, dict[int, frozenset[str]]]
    seconds: dict[str, float]

    @classmethod
    def of(cls, tests: Sequence[str], tree: Path, package: Path, folder: Path, workers: int) -> "Reached":
        """Run tests in a tree. One that fails even so, as some do when it takes longer, is left out; not all may."""
        folder.mkdir()
        words = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "verify.reached", "-n", str(workers)]
        paths = {"PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)]), FOLDER: str(folder)}
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *tests],
            cwd=tree,
            env=os.environ | paths,
            check=False,
            capture_output=True,
            text=True,
        )
        if ran.returncode not in (0, pytest.ExitCode.TESTS_FAILED):
            raise RuntimeError(f"the tests cannot be run without any mutant:\n{ran.stdout[-2000:]}")
        lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        seconds: dict[str, float] = {}
        for path in folder.glob("*.json"):
            seen = json.loads(path.read_text())
            seconds |= {name: taken for name, taken in seen["seconds"].items() if name not in seen["failed"]}
            for file, by_line in seen["lines"].items():
                module = Path(file).relative_to(tree / package).as_posix()
                for line, names in by_line.items():
                    lines[module][int(line)].update(set(names) - set(seen["failed"]))
        if not lines or not seconds:
            raise RuntimeError(f"it was not seen what the tests reach:\n{ran.stdout[-2000:]}")
        return cls(
            {module: {line: frozenset(names) for line, names in found.items()} for module, found in lines.items()},
            seconds,
        )

    @classmethod
    def read(cls, path: Path) -> "Reached":
        """What `write` has written."""
        kept = json.loads(path.read_text())
        names, lines = kept["names"], kept["lines"]
        return cls(
            {
                module: {int(line): frozenset(names[number] for number in reach) for line, reach in found.items()}
                for module, found in lines.items()
            },
            dict(zip(names, kept["seconds"], strict=True)),
        )

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        numbers = {name: number for number, name in enumerate(self.seconds)}
        lines = {
            module: {line: sorted(numbers[name] for name in reach) for line, reach in found.items()}
            for module, found in self.lines.items()
        }
        path.write_text(json.dumps({"names": [*numbers], "seconds": [*self.seconds.values()], "lines": lines}))

    def tests(self, module: str, lines: range) -> list[str]:
        """The tests that reach one of these lines, or else the module at all: those of its room first, by time.

        No test reaches a constant's line, but the one in which the module is imported, if that is so late: it reaches
        line 1, too. One of the module's own may read a constant and run nothing of the module.
        """
        found, room = self.lines.get(module, {}), f"tests/{module.partition('/')[0]}/"
        names = frozenset[str]().union(*(found.get(line, ()) for line in lines)) - found.get(1, frozenset())
        own = f"{room}test_{Path(module).stem}.py::"
        names = names or frozenset(name for name in self.seconds if name.startswith(own)).union(*found.values())
        return list(self._first(names, room))

    def _first(self, names: frozenset[str], room: str) -> Iterator[str]:
        left = ENOUGH_SECONDS
        for name in sorted(names, key=lambda name: (not name.startswith(room), self.seconds.get(name, 0.0), name)):
            yield name
            left -= self.seconds.get(name, 0.0)
            if left < 0:
                return


# --- the plugin --------------------------------------------------------------------------------------


class _Watching:
    def __init__(self, folder: Path) -> None:
        self._folder, self._seconds, self._failed = folder, dict[str, float](), set[str]()
        package = str(Path("src/scumble").resolve())
        self._coverage = coverage.Coverage(data_file=None, source=[package], config_file=False, messages=False)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write what was seen: before the process says that it is done, since it is killed ten seconds after."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {
            file: {
                line: names
                for line, found in data.contexts_by_lineno(file).items()
                if (names := [*filter(None, found)])
            }
            for file in data.measured_files()
        }
        (self._folder / f"{os.getpid()}.json").write_text(
            json.dumps({"lines": lines, "seconds": self._seconds, "failed": [*self._failed]})
        )


def pytest_configure(config: pytest.Config) -> None:
    """Watch in the processes that run tests, and not in the one that hands them out."""
    if not getattr(config.option, "numprocesses", None) or os.environ.get("PYTEST_XDIST_WORKER"):
        config.pluginmanager.register(_Watching(Path(os.environ[FOLDER])))
