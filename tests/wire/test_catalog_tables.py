"""Catalogs: what tables and runs are called, how large they are, and that both stay the same as JSON."""

import pytest

from scumble.errors import NotFound, Tampered
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import TAG_BYTES, Catalog, Run, Table

SCHEMA = Schema(
    (Column("k", parse_type("integer"), nullable=False), Column("name", parse_type("text(20)"), nullable=True))
)


def run(batch: str, attribute: str | None, capacity: int = 64, page_rows: int = 16) -> Run:
    index = None if attribute is None else b"an index\x00"
    return Run(f"{batch}-{attribute}", batch, attribute, capacity, page_rows, index, ("aa", "bb"))


INDEXED = Table(
    "01" * 16,
    "Visits",
    SCHEMA,
    tuple(
        run(batch, by, size + more) for batch, size in (("a", 64), ("b", 32)) for by, more in (("k", 0), ("name", 16))
    ),
)
PLAIN = Table("02" * 16, "staff", SCHEMA, (run("a", None, 48),))
EMPTY = Table("03" * 16, "nobody", SCHEMA, ())
CATALOG = Catalog("0d" * 20, 7, "ef" * 32, (INDEXED, PLAIN, EMPTY), (), 2)


def test_a_table_s_capacity_is_that_of_the_runs_by_its_first_attribute() -> None:
    assert [table.capacity for table in CATALOG.tables] == [96, 48, 0]
    assert [table.attributes for table in CATALOG.tables] == [("k", "name"), (None,), ()]
    assert [each.batch for each in INDEXED.runs_by("name")] == ["a", "b"]


@pytest.mark.parametrize(("capacity", "pages"), [(1, 1), (15, 1), (16, 1), (17, 2), (64, 4)])
def test_a_run_has_whole_pages(capacity: int, pages: int) -> None:
    assert run("a", None, capacity).pages == pages


def test_a_page_takes_its_rows_and_a_tag() -> None:
    assert TAG_BYTES == 16
    assert [PLAIN.slot_bytes(column, 32) for column in (0, 1)] == [
        4 * SCHEMA.columns[column].page_row_bits + 16 for column in (0, 1)
    ]
    assert SCHEMA.columns[0].page_row_bits == 32


def test_tables_are_found_whatever_the_case_of_their_names() -> None:
    for name in ("Visits", "visits", "VISITS"):
        assert CATALOG.table(name) is INDEXED
        assert name in CATALOG
    for other in ("visit", "", None, 7):
        assert other not in CATALOG
    with pytest.raises(NotFound) as caught:
        CATALOG.table("visit")
    assert caught.value.hint == "the tables are Visits, staff, nobody"


def test_a_catalog_is_the_same_as_json_and_one_of_release_0_1_has_defaults() -> None:
    fields = CATALOG.to_json()
    again = Catalog.from_json(fields)
    assert again.to_json() == fields
    assert [each.index for each in again.tables[0].runs] == [b"an index\x00"] * 4
    assert again.tables[1].runs[0].index is None
    old = Catalog.from_json({name: value for name, value in fields.items() if name not in ("restores", "titles")})
    assert (old.restores, old.titles) == (0, ())
    assert Catalog("0d" * 20, 1, "", ()).restores == 0


def test_widths_that_the_schema_does_not_have_are_refused() -> None:
    fields = PLAIN.to_json()
    assert fields["row_bits"] == [column.page_row_bits for column in SCHEMA]
    for widths in ([32], [32, 160], [40, *fields["row_bits"][1:]], []):
        with pytest.raises(Tampered):
            Table.from_json(fields | {"row_bits": widths})
    for widths in ([4], [4, 20], [8, 21], []):
        with pytest.raises(Tampered):
            Table.from_json(fields | {"row_bytes": widths})


def test_release_0_1_stated_no_widths_and_later_versions_stated_bytes() -> None:
    """Both are read, the bytes only if they are the schema's."""
    schema = Schema(tuple(Column(name, parse_type("bigint"), nullable=False) for name in ("k", "name")))
    fields = Table("02" * 16, "staff", schema, (run("a", None),)).to_json()
    del fields["row_bits"]
    assert Table.from_json(fields).name == "staff"
    assert Table.from_json(fields | {"row_bytes": [8, 8]}).name == "staff"
    with pytest.raises(Tampered):
        Table.from_json(fields | {"row_bytes": [8, 9]})
