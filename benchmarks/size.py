"""Figure 7: bits that a segment takes in the index file, beyond the fixed header; the paper's segments take 128."""

from typing import Any

from benchmarks.data import KEYS, make_counts
from benchmarks.figure import Figure, Size, fitted, say
from scumble import DPPLRIndex

__all__ = ["measure"]

SIZES: dict[Size, tuple[int, int]] = {"full": (2**20, 10**6), "quick": (2**20, 10**6), "tiny": (2**12, 10**4)}
MOST_BITS = 50


def measure(size: Size) -> Figure:
    """The default fit, and one held to 4 KiB, on all kinds of keys."""
    ranks, rows = SIZES[size]
    figure = Figure("size")
    say("size: bits a segment")
    for name in KEYS:
        counts = make_counts(name, ranks, rows)
        cases: dict[str, dict[str, Any]] = {"default": {}, "at most 4 KiB": {"max_bytes": 4096}}
        for case, options in cases.items():
            index = fitted(DPPLRIndex(**options), counts)
            summary = index.summary()
            bits = summary.bits_per_segment
            text = f"{bits:.1f} bits ({summary.segments:,} segments, {summary.bytes:,} bytes)"
            figure.add(
                f"bits a segment, {name} keys, {case}",
                text,
                "about 50",
                bits <= MOST_BITS if summary.segments > 9 else None,
            )
            figure.values[f"{name}, {case}"] = summary.as_dict()
    return figure
