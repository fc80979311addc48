"""Made-up hospital visits for the demo, as Arrow tables: the same for the same number of rows and seed."""

from datetime import date
from typing import Any

import numpy as np

__all__ = ["DIAGNOSES", "FIRST_DAY", "LAST_DAY", "MOST_AMOUNT", "WARDS", "visits", "wards"]

WARDS = ("cardiology", "maternity", "neurology", "oncology", "paediatrics", "surgery")
DIAGNOSES = ("asthma", "birth", "cancer", "check-up", "fracture", "infection", "migraine", "stroke")
FIRST_DAY, LAST_DAY = date(2023, 1, 1), date(2025, 12, 31)
MOST_AMOUNT = 20_000


def visits(rows: int, seed: int = 1) -> Any:
    """Visits in the order of their days: more on weekdays, most of them cheap, some things not known."""
    import pyarrow as pa

    random = np.random.default_rng(seed)
    days = (LAST_DAY - FIRST_DAY).days + 1
    weight = np.where((np.arange(days) + FIRST_DAY.weekday()) % 7 < 5, 1.0, 0.4)
    day = np.sort(random.choice(days, rows, p=weight / weight.sum())) + (FIRST_DAY - date(1970, 1, 1)).days
    cents = np.minimum(random.lognormal(5.5, 1.1, rows) * 100, 100 * MOST_AMOUNT).astype(np.int64)
    return pa.table(
        {
            "visit": pa.array(np.arange(1, rows + 1)),
            "patient": pa.array(random.integers(1, rows // 3 + 2, rows).astype(np.int32)),
            "day": pa.array(day.astype(np.int32)).cast(pa.date32()),
            "ward": pa.array(np.array(WARDS, object)[random.integers(0, len(WARDS), rows)], pa.string()),
            "diagnosis": pa.array(
                np.array(DIAGNOSES, object)[random.integers(0, len(DIAGNOSES), rows)],
                pa.string(),
                mask=random.random(rows) < 0.05,
            ),
            "amount": _cents(cents, random.random(rows) < 0.01),
            "age": pa.array(random.integers(0, 100, rows).astype(np.int16), mask=random.random(rows) < 0.02),
            "emergency": pa.array(random.random(rows) < 0.2, mask=random.random(rows) < 0.01),
        }
    )


def wards() -> Any:
    """A small table to join with."""
    import pyarrow as pa

    return pa.table({"ward": list(WARDS), "floor": pa.array(range(1, len(WARDS) + 1), pa.int16())})


def _cents(cents: Any, missing: Any) -> Any:
    """Whole cents as a decimal column, without a float on the way: the bits of a decimal128 are its cents."""
    import pyarrow as pa

    words = np.zeros((len(cents), 2), np.int64)
    words[:, 0] = cents
    valid = pa.array(~missing).buffers()[1]
    return pa.Array.from_buffers(pa.decimal128(8, 2), len(cents), [valid, pa.py_buffer(words)])
