"""Figures 2 and 3 of the database: a point query against a full oblivious scan, and the scan against bare AES.

The scan is the same engine's, with the same aggregates over as many columns, for a condition on a column that has no
index. The yardstick of its throughput is AES-256-GCM by itself, in calls of one page over as many sealed bytes, with
nothing read, checked or computed.
"""

import os
from itertools import pairwise
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.database.aggregates import QUERY
from benchmarks.database.clock import shown, side_by_side
from benchmarks.database.tables import COLUMNS, KEYS, asking, bounds, loaded
from benchmarks.figure import Figure, Size, say
from scumble.owner.loading import PAGE_ROWS
from scumble.wire.catalog import TAG_BYTES

__all__ = ["decrypt_pages", "measure", "measure_rows", "measure_whole_rows"]

SIZES: dict[Size, dict[str, Any]] = {
    "full": {"rows": (10**5, 10**6, 10**7), "rounds": 12},
    "quick": {"rows": (10**5, 10**6), "rounds": 5},
    "tiny": {"rows": (2_000, 20_000), "rounds": 1},
}
SCAN = "SELECT count(*), sum(c1) FROM t WHERE c2 BETWEEN ? AND ?"
WHOLE_ROWS = "SELECT * FROM t WHERE {} BETWEEN ? AND ?"
CALLS = 20  # of the point query to one scan
LEAST_RATIO, AT_ROWS = 100, 10**6
LEAST_SHARE_OF_AES = 0.5


def measure(size: Size) -> Figure:
    """Points, scans and bare decryption at each size."""
    terms = SIZES[size]
    figure = Figure("database.scan")
    ratios: list[float] = []
    measured: dict[int, dict[str, float]] = {}
    for rows in terms["rows"]:
        say(f"database.scan: {rows:,} rows")
        times = measured[rows] = measure_rows(rows, terms["rounds"])
        figure.values[f"{rows} rows"] = times
        ratios.append(times["scan"] / times["point"])
        claim = f"point query: full oblivious scan / index, {rows:,} rows"
        text = f"{shown(times['scan'])} / {shown(times['point'])} = {ratios[-1]:.0f}"
        goal = ratios[-1] >= LEAST_RATIO if rows == AT_ROWS else None
        figure.add(claim, text, f"≥ {LEAST_RATIO}" if goal is not None else "", goal)
        if rows == AT_ROWS or size == "tiny":
            whole = measure_whole_rows(rows, terms["rounds"])
            figure.values[f"{rows} whole rows"] = whole
            ratio = whole["scan"] / whole["point"]
            claim = f"the same with SELECT *, {rows:,} rows of {COLUMNS} columns"
            text = f"{shown(whole['scan'])} / {shown(whole['point'])} = {ratio:.0f}"
            figure.add(claim, text, f"≥ {LEAST_RATIO}", ratio >= LEAST_RATIO)
    growing = all(a < b for a, b in pairwise(ratios))
    text = ", ".join(f"{ratio:.0f}" for ratio in ratios)
    figure.add("the ratio grows with the table", text, "growing", growing)
    for rows, times in measured.items():
        share, rate = times["aes"] / times["scan"], times["bytes"] / times["scan"]
        claim = f"full oblivious scan of {rows:,} rows / AES-256-GCM alone"
        text = f"{rate / 1e9:.2f} / {times['bytes'] / times['aes'] / 1e9:.2f} GB/s = {share:.2f}"
        figure.add(claim, text, f"≥ {LEAST_SHARE_OF_AES}", share >= LEAST_SHARE_OF_AES)
    return figure


def measure_rows(rows: int, rounds: int, page_rows: int = PAGE_ROWS) -> dict[str, float]:
    """Seconds of a point query, of a scan, and of decrypting the scan's bytes."""
    database = loaded(rows, page_rows).database
    point, scan = asking(database, QUERY), asking(database, SCAN)
    explained = database.explain(SCAN, (0, KEYS // 3)).tables[0]
    columns = len(explained.columns_read)
    # Pages that hold only dummies according to the index are left out.
    assert 2 * explained.pages_read >= explained.pages_of_full_scan, "this is no full scan"
    keys = bounds(rows, 1, 200)
    best = {"point": float("inf"), "scan": float("inf"), "aes": float("inf")}
    sealed = _sealed_pages(explained.pages_read * columns, page_rows)
    for turn in range(rounds):
        third = (1000 * turn, 1000 * turn + KEYS // 3)  # of the keys
        times = {
            **side_by_side({"point": point}, keys[turn:], 1, CALLS),
            **side_by_side({"scan": scan, "aes": lambda *_: decrypt_pages(*sealed)}, [third], 1, 1),
        }
        best = {name: min(best[name], times[name]) for name in best}
    return {**best, "bytes": explained.bytes_read, "page_rows": page_rows, "pages": explained.pages_read}


def measure_whole_rows(rows: int, rounds: int) -> dict[str, float]:
    """Seconds of fetching the rows of one key by the index, and of fetching some by a scan."""
    database = loaded(rows).database
    point, scan = (asking(database, WHOLE_ROWS.format(column)) for column in ("c0", "c2"))
    keys = bounds(rows, 1, 200)
    times = side_by_side({"point": point}, keys, rounds, CALLS)
    return times | side_by_side({"scan": scan}, keys, max(1, rounds // 3), 1)


def decrypt_pages(cipher: AESGCM, sealed: memoryview, slot_bytes: int) -> None:
    """Open every page into the same room, one after the other."""
    plain = memoryview(bytearray(slot_bytes - TAG_BYTES))
    nonce, associated, open_into = b"\0" * 12, b"\0" * 67, cipher.decrypt_into
    for at in range(0, len(sealed), slot_bytes):
        open_into(nonce, sealed[at : at + slot_bytes], associated, plain)


def _sealed_pages(pages: int, page_rows: int) -> tuple[AESGCM, memoryview, int]:
    """So many pages of eight-byte values, all alike: the cipher does not mind."""
    cipher = AESGCM(os.urandom(32))
    page = cipher.encrypt(b"\0" * 12, os.urandom(8 * page_rows), b"\0" * 67)
    return cipher, memoryview(page * pages), len(page)
