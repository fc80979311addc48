"""From a grant to its end at a running service: on the command line, and with a provider who puts the folder back."""

import shutil
from pathlib import Path

import pytest
from meddling import meddling
from sample_rows import QUERIES, answer, is_right, loaded

import scumble
from scumble.cli import main
from scumble.errors import Refused, ScumbleError, Tampered
from scumble.owner.keys import AnalystKey
from serving import SIMULATED, Serving

FLAG = "--insecure-simulated-enclave"
PROBE = "SELECT count(*) AS visits FROM t WHERE k < 50"


def test_a_grants_life_on_the_command_line(
    service: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = service.url("cli")
    with service.create("cli", tmp_path) as owner:
        loaded(owner)

    def said(*words: str, code: int = 0) -> str:
        assert main([*words]) == code
        told = capsys.readouterr()
        return told.out if not code else told.err

    public = said("identity", "ada.key", "--no-passphrase").strip()
    probe = ("query", url, PROBE, "--key", "ada.key", FLAG)
    assert "refuses" in said(*probe, code=2)
    assert "ada" in said("grant", url, "ada", public, "--table", "t", FLAG)
    assert str(answer(PROBE, [0])[0][0]) in said(*probe)
    assert "refuses" in said("drop", url, "t", "--yes", "--key", "ada.key", FLAG, code=2)
    assert "refuses" in said("grants", url, "--key", "ada.key", FLAG, code=2)
    assert "ada" in said("grants", url, FLAG)
    assert "revoked" in said("revoke", url, "ada", FLAG)
    assert "refuses" in said(*probe, code=2)


def test_a_folder_put_back_under_the_running_service_brings_no_grant_back(service: Serving, tmp_path: Path) -> None:
    folder, kept = service.folder / "default" / "putback", tmp_path / "kept"
    with meddling(service.port) as proxy, proxy.create("putback", tmp_path) as owner:
        loaded(owner)
        owner.grant("ada", AnalystKey.create(tmp_path / "ada.key", None).text, ["t"])
        with proxy.open("putback", tmp_path, "ada.key") as ada:
            assert is_right(ada.sql(QUERIES[0]).fetchall(), answer(QUERIES[0], [0]))
            shutil.copytree(folder, kept / "granted")
            owner.revoke("ada")
            shutil.copytree(folder, kept / "revoked")
            _put(kept / "granted", folder)
            for _ in range(2):
                with pytest.raises((Tampered, Refused)):
                    ada.sql(QUERIES[0])
            for path in tmp_path.glob("ada.*.anchor"):
                path.unlink()
            for _ in range(3):  # whichever enclave it is
                with pytest.raises((Tampered, Refused)):
                    proxy.open("putback", tmp_path, "ada.key")
            with pytest.raises(ScumbleError):
                loaded(owner, 1)
            _put(kept / "revoked", folder)
            with pytest.raises(Refused):
                ada.sql(QUERIES[0])
        with scumble.open(service.url("putback"), key=tmp_path / "putback.key", **SIMULATED) as again:
            assert is_right(again.sql(QUERIES[0]).fetchall(), answer(QUERIES[0], [0]))


def _put(content: Path, folder: Path) -> None:
    """Make a folder's files those of another, under whoever has it open."""
    wanted = {path.relative_to(content) for path in content.rglob("*") if path.is_file()}
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder) not in wanted:
            path.unlink()
    shutil.copytree(content, folder, dirs_exist_ok=True)
