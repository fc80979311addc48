"""What a client demands of an enclave, and the verdict on one that meets it. Both are public.

`Policy` with no arguments is the strict one: real hardware, no debugging, nothing that the maker of the chip calls out
of date. `conclude` is the end of every verifier: it compares what the evidence states with what was asked for.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from scumble.errors import AttestationRefused, InvalidParameter

__all__ = ["Policy", "Tcb", "Verdict", "conclude"]

HEX = re.compile(r"(?:[0-9a-f]{2})+")


@dataclass(frozen=True)
class Tcb:
    """Security versions of the firmware under an SEV-SNP guest. `fmc` exists from Turin on, and is 0 before."""

    bootloader: int = 0
    tee: int = 0
    snp: int = 0
    microcode: int = 0
    fmc: int = 0

    def __str__(self) -> str:
        return f"bootloader={self.bootloader} tee={self.tee} snp={self.snp} microcode={self.microcode} fmc={self.fmc}"

    def reaches(self, minimum: "Tcb") -> bool:
        """Whether no component is below that of `minimum`."""
        return (
            self.bootloader >= minimum.bootloader
            and self.tee >= minimum.tee
            and self.snp >= minimum.snp
            and self.microcode >= minimum.microcode
            and self.fmc >= minimum.fmc
        )


@dataclass(frozen=True)
class Policy:
    """What an enclave must prove.

    measurements            accept these alone, in lower-case hex; None accepts any, to pin it afterwards
    allow_simulated         accept evidence that proves nothing
    minimum_tcb             SEV-SNP: no security version below these
    maximum_vmpl            SEV-SNP: the least privileged level that may have asked for the report
    allow_migration_agent   SEV-SNP: accept a guest that may be migrated by an agent
    require_crl             SEV-SNP: refuse evidence that comes without AMD's revocation list
    allow_statuses          TDX, SGX: accept these TCB statuses besides UpToDate, such as "SWHardeningNeeded", ...
    allow_advisories        ... of platforms with no other open advisories than these, such as "INTEL-SA-00615"
    minimum_tcb_evaluation  TDX, SGX: refuse collateral with an older tcbEvaluationDataNumber
    """

    measurements: frozenset[str] | None = None
    allow_simulated: bool = False
    minimum_tcb: Tcb = field(default_factory=Tcb)
    maximum_vmpl: int = 0
    allow_migration_agent: bool = False
    require_crl: bool = False
    allow_statuses: frozenset[str] = frozenset()
    allow_advisories: frozenset[str] = frozenset()
    minimum_tcb_evaluation: int = 0

    def __post_init__(self) -> None:
        if self.measurements is not None and not all(HEX.fullmatch(value) for value in self.measurements):
            raise InvalidParameter(
                "a measurement is written in lower-case hex", hint="`scumble attest` prints one in that form"
            )


@dataclass(frozen=True)
class Verdict:
    """Evidence that was found good: which code runs, what it bound, and the facts about its platform."""

    kind: str
    measurement: str
    report_data: bytes
    details: Mapping[str, str]


def conclude(
    kind: str,
    measurement: bytes,
    stated: bytes,
    details: Mapping[str, str],
    *,
    report_data: bytes,
    policy: Policy,
) -> Verdict:
    """The verdict, if the evidence states the report data that was asked for and a measurement that is accepted."""
    if not hmac.compare_digest(stated, report_data):
        raise AttestationRefused(
            "the evidence was made for another key or another nonce",
            hint="someone between you and the enclave may be replaying old evidence: connect again",
        )
    if policy.measurements is not None:
        same = [hmac.compare_digest(measurement, bytes.fromhex(accepted)) for accepted in policy.measurements]
        if not any(same):
            raise AttestationRefused(
                "the enclave runs other code than was pinned: its measurement is " + measurement.hex(),
                hint="after an upgrade that you expected, pin the new measurement; otherwise send it nothing",
            )
    return Verdict(kind, measurement.hex(), stated, dict(details))
