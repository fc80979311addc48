"""Definitions: tables and columns are made, renamed and dropped, in the version that a session has open.

A request and a version come in; the version as it is then goes out, which nobody else sees before it is settled. All
that a definition says is PUBLIC, but for views. Where rows are sealed anew, every page of a run is, whatever is in it.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.kernels import Words
from scumble.enclave.pages import LayerWriter, reseal_run
from scumble.enclave.validation import ColumnCheck
from scumble.enclave.versions import OpenVersion
from scumble.errors import Exists, InvalidParameter, NotFound
from scumble.types import Column, Schema
from scumble.wire import requests
from scumble.wire.catalog import Run, Table, column_of_term

__all__ = ["DEFINITIONS", "check_name", "define"]

MOST_VIEWS = 1000
ADDED_ROWS = 1 << 16  # at a time
_ID = re.compile("[0-9a-f]{32}")


def define(version: OpenVersion, request: Any) -> OpenVersion:
    """The version once a definition was carried out."""
    version.check_signed()
    return DEFINITIONS[type(request)](version, request)


def check_name(version: OpenVersion, name: str) -> None:
    """Refuse a name that no table can have, or that is taken."""
    if not name.isidentifier() or len(name) > 64:
        raise InvalidParameter(
            "a table's name is a word of letters, digits and underscores", hint="flights_2013, for example"
        )
    if name in version.manifest.catalog or any(
        name.lower() == view.lower() for view, _ in version.manifest.access.views
    ):
        raise Exists(f"there is a table or a view {name!r} already", hint="drop it first, or take another name")


def _having(version: OpenVersion, table: Table, dummies: Any = None) -> OpenVersion:
    """The version with a table as it becomes, which has to be one that can be opened again."""
    if not table.is_right:
        raise InvalidParameter("the table would not be in order", hint="upgrade Scumble")
    return version.having(table, dummies or {})


# --- tables ------------------------------------------------------------------------------------------


def _create(version: OpenVersion, request: requests.CreateTable) -> OpenVersion:
    check_name(version, request.table)
    if not _ID.fullmatch(request.table_id) or request.table_id in version.manifest.catalog.by_id:
        raise InvalidParameter("a table's id has 32 hexadecimal digits, and no other table has it", hint="upgrade")
    made = Table(request.table_id, request.table, request.schema, (), request.terms, request.comments)
    return _having(version, made)


def _truncate(version: OpenVersion, request: requests.Truncate) -> OpenVersion:
    return _having(version, replace(version.catalog.table(request.table), runs=()))


def _rename(version: OpenVersion, request: requests.RenameTable) -> OpenVersion:
    table = version.catalog.table(request.table)
    if request.name.lower() != table.name.lower():
        check_name(version, request.name)
    if any(map(version.manifest.access.names, (table.name, request.name))):
        raise Exists(
            "a grant names the table, and what it says is signed",
            hint="revoke it with `scumble revoke` first",
        )
    return _having(version, replace(table, name=request.name))


# --- columns -----------------------------------------------------------------------------------------


def _rename_column(version: OpenVersion, request: requests.RenameColumn) -> OpenVersion:
    table = version.catalog.table(request.table)
    place, before = table.schema.place(request.column), table.schema[request.column]
    if not request.name or (request.name.lower() != before.name.lower() and request.name in table.schema):
        raise Exists(f"there is a column {request.name!r} already", hint="take another name")
    columns = list(table.schema.columns)
    columns[place] = replace(before, name=request.name)
    runs = tuple(replace(run, attribute=request.name) if run.attribute == before.name else run for run in table.runs)
    comments = tuple((request.name if name == before.name else name, text) for name, text in table.comments)
    schema = Schema(tuple(columns))
    return _having(version, replace(table, schema=schema, runs=runs, terms=request.terms, comments=comments))


def _add_column(version: OpenVersion, request: requests.AddColumn) -> OpenVersion:
    table = version.catalog.table(request.table)
    column = request.column.columns[0]
    if len(request.column) != 1 or any(name != column.name for name, _ in request.comments):
        raise InvalidParameter("columns are added one by one", hint="upgrade Scumble")
    if column.name in table.schema:
        raise Exists(f"there is a column {column.name!r} already", hint="take another name")
    _check_words(column, request.words)
    schema = Schema((*table.schema.columns, column))
    wider = replace(table, schema=schema, comments=(*table.comments, *request.comments))
    runs = tuple(_with_column(version, wider, run, request.words) for run in table.runs)
    return _having(version, replace(wider, runs=runs))


def _check_words(column: Column, words: tuple[int, ...]) -> None:
    """Refuse what no row of a column could have. The words are PUBLIC: they are in every row alike."""
    small = len(words) == column.type.words + 1 and all(-(1 << 63) <= word < 1 << 63 for word in words)
    if small and words[-1] in (0, 1) and (words[-1] or (column.nullable and not any(words))):
        valid = np.full(1, words[-1], np.uint8)
        if kernels.is_set(ColumnCheck(column.type).fits(_row(words), valid)):
            return
    raise InvalidParameter(
        f"every row needs a value in the column {column.name!r} that it can hold",
        hint="let it be null, or give a DEFAULT that fits its type",
    )


def _row(words: tuple[int, ...]) -> Words:
    """The words of one row's value, [1, words]."""
    row = np.empty((1, len(words) - 1), np.int64)
    row[0] = words[:-1]
    return row


def _with_column(version: OpenVersion, table: Table, run: Run, words: tuple[int, ...]) -> Run:
    """A run with a layer over all of its pages that has the table's last column, the same value in every row.

    One that holds some columns only stays without it.
    """
    place = len(table.schema) - 1
    column, based = table.schema.columns[place], place if run.based is None else run.based
    if run.columns is not None:
        return replace(run, based=based)
    layer = LayerWriter(version.storage, version.keys, table, run, (place,), (0, run.pages))
    step = max(1, ADDED_ROWS // run.page_rows)
    for first in range(0, run.pages, step):
        rows = min(step, run.pages - first) * run.page_rows
        values = np.empty((rows, column.type.words), np.int64)
        values[:] = _row(words)
        valid = np.full(rows, words[-1], np.uint8) if column.nullable else None
        layer.write(place, first, values[:, 0] if column.type.words == 1 else values, valid)
    return replace(run, layers=(*run.layers, layer.finish()), based=based)


def _drop_column(version: OpenVersion, request: requests.DropColumn) -> OpenVersion:
    table = version.catalog.table(request.table)
    place, column = table.schema.place(request.column), table.schema[request.column]
    if column.name in table.attributes or column.name in map(column_of_term, table.terms):
        raise Exists(f"the column {column.name!r} has an index", hint=f"DROP INDEX {table.name}.{column.name} first")
    if len(table.schema) == 1:
        raise InvalidParameter("a table needs at least one column", hint="drop the table")
    schema = Schema(tuple(each for each in table.schema if each is not column))
    comments = tuple(each for each in table.comments if each[0] != column.name)
    narrower = replace(table, schema=schema, terms=request.terms, comments=comments)
    runs, dummies = [], {}
    for run in table.runs:
        reader, placed = version.reader(run.id)
        made = reseal_run(version.storage, narrower, run, reader, version.keys, without=place)
        runs.append(made)
        dummies[made.id] = placed
    return _having(version, replace(narrower, runs=_needed(tuple(runs))), dummies)


def _needed(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Without the copy in the order of loading, where another has all columns."""
    has_all = any(run.columns is None and run.attribute is not None for run in runs)
    return tuple(run for run in runs if run.tail or run.attribute is not None or not has_all)


# --- indexes -----------------------------------------------------------------------------------------


def _drop_index(version: OpenVersion, request: requests.DropIndex) -> OpenVersion:
    table = version.catalog.table(request.table)
    name = table.schema[request.column].name
    terms = tuple(term for term in table.terms if column_of_term(term) != name)
    if name not in table.attributes and terms == table.terms:
        raise NotFound(f"the table {table.name!r} has no index on {name!r}", hint="`scumble tables` shows what it has")
    others = any(run.columns is None and run.attribute != name for run in table.settled)
    runs = tuple(
        replace(run, attribute=None, index=None, tally=None) if run.attribute == name else run
        for run in table.runs
        if run.attribute != name or not (others or run.columns is not None)
    )
    return _having(version, replace(table, runs=runs, terms=terms))


def _set_terms(version: OpenVersion, request: requests.SetTerms) -> OpenVersion:
    return _having(version, replace(version.catalog.table(request.table), terms=request.terms))


# --- views -------------------------------------------------------------------------------------------


def _set_view(version: OpenVersion, request: requests.SetView) -> OpenVersion:
    views = {name.lower() for name, _ in version.manifest.access.views}
    if request.text:
        check_name(version, request.name)
        if len(views) >= MOST_VIEWS:
            raise InvalidParameter(f"there are {MOST_VIEWS} views", hint="drop those that nobody needs")
    elif request.name.lower() not in views:
        raise NotFound("there is no view of this name", hint="SELECT from a table instead")
    return version.viewing(request.name, request.text)


DEFINITIONS: dict[type[requests.Request[Any]], Callable[[OpenVersion, Any], OpenVersion]] = {
    requests.AddColumn: _add_column,
    requests.CreateTable: _create,
    requests.DropColumn: _drop_column,
    requests.DropIndex: _drop_index,
    requests.RenameColumn: _rename_column,
    requests.RenameTable: _rename,
    requests.SetTerms: _set_terms,
    requests.SetView: _set_view,
    requests.Truncate: _truncate,
}
