"""Aggregate queries: a SELECT over one table comes in; if the enclave can compute its aggregates, a plan goes out.

What stands around the aggregates (arithmetic on them, HAVING, ORDER BY, LIMIT) is left to DuckDB: the asker's own text,
with the calls replaced by columns of a small table of groups. Whatever is in doubt becomes a row query.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from scumble.sql.clauses import clause_spans
from scumble.sql.constants import Constants, Literal
from scumble.sql.drafts import lay_out
from scumble.sql.names import Occurrence, Scope, only_table
from scumble.sql.parse import Parsed
from scumble.sql.plan import Paths
from scumble.sql.predicate import Translator
from scumble.sql.pushdown import conjuncts
from scumble.sql.query import GROUPS, AggregateQuery, Output, OutputFunction
from scumble.sql.rows import renaming, unqualified
from scumble.sql.source import Span, edited
from scumble.types import Schema
from scumble.wire.plan import MAX_GROUPS, Aggregate, Aggregates, Expression, Function

__all__ = ["Scaled", "aggregate_query", "arithmetic"]


MAX_SCALE = 38
MAX_CONSTANT = 2**63


@dataclass(frozen=True)
class Scaled:
    """An expression whose value, divided by 10^scale, is the SQL one's."""

    expression: Expression
    scale: int


def arithmetic(node: exp.Expr, schema: Schema, column: Callable[[exp.Column], int | None]) -> Scaled | None:
    """Translate exactly, or not at all: then the rows go to DuckDB."""
    while isinstance(node, exp.Paren):
        node = node.this
    match node:
        case exp.Column():
            return _column(column(node), schema)
        case exp.Neg() if not isinstance(node.this, exp.Literal):
            inner = arithmetic(node.this, schema, column)
            return inner and Scaled(("-", ("constant", 0), inner.expression), inner.scale)
        case exp.Literal() | exp.Neg():
            return _constant(node)
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = (arithmetic(side, schema, column) for side in (node.this, node.expression))
            if left is not None and right is not None:
                return _product(left, right) if isinstance(node, exp.Mul) else _sum(node, left, right)
    return None


def _column(place: int | None, schema: Schema) -> Scaled | None:
    type_ = None if place is None else schema.columns[place].type
    if type_ is None or not type_.is_number or type_.is_float:
        return None
    return Scaled(("column", place), type_.scale)


def _constant(node: exp.Expr) -> Scaled | None:
    literal = Constants().of(node)
    if not isinstance(literal, Literal) or not isinstance(literal.value, int | Decimal):
        return None
    scale = 0 if isinstance(literal.value, int) else -int(literal.value.as_tuple().exponent)
    unscaled = int(literal.value * 10**scale)
    return Scaled(("constant", unscaled), scale) if abs(unscaled) < MAX_CONSTANT else None


def _product(left: Scaled, right: Scaled) -> Scaled | None:
    scale = left.scale + right.scale
    return Scaled(("*", left.expression, right.expression), scale) if scale <= MAX_SCALE else None


def _sum(node: exp.Expr, left: Scaled, right: Scaled) -> Scaled | None:
    scale = max(left.scale, right.scale)
    sides = [_rescaled(side, scale) for side in (left, right)]
    if None in sides:
        return None
    return Scaled(("+" if isinstance(node, exp.Add) else "-", *sides), scale)


def _rescaled(side: Scaled, scale: int) -> Expression | None:
    if side.scale == scale:
        return side.expression
    factor = 10 ** (scale - side.scale)
    match side.expression:
        case ("constant", int(value)) if abs(value * factor) < MAX_CONSTANT:
            return ("constant", value * factor)
    return ("*", side.expression, ("constant", factor)) if factor < MAX_CONSTANT else None


FUNCTIONS: dict[type[exp.Expr], OutputFunction] = {
    exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max",
    exp.Variance: "var_samp", exp.VariancePop: "var_pop",
    exp.Stddev: "stddev_samp", exp.StddevSamp: "stddev_samp", exp.StddevPop: "stddev_pop",
}  # fmt: skip
CLAUSES = {"kind", "expressions", "from_", "where", "group", "having", "order", "limit", "offset"}
AROUND = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Alias, exp.Placeholder, exp.Star,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Cast, exp.TryCast, exp.DataType,
    exp.DataTypeParam, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Round, exp.Abs, exp.Sqrt, exp.Floor, exp.Ceil,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.Between, exp.In, exp.Like,
    exp.ILike, exp.DPipe, exp.Upper, exp.Lower, exp.Interval, exp.Var, exp.Order, exp.Ordered, exp.Limit, exp.Offset,
    exp.Having,
)  # fmt: skip


class NotHereError(Exception):
    """The enclave cannot compute this query: fetch its rows."""


@dataclass(eq=False)
class _States:
    """The states that the enclave is to keep, each once."""

    aggregates: list[Aggregate] = field(default_factory=list)

    def place(self, function: Function, argument: Expression | None) -> int:
        wanted = Aggregate(function, argument)
        if function == "count" and argument is not None:  # every state begins with its count
            for place, kept in enumerate(self.aggregates):
                if kept.argument == argument:
                    return place
        if wanted not in self.aggregates:
            self.aggregates.append(wanted)
        return self.aggregates.index(wanted)


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
    _require(draft is not None)
    assert draft is not None  # noqa: S101 - _require has raised otherwise
    group_by = _group_columns(select, scope, occurrence)
    states = _States()
    rows_state = states.place("count", None)
    calls = _calls(select)
    _require(bool(calls) or bool(group_by))
    outputs: list[Output] = []
    places: dict[str, int] = {}
    edits: list[tuple[Span, str]] = []
    prefix = _free_prefix(parsed, occurrence)
    for call in sorted(calls, key=lambda call: isinstance(call, exp.Count)):
        text = call.sql("duckdb").lower()
        if text not in places:
            places[text] = len(outputs)
            outputs.append(_output(call, f"{prefix}{len(outputs)}", scope, occurrence, states))
        span = parsed.call_span(call)
        _require(span is not None)
        edits.append((span or Span(0, 0), outputs[places[text]].name))
    _check_around(select, scope, occurrence, group_by)
    predicate, bounds = lay_out(draft)
    aggregates = Aggregates(tuple(states.aggregates), group_by)
    names = tuple(schema.columns[place].name for place in group_by)
    final, parameters = _final_sql(parsed, occurrence, edits)
    originals = [next(call for call in calls if places[call.sql("duckdb").lower()] == n) for n in range(len(outputs))]
    return AggregateQuery(
        table=occurrence.table,
        aggregates=aggregates,
        group_columns=names,
        outputs=tuple(outputs),
        rows_state=rows_state,
        predicate=predicate,
        bounds=bounds,
        paths=Paths(occurrence.table, predicate, aggregates),
        groups_sql=_groups_sql(parsed, occurrence, names, outputs, originals),
        final_sql=final,
        final_parameters=parameters,
        direct=_direct(select, places),
        conditions=tuple(node.sql("duckdb") for node in conjuncts(where.this)) if where else (),
    )


def _require(holds: bool) -> None:
    if not holds:
        raise NotHereError


def _around(select: exp.Select) -> list[exp.Expr]:
    """What DuckDB works out from the groups."""
    clauses = [select.args.get(key) for key in ("having", "order", "limit", "offset")]
    return [*select.expressions, *(clause for clause in clauses if clause)]


def _calls(select: exp.Select) -> list[exp.AggFunc]:
    return [call for part in _around(select) for call in part.find_all(exp.AggFunc)]


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
        _require(place is not None)
        assert place is not None  # noqa: S101 - _require has raised otherwise
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


def _output(call: exp.AggFunc, name: str, scope: Scope, occurrence: Occurrence, states: _States) -> Output:
    function = FUNCTIONS.get(type(call))
    argument = call.this
    wrapped = isinstance(call.parent, exp.Filter | exp.Window | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls)
    plain = not any(value for key, value in call.args.items() if key not in ("this", "big_int"))
    if function is None or wrapped or not plain or not isinstance(argument, exp.Expr):
        raise NotHereError
    if function == "count" and isinstance(argument, exp.Star):
        _require(not any(argument.args.values()))
        return Output(name, "count", states.place("count", None), 0, None)
    schema = occurrence.table.schema
    place = scope.place(argument, occurrence) if isinstance(argument, exp.Column) else None
    type_ = None if place is None else schema.columns[place].type
    if place is not None and type_ is not None:
        _require(function in ("count", "min", "max") or type_.is_number)
        expression, scale = ("column", place), type_.scale
    else:
        scaled = arithmetic(argument, schema, lambda node: scope.place(node, occurrence))
        if scaled is None or function not in ("sum", "avg", "min", "max"):
            raise NotHereError
        expression, scale = scaled.expression, scaled.scale
        _require(bool(Aggregate("sum", expression).columns))
    kept: dict[OutputFunction, Function] = {"count": "count", "sum": "sum", "avg": "sum", "min": "min", "max": "max"}
    return Output(name, function, states.place(kept.get(function, "squares"), expression), scale, type_)


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
            if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count):
                raise NotHereError
            if isinstance(node, exp.Column):
                place = scope.place(node, occurrence)
                known = place in group_by if place is not None else (not node.table and node.name.lower() in aliases)
                _require(known)


def _final_sql(parsed: Parsed, occurrence: Occurrence, edits: list[tuple[Span, str]]) -> tuple[str, tuple[str, ...]]:
    clauses = clause_spans(parsed)
    gone = [clauses[name] for name in ("WHERE", "GROUP") if name in clauses]
    final = [*edits, *((span, " ") for span in gone), renaming(parsed, occurrence, GROUPS), *unqualified(parsed)]
    if "HAVING" in clauses:
        start = clauses["HAVING"].start
        final.append((Span(start, start + len("HAVING")), "WHERE"))
    final += parsed.parameter_edits
    kept = [p for p in parsed.parameters if not any(s.start <= p.span.start < s.stop for s in gone)]
    return edited(parsed.text, final), tuple(dict.fromkeys(parameter.name for parameter in kept))


def _groups_sql(
    parsed: Parsed, occurrence: Occurrence, names: tuple[str, ...], outputs: list[Output], calls: list[exp.AggFunc]
) -> str:
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    items = []
    for output, call in zip(outputs, calls, strict=True):
        span = parsed.call_span(call) or Span(0, 0)
        items.append(f"{parsed.text[span.start : span.stop]} AS {output.name}")
    table = parsed.text[occurrence.span.start : occurrence.span.stop]
    alias = occurrence.node.args.get("alias")
    source = table if alias is None else f"{table} AS {alias.sql('duckdb')}"
    group = f" GROUP BY {', '.join(quoted)}" if quoted else ""
    return f"SELECT {', '.join([*quoted, *items])} FROM {source}{group}"  # noqa: S608 - the asker's own text


def _direct(select: exp.Select, places: dict[str, int]) -> tuple[int, ...] | None:
    if any(select.args.get(key) for key in ("group", "having", "order", "limit", "offset")):
        return None
    items = [item.unalias() for item in select.expressions]
    if not all(isinstance(item, exp.AggFunc) for item in items):
        return None
    return tuple(places[item.sql("duckdb").lower()] for item in items)
