"""Check that no branch, address or division in the kernels' machine code depends on a secret.

Secrets are marked undefined; memcheck reports every branch and every address that depends on one. lackey records every
instruction and address: the records of two different tables must be the same. Memcheck is blind to a division, whose
time depends on its operands: those are looked for in the code itself. `tests/test_oblivious.py` runs the same checks on
one build; here they run on the extension that ships and on every build of COMPILERS and OPTIONS.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from verify import Row

__all__ = [
    "CAUGHT",
    "KERNELS",
    "NATIVE",
    "PLANTED",
    "PUBLIC_ONLY",
    "Build",
    "builds",
    "compiled",
    "divisions",
    "memcheck",
    "missing",
    "rows",
    "trace",
]

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "native"
HARNESS = NATIVE / "check" / "oblivious.c"
CAUGHT = 9
KERNELS = [
    "noise", "deviation", "mask-rows", "split-pages", "append-codes", "mask-intervals", "mask-compare", "count", "sum",
    "sum-squares", "min-max", "sum-floats", "sum-squares-floats", "wide-sum", "wide", "sort-rows", "merge-rows",
    "compact", "place-rows", "curve", "check-text", "check-single", "check-grid", "grid-ranks", "fold-rows",
]  # fmt: skip
PLANTED = ["branch", "gather", "early-exit", "filter", "group", "compact", "sort", "real-rows"]
DIVISION = "division"
# The fit and the evaluation of segments see public values alone, and so do the widths of aggregates.
PUBLIC_ONLY = {"scumble_segments", "scumble_evaluate", "scumble_aggregate_reads", "scumble_aggregate_writes"}
# With AVX2 and without are different code: target_clones is gcc's, so clang is given the whole program for either.
OPTIONS = {
    "gcc": ("-O3", "-O3 -DSCUMBLE_VECTOR=", "-O2", "-O2 -DSCUMBLE_VECTOR="),
    "clang": ("-O3", "-O3 -mavx2", "-O2", "-O2 -mavx2"),
}
# Where a division is no leak, and the most that there may be of them: by public lengths of public segments. Those of
# the compiler's own 128-bit division count where they are called.
DIVIDES_PUBLIC = {"scumble_segments": 8, "scumble_evaluate": 4, "scumble_deviation": 2}
_LIBRARY = re.compile(r"__u?(?:div|mod|divmod)ti\d")
_DIVISION = re.compile(r"\bv?(?:i?div[bwlq]?|fi?divr?p?|div[ps][sd]|sqrt[ps][sd]|fsqrt)\b")
_CALLED_DIVISION = re.compile(r"\bcall\w*\s.*<(?:__u?(?:div|mod)\w+|fmod\w*|l*div)[@>+]")


@dataclass(frozen=True)
class Build:
    """A harness that is compiled already, and the file with the code of the kernels that it runs."""

    name: str
    program: Path
    code: Path


def missing() -> str | None:
    """What these checks need but the machine lacks, with the command that installs it; None if nothing."""
    if not shutil.which("valgrind") or not Path("/usr/include/valgrind/memcheck.h").exists():
        return "valgrind is missing: apt-get install valgrind"
    return None


def build_script() -> ModuleType:
    """native/build.py: the extension's own sources and flags."""
    spec = importlib.util.spec_from_file_location("native_build", NATIVE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(compiler: str, options: Sequence[str], folder: Path) -> Build:
    """The harness and the kernels, each an object, with the extension's flags but for the level given."""
    script = build_script()
    # valgrind 3.19 cannot read clang's DWARF 5; the pragmas that clang does not know are gcc's
    flags = [flag for flag in script.FLAGS if not flag.startswith("-O")] + ["-gdwarf-4", "-Wno-unknown-pragmas"]
    objects = []
    for source in (HARNESS, *(NATIVE / name for name in script.SOURCES)):
        target = folder / f"{source.parent.name}-{source.stem}.o"
        subprocess.run(
            [compiler, *flags, *options, f"-I{NATIVE}", "-c", str(source), "-o", str(target)],
            check=True,
            capture_output=True,
        )
        objects.append(target)
    program = folder / "oblivious"
    subprocess.run([compiler, *map(str, objects), "-o", str(program)], check=True, capture_output=True)
    return Build(" ".join([compiler, *options]), program, program)


def shipped(folder: Path) -> Build:
    """The harness, linked with the installed extension itself: its kernels run as they are, byte for byte.

    What the extension wants of Python is given as empty names; no kernel calls it.
    """
    found = importlib.util.find_spec("scumble._native")
    assert found is not None
    assert found.origin is not None
    extension = Path(found.origin)
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", str(extension)], check=True, capture_output=True, text=True
    )
    stubs = folder / "stubs.c"
    names = re.findall(r"\bU (_?Py\w+)", symbols.stdout)
    stubs.write_text("".join(f"char {name}[256];\n" for name in names))
    program = folder / "oblivious"
    command = ["gcc", "-O2", "-g", f"-I{NATIVE}", str(HARNESS), str(stubs), str(extension), "-rdynamic"]
    subprocess.run([*command, f"-Wl,-rpath,{extension.parent}", "-o", str(program)], check=True, capture_output=True)
    return Build(f"the extension {extension.name}", program, extension)


def builds(folder: Path) -> Iterator[Build]:
    """The extension, then every compiler that is there at every level, each in a folder of its own."""
    makers: list[Callable[[Path], Build]] = [shipped]
    for compiler, levels in OPTIONS.items():
        if shutil.which(compiler):
            makers += [partial(_compiled_into, compiler, level) for level in levels]
    for number, make in enumerate(makers):
        own = folder / str(number)
        own.mkdir()
        yield make(own)


def _compiled_into(compiler: str, level: str, folder: Path) -> Build:
    return compiled(compiler, level.split(), folder)


def memcheck(program: Path, kernel: str) -> int:
    """0 if nothing depended on a secret, CAUGHT if something did, something else if it could not be checked."""
    command = ["valgrind", "-q", f"--error-exitcode={CAUGHT}", "--track-origins=no", str(program), kernel]
    return subprocess.run(command, check=False, capture_output=True).returncode


def trace(program: Path, kernel: str, seed: int) -> str:
    """A digest of every instruction and every address between the harness's two marks."""
    command = ["valgrind", "--tool=lackey", "--trace-mem=yes", str(program), kernel, str(seed)]
    log = subprocess.run(command, check=True, capture_output=True).stderr
    start, stop = log.index(b"begin\n"), log.index(b"end\n")
    lines = [line for line in log[start:stop].splitlines() if not line.startswith((b"=", b"*", b"begin"))]
    assert len(lines) > 1000
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def divisions(code: Path) -> dict[str, int]:
    """The functions of an object that divide or take roots, and how often; memcheck does not see what those leak."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(code)], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, int] = {}
    function = ""
    for line in listing.splitlines():
        if heading := re.match(r"[0-9a-f]+ <([^>]+)>:", line):
            function = heading[1].split(".")[0]
        elif not _LIBRARY.fullmatch(function) and (_DIVISION.search(line) or _CALLED_DIVISION.search(line)):
            found[function] = found.get(function, 0) + 1
    return found


def rows(seconds: float) -> Iterator[Row]:
    """The rows of the table. They take about two minutes; `seconds` changes nothing."""
    del seconds
    if lack := missing():
        yield Row("the kernels' code depends on no secret", "memcheck, lackey", lack, False)
        return
    with TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        every = list(builds(Path(name)))
        compilers = sorted({build.name.split()[0] for build in every[1:]})
        lacking = [compiler for compiler in OPTIONS if compiler not in compilers]
        yield from _taint(every, lacking, pool)
        yield _traces(every[0], pool)
        yield _divisions(every)


def _taint(every: list[Build], lacking: list[str], pool: ThreadPoolExecutor) -> Iterator[Row]:
    tasks = [(build, kernel) for build in every for kernel in [*KERNELS, *(f"planted-{kind}" for kind in PLANTED)]]
    codes = dict(zip(tasks, pool.map(lambda task: memcheck(task[0].program, task[1]), tasks), strict=True))
    for own, claim in (
        (every[:1], "no branch or address of a kernel depends on a secret: the extension itself"),
        (every[1:], "the same with gcc and clang, -O2 and -O3, with AVX2 and without"),
    ):
        leaks = [f"{kernel} ({build.name})" for build in own for kernel in KERNELS if codes[build, kernel] != 0]
        figure = f"{len(own) * len(KERNELS) - len(leaks)} of {len(own) * len(KERNELS)} silent"
        if leaks:
            figure += f"; not: {', '.join(leaks)}"
        if own == every[1:] and lacking:
            figure += f"; {', '.join(lacking)} is missing: apt-get install {' '.join(lacking)}"
        caught = [kind for kind in PLANTED if all(codes[build, f"planted-{kind}"] == CAUGHT for build in own)]
        holds = not leaks and (own == every[:1] or not lacking)
        yield Row(claim, "memcheck, secrets undefined", figure, holds, tuple(PLANTED), tuple(caught))


def _traces(build: Build, pool: ThreadPoolExecutor) -> Row:
    names = [*KERNELS, *(f"planted-{kind}" for kind in PLANTED)]
    tasks = [(kernel, seed) for kernel in names for seed in (1, 2)]
    digests = dict(zip(tasks, pool.map(lambda task: trace(build.program, *task), tasks), strict=True))
    same = [kernel for kernel in names if digests[kernel, 1] == digests[kernel, 2]]
    different = [kernel for kernel in KERNELS if kernel not in same]
    figure = f"{len(KERNELS) - len(different)} of {len(KERNELS)} kernels: equal traces"
    return Row(
        "two tables leave the same instructions and addresses",
        "lackey, the extension itself",
        figure + (f"; not: {', '.join(different)}" if different else ""),
        not different,
        tuple(PLANTED),
        tuple(kind for kind in PLANTED if f"planted-{kind}" not in same),
    )


def _divisions(every: list[Build]) -> Row:
    secret: list[str] = []
    allowed = 0
    for build in every:
        for function, count in divisions(build.code).items():
            if count <= DIVIDES_PUBLIC.get(function, 0):
                allowed += count
            elif not function.startswith("planted_"):
                secret.append(f"{function} ({build.name})")
    planted = all("planted_division" in divisions(build.program) for build in every)
    figure = f"none on secrets, {allowed} on public lengths, in {len(every)} builds"
    return Row(
        "no kernel divides by a secret, or takes a root of one",
        "disassembly",
        figure if not secret else f"divided in {', '.join(secret)}",
        not secret,
        (DIVISION,),
        (DIVISION,) if planted else (),
    )
