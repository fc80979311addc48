"""Parquet and Arrow IPC files: a path comes in, batches go out. SECRET rows; an error names the file and no value."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scumble.errors import FileError
from scumble.owner.sources.batches import Source, sliced

__all__ = ["open_ipc", "open_parquet"]


def open_parquet(path: Path, batch_rows: int) -> Source:
    """Open a Parquet file; its row groups are read one at a time."""

    def opened() -> Source:
        from pyarrow import parquet

        file = parquet.ParquetFile(path, pre_buffer=False)  # which would read the whole file ahead
        batches = file.iter_batches(batch_size=batch_rows)
        return Source(file.schema_arrow, file.metadata.num_rows, batches, file.close)

    return _guarded(path, "Parquet", opened)


def open_ipc(path: Path, batch_rows: int) -> Source:
    """Open an Arrow file or stream."""

    def opened() -> Source:
        import pyarrow as pa

        mapped = pa.memory_map(str(path))
        try:
            file = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid:
            mapped.seek(0)
            stream = pa.ipc.open_stream(mapped)
            return Source(stream.schema, None, sliced(iter(stream), batch_rows), mapped.close)
        batches = (file.get_batch(number) for number in range(file.num_record_batches))
        return Source(file.schema, _rows(path), sliced(batches, batch_rows), mapped.close)

    return _guarded(path, "Arrow IPC", opened)


def _rows(path: Path) -> int:
    """Count the rows from the batches' heads."""
    import pyarrow.dataset as datasets

    counted: int = datasets.dataset(path.absolute(), format="ipc").count_rows()
    return counted


def _guarded(path: Path, form: str, opened: Callable[[], Source]) -> Source:
    """Turn what pyarrow says of a broken file, now or while it is read, into one plain error."""
    import pyarrow as pa

    broken = FileError(f"{path} is not a whole {form} file", hint="write it again, or restore it")
    try:
        source = opened()
    except (pa.ArrowException, OSError, EOFError):
        pass
    else:
        return Source(source.schema, source.rows, _checked(source.batches, broken), source.close)
    raise broken


def _checked(batches: Iterator[Any], broken: FileError) -> Iterator[Any]:
    import pyarrow as pa

    try:
        yield from batches
    except (pa.ArrowException, OSError, EOFError):
        pass
    else:
        return
    raise broken
