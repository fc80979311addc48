"""Slack: how far a lookup is widened, so that with probability 1 - beta no lookup on the whole domain loses a row.

`measured` and `lossless` release an upper bound of the largest deviation between the public segments and the true
curve, which is secret; `paper` computes from public shapes alone how far the noise can reach. All of them bound every
rank at once, not one lookup at a time. docs/privacy.md section 5 has the proofs.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, log, log1p, log2
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from scumble.index.contract import Terms
from scumble.index.curve import Histogram, MonotoneCurve, NoisyCurve
from scumble.index.mechanisms import Mechanism
from scumble.index.plan import USUAL, Plan
from scumble.index.segments import Segments
from scumble.privacy.noise import Noise, Words, discrete_laplace

__all__ = [
    "MOST_BLOCKS",
    "SLACKS",
    "MeasuredSlack",
    "PaperSlack",
    "Slack",
    "SlackName",
    "block_deviations",
    "lossless_delta",
    "release_bound",
    "shift",
    "slack_named",
]

SlackName = Literal["measured", "paper", "lossless"]
MOST_BLOCKS = 32
CHUNK = 1 << 20


class Slack(ABC):
    """A way to widen lookups, and how it shares epsilon with the curve.

    `code` stands for it in index files: once released, it never changes its meaning.
    """

    name: ClassVar[SlackName]
    code: ClassVar[int]
    lossless: ClassVar[bool] = False

    def delta(self, epsilon: Fraction, beta: Fraction, blocks: int | None = 1) -> Fraction:
        """The delta that it costs for one row, besides epsilon, if a run has so many blocks; None stands for any."""
        return Fraction(0)

    @abstractmethod
    def release_curve(self, mechanism: Mechanism, histogram: Histogram, terms: Terms, noise: Noise) -> NoisyCurve:
        """Release a curve that this slack can bound the error of, for the curve's part of epsilon."""

    @abstractmethod
    def release_rows(
        self,
        mechanism: Mechanism,
        histogram: Histogram,
        terms: Terms,
        curve: MonotoneCurve,
        segments: Segments,
        noise: Noise,
        marks: NDArray[np.int64] | None = None,
    ) -> int:
        """Release the rows by which each end of a lookup is widened, for what is left of epsilon.

        Where the segments are over a hint's marks, `marks` are those of the ranks.
        """


@dataclass(frozen=True)
class MeasuredSlack(Slack):
    """Release a bound of how far the segments really are from the true curve, which may then adapt to the data.

    Sensitivity and neighbours: those of `release_bound`. Costs the plan's share of epsilon, and the curve the rest;
    docs/privacy.md sections 5.1 and 6.
    """

    name: ClassVar[SlackName] = "measured"
    code = 0
    plan: Plan = USUAL

    def release_curve(self, mechanism: Mechanism, histogram: Histogram, terms: Terms, noise: Noise) -> NoisyCurve:
        """Release the mechanism's best curve: its error need not be known beforehand."""
        return mechanism.release(histogram, self.left(terms.epsilon, in_blocks=False), noise, self.plan)

    def release_rows(
        self,
        mechanism: Mechanism,
        histogram: Histogram,
        terms: Terms,
        curve: MonotoneCurve,
        segments: Segments,
        noise: Noise,
        marks: NDArray[np.int64] | None = None,
    ) -> int:
        """Release a bound of the largest deviation over all ranks."""
        deviation, epsilon = segments.deviation(histogram, marks), terms.epsilon * self.plan.slack(in_blocks=False)
        words = noise.stream("slack", self.name, epsilon, terms.beta, segments.facts())
        return release_bound(deviation, epsilon, terms.beta, lossless=self.lossless, words=words)

    def left(self, epsilon: Fraction, *, in_blocks: bool) -> Fraction:
        """What the curve, or the curves of blocks, may spend, given what all of it may."""
        return epsilon * (1 - self.plan.slack(in_blocks=in_blocks))

    def release_block_rows(
        self,
        histogram: Histogram,
        terms: Terms,
        bounds: NDArray[np.int64],
        halves: Sequence[Segments],
        noise: Noise,
        marks: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Release a bound for each block: of how far both its curves deviate, and their sum, from its rows.

        Rows count up from the block's start in its first half, and down from its end in its second. Sensitivity: 1
        for each block, since a row moves each of the three by at most 1, and lies in one block alone, so that the
        blocks compose in parallel; cost: the plan's share of epsilon; docs/privacy.md section 5.4.
        """
        epsilon, beta = terms.epsilon * self.plan.slack(in_blocks=True), terms.beta / MOST_BLOCKS
        deviations = block_deviations(histogram, bounds, halves, marks)
        slacks = np.empty(len(deviations), dtype=np.int64)
        for block in range(len(slacks)):
            facts = tuple(half.facts() for half in halves[2 * block : 2 * block + 2])
            words = noise.stream("block slack", self.name, epsilon, beta, block, bounds, *facts)
            slacks[block] = release_bound(
                deviations[block : block + 1], epsilon, beta, lossless=self.lossless, words=words
            )
        return slacks


class LosslessSlack(MeasuredSlack):
    """Measure as well, but cut the noise off where rows would be lost: no lookup ever loses one. Costs a delta."""

    name = "lossless"
    code = 2
    lossless = True

    def delta(self, epsilon: Fraction, beta: Fraction, blocks: int | None = 1) -> Fraction:
        """What the cut costs, of noise that has the slack's share of epsilon: docs/privacy.md section 5.2."""
        whole = lossless_delta(epsilon * self.plan.slack(in_blocks=False), beta)
        if blocks == 1:
            return whole
        parts = lossless_delta(epsilon * self.plan.slack(in_blocks=True), beta / MOST_BLOCKS)
        return parts if blocks else max(whole, parts)


@dataclass(frozen=True)
class PaperSlack(Slack):
    """Compute how far the curve's noise can reach, from public shapes alone; the curve gets all of epsilon.

    With `alpha_s`, the formula as the paper prints it; otherwise a bound that holds with probability 1 - beta:
    docs/privacy.md section 5.3.
    """

    name = "paper"
    code = 1
    alpha_s: Fraction | None = None

    def release_curve(self, mechanism: Mechanism, histogram: Histogram, terms: Terms, noise: Noise) -> NoisyCurve:
        """Release a curve whose error follows from the shape of its tree."""
        return mechanism.tree(terms.domain.size, terms.epsilon).release(histogram, noise)

    def release_rows(
        self,
        mechanism: Mechanism,
        histogram: Histogram,
        terms: Terms,
        curve: MonotoneCurve,
        segments: Segments,
        noise: Noise,
        marks: NDArray[np.int64] | None = None,
    ) -> int:
        """Add the fit's largest error, between public curves, to the reach of the noise. Costs nothing."""
        size = terms.domain.size
        if self.alpha_s is not None:
            return _largest_fit_error(segments, curve) + published_bound(size, terms.epsilon, self.alpha_s)
        return _largest_fit_error(segments, curve) + mechanism.tree(size, terms.epsilon).bound(terms.beta)


SLACKS: dict[str, Slack] = {slack.name: slack for slack in (MeasuredSlack(), PaperSlack(), LosslessSlack())}


def slack_named(name: str, plan: Plan) -> Slack:
    """The slack of this name, with the share of epsilon that a plan gives it."""
    slack = SLACKS[name]
    return replace(slack, plan=plan) if isinstance(slack, MeasuredSlack) else slack


def release_bound(
    deviation: NDArray[np.int64], epsilon: Fraction, beta: Fraction, *, lossless: bool, words: Words | None = None
) -> int:
    """Release an upper bound of a secret deviation, an array of one: noise, plus the shift that makes it one.

    Sensitivity: 1, since a row moves the true curve by at most 1 and the segments are public already; neighbours: one
    row added or removed; cost: epsilon, and with `lossless` a delta of `lossless_delta`; docs/privacy.md 5.1 and 5.2.
    """
    noise = discrete_laplace(1 / epsilon, 1, words)
    moved = shift(epsilon, beta)
    if lossless:
        noise = np.maximum(noise, -moved)
    return int(np.maximum(deviation + noise + moved, 0)[0])


def block_deviations(
    histogram: Histogram,
    bounds: NDArray[np.int64],
    halves: Sequence[Segments],
    marks: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """SECRET: how far each block's curves deviate from its rows, counted from the block's ends, or in their sum."""
    deviations = np.empty(len(halves) // 2, dtype=np.int64)
    for block in range(len(deviations)):
        up, down = halves[2 * block : 2 * block + 2]
        start, middle, end = map(int, bounds[2 * block : 2 * block + 3])
        first, second = Histogram(histogram.counts[start:middle]), Histogram(histogram.counts[middle:end])
        before, after = _own_marks(marks, start, middle), _own_marks(marks, middle, end)
        surplus = up.surplus(first) + down.surplus(second)
        deviation = np.maximum(up.deviation(first, before), down.deviation_from_end(second, after))
        deviations[block : block + 1] = np.maximum(deviation, np.maximum(surplus, -surplus))
    return deviations


def _own_marks(marks: NDArray[np.int64] | None, start: int, end: int) -> NDArray[np.int64] | None:
    """The marks of some ranks, counted from the first that belongs to them."""
    if marks is None:
        return None
    return marks[start:end] - (int(marks[start - 1]) + 1 if start else 0)


@lru_cache(maxsize=256)
def shift(epsilon: Fraction, beta: Fraction) -> int:
    """The least s for which noise of scale 1/epsilon falls below -s with probability at most beta.

    P(X < -s) = p^(s+1) / (1 + p) with p = exp(-epsilon); decided in decimals that are rounded towards caution.
    """
    likely = log(beta.denominator) - log(beta.numerator)  # of any size: a float would underflow
    rows = max(0, ceil((likely - log1p(exp(-epsilon))) / epsilon) - 2)
    while Fraction(_tail(epsilon, rows + 1)) > beta:
        rows += 1
    return rows


def _tail(epsilon: Fraction, rows: int) -> Decimal:
    """P(X <= -rows) = p^rows / (1 + p) for noise of scale 1/epsilon, rounded up: a little above, at 50 digits."""
    up, down = Context(prec=50, rounding=ROUND_CEILING), Context(prec=50, rounding=ROUND_FLOOR)
    exponent = up.divide(Decimal(-epsilon.numerator), Decimal(epsilon.denominator))
    p = up.next_plus(up.exp(exponent))
    return up.next_plus(up.divide(up.power(p, rows), down.add(1, up.next_minus(up.next_minus(p)))))


def lossless_delta(epsilon: Fraction, beta: Fraction) -> Fraction:
    """What it costs to cut noise of scale 1/epsilon off at -shift: p^shift / (1 + p), the chance of being cut.

    Exact but for its rounding up to 12 digits; docs/privacy.md section 5.2.
    """
    return Fraction(Context(prec=12, rounding=ROUND_CEILING).plus(_tail(epsilon, shift(epsilon, beta))))


def published_bound(size: int, epsilon: Fraction, alpha_s: Fraction) -> int:
    """The paper's Z = alpha_s (log2 N)^(3/2) / epsilon, as printed; about 8 is needed for 99.9 %."""
    reach: float = log2(size) ** 1.5
    return ceil(float(alpha_s / epsilon) * reach)


def _largest_fit_error(segments: Segments, monotone: MonotoneCurve) -> int:
    """The paper's e_max: a maximum, not an argmax, and over public curves only."""
    return max(
        int(np.abs(segments.at_many(np.arange(start, start + len(part))) - part).max())
        for start in range(0, segments.size, CHUNK)
        if len(part := monotone.rows[start : start + CHUNK])
    )
