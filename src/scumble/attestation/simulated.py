"""Simulated evidence: for machines without the hardware. It proves nothing, and whoever reads it is told so.

Anybody can write it: it holds the measurement and report data that its maker likes. It is compared like real evidence,
so that everything around it can be tried, and refused unless the policy allows it in so many words.
"""

from scumble.attestation.binding import code_measurement
from scumble.attestation.evidence import Evidence
from scumble.attestation.policy import REPORT_DATA_BYTES, Policy, Verdict, conclude
from scumble.errors import AttestationRefused

__all__ = ["SimulatedProducer", "verify"]

STATEMENT = b"SCUMBLE SIMULATED EVIDENCE: PROVES NOTHING\n"
MEASUREMENT_BYTES = 32


class SimulatedProducer:
    """Makes simulated evidence for the code of this installation."""

    kind = "simulated"

    def __init__(self) -> None:
        self.measurement = code_measurement()

    def evidence(self, report_data: bytes) -> Evidence:
        """Evidence that states `report_data`."""
        return Evidence(self.kind, STATEMENT + bytes.fromhex(self.measurement) + report_data)


def verify(evidence: Evidence, *, report_data: bytes, policy: Policy) -> Verdict:
    """The verdict on simulated evidence, if the policy allows it at all."""
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
