"""The names that `import scumble` offers: all there, all documented, known to type checkers, and imported on use."""

import ast
import subprocess
import sys
from pathlib import Path

import scumble

RETURNED = {"Budget", "Connection", "Domain", "IndexSummary", "LoadReport", "Prepared", "Result"}
"""Names that the package's documentation leaves out: one gets them from the others."""


def test_public_names_are_complete_and_importing_is_light() -> None:
    for name in scumble.__all__:
        assert getattr(scumble, name) is not None
        assert name in (scumble.__doc__ or "") or name in RETURNED
    script = "import sys, scumble; [getattr(scumble, name) for name in scumble.__all__]; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert not {"scipy", "matplotlib", "pyarrow", "duckdb", "sqlglot", "typer", "rich"} & set(modules)


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    script = "import sys, scumble; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in modules if name.partition(".")[0] in ("scumble", "numpy", "cryptography")] == ["scumble"]


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(scumble.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {name.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert seen == scumble._HOMES
