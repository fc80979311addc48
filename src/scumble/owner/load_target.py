"""What a load goes into: a table that is there, or a new one as it is declared, with the indexes that it has to have.

In come a catalog, a source and what the owner declares; out come the rows as the table has them, and the table. All
that is decided here is PUBLIC: no row has a say in it, and what contradicts a table that is there is refused.
"""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scumble.errors import Exists, InvalidParameter
from scumble.owner.indexes import IndexSpec
from scumble.owner.sources import open_source
from scumble.types import Schema, check_convertible, check_stated, parse_type, split_nullability
from scumble.wire.catalog import Catalog, Table

if TYPE_CHECKING:
    from scumble.owner.loading import LoadOptions

__all__ = ["indexes_of", "open_rows"]


def open_rows(
    catalog: Catalog, name: str, source: object, indexes: Sequence[IndexSpec], options: "LoadOptions"
) -> tuple[Any, Table]:
    """The source's batches, and the table that they go into: one that is there, or a new one as it is declared.

    The schema is public. It is the table's, or else made of declarations alone: no row has a say in it.
    """
    domains = {spec.column: spec.domain for spec in indexes}
    table = _existing(catalog, name, options)
    types = options.declared_types(source, domains) if table is None else _declarations(table.schema)
    rows = open_source(source, query=options.query, types=types, domains=domains)
    try:
        if table is None:
            _check_lines(rows.schema.names, options)
            table = Table(uuid.uuid4().hex, name, _ordered(rows.declared(types, domains), options), ())
        arranged = rows.arranged(table.schema)
        by_name = {column.lower(): domain for column, domain in domains.items()}
        for column, field in zip(table.schema, arranged.schema, strict=True):
            check_convertible(column, field.type)
            check_stated(column, by_name.get(column.name.lower()))
    except BaseException:
        rows.close()
        raise
    return arranged, table


def _existing(catalog: Catalog, name: str, options: "LoadOptions") -> Table | None:
    """The table of that name, if there is one; refused if what is declared now contradicts it."""
    if not name.isidentifier() or len(name) > 64:
        raise InvalidParameter(
            "a table's name is a word of letters, digits and underscores", hint="flights_2013, for example"
        )
    if name not in catalog:
        return None
    table = catalog.table(name)
    for column, text in options.declared.items():
        type_, nullable = split_nullability(text)
        there = table.schema[column]
        if (type_ and parse_type(type_).declaration != there.type.declaration) or (there.nullable and not nullable):
            raise Exists(
                f"the table {name!r} is there, and its column {there.name!r} is declared otherwise",
                hint="declare nothing for it: the table's own types hold. Or load into a table of another name",
            )
    return table


def _declarations(schema: Schema) -> dict[str, str]:
    return {column.name: column.declaration for column in schema}


def _check_lines(names: Sequence[str], options: "LoadOptions") -> None:
    """Refuse a schema file that does not name every column of the rows."""
    if options.schema_file is None:
        return
    declared = {name.lower() for name in options.declared}
    missing = [name for name in names if name.lower() not in declared]
    if missing:
        raise InvalidParameter(
            f"the schema has no line for the column {missing[0]!r}", hint="add one, or leave the column out of the rows"
        )


def _ordered(schema: Schema, options: "LoadOptions") -> Schema:
    """The columns in the order of the schema file, if the owner gave one."""
    if options.schema_file is None:
        return schema
    return Schema(tuple(replace(schema[name], name=name) for name in options.declared))


def indexes_of(table: Table, indexes: Sequence[IndexSpec]) -> list[IndexSpec]:
    """The indexes under their columns' own names, in the order that the table has them in.

    Those that are not stated are as they were declared.
    """
    named = {spec.column: spec for spec in (each.within(table.schema) for each in indexes)}
    if len(named) < len(indexes):
        raise InvalidParameter("a column is indexed twice", hint="one index for each column is enough")
    declared = {spec.column: spec for spec in map(IndexSpec.parse, table.terms)}
    if table.settled:
        there = [attribute for attribute in table.attributes if attribute is not None]
        named = {name: spec for name, spec in declared.items() if name in there} | named
        others = set(there) != set(named)
    else:
        there, named = list(declared), named or declared
        others = not set(there).issubset(named)
    if others:
        raise Exists(
            f"the table {table.name!r} is there, and has other indexes",
            hint=f"a batch needs an index on each of {', '.join(there)}" if there else "its batches have no index",
        )
    for attribute, places in table.copies:
        held = None if places is None else tuple(table.schema.columns[place].name for place in places)
        if attribute is not None and named[attribute].columns != held:
            raise Exists(
                f"the table {table.name!r} is there, and its index on {attribute!r} holds other columns",
                hint="its copies hold all columns" if held is None else f"columns={','.join(held)}",
            )
    return [named[name] for name in dict.fromkeys((*there, *named))]
