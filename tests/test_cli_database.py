"""The database's commands where a script is not enough: passphrases, restores, files, terminals and processes."""

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scumble.cli.answers import as_csv, as_json, as_table
from scumble.cli.query import read_parameters
from scumble.cli.shell import split, statements
from scumble.errors import InvalidParameter
from scumble.owner.answers import Result
from test_cli import here, scumble

__all__ = ["here"]

ROWS = "k,v\n" + "".join(f"{7 * i % 1000},w{i}\n" for i in range(300))


@pytest.fixture
def clinic(here: Path) -> Path:
    """A database with a table of 300 rows; its key file has no passphrase."""
    (here / "t.csv").write_text(ROWS)
    assert scumble("init", "clinic").code == 0
    load = ("load", "clinic", "t", "t.csv", "--index", "k int:0:999 epsilon=1", "--capacity", 400, "--page-rows", 64)
    assert scumble(*load).code == 0
    return here


# --- keys ------------------------------------------------------------------------------------------


def test_passphrases(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "first")
    made = scumble("init", "clinic")
    assert "clinic.key, protected by its passphrase" in made.out
    assert stat.S_IMODE((here / "clinic.key").stat().st_mode) == 0o600
    assert scumble("tables", "clinic").code == 0
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "wrong")
    refused = scumble("tables", "clinic")
    assert refused.code == 2
    assert "the passphrase is wrong" in refused.err
    assert "wrong\n" not in refused.out
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "first")
    monkeypatch.setenv("SCUMBLE_NEW_PASSPHRASE", "second")
    assert "has a new passphrase" in scumble("passphrase", "clinic").out
    assert scumble("tables", "clinic").code == 2
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "second")
    assert scumble("tables", "clinic").code == 0
    taken = scumble("passphrase", "clinic", "--no-passphrase", "--json")
    assert taken.json() == {"database": "clinic", "key": "clinic.key", "protection": "file mode"}
    monkeypatch.delenv("SCUMBLE_PASSPHRASE")
    assert scumble("tables", "clinic").code == 0
    # What needs no secret asks for none.
    assert scumble("ledger", "clinic").code == scumble("transcript", "clinic").code == 0


def test_without_its_passphrase_a_key_file_opens_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "first")
    assert scumble("init", "clinic").code == 0
    monkeypatch.delenv("SCUMBLE_PASSPHRASE")
    refused = scumble("tables", "clinic")
    assert (refused.code, "SCUMBLE_PASSPHRASE" in refused.err) == (2, True)


def test_the_environment_names_the_key(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clinic / "keys").mkdir()
    for name in ("key", "ledger", "anchor"):
        shutil.move(f"clinic.{name}", f"keys/mine.{name}")
    assert scumble("tables", "clinic").code == 2
    assert scumble("tables", "clinic", "--key", "keys/mine.key").code == 0
    monkeypatch.setenv("SCUMBLE_KEY", "keys/mine.key")
    assert scumble("query", "clinic", "SELECT count(*) AS n FROM t", "--json").out == '[{"n": 300}]\n'
    assert scumble("ledger", "clinic", "--json").json()["path"] == str(clinic / "keys" / "mine.ledger")


def test_a_key_file_that_others_can_read_is_refused(clinic: Path) -> None:
    (clinic / "clinic.key").chmod(0o644)
    refused = scumble("tables", "clinic")
    assert (refused.code, "chmod 600" in refused.err) == (2, True)


# --- restoring and tampering -----------------------------------------------------------------------


def test_a_restored_folder_is_taken_only_when_told(clinic: Path) -> None:
    shutil.copytree("clinic", "backup")
    assert scumble("load", "clinic", "more", "t.csv", "--capacity", 400).code == 0
    shutil.rmtree("clinic")
    shutil.copytree("backup", "clinic")
    for command in (("tables", "clinic"), ("check", "clinic"), ("query", "clinic", "SELECT 1")):
        assert scumble(*command).code == 2
    assert "--accept-restored" in scumble("check", "clinic").err
    accepted = scumble("check", "clinic", "--accept-restored")
    assert accepted.code == 0
    assert "version 2: accepted as the newest one, for good." in accepted.out
    assert "looks just the same" in accepted.out
    # From now on it is like any other: it can be asked and changed.
    assert scumble("check", "clinic", "--json").json()["version"] == 2
    assert scumble("load", "clinic", "more", "t.csv", "--capacity", 400).code == 0
    assert scumble("check", "clinic", "--json").json()["version"] == 3


def test_a_lost_or_damaged_anchor(clinic: Path) -> None:
    (clinic / "clinic.anchor").write_text("{}")
    assert scumble("tables", "clinic").code == 2
    assert scumble("check", "clinic", "--accept-restored").code == 0
    assert scumble("tables", "clinic").code == 0


@pytest.mark.parametrize("accept", [[], ["--accept-restored"]])
def test_check_finds_a_flipped_bit(clinic: Path, accept: list[str]) -> None:
    (pages,) = (clinic / "clinic" / "runs").glob("*.pages")
    content = bytearray(pages.read_bytes())
    content[len(content) // 2] ^= 1
    pages.write_bytes(content)
    refused = scumble("check", "clinic", *accept)
    assert refused.code == 2
    assert "tampered with" in refused.err


# --- answers ---------------------------------------------------------------------------------------


def answer(**columns: Any) -> Result:
    return Result(lambda: pa.table(columns))


def test_an_arrow_file_has_the_answer(clinic: Path) -> None:
    assert scumble("query", "clinic", "SELECT k, v FROM t WHERE k < 50 ORDER BY k", "--arrow", "x.arrow").out == ""
    with pa.ipc.open_file("x.arrow") as file:
        table = file.read_all()
    assert table.column("k").to_pylist() == sorted(k for i in range(300) if (k := 7 * i % 1000) < 50)
    assert scumble("query", "clinic", "SELECT 1 AS one", "--arrow", "x.arrow").code == 0  # it replaces
    with pa.ipc.open_file("x.arrow") as file:
        assert file.read_all().to_pydict() == {"one": [1]}
    assert not list(clinic.glob(".*.new"))


def test_a_table_escapes_control_characters_and_pads_wide_ones() -> None:
    lines = list(as_table(answer(a=["x\x1b[2Jy", "日本"], b=[1, None])))
    assert lines[2:] == ["x\\x1b[2Jy     1", "日本       NULL", "(2 rows)"]


def test_csv_tells_nulls_from_empty_texts() -> None:
    lines = list(as_csv(answer(**{"a,b": ["", None, "x\ny", 'q"'], "c": [True, None, False, True]})))
    assert lines == ['"a,b",c', '"",true', ",", '"x\ny",false', '"q""",true']


def test_json_is_exact() -> None:
    big = 2**100
    made = Result(
        lambda: pa.table(
            [
                pa.array([Decimal("1.10")]),
                pa.array([Decimal(big)], pa.decimal128(38, 0)),
                pa.array([float("nan")]),
                [b"\0"],
            ],
            names=["d", "n", "n", "b"],
        )
    )
    assert as_json(made) == f'[{{"d": "1.10", "n": {big}, "n_1": "NaN", "b": "00"}}]'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17", 17),
        ("-1.50", Decimal("-1.50")),
        ("1e3", 1000.0),
        ("true", True),
        ("NULL", None),
        ("'17'", "17"),
        ("'it''s'", "it's"),
        ("007", "007"),
        ("2013-05-01", "2013-05-01"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_parameters_are_read_as_in_sql(text: str, value: object) -> None:
    (found,) = read_parameters("SELECT ?", [text])
    assert (found, type(found)) == (value, type(value))
    assert read_parameters("SELECT $x", [f"x={text}"]) == {"x": value}


def test_parameters_have_to_fit() -> None:
    assert read_parameters("SELECT $2, $1", ["1", "2"]) == [1, 2]
    for sql, texts in (("SELECT 1", ["1"]), ("SELECT ?, ?", ["1"]), ("SELECT $a", []), ("SELECT $a", ["1"])):
        with pytest.raises(InvalidParameter):
            read_parameters(sql, texts)


# --- the shell -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complete", "rest"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1"], " SELECT 2"),
        ("SELECT ';';", ["SELECT ';'"], ""),
        ('SELECT ";";', ['SELECT ";"'], ""),
        ("SELECT 'it''s;';", ["SELECT 'it''s;'"], ""),
        ("SELECT 1 -- ;\n;", ["SELECT 1 -- ;"], ""),
        ("/* ; */ SELECT 1;;", ["/* ; */ SELECT 1"], ""),
        ("SELECT $$ ; $$;", ["SELECT $$ ; $$"], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ("-- only a comment;", [], "-- only a comment;"),
    ],
)
def test_where_statements_end(text: str, complete: list[str], rest: str) -> None:
    assert split(text) == (complete, rest)


def test_a_dot_begins_a_command_only_between_statements() -> None:
    lines = [".tables\n", "SELECT 1\n", ".5\n", ";.help\n", "-- done\n"]
    assert list(statements(lines)) == [".tables", "SELECT 1\n.5", ".help\n-- done"]


class Terminal:
    """A command on a pseudo-terminal, and what it has written there."""

    def __init__(self, *words: str, folder: Path, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        known = {name: value for name, value in os.environ.items() if not name.startswith("SCUMBLE_")}
        known |= {"TERM": "xterm", "COLUMNS": "100", "XDG_STATE_HOME": str(folder / "state"), **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scumble.cli", *words],
            cwd=folder,
            env=known,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  one thread
        )
        os.close(slave)
        self.text = ""

    def wait_for(self, pattern: str, seconds: float = 60) -> None:
        """Read until the pattern is there, and forget everything up to its end."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern, _plain(self.text))) is None:
            assert time.monotonic() < end, f"no {pattern!r} in {_plain(self.text)!r}"
            assert self._read(), f"ended without {pattern!r}: {_plain(self.text)!r}"
        self.text = _plain(self.text)[found.end() :]

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C, once the prompt no longer takes it for a key of its own."""
        while not termios.tcgetattr(self._master)[3] & termios.ISIG:
            time.sleep(0.01)
        self.type("\x03")

    def end(self) -> int:
        while self._read():
            pass
        code = self.process.wait(60)
        os.close(self._master)
        return code

    def _read(self) -> bool:
        if not select.select([self._master], [], [], 60)[0]:
            return False
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the other end is closed
            return False
        if b"\x1b[6n" in data:  # prompt_toolkit asks where the cursor is
            self.type("\x1b[1;1R")
        self.text += data.decode(errors="replace")
        return bool(data)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _plain(text: str) -> str:
    return re.sub(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>()][A-Z0-9]?)", "", text)


@pytest.fixture
def terminals(here: Path) -> Iterator[list[Terminal]]:
    started: list[Terminal] = []
    yield started
    for terminal in started:
        with contextlib.suppress(ProcessLookupError):
            terminal.process.kill()
        terminal.process.wait()


def test_the_shell_on_a_terminal(clinic: Path, terminals: list[Terminal]) -> None:
    shell = Terminal("shell", "clinic", folder=clinic)
    terminals.append(shell)
    shell.wait_for(r"clinic: 1 table\.")
    shell.wait_for("scumble>")
    shell.type("SELECT nonsense FROM t;\r")
    shell.wait_for("error: there is no column 'nonsense'")
    shell.wait_for("scumble>")
    shell.type("SELECT forgotten\x03")  # Ctrl-C
    shell.wait_for("scumble>")
    shell.type("SELECT count(*) AS rows_in_all\r")  # no `;` yet: the line goes on
    shell.wait_for(r"\.\.\.>")
    shell.type("FROM t WHERE k < 1000;\r")
    shell.wait_for(r"-----------\s+300\s")
    shell.wait_for(r"read \d of 7 pages of t in [\d.]+ ms")
    shell.wait_for("scumble>")
    shell.type(".sch\t")
    shell.wait_for(r"\.schema")
    shell.type(" t\r")
    shell.wait_for("t: capacity 448 rows")
    shell.wait_for("scumble>")
    shell.type("\x04")  # Ctrl-D
    assert shell.end() == 0
    history = clinic / "state" / "scumble" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "rows_in_all" in history.read_text()
    assert "forgotten" not in history.read_text()


def test_ctrl_c_ends_a_query_and_not_the_shell(clinic: Path, terminals: list[Terminal]) -> None:
    shell = Terminal("shell", "clinic", folder=clinic)
    terminals.append(shell)
    shell.wait_for("scumble>")
    shell.type("SELECT sum(a.k * b.k) FROM t a, t b, t c, t d, t e;\r")
    shell.wait_for("t e;")
    shell.interrupt()
    shell.wait_for("interrupted")
    shell.wait_for("scumble>")
    shell.type("SELECT count(*) AS n FROM t WHERE k >= 0;\r")
    shell.wait_for(r"\s300\s")
    shell.wait_for("scumble>")
    shell.type("\x04")
    assert shell.end() == 0


def test_no_history_keeps_none(clinic: Path, terminals: list[Terminal]) -> None:
    shell = Terminal("shell", "clinic", "--no-history", folder=clinic)
    terminals.append(shell)
    shell.wait_for("scumble>")
    shell.type("SELECT 6 * 7 AS answer;\r")
    shell.wait_for(r"\s42\s")
    shell.wait_for("scumble>")
    shell.type(".quit\r")
    assert shell.end() == 0
    assert not (clinic / "state").exists()


def test_passphrases_are_asked_for_without_an_echo(here: Path, terminals: list[Terminal]) -> None:
    made = Terminal("init", "clinic", folder=here)
    terminals.append(made)
    made.wait_for("New passphrase")
    made.type("sesame\n")
    made.wait_for("The same again")
    made.type("sesame\n")
    made.wait_for("protected by its passphrase")
    assert made.end() == 0
    assert "sesame" not in made.text
    for typed, code in (("sesame", 0), ("simsim", 2)):
        shown = Terminal("tables", "clinic", folder=here)
        terminals.append(shown)
        shown.wait_for("Passphrase of the key file: ")
        shown.type(f"{typed}\n")
        shown.wait_for("no tables yet" if code == 0 else "the passphrase is wrong")
        assert shown.end() == code
        assert typed not in shown.text


def test_passphrases_that_differ_make_nothing(here: Path, terminals: list[Terminal]) -> None:
    made = Terminal("init", "clinic", folder=here)
    terminals.append(made)
    made.wait_for("New passphrase")
    made.type("sesame\n")
    made.wait_for("The same again")
    made.type("simsim\n")
    made.wait_for("error: the two passphrases differ")
    assert made.end() == 2
    assert not list(here.glob("clinic*"))


def test_drop_asks_first(clinic: Path, terminals: list[Terminal]) -> None:
    for typed, code in (("n", 130), ("y", 0)):
        asked = Terminal("drop", "clinic", "t", folder=clinic)
        terminals.append(asked)
        asked.wait_for("Drop t, all of it")
        asked.type(f"{typed}\n")
        assert asked.end() == code
    assert scumble("tables", "clinic", "--json").json()["tables"] == []


def test_a_load_on_a_terminal_shows_progress_and_leaves_none_behind(clinic: Path, terminals: list[Terminal]) -> None:
    loaded = Terminal("load", "clinic", "more", "t.csv", "--capacity", "400", folder=clinic)
    terminals.append(loaded)
    loaded.wait_for("rows 0:00:0")  # of the bar
    loaded.wait_for("more: 300 rows loaded")
    assert loaded.end() == 0


def test_a_reader_that_stops_reading_is_no_error(clinic: Path) -> None:
    words = [sys.executable, "-m", "scumble.cli", "query", "clinic", "SELECT a.k, b.v FROM t a, t b", "--csv"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"k,v\n"
        process.stdout.close()
        assert process.stderr.read() == b""
