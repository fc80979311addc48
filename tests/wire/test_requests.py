"""Requests: who may ask for what, the flat forms of rows and executions, and what is no such form."""

from typing import Any

import numpy as np
import pytest

from scumble.errors import InvalidParameter
from scumble.types import Column, Schema, parse_type
from scumble.wire.channel import SMALL_BYTES
from scumble.wire.requests import (
    EXECUTE,
    JSON,
    ROWS,
    Abandon,
    ListGrants,
    LoadBegun,
    Open,
    Request,
    RowLayout,
    Scan,
    announced_kind,
    pack_answer,
    pack_execution,
    request_kind,
    unpack_answer,
    unpack_execution,
)

BOUNDS = np.array([7, -8, 9], np.int64)
SCANS = [Scan(0, 1, ((0, 2), (5, 1))), Scan(1, 0, ()), Scan(2, 0, ((3, 4),))]


def test_who_may_ask_for_what_and_how_large_it_may_be() -> None:
    """A right that is given here by mistake is given to everybody with a grant."""
    by_analysts = {task for task, kind in Request.kinds.items() if kind.by_analyst}
    assert by_analysts == {
        "abandon", "build", "check", "commit", "flush", "follow", "forget", "load", "look", "merge", "open", "pay",
        "prepare", "reserve", "rollback", "settle",
    }  # fmt: skip
    assert {task for task, kind in Request.kinds.items() if not kind.needs_version} == {
        "commit", "create", "follow", "open", "restore",
    }  # fmt: skip
    large = {task: kind.most_bytes for task, kind in Request.kinds.items() if kind.most_bytes != SMALL_BYTES}
    defined = dict.fromkeys(("add_column", "define", "flush", "load", "terms"), 16 * 1024 * 1024)
    assert large == {"prepare": 256 * 1024, "merge": 256 * 1024, "view": 256 * 1024, **defined}
    assert (JSON, EXECUTE, ROWS) == (b"J", b"X", b"R")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"task": "open", "anchor": null}', Open),
        (b'{"task":"grants"}', ListGrants),
        (b'{"task": "grants"', ListGrants),
        (b'{"task": "open', None),
        (b' {"task": "open"}', None),
        (b'{"task":  "open"}', None),
        (b'{"task": "nothing"}', None),
        (b"", None),
    ],
)
def test_a_kind_is_announced_by_the_first_bytes(body: bytes, kind: Any) -> None:
    assert announced_kind(memoryview(body)) is kind


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"7", b'{"task": []}', b"[" * 100_000, b"\xff"])
def test_what_names_no_task_is_no_request(body: bytes) -> None:
    with pytest.raises(InvalidParameter, match="names its task"):
        request_kind(memoryview(body))
    assert request_kind(memoryview(b'{"a": 1, "task": "nothing"}')) == (None, {"a": 1})


def test_an_answer_is_read_as_it_was_written_also_if_it_is_none() -> None:
    assert pack_answer(None) == b"{}"
    assert unpack_answer(Abandon(), memoryview(pack_answer(None))) is None
    load = Request.kinds["load"].__new__(Request.kinds["load"])
    assert unpack_answer(load, memoryview(pack_answer(LoadBegun(done=True)))) == LoadBegun(done=True)


# --- executions --------------------------------------------------------------------------------------


def body(*words: int) -> memoryview:
    return memoryview(np.array(words, np.int64).tobytes())


@pytest.mark.parametrize("bounds", [BOUNDS, BOUNDS[:0]])
def test_an_execution_is_read_as_it_was_written(bounds: Any) -> None:
    for scans in (SCANS, SCANS[:1], SCANS[1:2], []):
        packed = pack_execution(3, scans, bounds)
        assert packed[:1] == EXECUTE
        plan, found, rest = unpack_execution(memoryview(packed)[1:])
        assert (plan, found, rest.tolist()) == (3, scans, bounds.tolist())


@pytest.mark.parametrize(
    "cut",
    [
        body(),
        body(3),
        body(3, 1),
        body(3, 1, 0, 0),
        body(3, 1, 0, 0, 1),
        body(3, 1, 0, 0, 1, 5),
        body(3, 1, 0, 0, 2, 5, 1, 6),
        body(3, 1, 0, 0, -1),
        body(3, 1, 0, 0, -1, 0, 0, 0),
        body(3, 2, 0, 0, -2, 0, 0, 0),
        body(3, 2, 0, 0, 0, 0, 0),
        memoryview(bytes(17)),
    ],
)
def test_an_execution_that_is_cut_short_is_refused(cut: memoryview) -> None:
    with pytest.raises(InvalidParameter, match="cut short"):
        unpack_execution(cut)
    assert unpack_execution(body(3, 1, 0, 0, 1, 5, 1)).scans == [Scan(0, 0, ((5, 1),))]


# --- rows --------------------------------------------------------------------------------------------


def schema(*nullable: bool) -> Schema:
    types = (parse_type("integer"), parse_type("text(20)"))
    return Schema(tuple(Column(f"c{n}", types[n % 2], each) for n, each in enumerate(nullable)))


def test_a_row_is_its_columns_its_validity_and_its_ranks() -> None:
    words = parse_type("text(20)").words
    plain = RowLayout(schema(False, False, False), (10, 4))
    assert plain.column_offsets == (0, 1, 1 + words)
    assert (plain.validity_offset, plain.key_offset, plain.words) == (2 + words, 2 + words, 4 + words)
    assert plain.dummy_keys() == (11, 5)
    some = RowLayout(schema(False, True, False), ())
    assert (some.key_offset, some.words) == (3 + words, 3 + words)


@pytest.mark.parametrize(("columns", "words"), [(63, 1), (64, 1), (65, 2), (128, 2), (129, 3)])
def test_a_word_of_validity_is_of_64_columns(columns: int, words: int) -> None:
    layout = RowLayout(schema(*[True] * columns), ())
    assert layout.key_offset - layout.validity_offset == words
