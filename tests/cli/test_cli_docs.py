"""docs/cli.md and the commands agree: every command and option is described, none is invented, every example runs."""

import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.main import get_command

from scumble.cli import app, main

if TYPE_CHECKING:
    from serving import Serving

DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
INTRO, *_SECTIONS = re.split(r"^## (.+)\n", DOCS, flags=re.MULTILINE)
SECTIONS = dict(zip(_SECTIONS[::2], _SECTIONS[1::2], strict=True))


def commands(command: Any, name: str = "scumble") -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, with its full name."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for word, child in inner.items():
        yield from commands(child, f"{name} {word}")


def options(command: Any) -> set[str]:
    given = {name for parameter in command.params for name in parameter.opts if name.startswith("-")}
    return given | {"--help"}


COMMANDS = dict(commands(get_command(app)))
EXAMPLES = re.findall(r"^    \$ (scumble .+)$", DOCS, re.MULTILINE)


def test_the_tree_was_walked() -> None:
    assert len(COMMANDS) >= 18
    assert "--epsilon" in options(COMMANDS["scumble index fit"])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_all_its_options_are_described(name: str) -> None:
    assert name in SECTIONS
    described = set(re.findall(r"`(--?[a-z][a-z-]*)`", SECTIONS[name]))
    assert options(COMMANDS[name]) - described == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_invented(name: str) -> None:
    assert set(OPTION.findall(SECTIONS[name])) - options(COMMANDS[name]) == set()


def test_no_command_or_option_is_invented_elsewhere() -> None:
    assert {title for title in SECTIONS if title.startswith("scumble")} == set(COMMANDS)
    known = set().union(*map(options, COMMANDS.values())) | options(get_command(app))
    rest = INTRO + "".join(text for title, text in SECTIONS.items() if title not in COMMANDS)
    assert set(OPTION.findall(rest)) - known == set()
    assert {"--version", "--help"} <= set(OPTION.findall(INTRO))


def test_the_examples_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], service: "Serving"
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    people = zip(random.integers(0, 200_001, 5000), random.integers(0, 151, 5000), strict=True)
    Path("people.csv").write_text("salary,age\n" + "".join(f"{salary},{age}\n" for salary, age in people))
    Path("census.csv").write_text("salary\n" + "".join(f"{1000 * (n % 150)}\n" for n in range(2000)))
    visits = zip(random.integers(0, 900, 5000), random.integers(0, 100_001, 5000), strict=True)
    rows = "".join(f"n{name},{amount / 100:.2f}\n" for name, amount in visits)
    Path("visits.csv").write_text("name,amount\n" + rows)
    Path("clinic.toml").write_text('kinds = ["sev-snp"]\n')
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert {name for name in COMMANDS if any(example.startswith(name) for example in EXAMPLES)} == set(COMMANDS)
    for example in EXAMPLES:
        assert main(shlex.split(example.replace(":7300", f":{service.port}"))[1:]) == 0, example
        captured = capsys.readouterr()
        assert captured.err == ""
        if "--json" in example and not isinstance(printed := json.loads(captured.out), list):
            assert set(printed) <= set(re.findall(r"`([a-z_]+)`", DOCS))
