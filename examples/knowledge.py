"""Derived knowledge: facts with sources and validity, summaries with a score, and undo."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import loom
from loom.memory import CompactionConfig

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = CompactionConfig(trigger_threshold=0.5, target_ratio=0.2)
        with loom.open(
            Path(folder) / "agent.loom",
            embedder="none",
            compaction=config,
            l1_token_budget=200,
            l2_token_budget=300,
            l3_token_budget=900,
        ) as memory:
            memory.remember("I live in Berlin.", name="Ana", created_at=MONDAY)
            memory.remember("I live in Paris now.", name="Ana", created_at=MONDAY + timedelta(days=30))
            memory.remember("最终决定使用 Authorization Code 模式，因为安全性最高。", name="Wei", created_at=MONDAY)
            memory.flush()
            for fact in memory.facts():
                print(f"{fact.content}  (drawn from {len(fact.sources)})")
            (then,) = memory.facts("Where does Ana live?", limit=1, as_of=MONDAY + timedelta(days=1))
            print(f"in March: {then.content}")

            for number in range(60):
                memory.remember(
                    f"Build {number} failed with TimeoutError; raising the limit to {100 + number} fixed it."
                    if number % 3 == 0
                    else "Let me think about that for a while, I am not sure, it has been a long day for all of us.",
                    session_id="builds",
                    importance=0.7,
                )
            memory.flush()
            (summary, *_) = memory.summaries()
            print(f"a summary: {summary.tokens <= summary.original_tokens / 10} that it has a tenth of the tokens")
            undone = memory.undo(summary.id)
            print(f"undone: {len(undone.restored) == len(summary.sources)} that everyone has their place back")


if __name__ == "__main__":
    main()
