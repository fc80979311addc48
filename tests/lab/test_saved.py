"""Every comparator as a file: read back to the bit, and nothing else is taken for one."""

import json
import struct
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scumble import DPPLRIndex, ExplicitKeys, IntegerDomain
from scumble.errors import Corrupt, FileError, InvalidParameter, NewerVersion, NotFitted, ScumbleError
from scumble.lab import comparators
from scumble.lab.comparators import COMPARATORS, ExactIndex, load
from scumble.lab.comparators.saved import CHECKSUM_BYTES, HEAD, MAGIC, SavedIndex, decode, encode
from scumble.privacy.budget import unsafe_budget
from scumble.types import Domain

pytest.importorskip("dp_accounting")

SMALL: dict[str, Callable[[], SavedIndex]] = {
    "dp-rmi": lambda: comparators.DPRMIIndex(3, stages=2, steps=2),
    "fmi": lambda: comparators.FMIIndex(3, steps=2),
    "fmi-perceptrons": lambda: comparators.FMIPerceptronsIndex(2, hidden=(4, 3, 2), epochs=2, batch=8),
    "dp-bplus-tree, given": lambda: comparators.DPBPlusTreeIndex(overflow_rows=3),
}
MAKERS: dict[str, Callable[[], SavedIndex]] = {**COMPARATORS, **SMALL}
DOMAINS: dict[str, Domain] = {
    "span": IntegerDomain(-3, 8),
    "list": ExplicitKeys([-7, 1, 2, 3, 5, 8, 90, 91, 95, 96, 97, 500]),
}
COUNTS = np.array([0, 5, 1, 0, 40, 2, 2, 2, 0, 9, 1, 3])


def fitted(name: str, domain: Domain = DOMAINS["span"], capacity: int | None = None) -> SavedIndex:
    index = MAKERS[name]()
    if isinstance(index, ExactIndex):
        return index.fit_counts(COUNTS, domain=domain, capacity=capacity)
    budget = unsafe_budget(1, delta="1e-3", label="test")
    return index.fit_counts(COUNTS, domain=domain, budget=budget, beta=1e-4, capacity=capacity)


def resealed(body: bytes) -> bytes:
    return body + sha256(body).digest()[:CHECKSUM_BYTES]


def with_header(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The same file with another header, and a checksum that fits."""
    version, length = HEAD.unpack_from(data, len(MAGIC))
    at = len(MAGIC) + HEAD.size
    header = json.loads(data[at : at + length])
    change(header)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return resealed(MAGIC + HEAD.pack(version, len(text)) + text + data[at + length : -CHECKSUM_BYTES])


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("capacity", [None, 100])
@pytest.mark.parametrize("name", MAKERS)
def test_what_is_saved_is_read_back_to_the_bit(name: str, domain: str, capacity: int | None, tmp_path: Path) -> None:
    index = fitted(name, DOMAINS[domain], capacity)
    index.save(tmp_path / "index")
    for found in (load(tmp_path / "index"), type(index).load(tmp_path / "index")):
        assert isinstance(found, SavedIndex)
        assert type(found) is type(index)
        assert encode(found) == encode(index) == (tmp_path / "index").read_bytes()
        firsts, lasts = np.triu_indices(len(COUNTS))
        ours, theirs = (i.positions.of_ranks(firsts.copy(), lasts.copy()) for i in (index, found))
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        assert found.size_bytes == index.size_bytes
        assert found.positions.domain == index.positions.domain
        assert repr(found) == repr(index)
        assert found.unsafe_dummy_rows(COUNTS) == index.unsafe_dummy_rows(COUNTS)
        if name == "exact":
            with pytest.raises(InvalidParameter):
                _ = found.terms
        else:
            assert found.terms == index.terms
            assert found.terms.epsilon == Fraction(1)


def test_every_comparator_is_registered_documented_and_has_a_name_of_its_own() -> None:
    classes = {getattr(comparators, name) for name in comparators.__all__ if name.endswith("Index")}
    assert set(COMPARATORS.values()) == classes
    assert all(kind.kind == name for name, kind in COMPARATORS.items())
    said = comparators.__doc__ or ""
    assert all(kind.__name__ in said for kind in classes)
    results = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    assert all(f"`{kind.__name__}`" in results for kind in classes)


def test_an_index_of_ours_is_loaded_too_and_is_no_comparator(tmp_path: Path) -> None:
    ours = DPPLRIndex().fit_counts(COUNTS, domain=DOMAINS["span"], budget=unsafe_budget(1))
    ours.save(tmp_path / "ours")
    assert isinstance(load(tmp_path / "ours"), DPPLRIndex)
    with pytest.raises(Corrupt, match="comparator"):
        comparators.SpecialIndex.load(tmp_path / "ours")
    fitted("special").save(tmp_path / "theirs")
    with pytest.raises(Corrupt, match="another kind"):
        comparators.CryptEpsilonIndex.load(tmp_path / "theirs")


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_that_is_cut_foreign_or_altered_is_refused(name: str) -> None:
    data = encode(fitted(name))
    for length in (*range(40), len(data) // 2, len(data) - 1):
        with pytest.raises(Corrupt):
            decode(data[:length], COMPARATORS)
    for place in range(0, len(data), max(1, len(data) // 97)):
        altered = bytearray(data)
        altered[place] ^= 1
        with pytest.raises((Corrupt, NewerVersion)):
            decode(bytes(altered), COMPARATORS)
    for foreign in (b"", b"PAR1", MAGIC, data + b"x", b"x" + data):
        with pytest.raises(Corrupt) as caught:
            decode(foreign, COMPARATORS)
        assert caught.value.hint
    with pytest.raises(NewerVersion):
        decode(MAGIC + b"\x02" + data[len(MAGIC) + 1 :], COMPARATORS)


def last_array(place: int, value: Callable[[Any], object]) -> Callable[[dict[str, Any]], object]:
    def change(header: dict[str, Any]) -> None:
        header["arrays"][-1][place] = value(header["arrays"][-1][place])

    return change


def numbers(value: object) -> Callable[[dict[str, Any]], object]:
    return lambda header: header.update(numbers=dict.fromkeys(header["numbers"], value))


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no kind": lambda header: header.pop("kind"),
    "a kind of no name": lambda header: header.update(kind=7),
    "an unknown kind": lambda header: header.update(kind="b-tree"),
    "another domain": lambda header: header.update(domain="nonsense"),
    "keys that are not there": lambda header: header.update(key_bytes=3),
    "fewer arrays": lambda header: header["arrays"].pop(),
    "shorter arrays": last_array(2, lambda length: length - 1),
    "arrays of less than nothing": last_array(2, lambda _: -1),
    "arrays of another type": last_array(1, lambda form: "f8" if form == "i8" else "i8"),
    "arrays of no type": last_array(1, lambda _: "O"),
    "no numbers": lambda header: header.update(numbers={}),
    "numbers below zero": numbers(-1),
    "numbers that are huge": numbers(2**70),
    "numbers that are none": numbers("1"),
    "terms of another shape": lambda header: header.update(terms=["1/1"]),
    "terms that are no ratios": lambda header: header.update(terms=[*["1"] * 5, None]),
    "an impossible capacity": lambda header: header.update(terms=[*["1/1"] * 5, -5]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", MAKERS)
def test_parts_that_do_not_fit_are_refused_even_under_a_right_checksum(name: str, change: str) -> None:
    data = encode(fitted(name))
    with pytest.raises(Corrupt):
        decode(with_header(data, CHANGES[change]), COMPARATORS)


@pytest.mark.parametrize("name", ["crypt-epsilon", "dp-bplus-tree", "special"])
def test_an_index_over_another_domain_is_refused(name: str) -> None:
    data = encode(fitted(name))
    with pytest.raises(Corrupt):
        decode(with_header(data, lambda header: header.update(domain="int:0:5")), COMPARATORS)


@pytest.mark.parametrize("name", ["fmi", "dp-rmi", "fmi-perceptrons"])
def test_parameters_that_are_no_numbers_are_refused(name: str) -> None:
    data = encode(fitted(name))
    with pytest.raises(Corrupt):
        decode(resealed(data[: -CHECKSUM_BYTES - 8] + struct.pack("<d", float("nan"))), COMPARATORS)


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_no_bytes_make_anything_but_a_refusal(noise: bytes) -> None:
    for data in (noise, MAGIC + noise, resealed(MAGIC + noise), resealed(MAGIC + HEAD.pack(1, len(noise)) + noise)):
        with pytest.raises(ScumbleError):
            decode(data, COMPARATORS)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    index = fitted("special")
    with pytest.raises(FileError, match="write"):
        index.save(tmp_path / "no" / "folder")
    with pytest.raises(FileError, match="read"):
        load(tmp_path / "nothing")
    with pytest.raises(NotFitted):
        comparators.SpecialIndex().save(tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_a_list_of_keys_is_packed_in_every_file_alike() -> None:
    """One identifier in seven: some five bits each, as in the files of DP-PLR."""
    keys = 5_000_000 + np.flatnonzero(np.random.default_rng(1).random(100_000) < 0.14)
    counts = np.ones(len(keys), dtype=np.int64)
    sizes = [
        len(encode(ExactIndex().fit_counts(counts, domain=domain)))
        for domain in (ExplicitKeys(keys), IntegerDomain(1, len(keys)))
    ]
    assert 4 < 8 * (sizes[0] - sizes[1]) / len(keys) < 6
