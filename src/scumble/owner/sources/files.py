"""Parquet and Arrow IPC files. SECRET rows: an error names the file and no value."""

from collections.abc import Callable
from pathlib import Path

from scumble.errors import FileError, InvalidParameter
from scumble.owner.sources import Reading, Source, guarded, sliced

__all__ = ["open_ipc", "open_parquet"]

_MOST_NAMES = 20  # in an error


def open_parquet(path: Path, reading: Reading) -> Source:
    """Open a Parquet file; its row groups are read one at a time."""

    def opened() -> Source:
        from pyarrow import parquet

        file = parquet.ParquetFile(path, pre_buffer=False)  # which would read the whole file ahead
        names = _chosen(path, reading.column, file.schema_arrow.names)
        batches = file.iter_batches(batch_size=reading.batch_rows, columns=names)
        return Source(file.schema_arrow, file.metadata.num_rows, batches, file.close)

    return _guarded(path, "Parquet", reading, opened)


def open_ipc(path: Path, reading: Reading) -> Source:
    """Open an Arrow file or stream."""

    def opened() -> Source:
        import pyarrow as pa

        mapped = pa.memory_map(str(path))
        try:
            file = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid:
            mapped.seek(0)
            stream = pa.ipc.open_stream(mapped)
            return Source(stream.schema, None, iter(stream), mapped.close)
        batches = (file.get_batch(number) for number in range(file.num_record_batches))
        return Source(file.schema, _rows(path), batches, mapped.close)

    return _guarded(path, "Arrow IPC", reading, opened)


def _rows(path: Path) -> int:
    """Count the rows from the batches' headers."""
    import pyarrow.dataset as datasets

    counted: int = datasets.dataset(path.absolute(), format="ipc").count_rows()
    return counted


def _guarded(path: Path, form: str, reading: Reading, opened: Callable[[], Source]) -> Source:
    """Open a file and select its columns. If the file is broken, now or while it is read, say so without details."""
    import pyarrow as pa

    failures = (pa.ArrowException, OSError, EOFError)
    broken = FileError(f"{path} is not a whole {form} file", hint="write it again, or restore it")
    try:
        source = opened()
    except failures:
        pass
    else:
        names = _chosen(path, reading.column, source.schema.names)
        schema = source.schema if names is None else pa.schema([source.schema.field(name) for name in names])
        batches = source.batches if names is None else (batch.select(names) for batch in source.batches)
        return Source(schema, source.rows, sliced(guarded(batches, failures, broken), reading.batch_rows), source.close)
    raise broken


def _chosen(path: Path, column: str | None, names: list[str]) -> list[str] | None:
    """Return the columns to read, None for all."""
    if column is None:
        return None
    if names.count(column) != 1:
        found = "more than one column" if column in names else "no column"
        known = ", ".join(map(repr, names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")
        raise InvalidParameter(f"{path} has {found} {column!r}", hint=f"its columns are {known}")
    return [column]
