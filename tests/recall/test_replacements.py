"""Changes: a hit and the memory that it replaces are returned together and say so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import loom
from tests.storage.plain_store import PlainStore

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
FILLER = [f"The Berlin office answered letter {number} about the noise." for number in range(12)]


@pytest.fixture(params=["sqlite", "plain"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[loom.Memory]:
    store = PlainStore() if request.param == "plain" else tmp_path / "a.loom"
    with loom.Memory(store=store, embedder="none") as opened:
        yield opened


def say(memory: loom.Memory, text: str, day: int = 0, session_id: str = "s1") -> str:
    at = MONDAY + timedelta(days=day)
    return memory.remember(text, role="user", name="Ana", session_id=session_id, created_at=at).id


def moved(memory: loom.Memory) -> tuple[str, str]:
    old = say(memory, "I live in Berlin.")
    for text in FILLER:
        say(memory, text, 1, "s2")
    new = say(memory, "We have just settled down: I live in Paris now, after all the boxes and the noise.", 3, "s3")
    memory.flush()
    return old, new


@pytest.mark.parametrize(
    ("first", "second", "question"),
    [
        ("I live in Berlin.", "I live in Paris now.", "Where does Ana live?"),
        ("我住在上海。", "我最近搬家了，现在住在杭州。", "我住在哪里？"),
    ],
)
def test_both_sides_of_a_change_are_marked_and_stand_together(
    memory: loom.Memory, first: str, second: str, question: str
) -> None:
    old, new = say(memory, first), say(memory, second, 3)
    memory.flush()
    hits = memory.recall(question)
    assert {hit.id for hit in hits[:2]} == {old, new}
    earlier, later = sorted(hits[:2], key=lambda hit: hit.created_at)
    assert earlier.replaced_by is not None
    assert later.replaces is not None
    assert (earlier.replaced_by.id, earlier.replaces) == (new, None)
    assert (later.replaces.id, later.replaced_by) == (old, None)
    assert "replaced by what was said on 5 Mar 2026" in earlier.why
    assert "replaces what was said on 2 Mar 2026" in later.why
    assert loom.Hit.from_dict(later.to_dict()).replaces == later.replaces


def test_the_other_side_comes_along_where_the_question_would_not_have_found_it_within_the_limit(
    memory: loom.Memory,
) -> None:
    old, new = moved(memory)
    for limit in (2, 5, 10):
        hits = memory.recall("Is it Berlin?", limit=limit)
        assert [hit.id for hit in hits[:2]] == [old, new]
        assert len(hits) <= limit
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert [hit.id for hit in memory.recall("Is it Berlin?", limit=1)] == [old]


def test_a_hit_is_replaced_by_what_holds_now_and_not_by_a_step_on_the_way(memory: loom.Memory) -> None:
    old = say(memory, "I live in Berlin.")
    say(memory, "I live in Paris now.", 3)
    newest = say(memory, "I live in Oslo now.", 6)
    memory.flush()
    (hit,) = [one for one in memory.recall("Where does Ana live?") if one.id == old]
    assert hit.replaced_by is not None
    assert hit.replaced_by.id == newest
    then = MONDAY + timedelta(days=4)
    (hit,) = [one for one in memory.recall("Where does Ana live?", as_of=then) if one.id == old]
    assert hit.replaced_by is not None
    assert "Paris" in hit.replaced_by.content


@pytest.mark.parametrize("side", [0, 1])
def test_forgetting_one_side_takes_the_marks_from_the_other(memory: loom.Memory, side: int) -> None:
    pair = moved(memory)
    memory.forget(pair[side])
    hits = memory.recall("Does Ana live in Berlin or in Paris?")
    assert pair[1 - side] in {hit.id for hit in hits}
    assert all(hit.replaces is None and hit.replaced_by is None for hit in hits)


def test_a_change_that_the_question_does_not_concern_is_not_told(memory: loom.Memory) -> None:
    say(memory, "I live in Berlin. The invoice template is stored under finance.")
    say(memory, "I live in Paris now.", 3)
    memory.flush()
    (hit, *_) = memory.recall("Where is the invoice template that Ana stored?")
    assert "invoice" in hit.content
    assert hit.replaced_by is None


def test_a_new_version_knows_the_text_that_it_replaced(memory: loom.Memory) -> None:
    id = say(memory, "The invoice template is stored under finance.")
    memory.update(id, "The invoice template is stored under accounting.")
    (hit,) = memory.recall("Where is the invoice template stored?")
    assert hit.replaces is not None
    assert (hit.replaces.id, hit.replaces.version) == (id, 1)
    assert hit.replaces.content == "The invoice template is stored under finance."
    assert hit.replaced_by is None


def test_a_filter_that_keeps_the_other_side_out_keeps_the_marks_out(memory: loom.Memory) -> None:
    old, new = moved(memory)
    for session, own in (("s1", old), ("s3", new)):
        (hit,) = memory.recall("Where does Ana live?", session_id=session)
        assert (hit.id, hit.replaces, hit.replaced_by) == (own, None, None)
