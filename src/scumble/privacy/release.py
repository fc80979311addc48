"""The release of a curve: a histogram, a mechanism's name and an epsilon come in, a NoisyCurve goes out.

The histogram is secret, the curve public. Here the parts of the budget are added up: whatever a mechanism releases on
the way, its costs sum to the epsilon it was given. docs/privacy.md section 4.
"""

from fractions import Fraction
from typing import Literal

import numpy as np

from scumble.index.curve import NoisyCurve
from scumble.index.histogram import Histogram
from scumble.privacy.partition import SCOUT_SHARE, cell_starts, scout_tree, worthwhile
from scumble.privacy.tree import (
    BinaryTree,
    WideTree,
    binary_tree,
    release_binary,
    release_wide,
    wide_tree,
)

__all__ = ["curve_tree", "release_adaptive_curve", "release_curve"]


def curve_tree(mechanism: Literal["scumble", "paper"], size: int, epsilon: Fraction) -> BinaryTree | WideTree:
    """The public shape of a mechanism's tree over all ranks of a domain."""
    return binary_tree(size, epsilon) if mechanism == "paper" else wide_tree(size, epsilon)


def release_curve(histogram: Histogram, tree: BinaryTree | WideTree) -> NoisyCurve:
    """Release a curve with a tree over all ranks; its error is known from the tree alone. Costs tree.epsilon."""
    if isinstance(tree, BinaryTree):
        return release_binary(histogram, tree)
    return release_wide(histogram.counts, tree, range(tree.leaves), tree.leaves)


def release_adaptive_curve(histogram: Histogram, epsilon: Fraction) -> NoisyCurve:
    """Release a curve with a wide tree over cells that a scout finds, where the domain is large enough for that.

    Scout and tree see the same rows, one after the other: sequential composition, the cost is epsilon.
    """
    size = histogram.size
    if not worthwhile(size):
        return release_curve(histogram, wide_tree(size, epsilon))
    scout = scout_tree(size, epsilon * SCOUT_SHARE)
    rest = epsilon - scout.epsilon
    starts = cell_starts(histogram.counts, scout, rest)
    cells = np.add.reduceat(histogram.counts, starts)
    curve = release_wide(cells, wide_tree(len(starts), rest), np.append(starts[1:], size) - 1, size)
    return NoisyCurve(size, curve.knots, curve.rows, scout.levels + curve.levels, curve.noise_rms)
