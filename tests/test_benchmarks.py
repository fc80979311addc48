"""Every figure runs at a tiny size and returns what the table and the JSON file need; the demo tells its whole story.

No speed is asserted here. What is asserted are the yardsticks: that a planted loss is seen, and that the overhead is
what a hand-made lookup says.
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import demo, overhead, run
from benchmarks.data import KEYS, gapless_curve, make_counts, salaries
from benchmarks.figure import patched
from benchmarks.segments import max_error_for

from scumble import IntegerDomain
from scumble.index.model import IndexModel
from scumble.index.segments import Segments, tolerance


@pytest.mark.parametrize("name", run.FIGURES)
def test_every_figure_has_lines_and_values(name: str) -> None:
    figure = run.run_figure(name, "tiny")
    assert figure.name == name
    assert figure.lines
    assert all(line.claim and line.measured for line in figure.lines)
    assert all(line.target for line in figure.lines if line.met is not None)
    json.dumps(figure.values)


def test_the_fit_and_pygm_agree_on_the_number_of_segments() -> None:
    figure = run.run_figure("segments", "tiny")
    counted = [line for line in figure.lines if "segments: pygm" in line.claim]
    assert len(counted) == 3
    assert all(line.met for line in counted)


@pytest.mark.parametrize("arguments", [["--only", "noise,lookup"], ["--only", "noise", "--json"]])
def test_run_prints_what_was_asked_for(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([*arguments, "--tiny", "--dry"]) == 0
    printed = capsys.readouterr().out
    assert "exact noise at scale 21" in printed
    assert "optimal fit" not in printed
    if "--json" in arguments:
        report = json.loads(printed)
        assert {"date", "machine", "size", "figures"} <= set(report)


def test_a_part_of_the_figures_does_not_overwrite_the_whole(tmp_path: Path) -> None:
    with patched(run, RESULTS=tmp_path / "results"):
        run.main(["--only", "noise", "--tiny"])
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["tiny-noise.json"]


def test_an_unknown_figure_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--only", "nonsense"]) == 2
    assert "overhead" in capsys.readouterr().err


def hand_made(slack: int, off_by: int = 0) -> IndexModel:
    """Ten keys with ten rows each, met exactly by one segment but for `off_by`."""
    line = Segments(10, np.array([0]), np.array([10 + off_by]), np.array([100 + off_by]), 1)
    return IndexModel(
        domain=IntegerDomain(0, 9),
        segments=line,
        slack_rows=slack,
        capacity=100,
        epsilon=Fraction(1),
        delta=Fraction(0),
        beta=Fraction(1, 2),
        levels=1,
        mechanism="scumble",
        slack="measured",
    )


def test_overhead_is_what_a_lookup_reads_beyond_its_answer() -> None:
    counts = np.full(10, 10)
    assert overhead.overhead_rows(hand_made(0), counts) == 0
    # 3 rows on either side, but none before the first key and none beyond the capacity.
    assert overhead.overhead_rows(hand_made(3), counts) == pytest.approx((8 * 6 + 2 * 3) / 10)


@pytest.mark.parametrize(("slack", "off_by", "lost"), [(0, 0, False), (3, 3, False), (3, 4, True), (3, -4, True)])
def test_a_planted_loss_is_seen(slack: int, off_by: int, lost: bool) -> None:
    assert overhead.lost_rows(hand_made(slack, off_by), np.full(10, 10)) is lost


def test_the_sweep_restores_the_constants() -> None:
    from scumble.index import dp_plr

    before = dp_plr.SLACK_SHARE
    rows = overhead.sweep("tiny", builds=1)
    assert before == dp_plr.SLACK_SHARE
    assert [value for _, value, _ in rows if value.endswith("*")] == [f"{before} *"]
    assert all(set(found) == set(KEYS) for _, _, found in rows)


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_the_same_for_a_seed_and_lie_in_the_domain(name: str) -> None:
    counts = make_counts(name, 1000, 5000)
    assert (len(counts), counts.sum(), counts.min() >= 0) == (1000, 5000, True)
    assert np.array_equal(counts, make_counts(name, 1000, 5000))
    assert salaries(5000, 1000).max() < 1000


def test_a_gapless_curve_counts_the_rows_before_each_key() -> None:
    curve, keys = gapless_curve(500)
    assert np.array_equal(curve, np.searchsorted(keys, np.arange(500)))
    assert np.array_equal(np.unique(keys), np.arange(500))


@pytest.mark.parametrize("wanted", [16, 64, 256])
def test_the_tolerance_is_the_one_that_pygm_gets(wanted: int) -> None:
    assert tolerance(max_error_for(wanted)) == wanted


def test_the_demo_tells_its_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments: list[Any] = ["--rows", "20000", "--salaries", "4096", "--output", str(tmp_path / "out")]
    assert demo.main(arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for part in ("no lookup lost a row", "Overdraft", "hint:", "answers the same for every key", "The provider sees"):
        assert part in printed
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"salary.index", "index.png", "index.svg"}
