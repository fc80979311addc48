"""One INSERT with many sets of parameters: its single row of VALUES becomes a query over a table of the parameters.

So all rows are inserted at once, in one batch, with the casts that DuckDB makes for one. The parameters are SECRET.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from scumble.errors import BadQuery, BadRows
from scumble.sql.parse import Parsed

if TYPE_CHECKING:
    from scumble.owner.queries import LocalSQL, Parameters

__all__ = ["has_one_row", "parameter_rows"]


def has_one_row(tree: exp.Expr) -> bool:
    """Whether a statement is an INSERT of one row of VALUES, which may be inserted many times at once."""
    values = tree.expression if isinstance(tree, exp.Insert) else None
    if not isinstance(values, exp.Values) or len(values.expressions) != 1:
        return False
    return isinstance(values.expressions[0], exp.Tuple) and values.expressions[0].find(exp.Query) is None


def parameter_rows(local: "LocalSQL", parsed: Parsed, sets: "Sequence[Parameters]") -> pa.Table:
    """The row of VALUES for every set of parameters."""
    keys = parsed.keys
    row = parsed.tree.expression.expressions[0].copy()
    for node in list(row.find_all(exp.Placeholder)):
        node.replace(exp.column(node.name, quoted=True))
    columns = [_array([_value(values, key) for values in sets]) for key in keys.values()]
    given = pa.table([*columns, pa.array(range(len(sets)))], names=[*keys, "__row"])
    items = ", ".join(f"{item.sql('duckdb')} AS c{number}" for number, item in enumerate(row.expressions))
    return local.run(f"SELECT {items} FROM __given ORDER BY __row", {"__given": given}, {})  # noqa: S608  a query's parts


def _value(values: Any, key: int | str) -> Any:
    if isinstance(values, Mapping) != isinstance(key, str) or not isinstance(values, Mapping | Sequence):
        raise BadQuery("? takes parameters from sequences, $name from mappings", hint="give one of them for each row")
    of_its_kind: Any = values
    try:
        return of_its_kind[key]
    except LookupError:
        raise BadQuery("a set of parameters lacks one of the statement's", hint="give all of them") from None


def _array(values: list[Any]) -> pa.Array:
    """The values of one parameter; of several types, as text, which DuckDB casts to the column's type."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    if any(isinstance(value, bytes | list | dict) for value in values):
        raise BadRows("the values of a parameter are of several types", hint="let them be of one")
    return pa.array([None if value is None else str(value) for value in values])
