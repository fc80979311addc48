"""A build that is made again: the same batch of the same rows gives the same release, whatever was lost before.

The provider cannot have noise drawn anew by killing what has drawn it. Any other rows get noise of their own.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import scumble
from scumble.enclave.dummies import Dummies
from scumble.enclave.loads import Load
from scumble.errors import Unavailable
from scumble.owner import database as owner_database
from scumble.owner import versions as owner_versions
from scumble.owner.database import Database
from scumble.store.files import FileStore
from scumble.wire.catalog import Run

INDEXES = ["k int:0:99 epsilon=0.01", "j int:0:9 epsilon=0.01 slack=lossless"]
CAPACITY_EPSILON = "0.001"  # so little that no two draws agree

Released = tuple[int, tuple[bytes | None, ...]]


def rows(changed: int = 0) -> pa.Table:
    return pa.table({"k": [place % 90 for place in range(200)] + [changed], "j": [place % 10 for place in range(201)]})


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Released]:
    """What every build has released, the ones included whose answers were lost: the capacity, and the indexes."""
    found: list[Released] = []
    original = Load.build

    def build(load: Load, *more: Any) -> tuple[tuple[Run, Dummies], ...]:
        runs = original(load, *more)
        found.append((runs[0][0].capacity, tuple(run.index for run, _ in runs)))
        return runs

    monkeypatch.setattr(Load, "build", build)
    monkeypatch.setattr(owner_versions, "PAUSES_SECONDS", (0, 0, 0))
    monkeypatch.setattr(owner_versions, "UNFINISHED_SECONDS", 0.1)
    return found


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with scumble.create(tmp_path / "db", limit=1000, delta_limit="0.5") as made:
        yield made


def _load(db: Database, table: str, source: Any) -> None:
    db.load(table, source, indexes=INDEXES, capacity_epsilon=CAPACITY_EPSILON, page_rows=16)


def _gone() -> Unavailable:
    return Unavailable("the enclave was killed", hint="connect again")


def _before_the_commit(store: Path, original: Callable[..., None], *given: Any) -> None:
    raise _gone()


def _after_the_commit(store: Path, original: Callable[..., None], *given: Any) -> None:
    """The provider commits, kills the enclave, and puts the folder back to where it was."""
    kept = store.parent / "kept"
    shutil.copytree(store, kept)
    original(*given)
    for name in ("HEAD", "manifests"):
        there = store / name
        shutil.rmtree(there) if there.is_dir() else there.unlink()
        (shutil.copytree if (kept / name).is_dir() else shutil.copy)(kept / name, there)
    shutil.rmtree(kept)
    raise _gone()


@pytest.mark.parametrize("lose", [_before_the_commit, _after_the_commit])
def test_a_build_that_was_lost_is_made_again_and_is_the_same(
    db: Database, built: list[Released], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lose: Any
) -> None:
    losses, original = owner_database.LOAD_TRIES - 1, FileStore.commit

    def commit(store: FileStore, *given: Any) -> None:
        nonlocal losses
        if built and losses:
            losses -= 1
            lose(tmp_path / "db", lambda *more: original(store, *more), *given)
        else:
            original(store, *given)

    monkeypatch.setattr(FileStore, "commit", commit)
    _load(db, "t", rows())
    assert len(built) >= 1
    assert len(set(built)) == 1
    ((count,),) = db.sql("SELECT count(*) FROM t").fetchall()
    assert count == 201


def test_an_enclave_that_dies_after_every_build_draws_no_other_noise(
    db: Database, built: list[Released], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Load.build

    def killed(load: Load, *more: Any) -> tuple[tuple[Run, Dummies], ...]:
        runs = original(load, *more)
        if len(built) < owner_database.LOAD_TRIES:
            raise _gone()
        return runs

    monkeypatch.setattr(Load, "build", killed)
    _load(db, "t", rows())
    assert len(built) == owner_database.LOAD_TRIES > 1
    assert len(set(built)) == 1
