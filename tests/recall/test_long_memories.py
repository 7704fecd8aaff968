"""Long memories are scored by their best passage, and hits name it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import loom
from loom.everyday import Memory
from loom.recall.hits import Hit
from loom.recall.passage_scores import PassageScorer
from loom.text.passages import passages

NOW = datetime(2024, 5, 15, 12, tzinfo=UTC)
FILLER = (
    "The quarterly report was sent on time and no objections came back. The room was booked for the usual hour, "
    "and the minutes were filed. Everybody agreed that the heating should be looked at before the winter comes. "
)
ABOUT_IT = "The gearbox of the windmill needs synthetic oil of grade 320, changed every autumn."


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with loom.open(tmp_path / "a.loom", embedder="none", clock=lambda: NOW, derive=False) as opened:
        yield opened


def long_text(middle: str, paragraphs: int = 12) -> str:
    parts = [f"Paragraph {number}. {FILLER}" for number in range(paragraphs)]
    return "\n\n".join([*parts[: paragraphs // 2], middle, *parts[paragraphs // 2 :]])


def test_a_long_memory_whose_passage_answers_comes_before_one_that_scatters_the_words(memory: Memory) -> None:
    words = ["the gearbox stood in the yard", "a windmill turned", "somebody spilt oil", "grade four wrote a poem"]
    scattered = "\n\n".join(f"{FILLER}{FILLER}{FILLER} {f'Then {word}. ' * 4}" for word in words)
    memory.remember(scattered, id="scattered", role="assistant")
    memory.remember(long_text(f"{ABOUT_IT} {FILLER}"), id="answer", role="assistant")
    hits = memory.recall("The grade of the oil in the gearbox of the windmill?")
    assert [hit.id for hit in hits] == ["answer", "scattered"]


def test_a_hit_says_which_passage_speaks_for_it(memory: Memory) -> None:
    text = long_text(f"## Maintenance\n\n{ABOUT_IT} {FILLER}")
    memory.remember(text, id="long", role="assistant")
    (hit,) = memory.recall("Which oil does the gearbox need?")
    passage = hit.passage
    assert passage is not None
    assert ABOUT_IT in passage.text
    assert passage.text == text[passage.start : passage.end] == hit.content[passage.start : passage.end]
    assert len(passage.text) < len(text) / 3
    assert f"best passage {passage.start:,} to {passage.end:,} of {len(text):,} characters" in hit.why
    record = memory.get("long")
    assert record is not None
    assert record.content == hit.content == text


def test_the_heading_of_a_passage_counts_for_it(memory: Memory) -> None:
    text = f"# Windmill\n\n{FILLER * 4}\n\n{FILLER * 4}\n\nSynthetic oil of grade 320. {FILLER * 2}"
    memory.remember(text, id="long")
    (hit,) = memory.recall("oil of the windmill")
    assert hit.passage is not None
    assert "grade 320" in hit.passage.text
    assert hit.passage.heading == "# Windmill"


def test_a_short_memory_and_one_without_the_words_have_no_passage(memory: Memory) -> None:
    memory.remember(ABOUT_IT, id="short", session_id="s")
    memory.remember(long_text(FILLER), id="beside", session_id="s")
    hits = {hit.id: hit for hit in memory.recall("windmill gearbox oil")}
    assert hits["short"].passage is None
    assert "passage" not in hits["short"].why
    assert "beside" not in hits or hits["beside"].passage is None


def test_a_hit_keeps_its_passage_as_a_dictionary(memory: Memory) -> None:
    memory.remember(long_text(f"{ABOUT_IT} {FILLER}"), id="long")
    (hit,) = memory.recall("windmill gearbox oil")
    again = Hit.from_dict(hit.to_dict())
    assert again == hit
    assert again.passage == hit.passage is not None
    assert again.to_dict() == hit.to_dict()


def test_tail_and_index_score_passages_alike(memory: Memory) -> None:
    for number in range(40):
        about = ABOUT_IT if number % 7 == 3 else f"The pump number {number} takes oil of grade {number}."
        memory.remember(long_text(f"{about} {FILLER}", 6 + number % 5), id=f"long-{number}", role="assistant")
        memory.remember(f"Pump {number} was checked.", id=f"short-{number}", role="user")
    question = "Which grade of oil does the gearbox of the windmill need?"
    before = [(hit.id, hit.score, hit.passage) for hit in memory.recall(question, limit=20)]
    memory.flush()
    after = [(hit.id, hit.score, hit.passage) for hit in memory.recall(question, limit=20)]
    assert before == after
    assert all(passage is not None for id, _, passage in after if id.startswith("long"))


def test_copies_of_a_long_text_are_one_hit(memory: Memory) -> None:
    for number in range(30):
        memory.remember(long_text(f"{ABOUT_IT} {FILLER}"), id=f"copy-{number}")
    (hit,) = memory.recall("windmill gearbox oil")
    assert hit.copies == 30


def test_a_chinese_passage_is_found_in_a_long_chinese_text(memory: Memory) -> None:
    filler = "季度报告按时发出，没有人提出异议。会议室照常预订，会议纪要也归档了。大家同意入冬之前检查一下暖气。"
    parts = [filler * 3 for _ in range(8)]
    text = "\n\n".join([*parts[:5], f"风车的齿轮箱要用三百二十号合成油，每年秋天更换。{filler}", *parts[5:]])
    memory.remember(text, id="long", role="assistant")
    (hit,) = memory.recall("齿轮箱用什么油？")
    assert hit.passage is not None
    assert "合成油" in hit.passage.text
    assert len(hit.passage.text) < 300


def test_a_text_of_megabytes_is_recalled_by_its_words(memory: Memory) -> None:
    memory.remember(f"{FILLER * 8_000}\n\n{ABOUT_IT}", id="huge")
    memory.remember("The gearbox was painted.", id="short")
    assert {hit.id for hit in memory.recall("synthetic oil for the gearbox")} == {"huge", "short"}


def test_the_first_of_equal_passages_is_the_best() -> None:
    text = "\n\n".join([FILLER * 4, f"{ABOUT_IT} {FILLER * 3}", f"{ABOUT_IT} {FILLER * 3}", FILLER * 4])
    best = PassageScorer.of_question("gearbox oil").best(text)
    assert best == next(part for part in passages(text) if "gearbox" in text[part.start : part.end])
    assert PassageScorer.of_question("camels").best(text) is None
