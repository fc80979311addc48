"""The kernels under AddressSanitizer and UndefinedBehaviorSanitizer, over inputs that hypothesis makes.

    python -m verify.sanitizers [--seconds 20]

The extension's sources are compiled once more, with the sanitizers, and loaded into a Python that has ASan's runtime
preloaded. Every array is exactly as long as native.h says, from malloc, so that one word too many is caught. Planted
faults (native/check/sanitize.c) go the same way.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cffi import FFI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from verify import Row
from verify.obliviousness import NATIVE, ROOT, build_script

__all__ = ["KERNELS", "rows"]

FLAGS = ["-std=c11", "-ffp-contract=off", "-g", "-fno-omit-frame-pointer", "-fPIC", "-shared"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
BUILDS = {"-O1": ["-O1"], "-O3, any x86-64": ["-O3", "-DSCUMBLE_VECTOR="]}
PLANTED = {
    "planted_write": "heap-buffer-overflow",
    "planted_read": "heap-buffer-overflow",
    "planted_overflow": "signed integer overflow",
    "planted_shift": "shift exponent",
}
PLANTED_C = """
void planted_write(int64_t *out, size_t n);
int64_t planted_read(const int64_t *x, size_t n);
int64_t planted_overflow(int64_t a, int64_t b);
int64_t planted_shift(int64_t a, int bits);
"""
MOST_ROWS = 2100
TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32")
"""Of columns, in the order of native.h."""
ROWS_OF_A_TABLE = 1 << 36
HINT = "gcc with libasan and libubsan is missing: apt-get install gcc libc6-dev"

Words = NDArray[np.int64]
Draw = Callable[[st.SearchStrategy[Any]], Any]


def rows(seconds: float) -> Iterator[Row]:
    """Run every kernel under the sanitizers for about so many seconds altogether."""
    claim = "no kernel reads or writes beyond its arrays, or does what C leaves undefined"
    check = "ASan and UBSan over hypothesis-made inputs"
    if shutil.which("gcc") is None or not _runtime().is_absolute():
        yield Row(claim, check, HINT, holds=False)
        return
    with tempfile.TemporaryDirectory() as folder:
        calls, reports = 0, []
        for place, options in enumerate(BUILDS.values()):
            library = build(Path(folder) / f"kernels{place}.so", _sources(), options)
            ended = _run(library, "all", seconds / (len(BUILDS) + 0.5))
            calls += sum(map(int, re.findall(r"^calls: (\d+)$", ended.stdout, re.MULTILINE)))
            if ended.returncode:
                reports.append(_report(ended))
        planted = build(Path(folder) / "planted.so", [NATIVE / "check" / "sanitize.c"], BUILDS["-O1"])
        caught = [name for name, words in PLANTED.items() if _is_caught(_run(planted, name, 0), words)]
    for report in reports:
        print(report, file=sys.stderr)
    figure = f"{len(_interface())} kernels, {calls:,} inputs, {len(BUILDS)} builds, {len(reports)} reports"
    yield Row(claim, check, figure, calls > 0 and not reports, tuple(PLANTED), tuple(caught))


def build(library: Path, sources: list[Path], options: list[str]) -> Path:
    """Compile sources with the sanitizers."""
    command = ["gcc", *FLAGS, *SANITIZERS, *options, f"-I{NATIVE}", *map(str, sources), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    return library


def _sources() -> list[Path]:
    return [NATIVE / name for name in build_script().SOURCES]


def _interface() -> set[str]:
    return set(re.findall(r"\bscumble_\w+(?=\()", (NATIVE / "native.h").read_text()))


def _runtime() -> Path:
    command = ["gcc", "-print-file-name=libasan.so"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def _run(library: Path, what: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    """Call kernels in a Python that has ASan's runtime."""
    settings_of = {
        "LD_PRELOAD": str(_runtime()),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "verify.sanitizers", "--drive", str(library), what, "--seconds", str(seconds)]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=ROOT,
        env={**os.environ, **settings_of},
    )


def _is_caught(ended: "subprocess.CompletedProcess[str]", words: str) -> bool:
    return ended.returncode != 0 and words in ended.stderr


def _report(ended: "subprocess.CompletedProcess[str]") -> str:
    return f"{ended.stdout[-500:]}\n{ended.stderr[:4000]}"


# --- in the process that has the sanitizers --------------------------------------------------------


class Arena:
    """Arrays from malloc, each as long as it is said to be and not a byte longer; freed together."""

    def __init__(self, ffi: FFI) -> None:
        self._ffi: Any = ffi
        self._c: Any = ffi.dlopen(None)
        self._held: list[Any] = []

    def put(self, array: NDArray[Any] | None, kind: str = "int64_t *") -> Any:
        """A copy of an array; a null pointer for None."""
        if array is None:
            return self._ffi.NULL
        content = np.ascontiguousarray(array)
        place = self._c.malloc(content.nbytes)
        self._held.append(place)
        self._ffi.memmove(place, self._ffi.from_buffer(content.reshape(-1).view(np.uint8)), content.nbytes)
        return self._ffi.cast(kind, place)

    def words(self, count: int) -> Any:
        return self.put(np.zeros(count, np.int64))

    def clear(self) -> None:
        for place in self._held:
            self._c.free(place)
        self._held.clear()


class Maker:
    """Arguments as hypothesis chooses them: sizes, kinds of values, and a seed for the values themselves."""

    def __init__(self, draw: Draw, arena: Arena) -> None:
        self._draw, self._arena = draw, arena
        self._rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def size(self, most: int = MOST_ROWS) -> int:
        """A number of rows: few, about a block, or any."""
        edges = [0, 1, 2, 3, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2048, most]
        return int(self._draw(st.one_of(st.sampled_from([n for n in edges if n <= most]), st.integers(0, most))))

    def choose(self, *values: Any) -> Any:
        return self._draw(st.sampled_from(values))

    def integer(self, low: int, high: int) -> int:
        """A number, of which the ends are as likely as any."""
        return int(self._draw(st.one_of(st.sampled_from([low, high]), st.integers(low, high))))

    def values(self, n: int) -> Words:
        """Words: extremes, small ones, or any."""
        kind = self.choose("extreme", "small", "any", "equal", "doubles")
        if kind == "extreme":
            ends = np.array([-(1 << 63), (1 << 63) - 1, -1, 0, 1, 1 << 62, -(1 << 62)], np.int64)
            return self._rng.choice(ends, n)
        if kind == "small":
            return self._rng.integers(-5, 20, n)
        if kind == "equal":
            return np.full(n, self.integer(-(1 << 63), (1 << 63) - 1), np.int64)
        if kind == "doubles":
            ends = np.array([0.0, 5e-324, 1.5, -1e308, 1.7e308, np.inf, -np.inf, np.nan])
            bits = self._rng.choice(ends, n).view(np.int64)
            return np.where(bits < 0, bits ^ ((1 << 63) - 1), bits)
        return self._rng.integers(-(1 << 63), (1 << 63) - 1, n, endpoint=True)

    def words(self, n: int) -> Any:
        return self._arena.put(self.values(n))

    def column(self, n: int, k: int = 1) -> tuple[Any, int]:
        """A column of n rows, and the number of its type: of any width if it has one value a row."""
        type_ = self.integer(0, len(TYPES) - 1) if k == 1 else TYPES.index("int64")
        values = self.values(n * k)
        bits = "uint32" if TYPES[type_] == "float32" else TYPES[type_]  # any are those of a float
        return self._arena.put(values.astype(bits), "void *"), type_

    def mask(self, n: int) -> Any:
        share = self.choose(0, 0.1, 0.5, 1)
        return self._arena.put((self._rng.random(n) < share).astype(np.uint8), "uint8_t *")

    def maybe_mask(self, n: int) -> Any:
        return self.mask(n) if self.choose(True, False) else self._arena.put(None)

    def room(self, n: int) -> Any:
        return self._arena.words(n)

    def byte_room(self, n: int) -> Any:
        return self._arena.put(np.zeros(n, np.uint8), "uint8_t *")

    def put(self, array: NDArray[Any], kind: str = "int64_t *") -> Any:
        return self._arena.put(array, kind)

    def rising(self, n: int, most: int) -> Words:
        """Words that never fall, from 0 to `most`."""
        return np.sort(self._rng.integers(0, most, n, endpoint=True))


def _discrete_laplace(lib: Any, make: Maker) -> None:
    bits, n = make.integer(0, 62), make.size(300)
    thresholds = make.values(bits + 1).view(np.uint64)
    thresholds[-1] = 0
    words = make.put(make.values((bits + 1) * n).view(np.uint64), "uint64_t *")
    lib.scumble_discrete_laplace(words, make.put(thresholds.view(np.int64), "uint64_t *"), bits, n, make.room(n))


def _segments(lib: Any, make: Maker) -> None:
    n = make.size()
    curve = make.rising(n, make.choose(0, 10, 10**6, ROWS_OF_A_TABLE - 1))
    quantum = 1 << make.integer(0, 30)
    limit = make.integer(0, n)
    tolerance = make.integer(0, 1 << 36)
    places = [make.room(limit) for _ in range(3)]
    lib.scumble_segments(make.put(curve), n, tolerance, quantum, limit, *places)


def _pieces(make: Maker) -> tuple[int, int, list[Any]]:
    """A number of ranks and of pieces, and the pieces."""
    count = 1 + make.size(200)
    starts = np.cumsum(np.concatenate([[0], 1 + make.rising(count, 40)]))
    most = make.choose(10, 10**6, ROWS_OF_A_TABLE - 1)
    levels = make.rising(2 * count, most)
    floors = np.concatenate([[0], levels[1:-1:2]])
    return int(starts[-1]), count, [make.put(array) for array in (starts, levels[::2], levels[1::2], floors)]


def _evaluate(lib: Any, make: Maker) -> None:
    ranks, count, pieces = _pieces(make)
    n = make.size()
    lib.scumble_evaluate(*pieces, count, make.put(make.rising(n, ranks - 1)), n, make.room(n))


def _deviation(lib: Any, make: Maker) -> None:
    ranks, count, pieces = _pieces(make)
    lib.scumble_deviation(*pieces, count, make.put(make.rising(ranks, 1 << 20)), make.room(1), make.room(1))


def _mask_rows(lib: Any, make: Maker) -> None:
    n = make.size()
    lib.scumble_mask_rows(make.integer(0, 1 << 37), n, make.put(make.rising(2, 1 << 37)), make.byte_room(n))


def _split_pages(lib: Any, make: Maker) -> None:
    eighth, count, values = make.size(), make.integer(0, 5), make.integer(0, 40)
    size = values + eighth
    lib.scumble_split_pages(make.mask(count * size), count, size, values, make.byte_room(8 * eighth * count))


def _append_codes(lib: Any, make: Maker) -> None:
    n = make.size()
    codes = make.put(np.zeros(n, np.int32), "int32_t *")
    for _ in range(make.integer(0, 2)):
        lib.scumble_append_codes(*make.column(n), make.maybe_mask(n), n, make.integer(1, 4096), codes)


def _mask_intervals(lib: Any, make: Maker) -> None:
    n, k, m = make.size(), make.choose(1, 1, 2, 3, 9), make.integer(0, 5)
    lib.scumble_mask_intervals(
        *make.column(n, k), k, n, make.maybe_mask(n), make.words(2 * m * k), m, make.choose(0, 1), make.choose(0, 1),
        make.byte_room(n),
    )  # fmt: skip


def _mask_compare(lib: Any, make: Maker) -> None:
    n, k = make.size(), make.choose(1, 1, 2, 3, 9)
    lib.scumble_mask_compare(
        *make.column(n, k), *make.column(n, k), k, n, make.maybe_mask(n), make.maybe_mask(n), make.choose(0, 1, 2),
        make.choose(0, 1), make.byte_room(n),
    )  # fmt: skip


def _aggregated(lib: Any, make: Maker) -> tuple[int, int, int]:
    """An aggregate, the words that it reads of a row, and those that it writes for a group."""
    what = make.integer(0, 6)
    k = lib.scumble_aggregate_reads(what) or make.choose(1, 2, 3, 9)
    return what, k, lib.scumble_aggregate_writes(what, k)


def _aggregate(lib: Any, make: Maker) -> None:
    n, (what, k, written) = make.size(), _aggregated(lib, make)
    lib.scumble_aggregate(what, *make.column(n, k), k, make.mask(n), make.maybe_mask(n), n, make.room(written))


def _aggregate_groups(lib: Any, make: Maker) -> None:
    what, k, written = _aggregated(lib, make)
    groups = make.choose(0, 1, 2, 7, 4096, 65536 + 3) if make.integer(0, 9) == 0 else make.choose(0, 1, 2, 7)
    n = make.size(40 if groups > 7 else MOST_ROWS)
    lib.scumble_aggregate_groups(
        what, *make.column(n, k), k, *make.column(n), groups, make.mask(n), make.maybe_mask(n), n,
        make.room(groups * written),
    )  # fmt: skip


def _wide(lib: Any, make: Maker) -> None:
    n = make.size()
    lib.scumble_wide_load(*make.column(n), n, make.room(2 * n))
    lib.scumble_wide_fill(int(make.values(1)[0]), int(make.values(1)[0]), n, make.room(2 * n))
    for kernel in (lib.scumble_wide_add, lib.scumble_wide_subtract, lib.scumble_wide_multiply):
        kernel(make.words(2 * n), make.words(2 * n), make.mask(n), n, make.room(2 * n), make.byte_room(1))


def _sort_rows(lib: Any, make: Maker) -> None:
    n, words = make.size(), make.choose(1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 23)
    lib.scumble_sort_rows(make.words(n * words), n, words, make.integer(0, words - 1))


def _merge_rows(lib: Any, make: Maker) -> None:
    n, words = make.size(), make.choose(1, 1, 2, 6, 9, 11)
    lib.scumble_merge_rows(make.words(n * words), make.integer(0, n), n, words, make.integer(0, words - 1))


def _compact(lib: Any, make: Maker) -> None:
    n, words = make.size(), make.choose(1, 1, 2, 3, 9, 10)
    lib.scumble_compact(make.words(n * words), make.mask(n), n, words)


def _block_dummies(lib: Any, make: Maker) -> None:
    blocks = make.integer(1, 40)
    stops, halves = make.put(make.rising(blocks, 1 << 20)), make.put(make.rising(2 * blocks, 1 << 20))
    lib.scumble_block_dummies(stops, halves, make.integer(0, 1 << 20), *(make.room(blocks) for _ in range(3)), blocks)


def _place_rows(lib: Any, make: Maker) -> None:
    n, words, blocks = make.size(), make.choose(1, 1, 2, 3, 9, 10), make.integer(0, 40)
    rows, key_word, ranks = make.put(make.rising(n * words, 1 << 20)), make.integer(0, words - 1), make.size()
    filled, sorted_as, seen = (make.put(make.rising(count, 1 << 20)) for count in (blocks, blocks, 1))
    lib.scumble_place_rows(rows, n, words, key_word, ranks, filled, sorted_as, blocks, seen)


def _curve(lib: Any, make: Maker) -> None:
    n, ranks = make.size(), make.size()
    keys = make.put(np.sort(make.values(n)))
    lib.scumble_curve(keys, n, ranks, make.room((9 * (n + ranks) + 7) // 8), make.room(ranks))


def _check_text(lib: Any, make: Maker) -> None:
    n, k = make.size(), make.choose(2, 3, 9)
    lib.scumble_check_text(make.words(n * k), k, n, make.integer(1, 8 * (k - 1)), make.integer(0, 1), make.byte_room(n))


def _check_single(lib: Any, make: Maker) -> None:
    n = make.size()
    lib.scumble_check_single(make.words(n), n, make.byte_room(n))


def _check_grid(lib: Any, make: Maker) -> None:
    n, (least, most) = make.size(), sorted(make.values(2).tolist())
    grid = make.put(make.values(7).view(np.uint64), "uint64_t *")
    lib.scumble_check_grid(
        make.words(n), make.words(n), n, least, most, make.integer(1, 1 << 26), grid, make.byte_room(n)
    )


def _grid_ranks(lib: Any, make: Maker) -> None:
    n, stride = make.size(), make.integer(1, 1 << 40)
    grid = make.put(np.array([3, 5, 1, stride], np.uint64), "uint64_t *")
    lib.scumble_grid_ranks(make.words(n), n, grid, (2**64 - 1) // stride, make.room(n))


def _fold_rows(lib: Any, make: Maker) -> None:
    n, ends = make.size(), make.put(np.array([2**63 - 1, -1]))
    lib.scumble_fold_rows(make.mask(n), make.mask(n), n, make.integer(0, 1 << 37), ends)
    _rows_agree(lib, make)


def _rows_agree(lib: Any, make: Maker) -> None:
    ends = make.put(np.array([make.choose(5, 2**63 - 1), make.choose(-1, 1 << 37)]))
    lib.scumble_rows_agree(ends, make.integer(0, 9), make.integer(0, 1 << 37))


KERNELS: dict[str, Callable[[Any, Maker], None]] = {
    f"scumble{call.__name__}": call
    for call in (
        *(
            _discrete_laplace,
            _segments,
            _evaluate,
            _deviation,
            _mask_rows,
            _split_pages,
            _append_codes,
            _mask_intervals,
            _mask_compare,
        ),
        *(_mask_compare, _aggregate, _aggregate_groups, _wide, _sort_rows, _merge_rows, _compact),
        *(_block_dummies, _place_rows, _curve),
        *(_check_text, _check_single, _check_grid, _grid_ranks, _fold_rows, _rows_agree),
    )
}
"""By the start of their names, the kernels that each function calls: together the whole of native.h."""


def _drive(library: Path, what: str, seconds: float) -> None:
    ffi = FFI()
    ffi.cdef("void *malloc(size_t n); void free(void *place);")
    if what in PLANTED:
        ffi.cdef(PLANTED_C)
        _call_planted(ffi.dlopen(str(library)), what, Arena(ffi))
        return
    assert all(name.startswith(tuple(KERNELS)) for name in _interface()), "a kernel is not called"
    header = (NATIVE / "native.h").read_text()
    interface = re.search(r"/\* cffi: begin \*/(.*)/\* cffi: end \*/", header, re.DOTALL)
    assert interface is not None
    ffi.cdef(interface[1])
    lib, arena, calls = ffi.dlopen(str(library)), Arena(ffi), 0
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end or not rounds:
        rounds += 1
        for name, call in KERNELS.items():
            print(name, flush=True)  # the last line says which one a report is about
            calls += _run_examples(lib, arena, call, rounds)
    print(f"calls: {calls}", flush=True)


def _run_examples(lib: Any, arena: Arena, call: Callable[[Any, Maker], None], seed: int) -> int:
    from hypothesis import seed as seeded

    count = 0

    @seeded(seed)
    @settings(
        max_examples=25, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def examples(data: st.DataObject) -> None:
        nonlocal count
        count += 1
        try:
            call(lib, Maker(data.draw, arena))
        finally:
            arena.clear()

    examples()
    return count


def _call_planted(lib: Any, what: str, arena: Arena) -> None:
    match what:
        case "planted_write":
            lib.planted_write(arena.words(100), 100)
        case "planted_read":
            lib.planted_read(arena.words(100), 100)
        case "planted_overflow":
            lib.planted_overflow((1 << 63) - 1, 1)
        case "planted_shift":
            lib.planted_shift(1, 64)


def main() -> int:
    """Run the check, and print its row."""
    parser = argparse.ArgumentParser(description="Run the kernels under ASan and UBSan.")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--drive", nargs=2, metavar=("LIBRARY", "WHAT"), help=argparse.SUPPRESS)
    given_arguments = parser.parse_args()
    if given_arguments.drive:
        library, what = given_arguments.drive
        _drive(Path(library), what, given_arguments.seconds)
        return 0
    found = list(rows(given_arguments.seconds))
    for row in found:
        print(f"{row.claim}: {row.figure}; planted {', '.join(row.planted)}; caught {', '.join(row.caught)}")
    return 0 if all(row.ok for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
