"""Check the Python around the kernels: read its source, and run all of it under memcheck with every secret undefined.

In the second check a real database is made, and Python itself runs under valgrind: pages become undefined as soon as
they are decrypted, bounds as soon as they are unpacked, rows of a load as soon as they arrive; answers and pages become
defined again right before they are sealed. Every branch on them in between (numpy, cffi, Python, the kernels) is
counted, and there must be none. Run as a program, this module is what valgrind runs.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from verify import Row, allow_list

__all__ = ["allow_list_row", "rows", "taint_row"]

ROOT = Path(__file__).parents[1]
QUERIES = {
    "aggregates": "SELECT count(*), sum(v), min(f), max(v), avg(f), stddev(v), variance(f), sum(v * (100 - k)) FROM t"
    " WHERE k BETWEEN 100 AND 700 AND name <> 'n5'",
    "groups": "SELECT c, count(v), sum(v), min(k), max(v), avg(f) FROM t WHERE v IS NOT NULL OR f > 0 GROUP BY c",
    "rows": "SELECT k, v, c, f, name, s FROM t WHERE k < 300 AND (v > 5 OR c = 'red' OR v < k)",
    "wide columns": "SELECT u, x FROM t WHERE u > '12345678-0000-0000-0000-000000000000' AND (d > 5 OR x > ''::BLOB)",
    "narrow columns": "SELECT count(*), sum(s), max(s), min(b) FROM t WHERE s <= s2 OR b > 200 OR s2 > 0",
}
CHANGES = {
    "delete": "DELETE FROM t WHERE k BETWEEN 100 AND 120 AND v > 0",
    "update": "UPDATE t SET v = v + k * 2, name = 'new', c = NULL, s = s2 WHERE k < 50 OR f > 1",
    "moved rows": "UPDATE t SET k = 77 WHERE k BETWEEN 100 AND 200 AND f > 0",
    "rows by keys": "UPDATE t SET v = x.b FROM (VALUES (1, 2), (3, 4), (5, 6)) x(a, b) WHERE t.k = x.a",
}
TYPES = {"c": 'category(["blue","green","red"])', "name": "text(12)", "x": "blob(12)", "k": "integer not null"}
PLANTED = ("skipped batch", "boolean index", "gather", "sort", "skipped page")


def rows(seconds: float) -> Iterator[Row]:
    """The rows of the table; the taint run takes about two minutes, five on a busy machine."""
    yield allow_list_row()
    yield taint_row(max(3 * seconds, 600))


def allow_list_row() -> Row:
    """Read the enclave's source."""
    found = allow_list.in_package()
    modules = len(list(allow_list.ENCLAVE.glob("*.py")))
    return Row(
        "the enclave's Python applies only listed operations to secrets",
        "its source, read",
        "; ".join(map(str, found)) or f"{modules} modules, {len(allow_list.EXCEPTIONS)} exceptions",
        not found,
        tuple(allow_list.PLANTED),
        tuple(name for name, source in allow_list.PLANTED.items() if allow_list.in_source(source)),
    )


def taint_row(seconds: float) -> Row:
    """Run queries, a load and changes under memcheck."""
    claim, check = "a whole query, a load and every change branch on no secret", "Python under memcheck"
    if not shutil.which("valgrind"):
        return Row(claim, check, "valgrind is missing: apt-get install valgrind", False, PLANTED)
    with TemporaryDirectory() as name:
        folder = Path(name)
        command = ["gcc", "-shared", "-fPIC", "-O2", str(ROOT / "native" / "check" / "taint.c")]
        subprocess.run([*command, "-o", str(folder / "taint.so")], check=True)
        watched = ["valgrind", "-q", "--error-limit=no", f"--log-file={folder / 'memcheck.log'}"]
        # valgrind's processor has no AVX-512, so numpy picks AVX2; small pieces must not come from Python's own pools
        settings = {**os.environ, "PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                [*watched, sys.executable, "-m", "verify.python_side", str(folder)],
                check=False,
                capture_output=True,
                text=True,
                cwd=ROOT,
                env=settings,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return Row(claim, check, f"not done after {seconds:.0f} s", False, PLANTED)
        lines = done.stdout.splitlines()
        if done.returncode or not lines:
            return Row(claim, check, f"failed: {done.stderr.strip().splitlines()[-1:]}", False, PLANTED)
    counts: dict[str, int] = json.loads(lines[-1])
    honest = {what: count for what, count in counts.items() if what not in PLANTED}
    return Row(
        claim,
        check,
        "reports: " + ", ".join(f"{what} {count}" for what, count in honest.items()),
        not any(honest.values()),
        PLANTED,
        tuple(what for what in PLANTED if counts.get(what)),
    )


# --- what valgrind runs --------------------------------------------------------------------------------


class Taint:
    """Valgrind's client requests, and how many reports there were while secrets were undefined."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.taint_errors.restype = ctypes.c_size_t
        if not self._library.taint_watched():
            raise SystemExit("this has to run under valgrind")
        self._reports = 0
        self._marking = False

    def hide(self, array: NDArray[Any]) -> None:
        """Make an array's contents undefined, if secrets are marked now."""
        if self._marking:
            self._library.taint_hide(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))

    def show(self, array: NDArray[Any]) -> None:
        self._library.taint_show(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))

    def reports_of(self, work: Callable[[], Any], *, marking: bool) -> int:
        """How much memcheck reports inside the enclave while something is done, with secrets marked or not."""
        self._marking, self._reports = marking, 0
        work()
        self._marking = False
        return self._reports

    def counted(self, work: Callable[[], Any]) -> Any:
        """Do something, and count what memcheck reports meanwhile."""
        before = self._library.taint_errors()
        try:
            return work()
        finally:
            self._reports += self._library.taint_errors() - before

    def uncounted(self, work: Callable[[], Any]) -> Any:
        """Do something in between that is not to be counted."""
        before = self._library.taint_errors()
        try:
            return work()
        finally:
            self._reports -= self._library.taint_errors() - before


def _main(folder: Path) -> None:
    from scumble import opening

    taint = Taint(folder / "taint.so")
    counts: dict[str, int] = {}
    with opening.create(folder / "db", limit=100) as db, ExitStack() as patches:
        for patch in _patches(taint):
            patches.enter_context(patch)
        # Everything runs first without secrets, to import what is imported late; then without, to know what memcheck
        # reports of Python itself; then with secrets. Only what is reported beyond Python's own is held against us.
        options: dict[str, Any] = {"types": TYPES, "page_rows": 64, "capacity": 1024}

        def load(table: str) -> None:
            db.load(table, _table(), indexes=["k int:0:1023 epsilon=1"], again=True, **options)

        load("first")
        counts["load"] = -taint.reports_of(lambda: load("second"), marking=False)
        counts["load"] += taint.reports_of(lambda: load("t"), marking=True)
        for name, query in QUERIES.items():
            ask = partial(_ask, db, query)
            ask()
            counts[name] = taint.reports_of(ask, marking=True) - taint.reports_of(ask, marking=False)
        for name, work in _changes(db, load).items():
            work()
            counts[name] = taint.reports_of(work, marking=True) - taint.reports_of(work, marking=False)
        for name, patch in _defects().items():
            what = CHANGES["delete"] if name == "skipped page" else QUERIES["rows"]
            with patch:
                counts[name] = taint.reports_of(partial(_ask, db, what), marking=True)
    sys.stdout.write(json.dumps(counts) + "\n")


def _ask(db: Any, query: str) -> None:
    db.execute(query)


def _changes(db: Any, load: Callable[[str], None]) -> dict[str, Callable[[], Any]]:
    """What changes tables: statements, and their upkeep."""
    few = _table().slice(0, 9)
    db.automatic = False

    def flushed() -> None:
        db.insert("t", few)
        db.flush("t")

    def merged() -> None:
        load("t")
        db.insert("t", few)
        db.insert("t", few)
        db.compact("t")

    statements = {name: partial(_ask, db, statement) for name, statement in CHANGES.items()}
    return {**statements, "flush": flushed, "merge": merged, "vacuum": partial(_vacuum, db)}


def _vacuum(db: Any) -> None:
    _ask(db, CHANGES["delete"])
    db.vacuum("t")


def _table() -> Any:
    import pyarrow as pa

    rng = np.random.default_rng(1)
    rows = 700
    values = [None if at % 7 == 0 else int(value) for at, value in enumerate(rng.integers(-9999, 9999, rows))]
    return pa.table(
        {
            "k": pa.array(rng.integers(0, 1000, rows), pa.int32()),
            "v": pa.array(values, pa.int64()),
            "c": pa.array([("red", "green", "blue")[code] for code in rng.integers(0, 3, rows)]),
            "f": pa.array(rng.normal(size=rows)),
            "name": pa.array([f"n{number}" for number in rng.integers(0, 99, rows)]),
            "u": pa.array([rng.bytes(16) for _ in range(rows)], pa.uuid()),
            "d": pa.array(
                [Decimal(int(value) * 10**20) for value in rng.integers(-9999, 9999, rows)], pa.decimal128(38, 0)
            ),
            "x": pa.array([rng.bytes(number) for number in rng.integers(0, 12, rows)], pa.binary()),
            "s": pa.array(rng.normal(size=rows).astype(np.float32)),
            "s2": pa.array(rng.normal(size=rows).astype(np.float32)),
            "b": pa.array(rng.integers(0, 256, rows), pa.uint8()),
        }
    )


def _patches(taint: Taint) -> list[Any]:
    """Where what is secret becomes undefined, and where it becomes defined because it is sealed next, or released."""
    from scumble.enclave import changes, flushes, kernels, merges, pages, sessions
    from scumble.enclave import loads as build
    from scumble.enclave import queries as execute
    from scumble.index.dp_plr import DPPLRIndex

    open_pages, write_pages = pages.RunReader.open_pages, pages._Writer.write_pages
    rewriting, gather, is_set, as_count = changes.rewrite, flushes.Flush.gather, kernels.is_set, kernels.as_count
    executed, load = execute.execute, build.Load.build
    agree, printed = kernels.rows_agree, pages.DataKeys.fingerprint
    append, cumulative, fit = build.Load.append, kernels.cumulative_counts, DPPLRIndex.unsafe_fit_counts

    def opened(self: Any, column: int, first_page: int, count: int, room: Any = None) -> NDArray[np.uint8]:
        plain = open_pages(self, column, first_page, count, room)
        taint.hide(plain)
        return plain

    def execution(prepared: Any, given: Any, reader: Any) -> bytes:
        taint.hide(given.bounds)
        answer: bytes = taint.counted(lambda: executed(prepared, given, reader))
        taint.show(given.bounds)
        taint.show(np.frombuffer(answer, np.uint8))
        return answer

    def appended(self: Any, rows: memoryview) -> None:
        taint.hide(np.frombuffer(rows, np.uint8))
        taint.counted(lambda: append(self, rows))

    def agreed(ends: NDArray[np.int64], least: int, most: int) -> bool:  # whether a batch is taken is public
        taint.show(ends)
        return agree(ends, least, most)

    def fingerprint(self: Any, digest: bytes) -> bytes:  # a keyed hash is random to whoever has not the key
        made = printed(self, digest)
        taint.show(np.frombuffer(made, np.uint8))
        return made

    def curve(keys: NDArray[np.int64], ranks: int) -> NDArray[np.int64]:
        counts = cumulative(keys, ranks)
        taint.show(counts)
        return counts

    def fitted(*given: Any, **more: Any) -> Any:  # the release of an index is not proven so: docs/threat-model.md
        return taint.uncounted(lambda: fit(*given, **more))

    def written(self: Any, column: int, first_page: int, plain: NDArray[np.uint8]) -> None:
        plain = plain.copy()
        taint.show(plain)
        write_pages(self, column, first_page, plain)

    def built(self: Any, real_rows: int) -> Any:
        return taint.counted(lambda: load(self, real_rows))

    def rewritten(plan: Any, given: Any, version: Any) -> Any:
        taint.hide(given.bounds)
        changed = taint.counted(lambda: rewriting(plan, given, version))
        taint.show(given.bounds)
        taint.show(np.frombuffer(changed.answer, np.uint8))
        return changed

    def gathered(self: Any, version: Any) -> None:
        taint.counted(lambda: gather(self, version))

    def counting(work: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: taint.counted(lambda: work(*given))

    def decided(flag: NDArray[np.uint8]) -> bool:  # whether a change is made is public
        taint.show(flag)
        return is_set(flag)

    def handed_on(word: NDArray[np.int64]) -> int:  # as a client states it of a load, in Python too
        taint.show(word)
        return as_count(word)

    return [
        mock.patch.object(pages.RunReader, "open_pages", opened),
        mock.patch.object(sessions, "execute", execution),
        mock.patch.object(sessions, "rewrite", rewritten),
        mock.patch.object(sessions, "merge", counting(merges.merge)),
        mock.patch.object(sessions, "vacuumed", counting(merges.vacuumed)),
        mock.patch.object(flushes.Flush, "gather", gathered),
        mock.patch.object(kernels, "is_set", decided),
        mock.patch.object(merges, "as_count", handed_on),
        mock.patch.object(flushes, "as_count", handed_on),
        mock.patch.object(build.Load, "append", appended),
        mock.patch.object(kernels, "rows_agree", agreed),
        mock.patch.object(pages.DataKeys, "fingerprint", fingerprint),
        mock.patch.object(kernels, "cumulative_counts", curve),
        mock.patch.object(pages._Writer, "write_pages", written),
        mock.patch.object(build.Load, "build", built),
        mock.patch.object(DPPLRIndex, "unsafe_fit_counts", fitted),
    ]


def _defects() -> dict[str, Any]:
    """Executions that do the wrong thing with a secret and still answer."""
    from scumble.enclave import queries as execute
    from scumble.enclave.pages import blanked

    batches = execute._batches

    def skipping(prepared: Any, execution: Any, reader: Any) -> Iterator[Any]:
        for batch in batches(prepared, execution, reader):
            batch.match(execution.bounds)
            if batch.mask.any():
                yield batch

    def indexed(values: NDArray[Any], mask: NDArray[np.uint8]) -> NDArray[Any]:
        out = np.zeros_like(values)
        out[mask == 1] = values[mask == 1]
        return out

    def gathered(values: NDArray[Any], mask: NDArray[np.uint8]) -> NDArray[Any]:
        np.zeros(2)[mask.astype(np.int64)]
        return blanked(values, mask)

    def sorted_first(values: NDArray[Any], mask: NDArray[np.uint8]) -> NDArray[Any]:
        np.sort(mask)
        return blanked(values, mask)

    from scumble.enclave import changes

    work = changes._Work
    matched = work._matched

    def skipped(self: Any, batch: Any, alive: NDArray[np.uint8], scan: int) -> Any:
        found = matched(self, batch, alive, scan)
        if found[0].any():  # as if a page without a match need not be sealed anew
            return found
        return found

    return {
        "skipped page": mock.patch.object(work, "_matched", skipped),
        "skipped batch": mock.patch.object(execute, "_batches", skipping),
        "boolean index": mock.patch.object(execute, "blanked", indexed),
        "gather": mock.patch.object(execute, "blanked", gathered),
        "sort": mock.patch.object(execute, "blanked", sorted_first),
    }


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
