"""The command line, by the scripts tests/cli/*.txt.

A script is read from top to bottom: `$ scumble ...` runs a command; under it, `> PATTERN` and `2> PATTERN` must be
found in its stdout and stderr (stderr must be empty unless a pattern is given), `exit N` is its exit code (0 by
default), `absent FILE...` must not exist afterwards, `hidden WORD...` must be in neither stream, `< LINE` is a line of
its stdin. `-- FILE --` starts a file.
"""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cli_setup import Result, here, scumble, start

__all__ = ["here"]

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@dataclass
class Step:
    """One command of a script, and what is expected of it."""

    command: list[str]
    code: int = 0
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    stdin: str = ""

    def check(self, result: Result, folder: Path) -> None:
        shown = f"{shlex.join(self.command)}\n{result.out}{result.err}"
        assert result.code == self.code, shown
        for patterns, stream in ((self.out, result.out), (self.err, result.err)):
            for pattern in patterns:
                assert re.search(pattern, stream, re.MULTILINE), f"no {pattern!r} from {shown}"
        assert self.err or not result.err, shown
        assert "Traceback" not in result.err, shown
        assert not [name for name in self.absent if (folder / name).exists()], shown
        assert not [word for word in self.hidden if word in result.out + result.err], shown
        assert not list(folder.rglob("*.new")), f"a draft was left by {shown}"


def read_script(text: str) -> tuple[list[Step], dict[str, str]]:
    story, *blocks = re.split(r"^-- (.+) --\n", text, flags=re.MULTILINE)
    steps: list[Step] = []
    for line in story.replace("\\\n", " ").splitlines():
        match line.split(maxsplit=1):
            case [] | ["#", *_]:
                continue
            case ["$", command]:
                steps.append(Step(shlex.split(re.sub(r"(\w+:\[[^ ]*\])", r"'\1'", command))))
            case [">", pattern]:
                steps[-1].out.append(pattern)
            case ["2>", pattern]:
                steps[-1].err.append(pattern)
            case ["exit", code]:
                steps[-1].code = int(code)
            case ["absent", names]:
                steps[-1].absent += names.split()
            case ["<", text]:
                steps[-1].stdin += text + "\n"
            case ["hidden", words]:
                steps[-1].hidden += words.split()
            case _:
                raise AssertionError(f"not a line of a script: {line}")
    return steps, dict(zip(blocks[::2], blocks[1::2], strict=True))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script(script: Path, here: Path) -> None:
    steps, files = read_script(script.read_text(encoding="utf-8"))
    assert steps
    for name, content in files.items():
        (here / name).write_text(content, encoding="utf-8")
    for step in steps:
        assert step.command[0] == "scumble"
        if script.stem == "real_process":
            process = start(*step.command[1:], folder=here)
            out, err = process.communicate(timeout=60)
            result = Result(process.returncode, out, err)
        else:
            result = scumble(*step.command[1:], stdin=step.stdin)
        step.check(result, here)


def test_the_script_runner_notices() -> None:
    good = Result(0, "segments 3\n", "")
    for script in ("> segments 4", "2> error", "exit 2", "hidden 3", "absent ."):
        step = read_script(f"$ scumble x\n{script}")[0][0]
        with pytest.raises(AssertionError):
            step.check(good, Path(__file__).parent)
    with pytest.raises(AssertionError):
        Step(["x"]).check(Result(0, "", "said on stderr"), Path(__file__).parent)
