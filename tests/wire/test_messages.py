"""Requests, jobs and calls: the wire stays as it was, and a wrong field is refused by its name."""

import json
from dataclasses import FrozenInstanceError
from fractions import Fraction
from typing import Any

import pytest

from scumble.enclave.sessions import _HANDLERS
from scumble.errors import InvalidParameter
from scumble.types import Column, Schema, parse_domain, parse_type
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant
from scumble.wire.lineage import Title
from scumble.wire.messages import from_fields, from_list, read_fraction, to_list
from scumble.wire.pipe import Call, CreateRun, FinishRun, Greet, Job, Rank, ReadPages, Relay, Share, unpack_answer
from scumble.wire.plan import Aggregate, Aggregates, Constant, Plan
from scumble.wire.requests import (
    Abandon,
    AddColumn,
    AddGrant,
    BeginFlush,
    BeginLoad,
    Build,
    CheckChain,
    CheckPages,
    Commit,
    Create,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    Follow,
    ForgetPlans,
    IndexOrder,
    ListGrants,
    Look,
    Merge,
    Open,
    Pay,
    Prepare,
    RenameColumn,
    RenameTable,
    Request,
    Reseal,
    Reserve,
    Restore,
    RevokeGrant,
    Rollback,
    SetPolicy,
    SetTerms,
    Settle,
    SetView,
    Truncate,
    Upgrade,
    Vacuum,
    pack_request,
    request_kind,
)

ORDER = IndexOrder("k", parse_domain("int:0:9"), Fraction(1, 3), Fraction(0), Fraction(1, 10), 1, None, "measured")
ZERO = Fraction(0), Fraction(0)
SCHEMA = Schema((Column("k", parse_type("integer"), nullable=True),))
LOAD = BeginLoad("ba" * 16, ZERO, "t", "ab" * 16, SCHEMA, (ORDER,), 16, 1 << 20)
TITLE = Title(1, bytes(32), bytes(32), b"n", (bytes(64),))
GRANT = Grant("0" * 16, "ada", bytes(32), {"t": frozenset(["read"])}, salt=b"s", signature=bytes(64))
REQUESTS: list[Request[Any]] = [
    Create(TITLE),
    Upgrade(TITLE, (GRANT,), 1),
    Follow((0, 7, "00" * 32), bytes(32)),
    Open((0, 7, "00" * 32), bytes(32)),
    Open(None),
    CheckChain(),
    CheckPages("ab" * 16, 0, 1, 2),
    DropTable("t"),
    Restore(1, ("0" * 16,), (("1" * 16, Fraction(1, 3), Fraction(0)),)),
    Commit(bytes(64)),
    Reseal(bytes(32), TITLE, (GRANT,)),
    AddGrant(GRANT, rehearsed=True),
    RevokeGrant("ada"),
    ListGrants(),
    SetPolicy(b"policy"),
    Prepare(Plan("t", (Constant(True),), Aggregates((Aggregate("count", None),)))),
    ForgetPlans(),
    Look(),
    Merge("t", ("ab" * 16, "cd" * 16)),
    Vacuum("t"),
    BeginFlush("ba" * 16, "t", (ORDER,), 16, 1 << 20),
    Settle(2),
    Rollback(),
    CreateTable("t", "ab" * 16, SCHEMA, ("k int:0:9 epsilon=1",), (("k", "a key"),)),
    Truncate("t"),
    RenameTable("t", "u"),
    RenameColumn("t", "k", "j", ("j int:0:9 epsilon=1",)),
    AddColumn("t", SCHEMA, (0, 0)),
    DropColumn("t", "k"),
    DropIndex("t", "k"),
    SetTerms("t", ()),
    SetView("v", '"v" AS (SELECT 1)'),
    LOAD,
    Reserve(16),
    Pay("ba" * 16, (Charge("ba" * 16, "ab" * 16, "k", Fraction(1, 3), Fraction(0), 1, new_rows=False),)),
    Build(3, "ba" * 16),
    Abandon(),
]


def _read(packed: bytes) -> Request[Any]:
    kind, fields = request_kind(memoryview(packed)[1:])
    assert kind is not None
    return from_fields(kind, fields)


@pytest.mark.parametrize("asked", REQUESTS, ids=lambda asked: asked.task)
def test_a_request_is_read_as_it_was_written(asked: Request[Any]) -> None:
    assert _read(pack_request(asked)) == asked


def test_every_request_has_a_handler_and_a_test() -> None:
    assert set(Request.kinds.values()) == set(_HANDLERS) == set(map(type, REQUESTS))


def test_the_wire_of_a_load_and_of_an_opening() -> None:
    packed = pack_request(LOAD)
    assert len(packed) % 256 == 0
    assert json.loads(packed[1:]) == {
        "task": "load",
        "batch": "ba" * 16,
        "capacity_cost": ["0", "0"],
        "table": "t",
        "table_id": "ab" * 16,
        "schema": LOAD.schema.to_json(),
        "orders": [
            {
                "attribute": "k",
                "domain": "int:0:9",
                "epsilon": "1/3",
                "delta": "0",
                "beta": "1/10",
                "rows_per_user": 1,
                "max_bytes": None,
                "slack": "measured",
                "mechanism": "scumble",
                "alpha_s": None,
                "blocks": None,
                "columns": None,
                "hint": None,
                "plan": None,
                "grid": None,
            }
        ],
        "page_rows": 16,
        "memory_bytes": 1 << 20,
        "tail": False,
        "instead": [],
        "beside": False,
        "terms": None,
    }
    assert _read(b'J{"task": "open", "anchor": null}') == Open(None)  # as a client writes it that expects no owner
    assert to_list(ReadPages("ab", 1, 2, 3, 4)) == ["read", "ab", 1, 2, 3, 4]
    assert to_list(CreateRun("ab", ((1, 16),))) == ["create_run", "ab", [[1, 16]]]
    assert to_list(Relay(5)) == ["request", 5]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"real_rows": 3}, "batch"),
        ({"real_rows": 3, "batch": "b", "more": 1}, "more"),
        ({"real_rows": "3", "batch": "b"}, "real_rows"),
        ({"real_rows": True, "batch": "b"}, "real_rows"),
        ({"real_rows": 3, "batch": None}, "batch"),
        ({"real_rows": 3, "batch": {"deep": [4711]}}, "batch"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name_and_never_with_its_value(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameter, match=f"Build.*'{named}'") as refused:
        from_fields(Build, fields)
    assert "4711" not in str(refused.value)


@pytest.mark.parametrize(
    ("task", "change", "named"),
    [
        ("load", {"orders": [{"attribute": "k"}]}, "IndexOrder.*'domain'"),
        ("load", {"orders": [5]}, "IndexOrder"),
        ("load", {"capacity_cost": ["0"]}, "'capacity_cost'"),
        ("load", {"capacity_cost": ["1/0", "0"]}, "'capacity_cost'"),
        ("load", {"capacity_cost": [0.5, "0"]}, "'capacity_cost'"),
        ("load", {"schema": 5}, "'schema'"),
        ("open", {"anchor": [1]}, "'anchor'"),
        ("open", {"anchor": ["1", "00"]}, "'anchor'"),
        ("open", {"owner": "no hex"}, "'owner'"),
        ("prepare", {"plan": {}}, "'plan'"),
        ("grant", {"grant": {}}, "'grant'"),
        ("reseal", {"owner": 7}, "'owner'"),
    ],
)
def test_what_is_within_a_field_is_checked_too(task: str, change: dict[str, Any], named: str) -> None:
    asked = next(each for each in REQUESTS if each.task == task)
    fields = json.loads(pack_request(asked)[1:]) | change
    with pytest.raises(InvalidParameter, match=named):
        _read(b"J" + json.dumps(fields).encode())


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b"5", b"{}", b'{"task": []}', b"[" * 100_000, b"\xff"])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidParameter):
        request_kind(memoryview(body))


@pytest.mark.parametrize(
    "call", [ReadPages("ab", 1, 2, 3, 4), CreateRun("ab", ((1, 16), (2, 32))), FinishRun("a", (3,))]
)
def test_a_call_is_read_as_it_was_written(call: Call) -> None:
    assert from_list(Call.kinds, json.loads(json.dumps(to_list(call)))) == call


@pytest.mark.parametrize("header", [[], ["none"], [5], ["request"], ["request", "5"], ["request", 5, 6], [["request"]]])
def test_what_is_no_job_is_refused(header: list[Any]) -> None:
    with pytest.raises(InvalidParameter):
        from_list(Job.kinds, header)


def test_an_answer_states_what_its_job_asks_for() -> None:
    assert unpack_answer(Greet(), [5, 2]) == (5, 2)
    assert unpack_answer(Rank(1), [1, 2]) == (1, 2)
    assert unpack_answer(Share(), [2]) == (None, 2)
    for job, header in ((Greet(), [2]), (Greet(), [True, 2]), (Rank(1), [True, 2]), (Share(), [1, 2]), (Share(), [])):
        with pytest.raises(Exception, match="protocol"):
            unpack_answer(job, header)  # type: ignore[misc]


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(RevokeGrant("ada"), "name", "bob")  # noqa: B010  mypy knows it already


def test_a_field_that_there_is_not_is_told_from_one_that_is_wrong() -> None:
    with pytest.raises(InvalidParameter, match="has no field 'more'"):
        from_fields(Build, {"real_rows": 3, "batch": "b", "more": 1})


@pytest.mark.parametrize("revoked", ["ab", {"ab": 1}, None])
def test_what_is_no_list_is_not_read_as_one(revoked: object) -> None:
    with pytest.raises(InvalidParameter, match="'revoked'"):
        from_fields(Restore, {"restores": 1, "revoked": revoked, "used": []})


@pytest.mark.parametrize("text", ["1e5", "1.5", "1_0", " 1", "+1", "1/-2", "", "1/", "/2", "nan", "1" * 4001, "1/0"])
def test_an_amount_is_a_fraction_and_nothing_else_that_python_reads(text: str) -> None:
    assert read_fraction("-1/3") == Fraction(-1, 3)
    assert read_fraction("7") == 7
    with pytest.raises((ValueError, ZeroDivisionError)):
        read_fraction(text)


@pytest.mark.parametrize("value", [5, 0.5, None, Fraction(1, 3), ["1"]])
def test_an_amount_is_text(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_fraction(value)
