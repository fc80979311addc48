"""The network's side of an owner without a network: addresses, pins, waiting, and what a service may answer."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble import attestation
from scumble.attestation import Policy
from scumble.attestation.policy_document import SignedPolicy
from scumble.errors import (
    AttestationRefused,
    Busy,
    FileError,
    InvalidParameter,
    Stopping,
    Tampered,
    Unavailable,
)
from scumble.owner.key_file import canonical
from scumble.owner.remote import service as remote
from scumble.owner.remote.address import Address, is_address
from scumble.owner.remote.pins import Pin, Pins, Trust, judged, measurement_of
from scumble.owner.remote.service import Connecting, RemoteService, Reply, Transport, _number, _reason, _refusal
from scumble.wire.storage import DATABASE, ENCLAVE, SESSION, STAMP

HERE = Address.parse("scumble://host/clinic")
REPORT = bytes(64)


# --- addresses and pins ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["scumble://host/a#b", "scumble://host/a?b", "scumble://:secret@host/a", "scumble://host/a/B", "scumble://host/A/b",
     "scumble:///a", "scumble://host/a/b/c", "http://host/a", "scumble://host:x/a"],
)  # fmt: skip
def test_an_address_has_a_host_and_names_and_nothing_else(text: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        Address.parse(text)
    assert caught.value.hint


def test_an_address_has_a_port_and_a_tenant_of_its_own_or_the_usual_ones() -> None:
    assert Address.parse("scumble://host:80/db") == Address("host", 80, "default", "db", tls=False)
    assert Address("host", 7300, "default", "db") == Address.parse("scumble://host/db")
    assert Address.parse("scumbles://host/acme/db").tls
    assert not is_address("scumble")
    assert not is_address("ftp://scumble")
    assert is_address("scumbles://host/db")


PIN = {"kind": "tdx", "measurement": "ab", "database": "1"}


@pytest.mark.parametrize(
    "pins",
    [
        {"a": PIN, "b": "text"},
        {"a": PIN, "b": ["kind", "measurement", "database"]},
        {"a": PIN, "b": PIN | {"more": "x"}},
        {"a": PIN, "b": {"kind": "tdx", "measurement": "ab"}},
        {"a": PIN, "b": PIN | {"kind": 1}},
    ],
)
def test_pins_of_another_form_are_refused(pins: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.pins"
    path.write_bytes(canonical(pins))
    with pytest.raises(FileError, match="does not read as pins"):
        Pins(path).get(HERE)
    path.unlink()
    path.mkdir()
    with pytest.raises(FileError, match="cannot be read"):
        Pins(path).get(HERE)


def test_a_pin_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    pins = Pins(tmp_path / "a.pins")
    pins.put(HERE, Pin(**PIN))
    before = pins.path.stat().st_ino
    pins.put(HERE, Pin(**PIN))
    assert pins.path.stat().st_ino == before
    pins.put(HERE, Pin("tdx", "cd", "1"))
    assert pins.get(HERE) == Pin("tdx", "cd", "1")


@pytest.mark.parametrize("text", ["", " ", "xy", "abc"])
def test_a_measurement_is_hexadecimal(text: str) -> None:
    with pytest.raises(InvalidParameter):
        measurement_of(text)
    assert measurement_of("AB cd") == "abcd"


# --- trust -------------------------------------------------------------------------------------------


@pytest.fixture
def trusting(tmp_path: Path) -> Callable[..., Trust]:
    def make(**more: Any) -> Trust:
        options = {"measurement": None, "allow_simulated": True, "given": None}
        return Trust(HERE, Pins(tmp_path / "a.pins"), **options | more)

    return make


@pytest.fixture
def evidence() -> attestation.Evidence:
    return attestation.producer("simulated").evidence(REPORT)


def test_the_first_code_is_pinned_and_its_kind_and_its_database(
    trusting: Callable[..., Trust], evidence: attestation.Evidence
) -> None:
    first = trusting()
    first.expect("1")
    verdict = first(evidence, REPORT)
    assert first._pins.get(HERE) == Pin("simulated", verdict.measurement, "1")
    again = trusting()
    again.expect("1")
    assert again(evidence, REPORT) == verdict
    with pytest.raises(AttestationRefused, match="another database"):
        again.expect("2")
    for pin in (Pin("tdx", verdict.measurement, "1"), Pin("simulated", "00", "1")):
        first._pins.put(HERE, pin)
        with pytest.raises(AttestationRefused, match="another kind" if pin.kind == "tdx" else None):
            trusting()(evidence, REPORT)
        known = trusting(measurement=verdict.measurement)  # what is given on the command line goes before the pin
        known.expect("1")
        assert known(evidence, REPORT) == verdict
    with pytest.raises(AttestationRefused):
        trusting(measurement="00")(evidence, REPORT)
    with pytest.raises(AttestationRefused):
        trusting(allow_simulated=False)(evidence, REPORT)


def _signed(policy: Policy) -> SignedPolicy:
    key = Ed25519PrivateKey.generate()
    return SignedPolicy.sign(policy, "0d" * 20, 1, datetime(2026, 1, 1, tzinfo=UTC), key)


def test_evidence_meets_the_caller_s_terms_and_the_owner_s(
    trusting: Callable[..., Trust], evidence: attestation.Evidence
) -> None:
    lenient, strict = Policy(allow_simulated=True), Policy(measurements=frozenset(["00"]), allow_simulated=True)
    cases = [
        (None, None, True),
        (lenient, None, True),
        (strict, None, False),
        (None, lenient, True),
        (None, strict, False),
        (lenient, strict, False),
        (strict, lenient, False),
        (lenient, lenient, True),
    ]
    for given, owners, accepted in cases:
        signed = None if owners is None else _signed(owners)
        if accepted:
            assert judged(evidence, REPORT, None, given, signed, True).kind == "simulated"
        else:
            with pytest.raises(AttestationRefused):
                judged(evidence, REPORT, None, given, signed, True)
    trust = trusting()
    trust.expect("1")
    trust.require(_signed(strict))  # nothing was shown yet
    with pytest.raises(AttestationRefused):
        trust(evidence, REPORT)
    trust.expect("1")
    trust(evidence, REPORT)
    trust.require(_signed(lenient))
    with pytest.raises(AttestationRefused):
        trust.require(_signed(strict))


# --- connecting --------------------------------------------------------------------------------------


def test_how_to_connect() -> None:
    usual = Connecting()
    assert (usual.insecure_simulated_enclave, usual.replaces_policy, usual.lowers_policy) == (False, False, False)
    assert (usual.terms, usual.signed) == (None, None)
    assert Connecting(measurement="AB").measurement == "ab"
    terms, signed = Policy(), _signed(Policy())
    assert (Connecting(policy=terms).terms, Connecting(policy=terms).signed) == (terms, None)
    assert (Connecting(policy=signed).terms, Connecting(policy=signed).signed) == (None, signed)
    Connecting(timeout_seconds=0.5, connect_seconds=0.5)
    for seconds in (0, -0.5):
        for name in ("timeout_seconds", "connect_seconds"):
            with pytest.raises(InvalidParameter, match="positive"):
                Connecting(**{name: seconds})  # type: ignore[arg-type]


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=made.monotonic, sleep=made.sleep))
    return made


def answering(monkeypatch: pytest.MonkeyPatch, answers: Iterator[tuple[int, bytes]]) -> list[tuple[Any, ...]]:
    """Have a transport's exchanges end so; what was asked."""
    asked = []

    def exchange(_: Transport, *given: Any, wait: bool) -> tuple[int, Reply]:
        asked.append((*given, wait))
        status, body = next(answers)
        return status, Reply({}, body)

    monkeypatch.setattr(Transport, "_exchange", exchange)
    return asked


def refusing(kind: str, hint: str | None = None) -> bytes:
    return json.dumps({"error": kind, "message": "no", "hint": hint}).encode()


@pytest.mark.parametrize(("status", "fine"), [(200, True), (204, True), (299, True), (300, False), (404, False)])
def test_a_status_below_300_is_an_answer(status: int, fine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, iter([(status, b"body")] * 2))
    transport = Transport(HERE)
    if fine:
        assert transport.ask("GET", "/x").body == b"body"
        assert transport.ask("GET", "/x", b"sent", {"a": "b"}, wait=False).body == b"body"
        assert asked == [("GET", "/x", b"", {}, True), ("GET", "/x", b"sent", {"a": "b"}, False)]
    else:
        with pytest.raises(Unavailable, match=f"status {status}"):
            transport.ask("GET", "/x")


def test_who_is_asked_to_wait_does_for_as_long_as_its_time_out(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    answering(monkeypatch, iter([(429, refusing("Unavailable"))] * 100))
    with pytest.raises(Unavailable, match="no"):
        Transport(HERE, timeout_seconds=7.0).ask("GET", "/x", wait=False)
    assert clock.slept == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    answering(monkeypatch, iter([(429, b""), (200, b"at last")]))
    assert Transport(HERE).ask("GET", "/x").body == b"at last"
    answering(monkeypatch, iter([(428, b"")]))
    with pytest.raises(Unavailable, match="428"):
        Transport(HERE).ask("GET", "/x")
    answering(monkeypatch, iter([(409, refusing("Busy"))]))
    with pytest.raises(Busy):
        Transport(HERE).ask("GET", "/x")


def test_a_service_that_stops_is_waited_for_once_if_at_all(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    answering(monkeypatch, iter([(503, refusing("Stopping"))] * 100))
    transport = Transport(HERE, timeout_seconds=300.0, connect_seconds=1.0)
    for wait, waited in ((False, 0.0), (True, 0.75), (True, 0.0)):
        before = clock.now
        with pytest.raises(Stopping):
            transport.ask("GET", "/x", wait=wait)
        assert clock.now - before == pytest.approx(waited)
        clock.now += 1.0 if wait else 0.0
    answering(monkeypatch, iter([(200, b""), (503, refusing("Stopping")), (200, b"back")]))
    transport.ask("GET", "/x")  # it is back, so that it is waited for again
    assert transport.ask("GET", "/x").body == b"back"


class Connection:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_connections_are_used_again_for_a_while(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    made: list[Any] = []

    def connected(_: Transport) -> Any:
        made.append(Connection())
        return made[-1]

    monkeypatch.setattr(Transport, "_connected", connected)
    monkeypatch.setattr(remote, "MOST_KEPT", 2)
    transport = Transport(HERE)
    taken = [transport._connection(wait=False) for _ in range(3)]
    for connection in taken:
        transport._keep(connection)
    assert [each.closed for each in made] == [False, False, True]
    clock.now += 59.9
    assert transport._connection(wait=False) is made[1]
    clock.now += 0.2
    assert transport._connection(wait=False) is made[3]
    assert [each.closed for each in made] == [True, False, True, False]
    transport._keep(taken[1])
    transport.close()
    assert [each.closed for each in made] == [True, True, True, False]


@pytest.mark.parametrize(
    ("error", "wait", "tries"),
    [(ConnectionRefusedError(), True, 5), (ConnectionRefusedError(), False, 1), (TimeoutError(), True, 1)],
)
def test_only_a_service_that_may_be_back_soon_is_connected_to_again(
    error: OSError, wait: bool, tries: int, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    tried = []

    def connected(_: Transport) -> None:
        tried.append(1)
        raise error

    monkeypatch.setattr(Transport, "_connected", connected)
    with pytest.raises(Unavailable, match="cannot be reached"):
        Transport(HERE, connect_seconds=1.0)._connection(wait=wait)
    assert (len(tried), clock.slept) == (tries, [0.25] * (tries - 1))


# --- answers -----------------------------------------------------------------------------------------


def test_a_refusal_is_the_error_that_it_names_if_it_names_one() -> None:
    busy = _refusal(409, refusing("Busy", "wait"))
    assert (type(busy), busy.message, busy.hint) == (Busy, "no", "wait")
    assert _refusal(409, refusing("Busy")).hint is None
    lied = _refusal(409, refusing("Disputed", "trust me"))
    assert type(lied) is Tampered
    assert lied.message != "no"
    for body in (b"", b"[]", b"{}", refusing("Exception"), refusing("nothing"), b"[" * 100_000):
        assert _refusal(418, body).message == "the service answers with status 418"


def test_what_went_wrong_is_the_system_s_word_or_the_error_s_name() -> None:
    assert _reason(TimeoutError(110, "Connection timed out")) == "it takes too long"
    assert _reason(OSError(111, "Connection refused")) == "Connection refused"
    assert _reason(UnicodeError()) == "UnicodeError"


@pytest.mark.parametrize("text", ["", "-1", "1.5", "٣", "²", "1" * 21])
def test_a_session_has_a_number_of_at_most_twenty_digits(text: str) -> None:
    assert _number(Reply({SESSION: "1" * 20}, b"")) == int("1" * 20)
    with pytest.raises(Unavailable, match="name the session"):
        _number(Reply({SESSION: text} if text else {}, b""))


class Answers:
    """In place of a transport: the same reply to everything, and what was asked."""

    def __init__(self, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.headers, self.body, self.asked = headers or {}, body, list[tuple[str, str, bytes, bool]]()

    def ask(self, method: str, path: str, body: Any = b"", headers: Any = None, *, wait: bool = True) -> Reply:
        self.asked.append((method, path.removeprefix(HERE.path), bytes(body), wait))
        return Reply(self.headers, self.body)


def service(answers: Answers, trusted: Any = None) -> RemoteService:
    return RemoteService(HERE, answers, trusted or (lambda *_: None))  # type: ignore[arg-type]


def test_a_fresh_key_is_proved_for_a_nonce_and_comes_from_a_named_enclave(evidence: attestation.Evidence) -> None:
    proved = []
    answers = Answers({ENCLAVE: "01" * 8}, b"k" * 32 + evidence.to_bytes())
    found = service(answers, lambda *shown: proved.append(shown))
    assert found.fresh_key() == b"k" * 32
    (_, path, nonce, _) = answers.asked[0]
    assert (path, len(nonce)) == ("/v1/attest", 32)
    assert proved == [(evidence, attestation.report_data(b"k" * 32, nonce))]
    answers.headers = {SESSION: "7"}
    assert found.greet(b"sealed") == (7, answers.body)
    assert answers.asked[-1] == ("POST", "/sessions", bytes.fromhex("01" * 8) + b"sealed", True)
    for name, error in (("01" * 7, Tampered), ("01" * 9, Tampered), ("xy", Unavailable), (None, Unavailable)):
        answers.headers = {} if name is None else {ENCLAVE: name}
        with pytest.raises(error):
            found.fresh_key()


def test_a_writer_asks_waits_renews_and_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RENEW_SECONDS", 0.001)
    answers = Answers()
    found = service(answers)
    found._session = 3
    with found.writer():
        for _ in range(1000):
            if len(answers.asked) < 3:
                time.sleep(0.005)
    put, renewed, *_, last = answers.asked
    assert put == ("PUT", "/sessions/3/writer?busy_seconds=5", b"", True)
    assert renewed == ("PUT", "/sessions/3/writer?busy_seconds=0", b"", True)
    assert last == ("DELETE", "/sessions/3/writer", b"", False)
    found.leave(3)
    assert answers.asked[-1] == ("DELETE", "/sessions/3", b"", False)


def test_a_stamp_is_asked_for_after_a_second_of_silence(clock: Clock) -> None:
    answers = Answers({STAMP: "one"})
    found = service(answers)
    assert found.stamp_lags
    assert found.stamp() == ""
    clock.now += 1.0
    assert found.stamp() == ""
    clock.now += 0.1
    assert found.stamp() == "one"
    answers.headers = {}
    clock.now += 1.1
    assert found.stamp() == "one"
    assert len(answers.asked) == 2


@pytest.mark.parametrize("name", ["", "0123456789ABCDEF", "0" * 15, "0" * 65, "../../etc/passwd", "0" * 16 + "\n"])
def test_a_database_s_id_is_one(name: str) -> None:
    assert service(Answers({DATABASE: "0" * 16})).describe() == "0" * 16
    with pytest.raises(Unavailable, match="name the database"):
        service(Answers({DATABASE: name})).describe()
