"""Figure 3: the optimal fit, in keys a second on one core, against PGM-index (`pygm`) on the same keys.

What is compared: `fit_segments` on a ready curve, from our array to the segments; and the C++ constructor behind
`pygm.SortedList` that copies a list which it already holds and fits it anew with another epsilon: a copy of the keys,
the optimal fit of the leaf level, and the upper levels over its few segments. The way that users take, from a numpy
array, goes through a Python integer for every key and is printed apart.

Two inputs. `same points`: every key of the domain occurs, one to a few times, so that both fit (key, rows before it)
for every key, and with the same tolerance the two counts of segments must be equal. (PGM-index never lets its lower
tolerance fall below position 0; the first key is heavy, so that this touches no point but the first. Without that it
needs one segment more in one table out of seven.) `same keys`: distinct keys that
leave gaps; pygm fits the keys that occur, ours fits every key of the domain, which is more points.
"""

from typing import Any

import numpy as np
import pygm
from pygm import _pygm

from benchmarks.data import gapless_curve, make_counts
from benchmarks.figure import Figure, Line, Size, one_core, say, seconds
from scumble.index.curve import MonotoneCurve
from scumble.index.segments import Segments, fit_segments, tolerance

__all__ = ["max_error_for", "measure"]

TOLERANCES = (16, 64, 256)
SIZES: dict[Size, tuple[int, int]] = {"full": (10**7, 3), "quick": (2 * 10**6, 3), "tiny": (10**4, 1)}
TARGET = 50e6


def max_error_for(wanted: int) -> int:
    """The max_error whose fit may err by exactly `wanted`; the rest of it is for rounding."""
    return next(error for error in range(wanted, 2 * wanted + 2) if tolerance(error) == wanted)


def measure(size: Size) -> Figure:
    """Both inputs, three tolerances."""
    ranks, repeats = SIZES[size]
    figure = Figure("segments")
    with one_core():
        say(f"segments: {ranks:,} keys, same points")
        curve, keys = gapless_curve(ranks)
        _compare(figure, "same points", curve, keys, repeats)
        say(f"segments: {ranks:,} distinct keys, same keys")
        present = np.minimum(make_counts("uniform", ranks * 8 // 5, ranks * 8 // 5), 1)
        _compare(figure, "same keys", np.cumsum(present) - present, np.flatnonzero(present), repeats)
        say("segments: the fit of a noisy curve")
        noisy = np.cumsum(make_counts("lognormal", ranks, ranks))
        noisy = np.maximum.accumulate(noisy + np.random.default_rng(1).integers(-20, 21, ranks).clip(-noisy[0]))
        for wanted in TOLERANCES:
            spent, found = _ours(noisy, wanted, repeats)
            figure.lines.append(_speed_line(f"a noisy lognormal curve, tolerance {wanted}", ranks, spent))
            figure.values[f"noisy curve, tolerance {wanted}"] = {
                "keys_per_second": ranks / spent,
                "segments": len(found),
            }
    return figure


def _compare(figure: Figure, name: str, curve: np.ndarray[Any, Any], keys: np.ndarray[Any, Any], repeats: int) -> None:
    held = pygm.SortedList(keys, typecode="q", epsilon=31)
    whole = seconds(lambda: pygm.SortedList(keys, typecode="q", epsilon=TOLERANCES[1]), 1)
    for wanted in TOLERANCES:
        spent, found = _ours(curve, wanted, repeats)
        theirs = _pygm.PGMIndexInt64(held._impl, False, wanted)
        peer = seconds(lambda wanted=wanted: _pygm.PGMIndexInt64(held._impl, False, wanted), repeats)  # type: ignore[misc]
        count = theirs.stats()["leaf segments"]
        label = f"{name}, tolerance {wanted}"
        figure.lines.append(_speed_line(label, len(curve), spent))
        figure.add(
            f"    seconds for these keys: pygm / ours, {label}",
            f"{peer:.3f} / {spent:.3f} s = {peer / spent:.1f}",
            "> 1",
            peer > spent,
        )
        if name == "same points":
            figure.add(
                f"    segments: pygm / ours, {label}", f"{count:,} / {len(found):,}", "equal", count == len(found)
            )
        figure.values[label] = {
            "points": len(curve),
            "rows": len(keys),
            "keys_per_second": len(curve) / spent,
            "pygm_keys_per_second": (len(curve) if name == "same points" else len(keys)) / peer,
            "ours_seconds": spent,
            "pygm_seconds": peer,
            "pygm_from_numpy_seconds": whole,
            "segments": len(found),
            "pygm_segments": count,
        }


def _ours(curve: np.ndarray[Any, Any], wanted: int, repeats: int) -> tuple[float, Segments]:
    monotone = MonotoneCurve(np.ascontiguousarray(curve, dtype=np.int64))
    found = fit_segments(monotone, max_error_for(wanted))
    assert found is not None
    return seconds(lambda: fit_segments(monotone, max_error_for(wanted)), repeats), found


def _speed_line(label: str, keys: int, spent: float) -> Line:
    rate = keys / spent
    return Line(f"optimal fit, {label}", f"{rate / 1e6:,.0f} million keys/s", "≥ 50 million", rate >= TARGET)
