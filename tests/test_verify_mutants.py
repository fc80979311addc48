"""The mutants that `make verify` tries: what is changed, what is left alone, and which are listed."""

import ast
import json
import os
import time
import tomllib
from pathlib import Path
from subprocess import CompletedProcess
from typing import ClassVar

import pytest
from verify import mutants, warm
from verify.mutations import mutants_of, mutated
from verify.reached import Reached

SOURCE = '''
"""About 1 thing."""
MOST = 3


def check(value: int = 2) -> bool:
    """Refuse 7."""
    if value < MOST and value != 1:
        raise ValueError(f"more than {MOST - 1}")
    assert value > 0
    return max(value, 5) == 5 or not value


def first(values):
    for value in values:
        if value in (b"a",):
            continue
        return value + 1 if value else None
    raise LookupError(1 + 1)


class Shown:
    def __repr__(self) -> str:
        return "x" * 3
'''


def test_every_kind_of_fault() -> None:
    found = [(mutant.function, mutant.change) for mutant in mutants_of("m.py", SOURCE)]
    assert found == [
        ("MOST", "3 -> 4"),
        ("MOST", "3 -> 2"),
        ("check", "2 -> 3"),
        ("check", "2 -> 1"),
        ("check", "if value < MOST and value != 1 -> pass"),
        ("check", "if value < MOST and value != 1 -> if not (value < MOST and value != 1)"),
        ("check", "value < MOST and value != 1 -> value < MOST or value != 1"),
        ("check", "value < MOST and value != 1 -> value != 1"),
        ("check", "value < MOST and value != 1 -> value < MOST"),
        ("check", "value < MOST -> value <= MOST"),
        ("check", "value != 1 -> value == 1"),
        ("check", "1 -> 2"),
        ("check", "1 -> 0"),
        ("check", "max(value, 5) == 5 or not value -> max(value, 5) == 5 and (not value)"),
        ("check", "max(value, 5) == 5 or not value -> not value"),
        ("check", "max(value, 5) == 5 or not value -> max(value, 5) == 5"),
        ("check", "max(value, 5) == 5 -> max(value, 5) != 5"),
        ("check", "max(value, 5) -> min(value, 5)"),
        ("check", "5 -> 6"),
        ("check", "5 -> 4"),
        ("check", "5 -> 6 #2"),
        ("check", "5 -> 4 #2"),
        ("check", "not value -> value"),
        ("first", "if value in (b'a',) -> pass"),
        ("first", "value in (b'a',) -> value not in (b'a',)"),
        ("first", "b'a' -> b'a?'"),
        ("first", "value + 1 if value else None -> value + 1 if not value else None"),
        ("first", "value + 1 -> value - 1"),
        ("first", "1 -> 2"),
        ("first", "1 -> 0"),
        ("first", "raise LookupError(1 + 1) -> pass"),
    ]


def test_a_mutant_has_its_change_and_no_other() -> None:
    original = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in mutants_of("m.py", SOURCE):
        changed = mutated(mutant, SOURCE).splitlines()
        assert changed != original
        if not mutant.change.endswith("-> pass"):
            assert sum(old != new for old, new in zip(original, changed, strict=True)) == 1


def test_the_list_of_equivalents_names_mutants_that_there_are_and_says_why() -> None:
    there = set()
    for module in {module for module, _, _ in mutants.equivalents()}:
        for mutant in mutants_of(module, (mutants.TREE / mutants.PACKAGE / module).read_text()):
            there |= {mutant.key, (module, mutant.function, mutants.ANY_CHANGE)}
    gone = set(mutants.equivalents()) - there
    assert not gone
    assert all(len(reason.split()) > 3 for reason in mutants.equivalents().values())
    entries = tomllib.loads(mutants.EQUIVALENT.read_text())["mutant"]
    assert len(entries) == len(mutants.equivalents()), "a mutant is listed twice"


def test_the_tests_that_are_named_are_there() -> None:
    sampled = [test for tests in mutants.SAMPLED.values() for test in tests]
    assert all((mutants.TREE / test).exists() for test in (*mutants.TESTS, *sampled))
    assert mutants.is_mutated("index/mechanisms/paper.py")
    assert mutants.is_mutated("store/collecting.py")
    assert not mutants.is_mutated("store/files.py")
    assert not mutants.is_mutated("cli/load.py")
    assert not mutants.is_mutated("index/plot.py")


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    sample = [mutants.selected(["index/", "privacy/"], 3, seed) for seed in (1, 1, 2)]
    assert sample[0] == sample[1] != sample[2]
    assert all(mutant.module.startswith(("index/", "privacy/")) for mutant in sample[0])
    assert not {mutant.key for mutant in sample[0]} & set(mutants.equivalents())


def test_the_tests_that_reach_a_line_come_by_room_and_time(tmp_path: Path) -> None:
    long, quick, other, own = "tests/b/t.py::long", "tests/b/t.py::quick", "tests/b/t.py::other", "tests/a/t.py::own"
    reach = {"a/m.py": {3: frozenset({long, quick, own}), 4: frozenset({other}), 9: frozenset({quick})}}
    reads, elsewhere = "tests/a/test_m.py::reads", "tests/c/t.py::elsewhere"
    found = Reached(reach, {long: 13.0, quick: 0.1, other: 10.0, own: 2.0, reads: 0.0, elsewhere: 0.0})
    found.write(tmp_path / "reached")
    for reached in (found, Reached.read(tmp_path / "reached")):
        assert reached.tests("a/m.py", range(3, 4)) == [own, quick, long]
        assert reached.tests("a/m.py", range(3, 5)) == [own, quick, other, long]  # the last begins within the time
        assert reached.tests("a/m.py", range(5, 9)) == [reads, own, quick, other, long]  # a constant, used anywhere
        assert reached.tests("b/m.py", range(3, 4)) == []


def test_the_test_that_imports_a_module_is_not_the_only_one_of_its_constants() -> None:
    imports, runs = "tests/a/t.py::imports", "tests/a/t.py::runs"
    reach = {line: frozenset({imports}) for line in (1, 2, 3)} | {
        4: frozenset({imports, runs}),
        5: frozenset({imports}),
    }
    reached = Reached({"a/m.py": reach}, {imports: 0.1, runs: 0.2})
    assert reached.tests("a/m.py", range(3, 4)) == [imports, runs]
    assert reached.tests("a/m.py", range(4, 5)) == [runs]
    assert reached.tests("a/m.py", range(5, 6)) == [imports, runs]  # which may be the only one


@pytest.mark.parametrize("seen", [None, {"lines": {}, "seconds": {"tests/test_a.py::test_a": 1.0}, "failed": []}])
def test_a_run_in_which_nothing_was_seen_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: dict[str, object] | None
) -> None:
    """Every mutant would seem to survive it."""

    def run(words: object, **more: object) -> CompletedProcess[str]:
        if seen is not None:
            (tmp_path / "reached" / "1.json").write_text(json.dumps(seen))
        return CompletedProcess([], 0, "1 passed")

    monkeypatch.setattr("verify.reached.subprocess.run", run)
    with pytest.raises(RuntimeError, match="not seen"):
        Reached.of(["tests/test_a.py"], tmp_path, Path("src"), tmp_path / "reached", 1)


class Scripted:
    """In place of a warm process: the exit codes that its runs are to have."""

    codes: ClassVar[list[int | None]] = []

    def __init__(self, *_: object) -> None:
        self._warm = False

    def wait(self) -> None:
        self._warm = True

    def run(self, *_: object) -> int | None:
        assert self._warm
        return self.codes.pop(0)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        *[([0], True), ([1], False), ([2], False), ([None], False), ([-11], False), ([3, 0], False)],
        *[([3, 3], None), ([3, 1], None), ([4], None), ([5], None), ([100], None)],
    ],
)
def test_what_makes_pytest_fail_is_noticed_if_it_does_not_fail_without_it(
    codes: list[int | None], outcome: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied(copy: Path) -> Path:
        (copy / mutants.PACKAGE).mkdir(parents=True)
        (copy / mutants.PACKAGE / "m.py").write_text(SOURCE)
        return copy

    monkeypatch.setattr(mutants, "_copied", copied)
    monkeypatch.setattr(mutants, "Warm", Scripted)
    monkeypatch.setattr(Scripted, "codes", [*codes])
    Reached({}, {}).write(tmp_path / "reached")
    fault = mutants_of("m.py", SOURCE)[0]
    with mutants.Laboratory(tmp_path, 1, (), tmp_path / "reached") as laboratory:
        if outcome is None:
            with pytest.raises(RuntimeError, match="pytest ended with"):
                laboratory.survives(fault, ("a test",))
        else:
            assert laboratory.survives(fault, ("a test",)) is outcome
    assert Scripted.codes == []
    assert (tmp_path / "copy-0" / mutants.PACKAGE / "m.py").read_text() == SOURCE


@pytest.mark.slow
def test_one_that_is_killed_and_one_that_nobody_looks_at(tmp_path: Path) -> None:
    tests = ("tests/index/test_segments.py", mutants.UNCONCERNED)
    (fault,) = mutants.selected(["index/segments.py"], None, 1, "Segments.at: rank - starts[j] ->")
    with mutants.Laboratory(tmp_path, 1, tests) as laboratory:
        assert not laboratory.survives(fault, tests[:1])
        assert laboratory.survives(fault, tests[1:])
        (outcome,) = laboratory.run([fault])
    assert outcome.killed
    assert mutants.rates([outcome])[0].startswith("index           1 of    1 killed, 100.0 %")
    assert (tmp_path / "copy-0" / mutants.PACKAGE / fault.module).read_bytes() == (
        mutants.TREE / mutants.PACKAGE / fault.module
    ).read_bytes()


def test_a_process_is_busy_for_as_long_as_it_computes() -> None:
    before, began = warm._busy_seconds(os.getpid()), time.process_time()
    while time.process_time() < began + 0.1:
        pass
    assert 0.05 < warm._busy_seconds(os.getpid()) - before < 10
    assert warm._busy_seconds(0) == 0
