"""UNTRUSTED: where sealed pages, manifests and transcripts are kept.

A store is opened, created or restored here by its location; nothing else names a kind of store. To add one, write a
file with a class like `FileStore`, and register it in `KINDS` under the scheme of its locations, `s3` for `s3://...`.
"""

from contextlib import AbstractContextManager

from scumble.store.files import FileStore
from scumble.store.protocol import Kind, Location, Restoring, Store

__all__ = ["KINDS", "create_store", "is_store", "open_store", "restoring"]

KINDS: dict[str, Kind] = {"": FileStore}
"""By scheme; a location without one is a folder."""


def open_store(location: Location) -> Store:
    """The database at a location; NotFound if there is none."""
    return _kind(location)(location)


def create_store(location: Location, database: str) -> Store:
    """Make an empty database of this id; Exists if one is there."""
    return _kind(location).create(location, database)


def is_store(location: Location) -> bool:
    """Whether a database is there."""
    return _kind(location).exists(location)


def restoring(location: Location) -> AbstractContextManager[Restoring]:
    """A new database at a location, to be filled from a backup; Exists if anything is there."""
    return _kind(location).restoring(location)


def _kind(location: Location) -> Kind:
    scheme, found, _ = str(location).partition("://")
    return KINDS.get(scheme if found else "", KINDS[""])
