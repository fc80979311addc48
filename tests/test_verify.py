"""The table of `make verify`: what it prints, and when it fails."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from verify import Row, run, walks

GOOD = Row("rows are hidden", "looked", "0 seen", True, ("a hole",), ("a hole",))
MISSED = Row("rows are hidden", "looked", "0 seen", True, ("a hole", "a door"), ("a hole",))
BROKEN = Row("rows are hidden", "looked", "3 seen", False)


def module(*rows: Row, error: Exception | None = None) -> Any:
    def given(name: str) -> ModuleType:
        made = ModuleType(name)

        def rows_of(seconds: float) -> Iterator[Row]:
            yield from rows
            if error is not None:
                raise error

        made.rows = rows_of  # type: ignore[attr-defined]
        return made

    return given


def run_with(monkeypatch: pytest.MonkeyPatch, folder: Path, *rows: Row) -> int:
    monkeypatch.setattr(run, "checked", lambda name, seconds: iter(rows))
    return run.main(["--only", "timing", "--out", str(folder)])


def test_exit_code_says_whether_all_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run_with(monkeypatch, tmp_path, GOOD) == 0
    assert run_with(monkeypatch, tmp_path, GOOD, MISSED) == 1
    assert run_with(monkeypatch, tmp_path, GOOD, BROKEN) == 1
    assert run_with(monkeypatch, tmp_path) == 1


def test_table_and_file_have_every_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_with(monkeypatch, tmp_path, GOOD, MISSED, BROKEN)
    printed = capsys.readouterr().out
    assert "caught: a hole" in printed
    assert "NOT caught: a door" in printed
    assert "none planted" in printed
    assert [line.split()[-1] for line in printed.splitlines() if "rows are hidden" in line] == ["yes", "NO", "NO"]
    written = json.loads((tmp_path / "verify.json").read_text())
    assert [row["ok"] for row in written["rows"]] == [True, False, False]
    assert set(written["seconds"]) == {"timing"}


def test_check_that_fails_is_missing_or_says_nothing_is_a_row_that_does_not_hold() -> None:
    first, failed = run.checked("timing", 1, module(GOOD, error=ValueError("no")))
    (missing,) = run.checked("there_is_no_such_check", 1)
    (silent,) = run.checked("timing", 1, module())
    assert [row.ok for row in (first, failed, missing, silent)] == [True, False, False, False]
    assert "ValueError: no" in failed.figure
    assert "ModuleNotFoundError" in missing.figure


def test_unknown_check_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--only", "nothing"])
    assert "there is no check nothing" in capsys.readouterr().err


def test_missing_programs_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    assert run.needs() == ["valgrind", "clang", "binutils", "spin"]


def test_budgets_leave_room_for_the_slow_tests() -> None:
    assert sum(run.CHECKS.values()) <= 18 * 60


def test_walks_name_the_files_that_are_called_and_not_those_that_are_only_imported() -> None:
    load, query = walks.load_walk(), walks.query_walk()
    assert (load[0], query[0]) == ("owner/database.py", "owner/statements.py")
    for walk in (load, query):
        assert len(walk) == len(set(walk))
        assert all((walks.PACKAGE / name).is_file() for name in walk)
        assert not {"__init__.py", "cli/__init__.py", "provider/server.py"} & set(walk)
    assert not any(name.startswith("sql/") for name in load)
    assert any(name.startswith("sql/") for name in query)
    assert not [name for name in walks.imported_by(walks.ENCLAVE) if name.startswith("scumble.owner.")]
