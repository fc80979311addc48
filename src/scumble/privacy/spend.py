"""What a release shall cost, as the owner asks for it: amounts and terms come in, and go out exact, or are refused."""

from fractions import Fraction
from typing import NamedTuple

from scumble.errors import InvalidParameter
from scumble.privacy.amounts import Exact, exact
from scumble.privacy.composition import Partition

__all__ = ["Spend", "check_terms", "positive", "probability"]


class Spend(NamedTuple):
    """What one release shall cost, as `Ledger.spend` takes it."""

    epsilon: Exact
    label: str
    delta: Exact = 0
    rows_per_user: int = 1
    partition: Partition | None = None


def positive(value: object, name: str) -> Fraction:
    """Read an amount that has to be greater than 0."""
    number = exact(value, name)
    if number <= 0:
        raise InvalidParameter(f"{name} must be greater than 0", hint="0 would release nothing")
    return number


def probability(value: object, name: str) -> Fraction:
    """Read a probability below 1."""
    number = exact(value, name)
    if not 0 <= number < 1:
        raise InvalidParameter(f"{name} must be at least 0 and less than 1", hint="it is a probability; 0 is usual")
    return number


def check_terms(label: object, rows_per_user: object, partition: object) -> None:
    """Refuse a label, a number of rows or a partition that makes no sense."""
    if not _is_name(label):
        raise InvalidParameter(
            "the label must be a non-empty string of printable characters",
            hint="say what the budget is for, such as 'salary'",
        )
    if type(rows_per_user) is not int or not 1 <= rows_per_user < 2**63:
        raise InvalidParameter(
            "rows_per_user must be an int of at least 1", hint="it is the most rows that one user has"
        )
    match partition:
        case None:
            return
        case (group, part) if type(partition) is tuple and _is_name(group) and _is_name(part):
            return
    raise InvalidParameter(
        "a partition must be a tuple of two non-empty printable strings, (group, part)",
        hint="parts of a group hold disjoint rows, as in ('orders.day', 'run-7')",
    )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and value.strip() != ""
