"""Attestation: how an owner knows which code an enclave runs before sending it anything.

report_data         64 bytes that bind an enclave's key and a client's nonce
producer            in the enclave: where evidence comes from
Evidence            what crosses the network, as bytes
verify              at the owner's: Evidence and a Policy give a Verdict, or AttestationRefused
authenticated       the Verdict alone, for whoever holds it against several policies
code_measurement    what simulated evidence states as the code's measurement

evidence = producer().evidence(report_data(public_key, nonce))
verdict = verify(Evidence.from_bytes(answer), report_data=report_data(public_key, nonce), policy=Policy())
"""

from scumble.attestation.evidence import (
    NONCE_BYTES,
    REPORT_DATA_BYTES,
    Evidence,
    Producer,
    code_measurement,
    producer,
    report_data,
)
from scumble.attestation.policy import Policy, Tcb, Verdict
from scumble.attestation.verification import authenticated, verify

__all__ = [
    "NONCE_BYTES",
    "REPORT_DATA_BYTES",
    "Evidence",
    "Policy",
    "Producer",
    "Tcb",
    "Verdict",
    "authenticated",
    "code_measurement",
    "producer",
    "report_data",
    "verify",
]
