"""How the tests hold samples against distributions: p-values, to be compared with a false-alarm rate."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FALSE_ALARM = 1e-7


def chi_squared(observed: NDArray[Any], expected: NDArray[Any]) -> float:
    """The p-value of counts against expected counts; cells that expect few are put together."""
    keep = expected >= 20
    observed = np.append(observed[keep], observed[~keep].sum()).astype(float)
    expected = np.append(expected[keep], expected[~keep].sum())
    keep = expected > 1e-3  # what is rarer still must not occur at all
    assert observed[~keep].sum() == 0
    statistic = ((observed[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    return float(stats.chi2.sf(statistic, keep.sum() - 1))


def same_origin(one: NDArray[np.int64], other: NDArray[np.int64], radius: int) -> float:
    """The p-value of two samples having the same distribution; what lies beyond the radius is put together."""
    edges = np.arange(-radius, radius + 2) - 0.5
    table = np.array([np.histogram(np.clip(sample, -radius, radius), edges)[0] for sample in (one, other)])
    return float(stats.chi2_contingency(table).pvalue)


def slightly_moved(sample: NDArray[np.int64]) -> NDArray[np.int64]:
    """Planted defect: every fourth value is one too large."""
    moved: NDArray[np.int64] = sample + (np.arange(len(sample)) % 4 == 0)
    return moved
