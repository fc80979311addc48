"""Scumble's mechanism: a wide tree with a least-squares estimate, over cells that a scout finds in large domains.

A histogram, secret, goes in with an epsilon; a public noisy curve comes out, or two for each padded block. The costs of
scout and tree add up to the epsilon given. docs/privacy.md sections 4.3 and 4.4.
"""

from fractions import Fraction
from itertools import pairwise

import numpy as np

from scumble.index.curve import Histogram, NoisyCurve
from scumble.index.mechanisms import Halves, Mechanism
from scumble.index.mechanisms.scout import Cells, find_cells, scout_tree, worthwhile
from scumble.index.mechanisms.wide_tree import release_leaves, release_parts, wide_tree
from scumble.index.plan import USUAL, Plan
from scumble.privacy.noise import Noise

__all__ = ["SCUMBLE", "release_adaptive_curve", "release_halves"]


def release_adaptive_curve(
    histogram: Histogram, epsilon: Fraction, noise: Noise | None = None, plan: Plan = USUAL
) -> NoisyCurve:
    """Release a curve with a wide tree over cells that a scout finds, where the domain is large enough for that.

    Scout and tree see the same rows, one after the other: sequential composition, the cost is epsilon.
    Sensitivity: 1 a level in L1; neighbours: one row added or removed; docs/privacy.md 4.3.
    """
    size, noise = histogram.size, noise or Noise.fresh()
    if not worthwhile(size):
        return wide_tree(size, epsilon).release(histogram, noise)
    scout = scout_tree(size, epsilon * plan.scout)
    cells = find_cells(histogram.counts, scout, plan.rows_per_cell(epsilon - scout.epsilon), noise)
    tree = wide_tree(len(cells.starts), epsilon - cells.cost(scout))
    knots = np.append(cells.starts[1:], size) - 1
    curve = release_leaves(np.add.reduceat(histogram.counts, cells.starts), tree, knots, size, noise)
    levels = 1 + bool(cells.searched.any()) + curve.levels
    return NoisyCurve(size, curve.knots, curve.rows, levels, curve.noise_rms)


def release_halves(histogram: Histogram, blocks: int, epsilon: Fraction, noise: Noise, plan: Plan = USUAL) -> Halves:
    """Release the curves of so many blocks of equally many cells, each block in two halves with a tree of their own.

    Scout and trees see the same rows, one after the other, and add up to epsilon: a half's tree has all that the scout
    has left of it for every row there. A row counts in the tree of one half alone, and the halves' bounds are public
    once the scout is: parallel composition, the trees cost as much as one.
    Sensitivity: 1 a level in L1; neighbours: one row added or removed; docs/privacy.md 4.4.
    """
    size, scout = histogram.size, None
    cells = Cells(np.arange(size), np.zeros(size, dtype=np.bool_))
    if worthwhile(size):
        scout = scout_tree(size, epsilon * plan.scout)
        cells = find_cells(histogram.counts, scout, plan.rows_per_cell(epsilon - scout.epsilon), noise)
    counts, edges = np.add.reduceat(histogram.counts, cells.starts), np.append(cells.starts, size)
    cuts = np.arange(2 * blocks + 1) * len(counts) // (2 * blocks)
    left = [epsilon - cells.cost(scout, low, high) if scout else epsilon for low, high in pairwise(cuts.tolist())]
    curves = release_parts(counts, edges, cuts, left, noise, "half")
    scouted = 0 if scout is None else 1 + bool(cells.searched.any())
    return Halves(edges[cuts], curves, scouted + max(curve.levels for curve in curves))


SCUMBLE = Mechanism(
    name="scumble", code=0, tree=wide_tree, release=release_adaptive_curve, release_halves=release_halves
)
