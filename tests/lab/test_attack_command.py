"""`scumble attack`: text, JSON, pictures, refusals, and an exit code that tells when ours is beaten."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from scumble.cli.lab import attack
from scumble.errors import InvalidParameter
from scumble.lab.attack import averaging, picture, reconstruction, single_record, volume
from scumble.lab.attack.report import Finding, Report


def run(*words: str) -> Any:
    app = typer.Typer()
    app.command()(attack)
    return CliRunner().invoke(app, list(words))


def test_it_tells_what_was_tried_and_learned() -> None:
    result = run("averaging", "--rows", "2000", "--queries", "1000")
    assert result.exit_code == 0
    assert "tried: one range, asked 1,000 times" in result.output
    assert "WINS   planted: fresh noise of scale 10" in result.output
    assert "fails  DP-PLR, epsilon 1" in result.output


def test_json_has_the_figures() -> None:
    result = run("averaging", "--rows", "2000", "--queries", "1000", "--epsilon", "1/2", "--json")
    (found,) = json.loads(result.stdout)["attacks"]
    assert found["as_expected"] is True
    assert [finding["won"] for finding in found["findings"]] == [True, False, False]
    assert found["findings"][1]["different"] == 1


def test_it_draws(tmp_path: Path) -> None:
    path = tmp_path / "attack.png"
    result = run("volume", "--rows", "2000", "--queries", "500", "-o", str(path))
    assert result.exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_all_of_them_are_drawn_together(tmp_path: Path) -> None:
    path = tmp_path / "attack.svg"
    reports = [
        reconstruction.attack(1, 5_000, 2_000),
        single_record.attack(1, queries=100),
        volume.attack(1, 2_000, 100),
        averaging.attack(1, 2_000, 1_000),
    ]
    picture.draw(reports, path)
    text = path.read_text()
    for title in ("Reconstruction", "Single record", "Volume", "Averaging", "bound, no test can pass it"):
        assert title in text


@pytest.mark.parametrize(
    "words",
    [
        ("volume", "--epsilon", "3"),
        ("volume", "--epsilon", "0.001"),
        ("volume", "-o", "picture.txt"),
        ("storage", "-o", "picture.png"),
    ],
)
def test_refusals(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert isinstance(result.exception, InvalidParameter)


def test_an_attack_that_wins_against_ours_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a report in which ours is beaten."""
    beaten = Report("volume", "", "", (Finding("ours", False, "everything", True, {}),), {})
    monkeypatch.setattr(volume, "attack", lambda epsilon, **sizes: beaten)
    result = run("volume")
    assert result.exit_code == 1
    assert "NOT AS IT SHOULD BE" in result.output
