"""What one signer may have in the enclave at a time: sessions, kept plans, one load for each database.

Sizes of requests and of answers decide, which the provider sees anyway; nothing here looks at a row or a constant.
"""

import threading
from collections import defaultdict
from typing import Protocol

from scumble.errors import Busy, TooManyPlans

__all__ = ["MOST_PLANS", "NODE_BYTES", "Keeping", "SignerQuota", "Signers"]

MOST_SESSIONS = 512
MOST_PLANS = 1024
NODE_BYTES = 2048
"""What a compiled plan takes for each of its nodes, at most: a test measures it."""
SESSION_PLAN_BYTES = 32 << 20
SIGNER_PLAN_BYTES = 256 << 20


class Keeping(Protocol):
    """What a session keeps, as far as it is counted."""

    signed_for: tuple[str, bytes]
    """The database, and the public key of who signed the greeting."""
    plan_bytes: int

    def drop_load(self) -> None:
        """Forget the rows of a load."""


class SignerQuota:
    """The sessions that one signer has with one database."""

    def __init__(self) -> None:
        self.sessions: set[Keeping] = set()
        self._turn = threading.Lock()

    def enter(self, session: Keeping) -> None:
        with self._turn:
            if len(self.sessions) >= MOST_SESSIONS:
                raise Busy("this key has too many sessions open", hint="close some, or wait until they lapse")
            self.sessions.add(session)

    def leave(self, session: Keeping) -> None:
        with self._turn:
            self.sessions.discard(session)

    def check_plan(self, session: Keeping, plans: int, size_bytes: int) -> None:
        """Refuse a plan of this size if the session, or all of the signer's together, keep too much already."""
        with self._turn:
            kept = sum(each.plan_bytes for each in self.sessions)
        too_many = plans >= MOST_PLANS or session.plan_bytes + size_bytes > SESSION_PLAN_BYTES
        if too_many or kept + size_bytes > SIGNER_PLAN_BYTES:
            raise TooManyPlans

    def begin_load(self, session: Keeping) -> None:
        """End the loads of the signer's other sessions: they cannot be the one that holds the database for writing."""
        with self._turn:
            others = [each for each in self.sessions if each is not session]
        for each in others:
            each.drop_load()


class Signers:
    """The quotas of all signers, by database and public key. Threads may share it."""

    def __init__(self) -> None:
        self._quotas: defaultdict[tuple[str, bytes], SignerQuota] = defaultdict(SignerQuota)
        self._turn = threading.Lock()

    def entered(self, session: Keeping) -> SignerQuota:
        """Count a new session; Busy if its signer has too many."""
        with self._turn:
            quota = self._quotas[session.signed_for]
            quota.enter(session)
        return quota

    def left(self, session: Keeping) -> None:
        with self._turn:
            quota = self._quotas[session.signed_for]
            quota.leave(session)
            if not quota.sessions:
                del self._quotas[session.signed_for]
