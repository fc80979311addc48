"""Where an enclave's evidence comes from: 64 bytes go in, evidence that states them comes out, for anybody to see."""

from pathlib import Path
from typing import Literal, Protocol

from scumble.attestation.evidence import Evidence
from scumble.attestation.simulated import SimulatedProducer
from scumble.attestation.tsm import ROOT, TsmProducer
from scumble.errors import InvalidParameter

__all__ = ["Producer", "producer"]


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
    return TsmProducer(root, endorsements)
