"""The demo's second act: provider and owner are processes of their own, and a stranger comes by.

The provider runs `scumble serve` on loopback; the owner, in this process, verifies its enclave, loads and asks; an
analyst whom the owner has let in asks as well; a stranger tries. What the provider kept of it is shown.
"""

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import scumble
from benchmarks.hospital import FIRST_DAY, LAST_DAY
from benchmarks.service.running import Running, running
from scumble.cli.transcript import exchange_lines, public_names
from scumble.errors import ScumbleError
from scumble.owner.keys import AnalystKey
from scumble.store.transcript import Transcript, exchanges

__all__ = ["second_act"]

EVERY = 10  # visits go to the service: one in so many
QUERY = "SELECT count(*), sum(amount) FROM visits WHERE day BETWEEN '2025-03-03' AND '2025-03-07'"
INDEX = f"day date:{FIRST_DAY}:{LAST_DAY} epsilon=0.5"
SIMULATED: dict[str, Any] = {"insecure_simulated_enclave": True}


def second_act(output: Path, plain: Any, types: dict[str, str], say: Any, show: Any) -> bool:
    """Play it; whether all went as it should."""
    keys = output / "owner"
    keys.mkdir()
    with running(output / "provider") as service:
        say(
            f"\nSecond act: the provider is another process (number {service.pid}, with two enclave processes of its "
            f"own) and serves {service.url('clinic')}. There is no confidential hardware here, so its evidence is "
            "SIMULATED and proves nothing: a client refuses it unless it is told in so many words to take it."
        )
        _without_the_word(service, keys, show)
        with scumble.create(service.url("clinic"), key=keys / "clinic.key", limit=2, **SIMULATED) as owner:
            right = _owner(owner, plain.take(np.arange(0, len(plain), EVERY)), types, show)
            right = _analyst(service, owner, keys, show) and right
        refused = _stranger(service, keys, show)
    _transcript(service, say, show)
    return right and refused


def _without_the_word(service: Running, keys: Path, show: Any) -> None:
    try:
        scumble.create(service.url("refused"), key=keys / "refused.key")
    except ScumbleError as error:
        show("  refused   ", f"as it should be: {error.message}")


def _owner(owner: scumble.Database, plain: Any, types: dict[str, str], show: Any) -> bool:
    import duckdb

    start = perf_counter()
    owner.load("visits", plain, indexes=[INDEX], types=types)
    show("  owner     ", f"loaded {len(plain):,} visits over HTTP, sealed, in {perf_counter() - start:.1f} s")
    answer = owner.sql(QUERY).fetchall()
    start = perf_counter()
    owner.sql(QUERY).fetchall()
    spent = 1000 * (perf_counter() - start)
    with duckdb.connect(":memory:") as clear:
        clear.register("visits", plain)
        same = answer == clear.sql(QUERY).fetchall()
    count, total = answer[0]
    verdict = f"{'equals' if same else 'DIFFERS FROM'} DuckDB's; {spent:.1f} ms"
    show("  owner     ", f"{QUERY}: {count:,}, {total:,}; {verdict}")
    return same


def _analyst(service: Running, owner: scumble.Database, keys: Path, show: Any) -> bool:
    key = AnalystKey.create(keys / "alice.key", None)
    owner.grant("alice", key.text, ["visits"])
    with scumble.open(service.url("clinic"), key=keys / "alice.key", **SIMULATED) as alice:
        same = alice.sql(QUERY).fetchall() == owner.sql(QUERY).fetchall()
        show("  analyst   ", f"alice, who may read visits, gets {'the same answer' if same else 'ANOTHER ANSWER'}")
        owner.revoke("alice")
        try:
            alice.sql(QUERY)
        except ScumbleError as error:
            show("  analyst   ", f"once that is revoked, her open session ends with: {error.message}")
            return same
    return False


def _stranger(service: Running, keys: Path, show: Any) -> bool:
    """Somebody with a key of his own, and no grant, asks for the table by its name."""
    AnalystKey.create(keys / "mallory.key", None)
    try:
        with scumble.open(service.url("clinic"), key=keys / "mallory.key", **SIMULATED) as mallory:
            mallory.sql(QUERY)
    except ScumbleError as error:
        show(
            "  stranger  ",
            f"has a key, and no grant: {error.message}. He is told the same for a table that is not there",
        )
        return True
    return False


def _transcript(service: Running, say: Any, show: Any) -> None:
    folder = service.folder / "default" / "clinic"
    events = Transcript.read(folder)
    asked = [one for one in exchanges(events) if any(event.kind == "read" for event in one.inside)]
    if not asked:
        return
    names = public_names(folder, {str(event["run"]) for event in asked[0].inside if "run" in dict(event.facts)})
    say(f"\nThe provider's own transcript has {len(events):,} events. This is what it holds of the owner's query:")
    for line in exchange_lines(asked[0], names):
        show("    ", line)
