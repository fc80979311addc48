"""docs/sql.md says where each feature runs: every example of it is planned here, and is what it says."""

from pathlib import Path

import duckdb
import pytest
from sql_tables import catalog_of, duck, evaluate, small_table

from scumble.errors import QueryError
from scumble.sql import AggregateQuery, RowQuery, prepare

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
TABLE = small_table()
CATALOG = catalog_of(TABLE)


def examples() -> list[tuple[str, str, str]]:
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 3 and cells[1] in ("enclave", "owner", "refused"):
            found.append((cells[0].strip("| "), cells[1], cells[2].strip("` |")))
    return found


EXAMPLES = examples()


@pytest.fixture(scope="module")
def plain() -> duckdb.DuckDBPyConnection:
    return duck(TABLE)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) > 50
    assert {where for _, where, _ in EXAMPLES} == {"enclave", "owner", "refused"}


@pytest.mark.parametrize(("feature", "where", "sql"), EXAMPLES, ids=[feature for feature, _, _ in EXAMPLES])
def test_example(plain: duckdb.DuckDBPyConnection, feature: str, where: str, sql: str) -> None:
    if where == "refused":
        with pytest.raises(QueryError):
            prepare(sql, CATALOG, evaluate)
        return
    bound = prepare(sql, CATALOG, evaluate).bind()
    plain.execute(sql)
    assert isinstance(bound.query, AggregateQuery if where == "enclave" else RowQuery)
