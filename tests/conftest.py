"""For all tests: no deadlines, since no test asserts a speed; temporary folders in memory; a ledger's path; servers."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from fronts import Fronting, Provider

    from scumble.gateway.config import DatabaseConfig
    from scumble.gateway.server import Gateway
    from scumble.provider.fleet import Fleet
    from serving import Serving

settings.register_profile("scumble", deadline=None)
settings.load_profile("scumble")
# Without this most tests would mostly wait for fsync. A small file system in memory, as containers have, is left alone.
MEMORY = Path("/dev/shm")  # noqa: S108
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
# What a shell starts in the background ignores Ctrl-C, and so would the programs that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes an attacker long takes tests long, too; `test_key_file` tries the cost that is shipped."""
    monkeypatch.setattr("scumble.owner.key_file.SCRYPT_COST", 2**4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.ledger"


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Serving]":
    """A provider's service, for all tests of this process that do it no harm."""
    from serving import serving

    with serving(tmp_path_factory.mktemp("service") / "served") as running:
        yield running


@pytest.fixture(scope="session")
def impatient_front(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Fronting]":
    """A provider's front that waits for nobody."""
    from fronts import impatient

    with impatient(tmp_path_factory.mktemp("front") / "served") as running:
        yield running


@pytest.fixture
def front(impatient_front: "Fronting") -> "Iterator[Fronting]":
    """The same, which is as well after the test as before."""
    with impatient_front.unharmed():
        yield impatient_front


@pytest.fixture(scope="session")
def fleet() -> "Iterator[Fleet]":
    """Two enclave processes, behind which each test has databases of its own."""
    from scumble.provider.fleet import Fleet

    running = Fleet(2, "simulated")
    yield running
    running.close()


@pytest.fixture
def liar(fleet: "Fleet", tmp_path: Path) -> "Iterator[Provider]":
    """A front of these processes, which lies about storage and who may write."""
    from fronts import provider

    with provider(tmp_path, fleet) as made:
        yield made


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, DatabaseConfig]":
    from gateway_setup import make_databases

    return make_databases(tmp_path_factory.mktemp("gateway"))


@pytest.fixture(scope="session")
def gateway(sources: "dict[str, DatabaseConfig]") -> "Iterator[Gateway]":
    from gateway_setup import running

    with running(sources) as (opened, _):
        yield opened
