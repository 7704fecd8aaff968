"""Four tiers under arbitrary use: budgets hold after every call, the totals equal the residents, and nothing is lost.

A plain model remembers the same beside them. What the file really holds is read by another process, over a
read-only connection of its own, so that no cache and no helper of ours can colour it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import loom
import loom.settings
from loom.drafts import task_text
from loom.errors import OverBudget
from loom.everyday import Memory
from loom.knowledge.stand_ins import stand_in
from loom.memory.core import LoomMemory
from loom.memory.manager import MemoryManager
from loom.protocol import Task
from loom.types import Receipt
from tests.crash.processes import assert_sound
from tests.postgres_server import new_store_url
from tests.tally import scaled

# -- the other process -------------------------------------------------------------------------------------

_AUDITOR = """
import json, sqlite3, sys
for line in sys.stdin:
    path, since = json.loads(line)
    file = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    file.execute("BEGIN")
    answer = {
        "settings": file.execute("SELECT node, key, value FROM settings WHERE node != ''").fetchall(),
        "residents": file.execute(
            "SELECT node, tier, record, tokens, importance, entered FROM residents ORDER BY entered, record"
        ).fetchall(),
        "totals": file.execute("SELECT node, tier, items, tokens, hits, misses FROM tiers").fetchall(),
        "records": file.execute(
            "SELECT seq, id, version, node, importance, tokens, window_tokens FROM records WHERE version > 0"
        ).fetchall(),
        "superseded": [row[0] for row in file.execute("SELECT record FROM supersessions")],
        "moves": file.execute(
            "SELECT seq, record, node, tier, entered FROM moves WHERE seq > ? ORDER BY seq", (since,)
        ).fetchall(),
    }
    file.close()
    print(json.dumps(answer), flush=True)
"""


class Auditor:
    """Reads the file in a process of its own; one for all the examples, because starting one takes longest."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read(self, path: Path, since: int) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _AUDITOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path), since]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None


AUDITOR = Auditor()


@pytest.fixture(scope="module", autouse=True)
def _stop_the_auditor() -> Any:
    """Also let records return immediately, because the usual wait depends on their number."""
    restless = {name: dataclasses.replace(one, promotion_rest=0.0) for name, one in loom.settings.PROFILES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loom.settings, "PROFILES", restless)
        yield
    AUDITOR.stop()


# -- what is expected --------------------------------------------------------------------------------------

TIERS = ("l1", "l2", "l3", "l4")
TINY = (60, 120, 90, 150)
BUDGETS = (TINY, TINY, (30, 50, 40, 60), (200, 300, 150, 400), (12, 400, 25, 15), (90, 40, 200, 30), (1, 1, 1, 1))
NODE, CHILD = "agent", "agent/child"
ACTIONS = {
    "node.error": 0.9,
    "node.planning": 0.8,
    "node.tool_result": 0.75,
    "node.tool_call": 0.7,
    "execute": 0.65,
    "node.complete": 0.6,
    "node.thinking": 0.55,
    "something.else": 0.5,
}
# Who comes to L2 when written: above so much; None where the profile asks for something else.
THRESHOLDS = {"loom": 0.6, "minimal": 0.6, "task": 0.6, "chat": 0.4, "lcr": -1.0}
WATERMARKS = {"lcr": (1.0, 0.98)}
IMPORTANCES = st.one_of(st.none(), st.none(), st.sampled_from([0.0, 0.3, 0.6, 0.61, 0.7, 0.95, 1.0]))
# In words of filling: for every tier; for no L1; for no L2; for no tier at all.
SIZES = st.sampled_from([0, 0, 0, 6, 6, 20, 55, 110, 600])
FILLINGS = {"en": "lorem ipsum dolor sit amet ", "zh": "港口的灯塔整夜都亮着，"}
LANGUAGES = st.sampled_from(sorted(FILLINGS))
HANDLES = st.sampled_from(["memory", "memory", "second", "child"])
PROFILES = st.sampled_from(["loom", "loom", "loom", "lcr", "chat", "task", "minimal"])
STRATEGIES = st.sampled_from(["importance_based", "importance_based", "importance_based", "simple"])
KNOWN = [f"task{number}" for number in range(6)]


@dataclass
class Rules:
    """The rules of one node, in our own words."""

    budgets: tuple[int, int, int, int]
    profile: str
    strategy: str

    def budget(self, tier: str) -> int:
        return self.budgets[TIERS.index(tier)]

    @property
    def watermark(self) -> tuple[float, float]:
        return WATERMARKS.get(self.profile, (0.85, 0.80))

    def largest(self, tier: str) -> int:
        share = {"l1": 1.0, "l2": self.watermark[1], "l3": 0.9, "l4": 0.95}[tier]
        return math.floor(self.budget(tier) * share)

    def admits(self, importance: float) -> bool:
        return self.strategy != "simple" and importance > THRESHOLDS[self.profile]

    @property
    def admission_by_use(self) -> int | None:
        """The number of uses after which a record enters L2; None if important records enter at once."""
        if self.strategy == "simple":
            return 2
        return 1 if self.profile == "lcr" else None

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {f"{tier}_token_budget": self.budget(tier) for tier in TIERS}
        return {**options, "profile": self.profile, "strategy": self.strategy}


@dataclass
class Item:
    """The newest version of one memory."""

    id: str
    seq: int
    version: int
    node: str
    content: str
    tokens: int
    importance: float
    word: str
    task: dict[str, Any] | None
    recent: bool
    """Whether it entered L1."""
    shorter: int | None
    """What its stand-in counts there, where it was too large itself."""
    is_fact: bool = False
    uses: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    """Other nodes that know it, and what it counts in their L1; 0 where it is not for that."""

    def window(self, node: str, budget: int) -> int | None:
        """Its size in a node's L1 of this size; None if it has no place there."""
        if self.node != node:
            size = self.heard.get(node, 0)
        elif self.recent:
            size = self.tokens if self.tokens <= budget or self.shorter is None else self.shorter
        else:
            return None
        return size if 0 < size <= budget else None


class TierMachine(RuleBasedStateMachine):
    """Every verb of the tiers, in any order, through three handles on one file, two of them of the same node."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="loom-tiers-"))
        self.path = self.place()
        self.items: dict[str, Item] = {}
        self.derived: dict[str, set[str]] = {}
        self.forgotten: list[str] = []
        self.held: dict[str, Rules] = {}
        self.since = {NODE: 0, CHILD: 0}
        self.lookups = {NODE: [0, 0], CHILD: [0, 0]}
        self.words = self.ids = 0
        self.steps = 0
        self.last_move = 0
        self.memory: Memory
        self.second: LoomMemory
        self.child: MemoryManager

    def place(self) -> Path | str:
        """The location of the memory."""
        return self.folder / "agent.loom"

    def audit(self) -> dict[str, Any]:
        """The contents of the tables, read without the store."""
        return AUDITOR.read(self.folder / "agent.loom", self.last_move)

    @initialize(profile=PROFILES, strategy=STRATEGIES, childs=PROFILES)
    def open_it(self, profile: str, strategy: str, childs: str) -> None:
        rules, childs_rules = Rules(TINY, profile, strategy), Rules((40, 90, 60, 60), childs, "importance_based")
        self.memory = self._opened(**rules.options())
        self.second = LoomMemory(NODE, store=self.path, embedder="none", derive=False)
        self.child = self._opened_child(**childs_rules.options())
        self.held = {NODE: rules, CHILD: childs_rules}
        self.check(NODE)

    def _opened(self, **options: Any) -> Memory:
        return loom.open(self.path, node_id=NODE, embedder="none", derive=False, index_tail_records=7, **options)

    def _opened_child(self, **options: Any) -> MemoryManager:
        return MemoryManager(CHILD, parent=self.memory.manager, derive=False, **options)

    def _handle(self, name: str) -> LoomMemory:
        return {"memory": self.memory.manager, "second": self.second, "child": self.child}[name]

    # -- texts ---------------------------------------------------------------------------------------------

    def _text(self, size: int, language: str) -> tuple[str, str]:
        """A text with a word of its own: one term, of letters only."""
        self.words += 1
        word = "zq" + "".join(chr(ord("a") + int(digit)) for digit in f"{self.words:05}") + "jx"
        filling = FILLINGS[language]
        return word, f"{word} " + filling * (size * 5 // len(filling.encode()) + bool(size))

    def _task(self, id: str, action: str, size: int, language: str, **more: Any) -> tuple[str, Task]:
        word, text = self._text(size, language)
        return word, Task(task_id=id, action=action, parameters={"content": text}, **more)

    def _new_id(self) -> str:
        self.ids += 1
        return f"new{self.ids}"

    # -- the model -----------------------------------------------------------------------------------------

    def _written(
        self,
        handle: LoomMemory,
        id: str,
        content: str,
        word: str,
        importance: float,
        tier: str | None,
        task: dict[str, Any] | None = None,
    ) -> dict[str, str]:
        """Note a write. Returns the tiers that the new version must have entered: at most one, in addition to L1."""
        node, rules = handle.node_id, self.held[handle.node_id]
        old = self.items.get(id)
        record = handle.store.history(id)[old.version if old else 0]
        tokens = handle.counter.count(content)
        short = min(handle.counter.count(stand_in(record).text), tokens)
        oversize = tokens > rules.budget("l1")
        recent = tier in (None, "l1") and (not oversize or short <= rules.budget("l1"))
        shorter = short if recent and oversize else None
        self.items[id] = new = Item(
            id, record.seq, 1, node, content, tokens, importance, word, task, recent, shorter, record.kind == "fact"
        )
        if old:
            new.version = old.version + 1
            new.uses = old.uses
            knew = {old.node: int(old.recent)} | old.heard
            new.heard = {other: tokens if size else 0 for other, size in knew.items() if other != node}
            self.forgotten.append(old.word)
        return self._target(new, short, node, tier)

    def _target(self, item: Item, short: int, node: str, tier: str | None) -> dict[str, str]:
        """The tier, beside L1, that an item enters, with a stand-in of `short` tokens if it is needed."""
        rules = self.held[node]
        wants_working = tier == "l2" or (tier in (None, "l1") and rules.admits(item.importance))
        if wants_working and item.tokens <= rules.largest("l2"):
            return {item.id: "l2"}
        if not wants_working and tier in (None, "l1") and item.tokens <= rules.budget("l1"):
            return {}
        first = ("l4",) if tier == "l4" else ("l3", "l4")
        target = next((place for place in first if short <= rules.largest(place)), None)
        return {item.id: target} if target else {}

    def _window(self, node: str) -> list[Item]:
        """L1 as it must be: the newest current records of the node that fit, newest first."""
        budget = left = self.held[node].budget("l1")
        found: list[Item] = []
        for item in sorted(self.items.values(), key=lambda item: -item.seq):
            size = item.window(node, budget)
            if item.seq <= self.since[node] or size is None:
                continue
            if size > left:
                break
            left -= size
            found.append(item)
        return found

    def _window_sizes(self, node: str) -> list[tuple[int, int]]:
        budget = self.held[node].budget("l1")
        return [(item.seq, item.window(node, budget) or 0) for item in self._window(node)]

    # -- writing -------------------------------------------------------------------------------------------

    @rule(
        handle=HANDLES,
        known=st.one_of(st.none(), st.none(), st.sampled_from(KNOWN)),
        action=st.sampled_from(sorted(ACTIONS)),
        importance=IMPORTANCES,
        own=st.one_of(st.none(), st.none(), st.sampled_from([0.2, 0.85])),
        tier=st.sampled_from([None, None, None, "l1", "l2", "l3", "l4"]),
        size=SIZES,
        language=LANGUAGES,
        status=st.sampled_from(["pending", "running", "completed", "failed"]),
    )
    def add_task(
        self,
        handle: str,
        known: str | None,
        action: str,
        importance: float | None,
        own: float | None,
        tier: str | None,
        size: int,
        language: str,
        status: str,
    ) -> None:
        metadata = {} if own is None else {"importance": own}
        word, task = self._task(known or self._new_id(), action, size, language, status=status, metadata=metadata)
        self._add(self._handle(handle), word, task, importance, tier)

    @rule(
        handle=HANDLES,
        actions=st.lists(st.sampled_from(sorted(ACTIONS)), min_size=2, max_size=7),
        size=st.sampled_from([3, 6, 12, 20]),
        language=LANGUAGES,
    )
    def work_a_while(self, handle: str, actions: list[str], size: int, language: str) -> None:
        for action in actions:
            word, task = self._task(self._new_id(), action, size, language)
            self._add(self._handle(handle), word, task, None, None)

    def _add(self, handle: LoomMemory, word: str, task: Task, importance: float | None, tier: str | None) -> None:
        receipt = handle.add_task(task, tier, importance=importance)
        expected = task.metadata.get("importance") if importance is None else importance
        if expected is None:  # what is inferred is no reason to think less of it than before
            old = self.items.get(task.task_id)
            expected = max(ACTIONS[task.action], old.importance if old else 0.0)
        came = self._written(handle, task.task_id, task_text(task), word, expected, tier, task.to_dict())
        self.check(handle.node_id, "write", came, [receipt])

    @rule(handle=HANDLES, place=st.integers(0, 200), tier=st.sampled_from([None, None, "l2", "l3", "l4"]))
    def add_the_same_task_again(self, handle: str, place: int, tier: str | None) -> None:
        """Nothing, unless another tier is requested, or the record is new to another node."""
        tasks = sorted(id for id, item in self.items.items() if item.task is not None)
        if not tasks:
            return
        memory, item = self._handle(handle), self.items[tasks[place % len(tasks)]]
        assert item.task is not None
        node, budget = memory.node_id, self.held[memory.node_id].budget("l1")
        receipt = memory.add_task(Task.from_dict(item.task), tier, importance=item.importance)
        assert (receipt.id, receipt.version, receipt.created) == (item.id, item.version, False)
        news = node not in (item.node, *item.heard)
        short = self._stand_in_tokens(item)
        if news:
            size = item.tokens if item.tokens <= budget else short if short <= budget else 0
            item.heard[node] = size if tier is None else 0
        came = self._target(item, short, node, tier) if news or tier else {}
        self.check(node, "write" if news or tier else "nothing", came, moved=item)
        assert not memory.add_task(Task.from_dict(item.task), importance=item.importance).created
        self.check(node, "nothing")

    @rule(handle=HANDLES, tier=st.sampled_from([None, *TIERS]), size=SIZES, language=LANGUAGES)
    def add_nothing_larger_than_the_tier(self, handle: str, tier: str | None, size: int, language: str) -> None:
        memory = self._handle(handle)
        word, task = self._task(self._new_id(), "execute", size, language)
        tokens = memory.counter.count(task_text(task))
        if tier not in ("l3", "l4") and tokens > self.held[memory.node_id].largest(tier or "l1"):
            with pytest.raises(OverBudget):
                memory.add_task(task, tier, on_oversize="reject")
            assert memory.store.get(task.task_id) is None
            self.check(memory.node_id, "nothing")
        else:
            self._add(memory, word, task, None, tier)

    @rule(size=SIZES, language=LANGUAGES, importance=IMPORTANCES, as_message=st.booleans())
    def remember(self, size: int, language: str, importance: float | None, as_message: bool) -> None:
        word, text = self._text(size, language)
        id = self._new_id()
        if as_message:
            receipt = self.memory.remember({"role": "user", "content": text, "id": id}, importance=importance)
        else:
            receipt = self.memory.remember(text, id=id, importance=importance)
        came = self._written(self.memory.manager, id, text, word, 0.5 if importance is None else importance, None)
        self.check(NODE, "write", came, [receipt])

    @rule(
        sizes=st.lists(SIZES, min_size=2, max_size=6),
        language=LANGUAGES,
        importance=IMPORTANCES,
        twice=st.booleans(),
    )
    def remember_a_batch(self, sizes: list[int], language: str, importance: float | None, twice: bool) -> None:
        batch: list[tuple[str, str, str, Any, dict[str, Any] | None]] = []
        for number, size in enumerate(sizes):
            id = self._new_id()
            if number % 2:
                word, text = self._text(size, language)
                batch.append((id, text, word, {"role": "assistant", "content": text, "id": id}, None))
            else:
                id = KNOWN[(self.steps + number) % len(KNOWN)] if twice else id
                for status in ("running", "completed") if twice else ("failed",):
                    word, task = self._task(id, "node.planning", size, language, status=status)
                    batch.append((id, task_text(task), word, task, task.to_dict()))
        receipts = self.memory.remember([what for _, _, _, what, _ in batch], importance=importance)
        came: dict[str, str] = {}
        for id, content, word, _, task_ in batch:
            expected = importance
            if expected is None:
                old = self.items.get(id)
                expected = 0.5 if task_ is None else max(0.8, old.importance if old else 0.0)
            came.pop(id, None)
            came |= self._written(self.memory.manager, id, content, word, expected, None, task_)
        self.check(NODE, "batch", came, receipts)

    @rule(handle=HANDLES, tier=st.sampled_from(TIERS), size=SIZES, language=LANGUAGES, importance=IMPORTANCES)
    def add_to_a_layer(self, handle: str, tier: str, size: int, language: str, importance: float | None) -> None:
        memory = self._handle(handle)
        word, text = self._text(size, language)
        receipt = next(layer for layer in memory.layers.values() if layer.tier == tier).add(
            text, importance=importance
        )
        came = self._written(memory, receipt.id, text, word, 0.5 if importance is None else importance, tier)
        self.check(memory.node_id, "write", came, [receipt])

    @rule(place=st.integers(0, 200), size=SIZES, language=LANGUAGES)
    def update(self, place: int, size: int, language: str) -> None:
        if self.items:
            item = self.items[sorted(self.items)[place % len(self.items)]]
            word, text = self._text(size, language)
            receipt = self.memory.update(item.id, text)
            tier = "l4" if item.is_fact else None
            came = self._written(self.memory.manager, item.id, text, word, item.importance, tier)
            assert receipt.version == item.version + 1
            self.check(NODE, "write", came, [receipt])

    @rule(
        handle=HANDLES,
        size=SIZES,
        language=LANGUAGES,
        confidence=st.sampled_from([0.3, 0.8]),
        source=st.one_of(st.none(), st.sampled_from(KNOWN)),
    )
    def add_fact(self, handle: str, size: int, language: str, confidence: float, source: str | None) -> None:
        memory = self._handle(handle)
        word, text = self._text(size, language)
        sources = [source] if source in self.items else []
        receipt = memory.add_fact(text, confidence=confidence, tags=["harbour"], sources=sources)
        came = self._written(memory, receipt.id, text, word, confidence, "l4")
        for one in sources:
            self.derived.setdefault(one, set()).add(receipt.id)
        self.check(memory.node_id, "write", came, [receipt])
        fact = next(iter(memory.search_facts(word, limit=1)))
        assert (fact.id, fact.content, fact.confidence, fact.tags) == (receipt.id, text, confidence, ["harbour"])

    # -- using ---------------------------------------------------------------------------------------------

    @rule(handle=HANDLES, place=st.integers(0, 200), times=st.integers(1, 3), whole=st.booleans())
    def use(self, handle: str, place: int, times: int, whole: bool) -> None:
        if not self.items:
            return
        memory = self._handle(handle)
        item = self.items[sorted(self.items)[place % len(self.items)]]
        node, rules = memory.node_id, self.held[memory.node_id]
        for _ in range(times):
            in_working = memory.store.resides(item.seq, "l2", node)
            known = in_working or item in self._window(node)
            if whole:
                record = memory.get(item.id)
                assert record is not None
                assert (record.seq, record.content) == (item.seq, item.content)
            elif item.is_fact:
                fact = memory.get_fact(item.id)
                assert fact is not None
                assert (fact.content, fact.access_count) == (item.content, item.uses.get(node, 0) + 1)
            else:
                task = memory.get_task(item.id)
                assert task is not None
                assert_is_whole(task, item)
            item.uses[node] = item.uses.get(node, 0) + 1
            if rules.admission_by_use == 1:
                self.lookups[node][0 if known else 1] += 1
            if rules.admission_by_use is None:
                due = rules.admits(item.importance)
            else:
                due = item.uses[node] >= rules.admission_by_use
            comes = due and not item.is_fact and not in_working and item.tokens <= rules.largest("l2")
            self.check(node, "use", {item.id: "l2"} if comes else {})

    @rule(id=st.sampled_from([*KNOWN, "never written"]))
    def get_what_is_gone(self, id: str) -> None:
        if id not in self.items:
            assert self.memory.get(id) is None
            assert self.second.get_task(id) is None
            self.check(NODE, "nothing")

    # -- moving --------------------------------------------------------------------------------------------

    @rule(handle=HANDLES, tier=st.sampled_from(TIERS), tokens=st.sampled_from([1, 1, 20, 70, 1000]))
    def evict(self, handle: str, tier: str, tokens: int) -> None:
        memory = self._handle(handle)
        layer = next(layer for layer in memory.layers.values() if layer.tier == tier)
        before, held = layer.size(), layer.token_usage
        left = layer.evict(tokens)
        if tier == "l1":
            self._shorten(memory.node_id, tokens)
        assert layer.size() == before - left
        assert layer.token_usage <= max(0, held - tokens)
        self.check(memory.node_id, "evict")

    @rule(handle=HANDLES, tier=st.sampled_from(TIERS))
    def clear(self, handle: str, tier: str) -> None:
        memory = self._handle(handle)
        layer = next(layer for layer in memory.layers.values() if layer.tier == tier)
        before = layer.size()
        assert layer.clear() == before
        if tier == "l1":
            self._shorten(memory.node_id, 1 << 40)
        assert (layer.size(), layer.token_usage) == (0, 0)
        self.check(memory.node_id, "clear")

    def _shorten(self, node: str, tokens: int) -> None:
        freed = 0
        for item in reversed(self._window(node)):
            if freed >= tokens:
                break
            freed += item.window(node, self.held[node].budget("l1")) or 0
            self.since[node] = item.seq

    @rule(handle=HANDLES)
    def promote(self, handle: str) -> None:
        memory = self._handle(handle)
        rules = self.held[memory.node_id]
        came = {
            item.id: "l2"
            for item in self._window(memory.node_id)
            if rules.admits(item.importance)
            and item.tokens <= rules.largest("l2")
            and not {"l2", "l3", "l4"} & {*memory.store.tiers(item.seq, memory.node_id)}
        }
        moved = memory.promote_tasks()
        assert moved.l1_to_l2 == len(came)
        self.check(memory.node_id, "write", came)
        assert not any(memory.promote_tasks()), "what was brought in line is in line"

    # -- forgetting ----------------------------------------------------------------------------------------

    @rule(places=st.lists(st.integers(0, 200), min_size=1, max_size=4))
    def forget(self, places: list[int]) -> None:
        if not self.items:
            return
        names = sorted(self.items)
        gone = {names[place % len(names)] for place in places}
        assert sorted(self.memory.forget(gone).ids) == sorted(gone)
        for id in gone:
            self._forget(id)
        self.check(NODE, "nothing")

    def _forget(self, id: str) -> None:
        if item := self.items.pop(id, None):
            self.forgotten.append(item.word)
        for made in self.derived.pop(id, ()):
            self._forget(made)

    # -- opening again -------------------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        self._close()
        self.memory = self._opened()
        self.second = LoomMemory(NODE, store=self.path, embedder="none", derive=False)
        self.child = self._opened_child()
        self.check(NODE, "nothing")
        self.check(CHILD, "nothing")

    @rule(
        handle=st.sampled_from(["memory", "second", "child"]),
        budgets=st.sampled_from(BUDGETS),
        profile=PROFILES,
        strategy=STRATEGIES,
    )
    def reopen_with_other_rules(
        self, handle: str, budgets: tuple[int, int, int, int], profile: str, strategy: str
    ) -> None:
        """The others stay open, and must follow."""
        rules = Rules(budgets, profile, strategy)
        options = {**rules.options(), "reconfigure": True}
        self.held[CHILD if handle == "child" else NODE] = rules
        if handle == "second":
            self.second.close()
            self.second = LoomMemory(NODE, store=self.path, embedder="none", derive=False, **options)
        elif handle == "child":
            self.child.close()
            self.child = self._opened_child(**options)
        else:
            self.child.close()
            self.memory.close()
            self.memory = self._opened(**options)
            self.child = self._opened_child()
        self.check(CHILD if handle == "child" else NODE, "refit")
        if handle != "child":
            word, task = self._task(self._new_id(), "execute", 20, "en")
            self._add(self.second if handle == "memory" else self.memory.manager, word, task, None, None)

    # -- what must hold ------------------------------------------------------------------------------------

    def check(
        self,
        node: str,
        what: str = "nothing",
        came: dict[str, str] | None = None,
        receipts: list[Receipt] | None = None,
        moved: Item | None = None,
    ) -> None:
        """After a call on a node: `came` are the tiers that records entered first, beside L1, by the model.

        `moved` was told where to go. `what` is write, batch, use, evict, clear, refit (budgets were changed) or
        nothing (nothing may move).
        """
        audit = self.audit()
        by_seq = {item.seq: item for item in self.items.values()}
        self._check_records(audit, by_seq)
        members = self._check_books(audit, by_seq)
        moves = [
            (by_seq[record], where, tier, entered)
            for _, record, where, tier, entered in audit["moves"]
            if record in by_seq and tier in TIERS
        ]
        self.last_move = max([self.last_move, *(move[0] for move in audit["moves"])])
        assert {where for _, where, _, _ in moves} <= {node}, "the tiers of another node moved"
        current = [(item, tier, entered) for item, _, tier, entered in moves]
        first: dict[str, str] = {}
        for item, tier, entered in current:
            if entered:
                first.setdefault(item.id, tier)
        if what in ("write", "batch", "use"):
            assert {id: tier for id, tier in first.items() if id in (came or {})} == (came or {})
            demoted = {item.id for item, tier, entered in current if not entered}
            assert set(first) <= set(came or {}) | demoted
        if what == "nothing":
            assert current == []
        held = {tier: sum(tokens for _, tokens in members[node][tier]) for tier in TIERS[1:]}
        current = [one for one in current if one[0] is not moved]
        self._check_marks(node, what, current, held, moved)
        self._check_who_left(node, what, current, members[node]["l2"], audit)
        self._check_where_they_went(node, what, current)
        for receipt in receipts or ():
            self._check_receipt(receipt, node, members[node], batch=what == "batch")
        self._check_what_the_tiers_give(node, members[node])

    def _check_records(self, audit: dict[str, Any], by_seq: dict[int, Item]) -> None:
        """The log holds each item as the model has it; every older version is superseded."""
        superseded = set(audit["superseded"])
        current = {row[0]: row for row in audit["records"] if row[0] not in superseded}
        assert current.keys() == by_seq.keys()
        for seq, (_, id, version, node, importance, tokens, shorter) in current.items():
            item = by_seq[seq]
            assert (id, version, node) == (item.id, item.version, item.node)
            assert importance == item.importance
            assert tokens == item.tokens or (tokens < 0 and item.tokens <= ~tokens)  # counted, or not yet
            assert shorter == item.shorter

    def _check_books(
        self, audit: dict[str, Any], by_seq: dict[int, Item]
    ) -> dict[str, dict[str, list[tuple[Item, int]]]]:
        """Budgets hold, totals are sums, and only current records are in tiers. Returns the tiers of each record."""
        stored = {(node, key): json.loads(value) for node, key, value in audit["settings"]}
        members: dict[str, dict[str, list[tuple[Item, int]]]] = {
            node: {tier: [] for tier in TIERS[1:]} for node in self.held
        }
        heard: dict[int, dict[str, int]] = {item.seq: {} for item in by_seq.values()}
        for node, tier, seq, tokens, importance, _ in audit["residents"]:
            assert seq in by_seq, f"{tier} holds a record that is forgotten or superseded"
            assert importance == by_seq[seq].importance
            if tier in TIERS:
                members[node][tier].append((by_seq[seq], tokens))
            else:
                heard[seq][node] = tokens
        assert heard == {item.seq: item.heard for item in by_seq.values()}
        totals = {(node, tier): tuple(rest) for node, tier, *rest in audit["totals"]}
        for node, rules in self.held.items():
            handle = self.child if node == CHILD else self.memory.manager
            usage = handle.store.usage(node)
            for tier in TIERS:
                assert stored[node, f"{tier}_token_budget"] == rules.budget(tier)
                if tier == "l1":
                    window = self._window_sizes(node)
                    sizes = [size for _, size in window]
                    assert handle.store.window(node) == window
                else:
                    sizes = [tokens for _, tokens in members[node][tier]]
                    assert totals.get((node, tier), (0, 0))[:2] == (len(sizes), sum(sizes))
                assert sum(sizes) <= rules.budget(tier), f"{tier} of {node} is above its budget"
                found = usage.get(tier)
                assert ((found.items, found.tokens) if found else (0, 0)) == (len(sizes), sum(sizes))
            places = [item.id for tier in TIERS[1:] for item, _ in members[node][tier]]
            assert len(places) == len(set(places)), "a record is in two of L2, L3 and L4"
        return members

    def _check_marks(
        self,
        node: str,
        what: str,
        current: list[tuple[Item, str, int]],
        held: dict[str, int],
        moved: Item | None,
    ) -> None:
        """A tier that took something in is below its mark; one that sent something on sent no more than needed."""
        rules = self.held[node]
        high, low = rules.watermark
        entered = {tier for _, tier, came in current if came}
        if "l2" in entered:
            assert held["l2"] < high * rules.budget("l2") or high == 1.0
        if "l3" in entered:
            assert held["l3"] < 0.9 * rules.budget("l3")
        left = [item.tokens for item, tier, came in current if tier == "l2" and not came]
        if left and what in ("write", "batch", "use", "refit"):
            last = max([*left, moved.tokens if moved else 0])  # at most: it may itself have been the last to leave
            assert held["l2"] + last > math.floor(low * rules.budget("l2")), "more left L2 than had to"

    def _check_who_left(
        self,
        node: str,
        what: str,
        current: list[tuple[Item, str, int]],
        working: list[tuple[Item, int]],
        audit: dict[str, Any],
    ) -> None:
        """No record leaves L2 before one of lower value."""
        rules = self.held[node]
        left = [item for item, tier, came in current if tier == "l2" and not came]
        if not left or not working or what == "clear":
            return
        if rules.strategy == "simple":
            # What has just come in has a grace: a fiftieth of the tier, which is one or two of these.
            entered = sorted((row[5], row[2]) for row in audit["residents"] if row[:2] == [node, "l2"])
            young = [seq for _, seq in entered[-2:]]
            stayed = [item.uses.get(node, 0) for item, _ in working if item.seq not in young]
            if stayed:
                assert max(item.uses.get(node, 0) for item in left) <= min(stayed)
        elif rules.profile in ("loom", "minimal"):
            # For what comes back because it is used others leave first, whatever they are worth beside it.
            back = {item.id for item, tier, came in current if tier == "l2" and came and what == "use"}
            worth = [item.importance for item, _ in working if item.id not in back]
            if worth:
                assert max(item.importance for item in left) <= min(worth)

    def _check_where_they_went(self, node: str, what: str, current: list[tuple[Item, str, int]]) -> None:
        """A record without room moves to the next tier that is large enough for its stand-in."""
        rules = self.held[node]
        if what == "clear":
            return
        for position, (item, tier, came) in enumerate(current):
            if came or tier not in ("l2", "l3"):
                continue
            after = [place for other, place, entered in current[position + 1 :] if other is item and entered]
            if tier == "l3" and any(one is item and place == "l2" and e for one, place, e in current):
                continue  # it came back whole, for use
            short = self._stand_in_tokens(item)
            targets = [place for place in TIERS[TIERS.index(tier) + 1 :] if short <= rules.largest(place)]
            assert after[:1] == targets[:1], f"{item.id} left {tier} and went to {after}"

    def _stand_in_tokens(self, item: Item) -> int:
        (record,) = self.memory.store.records([item.seq]).values()
        return min(self.memory.counter.count(stand_in(record).text), record.tokens)

    def _check_receipt(
        self, receipt: Receipt, node: str, members: dict[str, list[tuple[Item, int]]], batch: bool
    ) -> None:
        item = self.items[receipt.id]
        assert receipt.created
        if batch and receipt.version != item.version:
            return  # two versions of it were in the batch
        assert (receipt.version, receipt.tokens) == (item.version, item.tokens)
        shown = dict(self._window_sizes(node)).get(item.seq)
        if shown == item.tokens:
            assert receipt.tier == "l1"
            return
        places = [tier for tier in TIERS[1:] if any(one is item for one, _ in members[tier])]
        # What is in no tier is in the log, which L4 searches.
        assert receipt.tier == (places[0] if places else "l4") or (shown and receipt.tier == "l1")
        if shown:
            assert str(item.tokens) in receipt.note.replace(",", "")

    def _check_what_the_tiers_give(self, node: str, members: dict[str, list[tuple[Item, int]]]) -> None:
        """Each tier returns the records that it claims to hold, with the counted sizes."""
        handle = self.child if node == CHILD else self.second if self.steps % 2 else self.memory.manager
        window = self._window(node)[::-1]
        tasks = handle.get_l1_tasks()
        assert [task.task_id for task in tasks] == [item.id for item in window]
        sizes = dict(self._window_sizes(node))
        for task, item in zip(tasks, window, strict=True):
            if sizes[item.seq] == item.tokens:
                assert_is_whole(task, item)
            else:
                assert task.metadata["stand_in"]
                assert handle.counter.count(task.parameters["summary"]) == sizes[item.seq]
        tasks = handle.get_l2_tasks()
        assert sorted(task.task_id for task in tasks) == sorted(item.id for item, _ in members["l2"])
        importances = [self.items[task.task_id].importance for task in tasks]
        assert importances == sorted(importances, reverse=True)
        for task in tasks:
            assert_is_whole(task, self.items[task.task_id])
        assert all(tokens == item.tokens for item, tokens in members["l2"])
        for summaries, tier in ((handle.get_l3_summaries(), "l3"), (handle.l4.retrieve(), "l4")):
            assert [one.task_id for one in summaries] == [item.id for item, _ in members[tier]]
            assert [size for _, size in members[tier]] == [
                min(handle.counter.count(one.text), item.tokens)
                for one, (item, _) in zip(summaries, members[tier], strict=True)
            ]

    @invariant()
    def nothing_is_lost(self) -> None:
        """Some of the items, others at each step: got by id, and recalled by a word of their own."""
        self.steps += 1
        if not self.items:
            return
        names = sorted(self.items)
        for offset in (0, 1):
            item = self.items[names[(self.steps * 7 + offset) % len(names)]]
            record = self.memory.store.get(item.id)
            assert record is not None
            assert record.content == item.content
            assert [hit.id for hit in self.memory.recall(item.word, limit=1)] == [item.id]
            for node in self.held:
                assert self.memory.store.uses(item.seq, node) == item.uses.get(node, 0)
        if self.forgotten:
            word = self.forgotten[self.steps % len(self.forgotten)]
            assert all(word not in hit.content for hit in self.second.recall(word, limit=3))

    @invariant()
    def statistics_are_true(self) -> None:
        """Of one handle at a time: asking brings it up to date with what others have changed."""
        if not self.held:
            return
        handle = (self.memory.manager, self.second, self.child)[self.steps % 3]
        stats, rules = handle.get_stats(), self.held[handle.node_id]
        usage = handle.store.usage(handle.node_id)
        for tier in TIERS:
            found = usage.get(tier)
            assert stats[f"{tier}_token_budget"] == rules.budget(tier)
            assert stats[f"{tier}_token_usage"] == (found.tokens if found else 0)
            assert stats[f"{tier}_items"] == (found.items if found else 0)
        assert [stats["l2_hits"], stats["l2_misses"]] == self.lookups[handle.node_id]
        assert stats["records"] - stats["superseded"] == len(self.items)

    # -- the end -------------------------------------------------------------------------------------------

    def _close(self) -> None:
        self.child.close()
        self.second.close()
        self.memory.close()

    def teardown(self) -> None:
        try:
            if self.held:
                for item in self.items.values():
                    record = self.memory.store.get(item.id)
                    assert record is not None
                    assert record.content == item.content
                assert_sound(self.memory)
        finally:
            if self.held:
                self._close()
            shutil.rmtree(self.folder)


def assert_is_whole(task: Task, item: Item) -> None:
    """The task that was added, or a text as a task."""
    if item.task is not None:
        assert task.to_dict() == item.task
    else:
        assert (task.task_id, task.parameters["content"]) == (item.id, item.content)


_EXAMPLES = settings(
    max_examples=20,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class TestTierMachine(TierMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = _EXAMPLES


class TierMachineOnPostgres(TierMachine):
    def place(self) -> Path | str:
        return new_store_url(self.folder)

    def audit(self) -> dict[str, Any]:
        import psycopg

        from loom.storage.postgres.connections import Address

        address = Address.of(str(self.path))
        with psycopg.connect(address.conninfo) as connection:
            connection.execute("SELECT set_config('search_path', %s, true)", [address.schema])
            read = connection.execute
            answer = {
                "settings": read("SELECT node, key, value FROM settings WHERE node != ''").fetchall(),
                "residents": read(
                    "SELECT node, tier, record, tokens, importance, entered FROM residents ORDER BY entered, record"
                ).fetchall(),
                "totals": read("SELECT node, tier, items, tokens, hits, misses FROM tiers").fetchall(),
                "records": read(
                    "SELECT seq, id, version, node, importance, tokens, window_tokens FROM records WHERE version > 0"
                ).fetchall(),
                "superseded": [record for (record,) in read("SELECT record FROM supersessions")],
                "moves": read(
                    "SELECT seq, record, node, tier, entered::int FROM moves WHERE seq > %s ORDER BY seq",
                    [self.last_move],
                ).fetchall(),
            }
        found: dict[str, Any] = json.loads(json.dumps(answer))
        return found


@pytest.mark.usefixtures("postgres_server")
class TestTierMachineOnPostgres(TierMachineOnPostgres.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(_EXAMPLES, max_examples=5, stateful_step_count=20)


@pytest.mark.soak
class TestTierMachineForLong(TierMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(_EXAMPLES, max_examples=scaled(1000))
