"""Every public verb, given anything: the right answer, or an error of ours that names the fault and the way out."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import math
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.context import ContextOrchestrator, SmartTruncator, compact_messages
from loom.errors import Closed, InvalidInput, LoomError, StoreUnavailable
from loom.everyday import Memory
from loom.fractal import (
    BudgetTracker,
    NodeContainer,
    RecursiveBudget,
    ResultSynthesizer,
    estimate_task_complexity,
    should_use_fractal,
)
from loom.fractal.memory import FractalMemory
from loom.memory import (
    CompactionConfig,
    ContentSanitizer,
    FactExtractor,
    InMemoryVectorStore,
    L4Compressor,
    LoomMemory,
    MemoryManager,
    MemoryReranker,
    SharedMemoryPool,
    TiktokenCounter,
)
from loom.protocol import AgentCard, Task

ANYTHING = [
    *(None, True, 7, -1, 10**9, 2**70, math.nan, math.inf, 1j, object(), str, datetime(2020, 1, 1)),  # noqa: DTZ001
    *("", "\ud800", "\0", "x" * 300, b"x", [], {}, [None], ["\ud800"], {7: object()}),
]

# What a verb needs beside the argument that is under test.
NEEDED: dict[str, Any] = {
    "change": lambda value: value,
    "content": 1,
    "expected_version": 0,
    "fact": "Herons nest early.",
    "helpful": True,
    "id": "a",
    "incoming": 1,
    "key": "k",
    "name": "n",
    "path": "no such folder/x",
    "query": "harbour",
    "question": "harbour",
    "results": ["a"],
    "retention": None,
    "scope": "local",
    "snapshot": "no such snapshot",
    "task": Task(action="execute"),
    "task_id": "a",
    "fact_id": "a",
    "text": "The code is 7320.",
    "tier": "l2",
    "what": "The harbour code is 7319.",
}
LIFE = {"close", "check", "flush", "vacuum", "warm_up"}


def opened(**options: Any) -> Memory:
    return loom.open(**{"embedder": "none", "derive": False, **options})


@pytest.fixture(scope="module")
def subjects() -> Iterator[dict[str, Any]]:
    with opened() as memory, SharedMemoryPool("team") as pool:
        memory.remember("The harbour code is 7319.", id="a", session_id="s")
        yield {
            "Memory": memory,
            "SharedMemoryPool": pool,
            "ResultSynthesizer": ResultSynthesizer(),
            "InMemoryVectorStore": InMemoryVectorStore(2),
        }


def verbs_of(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Every public verb of a class with each of its arguments."""
    for name in sorted(dir(kind)):
        verb = getattr(kind, name)
        if name.startswith("_") or name in LIFE or not callable(verb) or inspect.isclass(verb):
            continue
        for parameter in list(inspect.signature(verb).parameters.values())[1:]:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                yield name, parameter.name


VERBS = [
    (kind.__name__, name, argument)
    for kind in (Memory, SharedMemoryPool, ResultSynthesizer, InMemoryVectorStore)
    for name, argument in verbs_of(kind)
]


def call(subject: Any, name: str, argument: str, value: Any) -> Any:
    verb = getattr(subject, name)
    given: dict[str, Any] = {}
    positional: list[Any] = []
    for parameter in inspect.signature(verb).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name == argument:
            chosen = value
        elif parameter.default is not parameter.empty:
            continue
        else:
            chosen = NEEDED[parameter.name] if name != "search" or parameter.name != "vector" else [1.0, 0.0]
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(chosen)
        else:
            given[parameter.name] = chosen
    return verb(*positional, **given)


def answer(work: Callable[[], Any]) -> None:
    """Do it, and pass over errors of ours that say something."""
    try:
        found = work()
        if inspect.iscoroutine(found):
            asyncio.run(found)
    except LoomError as error:
        words = str(error)
    else:
        words = "no refusal"
    assert len(words) > 9


NEEDED |= {"record": None, "record_id": "a", "vector": [1.0, 0.0], "where": {"a": 1}}


@pytest.mark.parametrize(("subject", "name", "argument"), VERBS, ids=lambda one: str(one))
def test_a_verb_answers_or_refuses_whatever_it_is_given(
    subjects: dict[str, Any], subject: str, name: str, argument: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for value in ANYTHING:
        answer(lambda: call(subjects[subject], name, argument, value))  # noqa: B023


OPTIONS = (
    "node_id namespace profile read_only l1_token_budget prompt_token_budget embedder embedding_provider llm "
    "event_bus token_counter sanitizer clock config compaction reconfigure all_namespaces warm_up shared_pool "
    "busy_timeout_s durability file_mode strategy enable_l4_vectorization vector_store"
)
CARD = AgentCard("card")


def each(label: str, make: Callable[..., Any], arguments: str, **fixed: Any) -> dict[str, Callable[[Any], Any]]:
    """Calls of one argument each, the others as they are fixed."""

    def calling(argument: str) -> Callable[[Any], Any]:
        return lambda value: make(**{**fixed, argument: value})

    return {f"{label}({argument}=)": calling(argument) for argument in arguments.split()}


def closing(make: Any) -> Callable[..., None]:
    return lambda **given: make(**given).close()


def orchestrated(**given: Any) -> Any:
    return ContextOrchestrator(**given).build("hi")


MADE: dict[str, Callable[[Any], Any]] = {
    "loom.open(path)": lambda value: loom.open(value, embedder="none").close(),
    **each("loom.open", closing(opened), OPTIONS),
    **each("MemoryManager", closing(MemoryManager), "parent policies store", node_id="n", embedder="none"),
    **each("FractalMemory", closing(FractalMemory), "node_id parent_memory base_memory store policies", node_id="n"),
    **each("SharedMemoryPool", closing(SharedMemoryPool), "pool_id store"),
    **each(
        "build by ContextOrchestrator",
        orchestrated,
        "token_counter model_context_window config system shared_pool prefix_policy",
    ),
    **each("ContextOrchestrator", ContextOrchestrator, "sources source_timeout_s layouts"),
    **each("build", ContextOrchestrator().build, "query session_id system budget current_task", query="hi"),
    "fit_to_token_limit": lambda value: ContextOrchestrator().fit_to_token_limit(value),
    "add_source": lambda value: ContextOrchestrator().add_source(value),
    **each("NodeContainer", NodeContainer, "node_id agent_card child max_depth", node_id="n", agent_card=CARD),
    "execute_task": lambda value: NodeContainer("n", CARD, NodeContainer("m", CARD)).execute_task(value),
    **each("RecursiveBudget", RecursiveBudget, "max_depth max_children token_budget time_budget tool_budget"),
    "BudgetTracker": BudgetTracker,
    "estimate_task_complexity": estimate_task_complexity,
    "should_use_fractal": should_use_fractal,
    **each("L4Compressor", L4Compressor, "threshold similarity_threshold min_cluster_size fidelity_threshold"),
    "compress": lambda value: L4Compressor().compress(value),
    "should_compress": lambda value: L4Compressor().should_compress(value),
    **each("CompactionConfig", CompactionConfig, "trigger_threshold target_ratio min_importance"),
    **each("MemoryReranker", MemoryReranker, "weights half_life_hours min_score clock"),
    "rerank(query)": lambda value: MemoryReranker().rerank(value, []),
    "rerank(candidates)": lambda value: MemoryReranker().rerank("q", value),
    "extract": lambda value: FactExtractor().extract(value),
    "sanitize": lambda value: ContentSanitizer().sanitize(value),
    "loom.restore": lambda value: loom.restore(value, "no such folder/x"),
    "loom.restore(path)": lambda value: loom.restore("no such snapshot", value),
    "Retention": loom.Retention,
    "count": lambda value: TiktokenCounter().count(value),
    "count_messages": lambda value: TiktokenCounter().count_messages(value),
    "count_batch": lambda value: TiktokenCounter().count_batch(value),
    "Task(action=)": lambda value: Task(action=value),
    "Task(parameters=)": lambda value: Task(parameters=value),
    "Task.from_dict": Task.from_dict,
    "publish": lambda value: loom.EventBus().publish(value),
    "publish_sync": lambda value: loom.EventBus().publish_sync(value),
    "register_handler(action)": lambda value: loom.EventBus().register_handler(value, print),
    "register_handler(handler)": lambda value: loom.EventBus().register_handler("*", value),
    "compact_messages": compact_messages,
    "truncate": lambda value: SmartTruncator().truncate(value, 10),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_anything_is_made_or_refused(
    name: str, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.chdir(tmp_path)
    for value in ANYTHING:
        answer(lambda: MADE[name](value))  # noqa: B023


ATTRIBUTES = [
    "id",
    "role",
    "name",
    "session_id",
    "created_at",
    "importance",
    "metadata",
    "trust",
    "kind",
    "dimensions",
]
FILTERS = [
    "ids",
    "node",
    "session_id",
    "tier",
    "kind",
    "role",
    "name",
    "trust",
    "min_importance",
    "since",
    "until",
    "as_of",
    "known_at",
    "where",
    "pinned",
    "derived",
    "history",
    "subject",
    "flow",
    "layer",
]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_kept_or_refused(name: str) -> None:
    with opened() as memory:
        for value in ANYTHING:
            given: dict[str, Any] = {name: value}
            answer(lambda: memory.remember("The harbour code is 7319.", **given))  # noqa: B023


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_narrows_or_is_refused(subjects: dict[str, Any], name: str) -> None:
    for value in ANYTHING:
        for verb in (lambda **given: subjects["Memory"].recall("harbour", **given), subjects["Memory"].list):
            answer(lambda: verb(**{name: value}))  # noqa: B023


# --- the words of some refusals --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (
            lambda memory: memory.recall("x", limit=2**70),
            "limit is 1180591620717411303424; it must be .* from 1 to 2,147,483,647",
        ),
        (lambda memory: memory.list(limit=2**70), "from 1 to 2,147,483,647"),
        (lambda memory: memory.update("a", None), r"update\(\) needs a new text"),
        (lambda memory: memory.update("a", 7), r"update\(\) takes text, not int"),
        (lambda memory: memory.context(None), r"context\(\) takes a question, a text or a Task, not NoneType"),
        (lambda memory: memory.context("x", sources=3), r"context\(sources=\) must be a list, not int"),
        (lambda memory: memory.context("x", session_id="\ud800"), "session_id holds a lone surrogate"),
        (lambda memory: memory.recall("x", wanted={}), r"recall\(wanted=\) must be a Filter, not dict"),
        (lambda memory: memory.forget("a", timeout_s=None), r"forget\(timeout_s=\) must be a number from 0"),
        (lambda memory: memory.backup(None), r"the path of backup\(\) must be a path"),
        (lambda memory: opened(embedder=object()), "embedder must be an object with name and embed"),
        (lambda memory: opened(path=7), "a store is a path, a store that is open .memory.store., or None"),
        (lambda memory: loom.open("a\0b"), "NUL"),
    ],
)
def test_a_refusal_names_the_verb_and_the_way_out(work: Callable[[Memory], object], words: str) -> None:
    with opened() as memory:
        memory.remember("The harbour code is 7319.", id="a")
        with pytest.raises(InvalidInput, match=words):
            work(memory)


@pytest.mark.parametrize("limit", [10**9, 2**31 - 1])
@pytest.mark.parametrize(
    "options", [{}, {"diversity": 0.5}, {"reranker": MemoryReranker()}], ids=["", "far", "ranked"]
)
def test_a_limit_above_all_there_is_gives_all_there_is(limit: int, options: dict[str, Any]) -> None:
    with opened(embedder="fake") as memory:
        memory.remember([f"Heron {number} nests in the harbour." for number in range(30)])
        memory.flush()
        assert len(memory.recall("Where do herons nest?", limit=limit, **options)) == 30


def test_a_path_that_cannot_be_a_store_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    refused = {
        tmp_path: "is a folder; name a file in it",
        tmp_path / "missing" / "a.loom": "does not exist; create it first",
        tmp_path / "file" / "a.loom": "is a file and not a folder",
    }
    if os.geteuid() != 0:
        refused[closed / "a.loom"] = "check that its folder may be written"
    for path, words in refused.items():
        with pytest.raises(StoreUnavailable, match=words):
            loom.open(path, embedder="none")


# --- copies, other processes, closed ones ----------------------------------------------------------------

OPEN: dict[str, Callable[[], Any]] = {
    "Memory": opened,
    "AsyncMemory": lambda: opened().aio,
    "LoomMemory": lambda: LoomMemory("n", embedder="none"),
    "MemoryManager": lambda: MemoryManager("n", embedder="none"),
    "Store": lambda: opened().store,
    "FractalMemory": lambda: FractalMemory("n"),
    "SharedMemoryPool": lambda: SharedMemoryPool("team"),
    "EventBus": loom.EventBus,
    "BudgetTracker": BudgetTracker,
}


@pytest.mark.parametrize("name", OPEN)
def test_what_is_open_is_neither_pickled_nor_copied_nor_sent(name: str) -> None:
    thing = OPEN[name]()
    spawned = multiprocessing.get_context("spawn").Process(target=print, args=(thing,))
    for work in (pickle.dumps, copy.copy, copy.deepcopy, lambda _: spawned.start()):
        if name == "AsyncMemory" and work is copy.copy:
            continue  # it is the same memory
        with pytest.raises(InvalidInput, match=r"cannot be copied, pickled or sent to another process.*there"):
            work(thing)


@pytest.mark.parametrize("name", sorted({name for kind, name, _ in VERBS if kind == "Memory"}))
def test_a_closed_memory_says_so(name: str) -> None:
    memory = opened()
    memory.remember("The harbour code is 7319.", id="a")
    memory.close()
    if name in ("sources_of", "sync_from_parent", "sync_to_parent"):
        return  # what is no record is refused before, and a root has no parent to ask

    def work() -> None:
        argument = {"forget": "id", "update": "text"}.get(name, "")
        found = call(memory, name, argument, "a")
        if inspect.iscoroutine(found):
            asyncio.run(found)

    with pytest.raises(Closed, match="closed"):
        work()
