"""A policy written down: the file that an owner edits, and the document that an owner signs."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from amd_pki import DAY, NOW, TCB
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from test_policy import STRICT

from scumble.attestation import Policy, Tcb
from scumble.attestation.evidence import framed
from scumble.attestation.policy import HIDING
from scumble.attestation.policy_document import (
    LARGEST,
    MAGIC,
    MOST_POLICY_BYTES,
    SignedPolicy,
    policy_fields,
    policy_from_fields,
    read_policy,
)
from scumble.errors import FileError, InvalidParameter, Tampered

OWNER, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (1, 2))
DATABASE = "0a" * 16

# --- the file ----------------------------------------------------------------------------------------

FILE = """
kinds = ["sev-snp"]
measurements = ["{measurement}"]
maximum_age_days = 30
require_crl = true
ciphertext_hiding = "where available"

[floors.Milan]
bootloader = 3
tee = 1
snp = 8
microcode = 217
""".format(measurement="ab" * 48)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "clinic.toml").write_text(FILE)
    read = read_policy(tmp_path / "clinic.toml")
    assert read.floors == (("Milan", TCB),)
    assert (read.require_crl, read.maximum_age_days, read.ciphertext_hiding) == (True, 30, HIDING[1])
    assert policy_from_fields(policy_fields(read)) == read


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("kind = ['tdx']", "kind is no term"),
        ("kinds = 'tdx'", "kinds is no list"),
        ("require_crl = 1", "require_crl is neither true nor false"),
        ("maximum_vmpl = true", "maximum_vmpl is no whole number"),
        ("maximum_vmpl = -1", "maximum_vmpl is no whole number"),
        ("maximum_vmpl = 2147483648", "maximum_vmpl is no whole number"),
        ("kinds = ['tdx', 1]", "kinds is no list"),
        ("ciphertext_hiding = true", "ciphertext_hiding is not text"),
        ("[floors]\nMilan = 3", "floors.Milan is no table"),
        ("[floors.Milan]\nSNP = 3", "floors.Milan is no table"),
        ("[floors.Milan]\nsnp = 3.5", "floors.Milan.snp is no whole number"),
        ("floors = []", "floors is no table"),
        ("measurements = ['AB']", "lower-case hex"),
        ("x = [", "is no TOML"),
    ],
)
def test_a_file_with_one_thing_wrong_is_refused_for_that(tmp_path: Path, text: str, because: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(InvalidParameter, match=because) as caught:
        read_policy(tmp_path / "p.toml")
    assert caught.value.hint


def test_the_smallest_and_the_largest_number_are_read() -> None:
    for number in (0, 2**31 - 1):
        assert policy_from_fields({"minimum_tcb_evaluation": number}).minimum_tcb_evaluation == number
    assert policy_from_fields({"minimum_tcb": {"snp": 5}}).minimum_tcb == Tcb(snp=5)


def test_a_file_may_have_as_many_bytes_as_a_document_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(b"#".ljust(MOST_POLICY_BYTES, b" "))
    assert read_policy(tmp_path / "p.toml") == Policy()
    (tmp_path / "p.toml").write_bytes(b"#".ljust(MOST_POLICY_BYTES + 1, b" "))
    with pytest.raises(FileError, match="too long"):
        read_policy(tmp_path / "p.toml")


def test_a_file_that_is_not_there_or_too_long_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"#" * 70_000)
    for name in ("none", "long"):
        with pytest.raises(FileError):
            read_policy(tmp_path / name)


# --- the signed document -----------------------------------------------------------------------------


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def signed(serial: int = 3, now: datetime = NOW) -> SignedPolicy:
    return SignedPolicy.sign(STRICT, DATABASE, serial, now, OWNER)


def test_a_document_comes_back_for_its_owner_and_its_database() -> None:
    data = signed().to_bytes()
    assert SignedPolicy.read(data, DATABASE, public(OWNER)) == signed()
    for database, owner in ((DATABASE, public(OTHER)), ("0b" * 16, public(OWNER)), (DATABASE, b"")):
        with pytest.raises(Tampered):
            SignedPolicy.read(data, database, owner)


def test_no_byte_of_a_document_can_change() -> None:
    data = signed().to_bytes()
    for at in range(len(data)):
        for changed in (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:at]):
            with pytest.raises(Tampered):
                SignedPolicy.read(changed, DATABASE, public(OWNER))
    for more in (b" ", b"\n", b"\0"):
        with pytest.raises(Tampered):
            SignedPolicy.read(data + more, DATABASE, public(OWNER))


@pytest.mark.parametrize(
    "document",
    [
        b"{}",
        b"[]",
        b'{"database":"' + b"0a" * 16 + b'","not_before":1,"serial":0,"terms":{}}',
        b'{"database":"' + b"0a" * 16 + b'","not_before":1,"serial":true,"terms":{}}',
        b'{"database":"' + b"0a" * 16 + b'","not_before":999999999999999,"serial":1,"terms":{}}',
        b'{"database":"' + b"0a" * 16 + b'","not_before":1,"serial":1,"terms":{"later":1}}',
        b'{"database":"' + b"0a" * 16 + b'","not_before":1,"serial":1, "terms":{}}',
        b"[" * 10_000,
    ],
)
def test_what_is_signed_but_no_document_is_refused(document: bytes) -> None:
    label = b"".join(framed(part) for part in (b"scumble policy v1", DATABASE.encode(), document))
    with pytest.raises(Tampered):
        SignedPolicy.read(MAGIC + OWNER.sign(label) + document, DATABASE, public(OWNER))


def test_a_document_is_signed_if_it_can_be_read_back_and_is_too_long_otherwise() -> None:
    """Up to the last byte: what a document has besides its longest advisory is always the same."""

    def made(length: int) -> SignedPolicy:
        return SignedPolicy.sign(Policy(allow_advisories=frozenset({"a" * length})), DATABASE, 1, NOW, OWNER)

    most = MOST_POLICY_BYTES - len(made(1).to_bytes()) + 1
    longest = made(most)
    assert len(longest.to_bytes()) == MOST_POLICY_BYTES
    assert SignedPolicy.read(longest.to_bytes(), DATABASE, public(OWNER)) == longest
    with pytest.raises(InvalidParameter, match="too long"):
        made(most + 1)
    longer = SignedPolicy(DATABASE, 1, 0, Policy(allow_advisories=frozenset({"a" * (most + 100)})), bytes(64))
    with pytest.raises(Tampered):
        SignedPolicy.parse(longer.to_bytes())


@pytest.mark.parametrize(
    ("serial", "seconds", "good"),
    [
        (1, 0, True),
        (LARGEST - 1, LARGEST - 1, True),
        (0, 0, False),
        (1, -1, False),
        (LARGEST, 0, False),
        (1, LARGEST, False),
    ],
)
def test_serials_and_times_have_a_first_and_a_last(serial: int, seconds: int, good: bool) -> None:
    made = SignedPolicy(DATABASE, serial, seconds, Policy(), bytes(64)).to_bytes()
    if good:
        assert SignedPolicy.parse(made).serial == serial
    else:
        with pytest.raises(Tampered):
            SignedPolicy.parse(made)


@pytest.mark.parametrize("database", ["", "0a" * 7 + "0", "0a" * 33, "0A" * 16, "0x" * 16, "0a" * 16 + "\n"])
def test_a_document_for_what_is_no_database_is_refused(database: str) -> None:
    with pytest.raises(Tampered):
        SignedPolicy.parse(SignedPolicy(database, 1, 0, Policy(), bytes(64)).to_bytes())


def test_an_owner_signs_the_label_the_database_and_the_document_each_with_its_length() -> None:
    made = signed()
    document = made.to_bytes()[len(MAGIC) + 64 :]
    message = b"".join(framed(part) for part in (b"scumble policy v1", DATABASE.encode(), document))
    OWNER.public_key().verify(made.signature, message)
    assert made.to_bytes().startswith(b"SCUMBLE-POLICY-1\n")


@given(st.binary(max_size=400))
def test_random_bytes_are_tampered_and_nothing_worse(data: bytes) -> None:
    for each in (data, MAGIC + data, MAGIC + bytes(64) + data):
        with pytest.raises(Tampered):
            SignedPolicy.parse(each)


def test_no_time_before_the_signature_is_believed() -> None:
    """A host that sets its clock back makes an expired list valid again: no further than to the signing."""
    made = SignedPolicy.sign(Policy(require_crl=True), DATABASE, 1, NOW, OWNER)
    assert made.moment(NOW - 900 * DAY) == NOW
    assert made.moment(NOW + DAY) == NOW + DAY
    assert made.moment(datetime(1970, 1, 1, tzinfo=UTC)) == NOW
