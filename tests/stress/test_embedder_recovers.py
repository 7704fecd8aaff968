"""An embedder that was down for a while: its work is resumed automatically."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loom
from loom.models.embedders import FakeEmbedder


class Recovering(FakeEmbedder):
    failures = 3

    def embed_batch(self, texts: Sequence[str]) -> Any:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("down")
        return super().embed_batch(texts)


def test_texts_are_embedded_by_themselves_once_the_embedder_is_back(tmp_path: Path) -> None:
    with loom.open(tmp_path / "agent.loom", embedder=Recovering(dimensions=16), derive=False) as memory:
        memory.remember("Written while the embedder was down.")
        deadline = time.monotonic() + 60
        while memory.get_stats()["vectors"] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)  # for the condition, never for a time
        assert memory.get_stats()["vectors"] == 1
        assert memory.get_stats()["jobs"] == 0
