"""The profiles and the factory: five named sets of rules, each of which behaves as its description says.

Requirement 86; C-30, C-31. Trap: presets that set a field nothing reads, so that all presets are the same.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from loom.errors import InvalidInput, SettingsConflict
from loom.memory import LoomMemory, MemoryFactory, MemoryTier
from loom.models.embedders import FakeEmbedder
from loom.protocol import Task
from loom.settings import PROFILES
from loom.text.tokens import TokenCounter

SAME_BUDGETS = {"l1_token_budget": 50, "l2_token_budget": 100, "l3_token_budget": 100, "l4_token_budget": 100}
ORDINARY, IMPORTANT = 0.5, 0.9


class WordCounter(TokenCounter):
    """A word is a token."""

    name = "words"
    exact = True
    margin = 0.0

    def count(self, text: str) -> int:
        return len(text.split())


class Minutes:
    """A clock that moves on by a minute whenever it is asked."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now


def opened(profile: str, **options: Any) -> LoomMemory:
    given: dict[str, Any] = {
        "embedder": "none",
        "derive": False,
        "token_counter": WordCounter(),
        "clock": Minutes(),
    } | options
    return LoomMemory("agent", profile=profile, **given)


def task(number: float | str, tokens: int = 10, about: str = "", **fields: Any) -> Task:
    words = [*about.split(), *(f"k{number}w{place}" for place in range(tokens))][: tokens - 2]
    return Task(task_id=f"t{number}", action="note", parameters={"c": " ".join(words)}, **fields)


def held(memory: LoomMemory) -> set[str]:
    return {one.task_id for one in memory.get_l2_tasks()}


# --- as they are -------------------------------------------------------------------------------------------


def test_there_are_five_profiles_each_described_in_its_own_words() -> None:
    assert set(PROFILES) == {"loom", "lcr", "chat", "task", "minimal"}
    descriptions = [profile.description for profile in PROFILES.values()]
    assert len(set(descriptions)) == 5
    assert all(len(one) > 20 for one in descriptions)


def test_each_profile_brings_its_own_budgets() -> None:
    found = {}
    for name in PROFILES:
        with opened(name) as memory:
            found[name] = tuple(memory.layers[tier].token_budget for tier in MemoryTier)
    assert found["loom"] == (8_000, 16_000, 32_000, 100_000)
    assert found["lcr"] == (6 * 1024, 128 * 1024, 1024 * 1024, 100_000)
    assert len(set(found.values())) == 5
    assert all(mine < theirs for mine, theirs in zip(found["minimal"], found["loom"], strict=True))


def test_the_five_profiles_keep_five_different_things_of_one_conversation() -> None:
    """With their own budgets: the same 600 messages and uses, and no two working tiers are alike."""
    kept = {}
    for name in PROFILES:
        with opened(name) as memory:
            for number in range(600):
                memory.add_task(task(number, 100), importance=(number * 7 % 10) / 10)
                if number % 5 == 0:
                    memory.get_task(f"t{number // 2}")
            kept[name] = (
                frozenset(one.task_id for one in memory.get_l1_tasks()),
                frozenset(held(memory)),
                frozenset(one.task_id for one in memory.get_l3_summaries()),
            )
            stats = memory.get_stats()
            assert all(stats[f"{tier}_token_usage"] <= stats[f"{tier}_token_budget"] for tier in MemoryTier)
    assert len(set(kept.values())) == 5
    assert len({working for _, working, _ in kept.values()}) == 5


# --- who comes in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "comes"),
    [
        ("loom", {"t0.61", "t0.9"}),
        ("minimal", {"t0.61", "t0.9"}),
        ("task", {"t0.61", "t0.9"}),
        ("chat", {"t0.5", "t0.6", "t0.61", "t0.9"}),
        ("lcr", {"t0.0", "t0.4", "t0.5", "t0.6", "t0.61", "t0.9"}),
    ],
)
def test_whom_a_profile_admits_when_it_is_written(profile: str, comes: set[str]) -> None:
    with opened(profile) as memory:
        for importance in (0.0, 0.4, 0.5, 0.6, 0.61, 0.9):
            memory.add_task(task(importance), importance=importance)
        assert held(memory) == comes


def test_an_ordinary_message_comes_to_the_working_tier_of_a_chat_alone() -> None:
    """A plain message has importance 0.5."""
    for profile, comes in (("chat", 1), ("loom", 0), ("task", 0), ("minimal", 0)):
        with opened(profile) as memory:
            memory.l1.add({"role": "user", "content": "good morning"})
            assert memory.l2.size() == comes


def test_use_brings_back_what_the_profile_would_admit() -> None:
    """`lcr` admits everything that is used; the others what is important enough to be written there."""
    for profile in PROFILES:
        with opened(profile, **SAME_BUDGETS) as memory:
            for number in range(30):
                memory.add_task(task(number), importance=ORDINARY)
            assert "t0" not in held(memory)
            assert memory.get_task("t0") is not None
            assert ("t0" in held(memory)) == (profile in ("lcr", "chat"))
            stats = memory.get_stats()
            assert stats["l2_token_usage"] <= 100


def test_the_eviction_of_a_store_looks_at_the_last_use_but_one() -> None:
    """LRU-2: a record that was used once has its writing as the last but one, an unused one has none."""
    with opened("lcr") as memory:
        for number in range(3):
            memory.add_task(task(number))
        for used in ("t2", "t2", "t1", "t2"):
            memory.get_task(used)
        known = memory.access_record("t2")
        assert known is not None
        for is_written in (False, True):  # uses are written in the background
            if is_written:
                memory.store.flush()
            never, once, often = sorted(memory.store.residents(memory.settings.node_id, "l2"))
            assert (never.uses, once.uses, often.uses) == (0, 1, 3)
            assert never.previous_at is None
            assert once.previous_at == once.written_at < once.last_at
            assert [often.previous_at, often.last_at] == [moment.timestamp() for moment in known.timestamps]


def test_what_comes_back_leaves_no_stand_in_behind() -> None:
    with opened("lcr", **SAME_BUDGETS) as memory:
        for number in range(15):
            memory.add_task(task(number))
        archived = [one.task_id for one in memory.get_l3_summaries()]
        assert archived
        memory.get_task(archived[0])
        assert archived[0] in held(memory)
        assert archived[0] not in [one.task_id for one in memory.get_l3_summaries()]


def test_the_virtual_memory_counts_how_often_it_had_what_was_wanted() -> None:
    """The hit rate of the working tier: served from L1 or L2."""
    with opened("lcr", **SAME_BUDGETS) as memory:
        for number in range(20):
            memory.add_task(task(number))
        assert memory.get_stats()["l2_hit_rate"] is None
        memory.get_task("t19")
        memory.get_task("t18")
        memory.get_task("t0")
        memory.get_task("t0")
        stats = memory.get_stats()
        assert (stats["l2_hits"], stats["l2_misses"], stats["l2_hit_rate"]) == (3, 1, 0.75)
        assert memory.get_counters().working.hit_rate == 0.75


# --- who leaves --------------------------------------------------------------------------------------------


def after_pressure(profile: str) -> set[str]:
    """The residents after old, important and unused records, an old record in use, and many new ones."""
    with opened(profile, **SAME_BUDGETS) as memory:
        memory.add_task(task("important", 10), importance=1.0)
        memory.add_task(task("used", 10), importance=0.65)
        for number in range(12):
            memory.get_task("tused")
            memory.add_task(task(number, 10), importance=0.7)
        return held(memory)


def test_importance_decides_in_loom_and_minimal_and_use_in_the_others() -> None:
    """C-30: the weighted score of recency and frequency; loom: the least important leaves."""
    for profile in ("loom", "minimal"):
        assert "timportant" in after_pressure(profile)
        assert "tused" not in after_pressure(profile)
    for profile in ("lcr", "chat", "task"):
        assert "tused" in after_pressure(profile)
        assert "timportant" not in after_pressure(profile)


def test_the_working_tier_of_loom_is_freed_to_eighty_percent_and_that_of_lcr_stays_full() -> None:
    """C-9: each profile its own watermarks."""
    usage = {}
    for profile in ("loom", "lcr"):
        with opened(profile, **SAME_BUDGETS) as memory:
            for number in range(40):
                memory.add_task(task(number), importance=IMPORTANT)
            usage[profile] = memory.l2.token_usage
    assert usage == {"loom": 80, "lcr": 100}


def test_what_matters_to_the_present_step_stays_in_a_task_memory() -> None:
    """Profile `task`: relevance has half the weight. In a chat the later ones stay, whatever they are about."""
    kept = {}
    for profile in ("task", "chat"):
        with opened(profile, embedder=FakeEmbedder(128), **SAME_BUDGETS | {"l1_token_budget": 30}) as memory:
            for number in range(4):
                memory.add_task(task(f"login{number}", about="login oauth token session"), importance=IMPORTANT)
            for number in range(6):
                memory.add_task(task(f"other{number}", about="something else entirely"), importance=0.1)
            for number in range(4):
                memory.add_task(task(f"paint{number}", about="paint wall colour brush"), importance=IMPORTANT)
            for number in range(3):
                # The present step, too unimportant for the working tier itself.
                memory.add_task(task(f"now{number}", about="login oauth token session"), importance=0.1)
            memory.store.flush()
            memory.add_task(task("last", about="login oauth token session"), importance=IMPORTANT)
            kept[profile] = held(memory)
    assert {one for one in kept["task"] if one.startswith("tlogin")} == {f"tlogin{number}" for number in range(4)}
    assert len({one for one in kept["task"] if one.startswith("tpaint")}) == 3
    assert "tlogin0" not in kept["chat"]


def test_a_chat_holds_twice_the_recent_turns_of_loom() -> None:
    recent = {}
    for profile in ("loom", "chat", "minimal"):
        with opened(profile) as memory:
            for number in range(300):
                memory.add_task(task(number, 100))
            recent[profile] = len(memory.get_l1_tasks())
    assert recent == {"loom": 80, "chat": 160, "minimal": 40}


# --- the factory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "profile"),
    [
        (MemoryFactory.create_default, "loom"),
        (MemoryFactory.create_for_chat, "chat"),
        (MemoryFactory.create_for_task, "task"),
    ],
    ids=["default", "chat", "task"],
)
def test_the_factory_makes_memories_by_profile_with_any_option(make: Any, profile: str, tmp_path: Path) -> None:
    """Requirement 86."""
    with make("agent-7", store=tmp_path / "agent.loom", embedder="none", l1_token_budget=123) as memory:
        assert isinstance(memory, LoomMemory)
        assert memory.node_id == "agent-7"
        assert memory.settings.profile == profile
        assert memory.l1.token_budget == 123
        assert memory.l2.token_budget == PROFILES[profile].l2_token_budget
    with LoomMemory("agent-7", store=tmp_path / "agent.loom", embedder="none") as memory:
        assert memory.settings.profile == profile  # it is in the file


def test_the_factory_needs_no_name() -> None:
    with MemoryFactory.create_default(embedder="none") as memory:
        assert memory.node_id == "default"


def test_the_memories_of_the_factory_behave_differently() -> None:
    """Requirement 86: not only in numbers."""
    came = {}
    for name in ("create_default", "create_for_chat", "create_for_task"):
        options = {"embedder": "none", "token_counter": WordCounter(), "clock": Minutes()} | SAME_BUDGETS
        with getattr(MemoryFactory, name)("a", **options) as memory:
            memory.add_task(task("important"), importance=1.0)
            memory.add_task(task("ordinary"), importance=ORDINARY)
            for number in range(12):
                memory.get_task("tordinary")
                memory.add_task(task(number), importance=0.7)
            came[name] = ("timportant" in held(memory), "tordinary" in held(memory))
    assert came == {
        "create_default": (True, False),  # importance
        "create_for_chat": (False, True),  # ordinary messages, by recency
        "create_for_task": (False, False),  # admitted by importance, kept by use and relevance
    }


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="loom, lcr, chat, task, minimal"):
        LoomMemory("a", profile="turbo")


def test_another_profile_than_the_files_needs_to_be_meant(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    with opened("lcr", store=path) as memory:
        for number in range(200):
            memory.add_task(task(number, 100), importance=IMPORTANT)
        assert memory.l2.token_usage == 20_000
    with pytest.raises(SettingsConflict, match="profile"):
        opened("minimal", store=path)
    with opened("minimal", store=path, reconfigure=True) as memory:
        stats = memory.get_stats()
        assert [stats[f"{tier}_token_budget"] for tier in MemoryTier] == [4_000, 4_000, 8_000, 16_000]
        assert all(stats[f"{tier}_token_usage"] <= stats[f"{tier}_token_budget"] for tier in MemoryTier)
        assert memory.search_tasks("k0w1")[0].task_id == "t0"
