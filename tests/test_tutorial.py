"""The tutorial, as a reader would do it: every command and every piece of Python on the page, in order."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from scumble.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.S)


def test_every_step_of_the_tutorial_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCUMBLE_PASSPHRASE", raising=False)
    steps = BLOCK.findall(PAGE.read_text())
    assert len(steps) > 8
    for kind, text in steps:
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), {"__name__": "tutorial"})  # noqa: S102
            continue
        for line in text.strip().splitlines():
            words = shlex.split(line.removeprefix("$ "))
            if words[0] == "cp":
                shutil.copytree(words[2], words[3])
            else:
                assert main(words[1:]) == 0, (line, capsys.readouterr())
    assert "30000" in capsys.readouterr().out
