"""How much one address may ask for, how many may be connected, and which protocol they speak."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fronts import DATABASE, NONCE, Fronting, fronting, until

from scumble.errors import InvalidParameter, NewerVersion
from scumble.owner.remote import service as transport
from scumble.owner.remote.address import Address
from scumble.owner.remote.service import Transport
from scumble.provider.limits import client_of
from scumble.provider.server import Settings

HEALTH = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"


def statuses(front: Fronting, count: int, path: str = "/v1/service", **options: str) -> list[int]:
    headers = {"x-forwarded-for": options["forwarded"]} if "forwarded" in options else {}
    body = NONCE if path == "/v1/attest" else b""
    method = "POST" if body else "GET"
    return [front.ask(method, path, body, headers, options.get("source", "")).status for _ in range(count)]


@pytest.fixture(name="strict", scope="module")
def a_strict_front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronting]:
    """Five requests and one greeting a second from each address, and twenty connections."""
    limits = {"requests_per_second": 5.0, "greetings_per_second": 1.0, "connections": 20}
    with fronting(tmp_path_factory.mktemp("strict") / "served", **limits) as it:
        time.sleep(1)  # it was asked for a database, and will be for evidence
        yield it


def test_an_address_that_asks_too_often_is_asked_to_wait_and_others_are_not(strict: Fronting) -> None:
    with strict.unharmed():
        assert statuses(strict, 10) == [200] * 10
        late = strict.ask("GET", "/v1/service")
        assert (late.status, late.fields["error"], late.headers["retry-after"]) == (429, "Unavailable", "1")
        assert statuses(strict, 1, forwarded="10.1.2.3") == [429]
        assert statuses(strict, 1, "/nowhere") == [429]
        assert statuses(strict, 1, "/v1/default/there") == [429]
        assert statuses(strict, 5, source="127.0.0.2") == [200] * 5
        time.sleep(0.5)
        assert statuses(strict, 1) == [200]


def test_greetings_have_a_limit_of_their_own(strict: Fronting) -> None:
    here = "127.0.0.3"
    assert statuses(strict, 3, "/v1/attest", source=here) == [200, 200, 429]
    assert strict.ask("POST", "/v1/default/there/sessions", bytes(9), source=here).status == 429
    assert strict.ask("PUT", "/v1/default/more", DATABASE.encode(), source=here).status == 429
    assert statuses(strict, 3, source=here) == [200] * 3
    assert statuses(strict, 2, "/v1/attest", source="127.0.0.4") == [200, 200]


def test_a_client_with_many_addresses_is_one_client() -> None:
    assert client_of("127.0.0.1") == "127.0.0.1"
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:1") != client_of("2001:db8:0:1::1")
    assert client_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert client_of("fe80::1%eth0") == client_of("fe80::2")


def test_connections_beyond_the_limit_are_told_so_and_end(strict: Fronting) -> None:
    with strict.unharmed():
        before = strict.descriptors()
        made = [connected(strict, f"127.0.1.{number}") for number in range(1, 21)]
        for each in made:
            each.sendall(HEALTH)
            assert each.recv(12) == b"HTTP/1.1 200"
        refused = strict.ask("GET", "/health", source="127.0.2.1")
        assert (refused.status, refused.headers["connection"]) == (503, "close")
        assert refused.fields["error"] == "Unavailable"
        made += [connected(strict, "127.0.0.5") for _ in range(300)]
        until(lambda: strict.descriptors() < before + 100)  # not one for each
        for each in made:
            each.close()
        until(lambda: strict.descriptors() <= before)


def connected(front: Fronting, source: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", front.port), timeout=20, source_address=(source, 0))


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_certificate_that_cannot_be_used_is_refused_before_anything_starts(
    tmp_path: Path, content: bytes | None
) -> None:
    pem = tmp_path / "front.pem"
    if content is not None:
        pem.write_bytes(content)
    with pytest.raises(InvalidParameter, match="certificate"):
        Settings(tmp_path, certificate=pem, private_key=pem)
    with pytest.raises(InvalidParameter, match="TLS"):
        Settings(tmp_path, certificate=pem)


# --- versions ----------------------------------------------------------------------------------------


VERSIONS = ["1", "3", "0", "99", "-1", "2.0", "", "x", "0000000002", "1" * 5000, "\xb9"]


def test_a_client_of_another_protocol_is_told_which_one_is_spoken(strict: Fronting) -> None:
    for number, version in enumerate(VERSIONS):
        here, headers = f"127.0.3.{number + 1}", {"scumble-protocol": version}
        asked = strict.ask("POST", "/v1/attest", NONCE, headers, here)
        assert (asked.status, asked.fields["error"]) == (426, "NewerVersion"), version
        assert "protocol 2 to 2" in asked.fields["message"]
        assert asked.fields["hint"]
        assert asked.headers["upgrade"] == "scumble/2"
        for path in ("/v1/service", "/v1/openapi.json", "/health", "/metrics"):
            assert strict.ask("GET", path, b"", headers, here).status == 200, path


def test_a_client_of_this_protocol_or_that_says_nothing_is_served(strict: Fronting) -> None:
    assert strict.ask("POST", "/v1/attest", NONCE, source="127.0.4.1").status == 200
    assert strict.ask("POST", "/v1/attest", NONCE, {"scumble-protocol": "2"}, "127.0.4.1").status == 200
    assert strict.ask("GET", "/v1/service", source="127.0.4.1").fields["protocols"] == [2, 2]
    asked = asking(strict)
    assert asked.ask("GET", "/v1/default/there").headers["scumble-database"] == DATABASE
    asked.close()


def test_the_client_says_it_is_too_new_and_what_to_do(strict: Fronting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PROTOCOL", 3)
    newer = asking(strict)
    with pytest.raises(NewerVersion, match="protocol 2 to 2") as raised:
        newer.ask("POST", "/v1/attest", NONCE)
    assert raised.value.hint is not None
    assert "upgrade" in raised.value.hint
    newer.close()


def asking(front: Fronting) -> Transport:
    return Transport(Address("127.0.0.1", front.port, "default", "there"))
