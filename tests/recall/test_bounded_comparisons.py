"""Copies are found among many alike records without comparing every pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import loom
from loom.recall import copies, search


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of comparisons of two records."""
    count = [0]
    plain = copies.Duplicates.are_alike

    def counted(self: Any, *given: Any) -> bool:
        count[0] += 1
        return plain(self, *given)

    monkeypatch.setattr(copies.Duplicates, "are_alike", counted)
    return count


def records(number: int) -> list[dict[str, str]]:
    return [
        {
            "role": "tool",
            "content": f"tool result: read file src/module_{n}.py, {n * 7} lines, status ok, took {n} ms",
        }
        for n in range(number)
    ]


def unnumbered(number: int) -> list[dict[str, str]]:
    """Records of one template without a number or a name, each with words of its own."""
    spelled = [str(n).translate(str.maketrans("0123456789", "abcdefghij")) for n in range(number)]
    return [{"role": "tool", "content": f"tool result: read file, status ok, x{n}x y{n}y z{n}z"} for n in spelled]


@pytest.mark.parametrize("limit", [50, 200, 400])
@pytest.mark.parametrize("template", [records, unnumbered])
def test_templated_records_are_not_compared_pair_by_pair(
    compared: list[int], template: Callable[[int], list[dict[str, str]]], limit: int
) -> None:
    with loom.open(embedder="none", derive=False) as memory:
        memory.remember(template(1500))
        hits = memory.recall("tool result read file status ok", limit=limit)
        assert len(hits) == limit
        assert len({hit.id for hit in hits}) == limit
        assert compared[0] <= 40 * limit


def test_the_same_copies_are_found_as_by_comparing_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    with loom.open(embedder="none", derive=False) as memory:
        memory.remember(records(300))
        memory.remember([{**each, "content": each["content"] + "!"} for each in records(300)])
        memory.remember([{**each, "content": each["content"].replace("took", "and took")} for each in records(300)])

        def found() -> list[tuple[str, tuple[str, ...]]]:
            hits = memory.recall("tool result read file status ok", limit=300)
            return [(hit.id, hit.copy_ids) for hit in hits]

        bounded = found()
        assert sum(len(copies) for _, copies in bounded) >= 300
        monkeypatch.setattr(copies, "COMPARED_WITH", 10**9)
        assert bounded == found()


def test_diverse_hits_are_chosen_among_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    count = [0]
    plain = copies.jaccard

    def counted(one: frozenset[str], other: frozenset[str]) -> float:
        count[0] += 1
        return plain(one, other)

    with loom.open(embedder="none", derive=False) as memory:
        memory.remember(records(1500))
        monkeypatch.setattr(search, "jaccard", counted)
        hits = memory.recall("tool result read file status ok", limit=400, diversity=0.5)
        assert len({hit.id for hit in hits}) == 400
        assert count[0] <= 120_000
