"""A database at a service does all that an embedded one does, from Python and from the command line."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sample_rows import OPTIONS, QUERIES, answer, answers_right, batch, loaded

import scumble
from scumble import dbapi
from scumble.cli import main
from scumble.errors import InvalidParameter, NotFound, Refused, Unavailable
from scumble.owner.keys import AnalystKey
from scumble.provider.hosting import add_tenant
from serving import SIMULATED, Serving, launch


def test_answers_are_those_of_duckdb(service: Serving, tmp_path: Path) -> None:
    with service.create("answers", tmp_path) as database:
        loaded(database)
        assert answers_right(database, queries=QUERIES)
        assert database.check() > 0
    with service.open("answers", tmp_path) as again:
        assert answers_right(again)


@pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy")
def test_pandas_reads_through_a_connection(service: Serving, tmp_path: Path) -> None:
    with service.create("pandas", tmp_path) as database:
        loaded(database)
    for connect in (scumble.connect, dbapi.connect):
        with connect(service.url("pandas"), key=tmp_path / "pandas.key", **SIMULATED) as connection:
            frame = pd.read_sql(QUERIES[2], connection)
        assert list(frame.itertuples(index=False, name=None)) == answer(QUERIES[2], [0])


def test_tables_are_dropped_and_sealed_anew(service: Serving, tmp_path: Path) -> None:
    with service.create("changes", tmp_path, limit=10) as database:
        loaded(database)
        database.load("u", batch(0), **OPTIONS)
        database.drop("u")
        before = {path.name for path in (service.folder / "default" / "changes" / "runs").iterdir()}
        database.rekey()
        after = {path.name for path in (service.folder / "default" / "changes" / "runs").iterdir()}
        assert not before & after
        assert answers_right(database)
    with service.open("changes", tmp_path) as again:
        assert [table.name for table in again.tables] == ["t"]


def test_after_a_wrong_token_the_right_one_makes_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    token = add_tenant(tmp_path, "acme")
    arguments = ["serve", str(tmp_path), "--port", "0", "--attestation", "simulated", "--enclaves", "1"]
    running = launch(tmp_path, "-m", "scumble.cli", *arguments)
    try:
        said = ["init", running.url("acme/clinic"), "--no-passphrase", "--insecure-simulated-enclave"]
        assert main([*said, "--token", "wrong"]) == 2
        assert "no tenant of this name has this token" in capsys.readouterr().err
        assert not list(tmp_path.glob("clinic.*"))
        assert main([*said, "--token", token]) == 0
    finally:
        running.stop()


def test_the_command_line_takes_an_address(
    service: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text("k,v\n1,10\n2,20\n2,30\n")
    url, said = service.url("lines"), "--insecure-simulated-enclave"
    assert main(["init", url, "--no-passphrase"]) == 2
    assert "simulated" in capsys.readouterr().err
    assert not list(tmp_path.glob("lines.*"))
    assert main(["init", url, "--no-passphrase", said]) == 0
    assert main(["load", url, "t", "visits.csv", "--type", "v bigint", "--index", "k int:0:9 epsilon=1", said]) == 0
    capsys.readouterr()
    assert main(["query", url, "SELECT count(*), sum(v) FROM t WHERE k = 2", "--json", said]) == 0
    captured = capsys.readouterr()
    assert [list(row.values()) for row in json.loads(captured.out)] == [[2, 50]]
    assert "its provider can read everything" in captured.err
    for command in (["tables", url], ["explain", url, "SELECT max(v) FROM t"], ["check", url]):
        assert main([*command, said]) == 0
    assert main(["query", url, "SELECT 1 FROM t"]) == 2
    assert "--insecure-simulated-enclave" in capsys.readouterr().err


def test_what_is_not_there_is_said(service: Serving, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        scumble.open(service.url("nowhere"), key=tmp_path / "nowhere.key", **SIMULATED)
    with pytest.raises(Unavailable, match="cannot be reached"):
        scumble.open("scumble://127.0.0.1:1/db", key=tmp_path / "a.key", connect_seconds=0.2, **SIMULATED)
    with pytest.raises(InvalidParameter, match="only for a database at a service"):
        scumble.open(tmp_path / "folder", **SIMULATED)
    with pytest.raises(InvalidParameter, match="time-out"):
        scumble.open(service.url("nowhere"), timeout_seconds=0)


def test_an_analyst_may_say_whose_database_it_has_to_be(
    service: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alice, mallory = (AnalystKey.create(tmp_path / f"{name}.key", None) for name in ("alice", "mallory"))
    with service.create("whose", tmp_path) as database:
        loaded(database)
        database.grant("alice", alice.text, ["t"])
        owner = database.owner
    given: dict[str, Any] = {"key": tmp_path / "alice.key", **SIMULATED}
    with pytest.raises(Refused):
        scumble.open(service.url("whose"), owner=mallory.text, **given)
    with scumble.open(service.url("whose"), owner=owner, **given) as opened:
        assert answers_right(opened)
    words = ["query", service.url("whose"), QUERIES[0], "--key", str(tmp_path / "alice.key")]
    assert main([*words, "--insecure-simulated-enclave", "--owner", owner]) == 0
    assert main([*words, "--insecure-simulated-enclave", "--owner", mallory.text]) == 2
    assert main([*words, "--insecure-simulated-enclave", "--owner", "nonsense"]) == 2
    assert "public key" in capsys.readouterr().err
