"""docs/results.md is what the kept tables of the last run make of its template: no number in it is older or typed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.paper import document, run
from benchmarks.paper.document import BadMark, load, render

TABLES: dict[str, dict[str, Any]] = {
    "t": {
        "caption": "A table",
        "size": "quick",
        "shared": True,
        "columns": ["name", "x"],
        "texts": [["a", "1"], ["b|c", "2"]],
        "notes": ["A note."],
        "rows": [
            {"name": "a", "k": 1.0, "x": 1},
            {"name": "b, c", "k": 2.5, "x": 2000},
            {"name": "d", "k": 2.5, "x": None},
        ],
    }
}


def test_the_document_is_that_of_the_kept_results() -> None:
    """If this fails after a change of the text or of a table, `run --publish` writes the document anew."""
    assert document.PAGE.read_text() == render(document.TEMPLATE.read_text(), load())


def test_every_number_of_the_text_and_every_figure_is_there() -> None:
    text = document.PAGE.read_text()
    assert "{{" not in text
    for figure in re.findall(r"\(images/results/([^)]+)\)", text):
        assert (document.FIGURES / figure).exists()
    assert {path.name for path in document.FIGURES.iterdir()} == set(re.findall(r"images/results/([\w.-]+)", text))
    assert all(table["size"] in ("full", "quick") for table in load().values())
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))


def test_a_changed_number_changes_the_document() -> None:
    """Planted: one number of one table, another size of run. The test above would fail."""
    tables = load()
    text = render(document.TEMPLATE.read_text(), tables)
    tables["storage"]["rows"] = [{**row, "bytes": row["bytes"] + 10**6} for row in tables["storage"]["rows"]]
    assert render(document.TEMPLATE.read_text(), tables) != text
    tables = load()
    tables["overhead"]["size"] = "quick" if tables["overhead"]["size"] == "full" else "full"
    assert render(document.TEMPLATE.read_text(), tables) != text


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("t.x | name=a", "1"),
        ("t.x | name=b, c", "2,000"),
        ("t.x\n  | name=b, c | as=kilobytes", "2 kB"),
        ("t.x | k=1", "1"),
        ("most t.x", "2,000"),
        ("sum t.x | as=whole", "2,001"),
        ("least t.x | k=2.5", "2,000"),
        ("settings t", "quick run: fewer settings and builds, on a machine that did other work too"),
    ],
)
def test_marks(mark: str, text: str) -> None:
    assert render(f"It is {{{{{mark}}}}}.", TABLES) == f"It is {text}.\n"


def test_tables_and_pivots() -> None:
    page = render("{{table t}}\n\n{{pivot t.x | rows=k | columns=name | name=b, c; a}}", TABLES)
    assert "| name | x |\n| :-- | --: |\n| a | 1 |\n| b\\|c | 2 |\n" in page
    assert "(A table; quick run" in page
    assert "A note." in page
    assert page.endswith("| k | b, c | a |\n| --: | --: | --: |\n| 1 | - | 1 |\n| 2.5 | 2,000 | - |\n")


@pytest.mark.parametrize(
    "mark", ["t.x", "t.x | name=z", "t.y | name=a", "u.x", "t.x | name=a | as=nothing", "table u", "pivot t.x | rows=k"]
)
def test_a_mark_that_nothing_fills_is_an_error(mark: str) -> None:
    with pytest.raises(BadMark):
        render(f"{{{{{mark}}}}}", TABLES)


def test_publishing_takes_the_run_and_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of one experiment replaces its tables and figures, and the document says how large it was."""
    for name, place in (("RESULTS", "results"), ("FIGURES", "figures")):
        (tmp_path / place).mkdir()
        monkeypatch.setattr(document, name, tmp_path / place)
    monkeypatch.setattr(document, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(document, "TEMPLATE", tmp_path / "template.md")
    (tmp_path / "template.md").write_text("{{settings storage}} {{settings t}}\n\n![a](images/results/storage.png)\n")
    (tmp_path / "results" / "t.json").write_text(json.dumps(TABLES["t"]))
    assert run.main(["--out", str(tmp_path / "out"), "--tiny", "--only", "storage", "--publish"]) == 0
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("tiny run: the numbers mean nothing quick run")
    assert (tmp_path / "figures" / "storage.png").exists()
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["storage.json", "t.json"]
