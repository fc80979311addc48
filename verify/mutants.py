"""Plant small faults in the security-relevant modules, one at a time, and see whether the tests notice.

`python -m verify.mutants privacy index/slack.py --sample 40` changes one comparison, operand, guard or constant in a
copy of the tree, never in place, and runs the tests that TESTS names for the module. A mutant that every test lets
pass survives: kill it with a test, or list it in verify/equivalent_mutants.toml with the reason why nobody could tell.
The exit code is 1 if fewer than `--floor` percent of the mutants that are not listed were killed.

Tools that are maintained (mutmut, cosmic-ray) fit less well: neither knows which tests cover which module, removes
guards, or keeps a list of equivalents with reasons; and one of them changes the files in place.
"""

import argparse
import compileall
import os
import queue
import random
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from py_compile import PycInvalidationMode

from verify import Row, folder_in_memory
from verify.mutations import Mutant, mutants_of, mutated

__all__ = ["TESTS", "Laboratory", "Outcome", "equivalents", "main", "rows", "selected", "tests_of"]

TREE = Path(__file__).parent.parent
PACKAGE = Path("src/scumble")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
WORKERS = 2
FLOOR_PERCENT = 90
SAMPLE_FLOOR_PERCENT = 65  # of `make verify`: 75 were killed when it was made, and the sample is small
SAMPLE = 40  # of `make verify`, in the modules whose tests are fast
SAMPLED = ("enclave/pages.py", "index/file.py", "index/segments.py", "owner/key_file.py")
LEAST_TRIED = 10

# Which tests cover a module: the longest prefix of its path decides. What finds most, soonest, comes first.
TESTS: dict[str, tuple[str, ...]] = {
    "privacy/budget.py": (
        "tests/privacy/test_amounts.py",
        "tests/privacy/test_budget.py",
        "tests/owner/test_ledger.py",
    ),
    "privacy/noise.py": ("tests/privacy/test_noise.py", "tests/privacy/test_gaussian.py"),
    "index/": ("tests/index/test_terms.py", "tests/index/test_dp_plr.py"),
    "index/curve.py": ("tests/index/test_segments.py", "tests/index/test_slack.py", "tests/index/test_dp_plr.py"),
    "index/file.py": ("tests/index/test_file.py", "tests/index/test_format.py"),
    "index/mechanisms/": ("tests/index/test_mechanisms.py", "tests/index/test_slack.py"),
    "index/segments.py": ("tests/index/test_segments.py",),
    "index/slack.py": ("tests/index/test_slack.py", "tests/index/test_terms.py"),
    "index/plot.py": (),
    "attestation/": ("tests/attestation",),
    "enclave/pages.py": (
        "tests/enclave/test_pages.py",
        "tests/enclave/test_external_sort.py",
        "tests/test_release_0_1.py",
    ),
    "enclave/kernels.py": ("tests/enclave/test_kernels.py", "tests/enclave/test_sort.py"),
    "enclave/grants.py": ("tests/enclave/test_cost.py", "tests/enclave/test_grants.py"),
    "enclave/queries.py": (
        "tests/enclave/test_execute.py",
        "tests/enclave/test_shapes.py",
        "tests/enclave/test_sessions.py",
    ),
    "enclave/loads.py": (
        "tests/enclave/test_loads.py",
        "tests/enclave/test_external_sort.py",
        "tests/enclave/test_grants.py",
        "tests/e2e/test_python_api.py",
    ),
    "enclave/": ("tests/enclave", "tests/provider/test_sharing.py"),
    "owner/key_file.py": ("tests/owner/test_key_file.py", "tests/owner/test_keys.py", "tests/owner/test_vectors.py"),
    "owner/keys.py": ("tests/owner/test_keys.py", "tests/owner/test_key_file.py", "tests/owner/test_vectors.py"),
    "owner/ledger": (
        "tests/owner/test_ledger.py",
        "tests/owner/test_ledger_log.py",
        "tests/owner/test_ledger_settled.py",
    ),
    "owner/spends.py": ("tests/owner/test_ledger.py", "tests/owner/test_ledger_settled.py"),
    "owner/indexes.py": ("tests/owner/test_loading.py", "tests/cli/test_cli_index.py", "tests/e2e/test_bad_input.py"),
    "owner/loading.py": ("tests/owner/test_loading.py", "tests/e2e/test_python_api.py"),
    "owner/versions.py": (
        "tests/owner/test_anchor.py",
        "tests/owner/test_vectors.py",
        "tests/e2e/test_lost_sessions.py",
    ),
    "owner/witnesses.py": ("tests/witness/test_witnessed.py", "tests/witness/test_served.py"),
    "owner/encoding.py": ("tests/owner/test_encoding.py",),
    "owner/answers.py": ("tests/e2e/test_python_api.py", "tests/owner/test_dbapi.py"),
    "owner/remote/": (),
    "owner/sources/": (),
    "owner/": ("tests/owner", "tests/e2e/test_python_api.py", "tests/e2e/test_lost_sessions.py"),
    "sql/": ("tests/sql",),
    "witness/": ("tests/witness",),
}


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
    parser.add_argument("--with", dest="text", default="", metavar="TEXT", help="only changes that contain it")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run none")
    options = parser.parse_args(arguments)
    mutants = selected(options.modules or [""], options.sample, options.seed, options.text)
    if options.list:
        sys.stdout.writelines(f"{mutant}\n" for mutant in mutants)
        return 0
    outcomes = []
    with folder_in_memory() as folder:
        for outcome in Laboratory(folder, options.workers).run(mutants):
            outcomes.append(outcome)
            word = "killed  " if outcome.killed else "SURVIVED"
            sys.stderr.write(f"{len(outcomes)}/{len(mutants)} {word} {outcome.seconds:4.1f}s {outcome.mutant}\n")
    survivors = [str(outcome.mutant) for outcome in outcomes if not outcome.killed]
    sys.stdout.write("\n".join([*rates(outcomes), *(["survivors:", *survivors] if survivors else [])]) + "\n")
    return 0 if outcomes and percent(outcomes) >= options.floor else 1


def rows(seconds: float) -> Iterator[Row]:
    """The row of `make verify`: a sample where tests are fast, and one mutant that no test looks at."""
    mutants = selected(SAMPLED, None, seed=1)
    sample = random.Random(1).sample(mutants, min(SAMPLE, len(mutants)))
    with folder_in_memory() as folder:
        laboratory = Laboratory(folder, WORKERS)
        outcomes = list(laboratory.run(sample, seconds))
        killed = next(outcome.mutant for outcome in outcomes if outcome.killed)
        unseen = laboratory.survives(killed, ("tests/test_durable.py",))
    survivors = [str(outcome.mutant) for outcome in outcomes if not outcome.killed]
    yield Row(
        "the tests notice small faults in what keeps data private",
        f"{len(outcomes)} of {len(mutants)} mutants, seed 1",
        f"{percent(outcomes):.0f} % killed" + (f"; survived: {'; '.join(survivors)}" if survivors else ""),
        percent(outcomes) >= SAMPLE_FLOOR_PERCENT and len(outcomes) >= LEAST_TRIED,
        ("tests that look elsewhere",),
        ("tests that look elsewhere",) if unseen else (),
    )


def selected(prefixes: Sequence[str], sample: int | None, seed: int, text: str = "") -> list[Mutant]:
    """The mutants of the modules with these prefixes that tests cover, without the listed equivalents, or a sample."""
    listed, found = equivalents(), []
    for path in sorted((TREE / PACKAGE).rglob("*.py")):
        module = path.relative_to(TREE / PACKAGE).as_posix()
        if module.startswith(tuple(prefixes)) and tests_of(module):
            made = mutants_of(module, path.read_text())
            mutants = [mutant for mutant in made if mutant.key not in listed and text in str(mutant)]
            chance = random.Random(f"{seed} {module}")
            found += mutants if sample is None else chance.sample(mutants, min(sample, len(mutants)))
    return found


def tests_of(module: str) -> tuple[str, ...]:
    """The tests that cover a module; none if it is not among those that are mutated."""
    return TESTS.get(max((prefix for prefix in TESTS if module.startswith(prefix)), key=len, default=""), ())


@cache
def equivalents() -> dict[tuple[str, str, str], str]:
    """The listed mutants that no test could tell from the original: why, by module, function and change."""
    entries = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(entry["module"], entry["function"], entry["change"]): entry["reason"] for entry in entries}


class Laboratory:
    """Copies of the tree, one for each worker, in which one mutant at a time is tried."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._copies: queue.Queue[Path] = queue.Queue()
        self._workers = workers
        self._usual: dict[tuple[str, ...], float] = {}
        for number in range(workers):
            self._copies.put(_copied(folder / f"copy-{number}"))

    def run(self, mutants: Sequence[Mutant], seconds: float = float("inf")) -> Iterator[Outcome]:
        """Try their tests as they are; then all mutants, or those that can be begun within so many seconds."""
        with ThreadPoolExecutor(self._workers) as pool:
            list(pool.map(self._time, dict.fromkeys(tests_of(mutant.module) for mutant in mutants)))
            stop = time.monotonic() + seconds
            for outcome in pool.map(lambda mutant: self._tried(mutant, stop), mutants):
                if outcome is not None:
                    yield outcome

    def _time(self, tests: tuple[str, ...]) -> None:
        began = time.monotonic()
        if not self._passes(tests, 1200):
            raise RuntimeError(f"{' '.join(tests)} fail without any mutant")
        self._usual[tests] = time.monotonic() - began

    def survives(self, mutant: Mutant, tests: tuple[str, ...], most_seconds: float = 600) -> bool:
        """Whether the tests pass with the mutant in place."""
        return self._passes(tests, most_seconds, mutant)

    def _tried(self, mutant: Mutant, stop: float) -> Outcome | None:
        began = time.monotonic()
        if began > stop:
            return None
        tests = tests_of(mutant.module)
        survived = self.survives(mutant, tests, 20 + 4 * self._usual[tests])
        return Outcome(mutant, not survived, time.monotonic() - began)

    def _passes(self, tests: tuple[str, ...], most_seconds: float, mutant: Mutant | None = None) -> bool:
        copy = self._copies.get()
        try:
            if mutant is not None:
                (copy / PACKAGE / mutant.module).write_text(
                    mutated(mutant, (TREE / PACKAGE / mutant.module).read_text())
                )
            return _run(copy, tests, most_seconds)
        finally:
            if mutant is not None:
                shutil.copyfile(TREE / PACKAGE / mutant.module, copy / PACKAGE / mutant.module)
            self._copies.put(copy)


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


def _run(copy: Path, tests: tuple[str, ...], most_seconds: float) -> bool:
    there = [test for test in tests if (copy / test).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
    paths = {"PYTHONPATH": os.pathsep.join([str(copy / "src"), str(copy)]), "PYTHONDONTWRITEBYTECODE": "1"}
    running = subprocess.Popen(
        [*command, *there],
        cwd=copy,
        env=os.environ | paths,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        code = running.wait(most_seconds)
    except subprocess.TimeoutExpired:
        return False
    finally:
        _end(running)
    if code > 2:  # 1: a test failed, 2: a module does not even import
        raise RuntimeError(f"pytest ended with {code} on {' '.join(there)}")
    return code == 0


def _end(running: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of a test run: it may be stuck, and so may what it started."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, 9)
    running.wait()


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
