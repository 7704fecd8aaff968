"""The upgrade to format 5: old checksums are verified before new ones are written, and nothing else changes.

What the stored files hold is written in tests/data/stores/make_v1.py to make_v5.py.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import loom
from loom.errors import CorruptStore
from loom.snapshots import merging, taking
from loom.snapshots.sections import KNOWN_SECTIONS
from loom.storage.contract import Filter
from loom.storage.identity import DAMAGED, guard, guard_4, id_hash, id_hash_4
from loom.storage.sqlite import schema
from loom.storage.sqlite.store import SqliteStore
from tests.crash.forking import run

DATA = Path(__file__).parent.parent / "data"
NAMESPACES = ("default", "tiers", "knowledge", "waiting")

_FIND = """
import json, sys
from pathlib import Path
needles = [needle.encode() for needle in json.loads(sys.argv[2])]
print(json.dumps([[str(path), needle.decode()] for path in Path(sys.argv[1]).rglob("*") if path.is_file()
    for needle in needles if needle in path.read_bytes()]))
"""


def copied(tmp_path: Path, name: str = "v4.loom") -> Path:
    path = tmp_path / name
    shutil.copy(DATA / "stores" / name, path)
    return path


def damage(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement).rowcount == 1
        connection.commit()


def test_every_row_of_an_old_store_keeps_its_values(tmp_path: Path) -> None:
    path = copied(tmp_path)
    columns = "seq, namespace, id, version, tier, kind, node, session, tokens, committed_at, metadata, data, content"
    more = "SELECT key, version, content, created_at, updated_at FROM entries ORDER BY seq"
    with closing(sqlite3.connect(path)) as connection:
        before = connection.execute(f"SELECT {columns}, block, window_tokens FROM records ORDER BY seq").fetchall()
        entries = connection.execute(more).fetchall()
        edges = connection.execute(
            "SELECT s.id, d.id FROM edges e JOIN records s ON s.id_hash = e.source AND s.version = 1 "
            "JOIN records d ON d.id_hash = e.derived AND d.version = 1 ORDER BY 1, 2"
        ).fetchall()
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.current_version(),)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        after = connection.execute(f"SELECT {columns}, block, window_tokens FROM records ORDER BY seq").fetchall()
        assert after == before
        assert connection.execute(more).fetchall() == entries
        assert edges
        assert (
            edges
            == connection.execute(
                "SELECT s.id, d.id FROM edges e JOIN records s ON s.seq = e.source "
                "JOIN records d ON d.seq = e.derived ORDER BY 1, 2"
            ).fetchall()
        )
        hashes = connection.execute("SELECT namespace, id, id_hash FROM records WHERE version > 0").fetchall()
        assert all(id_hash(namespace, id) == found for namespace, id, found in hashes)
        tables = {
            row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%\\_5' ESCAPE '\\'")
        }
        assert tables == set()
    for namespace in NAMESPACES:
        store = SqliteStore(path, namespace=namespace)
        assert store.check().ok
        store.close()


def test_an_upgraded_store_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    def tables(path: Path) -> set[tuple[str, ...]]:
        SqliteStore(path).close()
        with closing(sqlite3.connect(path)) as connection:
            return {
                (kind, name, str([row[1:] for row in connection.execute(f"PRAGMA table_xinfo('{name}')")]))
                for kind, name in connection.execute("SELECT type, name FROM sqlite_schema")
            }

    new = tables(tmp_path / "new.loom")
    for version in range(1, 6):
        assert tables(copied(tmp_path, f"v{version}.loom")) == new


@pytest.mark.parametrize(
    ("statement", "namespace", "named"),
    [
        ("UPDATE records SET content = 'another text' WHERE id = 'english' AND namespace = 1", "default", "english"),
        ("UPDATE records SET checksum = checksum + 1 WHERE id = 'chinese'", "default", "chinese"),
        ("UPDATE records SET importance = 0.1 WHERE id = 'english' AND namespace = 1", "default", "english"),
        ("UPDATE records SET content = CAST(x'ff00fe' AS TEXT) WHERE id = 'w0'", "waiting", "w0"),
        ("UPDATE records SET content = content || '!' WHERE id = 'w1'", "waiting", "w1"),
        ("UPDATE records SET metadata = '{}' WHERE id = 'm17'", "knowledge", "m17"),
    ],
)
def test_a_damaged_record_is_damaged_after_the_upgrade(
    tmp_path: Path, statement: str, namespace: str, named: str
) -> None:
    path = copied(tmp_path)
    damage(path, statement)
    with loom.open(path, namespace=namespace, embedder="none") as memory:
        for _ in range(2):
            with pytest.raises(CorruptStore):
                memory.get(named)
            memory.flush()
            assert len(memory.check().problems) == 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT checksum FROM records WHERE checksum > ?", (1 << 33,)).fetchall() == [
            (DAMAGED,)
        ]


def test_a_damaged_entry_is_damaged_after_the_upgrade(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        seq, key, name = connection.execute(
            "SELECT e.seq, e.key, n.name FROM entries e JOIN namespaces n ON n.number = e.namespace "
            "WHERE NOT e.deleted ORDER BY e.seq DESC LIMIT 1"
        ).fetchone()
    damage(path, f"UPDATE entries SET content = '\"other\"' WHERE seq = {seq}")
    store = SqliteStore(path, namespace=name)
    assert [key in problem for problem in store.check().problems] == [True]
    store.close()


def test_a_damaged_block_is_damaged_after_the_upgrade(tmp_path: Path) -> None:
    path = copied(tmp_path)
    damage(path, "UPDATE blocks SET data = zeroblob(length(data)) WHERE number = (SELECT min(number) FROM blocks)")
    store = SqliteStore(path, namespace="knowledge")
    problems = store.check().problems
    assert problems
    assert all("block" in problem for problem in problems)
    store.close()


def test_what_is_forgotten_after_the_upgrade_leaves_no_trace(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with loom.open(path, embedder="none") as memory:
        text = memory.get("english")
        assert text is not None
        memory.forget("english")
    store = SqliteStore(path, namespace="waiting")
    store.forget(Filter(ids=["w0", "w2"]))
    store.close()
    needles = [text.content, "one word more than there was", "We moved the meeting"]
    found = subprocess.run(
        [sys.executable, "-c", _FIND, str(tmp_path), json.dumps(needles)], capture_output=True, text=True, check=True
    )
    assert json.loads(found.stdout) == []


_KILLED = """
import os, signal, sys
from loom import steps
from loom.storage.sqlite.store import SqliteStore
owner, name = steps.find("upgrade.copy")
original, calls = getattr(owner, name), []
def copy(*given):
    calls.append(1)
    original(*given)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, copy)
SqliteStore(sys.argv[1])
"""


@pytest.mark.parametrize("call", [1, 2])
def test_a_kill_inside_the_upgrade_leaves_the_old_store(tmp_path: Path, call: int) -> None:
    path = copied(tmp_path)
    killed = run(_KILLED, str(path), str(call))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (4,)
    with loom.open(path, embedder="none") as memory:
        assert memory.check().ok
        assert memory.get("english") is not None


def test_a_checksum_holds_neither_sequence_number_nor_commit_time() -> None:
    row = (1, 2, 3, 4, "id", 1, "l1", "k", "n", "s", "r", "me", "t", "s", "f", "l", 0.5, 7, "c", 8, 9, "{}", "1", "x")
    assert guard(row) == guard((100, *row[1:20], 900, *row[21:]))
    for place in {*range(24)} - {0, 20}:
        assert guard(row) != guard((*row[:place], "other", *row[place + 1 :])), place


def test_a_hash_takes_all_bits_of_a_signed_number() -> None:
    hashes = [id_hash(1, f"id {number}") for number in range(2_000)]
    assert min(hashes) < -(1 << 62)
    assert max(hashes) > 1 << 62
    assert all(-(1 << 63) <= found < 1 << 63 for found in hashes)
    assert id_hash(1, "01" + "A" * 24) >> 48 == id_hash(1, "01" + "A" * 23 + "B") >> 48


def test_a_snapshot_taken_in_format_4_is_continued_after_the_upgrade(tmp_path: Path) -> None:
    """Its anchors are checksums of format 4."""
    path = copied(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT seq, namespace, id_hash, session_hash, id, version, tier, kind, node, session, role, name, "
            "trust, subject, flow, layer, importance, tokens, counter, created_at, committed_at, metadata, data, "
            "content, checksum FROM records WHERE namespace = 1 AND version > 0 AND block IS NULL"
        ).fetchall()
        entries = connection.execute("SELECT seq, checksum FROM entries WHERE NOT deleted").fetchall()
    assert all(guard_4(row[:24]) == row[24] and id_hash_4(row[1], row[4]) == row[2] for row in rows)
    store = SqliteStore(path)
    taken = taking.take(store, tmp_path / "a.hctx")
    with taking.opened(taken.path) as reader:
        start = taking.read_start(reader.sections(KNOWN_SECTIONS), reader.header)
    old = start._replace(anchors={"records": [(row[0], row[24]) for row in rows], "entries": entries})
    with store.copying() as copy:
        assert taking.descends(copy, old)
        for kind, anchors in old.anchors.items():
            assert anchors
            wrong = [(number, checksum ^ 1) for number, checksum in anchors]
            assert not taking.descends(copy, old._replace(anchors={**old.anchors, kind: wrong}))
    store.close()


def test_a_snapshot_of_format_4_restores(tmp_path: Path) -> None:
    loom.restore(DATA / "snapshots" / "v1.hctx", tmp_path / "a.loom")
    chain = [DATA / "snapshots" / "v1.hctx", DATA / "snapshots" / "v1-continued.hctx"]
    store = SqliteStore(tmp_path / "a.loom")
    merging.restore_into(store, chain)
    assert store.check().ok
    store.close()


def test_a_stored_file_of_format_5_is_as_it_was_left(tmp_path: Path) -> None:
    store = SqliteStore(copied(tmp_path, "v5.loom"), namespace="named")
    assert [record.content[-11:] for record in store.history("kept")] == ["north shed.", "south shed."]
    assert store.neighbours("made") == (("kept",), ())
    assert store.pinned("kept")
    entry = store.entry("harbour")
    assert entry is not None
    assert entry.content == {"cranes": 4}
    assert store.forget(Filter(ids=["kept"])).derived == 1
    assert store.check().ok
    store.close()
