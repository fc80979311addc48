"""Judge evidence: does it state what was asked for, and does it meet the policy? Nothing here is secret.

The code for each maker's hardware is imported when its evidence arrives: an enclave process that meets none of it does
without.
"""

from datetime import UTC, datetime

from scumble.attestation.evidence import REPORT_DATA_BYTES, Evidence
from scumble.attestation.policy import Policy, Verdict, conclude
from scumble.attestation.producers import MEASUREMENT_BYTES, STATEMENT
from scumble.errors import AttestationRefused, InvalidParameter

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
