"""Quotas: what a tier accepts, its counters, and the alarms when it fills. Requirements 32, 39, 41; C-1."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from loom.errors import InvalidInput, OverBudget
from loom.events import EventBus
from loom.memory import LayerCounters, LayerQuota, MemoryTier
from loom.memory.core import LoomMemory
from loom.models.embedders import FakeEmbedder
from loom.protocol import Task
from loom.text.tokens import TokenCounter
from loom.tiers.quotas import QuotaAlarm, QuotaLevel

TIERS = list(MemoryTier)
BUDGET = 100
ALARM = "memory.quota"


class WordCounter(TokenCounter):
    """A word is a token."""

    name = "words"
    exact = True
    margin = 0.0

    def count(self, text: str) -> int:
        return len(text.split())


def opened(**options: Any) -> LoomMemory:
    given: dict[str, Any] = {"embedder": "none", "token_counter": WordCounter()}
    given |= {f"{tier}_token_budget": BUDGET for tier in TIERS}
    return LoomMemory("quotas", **given | options)


@pytest.fixture
def memory() -> Iterator[LoomMemory]:
    with opened() as found:
        yield found


def task(number: int | str, tokens: int = 10, **given: Any) -> Task:
    words = " ".join(f"k{number}w{place}" for place in range(tokens - 2))
    return Task(task_id=f"t{number}", action="note", parameters={"c": words}, **given)


# --- limits ------------------------------------------------------------------------------------------------


def test_the_hard_limit_is_the_budget_and_the_warning_comes_at_eighty_percent(memory: LoomMemory) -> None:
    """Requirement 32."""
    for tier in TIERS:
        quota = memory.quotas[tier]
        assert quota.hard_limit == memory.layers[tier].token_budget == BUDGET
        assert quota.warning_threshold == 0.8
        assert 0 < quota.soft_limit <= quota.hard_limit
    assert (memory.quotas[MemoryTier.L2].soft_limit, memory.quotas[MemoryTier.L3].soft_limit) == (85, 90)


@pytest.mark.parametrize(
    "limits", [(0, 0), (100, 0), (100, 101), (100, -5), (100, 90, 0.0), (100, 90, 1.1), (100, 90, -0.1)]
)
def test_limits_in_the_wrong_order_are_refused(limits: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInput):
        LayerQuota(*limits)


def test_the_smallest_budgets_have_quotas() -> None:
    with opened(**{f"{tier}_token_budget": 1 for tier in TIERS}) as memory:
        assert set(memory.quotas.values()) == {LayerQuota(1, 1)}


# --- asking beforehand -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "incoming", "accepted", "action"),
    [
        ("l1", 0, True, "accept"),
        ("l1", 40, True, "accept"),
        ("l1", 41, True, "evict"),
        ("l1", 100, True, "evict"),
        ("l1", 101, False, "reject"),
        ("l2", 24, True, "accept"),
        ("l2", 25, True, "evict"),  # 85 %, where others leave
        ("l2", 80, True, "evict"),
        ("l2", 81, False, "reject"),  # more than is left of the tier when it has made room
    ],
)
def test_a_request_is_accepted_makes_others_leave_or_is_rejected(
    memory: LoomMemory, tier: str, incoming: int, accepted: bool, action: str
) -> None:
    """Requirements 39, 41: with a clear result."""
    for number in range(6):
        memory.layers[MemoryTier(tier)].add(task(number))
    found = memory.check_quota(tier, incoming)
    assert (found.accepted, found.action, found.room) == (accepted, action, 40)
    assert tier.upper() in found.reason


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("size", [5, 79, 80, 81, 89, 90, 95, 96, 100, 101, 500])
def test_the_answer_is_what_the_tier_then_does(memory: LoomMemory, tier: MemoryTier, size: int) -> None:
    """A request that is not rejected enters the tier; a rejected one does not enter it whole.

    The far tiers hold stand-ins, so it is the size of these that must fit.
    """
    layer = memory.layers[tier]
    far = tier in (MemoryTier.L3, MemoryTier.L4)
    for number in range(3):
        layer.add(task(number), importance=0.7)
    before = layer.size()
    answer = memory.check_quota(tier, size)
    receipt = layer.add(task("new", size), importance=0.9)
    assert layer.token_usage <= BUDGET
    if far:
        assert receipt.tier == tier
        assert answer.accepted
        return
    assert (receipt.tier == tier) == answer.accepted
    if answer.action == "accept":
        assert layer.size() == before + 1


def test_asking_writes_nothing(memory: LoomMemory) -> None:
    for tier in TIERS:
        memory.check_quota(tier, 50)
    assert memory.get_stats()["records"] == 0


@pytest.mark.parametrize(("tier", "tokens"), [("l9", 1), ("l1", -1), ("l1", "5"), ("l1", 1.5)])
def test_a_question_about_no_tier_or_no_tokens_is_refused(memory: LoomMemory, tier: str, tokens: Any) -> None:
    with pytest.raises(InvalidInput):
        memory.check_quota(tier, tokens)


@pytest.mark.parametrize("tier", [None, "l1", "l2"])
def test_more_than_a_tier_takes_can_be_rejected_with_nothing_written(memory: LoomMemory, tier: str | None) -> None:
    """C-1: reject with an explicit result."""
    memory.add_task(task(1), importance=0.9)
    before = memory.get_stats()
    with pytest.raises(OverBudget, match=r"101 tokens .*nothing was written"):
        memory.add_task(task("giant", 101), tier, on_oversize="reject")
    assert memory.get_stats() == before
    assert memory.get_task("tgiant") is None
    assert memory.search_tasks("kgiantw1") == []


def test_what_fits_is_not_rejected(memory: LoomMemory) -> None:
    receipt = memory.add_task(task("whole", 100), on_oversize="reject")
    assert receipt.tier == MemoryTier.L1


def test_another_word_for_what_to_do_with_a_giant_is_refused(memory: LoomMemory) -> None:
    with pytest.raises(InvalidInput, match="archive"):
        memory.add_task(task(1), on_oversize="truncate")


# --- counters ----------------------------------------------------------------------------------------------


def assert_counters_are_right(memory: LoomMemory) -> None:
    counters, stats = memory.get_counters(), memory.get_stats()
    assert isinstance(counters, LayerCounters)
    parts = counters.working.segments
    assert counters.focus.current == stats["l1_token_usage"] == memory.l1.token_usage
    assert counters.working.current == stats["l2_token_usage"] == memory.l2.token_usage
    assert parts.hot + parts.warm + parts.cold == counters.working.current
    assert counters.archive.compressed == stats["l3_token_usage"] == memory.l3.token_usage
    originals = [memory.store.get(one.task_id) for one in memory.get_l3_summaries()]
    assert counters.archive.current == sum(one.tokens for one in originals if one)
    assert counters.rag.current == stats["l4_token_usage"] == memory.l4.token_usage
    assert counters.rag.indexed == stats["vectors"]
    quotas = [counters.focus.quota, counters.working.quota, counters.archive.quota, counters.rag.quota]
    assert quotas == [memory.quotas[tier] for tier in TIERS]


def test_the_counters_have_the_terms_of_the_runtime_and_equal_what_is_stored(memory: LoomMemory) -> None:
    """Requirement 32: focus, working, archive, rag; trap: counters that drift."""
    assert_counters_are_right(memory)
    for number in range(30):
        memory.add_task(task(number, 5 + number % 40), importance=(number % 10) / 10)
        assert_counters_are_right(memory)
    memory.add_task(task("giant", 300), importance=1.0)
    memory.l2.evict(20)
    memory.l3.clear()
    assert_counters_are_right(memory)
    reserved = memory.get_counters().focus.reserved
    assert (reserved.system, reserved.functions) == (1024, 1024)


def test_the_counters_name_the_parts_of_the_working_tier_and_the_vectors_that_can_be_searched() -> None:
    with opened(profile="lcr", l1_token_budget=20, l2_token_budget=400, embedder=FakeEmbedder()) as memory:
        for number in range(27):
            memory.add_task(task(number))
        memory.flush()
        counters, parts = memory.get_counters(), memory.segments()
        sizes = [sum(one.tokens for one in part) for part in (parts.hot, parts.warm, parts.cold)]
        told = counters.working.segments
        assert [told.hot, told.warm, told.cold] == sizes
        assert sizes[0] != sizes[2]
        assert counters.rag.indexed == 27


def test_the_documents_map_the_tiers_to_the_names_of_other_designs() -> None:
    """Requirements 130, 149 and 152: the table of docs/tiers.md has the pairs that the design names."""
    text = (Path(__file__).parents[2] / "docs" / "tiers.md").read_text()
    table = text.partition("## Names in other designs")[2].split("\n\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [row[:4] for row in rows] == [
        ["the prompt, L1", "Focus", "main context", "active"],
        ["L2", "Working", "external context", "active"],
        ["L3", "Archive", "recall storage", "hot and warm"],
        ["L4 and the log", "RAG", "recall search", "cold, and the vector index"],
    ]
    assert [one.name for one in fields(LayerCounters)] == [row[1].lower() for row in rows]


def test_the_archive_counts_originals_and_stand_ins_apart(memory: LoomMemory) -> None:
    """Requirement 32: archive{current (original tokens), compressed}."""
    memory.add_task(task("giant", 300), "l3")
    archive = memory.get_counters().archive
    assert archive.current == 300
    assert 0 < archive.compressed < 60


def test_the_parts_of_the_working_tier_are_a_quarter_a_half_and_a_quarter() -> None:
    """Requirement 32: segments{hot 32K, warm 64K, cold 32K} of 128K."""
    with opened(profile="lcr", l1_token_budget=20, l2_token_budget=400) as memory:
        for number in range(40):
            memory.add_task(task(number))
        parts = memory.segments()
        sizes = [sum(one.tokens for one in part) for part in parts]
        assert sizes[:2] == [100, 200]
        assert 0 < sizes[2] <= 100
        assert sum(map(len, parts)) == memory.l2.size()


# --- alarms ------------------------------------------------------------------------------------------------


class RecordingBus(EventBus):
    """A bus that keeps its alarms."""

    def __init__(self) -> None:
        super().__init__()
        self.alarms: list[Task] = []
        self.register_handler("*", lambda task: self.alarms.append(task) if task.action.startswith(ALARM) else None)


@pytest.fixture
def bus() -> RecordingBus:
    return RecordingBus()


def alarms(bus: RecordingBus, tier: str = "l2") -> list[str]:
    return [one.action.removeprefix(f"{ALARM}.") for one in bus.alarms if one.parameters["tier"] == tier]


def test_an_alarm_says_who_where_how_much_and_of_how_much(bus: RecordingBus) -> None:
    """Requirement 32, as an event."""
    with opened(event_bus=bus) as memory:
        for number in range(8):
            memory.add_task(task(number), importance=0.9)
    (alarm,) = bus.alarms
    assert alarm.action == f"{ALARM}.warning"
    assert alarm.source_agent == "quotas"
    assert alarm.parameters == {
        "tier": "l2",
        "level": "warning",
        "tokens": 80,
        "hard_limit": 100,
        "soft_limit": 85,
    }
    assert alarm.to_dict()


def test_a_warning_comes_once_while_the_tier_stays_full(bus: RecordingBus) -> None:
    with opened(event_bus=bus) as memory:
        for number in range(60):
            memory.add_task(task(number), importance=0.9)
        assert alarms(bus).count("warning") == 1


def test_a_warning_comes_again_after_the_tier_has_fallen_clearly_below(bus: RecordingBus) -> None:
    with opened(event_bus=bus) as memory:
        for number in range(8):
            memory.add_task(task(number), importance=0.9)
        assert alarms(bus) == ["warning"]
        memory.l2.evict(1)  # to 70, which is below nine tenths of 80
        memory.add_task(task("a"), importance=0.9)
        assert alarms(bus) == ["warning", "warning"]
        memory.l2.evict(60)
        for number in range(8, 14):
            memory.add_task(task(number), importance=0.9)
        assert alarms(bus) == ["warning"] * 3


def test_a_small_dip_is_no_reason_for_a_second_warning(bus: RecordingBus) -> None:
    with opened(event_bus=bus) as memory:
        for number in range(7):
            memory.add_task(task(number), importance=0.9)
        memory.l2.add(task("a", 6), importance=0.5)
        for name in ("b", "c", "d"):
            memory.l2.add(task(name, 6), importance=0.1)
            assert memory.l2.token_usage == 82
            memory.l2.evict(1)
            assert memory.l2.token_usage == 76  # below the mark, and not clearly below it
        assert alarms(bus) == ["warning"]


def test_the_soft_limit_raises_an_alarm_where_work_begins(bus: RecordingBus) -> None:
    """Requirement 32: softLimit (alert)."""
    with opened(event_bus=bus) as memory:
        for number in range(12):
            memory.add_task(task(number), importance=0.9)
        assert "soft" in alarms(bus)
        assert alarms(bus).count("soft") == 1


def test_the_archive_and_the_knowledge_tier_are_watched_too(bus: RecordingBus) -> None:
    with opened(event_bus=bus) as memory:
        for number in range(8):
            memory.add_task(task(f"a{number}"), "l3")
            memory.add_task(task(f"b{number}"), "l4")
        assert alarms(bus, "l3")[:1] == ["warning"]
        assert alarms(bus, "l4")[:1] == ["warning"]


def test_the_window_is_always_nearly_full_and_raises_no_alarm(bus: RecordingBus) -> None:
    with opened(event_bus=bus) as memory:
        for number in range(60):
            memory.add_task(task(number))
        assert memory.l1.token_usage == 100
    assert bus.alarms == []


def test_eight_threads_that_fill_a_tier_raise_one_warning(bus: RecordingBus) -> None:
    with opened(event_bus=bus, l2_token_budget=1000) as memory:
        threads = [
            threading.Thread(
                target=lambda worker=worker: [
                    memory.add_task(task(f"{worker}x{number}"), importance=0.9) for number in range(12)
                ]
            )
            for worker in range(8)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert alarms(bus).count("warning") == 1
    assert bus.failures == []


def test_an_alarm_reaches_async_and_plain_listeners_from_plain_code_and_on_a_loop(bus: RecordingBus) -> None:
    heard: list[str] = []

    async def listen(alarm: Task) -> None:
        heard.append(f"async {alarm.parameters['level']}")

    bus.register_handler(f"{ALARM}.warning", listen)
    bus.register_handler(f"{ALARM}.warning", lambda alarm: heard.append(alarm.parameters["level"]))

    async def on_a_loop() -> None:
        with opened(event_bus=bus) as memory:
            for number in range(8):
                await memory.add_task(task(number), importance=0.9)
        await bus.drain()

    with opened(event_bus=bus) as memory:
        for number in range(8):
            memory.add_task(task(number), importance=0.9)
    assert sorted(heard) == ["async warning", "warning"]
    asyncio.run(on_a_loop())
    assert sorted(heard) == ["async warning", "async warning", "warning", "warning"]
    assert bus.failures == []


def test_a_listener_that_fails_does_not_harm_the_write(bus: RecordingBus) -> None:
    def fail(_: Task) -> None:
        raise RuntimeError("no")

    bus.register_handler(f"{ALARM}.warning", fail)
    with opened(event_bus=bus) as memory:
        for number in range(8):
            memory.add_task(task(number), importance=0.9)
        assert memory.l2.size() == 8
        assert memory.get_task("t7") is not None


def test_a_listener_may_ask_the_memory_what_is_the_matter(bus: RecordingBus) -> None:
    """The alarm is raised after the commit, outside every lock."""
    seen: list[int] = []
    with opened(event_bus=bus) as memory:
        bus.register_handler(f"{ALARM}.warning", lambda _: seen.append(memory.get_stats()["l2_token_usage"]))
        bus.register_handler(f"{ALARM}.warning", lambda _: memory.add_task(task("noted"), "l4"))
        for number in range(8):
            memory.add_task(task(number), importance=0.9)
        assert seen == [80]
        assert memory.get_task("tnoted") is not None
    assert bus.failures == []


def test_an_alarm_as_a_record_is_an_alarm_as_a_task() -> None:
    alarm = QuotaAlarm("node", MemoryTier.L3, QuotaLevel.SOFT, 91, LayerQuota(100, 90))
    found = alarm.to_task()
    assert (found.action, found.parameters["tokens"]) == (f"{ALARM}.soft", 91)
