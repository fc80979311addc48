"""A small database that bad input must leave as it was; for the tests of everything that is refused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from databases import clean_files, copy, counted, create, expected, files, load, reopen, stored, sums

from scumble.errors import ScumbleError
from scumble.owner.database import Database

MARKER = "PlantedQuokka"
NUMBER = 7_307_011_997_531


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("origin")
    with create(home) as db:
        load(db, "t")
    return home


@pytest.fixture
def home(origin: Path, tmp_path: Path) -> Path:
    copy(origin, tmp_path / "home")
    return tmp_path / "home"


@contextmanager
def refused(error: type[ScumbleError], match: str | None = None) -> Iterator[pytest.ExceptionInfo[ScumbleError]]:
    """What is inside raises such an error, with a hint."""
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert caught.value.hint


def states(db: Database) -> list[str]:
    return [entry.state for entry in db.ledger.entries()]


def check_nothing_spent_or_left(home: Path, db: Database) -> None:
    assert states(db)[:2] == ["drawn", "drawn"]
    assert set(states(db)[2:]) <= {"cancelled"}
    assert db.ledger.spent() == 2
    assert files(home) == clean_files(home, db)


def check_as_before(home: Path) -> None:
    """Who opens the database anew finds everything, and can load; to be called at the end of a test."""
    with reopen(home) as db:
        assert stored(db, "t") == expected(1)
        db.check()
        check_nothing_spent_or_left(home, db)
    copy(home, home.with_name("copy"))
    with reopen(home.with_name("copy")) as db:
        load(db, "t", seed=2)
        assert stored(db, "t") == expected(1, 2)


class Unharmed(NamedTuple):
    """An open database, and the folder that it is in."""

    home: Path
    db: Database

    def refuses(self, use: Callable[[Database], object], error: type[ScumbleError], *words: str) -> str:
        """It is refused in such words, costs nothing and leaves nothing, and the same object goes on working."""
        with refused(error) as caught:
            use(self.db)
        assert caught.type is error
        text = str(caught.value)
        for word in words:
            assert word in text
        assert counted(self.db, "t") == sums(1)
        check_nothing_spent_or_left(self.home, self.db)
        return text


@pytest.fixture(scope="module")
def unharmed(origin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unharmed]:
    """One for all tests that leave it as it was; after the last of them, who opens it anew finds it so."""
    home = tmp_path_factory.mktemp("unharmed") / "home"
    copy(origin, home)
    with reopen(home) as db:
        yield Unharmed(home, db)
    check_as_before(home)
