"""Forgetting the values of scopes and pools, and the layouts of prompts."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import loom
from loom.context.layout import SCOPE
from loom.snapshots.staging import restore
from loom.storage.identity import session_key
from loom.storage.sqlite.store import SqliteStore

_FIND = """
import json, sys
from pathlib import Path
needles = [needle.encode() for needle in json.loads(sys.argv[2])]
print(json.dumps([[str(path), needle.decode()] for path in Path(sys.argv[1]).rglob("*") if path.is_file()
    for needle in needles if needle in path.read_bytes()]))
"""


def leftovers(folder: Path, *needles: str) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _FIND, str(folder), json.dumps(needles)], capture_output=True, text=True, check=True
    )
    found: list[list[str]] = json.loads(done.stdout)
    return found


def converse(memory: loom.Memory, session: str) -> list[str]:
    ids = [f"{session}{number}" for number in range(6)]
    for number, id in enumerate(ids):
        role = "user" if number % 2 == 0 else "assistant"
        memory.remember(f"turn {number} about herons", id=id, role=role, session_id=session)
        memory.context("what about herons?", session_id=session, budget=600)
    return ids


def layouts(path: Path) -> list[tuple[str, str | None]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT key, content FROM entries WHERE scope = ?", (SCOPE,)).fetchall()


def test_a_layout_is_kept_under_a_salted_digest_and_without_history(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        converse(memory, "alice")
        memory.context("what about herons?", session_id="alice", budget=90)  # it has no room for the earlier prompt
        key = session_key(memory.store.store_id, "alice")
        plain = hashlib.blake2b(b"alice", digest_size=16).hexdigest()
        assert key != plain
        assert key != session_key("another store", "alice")
        entries = memory.store.entries(scope=SCOPE, owner="default")
        assert any(entry.version > 1 for entry in entries)
        for entry in entries:
            assert entry.key.startswith(key)
            assert len(memory.store.entry_history(entry.key, scope=SCOPE, owner="default")) == 1
    assert leftovers(tmp_path, plain) == []


def test_the_layout_of_a_session_goes_with_its_records(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        first = converse(memory, "alice")
        converse(memory, "bob")
        alice, bob = (session_key(memory.store.store_id, name) for name in ("alice", "bob"))
        memory.forget(first[0])
        keys = [key for key, _ in layouts(tmp_path / "a.loom")]
        assert keys
        assert all(key.startswith(bob) for key in keys)
        built = memory.context("what about herons?", session_id="alice", budget=600)
        assert any("turn 5" in str(message) for message in built.to_openai())
        memory.forget(session_id="alice")
        memory.forget(session_id="bob")
        assert layouts(tmp_path / "a.loom") == []
        assert leftovers(tmp_path, alice, bob) == []
        assert memory.check().ok
        memory.vacuum()
        assert memory.check().ok


def test_a_snapshot_after_forgetting_brings_no_layout_back(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        ids = converse(memory, "alice")
        memory.snapshot(tmp_path / "0.hctx")
        memory.forget(ids)
        memory.snapshot(tmp_path / "1.hctx", parent=tmp_path / "0.hctx")
    restore([tmp_path / "0.hctx", tmp_path / "1.hctx"], tmp_path / "b.loom")
    assert layouts(tmp_path / "b.loom") == []
    restore(tmp_path / "0.hctx", tmp_path / "c.loom")
    assert layouts(tmp_path / "c.loom")


def test_values_of_scopes_and_pools_are_forgotten_with_their_history(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.loom")
    other = SqliteStore(tmp_path / "a.loom", namespace="other")
    for one in (store, other):
        for version in range(3):
            with one.transaction() as transaction:
                for scope, owner, key in (
                    ("pool", "p1", "a"),
                    ("pool", "p1", "b"),
                    ("pool", "p2", "a"),
                    ("local", "n", "a"),
                ):
                    said = f"{one.namespace}-{scope}-{owner}-{key}-value{version}"
                    transaction.put_entry(key, said, writer=f"writer of {key}", scope=scope, owner=owner)
    assert store.forget_entries("pool", owner="p1", key="a") == 1
    assert store.entry("a", scope="pool", owner="p1") is None
    assert store.entry_history("a", scope="pool", owner="p1") == []
    assert leftovers(tmp_path, "default-pool-p1-a-value") == []
    assert store.forget_entries("pool", owner="p1", key="a") == 0
    assert store.forget_entries("pool") == 2
    assert leftovers(tmp_path, "default-pool-") == []
    assert store.entry("a", scope="local", owner="n") is not None
    assert len(other.entry_history("a", scope="pool", owner="p1")) == 3
    assert store.forget_entries("local") == 1
    for one in (store, other):
        assert one.check().ok
    other.forget_entries("pool")
    other.forget_entries("local")
    assert leftovers(tmp_path, "writer of", "-value") == []
    with store.transaction() as transaction:
        assert transaction.put_entry("a", "again", writer="w", scope="pool", owner="p1").version == 5
    store.close()
    other.close()
