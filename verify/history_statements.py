"""Long histories by chance: what is asked of a database next, and what DuckDB makes of the same.

`History.next` gives an entry: an order, which `verify.history_orders` carries out on a database, and how DuckDB follows
it. Tables stay small, whatever comes, so that thousands of statements take minutes. Indexes overlook no row, or one
with a chance of 1e-12: a wrong answer is never a matter of luck.
"""

# ruff: noqa: S608  statements are made of parts here

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

from verify.history_mirror import INDEXES, REFUSED, Mirror, Row, TableShape

__all__ = ["WEIGHTS", "Entry", "History", "Order"]

Order = tuple[Any, ...]
MOST_KEYS, MOST_ROWS, FEW_ROWS, MOST_ROOM = 400, 120, 12, 3000
WEIGHTS = {
    "insert": 9, "insert select": 3, "insert frame": 3, "upsert": 6, "update": 16, "keyed": 5, "update frame": 2,
    "move": 5, "delete": 8, "transaction": 14, "refused": 4, "load": 3, "flush": 4, "compact": 3, "vacuum": 2,
    "reopen": 2, "add column": 0.7, "drop column": 0.7, "rename column": 0.7, "rename table": 0.3, "drop index": 0.4,
    "create index": 0.6, "reindex": 0.5, "truncate": 0.3, "drop table": 0.2, "check": 0.5, "rekey": 0.4, "backup": 0.3,
}  # fmt: skip
IN_TRANSACTIONS = ("insert", "insert select", "upsert", "update", "keyed", "move", "delete", "refused", "ask")
OF_DEFINITIONS = (*IN_TRANSACTIONS, "truncate", "add column", "rename column")


@dataclass(frozen=True)
class Entry:
    """What is asked, how DuckDB follows, giving what it has to come to, and the most that it may cost."""

    kind: str
    order: Order
    follow: Callable[[], Any] = lambda: None
    cost: int = 0


class History:
    """Entries by chance, one after the other; the tables as they are after all that were followed."""

    def __init__(
        self, rng: Random, names: tuple[str, ...] = ("t", "u"), weights: dict[str, float] | None = None
    ) -> None:
        self._rng = rng
        self.weights: dict[str, float] = dict(WEIGHTS) if weights is None else weights
        self.mirror = Mirror()
        self.tables = [TableShape(name) for name in names]
        for shape in self.tables[1:]:
            shape.indexed = ["id"]
        for shape in self.tables:
            self.mirror.make(shape)
        self._made = 0

    def first(self) -> list[Entry]:
        """What makes the tables."""
        made = [Entry("create table", ("sql", shape.definition(), (), None), lambda: 0) for shape in self.tables]
        return made + [self._load(shape) for shape in self.tables]

    def next(self) -> Entry:
        """What is done next; `Entry.follow` has to be called once it is done."""
        for shape in self.tables:
            if shape.room > MOST_ROOM:
                return self._renewed(shape)
        shape = self._rng.choice(self.tables)
        rows = self.rows_of(shape)
        if rows > MOST_ROWS:
            return self._delete(shape)
        if rows < FEW_ROWS:
            return self._rng.choice([self._load, self._insert])(shape)
        return self._entry(self._rng.choices(list(self.weights), list(self.weights.values()))[0], shape)

    def _entry(self, kind: str, shape: TableShape) -> Entry:
        made: Entry = getattr(self, f"_{kind.replace(' ', '_')}")(shape)
        return made

    def rows_of(self, shape: TableShape) -> int:
        return int(self.mirror.ask(f"SELECT count(*) FROM {shape.name}")[0][0])

    def question(self, shape: TableShape, rng: Random) -> str:
        """A query about a table, whose answer has no order."""
        name, where = shape.name, self._condition(shape, rng)
        shown = rng.choice(
            [
                "*",
                f"count(*), sum({shape['amount']}), min({shape['id']}), max({shape['day']})",
                f"count({shape['note']}), max({shape['note']}), min({shape['amount']})",
                f"{shape['kind']}, count(*), sum({shape['id']})",
            ]
        )
        grouped = f" GROUP BY {shape['kind']}" if shown.startswith(shape["kind"]) else ""
        return f"SELECT {shown} FROM {name} WHERE {where}{grouped}"

    def whole(self) -> dict[str, Any]:
        """All tables: the names of their columns, those with an index, and their rows."""
        return {
            shape.name: (
                list(shape.names.values()),
                sorted(shape[each] for each in shape.indexed),
                self.mirror.ask(f"SELECT * FROM {shape.name}"),
            )
            for shape in self.tables
        }

    def saved(self) -> Any:
        """All that would have to be put back."""
        return deepcopy(self.tables), [self.mirror.arrow(f"SELECT * FROM {shape.name}") for shape in self.tables]

    def put_back(self, saved: Any) -> None:
        for shape in self.tables:
            self.mirror.drop(shape.name)
        shapes, rows = saved
        for mine, shape, found in zip(self.tables, deepcopy(shapes), rows, strict=True):
            mine.__dict__.update(shape.__dict__)
            self.mirror.put_back(shape.name, found)

    # --- rows and conditions -----------------------------------------------------------------------

    def _rows(self, shape: TableShape, count: int) -> list[Row]:
        return [tuple(self._value(column) for column in shape.names) for _ in range(count)]

    def _value(self, column: str) -> Any:
        rng = self._rng
        values: dict[str, Callable[[], Any]] = {
            "id": lambda: rng.randrange(MOST_KEYS),
            "day": lambda: rng.choice([None, date.fromisoformat(self._day())]),
            "amount": lambda: rng.choice([None, Decimal(rng.randrange(-9999, 99999)) / 100]),
            "kind": lambda: rng.choice([None, "a", "b", "c"]),
            "note": lambda: rng.choice([None, "", "x", "twelve chars"]),
            "flag": lambda: rng.choice([None, True, False]),
            "more": lambda: rng.choice([None, rng.randrange(16)]),
        }
        return values[column]()

    def _day(self, rng: Random | None = None) -> str:
        rng = rng or self._rng
        return f"2020-{rng.randrange(1, 4):02}-{rng.randrange(1, 29):02}"

    def _condition(self, shape: TableShape, rng: Random | None = None) -> str:
        """A WHERE, which matches some rows, all or none."""
        rng, key = rng or self._rng, shape["id"]
        first, length = rng.randrange(MOST_KEYS), rng.choice([0, 3, 50, 1000])
        simple = [
            f"{key} BETWEEN {first} AND {first + length}",
            f"{key} = {first}",
            f"{shape['day']} >= '{self._day(rng)}'",
            f"{shape['amount']} < {rng.randrange(0, 900)}.5",
            f"{shape['kind']} = '{rng.choice('abc')}'",
            f"{shape['note']} IS NULL",
            f"{shape['note']} = 'x'",
            shape["flag"],
            f"{key} IN ({first}, {first + 1}, {first + 7})",
            f"{shape['day']} IS NULL",
            "FALSE",
            "TRUE",
        ]
        if "more" in shape.names:
            simple += [f"{shape['more']} < {rng.randrange(16)}"] * 2
        return rng.choice(["{} AND {}", "{} OR {}", "{}", "NOT ({})"]).format(*rng.sample(simple, 2))

    # --- statements that change rows ---------------------------------------------------------------

    def _sql(self, kind: str, text: str, params: Row = (), capacity: int | None = None, other: str = "") -> Entry:
        """A statement that DuckDB takes as it is, or in `other` words."""
        return Entry(kind, ("sql", text, params, capacity), lambda: self.mirror.change(other or text, params=params))

    def _insert(self, shape: TableShape) -> Entry:
        rows = self._rows(shape, self._rng.choice([1, 2, 5, 20]))
        marks = ", ".join("(" + ", ".join("?" for _ in shape.names) + ")" for _ in rows)
        return self._sql("insert", f"INSERT INTO {shape.name} VALUES {marks}", tuple(v for row in rows for v in row))

    def _insert_frame(self, shape: TableShape) -> Entry:
        rows = self._rows(shape, self._rng.choice([1, 3, 9]))
        return Entry("insert frame", ("insert", shape.name, rows), lambda: self.mirror.add(shape, rows))

    def _insert_select(self, shape: TableShape) -> Entry:
        """From this table or another; those columns that both have."""
        source = self._rng.choice(self.tables)
        both = [column for column in shape.names if column in source.names]
        into, of = (", ".join(each[column] for column in both) for each in (shape, source))
        where, most = self._condition(source), self._rng.choice([1, 4, 16])
        text = (
            f"INSERT INTO {shape.name} ({into}) SELECT {of} FROM {source.name} WHERE {where} ORDER BY ALL LIMIT {most}"
        )
        return self._sql("insert select", text)

    def _upsert(self, shape: TableShape) -> Entry:
        pairs = [(key, f"u{key}") for key in self._rng.sample(range(MOST_KEYS), self._rng.choice([1, 2, 5]))]
        values, note = ", ".join(f"({key}, '{text}')" for key, text in pairs), shape["note"]
        update = self._rng.random() < 0.7
        then = f"UPDATE SET {note} = excluded.{note}" if update else "NOTHING"
        into = f"INSERT INTO {shape.name} ({shape['id']}, {note}) VALUES {values}"
        text = f"{into} ON CONFLICT ({shape['id']}) DO {then}"
        return Entry("upsert", ("sql", text, (), None), lambda: self.mirror.upsert(shape, pairs, update=update))

    def _update(self, shape: TableShape) -> Entry:
        amount, note = shape["amount"], shape["note"]
        sets = {
            amount: [f"{amount} = {amount} + 0.25", f"{amount} = {shape['id']}", f"{amount} = {amount} * 2 - 1"],
            note: [f"{note} = 'new'", f"{note} = NULL"],
            shape["flag"]: [f"{shape['flag']} = NULL", f"{shape['flag']} = TRUE"],
            shape["kind"]: [f"{shape['kind']} = 'b'"],
        }
        chosen = self._rng.sample(list(sets), self._rng.choice([1, 2]))
        text = ", ".join(self._rng.choice(sets[column]) for column in chosen)
        return self._sql("update", f"UPDATE {shape.name} SET {text} WHERE {self._condition(shape)}")

    def _keyed(self, shape: TableShape) -> Entry:
        keys = self._rng.sample(range(MOST_KEYS), self._rng.choice([1, 2, 5, 40]))
        values = ", ".join(f"({key}, 'k{key}')" for key in keys)
        name, note = shape.name, shape["note"]
        text = f"UPDATE {name} SET {note} = v.b FROM (VALUES {values}) v(a, b) WHERE {name}.{shape['id']} = v.a"
        return self._sql("keyed", text)

    def _update_frame(self, shape: TableShape) -> Entry:
        keys = self._rng.sample(range(MOST_KEYS), self._rng.choice([2, 30]))
        rows = [(key, f"f{key}") for key in keys]
        values = ", ".join(f"({key}, '{text}')" for key, text in rows)
        name, key, note = shape.name, shape["id"], shape["note"]
        other = f"UPDATE {name} SET {note} = v.b FROM (VALUES {values}) v(a, b) WHERE {name}.{key} = v.a"
        order = ("update", name, [{key: number, note: text} for number, text in rows], (key,))
        return Entry("update frame", order, lambda: self.mirror.change(other))

    def _move(self, shape: TableShape) -> Entry:
        """An UPDATE of a column that has an index, or may have one: the rows move to the tail."""
        key, day = shape["id"], shape["day"]
        changes = [
            f"{key} = {key} + 1",
            f"{day} = '{self._day()}'",
            f"{key} = 77, {shape['note']} = 'moved'",
            f"{day} = NULL",
        ]
        first = self._rng.randrange(MOST_KEYS)
        narrow = f"{key} BETWEEN {first} AND {min(first + 40, MOST_KEYS)}"
        where = self._rng.choice([narrow, f"({self._condition(shape)}) AND {narrow}", self._condition(shape)])
        return self._sql("move", f"UPDATE {shape.name} SET {self._rng.choice(changes)} WHERE ({where}) AND {key} < 500")

    def _delete(self, shape: TableShape) -> Entry:
        where = f"({self._condition(shape)}) AND {shape['id']} < {self._rng.randrange(MOST_KEYS)}"
        return self._sql("delete", f"DELETE FROM {shape.name} WHERE {where}")

    def _refused(self, shape: TableShape) -> Entry:
        """One that cannot be carried out, in some rows or at all: nothing of it may stay."""
        name, amount = shape.name, shape["amount"]
        if self._rng.random() < 0.4:  # only if a row matches that has an amount
            text = f"UPDATE {name} SET {amount} = {amount} + 9999999 WHERE {self._condition(shape)}"
            return self._sql("refused", text)
        key, note = shape["id"], shape["note"]
        text = self._rng.choice(
            [
                f"INSERT INTO {name} ({key}) VALUES (1), (NULL)",
                f"INSERT INTO {name} ({key}, {note}) VALUES (1, 'x'), (2, 'longer than twelve')",
                f"INSERT INTO {name} ({key}) VALUES (3), (99999999999999999999)",
                f"UPDATE {name} SET {key} = NULL",
                f"UPDATE {name} SET nothing = 1",
                f"DELETE FROM {name} WHERE nothing = 1",
                f"DELETE FROM {name} WHERE {note} IN (SELECT {note} FROM {name})",
                f"ALTER TABLE {name} DROP COLUMN nothing",
                f"ALTER TABLE {name} RENAME COLUMN {note} TO {key}",
                f"CREATE TABLE {name} (x integer)",
            ]
        )
        return Entry("refused", ("sql", text, (), None), lambda: REFUSED)

    def _ask(self, shape: TableShape) -> Entry:
        query = self.question(shape, self._rng)
        return Entry("ask", ("ask", query), lambda: self.mirror.ask(query))

    def _transaction(self, shape: TableShape) -> Entry:
        """Several statements: all of them, or none."""
        kinds = OF_DEFINITIONS if self._rng.random() < 0.15 else IN_TRANSACTIONS
        whole = self._rng.random() < 0.7
        before, parts, expected = self.saved(), [], []
        for _ in range(self._rng.choice([2, 3, 5, 8])):
            part = self._entry(self._rng.choice(kinds), self._rng.choice(self.tables))
            parts.append(part)
            expected.append(part.follow())
        after = self.saved()
        self.put_back(before)

        def follow() -> list[Any]:
            self.put_back(after if whole else before)
            return expected

        return Entry("transaction", ("all", [part.order for part in parts], whole), follow)

    # --- upkeep ------------------------------------------------------------------------------------

    def _load(self, shape: TableShape) -> Entry:
        rows = self._rows(shape, self._rng.choice([8, 30]))
        self._made += 1
        rows[0] = (*rows[0][:4], f"batch{self._made}", *rows[0][5:]) if list(shape.names)[4:5] == ["note"] else rows[0]
        order = ("load", shape.name, rows, shape.types(), shape.terms())
        return Entry("load", order, lambda: self.mirror.add(shape, rows), len(shape.indexed))

    def _flush(self, shape: TableShape) -> Entry:
        return Entry("flush", ("flush", shape.name), lambda: None, len(shape.indexed))

    def _compact(self, shape: TableShape) -> Entry:
        return Entry("compact", ("compact", shape.name))

    def _vacuum(self, shape: TableShape) -> Entry:
        return Entry("vacuum", ("vacuum", self._rng.choice([None, shape.name])))

    def _reopen(self, shape: TableShape) -> Entry:
        return Entry("reopen", ("reopen",))

    def _check(self, shape: TableShape) -> Entry:
        return Entry("check", ("check",))

    def _rekey(self, shape: TableShape) -> Entry:
        return Entry("rekey", ("rekey",))

    def _backup(self, shape: TableShape) -> Entry:
        """A backup, restored somewhere else, answers like the database."""
        query = f"SELECT * FROM {shape.name}"
        return Entry("backup", ("backup", query), lambda: self.mirror.ask(query))

    def _renewed(self, shape: TableShape) -> Entry:
        """All rows out and in again: room that dummies and deleted rows have taken is given back."""
        rows = [tuple(row) for row in self.mirror.ask(f"SELECT * FROM {shape.name}")]
        parts = [("sql", f"TRUNCATE {shape.name}", (), None), *([("insert", shape.name, rows)] if rows else [])]
        return Entry("renewed", ("all", parts, True), lambda: [0, len(rows)] if rows else [0])

    # --- definitions -------------------------------------------------------------------------------

    def _defining(self, kind: str, text: str, change: Callable[[], Any], other: str = "") -> Entry:
        def follow() -> int:
            if other != "-":
                self.mirror.change(other or text)
            change()
            return 0

        return Entry(kind, ("sql", text, (), None), follow)

    def _truncate(self, shape: TableShape) -> Entry:
        text = f"TRUNCATE {shape.name}"
        return self._defining("truncate", text, lambda: None)

    def _drop_table(self, shape: TableShape) -> Entry:
        """Dropped, and made anew as it was at first."""
        new = TableShape(shape.name)

        def follow() -> list[int]:
            self.mirror.drop(shape.name)
            self.mirror.make(new)
            shape.__dict__.update(new.__dict__)
            return [0, 0]

        made = ("sql", new.definition(), (), None)
        return Entry("drop table", ("all", [("sql", f"DROP TABLE {shape.name}", (), None), made], True), follow)

    def _rename_table(self, shape: TableShape) -> Entry:
        name = shape.name[0] if shape.name.endswith("_2") else f"{shape.name}_2"
        text = f"ALTER TABLE {shape.name} RENAME TO {name}"
        return self._defining("rename table", text, lambda: setattr(shape, "name", name))

    def _add_column(self, shape: TableShape) -> Entry:
        if "more" in shape.names:
            return self._drop_column(shape)
        default = self._rng.choice(["", f" DEFAULT {self._rng.randrange(16)}"])
        text = f"ALTER TABLE {shape.name} ADD COLUMN more integer{default}"

        def follow() -> None:
            self.mirror.change(f"ALTER TABLE {shape.name} ALTER COLUMN more DROP DEFAULT")  # for later rows it is null
            shape.names["more"] = "more"

        return self._defining("add column", text, follow)

    def _drop_column(self, shape: TableShape) -> Entry:
        if "more" not in shape.names:
            return self._add_column(shape)
        if "more" in shape.indexed:
            return self._drop_index(shape, "more")
        text = f"ALTER TABLE {shape.name} DROP COLUMN {shape['more']}"
        return self._defining("drop column", text, lambda: shape.names.pop("more"))

    def _rename_column(self, shape: TableShape) -> Entry:
        column = self._rng.choice(list(shape.names))
        name = column if shape[column] != column else f"{column}_2"
        text = f"ALTER TABLE {shape.name} RENAME COLUMN {shape[column]} TO {name}"
        return self._defining("rename column", text, lambda: shape.names.update({column: name}))

    def _drop_index(self, shape: TableShape, column: str = "") -> Entry:
        column = column or self._rng.choice([*shape.indexed, ""])
        if not column or len(shape.indexed) == 1:
            return self._create_index(shape)
        text = f"DROP INDEX {shape.name}.{shape[column]}"
        return self._defining("drop index", text, lambda: shape.indexed.remove(column), "-")

    def _create_index(self, shape: TableShape) -> Entry:
        lacking = [column for column in shape.names if column in INDEXES and column not in shape.indexed]
        if not lacking:
            return self._reindex(shape)
        column = self._rng.choice(lacking)
        domain, options = INDEXES[column]
        given = ", ".join(f"{name} = '{value}'" for name, value in (each.split("=") for each in options.split()))
        text = f"CREATE INDEX ON {shape.name} ({shape[column]}) WITH (domain = '{domain}', {given})"
        return Entry("create index", ("sql", text, (), None), lambda: shape.indexed.append(column), 1)

    def _reindex(self, shape: TableShape) -> Entry:
        """Of a table whose rows are all in the tail there is nothing to make anew: that is refused."""
        return Entry("reindex", ("reindex", shape.name), lambda: None, len(shape.indexed))
