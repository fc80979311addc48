"""What an enclave must prove: an owner's terms, and whether what evidence was found to say is enough for them.

A `Policy` is held against a `Verdict`, which says what the hardware has signed. With no arguments it asks for real
hardware without debugging that its maker calls up to date, and for nothing else. `attestation/policy_document.py` has
the files and signatures. Nothing here is secret.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Self

from scumble.attestation.evidence import KINDS
from scumble.errors import AttestationRefused, InvalidParameter

__all__ = ["HIDING", "HIDING_PRODUCTS", "UP_TO_DATE", "Facts", "Policy", "Tcb", "Verdict"]

HEX = re.compile(r"(?:[0-9a-f]{2})+")
UP_TO_DATE = "UpToDate"
HIDING = ("not required", "where available", "required")
"""How much a policy asks for ciphertext hiding, from the least to the most."""
HIDING_PRODUCTS = frozenset({"Turin"})
"""SEV-SNP processors that can hide the ciphertext of memory from their host: Zen 5, and none before."""


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

    def at_most(self, other: "Tcb") -> "Tcb":
        """The smaller of each."""
        return Tcb(*(min(getattr(self, each.name), getattr(other, each.name)) for each in fields(Tcb)))


@dataclass(frozen=True)
class Facts:
    """What evidence says about its platform, all of it signed, as far as a policy asks.

    `issued` is when the oldest revocation list or collateral that came along was issued; None if there was none.
    """

    product: str = ""
    tcbs: tuple[Tcb, ...] = ()
    vmpl: int = 0
    may_migrate: bool = False
    hides_ciphertext: bool = False
    chip: str = ""
    issued: datetime | None = None
    statuses: frozenset[str] = frozenset()
    advisories: frozenset[str] = frozenset()
    tcb_evaluation: int = 0


@dataclass(frozen=True)
class Verdict:
    """Evidence that was found genuine: which code runs, what it bound, and the facts about its platform."""

    kind: str
    measurement: str
    report_data: bytes
    details: Mapping[str, str]
    facts: Facts = field(default_factory=Facts)


@dataclass(frozen=True)
class Policy:
    """What an enclave must prove.

    kinds                   accept evidence of these kinds alone; None accepts every real one
    measurements            accept these alone, in lower-case hex; None accepts any, to pin it afterwards
    chips                   accept these processors alone, by the id in their evidence; None accepts any
    allow_simulated         accept evidence that proves nothing
    maximum_age_days        refuse a revocation list or collateral that was issued longer ago, or is not there
    floors                  SEV-SNP: accept these products alone, with no security version below; () accepts any
    minimum_tcb             SEV-SNP: no security version below these, whatever the product
    maximum_vmpl            SEV-SNP: the least privileged level that may have asked for the report
    allow_migration_agent   SEV-SNP: accept a guest that may be migrated by an agent
    require_crl             SEV-SNP: refuse evidence that comes without AMD's revocation list
    ciphertext_hiding       SEV-SNP: must the host be kept from reading encrypted memory? One of HIDING
    allow_statuses          TDX, SGX: accept these TCB statuses besides UpToDate, such as "SWHardeningNeeded", ...
    allow_advisories        ... of platforms with no other open advisories than these, such as "INTEL-SA-00615"
    minimum_tcb_evaluation  TDX, SGX: refuse collateral with an older tcbEvaluationDataNumber
    """

    kinds: frozenset[str] | None = None
    measurements: frozenset[str] | None = None
    chips: frozenset[str] | None = None
    allow_simulated: bool = False
    maximum_age_days: int | None = None
    floors: tuple[tuple[str, Tcb], ...] = ()
    minimum_tcb: Tcb = field(default_factory=Tcb)
    maximum_vmpl: int = 0
    allow_migration_agent: bool = False
    require_crl: bool = False
    ciphertext_hiding: str = HIDING[0]
    allow_statuses: frozenset[str] = frozenset()
    allow_advisories: frozenset[str] = frozenset()
    minimum_tcb_evaluation: int = 0

    def __post_init__(self) -> None:
        for named in (self.measurements, self.chips):
            if named is not None and not all(HEX.fullmatch(value) for value in named):
                raise InvalidParameter(
                    "a measurement, or a chip, is written in lower-case hex", hint="`scumble attest` prints them so"
                )
        if self.kinds is not None and not self.kinds.issubset(KINDS):
            raise InvalidParameter("there is no such kind of evidence", hint="there are " + ", ".join(KINDS))
        if self.ciphertext_hiding not in HIDING:
            raise InvalidParameter("ciphertext_hiding has another value", hint="write one of " + ", ".join(HIDING))
        object.__setattr__(self, "floors", tuple(sorted(self.floors, key=lambda floor: floor[0])))

    # --- judging -----------------------------------------------------------------------------------

    def check(self, verdict: Verdict, now: datetime) -> None:
        """Refuse a verdict that does not meet the policy at this time."""
        self.check_code(verdict)
        facts = verdict.facts
        if not _is_one_of(facts.chip, self.chips):
            raise AttestationRefused(
                "the enclave runs on a processor that the policy does not name",
                hint="`scumble attest` prints its id as `chip`; add it to the policy's chips if you trust it",
            )
        if self._is_too_old(facts.issued, now):
            raise AttestationRefused(
                "the revocation list or the collateral is older than the policy allows",
                hint="the provider has to fetch current ones",
            )
        if verdict.kind == "sev-snp":
            self._check_snp(facts)
        elif verdict.kind != "simulated":
            self._check_intel(facts)

    def _is_too_old(self, issued: datetime | None, now: datetime) -> bool:
        if self.maximum_age_days is None or issued is None:
            return False
        return now - issued > timedelta(days=self.maximum_age_days)

    def check_code(self, verdict: Verdict) -> None:
        """Refuse evidence of a kind, or code, that the policy does not accept; its platform is not looked at."""
        if verdict.kind == "simulated" and not self.allow_simulated:
            raise AttestationRefused(
                "the enclave is simulated: nothing protects what you send from the provider",
                hint="connect to real hardware; to try things out, allow it with --insecure-simulated-enclave",
            )
        if self.kinds is not None and verdict.kind not in self.kinds:
            raise AttestationRefused(
                f"the policy does not accept evidence of the kind {verdict.kind}",
                hint="it names " + (", ".join(sorted(self.kinds)) or "none"),
            )

        if not _is_one_of(verdict.measurement, self.measurements):
            raise AttestationRefused(
                "the enclave runs other code than was pinned: its measurement is " + verdict.measurement,
                hint="after an upgrade that you expected, pin the new one (--measurement); otherwise send it nothing",
            )

    def _check_snp(self, facts: Facts) -> None:
        if facts.may_migrate and not self.allow_migration_agent:
            raise AttestationRefused(
                "the enclave may be moved by a migration agent, which sees its memory",
                hint="the provider has to launch it with a policy without MIGRATE_MA, or you allow it",
            )
        if facts.vmpl > self.maximum_vmpl:
            raise AttestationRefused(
                f"the report was asked for at privilege level {facts.vmpl}: something more privileged shares the "
                "machine",
                hint="allow that level if you trust what runs above it; the measurement covers it",
            )
        floors = dict(self.floors)
        if floors and facts.product not in floors:
            raise AttestationRefused(
                f"the policy has no floor for the firmware of {facts.product}",
                hint=f"it names {', '.join(floors)}; add a floor for it if you trust it",
            )
        for minimum in (self.minimum_tcb, floors.get(facts.product, Tcb())):
            if not all(tcb.reaches(minimum) for tcb in facts.tcbs):
                raise AttestationRefused(
                    "the firmware of the enclave's machine is older than the policy allows",
                    hint="the provider has to update it and launch the enclave again",
                )
        if facts.issued is None and (self.require_crl or self.maximum_age_days is not None):
            raise AttestationRefused(
                "the evidence has no revocation list with it", hint="the provider can add AMD's as crl.der"
            )
        asked = facts.product in HIDING_PRODUCTS if self.ciphertext_hiding == HIDING[1] else True
        if self.ciphertext_hiding != HIDING[0] and asked and not facts.hides_ciphertext:
            raise AttestationRefused(
                "the enclave's host can read the ciphertext of its memory, and see where it changes",
                hint="the provider has to switch on ciphertext hiding; docs/threat-model.md says what it means",
            )

    def _check_intel(self, facts: Facts) -> None:
        others = facts.statuses - {UP_TO_DATE}
        if not others <= self.allow_statuses:
            raise AttestationRefused(
                f"Intel calls the enclave's platform {' and '.join(sorted(others))}",
                hint="the provider has to update it, or you allow that status and its advisories: "
                + (" ".join(sorted(facts.advisories)) or "none"),
            )
        if others and not facts.advisories <= self.allow_advisories:
            raise AttestationRefused(
                f"the enclave's platform is {' and '.join(sorted(others))}, with advisories that are not allowed",
                hint="read them, then allow them or ask the provider to update: " + " ".join(sorted(facts.advisories)),
            )
        if facts.tcb_evaluation < self.minimum_tcb_evaluation:
            raise AttestationRefused(
                "the collateral is of an older TCB evaluation than the policy allows",
                hint="the provider has to fetch current collateral",
            )

    # --- from what is shown, and compared ----------------------------------------------------------

    @classmethod
    def shown_by(cls, verdict: Verdict) -> Self:
        """The strictest terms that this verdict meets, whatever its code and chip: like it, or better."""
        facts = verdict.facts
        lowest = facts.tcbs[0].at_most(facts.tcbs[-1]) if facts.tcbs else Tcb()
        return cls(
            kinds=frozenset([verdict.kind]),
            allow_simulated=verdict.kind == "simulated",
            floors=((facts.product, lowest),) if facts.product else (),
            maximum_vmpl=facts.vmpl,
            allow_migration_agent=facts.may_migrate,
            require_crl=verdict.kind == "sev-snp" and facts.issued is not None,
            ciphertext_hiding=HIDING[2] if facts.hides_ciphertext else HIDING[0],
            allow_statuses=facts.statuses - {UP_TO_DATE},
            allow_advisories=facts.advisories,
            minimum_tcb_evaluation=facts.tcb_evaluation,
        )

    def filled_from(self, verdict: Verdict) -> Self:
        """With the kind and the firmware level that a verdict shows, where the policy says nothing of them."""
        shown = type(self).shown_by(verdict)
        return replace(
            self,
            kinds=shown.kinds if self.kinds is None else self.kinds,
            allow_simulated=self.allow_simulated or shown.allow_simulated,
            floors=self.floors or shown.floors,
            minimum_tcb_evaluation=self.minimum_tcb_evaluation or shown.minimum_tcb_evaluation,
        )

    def lowered_by(self, other: "Policy") -> list[str]:
        """In what another policy accepts more than this one: one line each."""
        found = [
            f"{name}: {_added(getattr(self, name), getattr(other, name))}"
            for name in ("kinds", "measurements", "chips", "allow_statuses", "allow_advisories")
            if _added(getattr(self, name), getattr(other, name))
        ]
        for name in ("allow_simulated", "allow_migration_agent"):
            if getattr(other, name) and not getattr(self, name):
                found.append(f"{name}: true instead of false")
        if self.require_crl and not other.require_crl:
            found.append("require_crl: false instead of true")
        if other.maximum_vmpl > self.maximum_vmpl:
            found.append(f"maximum_vmpl: {other.maximum_vmpl} instead of {self.maximum_vmpl}")
        if other.minimum_tcb_evaluation < self.minimum_tcb_evaluation:
            found.append(
                f"minimum_tcb_evaluation: {other.minimum_tcb_evaluation} instead of {self.minimum_tcb_evaluation}"
            )
        if self.maximum_age_days is not None:
            if other.maximum_age_days is None:
                found.append(f"maximum_age_days: any instead of {self.maximum_age_days}")
            elif other.maximum_age_days > self.maximum_age_days:
                found.append(f"maximum_age_days: {other.maximum_age_days} instead of {self.maximum_age_days}")
        if HIDING.index(other.ciphertext_hiding) < HIDING.index(self.ciphertext_hiding):
            found.append(f"ciphertext_hiding: {other.ciphertext_hiding} instead of {self.ciphertext_hiding}")
        if not other.minimum_tcb.reaches(self.minimum_tcb):
            found.append(f"minimum_tcb: {other.minimum_tcb} instead of {self.minimum_tcb}")
        return found + self._lowered_floors(other)

    def _lowered_floors(self, other: "Policy") -> list[str]:
        ours, theirs = dict(self.floors), dict(other.floors)
        if not ours:
            return []
        if not theirs:
            return ["floors: any product, at any level"]
        return [
            f"floors: {product} at {tcb}" + (f" instead of {ours[product]}" if product in ours else ", a new product")
            for product, tcb in theirs.items()
            if product not in ours or not tcb.reaches(ours[product])
        ]


def _is_one_of(value: str, accepted: frozenset[str] | None) -> bool:
    """Whether a value in hex is accepted, in constant time; None accepts any."""
    same = [hmac.compare_digest(value, each) for each in accepted or ()]
    return accepted is None or any(same)


def _added(ours: frozenset[str] | None, theirs: frozenset[str] | None) -> str:
    if ours is None or (theirs is not None and theirs <= ours):
        return ""
    return "any" if theirs is None else "accepts " + ", ".join(sorted(theirs - ours)) + " too"
