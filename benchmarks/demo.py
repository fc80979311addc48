"""The demo: a private index over a million made-up salaries, built, queried, saved and drawn in a few seconds.

`make demo` runs it. Every number that it prints is measured in that run; the data is made up, which is why the demo
may compare with the truth and draw it.
"""

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.data import salaries
from benchmarks.overhead import lost_rows, overhead_rows
from scumble import DPPLRIndex, IntegerDomain, Ledger, ScumbleError

__all__ = ["main"]

Counts = NDArray[np.int64]


def main(arguments: list[str] | None = None) -> int:
    """Tell the story, step by step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**6, help="made-up rows (1,000,000)")
    parser.add_argument("--salaries", type=int, default=2**20, help="possible salaries, from 0 on (2^20)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the index and the picture")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    _Demo(options.rows, options.salaries, options.output).tell()
    return 0


class _Demo:
    """One run of the demo: the data and what it prints to."""

    def __init__(self, rows: int, size: int, output: Path) -> None:
        self.console = Console(width=None if sys.stdout.isatty() else 100, highlight=False, soft_wrap=False)
        self.output = output
        self.domain = IntegerDomain(0, size - 1)
        self.keys = salaries(rows, size)
        self.counts: Counts = np.bincount(self.keys, minlength=size).astype(np.int64)
        self.curve = np.cumsum(self.counts)
        self.steps = 0

    def tell(self) -> None:
        """The steps in order."""
        rows, size = len(self.keys), self.domain.size
        self.say(
            f"{rows:,} employees, each with a salary in kronor a year between 0 and {size - 1:,}, made up for this "
            "demo. Think of their rows as encrypted at a provider, sorted by salary. An index says which positions a "
            "query needs, so that not all of them have to be read. An exact index would give the salaries away; this "
            "one is differentially private."
        )
        ledger = Ledger(limit=2)
        index = self.build(ledger)
        self.look_up(index)
        self.check(index)
        self.compare(index)
        self.overdraw(ledger)
        self.keep(index)
        self.draw(index)

    def build(self, ledger: Ledger) -> DPPLRIndex:
        """Step 1."""
        self.step("Spend some of the privacy budget, and build the index")
        self.code(
            "ledger = Ledger(limit=2)",
            "index = DPPLRIndex(max_bytes=4096).fit(",
            f"    salaries, domain=IntegerDomain(0, {self.domain.size - 1}),",
            '    budget=ledger.spend(1, "salary"), beta=1e-6)',
        )
        begun = perf_counter()
        index = DPPLRIndex(max_bytes=4096).fit(
            self.keys, domain=self.domain, budget=ledger.spend(1, "salary"), beta=1e-6
        )
        spent = perf_counter() - begun
        summary = index.summary()
        self.say(
            f"It took {spent:.2f} s. The index is {summary.segments:,} straight segments in {summary.bytes:,} bytes, "
            f"and every lookup is widened by {summary.slack_rows:,} rows on each side. The chance that any lookup at "
            f"all, now or later, loses a row is at most {summary.beta:g}. Epsilon {summary.epsilon:g} is spent once, "
            "now; queries cost nothing more."
        )
        self.sees(
            "these segments and the number of rows to widen by, all made with noise: whether one person's row is in "
            "the table or not changes the chance of whatever it sees by a factor of at most e^epsilon = 2.72",
            "a salary, a count, or the exact number of rows",
        )
        return index

    def look_up(self, index: DPPLRIndex) -> None:
        """Step 2."""
        self.step("Look keys up")
        size = self.domain.size
        point, low, high = size * 2 // 5, size * 3 // 10, size * 31 // 100
        table = Table()
        for heading in ("query", "the answer lies at", "positions read", "rows read", "of all rows"):
            table.add_column(heading, justify="left" if heading == "query" else "right")
        for text, first, last in (
            (f"salary = {point:,}", point, point),
            (f"salary {low:,} to {high:,}", low, high),
        ):
            start, stop = index.lookup(first, last)
            true = (int(self.curve[first] - self.counts[first]), int(self.curve[last]))
            table.add_row(
                text,
                f"{true[0]:,} to {true[1]:,}\n({true[1] - true[0]:,} rows)",
                f"{start:,} to {stop:,}",
                f"{stop - start:,}",
                f"{(stop - start) / len(self.keys):.3%}",
            )
        self.console.print(table)
        self.sees(
            "the positions read, which follow from the query and the index alone",
            "which of the rows it read answer the query: that is decided inside the enclave, on all of them alike",
        )

    def check(self, index: DPPLRIndex) -> None:
        """Step 3."""
        self.step(f"Check every one of the {self.domain.size:,} keys")
        begun = perf_counter()
        lost = lost_rows(index.model, self.counts)
        mean = overhead_rows(index.model, self.counts)
        verdict = "LOST A ROW, which should happen once in a million builds" if lost else "no lookup lost a row"
        self.say(
            f"Points and ranges, from every key and to every key: {verdict}. On average a point lookup read "
            f"{mean:,.0f} rows beyond its answer; a full scan reads {len(self.keys):,}. "
            f"({perf_counter() - begun:.2f} s)"
        )

    def compare(self, index: DPPLRIndex) -> None:
        """Step 4."""
        self.step("Compare with the published design")
        published = DPPLRIndex(max_bytes=4096, mechanism="paper", slack="paper").fit(
            self.keys, domain=self.domain, budget=Ledger(limit=1).spend(1, "for comparison"), beta=1e-6
        )
        table = Table()
        for heading in (
            "design",
            "epsilon",
            "bytes",
            "segments",
            "widened by, each side",
            "mean overhead",
            "lost rows",
        ):
            table.add_column(heading, justify="left" if heading == "design" else "right")
        for name, one in (("Scumble", index), ("published", published)):
            summary = one.summary()
            table.add_row(
                name,
                f"{summary.epsilon:g}",
                f"{summary.bytes:,}",
                f"{summary.segments:,}",
                f"{summary.slack_rows:,} rows",
                f"{overhead_rows(one.model, self.counts):,.0f} rows",
                "some" if lost_rows(one.model, self.counts) else "none",
            )
        self.console.print(table)
        ratio = overhead_rows(published.model, self.counts) / overhead_rows(index.model, self.counts)
        self.say(
            "For the same privacy, the same bound on the chance of loss and the same room for its file, the published "
            f"design reads {ratio:.1f} times as many rows beyond the answer. The provider sees the same kind of thing "
            "in both. (`make bench` compares on four kinds of keys, with the published design at its best setting.)"
        )

    def overdraw(self, ledger: Ledger) -> None:
        """Step 5."""
        self.step("Try to spend more than there is")
        self.console.print(ledger)
        self.code('ledger.spend("1.5", "salary, once more")')
        try:
            ledger.spend("1.5", "salary, once more")
        except ScumbleError as error:
            self.say(f"{type(error).__name__}: {error}\n")
        self.say(
            "A budget is written down before any noise is drawn, in exact fractions; `fit` takes nothing else for a "
            "budget. The provider sees nothing of this: the ledger is the owner's."
        )

    def keep(self, index: DPPLRIndex) -> None:
        """Step 6."""
        self.step("Save the index, and load it without the data")
        path = self.output / "salary.index"
        index.save(path)
        loaded = DPPLRIndex.load(path)
        every = np.arange(self.domain.size)
        same = all(
            np.array_equal(a, b) for a, b in zip(index.lookup_many(every), loaded.lookup_many(every), strict=True)
        )
        self.say(
            f"{path} has {path.stat().st_size:,} bytes, and answers {'the same' if same else 'DIFFERENTLY'} for "
            "every key. It is public: the provider may have it, and sees no more in it than in the first step."
        )

    def draw(self, index: DPPLRIndex) -> None:
        """Step 7."""
        self.step("Draw it")
        paths = [self.output / f"index.{suffix}" for suffix in ("png", "svg")]
        for path in paths:
            index.plot(path, key_label="salary (kronor a year)", unsafe_true_counts=self.counts)
        self.say(
            f"{paths[0]} and {paths[1]} show the segments, the band that a lookup reads, the noisy curve, and the true "
            "one. The true curve is secret, and drawn only because these salaries are made up; the rest is public."
        )

    # --- layout ---

    def step(self, title: str) -> None:
        """A numbered heading."""
        self.steps += 1
        self.console.print(Text(f"\n{self.steps}. {title}\n", style="bold"))

    def say(self, text: str) -> None:
        """A paragraph."""
        self.console.print(Text(text))

    def code(self, *lines: str) -> None:
        """Lines as they would be typed, or as they would be answered."""
        self.console.print(Text("\n".join(f"    {line}" for line in lines) + "\n", style="cyan"))

    def sees(self, seen: str, unseen: str) -> None:
        """What the provider learns from a step, and what not."""
        self.console.print(Text.assemble("\n", ("The provider sees ", "green"), f"{seen}."))
        self.console.print(Text.assemble(("It does not see ", "magenta"), f"{unseen}."))


if __name__ == "__main__":
    raise SystemExit(main())
