"""Snapshots as a memory sees them: tiers within budget, facts and prompts that continue, sync and async, the
commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import cli
from loom.context.layout import SCOPE
from loom.errors import IdConflict, SnapshotError
from loom.everyday import Memory
from loom.memory.shared_pool import SharedMemoryPool
from loom.models.embedders import FakeEmbedder
from loom.protocol import Task

BUDGETS: dict[str, Any] = {
    "l1_token_budget": 60,
    "l2_token_budget": 120,
    "l3_token_budget": 90,
    "l4_token_budget": 150,
}


def opened(path: Path, **options: Any) -> Memory:
    return loom.open(path, **{"embedder": "none", "derive": False, **options})


def live(memory: Memory, first: int = 0, count: int = 40) -> None:
    for number in range(first, first + count):
        memory.remember(
            f"the ships {number} in the harbour 港口", id=f"m{number}", importance=0.9, session_id="trip", role="user"
        )


def within_budget(memory: Memory) -> bool:
    stats = memory.get_stats()
    return all(stats[f"{tier}_token_usage"] <= stats[f"{tier}_token_budget"] for tier in ("l1", "l2", "l3", "l4"))


def test_every_tier_is_within_its_budget_after_a_restore_into_a_full_memory(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom", **BUDGETS) as memory:
        live(memory)
        memory.snapshot(tmp_path / "a.hctx")
    with opened(tmp_path / "b.loom", **BUDGETS) as memory:
        live(memory, first=100)
        done = memory.restore(tmp_path / "a.hctx")
        assert done.records == 40
        assert within_budget(memory)
        assert memory.check(repair=False).problems == ()
        assert memory.recall("ships 7 harbour", limit=1)[0].id == "m7"
    with opened(tmp_path / "small.loom", l2_token_budget=30, l3_token_budget=20, l4_token_budget=30) as memory:
        memory.restore(tmp_path / "a.hctx")
        assert within_budget(memory)
        assert memory.settings.l2_token_budget == 30


def test_what_was_used_most_is_evicted_last_after_a_restore(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def clock() -> datetime:
        nonlocal now
        now += timedelta(minutes=1)
        return now

    with opened(tmp_path / "a.loom", profile="lcr", clock=clock, **BUDGETS) as memory:
        live(memory, count=8)
        for _ in range(3):
            memory.get("m2")
        memory.snapshot(tmp_path / "a.hctx")
    loom.restore(tmp_path / "a.hctx", tmp_path / "b.loom")
    with opened(tmp_path / "b.loom", profile="lcr", clock=clock) as memory:
        record = memory.store.get("m2")
        assert record is not None
        assert memory.store.accesses([record.seq], "default")[record.seq].count == 3
        live(memory, first=8, count=4)
        assert memory.store.resides(record.seq, "l2", "default")


def test_facts_summaries_pools_and_tasks_come_along(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom", derive=True, **BUDGETS) as memory:
        memory.remember("We decided to use PostgreSQL for the billing service.", role="user", name="Ana", id="choice")
        memory.manager.add_task(Task(task_id="t1", action="execute", parameters={"content": "build it"}, result="ok"))
        live(memory, count=60)
        pool = SharedMemoryPool("team", store=memory.store)
        asyncio.run(pool.write("plan", {"step": 1}, "ana"))
        asyncio.run(pool.write("plan", {"step": 2}, "ben"))
        memory.flush()
        facts = [(fact.id, fact.content, fact.sources) for fact in memory.facts()]
        summaries = [(one.id, one.text, one.sources) for one in memory.summaries()]
        assert facts
        memory.snapshot(tmp_path / "a.hctx")
    loom.restore(tmp_path / "a.hctx", tmp_path / "b.loom")
    with opened(tmp_path / "c.loom", namespace="guest") as memory:
        memory.restore(tmp_path / "a.hctx")
    for path, namespace in (("b.loom", "default"), ("c.loom", "guest")):
        with opened(tmp_path / path, namespace=namespace, derive=True) as memory:
            memory.flush()
            assert [(fact.id, fact.content, fact.sources) for fact in memory.facts()] == facts
            assert [(one.id, one.text, one.sources) for one in memory.summaries()] == summaries
            entry = asyncio.run(SharedMemoryPool("team", store=memory.store).read("plan"))
            assert entry is not None
            assert (entry.content, entry.version) == ({"step": 2}, 2)
            memory.forget("choice")
            assert not any("PostgreSQL" in fact.content for fact in memory.facts())


def test_a_session_goes_on_with_its_prompt_in_a_new_file_and_begins_anew_in_a_namespace(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        live(memory, count=6)
        memory.context("Which ships?", session_id="trip", budget=400)
        memory.snapshot(tmp_path / "a.hctx")
        expected = memory.context("And now?", session_id="trip", budget=400).messages
    loom.restore(tmp_path / "a.hctx", tmp_path / "b.loom")
    with opened(tmp_path / "b.loom") as memory:
        assert memory.context("And now?", session_id="trip", budget=400).messages == expected
    with opened(tmp_path / "c.loom", namespace="guest") as memory:
        memory.remember("so that numbers are others")
        memory.restore(tmp_path / "a.hctx")
        assert memory.store.entries(scope=SCOPE, owner="default") == []
        assert any("ships 5" in str(message) for message in memory.context("And now?", session_id="trip").messages)


def test_meaning_is_found_after_a_restore_without_embedding_anything_again(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom", embedder=FakeEmbedder(dimensions=16, seed=3)) as memory:
        live(memory, count=10)
        memory.flush()
        expected = [(hit.id, hit.score) for hit in memory.recall("ships in the harbour")]
        memory.snapshot(tmp_path / "a.hctx")
    loom.restore(tmp_path / "a.hctx", tmp_path / "b.loom")
    with opened(tmp_path / "b.loom", embedder=FakeEmbedder(dimensions=16, seed=3)) as memory:
        assert memory.store.jobs("embed") == []
        assert [(hit.id, hit.score) for hit in memory.recall("ships in the harbour")] == expected


def test_the_verbs_are_awaitable(tmp_path: Path) -> None:
    async def carry() -> None:
        async with opened(tmp_path / "a.loom").aio as memory:
            await memory.remember("one", id="a")
            made = await memory.snapshot(tmp_path / "a.hctx")
            assert made.records == 1
            assert (await memory.restore(tmp_path / "a.hctx")).present == 1

    asyncio.run(carry())


def test_a_memory_that_lives_in_this_process_can_be_carried_out_and_in(tmp_path: Path) -> None:
    with loom.open(embedder="none", derive=False) as memory:
        memory.remember("one", id="a")
        memory.snapshot(tmp_path / "a.hctx")
    with loom.open(embedder="none", derive=False) as memory:
        assert memory.restore(tmp_path / "a.hctx").records == 1
        memory.forget("a")
        assert memory.restore(tmp_path / "a.hctx").forgotten == 1
        memory.remember("another text", id="b")
        with pytest.raises(SnapshotError):
            memory.restore(Path(__file__))


# --- the commands -------------------------------------------------------------------------------------------

Output = tuple[int, str, str]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Output]:
    def call(*arguments: object) -> Output:
        code = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_the_commands_take_and_restore_a_chain(tmp_path: Path, command: Callable[..., Output]) -> None:
    path, monday, tuesday = tmp_path / "a.loom", tmp_path / "monday.hctx", tmp_path / "tuesday.hctx"
    with opened(path) as memory:
        live(memory, count=5)
    with opened(path, namespace="other") as memory:
        memory.remember("only one here", id="x")
    code, out, _ = command("snapshot", monday, "--store", path)
    assert code == 0
    assert "6 records of default, other" in out
    with opened(path) as memory:
        live(memory, first=5, count=2)
    code, out, _ = command("snapshot", tuesday, "--since", monday, "--store", path)
    assert code == 0
    assert "2 records" in out
    assert "continues " in out
    code, out, _ = command("restore", monday, tuesday, "--store", tmp_path / "b.loom")
    assert (code, "8 records of default, other" in out) == (0, True)
    with opened(tmp_path / "b.loom") as memory:
        assert memory.get("m6") is not None
    code, _, err = command("restore", tuesday, "--store", tmp_path / "c.loom")
    assert code == 2
    assert "nothing was changed" in err
    code, _, err = command("restore", monday, "--store", tmp_path / "b.loom")
    assert (code, "exists" in err) == (2, True)


def test_the_command_restores_into_a_namespace(tmp_path: Path, command: Callable[..., Output]) -> None:
    path, snapshot = tmp_path / "a.loom", tmp_path / "a.hctx"
    with opened(path) as memory:
        live(memory, count=5)
    assert command("snapshot", snapshot, "--store", path, "--only", "default")[0] == 0
    with opened(tmp_path / "team.loom") as memory:
        memory.remember("ours", id="m2")
    team = ("--store", tmp_path / "team.loom")
    code, _, err = command("restore", snapshot, *team, "--into", "default")
    assert (code, "m2" in err) == (2, True)
    code, out, _ = command("restore", snapshot, *team, "--into", "guest", "--take", "default")
    assert (code, "5 records added" in out) == (0, True)
    with opened(tmp_path / "team.loom", namespace="guest") as memory:
        memory.forget("m1")
    code, out, _ = command("restore", snapshot, *team, "--into", "guest")
    assert (code, "0 records added, 4 already present, 1 forgotten since" in out) == (0, True)
    code, out, _ = command("restore", snapshot, *team, "--into", "guest", "--forgotten")
    assert (code, "1 record added" in out) == (0, True)
    assert command("restore", snapshot, "--store", tmp_path / "none.loom", "--into", "guest")[0] == 2
    assert not (tmp_path / "none.loom").exists()


def test_an_id_clash_leaves_the_memory_as_it_was(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        live(memory, count=5)
        memory.snapshot(tmp_path / "a.hctx")
    with opened(tmp_path / "b.loom") as memory:
        memory.remember("ours", id="m4")
        before = memory.get_stats()
        with pytest.raises(IdConflict, match="m4"):
            memory.restore(tmp_path / "a.hctx")
        assert memory.get_stats() == before
