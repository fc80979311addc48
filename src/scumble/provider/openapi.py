"""The HTTP surface: one table of all that can be asked, which http.py routes by and OpenAPI 3.1 describes. PUBLIC.

Bodies that are sealed, and evidence, are opaque bytes to the front: docs/format.md and docs/http.md say more.
"""

from dataclasses import dataclass, field
from typing import Any

from scumble.wire.storage import DATABASE, ENCLAVE, OLDEST, PROTOCOL, SESSION, STAMP, VERSION

__all__ = ["OPERATIONS", "Operation", "description"]

Fields = dict[str, Any]

NAME = "^[a-z0-9][a-z0-9_-]{0,63}$"
DATABASE_ID = "^[0-9a-z][0-9a-z-]{0,99}$"
NONCE_BYTES = 32

REFUSALS = {
    400: "Not what is asked for here, or not HTTP",
    404: "There is nothing at this path, no database of this name, or no right to write",
    408: "The body did not come in time",
    409: "There is one already, or another session is writing",
    411: "A body without Content-Length",
    413: "The body is larger than the service takes",
    426: "The service does not speak the client's protocol",
    429: "Too many requests from this address, or too much of this tenant or session under way",
    431: "The head of the request is too large",
    500: "The service has failed; its log says more",
    503: "No enclave is running, the service is stopping, the session is gone, too many are connected, or too many "
    "answers are unread",
}
ALWAYS = (400, 404, 411, 413, 429, 431, 500, 503)
SPOKEN = (*ALWAYS, 426)
WITH_BODY = (*SPOKEN, 408)
CHANGING, CHANGING_WITH_BODY = (*SPOKEN, 409), (*WITH_BODY, 409)


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked. Its kind is its name in the log and in the figures."""

    kind: str
    method: str
    path: str
    summary: str
    answers: dict[int, Fields]
    refusals: tuple[int, ...]
    body: Fields | None = None
    more: Fields = field(default_factory=dict)

    def described(self) -> Fields:
        responses = {status: _refusal(status) for status in self.refusals} | self.answers
        fields: Fields = {
            "operationId": self.kind,
            "summary": self.summary,
            "parameters": [_VERSION] if 426 in self.refusals else [],
            "responses": {str(status): responses[status] for status in sorted(responses)},
        }
        body = {} if self.body is None else {"requestBody": {"required": True, "content": self.body}}
        return fields | body | self.more


def description() -> Fields:
    """The whole surface."""
    paths: dict[str, Fields] = {}
    for operation in OPERATIONS:
        at = paths.setdefault(operation.path, {"parameters": _named(operation.path)})
        at[operation.method.lower()] = operation.described()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Scumble: a provider's service",
            "version": str(PROTOCOL),
            "description": "Sealed requests in, sealed answers out. The front opens none of them.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Refusal": _REFUSAL},
            "securitySchemes": {"tenant": {"type": "http", "scheme": "bearer"}},
        },
    }


def _named(path: str) -> list[Fields]:
    schemas: dict[str, Fields] = {
        "tenant": {"type": "string", "pattern": NAME},
        "database": {"type": "string", "pattern": NAME},
        "session": {"type": "integer", "minimum": 0, "maximum": 10**19 - 1},
    }
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in schemas.items()
        if "{" + name + "}" in path
    ]


def _refusal(status: int) -> Fields:
    headers = {
        426: {"upgrade": {"description": "What is spoken", "schema": {"type": "string"}}},
        429: {"retry-after": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}},
    }
    return _json(_REFUSAL_REFERENCE, REFUSALS[status]) | {"headers": headers.get(status, {})}


def _json(schema: Fields, what: str = "Here it is") -> Fields:
    return {"description": what, "content": _content("application/json", schema)}


def _opaque(headers: dict[str, str]) -> Fields:
    return _empty("Opaque bytes", headers) | {"content": _content("application/octet-stream")}


def _empty(what: str, headers: dict[str, str] | None = None) -> Fields:
    described = {
        name: {"description": text, "required": True, "schema": _TEXT} for name, text in (headers or {}).items()
    }
    return {"description": what, "headers": described}


def _content(media_type: str, schema: Fields | None = None) -> Fields:
    return {media_type: {"schema": schema} if schema else {}}


def _object(**properties: Fields) -> Fields:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_TEXT: Fields = {"type": "string"}
_COUNT: Fields = {"type": "integer", "minimum": 0}
_REFUSAL = _object(error=_TEXT, message=_TEXT, hint={"type": ["string", "null"]})
_REFUSAL_REFERENCE = {"$ref": "#/components/schemas/Refusal"}
_HEALTH = _object(status=_TEXT, enclaves=_COUNT, wanted=_COUNT, databases=_COUNT)
_SERVICE = _object(
    service={"const": "scumble"},
    protocols={"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2},
    enclaves=_COUNT,
)
_FIGURES = {"description": "Prometheus' text form", "content": _content("text/plain", _TEXT)}
_TIDIED = _object(runs=_COUNT)
_VERSION = {
    "name": VERSION,
    "in": "header",
    "description": "The protocol that the client speaks; without it, the oldest",
    "schema": {"type": "integer", "minimum": OLDEST, "maximum": PROTOCOL},
}
_BUSY = {
    "name": "busy_seconds",
    "in": "query",
    "description": "How long to wait for another session that is writing",
    "schema": {"type": "number", "minimum": 0, "maximum": 60, "default": 5},
}

_DATABASE = "/v1/{tenant}/{database}"
_SESSION = _DATABASE + "/sessions/{session}"
_STAMP = {STAMP: "Changes with every commit to the database"}

OPERATIONS = (
    Operation(  # the commonest first: routes are tried one after the other
        "request",
        "POST",
        _SESSION,
        "A sealed request; a sealed answer",
        {200: _opaque(_STAMP)},
        CHANGING_WITH_BODY,
        _content("application/octet-stream"),
    ),
    Operation("leave", "DELETE", _SESSION, "End a session", {204: _empty("It has ended")}, SPOKEN),
    Operation(
        "health",
        "GET",
        "/health",
        "Whether there is an enclave to serve",
        {200: _json(_HEALTH), 503: _json({"anyOf": [_HEALTH, _REFUSAL_REFERENCE]}, REFUSALS[503])},
        ALWAYS,
        more={"description": "503 has the same fields as 200 when no enclave is running."},
    ),
    Operation("metrics", "GET", "/metrics", "Figures for Prometheus", {200: _FIGURES}, ALWAYS),
    Operation("service", "GET", "/v1/service", "What is spoken here", {200: _json(_SERVICE)}, ALWAYS),
    Operation("openapi", "GET", "/v1/openapi.json", "This", {200: _json({"type": "object"})}, ALWAYS),
    Operation(
        "attest",
        "POST",
        "/v1/attest",
        f"A nonce of {NONCE_BYTES} bytes; an enclave's public key (32 bytes) and its evidence",
        {200: _opaque({ENCLAVE: "The enclave's id: a greeting begins with its 8 bytes"})},
        WITH_BODY,
        _content("application/octet-stream", {**_TEXT, "minLength": NONCE_BYTES, "maxLength": NONCE_BYTES}),
    ),
    Operation(
        "describe",
        "GET",
        _DATABASE,
        "A database's id",
        {200: _empty("It is there", {DATABASE: "The id that its key has", **_STAMP})},
        SPOKEN,
    ),
    Operation(
        "create",
        "PUT",
        _DATABASE,
        "Make an empty database of an id; the tenant shows its token unless the service is open to all",
        {201: _empty("Made, or begun before under the same id and still empty")},
        CHANGING_WITH_BODY,
        _content("text/plain", {"type": "string", "pattern": DATABASE_ID}),
        {"security": [{"tenant": []}, {}]},
    ),
    Operation(
        "greet",
        "POST",
        _DATABASE + "/sessions",
        "Open a session: the enclave's id (8 bytes), the key it showed (32), and a greeting sealed to that key",
        {200: _opaque({SESSION: "The session's number", **_STAMP})},
        CHANGING_WITH_BODY,
        _content("application/octet-stream"),
    ),
    Operation(
        "hold",
        "PUT",
        _SESSION + "/writer",
        "Hold the database for writing, or go on holding it: it lapses if the session is not heard of",
        {204: _empty("It is held", _STAMP)},
        CHANGING,
        more={"parameters": [_VERSION, _BUSY]},
    ),
    Operation("let_go", "DELETE", _SESSION + "/writer", "Let others write", {204: _empty("It is not held")}, SPOKEN),
    Operation(
        "tidy",
        "POST",
        _SESSION + "/tidy",
        "Delete what no table has any more, while holding",
        {200: _json(_TIDIED)},
        CHANGING,
    ),
)
