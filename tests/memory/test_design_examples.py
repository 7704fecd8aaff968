"""The examples of the design documents that concern the tiers and the manager run as they stand."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import pytest

import loom.memory
from loom.agent import Agent
from loom.events import EventBus
from loom.memory import LoomMemory, MemoryManager, MemoryStrategyType, MemoryTier, MemoryType, MemoryUnit
from loom.protocol import AgentCard, Task

# The words of the documents. Only the names that they take for granted (`task`, `parent_manager`) are supplied.

USE_OF_THE_MANAGER = """
from loom.memory import MemoryManager, LoomMemory

# 创建记忆管理器（Token-First 配置）
memory = MemoryManager(
    node_id="agent-1",
    l1_token_budget=8000,   # L1: 8K tokens
    l2_token_budget=16000,  # L2: 16K tokens
    l3_token_budget=32000,  # L3: 32K tokens
    l4_token_budget=100000, # L4: 100K tokens
)

# 添加任务
memory.add_task(task)

# 获取 L1 最近任务
recent_tasks = memory.get_l1_tasks(limit=10)

# 获取 L2 重要任务
important_tasks = memory.get_l2_tasks(limit=10)

# 触发层间迁移
memory.promote_tasks()

# 获取统计信息（Token-First）
stats = memory._loom_memory.get_stats()
print(f"L1 token usage: {stats['l1_token_usage']}/{stats['l1_token_budget']}")
print(f"L2 token usage: {stats['l2_token_usage']}/{stats['l2_token_budget']}")
"""

A_MEMORY_FOR_THE_CONTEXT = """
from loom.memory import LoomMemory
from loom.memory.tokenizer import EstimateCounter

# 创建记忆（Token-First 配置）
memory = LoomMemory(
    node_id="agent-1",
    l1_token_budget=8000,
    l2_token_budget=16000,
)
"""

THE_MANAGER_AWAITED = """
manager = MemoryManager(
    node_id="agent-1",
    parent=parent_manager,     # 父节点（分形架构）
    l1_token_budget=8000,
    l2_token_budget=16000,
    l3_token_budget=32000,
    l4_token_budget=100000,
    strategy=MemoryStrategyType.IMPORTANCE_BASED,
)

# 添加任务到记忆
await manager.add_task(task, importance=0.8)

# 上下文存储（key-value，任务间共享）
await manager.add_context("task:123:content", "任务内容...")
content = await manager.read("task:123:content")

# 查询记忆
results = await manager.query("OAuth2 认证方案")
"""

A_CHILD = """
child_manager = MemoryManager(
    node_id="child-1",
    parent=parent_manager,  # 自动继承父节点记忆
)
"""

STRATEGIES = """
class MemoryStrategyType(StrEnum):
    IMPORTANCE_BASED = "importance_based"  # 基于重要性排序（默认）
    SIMPLE = "simple"                      # 基于频率的提升
"""

TYPES = """
class MemoryTier(StrEnum):
    L1 = "l1"  # 短期
    L2 = "l2"  # 工作
    L3 = "l3"  # 摘要
    L4 = "l4"  # 长期

class MemoryType(StrEnum):
    TASK = "task"
    CONTEXT = "context"
    FACT = "fact"
    SUMMARY = "summary"

class MemoryUnit:
    id: str
    content: Any
    tier: MemoryTier
    type: MemoryType
    importance: float
    token_count: int
    created_at: datetime
    accessed_count: int
"""


A_COMPACTOR = """
compactor = MemoryCompactor(
    config=CompactionConfig(
        trigger_threshold=0.8,    # 80% 容量时触发
        target_ratio=0.6,         # 压缩到 60%
        min_importance=0.3,       # 最低保留重要性
    ),
    memory_manager=manager,
    token_counter=counter,
    segment_store=segment_store,  # 可选：Fact Indexing
)
"""

A_COMPRESSOR = """
compressor = L4Compressor(
    threshold=150,              # 触发压缩的 facts 数量
    similarity_threshold=0.75,  # 聚类相似度阈值
    min_cluster_size=3,         # 最小聚类大小
    fidelity_threshold=0.5,     # 压缩保真度阈值
)
"""

SIGNALS = """
class RerankSignal(StrEnum):
    RECENCY = "recency"          # 时间近度
    IMPORTANCE = "importance"     # 重要性
    RELEVANCE = "relevance"      # 语义相关度
    FREQUENCY = "frequency"      # 访问频率
"""

A_TEAM = """
from loom.memory import SharedMemoryPool

pool = SharedMemoryPool(pool_id="team")

# 多个 Agent 共享同一 pool
agent_a = Agent.create(llm, system_prompt="研究员", shared_pool=pool)
agent_b = Agent.create(llm, system_prompt="写作者", shared_pool=pool)
"""

A_POOL = """
from loom.memory import SharedMemoryPool

pool = SharedMemoryPool(pool_id="team")
"""

AGENTS_WITH_A_POOL = """
# 多个 Agent 共享同一 pool
agent_a = Agent.create(llm, system_prompt="研究员", shared_pool=pool)
agent_b = Agent.create(llm, system_prompt="写作者", shared_pool=pool)
"""

READING_AND_WRITING_A_POOL = """
# 写入（Agent A）
await pool.write("research_result", {"findings": [...]}, writer_id="agent-a")

# 读取（Agent B）
entry = await pool.read("research_result")
# entry.content, entry.version, entry.created_by, entry.updated_by

# 前缀查询
entries = await pool.list_entries(prefix="research:", limit=50)

# 删除
await pool.delete("research_result")
"""

A_CONFLICT_IN_A_POOL = """
entry = await pool.read("key")
try:
    await pool.write("key", new_value, expected_version=entry.version)
except VersionConflictError as e:
    # e.key, e.expected, e.actual
    pass
"""

A_POOL_ON_A_BUS = """
pool = SharedMemoryPool(pool_id="team", event_bus=event_bus)
# 写入时自动发布 Task(action="shared_pool.write", parameters={pool_id, key, version, writer})
"""

AN_ENTRY_OF_A_POOL = """
@dataclass
class PoolEntry:
    key: str
    content: Any
    version: int          # 自增版本号
    created_by: str       # 创建者 node_id
    updated_by: str       # 最后更新者 node_id
    created_at: float
    updated_at: float
    metadata: dict        # 元数据（写入时自动合并）
"""


def run(example: str, **names: Any) -> dict[str, Any]:
    """Run an example and give back its names; with a loop where it awaits."""
    code = compile(example, "<design document>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:

        async def awaited() -> None:
            await eval(code, names)

        asyncio.run(awaited())
    else:
        exec(code, names)
    return names


def named(example: str, **names: Any) -> dict[str, Any]:
    return run(example, MemoryManager=MemoryManager, MemoryStrategyType=MemoryStrategyType, **names)


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples name no embedder; what they show does not need one."""
    monkeypatch.setenv("LOOM_EMBEDDER", "none")


@pytest.fixture
def task() -> Task:
    return Task(action="execute", parameters={"content": "OAuth2 认证方案: 使用 Authorization Code 模式"})


@pytest.fixture
def parent_manager() -> Iterator[MemoryManager]:
    with MemoryManager("parent") as parent:
        yield parent


def test_the_example_of_use_runs_and_prints_the_usage_of_its_tiers(
    task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    """000 使用示例: requirements 14, 47, 57, 58, 62; C-12, C-15."""
    shown = run(USE_OF_THE_MANAGER, task=task)
    assert shown["recent_tasks"] == [task]
    assert shown["important_tasks"] == [task]  # execute is 0.65
    used = shown["stats"]["l1_token_usage"]
    assert used > 0
    assert capsys.readouterr().out.splitlines() == [
        f"L1 token usage: {used}/8000",
        f"L2 token usage: {used}/16000",
    ]
    assert shown["stats"] == shown["memory"].get_stats()


def test_the_memory_of_the_context_example_has_the_budgets_it_names() -> None:
    """000 与上下文模块配合使用, as far as it concerns the memory: requirements 14, 47, 56."""
    shown = run(A_MEMORY_FOR_THE_CONTEXT)
    stats = shown["memory"].get_stats()
    assert [stats[f"l{tier}_token_budget"] for tier in (1, 2, 3, 4)] == [8000, 16000, 32000, 100000]


def test_the_awaited_example_keeps_the_task_the_value_and_finds_the_task(
    task: Task, parent_manager: MemoryManager
) -> None:
    """001 MemoryManager: requirements 55, 62 to 65; C-12, C-13."""
    shown = named(THE_MANAGER_AWAITED, task=task, parent_manager=parent_manager)
    manager = shown["manager"]
    assert manager.parent is parent_manager
    assert manager.get_l2_tasks() == [task]
    record = manager.get(task.task_id)
    assert record is not None
    assert record.importance == 0.8
    assert f"{shown['content']}" == "任务内容..."
    assert [hit.id for hit in shown["results"]] == [task.task_id]


def test_the_awaited_example_runs_without_a_parent(task: Task) -> None:
    """001 MemoryManager with the root's parent, which is none: requirement 62."""
    shown = named(THE_MANAGER_AWAITED, task=task, parent_manager=None)
    assert shown["manager"].parent is None
    assert [hit.id for hit in shown["results"]] == [task.task_id]


def test_the_child_of_the_example_inherits_what_its_parent_shares(parent_manager: MemoryManager) -> None:
    """001 父子关系: requirement 67."""
    asyncio.run(parent_manager.write("plan", "三步", "shared"))
    asyncio.run(parent_manager.write("team", "red", "global"))
    child = named(A_CHILD, parent_manager=parent_manager)["child_manager"]
    plan, team = asyncio.run(child.read("plan")), asyncio.run(child.read("team"))
    assert (str(plan), str(team)) == ("三步", "red")


@pytest.mark.parametrize(
    ("example", "ours"),
    [(STRATEGIES, MemoryStrategyType), (TYPES, MemoryTier), (TYPES, MemoryType)],
    ids=["MemoryStrategyType", "MemoryTier", "MemoryType"],
)
def test_every_member_of_the_documents_enumerations_is_ours_too(example: str, ours: type[StrEnum]) -> None:
    """001 类型定义, 记忆策略: requirements 18, 19, 25; C-3 allows more members."""
    from datetime import datetime

    theirs = run(example, StrEnum=StrEnum, Any=Any, datetime=datetime)[ours.__name__]
    assert issubclass(ours, StrEnum)
    assert {name: str(member) for name, member in theirs.__members__.items()}.items() <= {
        name: str(member) for name, member in ours.__members__.items()
    }.items()


def test_the_compactor_of_the_example_sums_up_what_fills_the_archive() -> None:
    """001 MemoryCompactor: requirements 71, 72."""
    said = "We decided to run job {} on the blue cluster, because the red one has no room left. " + "It rained. " * 20
    with MemoryManager("agent-1", l3_token_budget=1000, l2_token_budget=400, l1_token_budget=200) as manager:
        store = loom.memory.InMemorySegmentStore()
        compactor = run(
            A_COMPACTOR,
            MemoryCompactor=loom.memory.MemoryCompactor,
            CompactionConfig=loom.memory.CompactionConfig,
            manager=manager,
            counter=manager.counter,
            segment_store=store,
        )["compactor"]
        assert (compactor.config.trigger_threshold, compactor.config.target_ratio) == (0.8, 0.6)
        for number in range(60):
            manager.remember(said.format(number), session_id="s", importance=0.7)
        compactor.compact()
        assert manager.get_stats()["l3_token_usage"] <= 1000


def test_the_compressor_of_the_example_keeps_the_facts_near_its_threshold() -> None:
    """001 L4Compressor: requirement 73; without embeddings the most important stay."""
    compressor = run(A_COMPRESSOR, L4Compressor=loom.memory.L4Compressor)["compressor"]
    facts = [loom.memory.Fact(f"Berth {at} is free.", importance=at / 200) for at in range(200)]
    assert not compressor.should_compress(facts[:150])
    kept = compressor.compress(facts)
    assert len(kept) == 150
    assert min(fact.importance or 0 for fact in kept) == 50 / 200


def test_the_signals_of_the_example_are_ours() -> None:
    """001 MemoryReranker: requirement 27."""
    theirs = run(SIGNALS, StrEnum=StrEnum)["RerankSignal"]
    assert {one.name: str(one) for one in theirs} == {one.name: str(one) for one in loom.memory.RerankSignal}


def test_the_team_of_the_example_shares_one_pool() -> None:
    """001 SharedMemoryPool, 上下文自动注入: requirements 79, 82."""
    shown = run(A_TEAM, Agent=Agent, llm=lambda prompt: "好的。")
    pool, agents = shown["pool"], (shown["agent_a"], shown["agent_b"])
    asyncio.run(pool.write("finding", "端口是 8443"))
    for agent in agents:
        with agent:
            assert agent.memory.shared_pool is pool
            assert "[SHARED:finding] 端口是 8443" in str(agent.memory.context("端口？", budget=800).messages)


def test_the_names_in_use_around_the_second_document_are_aliases_of_the_tiers() -> None:
    """C-3."""
    aliases = ("L1_RAW_IO", "L2_WORKING", "L3_SESSION", "L4_GLOBAL")
    assert [MemoryTier[name] for name in aliases] == list(MemoryTier)
    assert list(MemoryTier) == ["l1", "l2", "l3", "l4"]


def test_a_unit_of_memory_has_the_documents_fields_and_becomes_a_message() -> None:
    """001 类型定义, 002 types.py: requirement 20."""
    from datetime import datetime

    theirs = run(TYPES, StrEnum=StrEnum, Any=Any, datetime=datetime)["MemoryUnit"]
    assert set(theirs.__annotations__) <= {one.name for one in fields(MemoryUnit)}
    unit = MemoryUnit(content="使用 OAuth2", type=MemoryType.CONTEXT, importance=0.7, token_count=4)
    assert unit.to_message() == {"role": "system", "content": "使用 OAuth2"}
    said = MemoryUnit(content="好", metadata={"role": "user"})
    assert said.to_message() == {"role": "user", "content": "好"}
    assert unit.created_at.tzinfo is not None


def test_both_quick_look_up_spellings_of_the_second_document_hear_the_bus(task: Task) -> None:
    """002 五、快速查阅: `MemoryManager(node_id, parent=..., event_bus=...)`, `LoomMemory(node_id, event_bus=...)`."""
    bus = EventBus()
    with MemoryManager("agent-1", parent=None, event_bus=bus) as manager, LoomMemory("tools", event_bus=bus) as tools:
        bus.publish_sync(task)
        assert manager.get_l1_tasks() == [task]
        assert tools.get_l1_tasks() == [task]
    assert bus.failures == []


def test_the_pool_of_the_example_is_written_read_listed_and_emptied() -> None:
    """001 SharedMemoryPool, 读写 API: requirements 14, 79, 80. The example shares a literal `...`."""
    pool = run(A_POOL)["pool"]
    assert pool.pool_id == "team"
    asyncio.run(pool.write("research:1", "found"))
    shown = run(READING_AND_WRITING_A_POOL, pool=pool)
    entry = shown["entry"]
    assert (entry.content, entry.version) == ({"findings": [...]}, 1)
    assert (entry.created_by, entry.updated_by) == ("agent-a", "agent-a")
    assert [one.key for one in shown["entries"]] == ["research:1"]
    assert asyncio.run(pool.read("research_result")) is None


def test_the_agents_of_the_example_share_the_pool_and_see_it_in_their_prompts() -> None:
    """001 SharedMemoryPool, 上下文自动注入: requirements 79, 82."""
    asked: list[str] = []

    def llm(messages: list[dict[str, Any]]) -> str:
        asked.append(str(messages))
        return "好的"

    pool = run(A_POOL)["pool"]
    shown = run(AGENTS_WITH_A_POOL, pool=pool, llm=llm, Agent=loom.Agent)
    asyncio.run(pool.write("research_result", "召回率 92%", writer_id=shown["agent_a"].node_id))
    with shown["agent_a"], shown["agent_b"] as writer:
        assert writer.shared_pool is shown["agent_a"].shared_pool is pool
        assert str(writer.run_sync("写一段总结")) == "好的"
    assert "写作者" in asked[0]
    assert "[SHARED:research_result] 召回率 92%" in asked[0]


def test_the_conflict_of_the_example_is_written_once_and_refused_when_another_was_first() -> None:
    """001 冲突策略: requirement 81. Both names come from where the pool comes from."""
    pool = run(A_POOL)["pool"]
    asyncio.run(pool.write("key", "old"))
    names: dict[str, Any] = {"pool": pool, "VersionConflictError": loom.memory.VersionConflictError}
    run(A_CONFLICT_IN_A_POOL, new_value="new", **names)
    assert asyncio.run(pool.read("key")).content == "new"

    class Hasty:
        """A pool in which another writer is always first."""

        read = staticmethod(pool.read)

        @staticmethod
        async def write(key: str, value: Any, **more: Any) -> Any:
            await pool.write(key, "another was first")
            return await pool.write(key, value, **more)

    run(A_CONFLICT_IN_A_POOL, new_value="too late", **(names | {"pool": Hasty}))
    assert asyncio.run(pool.read("key")).content == "another was first"


def test_the_pool_of_the_example_publishes_what_it_says() -> None:
    """001 EventBus 集成: requirement 83."""
    bus = EventBus()
    heard: list[Task] = []
    bus.register_handler("*", heard.append)
    pool = run(A_POOL_ON_A_BUS, event_bus=bus, SharedMemoryPool=loom.memory.SharedMemoryPool)["pool"]
    asyncio.run(pool.write("key", 1, writer_id="agent-a"))
    (task,) = heard
    assert task.action == "shared_pool.write"
    assert task.parameters == {"pool_id": "team", "key": "key", "version": 1, "writer": "agent-a"}


def test_an_entry_of_a_pool_has_the_documents_fields_in_their_order() -> None:
    """001 PoolEntry: requirement 28."""
    theirs = run(AN_ENTRY_OF_A_POOL, dataclass=dataclass, Any=Any)["PoolEntry"]
    assert [one.name for one in fields(theirs)] == [one.name for one in fields(loom.memory.PoolEntry)]


def test_the_look_up_table_of_the_second_document_leads_to_what_it_names(task: Task) -> None:
    """002 五、快速查阅: requirements 15, 98, 100, 102, 104, 105."""
    import loom.fractal
    from loom.fractal import BudgetTracker, NodeContainer, RecursiveBudget, ResultSynthesizer
    from loom.fractal.memory import FractalMemory
    from loom.fractal.resolvers import ChildWinsResolver, MergeResolver, ParentWinsResolver
    from loom.fractal.sync import MemorySyncManager

    card = AgentCard("card")
    inner = NodeContainer(node_id="inner", agent_card=card)
    container = NodeContainer(node_id="outer", agent_card=card, child=inner)
    assert container.get_capabilities() is card
    budget = RecursiveBudget(max_depth=1, max_children=1, token_budget=10, time_budget=5, tool_budget=1)
    assert BudgetTracker(budget).check_can_create_child() is None
    assert BudgetTracker(budget).get_remaining_budget().token_budget == 10
    assert "found" in asyncio.run(ResultSynthesizer().synthesize("look", ["found"]))
    for resolver in (ParentWinsResolver(), ChildWinsResolver(), MergeResolver()):
        assert asyncio.run(MemorySyncManager(FractalMemory("node"), resolver).sync_from_parent()) == []
    named = {"NodeContainer", "ResultSynthesizer", "BudgetTracker", "BudgetViolation", "RecursiveBudget"}
    named |= {"QualityEvaluator", "QualityMetrics", "estimate_task_complexity", "should_use_fractal"}
    assert named <= set(loom.fractal.__all__)


@pytest.mark.parametrize(
    "name",
    ["MemoryManager", "LoomMemory", "MemoryFactory", "MemoryTier", "MemoryStrategyType", "SharedMemoryPool"],
)
def test_the_documents_import_it_from_the_package(name: str) -> None:
    """Requirement 14."""
    assert name in loom.memory.__all__
    assert getattr(loom.memory, name).__name__ == name
