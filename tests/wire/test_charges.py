"""A charge crosses as it is, and what is no charge is refused by the field's name."""

import json
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from scumble.errors import InvalidParameter
from scumble.wire.charges import Charge
from scumble.wire.messages import from_fields, to_fields

CHARGE = Charge("0a" * 16, "7f" * 16, "day", Fraction(1, 3), Fraction(0), 2, new_rows=True)


@dataclass(frozen=True)
class _Paid:
    charges: tuple[Charge, ...]


@pytest.mark.parametrize("charge", [CHARGE, replace(CHARGE, what="capacity", grant="0123456789abcdef", new_rows=False)])
def test_a_charge_survives_json_and_the_codec_of_messages(charge: Charge) -> None:
    assert Charge.from_json(json.loads(json.dumps(charge.to_json()))) == charge
    paid = _Paid((charge, CHARGE))
    assert from_fields(_Paid, json.loads(json.dumps(to_fields(paid)))) == paid


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": "0A" * 16},
        {"batch": "0a" * 15},
        {"epsilon": Fraction(-1, 10)},
        {"delta": Fraction(-1, 10)},
        {"delta": Fraction(1)},
        {"delta": Fraction(3, 2)},
        {"rows_per_user": 0},
        {"epsilon": Fraction(1, 1 << 5000)},
    ],
)
def test_what_is_no_charge_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        replace(CHARGE, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "least",
    [
        {"epsilon": Fraction(0), "delta": Fraction(1, 1 << 4095)},
        {"epsilon": Fraction((1 << 4096) - 1)},
        {"delta": Fraction(999, 1000)},
        {"rows_per_user": 1},
    ],
)
def test_a_charge_at_its_limits_is_one(least: dict[str, object]) -> None:
    charge = replace(CHARGE, **least)  # type: ignore[arg-type]
    assert Charge.from_json(charge.to_json()) == charge
    with pytest.raises(InvalidParameter):
        replace(CHARGE, epsilon=Fraction(1 << 4096))


@pytest.mark.parametrize("field", ["batch", "table", "what", "epsilon", "delta", "rows_per_user", "new_rows"])
def test_a_field_of_another_type_is_refused_by_its_name(field: str) -> None:
    with pytest.raises(InvalidParameter, match=field):
        Charge.from_json({**CHARGE.to_json(), field: None})
    with pytest.raises(InvalidParameter, match="superfluous"):
        Charge.from_json({**CHARGE.to_json(), "superfluous": 1})
