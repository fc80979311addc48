"""A database that release 0.1 wrote: every later release opens it, answers from it, checks it and adds to it.

tests/vectors/release-0.1 was written by that release: a folder with two tables, rekeyed once; its key, ledger and
anchor; an analyst's key (passphrase "correct horse"); a backup from before the rekey; and the answers that it gave.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import scumble
from scumble.errors import InvalidParameter
from scumble.owner.keys import AnalystKey
from serving import SIMULATED, serving

VECTORS = Path(__file__).parent / "vectors" / "release-0.1"
EXPECTED = json.loads((VECTORS / "expected.json").read_text())


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """A copy that may be written to, with the modes that git does not keep, and without the empty folder."""
    shutil.copytree(VECTORS, tmp_path, dirs_exist_ok=True)
    for key in tmp_path.glob("*.key"):
        key.chmod(0o600)
    return tmp_path / "clinic"


def shown(rows: list[tuple[Any, ...]]) -> list[list[str | None]]:
    """Rows as the vectors hold them."""
    return [[None if value is None else str(value) for value in row] for row in rows]


def test_it_opens_and_gives_the_same_answers(clinic: Path) -> None:
    with scumble.open(clinic) as db:
        answers = {query: shown(db.sql(query).fetchall()) for query in EXPECTED["answers"]}
        assert answers == EXPECTED["answers"]
        assert {table.name: table.capacity for table in db.tables} == EXPECTED["capacities"]
        assert [grant.name for grant in db.grants()] == ["alice"]
        assert db.check() == 302
        spent = [[entry.label, str(entry.epsilon), entry.state] for entry in db.ledger.entries()]
        assert (str(db.ledger.spent()), spent) == (EXPECTED["spent"], EXPECTED["ledger"])


def test_it_is_signed_before_it_is_changed(clinic: Path) -> None:
    """Reading needs nothing; whoever would change it is told what to do, and doing it twice does no harm."""
    wards = pa.table({"ward": ["surgery"], "floor": pa.array([4], pa.int8())})
    new_analyst = AnalystKey.create(clinic.parent / "lab.key", None).text
    with scumble.open(clinic) as db:
        version, spent = db.version, db.ledger.spent()
        changes = (
            db.rekey,
            lambda: db.drop("wards"),
            lambda: db.load("wards", wards, page_rows=16, capacity=16),
            lambda: db.load("wards", wards),  # with a capacity that would be drawn
            lambda: db.execute("CREATE TABLE more (a integer)"),
            lambda: db.execute("TRUNCATE wards"),
            lambda: db.execute("ALTER TABLE wards ADD COLUMN more integer"),
            lambda: db.execute("CREATE VIEW v AS SELECT 1 AS a"),
            lambda: db.execute("DROP TABLE wards"),
            lambda: db.execute("CREATE INDEX ON wards (floor) WITH (domain = 'int:0:9', epsilon = 1)"),
            lambda: db.grant("lab", new_analyst, {"visits": ["load"]}, epsilon=1),
        )
        for change in changes:
            with pytest.raises(InvalidParameter, match=r"release 0\.1") as refused:
                change()
            assert "scumble upgrade" in str(refused.value.hint)
        assert (db.version, db.ledger.spent()) == (version, spent)
        assert db.upgrade()
        assert not db.upgrade()
        assert db.version == version + 1
        assert db.check() == 302
    command = [sys.executable, "-m", "scumble.cli", "upgrade", str(clinic), "--json"]
    again = subprocess.run(command, capture_output=True, check=True, text=True)
    assert json.loads(again.stdout)["signed"] is False


def test_it_takes_another_batch_another_table_and_another_key(clinic: Path) -> None:
    with scumble.open(clinic) as db:
        db.upgrade()
        wards = pa.table({"ward": ["surgery"], "floor": pa.array([4], pa.int8())})
        db.load("wards", wards, page_rows=16, capacity=16)
        db.load("more", wards, indexes=["floor int:0:9 epsilon=1 columns=floor"])
        db.rekey()
    with scumble.open(clinic) as db:
        assert db.sql("SELECT count(*), sum(floor) FROM wards").fetchall() == [(4, 10)]
        assert db.sql("SELECT floor FROM more WHERE floor = 4").fetchall() == [(4,)]
        assert db.sql("SELECT ward FROM more WHERE floor = 4").fetchall() == [("surgery",)]
        assert [str(row[0]) for row in db.sql("SELECT count(*) FROM visits")] == ["260"]
        assert db.check() > 302


def test_its_tables_get_columns_and_indexes_and_lose_them(clinic: Path) -> None:
    with scumble.open(clinic) as db:
        db.upgrade()
        before = sorted(db.sql("SELECT ward, floor FROM wards").fetchall(), key=repr)
        db.execute("ALTER TABLE wards ADD COLUMN beds integer DEFAULT 8")
        db.execute("CREATE INDEX ON wards (floor) WITH (domain = 'int:0:9', epsilon = 1)")
        db.execute("UPDATE wards SET beds = 9 WHERE floor = 1")
        db.rekey()
    with scumble.open(clinic) as db:
        assert sorted(db.sql("SELECT ward, floor FROM wards").fetchall(), key=repr) == before
        expected = [(*row, 9 if row[1] == 1 else 8) for row in before]
        assert sorted(db.sql("SELECT ward, floor, beds FROM wards").fetchall(), key=repr) == expected
        db.execute("ALTER TABLE wards DROP COLUMN ward")
        assert sorted(db.sql("SELECT floor, beds FROM wards WHERE floor > 0").fetchall()) == sorted(
            row[1:] for row in expected if row[1] > 0
        )
        db.check()


def test_its_backup_is_restored(clinic: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scumble.cli", "restore", str(tmp_path / "clinic.backup"), str(tmp_path / "again")]
    done = subprocess.run([*command, "--json"], capture_output=True, check=True, text=True)
    assert json.loads(done.stdout)["version"] == EXPECTED["version"]


def test_a_service_hosts_it_and_its_analyst_may_read_and_load(clinic: Path, tmp_path: Path) -> None:
    served = tmp_path / "served"
    (served / "default").mkdir(parents=True)
    clinic.rename(served / "default" / "clinic")
    query = next(iter(EXPECTED["answers"]))
    with serving(served) as service, service.open("clinic", tmp_path) as owner:
        owner.upgrade()
        alice: dict[str, Any] = {"key": tmp_path / "alice.key", "passphrase": "correct horse", "owner": owner.owner}
        with scumble.open(service.url("clinic"), **alice, **SIMULATED) as db:
            assert shown(db.sql(query).fetchall()) == EXPECTED["answers"][query]
            assert db.granted is not None
            assert db.granted.public_key.hex() in EXPECTED["alice"]
