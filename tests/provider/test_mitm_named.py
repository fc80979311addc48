"""A man in the middle of queries, one trick at a time: an error or the right answer, and the right one afterwards."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from meddling import (
    Answer,
    Forward,
    Meddle,
    Meddling,
    Request,
    dropped,
    flipped_answer,
    flipped_request,
    held_back,
    meddling,
    once,
    second,
    unanswered,
)
from sample_rows import QUERIES, answer, answers_right, is_right, loaded

import scumble
from scumble import errors
from scumble.errors import NotFound, ScumbleError, Tampered, Unavailable
from serving import SIMULATED, Serving

AGGREGATE, ROWS = QUERIES[0], QUERIES[1]


@dataclass
class Scene:
    """A database with one batch in it, and a client of it that goes through the proxy."""

    proxy: Meddling
    keys: Path
    client: scumble.Database

    def ask(self, query: str = AGGREGATE, client: scumble.Database | None = None) -> type[ScumbleError] | None:
        """None for the right answer, or the error's type; a wrong answer fails the test."""
        try:
            found = (client or self.client).sql(query).fetchall()
        except ScumbleError as error:
            return type(error)
        assert is_right(found, answer(query, [0]))
        return None

    def meddled(self, meddle: Meddle, query: str = AGGREGATE) -> type[ScumbleError] | None:
        """What a client sees while somebody meddles; after it, everything has to be right again."""
        self.proxy.meddle = meddle
        try:
            found = self.ask(query)
        finally:
            self.proxy.forget()
        assert self.ask(query) is None
        return found


@pytest.fixture(scope="module")
def scene(service: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    keys = tmp_path_factory.mktemp("mitm")
    with meddling(service.port) as proxy, proxy.create("mitm", keys) as client:
        loaded(client)
        assert answers_right(client, queries=QUERIES)
        proxy.forget()
        yield Scene(proxy, keys, client)


# --- drops and cuts --------------------------------------------------------------------------------


@pytest.mark.parametrize("meddle", [dropped, unanswered])
def test_what_is_dropped_once_is_asked_again(scene: Scene, meddle: Meddle) -> None:
    assert scene.meddled(once("request", meddle)) is None


@pytest.mark.parametrize("meddle", [dropped, unanswered])
def test_what_is_always_dropped_is_unavailable(scene: Scene, meddle: Meddle) -> None:
    assert scene.meddled(meddle) is Unavailable


@pytest.mark.parametrize("kept", [0, 1, 16, 100])
def test_an_answer_that_is_cut_is_never_taken(scene: Scene, kept: int) -> None:
    def cut_short(request: Request, forward: Forward) -> Answer:
        return replace(forward(request), sent=kept)

    def shortened(request: Request, forward: Forward) -> Answer:
        whole = forward(request)
        return replace(whole, body=whole.body[:kept])

    assert scene.meddled(once("request", cut_short)) is None  # the connection's end is noticed, and it is asked again
    assert scene.meddled(once("request", shortened)) is Tampered


def test_an_answer_with_more_behind_it_is_tampered(scene: Scene) -> None:
    def longer(request: Request, forward: Forward) -> Answer:
        whole = forward(request)
        return replace(whole, body=whole.body + b"\0")

    assert scene.meddled(once("request", longer)) is Tampered


def test_a_request_that_is_cut_is_tampered(scene: Scene) -> None:
    for kept in (0, 15, 40):
        cut = once("request", lambda request, forward, k=kept: forward(replace(request, body=request.body[:k])))  # type: ignore[misc]
        assert scene.meddled(cut) is Tampered


# --- flips -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 17, 100, 200, -1])
@pytest.mark.parametrize("query", [AGGREGATE, ROWS])
def test_a_flipped_bit_of_an_answer_is_tampered(scene: Scene, at: int, query: str) -> None:
    assert scene.meddled(once("request", flipped_answer(at)), query) is Tampered


@pytest.mark.parametrize("at", [0, 8, 30, -1])
def test_a_flipped_bit_of_a_request_is_tampered(scene: Scene, at: int) -> None:
    assert scene.meddled(once("request", flipped_request(at))) is Tampered


# --- replays ---------------------------------------------------------------------------------------


def test_a_request_that_is_sent_twice_is_done_once(scene: Scene) -> None:
    second: list[Answer] = []

    def twice(request: Request, forward: Forward) -> Answer:
        first = forward(request)
        second.append(forward(request))
        return first

    assert scene.meddled(once("request", twice)) is None
    assert second[0].status == 400


def test_the_answer_to_the_second_of_two_is_not_taken(scene: Scene) -> None:
    assert scene.meddled(once("request", second)) is Tampered


def test_an_older_request_is_not_taken(scene: Scene) -> None:
    assert scene.ask() is None
    old = scene.proxy.sent("request")[-1]
    assert scene.meddled(once("request", lambda _, forward: forward(old))) is Tampered
    assert scene.meddled(once("request", lambda _, forward: forward(old))) is None  # of a session that has ended


@pytest.mark.parametrize("done", [True, False])
def test_an_older_answer_is_not_taken(scene: Scene, done: bool) -> None:
    def again(old: Answer) -> Meddle:
        return once("request", lambda request, forward: (forward(request) if done else None, old)[1])

    assert scene.ask() is None
    for old in (scene.proxy.answered("request")[0], scene.proxy.answered("request")[-1]):
        assert scene.meddled(again(old)) is Tampered


def test_a_request_too_early_or_too_late_does_not_open(scene: Scene) -> None:
    held, back = held_back()
    assert scene.meddled(once("request", back)) is None  # the client has gone on in another session
    late = scene.proxy.forward(held[0])
    assert late.status in (400, 503)  # the session has ended
    assert scene.ask() is None


# --- swaps -----------------------------------------------------------------------------------------


@pytest.fixture
def other(scene: Scene) -> Iterator[scumble.Database]:
    """A second session with the same key, which asks the same."""
    with scene.proxy.open("mitm", scene.keys) as other:
        for query in QUERIES:
            assert scene.ask(query, other) is None
        yield other


def _crossed(
    scene: Scene, other: scumble.Database, meddle: Callable[[list[Request], Forward], list[Answer]]
) -> list[type[ScumbleError] | None]:
    """What two clients see that ask at once and have their two requests answered together; afterwards all is right."""
    met = threading.Barrier(2)
    requests: dict[int, Request] = {}
    answers: dict[int, Answer] = {}
    turns = iter(range(2))

    def meet(request: Request, forward: Forward) -> Answer:
        if request.kind != "request" or (turn := next(turns, None)) is None:  # a silent client asks for the stamp
            return forward(request)
        requests[turn] = request
        if met.wait(20) == 0:
            answers.update(enumerate(meddle([requests[0], requests[1]], forward)))
        met.wait(20)
        return answers[turn]

    scene.proxy.meddle = meet
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda client: scene.ask(client=client), (scene.client, other)))
    scene.proxy.forget()
    assert scene.ask() is None
    assert scene.ask(client=other) is None
    return found


def test_answers_swapped_between_two_sessions_are_tampered(scene: Scene, other: scumble.Database) -> None:
    def swapped(requests: list[Request], forward: Forward) -> list[Answer]:
        answers = [forward(request) for request in requests]
        assert len(answers[0].body) == len(answers[1].body)
        return answers[::-1]

    assert _crossed(scene, other, swapped) == [Tampered, Tampered]


def test_sessions_numbers_swapped_are_tampered(scene: Scene, other: scumble.Database) -> None:
    def swapped(requests: list[Request], forward: Forward) -> list[Answer]:
        one, two = requests
        return [forward(replace(one, path=two.path)), forward(replace(two, path=one.path))]

    assert _crossed(scene, other, swapped) == [Tampered, Tampered]


def test_another_tenants_database_is_not_taken_for_it(scene: Scene, service: Serving, tmp_path: Path) -> None:
    with scumble.create(service.url("mallory/mitm"), key=tmp_path / "m.key", **SIMULATED) as theirs:
        loaded(theirs, 1)

    def elsewhere(request: Request, forward: Forward) -> Answer:
        return forward(replace(request, path=request.path.replace("/default/", "/mallory/")))

    assert scene.meddled(once("request", elsewhere)) in (None, Unavailable)  # no session of that number there
    assert scene.meddled(elsewhere) is not None
    scene.proxy.meddle = elsewhere
    with pytest.raises(ScumbleError):
        scene.proxy.open("mitm", scene.keys).close()
    scene.proxy.forget()


# --- what the front may say ------------------------------------------------------------------------

GARBAGE = [
    Answer(200), Answer(204), Answer(200, {}, b"\0" * 300), Answer(500, {}, b"<html>"), Answer(502), Answer(404),
    Answer(302, {"location": "http://127.0.0.1:1/"}), Answer(403, {}, b"[" * 65000), Answer(409, {}, b"[]"),
    Answer(400, {}, b'{"error": "__doc__", "message": "", "hint": null}'), Answer(101), Answer(400, {}, b"\xff\xfe"),
    Answer(400, {}, b'{"error": "ScumbleError"}'), Answer(200, {"x": "y" * 60000}, b"z"), Answer(999),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(GARBAGE)))
def test_garbage_is_no_answer(scene: Scene, number: int) -> None:
    assert scene.meddled(lambda request, forward: GARBAGE[number]) is not None


@pytest.mark.parametrize("kind", sorted(set(errors.__all__) - {"DatabaseError"}))
def test_an_error_that_nobody_has_sealed_is_an_error_and_no_more(
    scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = scene.client.service._transport  # type: ignore[attr-defined]
    monkeypatch.setattr(transport, "_connect_timeout", 0.5)  # for which a service that is said to stop is waited for
    body = json.dumps({"error": kind, "message": "so it says", "hint": None}).encode()
    assert scene.meddled(lambda request, forward: Answer(400, {}, body)) is not None


@pytest.mark.parametrize("stamp", [None, "", "1-2-3", "x" * 1000])
def test_a_wrong_stamp_costs_no_more_than_a_look(scene: Scene, stamp: str | None) -> None:
    def stamped(request: Request, forward: Forward) -> Answer:
        whole = forward(request)
        others = {name: value for name, value in whole.headers.items() if name != "scumble-stamp"}
        return replace(whole, headers=others if stamp is None else others | {"scumble-stamp": stamp})

    assert scene.meddled(stamped) is None


def test_one_who_delays_is_waited_for_as_long_as_was_said(scene: Scene) -> None:
    def later(request: Request, forward: Forward) -> Answer:
        time.sleep(0.6)
        return forward(request)

    with scene.proxy.open("mitm", scene.keys, timeout_seconds=0.5) as client:
        scene.proxy.meddle = once("request", later)
        assert scene.ask(client=client) is None
        scene.proxy.meddle = later
        assert scene.ask(client=client) is Unavailable
        scene.proxy.forget()


def test_a_database_that_is_not_there_is_told_from_nothing_else(scene: Scene) -> None:
    with pytest.raises(NotFound):
        scene.proxy.open("nowhere", scene.keys, key="mitm.key")
