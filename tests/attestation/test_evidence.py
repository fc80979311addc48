"""Evidence as bytes: each value has one encoding, and everything else is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scumble.attestation import Evidence
from scumble.attestation.evidence import KINDS, MAXIMUM_BYTES, MAXIMUM_EXTRA_BYTES, MAXIMUM_REPORT_BYTES, prefixed
from scumble.errors import AttestationRefused

NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,31}", fullmatch=True)
EVIDENCE = st.builds(
    Evidence,
    st.sampled_from(KINDS),
    st.binary(max_size=200),
    st.dictionaries(NAMES, st.binary(max_size=50), max_size=16),
)
SMALL = Evidence("tdx", b"report", {"b": b"", "a": b"value"})
ENCODED = b"SCUMBLE-EVIDENCE-1\n\x03\0\0\0tdx\x06\0\0\0report\x02\x01\0\0\0a\x05\0\0\0value\x01\0\0\0b\0\0\0\0"


def test_the_encoding_is_the_one_that_is_written_down() -> None:
    assert SMALL.to_bytes() == ENCODED
    assert Evidence.from_bytes(ENCODED) == SMALL


@given(EVIDENCE)
def test_evidence_comes_back_from_its_bytes(evidence: Evidence) -> None:
    assert Evidence.from_bytes(evidence.to_bytes()) == evidence


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(AttestationRefused):
        Evidence.from_bytes(data)


@given(EVIDENCE, st.data())
def test_what_is_read_from_damaged_bytes_is_refused_or_has_just_those_bytes(
    evidence: Evidence, data: st.DataObject
) -> None:
    damaged = bytearray(evidence.to_bytes())
    position = data.draw(st.integers(0, len(damaged)))
    damaged[position : position + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    try:
        read = Evidence.from_bytes(bytes(damaged))
    except AttestationRefused:
        return
    assert read.to_bytes() == bytes(damaged)


def test_every_truncation_and_every_addition_is_refused() -> None:
    for length in range(len(ENCODED)):
        with pytest.raises(AttestationRefused):
            Evidence.from_bytes(ENCODED[:length])
    with pytest.raises(AttestationRefused):
        Evidence.from_bytes(ENCODED + b"\0")


@pytest.mark.parametrize(
    "tail",
    [
        b"\x02\x01\0\0\0b\0\0\0\0\x01\0\0\0a\0\0\0\0",
        b"\x02\x01\0\0\0a\0\0\0\0\x01\0\0\0a\0\0\0\0",
        b"\x01\0\0\0\0\0\0\0\0",
        b"\x01\x01\0\0\0A\0\0\0\0",
        b"\x01\x01\0\0\0\xff\0\0\0\0",
        b"\x01\xff\xff\xff\xffa",
    ],
    ids=["out of order", "twice", "no name", "upper case", "not ASCII", "endless"],
)
def test_extras_in_another_form_are_refused(tail: bytes) -> None:
    with pytest.raises(AttestationRefused):
        Evidence.from_bytes(b"SCUMBLE-EVIDENCE-1\n\x03\0\0\0tdx\0\0\0\0" + tail)


def test_what_is_too_large_or_unknown_cannot_even_be_made() -> None:
    attempts: list[Callable[[], Evidence]] = [
        lambda: Evidence("nitro", b""),
        lambda: Evidence("tdx", bytes(MAXIMUM_REPORT_BYTES + 1)),
        lambda: Evidence("tdx", b"", {"a": bytes(MAXIMUM_EXTRA_BYTES + 1)}),
        lambda: Evidence("tdx", b"", {f"e{number}": b"" for number in range(17)}),
        lambda: Evidence("tdx", b"", {f"e{number}": bytes(MAXIMUM_EXTRA_BYTES) for number in range(4)}),
        lambda: Evidence("tdx", b"", {"../name": b""}),
        lambda: Evidence.from_bytes(ENCODED + bytes(MAXIMUM_BYTES)),
    ]
    for bad in attempts:
        with pytest.raises(AttestationRefused) as caught:
            bad()
        assert caught.value.hint


def test_what_is_longer_than_any_evidence_is_not_even_read() -> None:
    extras = b"".join(prefixed(b"e%d" % number) + prefixed(bytes(MAXIMUM_EXTRA_BYTES)) for number in range(4))
    whole = b"SCUMBLE-EVIDENCE-1\n" + prefixed(b"tdx") + prefixed(b"") + b"\x04" + extras
    assert len(whole) > MAXIMUM_BYTES
    with pytest.raises(AttestationRefused, match="truncated, altered"):
        Evidence.from_bytes(whole)
    with pytest.raises(AttestationRefused, match="too large"):
        Evidence.from_bytes(
            b"SCUMBLE-EVIDENCE-1\n" + prefixed(b"tdx") + prefixed(bytes(MAXIMUM_REPORT_BYTES + 1)) + b"\0"
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda more: Evidence("tdx", bytes(MAXIMUM_REPORT_BYTES + more)),
        lambda more: Evidence("tdx", b"", {"a": bytes(MAXIMUM_EXTRA_BYTES + more)}),
        lambda more: Evidence("tdx", b"", {f"e{number}": b"" for number in range(16 + more)}),
        lambda more: Evidence("tdx", b"", {f"e{number}": bytes(7 * 2**15 + more) for number in range(4)}),
    ],
    ids=["report", "extra", "extras", "together"],
)
def test_what_is_just_small_enough_can_be_made_and_nothing_larger(make: Callable[[int], Evidence]) -> None:
    assert Evidence.from_bytes(make(0).to_bytes()) == make(0)
    with pytest.raises(AttestationRefused, match="too large"):
        make(1)


def test_the_largest_evidence_fits_its_own_limit() -> None:
    extras = {f"e{number:031}": bytes(MAXIMUM_EXTRA_BYTES) for number in range(3)}
    extras |= {f"f{number:031}": bytes(10_000) for number in range(13)}
    largest = Evidence("simulated", bytes(MAXIMUM_REPORT_BYTES), extras)
    assert len(largest.to_bytes()) <= MAXIMUM_BYTES
    assert Evidence.from_bytes(largest.to_bytes()) == largest


def test_what_evidence_holds_does_not_change_with_what_it_was_made_from() -> None:
    extras = {"a": b"value"}
    evidence = Evidence("tdx", b"", extras)
    extras["a"] = b"other"
    assert evidence.extras["a"] == b"value"
    assert "value" not in repr(evidence)
