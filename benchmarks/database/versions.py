"""Figure 9 of the database: what thousands of versions take on disk, what collecting them costs, and an old anchor.

Versions without tables are made as an enclave and an owner make them, and committed to a folder. Then the owner opens
the database with the anchor of version 1, so that enclave and client check every signature since. Times are of the
processor; two syncs of the disk for every 32 commits come on top.
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from time import process_time

import scumble
from benchmarks.figure import Figure, Size, say
from scumble.enclave.manifests import Manifest, open_head, seal_manifest
from scumble.enclave.pages import DataKeys
from scumble.owner.keys import OwnerKey, open_key
from scumble.store.files import FileStore
from scumble.wire.lineage import Draft, Link, sign_draft
from scumble.wire.storage import Envelope, pack

__all__ = ["measure"]

VERSIONS: dict[Size, int] = {"full": 86_400, "quick": 5_000, "tiny": 100}
MOST_BYTES = 300  # a version that was collected


def measure(size: Size) -> Figure:
    """Bytes, files, and processor time of commits and of an opening."""
    figure, count = Figure("database.versions"), VERSIONS[size]
    with tempfile.TemporaryDirectory(prefix="scumble-bench-") as folder:
        say(f"database.versions: {count:,} commits")
        home = Path(folder)
        scumble.create(home / "db").close()
        shutil.copy(home / "db.anchor", home / "old.anchor")
        commits = _commit(home, count)
        files = {path.name: path.stat().st_size for path in (home / "db" / "manifests").iterdir()}
        say("database.versions: opening with an old anchor")
        shutil.copy(home / "old.anchor", home / "db.anchor")
        start = process_time()
        scumble.open(home / "db").close()
        opening = process_time() - start
    whole = sum(name.endswith(".manifest") for name in files)
    of_one = sum(size for name, size in files.items() if name.endswith(".links")) / (count - whole)
    usual, more = median(commits), mean(commits) - median(commits)  # most commits collect nothing
    figure.values |= {"versions": count, "files": len(files), "bytes": sum(files.values()), "opening_seconds": opening}
    figure.values |= {"commit_seconds": usual, "collecting_seconds": more}
    figure.add(f"{count:,} versions on disk", f"{sum(files.values()) / 1e6:.1f} MB in {len(files)} files")
    met = of_one <= MOST_BYTES
    figure.add("a version that was collected", f"{of_one:.0f} bytes", f"≤ {MOST_BYTES} bytes", met)
    figure.add("what collecting adds to a commit", f"{1e6 * more:.0f} us, to {1e6 * usual:.0f}")
    figure.add(
        f"opening with an anchor of {count:,} versions ago",
        f"{opening:.1f} s, {1e6 * opening / count:.0f} us a version, enclave and client",
    )
    return figure


def _commit(home: Path, count: int) -> list[float]:
    """Make so many versions; the processor time of the store for each."""
    store = FileStore(home / "db")
    key = open_key(home / "db.key", store.database, None)
    assert isinstance(key, OwnerKey)
    keys = DataKeys(key.data_key(), store.database)
    head, spent = open_head(store, keys, store.database), []
    with store.writer():
        for version in range(2, count + 1):
            manifest, head = _next(keys, key, head)
            start = process_time()
            store.commit(version, manifest)
            spent.append(process_time() - start)
    store.close()
    return spent


def _next(keys: DataKeys, key: OwnerKey, head: Manifest) -> tuple[bytes, Manifest]:
    catalog = replace(head.catalog, version=head.catalog.version + 1, previous=head.hash)
    public, sealed = seal_manifest(keys, catalog, {}, head.access)
    draft = Draft(catalog.restores, catalog.version, head.hash, Envelope(public, sealed, b"-").hash)
    signing = key.signing_key()
    signature = sign_draft(catalog.database, draft, signing)
    link = Link(draft, signing.public_key().public_bytes_raw(), signature)
    return pack(public, sealed, link.to_bytes()), replace(head, catalog=catalog, hash=draft.hash, link=link)
