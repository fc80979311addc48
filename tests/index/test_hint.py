"""Hints: curves of public keys, their bytes, and the check that notices wrong ones."""

from fractions import Fraction
from hashlib import sha256
from itertools import pairwise
from math import ceil, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble import DPPLRIndex, IntegerDomain, Ledger
from scumble.errors import Corrupt, FileError, InvalidParameter, NewerVersion
from scumble.index import dp_plr
from scumble.index import hint as hint_module
from scumble.index.contract import Terms
from scumble.index.curve import Histogram
from scumble.index.file import HINT_LENGTH, decode, encode
from scumble.index.hint import HEADER, MAGIC, MOST_PIECES, Hint, _straight
from scumble.index.mechanisms import hinted, scout, wide_tree
from scumble.index.mechanisms.hinted import CHECK_SHARE, HintedCells, follows, hinted_cells, misfit
from scumble.index.packing import pack
from scumble.index.segments import Segments
from scumble.lab.attack.reconstruction import rows_below
from scumble.privacy.noise import Noise

Counts = NDArray[np.int64]
SIZE, ROWS = 1 << 15, 200_000
DOMAIN = IntegerDomain(0, SIZE - 1)


def lumpy(seed: int, rows: int = ROWS, size: int = SIZE) -> Counts:
    """A third of the rows at 300 heavy ranks, the others in a hump; ranks are heavy whatever the seed."""
    rng, heavy = np.random.default_rng(seed), np.random.default_rng(0).permutation(size)[:300]
    spread = np.clip(rng.normal(size / 3, size / 9, rows - rows // 3), 0, size - 1).astype(np.int64)
    return np.bincount(np.concatenate([spread, rng.choice(heavy, rows // 3)]), minlength=size)


def fit(counts: Counts, noise: int = 1, **options: object) -> DPPLRIndex:
    """An index whose noise is the same each time."""
    index = DPPLRIndex(max_bytes=4096, **options)  # type: ignore[arg-type]
    budget = Ledger(limit=1).spend(1, "test")
    capacity = -(-int(counts.sum()) // 1024) * 1024
    domain = IntegerDomain(0, len(counts) - 1)
    return index.unsafe_fit_counts(
        counts, Noise(bytes([noise]) * 32), domain=domain, budget=budget, beta=1e-6, capacity=capacity
    )


def lost(index: DPPLRIndex, counts: Counts) -> int:
    ranks = np.arange(len(counts))
    return int(index.unsafe_outcome(counts, ranks, ranks).missed.sum())


# --- the curve -------------------------------------------------------------------------------------


def test_marks_follow_the_public_keys() -> None:
    counts = lumpy(1)
    hint = Hint.of_counts(counts)
    marks = hint.at_many(np.arange(SIZE))
    assert hint.span == 1 << 19  # about twice the rows
    assert marks[-1] == hint.span - 1 == hint.at(SIZE - 1)
    assert marks[0] >= 0
    assert not np.any(np.diff(marks) < 0)
    expected = np.cumsum(counts) / ROWS
    assert np.abs(marks / hint.span - expected).max() < 1 / 64 + 0.01
    heaviest = int(counts.argmax())
    assert marks[heaviest] - marks[heaviest - 1] == pytest.approx(counts[heaviest] / ROWS * hint.span, rel=0.05)


def test_keys_that_come_independently_give_a_straight_line_and_steps_give_pieces() -> None:
    rng = np.random.default_rng(1)
    assert len(Hint.of_counts(np.bincount(rng.integers(0, SIZE, ROWS), minlength=SIZE)).marks) == 1
    steps = np.zeros(SIZE, np.int64)
    steps[[100, 5000, 5001, SIZE - 1]] = 1000
    hint = Hint.of_counts(steps)
    marks = hint.at_many(np.array([99, 100, 4999, 5000, 5001, SIZE - 2, SIZE - 1])) / hint.span
    assert marks == pytest.approx([0, 0.25, 0.25, 0.5, 0.75, 0.75, 1], abs=1 / 50)
    assert len(hint.marks) < 30


def test_a_hint_has_so_many_pieces_at_most() -> None:
    rng = np.random.default_rng(1)
    counts = np.where(rng.random(3 * MOST_PIECES) < 0.5, 0, 400)
    hint = Hint.of_counts(counts)
    assert 100 < len(hint.marks) <= MOST_PIECES
    assert len(Hint.of_counts(np.zeros(100, np.int64)).marks) == 1
    assert Hint.of_counts(np.array([7])).at(0) == (1 << 16) - 1


def test_of_keys_and_of_models_agree_with_of_counts() -> None:
    keys = [5, 5, 9, 9, 9, 60]
    public = Hint.of_keys(keys, IntegerDomain(0, 99))
    assert public.packed == Hint.of_counts(np.bincount(keys, minlength=100)).packed
    counts = lumpy(1)
    for blocks in (1, 8):
        model = fit(counts, blocks=blocks).model
        rows = model.rows_up_to(np.arange(SIZE))
        assert np.abs(rows - np.cumsum(counts)).max() < 1500
        assert not np.any(np.diff(rows) < -200)
        hint = Hint.of_models([model, model])
        assert hint.span == 1 << 20
        assert np.abs(hint.at_many(np.arange(SIZE)) / hint.span - np.cumsum(counts) / ROWS).max() < 0.03


@pytest.mark.parametrize("counts", [lumpy(1, 3000, 500), np.zeros(7, np.int64), np.array([0, 0, 9])], ids=len)
def test_a_mark_is_the_share_of_the_rows_and_a_sixty_fourth_that_of_the_ranks(counts: Counts) -> None:
    hint, curve, size = Hint.of_counts(counts), np.cumsum(counts).tolist(), len(counts)
    rows, starts = curve[-1], hint.marks.starts.tolist()
    for rank in {*starts, *(start - 1 for start in starts[1:]), size - 1}:
        ranks = Fraction(rank + 1, size)
        share = (63 * Fraction(curve[rank], rows) + ranks) / 64 if rows else ranks
        assert hint.at(rank) == max(0, int(share * hint.span) - 1)
    assert hint.span == 1 << 16


@pytest.mark.parametrize(("rows", "bits"), [(1 << 14, 16), (1 << 15, 17), (1 << 22, 24), (1 << 23, 24), (1 << 30, 24)])
def test_a_hint_has_twice_as_many_marks_as_rows_within_limits(rows: int, bits: int) -> None:
    assert Hint.of_counts(np.array([rows // 2, rows - rows // 2])).span == 1 << bits


@pytest.mark.parametrize(
    ("curve", "starts"),
    [
        ([0, 63, 100], [0]),  # away from the chord by 13: 1.2 times the root of 100 rows, and one
        ([0, 64, 100], [0, 1]),  # it has just stepped up
        ([0, 37, 100], [0]),
        ([0, 36, 100], [0, 2]),  # it is about to
        ([7, 70, 107], [0]),
        ([0, 501_201, 10**6], [0]),
        ([0, 501_202, 10**6], [0, 1]),
        ([0, 4, 5], [0]),
        ([0, 5, 5], [0]),
        ([0, 9, 9, 9, 9, 90, 90], [0, 1, 5]),
        ([0, 0, 0, 100, 100, 100], [0, 3]),
        ([0, 0, 50, 50, 100, 100], [0, 2, 4]),
        ([5], [0]),
        ([0, 1000], [0]),
    ],
)
def test_a_piece_ends_where_the_curve_strays_from_its_chord(curve: list[int], starts: list[int]) -> None:
    assert _straight(np.array(curve), 12).tolist() == starts


@pytest.mark.parametrize(
    ("most", "tenths"), [(56, [12]), (26, [12, 15, 18, 22]), (8, [12, 15, 18, 22, 27, 33, 41, 51, 63])]
)
def test_pieces_stray_by_a_quarter_more_while_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, most: int, tenths: list[int]
) -> None:
    tried = []

    def straight(curve: Counts, allowed: int) -> Counts:
        tried.append((allowed, len(_straight(curve, allowed))))
        return _straight(curve, allowed)

    monkeypatch.setattr(hint_module, "MOST_PIECES", most)
    monkeypatch.setattr(hint_module, "_straight", straight)
    hint = Hint.of_counts(lumpy(1, 30_000, 400))
    assert [allowed for allowed, _ in tried] == tenths
    assert [pieces > most for _, pieces in tried] == [True] * (len(tried) - 1) + [False]
    assert len(hint.marks) == tried[-1][1]


def test_the_first_mark_behind_the_ranks_before() -> None:
    hint = Hint.of_counts(lumpy(1, 3000, 500))
    assert hint.before(np.array([0, 1, 7, 499])).tolist() == [0, *(hint.at(rank) + 1 for rank in (0, 6, 498))]


def test_released_curves_add_up_where_they_rise_above_nothing() -> None:
    def model(*rows: int) -> Any:
        return SimpleNamespace(domain=IntegerDomain(0, 3), rows_up_to=lambda ranks: np.array(rows)[ranks])

    hint = Hint.of_models([model(-5, 3, 2, 10)])
    assert hint.packed == Hint.of_counts(np.array([0, 3, 0, 7])).packed
    both = Hint.of_models([model(-5, 3, 2, 10), model(1, 1, 40, 40)])
    assert both.packed == Hint.of_counts(np.array([1, 3, 39, 7])).packed


# --- bytes -----------------------------------------------------------------------------------------


def test_bytes_and_files_come_back(tmp_path: Path) -> None:
    hint = Hint.of_counts(lumpy(1))
    again = Hint.unpacked(hint.packed, SIZE)
    assert again.packed == hint.packed
    assert again.at_many(np.arange(SIZE)).tolist() == hint.at_many(np.arange(SIZE)).tolist()
    path = tmp_path / "public.hint"
    hint.save(path, DOMAIN)
    data = path.read_bytes()
    assert Hint.is_one(data)
    assert Hint.read(data, DOMAIN).packed == hint.packed
    with pytest.raises(InvalidParameter, match="another domain"):
        Hint.read(data, IntegerDomain(1, SIZE))
    with pytest.raises(FileError):
        hint.save(tmp_path / "no" / "folder", DOMAIN)
    newer = bytearray(data)
    newer[len(MAGIC)] = 2
    with pytest.raises(NewerVersion):
        Hint.read(bytes(newer), DOMAIN)
    for place in (9, len(data) // 2, len(data) - 1):
        altered = bytearray(data)
        altered[place] ^= 1
        with pytest.raises((Corrupt, NewerVersion)):
            Hint.read(bytes(altered), DOMAIN)
    for cut in (0, 5, 8, 9, 40, len(data) - 1):
        with pytest.raises(Corrupt):
            Hint.read(data[:cut], DOMAIN)


def test_a_file_is_laid_out_as_documented() -> None:
    """docs/format.md: what one release has written, the next one reads."""
    hint, text = Hint.of_counts(np.array([0, 0, 0, 900, 0, 0])), b"int:0:5"
    assert hint.marks.starts.tolist() == [0, 3]
    header = (6).to_bytes(8, "little") + (2).to_bytes(4, "little") + bytes([16])
    assert hint.packed == header + pack(np.array([0, 3]), 5) + pack(np.array([169, 511, 65193, 65535]), 65535)
    body = b"SCUMHINT" + bytes([1]) + len(text).to_bytes(4, "little") + text + hint.packed
    assert hint.file(IntegerDomain(0, 5)) == body + sha256(body).digest()[:8]


@pytest.mark.parametrize("size", [512, 513])
def test_a_hint_of_one_piece_is_read_back(size: int) -> None:
    """Where the last rank begins to take a byte more."""
    hint = Hint.of_counts(np.zeros(size, np.int64))
    assert (len(hint.marks), Hint.unpacked(hint.packed, size).packed) == (1, hint.packed)


@pytest.mark.parametrize("size", [16, 17])
def test_where_pieces_begin_takes_as_many_bits_as_the_last_rank(size: int) -> None:
    hint = Hint.of_counts(np.where(np.arange(size) == 9, 900, 0))
    assert hint.marks.starts.tolist() == [0, 9]
    starts = pack(np.array([0, 9]), size - 1)
    assert hint.packed[HEADER.size :].startswith(starts)
    assert Hint.unpacked(hint.packed, size).marks.starts.tolist() == [0, 9]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"SCUMBLES" + bytes(40), "not a hint file"),
        (MAGIC + b"\1", "do not fit together"),
        (MAGIC + b"\1\3\0\0\0int", "do not fit together"),
        (MAGIC + b"\1\7\0\0\0\xff\xfe", "do not fit together"),
    ],
)
def test_a_file_that_is_whole_and_yet_no_hint_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(Corrupt, match=why):
        Hint.read(body + sha256(body).digest()[:8], DOMAIN)


def test_bytes_that_no_hint_has_are_refused() -> None:
    hint = Hint.of_counts(lumpy(1))
    for size in (SIZE - 1, SIZE + 1, 2 * SIZE, 1):
        with pytest.raises(InvalidParameter, match="no hint"):
            Hint.unpacked(hint.packed, size)
    for data in (b"", hint.packed[:4], hint.packed[:-1], hint.packed + b"\0", b"\0\0\0\0" + hint.packed[4:]):
        with pytest.raises(InvalidParameter, match="no hint"):
            Hint.unpacked(data, SIZE)
    late = Segments(SIZE, np.array([1, 50]), np.array([0, 9]), np.array([9, (1 << 16) - 1]), 1)
    short = Segments(SIZE, np.array([0, 50]), np.array([0, 9]), np.array([9, (1 << 15) - 1]), 1)
    twice = Segments(SIZE, np.array([0, 0]), np.array([0, 9]), np.array([9, (1 << 16) - 1]), 1)
    for marks in (late, short, twice):
        with pytest.raises(InvalidParameter, match="no hint"):
            Hint.unpacked(Hint(marks).packed, SIZE)


def test_a_hint_that_states_impossible_sizes_is_refused() -> None:
    """Though its other bytes are as a hint's: of no pieces, or too many, of too many marks, or not up to the last."""
    size = 2 * MOST_PIECES

    def stated(count: int, bits: int, last: int) -> bytes:
        starts, marks = np.arange(count), np.append(np.arange(2 * count - 1), last)
        return HEADER.pack(size, count, bits) + pack(starts, size - 1) + pack(marks, (1 << bits) - 1)

    for count, bits in ((1, 16), (MOST_PIECES, 16), (2, 24)):
        hint = Hint.unpacked(stated(count, bits, (1 << bits) - 1), size)
        assert (len(hint.marks), hint.packed) == (count, stated(count, bits, (1 << bits) - 1))
    for count, bits, short in ((1, 15, 1), (1, 25, 1), (MOST_PIECES + 1, 17, 1), (2, 16, 2)):
        with pytest.raises(InvalidParameter, match="no hint"):
            Hint.unpacked(stated(count, bits, (1 << bits) - short), size)
    with pytest.raises(InvalidParameter, match="no hint"):
        Hint.unpacked(HEADER.pack(size, 0, 16) + bytes(9), size)


@pytest.mark.parametrize("blocks", [1, 8])
def test_an_index_with_a_hint_is_read_back(blocks: int) -> None:
    model = fit(lumpy(2), hint=Hint.of_counts(lumpy(1)), blocks=blocks).model
    assert model.hint is not None
    data = encode(model)
    assert len(data) - len(model.hint.packed) - HINT_LENGTH.size <= 4096
    again = decode(data)
    assert encode(again) == data
    ranks = np.arange(SIZE)
    for mine, theirs in zip(model.of_ranks(ranks, ranks), again.of_ranks(ranks, ranks), strict=True):
        assert mine.tolist() == theirs.tolist()
    assert [again.lookup(rank) for rank in (0, 700, SIZE - 1)] == [model.lookup(rank) for rank in (0, 700, SIZE - 1)]


def test_what_is_shown_of_an_index_is_in_ranks(tmp_path: Path) -> None:
    index = fit(lumpy(2), hint=Hint.of_counts(lumpy(1)), blocks=8)
    model, about = index.model, index.summary()
    assert model.hint is not None
    assert about.hint_bytes == len(model.hint.packed)
    assert about.bits_per_segment < 60
    ranks = model.segment_ranks
    assert (ranks[0], len(np.unique(ranks))) == (0, len(ranks))
    assert 1 < len(ranks) <= len(model.segments)
    assert ranks.max() < SIZE < model.segments.starts.max()
    assert fit(lumpy(2)).model.segment_ranks.tolist() == fit(lumpy(2)).model.segments.starts.tolist()
    index.plot(tmp_path / "index.png")
    below = rows_below(model, model.blocks.places) if model.blocks is not None else np.zeros(1)
    assert below[-1] == pytest.approx(ROWS, rel=0.01)
    assert np.all(np.diff(below) > 0)


# --- cells and check -------------------------------------------------------------------------------


def test_ranks_that_share_a_mark_stay_in_one_cell() -> None:
    """Otherwise a half's first ranks would be looked up in the curve of the half before: rows were lost that way."""
    counts = np.zeros(1 << 18, np.int64)
    counts[:50] = 4000
    hint = Hint.of_counts(counts)
    marks = hint.at_many(np.arange(len(counts)))
    assert np.count_nonzero(np.diff(marks) == 0) > len(counts) // 2
    cells = hinted_cells(hint, 200_000, 230.0, 16)
    assert np.all(marks[cells.starts[1:]] > marks[cells.starts[1:] - 1])
    assert np.all(np.diff(cells.edges) > 0)
    assert cells.edges[0] == 0
    assert cells.edges[-1] == hint.span
    for blocks in (1, 8):
        index = fit(counts, hint=hint, blocks=blocks)
        assert index.model.hint is hint
        assert lost(index, counts) == 0


def cells_by_hand(hint: Hint, rows: int, rows_per_cell: float, least: int) -> list[int]:
    """Rank by rank: a cell is full with the rank that takes the expected rows past a whole number of cells.

    Before and after a rank of more than half a cell one begins as well; but only where a new mark does.
    """
    size, span = hint.marks.size, hint.span
    cells = min(size, max(2 * least, ceil(rows / rows_per_cell)))
    marks = [hint.at(rank) for rank in range(size)]
    shares = [0.0, *((0.75 / span) * (mark + 1) + (0.25 / size) * (rank + 1) for rank, mark in enumerate(marks))]
    starts = [0]
    begins = False
    for rank in range(size):
        heavy = (shares[rank + 1] - shares[rank]) * cells > 0.5
        begins |= heavy
        if begins and rank and marks[rank] > marks[rank - 1]:
            starts.append(rank)
            begins = False
        begins |= heavy or int(shares[rank + 1] * cells) > int(shares[rank] * cells)
    return starts


def misfit_by_hand(counts: list[int], starts: list[int], marks: list[int], rows: int) -> int:
    """Cell by cell: the rows before and after the middle mark, each in 256ths of what the larger part weighs."""
    found = 0
    for start, end in pairwise([*starts, len(marks)]):
        first, last = (marks[start - 1] + 1 if start else 0), marks[end - 1] + 1
        middle = next(rank for rank in range(start, end + 1) if rank == end or marks[rank] >= (first + last) // 2)
        if middle in (start, end):
            continue
        part = (marks[middle - 1] + 1 - first) / (last - first)
        larger = max(part, 1 - part)
        chance = sqrt(rows / (marks[-1] + 1) * (last - first) * part * (1 - part)) / larger
        left, right = (round(each / larger * 256) for each in (1 - part, part))
        apart = abs(left * sum(counts[start:middle]) - right * sum(counts[middle:end])) // 256
        found += max(0, apart - ceil(4 * chance) - 1)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_cells_and_their_misfit_are_what_they_are_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 400)) if seed < 10 else 3000
    public = rng.poisson(20 / (1 + rng.integers(0, 30, size))) * rng.choice([0, 1, 90], size, p=[0.3, 0.65, 0.05])
    public[: size // 9] *= seed < 10  # so that the first ranks have no mark of their own
    counts = rng.poisson(5, size) + np.where(rng.random(size) < 0.1, rng.integers(0, 300, size), 0)
    hint, rows, each = Hint.of_counts(public), int(10 ** rng.uniform(0, 5.5)), 77.0 * int(rng.integers(1, 5))
    marks = hint.at_many(np.arange(size)).tolist()
    for least in (1, 20):
        cells = hinted_cells(hint, rows, each, least)
        assert cells.starts.tolist() == cells_by_hand(hint, rows, each, least)
        assert cells.edges.tolist() == [0, *(marks[start - 1] + 1 for start in cells.starts[1:]), hint.span]
        assert cells.marks.tolist() == marks
        expected = misfit_by_hand(counts.tolist(), cells.starts.tolist(), marks, rows)
        assert misfit(counts, cells, rows).tolist() == [expected]


def test_a_heavy_rank_after_one_without_a_mark_of_its_own_is_a_cell() -> None:
    hint = Hint.of_counts(np.where(np.arange(2000) == 1, 10_000, 0))
    assert hint.at(0) == 0
    assert hinted_cells(hint, 10_000, 100.0, 1).starts[:2].tolist() == [0, 1]


def test_a_rank_of_half_a_cell_is_none_by_itself() -> None:
    """But of more than half."""
    even = Hint.of_counts(np.zeros(64, np.int64))
    assert hinted_cells(even, 1, 1.0, 16).starts.tolist() == list(range(0, 64, 2))
    assert hinted_cells(even, 1, 1.0, 17).starts.tolist() == list(range(64))


@pytest.mark.parametrize(("found", "trusted"), [(0, True), (11, True), (12, True), (13, False)])
def test_a_hint_is_trusted_up_to_four_noise_scales(monkeypatch: pytest.MonkeyPatch, found: int, trusted: bool) -> None:
    """The noise left out, whose scale is one over the check's epsilon: for a sensitivity of 1."""
    scales = []
    monkeypatch.setattr(hinted, "misfit", lambda *given: np.array([found]))
    monkeypatch.setattr(hinted, "add_discrete_laplace", lambda values, scale, words: scales.append(scale))
    hint, counts = Hint.of_counts(lumpy(1, 3000, 500)), Histogram(lumpy(2, 3000, 500))
    cells = hinted_cells(hint, 3000, 1.0, 8)
    assert follows(counts, hint, 3000, cells, Fraction(4, 11), Noise(bytes(32))) == (found <= 11)
    assert follows(counts, hint, 3000, cells, Fraction(1, 3), Noise(bytes(32))) == trusted
    assert scales == [Fraction(11, 4), 3]


@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("cells", range(1, 13))
@pytest.mark.parametrize("followed", [False, True])
def test_a_hint_needs_a_cell_for_each_half_of_a_block(
    monkeypatch: pytest.MonkeyPatch, blocks: int, cells: int, followed: bool
) -> None:
    least = []

    def made(hint: Hint, rows: int, rows_per_cell: float, fewest: int) -> HintedCells:
        least.append(fewest)
        return HintedCells(np.arange(cells), np.arange(cells + 1), np.arange(64))

    monkeypatch.setattr(dp_plr, "hinted_cells", made)
    monkeypatch.setattr(dp_plr, "follows", lambda *given: followed)
    counts = np.ones(64, np.int64)
    hint, one = Hint.of_counts(counts), Fraction(1)
    terms = Terms(IntegerDomain(0, 63), one, Fraction(0), Fraction(1, 1000), 64, one, Fraction(0))
    index = DPPLRIndex(blocks=blocks, hint=hint)
    found = index._checked_cells(Histogram(counts), terms, hint, 64, Noise(bytes(32)))
    assert (found is not None) == (followed and cells >= 2 * blocks)
    assert least == [2 * blocks]


def test_a_forty_eighth_of_epsilon_pays_for_the_check() -> None:
    """docs/privacy.md section 4.5."""
    assert Fraction(1, 48) == CHECK_SHARE


@given(
    st.lists(st.integers(0, 30), min_size=8, max_size=40),
    st.lists(st.integers(0, 30), min_size=8, max_size=40),
    st.integers(0, 39),
)
def test_one_row_moves_the_misfit_by_one_at_most(public: list[int], secret: list[int], place: int) -> None:
    size = min(len(public), len(secret))
    cells = hinted_cells(Hint.of_counts(np.array(public[:size])), 200, 230.0, 1)
    counts = np.array(secret[:size], dtype=np.int64)
    before = int(misfit(counts, cells, 1)[0])
    counts[place % size] += 1
    assert abs(int(misfit(counts, cells, 1)[0]) - before) <= 1


def test_one_row_can_move_the_misfit_by_one() -> None:
    """So the sensitivity is 1, and noise for less would not do."""
    cells = hinted_cells(Hint.of_counts(np.array([9, 9] * 50)), 200, 230.0, 1)
    counts = np.zeros(100, np.int64)
    counts[0] = 100
    assert int(misfit(counts + (np.arange(100) == 0), cells, 1)[0]) - int(misfit(counts, cells, 1)[0]) == 1


def test_right_hints_are_followed_and_wrong_ones_are_not() -> None:
    """With the noise of twenty builds, which is the same in each run of the test."""
    right, counts = lumpy(1), lumpy(2)
    even = np.full(SIZE, ROWS // SIZE)
    for public, expected in ((right, range(18, 21)), (np.roll(right, 150), [0]), (right[::-1], [0]), (even, [0])):
        hint = Hint.of_counts(public)
        followed = sum(fit(counts, noise, hint=hint, blocks=8).model.hint is hint for noise in range(20))
        assert followed in expected


@pytest.mark.parametrize("blocks", [1, 8])
@pytest.mark.parametrize("public", [lumpy(1), np.roll(lumpy(1), 150)], ids=["right", "wrong"])
def test_every_noise_is_paid_for(monkeypatch: pytest.MonkeyPatch, public: Counts, blocks: int) -> None:
    """A right hint costs the check and the tree, a wrong one the check, the scout and the tree: epsilon for every row.

    Counted for a row of the first rank: of what the halves release, the first half's alone.
    """
    paid: list[Fraction] = []
    checks: list[Fraction] = []
    estimate = wide_tree.estimate

    def listen(counts: Counts, tree: wide_tree.WideTree, noise: Noise, *question: object) -> object:
        whole = question[0] not in ("half", "hinted")
        if whole or int(question[-2][0]) == 0:  # type: ignore[index]
            paid.append(tree.epsilon)
        return estimate(counts, tree, noise, *question)  # type: ignore[arg-type]

    def check(*given: object) -> bool:
        checks.append(given[-2])  # type: ignore[arg-type]
        return follows(*given)  # type: ignore[arg-type]

    for module in (scout, wide_tree):
        monkeypatch.setattr(module, "estimate", listen)
    monkeypatch.setattr(dp_plr, "follows", check)
    model = fit(lumpy(2), hint=Hint.of_counts(public), blocks=blocks).model
    assert checks == [CHECK_SHARE]
    slack = (1 - CHECK_SHARE) * (Fraction(3, 10) if blocks == 1 else Fraction(9, 20))
    assert sum(paid) + slack + CHECK_SHARE == 1
    assert (model.hint is None) == (len(paid) > 1)


def test_lossless_pays_for_what_is_left_after_the_check() -> None:
    hint, domain = Hint.of_counts(lumpy(1)), DOMAIN
    index = DPPLRIndex(slack="lossless", hint=hint, max_bytes=4096)
    whole, left = (index._slack.delta(epsilon, Fraction(1, 10**6), 1) for epsilon in (Fraction(1), 1 - CHECK_SHARE))
    assert whole != left
    for delta, enough in ((left, True), (min(whole, left) / 2, False)):
        budget = Ledger(limit=1, delta_limit="0.1").spend(1, "test", delta=delta)
        if enough:
            index.fit_counts(lumpy(2), domain=domain, budget=budget, capacity=1 << 18)
            assert lost(index, lumpy(2)) == 0
        else:
            with pytest.raises(InvalidParameter, match="delta"):
                index.fit_counts(lumpy(2), domain=domain, budget=budget, capacity=1 << 18)


@pytest.mark.parametrize(("size", "capacity"), [(SIZE, None), (SIZE - 1, 1 << 18)])
def test_a_hint_needs_a_capacity_and_its_own_domain(size: int, capacity: int | None) -> None:
    index, counts = DPPLRIndex(hint=Hint.of_counts(lumpy(1))), np.ones(size, np.int64)
    budget = Ledger(limit=1).spend(1, "test")
    with pytest.raises(InvalidParameter, match="a hint needs a capacity"):
        index.fit_counts(counts, domain=IntegerDomain(0, size - 1), budget=budget, capacity=capacity)
    assert budget.state == "cancelled"


@pytest.mark.parametrize("options", [{"mechanism": "paper"}, {"slack": "paper"}])
def test_the_published_design_knows_no_hints(options: dict[str, str]) -> None:
    with pytest.raises(InvalidParameter, match="know no hints"):
        DPPLRIndex(hint=Hint.of_counts(lumpy(1)), **options)  # type: ignore[arg-type]


def test_few_ranks_or_rows_do_not_matter() -> None:
    """A domain with fewer ranks than there could be cells, and a table of a few rows."""
    for counts in (np.array([3, 900, 20, 0]), np.ones(9, np.int64), np.array([4])):
        for public in (counts, np.ones_like(counts), np.zeros_like(counts)):
            index = fit(counts, hint=Hint.of_counts(public))
            assert lost(index, counts) == 0
    small = np.bincount(np.random.default_rng(1).integers(0, SIZE, 100), minlength=SIZE)
    for blocks in (1, 32):
        assert lost(fit(small, hint=Hint.of_counts(lumpy(1)), blocks=blocks), small) == 0
