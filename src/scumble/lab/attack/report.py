"""What came of an attack, as text and as JSON. All of it is about made-up data, and public."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Figure", "Finding", "Report", "rows_text"]

Figure = float | int | str | bool | None | list[float]


@dataclass(frozen=True)
class Finding:
    """One attack on one target. `leaky` says that the target leaks on purpose: there the attack has to win."""

    target: str
    leaky: bool
    learned: str
    won: bool
    figures: Mapping[str, Figure]

    @property
    def as_expected(self) -> bool:
        return self.won == self.leaky


@dataclass(frozen=True)
class Report:
    """One attack on all its targets. `curves` is what its picture is drawn from."""

    attack: str
    explanation: str
    tried: str
    findings: tuple[Finding, ...]
    curves: Mapping[str, Any]

    @property
    def as_expected(self) -> bool:
        return all(finding.as_expected for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        findings = [
            {
                "target": finding.target,
                "leaky": finding.leaky,
                "won": finding.won,
                "as_expected": finding.as_expected,
                "learned": finding.learned,
                **finding.figures,
            }
            for finding in self.findings
        ]
        about = {"attack": self.attack, "explanation": self.explanation, "tried": self.tried}
        return {**about, "as_expected": self.as_expected, "findings": findings}

    def lines(self) -> list[str]:
        width = max(len(finding.target) for finding in self.findings)
        lines = [self.attack, f"  {self.explanation}", f"  tried: {self.tried}"]
        for finding in self.findings:
            verdict = "WINS " if finding.won else "fails"
            note = "" if finding.as_expected else "  <-- NOT AS IT SHOULD BE"
            lines.append(f"  {verdict}  {finding.target:<{width}}  {finding.learned}{note}")
        return lines


def rows_text(number: float) -> str:
    """A number of rows in words."""
    text = f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
    return f"{text} row" if text == "1" else f"{text} rows"
