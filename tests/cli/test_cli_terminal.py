"""The shell, and what the other commands do on a terminal: ask, show progress, stop at Ctrl-C."""

import contextlib
import fcntl
import os
import pty
import re
import select
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_setup import clinic, here, made_clinic, scumble

from scumble.cli.statements import split, statements

__all__ = ["clinic", "here", "made_clinic"]


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

    def __init__(self, *words: str, folder: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        known = {name: value for name, value in os.environ.items() if not name.startswith("SCUMBLE_")}
        known |= {"TERM": "xterm", "COLUMNS": "100", "XDG_STATE_HOME": str(folder / "state")}
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

    def answer(self, *questions: tuple[str, str]) -> None:
        """Wait for each question, then type its answer."""
        for question, keys in questions:
            self.wait_for(question)
            self.type(keys)

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
def terminal(here: Path) -> Iterator[Callable[..., Terminal]]:
    """Start a command on a terminal in the test's folder; what still runs at the end is killed."""
    with contextlib.ExitStack() as ending:

        def start(*words: str) -> Terminal:
            started = Terminal(*words, folder=here)
            ending.callback(started.process.wait)
            ending.callback(started.process.kill)
            return started

        yield start


def test_the_shell_on_a_terminal(clinic: Path, terminal: Callable[..., Terminal]) -> None:
    shell = terminal("shell", "clinic")
    shell.wait_for(r"clinic: 1 table\.")
    shell.answer(("scumble>", "SELECT nonsense FROM t;\r"))
    shell.wait_for("error: there is no column 'nonsense'")
    shell.answer(("scumble>", "SELECT forgotten\x03"))  # Ctrl-C
    # Without a `;` the line goes on.
    shell.answer(("scumble>", "SELECT count(*) AS rows_in_all\r"), (r"\.\.\.>", "FROM t WHERE k < 1000;\r"))
    shell.wait_for(r"-----------\s+300\s")
    shell.wait_for(r"read \d of 7 pages of t in [\d.]+ ms")
    shell.answer(("scumble>", ".sch\t"), (r"\.schema", " t\r"))
    shell.wait_for("t: capacity 448 rows")
    shell.answer(("scumble>", "\x04"))  # Ctrl-D
    assert shell.end() == 0
    history = clinic / "state" / "scumble" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "rows_in_all" in history.read_text()
    assert "forgotten" not in history.read_text()


def test_ctrl_c_ends_a_query_and_not_the_shell(clinic: Path, terminal: Callable[..., Terminal]) -> None:
    shell = terminal("shell", "clinic")
    shell.answer(("scumble>", "SELECT sum(a.k * b.k) FROM t a, t b, t c, t d, t e;\r"))
    shell.wait_for("t e;")
    shell.interrupt()
    shell.answer(("interrupted", ""), ("scumble>", "SELECT count(*) AS n FROM t WHERE k >= 0;\r"))
    shell.wait_for(r"\s300\s")
    shell.answer(("scumble>", "\x04"))
    assert shell.end() == 0


def test_the_prompt_shows_a_transaction_and_leaving_rolls_it_back(
    clinic: Path, terminal: Callable[..., Terminal]
) -> None:
    shell = terminal("shell", "clinic")
    shell.answer(("scumble>", "BEGIN;\r"), (r"scumble \(transaction\)>", "DELETE FROM t;\r"))
    shell.wait_for("300 rows changed")
    shell.answer((r"scumble \(transaction\)>", "\x04"))  # Ctrl-D
    shell.wait_for("the transaction was not committed: it is rolled back")
    assert shell.end() == 0
    assert scumble("query", "clinic", "SELECT count(*) AS n FROM t", "--csv").out == "n\n300\n"


def test_no_history_keeps_none(clinic: Path, terminal: Callable[..., Terminal]) -> None:
    shell = terminal("shell", "clinic", "--no-history")
    shell.answer(("scumble>", "SELECT 6 * 7 AS answer;\r"))
    shell.wait_for(r"\s42\s")
    shell.answer(("scumble>", ".quit\r"))
    assert shell.end() == 0
    assert not (clinic / "state").exists()


def test_passphrases_are_asked_for_without_an_echo(here: Path, terminal: Callable[..., Terminal]) -> None:
    made = terminal("init", "clinic")
    made.answer(("New passphrase", "open, sesame\n"), ("The same again", "open, sesame\n"))
    made.wait_for("protected by its passphrase")
    assert made.end() == 0
    assert "open, sesame" not in made.text
    for typed, code in (("open, sesame", 0), ("öffne dich, simsim", 2)):
        shown = terminal("tables", "clinic")
        shown.answer(("Passphrase of the key file: ", f"{typed}\n"))
        shown.wait_for("no tables yet" if code == 0 else "the passphrase is wrong")
        assert shown.end() == code
        assert typed not in shown.text


def test_passphrases_that_differ_make_nothing(here: Path, terminal: Callable[..., Terminal]) -> None:
    made = terminal("init", "clinic")
    made.answer(("New passphrase", "open, sesame\n"), ("The same again", "öffne dich, simsim\n"))
    made.wait_for("error: the two passphrases differ")
    assert made.end() == 2
    assert not list(here.glob("clinic*"))


def test_drop_asks_first(clinic: Path, terminal: Callable[..., Terminal]) -> None:
    for typed, code in (("n", 130), ("y", 0)):
        asked = terminal("drop", "clinic", "t")
        asked.answer(("Drop t, all of it", f"{typed}\n"))
        assert asked.end() == code
    assert scumble("tables", "clinic", "--json").json()["tables"] == []


def test_a_load_on_a_terminal_shows_progress_and_leaves_none_behind(
    clinic: Path, terminal: Callable[..., Terminal]
) -> None:
    loaded = terminal("load", "clinic", "more", "t.csv", "--capacity", "400", "--schema", "t.schema")
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
