"""Where an enclave's evidence comes from: the hardware, through `tsm.py`, or a simulation where there is none.

A producer gets 64 bytes and makes evidence that states them, for anybody to see. Simulated evidence proves nothing:
anybody can write it, with any measurement. It has the form of real evidence so that everything around it can be tried.
"""

from pathlib import Path
from typing import Literal, Protocol

from scumble.attestation.evidence import Evidence
from scumble.attestation.measurement import code_measurement
from scumble.errors import InvalidParameter

__all__ = ["MEASUREMENT_BYTES", "ROOT", "STATEMENT", "Producer", "SimulatedProducer", "producer"]

ROOT = Path("/sys/kernel/config/tsm/report")
STATEMENT = b"SCUMBLE SIMULATED EVIDENCE: PROVES NOTHING\n"
MEASUREMENT_BYTES = 32


class Producer(Protocol):
    """Makes evidence about the machine or process it runs in."""

    @property
    def kind(self) -> str:
        """The kind of the evidence: one of scumble.attestation.evidence.KINDS."""

    @property
    def measurement(self) -> str:
        """The measurement that the evidence will state, in lower-case hex."""

    def evidence(self, report_data: bytes) -> Evidence:
        """Evidence that states these 64 bytes."""


class SimulatedProducer:
    """Makes simulated evidence for the code of this installation."""

    kind = "simulated"

    def __init__(self) -> None:
        self.measurement = code_measurement()

    def evidence(self, report_data: bytes) -> Evidence:
        """Evidence that states `report_data`."""
        return Evidence(self.kind, STATEMENT + bytes.fromhex(self.measurement) + report_data)


def producer(
    name: Literal["auto", "tsm", "simulated"] = "auto", *, root: Path = ROOT, endorsements: Path | None = None
) -> Producer:
    """The producer of that name; "auto" takes the hardware where Linux shows it, and else simulates.

    `root` is where configfs-tsm is, and `endorsements` a directory with what the host does not hand out: the files in
    scumble.attestation.tsm.ENDORSEMENTS.
    """
    if name not in ("auto", "tsm", "simulated"):
        raise InvalidParameter("there is no such producer of evidence", hint="there are auto, tsm and simulated")
    if name == "simulated" or (name == "auto" and not root.is_dir()):
        return SimulatedProducer()
    from scumble.attestation.tsm import TsmProducer  # a process without the hardware does without its code

    return TsmProducer(root, endorsements)
