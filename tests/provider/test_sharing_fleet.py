"""Enclaves that die, and others that take their place: what owners have unlocked stays so while one of them lives."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fronts import provider, until
from meddling import Meddling, Request, meddling
from sample_rows import OPTIONS, QUERIES, answers_right, batch, loaded

import scumble
from scumble.errors import Locked, Refused, Unavailable
from scumble.owner import versions
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.owner.remote.address import Address
from scumble.owner.remote.service import RemoteService, Transport
from scumble.owner.session import Session
from scumble.provider.fleet import EnclaveProcess, Fleet, Serve
from scumble.wire.pipe import Attest, Bytes, Job
from serving import Serving, serving

Shared = tuple[Serving, Meddling, Path]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A service of two enclaves with a database in it, which its owner has left."""
    folder = tmp_path_factory.mktemp("sharing")
    with serving(folder / "served", "--enclaves", "2") as service, meddling(service.port) as proxy:
        with proxy.create("clinic", folder) as owner:
            loaded(owner)
            owner.grant("ada", AnalystKey.create(folder / "ada.key", None).text, ["t"])
        yield service, proxy, folder


def _enclave(proxy: Meddling) -> str:
    return proxy.answered("attest")[-1].headers["scumble-enclave"]


def _answered(database: scumble.Database) -> bool:
    try:
        return bool(database.sql(QUERIES[0]).fetchall())
    except Unavailable:
        return False


def _everywhere(proxy: Meddling, folder: Path) -> set[str]:
    """The enclaves that an analyst gets to, who opens several sessions and asks in each."""
    reached, kept = set(), []
    try:
        for _ in range(4):  # each goes to the enclave with the fewest sessions
            kept.append(proxy.open("clinic", folder, "ada.key"))
            assert answers_right(kept[-1])
            reached.add(_enclave(proxy))
    finally:
        for each in kept:
            each.close()
    return reached


def test_an_analyst_may_connect_to_any_enclave(shared: Shared) -> None:
    _, proxy, folder = shared
    assert len(_everywhere(proxy, folder)) == 2


def test_a_revocation_reaches_running_sessions_in_every_enclave(shared: Shared) -> None:
    _, proxy, folder = shared
    with proxy.open("clinic", folder) as owner:
        at = _enclave(proxy)
        owner.grant("rita", AnalystKey.create(folder / "rita.key", None).text, ["t"])
        ritas: dict[str, scumble.Database] = {}
        try:
            for _ in range(8):
                rita = proxy.open("clinic", folder, "rita.key")
                if ritas.setdefault(_enclave(proxy), rita) is not rita:
                    rita.close()
            assert len(ritas) == 2
            assert at in ritas
            assert all(map(answers_right, ritas.values()))
            owner.revoke("rita")
            for rita in ritas.values():
                with pytest.raises(Refused):
                    rita.sql(QUERIES[0])
                with pytest.raises(Refused):
                    rita.tables  # noqa: B018  to look is to ask
        finally:
            for rita in ritas.values():
                rita.close()
    with pytest.raises(Refused):
        proxy.open("clinic", folder, "rita.key")


def test_whoever_takes_a_dead_ones_place_knows_what_it_knew(shared: Shared) -> None:
    service, proxy, folder = shared
    with proxy.open("clinic", folder, "ada.key") as ada:
        for _ in range(2):  # one after the other: in the end none is left that the owner has talked to
            before = set(service.enclaves())
            os.kill(min(before), signal.SIGKILL)
            assert answers_right(ada)
            until(lambda known=before: len(set(service.enclaves()) - known) == 1)  # type: ignore[misc]
            until(lambda: '"enclave shared"' in service.log())
            until(lambda: len(_everywhere(proxy, folder)) == 2)


def test_when_all_die_at_once_the_owner_has_to_come_again(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    service, proxy, folder = shared
    with proxy.open("clinic", folder, "ada.key") as ada:
        for number in service.enclaves():
            os.kill(number, signal.SIGSTOP)  # so that none can tell another
        for number in service.enclaves():
            os.kill(number, signal.SIGKILL)
        with monkeypatch.context() as patch:
            patch.setattr(versions, "LOCKED_SECONDS", 0.5)
            with pytest.raises(Locked, match="its owner has to connect"):
                until(lambda: _answered(ada))
        with pytest.raises(Locked):
            proxy.open("clinic", folder, "ada.key")
        with proxy.open("clinic", folder) as owner:
            assert answers_right(owner)
        assert answers_right(ada)
    until(lambda: len(service.enclaves()) == 2)
    until(lambda: len(_everywhere(proxy, folder)) == 2)


def test_a_stranger_cannot_hold_a_locked_database_for_writing(shared: Shared) -> None:
    """Before the owner comes again, no enclave could tell that a stranger's key is the wrong one."""
    service, proxy, folder = shared
    for number in service.enclaves():
        os.kill(number, signal.SIGKILL)
    address = Address.parse(proxy.url("clinic"))
    strange = RemoteService(address, Transport(address), lambda evidence, stated: None)  # type: ignore[arg-type, return-value]
    with closing(strange):
        session = _greeted(strange)
        path = f"/v1/default/clinic/sessions/{session}/writer"
        assert proxy.forward(Request("PUT", path, {}, b"")).status == 404
        with proxy.open("clinic", folder) as owner:
            owner.load("u", batch(1), **OPTIONS)
            assert answers_right(owner)


def _greeted(service: RemoteService) -> int:
    """The number of a session with a signer and a data key that nobody knows, as soon as there is an enclave."""
    made: list[int] = []

    def greet() -> bool:
        with suppress(Unavailable):
            made.append(Session(service, service.describe(), Ed25519PrivateKey.generate(), bytes(32))._number)
        return bool(made)

    until(greet)
    return made[0]


def test_nothing_that_passes_through_the_front_has_a_key_in_it(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[bytes] = []
    job = EnclaveProcess.job

    def noted(
        self: EnclaveProcess, asked: Job[object], body: Bytes = b"", serve: Serve | None = None
    ) -> tuple[object, Bytes]:
        fact, answer = job(self, asked, body, serve)
        passed.extend([repr(asked).encode(), bytes(body), repr(fact).encode(), bytes(answer)])
        return fact, answer

    monkeypatch.setattr(EnclaveProcess, "job", noted)
    with provider(tmp_path, fleet) as made, made.begin("keys") as owner:
        loaded(owner)
        owner.grant("ada", made.identity("ada"), ["t"])
        made.fleet.share()
        with made.analyst("ada", "keys", 1) as ada:
            assert answers_right(ada)
    key = OwnerKey.open(tmp_path / "keys.key")
    carried = b"\n".join(passed)
    assert len(passed) > 40
    data_key = key.data_key()
    for secret in (data_key, key.root, ada._versions.key.root):
        assert secret not in carried
        assert secret.hex().encode() not in carried
    for text in (b"scumble shared", b'"task"', b"name 3"):
        assert text not in carried


def test_whoever_waits_for_a_process_that_dies_learns_it_at_once() -> None:
    process = EnclaveProcess("simulated")
    try:
        process.job(Attest(), bytes(32))
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # until then it may still answer
        with ThreadPoolExecutor(4) as threads:  # one of them has the pipe, and the others wait for it
            asked = [threads.submit(process.job, Attest(), bytes(32)) for _ in range(4)]
            time.sleep(0.2)
            os.kill(process.pid, signal.SIGKILL)
            for each in asked:
                with pytest.raises(Unavailable, match="has ended"):
                    each.result(20)
        assert not process.alive
    finally:
        process.close()
