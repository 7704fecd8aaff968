"""The examples of the design documents that concern contexts run as they stand."""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import loom.context
import loom.memory
from loom.context import CompactedMessages, SmartTruncator, TruncationStrategy, compact_messages, should_compact
from loom.context.prompts import build_minimal_prompt
from loom.memory.tokenizer import TiktokenCounter
from loom.protocol import Task

WITH_THE_CONTEXT_MODULE = """
from loom.memory import LoomMemory
from loom.memory.tokenizer import EstimateCounter
from loom.context import ContextOrchestrator
from loom.context.sources import L1RecentSource, L2ImportantSource

# 创建记忆（Token-First 配置）
memory = LoomMemory(
    node_id="agent-1",
    l1_token_budget=8000,
    l2_token_budget=16000,
)

# 创建上下文源（从 memory 读取）
sources = [
    L1RecentSource(memory),
    L2ImportantSource(memory),
]

# 创建编排器
orchestrator = ContextOrchestrator(
    token_counter=EstimateCounter(),
    sources=sources,
    model_context_window=128000,
)

# 构建上下文
messages = await orchestrator.build_context(query="用户问题")
"""


def run(example: str, **names: Any) -> dict[str, Any]:
    code = compile(example, "<design document>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert code.co_flags & inspect.CO_COROUTINE

    async def awaited() -> None:
        await eval(code, names)

    asyncio.run(awaited())
    return names


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")


@pytest.mark.parametrize("filled", [False, True])
def test_the_example_of_the_context_module_builds_messages(filled: bool) -> None:
    """000 与上下文模块配合使用: requirements 14, 87 to 89; as it stands, and where an agent has worked before."""
    sources = "# 创建上下文源（从 memory 读取）"
    worked = f"fill(memory)\n\n{sources}" if filled else sources

    def fill(memory: Any) -> None:
        memory.add_task(Task(action="execute", parameters={"content": "部署到测试环境"}, result="完成"))

    messages = run(WITH_THE_CONTEXT_MODULE.replace(sources, worked), fill=fill)["messages"]
    assert isinstance(messages, list)
    assert messages[-1] == {"role": "user", "content": "用户问题"}
    told = [(message["role"], message["content"]) for message in messages[1:-1]]
    assert told == ([("user", "部署到测试环境"), ("assistant", "完成")] if filled else [])


def test_a_current_task_is_a_question_too() -> None:
    """002 orchestrator.py: `build_context(current_task)`; C-17."""
    orchestrator = loom.context.ContextOrchestrator(token_counter=TiktokenCounter(), sources=[])
    task = Task(action="execute", parameters={"content": "Go on."}, session_id="s1")
    messages = asyncio.run(orchestrator.build_context(task))
    assert messages[-1]["content"] == "Go on."


@pytest.mark.parametrize(
    "name",
    [
        "BudgetConfig",
        "ContextBudgeter",
        "ContextManager",
        "ContextOrchestrator",
        "ContextSource",
        "ContextStrategy",
        "EventCandidate",
        "KnowledgeContextSource",
        "MessageConverter",
        "PriorityContextStrategy",
        "SlidingWindowStrategy",
    ],
)
def test_the_memory_package_has_the_context_names_of_the_second_document(name: str) -> None:
    """002 §1.2; C-2: their home is `loom.context`."""
    assert getattr(loom.memory, name) is getattr(loom.context, name)


def test_every_name_of_the_package_can_be_had() -> None:
    for name in loom.context.__all__:
        assert getattr(loom.context, name) is not None
        assert name in dir(loom.context)
    with pytest.raises(AttributeError, match="nobody"):
        loom.context.nobody  # noqa: B018


WHEN_TO_COMPACT = '''
def should_compact(messages, tokens):
    """判断是否需要压缩"""
    # 统一阈值：70k tokens (约55%的128k上下文)
    return tokens > 70000
'''


def defined(example: str, name: str, **names: Any) -> Any:
    exec(example, names)
    return names[name]


@pytest.mark.parametrize("tokens", [0, 1, 69_999, 70_000, 70_001, 128_000])
def test_seventy_thousand_tokens_are_the_threshold(tokens: int) -> None:
    """003 §3.2."""
    messages = [{"role": "user", "content": "x"}]
    assert should_compact(messages, tokens) is defined(WHEN_TO_COMPACT, "should_compact")(messages, tokens)


THE_SYSTEM_PROMPT = '''
def _build_minimal_prompt(self):
    """构建包含记忆的系统提示词"""

    prompt = base_template

    # 1. 注入知识（静态） - 主体记忆的一部分
    prompt += self.knowledge_content

    if self.minimal_mode:
        # 极简模式：只有压缩记忆
        if hasattr(self, 'compact_memory'):
            prompt += f"\\n## 历史记忆\\n{self.compact_memory}"
    else:
        # 完整模式：三元记忆
        # 2. 注入任务记忆
        if self.task_process_file.exists():
            task_state = self.task_process_file.read_text()[:5000]
            prompt += f"\\n## 任务状态\\n{task_state}"

        # 3. 注入主体记忆（自己的历史）
        own_sessions = self._load_own_sessions(limit=3)
        if own_sessions:
            prompt += f"\\n## 个人历史\\n{own_sessions}"

    return prompt
'''


@pytest.mark.parametrize("minimal", [True, False])
def test_the_third_documents_system_prompt_is_ours_where_nothing_has_to_be_cut(minimal: bool, tmp_path: Path) -> None:
    """003 §5.1; requirement 124."""
    state = "# Task Process\n\n## 当前状态\n- 指令指针: 3\n\n- [ ] 生成第二章  ← 当前"
    session = "# Session: 20250105_103000\n用户: 生成PSM文档"
    (tmp_path / "task_process.md").write_text(state, encoding="utf-8")
    agent = SimpleNamespace(
        knowledge_content="\n## 知识\n端口是 8443。",
        minimal_mode=minimal,
        compact_memory="已决定使用授权码模式。",
        task_process_file=tmp_path / "task_process.md",
        _load_own_sessions=lambda limit: session,
    )
    theirs = defined(THE_SYSTEM_PROMPT, "_build_minimal_prompt", base_template="你是一名助手。")(agent)
    ours = build_minimal_prompt(
        "你是一名助手。",
        agent.knowledge_content,
        minimal_mode=minimal,
        compact_memory=agent.compact_memory,
        task_state=state,
        own_sessions=[session],
    )
    assert ours == theirs


def test_the_fourth_documents_truncator_is_ours() -> None:
    """004 §5.4: the strategies, and the fields of a result (C-32)."""
    assert [strategy.value for strategy in TruncationStrategy] == [
        "TAIL_CUTOFF",
        "IMPORTANCE_BASED",
        "DYNAMIC_SUMMARY",
        "CONVERSATION_MERGE",
    ]
    result = SmartTruncator().truncate([{"role": "user", "content": "x"}], 100, TruncationStrategy.TAIL_CUTOFF)
    assert (result.truncated, result.preserved_count, result.original_count) == (False, 1, 1)


def test_the_third_documents_compaction_takes_messages_alone() -> None:
    """003 §3.3: `compressed = compact_messages(messages)`."""
    messages = [{"role": "user", "content": f"We decided step {number}."} for number in range(50)]
    compressed = compact_messages(messages)
    assert isinstance(compressed, CompactedMessages)
    assert compressed.tokens < compressed.tokens_before
