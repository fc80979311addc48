"""A witness's routes without a socket: which body gets which answer, and who is cut off."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from witness_setup import Made

from scumble.errors import FileError, InvalidParameter, Refused, ScumbleError, Tampered
from scumble.witness import server
from scumble.witness.cosignatures import MOST_BYTES, Answer, Presentation, from_json_bytes, to_json_bytes
from scumble.witness.log import Witness

MADE = Made()
FIRST = MADE.links((0, 1, "a"))


class Failing:
    """A witness that fails in one way."""

    text = "a witness"

    def __init__(self, error: ScumbleError) -> None:
        self._error = error

    def answer(self, _: Presentation) -> Answer:
        raise self._error


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    made = Witness(tmp_path / "witness")
    yield made
    made.close()


def posted(witness: Any, *parts: bytes, then: dict[str, Any] | None = None) -> tuple[int, bytes]:
    """Post a body in parts, and if it does not end, have something come after them; or nothing at all, for `{}`."""
    events: list[dict[str, Any]] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    events += [{"type": "http.request", "body": b"", "more_body": False}] if then is None else [then]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        event = events.pop(0)
        if not event:
            await asyncio.sleep(60)
        return event

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/present", "headers": [], "query_string": b""}
    asyncio.run(server.application(witness)(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_a_presentation_is_answered_however_it_is_cut(witness: Witness) -> None:
    body = to_json_bytes(MADE.shown(*FIRST))
    for parts in ([body], [body[:9], body[9:]], [body, b" " * (MOST_BYTES - len(body))]):
        status, answer = posted(witness, *parts)
        assert status == 200
        assert from_json_bytes(Answer, answer).link == FIRST[0]
    status, answer = posted(witness, body, b" " * (MOST_BYTES + 1 - len(body)))
    assert (status, json.loads(answer)) == (400, {"error": f"a presentation has at most {MOST_BYTES} bytes"})


@pytest.mark.parametrize(
    ("error", "status"),
    [(FileError("the disk is full"), 500), (Refused(), 403), (Tampered(), 400), (InvalidParameter("no"), 400)],
)
def test_each_failure_has_its_status(error: ScumbleError, status: int) -> None:
    found, answer = posted(Failing(error), to_json_bytes(MADE.shown(*FIRST)))
    assert (found, json.loads(answer)) == (status, {"error": error.message})


@pytest.mark.parametrize("then", [{"type": "http.disconnect"}, {}])
def test_who_leaves_or_sends_nothing_more_is_cut_off(
    then: dict[str, Any], witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.01)
    assert posted(witness, b"{", then=then) == (408, b"")


def test_an_address_in_use_is_said_with_the_system_s_reason(witness: Witness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InvalidParameter) as caught:
        server.serve(witness, "127.0.0.1", taken.getsockname()[1], lambda _: None)
    assert caught.value.message.endswith("cannot be listened on: Address already in use")
    assert caught.value.hint
