"""Covers and pages: the values that matching rows can have, and the pages that hold them; none is left out."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sql_tables import catalog_of, evaluate, small_table

from scumble.sql import plan, prepare
from scumble.sql.plan import Cover, Path, Paths, RunScan, _one_range, _pages_of, cover
from scumble.types import parse_type
from scumble.wire.plan import And, Compare, Constant, In, Or, Predicate

TINY, TEXT = parse_type("tinyint"), parse_type("text(8)")
WORDS = (-128, -127, -1, 0, 1, 2, 3, 4, 5, 6, 126, 127)
"""Of a tinyint: its ends, and enough between."""


def holds(found: Cover, word: int | None) -> bool:
    """Whether a cover has a word, or the null."""
    return found.nulls if word is None else any(low <= (word,) <= high for low, high in found.intervals)


def matches(predicate: Predicate, word: int | None, words: list[int]) -> bool:
    """Whether a row can match that has a word in column 0, whatever it has in the others."""
    match predicate:
        case In(0, offset, count, negated, nulls):
            ends = words[offset : offset + 2 * count]
            inside = word is not None and any(a <= word <= b for a, b in zip(ends[::2], ends[1::2], strict=True))
            return nulls if word is None else inside != negated
        case Constant(value):
            return value
        case And(parts):
            return all(matches(part, word, words) for part in parts)
        case Or(parts):
            return any(matches(part, word, words) for part in parts)
    return True


BOUNDS = st.lists(st.sampled_from(WORDS), min_size=12, max_size=12)
LEAVES: st.SearchStrategy[Any] = st.builds(
    In, st.just(0), st.sampled_from([0, 2, 4]), st.integers(0, 3), st.booleans(), st.booleans()
) | st.sampled_from([Constant(True), Constant(False), In(1, 0, 1), Compare(0, 1, "=")])
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda kind, parts: kind(tuple(parts)), st.sampled_from([And, Or]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=6,
)


@given(PREDICATES, BOUNDS)
def test_a_cover_has_just_the_words_that_rows_can_match_with(predicate: Predicate, words: list[int]) -> None:
    found = cover(predicate, 0, TINY, words)
    for word in (*WORDS, None):
        assert holds(found, word) == matches(predicate, word, words)
    ends = [end for interval in found.intervals for (end,) in interval]
    assert ends == sorted(ends)


def test_every_text_may_differ_from_some_and_none_from_all() -> None:
    """What lies next to the words of a text is no text, so a cover of texts has no gaps."""
    least, most = TEXT.full_interval
    words = [5, 1, 5, 1, *least, *most]
    assert cover(In(0, 0, 1, negated=True), 0, TEXT, words) == Cover((TEXT.full_interval,), False)
    assert cover(In(0, 4, 1, negated=True), 0, TEXT, words) == Cover((), False)
    assert cover(In(0, 0, 2, negated=True), 0, TEXT, words) == Cover((), False)
    assert cover(In(0, 0, 1, null_matches=True), 0, TEXT, words) == Cover((((5, 1), (5, 1)),), True)


def test_only_all_values_and_the_null_are_everything() -> None:
    full = TINY.full_interval
    assert Cover((full,), True).is_everything(TINY)
    assert not Cover((full,), False).is_everything(TINY)
    assert not Cover((((-128,), (126,)),), True).is_everything(TINY)
    assert cover(Compare(0, 1, "<"), 0, TINY, []).is_everything(TINY)


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda pair: (pair[0], sum(pair))), max_size=6)


@given(RANGES, st.integers(1, 9))
def test_the_pages_are_those_that_hold_a_position_and_none_twice(
    positions: list[tuple[int, int]], page_rows: int
) -> None:
    pages = _pages_of(positions, page_rows)
    held = {position // page_rows for start, stop in positions for position in range(start, stop)}
    assert [page for first, count in pages for page in range(first, first + count)] == sorted(held)
    for (first, count), (following, _) in pairwise(pages):
        assert first + count < following


@dataclass(frozen=True)
class Anywhere:
    """An index that states any positions, however far from the rows."""

    start: int
    stop: int

    def start_after(self, rank: int) -> int:
        return self.start + rank

    def stop_at(self, rank: int) -> int:
        return self.stop + rank


@given(st.integers(-9, 30), st.integers(-9, 30), st.integers(0, 3), st.integers(0, 3))
def test_the_positions_of_a_range_lie_within_the_run(start: int, stop: int, first: int, last: int) -> None:
    found = _one_range(Anywhere(start, stop), 10, first, last)  # type: ignore[arg-type]
    end = min(max(0, stop + last), 10)
    assert found == (0 if first == 0 else min(max(0, start + first - 1), end), end)


@pytest.mark.parametrize("capacity", [None, 5, 40])
def test_one_range_is_read_as_any_others_are(capacity: int | None) -> None:
    """The shortcut for a single interval finds the same pages as the way that everything else goes."""
    loaded = small_table()
    runs = tuple(run if capacity is None else replace(run, capacity=capacity) for run in loaded.table.runs)
    catalog = catalog_of(replace(loaded, table=replace(loaded.table, runs=runs)))
    paths = prepare("SELECT count(*) FROM t WHERE n BETWEEN ? AND ?", catalog, evaluate).query.paths[0]
    path = paths._one
    assert path is not None
    for low in range(-3, 110, 3):
        for high in (low - 1, low, low + 1, low + 20, 200):
            access = paths.access((low, high))
            assert access.scans == tuple(path.scans(Cover((((low,), (high,)),), False)))
            assert access.attributes == (path.attribute,)


def test_a_count_of_all_rows_reads_no_bytes() -> None:
    catalog = catalog_of(small_table())
    statements = ("SELECT count(*) FROM t", "SELECT count(m) FROM t")
    everything, some = (prepare(sql, catalog, evaluate).bind().accesses[0] for sql in statements)
    assert everything.bytes_read == 0
    assert everything.pages == some.pages > 0
    assert some.bytes_read == sum(some.paths.page_bytes(scan.run) * scan.page_count for scan in some.scans) > 0
    assert some.rows == sum(count * scan.run.page_rows for scan in some.scans for _, count in scan.pages)


def test_what_an_interval_of_texts_leaves_out_is_anything_unless_it_holds_everything() -> None:
    least, most = TEXT.full_interval
    (middle, _) = TEXT.interval("=", "m") or (least, most)
    assert TEXT.words > 1
    for (low, high), left in (((least, most), False), ((least, middle), True), ((middle, most), True)):
        found = cover(In(0, 0, 1, negated=True), 0, TEXT, [*low, *high])
        assert found.intervals == ((TEXT.full_interval,) if left else ())


def test_a_union_is_made_of_guards_with_few_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_of(small_table())

    def attributes(sql: str) -> tuple[str | None, ...]:
        return prepare(sql, catalog, evaluate).bind().accesses[0].attributes

    sql = "SELECT count(*) FROM t WHERE n = 3 OR day = '2020-01-05'"
    for most, found in ((256, ("n", "day")), (1, ("n", "day")), (0, (None,))):
        monkeypatch.setattr(plan, "MOST_INTERVALS", most)
        assert attributes(sql) == found


def test_of_two_unions_the_cheaper_one_is_read_in_whatever_order_they_stand() -> None:
    catalog = catalog_of(small_table())
    narrow, wide = "(n = 3 OR day = '2020-01-05')", "(n < 60 OR day < '2020-01-02')"
    found = []
    for first, second in ((narrow, wide), (wide, narrow)):
        sql = "SELECT count(*) FROM t WHERE ?".replace("?", f"{first} AND {second}")
        access = prepare(sql, catalog, evaluate).bind().accesses[0]
        assert access.attributes == ("n", "day")
        found.append(access.bytes_read)
    assert found[0] == found[1]


def test_only_one_interval_of_an_indexed_column_of_one_word_leaves_nothing_to_choose() -> None:
    catalog = catalog_of(small_table())

    def paths_of(condition: str) -> Paths:
        return prepare("SELECT count(*) FROM t WHERE ?".replace("?", condition), catalog, evaluate).query.paths[0]

    by_n = paths_of("n BETWEEN 3 AND 9")
    leaf = by_n.predicate
    assert isinstance(leaf, In)
    assert by_n._one is not None
    assert by_n._one.attribute == "n"
    others: list[Predicate] = [
        replace(leaf, intervals=0),
        replace(leaf, intervals=2),
        replace(leaf, negated=True),
        replace(leaf, null_matches=True),
        And((leaf,)),
        Constant(True),
    ]
    for other in others:
        assert Paths(by_n.table, other, by_n.bounds, by_n.output)._one is None
    assert paths_of("m BETWEEN 3 AND 9")._one is None  # no index
    day = paths_of("day = '2020-01-05'")._one
    assert day is not None
    assert day.attribute == "day"
    named = paths_of("name = 'a'")
    assert "name" in [path.attribute for path in named.paths]
    assert named._one is None  # of several words


def test_scans_are_of_all_pages_unless_an_index_narrows_them() -> None:
    loaded = small_table()
    path, keys = Path(loaded.table, "n"), Cover((((3,), (9,)),), False)
    (run,) = path.runs
    everything = [RunScan(run, 0, ((0, run.pages),), (), ((0, run.capacity),))]
    assert path.scans(None) == everything
    (found,) = path.scans(keys)
    assert found.predicate == 0
    assert 0 < found.page_count < run.pages
    assert [scan.predicate for scan in (*path.scans(None, 2), *path.scans(keys, 2))] == [2, 2]
    assert path.scans(Cover((), False)) == []
    empty = replace(loaded.table, runs=tuple(replace(each, capacity=0) for each in loaded.table.runs))
    assert Path(empty, "n").scans(None) == []
    plain = small_table(indexes={}).table  # in the order of loading, whatever is looked for
    (run,) = plain.runs
    assert Path(plain, None).scans(keys) == [RunScan(run, 0, ((0, run.pages),), (), ((0, run.capacity),))]
