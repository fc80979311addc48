"""The attacks of `scumble attack` as rows: each must fail against Scumble and win against a target made to leak."""

from collections.abc import Callable, Iterator

from scumble.lab.attack import averaging, reconstruction, single_record, storage, volume
from scumble.lab.attack.report import Finding, Report
from verify import Row

__all__ = ["rows"]

USUAL_SECONDS = 120


def rows(seconds: float) -> Iterator[Row]:
    """One row for each attack. More seconds show the attackers more; they always get what they need to win."""
    share = seconds / USUAL_SECONDS
    games, observed = max(600, int(1000 * share)), max(200_000, int(1_000_000 * min(1, share)))
    attacks: tuple[tuple[str, Callable[[], Report], Callable[[Report], str]], ...] = (
        (
            "Ranges that queries read reveal no more of the key column than the noise allows, however many are seen",
            lambda: reconstruction.attack(1, queries=observed),
            _reconstructed,
        ),
        (
            "Knowing all rows but one does not reveal whether that one is there, beyond (e^eps - 1) / (e^eps + 1)",
            lambda: single_record.attack(1, queries=games),
            lambda report: "; ".join(f"{f.target}: {f.figures['advantage']:.3f}" for f in _ours(report)),
        ),
        (
            "The sizes of requests and answers do not reveal how many rows match",
            lambda: volume.attack(1),
            lambda report: "; ".join(f.learned for f in _ours(report)),
        ),
        (
            "The same query asked a million times reveals no more than it did the first time",
            lambda: averaging.attack(1),
            lambda report: "; ".join(f.learned for f in _ours(report)),
        ),
        (
            "Storage that swaps, replays, rolls back or truncates causes an error, never a wrong answer",
            storage.attack,
            lambda report: f"{sum(not f.won for f in _ours(report))} of {len(_ours(report))} attempts refused or found",
        ),
    )
    for claim, attack, figure in attacks:
        report = attack()
        planted = [finding for finding in report.findings if finding.leaky]
        yield Row(
            claim,
            f"scumble attack {report.attack.replace(' ', '-')}: {report.tried}",
            figure(report),
            not any(finding.won for finding in _ours(report)),
            tuple(finding.target for finding in planted),
            tuple(finding.target for finding in planted if finding.won),
        )


def _ours(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if not finding.leaky]


def _reconstructed(report: Report) -> str:
    errors = [f.figures.get("dense_mean_error_rows", f.figures.get("mean_error_rows")) for f in _ours(report)]
    return "; ".join(
        f"{finding.target}: off by {error:.3g} rows" for finding, error in zip(_ours(report), errors, strict=True)
    )
