"""Fuzz every reader of bytes or text, guided by coverage, for a fixed time, each in a process of its own.

    python -m verify.fuzz [TARGET ...] [--seconds 10]

The targets are in fuzz_targets.py. A finding is an input that ends in an exception outside ScumbleError's tree, a hang
or a dead process. Each is kept in verify/corpus/TARGET/ under the start of its SHA-256, and `make test` replays it from
then on. One finding does not end a run: further inputs that fail at the same line are passed over. A process notes the
input that it is about to run where its parent can read it even if the process dies, and ends without the interpreter's
shutdown: libFuzzer would call exit() with the interpreter held, for which threads of pyarrow's may be waiting.
"""

import argparse
import importlib.util
import mmap
import os
import re
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from verify import Row, folder_in_memory

if TYPE_CHECKING:
    from verify.fuzz_targets import Ready

__all__ = ["CORPUS", "Hang", "Notes", "Outcome", "fuzz", "kept", "limited", "rows"]

CORPUS = Path(__file__).parent / "corpus"
HANG_SECONDS = 5  # of the processor's time, for one input
DEAD_SECONDS = 30  # by the clock: what Python cannot interrupt, and libFuzzer ends
PATIENCE_SECONDS = 150  # over its time, by the clock: what libFuzzer cannot end either
SETUP_SECONDS = 300  # by the clock, before the first input
# What is planted hangs for certain: there is no need to wait so long.
PLANTED_DEAD_SECONDS, PLANTED_PATIENCE_SECONDS = 8, 20
POLL_SECONDS = 0.2
MOST_BYTES = 1 << 15
MOST_MEBIBYTES = 3072
AT_ONCE = 2
HUNG = 77
LEAST_SECONDS = 3  # however long it takes to set a target up
HINT = "atheris is missing: pip install atheris"


PLANTED = {
    "planted-length": "trusted length",
    "planted-loop": "endless loop",
    "planted-c-loop": "endless loop in C",
    "planted-deaf": "endless loop that no signal ends",
    "planted-crash": "dead process",
}


class Hang(BaseException):
    """An input took too long. Not an Exception, so that no handler on the way takes it for a refusal."""


@dataclass(frozen=True)
class Outcome:
    """What came of fuzzing one target: inputs tried, edges and features reached, and findings by where they failed."""

    name: str
    inputs: int
    edges: int
    findings: dict[str, bytes]

    def __str__(self) -> str:
        return f"{self.name}: {self.inputs:,} inputs, {self.edges:,} edges, {len(self.findings)} findings"


def rows(seconds: float) -> Iterator[Row]:
    """Fuzz every target, and the planted ones, within about so many seconds altogether."""
    claim = "any bytes or text end in an answer or a ScumbleError: no crash, no hang"
    check = "atheris, coverage-guided, each target in its own process"
    if importlib.util.find_spec("atheris") is None:
        yield Row(claim, check, HINT, holds=False)
        return
    names = target_names()
    each = seconds * AT_ONCE / (len(names) + len(PLANTED))
    outcomes = {outcome.name: outcome for outcome in fuzz_all([*PLANTED, *names], each)}
    for name in names:
        for where in keep(outcomes[name]):
            print(f"{name}: {where}", file=sys.stderr)
    inputs, edges = (sum(getattr(outcomes[name], part) for name in names) for part in ("inputs", "edges"))
    findings = sum(len(outcomes[name].findings) for name in names)
    ran = all(outcomes[name].inputs for name in names)
    yield Row(
        claim,
        check,
        f"{len(names)} targets, {inputs:,} inputs, {edges:,} edges, {findings} findings",
        ran and not findings,
        tuple(PLANTED.values()),
        tuple(what for name, what in PLANTED.items() if any(outcomes[name].findings.values())),
    )


def target_names() -> list[str]:
    """The targets, without setting any up."""
    from verify.fuzz_targets import TARGETS

    return list(TARGETS)


def fuzz_all(names: Sequence[str], seconds: float) -> list[Outcome]:
    """Fuzz some targets, two at a time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda name: fuzz(name, seconds), names))


def fuzz(name: str, seconds: float) -> Outcome:
    """Fuzz one target in a process of its own."""
    with folder_in_memory() as home:
        for part in ("found", "died", "start", "work"):
            (home / part).mkdir()
        for place, data in enumerate(kept(name)):
            (home / "start" / f"kept-{place}").write_bytes(data)
        command = [sys.executable, "-m", "verify.fuzz", "--child", str(home), name, "--seconds", str(seconds)]
        notes = Notes(home)
        patience = PLANTED_PATIENCE_SECONDS if name in PLANTED else PATIENCE_SECONDS
        with (home / "log").open("wb") as log_file:
            child = subprocess.Popen(command, stdout=log_file, stderr=log_file, cwd=CORPUS.parents[1])
            code = _ended(child, notes, seconds + patience)
        log = (home / "log").read_text(errors="replace")
        findings = {
            path.with_suffix(".where").read_text(): path.read_bytes() for path in (home / "found").glob("*.input")
        }
        for path in (home / "died").iterdir():  # what libFuzzer itself wrote: the process is dead
            findings[f"{path.name.partition('-')[0]}: the process ended"] = path.read_bytes()
        if code is None:
            findings[f"killed: no end, {notes.state}"] = notes.input
        elif code and not findings:
            findings[f"exit code {code}, {notes.state}: {log[-2000:]}"] = notes.input
        return Outcome(name, notes.inputs, _edges(log), findings)


def _ended(child: "subprocess.Popen[bytes]", notes: "Notes", seconds: float) -> int | None:
    """Wait so long for a child from its first input on; its exit code, or None if it had to be killed."""
    end, begun = time.monotonic() + SETUP_SECONDS, False
    while time.monotonic() < end:
        try:
            return child.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if not begun and notes.inputs:
                end, begun = time.monotonic() + seconds, True
    child.kill()
    child.wait()
    return None


def kept(name: str) -> list[bytes]:
    """The inputs that failed once, or that are kept for another reason."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*")) if path.is_file()]


def keep(outcome: Outcome) -> list[str]:
    """Put the findings of a target into the corpus; where each failed, and what it is called."""
    kept_as = []
    for where, data in outcome.findings.items():
        if outcome.name.startswith("planted"):
            kept_as.append(where)
            continue
        path = CORPUS / outcome.name / sha256(data).hexdigest()[:16]
        if data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        kept_as.append(f"{where} ({path.name})")
    return kept_as


def _edges(log: str) -> int:
    return max((int(number) for number in re.findall(r"\bcov: (\d+)", log)), default=0)


class Notes:
    """What a child is doing, in a file that both have mapped: it can be read after the process has died."""

    _HEAD = struct.Struct("<3q")  # inputs begun, inputs ended, bytes of the last one

    def __init__(self, home: Path) -> None:
        path, size = home / "notes", self._HEAD.size + MOST_BYTES
        if not path.exists():
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)

    def begin(self, data: bytes) -> None:
        begun, ended, _ = self._HEAD.unpack_from(self._map)
        self._map[self._HEAD.size : self._HEAD.size + len(data)] = data
        self._HEAD.pack_into(self._map, 0, begun + 1, ended, len(data))

    def end(self) -> None:
        begun, _, size = self._HEAD.unpack_from(self._map)
        self._HEAD.pack_into(self._map, 0, begun, begun, size)

    @property
    def inputs(self) -> int:
        begun: int = self._HEAD.unpack_from(self._map)[0]
        return begun

    @property
    def input(self) -> bytes:
        size = self._HEAD.unpack_from(self._map)[2]
        return self._map[self._HEAD.size : self._HEAD.size + size]

    @property
    def state(self) -> str:
        begun, ended, _ = self._HEAD.unpack_from(self._map)
        return "while it was set up" if not begun else "with an input under way" if begun > ended else "between inputs"


# --- in the child ----------------------------------------------------------------------------------


def limited(ready: "Ready", data: bytes, seconds: float = HANG_SECONDS) -> None:
    """Call a target; raise Hang if it takes more than so much of the processor's time."""
    from verify.fuzz_targets import holds

    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.5)  # again and again: a finaliser may swallow the first
    try:
        holds(ready.run, data)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _where(error: BaseException) -> str:
    """The kind of an error and the place in our own code that it came from: what makes two findings the same one."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/scumble/" in frame.filename] or frames
    if isinstance(error, Hang | RecursionError | MemoryError):
        ours = [frame for frame in ours if "/scumble/" in frame.filename][:3] or ours
    last = ours[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


def _child(folder: Path, name: str, seconds: float) -> None:
    begun = time.monotonic()
    import atheris

    with atheris.instrument_imports(include=["scumble", "verify.fuzz_targets"]):
        from verify import fuzz_targets
    ready = {**fuzz_targets.TARGETS, **fuzz_targets.PLANTED}[name](folder / "work")
    for place, seed in enumerate(ready.seeds):
        (folder / "start" / f"seed-{place}").write_bytes(seed)
    seen: set[str] = set()
    notes = Notes(folder)
    end = max(begun + seconds, time.monotonic() + LEAST_SECONDS)

    def test(data: bytes) -> None:
        if time.monotonic() > end:
            os._exit(0)
        notes.begin(data[:MOST_BYTES])
        try:
            limited(ready, data)
        except (Exception, Hang) as error:
            where = _where(error)
            if where not in seen:
                seen.add(where)
                place = folder / "found" / str(len(seen))
                place.with_suffix(".input").write_bytes(data)
                place.with_suffix(".where").write_text(where)
            if isinstance(error, Hang):
                sys.stderr.flush()
                os._exit(HUNG)  # each further one would take as long
        notes.end()

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = Random(seed)
        if ready.mutate is None or rng.random() < 0.4:
            changed: bytes = atheris.Mutate(data, most)
            return changed
        for _ in range(rng.choice([1, 1, 2, 4])):
            data = ready.mutate(data, rng)
        return data[:most]

    options = {
        "timeout": PLANTED_DEAD_SECONDS if name == "planted-c-loop" else DEAD_SECONDS,
        "max_len": MOST_BYTES,
        "len_control": 0,
        "report_slow_units": 10 * DEAD_SECONDS,
        "rss_limit_mb": MOST_MEBIBYTES,
        "artifact_prefix": f"{folder / 'died'}/",
    }
    arguments = [name, *(f"-{option}={value}" for option, value in options.items()), str(folder / "start")]
    custom: dict[str, Any] = {} if ready.mutate is None else {"custom_mutator": mutate}
    atheris.Setup(arguments, test, **custom)
    atheris.Fuzz()


def main() -> int:
    """Fuzz the targets that are named, or all; 1 if there is a finding."""
    parser = argparse.ArgumentParser(description="Fuzz the readers of files, requests and text.")
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=float, default=10, help="for each target")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        _child(given.child, given.targets[0], given.seconds)
        return 0
    if importlib.util.find_spec("atheris") is None:
        print(HINT)
        return 2
    found = 0
    for outcome in fuzz_all(given.targets or target_names(), given.seconds):
        print(outcome)
        for where in keep(outcome):
            print(f"    {where}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
