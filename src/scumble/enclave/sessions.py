"""Sessions with the enclave: what each kind of request does, for a signer who may ask for it.

A session stays on one version of the database until it asks for the newest: a load does not disturb a reader. A change
is made in two steps: the enclave drafts a version, and commits it when the client has signed it. Changes of rows, and
definitions, are made to the version that is open, and seen by this session alone until then. SECRET: all of it.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from scumble.enclave.changes import Rewriting, rewrite
from scumble.enclave.definitions import DEFINITIONS, define
from scumble.enclave.dummies import Dummies
from scumble.enclave.flushes import begin_flush
from scumble.enclave.grants import AccessList, Payment
from scumble.enclave.loads import Load, begin_load, loaded
from scumble.enclave.manifests import check_chain
from scumble.enclave.merges import merge, vacuumed
from scumble.enclave.pages import KEY_BYTES, DataKeys, reseal_run
from scumble.enclave.queries import CompiledPlan, answer_bytes, execute
from scumble.enclave.quotas import NODE_BYTES, Signers
from scumble.enclave.vault import Vault
from scumble.enclave.versions import History, OpenVersion, Pending
from scumble.errors import BadRows, InvalidParameter, Refused, Stale
from scumble.wire import requests
from scumble.wire.catalog import LIVE, TALLY
from scumble.wire.channel import (
    MOST_BYTES,
    QUERY_BYTES,
    SMALL_BYTES,
    Greeting,
    done,
    executed,
    executed_bytes,
    padded,
    refusal,
)
from scumble.wire.grants import LONGEST_NAME, WRITING
from scumble.wire.lineage import Draft
from scumble.wire.messages import from_fields
from scumble.wire.plan import Rewrite
from scumble.wire.requests import (
    EXECUTE,
    JSON,
    ROWS,
    Execution,
    Opened,
    Request,
    announced_kind,
    pack_answer,
    request_kind,
    unpack_execution,
)
from scumble.wire.storage import Storage

__all__ = ["EnclaveSession"]


class EnclaveSession:
    """SECRET: what one session has open: a version, plans, a load. Its client does one thing at a time."""

    def __init__(self, storage: Storage, vault: Vault, greeting: Greeting, signers: Signers) -> None:
        self._history = History(storage, vault, greeting.database, greeting.signer, greeting.data_key)
        self._version: OpenVersion | None = None
        self._pending: Pending | None = None
        self._before: OpenVersion | None = None
        self._changes = 0
        self._plans: list[CompiledPlan | Rewriting] = []
        self.plan_bytes = 0
        self._load: Load | None = None
        self.signed_for = greeting.database, greeting.signer
        self._signer = signers.entered(self)

    @property
    def rank(self) -> int:
        """Of what use the right to write is to the session. PUBLIC: the front asks.

        0: of none; 1: to load, if the owner does not want to write; 2: it is the owner's.
        """
        if self._version is None:
            return 0 if self._pending is None else 2  # the owner takes over what was restored
        grant = self._version.grant
        if grant is None:
            return 2
        return int(any(rights & WRITING for rights in grant.tables.values()))

    @property
    def most_bytes(self) -> int:
        """How large the next request may be, by what the signer may do. PUBLIC: the front asks."""
        return SMALL_BYTES if self._version is None else MOST_BYTES if self.rank else QUERY_BYTES

    def drop_load(self) -> None:
        """Forget the rows that were sent."""
        self._load = None

    def answer(self, request: memoryview) -> bytes:
        """Do what is asked, if the signer of the greeting may have it done."""
        form, body = bytes(request[:1]), request[1:]
        if form == EXECUTE:
            self._follow()
            return self._executed(body)
        if form == ROWS:
            self._follow()
            self._current_load.append(body)
            return done(b"")
        if form != JSON:
            raise InvalidParameter("a request begins with J, X or R", hint="upgrade Scumble")
        kind = announced_kind(body)
        self._check_right(kind)
        if len(body) <= SMALL_BYTES:
            return self._asked(kind, body)
        if kind is None or len(body) > min(kind.most_bytes, self.most_bytes):
            raise InvalidParameter("a request of this kind has fewer bytes", hint="ask for less at a time")
        with _LARGE:
            return self._asked(kind, body)

    def _check_right(self, kind: type[Request[Any]] | None) -> None:
        """Refuse who may not ask before anything is parsed: what is wrong with a request is nobody else's business."""
        if kind is None or kind.needs_version:
            grant = self._follow().grant
            if grant is not None and (kind is None or not kind.by_analyst):
                raise Refused
        if kind in (requests.BeginLoad, requests.BeginFlush) and not self.rank:
            raise Refused

    def _asked(self, announced: type[Request[Any]] | None, body: memoryview) -> bytes:
        kind, fields = request_kind(body)
        if kind is not announced:  # it does not begin with its name, or names two
            self._check_right(kind)
        if kind is None or kind.most_bytes < len(body):
            raise InvalidParameter("there is no such request", hint="upgrade Scumble")
        try:
            answer = _HANDLERS[kind](self, from_fields(kind, fields))
        except BadRows as error:  # a row's doing, so that it is as long as any answer of its kind
            self._abandon(requests.Abandon())
            return refusal(error, len(padded(b"", 1)))
        packed = pack_answer(answer)
        return padded(done(packed), self._opened_bytes(packed) if isinstance(answer, Opened) else 0)

    def _follow(self) -> OpenVersion:
        """The version that is open; Stale if a newer one may have taken rights away."""
        return self._history.followed(self._version)

    @property
    def _current(self) -> OpenVersion:
        assert self._version is not None  # noqa: S101  a request that needs a version has been refused without one
        return self._version

    def _opened_bytes(self, packed: bytes) -> int:
        """How long the answer with a catalog is at least: as long whatever part of the catalog is visible."""
        version = self._current
        whole = packed if version.grant is None else pack_answer(version.opened_by_owner())
        shorter = sum(LONGEST_NAME - len(grant.name) for grant in version.manifest.access.grants)
        return 256 + len(whole) + shorter  # as if all analysts had names of the same length

    # --- versions ----------------------------------------------------------------------------------

    def _take(self, version: OpenVersion) -> Opened:
        """Go on with a version, without changes; plans for another are of no use."""
        self._version, self._before, self._changes = version, None, 0
        self._drop_plans()
        return version.opened()

    def _drafted(self, pending: Pending) -> Draft:
        """Keep a version until the client sends its signature."""
        self._pending = pending
        return pending.draft

    def _create(self, request: requests.Create) -> Draft:
        return self._drafted(self._history.create(request))

    def _upgrade(self, request: requests.Upgrade) -> Draft:
        return self._drafted(self._history.upgrade(self._current, request))

    def _open(self, request: requests.Open | requests.Follow) -> Opened | None:
        self._pending = None
        changed, before, changes = self._version, self._before, self._changes
        try:
            newest = self._history.open(request, changed)
        except Refused:  # the signer has lost its rights, also to what was open until now
            self._version = self._before = self._load = None
            self._drop_plans()
            raise
        known = isinstance(request, requests.Follow) and newest.manifest.seen == request.anchor
        if known and changed is not None and newest.stored is changed.stored:
            changed.unlocked = newest.unlocked  # its plans and changes stay
            return None
        opened = self._take(newest)
        if changed is not None and before is not None and self._current.has_tables_of(before):
            # Only rights have changed since: what was done to the tables can be done to this version, too.
            self._before, self._changes = self._current, changes
            self._version = self._current.with_tables_of(changed)
        return opened

    def _restore(self, request: requests.Restore) -> Draft:
        self._version = self._before = None
        self._drop_plans()
        return self._drafted(self._history.restore(request, None))

    def _commit(self, request: requests.Commit) -> Opened:
        """Commit what was drafted, once: a load that has to be drafted anew, on top of another version, is kept."""
        pending, self._pending = self._pending, None
        if pending is None:
            raise InvalidParameter("no version waits for a signature", hint="ask for a change first")
        committed = pending.history.commit(pending, request.signature)
        self._history = pending.history
        if self._load is not None and committed.has_batch(self._load.batch):
            self._load = None
        return self._take(committed)

    def _check_chain(self, _: requests.CheckChain) -> None:
        check_chain(self._history.storage, self._current.manifest)

    def _check_pages(self, request: requests.CheckPages) -> None:
        reader, _ = self._current.reader(request.run)
        table, run = self._current.runs[request.run]
        if request.column == TALLY and run.tally is not None:
            reader.tally()
            return
        if not (run.has_dead if request.column == LIVE else request.column in table.held(run)):
            raise InvalidParameter("the run has no column of this number", hint="upgrade Scumble")
        reader.open_pages(request.column, request.first_page, request.pages)

    # --- changes to rows: of the version that is open, for this session alone until they are settled ------------

    def _rewritten(self, plan: Rewriting, execution: Execution) -> bytes:
        """How many rows were changed. The pages that were rewritten show in the next version, and nothing else."""
        version = self._current
        version.check_signed()
        changed = rewrite(plan, execution, version)
        if not changed.fits:
            raise BadRows("a value does not fit its column in some row", hint="the column's type says what it holds")
        self._work_on(version.having(changed.table, changed.dummies))
        return changed.answer

    def _work_on(self, version: OpenVersion) -> None:
        """Go on with a changed version, which nobody else sees yet."""
        self._before = self._before or self._version
        self._version = version
        self._changes += 1
        self._drop_plans()

    def _merge(self, request: requests.Merge) -> None:
        version = self._current
        if version.grant is not None and not version.grant.may("load", version.catalog.table(request.table).name):
            raise Refused
        try:
            self._work_on(merge(version, request))
        finally:
            version.storage.drop_scratch()

    def _vacuum(self, request: requests.Vacuum) -> None:
        self._work_on(vacuumed(self._current, request.table))

    def _look(self, _: requests.Look) -> Opened:
        return self._current.opened()

    def _settle(self, request: requests.Settle) -> Draft:
        if self._before is None or self._changes != request.changes:
            raise Stale("changes that were not settled were lost", hint="make them again")
        return self._draft_of(self._current)

    def _draft_of(self, version: OpenVersion) -> Draft:
        manifest = version.manifest
        return self._drafted(self._history.draft(version, manifest.catalog.tables, manifest.dummies, manifest.access))

    def _rollback(self, _: requests.Rollback) -> None:
        if self._before is not None:
            self._take(self._before)

    # --- changes: drafts of the version after the one that is open ----------------------------------

    def _define(self, request: Request[Any]) -> None:
        self._work_on(define(self._current, request))

    def _drop_table(self, request: requests.DropTable) -> Draft | None:
        """A version without a table, and without rights to it."""
        self._current.check_signed()
        left = self._current.without(self._current.catalog.table(request.table))
        if not request.within:
            return self._draft_of(left)
        self._work_on(left)
        return None

    def _add_grant(self, request: requests.AddGrant) -> Draft | None:
        unused = replace(request.grant, used_epsilon=Fraction(0), used_delta=Fraction(0), gone=frozenset())
        self._current.check_signed()
        manifest = self._current.manifest
        if not manifest.access.has_signed(self._history.database, unused):
            raise InvalidParameter("the grant is not signed by the owner", hint="upgrade Scumble")
        access = manifest.access.granting(unused, manifest.catalog)
        return None if request.rehearsed else self._draft_access(access)

    def _revoke_grant(self, request: requests.RevokeGrant) -> Draft:
        return self._draft_access(self._current.manifest.access.revoking(request.name))

    def _set_policy(self, request: requests.SetPolicy) -> Draft:
        return self._draft_access(self._current.manifest.access.under(self._history.database, request.policy))

    def _draft_access(self, access: AccessList) -> Draft:
        manifest = self._current.manifest
        return self._drafted(self._history.draft(self._current, manifest.catalog.tables, manifest.dummies, access))

    def _list_grants(self, _: requests.ListGrants) -> requests.GrantList:
        return requests.GrantList(self._current.manifest.access.grants)

    def _reseal(self, request: requests.Reseal) -> Draft:
        """Draft a version with everything sealed under a new data key, for the owner of that key."""
        history, version, old = self._history, self._current, self._current.manifest
        if len(request.data_key) != KEY_BYTES or request.data_key == version.keys.data_key:
            raise InvalidParameter("this is no new key of 32 bytes", hint="upgrade Scumble")
        if request.title.version != old.catalog.version + 1:
            raise Stale("the database has changed", hint="ask again")
        access = old.access.owned_by(history.database, request.title.owner, request.grants)
        keys, tables = DataKeys(request.data_key, history.database), []
        dummies: dict[str, Dummies] = {}
        for table in old.catalog.tables:
            runs = [reseal_run(version.storage, table, run, version.reader(run.id)[0], keys) for run in table.runs]
            dummies |= {after.id: old.dummies[before.id] for before, after in zip(table.runs, runs, strict=True)}
            tables.append(replace(table, runs=tuple(runs)))
        if old.access.policy or request.policy:  # the new key signs it, too: nobody has to know who signed before
            access = access.under(history.database, request.policy)
        successor = replace(history, signer=request.title.owner, data_key=request.data_key)
        return self._drafted(successor.draft(version, tuple(tables), dummies, access, (keys, request.title)))

    # --- queries -----------------------------------------------------------------------------------

    def _drop_plans(self) -> None:
        self._plans.clear()
        self.plan_bytes = 0

    def _prepare(self, request: requests.Prepare) -> requests.PlanNumber:
        version = self._current
        table = version.catalog.by_id.get(request.plan.table)
        if table is None:
            raise Stale("the table is no longer there", hint="ask again")
        rewrites = isinstance(request.plan.output, Rewrite)
        if version.grant is not None and not version.grant.may("change" if rewrites else "read", table.name):
            raise Refused
        plan = Rewriting(request.plan, table) if rewrites else CompiledPlan(request.plan, table)
        size_bytes = NODE_BYTES * request.plan.nodes + plan.kept_bytes
        self._signer.check_plan(self, len(self._plans), size_bytes)
        self._plans.append(plan)
        self.plan_bytes += size_bytes
        return requests.PlanNumber(len(self._plans) - 1)

    def _forget_plans(self, _: requests.ForgetPlans) -> None:
        self._drop_plans()

    def _executed(self, body: memoryview) -> bytes:
        """The answer to an execution. An error on the way, which may depend on a row, is as long as the answer."""
        execution = unpack_execution(body)
        if not 0 <= execution.plan < len(self._plans):
            raise InvalidParameter("there is no plan of this number", hint="prepare it again")
        plan = self._plans[execution.plan]
        try:
            return executed(self._execute(execution))
        except Exception as error:
            size = plan.answer_bytes(execution) if isinstance(plan, Rewriting) else answer_bytes(plan, execution)
            return refusal(error, executed_bytes(size))

    def _execute(self, execution: Execution) -> bytes:
        plan = self._plans[execution.plan]
        if len(execution.bounds) < plan.bounds_words:
            raise InvalidParameter("the bounds are cut short", hint="send all of them")
        if isinstance(plan, Rewriting):
            return self._rewritten(plan, execution)
        return execute(plan, execution, self._current.reader)

    # --- loads -------------------------------------------------------------------------------------

    def _begin_load(self, request: requests.BeginLoad) -> requests.LoadBegun:
        load = begin_load(self._current, request)
        if load is not None:
            self._signer.begin_load(self)
            self._load = load
        return requests.LoadBegun(done=load is None)

    def _begin_flush(self, request: requests.BeginFlush) -> requests.Flushing | None:
        flush = begin_flush(self._current, request)
        if flush is None:
            return None
        self._signer.begin_load(self)
        self._load = flush
        return requests.Flushing(flush.sent_rows)

    @property
    def _current_load(self) -> Load:
        if self._load is None:
            raise InvalidParameter("no load is under way", hint="begin one first")
        return self._load

    def _reserve(self, request: requests.Reserve) -> None:
        self._current_load.reserve(self._current.keys, request.capacity)

    def _pay(self, request: requests.Pay) -> Draft | None:
        """Draft a version that records what is paid for the rows that were sent: before anything is drawn for them."""
        version, load = self._current, self._current_load
        payment = Payment(request.batch, load.seal_rows(request.batch, version.keys), request.charges)
        access = version.manifest.access.paying(payment, version.grant)
        return None if access is version.manifest.access else self._draft_access(access)

    def _build(self, request: requests.Build) -> Draft | None:
        version = self._current
        if version.has_batch(request.batch, () if self._load is None else self._load.place.instead):
            self._load = None
            return None
        load = self._current_load
        if not load.is_paid(version.manifest.access.payment(request.batch), request):
            raise InvalidParameter("these rows were not paid for", hint="pay for all of them first")
        if version.grant is not None and not version.grant.may(load.right, load.table.name):
            raise Refused
        made = loaded(version, load, request.real_rows, request.streamed)
        if not request.within:
            return self._draft_of(made)
        self._work_on(made)
        self._load = None
        return None

    def _abandon(self, _: requests.Abandon) -> None:
        if self._load is not None:  # another session's load is none of this one's business
            self._load = None
            self._history.storage.drop_scratch()


_HANDLERS: dict[type[Request[Any]], Callable[[Any, Any], Any]] = {
    requests.Abandon: EnclaveSession._abandon,
    requests.AddGrant: EnclaveSession._add_grant,
    requests.BeginFlush: EnclaveSession._begin_flush,
    requests.BeginLoad: EnclaveSession._begin_load,
    requests.Build: EnclaveSession._build,
    requests.CheckChain: EnclaveSession._check_chain,
    requests.CheckPages: EnclaveSession._check_pages,
    requests.Commit: EnclaveSession._commit,
    requests.Create: EnclaveSession._create,
    requests.DropTable: EnclaveSession._drop_table,
    requests.Follow: EnclaveSession._open,
    requests.ForgetPlans: EnclaveSession._forget_plans,
    requests.ListGrants: EnclaveSession._list_grants,
    requests.Look: EnclaveSession._look,
    requests.Merge: EnclaveSession._merge,
    requests.Open: EnclaveSession._open,
    requests.Pay: EnclaveSession._pay,
    requests.Prepare: EnclaveSession._prepare,
    requests.Reseal: EnclaveSession._reseal,
    requests.Reserve: EnclaveSession._reserve,
    requests.Restore: EnclaveSession._restore,
    requests.RevokeGrant: EnclaveSession._revoke_grant,
    requests.Rollback: EnclaveSession._rollback,
    requests.Settle: EnclaveSession._settle,
    requests.SetPolicy: EnclaveSession._set_policy,
    requests.Upgrade: EnclaveSession._upgrade,
    requests.Vacuum: EnclaveSession._vacuum,
    **dict.fromkeys(DEFINITIONS, EnclaveSession._define),
}


_LARGE = threading.Lock()
"""Held while a large request is parsed and its objects are made: one at a time, whoever sends them."""
