"""The sizes that a manifest states: as the schema has them, today's manifests and those of release 0.1 alike."""

import json

import pytest
from store_databases import CATALOG_0_1, SCHEMA, manifest

from scumble.errors import Tampered
from scumble.store.manifests import _row_bytes_0_1, stated_shapes
from scumble.types import Column, ColumnType, Schema, parse_type
from scumble.wire.catalog import Table
from scumble.wire.storage import pack

DECLARED = [
    *("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint"),
    *(f"decimal({digits},1)" for digits in range(1, 19)),
    *(f"text({most})" for most in (1, 8, 9, 1000)),
    *(f"category({json.dumps([f'{number:05d}' for number in range(count)])})" for count in (1, 128, 129, 32768, 32769)),
    *("boolean", "date", "time", "timestamp_ns", "timestamp with time zone", "double", "float"),
]


def _type_0_1(declared: str) -> ColumnType:
    """A type as release 0.1 stated it: without what later ones add."""
    return ColumnType.from_json(
        {name: part for name, part in parse_type(declared).to_json().items() if name != "narrow"}
    )


@pytest.mark.parametrize("nullable", [False, True])
def test_the_widths_of_release_0_1_are_those_that_it_wrote(nullable: bool) -> None:
    schema = Schema(tuple(Column(f"c{place}", _type_0_1(text), nullable, False) for place, text in enumerate(DECLARED)))
    assert list(map(_row_bytes_0_1, schema.to_json())) == [column.page_row_bits / 8 for column in schema]


def test_a_manifest_without_widths_has_the_same_shapes() -> None:
    assert stated_shapes(pack(json.dumps(CATALOG_0_1).encode(), b"", b"signed")) == stated_shapes(
        manifest(1, {"ab": 3, "cd": 2})
    )


def test_widths_alone_say_how_large_a_run_is() -> None:
    catalog = json.loads(json.dumps(CATALOG_0_1))
    catalog["tables"][0] |= {"row_bytes": [3, 70], "schema": "of types that this release has never heard of"}
    expected = ((0, 16 * 3 + 16, 3), (3 * (16 * 3 + 16), 16 * 70 + 16, 3))
    assert stated_shapes(pack(json.dumps(catalog).encode(), b"", b"signed"))[1]["ab"].columns == expected
    del catalog["tables"][0]["row_bytes"]
    catalog["tables"][0]["row_bits"] = [24, 560]
    assert stated_shapes(pack(json.dumps(catalog).encode(), b"", b"signed"))[1]["ab"].columns == expected
    catalog["tables"][0]["row_bits"] = [25, 561]
    slots = [slot for _, slot, _ in stated_shapes(pack(json.dumps(catalog).encode(), b"", b"signed"))[1]["ab"].columns]
    assert slots == [16 * 3 + 2 + 16, 16 * 70 + 2 + 16]


@pytest.mark.parametrize("stated", [[0, 8], [-8, 8], [True, 8], ["8", 8], [8.0, 8], [], None, 8])
@pytest.mark.parametrize("unit", ["row_bits", "row_bytes"])
def test_widths_that_are_none_are_tampered_with(unit: str, stated: object) -> None:
    catalog = json.loads(json.dumps(CATALOG_0_1))
    catalog["tables"][0][unit] = stated
    with pytest.raises(Tampered):
        stated_shapes(pack(json.dumps(catalog).encode(), b"", b"signed"))


def test_a_row_of_bits_that_fill_no_bytes_is_tampered_with() -> None:
    catalog = json.loads(json.dumps(CATALOG_0_1))
    catalog["tables"][0]["row_bits"] = [65, 32, 8]
    catalog["tables"][0]["runs"][0]["page_rows"] = 12
    with pytest.raises(Tampered):
        stated_shapes(pack(json.dumps(catalog).encode(), b"", b"signed"))


def test_a_run_has_no_room_for_columns_that_it_lacks() -> None:
    catalog = json.loads(json.dumps(CATALOG_0_1))
    catalog["tables"][0]["row_bytes"] = [3, 70]
    for columns, expected in (([1], ((0, 64, 0), (0, 1136, 3))), ([0], ((0, 64, 3), (192, 1136, 0)))):
        catalog["tables"][0]["runs"][0]["columns"] = columns
        shape = stated_shapes(pack(json.dumps(catalog).encode(), b"", b"signed"))[1]["ab"]
        assert shape.columns == expected
        assert shape.tags_bytes == 3 * 16
    for wrong in (None, 5):
        catalog["tables"][0]["runs"][0]["columns"] = wrong
        with pytest.raises(Tampered):
            stated_shapes(pack(json.dumps(catalog).encode(), b"", b"signed"))


def test_widths_that_are_not_the_schemas_are_tampered_with() -> None:
    fields = Table("t0", "t", SCHEMA, ()).to_json()
    assert Table.from_json(fields).schema == SCHEMA
    for stated in ([8, 5, 2], [8, 5], [], None):
        with pytest.raises(Tampered):
            Table.from_json(fields | {"row_bytes": stated})
    for stated in ([64, 40, 17], [64, 33], [], None):
        with pytest.raises(Tampered):
            Table.from_json(fields | {"row_bits": stated})
