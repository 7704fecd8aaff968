"""`Agent`: a small but complete agent on this memory.

    agent = Agent.create("claude-sonnet-5-5", system_prompt="You help customers.", memory="support.loom")
    result = await agent.run("Where is my order?", session_id="ana")

A run stores the question, builds a prompt from memory under a budget, calls the model and carries out its tool calls,
until the model answers. Every step is a `Task`, which is first stored and then published on the bus.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from loom.agent.calling import ToolAnswer, call_all, in_own_thread
from loom.agent.chat_models import Answer, ChatModel, ChatModelLike, Json, Prompt, ToolCall, Usage, as_chat_model
from loom.agent.memory_tools import ALL_TOOLS, MemoryTools
from loom.agent.meta_tools import meta_tools
from loom.agent.outcome import AgentEvent, AgentResult, AgentStats, Called, Finished, Prompted, Returned, Said
from loom.agent.tools import Tool, ToolLike, as_tools
from loom.agent.turns import (
    CompactConversation,
    Conversation,
    Opening,
    RememberedConversation,
    fitted,
    messages_of,
)
from loom.checks import checked_instance, checked_number, checked_whole, if_given
from loom.context.message_shortening import shorter_text
from loom.context.rendering import question_of
from loom.errors import BudgetExceeded, Closed, InvalidInput, LanguageModelError, LoomError, OverBudget
from loom.events import EventBus
from loom.everyday import Memory
from loom.fractal.budget import BudgetTracker, RecursiveBudget
from loom.fractal.memory import in_thread
from loom.memory.manager import MemoryManager
from loom.notebook.sessions import SessionNote
from loom.protocol import AgentCapability, AgentCard, Closing, Task, TaskStatus, new_id
from loom.text.tokens import default_counter

if TYPE_CHECKING:
    from loom.memory.shared_pool import SharedMemoryPool
    from loom.notebook.book import Notebook

__all__ = ["Agent"]

OnEvent = Callable[[AgentEvent], object]

# The memory tools that the model is offered by default.
_EVERYDAY_TOOLS = ("recall", "remember", "forget")
# The share of a prompt that is reserved for the steps of a run, if there are tools.
_STEPS_SHARE = 0.25
# The smallest prompt, in tokens, beside the definitions of the tools.
_LEAST_PROMPT = 256
# The smallest answer, in tokens, for which the model is asked.
_LEAST_ANSWER = 16
# A call is answered this many times with the same arguments; then it is refused.
_MOST_REPEATS = 3


@dataclass(slots=True)
class _Run:
    """One run: the question, the steps since, and the budget that is left."""

    question: Task
    session_id: str
    account: BudgetTracker
    tools: Mapping[str, Tool]
    tool_tokens: int
    tell: OnEvent
    streams: bool
    opening: Opening = field(default_factory=lambda: Opening([], 0))
    steps: list[Json] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    model_calls: int = 0
    tool_calls: int = 0
    repeats: dict[tuple[str, str], int] = field(default_factory=dict)
    tools_used: dict[str, int] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def result(self, text: str, status: TaskStatus, **more: Any) -> AgentResult:
        return AgentResult(
            text,
            status,
            task_id=self.question.task_id,
            session_id=self.session_id,
            usage=self.usage,
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            tokens_spent=self.account.total_spent.tokens,
            seconds=time.monotonic() - self.began,
            tools=dict(self.tools_used),
            **more,
        )


class _NoAnswer(Exception):
    """Ends a run without an answer, with the reason."""

    def __init__(self, reason: str, stop: str = "failure", text: str = "") -> None:
        super().__init__(reason)
        self.stop = stop
        self.text = text


class Agent(Closing):
    """A model with a memory and tools. Make one with `Agent.create`; it is a node (`NodeProtocol`).

    Close it after use, or use it as a context manager. Closing it closes the memory too, if the agent opened it.
    `stats` are the totals since the agent was made.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        memory: MemoryManager | None,
        owns_memory: bool,
        node_id: str,
        system_prompt: str | None,
        shared_pool: SharedMemoryPool | None,
        tools: Mapping[str, Tool],
        memory_tools: tuple[str, ...],
        meta_tools: bool,
        budget: RecursiveBudget | BudgetTracker,
        prompt_budget: int,
        max_tokens: int,
        max_steps: int,
        tool_timeout_s: float,
        event_bus: EventBus,
        conversation: Conversation,
        notebook: Notebook | None = None,
    ) -> None:
        self.node_id = node_id
        self.memory = memory
        self.event_bus = event_bus
        self.shared_pool = shared_pool
        self._model = model
        self._owns_memory = owns_memory
        self._system = system_prompt
        self._tools = tools
        self._memory_tools = memory_tools
        self._meta = meta_tools
        self._budget = budget
        self._prompt_budget = prompt_budget
        self._max_tokens = max_tokens
        self._max_steps = max_steps
        self._tool_timeout_s = tool_timeout_s
        self._conversation = conversation
        self.notebook = notebook
        self._counter = default_counter() if memory is None else memory.counter
        self.stats = AgentStats()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = WeakKeyDictionary()
        self._closed = False
        self._check_room()

    @classmethod
    def create(
        cls,
        llm: ChatModelLike,
        *,
        system_prompt: str | None = None,
        memory: MemoryManager | str | Path | None = None,
        shared_pool: SharedMemoryPool | None = None,
        tools: Iterable[ToolLike] = (),
        minimal_mode: bool = False,
        budget: RecursiveBudget | BudgetTracker | int | None = None,
        node_id: str | None = None,
        event_bus: EventBus | None = None,
        memory_tools: bool | str | Iterable[str] = True,
        meta_tools: bool = False,
        prompt_budget: int | None = None,
        max_tokens: int = 4096,
        max_steps: int = 20,
        tool_timeout_s: float = 60.0,
        compact_memory: str = "",
        notebook: Notebook | None = None,
    ) -> Agent:
        """Make an agent from a model: its name, a client of `loom.agent.chat_models`, or a function of the messages.

        `memory` is a memory, or the path of one; without it, the agent gets a memory in this process. `tools` are
        typed functions. `memory_tools` offers the model recall, remember and forget; "all" offers every memory tool,
        a list of names offers those tools, and False offers none. `meta_tools` adds `create_plan` and
        `delegate_task`.

        `budget` bounds each run with all that it delegates: a `RecursiveBudget`, or a number of tokens. A
        `BudgetTracker` bounds all runs together. `prompt_budget` bounds each prompt with the definitions of the tools
        (by default the memory's `prompt_token_budget`), `max_tokens` each answer, `max_steps` the model calls of a
        run, `tool_timeout_s` a tool call.

        With `minimal_mode`, nothing is stored. The dialogue is in this process, and is summarised in `compact_memory`
        when it grows too long. A later agent can continue from that text.

        With a `notebook`, the agent works in the notebook's mode and, in full mode, on its memory: the notebook is
        part of the system text, every run becomes a session file, and a plan becomes the task process. In minimal
        mode, the compact memory is the notebook's file.
        """
        if notebook is not None:
            if memory is not None or compact_memory or (minimal_mode and not notebook.minimal_mode):
                raise InvalidInput("a notebook has its own memory and mode; leave memory and minimal_mode out")
            minimal_mode = notebook.minimal_mode
            memory = None if minimal_mode else notebook.memory
            compact_memory = notebook.compact_memory if minimal_mode else ""
        model = as_chat_model(llm)
        offered = as_tools(tools)
        bus = EventBus() if event_bus is None else event_bus
        kept, owned = _open_memory(memory, node_id, shared_pool, minimal_mode)
        try:
            counter = default_counter() if kept is None else kept.counter
            conversation: Conversation = (
                CompactConversation(
                    counter,
                    compact_memory=compact_memory,
                    write_through=(lambda _: None) if notebook is None else notebook.write_compact_memory,
                )
                if kept is None
                else RememberedConversation(kept)
            )
            fallback = 8192 if kept is None else kept.settings.prompt_token_budget
            return cls(
                model,
                memory=kept,
                owns_memory=owned,
                node_id=kept.node_id if kept is not None else node_id or f"agent-{new_id().lower()}",
                system_prompt=if_given(checked_instance, system_prompt, str, "system_prompt"),
                shared_pool=kept.shared_pool if kept is not None else shared_pool,
                tools=offered,
                memory_tools=() if kept is None else _chosen(memory_tools),
                meta_tools=meta_tools,
                budget=_as_budget(budget),
                prompt_budget=checked_whole(fallback if prompt_budget is None else prompt_budget, "prompt_budget", 1),
                max_tokens=checked_whole(max_tokens, "max_tokens", 1),
                max_steps=checked_whole(max_steps, "max_steps", 1),
                tool_timeout_s=checked_number(tool_timeout_s, "tool_timeout_s", 0),
                event_bus=bus,
                conversation=conversation,
                notebook=notebook,
            )
        except BaseException:
            if owned and kept is not None:
                kept.close()
            raise

    # -- running ---------------------------------------------------------------------------------------

    async def run(
        self, task: str | Task, *, session_id: str | None = None, task_id: str | None = None
    ) -> AgentResult:
        """Answer a question or carry out a task. Failures of the model or a tool are in the result, not raised.

        Runs of the same session continue one conversation. The default session is the agent's own. With a `task_id`,
        a run can be repeated safely: a question that was already answered is not asked again.
        """
        return await self._in_turn(self._question(task, session_id, task_id), lambda _: None, streams=False)

    def run_sync(self, task: str | Task, *, session_id: str | None = None, task_id: str | None = None) -> AgentResult:
        """Do the same as `run`, for code without an event loop."""
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise InvalidInput("run_sync would block the running event loop; use `await agent.run(...)`")
        return asyncio.run(self.run(task, session_id=session_id, task_id=task_id))

    async def stream(
        self, task: str | Task, *, session_id: str | None = None, task_id: str | None = None
    ) -> AsyncIterator[AgentEvent]:
        """Do the same as `run`, and yield the prompt, pieces of text, tool calls, their answers, and the result.

        Leaving the loop early cancels the run.
        """
        events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        question = self._question(task, session_id, task_id)
        work = asyncio.create_task(self._in_turn(question, events.put_nowait, streams=True))
        work.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def execute_task(self, task: Task) -> Task:
        """Carry out a task as a node does, and return it with its status, result or error."""
        result = await self.run(task)
        task.status, task.error = result.status, result.error
        task.result = result.text or None
        return task

    def get_capabilities(self) -> AgentCard:
        able = [AgentCapability.REASONING]
        able += [AgentCapability.MEMORY] if self.memory is not None else []
        able += [AgentCapability.TOOL_USE] if self._tools else []
        able += [AgentCapability.PLANNING, AgentCapability.MULTI_AGENT] if self._meta else []
        about = (self._system or "").split("\n", 1)[0][:200]
        return AgentCard(self.node_id, self.node_id, about, capabilities=tuple(able), skills=tuple(self._tools))

    @property
    def compact_memory(self) -> str:
        """The summary of the dialogue so far in minimal mode; empty in full mode."""
        return self._conversation.compact_memory if isinstance(self._conversation, CompactConversation) else ""

    def close(self) -> None:
        """Close the memory, if this agent opened it. Safe to call twice."""
        self._closed = True
        if self._owns_memory and self.memory is not None:
            self.memory.close()

    def __repr__(self) -> str:
        return f"<Agent {self.node_id!r}>"

    # -- one run ---------------------------------------------------------------------------------------

    def _question(self, given: str | Task, session_id: str | None, task_id: str | None) -> Task:
        """Return the question as the task to store, with the user's message."""
        if self._closed:
            raise Closed("the agent is closed; create another one")
        if isinstance(given, Task):
            text, own = question_of(given), given
        elif isinstance(given, str) and given.strip():
            text, own = given, Task(task_id=task_id or new_id())
        else:
            raise InvalidInput(f"run() takes a question or a Task, not {given!r}")
        return Task(
            task_id=own.task_id,
            action="execute",
            parameters={**own.parameters, "message": {"role": "user", "content": text}},
            status=TaskStatus.RUNNING,
            session_id=session_id or own.session_id or self.node_id,
            parent_task_id=own.parent_task_id,
            source_agent=own.source_agent,
            target_agent=self.node_id,
            created_at=own.created_at,
            # A question of another agent is not in the user's own words.
            metadata={**own.metadata, **({"trust": "agent"} if own.source_agent else {})},
        )

    async def _in_turn(self, question: Task, tell: OnEvent, *, streams: bool) -> AgentResult:
        """Run the question after earlier runs of the same session have ended."""
        session = str(question.session_id)
        locks = self._turns.setdefault(asyncio.get_running_loop(), {})
        async with locks.setdefault(session, asyncio.Lock()):
            result = await self._answered_before(question)
            if result is None:
                if isinstance(self._budget, BudgetTracker):
                    result = await self._begun(question, self._budget, tell, streams)
                else:
                    with BudgetTracker(self._budget, node_id=self.node_id) as account:
                        result = await self._begun(question, account, tell, streams)
                self.stats = self.stats.after(result)
                if self.notebook is not None:
                    await in_thread(self.notebook.finish, _session_note(question, result))
            tell(Finished(result))
            return result

    async def _answered_before(self, question: Task) -> AgentResult | None:
        if self.memory is None:
            return None
        found = await in_thread(self.memory.get_task, _answer_id(question))
        if found is None:
            return None
        return AgentResult(
            str(found.result or ""),
            TaskStatus.COMPLETED,
            task_id=question.task_id,
            session_id=str(question.session_id),
        )

    async def _begun(self, question: Task, account: BudgetTracker, tell: OnEvent, streams: bool) -> AgentResult:
        run = _Run(question, str(question.session_id), account, {}, 0, tell, streams)
        run.tools = self._tools_for(run)
        run.tool_tokens = _size_of(run.tools, self._counter.safe_count)
        left_s = account.get_remaining_budget().time_budget
        limit = asyncio.timeout(None if math.isinf(left_s) else left_s)
        await self._keep(question)
        try:
            async with limit:
                answer = await self._loop(run)
            await self._keep_answer(run, answer)
            return run.result(answer.text, TaskStatus.COMPLETED, stop="length" if answer.stop == "length" else "end")
        except _NoAnswer as failure:
            return await self._failed(run, str(failure), failure.stop, failure.text)
        except TimeoutError:
            late = str(account.check_time()) if limit.expired() else "a time-out inside the run"
            return await self._failed(run, late)
        except (LanguageModelError, OverBudget, BudgetExceeded) as error:
            return await self._failed(run, str(error))
        except asyncio.CancelledError:
            await asyncio.shield(self._failed(run, "the run was cancelled", "cancelled"))
            raise

    async def _loop(self, run: _Run) -> Answer:
        run.opening = await in_thread(self._opening, run)
        run.tell(Prompted(run.opening.tokens, run.opening.context))
        while run.model_calls < self._max_steps:
            answer = await self._ask(run)
            if answer.stop == "refusal":
                raise _NoAnswer(f"the model refused: {answer.text or 'it gave no reason'}", "refusal", answer.text)
            if not answer.calls:
                if not answer.text.strip():
                    raise _NoAnswer("the model returned an empty answer; ask again, or rephrase the question")
                return answer
            await self._step(run, "node.tool_call", answer.to_message())
            for done in await self._call(run, answer.calls):
                message = {"role": "tool", "tool_call_id": done.call.id, "content": done.text}
                await self._step(run, "node.tool_result", message, tool=done.call.name, error=done.error)
        raise _NoAnswer(
            f"the model made {run.model_calls} steps without an answer; raise max_steps, or divide the task"
        )

    def _told(self) -> str | None:
        """Return the system text: the agent's own, and that of its notebook."""
        if self.notebook is None or self.notebook.minimal_mode:
            return self._system
        return self.notebook.prompt(self._system or "")

    def _opening(self, run: _Run) -> Opening:
        room = self._prompt_budget - run.tool_tokens
        return self._conversation.opening(
            run.question, self._told(), int(room * (1 - _STEPS_SHARE)) if run.tools else room
        )

    async def _ask(self, run: _Run) -> Answer:
        """Ask the model with the prompt and the steps so far.

        The tokens of the prompt and of the longest answer are reserved before the call, and settled when the call has
        ended, even if the run did not wait for it.
        """
        limit = self._prompt_budget - run.tool_tokens
        messages, tokens = fitted(run.opening, run.steps, limit, self._counter)
        tokens += run.tool_tokens
        breakpoints = run.opening.breakpoints if len(messages) >= len(run.opening.messages) else (0,)
        reserved = run.account.reserve_tokens(tokens + _LEAST_ANSWER, tokens + max(self._max_tokens, _LEAST_ANSWER))
        prompt = Prompt(
            messages,
            [tool.definition for tool in run.tools.values()],
            min(self._max_tokens, reserved - tokens),
            (*breakpoints, *([len(messages) - 1] if run.steps else [])),
        )
        answer, used = await self._said(run, prompt, tokens, reserved)
        run.model_calls += 1
        run.usage += used
        return answer

    async def _said(self, run: _Run, prompt: Prompt, tokens: int, reserved: int) -> tuple[Answer, Usage]:
        """Return the answer to a prompt of this size, and the usage of both."""
        loop, cancelled = asyncio.get_running_loop(), Event()
        pieces: list[str] = []

        def hand_on(piece: str) -> None:
            pieces.append(piece)
            loop.call_soon_threadsafe(run.tell, Said(piece))

        def call() -> tuple[Answer, Usage]:
            used = Usage(tokens)
            try:
                answer = self._model.answer(prompt, hand_on if run.streams else None, cancelled)
                used = answer.usage or Usage(tokens, 0, self._counter.safe_count(_words_of(answer)))
                return answer, used
            except LanguageModelError as error:
                used = Usage(tokens, 0, self._counter.safe_count("".join(pieces))) if error.sent else Usage()
                raise
            finally:
                run.account.settle_tokens(reserved, used.total)

        try:
            return await in_own_thread(call)
        except (asyncio.CancelledError, LoomError):
            raise
        except Exception as error:  # a function may raise anything
            raise _NoAnswer(f"the model failed: {type(error).__name__}: {error}") from error
        finally:
            cancelled.set()

    async def _call(self, run: _Run, calls: Iterable[ToolCall]) -> list[ToolAnswer]:
        made = list(calls)
        for call in made:
            run.tell(Called(call))

        def admit(call: ToolCall) -> str | None:
            key = (call.name, call.arguments)
            run.repeats[key] = run.repeats.get(key, 0) + 1
            if run.repeats[key] > _MOST_REPEATS:
                return f"this call was made {_MOST_REPEATS} times with the same arguments; use what it answered"
            try:
                run.account.record_tool_call()
            except BudgetExceeded as error:
                return str(error)
            run.tool_calls += 1
            run.tools_used[call.name] = run.tools_used.get(call.name, 0) + 1
            return None

        answers = await call_all(made, run.tools, self._tool_timeout_s, admit)
        most = max(64, (self._prompt_budget - run.tool_tokens) // (2 * len(made)))
        short = [
            ToolAnswer(one.call, shorter_text(one.text, most, self._counter.safe_count), one.error) for one in answers
        ]
        for one in short:
            run.tell(Returned(one.call, one.text, one.error))
        return short

    # -- keeping ---------------------------------------------------------------------------------------

    async def _keep(self, task: Task) -> None:
        """Store a turn, then publish it on the bus. An error of the memory ends the run."""
        await in_thread(self._conversation.keep, task)
        await self.event_bus.publish(task)

    async def _step(
        self, run: _Run, action: str, message: Json, *, tool: str | None = None, error: str | None = None
    ) -> None:
        task = self._turn(run, action, message, tool=tool)
        task.error = error
        task.status = TaskStatus.COMPLETED if error is None else TaskStatus.FAILED
        await self._keep(task)
        run.steps += messages_of(task)

    async def _keep_answer(self, run: _Run, answer: Answer) -> None:
        task = self._turn(run, "node.complete", {"role": "assistant", "content": answer.text})
        task.task_id, task.result, task.status = _answer_id(run.question), answer.text, TaskStatus.COMPLETED
        await self._keep(task)

    async def _failed(self, run: _Run, reason: str, stop: str = "failure", text: str = "") -> AgentResult:
        task = self._turn(run, "node.error", {"role": "assistant", "content": f"[no answer: {reason}]"})
        task.error, task.status = reason, TaskStatus.CANCELLED if stop == "cancelled" else TaskStatus.FAILED
        await self._keep(task)
        return run.result(text, task.status, stop=stop, error=reason)

    def _turn(self, run: _Run, action: str, message: Json, *, tool: str | None = None) -> Task:
        return Task(
            action=action,
            parameters={**({} if tool is None else {"tool": tool}), "message": message},
            session_id=run.session_id,
            parent_task_id=run.question.task_id,
            source_agent=self.node_id,
        )

    # -- tools and children ----------------------------------------------------------------------------

    def _tools_for(self, run: _Run) -> dict[str, Tool]:
        found = dict(self._tools)
        if self.memory is not None and self._memory_tools:
            # Notes belong to no session, because a turn between a call and its result would separate them.
            for one in MemoryTools(self.memory).as_tools(self._memory_tools):
                found.setdefault(one.name, one)
        if self._meta:
            for one in meta_tools(
                run.question,
                run.account,
                memory=self.memory,
                keep=self._keep,
                make_child=self._create_child_node,
                plan=self.notebook.plan if self.notebook is not None and not self.notebook.minimal_mode else None,
            ):
                found.setdefault(one.name, one)
        return found

    def _create_child_node(self, account: BudgetTracker, system_prompt: str | None = None) -> Agent:
        """Return a child of this agent. It inherits from this agent's memory, and has the same pool and tools and a
        share of the budget."""
        memory = None if self.memory is None else MemoryManager(account.node_id, parent=self.memory)
        return type(self)(
            self._model,
            memory=memory,
            owns_memory=True,
            node_id=account.node_id,
            system_prompt=self._system if system_prompt is None else system_prompt,
            shared_pool=self.shared_pool,
            tools=self._tools,
            memory_tools=self._memory_tools,
            meta_tools=self._meta and account.budget.max_depth > 0,
            budget=account,
            prompt_budget=self._prompt_budget,
            max_tokens=self._max_tokens,
            max_steps=self._max_steps,
            tool_timeout_s=self._tool_timeout_s,
            event_bus=self.event_bus,
            conversation=CompactConversation(self._counter) if memory is None else RememberedConversation(memory),
        )

    def _check_room(self) -> None:
        """Refuse tools that leave no room for a prompt. Called when the agent is made."""
        account = BudgetTracker(RecursiveBudget())
        run = _Run(Task(), "", account, {}, 0, lambda _: None, False)
        size = _size_of(self._tools_for(run), self._counter.safe_count)
        if self._prompt_budget - size < _LEAST_PROMPT:
            raise InvalidInput(
                f"the definitions of the tools take {size:,} of the {self._prompt_budget:,} tokens of a prompt; pass "
                f"prompt_budget={size + 4 * _LEAST_PROMPT:,} or more, or fewer tools"
            )


def _open_memory(
    given: MemoryManager | str | Path | None,
    node_id: str | None,
    pool: SharedMemoryPool | None,
    minimal: bool,
) -> tuple[MemoryManager | None, bool]:
    """Return the memory of an agent, and whether the agent must close it."""
    if minimal:
        if given is not None:
            raise InvalidInput("minimal_mode has no memory except its compact one; leave memory out")
        return None, False
    if isinstance(given, MemoryManager):
        if node_id is not None and node_id != given.node_id:
            raise InvalidInput(f"the memory is that of node {given.node_id!r}; leave node_id out")
        if pool is not None and pool is not given.shared_pool:
            raise InvalidInput("give the shared_pool to the memory: loom.open(..., shared_pool=pool)")
        return given, False
    if given is not None and not isinstance(given, str | Path):
        raise InvalidInput(f"memory must be a memory or the path of one, not {type(given).__name__}")
    name = node_id or ("agent" if given is not None else f"agent-{new_id().lower()}")
    return Memory(name, store=given, shared_pool=pool), True


def _chosen(memory_tools: bool | str | Iterable[str]) -> tuple[str, ...]:
    if memory_tools is True:
        return _EVERYDAY_TOOLS
    if memory_tools is False:
        return ()
    if memory_tools == "all":
        return ALL_TOOLS
    names = () if isinstance(memory_tools, str) else tuple(memory_tools)
    unknown = set(names) - set(ALL_TOOLS)
    if not names or unknown:
        raise InvalidInput(
            f"memory_tools must be True, False, 'all' or a list of {', '.join(ALL_TOOLS)}, not {memory_tools!r}"
        )
    return names


def _as_budget(given: RecursiveBudget | BudgetTracker | int | None) -> RecursiveBudget | BudgetTracker:
    if given is None:
        return RecursiveBudget()
    if isinstance(given, RecursiveBudget | BudgetTracker):
        return given
    return RecursiveBudget(token_budget=checked_whole(given, "budget", 1))


def _answer_id(question: Task) -> str:
    return f"{question.task_id}:answer"


def _session_note(question: Task, result: AgentResult) -> SessionNote:
    """Return a run as a session for the notebook."""
    asked = question_of(question)
    answered = (_answer_id(question),) if result.ok else ()
    return SessionNote(
        asked,
        str(result),
        "-".join(asked.split()[:6]),
        result.seconds,
        result.model_calls,
        result.tools,
        (question.task_id, *answered),
        result.ok,
    )


def _words_of(answer: Answer) -> str:
    return "\n".join([answer.text, *(f"{call.name} {call.arguments}" for call in answer.calls)])


def _size_of(tools: Mapping[str, Tool], count: Callable[[str], int]) -> int:
    if not tools:
        return 0
    return count(json.dumps([tool.definition for tool in tools.values()], ensure_ascii=False))
