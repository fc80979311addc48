"""A man in the middle of loads: a batch is there once or not at all, and whoever was told that it is there is right."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from meddling import (
    Answer,
    Cut,
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
from sample_rows import OPTIONS, QUERIES, answer, answers_right, batch, loaded

import scumble
from scumble.errors import ScumbleError, Unavailable, Unfinished
from serving import Serving, serving

STEPS = ("open", "begin", "rows", "pay", "paid", "reserve", "build", "commit")
"""The sealed requests of a load, after the database is held for writing."""


@dataclass
class Loads:
    """A database, a client of it through the proxy, and the batches that are known to be there."""

    proxy: Meddling
    client: scumble.Database
    there: list[int] = field(default_factory=list)
    next: int = 0

    def load(self) -> type[ScumbleError] | None:
        """Load one more batch, look whether it is there once or not at all; the error, if there was one."""
        number, failure = self.next, None
        self.next += 1
        try:
            loaded(self.client, number)
        except ScumbleError as error:
            failure = type(error)
        self.proxy.forget()
        if answers_right(self.client, [*self.there, number], QUERIES):
            self.there.append(number)
        elif self.there:
            assert failure is not None
            assert answers_right(self.client, self.there, QUERIES)
        return failure

    @property
    def last_is_there(self) -> bool:
        return self.there[-1] == self.next - 1


def at(step: str, meddle: Meddle) -> Meddle:
    """Meddle with one step of the next load."""
    holding: set[str] = set()
    left, done = [0], [False]

    def chosen(request: Request, forward: Forward) -> Answer:
        if request.kind == "hold":
            holding.add(request.session)
            left[0] = 0 if done[0] else STEPS.index(step) + 1
        if request.kind == "request" and request.session in holding and left[0]:
            left[0] -= 1
            done[0] = not left[0]
            if done[0]:
                return meddle(request, forward)
        return forward(request)

    return chosen


@pytest.fixture(scope="module")
def loads(service: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loads]:
    keys = tmp_path_factory.mktemp("loads")
    with meddling(service.port) as proxy, proxy.create("loads", keys, limit=1000) as client:
        made = Loads(proxy, client)
        assert made.load() is None
        yield made


def _twice(request: Request, forward: Forward) -> Answer:
    first = forward(request)
    assert forward(request).status == 400
    return first


def _turned_away(request: Request, forward: Forward) -> Answer:
    forward(request)
    return Answer(429)


TRICKS = (dropped, unanswered, _twice, second, flipped_request(5), flipped_answer(5), _turned_away)
SURE = (dropped, unanswered, _twice)
"""After these, the client itself sees to it that the batch is there."""


@pytest.mark.parametrize("step", [*(pytest.param(step, marks=pytest.mark.slow) for step in STEPS[:-1]), "commit"])
@pytest.mark.parametrize("trick", TRICKS)
def test_a_batch_is_there_once_or_not_at_all(loads: Loads, step: str, trick: Meddle) -> None:
    loads.proxy.meddle = at(step, trick)
    failure = loads.load()
    assert (failure is None) or trick not in SURE
    assert loads.last_is_there or failure is not None


def test_a_commit_that_was_held_back_is_done_late_and_once(loads: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scumble.owner.versions.PAUSES_SECONDS", (0.0, 0.1))
    held, back = held_back()

    def never_leave(request: Request, forward: Forward) -> Answer:
        if request.kind == "hold" and held:  # as the service would say after a while
            return Answer(409, {}, b'{"error": "Busy", "message": "another load is writing", "hint": null}')
        return Answer(204) if request.kind in ("leave", "let_go") else holding_back(request, forward)

    holding_back = at("commit", back)
    loads.proxy.meddle = never_leave  # so that the first session stays, and keeps the right to write
    with pytest.raises(ScumbleError, match="another load"):
        loaded(loads.client, loads.next)
    loads.proxy.forget()
    assert [loads.client.sql(query).fetchall() for query in QUERIES[:1]] == [answer(QUERIES[0], loads.there)]
    late = loads.proxy.forward(held[0])
    assert late.status == 200  # it was never done before: now it is, once
    assert loads.proxy.forward(held[0]).status == 400
    loads.proxy.forward(replace(held[0], method="DELETE", path=held[0].path + "/writer", body=b""))
    loads.there.append(loads.next)
    loads.next += 1
    assert loads.load() is None  # and nothing else is there than all of these, each once


def test_a_build_that_is_cut_off_at_work_comes_to_nothing(tmp_path: Path) -> None:
    """It goes on to its end, but nobody signs what it has made: the client, who has no second look, is told so."""
    rows = 20_000
    building: list[threading.Thread] = []
    with serving(tmp_path / "served", "--enclaves", "1") as service, meddling(service.port) as proxy:
        (enclave,) = service.enclaves()
        runs = service.folder / "default" / "cut" / "runs"

        def written() -> dict[Path, int]:
            return {path: path.stat().st_mtime_ns for path in runs.glob("*.pages")}

        def stopped(request: Request, forward: Forward) -> Answer:
            building.append(threading.Thread(target=forward, args=(request,)))
            before = written()
            building[0].start()
            while building[0].is_alive() and written() == before:  # a request that was let go before it arrived is none
                time.sleep(0.001)
            os.kill(enclave, signal.SIGSTOP)
            raise Cut

        def going_on(request: Request, forward: Forward) -> Answer:
            done = stopping(request, forward)
            if request.kind == "let_go":
                os.kill(enclave, signal.SIGCONT)
            return done

        stopping = at("build", stopped)
        with proxy.create("cut", tmp_path) as client:
            proxy.meddle = going_on
            try:
                with pytest.raises(Unfinished, match="the rows are not in the table"):
                    client.load("t", batch(0, rows).to_reader(), **{**OPTIONS, "capacity": rows})
            finally:
                os.kill(enclave, signal.SIGCONT)
            building[0].join()
            assert client.tables == ()
            spent = client.ledger.spent()
            assert client.load("t", batch(0, rows), **{**OPTIONS, "capacity": rows}).retried
            assert client.ledger.spent() == spent
            assert client.sql("SELECT count(*) FROM t").fetchall() == [(rows,)]


def test_a_commit_after_the_client_has_loaded_anew_changes_nothing(loads: Loads) -> None:
    held, back = held_back()

    def stay(request: Request, forward: Forward) -> Answer:
        return Answer(204) if request.kind == "leave" else holding_back(request, forward)

    holding_back = at("commit", back)
    loads.proxy.meddle = stay
    assert loads.load() is None
    assert loads.last_is_there
    late = loads.proxy.forward(held[0])
    assert late.status in (200, 503)  # inside, an error: the session does not hold the database any more
    assert answers_right(loads.client, loads.there, QUERIES)


def test_a_lost_lease_is_an_error_and_nothing_is_loaded(loads: Loads) -> None:
    def pretend(request: Request, forward: Forward) -> Answer:
        return Answer(204) if request.kind == "hold" else forward(request)

    loads.proxy.meddle = pretend
    assert loads.load() is not None
    assert not loads.last_is_there


def test_a_greeting_sent_again_makes_no_session(loads: Loads) -> None:
    answers: list[Answer] = []

    def thrice(request: Request, forward: Forward) -> Answer:
        if request.kind == "greet":
            answers.extend(forward(request) for _ in range(3))
            return answers[0]
        return forward(request)

    loads.client._versions.session.broken = True  # so that it connects anew
    loads.proxy.meddle = thrice
    assert answers_right(loads.client, loads.there)
    loads.proxy.forget()
    assert [each.status for each in answers] == [200, 503, 503]
    assert not [each for each in answers[1:] if "scumble-session" in each.headers]


def test_a_greeting_that_somebody_else_has_used_is_sent_anew_and_not_for_ever(loads: Loads) -> None:
    def used(request: Request, forward: Forward) -> Answer:
        if request.kind == "greet":
            forward(request)
        return forward(request)

    loads.client._versions.session.broken = True
    loads.proxy.meddle = once("greet", second)
    assert answers_right(loads.client, loads.there)
    loads.client._versions.session.broken = True
    loads.proxy.meddle = used
    with pytest.raises(Unavailable):
        loads.client.sql(QUERIES[0])
    loads.proxy.forget()
    assert answers_right(loads.client, loads.there)


def test_nothing_recorded_is_of_use_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path / "served", "--enclaves", "1") as service, meddling(service.port) as proxy:
        client = proxy.create("restarted", tmp_path)
        recorded = Loads(proxy, client)
        loaded(client)
        conversation = [request for request, _ in proxy.seen]
        sessions = {request.session for request in conversation if request.kind == "request"}
        proxy.forget()
        with _killed_and_started(service):
            for request in conversation:
                replayed = proxy.forward(request)
                if request.kind in ("greet", "request", "hold", "tidy"):
                    assert replayed.status in (400, 409, 503), request.kind
            assert sessions
            recorded.there, recorded.next = [0], 1
            assert recorded.load() is None
            assert recorded.last_is_there
        client.close()


@contextmanager
def _killed_and_started(service: Serving) -> Iterator[None]:
    """The same service once more, after it was killed."""
    service.process.kill()
    service.process.wait()
    with serving(service.folder, "--enclaves", "1", port=service.port):
        yield


def test_a_greeting_for_one_enclave_does_not_open_in_another(loads: Loads) -> None:
    enclaves: set[str] = set()
    for _ in range(4):
        attested = loads.proxy.forward(Request("POST", "/v1/attest", {}, bytes(32)))
        enclaves.add(attested.headers["scumble-enclave"])
        if len(enclaves) == 1:  # the next one goes to the one with fewer sessions
            loads.client._versions.session.broken = True
            assert answers_right(loads.client, loads.there)
    greeting = loads.proxy.sent("greet")[-1]
    for enclave in enclaves | {"00" * 8}:
        if bytes.fromhex(enclave) != greeting.body[:8]:
            sent = replace(greeting, body=bytes.fromhex(enclave) + greeting.body[8:])
            assert loads.proxy.forward(sent).status in (400, 503)


def test_unavailable_is_what_a_load_says_whose_end_is_never_known(
    loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scumble.owner.versions.PAUSES_SECONDS", (0.0, 0.1))

    def gone(request: Request, forward: Forward) -> Answer:
        loads.proxy.meddle = dropped
        raise Cut

    loads.proxy.meddle = at("commit", gone)
    assert loads.load() is Unfinished
    assert not loads.last_is_there
