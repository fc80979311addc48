"""Attestation at connection: what a client refuses, what it remembers, and that nothing secret leaves before."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from installed import python_with
from meddling import Answer, Forward, Meddling, Request, meddling
from sample_rows import QUERIES, answer, answers_right, loaded

import scumble
from scumble.attestation import Evidence, code_measurement, report_data
from scumble.attestation.evidence import STATEMENT
from scumble.cli import main
from scumble.errors import AttestationRefused, FileError, InvalidParameter, ScumbleError, Tampered, Unavailable
from scumble.owner.key_file import canonical
from scumble.owner.keys import AnalystKey
from serving import SIMULATED, Serving, serving

MEASUREMENT = code_measurement()
FLAG = "--insecure-simulated-enclave"


@pytest.fixture(name="keys", scope="module")
def a_folder_of_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attested")


@pytest.fixture(name="proxy", scope="module")
def a_proxy(service: Serving, keys: Path) -> Iterator[Meddling]:
    """In front of a database with two analysts who have never connected."""
    with meddling(service.port) as proxy:
        with proxy.create("attested", keys) as owner:
            loaded(owner)
            for name in ("ada", "bob"):
                owner.grant(name, AnalystKey.create(keys / f"{name}.key", None).text, ["t"])
        yield proxy


@pytest.fixture(autouse=True)
def _as_before(proxy: Meddling, keys: Path) -> None:
    """Nobody has connected yet, and nobody meddles."""
    proxy.forget()
    for path in keys.glob("*.pins"):
        path.unlink()


def _sent(proxy: Meddling) -> list[tuple[str, int]]:
    return [(request.kind, len(request.body)) for request, _ in proxy.seen]


# --- simulated evidence ----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["attested", "ada"])
def test_simulated_evidence_is_refused_unless_it_is_asked_for(proxy: Meddling, keys: Path, key: str) -> None:
    with pytest.raises(AttestationRefused, match="simulated: nothing protects"):
        scumble.open(proxy.url("attested"), key=keys / f"{key}.key")
    assert _sent(proxy) == [("describe", 0), ("attest", 32)]
    assert not (keys / f"{key}.pins").exists()


def test_none_is_made_at_a_simulated_enclave_unless_it_is_asked_for(proxy: Meddling, tmp_path: Path) -> None:
    with pytest.raises(AttestationRefused):
        scumble.create(proxy.url("never"), key=tmp_path / "never.key")
    assert _sent(proxy) == [("attest", 32)]
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_says_what_that_means(proxy: Meddling, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["query", proxy.url("attested"), QUERIES[0], "--key", str(keys / "ada.key")]
    assert main(command) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "error: the enclave is simulated: nothing protects what you send from the provider" in told.err
    assert f"{FLAG}" in told.err
    assert main([*command, FLAG]) == 0
    told = capsys.readouterr()
    assert "warning: the enclave is simulated; its provider can read everything" in told.err
    assert str(answer(QUERIES[0], [0])[0][0]) in told.out


def test_attest_prints_what_is_proved(proxy: Meddling, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attest", proxy.url("attested")]) == 2
    assert "simulated" in capsys.readouterr().err
    assert main(["attest", proxy.url("attested"), FLAG]) == 0
    shown = capsys.readouterr().out
    assert f"kind         simulated\nmeasurement  {MEASUREMENT}\n" in shown
    assert "proves nothing" in shown
    assert main(["attest", proxy.url("attested"), FLAG, "--json", "--measurement", MEASUREMENT.upper()]) == 0
    assert json.loads(capsys.readouterr().out)["measurement"] == MEASUREMENT
    assert main(["attest", proxy.url("attested"), FLAG, "--measurement", "00" * 32]) == 2
    assert "measurement" in capsys.readouterr().err
    assert {kind for kind, _ in _sent(proxy)} == {"attest"}


# --- somebody in between ---------------------------------------------------------------------------

Change = Callable[[bytes, bytes], bytes]
"""What becomes of a nonce and the key and evidence that were given for it."""


def _stated(key: bytes, nonce: bytes, kind: str = "simulated", measurement: str = MEASUREMENT) -> bytes:
    return key + Evidence(kind, STATEMENT + bytes.fromhex(measurement) + report_data(key, nonce)).to_bytes()


CHANGES: dict[str, Change] = {
    "another key": lambda nonce, shown: bytes(31) + b"\x09" + shown[32:],
    "evidence for another nonce": lambda nonce, shown: _stated(shown[:32], bytes(32)),
    "evidence for another key": lambda nonce, shown: shown[:32] + _stated(b"k" * 32, nonce)[32:],
    "a kind without proof: tdx": lambda nonce, shown: _stated(shown[:32], nonce, "tdx"),
    "a kind without proof: sev-snp": lambda nonce, shown: _stated(shown[:32], nonce, "sev-snp"),
    "a kind without proof: sgx": lambda nonce, shown: _stated(shown[:32], nonce, "sgx"),
    "another measurement": lambda nonce, shown: _stated(shown[:32], nonce, measurement="ab" * 32),
    "a kind that is none": lambda nonce, shown: shown.replace(b"simulated", b"simulatex"),
    "nothing": lambda nonce, shown: b"",
    "a key alone": lambda nonce, shown: shown[:32],
    "half of it": lambda nonce, shown: shown[:100],
    "more": lambda nonce, shown: shown + b"\0",
    "a changed bit of the measurement": lambda nonce, shown: shown[:120] + bytes([shown[120] ^ 1]) + shown[121:],
    "a changed bit of the report": lambda nonce, shown: shown[:-2] + bytes([shown[-2] ^ 1]) + shown[-1:],
    "a changed bit of the key": lambda nonce, shown: bytes([shown[0] ^ 1]) + shown[1:],
}


def _changing(change: Change) -> Callable[[Request, Forward], Answer]:
    def meddle(request: Request, forward: Forward) -> Answer:
        given = forward(request)
        return replace(given, body=change(request.body, given.body)) if request.kind == "attest" else given

    return meddle


@pytest.mark.parametrize("change", CHANGES)
def test_changed_evidence_is_refused_before_anything_secret_leaves(proxy: Meddling, keys: Path, change: str) -> None:
    proxy.meddle = _changing(CHANGES[change])
    for key in ("attested", "ada"):
        with pytest.raises(AttestationRefused):
            proxy.open("attested", keys, f"{key}.key", measurement=MEASUREMENT)
    assert _sent(proxy) == 2 * [("describe", 0), ("attest", 32)]


def test_evidence_of_an_earlier_connection_is_refused(proxy: Meddling, keys: Path) -> None:
    proxy.open("attested", keys, "ada.key").close()
    before = proxy.answered("attest")[0]
    proxy.forget()
    proxy.meddle = lambda request, forward: before if request.kind == "attest" else forward(request)
    with pytest.raises(AttestationRefused):
        proxy.open("attested", keys, "ada.key")
    assert _sent(proxy) == [("describe", 0), ("attest", 32)]


def test_a_nonce_is_never_used_again_and_says_nothing(proxy: Meddling, keys: Path) -> None:
    for _ in range(3):
        proxy.open("attested", keys, "ada.key").close()
    nonces = [request.body for request in proxy.sent("attest")]
    assert len(set(nonces)) == len(nonces) == 3
    first = [request.kind for request, _ in proxy.seen][:3]
    assert first == ["describe", "attest", "greet"]


@pytest.mark.parametrize("enclave", [None, "", "zz", "00", "00" * 8, "é"])
def test_another_enclaves_id_leads_to_no_session(proxy: Meddling, keys: Path, enclave: str | None) -> None:

    def renamed(request: Request, forward: Forward) -> Answer:
        given = forward(request)
        if request.kind != "attest":
            return given
        others = {name: value for name, value in given.headers.items() if name != "scumble-enclave"}
        return replace(given, headers=others if enclave is None else others | {"scumble-enclave": enclave})

    proxy.meddle = renamed
    with pytest.raises((Unavailable, Tampered)):
        proxy.open("attested", keys, "ada.key")


@pytest.mark.parametrize("database", [None, "", "..", "../../etc/passwd", "x" * 16, "0" * 15, "00" * 40])
def test_what_is_no_id_of_a_database_is_refused_at_once(proxy: Meddling, keys: Path, database: str | None) -> None:
    proxy.meddle = lambda request, forward: Answer(200, {} if database is None else {"scumble-database": database})
    for key in ("attested", "ada"):
        with pytest.raises(Unavailable):
            proxy.open("attested", keys, f"{key}.key")
    assert {kind for kind, _ in _sent(proxy)} == {"describe"}


# --- pins ------------------------------------------------------------------------------------------


def test_a_measurement_is_pinned_at_the_first_use_for_each_address(proxy: Meddling, keys: Path) -> None:
    proxy.open("attested", keys, "ada.key").close()
    pins = json.loads((keys / "ada.pins").read_text())
    assert list(pins) == [proxy.url("attested")]
    assert pins[proxy.url("attested")]["measurement"] == MEASUREMENT
    direct = f"scumble://127.0.0.1:{proxy.service_port}/attested"
    scumble.open(direct, key=keys / "ada.key", **SIMULATED).close()
    assert set(json.loads((keys / "ada.pins").read_text())) == {proxy.url("attested"), direct}


@pytest.mark.parametrize("other", [{"measurement": "ab" * 32}, {"kind": "tdx"}, {"kind": "sev-snp"}])
def test_evidence_that_differs_from_the_pin_is_refused(proxy: Meddling, keys: Path, other: dict[str, str]) -> None:
    proxy.open("attested", keys, "ada.key").close()
    pins = json.loads((keys / "ada.pins").read_text())
    changed = {address: pin | other for address, pin in pins.items()}
    (keys / "ada.pins").write_bytes(canonical(changed))
    proxy.forget()
    with pytest.raises(AttestationRefused):
        proxy.open("attested", keys, "ada.key")
    assert _sent(proxy) == [("describe", 0), ("attest", 32)]
    with proxy.open("attested", keys, "ada.key", measurement=MEASUREMENT) as ada:
        assert answers_right(ada)
    proxy.open("attested", keys, "ada.key").close()  # what was named on the command line is pinned from then on


def test_another_database_at_the_address_is_refused(
    proxy: Meddling, keys: Path, service: Serving, tmp_path: Path
) -> None:
    with scumble.create(service.url("mallory/attested"), key=tmp_path / "mallory.key", **SIMULATED) as mallory:
        loaded(mallory, 1)
        mallory.grant("bob", AnalystKey.open(keys / "bob.key").text, ["t"])
    proxy.open("attested", keys, "bob.key").close()
    proxy.forget()

    def elsewhere(request: Request, forward: Forward) -> Answer:
        return forward(replace(request, path=request.path.replace("/default/", "/mallory/")))

    proxy.meddle = elsewhere
    with pytest.raises(AttestationRefused, match="another database"):
        proxy.open("attested", keys, "bob.key")
    assert {kind for kind, _ in _sent(proxy)} == {"describe"}
    with pytest.raises(ScumbleError):
        proxy.open("attested", keys)


@pytest.mark.parametrize("measurement", ["", "xyz", "00", "é"])
def test_what_is_no_measurement_is_refused(proxy: Meddling, keys: Path, measurement: str) -> None:
    with pytest.raises((InvalidParameter, AttestationRefused)):
        proxy.open("attested", keys, "ada.key", measurement=measurement)
    assert not proxy.sent("greet")


@pytest.mark.parametrize("measurement", ["", "xyz"])
def test_what_is_no_measurement_is_refused_on_the_command_line(
    proxy: Meddling, keys: Path, measurement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A variable of the shell that is not set must not mean that any code will do."""
    url, said = proxy.url("attested"), (FLAG, "--measurement", measurement)
    for command in (["attest", url], ["query", url, QUERIES[0], "--key", str(keys / "ada.key")]):
        assert main([*command, *said]) == 2
        assert "hint:" in capsys.readouterr().err
    assert not proxy.sent("greet")


def test_pins_that_cannot_be_read_are_not_passed_over(proxy: Meddling, keys: Path) -> None:
    (keys / "ada.pins").write_text("{}x")
    with pytest.raises(FileError):
        proxy.open("attested", keys, "ada.key")
    assert not proxy.sent("greet")


# --- other code ------------------------------------------------------------------------------------


def test_changed_code_is_noticed_and_can_be_agreed_to(
    proxy: Meddling, keys: Path, service: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("attested", "ada"):
        proxy.open("attested", keys, f"{key}.key").close()
    package = Path(scumble.__file__).parent
    shutil.copytree(package, tmp_path / "changed" / "scumble", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "changed" / "scumble" / "enclave" / "versions.py").open("a") as code:
        code.write("\n")
    shutil.copytree(service.folder / "default" / "attested", tmp_path / "served" / "default" / "attested")
    monkeypatch.setattr(sys, "executable", python_with(tmp_path / "venv", tmp_path / "changed"))
    with serving(tmp_path / "served", "--enclaves", "1") as other:
        before, proxy.service_port = proxy.service_port, other.port
        try:
            proxy.forget()
            for key in ("attested", "ada"):
                with pytest.raises(AttestationRefused, match="measurement"):
                    proxy.open("attested", keys, f"{key}.key")
            assert not proxy.sent("greet")
            measurement = json.loads((keys / "ada.pins").read_text())[proxy.url("attested")]["measurement"]
            assert measurement == MEASUREMENT
            shown = next(each for each in proxy.answered("attest")).body
            new = Evidence.from_bytes(shown[32:]).report[len(STATEMENT) :][:32].hex()
            assert new != MEASUREMENT
            with proxy.open("attested", keys, measurement=new) as owner:
                assert answers_right(owner)
            proxy.open("attested", keys).close()
            with pytest.raises(AttestationRefused):
                proxy.open("attested", keys, measurement=MEASUREMENT)
        finally:
            proxy.service_port = before
