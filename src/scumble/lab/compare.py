"""Build every index of the paper on the same keys, and tabulate what each would cost.

A what-if for the owner of the data: the table compares with the true rows, so it is SECRET. Nothing is released, so
nothing is spent from any ledger; the indexes are forgotten.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.errors import InvalidKeys, InvalidParameter, ScumbleError
from scumble.index.contract import Index, check_beta, check_count, check_row_epsilon
from scumble.index.curve import Histogram
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.file import domain_bytes
from scumble.index.plot import NOISY, SEGMENTS, _checked, _save, _style
from scumble.lab.comparators import CryptEpsilonIndex, DPBPlusTreeIndex, DPRMIIndex, ExactIndex, FMIIndex, SpecialIndex
from scumble.lab.comparators.curves import truncation_delta
from scumble.privacy.budget import Exact, exact, unsafe_budget
from scumble.types import Domain

__all__ = [
    "KINDS",
    "WHAT_IF",
    "Case",
    "Comparison",
    "Contender",
    "Kind",
    "Lookups",
    "build",
    "compare",
    "compare_counts",
    "draw",
    "every_index",
    "measure",
]

WHAT_IF = "a what-if on data that you own: nothing was released and no budget was spent; keep these numbers to yourself"
TIMED_LOOKUPS = 1000
IntArray = NDArray[np.int64]
Kind = Literal["point", "range"]
KINDS: tuple[Kind, ...] = ("point", "range")


# --- who takes part --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """An index that takes part: what the table calls it, how to make one, and what it asks for."""

    name: str
    make: Callable[[], Index]
    needs_delta: bool = False
    private: bool = True
    trained: bool = False


def every_index() -> list[Contender]:
    """All of them, in the order of the paper: its table 1 with the two trained ones in between, and the exact one."""
    return [
        Contender("DP B+ tree", DPBPlusTreeIndex),
        Contender("Crypt-epsilon", CryptEpsilonIndex),
        Contender("SPECIAL", SpecialIndex, needs_delta=True),
        Contender("DP-RMI", DPRMIIndex, needs_delta=True, trained=True),
        Contender("FMI", FMIIndex, needs_delta=True, trained=True),
        Contender("DP-PLR, published", lambda: DPPLRIndex(mechanism="paper", slack="paper")),
        Contender("DP-PLR, ours", DPPLRIndex),
        Contender("exact, leaks", ExactIndex, private=False),
    ]


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """SECRET: what every index is built on, and what it may cost."""

    counts: IntArray
    domain: Domain
    epsilon: Fraction
    beta: Fraction
    delta: Fraction  # for those that need one


# --- what is asked ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Lookups:
    """SECRET: ranges of ranks to look up. Points are keys that hold rows; a range runs between two such keys."""

    points: IntArray
    firsts: IntArray
    lasts: IntArray

    @classmethod
    def sample(cls, counts: IntArray, number: int, seed: int = 1) -> "Lookups":
        """At most `number` points, all of them if there are no more, and as many ranges as `number` says.

        Spread evenly over the keys that hold rows: points at equal steps, ends of ranges by the sequence that fills a
        square most evenly (multiples of 1/g and 1/g^2 modulo 1, g = 1.3247... the root of g^3 = g + 1).
        """
        held = np.flatnonzero(counts)
        points = held[np.unique(np.linspace(0, len(held) - 1, number).astype(np.int64))]
        steps = np.arange(seed, seed + number)[:, None] * [0.7548776662466927, 0.5698402909980532]
        ends = np.sort(held[(steps % 1 * len(held)).astype(np.int64)], axis=1)
        return cls(points, ends[:, 0].copy(), ends[:, 1].copy())

    def of(self, kind: Kind) -> tuple[IntArray, IntArray]:
        return (self.points, self.points) if kind == "point" else (self.firsts, self.lasts)


# --- what comes out --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """SECRET: one index and one kind of lookup. All but the name and the note is None if there is no index."""

    index: str
    lookup: Kind
    epsilon: float | None = None
    delta: float | None = None
    missing_mean: float | None = None  # share of the answer's rows that a lookup does not find
    missing_max: float | None = None
    answer_rows_mean: float | None = None
    extra_rows_mean: float | None = None  # read, but no part of the answer
    extra_rows_max: int | None = None
    index_bytes: int | None = None
    dummy_rows: int | None = None
    build_seconds: float | None = None
    lookup_microseconds: float | None = None  # one at a time
    note: str | None = None


def compare(
    keys: object,
    domain: Domain,
    epsilon: Exact,
    *,
    beta: Exact = 1e-6,
    delta: Exact | None = None,
    indexes: Sequence[Contender] | None = None,
    queries: int = 10_000,
) -> Any:
    """Build every index on a column and return, as an Arrow table, what its lookups lose, read and cost.

    A what-if on data that you own. NOTHING IS RELEASED, so nothing is spent from any ledger, and the indexes are
    forgotten. The table itself is secret: its numbers come from the true rows without noise.

    `delta` goes to the indexes that are private but for an event of that probability; by default it is
    (1 + e^epsilon) beta. `indexes` chooses among `every_index()`. `queries` lookups of either kind are made: points at
    keys that hold rows, ranges between two such keys, spread evenly. An index that refuses, for want of memory
    or of a library, has its reason in the column `note`.
    """
    import pyarrow as pa

    if not isinstance(domain, Domain):
        raise InvalidParameter("domain must be a Domain", hint="IntegerDomain(0, 1000), or parse_domain('int:0:1000')")
    counts = Histogram.of_ranks(domain.ranks(keys), domain.size).counts
    rows = list(compare_counts(counts, domain, epsilon, beta=beta, delta=delta, indexes=indexes, queries=queries))
    texts, wholes = ("index", "lookup", "note"), ("extra_rows_max", "index_bytes", "dummy_rows")
    types = {
        field.name: pa.string() if field.name in texts else pa.int64() if field.name in wholes else pa.float64()
        for field in fields(Comparison)
    }
    schema = pa.schema(list(types.items()), metadata={"scumble": WHAT_IF})
    return pa.table({name: [getattr(row, name) for row in rows] for name in types}, schema=schema)


def compare_counts(
    counts: ArrayLike,
    domain: Domain,
    epsilon: Exact,
    *,
    beta: Exact = 1e-6,
    delta: Exact | None = None,
    indexes: Sequence[Contender] | None = None,
    queries: int = 10_000,
) -> Iterator[Comparison]:
    """The same from a ready histogram, one row after the other: a point and a range for each index."""
    histogram = Histogram.of_counts(counts, domain.size)
    check_count(queries, "queries")
    if not histogram.counts.any():
        raise InvalidKeys("there are no rows to compare on", hint="a column with at least one key is needed")
    price = exact(epsilon, "epsilon"), check_beta(beta)
    check_row_epsilon(price[0])
    allowed = truncation_delta(*price) if delta is None else exact(delta, "delta")
    if not 0 <= allowed < 1:
        raise InvalidParameter("delta must lie between 0 and 1", hint="a smaller beta needs a smaller one")
    lookups = Lookups.sample(histogram.counts, queries)
    chosen = every_index() if indexes is None else indexes
    return _each(chosen, Case(histogram.counts, domain, *price, allowed), lookups)


def _each(contenders: Sequence[Contender], case: Case, lookups: Lookups) -> Iterator[Comparison]:
    for contender in contenders:
        try:
            yield from measure(contender, case, lookups)
        except (ScumbleError, MemoryError) as refusal:  # the rest of the table still comes
            why = refusal.message if isinstance(refusal, ScumbleError) else "there is not enough memory"
            yield Comparison(contender.name, "point", note=why)
            yield Comparison(contender.name, "range", note=why)


def measure(contender: Contender, case: Case, lookups: Lookups) -> list[Comparison]:
    """Build one index, and see what its lookups bring: points, then ranges."""
    begun = perf_counter()
    index = build(contender, case)
    spent = perf_counter() - begun
    return [replace(_compared(contender, index, case, kind, lookups), build_seconds=spent) for kind in KINDS]


def build(contender: Contender, case: Case) -> Index:
    """Build one index, with a budget of no ledger: it is forgotten afterwards."""
    if contender.trained and find_spec("dp_accounting") is None:
        raise InvalidParameter("it needs dp-accounting, which is not installed", hint="pip install 'scumble[trained]'")
    index = contender.make()
    if isinstance(index, ExactIndex):
        return index.fit_counts(case.counts, domain=case.domain, beta=case.beta)
    delta = case.delta if contender.needs_delta else Fraction(0)
    budget = unsafe_budget(case.epsilon, delta=delta)
    # As in the paper, lookups end where the table does; an index of one's own would keep that count private too.
    capacity = int(case.counts.sum())
    return index.fit_counts(case.counts, domain=case.domain, budget=budget, beta=case.beta, capacity=capacity)


def _compared(contender: Contender, index: Index, case: Case, kind: Kind, lookups: Lookups) -> Comparison:
    ranks = lookups.of(kind)
    outcome = index.unsafe_outcome(case.counts, *ranks)
    missing = outcome.missed / outcome.rows  # the share that is not found: one minus what the paper prints
    return Comparison(
        index=contender.name,
        lookup=kind,
        epsilon=float(case.epsilon) if contender.private else None,
        delta=float(case.delta) if contender.needs_delta else 0.0 if contender.private else None,
        missing_mean=float(missing.mean()),
        missing_max=float(missing.max()),
        answer_rows_mean=float(outcome.rows.mean()),
        extra_rows_mean=float(outcome.extra.mean()),
        extra_rows_max=int(outcome.extra.max()),
        index_bytes=index.size_bytes + _listed_bytes(index, case.domain),
        dummy_rows=index.unsafe_dummy_rows(case.counts),
        lookup_microseconds=_lookup_microseconds(index, case.domain, *ranks),
        note=None if contender.private else "not private: for scale only",
    )


def _listed_bytes(index: Index, domain: Domain) -> int:
    """What a list of keys adds to every index alike: DP-PLR's size is that of its file, which has the list already."""
    return domain_bytes(domain) if domain.is_list and not isinstance(index, DPPLRIndex) else 0


def _lookup_microseconds(index: Index, domain: Domain, firsts: IntArray, lasts: IntArray) -> float:
    keys = [(domain.key(int(a)), domain.key(int(b))) for a, b in zip(firsts, lasts, strict=True)][:TIMED_LOOKUPS]
    begun = perf_counter()
    for low, high in keys:
        index.lookup(low, high)
    return 1e6 * (perf_counter() - begun) / len(keys)


# --- picture ---------------------------------------------------------------------------------------


def draw(rows: Sequence[Comparison], path: str | PathLike[str], title: str = "Rows read beyond the answer") -> None:
    """Draw the extra rows of every index, point and range, as .png or .svg. SECRET as the numbers are."""
    target = _checked(Path(path))
    with _style():
        _save(_figure([row for row in rows if row.extra_rows_mean is not None], title), target)


def _figure(rows: Sequence[Comparison], title: str) -> Any:
    """One line an index, the mean as a mark and the largest as the end of a whisker."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.index for row in rows))
    figure = Figure(figsize=(7.6, 0.42 * len(names) + 1.7), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    for kind, color, marker, lift in (("point", SEGMENTS, "o", -0.12), ("range", NOISY, "s", 0.12)):
        shown = [row for row in rows if row.lookup == kind]
        places = [names.index(row.index) + lift for row in shown]
        means = [row.extra_rows_mean or 0 for row in shown]
        ax.hlines(places, means, [row.extra_rows_max or 0 for row in shown], color=color, linewidth=1.2)
        ax.plot(means, places, marker, color=color, markersize=6, label=f"{kind} lookups", clip_on=False)
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(lambda value, _: _decade(value))
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(visible=True, axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel("rows read beyond the answer: mean, and line to the largest")
    ax.set_title(title)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def _decade(value: float) -> str:
    for power, unit in ((10**9, " G"), (10**6, " M"), (10**3, " K")):
        if value >= power:
            return f"{value / power:.0f}{unit}"
    return f"{value:.0f}"
