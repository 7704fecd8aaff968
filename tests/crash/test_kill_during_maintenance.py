"""SIGKILL during a schema upgrade, a backup, a vacuum and while everything is embedded again."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import UnsupportedStore
from loom.models.embedders import FakeEmbedder
from loom.storage.sqlite import schema
from tests.crash.processes import Child, Point, assert_found, assert_sound, named, point, unique_word

LEASE_S = 0.2


def texts(count: int) -> dict[str, str]:
    return {f"one-{number}": f"{unique_word(number)} written alone" for number in range(count)}


def fill(path: Path, count: int, **options: Any) -> dict[str, str]:
    written = texts(count)
    with loom.open(path, embedder=options.pop("embedder", "none"), **options) as memory:
        memory.remember([{"id": name, "content": text} for name, text in written.items()])
        assert memory.flush().complete
    return written


def format_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


# -- schema upgrade ---------------------------------------------------------------------------------------------


def test_a_kill_inside_a_schema_upgrade_leaves_the_old_format_unharmed(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    written = fill(path, 50, index_tail_records=10)
    # 60,000 rows of 400 bytes: far more than the page cache, so the upgrade is in the WAL when the kill comes.
    with Child("upgrade", path=str(path), rows=60_000, die=True) as child:
        assert child.wait_for_death() == ["upgrading"]
    assert (tmp_path / "agent.loom-wal").stat().st_size > 20_000_000
    assert format_of(path) == schema.current_version()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE '%extra%'").fetchall() == []
    with loom.open(path, embedder="none", index_tail_records=10) as memory:
        assert_found(memory, written)
        assert_sound(memory)


def test_an_upgrade_that_was_killed_runs_whole_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    written = fill(path, 50)
    with Child("upgrade", path=str(path), rows=1000, die=True) as child:
        child.wait_for_death()
    with Child("upgrade", path=str(path), rows=1000, die=False) as child:
        assert child.finish() == ["upgrading", '{"records": 51, "problems": []}']
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM extra").fetchone() == (1000,)
        assert connection.execute("SELECT DISTINCT extra FROM records").fetchall() == [(7,)]
        kept = dict(connection.execute("SELECT id, content FROM records WHERE id LIKE 'one-%'").fetchall())
    assert kept == written
    with pytest.raises(UnsupportedStore):
        loom.open(path, embedder="none")


def test_kills_at_random_moments_of_an_upgrade_leave_the_old_or_the_new_format_whole(tmp_path: Path) -> None:
    chance = random.Random(5)
    written = fill(tmp_path / "agent.loom", 50)
    for number in range(4):
        path = tmp_path / f"copy-{number}.loom"
        path.write_bytes((tmp_path / "agent.loom").read_bytes())
        with Child("upgrade", path=str(path), rows=20_000, die=False) as child:
            assert child.line() == "upgrading"
            time.sleep(chance.random() * 0.06)  # chooses the moment; waits for nothing
            child.kill()
        if format_of(path) == schema.current_version():
            with loom.open(path, embedder="none") as memory:
                assert_found(memory, written)
                assert_sound(memory)
        else:
            with Child("upgrade", path=str(path), rows=20_000, die=False) as child:
                assert child.finish() == ['{"records": 51, "problems": []}']


def test_two_processes_that_upgrade_at_once_do_it_once(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    fill(path, 50)
    arguments = {"path": str(path), "rows": 5000, "die": False}
    with Child("upgrade", **arguments) as first, Child("upgrade", **arguments) as second:
        for child in (first, second):
            assert child.finish()[-1] == '{"records": 51, "problems": []}'
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM extra").fetchone() == (5000,)


def test_two_processes_that_create_the_same_file_at_once_share_one_store(tmp_path: Path) -> None:
    for number in range(2):
        path = str(tmp_path / f"new-{number}.loom")
        with (
            Child("write_one_by_one", path=path, first=0, count=20) as first,
            Child("write_one_by_one", path=path, first=20, count=20) as second,
            Child("write_one_by_one", path=path, first=40, count=20) as third,
        ):
            for child in (first, second, third):
                assert len(child.finish()) == 20
        with loom.open(path, embedder="none") as memory:
            assert_found(memory, texts(60))
            assert_sound(memory)


# -- backup -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("when", "expected"), [("before", False), ("after", True)])
def test_a_kill_around_the_last_step_of_a_backup_leaves_it_absent_or_complete(
    tmp_path: Path, when: str, expected: bool
) -> None:
    path, target = tmp_path / "agent.loom", tmp_path / "copy.loom"
    written = fill(path, 30)
    armed = {"target": "os:replace", "when": when}
    with Child("back_up", path=str(path), target=str(target), count=1, armed=armed) as child:
        assert child.wait_for_death() == ["open"]
    assert target.exists() == expected
    if expected:
        with loom.open(target, embedder="none") as copy:
            assert_found(copy, written)
            assert copy.get_stats()["records"] == 31
            assert_sound(copy)
    with loom.open(path, embedder="none") as memory:
        memory.backup(target)
        assert_found(memory, written)
        assert_sound(memory)
    with loom.open(target, embedder="none") as copy:
        assert_found(copy, written)


def test_a_backup_killed_at_a_random_moment_is_the_earlier_one_or_the_new_one_whole(tmp_path: Path) -> None:
    chance = random.Random(8)
    path, target = tmp_path / "agent.loom", tmp_path / "copy.loom"
    written = fill(path, 300)
    least = 0
    for _ in range(4):
        with Child("back_up", path=str(path), target=str(target), count=100_000) as child:
            assert child.line() == "open"
            acknowledged = [child.line() for _ in range(chance.randint(0, 3))]
            time.sleep(chance.random() * 0.02)  # chooses the moment; waits for nothing
            acknowledged += child.kill()
        least = max([least, *map(int, acknowledged)])
        assert target.exists() or not least
        if target.exists():
            with loom.open(target, embedder="none") as copy:
                assert copy.get_stats()["records"] >= least
                assert_found(copy, dict(list(written.items())[::50]))
                assert_sound(copy)


# -- vacuum -----------------------------------------------------------------------------------------------------


def test_kills_at_random_moments_of_a_vacuum_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(2)
    path = tmp_path / "agent.loom"
    first = 0
    for _ in range(4):
        with Child("vacuum", path=str(path), first=first, count=100_000, lease_s=LEASE_S) as child:
            acknowledged = [int(child.line()) for _ in range(chance.randint(1, 5))]
            time.sleep(chance.random() * 0.02)  # chooses the moment; waits for nothing
            acknowledged += map(int, child.kill())
        first = acknowledged[-1] + 1
        with loom.open(path, embedder="none", lease_s=LEASE_S) as memory:
            assert_found(
                memory, {f"one-{number}": f"{unique_word(number)} kept" for number in range(acknowledged[-1] + 1)}
            )
            assert_sound(memory)
            if memory.get(f"one-{first}") is not None:
                first += 1
            memory.forget([f"large-{first - 1}", f"large-{first}"])


# -- embedding again --------------------------------------------------------------------------------------------

CHANGES = [
    point("space.switch", "before"),
    point("space.change", "after"),  # in the transaction, not committed
    point("space.switch", "after"),  # the old vectors are gone
    point("transaction.put_vectors", "before", 2),
    point("embedding.delete_jobs", "after", 2),
    point("projection.write_file", "after"),
    point("projection.record", "after", 2),
]


@pytest.mark.parametrize("armed", CHANGES, ids=named)
def test_a_kill_while_everything_is_embedded_again_never_mixes_spaces(tmp_path: Path, armed: Point) -> None:
    path = tmp_path / "agent.loom"
    before, after = FakeEmbedder(dimensions=16, seed=0), FakeEmbedder(dimensions=16, seed=1)
    written = fill(path, 200, embedder=before, index_tail_records=20)
    with Child(
        "embed_again", path=str(path), seed_of_embedder=1, index_tail_records=20, lease_s=LEASE_S, armed=armed
    ) as child:
        child.wait_for_death()
    with loom.open(path, embedder=after, reconfigure=True, index_tail_records=20, lease_s=LEASE_S) as memory:
        assert_found(memory, dict(list(written.items())[::20]))
        assert memory.flush().complete
        assert memory.get_stats()["vectors"] == len(written)
        assert memory.store.space == (after.name, after.dimensions)
        assert_found(memory, dict(list(written.items())[::20]))
        assert_sound(memory)
        text = written["one-123"]
        (best,) = memory.recall(text, limit=1)
        assert best.signals["meaning"] == pytest.approx(1.0, abs=1e-2)
