"""docs/results.md, written from the tables that the last run kept: no number in it is typed by hand.

The text is `results.template.md`; a mark in double braces stands for a number, a table or a run's settings, and is
filled from `results/`, which `run --publish` replaces. A test fills the marks again and compares.

    {{overhead.extra_rows_mean | dataset=lognormal 1M | index=FMI | lookup=point}}    one number of one row
    {{least accuracy.point_mean | index=Crypt-epsilon | as=percent}}                 of several: least, most, sum
    {{table tradeoff-perceptrons}}                                                    a table, as the run wrote it
    {{pivot overhead.extra_rows_mean | rows=dataset,lookup | columns=index | index=FMI; DP-PLR, ours}}
    {{settings formal}}                                                               how large the run was
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.paper.lab import aligned
from benchmarks.paper.style import short

__all__ = ["FIGURES", "PAGE", "RESULTS", "TEMPLATE", "BadMark", "load", "publish", "render"]

HERE = Path(__file__).parent
RESULTS, TEMPLATE = HERE / "results", HERE / "results.template.md"
PAGE = HERE.parents[1] / "docs" / "results.md"
FIGURES = PAGE.parent / "images" / "results"
MARK = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
SEPARATOR = re.compile(r"\s*\|\s*")
SIZES = {
    "full": "full run",
    "quick": "quick run: fewer settings and builds",
    "tiny": "tiny run: the numbers mean nothing",
}
FORMATS: dict[str, Callable[[float], str]] = {
    "number": short,
    "whole": lambda value: f"{value:,.0f}",
    "percent": lambda value: f"{100 * value:.0f} %",
    "megabytes": lambda value: f"{value / 1e6:,.1f} MB",
    "kilobytes": lambda value: f"{value / 1e3:,.0f} kB",
    "millions": lambda value: f"{value / 1e6:,.0f} million",
    "exact": lambda value: f"{value:.3g}",
}
AGGREGATES: dict[str, Callable[[list[float]], float]] = {"least": min, "most": max, "sum": sum}
Tables = dict[str, dict[str, Any]]


class BadMark(Exception):
    """A mark that no table fills: the message names it."""


def render(template: str, tables: Tables) -> str:
    """The document: the template with every mark filled."""

    def filled(found: re.Match[str]) -> str:
        try:
            return _filled(" ".join(found.group(1).split()), tables)
        except (KeyError, ValueError, TypeError) as error:
            raise BadMark(f"{found.group(0)}: {error}") from error

    return "\n".join(_wrapped(MARK.sub(filled, template).strip())) + "\n"


def _filled(mark: str, tables: Tables) -> str:
    head, *rest = SEPARATOR.split(mark)
    options = dict(part.split("=", 1) for part in rest)
    verb, name = _split(head)
    match verb:
        case "table":
            return _table(tables[name])
        case "pivot":
            return _pivot(tables, name, options)
        case "settings":
            return _settings(tables[name])
    form = FORMATS[options.pop("as", "number")]
    table, _, column = name.partition(".")
    values = [row[column] for row in _rows(tables[table], options)]
    if verb:
        return form(AGGREGATES[verb]([value for value in values if value is not None]))
    if len(values) != 1:
        raise ValueError(f"{len(values)} rows instead of one")
    return form(values[0])


def _split(head: str) -> tuple[str, str]:
    """What to do with which table and column; a column's name may have spaces of its own."""
    verb, _, name = head.partition(" ")
    return (verb, name) if verb in ("table", "pivot", "settings", *AGGREGATES) else ("", head)


def _rows(table: dict[str, Any], options: dict[str, str]) -> list[dict[str, Any]]:
    found = [row for row in table["rows"] if all(_text(row.get(key)) == value for key, value in options.items())]
    if not found:
        raise ValueError("no such row")
    return found


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _table(table: dict[str, Any]) -> str:
    notes = "".join(f"\n\n{note}" for note in table["notes"])
    return f"{aligned(table['columns'], table['texts'])}\n\n({table['caption']}; {_settings(table)}.){notes}"


def _settings(table: dict[str, Any]) -> str:
    return SIZES[table["size"]] + (", on a machine that did other work too" if table["shared"] else "")


def _pivot(tables: Tables, name: str, options: dict[str, str]) -> str:
    table, _, field = name.partition(".")
    keys, across = options.pop("rows").split(","), options.pop("columns")
    chosen = {key: text.split("; ") for key, text in options.items()}
    rows = [row for row in tables[table]["rows"] if all(_text(row[key]) in texts for key, texts in chosen.items())]
    heads = chosen.get(across) or list(dict.fromkeys(_text(row[across]) for row in rows))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        lines.setdefault(tuple(_text(row[key]) for key in keys), {})[_text(row[across])] = short(row[field])
    if not lines:
        raise ValueError("no such row")
    texts = [[*line, *(cells.get(head, "-") for head in heads)] for line, cells in lines.items()]
    return aligned([*(key if key != "dataset" else "data set" for key in keys), *heads], texts)


def _wrapped(text: str) -> Iterator[str]:
    """Lines of at most 120 characters: paragraphs and items are filled again, since numbers differ in width."""
    for block in re.split(r"(\n\n+)", text):
        if not block.strip() or block.lstrip().startswith(("|", "#", "!", "```", "    ")):
            yield from (block.strip("\n").split("\n") if block.strip() else [""] * (block.count("\n") - 1))
            continue
        for item in re.split(r"\n(?=[-*] |\d+\. )", block.strip("\n")):
            indent = "  " if item.startswith(("- ", "* ")) else ""
            plain = " ".join(item.split())
            yield fill(plain, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def load() -> Tables:
    """The tables that were kept, by name."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))}


def publish(out: Path) -> None:
    """Keep the tables of a run and its figures that the document shows, and write the document."""
    text = TEMPLATE.read_text()
    used = {SEPARATOR.split(" ".join(mark.split()))[0] for mark in MARK.findall(text)}
    names = {_split(head)[1].partition(".")[0] for head in used}
    RESULTS.mkdir(exist_ok=True)
    for name in names:
        if (out / f"{name}.json").exists():
            shutil.copyfile(out / f"{name}.json", RESULTS / f"{name}.json")
    for figure in re.findall(r"images/results/([\w-]+\.png)", text):
        if (out / figure).exists():
            shutil.copyfile(out / figure, FIGURES / figure)
    PAGE.write_text(render(text, load()))
