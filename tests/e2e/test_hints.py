"""Hints on tables: from public keys, from a file, from earlier batches."""
# ruff: noqa: S608  the SQL is the test's own

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from scumble import opening
from scumble.errors import InvalidParameter
from scumble.index.file import decode
from scumble.index.hint import Hint
from scumble.owner.indexes import IndexSpec
from scumble.types import IntegerDomain

ROWS, SIZE = 30_000, 4096
DOMAIN = IntegerDomain(0, SIZE - 1)


def keys(seed: int, rows: int = ROWS) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A few heavy keys, and others."""
    rng, heavy = np.random.default_rng(seed), np.random.default_rng(0).permutation(SIZE)[:40]
    return np.where(rng.random(rows) < 0.5, rng.choice(heavy, rows), rng.integers(0, SIZE, rows))


def table(seed: int) -> pa.Table:
    return pa.table({"k": pa.array(keys(seed)), "n": pa.array(np.arange(ROWS))})


@pytest.mark.parametrize("blocks", [1, 4])
def test_answers_are_exact_with_every_kind_of_hint(tmp_path: Path, blocks: int) -> None:
    path = tmp_path / "public.hint"
    Hint.of_keys(keys(9), DOMAIN).save(path, DOMAIN)
    given = {"public": keys(9), "file": str(path), "previous": "previous", "wrong": keys(9)[::-1] // 2}
    with opening.create(tmp_path / "db", limit=1000) as db:
        for name, hint in given.items():
            spec = IndexSpec("k", DOMAIN, 4, beta=1e-9, blocks=blocks, hint=hint)
            for seed in (1, 2):
                db.load(name, table(seed), indexes=[spec])
            models = [decode(run.index) for run in db.table(name).runs if run.index is not None]
            used = [model.hint is not None for model in models]
            assert used == {"public": [True, True], "file": [True, True], "wrong": [False, False]}.get(name, used)
            assert name != "previous" or used[0] is False  # there was no batch before
            both = np.concatenate([keys(1), keys(2)])
            for low, high in ((0, 0), (5, 90), (int(both[0]), int(both[0])), (0, SIZE - 1)):
                expected = int(((both >= low) & (both <= high)).sum())
                assert db.sql(f"SELECT count(*) FROM {name} WHERE k BETWEEN {low} AND {high}").fetchone() == (expected,)


def test_a_hint_in_a_specification_is_read_and_written_back(tmp_path: Path) -> None:
    spec = IndexSpec.parse("k int:0:4095 epsilon=1 hint=previous")
    assert spec.hint == "previous"
    assert IndexSpec.parse(f"k {spec.terms}") == spec
    assert spec.order().hint is None
    assert spec.order([]).hint is None
    Hint.of_keys(keys(9), DOMAIN).save(tmp_path / "h", DOMAIN)
    named = IndexSpec.parse(f"k int:0:4095 epsilon=1 hint={tmp_path / 'h'}")
    packed = named.order().hint
    assert packed == Hint.of_keys(keys(9), DOMAIN).packed
    with pytest.raises(InvalidParameter, match="another domain"):
        replace(named, domain=IntegerDomain(0, 4096)).order()
    (tmp_path / "no hint").write_bytes(b"something else")
    for path in (tmp_path / "absent", tmp_path / "no hint"):
        with pytest.raises(Exception, match=r"cannot read the hint|not a Scumble index"):
            replace(named, hint=path).order()
