"""The catalog: the tables of one version of a database, and the runs that hold their rows. PUBLIC, all of it.

It is the open part of a manifest: what the provider may know. A table's rows were loaded in batches; for every batch
there is one run for each indexed attribute, a copy of the batch's rows sorted by that attribute, with all of their
columns or with some. If none of them has all, one more run has, in the order of loading. Rows that were inserted are in
the *tail*: runs without an index, which every query reads whole. What was changed since lies in layers over a run.
"""

import base64
import html
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self

from scumble.errors import NotFound, Tampered
from scumble.types import Schema
from scumble.wire.lineage import Title

TAG_BYTES = 16
TALLY, LIVE = -2, -1
"""The place of a run's hidden column: a byte for each row, 0 once it was deleted. Where no layer has it, all are 1."""
MOST_TIME = 1 << 40
UNIT_ROWS = 256
"""An insert has room for a multiple of so many rows, which are a page."""


@dataclass(frozen=True)
class Layer:
    """PUBLIC: pages of some columns of a run that were rewritten, as an object of its own, under a key of its own.

    What it has stands for the same pages of the run and of the layers before it.
    """

    id: str
    first_page: int
    pages: int
    columns: tuple[int, ...]
    tag_hashes: tuple[str, ...]

    @property
    def end_page(self) -> int:
        return self.first_page + self.pages

    def is_covered_by(self, other: "Layer") -> bool:
        """Whether all of it lies under another one."""
        within = other.first_page <= self.first_page and self.end_page <= other.end_page
        return within and set(self.columns) <= set(other.columns)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "columns": list(self.columns), "tag_hashes": list(self.tag_hashes)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        return cls(**{**fields, "columns": tuple(fields["columns"]), "tag_hashes": tuple(fields["tag_hashes"])})


@dataclass(frozen=True)
class Kept:
    """PUBLIC: where a run's tally is, from which its index can be merged with others': an object of its own, sealed."""

    id: str
    size_bytes: int
    tag_hash: str


@dataclass(frozen=True, eq=False)
class Run:
    """PUBLIC: a sorted copy of one batch of rows. Its index is a file's bytes here: planners decode it.

    `columns` are the places of the columns that it holds, ascending; None stands for all of the table's. `layers` have
    what was rewritten since, oldest first. A run of the `tail` has no index, and belongs to every copy of the table.
    `merged` names the batches that were made one, if it is not of a single one. `moved` rows were in the table before,
    and have other keys now. Rows of an `erased` run that were deleted have no values any more.
    Its own object has the first `based` columns of the table: those that were added since lie in layers alone.
    """

    id: str
    batch: str
    attribute: str | None
    capacity: int
    page_rows: int
    index: bytes | None
    tag_hashes: tuple[str, ...]
    columns: tuple[int, ...] | None = None
    layers: tuple[Layer, ...] = ()
    tail: bool = False
    merged: tuple[str, ...] = ()
    moved: bool = False
    tally: Kept | None = None
    erased: bool = False
    based: int | None = None

    @property
    def batches(self) -> tuple[str, ...]:
        """The batches whose rows it has."""
        return self.merged or (self.batch,)

    @property
    def pages(self) -> int:
        """How many pages each column has that it holds."""
        return -(-self.capacity // self.page_rows)

    def is_based(self, place: int) -> bool:
        """Whether its own object has a column that it holds."""
        return self.based is None or place < self.based

    def holds(self, places: Iterable[int]) -> bool:
        """Whether it has all of these columns."""
        return self.columns is None or all(place in self.columns for place in places)

    def sealed(self, tag_hashes: tuple[str, ...], layers: tuple[Layer, ...] = ()) -> Self:
        """The same once its pages are there."""
        return replace(self, tag_hashes=tag_hashes, layers=layers)

    def under(self, layer: Layer) -> Self:
        """The same with one more layer, and without those that nothing shows through of any more."""
        left = [each for each in self.layers if not each.is_covered_by(layer)]
        return replace(self, layers=(*left, layer))

    @property
    def has_dead(self) -> bool:
        """Whether rows of it may have been deleted."""
        return any(LIVE in layer.columns for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        """As release 0.1 wrote it, if it holds all columns, and nothing was changed, inserted or merged."""
        return self._json

    @cached_property
    def _json(self) -> dict[str, Any]:
        stated = {
            "id": self.id,
            "batch": self.batch,
            "attribute": self.attribute,
            "capacity": self.capacity,
            "page_rows": self.page_rows,
            "index": None if self.index is None else base64.b64encode(self.index).decode(),
            "tag_hashes": list(self.tag_hashes),
        }
        more = {
            "columns": None if self.columns is None else list(self.columns),
            "layers": [layer.to_json() for layer in self.layers] or None,
            "tail": self.tail or None,
            "merged": list(self.merged) or None,
            "moved": self.moved or None,
            "tally": None if self.tally is None else asdict(self.tally),
            "erased": self.erased or None,
            "based": self.based,
        }
        return stated | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        index = None if fields["index"] is None else base64.b64decode(fields["index"])
        columns = tuple(fields["columns"]) if "columns" in fields else None
        layers = tuple(map(Layer.from_json, fields.get("layers", ())))
        read = {"index": index, "tag_hashes": tuple(fields["tag_hashes"]), "columns": columns, "layers": layers}
        tally = Kept(**fields["tally"]) if "tally" in fields else None
        return cls(**{**fields, **read, "merged": tuple(fields.get("merged", ())), "tally": tally})


@dataclass(frozen=True)
class Streamed:
    """PUBLIC: when the last batch of a stream was sent, in seconds since 1970 by its sender's clock, and how often.

    Without `every_ms`, batches are not sent at fixed times.
    """

    time: int
    every_ms: int | None = None

    def about(self, now: float) -> str:
        """How old the rows are, in words."""
        moment = datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d %H:%M UTC")
        age = max(0, round(now - self.time))
        sends = "a stream sends" + (" now and then" if self.every_ms is None else f" every {self.every_ms / 1000:g} s")
        return f"rows as of {moment}, {age:,} s ago; {sends}"

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse; Tampered if these are no times."""
        made = cls(**fields)
        if not all(type(each) is int and 0 <= each < MOST_TIME for each in fields.values()):
            raise Tampered
        return made


@dataclass(frozen=True, eq=False)
class Table:
    """PUBLIC: a name, a schema, and the runs.

    `terms` are indexes that were declared, each as `owner/indexes.py` reads it, its column first: batches that state no
    others are indexed so. `comments` are what was said of columns, under their names. If a stream writes to it,
    `streamed` says when its last batch was sent.
    """

    id: str
    name: str
    schema: Schema
    runs: tuple[Run, ...]
    terms: tuple[str, ...] = ()
    comments: tuple[tuple[str, str], ...] = ()
    streamed: Streamed | None = None

    @cached_property
    def attributes(self) -> tuple[str | None, ...]:
        """The attributes that the runs are sorted by, in the order of their making; None for the order of loading."""
        return tuple(dict.fromkeys(run.attribute for run in self.settled or self.tail))

    @cached_property
    def settled(self) -> tuple[Run, ...]:
        """The runs of batches, each of which has as many as there are copies."""
        return tuple(run for run in self.runs if not run.tail)

    @cached_property
    def tail(self) -> tuple[Run, ...]:
        """The runs of rows that were inserted."""
        return tuple(run for run in self.runs if run.tail)

    @cached_property
    def _runs_by(self) -> dict[str | None, tuple[Run, ...]]:
        return {a: (*(run for run in self.settled if run.attribute == a), *self.tail) for a in self.attributes}

    def runs_by(self, attribute: str | None) -> tuple[Run, ...]:
        """The runs sorted by one attribute, and the tail: together they hold every row once."""
        return self._runs_by[attribute]

    @cached_property
    def copies(self) -> "tuple[tuple[str | None, tuple[int, ...] | None], ...]":
        """What the runs of every batch are sorted by, and the columns that they hold."""
        return tuple((attribute, self.runs_by(attribute)[0].columns) for attribute in self.attributes)

    def held(self, run: Run) -> tuple[int, ...]:
        """The places of the columns that a run holds."""
        return tuple(range(len(self.schema))) if run.columns is None else run.columns

    def run_bytes(self, run: Run) -> int:
        """How many sealed bytes a run has, its layers included."""
        based = [place for place in self.held(run) if run.is_based(place)]
        whole = run.pages * sum(self.slot_bytes(place, run.page_rows) for place in based)
        layers = [
            (layer.pages, self.slot_bytes(place, run.page_rows)) for layer in run.layers for place in layer.columns
        ]
        return whole + sum(pages * slot for pages, slot in layers)

    @property
    def capacity(self) -> int:
        """The public bound on the rows."""
        return sum(run.capacity for run in self.runs_by(self.attributes[0])) if self.runs else 0

    def __repr__(self) -> str:
        indexed = ", ".join(attribute for attribute in self.attributes if attribute is not None) or "nothing"
        age = "" if self.streamed is None else f", {self.streamed.about(time.time())}"
        return f"<Table {self.name}: {len(self.schema)} columns, capacity {self.capacity:,}, indexes on {indexed}{age}>"

    def _repr_html_(self) -> str:
        from scumble.index.kinds import decoded, is_known  # only a notebook needs it

        indexes = {run.attribute: run.index for run in self.runs if run.index is not None}
        domains = {name: decoded(data).domain.label if is_known(data) else "?" for name, data in indexes.items()}
        rows = "".join(
            f"<tr><td>{html.escape(c.name)}</td><td>{html.escape(c.type.label)}{'' if c.nullable else ' not null'}</td>"
            f"<td>{html.escape(domains.get(c.name, ''))}</td></tr>"
            for c in self.schema
        )
        caption = f"<caption>{html.escape(self.name)}: capacity {self.capacity:,}</caption>"
        return f"<table>{caption}<tr><th>column</th><th>type</th><th>index</th></tr>{rows}</table>"

    def slot_bytes(self, column: int, page_rows: int) -> int:
        """How many bytes a sealed page of a column takes."""
        size = page_rows if column == LIVE else self.schema.columns[column].page_bytes(page_rows)
        return size + TAG_BYTES

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "schema": self.schema.to_json(),
            "row_bits": [column.page_row_bits for column in self.schema],
            "runs": [run.to_json() for run in self.runs],
            **({"terms": list(self.terms)} if self.terms else {}),
            **({"comments": dict(self.comments)} if self.comments else {}),
            **({} if self.streamed is None else {"streamed": self.streamed.to_json()}),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse; Tampered if the table states other widths than its schema has, or columns that it has not.

        Release 0.1 stated neither, and later versions widths in bytes.
        """
        schema = Schema.from_json(fields["schema"])
        widths = [column.page_row_bits for column in schema]
        in_bytes = [width / 8 for width in widths]
        if fields.get("row_bits", widths) != widths or fields.get("row_bytes", in_bytes) != in_bytes:
            raise Tampered
        terms, comments = tuple(fields.get("terms", ())), tuple(dict(fields.get("comments", {})).items())
        runs, streamed = tuple(map(Run.from_json, fields["runs"])), None
        if "streamed" in fields:
            streamed = Streamed.from_json(fields["streamed"])
        table = cls(fields["id"], fields["name"], schema, runs, terms, comments, streamed)
        if not table.is_right:
            raise Tampered
        return table

    @property
    def is_right(self) -> bool:
        """Whether its runs, terms and comments speak of columns that there are, and some copy of the rows has all."""
        whole = not self.runs or any(columns is None for _, columns in self.copies)
        return whole and all(map(self._is_held_right, self.runs)) and self._is_said_right

    @property
    def _is_said_right(self) -> bool:
        if not all(isinstance(text, str) for text in (*self.terms, *(text for _, text in self.comments))):
            return False
        names, indexed = [column.name for column in self.schema], list(map(column_of_term, self.terms))
        known = set(names).issuperset(indexed) and set(names).issuperset(name for name, _ in self.comments)
        return known and len(set(indexed)) == len(indexed)

    def _is_held_right(self, run: Run) -> bool:
        """Whether a run holds columns that there are, its own among them, and the same as its like of other batches."""
        held = set(self.held(run))
        places = [place for place in range(len(self.schema)) if place in held]
        own = run.columns is None or run.attribute in [self.schema.columns[place].name for place in places]
        alike = run.columns is None if run.tail else dict(self.copies)[run.attribute] == run.columns
        layered = all(self._is_layer_of(run, layer) for layer in run.layers)
        known = own and list(self.held(run)) == places and alike and layered and not (run.tail and run.attribute)
        return known and self._is_complete(run)

    def _is_complete(self, run: Run) -> bool:
        """Whether a layer has all pages of each column that the run's own object lacks."""
        if run.based is not None and not 0 < run.based <= len(self.schema):
            return False
        added = {place for layer in run.layers if layer.pages == run.pages for place in layer.columns}
        return all(run.is_based(place) or place in added for place in self.held(run))

    def _is_layer_of(self, run: Run, layer: Layer) -> bool:
        known = {LIVE, *self.held(run)}
        once = len(set(layer.columns)) == len(layer.columns) == len(layer.tag_hashes) > 0
        return once and known.issuperset(layer.columns) and 0 <= layer.first_page < layer.end_page <= run.pages


def column_of_term(term: str) -> str:
    """The column that a declared index is on."""
    return term.partition(" ")[0]


@dataclass(frozen=True, eq=False)
class Catalog:
    """PUBLIC: one version of a database: which one it follows, by hash, and to whom the database belongs.

    `restores` is how often the owner has taken an older version for the newest. Release 0.1 wrote no titles.
    """

    database: str
    version: int
    previous: str
    tables: tuple[Table, ...]
    titles: tuple[Title, ...] = ()
    restores: int = 0

    @cached_property
    def _by_name(self) -> dict[str, Table]:
        return {table.name.lower(): table for table in self.tables}

    @cached_property
    def by_id(self) -> dict[str, Table]:
        return {table.id: table for table in self.tables}

    def table(self, name: str) -> Table:
        """The table of a name, whose case does not matter; NotFound if there is none."""
        table = self._by_name.get(name.lower())
        if table is None:
            names = ", ".join(table.name for table in self.tables)
            raise NotFound(
                f"there is no table {name!r}",
                hint=f"the tables are {names}" if names else "load one with `scumble load`",
            )
        return table

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._by_name

    def to_json(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "version": self.version,
            "previous": self.previous,
            "restores": self.restores,
            "titles": [title.to_json() for title in self.titles],
            "tables": [table.to_json() for table in self.tables],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse; for one of release 0.1 too."""
        return cls(
            fields["database"],
            fields["version"],
            fields["previous"],
            tuple(map(Table.from_json, fields["tables"])),
            tuple(map(Title.from_json, fields.get("titles", ()))),
            fields.get("restores", 0),
        )
