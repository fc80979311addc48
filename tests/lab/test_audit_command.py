"""`scumble audit` as typed: its table, its JSON, its exit codes."""

import json

import pytest
import typer
from typer.testing import CliRunner
from verify.planted_epsilon import half_the_noise

from scumble.cli.lab import audit
from scumble.errors import InvalidParameter

app = typer.Typer()
app.command()(audit)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_the_table() -> None:
    code, output = run("--mechanism", "slack", "--runs", "3000")
    assert code == 0
    heading, line, *meaning = output.splitlines()
    assert " ".join(heading.split()) == "mechanism what shows most claimed lost at least largest loss runs verdict"
    assert line.split()[:1] == ["slack"]
    assert " 1.000000 " in line
    assert line.endswith("3,000  not refuted")
    assert "docs/privacy.md" in meaning[-1]


def test_json() -> None:
    code, output = run("--mechanism", "capacity", "--epsilon", "0.5", "--runs", "500", "--json")
    found = json.loads(output)
    assert (code, found["refuted"]) == (0, [])
    (mechanism,) = found["mechanisms"]
    assert (mechanism["mechanism"], mechanism["epsilon"], mechanism["runs"]) == ("capacity", "1/2", 500)
    assert (mechanism["largest_loss"], mechanism["largest_loss_of_claim"], mechanism["cut_off_runs"]) == ("1/2", "1", 0)
    for bound in mechanism["bounds"]:
        assert 0 <= bound["epsilon"] <= 0.5
        assert bound["confidence"] == 1 - 1e-6 / 2


def test_a_refuted_claim_is_an_exit_code() -> None:
    with half_the_noise():
        code, output = run("--mechanism", "slack", "--runs", "4000")
    assert code == 1
    assert "REFUTED" in output


@pytest.mark.parametrize("words", [("--mechanism", "exact"), ("--epsilon", "0"), ("--epsilon", "much")])
def test_refusals(words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParameter):
        run(*words)
