"""An index in words: a fitted index comes in, lines for people or a JSON object go out. All of it is public."""

from pathlib import Path

from scumble.index.contract import PositionRange
from scumble.index.dp_plr import DPPLRIndex
from scumble.privacy.amounts import show

__all__ = ["as_json", "as_lines", "count", "lookup_lines"]


def as_json(index: DPPLRIndex, path: Path) -> dict[str, object]:
    """The summary, and where the index is."""
    return {"path": str(path), **index.summary().as_dict()}


def as_lines(index: DPPLRIndex, path: Path) -> list[str]:
    """What the index is, what epsilon bought, and what a lookup reads."""
    about, model = index.summary(), index.model
    delta = f", delta {show(model.delta)}" if model.delta else ""
    loses = (
        f"a row, in any lookup at all, with probability at most {show(model.beta)} (beta)"
        if model.beta
        else "never a row: the index is lossless"
    )
    width = model.domain.width
    shared = f"; too fine to index, so {width:,} neighbours share a rank" if width > 1 else ""
    return [
        f"{path}: {count(about.segments, 'segment')} for {count(about.domain_size, 'rank')} in {about.bytes:,} bytes",
        f"  domain    {about.domain}{shared}",
        f"  privacy   epsilon {show(model.epsilon)}{delta}; paid once, lookups cost nothing more",
        f"  a lookup  reads its answer and about {about.expected_overhead_rows:,} rows more "
        f"(it is widened by {about.slack_rows:,} at each end)",
        f"  it loses  {loses}",
        f"  capacity  {about.capacity:,} rows, dummies included: the row count stays private",
        f"  made by   mechanism {about.mechanism} ({count(about.levels, 'level')}), slack {about.slack}, "
        f"segments within {count(about.max_error, 'row')} of the noisy curve",
    ]


def lookup_lines(found: PositionRange, capacity: int) -> list[str]:
    """What a lookup reads."""
    if found.rows == 0:
        return ["nothing to read: no row of the index can have such a key"]
    share = 100 * found.rows / capacity
    return [
        f"positions {found.start:,} to {found.stop - 1:,} of the sorted rows (start {found.start}, stop {found.stop})",
        f"{count(found.rows, 'row')}, {share:.3g} % of the capacity of {capacity:,}",
    ]


def count(number: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
