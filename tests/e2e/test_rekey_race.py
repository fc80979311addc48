"""A rekey while others read: at no step of either does anybody see tampering where there is none.

Both orders are forced, step by step, with no thread and no luck: another client asks at every step of a rekey, and a
whole rekey runs at every step of another client's question.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from clinics import INDEX, Clinic, clinic, rows

import scumble
from scumble.owner import anchor, key_file, keys, session, versions
from scumble.store.files import FileStore

__all__ = ["clinic"]

COUNT = "SELECT count(*), sum(k) FROM t WHERE k < 50"
EXPECTED = (40, 780)

STEPS: list[tuple[Any, str]] = [
    (anchor, "replace_file"),
    (anchor, "read_small"),
    (key_file, "replace_file"),
    (key_file, "fingerprint"),
    (keys.OwnerKey, "save"),
    (versions, "open_key"),
    (session.Session, "ask"),
]
"""Everything of its own that a client reads or writes, and all that it asks, while a rekey changes it."""
STORE: list[tuple[Any, str]] = [(FileStore, "commit"), (FileStore, "drop_unreferenced")]
"""The same of the provider, whose enclave lets nobody else in meanwhile."""


@contextmanager
def at_each_step(
    monkeypatch: pytest.MonkeyPatch, do: Callable[[int], None], steps: list[tuple[Any, str]]
) -> Iterator[list[int]]:
    """Call `do` before and after each step, with its number, but for the steps that this itself takes."""
    count, inside = [0], [False]

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            meddle()
            try:
                return original(*given, **named)
            finally:
                meddle()

        return step

    def meddle() -> None:
        if not inside[0]:
            inside[0] = True
            try:
                do(count[0])
                count[0] += 1
            finally:
                inside[0] = False

    with monkeypatch.context() as patched:
        for owner, name in steps:
            patched.setattr(owner, name, wrapped(getattr(owner, name)))
        yield count


def _database(home: Path) -> None:
    with scumble.create(home / "db", limit=10) as db:
        db.load("t", rows(40), indexes=INDEX, capacity=64, page_rows=16)


def test_a_question_at_every_step_of_a_rekey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a client that was there before, and by one that has just come."""
    _database(tmp_path)
    with scumble.open(tmp_path / "db") as rekeying, scumble.open(tmp_path / "db") as reader:

        def ask(_: int) -> None:
            assert reader.sql(COUNT).fetchone() == EXPECTED
            with scumble.open(tmp_path / "db") as newcomer:
                assert newcomer.sql(COUNT).fetchone() == EXPECTED

        with at_each_step(monkeypatch, ask, STEPS + STORE) as steps:
            rekeying.rekey()
        assert steps[0] > 20
        assert rekeying.sql(COUNT).fetchone() == EXPECTED


@pytest.mark.parametrize("newcomer", [False, True])
def test_a_rekey_at_every_step_of_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newcomer: bool) -> None:
    _database(tmp_path)
    with scumble.open(tmp_path / "db") as rekeying:
        at, steps = 0, [1]
        while at < steps[0]:

            def rekey(step: int, at: int = at) -> None:
                if step == at:
                    rekeying.rekey()

            with ExitStack() as opened:
                if not newcomer:
                    reader = opened.enter_context(scumble.open(tmp_path / "db"))
                    rekeying.rekey()  # so that the question finds something new
                with at_each_step(monkeypatch, rekey, STEPS) as steps:
                    if newcomer:
                        reader = opened.enter_context(scumble.open(tmp_path / "db"))
                    assert reader.sql(COUNT).fetchone() == EXPECTED
            at += 1
        assert at > 5


def test_analysts_ask_at_every_step_of_a_rekey(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    count = "SELECT count(*), sum(k) FROM visits"
    with clinic.analyst("ada") as ada:

        def ask(_: int) -> None:
            assert ada.sql(count).fetchone() == EXPECTED
            with clinic.analyst("ada") as newcomer:
                assert newcomer.sql(count).fetchone() == EXPECTED

        with at_each_step(monkeypatch, ask, STEPS) as steps:
            clinic.owner.rekey()
        assert steps[0] > 20
