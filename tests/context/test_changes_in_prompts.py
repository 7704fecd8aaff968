"""A prompt contains the earlier statement and the date of the one that replaced it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import loom

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


def prompt(memory: loom.Memory, question: str) -> str:
    return "\n".join(str(message["content"]) for message in memory.context(question, budget=800))


@pytest.mark.parametrize(
    ("first", "second", "question", "line"),
    [
        (
            "I live in Berlin.",
            "I live in Paris now.",
            "Where does Ana live?",
            "Ana: earlier (2 Mar 2026): Place: Ana lives in Berlin / since 5 Mar 2026: Place: Ana lives in Paris now",
        ),
        (
            "我住在上海。",
            "我最近搬家了，现在住在杭州。",
            "我住在哪里？",
            "Ana: earlier (2 Mar 2026): 地点: Ana住在上海 / since 5 Mar 2026: 地点: Ana最近搬家了，现在住在杭州",
        ),
    ],
)
def test_a_change_is_one_line_until_one_side_is_forgotten(
    tmp_path: Path, first: str, second: str, question: str, line: str
) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        for day, text in ((0, first), (3, second)):
            at = MONDAY + timedelta(days=day)
            memory.remember(text, role="user", name="Ana", created_at=at, session_id=f"s{day}")
        memory.flush()
        assert prompt(memory, question).count("/ since 5 Mar 2026: ") == 1
        assert line in prompt(memory, question)
        memory.forget(memory.recall(question)[0].id)
        assert "since 5 Mar 2026" not in prompt(memory, question)


def test_a_prompt_without_a_change_has_no_such_line(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember("I live in Berlin.", role="user", created_at=MONDAY)
        memory.flush()
        assert "since" not in prompt(memory, "Where do I live?")
