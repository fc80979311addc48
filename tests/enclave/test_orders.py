"""What a loader orders, who may be hostile: refused when the load begins, or it can be built."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from enclave_tables import KEYS, MemoryStorage, table_of
from enclave_visitors import BOB, Clinic, clinic, load_request, text_of
from hypothesis import given, settings
from hypothesis import strategies as st

from scumble.enclave import orders
from scumble.enclave.grants import Cost
from scumble.enclave.loads import Load
from scumble.enclave.orders import blocks_of, check_orders
from scumble.errors import Exists, InvalidParameter, NotFound, Overdraft, ScumbleError
from scumble.index.blocks import suitable_blocks
from scumble.index.file import MECHANISMS, decode
from scumble.index.hint import Hint
from scumble.index.slack import SLACKS
from scumble.owner.database import Database
from scumble.types import IntegerDomain
from scumble.wire.requests import Abandon, IndexOrder, RowLayout

NOTHING = Cost.of((), (Fraction(0), Fraction(0)))
BETA = Fraction(1, 10**6)
ORDER = IndexOrder("c0", IntegerDomain(0, 99), Fraction(1), Fraction(0), BETA, 1, 4096, "measured")
HINT = Hint.of_counts(np.ones(100, np.int64)).packed
BAD: list[dict[str, Any]] = [
    *({"blocks": blocks} for blocks in (-1, 0, 13, 33, 1 << 40)),  # of 100 ranks, no more than 12 blocks have 8
    {"blocks": 4, "max_bytes": 120},
    {"blocks": 2, "mechanism": "paper"},
    {"blocks": 2, "slack": "paper"},
    {"blocks": 4, "slack": "lossless", "delta": Fraction(1, 10**9)},
    {"slack": "lossless"},
    {"alpha_s": Fraction(8)},
    {"alpha_s": Fraction(0), "slack": "paper"},
    {"mechanism": "none"},
    *({"max_bytes": size} for size in (-1, 0, 40)),
    *({"beta": beta} for beta in (Fraction(-1), Fraction(0), Fraction(1), Fraction(1, 10**301))),
    *({"epsilon": epsilon} for epsilon in (Fraction(1, 2**21), Fraction(257))),
    *({"rows_per_user": rows} for rows in (-1, 0, 2**21)),
    {"delta": Fraction(1)},
    *({"hint": hint} for hint in (b"", b"no hint", HINT[:-1], Hint.of_counts(np.ones(99, np.int64)).packed)),
    *({"hint": HINT, other: "paper"} for other in ("mechanism", "slack")),
]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Clinic, Database]]:
    with clinic(tmp_path) as made:
        yield made


def test_a_hostile_loader_s_order_is_refused_before_anything_is_paid(both: tuple[Clinic, Database]) -> None:
    """At the first request: no row is taken, nothing of the allotment used, and no room made at the provider."""
    made, owner = both
    owner.grant("bob", text_of(BOB), {"visits": ["load"]}, epsilon=90, delta="1e-4")
    session, version = made.opened(BOB), owner.version
    good = load_request(owner, "visits")
    runs = sorted((made.home / "db").rglob("*"))
    columns: list[dict[str, Any]] = [
        {"columns": names} for names in ((), ("v",), ("k", "k"), ("k", "x"), ("k", "V"), ("k",))
    ]
    for changes in (*BAD, *columns):  # the last would be right, but for the table's other batches
        with pytest.raises((InvalidParameter, Overdraft, NotFound, Exists)):
            session.ask(replace(good, orders=(replace(good.orders[0], **changes),)))
        with pytest.raises(InvalidParameter, match="no load is under way"):
            session.send_rows(np.zeros((16, 4), np.int64))
    session.ask(good)
    with made.store.writer():
        session.ask(Abandon())
    assert owner.version == version
    assert [(grant.used_epsilon, grant.used_delta) for grant in owner.grants()] == [(Fraction(0), Fraction(0))]
    assert sorted((made.home / "db").rglob("*")) == runs


@pytest.mark.parametrize("changes", BAD, ids=str)
def test_each_of_them_alone(changes: dict[str, Any]) -> None:
    check_orders((ORDER,))
    with pytest.raises(InvalidParameter):
        check_orders((ORDER, replace(ORDER, **changes)))


def _built(order: IndexOrder, rows: int) -> tuple[int, int]:
    """Build an index on that order; its blocks, and the run's capacity."""
    table, layout = table_of("integer not null"), RowLayout(table_of("integer not null").schema, (order.domain.size,))
    words = np.zeros((rows, layout.words), np.int64)
    words[:, 0] = words[:, 1] = np.arange(rows) % order.domain.size
    load = Load(MemoryStorage(), table, (order,), 16, 1 << 24, "ba" * 16, NOTHING)
    load.append(memoryview(words.tobytes()))
    load.reserve(KEYS, rows)
    ((run, _),) = load.build(rows)
    assert run.index is not None
    blocks = decode(run.index).blocks
    return 1 if blocks is None else len(blocks), run.capacity


AMOUNTS = st.sampled_from([Fraction(0), *(Fraction(part, 10**power) for part in (1, 7) for power in (0, 3, 6, 9))])


@settings(max_examples=120, deadline=None)
@given(
    st.builds(
        IndexOrder,
        attribute=st.just("c0"),
        domain=st.integers(1, 400).map(lambda size: IntegerDomain(0, size - 1)),
        epsilon=st.fractions(Fraction(1, 50), 300, max_denominator=1000),
        delta=AMOUNTS,
        beta=AMOUNTS,
        rows_per_user=st.integers(0, 5),
        max_bytes=st.none() | st.integers(100, 900) | st.just(4096),
        slack=st.sampled_from(sorted(SLACKS)),
        mechanism=st.sampled_from(sorted(MECHANISMS)),
        alpha_s=st.none() | st.just(Fraction(8)),
        blocks=st.none() | st.integers(0, 34),
    ),
    st.sampled_from([16, 992, 20_000]),
)
def test_what_is_not_refused_at_the_beginning_is_built(order: IndexOrder, rows: int) -> None:
    try:
        check_orders((order,))
    except ScumbleError:
        return
    blocks, capacity = _built(order, rows)
    assert capacity >= rows
    assert blocks == blocks_of(order, rows, nullable=False)


def test_an_order_whose_rows_would_get_more_blocks_than_fit_is_refused_for_any_rows() -> None:
    """Terms that take many bytes of the file leave room for one block's segments, and not for those of the largest."""
    long = Fraction(10**130 + 1, 10**130)
    order = replace(ORDER, domain=IntegerDomain(0, 2**20 - 1), epsilon=long, max_bytes=640, beta=long / 10**7)
    assert blocks_of(order, 1 << 36, nullable=False) > 1
    with pytest.raises(InvalidParameter, match="no room"):
        check_orders((order,))
    check_orders((replace(order, blocks=1),))


def test_an_order_is_checked_for_one_block_and_for_as_many_as_a_column_without_nulls_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With nulls there are never more."""
    order = replace(ORDER, domain=IntegerDomain(0, 2**20 - 1), epsilon=Fraction(1, 2**20), max_bytes=None)
    most, fewer = (blocks_of(order, 2**36 - 1, nullable=nullable) for nullable in (False, True))
    assert most > fewer > 1
    checked, asked = [], orders._asked

    def listen(order: IndexOrder, blocks: int) -> Any:
        checked.append(blocks)
        return asked(order, blocks)

    monkeypatch.setattr(orders, "_asked", listen)
    check_orders((order, replace(order, blocks=5)))
    assert sorted(checked) == [1, 5, most]


@pytest.mark.parametrize("nullable", [False, True])
def test_the_terms_for_one_row_say_how_many_blocks_suit(nullable: bool) -> None:
    order = replace(ORDER, domain=IntegerDomain(0, 2**20 - 1), epsilon=Fraction(3), rows_per_user=3)
    suitable = suitable_blocks(2**20, 10**5, Fraction(1), BETA, 4096, nullable=nullable)
    assert 1 < blocks_of(order, 10**5, nullable=nullable) == suitable < 32
    given: list[tuple[dict[str, Any], int]] = [({"blocks": 1}, 1), ({"blocks": 7}, 7)]
    for changes, blocks in (*given, ({"slack": "paper"}, 1), ({"mechanism": "paper"}, 1)):
        assert blocks_of(replace(order, **changes), 10**5, nullable=nullable) == blocks
