"""Databases at a service, made and opened: an address and a key file come in, a `Database` goes out.

Before any secret leaves, the enclave's evidence is verified against the pin beside the key file, or `measurement`.
"""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from scumble.attestation import Evidence, Policy, Verdict, verify
from scumble.errors import Busy, FileError, InvalidParameter
from scumble.owner import key_file
from scumble.owner.beginning import begin_key
from scumble.owner.database import Database
from scumble.owner.identity import open_any
from scumble.owner.key_file import Passphrase
from scumble.owner.remote.address import Address
from scumble.owner.remote.pins import Pins, Trust, measurement_of, pins_path
from scumble.owner.remote.service import RemoteService, Transport
from scumble.privacy.amounts import Exact

__all__ = ["Connecting", "create", "key_path", "open_at", "verified"]

TOKEN_VARIABLE = "SCUMBLE_TOKEN"  # noqa: S105  its name


@dataclass(frozen=True)
class Connecting:
    """How to connect: which code to trust, and how long to wait.

    `measurement` is the code's, in hexadecimal digits; without it the first one that is proved is pinned.
    `insecure_simulated_enclave` takes evidence that proves nothing: whoever runs the service can then read everything.
    """

    measurement: str | None = None
    insecure_simulated_enclave: bool = False
    timeout_seconds: float = 300.0
    connect_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.timeout_seconds <= 0 or self.connect_seconds <= 0:
            raise InvalidParameter("a time-out is a positive number of seconds", hint="300 is usual")
        if self.measurement is not None:
            object.__setattr__(self, "measurement", measurement_of(self.measurement))


def create(
    url: str,
    *,
    key: str | os.PathLike[str] | None = None,
    passphrase: Passphrase = None,
    limit: Exact = 4,
    delta_limit: Exact = "1e-6",
    token: str | None = None,
    connecting: Connecting | None = None,
) -> Database:
    """Have an empty database made at a service; its key file and ledger are made here, and the database is opened.

    `token` is the tenant's, from the provider; without it SCUMBLE_TOKEN has it.
    """
    address, keys = Address.parse(url), key_path(url, key)
    verified(address, connecting or Connecting())  # before there is a key file for a database that cannot be made
    owner_key = begin_key(keys, passphrase, limit, delta_limit)
    service, trust = _service(address, keys, connecting or Connecting())
    with _closed_on_failure(service):
        trust.expect(owner_key.database)
        service.create(owner_key.database, os.environ.get(TOKEN_VARIABLE, "") if token is None else token)
        return Database.begin(service, owner_key, keys)


def open_at(
    url: str,
    *,
    key: str | os.PathLike[str] | None = None,
    passphrase: Passphrase = None,
    accept_restored: bool = False,
    owner: str | None = None,
    connecting: Connecting | None = None,
) -> Database:
    """Open a database at a service, as its owner or as an analyst.

    The key file is as given, or SCUMBLE_KEY, or NAME.key in this folder. An analyst may name the public key of the
    owner that it expects; without it the first one that it meets is remembered.
    """
    keys = key_path(url, key)
    service, trust = _service(Address.parse(url), keys, connecting or Connecting())
    with _closed_on_failure(service):
        database = service.describe()
        opener = open_any(keys, database, passphrase)
        trust.expect(database)
        opened = Database(service, opener, keys, accept_restored=accept_restored, owner=owner)
    if opener.next_root is not None:
        with suppress(Busy, FileError):  # a rekey that is under way elsewhere is not one that was cut short
            opened.settle_key(passphrase)
    return opened


def verified(address: Address, connecting: Connecting) -> Verdict:
    """What an enclave at an address proves of itself; AttestationRefused if it proves nothing that is trusted."""
    verdicts: list[Verdict] = []
    policy = Policy(
        measurements=None if connecting.measurement is None else frozenset([connecting.measurement]),
        allow_simulated=connecting.insecure_simulated_enclave,
    )

    def trusted(evidence: Evidence, report_data: bytes) -> Verdict:
        verdicts.append(verify(evidence, report_data=report_data, policy=policy))
        return verdicts[-1]

    transport = Transport(address, connecting.timeout_seconds, connecting.connect_seconds)
    with closing(RemoteService(address, transport, trusted)) as service:
        service.prove()
    return verdicts[-1]


def key_path(url: str, given: str | os.PathLike[str] | None) -> Path:
    """Where the key file of a database at a service is."""
    return key_file.key_path(Path(Address.parse(url).database), None if given is None else Path(given))


def _service(address: Address, keys: Path, connecting: Connecting) -> tuple[RemoteService, Trust]:
    trust = Trust(
        address,
        Pins(pins_path(keys)),
        measurement=connecting.measurement,
        allow_simulated=connecting.insecure_simulated_enclave,
    )
    transport = Transport(address, connecting.timeout_seconds, connecting.connect_seconds)
    return RemoteService(address, transport, trust), trust


@contextmanager
def _closed_on_failure(service: RemoteService) -> Iterator[None]:
    try:
        yield
    except BaseException:
        service.close()
        raise
