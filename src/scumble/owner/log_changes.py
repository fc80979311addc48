"""Statements reach the rows that wait in streams' logs: what a transaction makes of them, and when that counts.

`LogChanges` belongs to a database. UPDATE, DELETE and TRUNCATE treat rows in a log on this machine as the enclave does
those in the table, by the same plan (`owner/local_plans.py`), and nothing about it is asked of the enclave. The result
is written beside the log before the version is stored, and counts if that was (`owner/stream_changes.py`). SECRET: what
waits, and how many rows of it match. A batch that was about to be sent, and of which nobody knows whether
it was, is put into the table first, as the stream itself would do at its next tick.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scumble.errors import Busy, Stale
from scumble.owner.inserting import check_keys, insert
from scumble.owner.key_file import log_files, logged_tables
from scumble.owner.local_plans import LocalRows
from scumble.owner.stream_changes import LogChange, change_files, read_changes, write_change
from scumble.owner.stream_log import StreamLog, Waiting, read_log, waiting_in
from scumble.owner.stream_segments import NO_ROWS, Content, Numbered, Pending
from scumble.owner.stream_target import fitted
from scumble.owner.versions import Versions
from scumble.sql.changes import Change
from scumble.wire.catalog import Table
from scumble.wire.lineage import Draft

if TYPE_CHECKING:
    from scumble.owner.streams import Stream

__all__ = ["LogChanges"]


class LogChanges:
    """SECRET: the logs of a database's streams on this machine, as statements have changed what waits in them.

    `folder` has the logs, each under its table's id, `keys` opens them, and `streams` are those that are open here.
    Whatever is asked of the enclave, or written, follows from which tables have
    a log, and not from what waits in it.
    """

    def __init__(
        self,
        versions: Versions,
        folder: str,
        keys: Callable[[], list[bytes]],
        streams: "Mapping[str, Stream]",
    ) -> None:
        self._versions, self._folder, self._keys, self._streams = versions, folder, keys, streams
        self._own: dict[str, LogChange] = {}
        self._made: dict[Draft, bool] = {}
        self._offered: Draft | None = None

    def has_log(self, table: Table) -> bool:
        """PUBLIC: whether a table has a stream here."""
        return table.id in logged_tables(self._folder)

    # --- what waits --------------------------------------------------------------------------------

    def waiting(self, table: Table) -> Waiting | None:
        """What waits for a table of the version that is open, as the changes that count have left it; None: no log."""
        names = log_files(self._folder, table.id)
        return None if names is None else self.waiting_in(table, names)

    def waiting_in(self, table: Table, names: Sequence[str]) -> Waiting:
        """The same of a log with these files. Changes are read before the log, which may be about to take them over."""
        files = change_files(self._path_of(table.id), names) if len(names) > 2 else []  # a lock and a segment
        change = self._own.get(table.id) or (self._counting(table.id, files) if files else None)
        batches = frozenset([batch for run in table.runs for batch in run.batches])
        stream = self._streams.get(table.id)
        if stream is not None:
            return stream.log.waiting_for(batches, change)
        return waiting_in(self._read(table.id), batches, change)

    def _counting(self, table_id: str, files: Sequence[Path]) -> LogChange | None:
        """The last of some changes that the version which is open has made, or one before it; Stale if unsure."""
        catalog, counting = self._versions.catalog, None
        for change in read_changes(files, self._keys(), table_id):
            draft = change.draft
            if draft is not None and (draft.restores, draft.version) > (catalog.restores, catalog.version):
                continue
            if draft is not None and draft not in self._made:
                self.is_made(change)
                raise Stale("rows that wait were changed", hint="ask again")
            counting = change if self.is_made(change) else counting
        return counting

    def _known(self, table_id: str) -> LogChange | None:
        """The change of a log that counts for this transaction."""
        return self._own.get(table_id) or self._counting(table_id, change_files(self._path_of(table_id)))

    def is_made(self, change: LogChange) -> bool:
        """Whether a change counts, which the version that is open would know of."""
        draft = change.draft
        if draft is not None and draft not in self._made:
            self._made[draft] = self._versions.is_made(draft)
        return draft is None or self._made[draft]

    # --- a transaction -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction: find out about changes whose makers did not live to tell, while nobody makes others."""
        self._own.clear()
        for table_id in logged_tables(self._folder):
            for change in read_changes(change_files(self._path_of(table_id)), self._keys(), table_id):
                self.is_made(change)

    def settle_pending(self, table: Table) -> bool:
        """Put a batch into the table that is about to be sent, or was and nobody has heard; whether it was not there.

        It has the rows, the room and the name that the stream would send it with: later it will find it there.
        """
        found = self.waiting(table)
        pending = None if found is None else self._pending(table.id)
        if found is None or pending is None:
            return False
        is_there = found.first >= pending.stop
        if not is_there:
            rows = found.found.between(pending.first, pending.stop).rows
            pieces = [] if rows is None else fitted(rows, table).to_batches()
            insert(self._versions, table, pieces, pending.capacity, pending.batch)
        left = found.found.between(pending.stop, found.stop)
        self._own[table.id] = LogChange(pending.stop, found.stop, left, pending.batch)
        return not is_there

    def rewritten(self, change: Change) -> tuple[list[int], LogChange | None]:
        """Work out what a change makes of the rows that wait: how many match each predicate; `put` makes it so."""
        table, plan = change.table, change.steps[0].plan
        counts, found = [0] * len(plan.predicates), self.waiting(table)
        if found is None:
            return counts, None
        left = found.found
        if left.rows is not None:
            here = LocalRows(fitted(left.rows, table), table.schema)
            counts, rows, stays = here.rewritten(plan, change.bounds)
            for piece in rows.to_batches():
                check_keys(table, piece)
            left = Numbered(rows.filter(stays) if bool(stays.any()) else None, left.numbers[stays])
        return counts, self._following(table.id, found, left)

    def erased(self, table: Table) -> LogChange | None:
        """What it makes of the rows that wait for a table, or are about to be sent to it, if none is left."""
        found = self.waiting(table)
        if found is None:
            return None
        change, pending = self._following(table.id, found, NO_ROWS), self._pending(table.id)
        if pending is None:
            return change
        return replace(change, first=max(found.first, pending.stop), settled=pending.batch)

    def _following(self, table_id: str, found: Waiting, left: Numbered) -> LogChange:
        before = self._known(table_id)
        return LogChange(found.first, found.stop, left, None if before is None else before.settled)

    def _pending(self, table_id: str) -> Pending | None:
        """The batch of a log that is about to be sent, unless a change that counts has dealt with it."""
        known = self._known(table_id)
        stream = self._streams.get(table_id)
        state = self._read(table_id).state if stream is None else stream.log.state
        pending = None if state is None else state.pending
        return None if known is not None and pending is not None and known.settled == pending.batch else pending

    def put(self, table: Table, change: LogChange | None) -> None:
        """Have the transaction make a change."""
        if change is not None:
            self._own[table.id] = change

    def offer(self, draft: Draft | None) -> None:
        """Write the transaction's changes beside the logs, before the version is stored with which they count."""
        for table_id, change in self._own.items():
            write_change(self._path_of(table_id), self._keys()[0], table_id, replace(change, draft=draft))
        self._offered = draft

    def end(self, *, settled: bool) -> None:
        """End the transaction. Once it was settled, have the logs take over what it has made, if nobody writes them."""
        changed = list(self._own) if settled else []
        self._own.clear()
        if changed and self._offered is not None:
            self._made[self._offered] = True
        for table_id in changed:
            stream = self._streams.get(table_id)
            with suppress(Busy):  # then whoever has it open does it, before anything is sent
                if stream is not None:
                    stream.log.absorb(self.is_made)
                    continue
                log = StreamLog(self._path_of(table_id), self._keys(), table_id)
                try:
                    log.absorb(self.is_made)
                finally:
                    log.close()

    def _path_of(self, table_id: str) -> Path:
        return Path(self._folder, table_id)

    def _read(self, table_id: str) -> Content:
        return read_log(self._path_of(table_id), self._keys(), table_id)
