"""Plans: how an index divides its epsilon among its releases, and how coarse its cells are.

All of it is public, chosen by the owner or by `scumble index tune` on public data, and fixed before a row is looked at:
whatever the shares, they add up to the whole. Without a plan an index takes the shares that serve most keys best.
"""

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Self

from scumble.errors import InvalidParameter
from scumble.privacy.budget import Exact, exact, show

__all__ = ["BLOCK_SHARE", "SLACK_SHARE", "USUAL", "Plan"]

SLACK_SHARE = Fraction(3, 10)  # of epsilon, for measuring the slack; the curve gets the rest
BLOCK_SHARE = Fraction(9, 20)  # the same if every block of a run has a slack of its own: a smaller tree needs less
SCOUT_SHARE = Fraction(3, 10)  # of the curve's epsilon where ranks are searched; elsewhere only the coarse blocks' part
CELL_ROWS = 190  # over epsilon: the scatter of so many rows about a straight line stays below the noise
HINTED_CELL_ROWS = 230  # the same about the line that a hint has there
LEAST_SHARE, MOST_SHARE = Fraction(1, 20), Fraction(19, 20)
MOST_DENOMINATOR = 10**6
MOST_DIGITS = 10
LEAST_CELL_ROWS, MOST_CELL_ROWS = 20, 5000
_FORM = "write it like slack_share:0.4,scout_share:0.2,cell_rows:150"


@dataclass(frozen=True)
class Plan:
    """PUBLIC: the slack's share of epsilon, the scout's of what the slack leaves, and a cell's rows times epsilon.

    What is None is as usual.
    """

    slack_share: Exact | None = None
    scout_share: Exact | None = None
    cell_rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("slack_share", "scout_share"):
            given = getattr(self, name)
            if given is None:
                continue
            share = exact(given, name)
            if not LEAST_SHARE <= share <= MOST_SHARE or share.denominator > MOST_DENOMINATOR:
                raise InvalidParameter(f"{name} must lie between 0.05 and 0.95, in few digits", hint=_FORM)
            object.__setattr__(self, name, share)
        rows = self.cell_rows
        if rows is not None and (type(rows) is not int or not LEAST_CELL_ROWS <= rows <= MOST_CELL_ROWS):
            raise InvalidParameter(f"cell_rows must lie between {LEAST_CELL_ROWS} and {MOST_CELL_ROWS}", hint=_FORM)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a plan such as `slack_share:0.4,cell_rows:150`."""
        given = [part.partition(":")[::2] for part in text.split(",")]
        names = [name for name, _ in given]
        if len(set(names)) < len(names) or not {*names} <= {field.name for field in fields(cls)}:
            raise InvalidParameter("this does not read as a plan", hint=_FORM)
        values = dict(given)
        rows = values.get("cell_rows")
        if rows is not None and not (rows.isascii() and rows.isdigit() and len(rows) < MOST_DIGITS):
            raise InvalidParameter("cell_rows must be a whole number", hint=_FORM)
        return cls(values.get("slack_share"), values.get("scout_share"), None if rows is None else int(rows))

    @property
    def text(self) -> str:
        """The plan as `parse` reads it, exactly; empty, which it does not read, if all is as usual."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ",".join(f"{name}:{show(Fraction(value))}" for name, value in given if value is not None)

    def slack(self, *, in_blocks: bool) -> Fraction:
        """The slack's share of epsilon."""
        usual = BLOCK_SHARE if in_blocks else SLACK_SHARE
        return usual if self.slack_share is None else Fraction(self.slack_share)

    @property
    def scout(self) -> Fraction:
        """The scout's share of what the curve may cost, at most."""
        return SCOUT_SHARE if self.scout_share is None else Fraction(self.scout_share)

    def rows_per_cell(self, epsilon: Fraction, *, hinted: bool = False) -> float:
        """About how many rows a cell has, if the tree over cells may cost so much."""
        return (self.cell_rows or (HINTED_CELL_ROWS if hinted else CELL_ROWS)) / float(epsilon)


USUAL = Plan()
