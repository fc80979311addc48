"""Which columns of a source have types that something made up from the rows, rather than types that were declared.

A schema's metadata or a query's plan comes in, the names of columns come out; both are on the owner's side. Such a type
may not become public unseen: one more row can change it. What happened before a source was written is out of sight: a
DuckDB table or a polars frame that was made from a CSV file looks like any other.
"""

import json
import re
from typing import Any

__all__ = ["guessed_by_pandas", "is_declared_dtype", "is_sniffed"]

_NULLABLE = frozenset(
    ["boolean", "string", "Float32", "Float64", *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))]
)
"""pandas' dtypes that are the same whether values are missing or not, and that pandas chooses only when asked to."""

_SNIFFING = re.compile(r"(read|sniff)[ _](csv|(nd)?json|xlsx)|pandas[ _]scan|chunk[ _]get|column[ _]data[ _]scan", re.I)
"""The steps of a DuckDB plan that take types, or as PIVOT does even names, from the rows."""

_SCANS = re.compile(r"^\s*(csv|ndjson) scan\b", re.I | re.M)
"""The same of a polars plan."""


def is_declared_dtype(dtype: object) -> bool:
    """Whether a pandas dtype, or its text, is one of the nullable or the Arrow ones."""
    return str(dtype) in _NULLABLE or str(dtype).endswith("[pyarrow]")


def guessed_by_pandas(schema: Any) -> frozenset[str]:
    """Return the columns that came from a pandas frame with types that follow the values.

    pandas notes its dtypes in the metadata of the Arrow tables, Parquet and Feather files that it writes. An integer
    column of its own is `int64`, and `float64` as soon as one value is missing.
    """
    noted = (schema.metadata or {}).get(b"pandas")
    if noted is None:
        return frozenset()
    try:
        columns = json.loads(noted)["columns"]
        dtypes = {column.get("field_name") or column["name"]: column["numpy_type"] for column in columns}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return frozenset(schema.names)
    return frozenset(name for name in schema.names if name in dtypes and not is_declared_dtype(dtypes[name]))


def is_sniffed(plan: str) -> bool:
    """Whether a plan of DuckDB or polars reads something that has no types of its own."""
    return _SNIFFING.search(plan) is not None or _SCANS.search(plan) is not None
