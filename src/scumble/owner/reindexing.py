"""CREATE INDEX and REINDEX on a table that has rows: they are fetched, and loaded once more in another order.

The rows are SECRET: they come to the owner's side sealed, all of one copy, and go back as those of a load do. What the
provider sees is that, and the new index, whose capacity is the table's public one unless a REINDEX pays for another. It
costs what the index of a load costs, and adds to what the rows have cost before: docs/privacy.md section 2. The tail
stays where it is.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa

from scumble.errors import Exists, InvalidParameter, NotFound
from scumble.index.kinds import decoded
from scumble.owner.encoding import encode_rows
from scumble.owner.indexes import PREVIOUS, IndexSpec
from scumble.owner.ledger import Ledger
from scumble.owner.loading import PAGE_ROWS, Attempt, LoadOptions, LoadReport, Placing, load_rows, released_indexes
from scumble.owner.queries import Runner
from scumble.owner.versions import Versions
from scumble.privacy.budget import exact
from scumble.sql import Statement
from scumble.sql.definitions import Definition, NewIndex, Reindexing
from scumble.types import check_stated, rank_rule
from scumble.wire.catalog import Catalog, Run, Table, column_of_term
from scumble.wire.requests import IndexOrder, RowLayout

__all__ = ["Indexing", "checked_term", "index_epsilon", "needs_rows", "new_spec", "with_term"]

Options = tuple[tuple[str, str], ...]

CAPACITY_OPTION = "capacity_epsilon"


def needs_rows(definition: Definition, catalog: Catalog) -> bool:
    """Whether a definition makes an index of rows that are there, and so costs epsilon."""
    if isinstance(definition, Reindexing):
        return True
    if not isinstance(definition, NewIndex) or not catalog.table(definition.table).settled:
        return False
    return not (definition.if_not_exists and _attribute(catalog, definition) in _indexed(catalog, definition))


def index_epsilon(definition: Definition, catalog: Catalog) -> Fraction:
    """What a definition costs, if nothing of it was paid before."""
    if not needs_rows(definition, catalog):
        return Fraction(0)
    assert isinstance(definition, NewIndex | Reindexing)  # noqa: S101  `needs_rows` says so
    table = catalog.table(definition.table)
    if isinstance(definition, NewIndex):
        specs = [new_spec(_attribute(catalog, definition), definition.options)]
    else:
        specs = _anew(table, definition)
    drawn = _capacity_epsilon(definition) if isinstance(definition, Reindexing) else None
    return sum((exact(spec.epsilon, "epsilon") for spec in specs), drawn or Fraction(0))


def _capacity_epsilon(definition: Reindexing) -> Fraction | None:
    """What is paid for a capacity that follows from the rows which are left; None if the one that is there stays."""
    given = dict(definition.options).get(CAPACITY_OPTION)
    return None if given is None else exact(given, CAPACITY_OPTION)


def _attribute(catalog: Catalog, definition: NewIndex) -> str:
    return catalog.table(definition.table).schema[definition.column].name


def _indexed(catalog: Catalog, definition: NewIndex) -> tuple[str | None, ...]:
    return catalog.table(definition.table).attributes


# --- terms -------------------------------------------------------------------------------------------


def new_spec(column: str, options: Options, before: IndexSpec | None = None) -> IndexSpec:
    """The index that options ask for; what they do not say is as it was `before`."""
    given = dict(options)
    said = {} if before is None else _said(before)
    terms = {**said, **given}
    if "domain" not in terms or "epsilon" not in terms:
        raise InvalidParameter(
            "an index needs a domain and an epsilon", hint="WITH (domain = 'int:0:100', epsilon = 0.5): both are public"
        )
    if len(column.split()) != 1:
        raise InvalidParameter("a column with an index has a name of one word", hint="RENAME COLUMN first")
    rest = " ".join(f"{name}={value}" for name, value in terms.items() if name != "domain")
    return IndexSpec.parse(f"{column} {terms['domain']} {rest}")


def _said(spec: IndexSpec) -> dict[str, str]:
    domain = spec.domain.text
    options = spec.terms[len(domain) :].split()
    return {"domain": domain, **dict(option.split("=", 1) for option in options)}


def checked_term(table: Table, spec: IndexSpec) -> str:
    """An index as the catalog keeps it; refused if no batch of the table could have it."""
    spec = spec.within(table.schema)
    column = table.schema[spec.column]
    check_stated(column, spec.domain)
    rank_rule(column.type, spec.domain)
    if spec.hint not in (None, PREVIOUS):
        raise InvalidParameter("a hint that is a file cannot be kept", hint="hint=previous takes earlier batches")
    spec.order()
    return f"{spec.column} {spec.terms}"


def with_term(table: Table, term: str) -> tuple[str, ...]:
    """The table's terms with one more, or another for its column."""
    others = tuple(each for each in table.terms if column_of_term(each) != column_of_term(term))
    return (*others, term)


# --- indexes of rows that are there ------------------------------------------------------------------


class Indexing:
    """Makes indexes of the rows of a table, held for writing; may be asked again after a session was lost."""

    def __init__(
        self,
        versions: Versions,
        runner: Callable[[], Runner],
        prepare: Callable[[str], Statement],
        attempt: Attempt,
    ) -> None:
        self._versions, self._runner, self._prepare, self._attempt = versions, runner, prepare, attempt
        self.kind = "CREATE INDEX"

    def run(self, definition: Definition, ledger: Ledger) -> LoadReport:
        """Index what is there, as one new batch of the same rows; what was done."""
        if isinstance(definition, NewIndex):
            table = self._versions.catalog.table(definition.table)
            return self._made(table, [self._new(table, definition)], LoadOptions(capacity=_capacity(table)), ledger)
        assert isinstance(definition, Reindexing)  # noqa: S101  `needs_rows` says so
        self.kind = "REINDEX"
        table = self._versions.catalog.table(definition.table)
        drawn = _capacity_epsilon(definition)
        options = LoadOptions(capacity=_capacity(table) if drawn is None else None, capacity_epsilon=drawn)
        return self._made(table, _anew(table, definition), options, ledger)

    def _new(self, table: Table, definition: NewIndex) -> IndexSpec:
        column = table.schema[definition.column].name
        is_own = any(run.batch in self._attempt.batches for run in table.runs)
        if column in table.attributes and not is_own:
            raise Exists(
                f"the table {table.name!r} has an index on {column!r}", hint=f"REINDEX {table.name}({column}) renews it"
            )
        return new_spec(column, definition.options)

    def _made(self, table: Table, specs: list[IndexSpec], options: LoadOptions, ledger: Ledger) -> LoadReport:
        """Fetch the rows and load them, in place of the copies that are then of no use."""
        terms, orders, instead = table.terms, [], []
        for spec in (each.within(table.schema) for each in specs):
            terms = with_term(replace(table, terms=terms), checked_term(table, spec))
            orders.append(spec.order(released_indexes(table, spec.column)))
            instead += [run for run in table.settled if run.attribute == spec.column]
            instead += [run for run in table.settled if run.attribute is None and spec.columns is None]
        rows = self._rows(table, orders)
        options = replace(options, page_rows=min(PAGE_ROWS, *(run.page_rows for run in table.settled)))
        place = Placing(tuple(dict.fromkeys(run.id for run in instead)), beside=True, terms=terms)
        pieces = rows.to_batches()
        return load_rows(self._versions, ledger, table, pieces, orders, options, lambda *_: None, self._attempt, place)

    def _rows(self, table: Table, orders: list[IndexOrder]) -> pa.Table:
        """The rows that are not in the tail. Those in it have to fit the domains too, for when they no longer are."""
        name = table.name.replace('"', '""')
        statement, runner = self._prepare(f'SELECT * FROM "{name}"'), self._runner()  # noqa: S608  a name
        layout = RowLayout(table.schema, tuple(order.domain.size for order in orders))
        keys = [(table.schema.place(order.attribute), order.domain) for order in orders]
        if table.tail:
            for piece in runner.all_rows(statement, tail=True).to_batches():
                encode_rows(piece, layout, keys)
        return runner.all_rows(statement, tail=False)


def _anew(table: Table, definition: Reindexing) -> list[IndexSpec]:
    """The indexes that are made anew, on the terms that were declared or are stated now."""
    there = [attribute for attribute in table.attributes if attribute is not None]
    chosen = there if definition.column is None else [table.schema[definition.column].name]
    if not table.settled or not chosen or not set(chosen).issubset(there):
        raise NotFound(
            f"the table {table.name!r} has no such index of rows",
            hint=f"CREATE INDEX ON {table.name} (...) makes one",
        )
    if "domain" in dict(definition.options) and len(chosen) > 1:
        raise InvalidParameter("a domain is that of one column", hint=f"REINDEX {table.name}({chosen[0]})")
    options = tuple((name, value) for name, value in definition.options if name != CAPACITY_OPTION)
    return [new_spec(name, options, _before(table, name, options)) for name in chosen]


def _before(table: Table, column: str, options: Options) -> IndexSpec | None:
    """The terms of an index that is there: as they were declared, or its domain alone."""
    declared = [IndexSpec.parse(term) for term in table.terms if column_of_term(term) == column]
    if declared:
        return declared[0]
    run = next(run for run in table.settled if run.attribute == column)
    if run.index is None or "epsilon" not in dict(options):
        raise InvalidParameter(
            f"what the index on {column!r} shall cost was not declared",
            hint=f"REINDEX {table.name} WITH (epsilon = 0.5)",
        )
    held = None if run.columns is None else tuple(table.schema.columns[place].name for place in run.columns)
    return IndexSpec(column, decoded(run.index).domain, dict(options)["epsilon"], columns=held)


def _capacity(table: Table) -> int:
    """A public bound on the rows that are not in the tail: that of the copy that has the least room."""

    def room(attribute: str | None) -> int:
        return sum(run.capacity for run in _of(table, attribute))

    return min(map(room, table.attributes))


def _of(table: Table, attribute: str | None) -> list[Run]:
    return [run for run in table.settled if run.attribute == attribute]
