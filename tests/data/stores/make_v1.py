"""Writes v1.loom: a store of format 1 with something of everything in it. Run once, when the format was new.

The file it wrote is kept beside it and must always open; do not run this again with a later format.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import loom
from loom.models.embedders import FakeEmbedder
from loom.protocol import TaskStatus
from loom.storage.contract import Draft

__all__ = ["make"]


def _moments() -> Iterator[datetime]:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    while True:
        now += timedelta(seconds=1)
        yield now


def make(path: Path) -> None:
    moments = _moments()
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with loom.open(
        path, derive=False, embedder=FakeEmbedder(16), l1_token_budget=4321, clock=lambda: next(moments)
    ) as memory:
        memory.remember(
            "We chose the authorization-code flow: it is safest.",
            id="english",
            role="user",
            name="Ana",
            session_id="s1",
            created_at=at,
            importance=0.75,
            metadata={"topic": "login", "tags": ["a", "b"], "deep": {"n": None}},
        )
        memory.remember("数据库备份在每天凌晨三点运行。", id="chinese", role="assistant", created_at=at)
        memory.remember("The port is 8080.", id="port", created_at=at)
        memory.update("port", "The port is 9090.")
        task = loom.Task(task_id="task", action="deploy", status=TaskStatus.COMPLETED, created_at=at, updated_at=at)
        task.result = {"done": True}
        memory.remember(task)
        memory.remember("The secretword is gone.", id="forgotten", created_at=at)
        english = memory.get("english")
        assert english is not None
        with memory.store.transaction() as transaction:
            transaction.append(
                [
                    Draft(
                        id="chat",
                        content="a part",
                        created_at=at,
                        data={"role": "user", "content": [{"type": "text", "text": "a part"}]},
                        sources=("english",),
                    )
                ]
            )
            transaction.enter([english.seq], "l2", "default", "important")
            transaction.put_entry(
                "plan", {"step": 1}, writer="one", scope="shared", owner="team", metadata={"by": "hand"}
            )
            transaction.put_entry(
                "plan", {"step": 2}, writer="two", scope="shared", owner="team", metadata={"seen": True}
            )
            transaction.put_blob("bytes", bytes(range(256)))
        memory.pin("chinese")
        memory.set_retention(loom.Retention(max_records=1000))
        memory.flush()
        memory.forget("forgotten")
        memory.check()
    with loom.open(path, derive=False, embedder="none", namespace="other", clock=lambda: next(moments)) as memory:
        memory.remember("in another namespace", id="english")


if __name__ == "__main__":
    make(Path(__file__).with_name("v1.loom"))
