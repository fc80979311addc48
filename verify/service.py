"""Kill a service under load: clients load and query all the time, while enclaves, clients and the front are killed.

    python -m verify.service [--seconds 150] [--kills 300] [--seed 1]

Every client keeps a journal (verify/service_clients.py). At times in between and in the end the table is read by plain
SQL and compared with the journals (verify/service_checker.py). Held besides: `scumble check` passes; after a clean
writer the folders hold what the head names and nothing else; for every load that is there something was drawn from the
ledger; and no enclave outlives its front. Every so many batches a new database is begun.
"""

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import scumble
from scumble.errors import Busy, ScumbleError, Unavailable
from scumble.owner.ledger import Ledger
from verify import Row, folder_in_memory
from verify.service_checker import Verdict, checked, read_journals, wrong_files
from verify.service_clients import CLIENT_FAULTS, TABLE, client, load, opened, pulled
from verify.service_front import FRONT_FAULTS, Front

__all__ = ["CAUGHT_AS", "Storm", "Tally", "planted", "rows", "storm"]

CLIENTS = 4
VICTIMS = ("enclave", "client", "enclave", "front", "client", *("enclave", "enclave", "client") * 2)
LIFE_BATCHES = 120
MOST_LOADS_BETWEEN, LONGEST_PAUSE_SECONDS, STEP_SECONDS = 2, 1.0, 0.03
LOOK_EVERY, LOOK_FOR_FAULT_EVERY = 12, 4
PATIENCE_SECONDS = 60.0
PLANTED_SECONDS = 25.0
SERVERS = multiprocessing.get_context("forkserver")

T = TypeVar("T")

# The findings that count as catching a fault; it may show in more than one way.
CAUGHT_AS = {
    "acknowledged before the commit": (
        "acknowledged, and not there",
        "an answer lacks what was known",
        "a client failed",  # Tampered: an enclave has seen a version that is not there
        "the checker is refused: Tampered",
    ),
    "leftovers stay": ("files left behind",),
    "a load repeated under another name": ("there more than once", "an answer has part of a batch"),
    "a batch dropped": ("acknowledged, and not there", "an answer lacks what was known"),
    "a batch torn": ("there in part", "an answer has part of a batch"),
    "an old version shown": ("an answer lacks what was known",),
}


def rows(seconds: float) -> Iterator[Row]:
    """Kill for half of the time; then plant faults, each of which has to be found."""
    tally = storm(0.5 * seconds, seed=int(time.time()))
    caught = [fault for fault, names in CAUGHT_AS.items() if planted(fault).findings.keys() & set(names)]
    yield Row(
        "a service or client killed at any moment loses no acknowledged load, doubles none, and answers right",
        "random SIGKILLs of enclaves, clients and the front under load; a checker of the clients' journals",
        str(tally),
        not tally.findings and tally.kills.total() > 0 and not tally.undecided,
        tuple(CAUGHT_AS),
        tuple(caught),
    )


def planted(fault: str) -> "Tally":
    """A storm with a fault: what clients do wrong needs hardly a kill to show, and more of them to work undisturbed."""
    return storm(PLANTED_SECONDS, seed=1, fault=fault, kills=2 if fault in CLIENT_FAULTS else 1000)


def storm(seconds: float, seed: int, fault: str = "", kills: int = 1_000_000) -> "Tally":
    """Run for so long, with so many kills, or until something is found; what was done, and what was found."""
    with folder_in_memory() as folder:
        run = Storm(folder, Random(seed), fault)
        try:
            run.go_on(seconds, kills)
        except ScumbleError as error:
            run.tally.findings[f"the checker is refused: {type(error).__name__}"] += 1
        finally:
            run.close()
        return run.tally


@dataclass
class Tally:
    """What was done, and what was found."""

    kills: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    batches: int = 0
    acknowledged: int = 0
    answers: int = 0
    refused: int = 0
    undecided: int = 0
    findings: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        killed = ", ".join(f"{count} of {victim}" for victim, count in sorted(self.kills.items()))
        found = "; ".join(f"{name} ({count})" for name, count in self.findings.items())
        return (
            f"{self.kills.total()} kills ({killed}), {self.acknowledged:,} acknowledged of {self.batches:,} batches, "
            f"{self.answers:,} answers, {self.refused} refusals, {self.lives} databases" + (f"; {found}" * bool(found))
        )


class Storm:
    """Starts the service and its clients, kills them at random, and checks what they leave."""

    def __init__(self, folder: Path, rng: Random, fault: str) -> None:
        self._folder, self._rng, self._fault = folder, rng, fault
        self.tally = Tally()
        self._number = 0
        self._clients: list[Client] = []
        served = folder / "served"
        served.mkdir()
        SERVERS.set_forkserver_preload(["verify.service_clients"])
        self._front = Front(served, folder / "front.log", fault if fault in FRONT_FAULTS else "")

    def go_on(self, seconds: float, kills: int) -> None:
        """Kill so many times within so many seconds; look at times in between, and in the end."""
        self._begin()
        end, turns = time.monotonic() + seconds, 0
        while time.monotonic() < end and not self.tally.findings:
            turns += 1
            self._wait()
            if turns <= kills:
                self._kill(VICTIMS[turns % len(VICTIMS)])
            if (
                turns % (LOOK_FOR_FAULT_EVERY if self._fault else LOOK_EVERY) == 0
                and self._look().batches >= LIFE_BATCHES
            ):
                self._end()
                self._begin()
        self._let_work()
        self._end()

    def close(self) -> None:
        for running in self._clients:
            running.kill()
        self._front.stop()

    # --- one life of a database --------------------------------------------------------------------

    def _begin(self) -> None:
        self.tally.lives += 1
        self._name = f"db{self.tally.lives}"
        self._home = self._folder / f"home{self.tally.lives}"
        self._home.mkdir()
        self._key = self._home / f"{self._name}.key"
        options = {"limit": 10**6, "delta_limit": "1e-1", "insecure_simulated_enclave": True}
        (self._folder / f"journals{self.tally.lives}").mkdir()
        with scumble.create(self._url, key=self._key, **options) as db:  # type: ignore[arg-type]
            self._persisting(lambda: load(db, self._announced()))
        self._clients = [self._client() for _ in range(CLIENTS)]

    @property
    def _url(self) -> str:
        return f"scumble://127.0.0.1:{self._front.port}/{self._name}"

    @property
    def _journals(self) -> Path:
        return self._folder / f"journals{self.tally.lives}"

    def _announced(self) -> int:
        """A batch of our own, which is in a journal like all others."""
        self._number += 1
        fields = {"event": "sent", "batch": 1000 * self._number, "at": time.monotonic()}
        (self._journals / f"{self._number}.journal").write_text(json.dumps(fields) + "\n")
        return 1000 * self._number

    def _client(self) -> "Client":
        self._number += 1
        journal = self._journals / f"{self._number}.journal"
        return Client(journal, self._url, self._key, journal, self._number, self._fault)

    def _wait(self) -> None:
        """Let some loads be done, so that there is something to lose; not for long, if there are none."""
        end, wanted = time.monotonic() + LONGEST_PAUSE_SECONDS, self._done() + self._rng.randint(0, MOST_LOADS_BETWEEN)
        while time.monotonic() < end and self._done() < wanted:
            time.sleep(STEP_SECONDS)
        time.sleep(self._rng.uniform(0, 0.2))

    def _let_work(self) -> None:
        """Let the clients get something done before the end, however slow the machine is."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end and not self.tally.findings:
            events = read_journals(self._journals)
            if events.acknowledged and events.answers:
                return
            time.sleep(STEP_SECONDS)

    def _done(self) -> int:
        return sum(running.journal().count('"acknowledged"') for running in self._clients)

    def _kill(self, victim: str) -> None:
        if victim == "client":
            at_work = [n for n, running in enumerate(self._clients) if '"sent"' in running.journal()[-60:]]
            place = self._rng.choice(at_work or range(CLIENTS))
            self._clients[place].kill()
            self._clients[place] = self._client()
        elif victim == "front":
            if self._front.kill():
                self._found("an enclave outlives its front")
            time.sleep(self._rng.uniform(0, 0.5))
            self._front.start()
        elif running := self._front.enclaves():
            with suppress(ProcessLookupError):
                os.kill(self._rng.choice(running), signal.SIGKILL)
        else:
            return
        self.tally.kills[victim] += 1

    def _end(self) -> None:
        """Kill the clients; then, after one clean writer, look at everything."""
        for running in self._clients:
            running.kill()
        self._clients = []
        last = self._announced()
        with self._persisting(lambda: opened(self._url, self._key)) as db:
            self._persisting(lambda: load(db, last))
            runs = [run.id for run in db.table(TABLE).runs]
            version = db.version
        verdict = self._look()
        events = read_journals(self._journals)
        self.tally.refused += events.refused
        self.tally.batches += verdict.batches
        self.tally.acknowledged += verdict.acknowledged
        self.tally.answers += verdict.answers
        self.tally.undecided += verdict.undecided
        self._check_files(version, runs)
        self._check_ledger(len(runs))
        self._check_pages()

    # --- what has to hold --------------------------------------------------------------------------

    def _look(self) -> Verdict:
        def pull() -> tuple[float, list[tuple[int, int, int, int]]]:
            with opened(self._url, self._key) as db:
                return time.monotonic(), pulled(db)

        asked_at, there = self._persisting(pull)
        verdict = checked(read_journals(self._journals), there, asked_at)
        self.tally.findings.update(verdict.findings)
        return verdict

    def _check_files(self, version: int, runs: list[str]) -> None:
        """No file that the head does not name, at the provider's or beside the key."""
        beside = {path.name for path in self._home.iterdir()}
        if wrong_files(self._front.folder / "default" / self._name, version, runs) or beside != {
            f"{self._name}.{suffix}" for suffix in ("key", "ledger", "anchor", "pins", "policy")
        }:
            self._found("files left behind")

    def _check_ledger(self, runs: int) -> None:
        """Something was drawn for every load that is there, and what was lost on the way counts."""
        with Ledger.open(self._key.with_suffix(".ledger")) as ledger:
            entries, spent = ledger.entries(), ledger.spent()
            lost = sum(entry.epsilon for entry in ledger.unsettled() if entry.state == "drawn")
        if sum(entry.state == "drawn" for entry in entries) < runs:
            self._found("loads that nothing was drawn for")
        if spent < lost:
            self._found("less is spent than was drawn")

    def _check_pages(self) -> None:
        command = [sys.executable, "-m", "scumble.cli", "check", self._url, "--key", str(self._key)]
        done = subprocess.run([*command, "--insecure-simulated-enclave"], capture_output=True, check=False)
        if done.returncode:
            self._found("scumble check fails")

    def _found(self, what: str) -> None:
        self.tally.findings[what] += 1

    def _persisting(self, work: Callable[[], T]) -> T:
        """Do something, again if the service was just killed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return work()
            except (Unavailable, Busy):
                if time.monotonic() > deadline:
                    raise


class Client:
    """A client's process, and what it has written down."""

    def __init__(self, journal: Path, *given: Any) -> None:
        self._journal = journal
        self._process = SERVERS.Process(target=client, args=given, daemon=True)
        self._process.start()

    def journal(self) -> str:
        return self._journal.read_text() if self._journal.exists() else ""

    def kill(self) -> None:
        """SIGKILL; once more does no harm."""
        with suppress(ValueError):  # it was killed and forgotten
            self._process.kill()
            self._process.join()
            self._process.close()


def main() -> int:
    """Kill, and say how it went; 1 if anything was found."""
    parser = argparse.ArgumentParser(description="Random kills of a service and its clients under load.")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--kills", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", choices=[*CLIENT_FAULTS, *FRONT_FAULTS], default="", help="plant this")
    given = parser.parse_args()
    tally = storm(given.seconds, given.seed, given.fault, given.kills)
    print(tally)
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
