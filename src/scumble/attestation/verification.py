"""Judge evidence: is it genuine, does it state what was asked for, and does it meet a policy? Nothing here is secret.

Evidence comes in and a `Verdict` goes out, which anybody may see. The code for each maker's hardware is imported when
its evidence arrives: it finds what is signed and true. Whether that is enough, `Policy.check` decides.
"""

import hmac
from datetime import UTC, datetime

from scumble.attestation.evidence import MEASUREMENT_BYTES, REPORT_DATA_BYTES, STATEMENT, Evidence
from scumble.attestation.policy import Policy, Verdict
from scumble.errors import AttestationRefused, InvalidParameter

__all__ = ["authenticated", "check_binding", "verify"]


def verify(evidence: Evidence, *, report_data: bytes, policy: Policy, now: datetime | None = None) -> Verdict:
    """The verdict on `evidence`; AttestationRefused unless it states `report_data` and meets `policy`.

    `now` is the time at which certificates and collateral must be valid: the clock's, unless given.
    """
    moment = datetime.now(UTC) if now is None else now
    verdict = authenticated(evidence, report_data=report_data, now=moment)
    policy.check(verdict, moment)
    return verdict


def authenticated(evidence: Evidence, *, report_data: bytes, now: datetime) -> Verdict:
    """What genuine evidence says; AttestationRefused if it is not genuine, or does not state `report_data`.

    Its maker vouches for it at `now`, and no host can look into what it is about; all else is for a policy to judge.
    """
    if len(report_data) != REPORT_DATA_BYTES:
        raise InvalidParameter(
            f"report data has {REPORT_DATA_BYTES} bytes", hint="scumble.attestation.report_data makes them"
        )
    if now.tzinfo is None:
        raise InvalidParameter("the time has no time zone", hint="datetime.now(UTC) has one")
    if evidence.kind == "simulated":
        return _simulated(evidence, report_data=report_data)
    if evidence.kind == "sev-snp":
        from scumble.attestation import snp

        return snp.authenticated(evidence, report_data=report_data, now=now)
    from scumble.attestation import dcap

    return dcap.authenticated(evidence, report_data=report_data, now=now)


def check_binding(stated: bytes, report_data: bytes) -> None:
    """Refuse evidence that does not state the report data that was asked for."""
    if not hmac.compare_digest(stated, report_data):
        raise AttestationRefused(
            "the evidence was made for another key or another nonce",
            hint="someone between you and the enclave may be replaying old evidence: connect again",
        )


def _simulated(evidence: Evidence, *, report_data: bytes) -> Verdict:
    """Read simulated evidence like real evidence. Whether it counts is the policy's to say: by default it does not."""
    stated = evidence.report.removeprefix(STATEMENT)
    if not evidence.report.startswith(STATEMENT) or len(stated) != MEASUREMENT_BYTES + REPORT_DATA_BYTES:
        raise AttestationRefused(
            "the simulated evidence cannot be read", hint="the provider runs another version of Scumble"
        )
    measurement, bound = stated[:MEASUREMENT_BYTES], stated[MEASUREMENT_BYTES:]
    check_binding(bound, report_data)
    return Verdict(evidence.kind, measurement.hex(), bound, {"status": "simulated: proves nothing"})
