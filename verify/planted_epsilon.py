"""Planted defects of the noise, each for the length of a `with`: an audit that misses one of them is worth nothing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.index import slack as coverage
from scumble.index.mechanisms import gridded, hinted, wide_tree
from scumble.index.mechanisms.paper import BinaryTree
from scumble.index.mechanisms.wide_tree import WideTree
from scumble.lab.audit import database as lives
from scumble.lab.audit.tap import replaced
from scumble.lab.comparators import training
from scumble.lab.comparators.dp_bplus_tree import RoutingTree
from scumble.owner.stream_policies import Beat, Collected, Timer
from scumble.privacy import noise

__all__ = [
    "DEFECTS",
    "EPSILONS",
    "REPLAYED",
    "RUNS",
    "Defect",
    "a_level_short",
    "exact_bounds",
    "half_forgotten",
    "half_the_noise",
    "noise_reused",
    "one_slack_for_all",
    "rows_counted_twice",
    "rows_of_the_neighbour",
]

IntArray = NDArray[np.int64]
Words = NDArray[np.uint64]


@contextmanager
def half_the_noise() -> Iterator[None]:
    """Every scale is halved on its way to a sampler."""
    sampler, gaussian = noise._add_from_stream, noise.discrete_gaussian

    def halved(values: IntArray, scale: Fraction, words: Any) -> None:
        sampler(values, scale / 2, words)

    with (
        replaced(noise, "_add_from_stream", halved),
        replaced(training, "discrete_gaussian", lambda variance, *more: gaussian(variance / 4, *more)),
    ):
        yield


@contextmanager
def a_level_short() -> Iterator[None]:
    """The noise of each tree is made for one level less than it releases: the paper's log2 N."""

    def short(tree: BinaryTree | RoutingTree) -> Fraction:
        return max(tree.levels - 1, 1) / tree.epsilon

    def shorts(tree: WideTree) -> tuple[Fraction, ...]:
        return tuple(Fraction(max(tree.levels - 1, 1), tree.levels) / epsilon for epsilon in tree.epsilons)

    with (
        replaced(BinaryTree, "scale", property(short)),
        replaced(RoutingTree, "scale", property(short)),
        replaced(WideTree, "scales", property(shorts)),
    ):
        yield


@contextmanager
def noise_reused() -> Iterator[None]:
    """Every second build draws its noise from the key stream of the one before."""
    fresh = noise._key_stream
    spent: list[Words] = []
    calls = 0

    def stream(key: bytes) -> Callable[[int], Words]:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            again = iter(list(spent))
            return lambda count: next(again).copy()
        spent.clear()
        words = fresh(key)

        def first(count: int) -> Words:
            spent.append(words(count).copy())
            return spent[-1].copy()

        return first

    with replaced(noise, "_key_stream", stream):
        yield


@contextmanager
def exact_bounds() -> Iterator[None]:
    """The largest error, and the number of rows, are released with their shift but without their noise."""
    with replaced(coverage, "discrete_laplace", lambda scale, count, words: np.zeros(count, np.int64)):
        yield


@contextmanager
def one_slack_for_all() -> Iterator[None]:
    """Every block's slack is that of the whole run, and paid for as if it were the block's own."""
    deviations = coverage.block_deviations

    def shared(*given: Any) -> IntArray:
        found = deviations(*given)
        return np.full(len(found), found.max())

    with replaced(coverage, "block_deviations", shared):
        yield


@contextmanager
def rows_of_the_neighbour() -> Iterator[None]:
    """A block's first count has the rows of all blocks before it, so that its start would be known."""
    estimate = wide_tree.estimate
    before = 0

    def counted(counts: IntArray, tree: WideTree, stream: Any, what: str, starts: IntArray, ends: IntArray) -> Any:
        nonlocal before
        before = 0 if starts[0] == 0 else before
        moved = counts.copy()
        moved[0] += before
        before += int(counts.sum())
        return estimate(moved, tree, stream, what, starts, ends)

    with replaced(wide_tree, "estimate", counted):
        yield


@contextmanager
def misfit_doubled() -> Iterator[None]:
    """A row counts on both sides of a cell's middle when a hint is checked."""
    misfit = hinted.misfit
    with replaced(hinted, "misfit", lambda *given: 2 * misfit(*given)):
        yield


@contextmanager
def rows_counted_twice() -> Iterator[None]:
    """The cells of a grid overlap: a row counts in two of them."""
    release = wide_tree.release_nodes

    def doubled(counts: IntArray, *more: Any) -> list[IntArray]:
        return release(2 * counts, *more)

    with replaced(gridded, "release_nodes", doubled):
        yield


@contextmanager
def spill_over() -> Iterator[None]:
    """A batch of a stream takes a round number of rows, and the rest waits for the next one."""
    sized = Timer.sized

    def rounded(policy: Timer, collected: Collected) -> Beat:
        beat = sized(policy, collected)
        return beat._replace(rows=beat.rows // 100 * 100)

    with replaced(Timer, "sized", rounded):
        yield


@contextmanager
def threshold_anew() -> Iterator[None]:
    """A stream's threshold gets other noise at every test, as if each test were a batch's first."""
    noise_of = Collected.noise

    def anew(collected: Collected, purpose: str, *given: Any) -> noise.Noise:
        return noise.Noise.fresh() if purpose == "stream threshold" else noise_of(collected, purpose, *given)

    with replaced(Collected, "noise", anew):
        yield


@contextmanager
def half_forgotten() -> Iterator[None]:
    """The ledger tells half of what was spent."""
    claim = lives._claim

    def forgetful(db: Any) -> lives.Claim:
        return lives.Claim(claim(db).epsilon / 2, claim(db).delta)

    with replaced(lives, "_claim", forgetful):
        yield


TREES = ("paper-tree", "wide-tree", "adaptive-tree", "crypt-epsilon", "special")
INDEXES = ("dp-plr", "dp-plr-blocks", "dp-plr-paper", "dp-plr-published", "fmi", "dp-rmi")
GRIDS = ("merged", "found-grid")
STREAMS = ("stream-timer", "stream-threshold")
Defect = Callable[[], AbstractContextManager[None]]
DEFECTS: dict[str, tuple[Defect, tuple[str, ...]]] = {
    "half the noise": (half_the_noise, (*TREES, *INDEXES, "slack", "slack-lossless", "hint-check", *GRIDS, *STREAMS)),
    "a level short": (a_level_short, ("paper-tree", "wide-tree", "dp-bplus-tree")),
    "noise used twice": (noise_reused, ("two-batches",)),
    "exact largest error": (exact_bounds, ("dp-plr", "slack", "dp-plr-lossless")),
    "capacity without noise": (exact_bounds, ("capacity", "database", "stream-timer")),
    "a stream's spill-over": (spill_over, ("stream-timer",)),
    "a threshold's noise drawn anew": (threshold_anew, ("stream-threshold",)),
    "one slack for all blocks": (one_slack_for_all, ("dp-plr-blocks",)),
    "rows of the neighbour": (rows_of_the_neighbour, ("dp-plr-blocks",)),
    "misfit of a hint doubled": (misfit_doubled, ("hint-check",)),
    "rows counted twice over a grid": (rows_counted_twice, ("merged",)),
    "half of it forgotten": (half_forgotten, ("retry", "restore")),
}
"""Each defect, and the mechanisms in which an audit has to notice it."""

REPLAYED = ("one slack for all blocks", "rows of the neighbour")
"""Those that replay shows at once, and counting only in more runs than there is time for."""

RUNS = dict.fromkeys(("adaptive-tree", "dp-plr-paper", "dp-plr-published"), 6000)
RUNS |= {"database": 100, "fmi": 1200, "dp-rmi": 1200, "retry": 40, "restore": 40}
"""How many runs show a defect, but for one chance in a million; 2,500 in the others."""

EPSILONS = {"fmi": Fraction(4), "dp-rmi": Fraction(4), "stream-threshold": Fraction(2)}
"""Where a defect shows soonest, if not at epsilon 1: Gaussian noise for a small epsilon takes many runs to measure."""
