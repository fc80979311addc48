"""The limits of the comparators, checked before anything is spent: memory, and the widest noise that can be drawn.

The published indexes keep numbers for every rank of the domain, with noise that grows with it, so large domains are
where they end. Sizes and scales are public.
"""

import os
from fractions import Fraction
from pathlib import Path

from scumble.errors import InvalidParameter
from scumble.privacy.noise import MAX_SCALE

__all__ = ["available_bytes", "check_memory", "check_scale"]

MEMINFO = Path("/proc/meminfo")


def check_memory(needed_bytes: int) -> None:
    """Refuse a build that would need more memory than there is."""
    available = available_bytes()
    if needed_bytes > available:
        raise InvalidParameter(
            f"this index would need {needed_bytes} bytes of memory, and {available} are available",
            hint="take a domain with a coarser step, or DPPLRIndex, whose size does not grow with the domain",
        )


def available_bytes() -> int:
    """The memory that a new array can have: free pages and those that the system can take back at once."""
    try:
        fields = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux, or an old one: free pages alone, which is the safe side
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_scale(scale: Fraction) -> None:
    """Refuse noise that is wider than the sampler draws."""
    if scale > MAX_SCALE:
        raise InvalidParameter(
            "this index would need noise of a scale beyond 2^40",
            hint="its noise grows with the domain: take a larger epsilon, or a domain with a coarser step",
        )
