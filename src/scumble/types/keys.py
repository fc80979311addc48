"""Columns of keys, read exactly from numpy, Arrow, pandas or plain Python into one of four plain forms.

Everything here is secret; a null is refused with its row and nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidKeys, OutOfDomain

DAY_NS = 86_400 * 10**9
UNIT_NS = {
    "W": Fraction(7 * DAY_NS),
    "D": Fraction(DAY_NS),
    "h": Fraction(3600 * 10**9),
    "m": Fraction(60 * 10**9),
    "s": Fraction(10**9),
    "ms": Fraction(10**6),
    "us": Fraction(10**3),
    "ns": Fraction(1),
    "ps": Fraction(1, 10**3),
    "fs": Fraction(1, 10**6),
    "as": Fraction(1, 10**9),
}
_NAT = -(2**63)
_FAR_MONTHS = 12 * 20_000  # beyond every date that a domain can hold, and safe to turn into days

Refused = TypeVar("Refused", InvalidKeys, OutOfDomain)


class Place(NamedTuple):
    """Where a key stands: what it is called, its row if it has one, and whether it is a bound of a query."""

    subject: str
    row: int | None = None
    query: bool = False

    def at(self, row: int) -> "Place":
        return Place(self.subject, row, self.query)

    def refused(self, kind: type[Refused], trouble: str, hint: str) -> Refused:
        """Build the error for the key that stands here: the subject, its row, and what is wrong with it."""
        subject = "the key" if self.row is not None and self.subject == "the keys" else self.subject
        return kind(trouble, hint=hint, row=self.row, subject=subject)


def is_null(place: Place) -> InvalidKeys:
    """Build the error for a missing key."""
    if place.query:
        return place.refused(InvalidKeys, " is null", "pass None itself for an open-ended query")
    return place.refused(InvalidKeys, " is null", "drop or fill the nulls first: a null has no rank")


KEY = Place("the key")
KEYS = Place("the keys")
LOW = Place("the lower bound", query=True)
HIGH = Place("the upper bound", query=True)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Whole multiples of a tick: integers (tick 1), decimals (10^-scale) or times (ns since 1970)."""

    values: NDArray[Any]  # int64 or uint64
    kind: str  # "integer", "decimal" or "time"
    tick: Fraction
    type_name: str

    def __len__(self) -> int:
        return len(self.values)

    def keys(self) -> list[object]:
        """Return the integers, decimals as fractions, or times in nanoseconds, one by one."""
        if self.kind == "integer":
            return list(self.values.tolist())
        return [value * self.tick for value in self.values.tolist()]


@dataclass(frozen=True, slots=True)
class Floats:
    """Floating-point numbers, widened to float64, which is exact."""

    values: NDArray[np.float64]
    type_name: str

    def __len__(self) -> int:
        return len(self.values)

    def keys(self) -> list[object]:
        return list(self.values.tolist())


@dataclass(frozen=True, slots=True)
class Texts:
    """Strings: either every row's, or the distinct ones and each row's place among them."""

    values: list[str]
    codes: NDArray[Any] | None
    type_name: str = "str"

    def __len__(self) -> int:
        return len(self.values) if self.codes is None else len(self.codes)

    def keys(self) -> list[object]:
        return list(self.values) if self.codes is None else [self.values[code] for code in self.codes]


@dataclass(frozen=True, slots=True)
class Objects:
    """Anything else, to be looked at key by key."""

    values: list[object]
    type_name: str = "object"

    def __len__(self) -> int:
        return len(self.values)

    def keys(self) -> list[object]:
        return self.values


KeyColumn = Ticks | Floats | Texts | Objects


def read_column(keys: object, place: Place) -> KeyColumn:
    """Read a column; `place` says what its rows are called should one be null."""
    module = type(keys).__module__
    if module.startswith("pyarrow"):
        return _read_arrow(keys, place)
    if module.startswith("pandas") and hasattr(keys, "dtype"):
        return _read_numpy(_from_pandas(keys, place), place)
    if isinstance(keys, np.ma.MaskedArray) and np.ma.getmaskarray(keys).any():
        raise is_null(place.at(int(np.argmax(np.ma.getmaskarray(keys)))))
    if isinstance(keys, np.ndarray) or (hasattr(keys, "__array__") and not isinstance(keys, np.generic)):
        return _read_numpy(np.asarray(keys), place)
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        return _read_list([keys])
    if isinstance(keys, Mapping | Set):
        raise place.refused(InvalidKeys, f": a {type(keys).__name__} has no rows", "pass a list or an array")
    return _read_list(list(keys))


def read_key(key: object, place: Place) -> object:
    """Read one key: bring numpy, Arrow and pandas scalars to plain ones and refuse a null."""
    module = type(key).__module__
    if module.startswith("pyarrow"):
        key = _arrow_scalar(key)
    elif isinstance(key, np.ndarray) and key.ndim == 0:
        key = key[()]
    if key is None or key is np.ma.masked or type(key).__name__ in {"NAType", "NaTType"}:
        raise is_null(place)
    if isinstance(key, np.integer) and key.dtype.kind in "iu":  # a timedelta64 is an np.integer too
        return int(key)
    if isinstance(key, np.floating) and key.dtype.itemsize <= 8:
        return float(key)
    return key


def _read_list(keys: Sequence[object]) -> KeyColumn:
    """Read plain keys; only one type makes an array: numpy would mix ints and floats inexactly."""
    types = set(map(type, keys))
    if types <= {int} and (numbers := integers(keys)) is not None:
        return Ticks(numbers, "integer", Fraction(1), "int")
    if types == {float}:
        return Floats(np.array(keys, np.float64), "float")
    if types <= {str, np.str_}:
        return Texts([str(key) for key in keys], None)
    return Objects(list(keys))


def integers(keys: Sequence[Any]) -> NDArray[Any] | None:
    """Return Python's integers as 64 bits with sign, or else without; None if neither holds them all."""
    for dtype in (np.int64, np.uint64):
        try:
            return np.array(keys, dtype)
        except OverflowError:
            continue
    return None


def _read_numpy(array: NDArray[Any], place: Place) -> KeyColumn:  # noqa: PLR0911  (one for each type)
    if array.ndim != 1:
        if array.ndim > 1:
            raise place.refused(InvalidKeys, f" form an array of {array.ndim} dimensions", "pass one dimension")
        array = array.reshape(1)
    name = array.dtype.name
    match array.dtype.kind:
        case "i":
            return Ticks(np.ascontiguousarray(array, np.int64), "integer", Fraction(1), name)
        case "u":
            return Ticks(np.ascontiguousarray(array, np.uint64), "integer", Fraction(1), name)
        case "f" if array.dtype.itemsize <= 8:
            return Floats(np.ascontiguousarray(array, np.float64), name)
        case "M":
            return _read_datetimes(array, place)
        case "U":
            return Texts(array.tolist(), None)
        case "O" | "T":
            return _read_list(array.tolist())
    return Objects(list(array))


def _read_datetimes(array: NDArray[Any], place: Place) -> KeyColumn:
    name = array.dtype.name
    unit, count = np.datetime_data(array.dtype)
    raw = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).view(np.int64)
    if len(raw) and raw.min() == _NAT:
        raise is_null(place.at(int(np.argmax(raw == _NAT))))
    if unit in {"Y", "M"}:
        months = raw.clip(-_FAR_MONTHS, _FAR_MONTHS) * (12 if unit == "Y" else 1) * count
        raw = months.clip(-_FAR_MONTHS, _FAR_MONTHS).view("datetime64[M]").astype("datetime64[D]").view(np.int64)
        unit, count = "D", 1
    if unit not in UNIT_NS:
        return Objects(list(array))
    return Ticks(raw, "time", UNIT_NS[unit] * count, name)


def _from_pandas(series: Any, place: Place) -> NDArray[Any]:
    """Turn a pandas column into numpy; one with a time zone becomes UTC instants in its own unit."""
    missing = np.asarray(series.isna())
    if missing.any():  # numpy would turn integers with a null among them into floats
        raise is_null(place.at(int(np.argmax(missing))))
    if getattr(series.dtype, "tz", None) is not None:
        array: NDArray[Any] = series.to_numpy(dtype=f"datetime64[{series.dtype.unit}]")
        return array
    return np.asarray(series)


def _read_arrow(keys: Any, place: Place) -> KeyColumn:  # noqa: PLR0911  (one for each type)
    import pyarrow as pa
    from pyarrow import types as kinds

    if isinstance(keys, pa.Scalar):
        return _read_list([keys])
    if not isinstance(keys, pa.Array | pa.ChunkedArray):
        raise place.refused(InvalidKeys, f": a {type(keys).__name__} is not one column", "pass one of its columns")
    if kinds.is_dictionary(keys.type):
        keys = keys.cast(keys.type.value_type)
    if keys.null_count:
        raise is_null(place.at(int(np.argmax(_to_numpy(keys.is_null())))))
    kind, name = keys.type, str(keys.type)
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        return _read_numpy(_to_numpy(keys), place)
    if kinds.is_timestamp(kind):
        return Ticks(_to_numpy(keys.cast(pa.int64())), "time", UNIT_NS[kind.unit], name)
    if kinds.is_date32(kind):
        return Ticks(_to_numpy(keys.cast(pa.int32())).astype(np.int64), "time", UNIT_NS["D"], name)
    if kinds.is_date64(kind):
        return Ticks(_to_numpy(keys.cast(pa.int64())), "time", UNIT_NS["ms"], name)
    if kinds.is_decimal(kind):
        return _read_arrow_decimals(keys)
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return _read_arrow_texts(keys)
    return Objects(keys.to_pylist(), name)


def _to_numpy(column: Any) -> NDArray[Any]:
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _read_arrow_decimals(column: Any) -> KeyColumn:
    """Read the two's complement words themselves; a value beyond 64 bits goes the slow way."""
    import pyarrow as pa

    scale, bits, name = column.type.scale, column.type.bit_width, str(column.type)
    if bits < 128:
        column, bits = column.cast(pa.decimal128(38, scale)), 128
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    lowest = [np.zeros(0, np.int64)]
    for chunk in chunks:
        if len(chunk) == 0:
            continue
        words = np.frombuffer(chunk.buffers()[1], np.int64).reshape(-1, bits // 64)
        words = words[chunk.offset : chunk.offset + len(chunk)]
        if (words[:, 1:] != (words[:, :1] >> 63)).any():
            return Objects(column.to_pylist(), name)
        lowest.append(words[:, 0])
    return Ticks(np.concatenate(lowest), "decimal", Fraction(10) ** -scale, name)


def _read_arrow_texts(column: Any) -> KeyColumn:
    """Read strings as the distinct ones and codes, so that Python looks at each distinct string only once."""
    import pyarrow as pa

    encoded = column.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries()
        if encoded.num_chunks == 0:
            return Texts([], None)
        codes = np.concatenate([_to_numpy(chunk.indices) for chunk in encoded.chunks])
        return Texts(encoded.chunk(0).dictionary.to_pylist(), codes)
    return Texts(encoded.dictionary.to_pylist(), _to_numpy(encoded.indices))


def _arrow_scalar(key: Any) -> object:
    if not hasattr(key, "as_py") or not key.is_valid:
        return None if hasattr(key, "as_py") else key
    unit = getattr(key.type, "unit", None)
    if unit is not None and str(key.type).startswith("timestamp"):
        return np.datetime64(key.value, unit)  # as_py would drop or refuse nanoseconds
    value: object = key.as_py()
    return value
