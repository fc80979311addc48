"""The database's commands where a script is not enough: passphrases, restores, damage, and forms of answers."""

import shutil
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cli_setup import clinic, here, made_clinic, scumble

from scumble.cli.query import as_csv, as_json, as_table, read_parameters
from scumble.errors import InvalidParameter
from scumble.owner.answers import Result

__all__ = ["clinic", "here", "made_clinic"]


# --- keys ------------------------------------------------------------------------------------------


def test_passphrases(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "the first of two")
    made = scumble("init", "clinic")
    assert "clinic.key, protected by its passphrase" in made.out
    assert stat.S_IMODE((here / "clinic.key").stat().st_mode) == 0o600
    assert scumble("tables", "clinic").code == 0
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "wrong")
    refused = scumble("tables", "clinic")
    assert refused.code == 2
    assert "the passphrase is wrong" in refused.err
    assert "wrong\n" not in refused.out
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "the first of two")
    monkeypatch.setenv("SCUMBLE_NEW_PASSPHRASE", "second")
    weak = scumble("passphrase", "clinic")
    assert (weak.code, "at least 12 characters" in weak.err, scumble("tables", "clinic").code) == (2, True, 0)
    monkeypatch.setenv("SCUMBLE_NEW_PASSPHRASE", "the second of two")
    assert "has a new passphrase" in scumble("passphrase", "clinic").out
    assert scumble("tables", "clinic").code == 2
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "the second of two")
    assert scumble("tables", "clinic").code == 0
    taken = scumble("passphrase", "clinic", "--no-passphrase", "--json")
    assert taken.json() == {"database": "clinic", "key": "clinic.key", "protection": "file mode"}
    monkeypatch.delenv("SCUMBLE_PASSPHRASE")
    assert scumble("tables", "clinic").code == 0
    # What needs no secret asks for none.
    assert scumble("ledger", "clinic").code == scumble("transcript", "clinic").code == 0


def test_without_its_passphrase_a_key_file_opens_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "the first of two")
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
    assert scumble("load", "clinic", "more", "t.csv", "--capacity", 400, "--schema", "t.schema").code == 0
    shutil.rmtree("clinic")
    shutil.copytree("backup", "clinic")
    for command in (("tables", "clinic"), ("check", "clinic"), ("query", "clinic", "SELECT 1")):
        assert scumble(*command).code == 2
    assert "--accept-restored" in scumble("check", "clinic").err
    accepted = scumble("check", "clinic", "--accept-restored")
    assert accepted.code == 0
    assert "version 4: accepted as the newest one, for good." in accepted.out
    assert "looks just the same" in " ".join(accepted.out.split())
    # From now on it is like any other: it can be asked and changed.
    assert scumble("check", "clinic", "--json").json()["version"] == 4
    assert scumble("load", "clinic", "more", "t.csv", "--capacity", 400, "--schema", "t.schema").code == 0
    assert scumble("check", "clinic", "--json").json()["version"] == 5


def test_a_lost_or_damaged_anchor(clinic: Path) -> None:
    """A damaged one knows nothing of what a restore must not take back: it is no more than a missing one."""
    (clinic / "clinic.anchor").write_text("{}")
    for command in (("tables", "clinic"), ("check", "clinic", "--accept-restored")):
        refused = scumble(*command)
        assert refused.code == 2
        assert "hint: the anchor clinic.anchor is damaged or of another key" in refused.err
    assert "the anchor clinic.anchor is damaged" in scumble("check", "clinic").err
    (clinic / "clinic.anchor").unlink()
    assert "`scumble check --first-opening`" in scumble("tables", "clinic").err
    assert scumble("check", "clinic", "--first-opening").code == 0
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
