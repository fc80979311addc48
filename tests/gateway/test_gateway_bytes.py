"""Bytes that no driver sends, at every call: an error in words of ours answers each, and the gateway lives on."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from gateway_setup import Bare
from google.protobuf import any_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight

from scumble.errors import ScumbleError
from scumble.gateway.messages import SQL, new, packed, unpacked
from scumble.gateway.server import Gateway

RARELY = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
NAMES = [
    "CommandGetTables",
    "CommandStatementQuery",
    "CommandGetSqlInfo",
    "TicketStatementQuery",
    "CommandGetDbSchemas",
]
ACTIONS = ["CreatePreparedStatement", "ClosePreparedStatement", "CancelFlightInfo", "CancelQuery", "SetSessionOptions"]
UNFORESEEN = "this should not happen"


def wrapped(name: str, value: bytes) -> bytes:
    """An Any that says it holds a message, with any bytes in it."""
    return bytes(any_pb2.Any(type_url=f"type.googleapis.com/{SQL}.{name}", value=value).SerializeToString())


ANYTHING = st.one_of(
    st.binary(max_size=200),
    st.builds(wrapped, st.sampled_from(NAMES), st.binary(max_size=100)),
    st.builds(lambda text: packed(new("CommandStatementQuery", query=text)), st.text(max_size=50)),
    st.builds(lambda handle: packed(new("TicketStatementQuery", statement_handle=handle)), st.binary(max_size=40)),
)


def refused(call: Callable[[], Any]) -> None:
    """It answers, or refuses in words that were foreseen."""
    try:
        call()
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        assert UNFORESEEN not in str(error)  # noqa: PT017  an answer is right as well


def alive(bare: Bare) -> None:
    assert len(bare.ask(new("CommandGetCatalogs"))) == 2


@given(data=ANYTHING)
@RARELY
def test_any_bytes_as_a_command(gateway: Gateway, data: bytes) -> None:
    with Bare(gateway) as bare:
        refused(lambda: bare.info(data))
        refused(lambda: bare.schema(data))
        alive(bare)


@given(data=ANYTHING)
@RARELY
def test_any_bytes_as_a_ticket(gateway: Gateway, data: bytes) -> None:
    with Bare(gateway) as bare:
        refused(lambda: bare.get(data))
        alive(bare)


@given(data=ANYTHING, name=st.one_of(st.sampled_from(ACTIONS), st.text(max_size=20)))
@RARELY
def test_any_bytes_as_an_action(gateway: Gateway, data: bytes, name: str) -> None:
    with Bare(gateway) as bare:
        refused(lambda: bare.act(name, data))
        alive(bare)


@given(data=ANYTHING)
@settings(RARELY, max_examples=30)
def test_any_bytes_put(gateway: Gateway, data: bytes) -> None:
    with Bare(gateway) as bare:
        refused(lambda: bare.put(data, pa.table({"a": [1]})))
        alive(bare)


@given(data=st.binary(max_size=300))
def test_a_message_is_read_or_refused(data: bytes) -> None:
    try:
        name, message = unpacked(data)
    except ScumbleError:
        return
    assert unpacked(packed(message))[0] == name


def test_messages_of_others_are_refused(gateway: Gateway) -> None:
    other = packed(new("CommandGetCatalogs")).replace(SQL.encode(), b"arrow.flight.protocol.xyz")
    unknown = packed(new("CommandGetCatalogs")).replace(b"GetCatalogs", b"GetCatalogz")
    with Bare(gateway) as bare:
        with pytest.raises(flight.FlightServerError, match="not a Flight SQL message"):
            bare.info(other)
        with pytest.raises(flight.FlightServerError, match="does not know this Flight SQL command"):
            bare.info(unknown)
        with pytest.raises(flight.FlightServerError, match="not a Flight SQL message"):
            bare.get(b"\xff\xff\xff")
        with pytest.raises(flight.FlightServerError, match="no such result"):
            bare.get(packed(new("TicketStatementQuery", statement_handle=bytes(16))))
        with pytest.raises(flight.FlightServerError, match="this is not a ticket"):
            bare.get(packed(new("CommandStatementQuery", query="SELECT 1")))
        with pytest.raises(flight.FlightServerError, match="the call has no command"):
            bare.client.get_flight_info(flight.FlightDescriptor.for_path("a"), bare.options)
        with pytest.raises(flight.FlightServerError, match="does not belong to the action"):
            bare.act("CreatePreparedStatement", packed(new("CommandGetCatalogs")))
        with pytest.raises(flight.FlightServerError, match="only reads"):
            bare.put(new("CommandStatementUpdate", query="DELETE FROM visits"), pa.table({"a": [1]}))


def test_an_exchange_is_refused(gateway: Gateway) -> None:
    with Bare(gateway) as bare:
        writer, reader = bare.client.do_exchange(flight.FlightDescriptor.for_command(b"x"), bare.options)
        with pytest.raises(flight.FlightServerError, match="has no DoExchange"):
            reader.read_chunk()
        with pytest.raises(flight.FlightServerError):
            writer.close()


def test_parameters_that_do_not_fit_are_refused(gateway: Gateway) -> None:
    query = "SELECT id FROM visits WHERE id = $low AND name = $high"
    with Bare(gateway) as bare:
        (answer,) = bare.act(
            "CreatePreparedStatement", packed(new("ActionCreatePreparedStatementRequest", query=query))
        )
        handle = unpacked(answer)[1].prepared_statement_handle
        command = new("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        with pytest.raises(flight.FlightServerError, match="do not fit the query"):
            bare.put(command, pa.table({"a": [1], "b": [2], "c": [3]}))
        with pytest.raises(flight.FlightServerError, match="too many sets"):
            bare.put(command, pa.table({"low": range(10_001), "high": [""] * 10_001}))
        assert bare.put(command, pa.table({"low": [3], "high": ["näme 3"]})) is not None
        assert bare.ask(command).to_pydict() == {"id": [3]}
