"""What a load costs and which rows a table takes, decided before anything is sent."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import scumble
from scumble.errors import InvalidParameter, NotFound
from scumble.index.file import decoded
from scumble.owner.indexes import IndexSpec
from scumble.owner.loading import LoadOptions, _spends
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Table


def schema(*columns: str) -> Schema:
    """Columns like `k integer not null`."""
    parts = [text.removesuffix(" not null").partition(" ") for text in columns]
    return Schema(
        tuple(
            Column(name, parse_type(kind), not text.endswith("not null"))
            for (name, _, kind), text in zip(parts, columns, strict=True)
        )
    )


@pytest.mark.parametrize("amount", ["0", "-1", "1/2000000", "257", "1024"])
def test_an_epsilon_that_no_index_can_be_built_for_is_refused_before_it_is_spent(amount: str) -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        IndexSpec.parse(f"k int:0:9 epsilon={amount} slack=paper").order()
    with pytest.raises(InvalidParameter, match=r"epsilon|delta"):
        _spends(Table("0a" * 16, "t", schema("k integer"), ()), [], LoadOptions(capacity_epsilon=amount), "0b" * 16)


@pytest.mark.parametrize(
    ("words", "chance"),
    [("mechanism=paper", 1e-6), ("mechanism=paper slack=paper", 1e-6), ("slack=paper mechanism=paper alpha_s=20", 1)],
)
def test_the_published_index_runs_inside_the_database(tmp_path: Path, words: str, chance: float) -> None:
    """With the paper's slack as it is printed nothing is promised, and EXPLAIN says so."""
    spec = IndexSpec.parse(f"k int:0:99 epsilon=1 {words}")
    assert IndexSpec.parse(f"k {spec.terms}") == spec
    with scumble.create(tmp_path / "d", limit=1) as db:
        keys = pa.array([n * n % 100 for n in range(3000)], pa.int64())
        db.load("t", pa.table({"k": keys}), indexes=[spec], capacity=4096)
        (run,) = db.table("t").runs
        assert run.index is not None
        assert decoded(run.index).mechanism == "paper"
        assert db.sql("SELECT count(*) FROM t WHERE k = 25").fetchall() == [(300,)]
        assert db.explain("SELECT count(*) FROM t WHERE k = 25").beta == chance


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        ("columns=k", ("k",)),
        ("columns=a,b blocks=2", ("a", "b")),
        ('columns="a b","c,d","e\\"f",g beta=0.1', ("a b", "c,d", 'e"f', "g")),
        ('columns="a epsilon=3"', ("a epsilon=3",)),
        ('columns="a beta=3",b slack=lossless', ("a beta=3", "b")),
    ],
)
def test_the_columns_of_an_index_are_read_as_they_are_written(words: str, columns: tuple[str, ...]) -> None:
    spec = IndexSpec.parse(f"k int:0:99 epsilon=1 {words}")
    assert (spec.epsilon, spec.columns) == ("1", columns)
    assert IndexSpec.parse(f"k {spec.terms}") == spec
    assert spec.order().columns == columns
    assert IndexSpec.parse(f"k {replace(spec, columns=()).terms}").columns == ("k",)


@pytest.mark.parametrize(
    "words", ["columns=", "columns=a,,b", "columns=a,", "columns=a, b", "columns=a columns=b", 'columns="a']
)
def test_columns_that_cannot_be_read(words: str) -> None:
    with pytest.raises(InvalidParameter):
        IndexSpec.parse(f"k int:0:99 epsilon=1 {words}")


def test_an_index_s_columns_are_those_of_its_table_and_its_own() -> None:
    spec, table = IndexSpec.parse("K int:0:99 epsilon=1 columns=B"), schema("a integer", "k integer", "b integer")
    assert (spec.within(table).column, spec.within(table).columns) == ("k", ("k", "b"))
    for columns, held in (
        ((), ("k",)),
        (("a", "b"), None),
        (("b", "k", "a"), None),
        (("a", "K"), ("a", "k")),
        (None, None),
    ):
        assert replace(spec, columns=columns).within(table).columns == held
    with pytest.raises(InvalidParameter, match="twice"):
        replace(spec, columns=("a", "A")).within(table)
    with pytest.raises(NotFound):
        replace(spec, columns=("c",)).within(table)


@pytest.mark.parametrize("words", ["mechanism=other", "slack=other", "alpha_s=8", "slack=paper alpha_s=0"])
def test_terms_that_there_are_not_are_refused(words: str) -> None:
    with pytest.raises(InvalidParameter):
        IndexSpec.parse(f"k int:0:99 epsilon=1 {words}").order()
