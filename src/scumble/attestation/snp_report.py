"""The SEV-SNP attestation report: 1184 bytes come in, their fields go out. Anybody may see them.

The layout is that of AMD's SEV-SNP firmware ABI (document 56860, revision 1.55 and later), for report versions 2, 3 and
5. Parsing is strict: a reserved byte or bit that is not zero is refused, since nobody knows what it would mean.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Self

from scumble.attestation.policy import Tcb
from scumble.errors import AttestationRefused

__all__ = ["REPORT_BYTES", "GuestPolicy", "Platform", "Report", "SigningKey", "tcb_of"]

REPORT_BYTES = 0x4A0
SIGNED_BYTES = 0x2A0
COMPONENT_BYTES = 48
ECDSA_P384_SHA384 = 1

RESERVED = {
    2: ((0x4C, 0x50), (0x188, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (0x1F8, 0x2A0)),
    3: ((0x4C, 0x50), (0x18B, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (0x1F8, 0x2A0)),
    5: ((0x4C, 0x50), (0x18B, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (0x208, 0x2A0)),
}
"""By report version: what must be zero in the signed part."""
SIGNATURE_RESERVED = ((0x2D0, 0x2E8), (0x318, 0x330), (0x330, REPORT_BYTES))


class GuestPolicy(IntFlag):
    """The bits of a guest's policy above the two bytes of the ABI version that it asks for."""

    SMT = 1 << 16
    ALWAYS_ONE = 1 << 17
    MIGRATE_MA = 1 << 18
    DEBUG = 1 << 19
    SINGLE_SOCKET = 1 << 20
    CXL_ALLOW = 1 << 21
    MEM_AES_256_XTS = 1 << 22
    RAPL_DIS = 1 << 23
    CIPHERTEXT_HIDING_DRAM = 1 << 24
    PAGE_SWAP_DISABLE = 1 << 25


class Platform(IntFlag):
    """What the host has switched on."""

    SMT_EN = 1 << 0
    TSME_EN = 1 << 1
    ECC_EN = 1 << 2
    RAPL_DIS = 1 << 3
    CIPHERTEXT_HIDING_DRAM_EN = 1 << 4
    ALIAS_CHECK_COMPLETE = 1 << 5
    TIO_EN = 1 << 7


class SigningKey(IntEnum):
    """Which key signed a report: that of the chip, or one that a cloud loaded."""

    VCEK = 0
    VLEK = 1


@dataclass(frozen=True)
class Report:
    """The fields that are checked or shown."""

    version: int
    guest_svn: int
    policy: GuestPolicy
    abi: tuple[int, int]
    vmpl: int
    platform: Platform
    signing_key: SigningKey
    report_data: bytes
    measurement: bytes
    host_data: bytes
    reported_tcb: bytes
    launch_tcb: bytes
    cpu: tuple[int, int] | None
    chip_id: bytes
    signed: bytes
    signature: tuple[int, int]

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """The report in `raw`; AttestationRefused if it is not one, or sets what is reserved."""
        if len(raw) != REPORT_BYTES:
            raise unreadable(f"an SEV-SNP report has {REPORT_BYTES} bytes")
        version = number(raw, 0x00, 4)
        if version not in RESERVED:
            raise unreadable("the SEV-SNP report is of a version that is not known here")
        if any(any(raw[start:stop]) for start, stop in (*RESERVED[version], *SIGNATURE_RESERVED)):
            raise unreadable("the SEV-SNP report sets what is reserved")
        if number(raw, 0x34, 4) != ECDSA_P384_SHA384:
            raise unreadable("the SEV-SNP report is not signed with ECDSA on P-384")
        return cls(
            version=version,
            guest_svn=number(raw, 0x04, 4),
            policy=policy_of(number(raw, 0x08, 8)),
            abi=(raw[0x09], raw[0x08]),
            vmpl=number(raw, 0x30, 4),
            platform=platform_of(number(raw, 0x40, 8)),
            signing_key=signing_key_of(number(raw, 0x48, 4)),
            report_data=raw[0x50:0x90],
            measurement=raw[0x90:0xC0],
            host_data=raw[0xC0:0xE0],
            reported_tcb=raw[0x180:0x188],
            launch_tcb=raw[0x1F0:0x1F8],
            cpu=(raw[0x188], raw[0x189]) if version > 2 else None,
            chip_id=raw[0x1A0:0x1E0],
            signed=raw[:SIGNED_BYTES],
            signature=(number(raw, 0x2A0, COMPONENT_BYTES), number(raw, 0x2E8, COMPONENT_BYTES)),
        )


def tcb_of(raw: bytes, product: str) -> Tcb:
    """The security versions in eight bytes, which Turin lays out in its own way."""
    if product == "Turin":
        tcb, reserved = Tcb(fmc=raw[0], bootloader=raw[1], tee=raw[2], snp=raw[3], microcode=raw[7]), raw[4:7]
    else:
        tcb, reserved = Tcb(bootloader=raw[0], tee=raw[1], snp=raw[6], microcode=raw[7]), raw[2:6]
    if any(reserved):
        raise unreadable("the SEV-SNP report sets what is reserved in a TCB version")
    return tcb


def policy_of(value: int) -> GuestPolicy:
    """The guest's policy without its ABI version."""
    flags = value & ~0xFFFF
    if flags & ~sum(GuestPolicy) or not flags & GuestPolicy.ALWAYS_ONE:
        raise unreadable("the SEV-SNP report has a guest policy that cannot be")
    return GuestPolicy(flags)


def platform_of(value: int) -> Platform:
    """What the host has switched on."""
    if value & ~sum(Platform):
        raise unreadable("the SEV-SNP report sets what is reserved in its platform information")
    return Platform(value)


def signing_key_of(value: int) -> SigningKey:
    """Which key signed, from a word with AUTHOR_KEY_EN in bit 0, MASK_CHIP_KEY in bit 1, SIGNING_KEY in bits 2 to 4."""
    if value >> 5:
        raise unreadable("the SEV-SNP report sets what is reserved in its key information")
    if value >> 1 & 1 or value >> 2 not in tuple(SigningKey):
        raise AttestationRefused(
            "the SEV-SNP report is not signed by any key",
            hint="the host masks its chip's key (MASK_CHIP_KEY): use one that does not",
        )
    return SigningKey(value >> 2)


def number(raw: bytes, offset: int, size: int) -> int:
    """A little-endian number."""
    return int.from_bytes(raw[offset : offset + size], "little")


def unreadable(sentence: str) -> AttestationRefused:
    """The refusal of a report that cannot be read."""
    return AttestationRefused(
        sentence, hint="the report is damaged, or its firmware is newer than this version of Scumble"
    )
