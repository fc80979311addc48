"""The HTTP surface described in OpenAPI 3.1, for those who write another client or put a proxy in front. PUBLIC.

Bodies that are sealed, and evidence, are opaque bytes to the front: docs/format.md and docs/http.md say more.
"""

from typing import Any

from scumble.wire.storage import DATABASE, ENCLAVE, OLDEST, PROTOCOL, SESSION, STAMP, VERSION

__all__ = ["description"]

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
    429: "Too many requests from this address",
    431: "The head of the request is too large",
    500: "The service has failed; its log says more",
    503: "No enclave is running, the session is gone, or too many are connected",
}
ALWAYS = (400, 404, 411, 413, 429, 431, 500, 503)
SPOKEN = (*ALWAYS, 426)
WITH_BODY = (*SPOKEN, 408)


def description() -> Fields:
    """The whole surface."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Scumble: a provider's service",
            "version": str(PROTOCOL),
            "description": "Sealed requests in, sealed answers out. The front opens none of them.",
        },
        "paths": {path: {"parameters": _named(path), **operations} for path, operations in _paths().items()},
        "components": {
            "schemas": {"Refusal": _REFUSAL},
            "securitySchemes": {"tenant": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths() -> dict[str, Fields]:
    database = "/v1/{tenant}/{database}"
    session = database + "/sessions/{session}"
    stamp = {STAMP: "Changes with every commit to the database"}
    return {
        "/health": {
            "get": _operation("health", "Whether there is an enclave to serve", {200: _json(_HEALTH)}, ALWAYS)
            | {"description": "503 has the same fields as 200 when no enclave is running."}
        },
        "/metrics": {"get": _operation("metrics", "Figures for Prometheus", {200: _text()}, ALWAYS)},
        "/v1/service": {"get": _operation("service", "What is spoken here", {200: _json(_SERVICE)}, ALWAYS)},
        "/v1/openapi.json": {"get": _operation("openapi", "This", {200: _json({"type": "object"})}, ALWAYS)},
        "/v1/attest": {
            "post": _operation(
                "attest",
                f"A nonce of {NONCE_BYTES} bytes; an enclave's public key (32 bytes) and its evidence",
                {200: _opaque({ENCLAVE: "The enclave's id: a greeting begins with its 8 bytes"})},
                WITH_BODY,
                _bytes({"type": "string", "minLength": NONCE_BYTES, "maxLength": NONCE_BYTES}),
            )
        },
        database: {
            "get": _operation(
                "describe",
                "A database's id",
                {200: _empty("It is there", {DATABASE: "The id that its key has", **stamp})},
                SPOKEN,
            ),
            "put": _operation(
                "create",
                "Make an empty database of an id; the tenant shows its token unless the service is open to all",
                {201: _empty("Made, or begun before under the same id and still empty")},
                (*WITH_BODY, 409),
                _content("text/plain", {"type": "string", "pattern": DATABASE_ID}),
            )
            | {"security": [{"tenant": []}, {}]},
        },
        database + "/sessions": {
            "post": _operation(
                "greet",
                "Open a session: the enclave's id (8 bytes) and a greeting that is sealed to its key",
                {200: _opaque({SESSION: "The session's number", **stamp})},
                (*WITH_BODY, 409),
                _bytes(),
            )
        },
        session: {
            "post": _operation(
                "request", "A sealed request; a sealed answer", {200: _opaque(stamp)}, (*WITH_BODY, 409), _bytes()
            ),
            "delete": _operation("leave", "End a session", {204: _empty("It has ended")}, SPOKEN),
        },
        session + "/writer": {
            "put": _operation(
                "hold",
                "Hold the database for writing, or go on holding it: it lapses if the session is not heard of",
                {204: _empty("It is held", stamp)},
                (*SPOKEN, 409),
            )
            | {"parameters": [_VERSION, _BUSY]},
            "delete": _operation("let_go", "Let others write", {204: _empty("It is not held")}, SPOKEN),
        },
        session + "/tidy": {
            "post": _operation(
                "tidy", "Delete what no table has any more, while holding", {200: _json(_TIDIED)}, (*SPOKEN, 409)
            )
        },
    }


def _operation(
    kind: str, summary: str, answers: dict[int, Fields], refusals: tuple[int, ...], body: Fields | None = None
) -> Fields:
    responses = answers | {status: _refusal(status) for status in refusals}
    if kind == "health":
        responses[503] = _json({"anyOf": [_HEALTH, _REFUSAL_REFERENCE]}, REFUSALS[503])
    fields: Fields = {
        "operationId": kind,
        "summary": summary,
        "parameters": [_VERSION] if 426 in refusals else [],
        "responses": {str(status): responses[status] for status in sorted(responses)},
    }
    return fields if body is None else fields | {"requestBody": {"required": True, "content": body}}


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


def _text() -> Fields:
    return {"description": "Prometheus' text form", "content": _content("text/plain", {"type": "string"})}


def _opaque(headers: dict[str, str]) -> Fields:
    return {"description": "Opaque bytes", "headers": _headers(headers), "content": _bytes()}


def _empty(what: str, headers: dict[str, str] | None = None) -> Fields:
    return {"description": what, "headers": _headers(headers or {})}


def _headers(described: dict[str, str]) -> Fields:
    return {
        name: {"description": what, "required": True, "schema": {"type": "string"}} for name, what in described.items()
    }


def _bytes(schema: Fields | None = None) -> Fields:
    return _content("application/octet-stream", schema or {})


def _content(media_type: str, schema: Fields) -> Fields:
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
