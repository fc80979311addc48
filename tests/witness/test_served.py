"""Witnesses as processes of their own, asked over HTTP, and the commands that run and list them."""

import http.client
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from witness_setup import Made, digest

import scumble
from scumble.cli import main
from scumble.owner.anchor import Anchor, anchor_text
from scumble.owner.keys import OwnerKey
from scumble.witness.cosignatures import MOST_BYTES, Answer, from_json_bytes, to_json_bytes
from serving import Serving, launch


def start(folder: Path, port: int = 0) -> Serving:
    return launch(folder, "-m", "scumble.cli", "witness", "serve", str(folder), "--port", str(port))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    running = start(tmp_path / "witness")
    yield running
    running.process.kill()
    running.process.wait()


def posted(served: Serving, body: bytes, path: str = "/v1/present") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("POST", path, body)
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def test_it_answers_presentations_and_nothing_else_and_remembers_though_killed(served: Serving) -> None:
    made = Made()
    links = made.links((0, 1, "a"), (0, 2, "b"))
    status, answer = posted(served, to_json_bytes(made.shown(*links)))
    assert status == 200
    assert from_json_bytes(Answer, answer).link == links[1]
    for body in (b"", b"[]", b"{}", b"\xff", b"[" * 5000, to_json_bytes(Made().shown(*links))):
        assert posted(served, body)[0] == 400
    assert posted(served, b" " * (MOST_BYTES + 1))[0] == 400
    assert posted(served, b"{}", "/v1/other")[0] == 404
    served.process.send_signal(signal.SIGKILL)
    served.process.wait(60)
    (fork,) = made.links((0, 2, "c"), previous=digest("a"))
    again = start(served.folder, served.port)
    try:
        status, answer = posted(again, to_json_bytes(made.shown(fork)))
        assert from_json_bytes(Answer, answer).link == links[1]
        assert again.stop() == 0
    finally:
        again.process.kill()


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="there is no IPv6 here")
def test_it_listens_on_ipv6_and_says_so_as_it_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scumble.create(tmp_path / "db").close()
    arguments = ["witness", "serve", str(tmp_path / "witness"), "--host", "::1", "--port", "0"]
    running = launch(tmp_path / "witness", "-m", "scumble.cli", *arguments)
    try:
        connection = http.client.HTTPConnection("::1", running.port, timeout=30)
        connection.request("GET", "/health")
        text = json.loads(connection.getresponse().read())["witness"]
        connection.close()
        assert main(["witness", "add", str(tmp_path / "db"), f"http://[::1]:{running.port}", text]) == 0
        taken = ["witness", "serve", str(tmp_path / "other"), "--host", "::1", "--port", str(running.port)]
        capsys.readouterr()
        assert main(taken) == 2
        assert "cannot be listened on: Address already in use\n" in capsys.readouterr().err
    finally:
        running.stop()


def test_the_commands_add_list_and_remove_a_witness(
    served: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place = f"http://127.0.0.1:{served.port}"
    with scumble.create("db") as db:
        db.load("t", pa.table({"k": [1, 2, 3]}), capacity=16, page_rows=16)
    assert main(["witness", "serve", "other", "--check", "--json"]) == 0
    other = json.loads(capsys.readouterr().out)["witness"]
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("GET", "/health")
    response = connection.getresponse()
    assert response.getheader("server") is None
    text = json.loads(response.read())["witness"]
    connection.close()
    assert main(["witness", "add", "db", place, other]) == 2  # the other one's key
    assert "0 of 1 witnesses" in capsys.readouterr().err
    assert main(["witness", "list", "db"]) == 0
    assert capsys.readouterr().out == "db: no witnesses\n"
    assert main(["witness", "add", "db", place, text]) == 0
    assert main(["witness", "add", "db", "other", other, "--need", "2"]) == 0
    assert main(["witness", "add", "db", "http://127.0.0.1:1", other]) == 2
    capsys.readouterr()
    assert main(["witness", "list", "db", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["need"] == 2
    assert {each["place"]: each["version"] for each in listed["witnesses"]} == {place: 2, str(tmp_path / "other"): 2}
    served.process.kill()
    served.process.wait()
    assert main(["drop", "db", "t", "--yes"]) == 1  # done, and not cosigned
    assert "the change was stored, but 1 of 2 witnesses have cosigned version 3" in capsys.readouterr().err
    assert main(["tables", "db"]) == 2
    assert main(["witness", "remove", "db.key", place]) == 2  # two of one
    assert main(["witness", "remove", "db.key", place, "--need", "1"]) == 0
    assert main(["witness", "remove", "db.key", place]) == 2
    assert main(["tables", "db"]) == 0
    assert main(["witness", "remove", "db.key", "other"]) == 0


def test_two_anchors_that_meet_show_a_fork(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scumble.create(tmp_path / "db").close()
    key = OwnerKey.open(tmp_path / "db.key")
    text = anchor_text(Anchor(1, "0" * 64), key.database, key.signing_key())
    assert main(["anchor", "import", str(tmp_path / "db.key"), text]) == 2
    assert "is another than version 1 (0000000000000000)" in capsys.readouterr().err
