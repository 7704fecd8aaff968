"""A memory that does not fit whole is quoted by the passages that the question needs, with the gaps marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loom
from loom.context.excerpts import excerpt
from loom.everyday import Memory
from loom.recall.passage_scores import PassageScorer
from loom.text.passages import passages
from loom.text.tokens import default_counter

BEGAN = datetime(2026, 3, 2, 9, tzinfo=UTC)
FILLER = (
    "The quarterly report was sent on time and no objections came back. The room was booked for the usual hour, "
    "and the minutes were filed. Everybody agreed that the heating should be looked at before the winter comes. "
)
OIL = "The gearbox of the windmill needs synthetic oil of grade 320."
QUESTION = "Which oil does the gearbox of the windmill need?"
COUNT = default_counter().count
GAP = re.compile(r"\[… [\d,]+ tokens left out\]")


@pytest.fixture
def memory() -> Iterator[Memory]:
    with loom.open(embedder="none", derive=False) as opened:
        yield opened


def long_text(middle: str, paragraphs: int = 16) -> str:
    parts = [f"Paragraph {number}. {FILLER}" for number in range(paragraphs)]
    return "\n\n".join([*parts[: paragraphs // 2], middle, *parts[paragraphs // 2 :]])


def test_a_long_memory_is_quoted_by_the_passage_that_the_question_needs(memory: Memory) -> None:
    text = long_text(f"{OIL} {FILLER}")
    memory.remember(text, id="long", role="assistant", created_at=BEGAN)
    context = memory.context(QUESTION, budget=500)
    (item,) = [one for one in context.items if one.source == "recall"]
    assert OIL in item.text
    assert item.shortened
    assert len(GAP.findall(item.text)) == 2  # before the passage and after it
    assert item.text.splitlines()[0].startswith("[… ")
    assert re.search(r"shortened: \d+ of \d+ tokens, passages? \d+.* of \d+", item.reason)
    assert item.reason in context.explain()
    assert item.text.replace("\n", "\n| ") in context[1]["content"]
    record = memory.get("long")
    assert record is not None
    assert record.content == text


def test_with_room_the_same_memory_is_whole(memory: Memory) -> None:
    text = long_text(OIL)
    memory.remember(text, id="long", role="assistant", created_at=BEGAN)
    (item,) = [one for one in memory.context(QUESTION, budget=4000).items if one.id == "long"]
    assert (item.text, item.shortened) == (text, False)


def test_many_long_memories_each_have_their_passage_in_a_prompt_that_holds_none_whole(memory: Memory) -> None:
    for number in range(12):
        memory.remember(
            long_text(f"Windmill {number} takes oil of grade {100 + number} in its gearbox. {FILLER}", 30),
            id=f"mill-{number}",
            role="assistant",
            created_at=BEGAN + timedelta(hours=number),
        )
    context = memory.context("Which oil do the gearboxes of the windmills take?", budget=3000)
    shown = [item for item in context.items if item.id.startswith("mill-")]
    assert len(shown) >= 8
    assert all(f"grade {100 + int(item.id[5:])}" in item.text for item in shown)
    assert context.tokens > 2700


def test_a_part_of_a_code_block_is_opened_and_closed(memory: Memory) -> None:
    lines = [f"value_{number} = compute({number})" for number in range(300)]
    lines[150] = "windmill_gearbox_oil = Oil(grade=320)"
    text = f"# Settings\n\nThis is the module:\n\n```python\n{chr(10).join(lines)}\n```\n\nThat is all."
    memory.remember(text, id="code", role="assistant", created_at=BEGAN)
    (item,) = [one for one in memory.context(QUESTION, budget=700).items if one.source == "recall"]
    shown = item.text.splitlines()
    assert lines[150] in shown
    fences = [line for line in shown if line.startswith("```")]
    assert fences == ["```python", "```"] * (len(fences) // 2)
    assert shown.index("```python") < shown.index(lines[150])
    assert "# Settings […]" in shown
    assert {line for line in shown if "compute" in line} <= set(lines)


def test_a_table_and_a_code_block_that_fit_are_never_broken(memory: Memory) -> None:
    table = "| part | oil |\n|---|---|\n| gearbox of the windmill | grade 320 |\n| winch | grade 46 |"
    memory.remember(long_text(table), id="long", role="assistant", created_at=BEGAN)
    (item,) = [one for one in memory.context(QUESTION, budget=450).items if one.source == "recall"]
    assert table in item.text


def test_importance_decides_between_parts_that_the_question_does_not_tell_apart() -> None:
    weighty = f"We decided to never deploy on Fridays, because release 4.2 failed. {FILLER}"
    text = long_text(weighty)
    found = excerpt(text, COUNT(text), 280, PassageScorer.of_question("camels"), COUNT)
    assert found is not None
    assert "never deploy on Fridays" in found.text


def test_in_a_session_a_long_memory_is_shown_once_by_its_passage(memory: Memory) -> None:
    memory.remember(
        long_text(f"{OIL} {FILLER}", 60), id="long", role="assistant", created_at=BEGAN, session_id="past"
    )
    for number in range(3):
        memory.remember({"role": "user", "content": f"Step {number}?"}, session_id="now")
        memory.remember({"role": "assistant", "content": f"Step {number} is done."}, session_id="now")
    memory.context("Go on.", session_id="now", budget=2000)
    asked = memory.context(QUESTION, session_id="now", budget=2000)
    assert any(OIL in item.text and item.shortened for item in asked.items if item.id == "long")
    after = memory.context("Thank you.", session_id="now", budget=2000)
    assert after.prefix > 1
    assert OIL not in "\n".join(message["content"] for message in after[: after.prefix])


texts = st.lists(
    st.sampled_from(
        [FILLER * 2, OIL, "```\ncode = 1\n```", "| a | b |\n|---|---|\n| 1 | 2 |", "## Part", "风车用油。" * 40]
    ),
    min_size=1,
    max_size=24,
).map("\n\n".join)


@given(texts, st.integers(1, 900))
def test_an_excerpt_takes_no_more_than_its_room_and_has_passages_of_the_text_in_order(text: str, most: int) -> None:
    found = excerpt(text, COUNT(text), most, PassageScorer.of_question(QUESTION), COUNT)
    if found is None:
        return
    assert COUNT(found.text) <= most
    parts = passages(text)
    assert found.passages == len(parts)
    assert 0 < len(found.shown) < len(parts) or not found.is_whole
    assert GAP.search(found.text)
    if found.is_whole:
        places = [found.text.find(text[parts[at - 1].start : parts[at - 1].end].strip("\n")) for at in found.shown]
        assert -1 not in places
        assert places == sorted(places)
