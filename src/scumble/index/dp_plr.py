"""DP-PLR, the differentially private learned index, fitted to a column of keys for a budget.

The keys are secret, and so is every stage before the noise; the fitted index is public. `_build` reads top to bottom as
the paper does: noisy curve, isotonic regression, segments, slack.
"""

from dataclasses import replace
from fractions import Fraction
from math import ceil
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter, NotFitted
from scumble.index.blocks import LEAST_RANKS, Blocks
from scumble.index.contract import Index, Terms, check_count
from scumble.index.curve import MAX_ROWS, Histogram, MonotoneCurve, NoisyCurve, make_monotone
from scumble.index.file import (
    MECHANISMS,
    IndexModel,
    block_bytes,
    decode,
    encode,
    fixed_bytes,
    most_segments,
    read_file,
    write_file,
)
from scumble.index.grid import NEW, Grid
from scumble.index.hint import Hint
from scumble.index.mechanisms import Halves
from scumble.index.mechanisms.gridded import find_grid, release_over_grid
from scumble.index.mechanisms.hinted import CHECK_SHARE, HintedCells, follows, hinted_cells, release_hinted
from scumble.index.merging import index_of_tally
from scumble.index.plan import USUAL, Plan
from scumble.index.segments import Segments, fit_all, fit_within, join
from scumble.index.slack import MOST_BLOCKS, SLACKS, MeasuredSlack, PaperSlack, SlackName, slack_named
from scumble.index.tally import Batches, NodeCounts, Tally
from scumble.privacy.budget import Exact, exact, show
from scumble.privacy.noise import Noise

if TYPE_CHECKING:
    from scumble.index.summary import IndexSummary

__all__ = ["DESIGN", "DPPLRIndex", "left_after_check"]

DESIGN = 3
"""Of what a build releases for the same rows and terms: who changes that changes this, so that a load which an earlier
release has left unfinished is another load, with noise and a price of its own."""


class DPPLRIndex(Index):
    """A differentially private learned index.

    Say how large it may be with one of `max_bytes` (of its file), `max_segments` or `max_error` (the paper's tau, in
    rows); by default the fit follows the noisy curve as closely as its noise makes sense. `mechanism` and `slack`
    choose between the published design and ours; `alpha_s` sets the published slack Z = alpha_s (log2 N)^1.5 / epsilon
    instead of one that is computed from beta: nothing is then promised about lost rows, and the model's beta is 1.

    With a `hint`, a public curve, the fit follows that, unless a private check finds that the keys do not
    (`index/hint.py`); the file then holds the hint as well, in bytes that `max_bytes` does not count.

    A `plan` says how its epsilon is divided and how coarse its cells are (`index/plan.py`).

    With `blocks`, positions are not those of the sorted rows but of rows laid out in so many padded blocks, where
    lookups are about half as wide: `model.blocks.unsafe_places` says where each row goes. Tables do that by themselves.

    With a `grid` (or its packed form, or NEW to find one) rows are counted in cells that all batches of a table share,
    and the noisy counts are kept as `tally`: indexes of several batches can then be merged at no cost
    (`index/merging.py`). The slack is computed from the noise, and as many blocks are made as suit the released rows.
    """

    name = "DP-PLR"

    def __init__(
        self,
        *,
        max_bytes: int | None = None,
        max_segments: int | None = None,
        max_error: int | None = None,
        mechanism: str = "scumble",
        slack: SlackName = "measured",
        alpha_s: Exact | None = None,
        blocks: int = 1,
        hint: Hint | None = None,
        plan: Plan | None = None,
        grid: Grid | bytes | None = None,
    ) -> None:
        sizes = {"max_bytes": max_bytes, "max_segments": max_segments, "max_error": max_error}
        given = [name for name, value in sizes.items() if value is not None]
        if len(given) > 1:
            raise InvalidParameter(f"{' and '.join(given)} exclude each other", hint="give one of them")
        for name in given:
            check_count(sizes[name], name)
        _check_choice(mechanism, "mechanism", tuple(MECHANISMS))
        _check_choice(slack, "slack", tuple(SLACKS))
        if alpha_s is not None and (slack != "paper" or exact(alpha_s, "alpha_s") <= 0):
            raise InvalidParameter(
                "alpha_s must be positive, and goes with slack='paper'", hint="leave it out otherwise"
            )
        check_count(blocks, "blocks")
        if blocks > 1 and (slack == "paper" or MECHANISMS[mechanism].release_halves is None):
            raise InvalidParameter("the published mechanism and slack know no blocks", hint="leave blocks at 1")
        if blocks > MOST_BLOCKS:
            raise InvalidParameter(f"there can be at most {MOST_BLOCKS} blocks", hint="32 suit a million rows")
        if hint is not None and (slack == "paper" or MECHANISMS[mechanism].release_halves is None):
            raise InvalidParameter("the published mechanism and slack know no hints", hint="leave the hint out")
        if plan is not None and (slack == "paper" or MECHANISMS[mechanism].release_halves is None):
            raise InvalidParameter("the published mechanism and slack follow no plan", hint="leave the plan out")
        alone = hint is None and plan is None and max_segments is None and max_error is None
        if grid is not None and not (
            alone and slack == "measured" and MECHANISMS[mechanism].release_halves is not None
        ):
            raise InvalidParameter(
                "a grid goes with the usual mechanism and slack, and with no hint, plan, max_segments or max_error",
                hint="leave these out, or the grid",
            )
        self.blocks = blocks
        self.hint = hint
        self.grid = grid
        self.plan = plan or USUAL
        self.max_bytes = max_bytes
        self.max_segments = max_segments
        self.max_error = max_error
        self.mechanism = mechanism
        self.slack = slack
        self.alpha_s = None if alpha_s is None else exact(alpha_s, "alpha_s")
        self._slack = slack_named(slack, self.plan) if alpha_s is None else PaperSlack(self.alpha_s)
        super().__init__()
        self._curve: NoisyCurve | None = None
        self._tally: Tally | None = None

    # --- fit ---------------------------------------------------------------------------------------

    def _check(self, terms: Terms) -> None:
        needed = self._slack.delta(left_after_check(terms.epsilon, self.hint), terms.beta, self.blocks)
        if terms.delta < needed:
            raise InvalidParameter(
                f"slack={self.slack!r} needs a delta of {show(needed)} for one row",
                hint="give it to ledger.spend(..., delta=...), or take a smaller beta",
            )
        if self.blocks > 1 and self.grid is None and terms.domain.size < LEAST_RANKS * self.blocks:
            raise InvalidParameter("the domain is too small for so many blocks", hint="leave blocks at 1")
        if self.hint is not None and (self.hint.marks.size != terms.domain.size or terms.capacity is None):
            raise InvalidParameter("a hint needs a capacity, and a domain of its own size", hint="capacity=1_000_000")
        if self.grid is not None and terms.capacity is None:
            raise InvalidParameter("a grid needs a capacity", hint="capacity=1_000_000")
        self._given_grid(terms)
        curves = 1 if self.blocks == 1 or self.grid is not None else 2 * self.blocks
        room = self.max_segments or curves
        if self.max_bytes:
            room = most_segments(self._room(terms), self._most_marks(terms), MAX_ROWS, MAX_ROWS, curves)
        if room < curves:
            least = "a single segment" if curves == 1 else f"{curves} segments, two for each block"
            few = "max_bytes has" if self.max_bytes else "max_segments leaves"
            raise InvalidParameter(f"{few} no room for {least}", hint="4096 is usual")

    def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> IndexModel:
        """The pipeline of the paper: noisy curve, isotonic regression, segments, slack. Public from the curve on.

        Sensitivity and cost are those of the parts: docs/privacy.md section 6. Neighbours: one row added or removed.
        """
        if self.grid is not None and terms.capacity is not None:
            return self._build_over_grid(histogram, terms, terms.capacity, noise)
        cells = None
        if self.hint is not None and terms.capacity is not None:
            cells = self._checked_cells(histogram, terms, self.hint, terms.capacity, noise)
            terms = replace(terms, epsilon=left_after_check(terms.epsilon, self.hint))
        build = self._build_blocks if self.blocks > 1 else self._build_sorted
        return build(histogram, terms, noise, cells)

    def _build_over_grid(self, histogram: Histogram, terms: Terms, rows: int, noise: Noise) -> IndexModel:
        """Release node counts over common cells, and make the index of them as a merge does: docs/privacy.md 4.7."""
        grid, left = self._given_grid(terms), terms.epsilon
        if grid is None:
            grid, left = find_grid(histogram, rows, terms.epsilon, noise)
        nodes = release_over_grid(histogram, grid, left, noise)
        batches = Batches(1, terms.charged_epsilon, Fraction(0), terms.beta, rows)
        self._tally = Tally(terms.domain, (NodeCounts(grid, nodes, ((left, 1),), batches),))
        return index_of_tally(self._tally, max_bytes=self.max_bytes)

    def _given_grid(self, terms: Terms) -> Grid | None:
        """The grid that was given; None if one is to be found. InvalidParameter if it is for another domain."""
        if self.grid is None or self.grid == NEW:
            return None
        packed = self.grid.packed if isinstance(self.grid, Grid) else self.grid
        return Grid.unpacked(packed, terms.domain.size)

    def _checked_cells(
        self, histogram: Histogram, terms: Terms, hint: Hint, rows: int, noise: Noise
    ) -> HintedCells | None:
        """The cells of the hint, if the keys follow it. Costs CHECK_SHARE of epsilon, whatever comes out."""
        rows_per_cell = self.plan.rows_per_cell(left_after_check(terms.epsilon, hint), hinted=True)
        cells = hinted_cells(hint, rows, rows_per_cell, 2 * self.blocks)
        enough = len(cells.starts) >= 2 * self.blocks
        return cells if follows(histogram, hint, rows, cells, terms.epsilon * CHECK_SHARE, noise) and enough else None

    def _build_sorted(
        self, histogram: Histogram, terms: Terms, noise: Noise, cells: HintedCells | None = None
    ) -> IndexModel:
        """One curve and one slack for rows that lie as they are sorted."""
        mechanism = MECHANISMS[self.mechanism]
        if cells is not None and self.hint is not None:
            assert isinstance(self._slack, MeasuredSlack)  # noqa: S101  others were refused before
            left = self._slack.left(terms.epsilon, in_blocks=False)
            curve = release_hinted(histogram, self.hint, cells, 1, left, noise).curves[0]
        else:
            self._curve = curve = self._slack.release_curve(mechanism, histogram, terms, noise)
        monotone = make_monotone(curve, terms.capacity)
        (segments,) = self._fit_segments([monotone], curve.noise_rms, terms)
        marks = None if cells is None else cells.marks
        slack = self._slack.release_rows(mechanism, histogram, terms, monotone, segments, noise, marks)
        # No lookup loses a row unless the last one does: so this bounds the rows, at no cost.
        capacity = segments.at(segments.size - 1) + slack if terms.capacity is None else terms.capacity
        return self._model(terms, segments, slack, capacity, curve.levels, hinted=cells is not None)

    def _build_blocks(
        self, histogram: Histogram, terms: Terms, noise: Noise, cells: HintedCells | None = None
    ) -> IndexModel:
        """Two curves and one slack for each of the padded blocks: docs/privacy.md sections 4.4 and 5.4."""
        assert isinstance(self._slack, MeasuredSlack)  # noqa: S101  others were refused before
        halves = self._release_halves(histogram, self._slack.left(terms.epsilon, in_blocks=True), noise, cells)
        self._curve = None
        monotone = [make_monotone(curve, terms.capacity) for curve in halves.curves]
        parts = self._fit_segments(monotone, max(curve.noise_rms for curve in halves.curves), terms)
        marks = None if cells is None else cells.marks
        slacks = self._slack.release_block_rows(histogram, terms, halves.bounds, parts, noise, marks)
        segments = join(parts)
        blocks = Blocks.of(halves.bounds, segments.totals, slacks)
        hinted = cells is not None
        return self._model(terms, segments, int(slacks.max()), blocks.rows, halves.levels, blocks, hinted=hinted)

    def _release_halves(
        self, histogram: Histogram, epsilon: Fraction, noise: Noise, cells: HintedCells | None
    ) -> Halves:
        if cells is not None and self.hint is not None:
            return release_hinted(histogram, self.hint, cells, 2 * self.blocks, epsilon, noise)
        release = MECHANISMS[self.mechanism].release_halves
        assert release is not None  # noqa: S101  others were refused before
        return release(histogram, self.blocks, epsilon, noise, self.plan)

    def _model(
        self,
        terms: Terms,
        segments: Segments,
        slack: int,
        capacity: int,
        levels: int,
        blocks: Blocks | None = None,
        *,
        hinted: bool,
    ) -> IndexModel:
        lossless = self._slack.lossless
        return IndexModel(
            domain=terms.domain,
            segments=segments,
            slack_rows=slack,
            capacity=capacity,
            epsilon=terms.charged_epsilon,
            delta=terms.charged_delta if lossless else Fraction(0),
            beta=Fraction(0) if lossless else terms.beta if self.alpha_s is None else Fraction(1),
            levels=levels,
            mechanism=self.mechanism,
            slack=self.slack,
            blocks=blocks,
            hint=self.hint if hinted else None,
        )

    def _fit_segments(self, curves: list[MonotoneCurve], noise_rms: float, terms: Terms) -> list[Segments]:
        """As many segments as asked for; never so many that they would only follow the noise."""
        if self.max_bytes is None and self.max_segments is None:
            fit = fit_all(curves, self.max_error or max(1, ceil(noise_rms)))
            assert fit is not None  # noqa: S101  without a limit there is always a fit
            return fit
        room, size, rows = self._room(terms), self._most_marks(terms), sum(int(curve.rows[-1]) for curve in curves)
        return fit_within(
            curves,
            max(1, ceil(noise_rms / 2)),
            lambda max_error: self.max_segments or most_segments(room, size, rows, max_error, len(curves)),
        )

    def _room(self, terms: Terms) -> int:
        fixed = fixed_bytes(terms.domain, terms.charged_epsilon, terms.charged_delta, terms.beta)
        return (self.max_bytes or 0) - fixed - (block_bytes(self.blocks, terms.domain.size) if self.blocks > 1 else 0)

    def _most_marks(self, terms: Terms) -> int:
        """What segments may begin at: a rank, or a mark of the hint if the keys follow that."""
        return terms.domain.size if self.hint is None else max(terms.domain.size, self.hint.span)

    # --- what was fitted ---------------------------------------------------------------------------

    @property
    def model(self) -> IndexModel:
        positions = self.positions
        assert isinstance(positions, IndexModel)  # noqa: S101  _build and load put nothing else there
        return positions

    @property
    def tally(self) -> Tally | None:
        """The node counts that the fit has released over its grid, public; None if it had none, or was loaded."""
        return self._tally

    @property
    def noisy_curve(self) -> NoisyCurve:
        """The noisy curve of the fit, public; a loaded index no longer has it, and one in blocks has many."""
        if self._curve is None:
            raise NotFitted("there is no noisy curve", hint="it is kept by fit, but not in the index file")
        return self._curve

    @property
    def size_bytes(self) -> int:
        return len(encode(self.model))

    def unsafe_dummy_rows(self, counts: NDArray[np.int64]) -> int:
        """SECRET: the dummies of its blocks."""
        return 0 if self.blocks == 1 else self.model.capacity - int(counts.sum())

    def summary(self) -> "IndexSummary":
        """Segments, bytes, slack, epsilon, beta, expected overhead: before anything is queried."""
        from scumble.index.summary import summarize  # no enclave needs it, and what an enclave imports is measured

        return summarize(self.model)

    # --- file and picture --------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        write_file(path, encode(self.model))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read an index file; no data is needed."""
        model = decode(read_file(path))
        computed = model.slack == "paper" and model.blocks is not None  # by a merge, which is no way to fit one
        index = cls(
            max_error=model.segments.max_error,
            mechanism=model.mechanism,
            slack="measured" if computed else SLACKS[model.slack].name,
            blocks=1 if model.blocks is None else len(model.blocks),
            hint=model.hint,
        )
        index._positions = model
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
        state = "not fitted" if self._positions is None else f"{len(self.model.segments)} segments"
        return f"DPPLRIndex({size}mechanism={self.mechanism!r}, slack={self.slack!r}) <{state}>"


def left_after_check(epsilon: Fraction, hint: object) -> Fraction:
    """What is left of epsilon once it is checked whether the keys follow a hint, if there is one."""
    return epsilon if hint is None else epsilon * (1 - CHECK_SHARE)


def _check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidParameter(f"there is no such {name}", hint="one of " + ", ".join(map(repr, choices)))
