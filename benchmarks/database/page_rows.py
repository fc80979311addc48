"""The sweep behind the default page size: the aggregates, the point query and the scan at each number of rows a page.

python -m benchmarks.database.page_rows
"""

from benchmarks.database.aggregates import QUERY
from benchmarks.database.clock import shown, side_by_side
from benchmarks.database.scan import measure_rows
from benchmarks.database.tables import absent_keys, asking, bounds, loaded
from benchmarks.figure import say
from scumble.owner.loading import PAGE_ROWS

__all__ = ["main", "sweep"]

CHOICES = (256, 512, 1024, 2048, 4096)
ANSWERS = (0.0, 0.005, 0.05)


def main() -> None:
    """Print the table; a star marks the default."""
    head = [f"{share:.1%}" for share in ANSWERS]
    print("rows a page", *(f"{name:>9}" for name in (*head, "scan", "scan/AES", "scan/pt", "load")))
    for page_rows, cells in sweep(10**6, 12).items():
        mark = "*" if page_rows == PAGE_ROWS else " "
        print(f"{page_rows:>10}{mark}", *(f"{cell:>9}" for cell in cells))


def sweep(rows: int, rounds: int) -> dict[int, list[str]]:
    """For each size of a page: three aggregates, the scan, its share of AES, its ratio to a point query, the load."""
    times: dict[float, dict[str, float]] = {}
    asks = {}
    for choice in CHOICES:
        say(f"page_rows: {choice}")
        asks[str(choice)] = asking(loaded(rows, choice).database, QUERY)
    for share in ANSWERS:
        ranges = bounds(rows, int(share * rows), 500) if share else absent_keys(rows, 500)
        times[share] = side_by_side(asks, ranges, rounds, 20)
    table = {}
    for choice in CHOICES:
        scan = measure_rows(rows, rounds, choice)
        table[choice] = [
            *(shown(times[share][str(choice)]) for share in ANSWERS),
            shown(scan["scan"]),
            f"{scan['aes'] / scan['scan']:.2f}",
            f"{scan['scan'] / scan['point']:.0f}",
            shown(loaded(rows, choice).seconds),
        ]
    return table


if __name__ == "__main__":
    main()
