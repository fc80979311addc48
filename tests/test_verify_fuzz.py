"""The fuzzer's parent: every child ends or is killed, and the input that it was running is known."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from verify import fuzz, fuzz_targets
from verify.fuzz import Notes

from scumble.owner.sources import csv_source, open_source
from scumble.owner.sources.csv_source import LentFile

DEAF = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass"


def test_notes_say_what_a_process_is_doing(tmp_path: Path) -> None:
    parent, child = Notes(tmp_path), Notes(tmp_path)
    assert (parent.inputs, parent.input, parent.state) == (0, b"", "while it was set up")
    child.begin(b"first")
    assert (parent.inputs, parent.input, parent.state) == (1, b"first", "with an input under way")
    child.end()
    assert parent.state == "between inputs"
    child.begin(b"2")
    assert (parent.inputs, parent.input, parent.state) == (2, b"2", "with an input under way")


def test_notes_of_a_dead_process_can_be_read(tmp_path: Path) -> None:
    Notes(tmp_path)
    noted = f"Notes(Path({str(tmp_path)!r})).begin(b'last')"
    program = f"import os\nfrom pathlib import Path\nfrom verify.fuzz import Notes\n{noted}\nos.abort()"
    ended = subprocess.run([sys.executable, "-c", program], cwd=fuzz.CORPUS.parents[1], check=False)
    assert ended.returncode
    assert Notes(tmp_path).input == b"last"


def test_a_child_that_no_signal_ends_is_killed(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.begin(b"hangs")
    with subprocess.Popen([sys.executable, "-c", DEAF]) as child:
        assert fuzz._ended(child, notes, 0.3) is None
    assert notes.state == "with an input under way"


def test_a_child_that_is_never_set_up_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SETUP_SECONDS", 0.3)
    with subprocess.Popen([sys.executable, "-c", DEAF]) as child:
        assert fuzz._ended(child, Notes(tmp_path), 60) is None


@pytest.mark.parametrize(
    ("program", "seconds", "code"), [("import time\ntime.sleep(0.5)", 0.1, 0), ("raise SystemExit(3)", 60, 3)]
)
def test_a_child_has_its_time_to_be_set_up_and_its_exit_code_is_returned(
    program: str, seconds: float, code: int, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        assert fuzz._ended(child, Notes(tmp_path), seconds) == code


def test_every_planted_target_is_one_that_is_run() -> None:
    assert set(fuzz.PLANTED) == set(fuzz_targets.PLANTED)


# --- what once hung a child at its end: pyarrow's threads had not let go of a csv file --------------


def test_a_file_is_closed_only_when_what_was_lent_is_back(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'a"b')
    returned = 0.0

    def keep(lent: object) -> None:
        nonlocal returned
        block = lent.read(9)  # type: ignore[attr-defined]
        time.sleep(0.1)
        del lent
        time.sleep(0.1)
        assert block == b'a"b'
        returned = time.monotonic()

    with LentFile(tmp_path / "t.csv") as counted:
        thread = threading.Thread(target=keep, args=(counted.lend(),))
        thread.start()
        del thread
    assert 0 < returned <= time.monotonic()
    assert counted.unclosed


def test_a_file_that_is_never_given_back_is_closed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_bytes(b"")
    monkeypatch.setattr(csv_source, "_PATIENCE_SECONDS", 0.05)
    with LentFile(tmp_path / "t.csv") as counted:
        lent = counted.lend()
    assert counted.closed
    assert lent is not None


def test_pyarrow_has_let_go_of_a_csv_file_that_is_left_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[LentFile] = []
    begin = LentFile.__init__

    def remembered(counted: LentFile, path: Path) -> None:
        files.append(counted)
        begin(counted, path)

    monkeypatch.setattr(LentFile, "__init__", remembered)
    monkeypatch.setattr("scumble.owner.sources.csv_source._BLOCK_BYTES", 1 << 12)
    (tmp_path / "t.csv").write_bytes(b"k\n" + b"12345\n" * 50_000)
    source = open_source(tmp_path / "t.csv", batch_rows=10)
    next(source.batches)
    source.batches.close()  # type: ignore[attr-defined]
    (file,) = files
    assert file.still_lent() == []
    assert file.closed
