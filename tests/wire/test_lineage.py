"""Titles and links: which version follows which, by signatures alone."""

import secrets

import pytest

from scumble.errors import Tampered
from scumble.owner.keys import OwnerKey
from scumble.wire.lineage import Draft, Link, check_follows, next_title, sign_draft


def _link(key: OwnerKey, draft: Draft) -> Link:
    return Link(draft, key.public_key(), sign_draft(key.database, draft, key.signing_key()))


def test_a_key_that_was_replaced_takes_nothing_older_for_the_newest() -> None:
    """Its thief signs a version below the title that ended it, as owners do after a restore."""
    old = OwnerKey.draw()
    new = OwnerKey(old.database, secrets.token_bytes(32))
    titles = old.title(), next_title(old.database, 3, old.signing_key(), new.signing_key(), new.data_key())
    seen = (0, 3, "cc" * 32)
    stolen = _link(old, Draft(1, 2, "aa" * 32, "ee" * 32))
    with pytest.raises(Tampered):
        check_follows(old.database, titles, [stolen], seen, stolen.draft.seen)
    restored = _link(new, Draft(1, 4, "cc" * 32, "ee" * 32))
    check_follows(old.database, titles, [restored], seen, restored.draft.seen)
    with pytest.raises(Tampered):  # nor with the new owner's version on top, unless that follows it
        check_follows(old.database, titles, [stolen, restored], seen, restored.draft.seen)
