"""SEV-SNP evidence of a maker of our own: every check is reached with a signature that holds."""

import struct
import uuid
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from amd_pki import (
    CHIP,
    DAY,
    MEASUREMENT,
    NOW,
    PSS,
    REPORT_DATA,
    TCB,
    Maker,
    certificate,
    leaf_extensions,
    leaf_key,
    named,
    report,
    rsa_key,
    tcb_bytes,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from scumble.attestation import Evidence, Policy, Tcb, Verdict, snp, snp_certificates
from scumble.attestation import verify as public_verify
from scumble.errors import AttestationRefused

MILAN, GENOA, TURIN = Maker("Milan"), Maker("Genoa"), Maker("Turin")
VLEK_BITS = {0x48: b"\x04"}
GUIDS = {
    "vcek": uuid.UUID("63da758d-e664-4564-adc5-f4b93be8accd"),
    "ask": uuid.UUID("4ab7b379-bbac-4fe4-a02f-05aef327c782"),
    "ark": uuid.UUID("c0b406a4-a803-4952-9743-3fb6014cd0ae"),
    "crl": uuid.UUID("92f81bc3-5811-4d3d-97ff-d19f88dc67ea"),
    "other": uuid.UUID("00000000-0000-0000-0000-000000000001"),
}


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


def test_another_chips_key_does_not_count() -> None:
    made = report(key=leaf_key("another chip"))
    expect_refused(MILAN.evidence(made, MILAN.vcek()), "signature on the SEV-SNP report is wrong")


def test_a_leaf_with_a_key_on_another_curve_or_on_none_is_refused() -> None:
    issuer = "SEV-Milan"
    for key in (ec.generate_private_key(ec.SECP256R1()).public_key(), rsa_key("chip").public_key()):
        leaf = certificate("SEV-VCEK", key, issuer, rsa_key(issuer), extensions=leaf_extensions("Milan", TCB))
        expect_refused(MILAN.evidence(report(), leaf), "not on P-384")


def test_swapped_issuers_are_refused() -> None:
    """A chip's key under the clouds' authority, and a cloud's under the chips'."""
    expect_refused(MILAN.evidence(report(), MILAN.vcek(issuer="SEV-VLEK-Milan")), "not those of a chip")
    expect_refused(MILAN.evidence(report(changes=VLEK_BITS), MILAN.vlek(issuer="SEV-Milan")), "not those of a chip")


def test_a_product_may_be_named_in_either_kind_of_text() -> None:
    for tag in (b"\x16", b"\x0c"):
        extensions = {**leaf_extensions("Milan", TCB), "1.3.6.1.4.1.3704.1.2": tag + b"\x05Milan"}
        assert judged(MILAN.evidence(report(), MILAN.vcek(extensions=extensions)))
    other = {**leaf_extensions("Milan", TCB), "1.3.6.1.4.1.3704.1.2": b"\x13\x05Milan"}
    expect_refused(MILAN.evidence(report(), MILAN.vcek(extensions=other)), "cannot be read")


def test_a_root_does_not_vouch_for_another_product() -> None:
    leaf = GENOA.vcek()
    expect_refused(GENOA.evidence(report("Genoa"), leaf), "not those of a chip", MILAN)
    forged = rsa_key("forger")
    root = certificate("ARK-Milan", forged.public_key(), "ARK-Milan", forged, serial=1)
    ask = certificate("SEV-Milan", rsa_key("SEV-Milan").public_key(), "ARK-Milan", forged, serial=2)
    chain = root.public_bytes(Encoding.PEM) + ask.public_bytes(Encoding.PEM)
    expect_refused(MILAN.evidence(report(), MILAN.vcek(), certificates=chain), "root certificate is not AMD's")
    mixed = MILAN.ark.public_bytes(Encoding.PEM) + ask.public_bytes(Encoding.PEM)
    expect_refused(MILAN.evidence(report(), MILAN.vcek(), certificates=mixed), "signature on a certificate")
    product = {**leaf_extensions("Milan", TCB), "1.3.6.1.4.1.3704.1.2": b"\x16\x05Genoa"}
    expect_refused(MILAN.evidence(report(), MILAN.vcek(extensions=product)), "different product")


@pytest.mark.parametrize(
    ("signer", "options", "because"),
    [
        ("forger", {}, "signature on a certificate"),
        ("ark Milan", {"end": NOW - DAY / 2}, "'ARK-Milan' is not valid"),
        ("ark Milan", {"start": NOW + DAY / 2}, "'ARK-Milan' is not valid"),
        ("ark Milan", {"pss": False}, "not signed with RSA-PSS"),
    ],
)
def test_the_roots_certificate_is_checked_although_its_key_is_pinned(
    signer: str, options: dict[str, Any], because: str
) -> None:
    key = rsa_key("ark Milan").public_key()
    root = certificate("ARK-Milan", key, "ARK-Milan", rsa_key(signer), serial=1, **options)
    chain = root.public_bytes(Encoding.PEM) + MILAN.ask.public_bytes(Encoding.PEM)
    expect_refused(MILAN.evidence(report(), MILAN.vcek(), certificates=chain), because)


def test_a_leaf_that_plays_the_issuer_is_refused() -> None:
    """A chip's own key must not vouch for other keys: only RSA keys with AMD's names issue."""
    other = certificate("SEV-VCEK", leaf_key("chip").public_key(), "SEV-VCEK", rsa_key("SEV-Milan"))
    expect_refused(MILAN.evidence(report(), other), "not those of a chip")


def test_only_the_one_who_is_named_as_the_issuer_vouches() -> None:
    """One of the same common name is another if the rest of the name differs; and only an RSA key issues."""
    rest = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "another")
    elsewhere = x509.Name([*named("SEV-Milan"), rest])
    builder = x509.CertificateBuilder(
        elsewhere, named("SEV-VCEK"), leaf_key("chip").public_key(), 7, NOW - DAY, NOW + DAY
    )
    signed = builder.sign(rsa_key("SEV-Milan"), hashes.SHA384(), rsa_padding=PSS)
    curved = certificate("SEV-Milan", leaf_key("chip").public_key(), "ARK-Milan", rsa_key("ark Milan"))
    for leaf, issuer in ((signed, MILAN.ask), (MILAN.vcek(), curved)):
        with pytest.raises(AttestationRefused, match="not issued by the next one"):
            snp_certificates.check_issued(leaf, issuer)


def test_a_signature_that_is_not_whole_bytes_is_refused() -> None:
    """The byte before it says how many of its last bits do not count: it is not signed, and so has to be 0."""
    made = next(each for _ in range(100) if (each := MILAN.vcek()).signature[-1] % 2 == 0)
    encoded, length = made.public_bytes(Encoding.DER), len(made.signature)
    snp_certificates.check_issued(made, MILAN.ask)
    changed = x509.load_der_x509_certificate(encoded[: -length - 1] + b"\1" + encoded[-length:])
    with pytest.raises(AttestationRefused, match="not whole bytes"):
        snp_certificates.check_issued(changed, MILAN.ask)


@pytest.mark.parametrize(
    ("options", "because"),
    [
        ({"start": NOW + DAY, "end": NOW + 2 * DAY}, "'SEV-VCEK' is not valid"),
        ({"start": NOW - 2 * DAY, "end": NOW - DAY}, "'SEV-VCEK' is not valid"),
        ({"pss": False}, "not signed with RSA-PSS"),
        ({"extensions": {}}, "cannot be read"),
        ({"extensions": leaf_extensions("Milan", TCB, None)}, "cannot be read"),
        ({"extensions": leaf_extensions("Milan", TCB, CHIP[:-1])}, "different chip"),
        ({"extensions": leaf_extensions("Milan", TCB, bytes(64))}, "different chip"),
        ({"extensions": {**leaf_extensions("Milan", TCB), "1.3.6.1.4.1.3704.1.3.8": b"\x02\x01"}}, "cannot be read"),
        ({"extensions": {**leaf_extensions("Milan", TCB), "1.3.6.1.4.1.3704.1.3.8": b"\x04\x01\xd9"}}, "cannot be"),
    ],
)
def test_a_leaf_with_one_thing_wrong_is_refused(options: dict[str, Any], because: str) -> None:
    expect_refused(MILAN.evidence(report(), MILAN.vcek(**options)), because)


def test_a_chip_that_hides_its_id_is_refused_even_if_its_certificate_does_too() -> None:
    hidden = MILAN.vcek(extensions=leaf_extensions("Milan", TCB, bytes(64)))
    expect_refused(MILAN.evidence(report(changes={0x1A0: bytes(64)}), hidden), "different chip")


def test_a_clouds_certificate_must_name_the_cloud() -> None:
    nameless = MILAN.vlek(extensions=leaf_extensions("Milan", TCB, None))
    expect_refused(MILAN.evidence(report(changes=VLEK_BITS), nameless), "cannot be read")


def test_two_certificates_of_one_name_are_refused() -> None:
    other = MILAN.vcek(serial=9).public_bytes(Encoding.DER)
    expect_refused(MILAN.evidence(report(), MILAN.vcek(), vlek=other), "two certificates of the same name")


def table(entries: dict[str, bytes], *, swapped: bool = False) -> bytes:
    """A certificate table as a host lays it out."""
    offset = 24 * (len(entries) + 1)
    heads, bodies = b"", b""
    for name, value in entries.items():
        guid = GUIDS[name].bytes_le if swapped else GUIDS[name].bytes
        heads += struct.pack("<16sII", guid, offset + len(bodies), len(value))
        bodies += value
    return heads + bytes(24) + bodies


@pytest.mark.parametrize("swapped", [False, True])
def test_the_hosts_certificate_table_is_read(swapped: bool) -> None:
    parts = {"vcek": MILAN.vcek(), "ask": MILAN.ask, "ark": MILAN.ark}
    entries = {name: each.public_bytes(Encoding.DER) for name, each in parts.items()}
    blob = table({"other": b"whatever", **entries, "crl": MILAN.crl()}, swapped=swapped)
    verdict = judged(Evidence("sev-snp", report(), {"auxblob": blob + bytes(100)}))
    assert verdict.details["revocation list"] == "checked"
    for length in (*range(24, 200), *range(200, len(blob), 97)):
        with pytest.raises(AttestationRefused):
            judged(Evidence("sev-snp", report(), {"auxblob": blob[:length]}))
    expect_refused(Evidence("sev-snp", report(), {"auxblob": bytes(4096)}), "'SEV-VCEK' is missing")
    endless = table({"other": b""})[:24] * 40
    expect_refused(Evidence("sev-snp", report(), {"auxblob": endless}), "too many entries")


def test_the_last_entry_of_a_certificate_table_may_end_where_the_table_does_and_no_later() -> None:
    whole = table({"vcek": b"first", "other": b"last"})
    assert list(snp_certificates.read_table(whole)) == [(GUIDS["vcek"], b"first"), (GUIDS["other"], b"last")]
    assert list(snp_certificates.read_table(table({"other": b""}))) == [(GUIDS["other"], b"")]
    for damaged in (whole[:-1], table({"other": b""})[:24], table({"other": b""})[:47], b"?" * 30, b"\1"):
        with pytest.raises(AttestationRefused, match="table is damaged"):
            list(snp_certificates.read_table(damaged))


def test_as_many_certificates_as_there_may_be_are_read_and_one_more_is_refused() -> None:
    ask, ark = (each.public_bytes(Encoding.PEM) for each in (MILAN.ask, MILAN.ark))
    assert judged(MILAN.evidence(report(), MILAN.vcek(), certificates=ask + 30 * ark))
    expect_refused(MILAN.evidence(report(), MILAN.vcek(), certificates=ask + 31 * ark), "too many certificates")


def test_a_certificate_may_come_as_pem() -> None:
    leaf = MILAN.vcek().public_bytes(Encoding.PEM)
    assert judged(MILAN.evidence(report(), MILAN.vcek(), vcek=leaf))


@pytest.mark.parametrize("names", [[], ["SEV-VCEK", "SEV-VCEK"], ["other", "SEV-VCEK"]])
def test_a_certificate_has_one_name(names: list[str]) -> None:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    with pytest.raises(AttestationRefused, match="has no name"):
        snp_certificates.name_of(subject)


def test_a_revocation_list_is_of_the_root_by_name_and_by_key() -> None:
    curved = certificate("ARK-Milan", leaf_key("chip").public_key(), "ARK-Milan", rsa_key("ark Milan"))
    for issuer, signer, root in (
        ("ARK-Genoa", rsa_key("ark Milan"), MILAN.ark),
        ("ARK-Milan", rsa_key("forger"), MILAN.ark),
        ("ARK-Milan", leaf_key("chip"), curved),
    ):
        builder = x509.CertificateRevocationListBuilder(named(issuer), NOW - DAY, NOW + DAY)
        padded = PSS if isinstance(signer, rsa.RSAPrivateKey) else None
        crl = builder.sign(signer, hashes.SHA384(), rsa_padding=padded)
        with pytest.raises(AttestationRefused, match="not signed by the root"):
            snp_certificates.check_listed(crl, root)


def test_a_revocation_list_that_never_expires_is_refused() -> None:
    endless = Mock(spec=x509.CertificateRevocationList, last_update_utc=NOW - DAY, next_update_utc=None)
    with pytest.raises(AttestationRefused, match="list is not valid"):
        snp_certificates.check_crl(endless, MILAN.ask, MILAN.ark, NOW)


def test_of_two_revocation_lists_the_older_one_counts() -> None:
    older, newer = MILAN.crl(start=NOW - DAY), MILAN.crl(start=NOW)
    for first, second in ((older, newer), (newer, older)):
        evidence = MILAN.evidence(report(), MILAN.vcek(), crl=first, auxblob=table({"crl": second}))
        assert judged(evidence).facts.issued == NOW - DAY


def test_a_value_in_a_certificate_has_its_tag_and_a_length_in_one_byte() -> None:
    assert snp_certificates.short_form(b"\x04\x7f" + b"x" * 127, 0x02, 0x04) == b"x" * 127
    assert snp_certificates.short_form(b"\x04\x00", 0x04) == b""
    for value in (b"", b"\x04", b"\x04\x80" + b"x" * 128, b"\x04\x02x", b"\x04\x00x", b"\x03\x01x"):
        with pytest.raises(ValueError, match="not the DER"):
            snp_certificates.short_form(value, 0x02, 0x04)


def test_certificates_and_lists_are_valid_from_their_first_moment_to_their_last() -> None:
    for start, end in ((NOW, NOW + DAY), (NOW - DAY, NOW)):
        leaf, crl = MILAN.vcek(start=start, end=end), MILAN.crl(start=start, end=end)
        assert judged(MILAN.evidence(report(), leaf, crl=crl)).details["revocation list"] == "checked"


def test_the_revocation_list_is_checked_where_there_is_one() -> None:
    strict = Policy(require_crl=True)
    plain = MILAN.evidence(report(), MILAN.vcek())
    assert judged(plain).details["revocation list"] == "not given"
    expect_refused(plain, "no revocation list", policy=strict)
    for crl, because in (
        (MILAN.crl(MILAN.ask.serial_number), "revoked"),
        (MILAN.crl(MILAN.ark.serial_number), "revoked"),
        (GENOA.crl(), "not signed by the root"),
        (MILAN.crl(start=NOW - 2 * DAY, end=NOW - DAY), "list is not valid"),
        (MILAN.crl(start=NOW + DAY, end=NOW + 2 * DAY), "list is not valid"),
        (MILAN.crl()[:-1], "cannot be read"),
    ):
        expect_refused(MILAN.evidence(report(), MILAN.vcek(), crl=crl), because)
    forged = bytearray(MILAN.crl())
    forged[-1] ^= 1
    expect_refused(MILAN.evidence(report(), MILAN.vcek(), crl=bytes(forged)), "not signed by the root")
    listed = MILAN.evidence(report(), MILAN.vcek(), crl=MILAN.crl(MILAN.asvk.serial_number))
    assert judged(listed, policy=strict).details["revocation list"] == "checked"
