"""The indexes that an owner asks for, such as `amount decimal:0:100000:0.01 epsilon=0.5`, and what they cost.

An `IndexSpec` is what the owner wrote; its `order()` has the exact amounts, for the ledger and the enclave. All of it
is public and chosen by the owner: nothing here looks at a row.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, Self, cast, get_args

from scumble.errors import FileError, InvalidParameter
from scumble.index.contract import Terms, check_beta, check_row_epsilon
from scumble.index.dp_plr import left_after_check
from scumble.index.file import IndexModel, decode
from scumble.index.hint import Hint
from scumble.index.kinds import Asked, Kind, decoded, is_known, kind_of
from scumble.index.plan import USUAL, Plan
from scumble.index.slack import SlackName, lossless_delta, slack_named
from scumble.privacy.budget import Exact, exact, row_delta
from scumble.types import Domain, Schema, parse_domain
from scumble.wire.requests import IndexOrder

__all__ = ["IndexSpec", "capacity_cost", "index_cost"]

_NAME = r'(?:"(?:[^"\\]|\\.)*"|[^\s",]+)'
_OPTION = re.compile(
    r"(?<!\s)\s+(?:(epsilon|delta|beta|rows_per_user|max_bytes|slack|mechanism|alpha_s|blocks|hint|plan)=(\S+)"
    rf"|(columns)=({_NAME}(?:,{_NAME})*))\s*$"
)
_BARE = re.compile(r"[^\W\d]\w*")
PREVIOUS = "previous"
_FORM = 'write it like "amount decimal:0:100000:0.01 epsilon=0.5"'


@dataclass(frozen=True)
class IndexSpec:
    """PUBLIC: an index on a column: its domain, and what it may cost. `max_bytes` bounds the index file.

    Rows are laid out in padded blocks, as many as suit their number; `blocks=1` lays them out as they are sorted.
    The copy of the rows that it finds holds these `columns`, the indexed one always among them, or all of them.
    `hint` guides the index by what is public already: "previous", the indexes of the table's earlier batches; the path
    of a file that `scumble index tune` has written, or of an index; a `Hint`; or a column of public keys.
    A `plan` divides its epsilon, and says how coarse its cells are, as that command proposes it.
    `mechanism`, `slack` and `alpha_s` are for research: with "paper", "paper" and a number, the index is the published
    design as it is printed, and may lose rows. In a program for research (`scumble.lab.research`) the mechanism may be
    a comparator such as "special", and some of those cost the `delta` that is stated here.
    """

    column: str
    domain: Domain
    epsilon: Exact
    beta: Exact = 1e-6
    rows_per_user: int = 1
    max_bytes: int | None = 4096
    slack: SlackName = "measured"
    mechanism: str = "scumble"
    alpha_s: Exact | None = None
    blocks: int | None = None
    columns: tuple[str, ...] | None = None
    hint: Any = None
    plan: Plan | None = None
    delta: Exact | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `COLUMN DOMAIN epsilon=E` and what may follow, such as `slack=lossless`, in any order."""
        options: dict[str, str] = {}
        rest = text
        while match := _OPTION.search(rest):
            option, value = (match[1], match[2]) if match[1] else (match[3], match[4])
            if option in options:
                raise InvalidParameter(f"{option} is there twice in {text!r}", hint=_FORM)
            options[option] = value
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
            options.get("mechanism", "scumble"),
            options.get("alpha_s"),
            _whole("blocks", options["blocks"]) if "blocks" in options else None,
            _read_names(options["columns"]) if "columns" in options else None,
            options.get("hint"),
            Plan.parse(options["plan"]) if "plan" in options else None,
            options.get("delta"),
        )

    @property
    def terms(self) -> str:
        """The index as `parse` reads it, without its column and what is at its default."""
        parts = [self.domain.text, f"epsilon={self.epsilon}"]
        parts += [f"delta={self.delta}"] if self.delta is not None else []
        parts += [f"beta={self.beta}"] if self.beta != 1e-6 else []
        parts += [f"rows_per_user={self.rows_per_user}"] if self.rows_per_user != 1 else []
        parts += [f"max_bytes={self.max_bytes}"] if self.max_bytes != 4096 else []
        parts += [f"slack={self.slack}"] if self.slack != "measured" else []
        parts += [f"mechanism={self.mechanism}"] if self.mechanism != "scumble" else []
        parts += [f"alpha_s={self.alpha_s}"] if self.alpha_s is not None else []
        parts += [f"blocks={self.blocks}"] if self.blocks is not None else []
        held = None if self.columns is None else map(_shown, self.columns or [self.column])
        parts += [] if held is None else [f"columns={','.join(held)}"]
        parts += [f"hint={self.hint}"] if isinstance(self.hint, str | PathLike) else []
        return " ".join(parts + ([f"plan={self.plan.text}"] if self.plan and self.plan.text else []))

    def within(self, schema: Schema) -> Self:
        """The same with columns under their own names, each once, in the schema's order; None where these are all."""
        column = schema[self.column].name
        if self.columns is None:
            return replace(self, column=column)
        names = [schema[name].name for name in self.columns]
        if len(set(names)) < len(names):
            raise InvalidParameter("an index holds a column twice", hint="name each of its columns once")
        held = tuple(each.name for each in schema if each.name in (column, *names))
        return replace(self, column=column, columns=None if len(held) == len(schema) else held)

    def order(self, earlier: Sequence[bytes] = ()) -> IndexOrder:
        """What the enclave is asked to build and the ledger is charged for it; refused if it could not be built.

        `earlier` are the indexes of the table's earlier batches on the same column. If there are any, this one is cut
        as they are, so that all can be merged.
        """
        kind, hint = kind_of(self.mechanism), hint_of(self.hint, self.domain, earlier)
        epsilon, delta = self._cost(kind, hint)
        beta, rows = check_beta(self.beta), self.rows_per_user
        some_rows = 1  # by then there is a capacity
        terms = Terms(self.domain, epsilon / rows, row_delta(epsilon, delta, rows), beta, some_rows, epsilon, delta)
        alpha_s = None if self.alpha_s is None else exact(self.alpha_s, "alpha_s")
        blocks = 1 if self.blocks is None else self.blocks
        plain = self.slack == "measured" and self.mechanism == "scumble" and hint is None and self.blocks is None
        grid = b"" if earlier and plain else None
        kind.check(Asked(self.max_bytes, self.slack, alpha_s, blocks, hint, self.plan, grid), terms)
        return IndexOrder(
            self.column,
            self.domain,
            epsilon,
            delta,
            beta,
            rows,
            self.max_bytes,
            self.slack,
            self.mechanism,
            alpha_s,
            self.blocks,
            self.columns,
            None if hint is None else hint.packed,
            (self.plan and self.plan.text) or None,
            grid,
        )

    def _cost(self, kind: Kind, hint: Hint | None) -> tuple[Fraction, Fraction]:
        """The epsilon and delta that it costs; a delta is stated where the mechanism needs one, and nowhere else."""
        cost = index_cost(self.epsilon, self.beta, self.rows_per_user, self.slack, self.blocks, hint, self.plan)
        if self.delta is None:
            return cost
        if not kind.states_delta:
            raise InvalidParameter("this index costs no delta that could be stated", hint="leave delta out")
        delta = exact(self.delta, "delta")
        if not 0 < delta < 1:
            raise InvalidParameter("delta must lie between 0 and 1", hint="delta=1e-6, for example")
        return cost[0], delta


def index_cost(
    epsilon: Exact,
    beta: Exact,
    rows_per_user: int,
    slack: SlackName,
    blocks: int | None = None,
    hint: Hint | None = None,
    plan: Plan | None = None,
) -> tuple[Fraction, Fraction]:
    """The epsilon and delta that an index costs, read and checked. Only a lossless one costs any delta."""

    def row_costs(row_epsilon: Fraction, chance: Fraction) -> Fraction:
        return slack_named(slack, plan or USUAL).delta(left_after_check(row_epsilon, hint), chance, blocks)

    return _cost(epsilon, beta, rows_per_user, row_costs)


def hint_of(given: Any, domain: Domain, earlier: Sequence[bytes]) -> Hint | None:
    """The hint that was asked for; none if it is that of earlier batches, and there are none."""
    if given is None or isinstance(given, Hint):
        return given
    if isinstance(given, str) and given == PREVIOUS:
        known = [decoded(data) for data in earlier if is_known(data)]
        models = [model for model in known if isinstance(model, IndexModel) and model.domain.text == domain.text]
        return Hint.of_models(models) if models else None
    if not isinstance(given, str | PathLike):
        return Hint.of_keys(given, domain)
    try:
        data = Path(given).read_bytes()
    except OSError as error:
        raise FileError(
            f"cannot read the hint {given}: {error.strerror}", hint="a path, or hint=previous for earlier batches"
        ) from error
    if Hint.is_one(data):
        return Hint.read(data, domain)
    model = decode(data)
    if model.domain.text != domain.text:
        raise InvalidParameter("this hint is for another domain", hint=f"it was made for {model.domain.label}")
    return Hint.of_models([model])


def capacity_cost(
    epsilon: Exact, beta: Exact, rows_per_user: int, share: Fraction = Fraction(1)
) -> tuple[Fraction, Fraction]:
    """What a drawn capacity costs: noise of a share of epsilon, cut off so that no row is without room."""
    return _cost(epsilon, beta, rows_per_user, lambda row, chance: lossless_delta(row * share, chance))


def _cost(
    epsilon: Exact, beta: Exact, rows_per_user: int, row_costs: Callable[[Fraction, Fraction], Fraction]
) -> tuple[Fraction, Fraction]:
    amount, chance = exact(epsilon, "epsilon"), check_beta(beta)
    if amount <= 0:
        raise InvalidParameter("epsilon must be greater than 0", hint="values from 0.1 to 10 are usual")
    check_row_epsilon(amount / rows_per_user)
    needed = row_costs(amount / rows_per_user, chance)
    return amount, _charged_delta(needed, amount, rows_per_user) if needed else Fraction(0)


def _charged_delta(needed: Fraction, epsilon: Fraction, rows_per_user: int) -> Fraction:
    """The delta to charge so that one row's part of it is what it needs; rounded up to 12 digits."""
    # A row's part grows in proportion to the whole, and its part of a small whole is exact to 30 digits.
    part = row_delta(epsilon, Fraction(1), rows_per_user)
    whole = needed / part if part else Fraction(1)
    up = Context(prec=12, rounding=ROUND_CEILING)
    delta = Fraction(up.next_plus(up.divide(whole.numerator, whole.denominator)))
    if delta >= 1:
        raise InvalidParameter("a lossless index at this price would need a delta of 1", hint="take a smaller beta")
    return delta


def _read_names(text: str) -> tuple[str, ...]:
    """The names in a list such as `day,"odd name"`: in quotes they are strings of JSON."""
    try:
        return tuple(str(json.loads(name)) if name[0] == '"' else name for name in re.findall(_NAME, text))
    except ValueError:
        raise InvalidParameter("a name in quotes cannot be read", hint='it is a string of JSON: "odd name"') from None


def _shown(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidParameter(f"{name} must be a whole number of at least 1", hint=_FORM)
    return int(text)


def _slack(text: str) -> SlackName:
    if text in get_args(SlackName):
        return cast(SlackName, text)
    raise InvalidParameter("there is no such slack", hint="one of " + ", ".join(get_args(SlackName)))
