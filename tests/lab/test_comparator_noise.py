"""Comparators draw all noise from what they are given: built again, they release the same bytes, and no key twice."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from key_streams import keys
from scumble.index.contract import Index
from scumble.lab.comparators import COMPARATORS, DPBPlusTreeIndex, DPRMIIndex, FMIIndex, FMIPerceptronsIndex
from scumble.lab.comparators.saved import SavedIndex, encode
from scumble.privacy import noise
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Noise
from scumble.types import IntegerDomain

__all__ = ["keys"]

COUNTS = np.arange(40, dtype=np.int64) % 7 * 30
MAKE: dict[str, Callable[[], SavedIndex]] = {
    **{name: kind for name, kind in COMPARATORS.items() if name != "exact"},
    DPRMIIndex.kind: lambda: DPRMIIndex(4, stages=3, steps=3),
    FMIIndex.kind: lambda: FMIIndex(4, steps=3, sensitivity="row"),
    FMIPerceptronsIndex.kind: lambda: FMIPerceptronsIndex(hidden=(5, 4, 3), epochs=3, batch=16),
}


def _derived(digest: int = 1) -> Noise:
    return Noise.derived(bytes(32), "index", batch="0b" * 16, terms=("k",), digest=bytes([digest]) * 32)


def _built(kind: str, given: Noise, counts: Any = COUNTS, *, capacity: int | None = 5000) -> bytes:
    budget = unsafe_budget(Fraction(1), delta=Fraction(1, 100))
    domain = IntegerDomain(0, len(counts) - 1)
    index = MAKE[kind]().unsafe_fit_counts(counts, given, domain=domain, budget=budget, beta=1e-6, capacity=capacity)
    return encode(index)


@pytest.fixture
def derived_keys(keys: list[bytes], monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The same, and a stream under a key that nobody derived fails the test."""

    def refuse() -> noise.Words:
        raise AssertionError("noise that was not derived")

    monkeypatch.setattr(noise, "_fresh_stream", refuse)
    return keys


@pytest.mark.parametrize("kind", MAKE)
def test_a_comparator_built_again_is_the_same_file(kind: str) -> None:
    first = _built(kind, _derived())
    assert _built(kind, _derived()) == first
    assert _built(kind, _derived(2)) != first
    assert _built(kind, Noise.fresh()) != _built(kind, Noise.fresh())


@pytest.mark.parametrize("capacity", [None, 5000])
@pytest.mark.parametrize("kind", MAKE)
def test_all_noise_is_derived_and_no_two_draws_share_a_key(
    kind: str, capacity: int | None, derived_keys: list[bytes]
) -> None:
    given = _derived()
    derived_keys.clear()
    _built(kind, given, capacity=capacity)
    assert len(derived_keys) == len(set(derived_keys)) >= 1


@pytest.mark.usefixtures("derived_keys")
def test_fresh_noise_is_found() -> None:
    """Planted: a tree that draws noise of its own."""

    class Fresh(DPBPlusTreeIndex):
        def _build(self, histogram: Any, terms: Any, noise_: Any) -> Any:
            noise.discrete_laplace(Fraction(1), 1)
            return super()._build(histogram, terms, noise_)

    index: Index = Fresh()
    with pytest.raises(AssertionError, match="not derived"):
        index.fit_counts(COUNTS, domain=IntegerDomain(0, 39), budget=unsafe_budget(Fraction(1)))
