"""The comparison of all indexes: it measures what hand-made indexes do, spends nothing, and a refusal is a row."""

import subprocess
import sys
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from scumble import Budget, DPPLRIndex, IntegerDomain, Ledger, parse_domain
from scumble.errors import InvalidKeys, InvalidParameter, OutOfDomain
from scumble.index.contract import Terms
from scumble.index.curve import Histogram
from scumble.lab import compare as module
from scumble.lab.comparators import limits
from scumble.lab.comparators.curves import TwoCurves, TwoCurvesIndex
from scumble.lab.compare import WHAT_IF, Case, Comparison, Contender, Lookups, compare, draw, every_index, measure
from scumble.privacy.noise import Noise

UNTRAINED = [contender for contender in every_index() if not contender.trained]
DOMAIN = IntegerDomain(0, 9)
COUNTS = np.array([0, 4, 0, 6, 10, 0, 0, 0, 0, 0])


class Shifted(TwoCurvesIndex):
    """The true curve, moved: what it loses and reads too much is known."""

    name = "shifted"

    def __init__(self, lower: int, upper: int) -> None:
        super().__init__()
        self.lower, self.upper = lower, upper

    def _check(self, terms: Terms) -> None:
        pass

    def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> TwoCurves:
        curve = np.cumsum(histogram.counts)
        return TwoCurves(terms.domain, curve + self.lower, curve + self.upper, int(curve[-1]))


def measured(lower: int, upper: int) -> list[Comparison]:
    case = Case(COUNTS, DOMAIN, Fraction(1), Fraction(1, 10), Fraction(0))
    ranks = np.array([1, 3, 4])
    return measure(Contender("shifted", lambda: Shifted(lower, upper)), case, Lookups(ranks, ranks[:1], ranks[1:2]))


def test_missing_and_extra_rows_are_counted_by_hand() -> None:
    point, span = measured(0, 0)
    assert (point.missing_mean, point.missing_max, point.extra_rows_mean, point.extra_rows_max) == (0, 0, 0, 0)
    assert (point.lookup, span.lookup, span.answer_rows_mean) == ("point", "range", 10)
    # Both ends two rows too late: each answer loses its first two rows, but for the first, whose start is clipped to 2.
    point, span = measured(2, 2)
    assert point.missing_mean == pytest.approx((2 / 4 + 2 / 6 + 2 / 10) / 3)
    assert point.missing_max == 2 / 4
    assert point.extra_rows_mean == pytest.approx((2 + 2 + 0) / 3)  # nothing lies beyond the last row
    assert span.missing_mean == pytest.approx(2 / 10)
    # Widened by three on both sides; the table's ends clip.
    point, _ = measured(-3, 3)
    assert point.missing_max == 0
    assert point.extra_rows_mean == pytest.approx((3 + 6 + 3) / 3)
    # A lookup that ends before it starts finds nothing, and reads nothing.
    point, _ = measured(15, -15)
    assert (point.missing_mean, point.extra_rows_max) == (1, 0)


def test_the_table_has_every_index_twice_and_says_what_it_is() -> None:
    keys = np.repeat(np.arange(10), COUNTS)
    table = compare(keys, DOMAIN, 1, indexes=UNTRAINED)
    assert isinstance(table, pa.Table)
    assert table.column_names == [field.name for field in fields(Comparison)]
    assert table.schema.metadata[b"scumble"].decode() == WHAT_IF
    assert "nothing was released and no budget was spent" in WHAT_IF
    rows = table.to_pylist()
    assert [(row["index"], row["lookup"]) for row in rows] == [
        (c.name, k) for c in UNTRAINED for k in ("point", "range")
    ]
    by_name = {row["index"]: row for row in rows}
    for name in ("DP B+ tree", "SPECIAL", "DP-PLR, published", "DP-PLR, ours"):
        assert by_name[name]["missing_max"] == 0
    assert by_name["exact, leaks"]["extra_rows_max"] == 0
    assert by_name["exact, leaks"]["epsilon"] is None
    assert "not private" in by_name["exact, leaks"]["note"]
    assert by_name["SPECIAL"]["delta"] == pytest.approx((1 + np.e) * 1e-6)
    assert by_name["DP-PLR, ours"]["delta"] == 0
    assert by_name["DP B+ tree"]["dummy_rows"] > 0


def test_the_order_is_that_of_the_paper() -> None:
    published = ["DP B+ tree", "Crypt-epsilon", "SPECIAL", "DP-RMI", "FMI", "DP-PLR, published"]
    assert [contender.name for contender in every_index()] == [*published, "DP-PLR, ours", "exact, leaks"]


def test_no_ledger_is_used_and_every_build_draws_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spent: list[Fraction] = []
    draw = Budget.draw

    def watched(self: Budget) -> None:
        spent.append(self.epsilon)
        draw(self)

    def used(*_: object, **__: object) -> None:
        raise AssertionError("a ledger was used")

    monkeypatch.setattr(Budget, "draw", watched)
    monkeypatch.setattr(Ledger, "__init__", used)
    monkeypatch.setattr(Ledger, "open", used)
    compare([1, 2, 3], DOMAIN, "1/3", indexes=UNTRAINED, queries=2)
    assert spent == [Fraction(1, 3)] * sum(contender.private for contender in UNTRAINED)
    assert not list(tmp_path.iterdir())


def test_an_index_without_memory_is_a_note_and_the_rest_still_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "available_bytes", lambda: 100)
    rows = compare([1, 2, 3], DOMAIN, 1, indexes=UNTRAINED).to_pylist()
    refused = {row["index"] for row in rows if row["missing_mean"] is None}
    assert refused == {"DP B+ tree", "SPECIAL"}  # 24 bytes a rank; the others need 8
    assert all("bytes of memory" in row["note"] for row in rows if row["index"] in refused)
    assert len(rows) == 2 * len(UNTRAINED)


def test_a_build_that_runs_out_of_memory_is_a_note_too() -> None:
    class Huge(Shifted):
        def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> TwoCurves:
            raise MemoryError

    rows = compare([1], DOMAIN, 1, indexes=[Contender("huge", lambda: Huge(0, 0)), UNTRAINED[-1]]).to_pylist()
    assert [row["note"] for row in rows[:2]] == ["there is not enough memory"] * 2
    assert rows[2]["missing_mean"] == 0


def test_too_small_a_delta_is_a_note() -> None:
    rows = compare([1], DOMAIN, 1, delta=1e-9, indexes=UNTRAINED).to_pylist()
    assert {row["index"] for row in rows if row["missing_mean"] is None} == {"SPECIAL"}
    assert all("needs a delta" in row["note"] for row in rows if row["index"] == "SPECIAL")


def test_without_dp_accounting_the_trained_ones_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    trained = Contender("trained", lambda: Shifted(0, 0), needs_delta=True, trained=True)
    rows = compare([1], DOMAIN, 1, indexes=[trained, UNTRAINED[-1]]).to_pylist()
    assert all("dp-accounting" in row["note"] for row in rows[:2])
    assert rows[2]["missing_mean"] == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"keys": np.array([], dtype=np.int64)}, InvalidKeys),
        ({"keys": [10]}, OutOfDomain),
        ({"epsilon": 0}, InvalidParameter),
        ({"epsilon": "much"}, InvalidParameter),
        ({"beta": 1}, InvalidParameter),
        ({"delta": 1}, InvalidParameter),
        ({"queries": 0}, InvalidParameter),
        ({"domain": "int:0:9"}, InvalidParameter),
    ],
)
def test_bad_input_is_refused_before_anything_is_built(arguments: dict[str, Any], error: type[Exception]) -> None:
    def never() -> Any:
        raise AssertionError("an index was made")

    given = {"keys": [1], "domain": DOMAIN, "epsilon": 1, **arguments}
    with pytest.raises(error) as caught:
        compare(**given, indexes=[Contender("never", never)])
    assert caught.value.hint  # type: ignore[attr-defined]


def test_lookups_are_at_keys_that_hold_rows_and_all_of_them_if_they_are_few() -> None:
    lookups = Lookups.sample(COUNTS, 100)
    assert lookups.points.tolist() == [1, 3, 4]
    assert set(np.unique(lookups.firsts)) == set(np.unique(lookups.lasts)) == {1, 3, 4}
    assert (lookups.firsts <= lookups.lasts).all()
    assert len(lookups.firsts) == 100
    many = Lookups.sample(np.ones(1000, dtype=np.int64), 50)
    assert len(np.unique(many.points)) == 50


@pytest.mark.parametrize("text", ['category:["a","b"]', "date:2000-01-01:2000-01-10", 'keys:["x","y"]'])
def test_any_domain_will_do(text: str) -> None:
    domain = parse_domain(text)
    keys = [domain.key(0), domain.key(1), domain.key(1)]
    rows = compare(keys, domain, 1, indexes=[Contender("ours", DPPLRIndex)]).to_pylist()
    assert [row["missing_max"] for row in rows] == [0, 0]


def test_the_picture_is_written_or_refused(tmp_path: Path) -> None:
    rows = [*measured(-3, 3), Comparison("refused", "point", note="no"), Comparison("refused", "range", note="no")]
    for name in ("a.png", "a.svg"):
        draw(rows, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert "refused" not in (tmp_path / "a.svg").read_text()
    with pytest.raises(InvalidParameter, match="picture"):
        draw(rows, tmp_path / "a.txt")


def test_importing_scumble_does_not_import_it() -> None:
    code = "import sys, scumble; sys.exit(bool({'pyarrow', 'scumble.lab.compare', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_every_index_takes_part() -> None:
    table = compare(np.repeat(np.arange(10), 10 * COUNTS), DOMAIN, 1, queries=50)
    rows = table.to_pylist()
    assert len(rows) == 2 * len(every_index())
    assert all(row["missing_mean"] is not None for row in rows)
    assert all(row["missing_max"] == 0 for row in rows if row["index"] != "Crypt-epsilon")
