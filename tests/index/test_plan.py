"""Plans: whatever they say, all of an index costs its epsilon and no more, and no lookup loses a row."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from scumble import DPPLRIndex, IntegerDomain, Ledger
from scumble.errors import InvalidParameter
from scumble.index import slack as slack_module
from scumble.index.blocks import suitable_blocks
from scumble.index.mechanisms import scout, wide_tree
from scumble.index.plan import BLOCK_SHARE, SLACK_SHARE, USUAL, Plan
from scumble.index.slack import lossless_delta, slack_named
from scumble.lab.tune import Trial, chosen, trials
from scumble.owner.indexes import IndexSpec
from scumble.privacy.noise import Noise

PLANS = ["", "slack_share:0.05", "slack_share:0.95,scout_share:0.95,cell_rows:20", "scout_share:1/7", "cell_rows:5000"]
MILLIONTH = Fraction(1, 10**6)
SIZE = 2**14


def plan_of(text: str) -> Plan:
    return Plan.parse(text) if text else USUAL


@pytest.mark.parametrize("text", PLANS[1:])
def test_a_plan_is_written_as_it_is_read(text: str) -> None:
    assert Plan.parse(text).text == text
    spec = IndexSpec.parse(f"day int:0:9 epsilon=1 plan={text}")
    assert spec.plan == Plan.parse(text)
    assert IndexSpec.parse(f"day {spec.terms}") == spec
    assert spec.order().plan == text


def test_what_a_plan_leaves_out_is_as_usual() -> None:
    assert USUAL.text == ""
    assert (USUAL.slack(in_blocks=True), USUAL.slack(in_blocks=False)) == (BLOCK_SHARE, SLACK_SHARE)
    plan = Plan(slack_share="0.4", cell_rows=100)
    assert (plan.slack(in_blocks=True), plan.slack(in_blocks=False)) == (Fraction(2, 5), Fraction(2, 5))
    assert plan.scout == USUAL.scout == Fraction(3, 10)
    half = Fraction(1, 2)
    assert (plan.rows_per_cell(half), plan.rows_per_cell(half, hinted=True)) == (200, 200)
    assert (USUAL.rows_per_cell(half), USUAL.rows_per_cell(half, hinted=True)) == (380, 460)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slack_share",
        "slack_share:",
        "slack:0.4",
        "slack_share:0.4,slack_share:0.5",
        "slack_share:0.0499",
        "slack_share:0.9501",
        "scout_share:0",
        "scout_share:nan",
        "scout_share:0.3000001",
        "cell_rows:19",
        "cell_rows:5001",
        "cell_rows:1e3",
        "cell_rows:-50",
        "cell_rows:٣٠",
        "cell_rows:10000000000000000000",
        "cell_rows:0000000000200",
        "cell_rows:0000000200",
    ],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        Plan.parse(text)
    assert refused.value.hint


def test_what_just_about_is_a_plan_is_one() -> None:
    assert Plan.parse("slack_share:0.05,scout_share:0.95") == Plan("1/20", "19/20")
    assert Plan(slack_share="0.300001").slack(in_blocks=True) == Fraction(300_001, 10**6)
    assert Plan.parse("cell_rows:000000200") == Plan(cell_rows=200)
    assert [Plan(cell_rows=rows).cell_rows for rows in (20, 5000)] == [20, 5000]


@pytest.mark.parametrize("rows", [100.0, 100.5, "100", True, np.int64(100)], ids=repr)
def test_the_rows_of_a_cell_are_a_number_of_python(rows: object) -> None:
    with pytest.raises(InvalidParameter):
        Plan(cell_rows=rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"mechanism": "paper"}, {"slack": "paper"}])
def test_the_published_design_follows_no_plan(options: dict[str, str]) -> None:
    with pytest.raises(InvalidParameter, match="plan"):
        DPPLRIndex(plan=Plan(cell_rows=100), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", PLANS)
@pytest.mark.parametrize("blocks", [1, 4])
def test_every_row_pays_epsilon_whatever_the_plan(monkeypatch: pytest.MonkeyPatch, text: str, blocks: int) -> None:
    """Of a row of the first rank: what every release that has seen it was paid, which the noise's scale tells."""
    paid: list[Fraction] = []
    estimate, bound = wide_tree.estimate, slack_module.release_bound

    def counted(counts: NDArray[np.int64], tree: wide_tree.WideTree, noise: Noise, *question: object) -> object:
        if question[0] != "half" or int(question[1][0]) == 0:  # type: ignore[index]
            paid.append(tree.epsilon)
        return estimate(counts, tree, noise, *question)  # type: ignore[arg-type]

    def bounded(deviation: NDArray[np.int64], epsilon: Fraction, *terms: Fraction, **options: object) -> int:
        slacks.append(epsilon)
        return bound(deviation, epsilon, *terms, **options)  # type: ignore[arg-type]

    slacks: list[Fraction] = []
    for module in (scout, wide_tree):
        monkeypatch.setattr(module, "estimate", counted)
    monkeypatch.setattr(slack_module, "release_bound", bounded)
    counts = np.random.default_rng(1).poisson(5, SIZE)
    counts[7] = 20_000  # so that there is a search
    index = DPPLRIndex(max_bytes=4096, blocks=blocks, plan=plan_of(text))
    index.fit_counts(counts, domain=IntegerDomain(0, SIZE - 1), budget=Ledger(limit=1).spend(1, "test"))
    assert len(slacks) == blocks
    assert len(set(slacks)) == 1
    assert len(paid) == 3
    assert sum(paid) + slacks[0] == 1
    assert slacks[0] == plan_of(text).slack(in_blocks=blocks > 1)
    ranks = np.arange(SIZE)
    assert not index.unsafe_outcome(counts, ranks, ranks).missed.any()


@pytest.mark.parametrize("text", PLANS)
def test_the_delta_of_lossless_follows_the_plan(text: str) -> None:
    plan = plan_of(text)
    slack = slack_named("lossless", plan)
    assert slack.delta(Fraction(1), MILLIONTH) == lossless_delta(plan.slack(in_blocks=False), MILLIONTH)
    assert slack_named("paper", plan).delta(Fraction(1), MILLIONTH) == 0
    spec = IndexSpec.parse("day int:0:99999 epsilon=1 slack=lossless" + (f" plan={text}" if text else ""))
    for blocks in (1, 8):
        needed = slack.delta(Fraction(1), MILLIONTH, blocks)
        assert needed <= replace(spec, blocks=blocks).order().delta <= needed * (1 + Fraction(1, 10**9))


def test_a_plan_that_says_nothing_is_none() -> None:
    spec = replace(IndexSpec.parse("day int:0:9 epsilon=1"), plan=Plan())
    assert spec.order().plan is None
    assert IndexSpec.parse(f"day {spec.terms}").order() == spec.order()


def test_blocks_follow_the_plan_and_their_dummies_stay_few() -> None:
    """A small share for the slack makes it wide, and blocks few."""
    counts = np.random.default_rng(3).poisson(5, 2**16)
    rows, domain = int(counts.sum()), IntegerDomain(0, 2**16 - 1)
    found = []
    for text in ("slack_share:0.05", "", "slack_share:0.6"):
        blocks = suitable_blocks(2**16, rows, Fraction(1), MILLIONTH, 4096, plan=plan_of(text))
        index = DPPLRIndex(max_bytes=4096, blocks=blocks, plan=plan_of(text))
        index.fit_counts(counts, domain=domain, budget=Ledger(limit=1).spend(1, "test"), capacity=rows)
        assert index.unsafe_dummy_rows(counts) < 0.02 * rows
        found.append(blocks)
    assert found == sorted(found)
    assert found[0] < found[1]


def test_there_are_no_more_cells_than_ranks() -> None:
    """However few rows a cell may have: the memory of a build has a bound that is public."""
    counts = np.full(SIZE, 10**6)
    cells = scout.find_cells(counts, scout.scout_tree(SIZE, Fraction(64)), 20 / 256)
    assert len(cells.starts) <= SIZE


def trial(extra: float, plan: str = "") -> Trial:
    return Trial(4096, 8, False, extra, 4000, 0.0, plan)


def test_a_plan_is_proposed_only_if_it_is_clearly_better() -> None:
    assert chosen([trial(100), trial(90), trial(88, "cell_rows:100")]) == trial(90)
    assert chosen([trial(100), trial(90), trial(87, "cell_rows:100")]) == trial(87, "cell_rows:100")


def test_tuning_tries_plans_for_the_best_size() -> None:
    counts = np.random.default_rng(5).poisson(3, SIZE)
    tried = list(trials(counts, IntegerDomain(0, SIZE - 1), Fraction(1), MILLIONTH, None))
    usual = min((each for each in tried[:6]), key=lambda each: each.extra_rows)
    assert [each.plan for each in tried[:6]] == [""] * 6
    plans = [each.plan for each in tried[6:]]
    assert plans[:4] == ["slack_share:0.3", "slack_share:0.6", "cell_rows:100", "cell_rows:400"]
    assert {(each.max_bytes, each.hinted) for each in tried[6:]} == {(usual.max_bytes, usual.hinted)}
    assert ("scout_share:0.15" in plans) == (usual.followed < 1)
