"""A restored store behaves like the original afterwards: same rows, same tiers, same evictions, same answers.

A memory lives; at any moment it is carried over, by one snapshot or a chain, into a new file or into a namespace of
another memory. From then on both do the same under the same clock, and are compared after every step.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import loom
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from tests.storage.whole_stores import everything

BUDGETS = {"l1_token_budget": 60, "l2_token_budget": 120, "l3_token_budget": 90, "l4_token_budget": 150}
NAMES = [f"m{number}" for number in range(6)]
SESSIONS = ["trip", "work"]
WORDS = [
    "harbour lights",
    "港口的灯塔",
    "a long tale of the seven ships that came home " * 3,
    "short",
    "北门等候的集装箱",
]
PROFILES = ["loom", "lcr", "task"]


class SnapshotMachine(RuleBasedStateMachine):
    """One memory, and from some moment on a restored one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="loom-snapshots-"))
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.chain: list[Path] = []
        self.memory: Memory
        self.other: Memory | None = None
        self.exact = True
        self.layouts, self.forgot = True, False
        self.steps = self.copies = 0

    @initialize(profile=st.sampled_from(PROFILES))
    def begin(self, profile: str) -> None:
        self.profile = profile
        self.memory = self._opened("first.loom")
        for number, name in enumerate(NAMES):
            self.say(name, WORDS[number % len(WORDS)], 0.1 + number / 8, SESSIONS[number % 2])
            self.use(NAMES[number // 2])

    def _opened(self, name: str, namespace: str = "default") -> Memory:
        return loom.open(
            self.folder / name,
            namespace=namespace,
            profile=self.profile,
            embedder=FakeEmbedder(dimensions=8, seed=1),
            derive=False,
            clock=lambda: self.now,
            **BUDGETS,  # type: ignore[arg-type]
        )

    def _both(self, act: Callable[[Memory], Any]) -> None:
        self.now += timedelta(minutes=7)
        answers = []
        for memory in (self.memory, self.other):
            if memory is not None:
                answers.append(act(memory))
                memory.flush()
        assert len(answers) == 1 or answers[0] == answers[1]

    # -- living ----------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        words=st.sampled_from(WORDS),
        importance=st.sampled_from([0.1, 0.5, 0.7, 0.95]),
        session=st.sampled_from(SESSIONS),
    )
    def say(self, name: str, words: str, importance: float, session: str) -> None:
        self.steps += 1
        text, number = f"{words} {self.steps}", self.steps

        def act(memory: Memory) -> Any:
            if memory.store.get(name) is not None:
                return memory.update(name, text).tier
            return memory.remember(text, id=name, importance=importance, session_id=session).tier

        self._both(act)
        self._both(lambda memory: memory.remember(f"aside {number}", id=f"aside{number}", importance=0.8).tier)

    @rule(name=st.sampled_from(NAMES))
    def use(self, name: str) -> None:
        def act(memory: Memory) -> Any:
            record = memory.get(name)
            return None if record is None else record.content

        self._both(act)

    @rule(name=st.sampled_from(NAMES))
    def forget(self, name: str) -> None:
        """The layouts of its session go; a restore after it brings no layouts at all."""
        self.forgot = True
        self._both(lambda memory: memory.forget(name).ids)

    @rule(name=st.sampled_from(NAMES), pinned=st.booleans())
    def pin(self, name: str, pinned: bool) -> None:
        def act(memory: Memory) -> None:
            if memory.store.get(name) is not None:
                memory.pin(name) if pinned else memory.unpin(name)

        self._both(act)

    @rule(key=st.sampled_from(["plan", "状态"]), delete=st.booleans())
    def share(self, key: str, delete: bool) -> None:
        self.steps += 1
        value = {"step": self.steps}

        def act(memory: Memory) -> Any:
            with memory.store.transaction() as transaction:
                if delete:
                    return transaction.delete_entry(key, scope="shared")
                transaction.put_blob(key, f"bytes {value}".encode())
                return transaction.put_entry(key, value, writer="w", scope="shared").version

        self._both(act)

    @precondition(lambda self: self.exact and self.layouts)
    @rule(session=st.sampled_from(SESSIONS))
    def prompt(self, session: str) -> None:
        self._both(
            lambda memory: [
                message["content"]
                for message in memory.context("Which lights?", budget=200, session_id=session).messages
            ]
        )

    @precondition(lambda self: self.other is None)
    @rule()
    def compress(self) -> None:
        """Only while alone: the archive of a restored store starts again, and its blocks take numbers of their
        own."""
        self.now += timedelta(days=1)
        self._both(lambda memory: memory.archive() and None)

    # -- carrying over ---------------------------------------------------------------------------------------

    @rule(whole=st.booleans())
    def snapshot(self, whole: bool) -> None:
        if whole:
            self.chain.clear()
        self.copies += 1
        path = self.folder / f"{self.copies}.hctx"
        self.memory.snapshot(path, parent=self.chain[-1] if self.chain else None)
        self.chain.append(path)

    @rule(into_namespace=st.booleans())
    def carry_over(self, into_namespace: bool) -> None:
        self.snapshot(whole=False)
        if self.other is not None:
            self.other.close()
        self.copies += 1
        self.exact = not into_namespace
        self.layouts = not self.forgot
        if into_namespace:
            self.other = self._opened(f"{self.copies}.loom", "elsewhere")
            done = self.other.restore(self.chain)
            assert self.other.restore(self.chain).records == 0
            assert done.records == self.memory.store.stats()["records"]
        else:
            loom.restore(self.chain, self.folder / f"{self.copies}.loom")
            self.other = self._opened(f"{self.copies}.loom")
        assert self.other.check(repair=False).problems == ()

    # -- comparing -------------------------------------------------------------------------------------------

    @invariant()
    def both_are_alike(self) -> None:
        if self.other is None:
            return
        one, other = self.memory, self.other
        if self.exact:
            without = () if self.layouts else ("entries",)
            assert everything(one.store, *without) == everything(other.store, *without)
        assert self._seen(one) == self._seen(other)

    def _seen(self, memory: Memory) -> dict[str, Any]:
        store = memory.store
        stats = memory.get_stats()
        apart = {"file_bytes", "indexed", "segments"}
        # Its own archive, its own clock, and the prompts that this process has built.
        apart |= {name for name in stats if "archive" in name or "latency" in name or "focus" in name}
        if not (self.exact and self.layouts):
            apart |= {"entries"}  # the layouts of prompts stay behind
        names = {record.seq: record.id for record in memory.list(limit=1000, history=True).records}
        return {
            "stats": {name: value for name, value in stats.items() if name not in apart},
            "window": [(names[seq], size) for seq, size in store.window("default")],
            "tiers": {
                tier: [
                    (names[one.record], one.tokens, one.importance, one.written_at, one.uses, one.last_at)
                    for one in store.residents("default", tier)
                ]
                for tier in ("l2", "l3", "l4")
            },
            "answers": [
                [(hit.id, hit.content, round(hit.score, 9)) for hit in memory.recall(question, limit=5)]
                for question in ("lights of the harbour", "港口", "seven ships")
            ],
            "histories": {name: [record.content for record in memory.history(name)] for name in NAMES},
            "shared": [(entry.key, entry.version, entry.content) for entry in store.entries(scope="shared")],
        }

    def teardown(self) -> None:
        self.memory.close()
        if self.other is not None:
            self.other.close()
        shutil.rmtree(self.folder)


TestSnapshots = SnapshotMachine.TestCase
TestSnapshots.settings = settings(
    max_examples=16,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
