"""Namespaces: the operations of a handle on other namespaces, and forgetting one."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

import loom
from loom import steps
from loom.errors import InvalidInput, NotFound, ReadOnly
from loom.models.embedders import FakeEmbedder
from loom.settings import Settings
from loom.storage.contract import Draft

MOMENT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)

_FIND = """
import json, sys
from pathlib import Path
needles = [needle.encode() for needle in json.loads(sys.argv[2])]
print(json.dumps([[str(path), needle.decode()] for path in Path(sys.argv[1]).rglob("*") if path.is_file()
    for needle in needles if needle in path.read_bytes() or needle.decode() in path.name]))
"""


def leftovers(folder: Path, *needles: str) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _FIND, str(folder), json.dumps(needles)], capture_output=True, text=True, check=True
    )
    found: list[list[str]] = json.loads(done.stdout)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "agents.loom"
    for name in ("alicemark", "bobmark"):
        with loom.open(path, namespace=name, embedder=FakeEmbedder(16), index_tail_records=10) as memory:
            for number in range(60):
                memory.remember(f"note {number} of {name}words", id=f"{name}id{number}", session_id=f"{name}session")
            memory.update(f"{name}id3", f"newer {name}words")
            memory.pin(f"{name}id4")
            with memory.store.transaction() as transaction:
                transaction.put_entry(f"{name}key", {"says": f"{name}value"}, writer=f"{name}writer", scope="pool")
                transaction.put_blob(f"{name}blob", f"{name}bytes".encode())
                transaction.append([Draft("made", "made", MOMENT, sources=(f"{name}later",))])
            memory.context("which note?", session_id=f"{name}session", budget=500)
            memory.archive()
            memory.flush()
    return path


def test_a_handle_on_one_namespace_neither_lists_nor_takes_others(path: Path, tmp_path: Path) -> None:
    with loom.open(path, namespace="bobmark", embedder="none") as memory:
        for wish in (
            memory.namespaces,
            lambda: memory.store.namespaces(),
            lambda: memory.snapshot(tmp_path / "a.hctx", namespaces=["alicemark"]),
            lambda: memory.snapshot(tmp_path / "a.hctx", namespaces=["bobmark", "alicemark"]),
            lambda: memory.snapshot(tmp_path / "a.hctx", namespaces=["nobody"]),
            lambda: memory.forget_namespace("alicemark"),
            lambda: memory.forget_namespace("bobmark"),
        ):
            with pytest.raises(InvalidInput, match="all_namespaces=True") as raised:
                wish()
            assert "alicemark" not in str(raised.value).replace("'alicemark'", "asked")
        assert not (tmp_path / "a.hctx").exists()
        assert memory.snapshot(tmp_path / "a.hctx", namespaces=["bobmark"]).namespaces == ("bobmark",)


def test_opening_all_namespaces_is_no_setting_of_a_variable_or_a_file() -> None:
    assert "all_namespaces" not in {field.name for field in fields(Settings)}


def test_a_handle_that_asked_for_them_lists_and_takes_all(path: Path, tmp_path: Path) -> None:
    with loom.open(path, namespace="bobmark", embedder="none", all_namespaces=True) as memory:
        assert memory.namespaces() == ("alicemark", "bobmark")
        made = memory.snapshot(tmp_path / "a.hctx", namespaces=["alicemark", "bobmark"])
        assert made.namespaces == ("alicemark", "bobmark")


def test_a_forgotten_namespace_leaves_no_trace_and_the_others_whole(path: Path, tmp_path: Path) -> None:
    assert leftovers(tmp_path, "alicemark")
    with loom.open(path, namespace="bobmark", embedder=FakeEmbedder(16), all_namespaces=True) as memory:
        before = memory.get_stats()
        receipt = memory.forget_namespace("alicemark")
        assert receipt.records == 62
        assert memory.namespaces() == ("bobmark",)
        assert leftovers(tmp_path, "alicemark") == []
        assert memory.check().ok
        after = memory.get_stats()
        assert {name: after[name] for name in ("records", "entries", "vectors", "tokens")} == {
            name: before[name] for name in ("records", "entries", "vectors", "tokens")
        }
        assert memory.recall("note 7")[0].content == "note 7 of bobmarkwords"
        with pytest.raises(NotFound):
            memory.forget_namespace("alicemark")
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            if "namespace" in columns and table != "forgotten":
                (count,) = connection.execute(f"SELECT count(*) FROM {table} WHERE namespace = 1").fetchone()
                assert count == 0, table
    with loom.open(path, namespace="alicemark", embedder="none") as memory:
        assert memory.get_stats()["records"] == 0
        memory.remember("a new beginning")
        assert memory.check().ok


def test_a_handle_on_a_forgotten_namespace_writes_nothing(path: Path) -> None:
    with (
        loom.open(path, namespace="alicemark", embedder="none") as stale,
        loom.open(path, namespace="bobmark", embedder="none", all_namespaces=True) as memory,
    ):
        memory.forget_namespace("alicemark")
        assert stale.recall("note 7") == []
        with pytest.raises(NotFound, match="open it again"):
            stale.remember("too late")
        with loom.open(path, namespace="third", embedder="none") as third:
            third.remember("of the third")
            assert stale.list().records == ()
        with pytest.raises(NotFound, match="open it again"):
            stale.remember("too late")


def test_the_own_namespace_can_be_forgotten(path: Path) -> None:
    with loom.open(path, namespace="bobmark", embedder="none", all_namespaces=True) as memory:
        memory.forget_namespace("bobmark")
        assert memory.namespaces() == ("alicemark",)
        with pytest.raises(NotFound, match="open it again"):
            memory.remember("too late")


def test_a_namespace_in_memory_is_forgotten_too() -> None:
    with loom.open(embedder="none", all_namespaces=True) as memory:
        memory.remember("some words")
        assert memory.forget_namespace("default").records == 1
        assert memory.namespaces() == ()


def test_a_namespace_of_a_server_is_forgotten_and_the_others_stay_whole(postgres_url: str) -> None:
    import psycopg

    from loom.storage.postgres.connections import Address

    for namespace in ("alicemark", "bobmark"):
        with loom.open(postgres_url, namespace=namespace, embedder=FakeEmbedder(16)) as memory:
            memory.remember([f"note {number} of {namespace}words" for number in range(6)])
            assert memory.flush().complete
    with loom.open(postgres_url, namespace="bobmark", embedder=FakeEmbedder(16), all_namespaces=True) as memory:
        assert memory.forget_namespace("alicemark").records == 6
        assert memory.namespaces() == ("bobmark",)
        assert memory.check().ok
        assert memory.recall("note 3")[0].content == "note 3 of bobmarkwords"
        assert (memory.get_stats()["records"], memory.get_stats()["vectors"]) == (6, 6)
        with pytest.raises(NotFound):
            memory.forget_namespace("alicemark")
    address = Address.of(postgres_url)
    with psycopg.connect(address.conninfo) as connection:
        connection.execute("SELECT set_config('search_path', %s, true)", [address.schema])
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", [address.schema]
        ).fetchall()
        holding = {
            word: [
                table
                for (table,) in tables
                for needle in (word, word.encode().hex())
                if connection.execute(f"SELECT 1 FROM {table} t WHERE t::text LIKE '%{needle}%' LIMIT 1").fetchone()
            ]
            for word in ("alicemark", "bobmark")
        }
    assert holding["alicemark"] == []
    assert holding["bobmark"]


def test_a_reader_forgets_no_namespace(path: Path) -> None:
    with (
        loom.open(path, namespace="bobmark", embedder="none", read_only=True, all_namespaces=True) as memory,
        pytest.raises(ReadOnly),
    ):
        memory.forget_namespace("alicemark")


def test_it_can_be_called_again_after_a_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(engine: object) -> None:
        raise OSError("the disk is gone")

    with loom.open(path, namespace="bobmark", embedder="none", all_namespaces=True) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(*steps.find("vacuum.shrink"), fails)
            with pytest.raises(OSError, match="the disk is gone"):
                memory.forget_namespace("alicemark")
        assert memory.namespaces() == ("alicemark", "bobmark")
        memory.forget_namespace("alicemark")
        assert memory.namespaces() == ("bobmark",)
    assert leftovers(path.parent, "alicemark") == []
