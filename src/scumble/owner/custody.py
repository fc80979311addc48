"""What a key's holder does with a database besides its rows: budget, grants, witnesses, policies, keys.

It runs on the machine of the key's holder. `Database` (owner/database.py) is this and the tables.
"""

import secrets
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from scumble.errors import Busy, InvalidParameter, ScumbleError, Stale, Unavailable, Unfinished, Unwitnessed
from scumble.owner import key_file
from scumble.owner.anchor import anchor_text
from scumble.owner.key_file import Passphrase
from scumble.owner.keys import Key, OwnerKey
from scumble.owner.ledger import Ledger
from scumble.owner.payments import allotment, spend_of, used_up
from scumble.owner.policies import Policies, next_policy
from scumble.owner.reconciling import batches_of
from scumble.owner.versions import Versions
from scumble.owner.witnesses import Listed, check_place, compare, witness_in
from scumble.privacy.budget import Exact, exact, show
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant, Right, parse_public_key, public_text
from scumble.wire.lineage import next_title
from scumble.wire.requests import AddGrant, ListGrants, Reseal, RevokeGrant, SetPolicy, Upgrade
from scumble.wire.storage import Service
from scumble.witness.cosignatures import Cosignature

if TYPE_CHECKING:
    from scumble.attestation.policy import Policy
    from scumble.attestation.policy_document import SignedPolicy
    from scumble.owner.stream_log import StreamLog

__all__ = ["Custody", "amounts"]


def amounts(epsilon: Fraction, delta: Fraction) -> str:
    """An epsilon, and a delta if there is any, for a message."""
    return f"epsilon {show(epsilon)}" + (f" and delta {show(delta)}" if delta else "")


class Custody:
    """A database that a key has opened: who may use it, on which terms, and what it has cost."""

    def __init__(
        self,
        service: Service,
        key: Key,
        key_path: Path,
        *,
        accept_restored: bool = False,
        first_opening: bool = False,
        owner: str | None = None,
        key_print: bytes | None = None,
        policies: Policies | None = None,
    ) -> None:
        """Open a database at a service; an analyst may name the public key of the `owner` it expects.

        `key_print` is the key file's fingerprint from before it was read: a rekey meanwhile is then noticed.
        """
        self._turn = threading.RLock()
        self._versions = Versions(
            service,
            key,
            key_path,
            changed=self._changed,
            accept_restored=accept_restored,
            first_opening=first_opening,
            owner=owner,
            key_print=key_print,
            policies=policies,
        )

    @property
    def service(self) -> Service:
        """The provider, in this process or over the network."""
        return self._versions.service

    def _changed(self) -> None:
        """Forget what belonged to the session or version before."""
        if "ledger" in self.__dict__ and self._paid_from != self._versions.grant_id:
            self.ledger.close()
            del self.__dict__["ledger"]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold it for writing. What was done stays done if the service is lost before the hold is given up."""
        done = False
        try:
            with self._turn:
                if self._versions.is_writing:
                    raise InvalidParameter(
                        "this is not for the middle of a transaction", hint="COMMIT or ROLLBACK it first"
                    )
                with self._versions.writing():
                    yield
                    done = True
        except Unavailable:
            if not done:
                raise

    # --- budget -----------------------------------------------------------------------------------

    @cached_property
    def ledger(self) -> Ledger:
        """The privacy budget: what was spent on what, and what remains. For an analyst, of the grant's allotment."""
        self._paid_from = self._versions.grant_id
        ledger = self._versions.key.ledger(self._versions.key_path, self._versions.grant)
        ledger.reconcile(self._charges(ledger), batches_of(self._versions.catalog))
        return ledger

    def _reconcile(self, *, held: bool) -> None:
        """Bring the ledger up to the newest version, before anything is spent."""
        self.ledger.reconcile(self._charges(self.ledger), batches_of(self._versions.catalog), held=held)

    def _charges(self, ledger: Ledger) -> Sequence[Charge]:
        """What the newest version says was paid by this key's holder; for the owner, what grants cost too.

        Those that are there cost their allotments, and those that were revoked at least what their loads did.
        """
        versions = self._versions
        paid = [charge for charge in versions.charges if charge.grant == versions.grant_id]
        if versions.grant_id is not None:
            return paid
        spent = {(each.label, each.epsilon) for each in ledger.entries() if each.partition is None}  # by release 0.1
        granted = [grant for grant in versions.grants if (f"granted to {grant.name}", grant.epsilon) not in spent]
        there = {grant.id for grant in versions.grants}
        gone = [charge for charge in versions.charges if charge.grant is not None and charge.grant not in there]
        return [*paid, *(allotment(grant) for grant in granted if grant.epsilon), *used_up(gone)]

    # --- grants ------------------------------------------------------------------------------------

    def grant(
        self,
        name: str,
        public_key: str,
        tables: Sequence[str] | Mapping[str, Collection[Right]],
        *,
        epsilon: Exact = 0,
        delta: Exact = 0,
    ) -> Grant:
        """Grant an analyst, by the public key that it sent, the right to read tables. Only the owner can.

        With a mapping of tables to rights, such as {"visits": ["read", "load"]}, it may load as well. Loads cost
        epsilon: the whole allotment of `epsilon` and `delta` is spent from the ledger now, whether it will be used or
        not. A grant is in force at once in this enclave, until it is revoked or its table is dropped.
        """
        key = self._versions.key.as_owner()
        reading: frozenset[Right] = frozenset(["read"])
        rights = tables if isinstance(tables, Mapping) else dict.fromkeys(tables, reading)
        wanted = Grant(
            secrets.token_hex(8),
            name,
            parse_public_key(public_key),
            {table: frozenset(each) for table, each in rights.items()},
            exact(epsilon, "epsilon"),
            exact(delta, "delta"),
        )
        if any("load" in each for each in wanted.tables.values()) != bool(wanted.epsilon):
            raise InvalidParameter(
                "a right to load needs an allotment of epsilon, and nothing else does", hint="--load --epsilon 0.5"
            )
        with self._changing():
            wanted = wanted.signed(key.database, self._versions.key.signing_key())
            self._versions.session.ask(AddGrant(wanted, rehearsed=True))
            if wanted.epsilon:
                self._reconcile(held=True)
                (paid,) = self.ledger.spend_all([spend_of(allotment(wanted), f"granted to {name}")])
                paid.draw()
                paid.settle()  # nothing will ever take it back
            try:
                self._versions.change(AddGrant(wanted, rehearsed=False))
            except ScumbleError as error:
                if not wanted.epsilon or (isinstance(error, Unwitnessed) and error.stored):
                    raise
                raise Unfinished(
                    f"{error.message}; {amounts(wanted.epsilon, wanted.delta)} stays spent on the grant",
                    hint="look whether `scumble grants` shows it before you grant it again, which costs as much again",
                ) from error
        return wanted

    def revoke(self, name: str) -> None:
        """Revoke an analyst's grant: at once in this enclave, in others when the database is next opened there."""
        self._versions.key.as_owner()
        with self._turn:
            self._versions.open_newest()
            with self._versions.service.rights_writer():
                self._versions.change(RevokeGrant(name))

    def grants(self) -> tuple[Grant, ...]:
        """Every grant, and how much of its allotment is used. Only the owner can see them."""
        self._versions.key.as_owner()
        with self._turn:
            self._versions.refresh()
            return self._listed()

    def _listed(self) -> tuple[Grant, ...]:
        return self._versions.session.ask(ListGrants()).grants

    @property
    def granted(self) -> Grant | None:
        """The grant that this key has; None for the owner, who may do everything."""
        return self._versions.grant

    @property
    def owner(self) -> str:
        """The owner's public key as text, by which analysts can tell whose database this is."""
        return public_text(bytes.fromhex(self._versions.owner))

    def anchor(self) -> str:
        """The newest version seen, signed, as a line of text to carry to another device, or to send to an analyst."""
        with self._turn:
            self._versions.open_newest()
            key = self._versions.key
            return anchor_text(self._versions.anchor, key.database, key.signing_key())

    def witnesses(self) -> tuple[Listed, dict[str, Cosignature | None]]:
        """The witnesses that have to cosign versions for this key's holder, and what each has seen, if it answers.

        Disputed if two of them have seen versions that cannot both be of one history.
        """
        with self._turn:
            self._versions.open_newest()
            key = self._versions.key
            listed = self._versions.witnesses.listed(key)
            return listed, compare(key, self._versions.catalog.titles, listed.places)

    def add_witness(self, place: str, public_key: str | None = None, need: int | None = None) -> Listed:
        """Have a witness at http://HOST:PORT, or in a folder, cosign every version from now on, `need` of all listed.

        Without `need` that stays as it is, or is 1. The public key of one in a folder is read there if none is given. A
        witness that does not answer is not added.
        """
        with self._turn:
            key, witnesses = self._versions.key, self._versions.witnesses
            before, place = witnesses.listed(key), check_place(place)
            places = {**before.places, place: parse_public_key(public_key or witness_in(place))}
            listed = Listed(need or before.need or 1, places)
            with witnesses.trying(Listed(1, {place: places[place]})):
                self._versions.open_newest()
            witnesses.put(key, listed)
            try:
                self._versions.open_newest()
            except BaseException:
                witnesses.put(key, before)
                raise
            return listed

    # --- which enclaves may have the key -----------------------------------------------------------

    @property
    def policy(self) -> "SignedPolicy | None":
        """What the owner asks of enclaves, as far as it is known here: the newest signed policy, None without one."""
        with self._turn:
            self._versions.refresh()
            return self._versions.policies.known(self._versions.key)

    def set_policy(self, terms: "Policy", *, lower: bool = False) -> "SignedPolicy":
        """Sign a policy and put it in force, for clients and for enclaves that hand the key on. Only the owner can.

        One that accepts anything more than the policy before is refused, unless `lower` says that this is meant. The
        enclave of this session has to meet it, too.
        """
        key = self._versions.key.as_owner()
        with self._turn, self._versions.writing():
            signed = next_policy(terms, key, self._versions.policies.known(key), lower=lower)
            self._put_policy(signed)
        return signed

    def reinstate_policy(self) -> None:
        """Put the newest known policy in force again, after an older version was restored. Only the owner can."""
        key = self._versions.key.as_owner()
        known = self._versions.policies.known(key)
        if known is not None and known.to_bytes() != self._versions.policy:
            with self._turn, self._versions.writing():
                self._put_policy(next_policy(known.terms, key, known))

    def _put_policy(self, signed: "SignedPolicy") -> None:
        self._versions.policies.hold(signed)
        self._versions.change(SetPolicy(signed.to_bytes()))

    # --- keys -------------------------------------------------------------------------------------

    def rekey(self, passphrase: Passphrase = None) -> None:
        """Seal everything again under a fresh key and replace the key file, so that old copies open nothing new.

        A key file with a passphrase needs it again here. A crash on the way loses nothing: the file holds both keys
        until the new one is in force. Only the owner can.
        """
        self._versions.key.as_owner()
        protection = self._protection(passphrase)
        with self._changing(), self._logs_held() as logs:
            kept = OwnerKey.open(self._versions.key_path, protection)  # a wrong passphrase: before anything changes
            old = self._versions.key.as_owner()
            if old.root not in (kept.root, kept.next_root):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            new = OwnerKey(old.database, secrets.token_bytes(len(old.root)))
            self._versions.put_key(OwnerKey(old.database, old.root, new.root), protection)
            version = self._versions.catalog.version + 1
            title = next_title(old.database, version, old.signing_key(), new.signing_key(), new.data_key())
            known = self._versions.policies.known(old)
            policy = b"" if known is None else next_policy(known.terms, new, known).to_bytes()
            self._versions.change(Reseal(new.data_key(), title, self._signed_grants(new), policy), new)
            for log in logs:
                log.reseal(new.stream_key())
            self._versions.put_key(new, protection)
            with suppress(Unavailable, Busy):  # then the next writer does it
                self._versions.service.drop_unreferenced()

    def finish_rekey(self, passphrase: Passphrase = None) -> None:
        """Finish a rekey that was cut short: remove the key that is not in force from the key file."""
        protection = self._protection(passphrase)
        with self._turn, self._versions.writing(busy_seconds=0):  # perhaps it is not cut short, but under way
            key = self._versions.key.as_owner()
            with self._logs_held() as logs:
                for log in logs:
                    log.reseal(key.stream_key())
            self._versions.put_key(OwnerKey(key.database, key.root), protection)

    @contextmanager
    def _logs_held(self) -> "Iterator[list[StreamLog]]":
        """The logs of all streams on this machine; Busy if one is open."""
        if not key_file.logged_tables(key_file.streams_path(self._versions.key_path)):
            yield []
            return
        from scumble.owner.stream_log import held_logs

        keys = [key.stream_key() for key in self._versions.key.candidates()]
        with held_logs(self._versions.key_path, keys) as logs:
            yield logs

    def _signed_grants(self, key: OwnerKey) -> tuple[Grant, ...]:
        """Every grant, signed by a key that the database is about to belong to."""
        grants = self._versions.session.ask(ListGrants()).grants
        return tuple(grant.signed(key.database, key.signing_key()) for grant in grants)

    def upgrade(self) -> bool:
        """Sign a database that release 0.1 has made, so that it can be changed again; False if it is signed already.

        From then on clients check who made each version. Whoever has a copy of the key and of the anchor keeps them.
        """
        key = self._versions.key.as_owner()
        if self._versions.catalog.titles:
            return False
        with self._turn, self._versions.writing():
            title = key.title(self._versions.catalog.version + 1)
            return self._versions.change(Upgrade(title, self._signed_grants(key), self._versions.catalog.restores))

    def _protection(self, passphrase: Passphrase) -> str | None:
        """The passphrase to write the key file with: none if it has none now."""
        return key_file.given_passphrase(passphrase) if key_file.is_protected(self._versions.key_path) else None

    def close(self) -> None:
        """End the session and close every file. A `with` block does it at its end."""
        if "ledger" in self.__dict__:
            self.ledger.close()
        self._versions.close()
