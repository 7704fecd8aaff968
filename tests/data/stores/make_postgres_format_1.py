"""Makes postgres_format_1.sql.gz: a database of two namespaces, as the programs before partitions wrote it.

Run once, with a program that wrote format 1: `python -m tests.data.stores.make_postgres_format_1`. Both namespaces
have something of everything that a store holds; "default" has published index files and archived records.
"""

from __future__ import annotations

import gzip
import subprocess
import tempfile
from pathlib import Path

from loom.storage import open_store
from tests.postgres_server import find_programs, running_server
from tests.storage.whole_stores import Clock, lived_in

SCHEMA = "loom_format_1"


def fill(url: str) -> None:
    """Write both namespaces."""
    for name in ("default", "other"):
        store = open_store(url, namespace=name, clock=Clock(), tail=(8, 1 << 20))
        try:
            lived_in(store)  # type: ignore[arg-type]
            if name == "default":
                store.archive()
                store.flush()
        finally:
            store.close()


def main() -> None:
    programs = find_programs()
    assert programs is not None
    with running_server(programs) as server, tempfile.TemporaryDirectory() as folder:
        fill(server.store_url(Path(folder), SCHEMA))
        dump = subprocess.run(
            [programs.folder / "pg_dump", "-n", SCHEMA, "--inserts", "--no-owner", "--no-comments", server.url],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    # Settings of a session and commands of psql are not part of the database.
    session = ("--", "SET ", "SELECT pg_catalog.set_config", "\\")
    lines = [line for line in dump.split("\n") if line and not line.startswith(session)]
    target = Path(__file__).with_name("postgres_format_1.sql.gz")
    target.write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
