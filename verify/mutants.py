"""Plant small faults in the security-relevant modules, one at a time, and see whether the tests notice.

`python -m verify.mutants privacy index/slack.py --sample 40` changes one comparison, operand, guard or constant in a
copy of the tree, never in place, and runs the tests that reach the changed lines, quickest first. A mutant that every
test lets pass survives: kill it with a test, or list it in verify/equivalent_mutants.toml with the reason why nobody
could tell. The exit code is 1 if fewer than `--floor` percent of the mutants that are not listed were killed.

To learn which tests reach which lines, the tests run once, for some minutes; `--reached FILE` keeps that for the next
time. Tools that are maintained (mutmut, cosmic-ray) fit less well: none removes guards, or keeps a list of equivalents
with reasons, and one of them changes the files in place.
"""

import argparse
import compileall
import queue
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from py_compile import PycInvalidationMode

from verify import Row, folder_in_memory
from verify.mutations import Mutant, mutants_of, mutated
from verify.reached import Reached
from verify.warm import Warm

__all__ = ["Laboratory", "Outcome", "equivalents", "is_mutated", "main", "rows", "selected"]

TREE = Path(__file__).parent.parent
PACKAGE = Path("src/scumble")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
ANY_CHANGE = "any"
LIMIT = re.compile(r"(\w+\.)?_?(MOST|LONGEST|KEPT|MAXIMUM|CACHED)_[A-Z_]+|(\w+\.)?[A-Z_]+_SECONDS|TRIES|ATTEMPTS")
"""Constants that limit memory, time or tries: of these, one more or less is as good."""
WORKERS = 2
FLOOR_PERCENT = 90
LEAST_TRIED = 10
UNCONCERNED = "tests/test_durable.py"
"""Tests of none of the modules that are mutated."""
FAILED, UNIMPORTABLE, INTERNAL = 1, 2, 3  # pytest's exit codes

ROOMS = ("attestation/", "enclave/", "index/", "owner/", "privacy/", "sql/", "types/", "wire/", "witness/")
ALONE = ("store/collecting.py",)
"""Modules of other rooms: this one decides which signed versions are let go."""
ELSEWHERE = {
    "enclave/process.py": (
        "tests/enclave/test_process.py",
        "tests/provider/test_parts.py",
        "tests/provider/test_service.py",
        "tests/provider/test_memory.py",
    ),
    "witness/server.py": ("tests/witness/test_server.py", "tests/witness/test_served.py"),
}
"""Modules that only processes of their own run, where no reach is seen, with their tests."""
LEFT_OUT = ("index/plot.py", "owner/suggest/")  # pictures, and what its reader edits before it counts
TESTS = (
    *(f"tests/{room}" for room in ROOMS),
    "tests/cli",
    "tests/e2e",
    "tests/store",
    "tests/provider/test_access.py",
    "tests/provider/test_attested.py",
    "tests/provider/test_lying_front.py",
    "tests/provider/test_parts.py",
    "tests/provider/test_policies.py",
    "tests/provider/test_sharing.py",
    "tests/provider/test_takeover.py",
    "tests/test_release_0_1.py",
)
"""Those that run what they test in their own process, where it is seen which lines they reach."""

SAMPLED = {
    "owner/anchor.py": ("tests/owner/test_anchor.py", "tests/owner/test_vectors.py"),
    "owner/composition.py": ("tests/owner/test_composition.py",),
    "owner/spends.py": ("tests/owner/test_spends.py", "tests/owner/test_payments.py"),
    "owner/reconciling.py": ("tests/owner/test_reconciling.py",),
    "wire/grants.py": ("tests/wire/test_grant_terms.py", "tests/owner/test_keys.py"),
    "wire/lineage.py": ("tests/wire/test_lineage.py",),
}
"""The modules that `make verify` takes a sample of, with tests of theirs that are quick."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `killed`, or not, and after how many seconds."""

    mutant: Mutant
    killed: bool
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run mutants and print the survivors and each room's rate; 0 if enough were killed."""
    parser = argparse.ArgumentParser(prog="python -m verify.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="prefixes below src/scumble; by default all")
    parser.add_argument("--sample", type=int, metavar="N", help="at most so many of each module")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"at a time ({WORKERS})")
    parser.add_argument("--floor", type=float, default=FLOOR_PERCENT, help=f"percent to kill ({FLOOR_PERCENT})")
    parser.add_argument("--reached", type=Path, metavar="FILE", help="which tests reach which lines; made if missing")
    parser.add_argument(
        "--first", nargs="+", default=[], metavar="TEST", help="tests to try before those that reach it"
    )
    parser.add_argument("--with", dest="text", default="", metavar="TEXT", help="only changes that contain it")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run none")
    options = parser.parse_args(arguments)
    mutants = selected(options.modules or [""], options.sample, options.seed, options.text)
    if options.list:
        sys.stdout.writelines(f"{mutant}\n" for mutant in mutants)
        return 0
    outcomes = []
    with folder_in_memory() as folder, Laboratory(folder, options.workers, TESTS, options.reached) as laboratory:
        for outcome in laboratory.run(mutants, first=options.first):
            outcomes.append(outcome)
            word = "killed  " if outcome.killed else "SURVIVED"
            sys.stderr.write(f"{len(outcomes)}/{len(mutants)} {word} {outcome.seconds:4.1f}s {outcome.mutant}\n")
    survivors = [str(outcome.mutant) for outcome in outcomes if not outcome.killed]
    sys.stdout.write("\n".join([*rates(outcomes), *(["survivors:", *survivors] if survivors else [])]) + "\n")
    return 0 if outcomes and percent(outcomes) >= options.floor else 1


def rows(seconds: float) -> Iterator[Row]:
    """The row of `make verify`: a sample where tests are fast, and one mutant that no test looks at."""
    mutants = selected([*SAMPLED], None, seed=1)
    random.Random(1).shuffle(mutants)
    tests = [test for found in SAMPLED.values() for test in found]
    with folder_in_memory() as folder, Laboratory(folder, WORKERS, [*tests, UNCONCERNED]) as laboratory:
        outcomes = list(laboratory.run(mutants, seconds))
        killed = next(outcome.mutant for outcome in outcomes if outcome.killed)
        unseen = laboratory.survives(killed, (UNCONCERNED,))
    survivors = [str(outcome.mutant) for outcome in outcomes if not outcome.killed]
    yield Row(
        "the tests notice small faults in what keeps data private",
        f"{len(outcomes)} of {len(mutants)} mutants, seed 1",
        f"{percent(outcomes):.0f} % killed" + (f"; survived: {'; '.join(survivors)}" if survivors else ""),
        percent(outcomes) >= FLOOR_PERCENT and len(outcomes) >= LEAST_TRIED,
        ("tests that look elsewhere",),
        ("tests that look elsewhere",) if unseen else (),
    )


def selected(prefixes: Sequence[str], sample: int | None, seed: int, text: str = "") -> list[Mutant]:
    """The mutants of the modules with these prefixes, without the listed equivalents, or a sample of them."""
    found = []
    for path in sorted((TREE / PACKAGE).rglob("*.py")):
        module = path.relative_to(TREE / PACKAGE).as_posix()
        if module.startswith(tuple(prefixes)) and is_mutated(module):
            made = mutants_of(module, path.read_text())
            mutants = [mutant for mutant in made if not is_listed(mutant) and text in str(mutant)]
            chance = random.Random(f"{seed} {module}")
            found += mutants if sample is None else chance.sample(mutants, min(sample, len(mutants)))
    return found


def is_mutated(module: str) -> bool:
    """Whether a module is one of those that keep data private."""
    return module.startswith((*ROOMS, *ALONE)) and not module.startswith(LEFT_OUT)


def is_listed(mutant: Mutant) -> bool:
    """Whether a mutant is listed, by its change, or with all changes of its function or constant, or is a limit."""
    listed = equivalents()
    by_name = (mutant.module, mutant.function, ANY_CHANGE) in listed or LIMIT.fullmatch(mutant.function) is not None
    return by_name or mutant.key in listed


@cache
def equivalents() -> dict[tuple[str, str, str], str]:
    """The listed mutants that no test could tell from the original: why, by module, function and change."""
    entries = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(entry["module"], entry["function"], entry["change"]): entry["reason"] for entry in entries}


class Laboratory:
    """Copies of the tree, one for each worker, in which one mutant at a time is tried; what is known of the tests."""

    def __init__(self, folder: Path, workers: int, tests: Sequence[str], keep: Path | None = None) -> None:
        self._workers = workers
        self._original = _copied(folder / "original")  # the tree may change meanwhile
        copies = [_copied(folder / f"copy-{number}") for number in range(workers)]
        if keep is not None and keep.exists():
            self._reached = Reached.read(keep)
        else:
            self._reached = Reached.of(tests, copies[0], PACKAGE, folder / "reached", workers)
            if keep is not None:
                self._reached.write(keep)
        self._warm = [(copy, Warm(copy, tests)) for copy in copies]
        self._free: queue.Queue[tuple[Path, Warm]] = queue.Queue()
        for one in self._warm:
            one[1].wait()
            self._free.put(one)

    def __enter__(self) -> "Laboratory":
        return self

    def __exit__(self, *error: object) -> None:
        for _, warm in self._warm:
            warm.close()

    def run(
        self, mutants: Sequence[Mutant], seconds: float = float("inf"), first: Sequence[str] = ()
    ) -> Iterator[Outcome]:
        """Try all mutants, or those that can be begun within so many seconds; on these tests first."""
        stop = time.monotonic() + seconds
        with ThreadPoolExecutor(self._workers) as pool:
            for outcome in pool.map(lambda mutant: self._tried(mutant, stop, first), mutants):
                if outcome is not None:
                    yield outcome

    def _tried(self, mutant: Mutant, stop: float, first: Sequence[str]) -> Outcome | None:
        began = time.monotonic()
        if began > stop:
            return None
        reach = self._reached.tests(mutant.module, mutant.lines)
        sure = [*first, *ELSEWHERE.get(mutant.module, ()), *_of_one_file(reach)]
        survived = all(
            self.survives(mutant, tests, 10 + 2 * sum(self._reached.seconds.get(test, 10.0) for test in tests))
            for tests in (sure, [test for test in reach if test not in sure])
            if tests
        )
        return Outcome(mutant, not survived, time.monotonic() - began)

    def survives(self, mutant: Mutant, tests: Sequence[str], most_seconds: float = 600) -> bool:
        """Whether the tests pass with the mutant in place.

        A mutant that makes pytest itself fail, such as one of what shuts a process in, is noticed too: if the tests
        pass without it.
        """
        copy, warm = self._free.get()
        original, changed = self._original / PACKAGE / mutant.module, copy / PACKAGE / mutant.module
        try:
            changed.write_text(mutated(mutant, original.read_text()))
            code = warm.run(tests, most_seconds)
            if code == INTERNAL:
                shutil.copyfile(original, changed)
                code = FAILED if warm.run(tests, most_seconds) == 0 else INTERNAL
        finally:
            shutil.copyfile(original, changed)
            self._free.put((copy, warm))
        if code is not None and code > 0 and code not in (FAILED, UNIMPORTABLE):  # a signal's is below 0
            raise RuntimeError(f"pytest ended with {code} on {' '.join(tests)}")
        return code == 0


def _of_one_file(tests: Sequence[str]) -> list[str]:
    """Those of the file that has most of them: to collect it takes less than all, and most mutants it notices."""
    files = Counter(test.partition("::")[0] for test in tests).most_common(1)
    return [test for test in tests if files and test.startswith(f"{files[0][0]}::")]


def _copied(copy: Path) -> Path:
    """A copy of what git tracks or would, and of the built kernels."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=TREE, check=True, capture_output=True
    ).stdout.decode()
    native = [str(path.relative_to(TREE)) for path in (TREE / PACKAGE).glob("_native*")]
    for name in {*filter(None, listed.split("\0")), *native}:
        if (TREE / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TREE / name, copy / name)
    # By hash and not by date: a mutant has the length of its original, and comes within the second.
    compileall.compile_dir(copy / "src", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return copy


def percent(outcomes: Sequence[Outcome]) -> float:
    """How many of the mutants were killed."""
    return 100 * sum(outcome.killed for outcome in outcomes) / max(1, len(outcomes))


def rates(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each room, and one for all."""
    rooms: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        rooms[outcome.mutant.module.partition("/")[0]].append(outcome)
        rooms["all"].append(outcome)
    listed = Counter(module.partition("/")[0] for module, _, _ in equivalents())
    return [
        f"{room:<12} {sum(o.killed for o in found):>4} of {len(found):>4} killed, {percent(found):5.1f} %"
        + (f"; {listed[room]} listed as equivalent" if room in listed else "")
        for room, found in sorted(rooms.items(), key=lambda item: item[0] == "all")
    ]


if __name__ == "__main__":
    sys.exit(main())
