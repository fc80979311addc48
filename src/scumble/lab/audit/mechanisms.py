"""The built-in subjects: every mechanism that spends epsilon, each with the tables that show the most of it.

All tables here are made up. They are as small as each mechanism allows, since the fewer nodes a row counts in, the
likelier are outputs that tell the two tables apart as well as epsilon allows; the row is where it counts in most nodes.
Each has 50 rows or more of a rank, so that no cut at zero hides anything.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from fractions import Fraction
from importlib.util import find_spec
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index import grid as grids
from scumble.index import slack as coverage
from scumble.index.contract import Index, Terms
from scumble.index.curve import Histogram
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.grid import NEW, Grid
from scumble.index.hint import Hint
from scumble.index.mechanisms import Tree, gridded, scout
from scumble.index.mechanisms.hinted import TRUSTED, HintedCells, follows, misfit
from scumble.index.mechanisms.paper import BinaryTree
from scumble.index.mechanisms.scumble import release_adaptive_curve
from scumble.index.mechanisms.wide_tree import wide_tree
from scumble.index.merging import Merged, merged
from scumble.index.tally import Tally
from scumble.lab.audit.bound import Features
from scumble.lab.audit.database import database, restored, retried
from scumble.lab.audit.run import Subject, tapped
from scumble.lab.audit.streams import threshold, timer
from scumble.lab.audit.tap import replaced
from scumble.lab.comparators import CryptEpsilonIndex, DPBPlusTreeIndex, DPRMIIndex, FMIIndex, SpecialIndex, trained
from scumble.lab.comparators.curves import TwoCurvesIndex, truncation_delta
from scumble.lab.comparators.trained import TrainedIndex
from scumble.owner.loading import CAPACITY_BETA, _fix_capacity
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Noise
from scumble.types import IntegerDomain

__all__ = ["NAMES", "chosen", "subject"]

ROWS = 50
BETA = Fraction(1, 1000)  # so large that what is cut off happens now and then
GAUSSIAN_DELTA = Fraction(1, 10**6)
ERROR_SHARE = Fraction(1, 50)  # of epsilon, so that nearly all of it is the gradients': slack has an audit of its own
PAGE_ROWS = 16
IntArray = NDArray[np.int64]


def neighbours(size: int, rows: int = ROWS) -> tuple[IntArray, IntArray]:
    """Two tables over `size` ranks; the second has one row more, of the first rank: it counts in most nodes."""
    one = np.full(size, rows, dtype=np.int64)
    other = one.copy()
    other[0] += 1
    return one, other


# --- curves ----------------------------------------------------------------------------------------


def paper_tree(epsilon: Fraction, size: int = 2) -> Subject:
    """Algorithm 1's binary mechanism."""
    tree = BinaryTree(size, epsilon)
    return _tree("paper-tree", f"binary mechanism, {tree.levels} levels", size, tree)


def wide(epsilon: Fraction, size: int = 80) -> Subject:
    """The wide tree, with two levels."""
    tree = wide_tree(size, epsilon)
    return _tree("wide-tree", f"wide tree, {tree.levels} levels", size, tree)


def _tree(name: str, about: str, size: int, tree: Tree) -> Subject:
    return tapped(name, about, tree.epsilon, neighbours(size), lambda counts: tree.release(Histogram(counts)))


def adaptive(epsilon: Fraction) -> Subject:
    """Scout and cells, on a domain that is small, and taken for large."""

    @contextmanager
    def small() -> Iterator[None]:
        sizes = {"COARSE_BLOCKS": 2, "FINE_PER_COARSE": 2, "FALSE_HEAVY": 1, "SPIKE": 0}  # so that it often searches
        with ExitStack() as stack:
            for name, value in sizes.items():
                stack.enter_context(replaced(scout, name, value))
            yield

    return tapped(
        "adaptive-tree",
        "scout, then a tree over its cells",
        epsilon,
        neighbours(8),
        lambda counts: release_adaptive_curve(Histogram(counts), epsilon),
        setting=small,
    )


def two_batches(epsilon: Fraction) -> Subject:
    """Two batches of a table, of which one has the row: they compose in parallel, if their noise is independent."""
    tree, (fixed, _) = BinaryTree(1, epsilon), neighbours(1)

    def build(counts: IntArray) -> tuple[int, int]:
        first, second = (int(tree.release(Histogram(batch)).rows[0]) for batch in (counts, fixed))
        return first, first - second

    about, seen = "two builds, the row in one of them", "difference of the builds"
    return tapped("two-batches", about, epsilon, neighbours(1), build, lambda found: found, seen=seen)


# --- indexes ---------------------------------------------------------------------------------------


def _fitted(
    index: Index, epsilon: Fraction, size: int, delta: Fraction, capacity: int | None
) -> Callable[[IntArray], object]:
    """A build as `fit_counts` does it, without a ledger: the money is not what is audited here."""
    terms = Terms(IntegerDomain(0, size - 1), epsilon, delta, BETA, capacity, epsilon, delta)
    index.check(terms)
    return lambda counts: index._fitted(Histogram(counts), terms, Noise.fresh())


def _index(
    name: str,
    index: Index,
    epsilon: Fraction,
    features: Callable[[Any], Features],
    *,
    size: int = 1,
    delta: Fraction = Fraction(0),
    capacity: int | None = None,
    fixed: bool = False,
    gaussian: bool = False,
    setting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Subject:
    build = _fitted(index, epsilon, size, delta, capacity)
    keys = "a single key" if size == 1 else f"{size} keys"
    about = f"{index!r}".split("(")[0] + f", {keys}"
    return tapped(
        name,
        about,
        epsilon,
        neighbours(size),
        build,
        features,
        delta=delta,
        fixed=fixed,
        gaussian=gaussian,
        setting=setting,
    )


def _plr_features(index: DPPLRIndex) -> Features:
    """Where the curve lies at the row's rank; and the slack less what it has to be at least without the row."""
    size, at = index.model.segments.size, index.model.segments.at_many(np.arange(index.model.segments.size))
    errors = at - ROWS * np.arange(1, size + 1)
    worst = int(errors[np.argmax(np.abs(errors))])
    return (int(at[0]), (worst > 0, index.model.slack_rows - abs(worst)))


def _block_features(index: DPPLRIndex) -> Features:
    """Where the curve lies at the row's rank, where the next block begins, and both slacks."""
    blocks = index.model.blocks
    assert blocks is not None  # noqa: S101  as `blocks` asks for
    return (index.model.segments.at(0), int(blocks.places[1]), *blocks.slacks.tolist())


def blocks(epsilon: Fraction, slack: coverage.SlackName = "measured") -> Subject:
    """Two padded blocks, the row in the first of them."""
    index, name = DPPLRIndex(slack=slack, blocks=2), "dp-plr-blocks" + ("-lossless" if slack == "lossless" else "")
    delta = coverage.SLACKS[slack].delta(epsilon, BETA, 2)
    return _index(name, index, epsilon, _block_features, size=16, delta=delta)


def hint_check(epsilon: Fraction) -> Subject:
    """Whether keys follow a hint: of two ranks one has far more rows than the hint has it, just as many as decide."""
    size, rows = 2, 400
    hint = Hint.of_counts(np.full(size, rows // size))
    marks = hint.at_many(np.arange(size))
    cells = HintedCells(np.zeros(1, np.int64), np.array([0, hint.span]), marks)
    more = 0
    while int(misfit(np.array([rows + more, rows]), cells, rows)[0]) < ceil(TRUSTED / epsilon):
        more += 1
    one, other = (np.array([rows + more + extra, rows], dtype=np.int64) for extra in (0, 1))

    def build(counts: IntArray) -> bool:
        return follows(Histogram(counts), hint, rows, cells, epsilon, Noise.fresh())

    about = "the check of a hint"
    return tapped("hint-check", about, epsilon, (one, other), build, float, seen="whether it is followed")


def merged_batches(epsilon: Fraction, size: int = 1) -> Subject:
    """Two batches over a common grid, the row in one of them, and the index that both give together."""
    grid, (fixed, _) = Grid.even(size, ROWS), neighbours(size)
    terms = Terms(IntegerDomain(0, size - 1), epsilon, Fraction(0), BETA, 4 * size * ROWS, epsilon, Fraction(0))

    def tally(counts: IntArray) -> Tally:
        index = DPPLRIndex(grid=grid)._fitted(Histogram(counts), terms, Noise.fresh())
        assert index.tally is not None  # noqa: S101  as `grid` asks for
        return index.tally

    def build(counts: IntArray) -> Merged:
        return merged([tally(counts), tally(fixed)])

    def features(found: Merged) -> Features:
        return (found.index.segments.at(0), found.index.slack_rows, *found.tally.counted[0].nodes.tolist())

    return tapped("merged", "two batches over one grid, merged", epsilon, neighbours(size), build, features)


def found_grid(epsilon: Fraction) -> Subject:
    """A batch that finds its grid, on a domain that is small, and taken for large."""

    @contextmanager
    def small() -> Iterator[None]:
        with (
            replaced(grids, "LEAST_CELLS", 2),
            replaced(grids, "CELLS", 0),
            replaced(gridded, "COARSE_BLOCKS", 2),
        ):
            yield

    return _index("found-grid", DPPLRIndex(grid=NEW), epsilon, _plr_features, size=8, capacity=16 * ROWS, setting=small)


def _plr(name: str, epsilon: Fraction, *, size: int = 1, delta: Fraction = Fraction(0), **options: Any) -> Subject:
    return _index(name, DPPLRIndex(**options), epsilon, _plr_features, size=size, delta=delta)


def _two_curves(name: str, index: TwoCurvesIndex, epsilon: Fraction, delta: Fraction = Fraction(0)) -> Subject:
    """Crypt-epsilon on two keys; SPECIAL, whose two curves and delta make up for the second, on one."""

    def features(fitted: TwoCurvesIndex) -> Features:
        curves = fitted.curves
        return (*curves.lower.tolist(), *(() if curves.upper is curves.lower else curves.upper.tolist()))

    return _index(name, index, epsilon, features, size=1 if delta else 2, delta=delta, fixed=True)


def dp_bplus_tree(epsilon: Fraction) -> Subject:
    """A tree of noisy counts."""

    def features(index: DPBPlusTreeIndex) -> Features:
        return tuple(index.nodes.tolist())

    return _index("dp-bplus-tree", DPBPlusTreeIndex(), epsilon, features, size=2, fixed=True)


def _trained(name: str, kind: Callable[..., TrainedIndex], epsilon: Fraction, **shape: int) -> Subject:
    """One step of training of one line."""

    def features(fitted: Any) -> Features:
        at = int(fitted.model.at(np.arange(1))[0])
        return (at, (at > ROWS, fitted.model.slack_rows - abs(at - ROWS)))

    return _index(
        name,
        kind(**shape, steps=1, error_share=ERROR_SHARE, sensitivity="row"),
        epsilon,
        features,
        delta=GAUSSIAN_DELTA,
        capacity=4 * ROWS,
        gaussian=True,
        # Slow, and for a history that nobody keeps.
        setting=lambda: replaced(trained.Parts, "spent", lambda *given: Fraction(0)),
    )


# --- single numbers --------------------------------------------------------------------------------


def _slack(name: str, about: str, epsilon: Fraction, delta: Fraction = Fraction(0)) -> Subject:
    """The measured slack; with a delta, the one that is never too small."""

    def build(rows: IntArray) -> int:
        return coverage.release_bound(rows, epsilon, BETA, lossless=delta > 0)

    return tapped(name, about, epsilon, neighbours(1), build, float, seen="the slack", delta=delta)


def capacity(epsilon: Fraction) -> Subject:
    """The drawn capacity of a table that, without its last row, would fill its pages."""
    rows = 10 * PAGE_ROWS - coverage.shift(epsilon, CAPACITY_BETA) % PAGE_ROWS

    def fresh(*_: object) -> Noise:
        return Noise.fresh()

    return tapped(
        "capacity",
        "drawn capacity, in pages",
        epsilon,
        neighbours(1, rows),
        lambda counts: _fix_capacity(int(counts[0]), unsafe_budget(epsilon), None, PAGE_ROWS, fresh),
        float,
        seen="the capacity",
        delta=coverage.lossless_delta(epsilon, CAPACITY_BETA),
    )


_SUBJECTS: dict[str, Callable[[Fraction], Subject]] = {
    "paper-tree": paper_tree,
    "wide-tree": wide,
    "adaptive-tree": adaptive,
    "slack": lambda e: _slack("slack", "noisy largest error", e),
    "slack-lossless": lambda e: _slack(
        "slack-lossless", "the same, cut off at the truth", e, coverage.lossless_delta(e, BETA)
    ),
    "capacity": capacity,
    "dp-plr": lambda e: _plr("dp-plr", e),
    "dp-plr-paper": lambda e: _plr("dp-plr-paper", e, size=2, mechanism="paper"),
    "dp-plr-published": lambda e: _plr("dp-plr-published", e, size=2, mechanism="paper", slack="paper"),
    "dp-plr-lossless": lambda e: _plr(
        "dp-plr-lossless", e, delta=coverage.SLACKS["lossless"].delta(e, BETA), slack="lossless"
    ),
    "dp-plr-blocks": blocks,
    "dp-plr-blocks-lossless": lambda e: blocks(e, "lossless"),
    "hint-check": hint_check,
    "merged": merged_batches,
    "found-grid": found_grid,
    "two-batches": two_batches,
    "crypt-epsilon": lambda e: _two_curves("crypt-epsilon", CryptEpsilonIndex(), e),
    "special": lambda e: _two_curves("special", SpecialIndex(), e, truncation_delta(e, BETA)),
    "dp-bplus-tree": dp_bplus_tree,
    "fmi": lambda e: _trained("fmi", FMIIndex, e, experts=1),
    "dp-rmi": lambda e: _trained("dp-rmi", DPRMIIndex, e, models=1, stages=1),
    "stream-timer": timer,
    "stream-threshold": threshold,
    "database": database,
    "retry": retried,
    "restore": restored,
}
NAMES = tuple(_SUBJECTS)


def subject(name: str, epsilon: Fraction) -> Subject:
    """The mechanism of that name."""
    if name not in _SUBJECTS:
        raise InvalidParameter("there is no such mechanism", hint="all, or one of " + ", ".join(NAMES))
    return _SUBJECTS[name](epsilon)


def chosen(name: str, epsilon: Fraction) -> list[Subject]:
    """The one of that name, or all of them; the trained ones only where what they need is installed."""
    trainable = find_spec("dp_accounting") is not None
    every = [each for each in NAMES if trainable or each not in ("fmi", "dp-rmi")]
    return [subject(each, epsilon) for each in (every if name == "all" else (name,))]
