"""Tokens, whose results are whose, how long they are kept; and that no log or error holds a secret."""

import base64
import ipaddress
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from gateway_setup import ALICE, BOB, Bare, connect, cursor, running
from pyarrow import flight

from scumble.gateway.config import DatabaseConfig, Limits, Tls, client_of, hash_of, new_token
from scumble.gateway.messages import FLIGHT, new, packed, parsed, unpacked
from scumble.gateway.server import Gateway
from scumble.owner.database import Database

QUERY = new("CommandStatementQuery", query="SELECT id FROM visits WHERE id < 5")
UNKNOWN = "does not know this token"


def ticket_of(bare: Bare) -> bytes:
    ticket: bytes = bare.info(QUERY).endpoints[0].ticket.ticket
    return ticket


# --- tokens ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["wrong", "", hash_of(ALICE), ALICE + "x"])
def test_a_wrong_token_is_refused(gateway: Gateway, token: str) -> None:
    with pytest.raises(Exception, match=UNKNOWN), cursor(gateway, token) as asked:
        asked.execute("SELECT 1")


def test_no_token_is_refused_at_every_call(gateway: Gateway) -> None:
    with Bare(gateway, None) as bare:
        calls: list[Any] = [
            lambda: bare.info(QUERY),
            lambda: bare.schema(QUERY),
            lambda: bare.get(b""),
            lambda: bare.act("CloseSession", b""),
            lambda: list(bare.client.list_flights(b"", bare.options)),
            lambda: list(bare.client.list_actions(bare.options)),
        ]
        for call in calls:
            with pytest.raises((flight.FlightUnauthenticatedError, OSError), match=UNKNOWN):
                call()


def test_a_name_and_the_token_as_password_come_in_too(gateway: Gateway) -> None:
    options = {"username": "alice", "password": ALICE}
    with (
        dbapi.connect(gateway.location, db_kwargs=options, autocommit=True) as connection,
        connection.cursor() as asked,
    ):
        assert asked.execute("SELECT count(*) FROM visits").fetchone() == (400,)
    for wrong in ({"username": "bob", "password": ALICE}, {"username": "alice", "password": "x"}):
        with pytest.raises(Exception, match=UNKNOWN):
            dbapi.connect(gateway.location, db_kwargs=wrong, autocommit=True)


def test_headers_that_are_none_let_nobody_in() -> None:
    known = {"alice": hash_of(ALICE)}
    password = base64.b64encode(f"alice:{ALICE}".encode()).decode()
    assert client_of(f"Bearer {ALICE}", known) == client_of(f"basic {password}", known) == ("alice", ALICE)
    # Drivers refuse to send a header that is not ASCII; a client without a driver can.
    foreign = ("Bearer wörter", "Bearer \udcff", "Basic ü", "Basic w7w6w7w", "ü")
    broken = ("", "Bearer", f"Token {ALICE}", "Basic ///", "Basic =", "Basic /w==", ALICE, "Basic YWxpY2U=")
    assert not [header for header in foreign + broken if client_of(header, known) is not None]
    assert new_token() != new_token()
    assert len(new_token()) == 43


# --- results and statements ------------------------------------------------------------------------


def test_a_ticket_is_the_clients_own(gateway: Gateway) -> None:
    with Bare(gateway) as alice, Bare(gateway, BOB) as bob:
        ticket = ticket_of(alice)
        with pytest.raises(flight.FlightServerError, match="no such result"):
            bob.get(ticket)
    with Bare(gateway, BOB) as bob, pytest.raises(flight.FlightServerError, match="no such result"):
        bob.get(ticket)
    with Bare(gateway) as alice:
        assert len(alice.get(ticket)) == 5
        with pytest.raises(flight.FlightServerError, match="no such result"):
            alice.get(ticket)


def test_a_prepared_statement_is_the_clients_own(gateway: Gateway) -> None:
    with Bare(gateway) as alice, Bare(gateway, BOB) as bob:
        request = packed(new("ActionCreatePreparedStatementRequest", query="SELECT id FROM visits WHERE id < 2"))
        (answer,) = alice.act("CreatePreparedStatement", request)
        _, made = unpacked(answer)
        handle = made.prepared_statement_handle
        command = new("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        closing = packed(new("ActionClosePreparedStatementRequest", prepared_statement_handle=handle))
        with pytest.raises(flight.FlightServerError, match="no such prepared statement"):
            bob.info(command)
        bob.act("ClosePreparedStatement", closing)
        assert len(alice.ask(command)) == 2
        alice.act("ClosePreparedStatement", closing)
        with pytest.raises(flight.FlightServerError, match="no such prepared statement"):
            alice.info(command)


def test_results_and_statements_expire(sources: dict[str, DatabaseConfig]) -> None:
    with running(sources, limits=Limits(result_seconds=1, statement_seconds=1)) as (gateway, _):
        with Bare(gateway) as bare, cursor(gateway) as asked:
            ticket = ticket_of(bare)
            asked.adbc_prepare("SELECT id FROM visits WHERE id = ?")
            time.sleep(1.1)
            with pytest.raises(flight.FlightServerError, match="no such result"):
                bare.get(ticket)
            with pytest.raises(Exception, match="no such prepared statement"):
                asked.execute("SELECT id FROM visits WHERE id = ?", (1,))
        assert len(gateway.results) == 0


def test_results_beyond_the_limit_are_refused_until_one_is_fetched(
    sources: dict[str, DatabaseConfig],
) -> None:
    with running(sources, limits=Limits(results=2, result_bytes=100_000)) as (gateway, _), Bare(gateway) as bare:
        first = ticket_of(bare)
        ticket_of(bare)
        with pytest.raises(flight.FlightUnavailableError, match="too many wait"):
            ticket_of(bare)
        bare.get(first)
        ticket_of(bare)
    with (
        running(sources, limits=Limits(result_bytes=1000)) as (gateway, _),
        Bare(gateway) as bare,
        pytest.raises(flight.FlightServerError, match="larger than the gateway can keep"),
    ):
        bare.info(new("CommandStatementQuery", query="SELECT * FROM visits"))


@pytest.mark.parametrize("old", [False, True])
def test_a_result_that_nobody_has_fetched_can_be_cancelled(gateway: Gateway, old: bool) -> None:
    def cancel(bare: Bare, info: bytes) -> int:
        if old:
            (answer,) = bare.act("CancelQuery", packed(new("ActionCancelQueryRequest", info=info)))
            return int(unpacked(answer)[1].result)
        (answer,) = bare.act("CancelFlightInfo", new("CancelFlightInfoRequest", FLIGHT, info=info).SerializeToString())
        return int(parsed("CancelFlightInfoResult", answer, FLIGHT).status)

    with Bare(gateway) as bare, Bare(gateway, BOB) as bob:
        info = bare.info(QUERY)
        assert cancel(bob, info.serialize()) == 3  # not cancellable
        assert cancel(bare, info.serialize()) == 1  # cancelled
        assert cancel(bare, info.serialize()) == 3
        with pytest.raises(flight.FlightServerError, match="no such result"):
            bare.get(info.endpoints[0].ticket.ticket)


# --- the line --------------------------------------------------------------------------------------


def certificate() -> tuple[bytes, bytes]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    alternatives = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(serialization.Encoding.PEM), pem


def test_tls_protects_the_line(sources: dict[str, DatabaseConfig]) -> None:
    pem, key = certificate()
    with running(sources, tls=Tls(pem, key)) as (gateway, _):
        assert gateway.location.startswith("grpc+tls://127.0.0.1:")
        trusted = {DatabaseOptions.TLS_ROOT_CERTS.value: pem.decode()}
        with cursor(gateway, **trusted) as asked:
            assert asked.execute("SELECT count(*) FROM visits").fetchone() == (400,)
        with pytest.raises(Exception, match=r"certificate|TLS|x509"), cursor(gateway) as asked:
            asked.execute("SELECT 1")
        plain = flight.connect(gateway.location.replace("+tls", ""))
        with plain, pytest.raises(flight.FlightUnavailableError):
            list(plain.list_actions())


# --- logs and errors --------------------------------------------------------------------------------


def test_a_line_is_logged_for_each_call_and_holds_nothing_secret(sources: dict[str, DatabaseConfig]) -> None:
    with running(sources) as (gateway, lines):
        with cursor(gateway) as asked:
            asked.execute("SELECT id AS plantedname FROM visits WHERE name = ?", ("planted value",)).fetchall()
            with pytest.raises(Exception, match="plantedcolumn"):
                asked.execute("SELECT plantedcolumn FROM visits")
        with pytest.raises(Exception, match=UNKNOWN), connect(gateway, "planted-token") as connection:
            connection.adbc_get_table_types()
        with Bare(gateway) as bare, pytest.raises(flight.FlightServerError):
            bare.act("planted action", b"planted body")
    text = json.dumps(lines)
    assert "planted" not in text
    assert ALICE not in text
    assert {"ok", "BadQuery", "UnsupportedQuery", "unauthenticated"} <= {line["status"] for line in lines}
    assert all(set(line) == {"time", "call", "kind", "client", "status", "milliseconds"} for line in lines)
    assert {"CreatePreparedStatement", "CommandPreparedStatementQuery"} <= {line["kind"] for line in lines}


def test_of_an_error_that_nobody_foresaw_only_the_type_is_told(
    sources: dict[str, DatabaseConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        try:
            raise KeyError("planted cause")
        except KeyError as error:
            raise ZeroDivisionError("planted value") from error

    monkeypatch.setattr(Database, "sql", fail)
    with running(sources) as (gateway, lines), Bare(gateway) as bare:
        with pytest.raises(flight.FlightInternalError, match="ZeroDivisionError") as caught:
            bare.info(QUERY)
        monkeypatch.setattr("scumble.gateway.databases.Describer.describe", fail)
        with pytest.raises(Exception, match="ZeroDivisionError") as other:
            bare.schema(QUERY)
    assert "planted" not in f"{caught.value} {other.value} {lines}"


def test_a_call_that_is_under_way_at_the_stop_is_let_end(
    sources: dict[str, DatabaseConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ask = threading.Event(), Database.sql

    def slowly(*arguments: Any) -> Any:
        begun.set()
        time.sleep(0.5)
        return ask(*arguments)

    monkeypatch.setattr(Database, "sql", slowly)
    with ThreadPoolExecutor(1) as pool:
        with running(sources) as (gateway, _):
            bare = Bare(gateway)
            answer = pool.submit(bare.info, QUERY)
            assert begun.wait(10)
        assert answer.result(10).total_records == 5
        bare.client.close()
