"""No part of the background work waits for another to run dry: under load each gets its turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import loom
from loom.models.embedders import FakeEmbedder
from loom.storage.sqlite.projections import Projector

TAIL = 20


def batch(first: int, count: int) -> list[str]:
    return [f"sentence {number} of a long day" for number in range(first, first + count)]


def test_words_are_indexed_while_a_slow_embedder_is_still_busy(tmp_path: Path) -> None:
    class Watched(FakeEmbedder):
        indexed: list[int]

        def embed_batch(self, texts: Any) -> Any:
            self.indexed.append(memory.get_stats()["indexed"])
            return super().embed_batch(texts)

    embedder = Watched(dimensions=16)
    embedder.indexed = []
    with loom.open(tmp_path / "agent.loom", embedder=embedder, index_tail_records=TAIL) as memory:
        memory.remember(batch(0, 1000))
        assert memory.flush().complete
    assert len(embedder.indexed) >= 10
    assert embedder.indexed[len(embedder.indexed) // 2] > 0, "nothing was indexed before all was embedded"


def test_segments_are_merged_and_vectors_indexed_under_a_load_that_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    vectors = 0
    loads = iter(range(1000, 1000 + 60 * TAIL, TAIL))
    extend = Projector.extend

    def extend_and_load(self: Projector, kind: str) -> int:
        nonlocal most, vectors
        done = extend(self, kind)
        if kind == "vectors":
            vectors += 1
        if (first := next(loads, None)) is not None:
            memory.remember(batch(first, TAIL))  # the tail is due again before anything else can be
            most = max(most, memory.get_stats()["segments"])
        return done

    with loom.open(tmp_path / "agent.loom", embedder=FakeEmbedder(dimensions=16), index_tail_records=TAIL) as memory:
        monkeypatch.setattr(Projector, "extend", extend_and_load)
        memory.remember(batch(0, TAIL))
        assert memory.flush().complete
        monkeypatch.undo()
        assert next(loads, None) is None
        assert vectors > 3
        # 60 tails of each kind, four of a size merged into one: about a dozen of each, never all of them.
        assert most < 40


def test_a_forget_that_was_interrupted_is_finished_under_a_load_that_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom.storage.sqlite import forgetting

    path = tmp_path / "agent.loom"
    with loom.open(path, embedder="none", index_tail_records=TAIL) as memory:
        memory.remember([{"id": f"one-{number}", "content": text} for number, text in enumerate(batch(0, 3 * TAIL))])
        assert memory.flush().complete

        def interrupted(*_: object) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(forgetting, "scrub", interrupted)
            with pytest.raises(KeyboardInterrupt):
                memory.forget("one-3")
        assert len(memory.store.jobs("scrub")) == 1

        loads = iter(range(1000, 1000 + 30 * TAIL, TAIL))
        waiting: list[int] = []
        extend = Projector.extend

        def extend_and_load(self: Projector, kind: str) -> int:
            done = extend(self, kind)
            waiting.append(len(memory.store.jobs("scrub")))
            if (first := next(loads, None)) is not None:
                memory.remember(batch(first, TAIL))
            return done

        monkeypatch.setattr(Projector, "extend", extend_and_load)
        memory.remember(batch(500, TAIL))
        assert memory.flush().complete
        monkeypatch.undo()
        assert len(waiting) >= 30
        assert waiting[len(waiting) // 2] == 0, "the scrub waited for the load to end"
