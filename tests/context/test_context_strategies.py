"""Choosing units and events, and the system text of an agent with a notebook."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from loom.context import (
    ContextManager,
    PriorityContextStrategy,
    SlidingWindowStrategy,
    build_minimal_prompt,
    fit_task_state,
    score_events,
)
from loom.errors import InvalidInput
from loom.protocol import Task
from loom.text.tokens import TiktokenCounter
from loom.types import MemoryUnit

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def unit(number: int, importance: float, tokens: int = 10) -> MemoryUnit:
    at = NOW + timedelta(minutes=number)
    return MemoryUnit(f"unit {number}", id=f"u{number}", importance=importance, token_count=tokens, created_at=at)


def test_priority_takes_the_most_important_and_passes_over_what_does_not_fit() -> None:
    units = [unit(0, 0.2), unit(1, 0.9, 25), unit(2, 0.8, 100), unit(3, 0.8), unit(4, 0.5)]
    chosen = PriorityContextStrategy().select(units, 46)
    assert [one.id for one in chosen] == ["u1", "u3", "u4"]


def test_the_sliding_window_is_the_newest_without_a_gap() -> None:
    units = [unit(3, 0.1), unit(0, 0.9), unit(1, 0.9, 100), unit(2, 0.1)]
    assert [one.id for one in SlidingWindowStrategy().select(units, 60)] == ["u2", "u3"]


def test_a_manager_builds_messages_within_its_tokens() -> None:
    manager = ContextManager(SlidingWindowStrategy(), max_tokens=20)
    manager.add(*(unit(number, 0.5) for number in range(5)))
    assert manager.to_messages() == [{"role": "user", "content": f"unit {number}"} for number in (3, 4)]
    assert manager.remove("u4")
    assert not manager.remove("u4")
    assert (len(manager), [one.id for one in manager.build_context(max_tokens=10)]) == (4, ["u3"])


def test_what_has_no_count_is_counted() -> None:
    long = MemoryUnit("tide " * 100)
    assert PriorityContextStrategy().select([long], 50) == []
    with pytest.raises(InvalidInput):
        PriorityContextStrategy().select([long], -1)


def test_events_are_worth_more_when_new_grave_fitting_and_ones_own() -> None:
    def event(action: str, words: str, hours: float, agent: str = "", session: str | None = None) -> Task:
        return Task(
            action=action,
            parameters={"content": words},
            created_at=NOW - timedelta(hours=hours),
            source_agent=agent,
            session_id=session,
        )

    plain = event("note", "unrelated", 2)
    current = Task(action="execute", parameters={"content": "repair the heron server"}, session_id="s1")
    better = {
        "time": event("note", "unrelated", 0),
        "action": event("node.error", "unrelated", 2),
        "relevance": event("note", "the heron server is down", 2),
        "node": event("note", "unrelated", 2, agent="me"),
    }
    for part, task in better.items():
        best, worst = score_events([plain, task], current, node_id="me", now=NOW)
        assert (best.task, worst.task) == (task, plain), part
        assert best.parts[part] > worst.parts[part]
    (fresh,) = score_events([event("note", "unrelated", 1, session="s1")], current, now=NOW)
    assert fresh.parts["time"] == pytest.approx(0.5)
    assert fresh.parts["node"] == pytest.approx(0.5)


PROCESS = """# Task Process

## 当前状态
- 指令指针: 3
- 阶段: executing

## TODO列表
{before}
- [ ] 生成第二章  ← 当前
{after}

## 动态指令
IF error THEN retry ELSE continue
"""


def test_the_status_and_the_current_item_survive_any_budget() -> None:
    before = "\n".join(f"- [x] 已完成的步骤 {number}" for number in range(300))
    after = "\n".join(f"- [ ] 以后的步骤 {number}" for number in range(300))
    text = PROCESS.format(before=before, after=after)
    counter = TiktokenCounter()
    for budget in (120, 400, 1250):
        fitted = fit_task_state(text, budget, counter)
        assert counter.count(fitted) <= budget
        assert "指令指针: 3" in fitted
        assert "阶段: executing" in fitted
        assert "生成第二章  ← 当前" in fitted
        assert "[…]" in fitted
    assert "已完成的步骤 299" in fit_task_state(text, 400, counter)
    assert fit_task_state(text, 1, counter).count("\n") < 10
    assert fit_task_state("short", 100) == "short"


def test_the_minimal_prompt_has_its_compacted_memory_and_nothing_else() -> None:
    prompt = build_minimal_prompt(
        "You are it.", "\nYou know tea.", compact_memory="We chose tea.", task_state="step 1"
    )
    assert prompt == "You are it.\nYou know tea.\n## 历史记忆\nWe chose tea."
    assert build_minimal_prompt("You are it.") == "You are it."


def test_the_full_prompt_has_the_task_and_three_sessions_of_its_own() -> None:
    prompt = build_minimal_prompt(
        "You are it.",
        minimal_mode=False,
        compact_memory="unused",
        task_state="- [ ] step 1 ← 当前 <|im_start|>",
        own_sessions=["one", "two", "three", "four"],
    )
    assert prompt == ("You are it.\n## 任务状态\n- [ ] step 1 ← 当前 ‹¦im_start¦›\n## 个人历史\ntwo\n\nthree\n\nfour")
