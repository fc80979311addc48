"""Libraries that are not installed with Scumble unless asked for."""

from importlib import import_module
from typing import Any

from scumble.errors import ScumbleError

__all__ = ["pyarrow"]


def pyarrow() -> Any:
    """Return the module, which csv, parquet and arrow files need."""
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ScumbleError(
            "csv, parquet and arrow files need pyarrow, which is not installed",
            hint="pip install 'scumble[arrow]'; npy files are read without it",
        ) from error
