"""docs/architecture.md is a map: every file and function it names exists, and its walks pass the files it lists."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from verify.walks import load_walk, query_walk

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "scumble"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = re.compile(r"`([\w./-]+/|[\w./-]+\.(?:py|c|h|md|toml))(?::([\w.]+))?`")
STEP = re.compile(r"`([\w/]+\.py):[\w.]+`")


def place(path: str) -> Path:
    """Where the page means a path to be: below the package, or below the repository."""
    return next((base / path for base in (PACKAGE, ROOT) if (base / path).exists()), PACKAGE / path)


def defined(path: Path, dotted: str) -> bool:
    """Whether a Python file defines a function, a class, a method or a constant."""
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    for name in dotted.split("."):
        found = [node for node in body if name in _names(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def section(heading: str) -> str:
    return PAGE.split(f"## {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED.findall(PAGE))))
def test_what_the_page_names_is_there(path: str, name: str) -> None:
    assert place(path).exists()
    assert not name or defined(place(path), name)


@pytest.mark.parametrize(
    ("heading", "walk"),
    [("A row, from a data frame to a sealed page", load_walk), ("A query, from text to answer", query_walk)],
)
def test_a_walk_passes_the_files_that_the_page_lists(heading: str, walk: Callable[[], list[str]]) -> None:
    assert set(STEP.findall(section(heading))) == set(walk())
