"""Run commands in this process or another, in a folder of their own: for the tests in this folder."""

import contextlib
import io
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scumble.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert (self.code, self.err) == (0, ""), self.err
        return json.loads(self.out)


def scumble(*words: object, stdin: str = "") -> Result:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main([str(word) for word in words])
    return Result(code, out.getvalue(), err.getvalue())


def start(*words: object, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "scumble.cli", *map(str, words)],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("SCUMBLE_KEY", "SCUMBLE_PASSPHRASE", "SCUMBLE_NEW_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


ROWS = "k,v\n" + "".join(f"{7 * i % 1000},w{i}\n" for i in range(300))


@pytest.fixture(scope="session")
def made_clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database of one table of 300 rows; its key file has no passphrase."""
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "t.csv").write_text(ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SCUMBLE_PASSPHRASE", raising=False)
        patch.chdir(folder)
        assert scumble("init", "clinic").code == 0
        (folder / "t.schema").write_text("k bigint\nv text(8)\n")
        pages = ("--capacity", 400, "--page-rows", 64, "--schema", "t.schema")
        assert scumble("load", "clinic", "t", "t.csv", "--index", "k int:0:999 epsilon=1", *pages).code == 0
    return folder


@pytest.fixture
def clinic(here: Path, made_clinic: Path) -> Path:
    """The folder that the test runs in, with a copy of that database."""
    shutil.copytree(made_clinic, here, dirs_exist_ok=True)
    return here
