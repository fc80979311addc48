"""Reconstruction from ranges: total against what leaks, no better than the index itself against ours.

Queries and rows are hashed, so against the exact index nothing is left to chance. Against ours the noise is: what is
asserted of it holds for every noise, or but for a chance far below 1e-6, as each test says.
"""

import numpy as np
import pytest

from scumble.index.file import IndexModel, decoded
from scumble.lab.attack.laboratory import fractions, laboratory, made_up_counts, uniform_ranges
from scumble.lab.attack.reconstruction import (
    Public,
    Target,
    all_ranges,
    exact_target,
    private_target,
    quality,
    rows_below,
)

SIZE = 200
DENSE = made_up_counts(6_000, SIZE)
SPARSE = DENSE * (fractions("which keys occur", SIZE) < 0.3)
EPSILONS = ["10", "1", "0.1"]


def rebuilt(target: Target, queries: int | None = None) -> np.ndarray:
    size = target.public.size
    asked = all_ranges(size) if queries is None else uniform_ranges("test", queries, size)
    return target.public.reconstruct(*target.positions.of_ranks(*asked))


@pytest.mark.parametrize("counts", [DENSE, SPARSE], ids=["every key occurs", "few keys occur"])
def test_the_exact_index_is_rebuilt_from_all_ranges(counts: np.ndarray) -> None:
    assert (rebuilt(exact_target(counts)) == np.cumsum(counts)).all()


def test_the_exact_index_is_rebuilt_from_random_ranges_of_dense_data() -> None:
    """After some N log N queries, as Lacharite et al. have it: all places have been seen then."""
    target = exact_target(DENSE)
    assert quality(rebuilt(target, SIZE // 2), DENSE).mean_error_rows > 50
    assert quality(rebuilt(target, 3_000), DENSE) == (0, 0, 1)


def test_the_exact_index_of_sparse_data_gives_way_to_more_queries() -> None:
    """Where keys are missing, no single place gives its rank away: it takes more queries, and is total in the end."""
    few, more, many = (quality(rebuilt(exact_target(SPARSE), queries), SPARSE) for queries in (1_000, 10_000, 100_000))
    assert few.mean_error_rows > 3 * more.mean_error_rows > 0
    assert many == (0, 0, 1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_all_ranges_of_ours_give_the_index_and_nothing_else(epsilon: str) -> None:
    """For every noise: the provider has the index, so its queries tell it nothing that it did not have."""
    target = private_target(DENSE, epsilon)
    assert (rebuilt(target) == _index(target)).all()


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_against_ours_more_queries_stop_helping_at_the_noise(epsilon: str) -> None:
    """For every noise: which rank a quantile belongs to depends on the queries alone; a million are enough."""
    target = private_target(DENSE, epsilon)
    curve = rebuilt(target, 1_000_000)
    assert (curve == _index(target)).all()
    assert quality(curve, DENSE) == target.own


@pytest.mark.parametrize("epsilon", ["1", "0.1"])
def test_the_noise_is_there(epsilon: str) -> None:
    """All of 200 leaves would have to draw zero, each with a chance of 0.18 at most."""
    assert private_target(DENSE, epsilon).own.placed < 1


def _index(target: Target) -> np.ndarray:
    model = target.positions
    assert isinstance(model, IndexModel)
    return model.curve(np.arange(SIZE))


def test_a_planted_slack_of_zero_is_rebuilt_exactly() -> None:
    """The measure bites: an index whose segments are the truth, widened or not, is rebuilt whole."""
    target = exact_target(DENSE)
    starts, stops = target.positions.of_ranks(*all_ranges(SIZE))
    slack, rows = 30, int(DENSE.sum())
    public = Public(SIZE, rows + slack, slack)
    curve = public.reconstruct(np.maximum(starts - slack, 0), stops + slack)
    assert (curve == np.cumsum(DENSE)).all()


def test_queries_are_spread_evenly() -> None:
    firsts, lasts = uniform_ranges("spread", 400_000, 20)
    assert ((firsts >= 0) & (firsts <= lasts) & (lasts < 20)).all()
    seen = np.bincount(firsts * 20 + lasts, minlength=400).reshape(20, 20)[np.triu_indices(20)]
    assert abs(seen / seen.mean() - 1).max() < 0.15
    again = uniform_ranges("spread", 400_000, 20)
    assert (again[0] == firsts).all()
    assert (again[1] == lasts).all()


def test_the_transcript_of_a_database_gives_no_more_than_its_index() -> None:
    """Pages are what the index says, rounded outwards.

    What few queries give is off by some sixty rows, whatever the noise. To be twice as near as the index, that would
    have to be off by some hundred rows, ten times the usual: the noise of twenty nodes, forty times its scale.
    """
    firsts, lasts = uniform_ranges("database", 1_500, SIZE)
    with laboratory(DENSE, 1, page_rows=16) as lab:
        seen = lab.watch("SELECT count(*) FROM t WHERE k BETWEEN ? AND ?", list(zip(firsts, lasts, strict=True)))
        run = lab.db.table("t").runs[0]
        assert run.index is not None
        model = decoded(run.index)
    assert len(seen) == 1_500
    starts = np.array([one.first_page for one in seen]) * 16
    stops = starts + np.array([one.pages for one in seen]) * 16
    wanted_starts, wanted_stops = model.of_ranks(firsts, lasts)
    assert (starts == wanted_starts // 16 * 16).all()
    assert (stops == -(-wanted_stops // 16) * 16).all()
    public = Public(SIZE, run.pages * 16, model.usual_slack, 16)
    own = quality(rows_below(model, model.curve(np.arange(SIZE))), DENSE)
    starts, stops = (rows_below(model, ends) for ends in (starts, stops))
    assert quality(public.reconstruct(starts, stops), DENSE).mean_error_rows > own.mean_error_rows / 2
