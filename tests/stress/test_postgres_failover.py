"""A primary with two synchronous standbys, killed under load: no acknowledged write is lost, and clients follow."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import StoreBusy, StoreUnavailable
from tests.postgres_server import Programs, find_programs
from tests.tally import scaled

psycopg = pytest.importorskip("psycopg")

NAMES = ("a", "b", "c")
THREADS = 4
WITHIN_S = 60.0


@dataclass
class Node:
    """One server of the cluster."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"


@dataclass
class Cluster:
    """A primary and its standbys, each acknowledged by any one of the others."""

    programs: Programs
    root: Path
    nodes: dict[str, Node] = field(default_factory=dict)
    primary: str = "a"

    @property
    def url(self) -> str:
        hosts = ",".join(str(node.folder) for node in self.nodes.values())
        return f"postgresql:///postgres?host={hosts}&user=loom&connect_timeout=2&cache={self.root / 'cache'}"

    def conninfo(self, name: str) -> str:
        return f"host={self.nodes[name].folder} user=loom dbname=postgres"

    def start(self, name: str) -> None:
        node = self.nodes[name]
        others = ", ".join(other for other in NAMES if other != name)
        options = (
            "listen_addresses=",
            "fsync=off",
            "shared_buffers=32MB",
            f"synchronous_standby_names=ANY 1 ({others})",
        )
        node.process = self.programs.start(
            ["-D", str(node.data), "-k", str(node.folder), *(part for one in options for part in ("-c", one))],
            node.folder / "log",
        )
        self.wait(lambda: self.ask(name, "SELECT 1") == 1)

    def copy_of(self, name: str, source: str) -> None:
        """Make a node a standby of another one, with nothing of what it had."""
        shutil.rmtree(self.nodes[name].data, ignore_errors=True)
        self.programs.run(
            "pg_basebackup", "-D", str(self.nodes[name].data), "-R", "-X", "stream", "-c", "fast", "--no-sync",
            "-d", f"{self.conninfo(source)} application_name={name}",
        )  # fmt: skip
        self.start(name)

    def ask(self, name: str, statement: str) -> Any:
        try:
            with psycopg.connect(self.conninfo(name), autocommit=True, connect_timeout=2) as connection:
                return connection.execute(statement).fetchone()[0]
        except psycopg.Error:
            return None

    @staticmethod
    def wait(true: Any) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not true():
            assert time.monotonic() < deadline, "the cluster does not come to what is waited for"

    def kill_primary(self) -> None:
        """Kill it, promote the standby that has received most, and make the others follow."""
        dead = self.nodes[self.primary]
        assert dead.process is not None
        os.killpg(dead.process.pid, signal.SIGKILL)
        dead.process.wait(30)
        left = [name for name in NAMES if name != self.primary]
        received = "SELECT (pg_last_wal_receive_lsn() - '0/0'::pg_lsn)::bigint"
        furthest = max(left, key=lambda name: self.ask(name, received) or 0)
        assert self.ask(furthest, "SELECT pg_promote()")
        for other in left:
            if other != furthest:
                follow = f"{self.conninfo(furthest)} application_name={other}"
                self.ask(other, f"ALTER SYSTEM SET primary_conninfo = '{follow}'")
                self.ask(other, "SELECT pg_reload_conf()")
        self.primary = furthest

    def heal(self, dead: str) -> None:
        """Bring the killed node back as a standby, and wait until there are two."""
        self.copy_of(dead, self.primary)
        self.wait(lambda: (self.ask(self.primary, "SELECT count(*) FROM pg_stat_replication") or 0) >= 2)

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() is None:
                node.process.send_signal(signal.SIGQUIT)
                node.process.wait(30)


@contextmanager
def cluster(programs: Programs) -> Iterator[Cluster]:
    root = Path(tempfile.mkdtemp(prefix="loom-cluster-"))
    programs.own(root)
    made = Cluster(programs, root)
    try:
        for name in NAMES:
            folder = root / name
            folder.mkdir()
            programs.own(folder)
            made.nodes[name] = Node(name, folder)
        first = made.nodes["a"]
        programs.run("initdb", "-D", str(first.data), "-A", "trust", "-U", "loom", "--no-sync", "-E", "UTF8")
        made.start("a")
        made.copy_of("b", "a")
        made.copy_of("c", "a")
        yield made
    finally:
        made.stop()
        shutil.rmtree(root, ignore_errors=True)


def fail_over(kills: int) -> dict[str, Any]:
    """Write from several threads while the primary is killed; what was acknowledged and lost, and the pauses.

    Some threads write entries, in transactions that they do not repeat: each was kept or refused as they were told.
    """
    programs = find_programs()
    assert programs is not None
    acknowledged: list[str] = []
    kept: list[str] = []
    refused: list[str] = []
    unknown: list[str] = []
    times: list[float] = []
    stop = threading.Event()
    pauses: list[float] = []
    with cluster(programs) as servers, loom.open(servers.url, embedder="none", derive=False) as memory:

        def write(thread: int) -> None:
            number = 0
            while not stop.is_set():
                id = f"{thread}-{number}"
                try:
                    memory.remember(f"text {number} of {thread}", id=id)
                except (StoreUnavailable, StoreBusy):
                    continue  # the same id again: safe, whatever became of it
                acknowledged.append(id)
                times.append(time.monotonic())
                number += 1

        def write_entries(thread: int) -> None:
            for number in itertools.count():
                if stop.is_set():
                    return
                key = f"{thread}-{number}"
                try:
                    with memory.store.transaction() as transaction:
                        transaction.put_entry(key, number, writer="w")
                except (StoreUnavailable, StoreBusy) as error:
                    (unknown if "not known" in str(error) else refused).append(key)
                else:
                    kept.append(key)

        with ThreadPoolExecutor(2 * THREADS) as threads:
            writers = [threads.submit(one, thread) for one in (write, write_entries) for thread in range(THREADS)]
            try:
                for _ in range(kills):
                    before = len(times)
                    Cluster.wait(lambda before=before: len(times) >= before + 100)
                    dead, killed_at = servers.primary, time.monotonic()
                    servers.kill_primary()
                    Cluster.wait(lambda killed_at=killed_at: times[-1] > killed_at + 0.05)
                    last = max(one for one in [*times] if one <= killed_at)
                    pauses.append(min(one for one in [*times] if one > killed_at + 0.02) - last)
                    servers.heal(dead)
            finally:
                stop.set()
            for writer in writers:
                writer.result(WITHIN_S * 2)
        lost = [id for id in acknowledged if memory.get(id) is None]
        twice = [id for id in acknowledged if len(memory.history(id)) != 1]
        there = {entry.key for entry in memory.store.entries(limit=10**6)}
        assert memory.check().ok
    return {
        "kills": kills,
        "acknowledged": len(acknowledged),
        "lost": len(lost),
        "twice": len(twice),
        "entries": len(kept),
        "entries_lost": len({*kept} - there),
        "refused": len(refused),
        "refused_and_kept": len(there & {*refused}),
        "unknown": len(unknown),
        "pauses_s": [round(pause, 2) for pause in pauses],
    }


@pytest.mark.soak
@pytest.mark.usefixtures("postgres_server")
def test_no_acknowledged_write_is_lost_when_the_primary_is_killed() -> None:
    found = fail_over(max(1, scaled(5)))
    assert (found["lost"], found["twice"]) == (0, 0)
    assert (found["entries_lost"], found["refused_and_kept"], found["unknown"]) == (0, 0, 0)


if __name__ == "__main__":
    print(json.dumps(fail_over(5)))
