"""Typed messages: dataclasses become JSON, and JSON becomes dataclasses with every field checked.

The one place where anything that crosses a boundary is packed and validated. A field that is missing, superfluous or of
another type is refused by its name, never with its value: it may be secret.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from scumble.errors import InvalidParameter, ScumbleError

M = TypeVar("M")
N = TypeVar("N", bound="Message")

_HINT = "both ends have to be of one version of Scumble"


@dataclass_transform(frozen_default=True)
class Message:
    """Asks the other side for something; `task` is its name on the wire. Subclasses become frozen dataclasses."""

    task: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True)(cls)


class Codec(NamedTuple):
    """How the values of one type become JSON, and how they come back: with any error, if they are something else."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def to_fields(message: object) -> dict[str, Any]:
    """A message as a JSON object."""
    return {field: each.pack(getattr(message, field)) for field, each in _codecs(type(message)).items()}


def from_fields(kind: type[M], fields: object) -> M:
    """The message that a JSON object stands for, or InvalidParameter."""
    codecs = _codecs(kind)
    if not isinstance(fields, dict):
        raise InvalidParameter(f"{_label(kind)} is an object of JSON", hint=_HINT)
    for field in fields:
        if field not in codecs:
            raise InvalidParameter(f"{_label(kind)} has no field {field[:64]!r}", hint=_HINT)
    for field in codecs:
        if field not in fields and kind.__dataclass_fields__[field].default is dataclasses.MISSING:  # type: ignore[attr-defined]
            raise InvalidParameter(f"{_label(kind)} needs the field {field!r}", hint=_HINT)
    return kind(**{field: _unpacked(kind, field, value) for field, value in fields.items()})


def to_list(message: Message) -> list[Any]:
    """A message as a JSON list: its name, and its fields in order."""
    if _plain_types(type(message)) is not None:
        return [message.task, *vars(message).values()]
    return [message.task, *to_fields(message).values()]


def from_list(family: Mapping[str, type[N]], values: list[Any]) -> N:
    """The message of a family that a JSON list stands for, or InvalidParameter."""
    kind = family.get(values[0]) if values and isinstance(values[0], str) else None
    if kind is None:
        raise InvalidParameter("there is no message of this name", hint=_HINT)
    if tuple(map(type, values[1:])) == _plain_types(kind):
        return kind(*values[1:])
    codecs = _codecs(kind)
    if len(values) != len(codecs) + 1:
        raise InvalidParameter(f"{_label(kind)} has the fields ({', '.join(codecs)})", hint=_HINT)
    return kind(*[_unpacked(kind, field, value) for field, value in zip(codecs, values[1:], strict=True)])


def register(kind: Any, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
    """Say how the values of a type become JSON, and come back."""
    _REGISTERED[kind] = Codec(pack, unpack)


def codec(kind: Any) -> Codec:
    """How the values of an annotated type become JSON: plain values as they are, other dataclasses field by field."""
    if kind in _REGISTERED:
        return _REGISTERED[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _optional(*(each for each in arguments if each is not NoneType))
    if origin is Literal:
        return Codec(_same, lambda value: arguments[arguments.index(value)])
    if origin is tuple:
        return _many(arguments[0]) if arguments[-1] is Ellipsis else _fixed(*map(codec, arguments))
    if hasattr(kind, "from_json"):
        return Codec(lambda value: value.to_json(), kind.from_json)
    return Codec(to_fields, lambda value: from_fields(kind, value))


def _plain(kind: type) -> Codec:
    def unpack(value: Any) -> Any:
        if type(value) is not kind:  # True is no number here
            raise TypeError
        return value

    return Codec(_same, unpack)


def _optional(kind: Any) -> Codec:
    some = codec(kind)
    return Codec(
        lambda value: None if value is None else some.pack(value),
        lambda value: None if value is None else some.unpack(value),
    )


def _many(kind: Any) -> Codec:
    each = codec(kind)
    return Codec(
        lambda values: [each.pack(value) for value in values],
        lambda values: tuple([each.unpack(value) for value in _list(values)]),
    )


def _fixed(*parts: Codec) -> Codec:
    return Codec(
        lambda values: [part.pack(value) for part, value in zip(parts, values, strict=True)],
        lambda values: tuple([part.unpack(value) for part, value in zip(parts, _list(values), strict=True)]),
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _same(value: Any) -> Any:
    return value


_FRACTION = re.compile("-?[0-9]{1,4000}(/[0-9]{1,4000})?")


def read_fraction(text: object) -> Fraction:
    """The inverse of `str`, or any error. Of "1e999999999", which Fraction reads too, it would take all memory."""
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise ValueError
    return Fraction(text)


_REGISTERED: dict[Any, Codec] = {
    **{kind: _plain(kind) for kind in (int, str, bool, NoneType)},
    bytes: Codec(bytes.hex, bytes.fromhex),
    Fraction: Codec(str, read_fraction),
}
_KNOWN: dict[Any, dict[str, Codec]] = {}
_PLAIN: dict[Any, tuple[type, ...] | None] = {}


def _unpacked(kind: type, field: str, value: Any) -> Any:
    try:
        return _codecs(kind)[field].unpack(value)
    except ScumbleError:
        raise
    except Exception:
        raise InvalidParameter(f"{_label(kind)} has something else in its field {field!r}", hint=_HINT) from None


def _codecs(kind: Any) -> dict[str, Codec]:
    """The fields of a message's class, in order: worked out once."""
    known = _KNOWN.get(kind)
    if known is None:
        hints = get_type_hints(kind)
        known = _KNOWN[kind] = {field.name: codec(hints[field.name]) for field in dataclasses.fields(kind)}
    return known


def _plain_types(kind: Any) -> tuple[type, ...] | None:
    """The types of a message's fields, if JSON has them as they are: every page is read by such a message."""
    known = _PLAIN.get(kind, ())
    if known == ():
        hints = get_type_hints(kind)
        types = tuple(hints[field.name] for field in dataclasses.fields(kind))
        known = _PLAIN[kind] = types if {int, str, bool}.issuperset(types) else None
    return known


def _label(kind: type) -> str:
    return f"the message {kind.__name__}"
