"""A PostgreSQL server for one benchmark: made in a temporary folder, reached by its socket, then removed.

The data is made up, so it needs no password: the folder is open to its own user and to root. `find_postgres` says
whether there is one; nothing is installed or left behind.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

__all__ = ["HOW_TO_INSTALL", "fill", "find_postgres", "running"]

HOW_TO_INSTALL = "not measured: no PostgreSQL here (apt-get install postgresql)"
USERS = ("postgres", "nobody")  # whom root becomes: PostgreSQL refuses to run as root
START_SECONDS = 30
SETTINGS = {
    "listen_addresses": "",  # the socket alone
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "fsync": "off",
    "max_wal_size": "4GB",
    "maintenance_work_mem": "512MB",
    "autovacuum": "off",
}


def find_postgres() -> Path | None:
    """The folder with `initdb` and `postgres` in it: on the path, or the newest where Debian puts it."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(versions, key=lambda path: float(path.parent.name), default=None)


@contextmanager
def running(programs: Path, shared_buffers: str = "1GB") -> Iterator[Any]:
    """Start a server on an empty database, give a psycopg connection to it, stop it and remove everything."""
    # A socket needs a short path.
    with tempfile.TemporaryDirectory(prefix="scumble-postgres-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder, user = Path(name), _user()
        if user is not None:
            os.chown(folder, user, -1)
        data = folder / "data"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8"],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        given = [f"{key}={value}" for key, value in {**SETTINGS, "shared_buffers": shared_buffers}.items()]
        settings = [word for one in given for word in ("-c", one)]
        command = [str(programs / "postgres"), "-D", str(data), "-k", str(folder), *settings]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, user=user, cwd=folder)
        try:
            connection = _connect(folder, server)
            try:
                yield connection
            finally:
                connection.close()
        finally:
            _stop(server)


def fill(connection: Any, table: str, rows: Any, columns: str, key: str, plain: str | None = None) -> None:
    """Load an Arrow table, with a B-tree on the key and clustered by it, vacuumed, analysed and in memory.

    `plain` names a column of long values that stay in their rows, which is faster for who wants them all.
    """
    import pyarrow as pa
    from pyarrow import csv

    connection.execute(f"CREATE TABLE {table} ({columns})")
    if plain is not None:
        connection.execute(f"ALTER TABLE {table} ALTER COLUMN {plain} SET STORAGE PLAIN")
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
        for batch in rows.to_batches(max_chunksize=50_000):
            text = pa.BufferOutputStream()
            csv.write_csv(batch, text, csv.WriteOptions(include_header=False))
            copy.write(text.getvalue())
    connection.execute(f"CREATE INDEX {table}_{key} ON {table} ({key})")
    connection.execute(f"CLUSTER {table} USING {table}_{key}")
    connection.execute(f"VACUUM (FREEZE, ANALYZE) {table}")
    connection.execute("CHECKPOINT")
    connection.execute(f"SELECT count(*) FROM {table}")  # noqa: S608  our own name


def _user() -> int | None:
    """The user that the server runs as, if not the one who runs this."""
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise RuntimeError(f"PostgreSQL does not run as root, and there is none of {', '.join(USERS)}")


def _connect(folder: Path, server: "subprocess.Popen[bytes]") -> Any:
    import psycopg

    deadline = monotonic() + START_SECONDS
    while True:
        try:
            return psycopg.connect(host=str(folder), user="bench", dbname="postgres", autocommit=True)
        except psycopg.OperationalError:
            if server.poll() is not None or monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()[-500:]}") from None
            sleep(0.05)


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.send_signal(signal.SIGINT)  # a fast shutdown: roll back, disconnect, write, end
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGQUIT)
        server.wait()
