"""The picture: files by suffix, refusals, every kind of domain, and no true curve unless it is asked for."""

import builtins
import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scumble import (
    CategoryDomain,
    DateDomain,
    DecimalDomain,
    Domain,
    DPPLRIndex,
    ExplicitKeys,
    IntegerDomain,
    Ledger,
    TimestampDomain,
)
from scumble.errors import FileError, InvalidParameter, NotFitted
from scumble.index.plot import MOST_POINTS, draw


def fitted(domain: Domain, counts: Any, **options: Any) -> DPPLRIndex:
    return DPPLRIndex(**options).fit_counts(counts, domain=domain, budget=Ledger(limit=1).spend(1, "test"))


@pytest.fixture(scope="module")
def counts() -> Any:
    return np.random.default_rng(1).poisson(20, 2000)


@pytest.fixture(scope="module")
def index(counts: Any) -> DPPLRIndex:
    return fitted(IntegerDomain(1000, 2999), counts)


def labels(figure: Any) -> set[str]:
    return {text for ax in figure.axes for text in ax.get_legend_handles_labels()[1]}


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PNG", b"\x89PNG")])
def test_it_writes_the_format_of_the_suffix(index: DPPLRIndex, tmp_path: Path, suffix: str, magic: bytes) -> None:
    index.plot(tmp_path / f"a{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes().startswith(magic)


def test_the_same_index_gives_the_same_svg(index: DPPLRIndex, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        index.plot(tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_true_curve_is_drawn_only_from_unsafe_true_counts(index: DPPLRIndex, counts: Any) -> None:
    without, with_it = labels(index.plot()), labels(index.plot(unsafe_true_counts=counts))
    assert {label for label in with_it - without if "true curve" in label} == with_it - without != set()


def test_the_band_is_as_wide_as_a_lookup(index: DPPLRIndex) -> None:
    figure: Any = index.plot()
    slack, capacity = index.model.slack_rows, index.model.capacity
    for ax in figure.axes:
        band = ax.collections[0].get_paths()[0].vertices
        assert band[:, 1].min() >= 0
        assert band[:, 1].max() <= capacity
        ranks, rows = next(line for line in ax.lines if line.get_label() == "segments").get_data()
        middle = len(ranks) // 2
        at = band[band[:, 0] == ranks[middle]][:, 1]
        assert (at.min(), at.max()) == (max(0, rows[middle] - slack), min(capacity, rows[middle] + slack))


def test_a_loaded_index_is_drawn_without_its_noisy_curve(index: DPPLRIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "a.index")
    loaded = DPPLRIndex.load(tmp_path / "a.index")
    assert "noisy curve" in labels(index.plot())
    assert "noisy curve" not in labels(loaded.plot())
    assert "noisy curve" not in labels(index.plot(show_noisy=False))


def test_ticks_are_keys_not_ranks(index: DPPLRIndex) -> None:
    figure: Any = index.plot()
    ax = figure.axes[0]
    shown = {tick: label.get_text() for tick, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)}
    assert shown
    assert all(label == f"{round(tick) + 1000:,}" for tick, label in shown.items())


DAY = datetime.date(2020, 1, 1)
HOUR = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "domain",
    [
        IntegerDomain(5, 5),
        IntegerDomain(-(2**62), -(2**62) + 1),
        IntegerDomain(0, 10**6, 1000),
        DecimalDomain("0", "100", "0.25"),
        DateDomain(DAY, DAY + datetime.timedelta(days=500)),
        TimestampDomain(HOUR, HOUR + datetime.timedelta(hours=300), "1h"),
        CategoryDomain(["a name much longer than a tick has room for", "north", "south"]),
        ExplicitKeys([1, 2, 50, 1000, 10**9]),
    ],
    ids=lambda domain: domain.label,
)
@pytest.mark.parametrize("rows", [50, pytest.param(0, marks=pytest.mark.slow)])
def test_every_kind_of_domain_can_be_drawn(domain: Domain, rows: int, tmp_path: Path) -> None:
    fitted(domain, np.full(domain.size, rows)).plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_a_table_without_rows_can_be_drawn(tmp_path: Path) -> None:
    fitted(IntegerDomain(0, 99), np.zeros(100, dtype=np.int64)).plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_one_key_with_all_rows_can_be_drawn(tmp_path: Path) -> None:
    counts = np.zeros(3000, dtype=np.int64)
    counts[1234] = 10**6
    fitted(IntegerDomain(0, 2999), counts).plot(tmp_path / "a.png", unsafe_true_counts=counts)
    assert (tmp_path / "a.png").exists()


def test_a_large_domain_is_thinned_out() -> None:
    index = fitted(IntegerDomain(0, 2**18 - 1), np.ones(2**18, dtype=np.int64), mechanism="paper")
    figure: Any = index.plot(unsafe_true_counts=np.ones(2**18, dtype=np.int64))
    assert all(len(line.get_xdata()) <= 2 * MOST_POINTS for ax in figure.axes for line in ax.lines)


def test_it_draws_on_an_ax_of_the_callers(index: DPPLRIndex) -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert index.plot(ax=ax, key_label="salary") is ax
    assert ax.get_xlabel() == "salary"
    assert ax.get_legend() is not None


def test_pyplot_is_left_alone(index: DPPLRIndex) -> None:
    before = "matplotlib.pyplot" in sys.modules
    index.plot()
    assert ("matplotlib.pyplot" in sys.modules) == before


@pytest.mark.parametrize("name", ["a.jpeg", "a", "png"])
def test_an_unknown_suffix_is_refused_before_anything_is_drawn(index: DPPLRIndex, name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"\.png or \.svg"):
        index.plot(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_path_and_an_ax_exclude_each_other(index: DPPLRIndex, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="exclude"):
        draw(index, tmp_path / "a.png", ax=object())


def test_counts_of_another_domain_are_refused(index: DPPLRIndex) -> None:
    with pytest.raises(InvalidParameter, match="counts"):
        index.plot(unsafe_true_counts=[1, 2, 3])


def test_a_folder_that_is_not_there_is_a_file_error(index: DPPLRIndex, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot write"):
        index.plot(tmp_path / "missing" / "a.png")


def test_an_index_that_was_not_fitted_is_refused() -> None:
    with pytest.raises(NotFitted):
        DPPLRIndex().plot()


def test_without_matplotlib_the_hint_says_what_to_install(index: DPPLRIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InvalidParameter) as caught:
        index.plot()
    assert caught.value.hint == "pip install 'scumble[plot]'"
