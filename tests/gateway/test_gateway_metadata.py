"""What drivers ask before any query: catalogs, tables, columns, types, keys, and what the gateway can do."""

import json
from typing import Any

import pyarrow as pa
import pytest
from gateway_setup import TABLE, Bare, connect, cursor

from scumble import __version__
from scumble.gateway.messages import new
from scumble.gateway.server import Gateway

DATABASE_HEADER = "adbc.flight.sql.rpc.call_header.database"


def test_objects_are_listed_down_to_their_columns(gateway: Gateway) -> None:
    with connect(gateway) as connection:
        catalogs = connection.adbc_get_objects().read_all().to_pylist()
    assert [catalog["catalog_name"] for catalog in catalogs] == ["clinic", "shop"]
    (schema,) = catalogs[0]["catalog_db_schemas"]
    assert schema["db_schema_name"] == "main"
    (table,) = schema["db_schema_tables"]
    assert (table["table_name"], table["table_type"]) == ("visits", "TABLE")
    assert [column["column_name"] for column in table["table_columns"]] == TABLE.column_names
    assert table["table_columns"][3]["xdbc_type_name"] == "decimal(12,2)"
    assert table["table_constraints"] == []


def test_objects_are_filtered(gateway: Gateway) -> None:
    with connect(gateway) as connection:
        found = connection.adbc_get_objects(depth="tables", catalog_filter="sh%", table_name_filter="word_")
        (catalog,) = found.read_all().to_pylist()
        none = connection.adbc_get_objects(depth="tables", table_name_filter="x%").read_all().to_pylist()
    tables = catalog["catalog_db_schemas"][0]["db_schema_tables"]
    assert [table["table_name"] for table in tables] == ["words", "wordy"]
    assert not any(schema["db_schema_tables"] for one in none for schema in one["catalog_db_schemas"])


def test_a_tables_schema_is_the_one_it_has(gateway: Gateway) -> None:
    with connect(gateway) as connection:
        assert connection.adbc_get_table_schema("visits") == TABLE.schema
        word = connection.adbc_get_table_schema("words", catalog_filter="shop", db_schema_filter="main").field("word")
        with pytest.raises(Exception, match="No table found"):
            connection.adbc_get_table_schema("nothing")
        assert connection.adbc_get_table_types() == ["TABLE"]
    assert word.metadata[b"ARROW:FLIGHT:SQL:CATALOG_NAME"] == b"shop"


def test_it_says_what_it_is(gateway: Gateway) -> None:
    with connect(gateway) as connection:
        info = connection.adbc_get_info()
    assert info["vendor_name"] == "Scumble gateway"
    assert info["vendor_version"] == __version__


def test_it_says_that_it_has_transactions(gateway: Gateway) -> None:
    with Bare(gateway) as bare:
        everything = bare.ask(new("CommandGetSqlInfo"))
        some = bare.ask(new("CommandGetSqlInfo", info=[3, 8, 9, 563, 9999]))
    facts = dict(zip(some["info_name"].to_pylist(), some["value"].to_pylist(), strict=True))
    assert facts == {3: False, 8: 1, 9: True, 563: True}
    assert {0, 504, 531, 576} <= set(everything["info_name"].to_pylist())


@pytest.mark.parametrize(
    ("pattern", "tables"),
    [
        ("word_", ["words", "wordy"]),
        ("w%", ["words", "wordy"]),
        ("%y", ["wordy"]),
        ("words", ["words"]),
        ("word\\_", []),
        ("", []),
        ("%", ["words", "wordy"]),
        ("w.*", []),
    ],
)
def test_patterns_of_names(gateway: Gateway, pattern: str, tables: list[str]) -> None:
    with Bare(gateway) as bare:
        found = bare.ask(new("CommandGetTables", catalog="shop", table_name_filter_pattern=pattern))
    assert found["table_name"].to_pylist() == tables


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 3),
        ({"catalog": "clinic"}, 1),
        ({"catalog": ""}, 0),
        ({"db_schema_filter_pattern": "ma%"}, 3),
        ({"db_schema_filter_pattern": "other"}, 0),
        ({"table_types": ["VIEW"]}, 0),
        ({"table_types": ["VIEW", "TABLE"]}, 3),
        ({"include_schema": True}, 3),
    ],
)
def test_tables_are_filtered_as_the_specification_says(gateway: Gateway, fields: dict[str, Any], count: int) -> None:
    with Bare(gateway) as bare:
        found = bare.ask(new("CommandGetTables", **fields))
    assert len(found) == count
    assert ("table_schema" in found.column_names) == ("include_schema" in fields)


def test_catalogs_schemas_keys_and_types_have_the_columns_of_the_specification(gateway: Gateway) -> None:
    with Bare(gateway) as bare:
        assert bare.ask(new("CommandGetCatalogs")).to_pydict() == {"catalog_name": ["clinic", "shop"]}
        schemas = bare.ask(new("CommandGetDbSchemas", catalog="shop"))
        assert schemas.to_pylist() == [{"catalog_name": "shop", "db_schema_name": "main"}]
        assert len(bare.ask(new("CommandGetPrimaryKeys", table="visits"))) == 0
        for name in ("CommandGetExportedKeys", "CommandGetImportedKeys"):
            assert bare.ask(new(name, table="visits")).num_columns == 13
        assert bare.ask(new("CommandGetCrossReference", pk_table="a", fk_table="b")).num_columns == 13
        types = bare.ask(new("CommandGetXdbcTypeInfo"))
        only = bare.ask(new("CommandGetXdbcTypeInfo", data_type=12))
    codes = types["data_type"].to_pylist()
    assert codes == sorted(codes)
    assert only["type_name"].to_pylist() == ["VARCHAR"]


def test_get_schema_answers_without_running(gateway: Gateway) -> None:
    with Bare(gateway) as bare:
        assert bare.schema(new("CommandGetTableTypes")).names == ["table_type"]
        query = new("CommandStatementQuery", query="SELECT id, name FROM visits")
        assert bare.schema(query) == pa.schema({"id": pa.int32(), "name": pa.string()})
    assert len(gateway.results) == 0


def test_a_query_goes_to_the_database_that_the_call_or_the_query_names(gateway: Gateway) -> None:
    count = "SELECT count(*) FROM {}"
    with cursor(gateway, **{DATABASE_HEADER: "shop"}) as asked:
        assert asked.execute(count.format("words")).fetchone() == (3,)
        assert asked.execute(count.format("clinic.main.visits")).fetchone() == (400,)
    with cursor(gateway) as asked:
        assert asked.execute(count.format("visits")).fetchone() == (400,)
        assert asked.execute(count.format('"shop"."main"."words"')).fetchone() == (3,)
        assert asked.execute("SELECT w.word FROM shop.words AS w WHERE w.id = ?", (2,)).fetchone() == ("two",)
        assert asked.execute("SELECT 'shop.words' AS t, 1.5 AS x").fetchone()[0] == "shop.words"
        named = "WITH words AS (SELECT 1 AS id) SELECT count(*) FROM shop.main.words"
        assert asked.execute(named).fetchone() == (3,)
        with pytest.raises(Exception, match="names two databases"):
            asked.execute("SELECT * FROM shop.words JOIN clinic.visits USING (id)")
        with pytest.raises(Exception, match="there is no table"):
            asked.execute("SELECT * FROM elsewhere.main.visits")
    with cursor(gateway, **{DATABASE_HEADER: "nowhere"}) as asked, pytest.raises(Exception, match="no such database"):
        asked.execute(count.format("visits"))


def test_the_current_catalog_is_told_and_not_changed_behind_the_back(gateway: Gateway) -> None:
    with connect(gateway) as connection:
        assert connection.adbc_current_catalog == "clinic"
        assert connection.adbc_current_db_schema == "main"
        connection.adbc_current_catalog = "clinic"
        with pytest.raises(Exception, match="invalid value"):
            connection.adbc_current_catalog = "shop"
    with connect(gateway, **{DATABASE_HEADER: "shop"}) as connection:
        assert connection.adbc_current_catalog == "shop"


def test_the_actions_are_listed(gateway: Gateway) -> None:
    with Bare(gateway) as bare:
        names = [action.type for action in bare.client.list_actions(bare.options)]
        assert list(bare.client.list_flights(b"", bare.options)) == []
    assert {"CreatePreparedStatement", "ClosePreparedStatement", "CancelFlightInfo"} <= set(names)
    json.dumps(names)
