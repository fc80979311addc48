"""Noise that is derived: the same for the same release of the same rows, unrelated for anything else, and as exact."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributions import FALSE_ALARM
from hypothesis import given
from hypothesis import strategies as st
from test_noise import misfit

from key_streams import keys
from scumble.enclave.loads import index_terms
from scumble.enclave.pages import DataKeys
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.file import encode
from scumble.index.mechanisms import wide_tree
from scumble.index.slack import SLACKS
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.privacy import noise
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Noise, discrete_laplace, encode_facts
from scumble.types import IntegerDomain, parse_domain
from scumble.wire.requests import IndexOrder

__all__ = ["keys"]

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "noise-v1.json").read_text())
SECRET, DIGEST = bytes(range(32)), bytes(reversed(range(32)))
RELEASE: dict[str, Any] = {"batch": "0b" * 16, "terms": ("k", Fraction(1, 3), None, (4, "x")), "digest": DIGEST}
ORDER = IndexOrder("k", parse_domain("int:0:99"), Fraction(1), Fraction(0), Fraction(1, 10**6), 1, 4096, "measured")


def _drawn(derived: Noise, *question: noise.Fact, scale: Fraction = Fraction(10**6), count: int = 8) -> list[int]:
    return list(map(int, discrete_laplace(scale, count, derived.stream(*question))))


def test_derivations_are_those_that_were_stored() -> None:
    """What this gives once, it gives for ever: a change would make a repeated build another release."""
    found = {
        "facts": encode_facts((None, b"\0", "é", -5, Fraction(2, 3), np.array([1, -1]), ("t",))).hex(),
        "samples": _drawn(Noise.derived(SECRET, "index", **RELEASE), "wide tree", 3, Fraction(1, 7)),
        "data key": DataKeys(SECRET, "0a" * 16).noise().hex(),
        "owner": OwnerKey("0a" * 16, SECRET).noise_key().hex(),
        "analyst": AnalystKey("0a" * 16, SECRET).noise_key().hex(),
        "index": _curve(Noise.derived(SECRET, "index", **RELEASE), 200),
        "adaptive index": _curve(Noise.derived(SECRET, "index", **RELEASE), 1 << 17),
        "binary tree": _curve(Noise.derived(SECRET, "index", **RELEASE), 20, mechanism="paper"),
    }
    assert found == VECTORS


def _curve(derived: Noise, size: int, **options: Any) -> list[int]:
    """The first numbers of a released curve, rounded far above what floats of another machine may change."""
    index = DPPLRIndex(**options).unsafe_fit_counts(
        np.arange(size) % 5,
        derived,
        domain=IntegerDomain(0, size - 1),
        budget=unsafe_budget(Fraction(1)),
        beta=1e-6,
        capacity=1 << 20,
    )
    return [round(float(row) * 1000) for row in index.noisy_curve.rows[:6]] + [index.model.slack_rows]


def test_the_same_release_has_the_same_noise_and_any_other_does_not() -> None:
    assert _drawn(Noise.derived(SECRET, "index", **RELEASE)) == _drawn(Noise.derived(SECRET, "index", **RELEASE))
    others = [
        Noise.derived(SECRET, "index", **RELEASE),
        Noise.derived(SECRET, "capacity", **RELEASE),
        Noise.derived(bytes(32), "index", **RELEASE),
        Noise.derived(SECRET, "index", **RELEASE | {"batch": "0c" * 16}),
        Noise.derived(SECRET, "index", **RELEASE | {"terms": ("k", Fraction(1, 3), None, 4, "x")}),
        Noise.derived(SECRET, "index", **RELEASE | {"digest": bytes(32)}),
        Noise.fresh(),
        Noise.fresh(),
    ]
    drawn = {tuple(_drawn(each, *question)) for each in others for question in [(), ("a",), ("b",), ("a", "b")]}
    assert len(drawn) == 4 * len(others)


def test_a_secret_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32"):
        Noise.derived(bytes(16), "index", **RELEASE)


def test_every_field_of_an_order_is_among_the_terms() -> None:
    others: dict[str, Any] = {
        "attribute": "j",
        "domain": parse_domain("int:0:98"),
        "epsilon": Fraction(2),
        "delta": Fraction(1, 9),
        "beta": Fraction(1, 10**5),
        "rows_per_user": 2,
        "max_bytes": None,
        "slack": "lossless",
        "mechanism": "paper",
        "alpha_s": Fraction(8),
        "blocks": 4,
        "columns": ("k",),
        "hint": b"a curve",
        "plan": "cell_rows:150",
        "grid": b"cells",
    }
    assert set(others) == {field.name for field in fields(IndexOrder)}
    encoded = {encode_facts(index_terms(replace(ORDER, **{name: value}))) for name, value in others.items()}
    assert len(encoded | {encode_facts(index_terms(ORDER))}) == len(others) + 1
    assert index_terms(ORDER)[-1] is ORDER.blocks  # nothing follows that an earlier commit's noise was not named by


# --- no two questions share a stream ----------------------------------------------------------------

FACTS = st.recursive(
    st.none()
    | st.binary(max_size=4)
    | st.text("ab\0", max_size=3)
    | st.integers(-300, 300)
    | st.fractions(max_denominator=9),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


def _known(fact: Any) -> Any:
    """A fact as what Python tells apart as well: 1 from Fraction(1), True from 1."""
    return tuple(map(_known, fact)) if isinstance(fact, tuple) else (type(fact).__name__, fact)


@given(FACTS, FACTS)
def test_facts_that_differ_are_encoded_differently(one: Any, other: Any) -> None:
    assert (encode_facts(one) == encode_facts(other)) == (_known(one) == _known(other))


def test_a_question_can_be_asked_once() -> None:
    asked = Noise.fresh()
    asked.stream("slack", 1)
    asked.stream("slack", 2)
    with pytest.raises(ValueError, match="twice"):
        asked.stream("slack", 1)


@pytest.mark.parametrize("size", [1, 50, 1 << 17])
@pytest.mark.parametrize("mechanism", ["scumble", "paper"])
@pytest.mark.parametrize("slack", list(SLACKS))
def test_no_two_draws_of_an_index_share_a_key(keys: list[bytes], size: int, mechanism: str, slack: Any) -> None:
    index = DPPLRIndex(mechanism=mechanism, slack=slack)
    index.unsafe_fit_counts(
        np.ones(size, np.int64),
        Noise.derived(SECRET, "index", **RELEASE),
        domain=IntegerDomain(0, size - 1),
        budget=unsafe_budget(Fraction(1), delta=Fraction(1, 2)),
        beta=Fraction(1, 10**6),
        capacity=size + 10,
    )
    assert len(keys) == len(set(keys)) >= 1


# --- an index ---------------------------------------------------------------------------------------


def _index(digest: bytes, counts: Any, capacity: int = 600, slack: Any = "measured", beta: Any = 1e-6) -> bytes:
    index = DPPLRIndex(slack=slack).unsafe_fit_counts(
        np.array(counts),
        Noise.derived(SECRET, "index", **RELEASE | {"digest": digest}),
        domain=IntegerDomain(0, len(counts) - 1),
        budget=unsafe_budget(Fraction(1, 100), delta=Fraction(1, 100)),
        beta=beta,
        capacity=capacity,
    )
    return encode(index.model)


@pytest.mark.parametrize(("slack", "beta"), [*((slack, 1e-6) for slack in SLACKS), ("paper", 0.01)])
def test_an_index_built_again_is_the_same_file(slack: str, beta: float) -> None:
    """Also where the slack is simulated, which no process repeats from its cache."""
    built = set()
    for _ in range(3):
        wide_tree._bound.cache_clear()
        built.add(_index(DIGEST, [5] * 100, slack=slack, beta=beta))
    assert len(built) == 1
    assert _index(bytes(32), [5] * 100, slack=slack, beta=beta) not in built


def test_without_the_digest_one_row_would_show() -> None:
    """Planted: the same noise over tables that differ in a row. What was released differs by that row alone."""
    counts = np.full(100, 5)
    other = counts + (np.arange(100) == 40)

    def curve(digest: bytes, rows: Any) -> Any:
        derived = Noise.derived(SECRET, "index", **RELEASE | {"digest": digest})
        index = DPPLRIndex().unsafe_fit_counts(
            rows,
            derived,
            domain=IntegerDomain(0, 99),
            budget=unsafe_budget(Fraction(1, 100)),
            beta=1e-6,
            capacity=600,
        )
        return index.noisy_curve.rows

    planted = curve(DIGEST, other) - curve(DIGEST, counts)
    assert np.abs(planted - (np.arange(100) >= 40)).max() < 1e-6
    honest = curve(bytes(32), other) - curve(DIGEST, counts)
    assert np.abs(honest).max() > 3


def test_a_question_asked_differently_has_other_noise() -> None:
    """The slack is asked about the segments: about others, as other machines might round them, its noise is another."""
    streams: list[list[int]] = []
    for segments in (1, 5):
        derived = Noise.derived(SECRET, "index", **RELEASE)
        original = derived.stream

        def listen(*question: noise.Fact, original: Callable[..., noise.Words] = original) -> noise.Words:
            if question[0] == "slack":
                streams.append(original(*question)(4).tolist())
                return original(*question, "again")
            return original(*question)

        derived.stream = listen  # type: ignore[method-assign]
        DPPLRIndex(max_segments=segments).unsafe_fit_counts(
            np.arange(50) ** 2,
            derived,
            domain=IntegerDomain(0, 49),
            budget=unsafe_budget(Fraction(1)),
            beta=1e-6,
            capacity=1 << 16,
        )
    assert streams[0] != streams[1]


# --- the distribution -------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [Fraction(5), Fraction(1, 3)], ids=str)
def test_distribution_over_secrets(scale: Fraction) -> None:
    """One sample from each of many derived streams: exact over random secrets, as one long stream is."""
    rng = np.random.default_rng()
    sample = np.concatenate(
        [
            discrete_laplace(scale, 5, Noise.derived(rng.bytes(32), "index", **RELEASE).stream("rows"))
            for _ in range(20_000)
        ]
    )
    assert misfit(sample, scale) > FALSE_ALARM
    assert misfit(discrete_laplace(scale, 10**6, Noise.derived(SECRET, "x", **RELEASE).stream()), scale) > FALSE_ALARM
