"""A man in the middle who does anything at any time, over many exchanges: no wrong answer, no batch twice or half.

Two owners' clients and an analyst load and query through it. Every answer has to be DuckDB's for a version that is not
older than what the client has seen before; after every load the batch is there once, or, after an error, not at all.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from meddling import Answer, Forward, Meddling, Request, dropped, flipped, meddling, second, unanswered
from sample_rows import QUERIES, answer, answers_right, is_right, loaded

import scumble
from scumble.errors import ScumbleError
from scumble.owner.keys import AnalystKey
from serving import Serving

ODDS = (0.02, 0.1, 0.3)
"""How often something is done to an exchange: one of these, chosen anew for each step."""
RECENT = 50
HEADERS = ("scumble-stamp", "scumble-session", "scumble-enclave", "scumble-database", "content-type")


class Meddler:
    """Does something at random with some of the requests; what it does follows from the seed."""

    def __init__(self, seed: int, proxy: Meddling) -> None:
        self.random, self._proxy = random.Random(seed), proxy  # noqa: S311  no secret
        self.done: dict[str, int] = {}
        self.odds = 0.0
        self._tricks: tuple[Callable[[Request, Forward], Answer], ...] = (
            dropped, unanswered, self.twice, second, self.replay_before, self.replay_after,
            self.old_answer, self.older_answer, self.flip, self.flip_answer, self.cut, self.cut_answer,
            self.close_early, self.garbage, self.other_session, self.refuse, self.turn_away, self.header,
            self.late_replay,
        )  # fmt: skip

    def __call__(self, request: Request, forward: Forward) -> Answer:
        if self.random.random() >= self.odds:
            return forward(request)
        trick = self.random.choice(self._tricks)
        self.done[trick.__name__] = self.done.get(trick.__name__, 0) + 1
        return trick(request, forward)

    def _some(self, request: Request) -> tuple[Request, Answer]:
        seen = [(asked, given) for asked, given in self._proxy.seen[-RECENT:] if given is not None]
        alike = [each for each in seen if each[0].kind == request.kind]
        return self.random.choice(alike or seen or [(request, Answer(200))])

    def twice(self, request: Request, forward: Forward) -> Answer:
        first = forward(request)
        forward(request)
        return first

    def replay_before(self, request: Request, forward: Forward) -> Answer:
        forward(self._some(request)[0])
        return forward(request)

    def replay_after(self, request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        forward(self._some(request)[0])
        return answer

    def late_replay(self, request: Request, forward: Forward) -> Answer:
        """Everything recent once more, in another order."""
        recent = [asked for asked, _ in self._proxy.seen[-8:] if asked.kind != "leave"]
        self.random.shuffle(recent)
        for asked in recent:
            forward(asked)
        return forward(request)

    def old_answer(self, request: Request, forward: Forward) -> Answer:
        return self._some(request)[1]

    def older_answer(self, request: Request, forward: Forward) -> Answer:
        forward(request)
        return self._some(request)[1]

    def flip(self, request: Request, forward: Forward) -> Answer:
        return forward(replace(request, body=flipped(request.body, self.random.randrange(1 << 16))))

    def flip_answer(self, request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        return replace(answer, body=flipped(answer.body, self.random.randrange(1 << 16)))

    def cut(self, request: Request, forward: Forward) -> Answer:
        return forward(replace(request, body=request.body[: self.random.randrange(len(request.body) + 1)]))

    def cut_answer(self, request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        return replace(answer, body=answer.body[: self.random.randrange(len(answer.body) + 1)])

    def close_early(self, request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        return replace(answer, sent=self.random.randrange(len(answer.body) + 1))

    def garbage(self, request: Request, forward: Forward) -> Answer:
        return Answer(self.random.choice((200, 201, 204, 301, 404, 500)), {}, self.random.randbytes(300))

    def refuse(self, request: Request, forward: Forward) -> Answer:
        kind = self.random.choice(
            ("Stale", "Busy", "NotFound", "Tampered", "Unavailable", "Exists", "Refused", "Locked")
        )
        return Answer(409, {}, f'{{"error": "{kind}", "message": "so it says", "hint": null}}'.encode())

    def turn_away(self, request: Request, forward: Forward) -> Answer:
        if self.random.random() < 0.5:
            forward(request)
        return Answer(429)

    def other_session(self, request: Request, forward: Forward) -> Answer:
        sessions = [asked.session for asked, _ in self._proxy.seen[-RECENT:] if asked.kind == "request"]
        if request.kind not in ("request", "hold", "tidy") or not sessions:
            return forward(request)
        return forward(replace(request, path=request.path.replace(request.session, self.random.choice(sessions))))

    def header(self, request: Request, forward: Forward) -> Answer:
        answer, name = forward(request), self.random.choice(HEADERS)
        others = {each: value for each, value in answer.headers.items() if each != name}
        value = self.random.choice((None, "", "7", self._some(request)[1].headers.get(name, "x")))
        return replace(answer, headers=others if value is None else others | {name: value})


@dataclass
class Model:
    """What may be there: the versions, as lists of batches; and how far each client is known to be."""

    versions: list[list[int]]
    seen: dict[str, int] = field(default_factory=dict)
    right: int = 0
    errors: int = 0

    def check(self, who: str, query: str, found: list[tuple[Any, ...]]) -> None:
        """An answer has to be that of a version which is not older than what this client has seen."""
        for place in range(len(self.versions) - 1, self.seen.get(who, 0) - 1, -1):
            if is_right(found, answer(query, self.versions[place])):
                self.seen[who], self.right = place, self.right + 1
                return
        raise AssertionError(f"{who} got a wrong answer")

    def loaded(self, who: str, number: int) -> None:
        self.versions.append([*self.versions[-1], number])
        self.seen[who] = len(self.versions) - 1


def _meddled(service: Serving, folder: Path, seed: int, seconds: float, steps: int) -> tuple[Model, dict[str, int]]:
    name, deadline = f"random{seed}", time.monotonic() + seconds
    with meddling(service.port) as proxy, proxy.create(name, folder, limit=1000) as one:
        loaded(one)
        one.grant("ada", AnalystKey.create(folder / f"ada{seed}.key", None).text, ["t"])
        with (
            proxy.open(name, folder) as two,
            proxy.open(name, folder, f"ada{seed}.key") as ada,
            service.open(name, folder) as witness,
        ):
            clients, model, meddler = {"one": one, "two": two, "ada": ada}, Model([[0]]), Meddler(seed, proxy)
            for step in range(steps):
                if time.monotonic() > deadline:
                    break
                who = meddler.random.choice(list(clients))
                proxy.meddle, meddler.odds = meddler, meddler.random.choice(ODDS)
                if who != "ada" and meddler.random.random() < 0.15:
                    _load(clients[who], who, step + 1, model, proxy, witness)
                else:
                    _query(clients[who], who, meddler.random.choice(QUERIES), model)
            proxy.forget()
            for who, client in clients.items():
                assert _settled(client, who, model)
    return model, meddler.done


def _query(client: scumble.Database, who: str, query: str, model: Model) -> None:
    try:
        found = client.sql(query).fetchall()
    except ScumbleError:
        model.errors += 1
        return
    model.check(who, query, found)


def _load(
    client: scumble.Database, who: str, number: int, model: Model, proxy: Meddling, witness: scumble.Database
) -> None:
    """Load a batch; somebody with an undisturbed line looks whether it is there."""
    failed = False
    try:
        loaded(client, number)
    except ScumbleError:
        model.errors, failed = model.errors + 1, True
    proxy.forget()
    before, after = model.versions[-1], [*model.versions[-1], number]
    witness.sql(QUERIES[0])
    if answers_right(witness, after, QUERIES):
        model.loaded("nobody" if failed else who, number)
        return
    assert failed
    assert answers_right(witness, before, QUERIES)


def _settled(client: scumble.Database, who: str, model: Model) -> bool:
    """Whether a client gets on by itself once nobody meddles any more, and sees the newest version."""
    for _ in range(3):
        _query(client, who, QUERIES[3], model)
    return model.seen[who] == len(model.versions) - 1


def test_whatever_is_done_on_the_way_no_answer_is_wrong(service: Serving, tmp_path: Path) -> None:
    model, done = _meddled(service, tmp_path, seed=6, seconds=10, steps=120)
    assert model.right > 5
    assert model.errors > 2
    assert len(model.versions) > 1
    assert len(done) > 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 13))
def test_however_long_it_is_done_no_answer_is_wrong(service: Serving, tmp_path: Path, seed: int) -> None:
    model, _ = _meddled(service, tmp_path, seed, seconds=45, steps=2000)
    assert model.right > 100
