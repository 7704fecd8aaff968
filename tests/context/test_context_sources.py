"""Sources beside the tiers: scopes, shared pools, knowledge bases, pinned texts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import loom
from loom.context import (
    ContextOrchestrator,
    ContextSource,
    KnowledgeContextSource,
    KnowledgeItem,
    L2ImportantSource,
    L3SummarySource,
    L4FactSource,
    PinnedSource,
    RecallSource,
    ScopeSource,
    SharedPoolSource,
)
from loom.context.items import Place
from loom.context.sources import L1RecentSource
from loom.errors import InvalidInput
from loom.fractal.memory import MemoryScope
from loom.memory import MemoryManager
from loom.memory.shared_pool import SharedMemoryPool
from loom.protocol import Task
from loom.text.tokens import TiktokenCounter
from loom.types import MemoryUnit


@pytest.fixture
def manager() -> Iterator[MemoryManager]:
    with MemoryManager("agent", embedder="none") as opened:
        yield opened


def build(*sources: object, budget: int = 600, **given: Any) -> loom.Context:
    return ContextOrchestrator(sources=sources).build(query="What is the plan?", budget=budget, **given)


def lines(context: loom.Context) -> list[str]:
    return [line for message in context[1:-1] for line in message["content"].splitlines()[1:-1]]


# --- scopes and pools ----------------------------------------------------------------------------------------


def test_values_of_all_scopes_are_shown_once_the_nearest_first(manager: MemoryManager) -> None:
    async def write() -> None:
        await manager.write("plan", "three steps", MemoryScope.SHARED)
        await manager.write("plan", "mine alone", MemoryScope.LOCAL)
        await manager.write("team", {"lead": "Ana"}, MemoryScope.GLOBAL)

    asyncio.run(write())
    assert lines(build(ScopeSource(manager))) == ["[SCOPE:plan] mine alone", '[SCOPE:team] {"lead": "Ana"}']
    assert lines(build(ScopeSource(manager, ["global"]))) == ['[SCOPE:team] {"lead": "Ana"}']


def test_a_child_sees_what_its_parent_shares(manager: MemoryManager) -> None:
    asyncio.run(manager.write("plan", "three steps", MemoryScope.SHARED))
    with MemoryManager("child", parent=manager, embedder="none") as child:
        assert lines(build(ScopeSource(child))) == ["[SCOPE:plan] three steps"]


@dataclass
class Entry:
    key: str
    content: Any
    updated_at: float


class Pool:
    def __init__(self, *entries: Entry) -> None:
        self.entries = list(entries)
        self.asked: list[tuple[str, int]] = []

    async def list_entries(self, prefix: str = "", limit: int = 50) -> Sequence[Entry]:
        self.asked.append((prefix, limit))
        newest = sorted(self.entries, key=lambda entry: -entry.updated_at)
        return [entry for entry in newest if entry.key.startswith(prefix)][:limit]


def test_shared_entries_come_newest_first_under_their_header() -> None:
    pool = Pool(Entry("old", "first", 1.0), Entry("new", {"findings": [1]}, 3.0), Entry("mid", "second", 2.0))
    context = build(SharedPoolSource(pool))
    assert lines(context) == ['[SHARED:new] {"findings": [1]}', "[SHARED:mid] second", "[SHARED:old] first"]
    assert [item.source for item in context.items] == ["shared"] * 3


def test_the_newest_entry_is_the_last_to_be_left_out() -> None:
    pool = Pool(*(Entry(f"k{number}", "word " * 60, float(number)) for number in range(20)))
    context = build(SharedPoolSource(pool), budget=300)
    count = len(context.items)
    assert [item.id for item in context.items] == [f"shared:k{number}" for number in range(19, 19 - count, -1)]
    assert 0 < count < 20


def test_a_pool_registers_itself_and_may_be_narrowed() -> None:
    pool = Pool(Entry("research:a", "found", 1.0), Entry("other", "else", 2.0))
    orchestrator = ContextOrchestrator(shared_pool=pool)
    assert [source.name for source in orchestrator.sources] == ["shared"]
    assert "[SHARED:other] else" in lines(asyncio.run(orchestrator.build_context(query="Which?")))
    assert lines(build(SharedPoolSource(pool, prefix="research:"))) == ["[SHARED:research:a] found"]


def test_a_real_pool_of_the_memorys_own_store_is_a_source(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        pool = SharedMemoryPool("team", store=memory.store)

        async def use() -> loom.Context:
            await pool.write("plan", "three steps", writer_id="ana")
            await pool.write("research:tide", {"high": "noon"}, writer_id="ben")
            await pool.write("plan", "four steps", writer_id="ben")
            return await ContextOrchestrator(memory.counter, shared_pool=pool).build_context(query="What is next?")

        shown = ["[SHARED:plan] four steps", '[SHARED:research:tide] {"high": "noon"}']
        assert lines(asyncio.run(use())) == shown
        assert lines(memory.context("What is next?", budget=400, sources=[SharedPoolSource(pool)])) == shown
        assert lines(build(SharedPoolSource(pool, prefix="research:"))) == shown[1:]
        pool.close()


def test_what_changes_by_itself_stands_behind_what_lasts() -> None:
    with loom.open(embedder="none") as memory:
        memory.remember("The plan has three steps.", role="user", session_id="old")
        memory.remember("Hello.", role="user", session_id="s1")
        pool = SharedPoolSource(Pool(Entry("plan", "step two", 1.0)))
        context = memory.context("What is the plan?", session_id="s1", budget=500, sources=[pool])
        assert context[-2]["content"] == "<memory>\n[SHARED:plan] step two\n</memory>"
        pool = SharedPoolSource(Pool(Entry("plan", "step three", 2.0)))
        now = memory.context("What is the plan now?", session_id="s1", budget=500, sources=[pool])
        assert now.prefix == len(context) - 2
        assert now[: now.prefix] == context[: now.prefix]


# --- knowledge -----------------------------------------------------------------------------------------------


class Base:
    def __init__(self, *items: KnowledgeItem) -> None:
        self.items = items
        self.asked: list[str] = []

    async def query(self, query: str, limit: int = 5) -> Sequence[KnowledgeItem]:
        self.asked.append(query)
        return self.items[:limit]


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_a_knowledge_base_is_asked_once_for_each_session_and_question(manager: MemoryManager) -> None:
    base, clock = Base(KnowledgeItem("1", "Plans have steps.", "handbook", 0.9)), Clock()
    source = KnowledgeContextSource(base, manager, expires_s=60, clock=clock)
    first = build(source, session_id="a")
    assert lines(first) == ["[KNOWLEDGE:handbook] Plans have steps."]
    assert first.items[0].reason == "from the knowledge base"
    again = build(source, session_id="a")
    assert (lines(again), again.items[0].reason) == (lines(first), "from the knowledge base, cached")
    build(source, session_id="b")
    assert len(base.asked) == 2
    clock.now += timedelta(seconds=61)
    build(source, session_id="a")
    assert len(base.asked) == 3
    kept = manager.scopes.entries(MemoryScope.SHARED)
    assert {entry.metadata["session_id"] for entry in kept} == {"a", "b"}
    assert lines(build(ScopeSource(manager))) == []  # what is cached is no value of its own


def test_what_is_not_relevant_enough_stays_out_and_the_best_comes_first(manager: MemoryManager) -> None:
    items = [KnowledgeItem(str(n), f"fact {n}", relevance=n / 10) for n in range(10)]
    source = KnowledgeContextSource(Base(*items), manager, max_items=10)
    assert lines(build(source)) == ["[KNOWLEDGE:9] fact 9", "[KNOWLEDGE:8] fact 8", "[KNOWLEDGE:7] fact 7"]


def test_a_knowledge_base_works_without_a_memory_and_with_a_read_only_one(tmp_path: Path) -> None:
    base = Base(KnowledgeItem("1", "Plans have steps."))
    assert lines(build(KnowledgeContextSource(base))) == ["[KNOWLEDGE:1] Plans have steps."]
    loom.open(tmp_path / "a.loom", embedder="none").close()
    with loom.open(tmp_path / "a.loom", embedder="none", read_only=True) as reader:
        context = build(KnowledgeContextSource(base, reader))
    assert (lines(context), context.sources[0].error) == (["[KNOWLEDGE:1] Plans have steps."], "")


# --- others --------------------------------------------------------------------------------------------------


def said(id: str, words: str, session: str) -> Task:
    return Task(task_id=id, action="say", parameters={"content": words}, session_id=session)


def test_the_recent_tier_offers_a_sessions_own_turns_and_what_was_brought_back(manager: MemoryManager) -> None:
    for number in range(4):
        for session in ("harbour", "office"):
            words = f"{session} note {number}"
            manager.add_task(said(f"{session}-{number}", words, session))
    source = L1RecentSource(manager)
    asked = Task(action="ask", parameters={"content": "what is new?"}, session_id="harbour")
    own = [f"harbour-{number}" for number in (3, 2, 1, 0)]
    assert [one.id for one in source.get_context(asked, 20)] == own
    manager.add_task(said("old", "the lighthouse rule", "office"))
    manager.l1.clear()
    manager.promote("old", to="l1")
    offered = {one.id: one.place for one in source.get_context(asked, 20)}
    # What left the window is in the log, and a conversation is there as long as a prompt has room for it.
    assert offered == {"old": Place.QUOTE} | dict.fromkeys(own, Place.TURN)


def test_a_pinned_text_is_always_offered() -> None:
    assert lines(build(PinnedSource("step 2 of 4", label="TASK"))) == ["[TASK] step 2 of 4"]


def test_tasks_units_and_records_may_be_offered(manager: MemoryManager) -> None:
    manager.add_task(Task(task_id="t0", action="note", parameters={"content": "kept"}))
    record = manager.get("t0")
    assert record is not None

    def several(task: Task, max_items: int) -> list[Any]:
        return [Task(action="note", parameters={"content": "a task"}), MemoryUnit("a unit"), record]

    shown = "\n".join(lines(build(several)))
    assert all(words in shown for words in ("a task", "a unit", "kept"))


def test_what_cannot_be_quoted_is_the_sources_failure() -> None:
    context = build(lambda task, max_items: [object()])
    assert "cannot be quoted" in context.sources[0].error


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(InvalidInput, match="get_context"):
        ContextOrchestrator(sources=["l1"])


def test_a_share_that_does_not_exist_is_refused() -> None:
    source = PinnedSource("text")
    source.share = "l9"
    with pytest.raises(InvalidInput, match="no share 'l9'"):
        ContextOrchestrator(sources=[source])


def test_a_text_of_megabytes_is_shortened_and_not_counted(manager: MemoryManager) -> None:
    class Never(TiktokenCounter):
        def count(self, text: str) -> int:
            assert len(text) < 100_000
            return super().count(text)

    manager.add_task(Task(action="note", parameters={"content": "plan " * 400_000}))
    context = ContextOrchestrator(Never(), [RecallSource(manager)]).build(query="What is the plan?", budget=600)
    (item,) = context.items
    assert item.shortened
    assert "tokens left out]" in context[1]["content"]
    assert item.reason.startswith("recalled; shortened: ")
    assert 500 < context.tokens <= 600


def test_a_summary_gives_way_to_the_whole(manager: MemoryManager) -> None:
    with MemoryManager("small", embedder="none", l2_token_budget=120) as small:
        for number in range(12):
            text = f"Harbour crane {number} lifted " + "boxes " * 20
            small.add_task(Task(task_id=f"t{number}", action="node.error", parameters={"content": text}))
        archived = [summary.task_id for summary in small.get_l3_summaries()]
        assert archived

        def whole(task: Task, max_items: int) -> list[Any]:
            record = small.store.get(archived[-1])  # no use of it, which would bring it back from the archive
            return [] if record is None else [record]

        alone = build(L3SummarySource(small), budget=2000)
        assert archived[-1] in {item.id for item in alone.items}
        both = build(whole, L3SummarySource(small), budget=2000)
        assert [item.source for item in both.items if item.id == archived[-1]] == ["whole"]
        assert any(one.reason == "the whole memory is in the prompt" for one in both.dropped)


# --- the order of the tiers ----------------------------------------------------------------------------------


def test_recalled_memories_come_in_the_same_order_however_many_are_asked_for() -> None:
    chance = Random(3)
    words = ["harbour", "crane", "winch", "cable", "tide", "fog", "lamp", "radio", "chart", "engine"]
    with loom.open(embedder="none", derive=False) as memory:
        memory.remember(
            [f"{' '.join(chance.choices(words, k=int(2 ** chance.uniform(1, 8))))} {n}?" for n in range(200)]
        )
        source, task = (
            RecallSource(memory),
            Task(action="answer", parameters={"content": "What of the crane and the fog?"}),
        )
        offers = [[item.id for item in source.get_context(task, most)] for most in (64, 65, 100, 128, 150, 200)]
    assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(offers))


def test_of_the_working_tier_the_most_important_comes_first() -> None:
    with loom.open(embedder="none") as memory:
        for number, importance in enumerate((0.7, 0.95, 0.8)):
            text = f"Rule {number} of the harbour."
            memory.remember(text, id=f"rule-{number}", role="user", importance=importance)
        offered = list(L2ImportantSource(memory).get_context(Task(action="ask"), 2))
        assert [one.id for one in offered] == ["rule-1", "rule-2"]


def test_a_memory_of_several_sources_is_in_a_prompt_once() -> None:
    """Requirement 95."""
    with loom.open(embedder="none", derive=False) as memory:
        memory.remember("The plan of the harbour is 7319.", id="code", role="user", session_id="a", importance=0.9)
        sources = [L2ImportantSource(memory), RecallSource(memory), L1RecentSource(memory)]
        for session_id in (None, "a", "b"):
            context = build(*sources, session_id=session_id)
            assert str(context.messages).count("7319") == 1
            assert [one.id for one in context.items] == ["code"]
            assert sum(source.used for source in context.sources) == 1
            assert len(context.dropped) == sum(source.offered for source in context.sources) - 1


@pytest.mark.parametrize("source", [L2ImportantSource, L3SummarySource])
def test_a_tier_offers_what_is_of_the_session_of_the_task(source: type[L2ImportantSource | L3SummarySource]) -> None:
    """Requirement 93."""
    with loom.open(embedder="none", derive=False, l2_token_budget=200) as memory:
        for number in range(40):
            text = f"Rule {number} of the harbour is about ropes and lamps."
            memory.remember(text, id=f"rule-{number}", session_id=f"s{number % 2}", importance=0.8)
        for session in ("s0", "s1"):
            offered = list(source(memory).get_context(Task(action="ask", session_id=session), 30))
            assert {one.id for one in offered} <= {f"rule-{number}" for number in range(int(session[1]), 40, 2)}
            assert len(offered) > 1
        assert len(list(source(memory).get_context(Task(action="ask"), 30))) > len(offered)


def test_of_the_archive_the_newest_comes_first() -> None:
    with loom.open(embedder="none", derive=False, l1_token_budget=100, l2_token_budget=120) as memory:
        for number in range(12):
            memory.remember(f"Step {number}: " + "tide " * 30, id=f"step-{number}", role="user", importance=0.9)
        numbers = [int(one.id.split("-")[1]) for one in L3SummarySource(memory).get_context(Task(action="ask"), 50)]
        assert len(numbers) > 2
        assert numbers == sorted(numbers, reverse=True)


def test_the_neighbour_of_a_hit_is_a_turn_and_no_fact_between_them() -> None:
    with loom.open(embedder="none") as memory:
        said = "My address is 12 Rue Cler, Paris."
        memory.remember(said, name="Ana", role="user", session_id="s1", id="said")
        memory.flush()
        memory.remember("That is near the tower.", name="Ben", role="user", session_id="s1", id="hit")
        kinds = [record.kind for _, record in sorted(memory.store.records(range(1, 100)).items())]
        assert kinds[-2:] == ["fact", "message"]
        task = Task(action="ask", parameters={"content": "What is near the tower?"})
        offered = [(one.id, one.reason) for one in RecallSource(memory).get_context(task, 8)]
        assert [pair for pair in offered if pair[1] != "recalled"] == [("said", "what hit refers to")]


def test_facts_of_another_node_are_not_shown() -> None:
    with loom.open(embedder="none") as memory:
        memory.remember("My address is 12 Rue Cler, Paris.", name="Ana", role="user", session_id="s1")
        memory.flush()
        task = Task(action="ask", parameters={"content": "What is the address of Ana?"})
        assert list(L4FactSource(memory).get_context(task, 8))
        with MemoryManager("other", store=memory.store, embedder="none") as other:
            other.add_fact("Ben lives at 3 Elbe Street.")
            assert other.store.usage("other")["l4"].items
            assert all("Paris" not in one.text for one in L4FactSource(other).get_context(task, 8))


# --- one request ---------------------------------------------------------------------------------------------


class _Meanwhile(ContextSource):
    """Writes to the memory from another thread while the sources are asked."""

    name = "meanwhile"
    local = True

    def __init__(self, memory: loom.Memory) -> None:
        self._memory = memory

    def get_context(self, task: Task, max_items: int) -> list[str]:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(self._memory.remember, "The plan has changed.", id="later", role="user").result()
        return []


def test_all_sources_read_the_memory_as_of_one_moment(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
        memory.remember("The plan has three steps.", id="before", role="user")
        sources = [RecallSource(memory), _Meanwhile(memory), L1RecentSource(memory), L2ImportantSource(memory)]
        first = ContextOrchestrator(sources=sources).build(query="What is the plan?", budget=600)
        assert {item.id for item in first.items} == {"before"}
        again = ContextOrchestrator(sources=sources[:1]).build(query="What is the plan?", budget=600)
        assert {item.id for item in again.items} == {"before", "later"}


def test_sources_of_one_memory_note_their_uses_in_one_batch(
    manager: MemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        manager.add_task(Task(action="note", parameters={"content": f"Step {number} of the plan is step {number}."}))
    noted: list[list[int]] = []
    touch = manager.store.touch

    def seen(records: Iterable[int], node: str) -> None:
        noted.append([*records])
        touch(noted[-1], node)

    monkeypatch.setattr(manager.store, "touch", seen)
    context = build(RecallSource(manager), L1RecentSource(manager, most=8), L2ImportantSource(manager), budget=500)
    assert len({item.source for item in context.items}) > 1
    (records,) = noted
    assert sorted(records) == sorted(item.seq for item in context.items)
    assert {one.count for one in manager.store.accesses(records, manager.node_id).values()} == {1}


def test_a_key_of_the_knowledge_cache_tells_nothing_of_its_question(tmp_path: Path) -> None:
    base = Base(KnowledgeItem("1", "Plans have steps."))
    keys = []
    for name in ("a", "b"):
        with loom.open(tmp_path / f"{name}.loom", embedder="none") as memory:
            build(KnowledgeContextSource(base, memory), session_id="s")
            build(KnowledgeContextSource(base, memory), session_id="s")
            keys += [entry.id for entry in memory.manager.scopes.entries(MemoryScope.SHARED)]
    assert len(base.asked) == 2
    assert len(set(keys)) == 2  # the same question has another key in each store


def test_short_memories_stand_before_a_long_one_that_is_hardly_better() -> None:
    with loom.open(embedder="none", derive=False) as memory:
        for number in range(12):
            filler = "It rained on the quay all day long. " * (number % 4 * 8)
            where = "in the harbour " * (number % 3)
            memory.remember(f"Heron {number} nests {where}of the old town. {filler}")
        question = "Where in the harbour of the town does the heron nest?"
        ranked = [(hit.score, hit.tokens, hit.id) for hit in memory.recall(question, limit=20)]
        offered = RecallSource(memory).get_context(Task(action="ask", parameters={"content": question}), 20)
        order = [(one.score, one.tokens, one.id) for one in offered]
        assert sorted(order) == sorted(ranked)
        assert order != ranked
        for before, after in pairwise(order):  # no memory stands before one that is shorter and not worse
            assert before[0] > after[0] or before[1] <= after[1]
        assert any(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(order))
