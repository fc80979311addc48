"""Pins: which code a client has trusted at an address, in a file beside its key file. PUBLIC, and the client's own.

The first measurement that is proved at an address, or the one on the command line, is pinned; from then on only
evidence with that measurement is accepted. The kind of evidence and the database's id are pinned too, so that a
provider can neither fall back to a weaker kind nor put another database in the place of the first.
"""

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scumble import attestation
from scumble.attestation import Evidence, Policy, Verdict
from scumble.attestation.policy_document import SignedPolicy
from scumble.errors import AttestationRefused, FileError, InvalidParameter
from scumble.owner.key_file import beside, canonical, parse_canonical, read_small, replace_file
from scumble.owner.remote.address import Address

__all__ = ["Pin", "Pins", "Trust", "judged", "measurement_of", "pins_path"]


@dataclass(frozen=True)
class Pin:
    """PUBLIC: what was trusted at an address."""

    kind: str
    measurement: str
    database: str


def pins_path(key_path: Path) -> Path:
    """The pins' place: clinic.pins for clinic.key."""
    return beside(key_path, ".pins")


class Pins:
    """The pins in a file, by address."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, address: Address) -> Pin | None:
        found = self._load().get(str(address))
        return None if found is None else Pin(**found)

    def put(self, address: Address, pin: Pin) -> None:
        pins = self._load()
        if pins.get(str(address)) != asdict(pin):
            replace_file(self.path, canonical(pins | {str(address): asdict(pin)}))

    def _load(self) -> dict[str, Any]:
        try:
            data, _ = read_small(self.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise FileError(f"the pins {self.path} cannot be read: {error.strerror}", hint="check its mode") from None
        pins = parse_canonical(data)
        if pins is None or not all(_is_pin(pin) for pin in pins.values()):
            raise FileError(
                f"{self.path} does not read as pins", hint="delete it and give --measurement, or restore it"
            )
        return pins


class Trust:
    """Decides which evidence is accepted from an address: of the pinned code, or at the first use of any.

    It also has to meet the policy of the database's owner, as far as that is known, and the one that was `given`.
    """

    def __init__(
        self, address: Address, pins: Pins, *, measurement: str | None, allow_simulated: bool, given: Policy | None
    ) -> None:
        self._address, self._pins, self._allow_simulated = address, pins, allow_simulated
        self._measurement, self._given = measurement, given
        self._pin = pins.get(address)
        self._database = ""
        self._owners: SignedPolicy | None = None
        self._shown: tuple[Evidence, bytes] | None = None

    def expect(self, database: str, policy: SignedPolicy | None = None) -> None:
        """Say which database is to be there, and its owner's policy; AttestationRefused if another one was before."""
        if self._pin is not None and self._pin.database != database:
            raise AttestationRefused(
                f"there is another database at {self._address} than the one that was there before",
                hint=f"if that is meant, delete its lines in {self._pins.path}",
            )
        self._database, self._owners = database, policy

    def require(self, policy: SignedPolicy) -> None:
        """Hold the enclave that has proved itself against a newer policy of the owner's, and all from now on."""
        if self._shown is not None:
            evidence, report_data = self._shown
            policy.verify(evidence, report_data=report_data, now=datetime.now(UTC))
        self._owners = policy

    def __call__(self, evidence: Evidence, report_data: bytes) -> Verdict:
        """Verify evidence, and remember whose code it was at the first use."""
        wanted = self._measurement or (self._pin.measurement if self._pin else None)
        if self._measurement is None and self._pin is not None and evidence.kind != self._pin.kind:
            raise AttestationRefused(
                f"{self._address} shows evidence of another kind than before",
                hint="ask the provider, then give --measurement",
            )
        verdict = judged(evidence, report_data, wanted, self._given, self._owners, self._allow_simulated)
        self._shown = evidence, report_data
        self._pin = Pin(verdict.kind, verdict.measurement, self._database)
        self._pins.put(self._address, self._pin)
        return verdict


def judged(
    evidence: Evidence,
    report_data: bytes,
    measurement: str | None,
    given: Policy | None,
    owners: SignedPolicy | None,
    allow_simulated: bool,
) -> Verdict:
    """The verdict on evidence, if it is of this code and meets the policies that there are; else the strict default."""
    now = datetime.now(UTC)
    verdict = attestation.authenticated(evidence, report_data=report_data, now=now)
    pinned = Policy(
        measurements=None if measurement is None else frozenset([measurement]), allow_simulated=allow_simulated
    )
    pinned.check_code(verdict)
    if given is not None or owners is None:
        replace(given or Policy(), allow_simulated=allow_simulated).check(verdict, now)
    if owners is not None:
        owners.verify(evidence, report_data=report_data, now=now)
    return verdict


def _is_pin(fields: object) -> bool:
    return (
        isinstance(fields, dict)
        and fields.keys() == {"kind", "measurement", "database"}
        and all(isinstance(value, str) for value in fields.values())
    )


def measurement_of(text: str) -> str:
    """A measurement as typed, in the form that evidence states it in; an empty one is refused."""
    try:
        measurement = bytes.fromhex(text).hex()
    except ValueError:
        measurement = ""
    if not measurement:
        raise InvalidParameter("a measurement is written in hexadecimal digits", hint="as `scumble attest` prints it")
    return measurement
