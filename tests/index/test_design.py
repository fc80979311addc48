"""What a build releases for the same rows, terms and noise: whoever changes any of it changes DESIGN as well.

A load that an earlier release has left unfinished is tried again with the same noise: if by then a build asked other
questions under the same name, the two releases together would tell more than was paid for.
"""

from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scumble import DPPLRIndex, IntegerDomain
from scumble.index.dp_plr import DESIGN
from scumble.index.file import encode
from scumble.index.grid import NEW, Grid
from scumble.index.hint import Hint
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Noise

IntArray = NDArray[np.int64]
MILLIONTH = Fraction(1, 10**6)
PUBLISHED = {"mechanism": "paper", "slack": "paper"}


def smooth(size: int) -> IntArray:
    return np.arange(size) % 5


def uneven(size: int) -> IntArray:
    """Steps of all heights, heavy ranks, and clumps of keys, each in some regions and not in others."""
    place = np.arange(size)
    part = place * 64 // size
    counts = np.where(part % 8 == 3, (place * 256 // size) * 37 % 23, 1)
    counts += np.where(part // 8 == 5, (place * 4096 // size) * 53 % 97 // 90 * 40, 0)
    counts += np.where((part == 20) & (place * 7919 % 1009 == 5), 120, 0)
    counts[[0, 1, size // 3, size - 1]] += 3000
    return counts


def partly_heavy(size: int) -> IntArray:
    """Heavy ranks in two regions of sixteen, so that the scout searches no others."""
    counts = np.arange(size) % 3
    counts[[size // 50, size // 50 + 9, size // 2 + 1500, size // 2 + 1900]] += 2000
    return counts


RELEASED: dict[str, tuple[IntArray, dict[str, Any], Fraction, str]] = {
    "sorted": (smooth(300), {}, MILLIONTH, "0966aaa914e36a5f"),
    "one rank": (smooth(1) + 9, {}, MILLIONTH, "200a739c4ab3219e"),
    "few bytes": (uneven(3000), {"max_bytes": 300}, Fraction(1, 1000), "443b98a0598b06ad"),
    "few segments": (uneven(900), {"max_segments": 40}, Fraction(1, 1000), "ee61765e9a09c3c4"),
    "lossless": (smooth(300), {"slack": "lossless"}, MILLIONTH, "4c11f7970c9e176f"),
    "scouted": (smooth(1 << 14), {}, MILLIONTH, "3941b11e91234d54"),
    "scouted, dense": (smooth(1 << 14) + 900, {}, MILLIONTH, "ab440701b2a2187d"),
    "searched in part, dense": (partly_heavy(1 << 14) + 900, {}, MILLIONTH, "9388ba0a2dbb11e6"),
    "searched": (uneven(1 << 15), {}, MILLIONTH, "e6f61f48730e55f8"),
    "searched, of another size": (uneven((1 << 17) + 12_345), {}, MILLIONTH, "d779475e7596cd2a"),
    "searched in part": (partly_heavy(1 << 16), {}, MILLIONTH, "f9d64db17fdcce7a"),
    "blocks": (uneven(700), {"blocks": 5}, MILLIONTH, "9440fd020243f4f4"),
    "blocks, lossless": (smooth(700), {"blocks": 2, "slack": "lossless"}, MILLIONTH, "886622850fe9fa46"),
    "blocks, scouted": (smooth(1 << 15), {"blocks": 32, "max_bytes": 4096}, MILLIONTH, "785332e116bae793"),
    "blocks, searched": (uneven((1 << 16) + 77), {"blocks": 8}, MILLIONTH, "e1e358cacd505d68"),
    "blocks, searched in part": (partly_heavy((1 << 16) + 77), {"blocks": 8}, MILLIONTH, "a98d058e38623e54"),
    "computed slack": (uneven(700), {"slack": "paper"}, MILLIONTH, "7714071ca78ee7b8"),
    "simulated slack": (uneven(60), {"slack": "paper"}, Fraction(1, 5), "266c4a7aa37eb9e5"),
    "published": (smooth(300), PUBLISHED, MILLIONTH, "ccf36fe96a5824fe"),
    "published, as printed": (smooth(300), PUBLISHED | {"alpha_s": 8}, MILLIONTH, "04affc8707b499fd"),
    "published, measured": (smooth(300), {"mechanism": "paper"}, MILLIONTH, "4c8cf622ada4b155"),
}
"""Counts, options and beta, and the beginning of the file's hash."""


def test_the_design_has_a_name() -> None:
    assert DESIGN == 3


@pytest.mark.parametrize("name", RELEASED)
def test_a_build_releases_what_its_design_says(name: str) -> None:
    """If not: raise DESIGN, for it is another design, and write down what this one releases."""
    counts, options, beta, expected = RELEASED[name]
    assert released(name, counts, options, beta, 1 << 24) == expected


HINTED: dict[str, tuple[IntArray, IntArray, int, str]] = {
    "hinted": (uneven(1 << 14), 3 * uneven(1 << 14), 1, "e65d40e75ce4bf70"),
    "hinted, blocks": (uneven(1 << 14), 3 * uneven(1 << 14), 8, "2e34a267acba1054"),
    "hinted, few ranks": (uneven(60), uneven(60), 1, "50183fff5f410a40"),
    "hinted, many rows": (40 * uneven(900), uneven(900), 2, "309b04b3abf926a9"),
    "hinted, one heavy rank": (
        smooth(5000) * 8,
        smooth(5000) + 99_000 * (np.arange(5000) == 70),
        4,
        "9fa97602adae7e59",
    ),
    "hinted wrongly": (uneven(1 << 14), np.roll(uneven(1 << 14), 300), 8, "bbc4fedba79deade"),
}
"""Counts, those of the public keys, how many blocks, and the beginning of the file's hash."""


@pytest.mark.parametrize("name", HINTED)
def test_a_build_with_a_hint_releases_what_its_design_says(name: str) -> None:
    counts, public, blocks, expected = HINTED[name]
    capacity = -(-int(counts.sum()) // 1024) * 1024
    options = {"hint": Hint.of_counts(public), "blocks": blocks}
    assert released(name, counts, options, MILLIONTH, capacity) == expected


GRIDDED: dict[str, tuple[IntArray, int | None, str, str]] = {
    "over a grid": (uneven(1 << 14), 900, "f268fd178c8bec6b", "d209e9e735a7202a"),
    "over a grid, many rows": (5 * uneven(900), 40_000, "32a0daec6fd47431", "3caa4cb818a589a4"),
    "over a grid of ranks": (smooth(300), None, "7534af86e85cd6ec", "07c2af44f716de10"),
    "over a grid that is found": (partly_heavy(1 << 16), None, "08e0c8132e4aade3", "a9fae8c6968bdaf3"),
}
"""Counts, the rows of a batch that an even grid is for, None if it is found; the beginnings of two hashes."""


@pytest.mark.parametrize("name", GRIDDED)
def test_a_build_over_a_grid_releases_what_its_design_says(name: str) -> None:
    """The index, and the node counts that are kept: these are all of the release."""
    counts, rows, expected, kept = GRIDDED[name]
    grid = NEW if rows is None else Grid.even(len(counts), rows)
    index = built(name, counts, {"grid": grid, "max_bytes": 4096}, MILLIONTH, 1 << 17)
    assert index.tally is not None
    assert (
        sha256(encode(index.model)).hexdigest()[:16],
        sha256(index.tally.to_bytes()).hexdigest()[:16],
    ) == (expected, kept)


def released(name: str, counts: IntArray, options: dict[str, Any], beta: Fraction, capacity: int) -> str:
    return sha256(encode(built(name, counts, options, beta, capacity).model)).hexdigest()[:16]


def built(name: str, counts: IntArray, options: dict[str, Any], beta: Fraction, capacity: int) -> DPPLRIndex:
    noise = Noise.derived(bytes(32), "index", batch="ba" * 16, terms=(DESIGN, name), digest=bytes(32))
    return DPPLRIndex(**options).unsafe_fit_counts(
        counts,
        noise,
        domain=IntegerDomain(0, len(counts) - 1),
        budget=unsafe_budget(Fraction(3, 2), delta=Fraction(1, 100), rows_per_user=2),
        beta=beta,
        capacity=capacity,
    )
