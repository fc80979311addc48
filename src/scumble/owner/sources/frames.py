"""Tables in memory: Arrow, pandas and polars frames, DuckDB relations, and any Arrow stream. SECRET rows."""

from collections.abc import Iterator
from typing import Any

from scumble.errors import BadRows, InvalidParameter
from scumble.owner.sources import Reading, Source, guarded, sliced

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
    if library == "pandas" and name == "DataFrame":
        return _pandas(source, batch_rows)
    if library == "polars" and name == "DataFrame":
        slices = (part.to_arrow() for part in source.iter_slices(batch_rows))
        return Source(source.head(0).to_arrow().schema, len(source), _batches(slices))
    if library == "polars" and name == "LazyFrame":
        head = source.head(0).collect().to_arrow().schema
        frames = source.collect_batches(chunk_size=batch_rows, maintain_order=True, lazy=True)
        return Source(head, None, sliced(_batches(frame.to_arrow() for frame in frames), batch_rows))
    if hasattr(source, "to_arrow_reader"):  # a DuckDB relation
        return _reader(source.to_arrow_reader(batch_rows), batch_rows)
    if hasattr(source, "__arrow_c_stream__"):
        return _reader(pa.RecordBatchReader.from_stream(source), batch_rows)
    raise InvalidParameter(
        f"a {name} cannot be loaded",
        hint="pass a path, an Arrow table, a pandas or polars frame, or anything with __arrow_c_stream__",
    )


def _reader(reader: Any, batch_rows: int) -> Source:
    import pyarrow as pa

    refusal = BadRows("the stream of rows failed half-way", hint="read it without Scumble to see why")
    batches = guarded(reader, (pa.ArrowException, OSError), refusal)
    return Source(reader.schema, None, sliced(batches, batch_rows), reader.close)


def _batches(tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        yield from table.combine_chunks().to_batches()


def _pandas(frame: Any, batch_rows: int) -> Source:
    """Read a frame without its index. The objects in a column must all have one type."""
    import pyarrow as pa

    failures = (pa.ArrowException, ValueError, TypeError)
    mixed = BadRows(
        "a column of the frame holds values of several types, or two columns have one name",
        hint="convert it with astype, or rename one of them",
    )
    frame = frame.set_axis([str(name) for name in frame.columns], axis="columns")
    try:
        schema = pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
    except failures:
        pass
    else:
        parts = (frame.iloc[start : start + batch_rows] for start in range(0, len(frame), batch_rows))
        made = (pa.RecordBatch.from_pandas(part, schema, preserve_index=False) for part in parts)
        batches = guarded((batch.replace_schema_metadata() for batch in made), failures, mixed)
        return Source(schema, len(frame), batches)
    raise mixed
