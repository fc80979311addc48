"""Judge evidence: does it state what was asked for, and does it meet the client's policy? Nothing here is secret.

`Policy` with no arguments is the strict one: real hardware, no debugging, nothing that the maker of the chip calls out
of date. The code for each maker's hardware is imported when its evidence arrives, and ends in `conclude`, which
compares what the evidence states with what was asked for.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from scumble.attestation.evidence import MEASUREMENT_BYTES, REPORT_DATA_BYTES, STATEMENT, Evidence
from scumble.errors import AttestationRefused, InvalidParameter

__all__ = ["Policy", "Tcb", "Verdict", "conclude", "verify"]

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


def verify(evidence: Evidence, *, report_data: bytes, policy: Policy, now: datetime | None = None) -> Verdict:
    """The verdict on `evidence`; AttestationRefused unless it states `report_data` and meets `policy`.

    `now` is the time at which certificates and collateral must be valid: the clock's, unless given.
    """
    if len(report_data) != REPORT_DATA_BYTES:
        raise InvalidParameter(
            f"report data has {REPORT_DATA_BYTES} bytes", hint="scumble.attestation.report_data makes them"
        )
    if now is None:
        now = datetime.now(UTC)
    elif now.tzinfo is None:
        raise InvalidParameter("the time has no time zone", hint="datetime.now(UTC) has one")
    if evidence.kind == "simulated":
        return _verify_simulated(evidence, report_data=report_data, policy=policy)
    if evidence.kind == "sev-snp":
        from scumble.attestation import snp

        return snp.verify(evidence, report_data=report_data, policy=policy, now=now)
    from scumble.attestation import dcap

    return dcap.verify(evidence, report_data=report_data, policy=policy, now=now)


def _verify_simulated(evidence: Evidence, *, report_data: bytes, policy: Policy) -> Verdict:
    """Compare simulated evidence like real evidence, if the policy allows it at all."""
    if not policy.allow_simulated:
        raise AttestationRefused(
            "the enclave is simulated: nothing protects what you send from the provider",
            hint="connect to real hardware; to try things out, allow it with --insecure-simulated-enclave",
        )
    stated = evidence.report.removeprefix(STATEMENT)
    if not evidence.report.startswith(STATEMENT) or len(stated) != MEASUREMENT_BYTES + REPORT_DATA_BYTES:
        raise AttestationRefused(
            "the simulated evidence cannot be read", hint="the provider runs another version of Scumble"
        )
    return conclude(
        evidence.kind,
        stated[:MEASUREMENT_BYTES],
        stated[MEASUREMENT_BYTES:],
        {"status": "simulated: proves nothing"},
        report_data=report_data,
        policy=policy,
    )
