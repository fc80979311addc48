"""The aggregates of SQL that the enclave computes: a file each, and here a line each.

Adding one takes its file, its line, a test and a row in docs/sql.md; and a kernel in native/ and a part in
`wire/plan.py` if what it needs is not accumulated yet.
"""

from scumble.sql.aggregates.average import AVERAGE
from scumble.sql.aggregates.contract import AggregateFunction
from scumble.sql.aggregates.count import COUNT
from scumble.sql.aggregates.extremes import MAXIMUM, MINIMUM
from scumble.sql.aggregates.spread import SPREADS
from scumble.sql.aggregates.sum import SUM

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[type, AggregateFunction] = {
    call: function for function in (COUNT, SUM, AVERAGE, MINIMUM, MAXIMUM, *SPREADS) for call in function.calls
}
"""By the class that sqlglot has for the call."""
