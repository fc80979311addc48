"""The demo's second part: the provider is a process of its own, and the owner, an analyst and a stranger connect.

The provider runs `scumble serve` on loopback. The owner verifies its enclave, loads and queries; the analyst queries
what the owner granted; the stranger, who has no grant, is refused. Then the provider's transcript is shown.
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
from scumble.store import open_store
from scumble.store.transcript import Transcript, exchanges

__all__ = ["over_a_network"]

EVERY = 10  # visits go to the service: one in so many
QUERY = "SELECT count(*), sum(amount) FROM visits WHERE day BETWEEN '2025-03-03' AND '2025-03-07'"
INDEX = f"day date:{FIRST_DAY}:{LAST_DAY} epsilon=0.5"
SIMULATED: dict[str, Any] = {"insecure_simulated_enclave": True}


def over_a_network(output: Path, plain: Any, types: dict[str, str], say: Any, show: Any) -> bool:
    """Run the second part; True if every answer was right and every refusal came."""
    keys = output / "owner"
    keys.mkdir()
    with running(output / "provider") as service:
        say(
            f"\nPart 2. The same over a network: the provider is now a process of its own (pid {service.pid}, with two "
            f"enclave processes) and serves {service.url('clinic')}. This machine has no confidential hardware, so the "
            "enclave's evidence is SIMULATED and proves nothing. A client refuses it unless that is explicitly allowed."
        )
        _without_permission(service, keys, show)
        with scumble.create(service.url("clinic"), key=keys / "clinic.key", limit=2, **SIMULATED) as owner:
            right = _owner(owner, plain.take(np.arange(0, len(plain), EVERY)), types, show)
            right = _analyst(service, owner, keys, show) and right
        refused = _stranger(service, keys, show)
    _transcript(service, say, show)
    return right and refused


def _without_permission(service: Running, keys: Path, show: Any) -> None:
    try:
        scumble.create(service.url("refused"), key=keys / "refused.key")
    except ScumbleError as error:
        show("  refused   ", f"as it should be, without that permission: {error.message}")


def _owner(owner: scumble.Database, plain: Any, types: dict[str, str], show: Any) -> bool:
    import duckdb

    start = perf_counter()
    owner.load("visits", plain, indexes=[INDEX], types=types)
    show("  owner     ", f"loaded {len(plain):,} visits over HTTP, encrypted, in {perf_counter() - start:.1f} s")
    answer = owner.sql(QUERY).fetchall()
    start = perf_counter()
    owner.sql(QUERY).fetchall()
    spent = 1000 * (perf_counter() - start)
    with duckdb.connect(":memory:") as clear:
        clear.register("visits", plain)
        same = answer == clear.sql(QUERY).fetchall()
    count, total = answer[0]
    verdict = f"{'equals' if same else 'DIFFERS FROM'} DuckDB's; {spent:.1f} ms"
    show("  owner     ", QUERY)
    show("            ", f"{count:,}, {total:,}: {verdict}")
    return same


def _analyst(service: Running, owner: scumble.Database, keys: Path, show: Any) -> bool:
    key = AnalystKey.create(keys / "alice.key", None)
    owner.grant("alice", key.text, ["visits"])
    with scumble.open(service.url("clinic"), key=keys / "alice.key", first_opening=True, **SIMULATED) as alice:
        same = alice.sql(QUERY).fetchall() == owner.sql(QUERY).fetchall()
        show("  analyst   ", f"alice, who was granted visits, gets {'the same answer' if same else 'ANOTHER ANSWER'}")
        owner.revoke("alice")
        try:
            alice.sql(QUERY)
        except ScumbleError as error:
            show("  analyst   ", f"once the grant is revoked, her open session is refused: {error.message}")
            return same
    return False


def _stranger(service: Running, keys: Path, show: Any) -> bool:
    """Query the table with a valid key that was granted nothing; True if that is refused."""
    AnalystKey.create(keys / "mallory.key", None)
    try:
        with scumble.open(service.url("clinic"), key=keys / "mallory.key", first_opening=True, **SIMULATED) as mallory:
            mallory.sql(QUERY)
    except ScumbleError as error:
        show(
            "  stranger  ",
            f"mallory has a key but no grant: {error.message}. A table that is not there gives the same error",
        )
        return True
    return False


def _transcript(service: Running, say: Any, show: Any) -> None:
    folder = service.folder / "default" / "clinic"
    events = Transcript.read(open_store(folder).log)
    asked = [one for one in exchanges(events) if any(event.kind == "read" for event in one.inside)]
    if not asked:
        return
    names = public_names(folder, {str(event["run"]) for event in asked[0].inside if "run" in dict(event.facts)})
    say(f"\nThe provider's own transcript has {len(events):,} events. This is what it holds of the owner's query:")
    for line in exchange_lines(asked[0], names):
        show("    ", line)
