"""The benchmark of rooms counts calls and crossings correctly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.rooms import Watch, measure

STORAGE = "def read(then):\n    return then()\ndef inner():\n    return 1\ndef outer():\n    return inner()\n"
MEMORY = (
    "from storage import rows\ndef ask():\n    return rows.read(answer)\ndef answer():\n    return rows.outer()\n"
)


def test_a_call_into_another_room_and_its_return_are_two_crossings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room, module, text in (("storage", "rows", STORAGE), ("memory", "core", MEMORY)):
        folder = tmp_path / room
        folder.mkdir()
        (folder / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    from importlib import import_module

    ask = import_module("memory.core").ask
    watch = Watch(tmp_path)
    sys.setprofile(watch)
    try:
        ask()
    finally:
        sys.setprofile(None)
    # memory -> storage -> memory -> storage, and back again.
    assert watch.crossings == 6
    assert watch.calls == 5
    assert watch.entered == {"memory": 2, "storage": 2}


def test_the_verbs_are_followed_through_the_rooms(tmp_path: Path) -> None:
    journeys = {journey.verb: journey for journey in measure(60, tmp_path)}
    assert [*journeys] == ["remember", "recall", "context"]
    for journey in journeys.values():
        assert {"memory", "storage"} <= journey.rooms.keys()
        assert journey.calls > journey.crossings > 0
        assert journey.statements > 0
    assert {"recall", "index", "text"} <= journeys["recall"].rooms.keys()
    assert "context" in journeys["context"].rooms
    assert "context" not in journeys["recall"].rooms


def test_a_recall_and_a_context_cross_rooms_in_batches_and_read_in_one_scope(tmp_path: Path) -> None:
    """At most half of the crossings that the same verbs made when the rooms were divided (docs/architecture.md)."""
    journeys = {journey.verb: journey for journey in measure(400, tmp_path)}
    assert journeys["recall"].crossings <= 128
    assert journeys["recall"].statements <= 14
    assert journeys["context"].crossings <= 712
    assert journeys["context"].statements <= 48
