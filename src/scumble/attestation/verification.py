"""The one way to judge evidence: it comes in with what it must state and who is acceptable, a verdict goes out."""

from datetime import UTC, datetime

from scumble.attestation import dcap, simulated, snp
from scumble.attestation.evidence import Evidence
from scumble.attestation.policy import REPORT_DATA_BYTES, Policy, Verdict
from scumble.errors import InvalidParameter

__all__ = ["verify"]


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
        return simulated.verify(evidence, report_data=report_data, policy=policy)
    judge = snp.verify if evidence.kind == "sev-snp" else dcap.verify
    return judge(evidence, report_data=report_data, policy=policy, now=now)
