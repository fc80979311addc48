"""Index files: bit for bit there and back, and every accident a clear error."""

from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble import CategoryDomain, DPPLRIndex, ExplicitKeys, IntegerDomain, Ledger
from scumble.errors import Corrupt, FileError, NewerVersion, NotFitted
from scumble.index.blocks import Blocks
from scumble.index.curve import MonotoneCurve
from scumble.index.file import (
    CHECKSUM_BYTES,
    HEADER,
    MAGIC,
    MECHANISMS,
    MOST_ROWS,
    IndexModel,
    _packed_blocks,
    block_bytes,
    decode,
    domain_bytes,
    encode,
    fixed_bytes,
    most_segments,
    unpacked_domain,
)
from scumble.index.packing import pack, packed_bytes, unpack
from scumble.index.segments import Segments, fit_all, join, quantum
from scumble.index.slack import SLACKS
from scumble.privacy.budget import unsafe_budget


def fitted(**options: object) -> DPPLRIndex:
    keys = np.random.default_rng(3).integers(0, 5000, 20_000)
    budget = Ledger(limit=1).spend(1, "keys")
    index = DPPLRIndex(**options)  # type: ignore[arg-type]
    return index.fit(keys, domain=IntegerDomain(0, 4999), budget=budget)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=60), st.integers(0, 10**9))
def test_packing_round_trip(values: list[int], beyond: int) -> None:
    array = np.sort(np.array(values, dtype=np.int64))
    greatest = int(array[-1]) + beyond
    data = pack(array, greatest)
    assert len(data) == packed_bytes(len(array), greatest)
    assert unpack(data, len(array), greatest).tolist() == array.tolist()


@pytest.mark.parametrize("mechanism", ["scumble", "paper"])
@pytest.mark.parametrize("slack", ["measured", "paper"])
def test_round_trip(tmp_path: Path, mechanism: str, slack: str) -> None:
    index = fitted(max_bytes=600, mechanism=mechanism, slack=slack)
    path = tmp_path / "keys.index"
    index.save(path)
    again = DPPLRIndex.load(path)
    assert encode(again.model) == path.read_bytes()
    assert path.stat().st_size == index.summary().bytes <= 600
    assert again.summary() == index.summary()
    lows, highs = np.arange(-10, 5100, 7), np.arange(-10, 5100, 7) + 90
    for one, other in zip(index.lookup_many(lows, highs), again.lookup_many(lows, highs), strict=True):
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("domain", [ExplicitKeys(list(range(0, 900, 3))), CategoryDomain(["a", "b", "ccc"])], ids=repr)
def test_lists_of_keys_come_along_and_are_not_counted(tmp_path: Path, domain: ExplicitKeys | CategoryDomain) -> None:
    keys = [domain.key(rank) for rank in range(domain.size)] * 20
    index = DPPLRIndex(max_bytes=256).fit(keys, domain=domain, budget=Ledger(limit=1).spend(1, "keys"))
    path = tmp_path / "keys.index"
    index.save(path)
    assert DPPLRIndex.load(path).model.domain == domain
    assert index.summary().bytes - index.summary().domain_bytes <= 256


def listed(keys: list[int] | list[str] | NDArray[Any]) -> IndexModel:
    domain = ExplicitKeys(keys)
    counts = np.ones(domain.size, np.int64)
    return DPPLRIndex(max_bytes=256).fit_counts(counts, domain=domain, budget=unsafe_budget(1)).model


@pytest.mark.parametrize(
    "keys",
    [
        [7],
        [-5, 0, 3],
        [-(2**63), -(2**63) + 9],
        [2**64 - 3, 2**64 - 1],
        [2**63 - 2, 2**63 + 1],
        [2**63 - 2, 2**63],
        [0, 2**62 - 1],
    ],
    ids=str,
)
def test_a_list_of_integers_is_packed_and_comes_back(keys: list[int]) -> None:
    data = encode(listed(keys))
    assert data[8] == 2
    assert decode(data).domain == ExplicitKeys(keys)
    assert encode(decode(data)) == data


@pytest.mark.parametrize("keys", [[0, 2**62], [-(2**63), 2**63 - 1], ["1", "5"]], ids=str)
def test_a_list_that_spans_too_much_stays_text_and_so_do_strings(keys: list[int] | list[str]) -> None:
    data = encode(listed(keys))
    assert data[8] == 1
    assert decode(data).domain == ExplicitKeys(keys)


def test_a_quarter_of_a_million_identifiers_take_five_bits_each() -> None:
    """Clustered and with gaps, in a span of 1.84 million; as text they would take eight bytes each."""
    steps = np.random.default_rng(1).geometric(250_000 / 1_841_180, 250_000)
    model = listed(np.cumsum(steps) + 5_001_709)
    assert domain_bytes(model.domain) < 250_000 * 5.5 / 8
    assert decode(encode(model)).domain == model.domain


@pytest.mark.parametrize(
    "text", ["1 9 4", "1  9 3", "01 9 3", "9 1 3", "1 9 0", "1 9 10", "1 9", "1 9223372036854775808 3"]
)
def test_an_impossible_list_is_corrupt(text: str) -> None:
    """The right one would be `1 9 3`: what it says of the list has to be what the list is."""
    data = encode(listed([1, 5, 9]))
    body = data[:-8].replace(b"\x05\0\0\x001 9 3", len(text).to_bytes(4, "little") + text.encode())
    assert body != data[:-8]
    with pytest.raises(Corrupt):
        decode(body + sha256(body).digest()[:8])


@pytest.mark.parametrize(
    ("first", "steps"), [(1, [1, 4, 8]), (1, [0, 4, 7]), (-(2**63) - 1, [0, 4, 8]), (2**64 - 8, [0, 4, 8])], ids=str
)
def test_a_list_begins_and_ends_where_it_says_and_within_64_bits(first: int, steps: list[int]) -> None:
    with pytest.raises(ValueError, match="impossible list"):
        unpacked_domain(f"{first} {first + 8} 3", pack(np.array(steps), 8))
    assert unpacked_domain("1 9 3", pack(np.array([0, 4, 8]), 8)) == (ExplicitKeys([1, 5, 9]), packed_bytes(3, 8))


def test_every_flipped_bit_is_noticed() -> None:
    data = encode(fitted(max_bytes=300).model)
    for place in range(len(data)):
        for bit in range(8):
            altered = bytearray(data)
            altered[place] ^= 1 << bit
            with pytest.raises((Corrupt, NewerVersion)):
                decode(bytes(altered))


def test_every_truncation_is_noticed() -> None:
    data = encode(fitted(max_bytes=300).model)
    for length in range(len(data)):
        with pytest.raises(Corrupt):
            decode(data[:length])
    with pytest.raises(Corrupt):
        decode(data + b"\0")


@given(st.data())
def test_altered_files_with_a_right_checksum_never_crash(data: st.DataObject) -> None:
    """What a checksum can't see must still end in our errors, or in an index that works."""
    original = bytearray(encode(MODEL))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(len(MAGIC) + 1, len(original) - CHECKSUM_BYTES - 1))
        original[place] = data.draw(st.integers(0, 255))
    body = bytes(original[:-CHECKSUM_BYTES])
    try:
        model = decode(body + sha256(body).digest()[:CHECKSUM_BYTES])
    except FileError:
        return
    found = model.lookup(10, 20)
    assert 0 <= found.start <= found.stop <= model.capacity


MODEL = fitted(max_bytes=300).model


def packed(model: IndexModel, **header: int) -> bytes:
    """The file of an index with some of its header's numbers replaced, and a right checksum."""
    names = ("version", "mechanism", "slack", "levels", "count", "ceiling", "max_error", "slack_rows", "capacity")
    body = bytearray(encode(model)[:-CHECKSUM_BYTES])
    numbers = dict(zip(names, HEADER.unpack_from(body, len(MAGIC)), strict=True)) | header
    HEADER.pack_into(body, len(MAGIC), *numbers.values())
    return bytes(body) + sha256(body).digest()[:CHECKSUM_BYTES]


def test_sizes_beyond_what_the_kernels_multiply_exactly() -> None:
    """Those that are just small enough are read; the others are refused, not computed with."""
    assert MOST_ROWS == 2**37
    assert decode(packed(MODEL)).capacity == MODEL.capacity
    for name in ("slack_rows", "capacity"):
        assert getattr(decode(packed(MODEL, **{name: MOST_ROWS})), name) == MOST_ROWS
        with pytest.raises(Corrupt, match="do not fit"):
            decode(packed(MODEL, **{name: MOST_ROWS + 1}))


def test_mechanisms_and_slacks_that_there_are_not() -> None:
    for code in (3, 255):
        for part in ("mechanism", "slack"):
            with pytest.raises(Corrupt, match="do not fit"):
                decode(packed(MODEL, **{part: code}))


@pytest.mark.parametrize(
    ("max_error", "readable"), [(0, False), (1, True), (MOST_ROWS, True), (MOST_ROWS + 1, False), (2**40, False)]
)
def test_errors_that_no_segments_have(max_error: int, readable: bool) -> None:
    segments = Segments(5000, np.array([0]), np.array([0]), np.array([0]), max_error)
    data = encode(replace(MODEL, segments=segments))
    if readable:
        assert decode(data).segments.max_error == max_error
    else:
        with pytest.raises(Corrupt, match="do not fit"):
            decode(data)


def test_numbers_of_segments_that_cannot_be() -> None:
    """None; more than there are ranks; and as many as there are, which can be."""
    three = np.array([3])
    one = replace(MODEL, domain=IntegerDomain(0, 0), segments=Segments(1, np.array([0]), three, three, 1))
    assert len(decode(encode(one)).segments) == 1
    for model, count in ((MODEL, 0), (one, 0), (one, 2), (MODEL, 5001), (MODEL, 2**32 - 1)):
        with pytest.raises(Corrupt, match="do not fit"):
            decode(packed(model, count=count))


@pytest.mark.parametrize(
    ("starts", "readable"),
    [([0], True), ([0, 1, 2], True), ([0, 4998, 4999], True), ([1], False), ([1, 9], False), ([0, 7, 7], False)],
    ids=str,
)
def test_segments_follow_one_another_from_the_first_rank_on(starts: list[int], readable: bool) -> None:
    """Each ends higher than the next begins: so it stays, in one curve."""
    places = np.arange(len(starts))
    segments = Segments(5000, np.array(starts), 10 * places, 10 * places + 15, 20)
    data = encode(replace(MODEL, segments=segments))
    if readable:
        again = decode(data).segments
        assert again.curves == (0,)
        assert again.at_many(np.arange(5000)).tolist() == segments.at_many(np.arange(5000)).tolist()
    else:
        with pytest.raises(Corrupt, match="do not fit"):
            decode(data)


@pytest.mark.parametrize(("rows", "readable"), [(MOST_ROWS, True), (MOST_ROWS + 1, False), (2**62, False)])
@pytest.mark.parametrize("max_error", [1, 1000])
@pytest.mark.parametrize("pieces", [1, 9])
def test_a_curve_beyond_what_the_kernels_multiply_exactly(
    rows: int, max_error: int, pieces: int, readable: bool
) -> None:
    step = quantum(max_error)
    ends = np.zeros(pieces, np.int64)
    ends[-1] = rows // step * step + (0 if readable else step)
    segments = Segments(5000, np.arange(pieces), np.zeros(pieces, np.int64), ends, max_error)
    data = encode(replace(MODEL, segments=segments))
    if readable:
        assert decode(data).segments.at(4999) == rows // step * step
    else:
        with pytest.raises(Corrupt, match="do not fit"):
            decode(data)


# --- blocks ------------------------------------------------------------------------------------------


def in_blocks(blocks: int, size: int, rows: int = 500, **options: Any) -> IndexModel:
    index = DPPLRIndex(blocks=blocks, **options)
    counts = np.full(size, rows)
    return index.fit_counts(counts, domain=IntegerDomain(0, size - 1), budget=unsafe_budget(1)).model


def relaid(bounds: list[int], slacks: tuple[int, ...] = (10, 25)) -> IndexModel:
    """Five segments over 40 ranks in two blocks with these bounds, whether that makes sense or not."""
    starts = np.array([0, 1, 10, 20, 30])
    curves = tuple(np.searchsorted(starts, bounds[:-1]).tolist())
    segments = Segments(40, starts, np.full(5, 2), np.array([2, 90, 90, 90, 90]), 50, curves)
    blocks = Blocks.of(np.array(bounds), segments.at_many(np.array(bounds[1:]) - 1), np.array(slacks))
    return replace(
        MODEL, domain=IntegerDomain(0, 39), segments=segments, blocks=blocks, slack_rows=25, capacity=blocks.rows
    )


@pytest.mark.parametrize(("blocks", "size"), [(2, 16), (32, 256), (3, 24), (2, 65)])
def test_blocks_come_back_the_smallest_included(blocks: int, size: int) -> None:
    """Of 65 ranks, 64 is the last: that takes a bit more than 63."""
    model = in_blocks(blocks, size)
    again = decode(encode(model))
    assert again.blocks is not None
    assert model.blocks is not None
    assert (again.blocks.bounds.tolist(), again.blocks.slacks.tolist()) == (
        model.blocks.bounds.tolist(),
        model.blocks.slacks.tolist(),
    )
    assert again.slack_rows == max(model.blocks.slacks)
    assert again.segments.curves == model.segments.curves
    assert encode(again) == encode(model)


def test_one_block_can_be_read_too() -> None:
    """No build writes one; docs/format.md allows it."""
    model = in_blocks(2, 16)
    segments = fit_all([MonotoneCurve(np.arange(8) * 40), MonotoneCurve(np.arange(8) * 50)], 2)
    assert segments is not None
    both = join(segments)
    blocks = Blocks.of(np.array([0, 8, 16]), both.totals, np.array([30]))
    again = decode(encode(replace(model, segments=both, blocks=blocks, capacity=blocks.rows)))
    assert again.blocks is not None
    assert again.blocks.places.tolist() == [0, 280 + 350 + 30]


def test_blocks_that_no_build_makes_are_corrupt() -> None:
    for bounds, readable in (
        ([0, 10, 20, 30, 40], True),
        ([0, 1, 10, 20, 40], True),  # a half of one rank
        ([1, 10, 20, 30, 40], False),  # a rank that no block has
        ([0, 20, 20, 30, 40], False),  # a half without ranks
        ([0, 11, 20, 30, 40], False),  # a half that begins within a segment
        ([0, 10, 20, 35, 40], False),  # the same after the last segment's start
    ):
        data = encode(relaid(bounds))
        if readable:
            assert decode(data).start_after(25) == relaid(bounds).start_after(25)
        else:
            with pytest.raises(Corrupt, match="do not fit"):
                decode(data)
    model = relaid([0, 10, 20, 30, 40])
    for change in (-1, 1):
        with pytest.raises(Corrupt, match="do not fit"):
            decode(packed(model, capacity=model.capacity + change))
        with pytest.raises(Corrupt, match="do not fit"):
            decode(packed(model, slack_rows=35 + change))


@pytest.mark.parametrize(("blocks", "size"), [(33, 300), (32, 255), (2, 15)])
def test_more_blocks_than_there_can_be_are_corrupt(blocks: int, size: int) -> None:
    halves = np.arange(2 * blocks + 1) * size // (2 * blocks)
    parts = fit_all([MonotoneCurve(np.arange(length) * 40) for length in np.diff(halves)], 2)
    assert parts is not None
    segments = join(parts)
    laid = Blocks.of(halves, segments.totals, np.full(blocks, 7))
    model = replace(MODEL, domain=IntegerDomain(0, size - 1), segments=segments, blocks=laid, capacity=laid.rows)
    with pytest.raises(Corrupt, match="do not fit"):
        decode(encode(model))


def test_no_blocks_in_a_file_of_blocks_are_corrupt() -> None:
    model = in_blocks(2, 16)
    data = encode(model)[:-CHECKSUM_BYTES]
    place = fixed_bytes(model.domain, model.epsilon, model.delta, model.beta) - CHECKSUM_BYTES
    assert data[place : place + 3] == b"\0\x02\0"
    body = data[:place] + bytes(3) + data[place + 3 :]
    with pytest.raises(Corrupt, match="do not fit"):
        decode(body + sha256(body).digest()[:CHECKSUM_BYTES])


def test_blocks_take_as_many_bytes_as_are_kept_for_them() -> None:
    for size in range(64, 200):
        assert block_bytes(4, size) == 3 + packed_bytes(8, size - 1) + packed_bytes(4, 4 << 16)
    assert block_bytes(32, 1000) == 3 + packed_bytes(64, 999) + packed_bytes(32, 32 << 16)
    for size in (64, 1000):
        model = in_blocks(4, size, max_bytes=700)
        assert model.blocks is not None
        assert len(_packed_blocks(model.blocks)) <= block_bytes(4, size) - 3
        assert len(encode(model)) <= 700


def test_a_model_in_blocks_tells_its_usual_slack_and_where_rows_lie() -> None:
    model = relaid([0, 10, 20, 30, 40])
    assert (model.usual_slack, replace(model, blocks=None).usual_slack) == (18, 25)
    assert model.blocks is not None
    rows = model.segments.at_many(np.arange(40))
    half = [sum(bound <= rank for bound in model.blocks.bounds[1:].tolist()) for rank in range(40)]
    assert model.curve(np.arange(40)).tolist() == (rows + model.blocks.offsets[half]).tolist()
    assert replace(model, blocks=None).curve(np.arange(40)).tolist() == rows.tolist()


def test_newer_version_and_other_files(tmp_path: Path) -> None:
    data = bytearray(encode(MODEL))
    data[len(MAGIC)] = 5
    with pytest.raises(NewerVersion) as caught:
        decode(bytes(data))
    assert "upgrade" in str(caught.value)
    with pytest.raises(Corrupt):
        decode(b"PAR1 and so on")
    with pytest.raises(FileError):
        DPPLRIndex.load(tmp_path / "absent")
    with pytest.raises(FileError):
        fitted().save(tmp_path / "no" / "such" / "folder")
    with pytest.raises(NotFitted):
        DPPLRIndex().save(tmp_path / "empty")


def test_about_thirty_five_bits_a_segment() -> None:
    rng = np.random.default_rng(5)
    counts = rng.poisson(1, 2**18)
    budget = Ledger(limit=1).spend(1, "keys")
    index = DPPLRIndex(max_bytes=4096).fit_counts(counts, domain=IntegerDomain(0, 2**18 - 1), budget=budget)
    summary = index.summary()
    assert summary.bytes <= 4096
    assert summary.bits_per_segment < 50
    assert summary.epsilon == float(Fraction(1))


def test_the_codes_in_a_file_keep_their_meaning() -> None:
    assert {name: slack.code for name, slack in SLACKS.items()} == {"measured": 0, "paper": 1, "lossless": 2}
    assert {name: mechanism.code for name, mechanism in MECHANISMS.items()} == {"scumble": 0, "paper": 1}


@given(st.integers(0, 300), st.integers(1, 400), st.integers(0, 10**6), st.integers(1, 5000))
def test_as_many_segments_as_surely_fit(room: int, size: int, rows: int, max_error: int) -> None:
    """The most that pack into the room even if every value is as large as a curve within max_error of it has."""

    def needed(count: int) -> int:
        greatest = (rows + max_error) // quantum(max_error) + 1 + (2 * max_error // quantum(max_error) + 2) * count
        return packed_bytes(count, size - 1) + packed_bytes(2 * count, greatest)

    most = most_segments(room, size, rows, max_error)
    assert most == most_segments(room, size, rows, max_error, 1)
    assert 0 <= most <= size
    assert most == 0 or needed(most) <= room
    assert most == size or needed(most + 1) > room
