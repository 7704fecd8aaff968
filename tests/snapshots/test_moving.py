"""`loom migrate`: a memory in another store, unchanged."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.cli import main
from loom.errors import StoreError, StoreUnavailable
from loom.memory import SharedMemoryPool
from loom.snapshots.moving import move_namespace
from loom.snapshots.taking import describe
from loom.storage import open_store
from loom.storage.contract import Filter
from tests.postgres_server import PostgresServer


def fill(place: str | Path, namespace: str = "default") -> None:
    with loom.open(place, namespace=namespace, embedder="none", l1_token_budget=500) as memory:
        memory.remember(
            "The harbour opens at nine. 港口九点开门。", id="harbour", session_id="s1", metadata={"page": 3}
        )
        memory.update("harbour", "The harbour opens at ten. 港口十点开门。")
        memory.remember([{"role": "user", "content": f"Crate {number} is on deck {number}."} for number in range(30)])
        memory.pin("harbour")
        with SharedMemoryPool("crew", store=memory.store) as pool:
            asyncio.run(pool.write("plan", {"leave": "at dawn"}, writer_id="ana"))
        memory.flush()


def told(place: str | Path, namespace: str = "default") -> dict[str, Any]:
    """The description of a memory, without its location."""
    with loom.open(place, namespace=namespace, embedder="none") as memory:
        page = memory.list(limit=200, newest_first=False)
        with SharedMemoryPool("crew", store=memory.store) as pool:
            entry = asyncio.run(pool.read("plan"))
        return {
            "records": [record.to_dict() | {"seq": 0, "tier": ""} for record in page],
            "history": [record.content for record in memory.history("harbour")],
            "hits": [(hit.id, hit.score) for hit in memory.recall("When does the harbour open?")],
            "plan": entry and (entry.content, entry.version),
            "budget": memory.settings.l1_token_budget,
        }


def migrate(source: str | Path, target: str | Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main(["migrate", str(source), str(target), *more, "--json"]) == 0, capsys.readouterr()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_every_namespace_of_a_file_is_moved_and_a_second_move_adds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "a.loom", tmp_path / "b.loom"
    for namespace in ("default", "team"):
        fill(source, namespace)
    moved = migrate(source, target, capsys)
    assert [one["namespace"] for one in moved["namespaces"]] == ["default", "team"]
    assert moved["records"] >= 64
    for namespace in ("default", "team"):
        assert told(target, namespace) == told(source, namespace)
    assert migrate(source, target, capsys)["records"] == 0


def test_a_snapshot_is_a_source_and_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "a.loom")
    migrate(tmp_path / "a.loom", tmp_path / "a.hctx", capsys)
    migrate(tmp_path / "a.hctx", tmp_path / "b.loom", capsys)
    assert told(tmp_path / "b.loom") == told(tmp_path / "a.loom")


def test_a_memory_moves_to_a_server_and_back(
    tmp_path: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a.loom")
    migrate(tmp_path / "a.loom", postgres_url, capsys)
    assert told(postgres_url) == told(tmp_path / "a.loom")
    migrate(postgres_url, tmp_path / "b.loom", capsys)
    assert told(tmp_path / "b.loom") == told(tmp_path / "a.loom")


@pytest.mark.parametrize("names", [("team",), ("default", "team")], ids=["of a namespace", "of all"])
def test_a_backup_of_a_server_is_moved_to_another_one_and_to_a_file(
    tmp_path: Path, postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str], names: tuple[str, ...]
) -> None:
    """The backup keeps the numbers of the server, where each namespace has a range of its own."""
    source, target = (postgres_server.store_url(tmp_path / name) for name in ("one", "two"))
    for namespace in ("default", "team"):
        fill(source, namespace)
    fill(target, "other")  # so that the ranges differ
    with loom.open(source, namespace="team", embedder="none", all_namespaces=len(names) > 1) as memory:
        memory.backup(tmp_path / "copy.loom")
    with loom.open(tmp_path / "copy.loom", namespace="team", embedder="none") as copy:
        copy.remember("Written into the copy.", id="later")
    for goal in (target, tmp_path / "b.loom"):
        moved = migrate(tmp_path / "copy.loom", goal, capsys)
        assert [one["namespace"] for one in moved["namespaces"]] == [*names]
        for namespace in names:
            assert told(goal, namespace) == told(tmp_path / "copy.loom", namespace)
        with loom.open(goal, namespace="team", embedder="none") as memory:
            assert memory.get("later") is not None
            memory.remember("Written after the move.")
            assert memory.check().ok
        assert migrate(tmp_path / "copy.loom", goal, capsys)["records"] == 0


def test_a_snapshot_is_restored_onto_an_empty_server_with_all_its_namespaces(
    tmp_path: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for namespace in ("default", "team"):
        fill(tmp_path / "a.loom", namespace)
    shot = tmp_path / "a.hctx"
    assert main(["snapshot", str(shot), "--store", str(tmp_path / "a.loom")]) == 0
    done = loom.restore(shot, postgres_url)
    assert (done.path, done.namespaces) == (None, ("default", "team"))
    assert done.records == describe(shot).records
    for namespace in ("default", "team"):
        assert told(postgres_url, namespace) == told(tmp_path / "a.loom", namespace)
    with pytest.raises(StoreUnavailable, match="not empty"):
        loom.restore(shot, postgres_url)
    capsys.readouterr()
    url = postgres_url.replace("schema=", "schema=again_")
    assert main(["restore", str(shot), "--store", url]) == 0, capsys.readouterr()
    assert told(url) == told(tmp_path / "a.loom")


def test_a_namespace_with_another_text_under_an_id_stays_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a.loom")
    with loom.open(tmp_path / "b.loom", embedder="none") as memory:
        memory.remember("The harbour is closed.", id="harbour")
    assert main(["migrate", str(tmp_path / "a.loom"), str(tmp_path / "b.loom")]) == 2
    assert "harbour" in capsys.readouterr().err
    with loom.open(tmp_path / "b.loom", embedder="none") as memory:
        assert [record.content for record in memory.list()] == ["The harbour is closed."]


def test_a_memory_that_does_not_arrive_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "a.loom")
    fill(tmp_path / "other.loom")
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember("Only here.", id="lost")
        memory.flush()
    with (
        closing(open_store(tmp_path / "a.loom", read_only=True)) as source,
        closing(open_store(tmp_path / "b.loom")) as target,
    ):
        real = move_namespace.__globals__["restore_into"]

        def forgetful(*given: Any, **more: Any) -> Any:
            done = real(*given, **more)
            target.forget(Filter(ids=("lost",)))
            return done

        monkeypatch.setattr("loom.snapshots.moving.restore_into", forgetful)
        with pytest.raises(StoreError, match="records 'lost'"):
            move_namespace(source, target, tmp_path)
