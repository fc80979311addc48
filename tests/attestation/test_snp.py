"""SEV-SNP reports of a maker of our own: every check is reached with a signature that holds."""

import struct
from dataclasses import replace

import pytest
from amd_pki import (
    CHIP,
    MEASUREMENT,
    NOW,
    REPORT_DATA,
    TCB,
    Maker,
    report,
    tcb_bytes,
)

from scumble.attestation import Evidence, Policy, Tcb, Verdict, snp
from scumble.attestation import verify as public_verify
from scumble.errors import AttestationRefused

MILAN, GENOA, TURIN = Maker("Milan"), Maker("Genoa"), Maker("Turin")
VLEK_BITS = {0x48: b"\x04"}


def judged(evidence: Evidence, maker: Maker = MILAN, policy: Policy | None = None) -> Verdict:
    return snp.verify(evidence, report_data=REPORT_DATA, policy=policy or Policy(), now=NOW, roots=maker.roots)


def expect_refused(evidence: Evidence, because: str, maker: Maker = MILAN, policy: Policy | None = None) -> None:
    with pytest.raises(AttestationRefused, match=because) as caught:
        judged(evidence, maker, policy)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("maker", "version", "tcb"),
    [
        (MILAN, 2, TCB),
        (MILAN, 3, TCB),
        (GENOA, 2, TCB),
        (GENOA, 5, TCB),
        (TURIN, 3, replace(TCB, fmc=2)),
        (TURIN, 5, replace(TCB, fmc=2)),
    ],
    ids=str,
)
def test_a_good_report_of_every_chip_and_version_is_accepted(maker: Maker, version: int, tcb: Tcb) -> None:
    mitigations = {0x1F8: b"\xff" * 16} if version == 5 else {}
    made = report(maker.product, version=version, tcb=tcb, changes=mitigations)
    verdict = judged(maker.evidence(made, maker.vcek(tcb)), maker)
    assert verdict.measurement == MEASUREMENT.hex()
    assert verdict.details["tcb"] == str(tcb)
    assert verdict.details["product"] == maker.product


def test_every_reserved_byte_and_no_other_must_be_zero() -> None:
    """The bytes that AMD's firmware ABI keeps back, in the signed part by version, and around the signature."""
    both = {*range(0x4C, 0x50), 0x1EB, 0x1EF, *range(0x2D0, 0x2E8), *range(0x318, 0x4A0)}
    for version, own in {
        2: {*range(0x188, 0x1A0), *range(0x1F8, 0x2A0)},
        3: {*range(0x18B, 0x1A0), *range(0x1F8, 0x2A0)},
        5: {*range(0x18B, 0x1A0), *range(0x208, 0x2A0)},
    }.items():
        made = report(version=version)
        refused = {offset for offset in range(0x4A0) if why_unreadable(made, offset).endswith("sets what is reserved")}
        assert refused == both | own


def why_unreadable(made: bytes, offset: int) -> str:
    """The sentence with which a report is refused when one of its bytes is changed."""
    changed = bytearray(made)
    changed[offset] ^= 0xFF
    try:
        snp.Report.parse(bytes(changed))
    except AttestationRefused as error:
        return str(error).splitlines()[0]
    return ""


@pytest.mark.parametrize("offset", [*range(4), *range(0x0A, 0x10), *range(0x34, 0x38), *range(0x40, 0x4C)])
def test_no_byte_of_a_field_with_few_values_is_passed_over(offset: int) -> None:
    """Version, guest policy, signature algorithm, platform and key information, each to its last byte."""
    assert why_unreadable(report(), offset)


def test_every_field_is_read_from_its_own_bytes() -> None:
    filled = bytes(1 + offset % 251 for offset in range(0x2A0))
    words = {0x00: b"\3\0\0\0", 0x0A: b"\x02" + bytes(5), 0x34: b"\1\0\0\0", 0x40: b"\x80" + bytes(7)}
    zeros = {0x4C: bytes(4), 0x18B: bytes(0x15), 0x1EB: b"\0", 0x1EF: b"\0", 0x1F8: bytes(0xA8)}
    body = bytearray(filled)
    for offset, value in {**words, 0x48: b"\x05\0\0\0", **zeros}.items():
        body[offset : offset + len(value)] = value
    made = bytes(body) + report()[0x2A0:]
    read = snp.Report.parse(made)
    assert (read.version, read.guest_svn, read.vmpl) == (3, *struct.unpack_from("<I40xI", filled, 0x04))
    assert (read.policy, read.abi) == (snp.GuestPolicy.ALWAYS_ONE, (filled[0x09], filled[0x08]))
    assert (read.platform, read.signing_key) == (snp.Platform.TIO_EN, snp.SigningKey.VLEK)
    assert read.report_data + read.measurement + read.host_data == filled[0x50:0xE0]
    assert (len(read.report_data), len(read.measurement), len(read.host_data)) == (64, 48, 32)
    assert (read.reported_tcb, read.launch_tcb) == (filled[0x180:0x188], filled[0x1F0:0x1F8])
    assert (read.cpu, read.chip_id) == ((filled[0x188], filled[0x189]), filled[0x1A0:0x1E0])
    assert read.signed == made[:0x2A0]
    assert read.signature == tuple(int.from_bytes(made[at : at + 48], "little") for at in (0x2A0, 0x2E8))
    assert snp.stated_measurement(made) == read.measurement


@pytest.mark.parametrize("length", [0x49F, 0x4A1])
def test_a_report_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(AttestationRefused, match="has 1184 bytes"):
        snp.Report.parse(report().ljust(length, b"\0")[:length])


def test_every_bit_of_the_guests_policy_and_of_the_platform_has_its_name() -> None:
    always = 1 << 17
    policy = "SMT,,MIGRATE_MA,DEBUG,SINGLE_SOCKET,CXL_ALLOW,MEM_AES_256_XTS,RAPL_DIS,CIPHERTEXT_HIDING_DRAM"
    names = [*policy.split(","), "PAGE_SWAP_DISABLE"]
    assert [snp.names(snp.policy_of(always | 1 << bit)) for bit in range(16, 26)] == names
    platform = ["SMT_EN", "TSME_EN", "ECC_EN", "RAPL_DIS", "CIPHERTEXT_HIDING_DRAM_EN", "ALIAS_CHECK_COMPLETE"]
    assert [snp.names(snp.platform_of(1 << bit)) for bit in (0, 1, 2, 3, 4, 5, 7)] == [*platform, "TIO_EN"]
    assert snp.policy_of(always | 0xFFFF) == snp.GuestPolicy.ALWAYS_ONE


def test_the_signing_key_is_read_from_its_own_bits() -> None:
    """Bit 0 says that there is an author's key, which is of no concern."""
    assert [snp.signing_key_of(value).name for value in (0, 1, 4, 5)] == ["VCEK", "VCEK", "VLEK", "VLEK"]
    for value in (2, 3, 6, 7, *range(8, 32)):
        with pytest.raises(AttestationRefused, match="not signed by any key"):
            snp.signing_key_of(value)


def test_each_security_version_is_read_from_its_own_byte() -> None:
    assert snp.tcb_of(bytes([1, 2, 0, 0, 0, 0, 7, 8]), "Milan") == Tcb(bootloader=1, tee=2, snp=7, microcode=8)
    turin = Tcb(fmc=1, bootloader=2, tee=3, snp=4, microcode=8)
    assert snp.tcb_of(bytes([1, 2, 3, 4, 0, 0, 0, 8]), "Turin") == turin
    for product, reserved in (("Milan", range(2, 6)), ("Turin", range(4, 7))):
        for offset in reserved:
            with pytest.raises(AttestationRefused, match="reserved in a TCB version"):
                snp.tcb_of(bytes(offset) + b"\1" + bytes(7 - offset), product)


@pytest.mark.parametrize(
    ("family", "models", "product"),
    [
        (0x19, [0x00, 0x0F], "Milan"),
        (0x19, [0x10, 0x1F, 0xA0, 0xAF], "Genoa"),
        (0x1A, [0x00, 0x0F, 0x10, 0x1F], "Turin"),
        (0x18, [0x00, 0x10, 0xA0], ""),
        (0x19, [0x20, 0x9F, 0xB0, 0xFF], ""),
        (0x1A, [0x20, 0xA0, 0xFF], ""),
        (0x1B, [0x00, 0x10, 0xA0], ""),
    ],
)
def test_a_processor_belongs_to_the_product_of_its_family_and_model(
    family: int, models: list[int], product: str
) -> None:
    assert {snp.product_of(family, model) for model in models} == {product}


def test_a_chip_is_shown_and_held_against_a_policy_by_its_whole_id() -> None:
    tcb = replace(TCB, fmc=2)
    verdict = judged(TURIN.evidence(report("Turin", tcb=tcb), TURIN.vcek(tcb)), TURIN)
    assert verdict.details["chip"] == verdict.facts.chip == (CHIP[:8] + bytes(56)).hex()
    leased = judged(MILAN.evidence(report(changes={**VLEK_BITS, 0x1A0: bytes(64)}), MILAN.vlek()))
    assert (leased.details["chip"], leased.facts.chip) == ("not stated", "")


def test_a_report_signed_by_a_clouds_key_is_accepted() -> None:
    verdict = judged(MILAN.evidence(report(changes=VLEK_BITS), MILAN.vlek()))
    assert verdict.details["cloud"] == "CN=cloud"


def test_the_public_verifier_knows_no_root_but_amds() -> None:
    with pytest.raises(AttestationRefused, match="root certificate is not AMD's"):
        public_verify(MILAN.evidence(report(), MILAN.vcek()), report_data=REPORT_DATA, policy=Policy(), now=NOW)


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({0x08: (0xB0000).to_bytes(8, "little")}, "debugged by its host"),
        ({0x08: (0x70000).to_bytes(8, "little")}, "migration agent"),
        ({0x08: (0x10000).to_bytes(8, "little")}, "guest policy that cannot be"),
        ({0x08: (1 << 26 | 0x30000).to_bytes(8, "little")}, "guest policy that cannot be"),
        ({0x30: b"\x01"}, "privilege level 1"),
        ({0x30: b"\xff\xff\xff\xff"}, "privilege level"),
        ({0x34: b"\x02"}, "not signed with ECDSA"),
        ({0x40: b"\x40"}, "platform information"),
        ({0x48: b"\x02"}, "not signed by any key"),
        ({0x48: b"\x1c"}, "not signed by any key"),
        ({0x48: b"\x20"}, "key information"),
        ({0x48: b"\x04"}, "'SEV-VLEK' is missing"),
        ({0x4C: b"\x01"}, "what is reserved"),
        ({0x18B: b"\x01"}, "what is reserved"),
        ({0x1EB: b"\x01"}, "what is reserved"),
        ({0x1EF: b"\x01"}, "what is reserved"),
        ({0x1F8: b"\x01"}, "what is reserved"),
        ({0x29F: b"\x01"}, "what is reserved"),
        ({0x182: b"\x01"}, "reserved in a TCB version"),
        ({0x188: b"\x19\x11"}, "different processor"),
        ({0x188: b"\x17\x01"}, "different processor"),
        ({0x180: tcb_bytes("Milan", replace(TCB, snp=9))}, "different firmware level"),
        ({0x1A0: b"\x02"}, "different chip"),
        ({0x1A0: bytes(64)}, "different chip"),
        ({0x50: b"\xff"}, "another key or another nonce"),
        ({0x00: b"\x04"}, "version that Scumble does not know"),
        ({0x00: b"\x06"}, "version that Scumble does not know"),
        ({0x00: b"\x01"}, "version that Scumble does not know"),
    ],
)
def test_a_signed_report_with_one_thing_wrong_is_refused_for_that(changes: dict[int, bytes], because: str) -> None:
    expect_refused(MILAN.evidence(report(changes=changes), MILAN.vcek()), because)


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({0x08: (0x70000).to_bytes(8, "little")}, Policy(allow_migration_agent=True)),
        ({0x30: b"\x02"}, Policy(maximum_vmpl=2)),
    ],
)
def test_what_a_policy_allows_is_accepted(changes: dict[int, bytes], policy: Policy) -> None:
    assert judged(MILAN.evidence(report(changes=changes), MILAN.vcek()), policy=policy)


def test_debugging_is_refused_whatever_the_policy_allows() -> None:
    lax = Policy(allow_simulated=True, maximum_vmpl=3, allow_migration_agent=True)
    changes = {0x08: (0xF0000).to_bytes(8, "little")}
    expect_refused(MILAN.evidence(report(changes=changes), MILAN.vcek()), "debugged by its host", policy=lax)


def test_old_firmware_is_refused_even_if_only_the_launch_was_under_it() -> None:
    policy = Policy(minimum_tcb=TCB)
    assert judged(MILAN.evidence(report(), MILAN.vcek()), policy=policy)
    older = replace(TCB, microcode=TCB.microcode - 1)
    expect_refused(MILAN.evidence(report(tcb=older), MILAN.vcek(older)), "older than the policy", policy=policy)
    launched = report(changes={0x1F0: tcb_bytes("Milan", older)})
    expect_refused(MILAN.evidence(launched, MILAN.vcek()), "older than the policy", policy=policy)
