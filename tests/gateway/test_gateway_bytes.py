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


@given(data=ANYTHING, name=st.one_of(st.sampled_from(ACTIONS), st.text(max_size=20)))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_as_a_command_a_ticket_or_an_action_and_any_bytes_put(
    gateway: Gateway, data: bytes, name: str
) -> None:
    with Bare(gateway) as bare:
        for call in (bare.info, bare.schema, bare.get):
            refused(lambda call=call: call(data))  # type: ignore[misc]
        refused(lambda: bare.act(name, data))
        refused(lambda: bare.put(data, pa.table({"a": [1]})))
        assert len(bare.ask(new("CommandGetCatalogs"))) == 2  # it is alive


@given(data=st.binary(max_size=300))
def test_a_message_is_read_or_refused(data: bytes) -> None:
    try:
        name, message = unpacked(data)
    except ScumbleError:
        return
    assert unpacked(packed(message))[0] == name


def test_messages_of_others_are_refused(gateway: Gateway) -> None:
    catalogs, by_path = packed(new("CommandGetCatalogs")), flight.FlightDescriptor.for_path("a")
    other = catalogs.replace(SQL.encode(), b"arrow.flight.protocol.xyz")
    unknown = catalogs.replace(b"GetCatalogs", b"GetCatalogz")
    with Bare(gateway) as bare:
        refusals: list[tuple[str, Callable[[], object]]] = [
            ("not a Flight SQL message", lambda: bare.info(other)),
            ("does not know this Flight SQL command", lambda: bare.info(unknown)),
            ("not a Flight SQL message", lambda: bare.get(b"\xff\xff\xff")),
            ("no such result", lambda: bare.get(packed(new("TicketStatementQuery", statement_handle=bytes(16))))),
            ("this is not a ticket", lambda: bare.get(packed(new("CommandStatementQuery", query="SELECT 1")))),
            ("the call has no command", lambda: bare.client.get_flight_info(by_path, bare.options)),
            ("does not belong to the action", lambda: bare.act("CreatePreparedStatement", catalogs)),
            (
                "only reads",
                lambda: bare.put(new("CommandStatementUpdate", query="DELETE FROM visits"), pa.table({"a": [1]})),
            ),
            (
                "this is a query",
                lambda: bare.put(new("CommandStatementUpdate", query="SELECT 1"), pa.table({"a": [1]})),
            ),
            ("nothing can be put", lambda: bare.put(new("CommandGetCatalogs"), pa.table({"a": [1]}))),
            ("this command is no statement", lambda: bare.info(new("CommandStatementIngest", table="visits"))),
        ]
        for message, call in refusals:
            with pytest.raises(flight.FlightServerError, match=message):
                call()


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
