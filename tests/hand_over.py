"""For tests of hand-overs between enclaves: what the front carries, and evidence of any code."""

from dataclasses import dataclass, field
from typing import Protocol

from scumble.attestation import Evidence
from scumble.attestation.evidence import STATEMENT, SimulatedProducer
from scumble.enclave.sharing import Sharing

__all__ = ["Carried", "Code", "Shares"]


class Shares(Protocol):
    """An enclave as far as it shares."""

    sharing: Sharing


@dataclass
class Code:
    """A producer of simulated evidence for any code, and of any kind."""

    measurement: str = field(default_factory=lambda: SimulatedProducer().measurement)
    kind: str = "simulated"

    def evidence(self, stated: bytes) -> Evidence:
        return Evidence(self.kind, STATEMENT + bytes.fromhex(self.measurement) + stated)


@dataclass
class Carried:
    """All that the front carries between a giver and a taker."""

    givers: bytes
    takers: bytes
    by_taker: bytes
    by_giver: bytes = b""
    sealed: bytes = b""

    @classmethod
    def between(cls, giver: Shares, taker: Shares) -> "Carried":
        givers = giver.sharing.challenge()
        return cls(givers, taker.sharing.challenge(), taker.sharing.evidence(givers))

    def share(self, giver: Shares) -> "Carried":
        shared = giver.sharing.share(self.asked)
        end = 4 + int.from_bytes(shared[:4], "little")
        self.by_giver, self.sealed = shared[4:end], shared[end:]
        return self

    @property
    def asked(self) -> bytes:
        return self.givers + self.takers + self.by_taker

    @property
    def given(self) -> bytes:
        shown = len(self.by_giver).to_bytes(4, "little") + self.by_giver
        return self.takers + self.givers + self.by_taker[:32] + shown + self.sealed
