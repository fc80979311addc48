"""What the gateway can do, as Flight SQL's SqlInfo asks for it: numbers of facts come in, the facts go out. All public.

It reads only, commits every statement by itself and has no transactions; results that nobody has fetched yet can be
cancelled.
"""

from typing import Any

import pyarrow as pa

from scumble import __version__

__all__ = ["SERVER_INFO", "server_info"]

_KINDS = [
    pa.field("string_value", pa.string()),
    pa.field("bool_value", pa.bool_()),
    pa.field("bigint_value", pa.int64()),
    pa.field("int32_bitmask", pa.int32()),
    pa.field("string_list", pa.list_(pa.string())),
    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
]
STRING, BOOLEAN, BIGINT, BITMASK, LIST, MAP = range(6)
SERVER_INFO = pa.schema(
    [pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", pa.dense_union(_KINDS), nullable=False)]
)

# Numbers and their meaning are those of the enum SqlInfo in FlightSql.proto.
_FACTS: dict[int, tuple[int, Any]] = {
    0: (STRING, "Scumble gateway"),
    1: (STRING, __version__),
    2: (STRING, pa.__version__),
    3: (BOOLEAN, True),  # read only
    4: (BOOLEAN, True),  # takes SQL
    5: (BOOLEAN, False),  # takes no Substrait
    8: (BITMASK, 0),  # no transactions
    9: (BOOLEAN, True),  # cancels
    101: (BITMASK, 0),
    **dict.fromkeys((500, 501, 502), (BOOLEAN, False)),  # creates nothing
    503: (BIGINT, 1),  # names are the same in either case
    504: (STRING, '"'),
    505: (BIGINT, 1),
    506: (BOOLEAN, True),
    507: (BIGINT, 3),  # nulls come last
    **dict.fromkeys(range(508, 513), (LIST, [])),
    513: (STRING, "\\"),
    514: (STRING, ""),
    515: (BOOLEAN, True),
    516: (BOOLEAN, True),
    517: (MAP, []),
    518: (BOOLEAN, True),
    519: (BOOLEAN, False),
    520: (BOOLEAN, True),
    521: (BOOLEAN, True),
    522: (BITMASK, 3),  # GROUP BY
    523: (BOOLEAN, True),
    524: (BOOLEAN, True),
    525: (BITMASK, 3),  # the core grammar
    526: (BITMASK, 1),  # ANSI 92, entry level
    527: (BOOLEAN, False),
    528: (BIGINT, 2),  # full outer joins
    529: (STRING, "schema"),
    530: (STRING, "procedure"),
    531: (STRING, "database"),
    532: (BOOLEAN, True),
    **dict.fromkeys((533, 534, 535), (BITMASK, 0)),
    536: (BOOLEAN, False),
    537: (BOOLEAN, False),
    538: (BITMASK, 15),  # subqueries
    539: (BOOLEAN, True),
    540: (BITMASK, 3),  # UNION, UNION ALL
    **dict.fromkeys(range(541, 556), (BIGINT, 0)),  # no limits
    556: (BOOLEAN, False),
    **dict.fromkeys(range(557, 562), (BIGINT, 0)),
    562: (BIGINT, 0),  # isolation: none
    563: (BOOLEAN, False),  # no transactions
    564: (BITMASK, 1),
    565: (BOOLEAN, False),
    566: (BOOLEAN, False),
    567: (BITMASK, 2),  # results are read forward,
    568: (BITMASK, 0),
    569: (BITMASK, 2),  # and only read
    **dict.fromkeys((570, 571), (BITMASK, 0)),
    **dict.fromkeys(range(572, 577), (BOOLEAN, False)),
}


def server_info(command: Any) -> pa.Table:
    """The facts that are asked for, or all."""
    wanted = [number for number in command.info if number in _FACTS] if command.info else list(_FACTS)
    kinds = [_FACTS[number][0] for number in wanted]
    offsets = [kinds[:place].count(kind) for place, kind in enumerate(kinds)]
    children = [
        pa.array([_FACTS[number][1] for number in wanted if _FACTS[number][0] == kind], field.type)
        for kind, field in enumerate(_KINDS)
    ]
    names = [field.name for field in _KINDS]
    values = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, names)
    return pa.table([pa.array(wanted, pa.uint32()), values.cast(SERVER_INFO.field("value").type)], schema=SERVER_INFO)
