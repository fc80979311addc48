"""Check the life of a database in a model: versions, enclaves' memory, hand-over, rekey, restore and a lying provider.

`lifecycle.pml` is the model, in Promela; nothing in it is secret. Spin searches all that can happen within its bounds.
With every check of the protocol nothing bad may be found; without any single one of them something must be.

    python -m verify.lifecycle NO_CARRYING      print how it goes wrong without that check
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from verify import Row

__all__ = ["CHECKS", "Found", "rows", "search"]

MODEL = Path(__file__).with_suffix(".pml")
SECONDS = 150  # for one search, on a busy machine
COMPILED = ("-w", "-O1", "-DNOFAIR", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=2000")
LIVE = ("-w", "-O1", "-DNOREDUCE", "-DMEMLIM=2000")

CHECKS = {
    "NO_ID": ("a database's id is a hash of its first key", "FROM THE OWNER"),
    "NO_OLD_SIGNATURE": ("a rekey is signed by the old key", "FROM THE OWNER"),
    "NO_NEW_SIGNATURE": ("a rekey is signed by the new key", "FROM THE OWNER"),
    "NO_DATA_KEY_HASH": ("the chain of ownership states the data key's hash", "FROM THE OWNER"),
    "NO_VERSION_SIGNATURE": ("every version is signed", "FROM THE OWNER"),
    "NO_GRANT_SIGNATURE": ("a grant is signed by the owner", "FROM THE OWNER"),
    "NO_OWNER_ON_RECORD": ("ownership never goes back to an old key", "NOT BY AN OLD KEY"),
    "NO_MEMORY": ("an enclave accepts descendants of what it remembers", "NEVER BACK"),
    "NO_ADOPTION_CHECK": ("so does one to which something is handed over", "NEVER BACK"),
    "NO_ANCHOR": ("a client accepts descendants of its anchor", "NEVER BACK"),
    "NO_RESTORE_NUMBER": ("a restore is numbered above all that was seen", "NEVER BACK"),
    "NO_RESTORE_BY_OWNER": ("only the owner restores", "NEVER BACK"),
    "NO_CARRYING": ("a restore takes use and revocations along", "USE NEVER SHRINKS, REVOCATIONS STAY"),
    "NO_USE_KEPT": ("no enclave accepts a restore that forgets some", "USE NEVER SHRINKS, REVOCATIONS STAY"),
    "NO_FOLLOWING": ("a session follows the newest version", "NOTHING FOR THE REVOKED"),
    "NO_CHARGE_FIRST": ("a charge is committed before noise is drawn", "CHARGED BEFORE DRAWN"),
    "NO_OWN_RECORD": ("a loader keeps a record of its own", "CHARGED BEFORE DRAWN"),
    "NO_POLICY": ("a peer is admitted by the owner's policy", "NO KEY FOR A PEER WITHOUT LEAVE"),
}
"""Each check that can be taken out, what it says, and which of the model's assertions then fails."""

PREEMPTION = "NO_PREEMPTION"


@dataclass(frozen=True)
class Found:
    """PUBLIC: what a search has found: how many states, whether it ended, and how things go wrong, if they do."""

    states: int
    ended: bool
    broken: str = ""
    story: tuple[str, ...] = ()


def rows(seconds: float) -> Iterator[Row]:
    """One row for what must never happen, one for what must happen at last."""
    if not shutil.which("spin"):
        yield Row("the model of versions holds", "Spin", "spin is not installed", False)
        return
    with ThreadPoolExecutor(2) as pool:
        whole = pool.submit(search)
        without = {name: pool.submit(search, name) for name in CHECKS}
        found, states = whole.result(), sum(each.result().states for each in without.values())
        caught = [name for name, each in without.items() if _is_expected(name, each.result())]
    yield Row(
        "no provider takes a database over, rolls it back, revives a grant, or has anything released unpaid",
        f"all states of a model with 2 enclaves and 5 versions (Spin); then without each of {len(CHECKS)} checks",
        f"{found.states:,} states, {'nothing found' if _holds(found) else found.broken or 'not ended'}; "
        f"{states:,} until the first fault without a check",
        _holds(found),
        tuple(text for text, _ in CHECKS.values()),
        tuple(CHECKS[name][0] for name in caught),
    )
    live, blocked = search(live=True), search(PREEMPTION, live=True)
    yield Row(
        "whatever a loader does, the owner's revocation goes through",
        "all fair runs of the model's leases (Spin)",
        f"{live.states:,} states, {'no endless wait' if _holds(live) else 'an endless wait'}",
        _holds(live),
        ("a lease that the owner can't pre-empt",),
        ("a lease that the owner can't pre-empt",) if blocked.broken else (),
    )


def _holds(found: Found) -> bool:
    return found.ended and not found.broken


def _is_expected(name: str, found: Found) -> bool:
    return found.broken in CHECKS[name][1].split(", ")


def search(without: str | None = None, *, live: bool = False, told: bool = False) -> Found:
    """Search the model, without a check if one is named; with `told`, also tell the shortest way to go wrong."""
    defines = [f"-D{name}" for name in (without, "LIVENESS" if live else None) if name]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(MODEL, folder / MODEL.name)
        _run(folder, "spin", *defines, "-a", MODEL.name)
        shortest = ("-DREACH",) if told and not live else ()
        _run(folder, "gcc", *(LIVE if live else COMPILED), *shortest, "-o", "pan", "pan.c")
        said = _run(folder, "./pan", "-n", "-m100000", *(("-a", "-f") if live else ("-E", "-i") if told else ("-E",)))
        states = next((int(line.split()[0]) for line in said.splitlines() if "states, stored" in line), 0)
        ended = "errors: 0" in said and "max search depth too small" not in said and "out of memory" not in said
        if not (folder / f"{MODEL.name}.trail").exists():
            return Found(states, ended)
        trail = _run(folder, "spin", *defines, "-t", MODEL.name)
        return Found(states, ended=True, broken=_broken(trail, live=live), story=_story(trail) if told else ())


def _broken(trail: str, *, live: bool) -> str:
    """The name of the assertion that fails, as the comment behind it says."""
    if live:
        return "ENDLESS WAIT"
    for line in trail.splitlines():
        if "assertion violated" in line and f"{MODEL.name}:" in line:
            number = int(line.split(f"{MODEL.name}:")[1].split(",")[0])
            return MODEL.read_text().splitlines()[number - 1].partition("/*")[2].partition("*/")[0].strip()
    return "SOMETHING ELSE"


def _story(trail: str) -> tuple[str, ...]:
    begun = ("the ", "noise ", "version ", "enclave ")
    return tuple(line.strip() for line in trail.splitlines() if line.strip().startswith(begun))


def _run(folder: Path, *command: str) -> str:
    """What a program says; how it ends says nothing here, since a fault that is found is one of its ways to end."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout + done.stderr


if __name__ == "__main__":
    for name in sys.argv[1:] or [*CHECKS, PREEMPTION]:
        result = search(name, live=name == PREEMPTION, told=True)
        sys.stdout.write(
            "\n".join([f"{name}: {result.broken or 'nothing found'}", *map("  {}".format, result.story), ""])
        )
