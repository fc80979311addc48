"""DP-PLR: keys and a budget come in, a differentially private learned index goes out.

The keys are secret, and so is every stage before the noise; the fitted index is public. `fit` reads top to bottom as
the paper does: histogram, noisy curve, isotonic regression, segments, slack.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from math import ceil
from os import PathLike
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.domain import Domain
from scumble.errors import BudgetError, BudgetUsed, FileError, InvalidParameter, NotFitted
from scumble.index.curve import MonotoneCurve, NoisyCurve, make_monotone
from scumble.index.file import decode, encode, fixed_bytes, most_segments
from scumble.index.histogram import MAX_ROWS, Histogram
from scumble.index.model import POINT, IndexModel, MechanismName, PositionRange, SlackName
from scumble.index.segments import Segments, fit_segments, fit_within
from scumble.index.summary import IndexSummary, summarize
from scumble.privacy.amounts import Exact, exact, show
from scumble.privacy.coverage import curve_bound, lossless_delta, published_bound, release_bound
from scumble.privacy.ledger import Budget
from scumble.privacy.release import curve_tree, release_adaptive_curve, release_curve

__all__ = ["DPPLRIndex"]

SLACK_SHARE = Fraction(3, 10)  # of epsilon, for measuring the slack; the curve gets the rest
CHUNK = 1 << 20
LEAST_EPSILON, MOST_EPSILON = Fraction(1, 2**20), Fraction(2**10)


class DPPLRIndex:
    """A differentially private learned index.

    Say how large it may be with one of `max_bytes` (of its file), `max_segments` or `max_error` (the paper's tau, in
    rows); by default the fit follows the noisy curve as closely as its noise makes sense. `mechanism` and `slack`
    choose between the published design and ours; `alpha_s` sets the published slack Z = alpha_s (log2 N)^1.5 / epsilon
    instead of one that is computed from beta.
    """

    def __init__(
        self,
        *,
        max_bytes: int | None = None,
        max_segments: int | None = None,
        max_error: int | None = None,
        mechanism: MechanismName = "scumble",
        slack: SlackName = "measured",
        alpha_s: Exact | None = None,
    ) -> None:
        sizes = {"max_bytes": max_bytes, "max_segments": max_segments, "max_error": max_error}
        given = [name for name, value in sizes.items() if value is not None]
        if len(given) > 1:
            raise InvalidParameter(f"{' and '.join(given)} exclude each other", hint="give one of them")
        for name in given:
            _check_count(sizes[name], name)
        _check_choice(mechanism, "mechanism", get_args(MechanismName))
        _check_choice(slack, "slack", get_args(SlackName))
        if alpha_s is not None and (slack != "paper" or exact(alpha_s, "alpha_s") <= 0):
            raise InvalidParameter(
                "alpha_s must be positive, and goes with slack='paper'", hint="leave it out otherwise"
            )
        self.max_bytes = max_bytes
        self.max_segments = max_segments
        self.max_error = max_error
        self.mechanism = mechanism
        self.slack = slack
        self.alpha_s = None if alpha_s is None else exact(alpha_s, "alpha_s")
        self._model: IndexModel | None = None
        self._curve: NoisyCurve | None = None

    # --- fit ---------------------------------------------------------------------------------------

    def fit(
        self, keys: object, *, domain: Domain, budget: Budget, beta: Exact = 1e-6, capacity: int | None = None
    ) -> Self:
        """Learn the index of a column of keys.

        Sensitivity and cost are those of the parts: docs/privacy.md section 6. Neighbours: one row added or removed.
        What can be refused is refused before the budget is drawn, and the budget then cancelled.
        """
        with _refusals_cost_nothing(budget):
            _check_domain(domain)
            histogram = Histogram.of_ranks(domain.ranks(keys), domain.size)
            self._check(histogram, domain, budget, exact(beta, "beta"), capacity)
            budget.draw()
        return self._build(histogram, domain, budget, exact(beta, "beta"), capacity)

    def fit_counts(
        self, counts: ArrayLike, *, domain: Domain, budget: Budget, beta: Exact = 1e-6, capacity: int | None = None
    ) -> Self:
        """Learn the index of a ready histogram: one count for every rank of the domain.

        For tables larger than memory, and for the enclave, which counts obliviously: from here on no branch and no
        address depends on a count.
        """
        with _refusals_cost_nothing(budget):
            _check_domain(domain)
            histogram = Histogram.of_counts(counts, domain.size)
            self._check(histogram, domain, budget, exact(beta, "beta"), capacity)
            budget.draw()
        return self._build(histogram, domain, budget, exact(beta, "beta"), capacity)

    def _check(
        self, histogram: Histogram, domain: Domain, budget: Budget, beta: Fraction, capacity: int | None
    ) -> None:
        """Refuse whatever would make the build fail after the budget is drawn."""
        if not 0 < beta < 1:
            raise InvalidParameter("beta must lie between 0 and 1", hint="it is a probability, such as 1e-6")
        if not LEAST_EPSILON <= budget.row_epsilon <= MOST_EPSILON:
            raise InvalidParameter(
                "epsilon for one row must lie between 2^-20 and 2^10", hint="values from 0.1 to 10 are usual"
            )
        if capacity is not None:
            _check_count(capacity, "capacity")
            if capacity > MAX_ROWS or not histogram.fits(capacity):
                raise InvalidParameter("the rows do not fit the capacity", hint="give a larger one, below 2^36")
        if self.slack == "lossless":
            needed = lossless_delta(budget.row_epsilon, beta)
            if budget.row_delta < needed:
                raise InvalidParameter(
                    f"slack='lossless' needs a delta of {show(needed)} for one row",
                    hint="give it to ledger.spend(..., delta=...), or take a smaller beta",
                )
        if self.max_bytes and most_segments(self._room(domain, budget, beta), domain.size, MAX_ROWS, MAX_ROWS) < 1:
            raise InvalidParameter("max_bytes has no room for a single segment", hint="256 bytes are always enough")

    def _build(
        self, histogram: Histogram, domain: Domain, budget: Budget, beta: Fraction, capacity: int | None
    ) -> Self:
        """The pipeline: every line a stage, public from the curve on. The budget has been drawn."""
        epsilon = budget.row_epsilon
        measured = self.slack != "paper"
        curve_epsilon = epsilon * (1 - SLACK_SHARE) if measured else epsilon
        tree = curve_tree(self.mechanism, domain.size, curve_epsilon)
        if measured and self.mechanism == "scumble":
            curve = release_adaptive_curve(histogram, curve_epsilon)
        else:
            curve = release_curve(histogram, tree)
        monotone = make_monotone(curve, capacity)
        segments = self._fit_segments(monotone, curve.noise_rms, self._room(domain, budget, beta))
        if measured:
            deviation = segments.deviation(histogram)
            slack = release_bound(deviation, epsilon * SLACK_SHARE, beta, lossless=self.slack == "lossless")
        elif self.alpha_s is not None:
            slack = _largest_fit_error(segments, monotone) + published_bound(domain.size, epsilon, self.alpha_s)
        else:
            slack = _largest_fit_error(segments, monotone) + curve_bound(tree, beta)
        lossless = self.slack == "lossless"
        self._curve = curve
        self._model = IndexModel(
            domain=domain,
            segments=segments,
            slack_rows=slack,
            # No lookup loses a row unless the last one does: so this bounds the rows, at no cost.
            capacity=segments.at(domain.size - 1) + slack if capacity is None else capacity,
            epsilon=budget.epsilon,
            delta=budget.delta if lossless else Fraction(0),
            beta=Fraction(0) if lossless else beta,
            levels=curve.levels,
            mechanism=self.mechanism,
            slack=self.slack,
        )
        return self

    def _fit_segments(self, curve: MonotoneCurve, noise_rms: float, room_bytes: int) -> Segments:
        """As many segments as asked for; never so many that they would only follow the noise."""
        if self.max_bytes is None and self.max_segments is None:
            fit = fit_segments(curve, self.max_error or max(1, ceil(noise_rms)))
            assert fit is not None  # noqa: S101  without a limit there is always a fit
            return fit
        size, rows = len(curve.rows), int(curve.rows[-1])
        return fit_within(
            curve,
            max(1, ceil(noise_rms / 2)),
            lambda max_error: self.max_segments or most_segments(room_bytes, size, rows, max_error),
        )

    def _room(self, domain: Domain, budget: Budget, beta: Fraction) -> int:
        """The bytes that the segments may take."""
        return (self.max_bytes or 0) - fixed_bytes(domain, budget.epsilon, budget.delta, beta)

    # --- lookup ------------------------------------------------------------------------------------

    @property
    def model(self) -> IndexModel:
        """The fitted index, public."""
        if self._model is None:
            raise NotFitted("this index has not been fitted", hint="call fit, fit_counts or DPPLRIndex.load first")
        return self._model

    @property
    def noisy_curve(self) -> NoisyCurve:
        """The noisy curve of the fit, public; a loaded index no longer has it."""
        if self._curve is None:
            raise NotFitted("there is no noisy curve", hint="it is kept by fit, but not in the index file")
        return self._curve

    def lookup(self, low: object, high: object = POINT) -> PositionRange:
        """The positions, among the rows sorted by key, that hold every row with low <= key <= high.

        Without `high`: with key == low. None for either end leaves it open.
        """
        return self.model.lookup(low, high)

    def lookup_many(
        self, lows: ArrayLike, highs: ArrayLike | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Starts and stops for many ranges at once; without `highs`, for many single keys."""
        return self.model.lookup_many(lows, highs)

    def summary(self) -> IndexSummary:
        """Segments, bytes, slack, epsilon, beta, expected overhead: before anything is queried."""
        return summarize(self.model)

    # --- file and picture --------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the index file."""
        try:
            Path(path).write_bytes(encode(self.model))
        except OSError as error:
            raise FileError(f"cannot write the index file: {error.strerror}", hint=f"path: {path}") from error

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read an index file; no data is needed."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise FileError(f"cannot read the index file: {error.strerror}", hint=f"path: {path}") from error
        model = decode(data)
        index = cls(max_error=model.segments.max_error, mechanism=model.mechanism, slack=model.slack)
        index._model = model
        return index

    def plot(self, path: str | PathLike[str] | None = None, **options: Any) -> object:
        """Draw the segments and the band of a lookup; to a file if a path is given. See `index/plot.py`."""
        from scumble.index.plot import draw  # matplotlib is an extra

        return draw(self, path, **options)

    def __repr__(self) -> str:
        size = next(
            (f"{n}={v}, " for n in ("max_bytes", "max_segments", "max_error") if (v := getattr(self, n)) is not None),
            "",
        )
        state = "not fitted" if self._model is None else f"{len(self._model.segments)} segments"
        return f"DPPLRIndex({size}mechanism={self.mechanism!r}, slack={self.slack!r}) <{state}>"


@contextmanager
def _refusals_cost_nothing(budget: object) -> Iterator[None]:
    """Cancel the budget if what follows refuses: nothing has been drawn from it yet."""
    if not isinstance(budget, Budget):
        raise InvalidParameter("budget must come from a ledger", hint="budget=ledger.spend(1, 'salary')")
    if budget.state != "open":
        raise BudgetUsed("this budget has already been used or cancelled", hint="spend a new one for every fit")
    try:
        yield
    except BaseException:
        with suppress(BudgetError):  # busy, or drawn after all: then it stays spent, which is the safe side
            budget.cancel()
        raise


def _check_domain(domain: object) -> None:
    if not isinstance(domain, Domain):
        raise InvalidParameter("domain must be a Domain", hint="IntegerDomain(0, 1000), or parse_domain('int:0:1000')")


def _check_count(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidParameter(f"{name} must be a whole number of at least 1", hint=f"{name}=100, for example")


def _check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidParameter(f"there is no such {name}", hint="one of " + ", ".join(map(repr, choices)))


def _largest_fit_error(segments: Segments, monotone: MonotoneCurve) -> int:
    """The paper's e_max: a maximum, not an argmax, and over public curves only."""
    return max(
        int(np.abs(segments.at_many(np.arange(start, start + len(part))) - part).max())
        for start in range(0, segments.size, CHUNK)
        if len(part := monotone.rows[start : start + CHUNK])
    )
