"""Which indexes a table shall have: `amount decimal:0:100000:0.01 epsilon=0.5` comes in, and goes out checked.

All of it is public, and is what the owner chose: nothing here looks at a row.
"""

import re
from dataclasses import dataclass
from typing import Self, cast, get_args

from scumble.errors import InvalidParameter
from scumble.index.contract import Terms
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.price import Price, price_of
from scumble.index.slack import SlackName
from scumble.privacy.amounts import Exact
from scumble.privacy.composition import row_delta
from scumble.types import Domain, parse_domain
from scumble.wire.requests import IndexOrder

__all__ = ["IndexSpec"]

_OPTION = re.compile(r"(?<!\s)\s+(epsilon|beta|rows_per_user|max_bytes|slack)=(\S+)\s*$")
_FORM = 'write it like "amount decimal:0:100000:0.01 epsilon=0.5"'


@dataclass(frozen=True)
class IndexSpec:
    """PUBLIC: an index on a column: its domain, and what it may cost. `max_bytes` bounds the index file."""

    column: str
    domain: Domain
    epsilon: Exact
    beta: Exact = 1e-6
    rows_per_user: int = 1
    max_bytes: int | None = 4096
    slack: SlackName = "measured"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `COLUMN DOMAIN epsilon=E [beta=B] [rows_per_user=K] [max_bytes=N] [slack=S]`."""
        options: dict[str, str] = {}
        rest = text
        while match := _OPTION.search(rest):
            if match[1] in options:
                raise InvalidParameter(f"{match[1]} is there twice in {text!r}", hint=_FORM)
            options[match[1]] = match[2]
            rest = rest[: match.start()]
        column, _, domain = rest.strip().partition(" ")
        if not domain.strip() or "epsilon" not in options:
            raise InvalidParameter(f"{text!r} does not read as an index", hint=_FORM)
        return cls(
            column,
            parse_domain(domain.strip()),
            options["epsilon"],
            options.get("beta", 1e-6),
            _whole("rows_per_user", options.get("rows_per_user", "1")),
            _whole("max_bytes", options.get("max_bytes", "4096")),
            _slack(options.get("slack", "measured")),
        )

    def price(self) -> Price:
        """What the ledger is charged; refused if the index could not be built for it."""
        price = price_of(self.epsilon, self.beta, self.rows_per_user, self.slack)
        charged = price.epsilon, price.delta
        terms = Terms(
            self.domain,
            price.epsilon / price.rows_per_user,
            row_delta(*charged, price.rows_per_user),
            price.beta,
            None,
            *charged,
        )
        DPPLRIndex(max_bytes=self.max_bytes, slack=self.slack).check(terms)
        return price

    def order(self) -> IndexOrder:
        """What the enclave is asked for, once that is paid."""
        price = self.price()
        return IndexOrder(
            self.column,
            self.domain,
            price.epsilon,
            price.delta,
            price.beta,
            price.rows_per_user,
            self.max_bytes,
            self.slack,
        )


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidParameter(f"{name} must be a whole number of at least 1", hint=_FORM)
    return int(text)


def _slack(text: str) -> SlackName:
    if text in get_args(SlackName):
        return cast(SlackName, text)
    raise InvalidParameter("there is no such slack", hint="one of " + ", ".join(get_args(SlackName)))
