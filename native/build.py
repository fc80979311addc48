"""Build `scumble._native`: the C kernels of this folder behind a cffi binding.

The kernels are plain C11 without Python headers, so that they can be compiled and checked on their own; the
functions declared between the `cffi` markers of native.h are the whole interface.
"""

import re
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
NAMES = ("noise", "segments", "mask", "narrow", "aggregate", "wide", "sort", "compact", "place", "validate")
SOURCES = [f"{name}.c" for name in NAMES]
# No -march: a wheel must run on every x86-64; hot loops are cloned for AVX2 in the source instead.
# No contraction into fused multiply-add: the same index file must answer the same on every machine.
FLAGS = ["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra"]

ffi = FFI()
ffi.cdef(re.search(r"/\* cffi: begin \*/(.*)/\* cffi: end \*/", (HERE / "native.h").read_text(), re.S).group(1))
ffi.set_source(
    "scumble._native",
    '#include "native.h"',
    sources=[f"native/{name}" for name in SOURCES],
    include_dirs=["native"],
    depends=["native/native.h", "native/rows.h", "native/narrow.h"],
    extra_compile_args=FLAGS,
)
