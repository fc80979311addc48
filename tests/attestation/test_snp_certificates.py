"""The certificates of SEV-SNP, of a maker of our own: issuers, leaves, tables of them, and revocation lists."""

import struct
import uuid
from typing import Any
from unittest.mock import Mock

import pytest
from amd_pki import (
    CHIP,
    DAY,
    NOW,
    PSS,
    TCB,
    certificate,
    leaf_extensions,
    leaf_key,
    named,
    report,
    rsa_key,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from test_snp import GENOA, MILAN, VLEK_BITS, expect_refused, judged

from scumble.attestation import Evidence, Policy, snp_certificates
from scumble.errors import AttestationRefused

GUIDS = {
    "vcek": uuid.UUID("63da758d-e664-4564-adc5-f4b93be8accd"),
    "ask": uuid.UUID("4ab7b379-bbac-4fe4-a02f-05aef327c782"),
    "ark": uuid.UUID("c0b406a4-a803-4952-9743-3fb6014cd0ae"),
    "crl": uuid.UUID("92f81bc3-5811-4d3d-97ff-d19f88dc67ea"),
    "other": uuid.UUID("00000000-0000-0000-0000-000000000001"),
}


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
