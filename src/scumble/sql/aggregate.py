"""Aggregate queries: a SELECT over one table whose aggregates the enclave can compute, and the plan for it.

What stands around the aggregates (arithmetic on them, HAVING, ORDER BY, LIMIT) is left to DuckDB: the asker's own text,
with the calls replaced by columns of a small table of groups. Whatever is in doubt becomes a row query. The aggregates
themselves are in `aggregates/`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from scumble.sql.aggregates import FUNCTIONS
from scumble.sql.aggregates.contract import AggregateFunction, Argument
from scumble.sql.constants import Constants, Literal
from scumble.sql.names import Occurrence, Scope, only_table, renaming, unqualified
from scumble.sql.parse import Parsed
from scumble.sql.plan import Paths
from scumble.sql.predicate import Translator, conjuncts, lay_out
from scumble.sql.spans import Span, edited
from scumble.types import Schema
from scumble.wire.catalog import Table
from scumble.wire.plan import MAX_GROUPS, Aggregate, Aggregates, Expression, Function

__all__ = ["GROUPS", "AggregateQuery", "Output", "aggregate_query", "arithmetic", "rescaled"]

GROUPS = "__groups"
"""The table that the final SQL of an aggregate query reads."""

CLAUSES = {"kind", "expressions", "from_", "where", "group", "having", "order", "limit", "offset"}
AROUND = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Alias, exp.Placeholder,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Cast, exp.TryCast, exp.DataType,
    exp.DataTypeParam, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Round, exp.Abs, exp.Sqrt, exp.Floor, exp.Ceil,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.Between, exp.In, exp.Like,
    exp.ILike, exp.DPipe, exp.Upper, exp.Lower, exp.Interval, exp.Var, exp.Order, exp.Ordered, exp.Limit, exp.Offset,
    exp.Having,
)  # fmt: skip
MAX_SCALE = 38
MAX_CONSTANT = 2**63


@dataclass(frozen=True)
class Output:
    """One aggregate call, and the state of the plan that it is made of. `name` is its column in GROUPS."""

    name: str
    function: AggregateFunction
    argument: Argument
    state: int


@dataclass(frozen=True, eq=False)
class AggregateQuery:
    """Aggregates over one table, all in the enclave.

    The states become rows of a table GROUPS: the group columns under their own names, then the `outputs`. A
    group without a row is left out, unless there are no group columns at all. `final_sql` then reads
    GROUPS. DESCRIBE of `groups_sql` over empty tables gives the types of GROUPS' columns, and DESCRIBE of the
    statement's own SQL the names and types of the answer. If `direct` is there, the answer is one row of these outputs,
    and DuckDB is not needed.
    """

    table: Table
    aggregates: Aggregates
    outputs: tuple[Output, ...]
    paths: tuple[Paths]
    groups_sql: str
    final_sql: str
    final_parameters: tuple[str, ...]
    direct: tuple[int, ...] | None
    conditions: tuple[str, ...]


class NotHereError(Exception):
    """The enclave cannot compute this query: fetch its rows."""


def aggregate_query(parsed: Parsed, scopes: list[Scope], constants: Constants) -> AggregateQuery | None:
    """Plan a statement as aggregates in the enclave; None if it is more than that."""
    try:
        return _planned(parsed, scopes, constants)
    except NotHereError:
        return None


def _planned(parsed: Parsed, scopes: list[Scope], constants: Constants) -> AggregateQuery:
    found = only_table(parsed, scopes)
    if found is None:
        raise NotHereError
    select, scope, occurrence = found
    _require(not any(value for key, value in select.args.items() if key not in CLAUSES))
    schema = occurrence.table.schema
    where = select.args.get("where")
    translator = Translator(schema, lambda node: scope.place(node, occurrence), constants)
    draft = translator.exact(where.this if where else exp.true())
    if draft is None:
        raise NotHereError
    group_by = _group_columns(select, scope, occurrence)
    calls = _Calls(parsed, select, scope, occurrence)
    _require(bool(calls.outputs) or bool(group_by))
    _check_around(select, scope, occurrence, group_by)
    aggregates = Aggregates(tuple(calls.states), group_by)
    names = tuple(schema.columns[place].name for place in group_by)
    final, parameters = _final_sql(parsed, occurrence, calls.edits)
    return AggregateQuery(
        table=occurrence.table,
        aggregates=aggregates,
        outputs=tuple(calls.outputs),
        paths=(Paths(occurrence.table, *lay_out(draft), aggregates),),
        groups_sql=_groups_sql(parsed, occurrence, names, calls.items),
        final_sql=final,
        final_parameters=parameters,
        direct=_direct(select, calls),
        conditions=tuple(node.sql("duckdb") for node in conjuncts(where.this)) if where else (),
    )


def _require(holds: bool) -> None:
    if not holds:
        raise NotHereError


def _around(select: exp.Select) -> list[exp.Expr]:
    """What DuckDB works out from the groups."""
    clauses = [select.args.get(key) for key in ("having", "order", "limit", "offset")]
    return [*select.expressions, *(clause for clause in clauses if clause)]


def _group_columns(select: exp.Select, scope: Scope, occurrence: Occurrence) -> tuple[int, ...]:
    group = select.args.get("group")
    if group is None:
        return ()
    items = list(group.expressions)
    if group.args.get("all"):
        items = [item for item in select.expressions if not item.find(exp.AggFunc)]
    elif any(value for key, value in group.args.items() if key != "expressions"):
        raise NotHereError
    columns = occurrence.table.schema.columns
    places: dict[int, None] = {}
    size = 1
    for item in items:
        place = _group_place(item, select, scope, occurrence)
        if place is None:
            raise NotHereError
        values = columns[place].type.group_values
        _require(bool(values))
        if place not in places:
            places[place] = None
            size *= len(values) + columns[place].nullable
    _require(bool(places) and size <= MAX_GROUPS)
    return tuple(places)


def _group_place(item: exp.Expr, select: exp.Select, scope: Scope, occurrence: Occurrence) -> int | None:
    item = item.unalias()
    if isinstance(item, exp.Literal) and not item.args.get("is_string"):
        _require(item.this.isdigit() and 1 <= int(item.this) <= len(select.expressions))
        item = select.expressions[int(item.this) - 1].unalias()
    if not isinstance(item, exp.Column):
        return None
    place = scope.place(item, occurrence)
    if place is None and not item.table:
        named = [chosen for chosen in select.expressions if chosen.alias.lower() == item.name.lower()]
        inner = named[0].unalias() if len(named) == 1 else None
        place = scope.place(inner, occurrence) if isinstance(inner, exp.Column) else None
    return place


class _Calls:
    """The aggregate calls of a SELECT: an output for each, equal ones once, and the states that they are made of.

    `edits` put an output's column of GROUPS in each call's place; `items` are the calls for a SELECT that makes GROUPS.
    """

    def __init__(self, parsed: Parsed, select: exp.Select, scope: Scope, occurrence: Occurrence) -> None:
        self.outputs: list[Output] = []
        self.states: list[Aggregate] = []
        self.edits: list[tuple[Span, str]] = []
        self.items: list[str] = []
        self._numbers: dict[str, int] = {}
        self._state("count", None)
        prefix = _free_prefix(parsed, occurrence)
        calls = [call for part in _around(select) for call in part.find_all(exp.AggFunc)]
        for call in sorted(calls, key=_only_counts):  # these come last: every state begins with its count
            span = parsed.call_span(call)
            if span is None:
                raise NotHereError
            number = self._numbers.setdefault(_text(call), len(self.outputs))
            if number == len(self.outputs):
                self.outputs.append(self._output(call, f"{prefix}{number}", scope, occurrence))
                self.items.append(f"{parsed.text[span.start : span.stop]} AS {prefix}{number}")
            self.edits.append((span, self.outputs[number].name))

    def number(self, call: exp.Expr) -> int:
        """Which of the outputs a call is."""
        return self._numbers[_text(call)]

    def _output(self, call: exp.AggFunc, name: str, scope: Scope, occurrence: Occurrence) -> Output:
        function = FUNCTIONS.get(type(call))
        outside = exp.Filter | exp.Window | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls
        plain = not any(value for key, value in call.args.items() if key not in ("this", "big_int"))
        if function is None or isinstance(call.parent, outside) or not plain:
            raise NotHereError
        argument = _argument(call.this, scope, occurrence)
        if argument is None or not function.takes(argument):
            raise NotHereError
        return Output(name, function, argument, self._state(function.accumulates, argument.expression))

    def _state(self, function: Function, argument: Expression | None) -> int:
        """The number of a state, which is added if there is none that serves."""
        wanted = Aggregate(function, argument)
        for number, kept in enumerate(self.states):
            counts = function == "count" and argument is not None and kept.argument == argument
            if counts or kept == wanted:
                return number
        self.states.append(wanted)
        return len(self.states) - 1


def _only_counts(call: exp.AggFunc) -> bool:
    function = FUNCTIONS.get(type(call))
    return function is not None and function.accumulates == "count"


def _text(call: exp.Expr) -> str:
    return call.sql("duckdb").lower()


def _argument(node: object, scope: Scope, occurrence: Occurrence) -> Argument | None:
    schema = occurrence.table.schema
    while isinstance(node, exp.Paren):
        node = node.this
    match node:
        case exp.Star():
            return None if any(node.args.values()) else Argument(None)
        case exp.Column() if (place := scope.place(node, occurrence)) is not None:
            type_ = schema.columns[place].type
            return Argument(("column", place), type_.scale, type_)
        case exp.Expr():
            found = arithmetic(node, schema, lambda column: scope.place(column, occurrence))
            return found if found is not None and Aggregate("sum", found.expression).columns else None
    return None


def _free_prefix(parsed: Parsed, occurrence: Occurrence) -> str:
    """What no name in the query or of a column begins with."""
    prefix = "_a"
    taken = " ".join([parsed.text, *(column.name for column in occurrence.table.schema)]).lower()
    while prefix in taken:
        prefix = "_" + prefix
    return prefix


def _check_around(select: exp.Select, scope: Scope, occurrence: Occurrence, group_by: tuple[int, ...]) -> None:
    """Outside of the calls there may be group columns, constants, and functions that are certainly no aggregates."""
    aliases = {item.alias.lower(): item.unalias() for item in select.expressions if item.alias}
    for alias, item in aliases.items():
        place = scope.place(item, occurrence) if isinstance(item, exp.Column) else None
        hides = alias in occurrence.table.schema and occurrence.table.schema.place(alias) != place
        _require(not hides)
    for part in _around(select):
        for node in part.walk(prune=lambda node: isinstance(node, exp.AggFunc)):
            if isinstance(node, exp.AggFunc):
                continue
            _require(isinstance(node, AROUND) and not (isinstance(node, exp.In) and node.args.get("query")))
            if isinstance(node, exp.Column):
                place = scope.place(node, occurrence)
                known = place in group_by if place is not None else (not node.table and node.name.lower() in aliases)
                _require(known)


def _final_sql(parsed: Parsed, occurrence: Occurrence, edits: list[tuple[Span, str]]) -> tuple[str, tuple[str, ...]]:
    clauses = parsed.clause_spans()
    gone = [clauses[name] for name in ("WHERE", "GROUP") if name in clauses]
    final = [*edits, *((span, " ") for span in gone), renaming(parsed, occurrence, GROUPS), *unqualified(parsed)]
    if "HAVING" in clauses:
        start = clauses["HAVING"].start
        final.append((Span(start, start + len("HAVING")), "WHERE"))
    final += parsed.parameter_edits
    kept = [p for p in parsed.parameters if not any(s.start <= p.span.start < s.stop for s in gone)]
    return edited(parsed.text, final), tuple(dict.fromkeys(parameter.name for parameter in kept))


def _groups_sql(parsed: Parsed, occurrence: Occurrence, names: tuple[str, ...], items: list[str]) -> str:
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    table = parsed.text[occurrence.span.start : occurrence.span.stop]
    alias = occurrence.node.args.get("alias")
    source = table if alias is None else f"{table} AS {alias.sql('duckdb')}"
    group = f" GROUP BY {', '.join(quoted)}" if quoted else ""
    return f"SELECT {', '.join([*quoted, *items])} FROM {source}{group}"  # noqa: S608 - the asker's own text


def _direct(select: exp.Select, calls: _Calls) -> tuple[int, ...] | None:
    if any(select.args.get(key) for key in ("group", "having", "order", "limit", "offset")):
        return None
    items = [item.unalias() for item in select.expressions]
    return tuple(map(calls.number, items)) if all(isinstance(item, exp.AggFunc) for item in items) else None


# --- arithmetic inside a call -----------------------------------------------------------------------


def arithmetic(node: exp.Expr, schema: Schema, column: Callable[[exp.Column], int | None]) -> Argument | None:
    """Arithmetic in 128 bits that gives SQL's value exactly; None if there is none such, and DuckDB gets the rows."""
    while isinstance(node, exp.Paren):
        node = node.this
    match node:
        case exp.Column():
            return _column(column(node), schema)
        case exp.Neg() if not isinstance(node.this, exp.Literal):
            inner = arithmetic(node.this, schema, column)
            return inner and Argument(("-", ("constant", 0), inner.expression), inner.scale)
        case exp.Literal() | exp.Neg():
            return _constant(node)
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = (arithmetic(side, schema, column) for side in (node.this, node.expression))
            if left is not None and right is not None:
                return _product(left, right) if isinstance(node, exp.Mul) else _sum(node, left, right)
    return None


def _column(place: int | None, schema: Schema) -> Argument | None:
    type_ = None if place is None else schema.columns[place].type
    if type_ is None or not type_.is_number or type_.is_float or type_.words > 1:
        return None
    return Argument(("column", place), type_.scale)


def _constant(node: exp.Expr) -> Argument | None:
    literal = Constants().of(node)
    if not isinstance(literal, Literal) or not isinstance(literal.value, int | Decimal):
        return None
    scale = 0 if isinstance(literal.value, int) else -int(literal.value.as_tuple().exponent)
    unscaled = int(literal.value * 10**scale)
    return Argument(("constant", unscaled), scale) if abs(unscaled) < MAX_CONSTANT else None


def _product(left: Argument, right: Argument) -> Argument | None:
    scale = left.scale + right.scale
    return Argument(("*", left.expression, right.expression), scale) if scale <= MAX_SCALE else None


def _sum(node: exp.Expr, left: Argument, right: Argument) -> Argument | None:
    scale = max(left.scale, right.scale)
    sides = [rescaled(side, scale) for side in (left, right)]
    if None in sides:
        return None
    return Argument(("+" if isinstance(node, exp.Add) else "-", *sides), scale)


def rescaled(side: Argument, scale: int) -> Expression | None:
    """The same with more digits after the point; None if the factor is too large."""
    if side.scale == scale:
        return side.expression
    factor = 10 ** (scale - side.scale)
    match side.expression:
        case ("constant", int(value)) if abs(value * factor) < MAX_CONSTANT:
            return ("constant", value * factor)
    return ("*", side.expression, ("constant", factor)) if factor < MAX_CONSTANT else None
