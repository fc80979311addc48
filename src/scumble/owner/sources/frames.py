"""Tables in memory: Arrow, pandas and polars frames, DuckDB relations, and any Arrow stream.

SECRET rows. Arrow, polars and pandas' nullable dtypes have types of their own. What pandas makes of the values is a
guess (`int64`, or `float64` if one is missing; `object`; `category`), and so is what a lazy frame or relation makes of
a file without types.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from scumble.errors import BadRows, InvalidParameter
from scumble.owner.sources import Reading, Source, fits, guarded, sliced
from scumble.owner.sources.guesses import is_declared_dtype, is_sniffed
from scumble.types import parse_type, split_nullability

__all__ = ["open_object"]


def open_object(source: Any, reading: Reading) -> Source:  # noqa: PLR0911  (one for each kind)
    """Open an object that holds a table or streams one."""
    import pyarrow as pa

    batch_rows = reading.batch_rows
    if isinstance(source, pa.Table):
        return Source(source.schema, len(source), sliced(iter(source.to_batches(batch_rows)), batch_rows))
    if isinstance(source, pa.RecordBatch):
        return Source(source.schema, len(source), sliced(iter([source]), batch_rows))
    if isinstance(source, pa.RecordBatchReader):
        return _reader(source, batch_rows)
    library, name = type(source).__module__.partition(".")[0], type(source).__name__
    if _is_pandas(source):
        return _pandas(source, reading)
    if library == "polars" and name == "DataFrame":
        slices = (part.to_arrow() for part in source.iter_slices(batch_rows))
        return Source(_polars_schema(source.head(0)), len(source), _batches(slices))
    if library == "polars" and name == "LazyFrame":
        head = _polars_schema(source.head(0).collect())
        frames = source.collect_batches(chunk_size=batch_rows, maintain_order=True, lazy=True)
        guessed = frozenset(head.names if is_sniffed(source.explain(optimized=False)) else ())
        batches = sliced(_batches(frame.to_arrow() for frame in frames), batch_rows)
        return Source(head, None, batches, guessed=guessed)
    if hasattr(source, "to_arrow_reader"):  # a DuckDB relation
        sniffed = is_sniffed(source.explain())
        return _reader(source.to_arrow_reader(batch_rows), batch_rows, sniffed=sniffed)
    if hasattr(source, "__arrow_c_stream__"):
        return _reader(pa.RecordBatchReader.from_stream(source), batch_rows)
    raise InvalidParameter(
        f"a {name} cannot be loaded",
        hint="pass a path, an Arrow table, a pandas or polars frame, or anything with __arrow_c_stream__",
    )


def _polars_schema(empty: Any) -> Any:
    import pyarrow as pa

    try:
        return empty.to_arrow().schema
    except pa.ArrowException:
        pass
    raise InvalidParameter("a column of the frame is of a type that Arrow does not have", hint="cast it before loading")


def _is_pandas(source: object) -> bool:
    """Whether it is a pandas frame; a subclass, such as GeoPandas', would pass for an Arrow stream."""
    return any(
        base.__name__ == "DataFrame" and base.__module__.partition(".")[0] == "pandas" for base in type(source).__mro__
    )


def _reader(reader: Any, batch_rows: int, *, sniffed: bool = False) -> Source:
    import pyarrow as pa

    refusal = BadRows("the stream of rows failed half-way", hint="read it without Scumble to see why")
    batches = guarded(reader, (pa.ArrowException, OSError), refusal)
    guessed = frozenset(reader.schema.names if sniffed else ())
    return Source(reader.schema, None, sliced(batches, batch_rows), reader.close, guessed)


def _batches(tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        yield from table.combine_chunks().to_batches()


def _pandas(frame: Any, reading: Reading) -> Source:
    """Read a frame without its index. The objects in a column must all have one type."""
    import pyarrow as pa

    failures = (pa.ArrowException, ValueError, TypeError, OverflowError)
    twice = BadRows("two columns of the frame have one name", hint="rename one of them")
    mixed = BadRows("the frame cannot be read as a table", hint="convert its columns with astype")
    frame = frame.set_axis([str(name) for name in frame.columns], axis="columns")
    if len(set(frame.columns)) < len(frame.columns):
        raise twice
    declared = {name.lower(): text for name, text in reading.types.items()}
    schema = pa.schema([_field(frame[name], name, declared.get(name.lower(), "")) for name in frame.columns])
    guessed = frozenset(name for name in frame.columns if not is_declared_dtype(frame[name].dtype))
    parts = (frame.iloc[start : start + reading.batch_rows] for start in range(0, len(frame), reading.batch_rows))
    made = (pa.RecordBatch.from_pandas(part, schema, preserve_index=False) for part in parts)
    batches = guarded((batch.replace_schema_metadata() for batch in made), failures, mixed)
    return Source(schema, len(frame), batches, guessed=guessed)


def _field(series: Any, name: str, declared: str) -> Any:
    """Return the Arrow field that a column's values fit: of the type that Arrow finds, or else of the declared one.

    Values of several types fit only the declared one, if that: BadRows, with the row, if they do not.
    """
    import pyarrow as pa

    with suppress(pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.field(name, pa.array(series, from_pandas=True).type)
    text = split_nullability(declared)[0]
    target = parse_type(text).arrow_type if text else None
    if target is None:
        raise BadRows(
            f"column {name!r} of the frame holds values of several types",
            hint="convert it with astype, or declare its type",
            column=name,
        )
    row = next((row for row, value in enumerate(series, 1) if not fits(value, target)), None)
    if row is None:
        return pa.field(name, target)
    raise BadRows(
        f"column {name!r}, row {row}: the value is no {parse_type(text).label}",
        hint="correct or drop that row, or declare another type for the column",
        row=row,
        column=name,
    )
