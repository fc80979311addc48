"""The Flight SQL server: it answers clients' calls with streams of Arrow.

A statement runs once, in GetFlightInfo or in DoPut. So its errors come where clients expect them, its schema is that of
the rows, and using a ticket again runs nothing again. The result waits on a shelf, within limits, until DoGet takes it:
a ticket works once. Metadata is computed in DoGet, from the command in the ticket.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from scumble.errors import InvalidParameter, ScumbleError, UnsupportedQuery
from scumble.gateway.calls import Authentication, Call, Log, NoHandshake, flight_error
from scumble.gateway.changes import changed, ingest_target, ingested
from scumble.gateway.config import Config
from scumble.gateway.databases import SCHEMA, Databases
from scumble.gateway.messages import FLIGHT, new, packed, parsed, unpacked
from scumble.gateway.metadata import METADATA
from scumble.gateway.statements import PreparedStatement, Shelf, answer, prepared
from scumble.gateway.transactions import Transactions
from scumble.gateway.turns import Runs
from scumble.owner.database import Database
from scumble.sql.parse import is_query

__all__ = ["Gateway"]

BATCH_BYTES = 2 << 20  # drivers refuse messages above 16 MiB, and some above 4
STATEMENT_BYTES = 256 << 20  # of all prepared statements with their parameters
CANCELLED, NOT_CANCELLABLE = 1, 3
INVALID_NAME, INVALID_VALUE = 1, 2
CLOSED = 1
COMMIT, ROLLBACK = 1, 2

T = TypeVar("T")


class Gateway(flight.FlightServerBase):  # type: ignore[misc]
    """Listens as soon as it is made; `shutdown` stops it."""

    def __init__(self, config: Config, databases: Databases, log: Log) -> None:
        self.authentication = Authentication(config.tokens, log)
        scheme = "grpc" if config.tls is None else "grpc+tls"
        super().__init__(
            f"{scheme}://{config.host}:{config.port}",
            auth_handler=NoHandshake(),
            tls_certificates=None if config.tls is None else [(config.tls.certificate, config.tls.key)],
            middleware={"call": self.authentication},
        )
        limits = config.limits
        self._most_bytes = limits.result_bytes
        self.location = f"{scheme}://{config.host}:{self.port}"
        self._databases, self._writers = databases, config.writers
        self.transactions = Transactions(databases, limits.transaction_seconds)
        self.runs = Runs(limits)
        self.results: Shelf[pa.Table] = Shelf("result", limits.results, limits.result_bytes, limits.result_seconds)
        self.statements: Shelf[PreparedStatement] = Shelf(
            "prepared statement", limits.statements, STATEMENT_BYTES, limits.statement_seconds
        )
        self._actions: dict[str, Callable[[Call, bytes], bytes | None]] = {
            "CreatePreparedStatement": self._prepare,
            "ClosePreparedStatement": self._close_statement,
            "BeginTransaction": self._begin_transaction,
            "EndTransaction": self._end_transaction,
            "CancelFlightInfo": self._cancel,
            "CancelQuery": self._cancel_query,
            "SetSessionOptions": self._set_options,
            "GetSessionOptions": self._get_options,
            "CloseSession": lambda call, body: _bytes(new("CloseSessionResult", FLIGHT, status=CLOSED)),
        }

    # --- the calls of Flight -----------------------------------------------------------------------

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Run a query; for metadata, return a ticket with the command."""
        return _answered(context, lambda call: self._info(call, context, descriptor))

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Return the columns that a query would return, without running it."""
        return _answered(context, lambda call: flight.SchemaResult(self._schema(call, descriptor)))

    def do_get(self, context: Any, ticket: Any) -> Any:
        return _answered(context, lambda call: flight.RecordBatchStream(_cut(self._table(call, ticket.ticket))))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Bind parameters, change something, or ingest rows."""
        _answered(context, lambda call: self._put(call, context, descriptor, reader, writer))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Do one of the actions: prepare, close, cancel, session options."""
        return iter(_answered(context, lambda call: self._act(call, action.type, action.body.to_pybytes())))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return _answered(context, lambda call: [(name, "as in Flight SQL") for name in self._actions])

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """List nothing: Flight SQL has commands that list tables."""
        return iter(())

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        _answered(context, _refuse_exchange)

    # --- queries -----------------------------------------------------------------------------------

    def _info(self, call: Call, context: Any, descriptor: Any) -> Any:
        command = _command(descriptor)
        call.kind, message = unpacked(command)
        if call.kind in METADATA:
            return _flight_info(METADATA[call.kind].schema(message), descriptor, command)
        table = self._answer(call, message, context.is_cancelled)
        if context.is_cancelled():
            raise InvalidParameter("the client cancelled the call", hint="ask again")
        handle = self.results.put(call.client, table, table.nbytes)
        ticket = packed(new("TicketStatementQuery", statement_handle=handle))
        return _flight_info(table.schema, descriptor, ticket, len(table), table.nbytes)

    def _answer(self, call: Call, message: Any, is_gone: Callable[[], bool]) -> pa.Table:
        if call.kind == "CommandStatementQuery":
            name, sql = self._databases.route(message.query, call.database)
            if is_query(sql):
                return self._run(call, name, message.transaction_id, is_gone, lambda db: db.sql(sql).arrow())
        statement = self._statement(call, message)
        work = partial(answer, statement=statement)
        return self._run(call, statement.database, statement.transaction, is_gone, work, changes=statement.changes)

    def _run(
        self,
        call: Call,
        name: str,
        transaction: bytes,
        is_gone: Callable[[], bool],
        work: Callable[[Database], T],
        *,
        changes: bool = False,
    ) -> T:
        """Do something with a connection to a database: a transaction's own, from its first change on."""
        if changes and call.client not in self._writers:
            raise _only_reads()

        def watched(database: Database) -> T:
            with self.runs.watched(database, is_gone):
                return work(database)

        with self.runs.turn(call.client, is_gone):
            within = self.transactions.get(call.client, transaction) if transaction else None
            if within is not None and (changes or within.has_begun):
                return within.run(name, watched)
            with self._databases.connection(name) as database:
                return watched(database)

    def _schema(self, call: Call, descriptor: Any) -> pa.Schema:
        call.kind, message = unpacked(_command(descriptor))
        if call.kind in METADATA:
            return METADATA[call.kind].schema(message)
        statement = self._statement(call, message)
        described = statement.described
        if statement.bound and described.schema is None:
            tables = self._databases[statement.database].tables
            described = self._databases.describer.describe(statement.sql, tables, statement.bound[0])
        return pa.schema([]) if described.schema is None else described.schema

    def _statement(self, call: Call, message: Any) -> PreparedStatement:
        match call.kind:
            case "CommandStatementQuery" | "CommandStatementUpdate":
                return prepared(self._databases, message.query, call.database, message.transaction_id)
            case "CommandPreparedStatementQuery" | "CommandPreparedStatementUpdate":
                return self.statements.get(call.client, message.prepared_statement_handle)
            case _:
                raise InvalidParameter("this command is no statement", hint="connect with a Flight SQL driver")

    def _table(self, call: Call, ticket: bytes) -> pa.Table:
        call.kind, message = unpacked(ticket)
        if call.kind in METADATA:
            return METADATA[call.kind].table(message, self._databases)
        if call.kind != "TicketStatementQuery":
            raise InvalidParameter("this is not a ticket", hint="GetFlightInfo returns one")
        return self.results.take(call.client, message.statement_handle)

    # --- prepared statements -----------------------------------------------------------------------

    def _prepare(self, call: Call, body: bytes) -> bytes:
        message = _request(body, "ActionCreatePreparedStatementRequest")
        statement = prepared(self._databases, message.query, call.database, message.transaction_id)
        described = statement.described
        result = new(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self.statements.put(call.client, statement, statement.size_bytes),
            dataset_schema=b"" if described.schema is None else _serialized(described.schema),
            parameter_schema=_serialized(described.parameters),
        )
        return packed(result)

    def _close_statement(self, call: Call, body: bytes) -> None:
        message = _request(body, "ActionClosePreparedStatementRequest")
        self.statements.drop(call.client, message.prepared_statement_handle)

    # --- what is put -------------------------------------------------------------------------------

    def _put(self, call: Call, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        call.kind, message = unpacked(_command(descriptor))
        match call.kind:
            case "CommandPreparedStatementQuery":
                result = self._bind(call, message, reader.read_all())
            case "CommandStatementUpdate" | "CommandPreparedStatementUpdate":
                statement = self._statement(call, message)
                rows = reader.read_all() if call.kind == "CommandPreparedStatementUpdate" else None
                result = self._changed(call, statement if not rows else statement.with_parameters(rows), context)
            case "CommandStatementIngest":
                result = self._ingested(call, message, reader, context)
            case _:
                raise InvalidParameter("nothing can be put for this command", hint="connect with a Flight SQL driver")
        writer.write(pa.py_buffer(_bytes(result)))

    def _bind(self, call: Call, message: Any, rows: pa.Table) -> Any:
        handle = message.prepared_statement_handle
        statement = self.statements.get(call.client, handle).with_parameters(rows)
        self.statements.replace(call.client, handle, statement, statement.size_bytes)
        return new("DoPutPreparedStatementResult", prepared_statement_handle=handle)

    def _changed(self, call: Call, statement: PreparedStatement, context: Any) -> Any:
        if not statement.changes:
            raise InvalidParameter("this is a query, not a change", hint="execute it, and fetch its rows")
        work, gone = partial(changed, sql=statement.sql, sets=statement.bound), context.is_cancelled
        rows = self._run(call, statement.database, statement.transaction, gone, work, changes=True)
        return new("DoPutUpdateResult", record_count=rows)

    def _ingested(self, call: Call, message: Any, reader: Any, context: Any) -> Any:
        if call.client not in self._writers:
            raise _only_reads()  # before anything is read
        name, rows = ingest_target(self._databases, message, call.database), self._received(reader)
        work = partial(ingested, message=message, rows=rows)
        count = self._run(call, name, message.transaction_id, context.is_cancelled, work, changes=True)
        return new("DoPutUpdateResult", record_count=count)

    def _received(self, reader: Any) -> pa.Table:
        """All rows of a stream, within the limit of a result."""
        pieces, size_bytes = [], 0
        for chunk in reader:
            pieces.append(chunk.data)
            size_bytes += chunk.data.nbytes
            if size_bytes > self._most_bytes:
                raise InvalidParameter("there are more rows than the gateway can keep", hint="ingest them in parts")
        return pa.Table.from_batches(pieces, reader.schema)

    # --- transactions ------------------------------------------------------------------------------

    def _begin_transaction(self, call: Call, body: bytes) -> bytes:
        _request(body, "ActionBeginTransactionRequest")
        return packed(new("ActionBeginTransactionResult", transaction_id=self.transactions.begin(call.client)))

    def _end_transaction(self, call: Call, body: bytes) -> None:
        message = _request(body, "ActionEndTransactionRequest")
        if message.action not in (COMMIT, ROLLBACK):
            raise InvalidParameter("a transaction ends by commit or rollback", hint="connect with a Flight SQL driver")
        self.transactions.end(call.client, message.transaction_id, committed=message.action == COMMIT)

    # --- other actions -----------------------------------------------------------------------------

    def _act(self, call: Call, name: str, body: bytes) -> list[Any]:
        work = self._actions.get(name)
        if work is None:
            raise UnsupportedQuery("the gateway does not have this action", hint="docs/gateway.md lists them")
        call.kind = name
        result = work(call, body)
        return [] if result is None else [flight.Result(pa.py_buffer(result))]

    def _cancel(self, call: Call, body: bytes) -> bytes:
        message = parsed("CancelFlightInfoRequest", body, FLIGHT)
        return _bytes(new("CancelFlightInfoResult", FLIGHT, status=self._cancelled(call, message.info)))

    def _cancel_query(self, call: Call, body: bytes) -> bytes:
        message = _request(body, "ActionCancelQueryRequest")
        return packed(new("ActionCancelQueryResult", result=self._cancelled(call, message.info)))

    def _cancelled(self, call: Call, info: bytes) -> int:
        """Drop results that were not fetched. Nothing else can be cancelled, because queries run in GetFlightInfo."""
        try:
            tickets = [endpoint.ticket.ticket for endpoint in flight.FlightInfo.deserialize(info).endpoints]
        except (pa.ArrowException, flight.FlightError):
            raise InvalidParameter("this is not a FlightInfo", hint="send the one to cancel") from None
        dropped = False
        for ticket in tickets:
            name, message = unpacked(ticket)
            if name == "TicketStatementQuery":
                dropped |= self.results.drop(call.client, message.statement_handle)
        return CANCELLED if dropped else NOT_CANCELLABLE

    def _get_options(self, call: Call, body: bytes) -> bytes:
        options = [
            {"key": name, "value": {"string_value": value}} for name, value in self._current_options(call).items()
        ]
        return _bytes(new("GetSessionOptionsResult", FLIGHT, session_options=options))

    def _set_options(self, call: Call, body: bytes) -> bytes:
        """Refuse to change the database: the gateway keeps no state between the calls of a session."""
        current = self._current_options(call)
        errors = [
            {"key": option.key, "value": {"value": INVALID_VALUE if option.key in current else INVALID_NAME}}
            for option in parsed("SetSessionOptionsRequest", body, FLIGHT).session_options
            if current.get(option.key) != option.value.string_value
        ]
        return _bytes(new("SetSessionOptionsResult", FLIGHT, errors=errors))

    def _current_options(self, call: Call) -> dict[str, str]:
        return {"catalog": call.database or self._databases.default, "schema": SCHEMA}


def _answered(context: Any, work: Callable[[Call], T]) -> T:
    """Do the work of a call, or raise the error that its client may see."""
    call: Call = context.get_middleware("call")
    try:
        return work(call)
    except Exception as error:
        call.failure = type(error).__name__
        refusal = flight_error(error)
    raise refusal  # outside the handler, so that the other error is not attached


def _command(descriptor: Any) -> bytes:
    if descriptor.descriptor_type is not flight.DescriptorType.CMD:
        raise InvalidParameter("the call has no command", hint="connect with a Flight SQL driver")
    command: bytes = descriptor.command
    return command


def _request(body: bytes, wanted: str) -> Any:
    name, message = unpacked(body)
    if name != wanted:
        raise InvalidParameter("the request does not belong to the action", hint="connect with a Flight SQL driver")
    return message


def _flight_info(schema: pa.Schema, descriptor: Any, ticket: bytes, rows: int = -1, size_bytes: int = -1) -> Any:
    return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], rows, size_bytes)


def _cut(table: pa.Table) -> pa.Table:
    """Cut a table into batches that no driver finds too large."""
    rows = max(1, BATCH_BYTES * len(table) // max(1, table.nbytes))
    batches = [piece for batch in table.to_batches(max_chunksize=rows) for piece in _halved(batch)]
    return pa.Table.from_batches(batches, table.schema)


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until it is small enough: a few rows may hold most of the bytes."""
    if batch.nbytes <= 2 * BATCH_BYTES or len(batch) == 1:
        yield batch
        return
    half = len(batch) // 2
    yield from _halved(batch.slice(0, half))
    yield from _halved(batch.slice(half))


def _refuse_exchange(call: Call) -> None:
    raise UnsupportedQuery("the gateway has no DoExchange", hint="connect with a Flight SQL driver")


def _only_reads() -> ScumbleError:
    return UnsupportedQuery(
        "the gateway only reads for this client", hint="its configuration can name the client among its writers"
    )


def _serialized(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize().to_pybytes())


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
