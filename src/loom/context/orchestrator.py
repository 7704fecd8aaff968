"""`ContextOrchestrator` builds the messages of a prompt from a question and sources, within a hard budget.

The steps are separate functions of this package: plan the budget, ask the sources, de-duplicate, fit, render. The
orchestrator holds no memory. With a `LayoutStore`, it continues the layout of a session's last prompt, so that the
next prompt begins with the same tokens.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from loom.checks import checked_instance, checked_list, checked_number, checked_object, if_given
from loom.context.allocation import (
    FOCUS_LOWER_BOUND,
    BudgetAllocation,
    BudgetConfig,
    ContextBudgeter,
    check_focus_hard_limit,
    model_preset,
    reallocate_focus_space,
)
from loom.context.fitting import (
    BEHIND,
    LEFT_OUT_BEFORE,
    LEFT_OUT_TURNS,
    NO_ROOM,
    OFFERED_ALREADY,
    SHOWN_ONCE,
    Exchange,
    Offer,
    Selection,
    TokenCosts,
    dedupe,
    exchanges_of,
    fit,
    fits_whole,
    left_out_turns,
    spoken_of,
    spoken_tokens,
)
from loom.context.items import Candidate, ContextItem, DroppedItem, Message, Place, SourceReport
from loom.context.layout import Block, Layout, LayoutStore
from loom.context.parts import ConversationPart, CutMark, Part, Prompt, QuotationPart, conversation_parts, part_of
from loom.context.rendering import READING_RULE, is_question, neutralised, question_of, to_anthropic
from loom.context.source_queries import SourceAnswer, SourceQuery
from loom.context.sources import LEAST_ITEM_TOKENS, ContextSource, SharedPool, SharedPoolSource, as_source
from loom.context.truncation import SmartTruncator, TruncationStrategy
from loom.errors import InvalidInput, LoomError, OverBudget, StoreError
from loom.protocol import Task, as_plain, from_plain
from loom.storage.contract import Record
from loom.text.duplicates import normal_form
from loom.text.tokens import TokenCounter, counter_by_name, default_counter
from loom.types import MemoryType

__all__ = ["Context", "ContextOrchestrator", "PrefixPolicy"]

log = logging.getLogger("loom.context")

# The reason why a policy that saves tokens leaves a memory out although there is room.
_ADDS_TOO_LITTLE = "adds too little to the session's prompt"
# A memory of this many tokens counts as long.
_LONG_TOKENS = 256
# The share of derived facts in a continued prompt, and the least room for them in a small prompt.
_FACTS_SHARE = 0.02
_FACTS_TOKENS = 96
# The least room for the user's standing instructions in a session's prompt.
_WISHES_TOKENS = 128
# The size of a few exchanges, and the fewest that stay when a prompt is cut.
_FEW_EXCHANGES = 1_600
_FEWEST_EXCHANGES = 4
# The share of the best recalled memories before the conversation takes the rest, and their least room in a small
# prompt.
_RECALLED_FIRST = 0.06
_FEW_RECALLED = 256
# The largest share of quotations in a first prompt that cannot contain the whole conversation.
_QUOTED_OF_A_CUT = 0.75
# A prompt is rewritten for newly recalled memories if its quotations take at least this part of their share.
_WORTH_A_REWRITE = 0.5
# A memory that would take more than the room divided by this is shown once by its best passages.
_LARGEST_PART = 4
# Every fourth full prompt is rewritten instead of cut, because the subject of a session changes.
_REWRITE_EVERY = 4


@dataclass(frozen=True, slots=True)
class PrefixPolicy:
    """The rules by which a session's prompts keep their prefix, so that a provider's prompt cache can serve it. The
    values are shares of the budget.

    The best newly recalled memories, up to `append`, stay in the session's prompts. More of them, up to `shown_once`,
    are placed directly before the question and are gone in the next prompt. A token that stays is paid for when it is
    added and again with each rewrite; a token that is shown once is paid for once. A hit is left out if it scores
    less than `min_score` of the best one. A long memory needs up to `long_penalty` more, because it takes the room of
    several. If the turn asks nothing, only the part `unasked` of these memories is shown.

    The remaining room is filled for this prompt only, with everything else that was offered: turns that have no place
    in the conversation, and memories of any score. A policy that saves tokens has a `fill_score` above 0: the
    remaining room then takes only recalled memories that score this share of the best one, and none if the turn asks
    nothing.

    A full prompt is cut first. The quotations at its beginning stay in place if they take at least `core`, later
    quotations follow them, and the newest turns follow up to `low`, at least the share `conversation`. If that leaves
    more than `high`, and every fourth time, the prompt is rewritten and filled up to `low`. The rest stays free for
    later turns; with `low=1` nothing stays free. docs/context.md has the measurements.
    """

    append: float = 0.003
    shown_once: float = 0.24
    min_score: float = 0.45
    fill_score: float = 0.0
    long_penalty: float = 0.10
    unasked: float = 0.05
    core: float = 0.30
    conversation: float = 0.10
    low: float = 0.60
    high: float = 0.72

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidInput(f"{name} must be a share from 0 to 1, not {getattr(self, name)!r}")

    def conversation_tokens(self, limit: int) -> int:
        """The tokens of the conversation that a cut keeps: its share, or at least a few exchanges in a small
        prompt."""
        return int(max(limit * self.conversation, min(_FEW_EXCHANGES, 1.5 * limit * self.conversation)))

    def recalled_first(self, limit: int) -> int:
        """The most tokens of the best recalled memories before the conversation takes the rest; a larger share in a
        small prompt."""
        return int(max(limit * _RECALLED_FIRST, min(_FEW_RECALLED, limit * self.shown_once)))

    def accepts(self, candidate: Candidate, best: float) -> bool:
        """Whether a hit is worth its tokens, compared with the best one's score."""
        return self._reaches(candidate, self.min_score * best, best)

    def _reaches(self, candidate: Candidate, least: float, best: float) -> bool:
        """Whether a hit scores at least this share of the best score; a long hit needs a higher score."""
        return candidate.score >= least + self.long_penalty * min(1.0, candidate.tokens / _LONG_TOKENS) * best

    def fills(self, candidate: Candidate, best: float, asks: bool) -> bool:
        """Whether a candidate may be quoted in room that would otherwise be free: any with a `fill_score` of 0.
        Otherwise a turn of the conversation may, and a recalled memory if the turn `asks` and it scores enough."""
        if self.fill_score == 0.0 or candidate.place is not Place.QUOTE or _is_derived_fact(candidate):
            return True
        return asks and _is_recalled(candidate) and self._reaches(candidate, self.fill_score * best, best)


class _Context(NamedTuple):
    """The fields of a context, for `to_dict`."""

    messages: tuple[Message, ...]
    items: tuple[ContextItem, ...]
    dropped: tuple[DroppedItem, ...]
    tokens: int
    budget: int
    sources: tuple[SourceReport, ...] = ()
    notes: tuple[str, ...] = ()
    prefix: int = 0
    breakpoints: tuple[int, ...] = ()


class Context(list[Message]):
    """A built prompt: the list of its messages, with the items in it, the items left out, and its tokens.

    `tokens` is the exact size of all messages with their framing (an upper bound if the counter estimates). It never
    exceeds `budget`. `items` are in the order of the prompt. `prefix` is the number of messages shared with the
    session's previous prompt.
    """

    def __init__(
        self,
        messages: Iterable[Message],
        *,
        items: Sequence[ContextItem],
        dropped: Sequence[DroppedItem],
        tokens: int,
        budget: int,
        sources: Sequence[SourceReport] = (),
        notes: Sequence[str] = (),
        prefix: int = 0,
        breakpoints: Sequence[int] = (),
    ) -> None:
        super().__init__(messages)
        self.items = tuple(items)
        self.dropped = tuple(dropped)
        self.tokens = tokens
        self.budget = budget
        self.sources = tuple(sources)
        self.notes = tuple(notes)
        self.prefix = prefix
        self.breakpoints = tuple(breakpoints)

    def to_dict(self) -> dict[str, Any]:
        """This context as JSON values; `from_dict` makes an equal context from them."""
        return as_plain(_Context(tuple(self), **vars(self)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Context:
        """Make the context from the values of `to_dict`."""
        return cls(**from_plain(_Context, data)._asdict())

    @property
    def messages(self) -> list[Message]:
        """The messages, in OpenAI's form."""
        return list(self)

    def to_openai(self) -> list[Message]:
        """The messages for OpenAI's chat API and compatible ones."""
        return [dict(message) for message in self]

    def to_anthropic(self) -> dict[str, Any]:
        """`system` and `messages` for Anthropic's API, with cache breakpoints."""
        return to_anthropic(self, self.breakpoints)

    def explain(self) -> str:
        """A table of the use of the budget, the items in the prompt with their reasons, and the items left out.

        Second offers of the same memory are counted but not listed; `dropped` has them.
        """
        there = {item.id for item in self.items}
        left: dict[str, DroppedItem] = {}
        for one in self.dropped:
            if one.id not in there and (one.id not in left or left[one.id].reason == OFFERED_ALREADY):
                left[one.id] = one
        out = list(left.values())
        again = len(self.dropped) - len(out)
        short = sum(item.shortened for item in self.items)
        whole = f"{self.tokens:,} of {self.budget:,} tokens; items in: {len(self.items)}, left out: {len(out)}"
        lines = [
            f"{whole}, shortened: {short}" if short else whole,
            "",
            f"{'source':<12}{'share':>8}{'tokens':>8}{'used':>6}{'offered':>9}  error",
        ]
        lines += [
            f"{one.name:<12}{one.share:>8,}{one.tokens:>8,}{one.used:>6}{one.offered:>9}  {one.error}".rstrip()
            for one in self.sources
        ]
        fixed = self.tokens - sum(item.tokens for item in self.items)
        lines.append(f"{'fixed':<12}{'':>8}{fixed:>8,}  system, question, framing")
        heading = f"{'tokens':>6}  {'score':>5}  {'tier':<4}  {'source':<10}  {'text':<{_SHOWN}}  {'id':<26}  reason"
        lines += ["", heading]
        lines += [_row(item) for item in self.items]
        if out:
            lines += ["", "left out", heading, *(_row(item) for item in out)]
        if again:
            lines += ["", f"offered again by other sources: {again}"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


# The width of the text column.
_SHOWN = 36


def _row(item: ContextItem | DroppedItem) -> str:
    start = f"{item.tokens:>6,}  {item.score:>5.2f}  {item.tier or '':<4}  {item.source:<10}"
    return f"{start}  {_in_columns(item.text, _SHOWN)}  {item.id:<26}  {item.reason}"


def _in_columns(text: str, columns: int) -> str:
    """The beginning of a text in this many terminal columns. A Chinese character takes two."""
    line = " ".join(neutralised(text[: 4 * columns]).split())
    widths = [2 if east_asian_width(one) in "WF" else 1 for one in line]
    if sum(widths) <= columns and len(text) <= 4 * columns:
        return line + " " * (columns - sum(widths))
    taken = count = 0
    while count < len(line) and taken + widths[count] < columns:
        taken += widths[count]
        count += 1
    return f"{line[:count]}…" + " " * (columns - taken - 1)


@dataclass(frozen=True, slots=True)
class _Request:
    """One build: the question, its task and system message, and its budget.

    `layout` is that of the session's last prompt. `steps` are the budgets for which the sources are asked: that of
    the last prompt, and its doubles up to one that is large enough. The same first hits may be in another order for a
    larger budget. `is_new` says that there is no last prompt, or that the question does not fit into its budget.
    """

    task: Task
    question: str
    system: Message
    allocation: BudgetAllocation
    session_id: str | None
    costs: TokenCosts
    layout: Layout
    steps: tuple[BudgetAllocation, ...]

    @property
    def limit(self) -> int:
        return self.allocation.limit

    @property
    def is_new(self) -> bool:
        return not self.layout.generation or 0 < self.layout.budget < self.allocation.fixed


@dataclass(frozen=True, slots=True)
class _Plan:
    """The parameters of filling a new prompt: see `fit`. With `is_passing`, quotations are shown once."""

    is_conversation: bool = True
    talk: Sequence[Exchange] | None = None
    is_whole: bool | None = None
    quotes_room: int | None = None
    growing: int = 0
    is_passing: bool = False


class ContextOrchestrator:
    """Builds prompts from sources. Thread-safe if its sources are.

    `model_context_window` is the model's window. The reserves of `config` for tools and the answer are subtracted,
    unless a build names a `budget`, which is for the messages alone. Sources that are listed first are the first to
    use room that others leave. `system` is the text of the system message; the rule for reading quotations follows
    it. A `shared_pool` becomes a source, and so does the pool that the manager of a source holds. With `layouts`, the
    prompts of a session continue each other.
    """

    def __init__(
        self,
        token_counter: TokenCounter | None = None,
        sources: Iterable[object] = (),
        model_context_window: int = 128_000,
        *,
        config: BudgetConfig | None = None,
        system: str | None = None,
        shared_pool: SharedPool | None = None,
        source_timeout_s: float = 2.0,
        layouts: LayoutStore | None = None,
        prefix_policy: PrefixPolicy | None = None,
    ) -> None:
        if_given(checked_object, token_counter, "token_counter", "count", "safe_count_messages")
        if_given(checked_instance, config, BudgetConfig, "config")
        if_given(checked_instance, prefix_policy, PrefixPolicy, "prefix_policy")
        if_given(checked_object, layouts, "layouts", "load", "rewrite")
        self._counter = default_counter() if token_counter is None else token_counter
        self._sources: list[ContextSource] = []
        if shared_pool is not None:
            self._show_pool(shared_pool)
        for source in checked_list(sources, "sources"):
            self.add_source(source)
        self._sources.sort(key=lambda source: isinstance(source, SharedPoolSource))
        self._budgeter = ContextBudgeter(self._counter, model_context_window, config)
        self._system = system
        self._timeout_s = checked_number(source_timeout_s, "source_timeout_s", 0)
        self._layouts = layouts
        self._policy = prefix_policy or PrefixPolicy()

    @classmethod
    def for_model(cls, model: str, sources: Iterable[object] = (), **given: Any) -> ContextOrchestrator:
        """An orchestrator with the window, the reserve and the counter of a well-known model."""
        preset = model_preset(model)
        given.setdefault("config", BudgetConfig(output_reserve=min(preset.max_output, preset.context_window // 4)))
        given.setdefault("token_counter", counter_by_name(preset.counter))
        return cls(sources=sources, model_context_window=preset.context_window, **given)

    @property
    def sources(self) -> tuple[ContextSource, ...]:
        return tuple(self._sources)

    @property
    def limit(self) -> int:
        """The most tokens of a prompt if a build names no budget."""
        return self._budgeter.limit

    def add_source(self, source: object) -> None:
        """Add a source after the others. A callable of a task and a number of items is a source too.

        A source over a manager also adds the pool that the manager holds.
        """
        added = as_source(source)
        self._sources.append(added)
        if (pool := getattr(added, "shared_pool", None)) is not None:
            self._show_pool(pool)

    def _show_pool(self, pool: SharedPool) -> None:
        """Add a pool as a source, once."""
        if isinstance(pool, type) or not callable(getattr(pool, "list_entries", None)):
            raise InvalidInput(
                f"a shared pool is a SharedMemoryPool, or has its list_entries(prefix, limit); "
                f"{type(pool).__name__} has none"
            )
        if not any(isinstance(one, SharedPoolSource) and one.pool is pool for one in self._sources):
            self._sources.append(SharedPoolSource(pool))

    # -- building ----------------------------------------------------------------------------------------

    async def build_context(
        self,
        current_task: Task | str | None = None,
        *,
        query: str | Task | None = None,
        system: str | None = None,
        session_id: str | None = None,
        budget: int | None = None,
    ) -> Context:
        """The prompt for a question or a task, without blocking the event loop. See `build`."""
        import asyncio

        request = self._request(current_task, query, system, session_id, budget)
        asked = self._ask(request, on_loop=True)
        await asked.run_coroutines()
        return await asyncio.to_thread(self._assemble, request, asked)

    def build(
        self,
        current_task: Task | str | None = None,
        *,
        query: str | Task | None = None,
        system: str | None = None,
        session_id: str | None = None,
        budget: int | None = None,
    ) -> Context:
        """The prompt for a question or a task: a text, or a `Task`, which also names the session.

        Raises `OverBudget` if the system message and the question alone exceed the budget. A source that fails or is
        late is named in the result and loses only its own part.
        """
        request = self._request(current_task, query, system, session_id, budget)
        return self._assemble(request, self._ask(request))

    def fit_to_token_limit(
        self,
        messages: Sequence[Mapping[str, Any]],
        limit: int | None = None,
        strategy: TruncationStrategy | str | None = None,
    ) -> list[Mapping[str, Any]]:
        """Shorten messages to at most this many tokens; by default, to the limit of a prompt.

        The default strategy depends on the space that the system messages leave: see `reallocate_focus_space`.
        """
        given = checked_list(messages, "the messages of fit_to_token_limit()")
        most = self.limit if limit is None else limit
        chosen = self._strategy(given, most) if strategy is None else strategy
        return SmartTruncator(self._counter).truncate(given, most, chosen).messages

    def _strategy(self, messages: Sequence[Message], limit: int) -> TruncationStrategy:
        """The strategy for a conversation beside these system messages."""
        system = [one for one in messages if isinstance(one, Mapping) and one.get("role") in ("system", "developer")]
        taken = sum(self._counter.safe_count_each(system))
        if not isinstance(limit, int) or limit < FOCUS_LOWER_BOUND or not check_focus_hard_limit(0, taken, limit):
            return TruncationStrategy.TAIL_CUTOFF
        return reallocate_focus_space(limit, taken, 0).truncation_strategy

    def _request(
        self,
        current_task: Task | str | None,
        query: str | Task | None,
        system: str | None,
        session_id: str | None,
        budget: int | None,
    ) -> _Request:
        given = current_task if query is None else query
        if given is None or (query is not None and current_task is not None):
            raise InvalidInput("a prompt is built for a query or a current_task: give one of them")
        if not isinstance(given, str | Task):
            raise InvalidInput(f"a query must be a text or a Task, not {type(given).__name__}")
        for name, text in (("session_id", session_id), ("system", system), ("system", self._system)):
            if text is not None and not isinstance(text, str):
                raise InvalidInput(f"{name} must be a text, not {type(text).__name__}")
            if text and not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise InvalidInput(f"{name} holds a lone surrogate, which cannot be stored or sent; replace it first")
        question = given if isinstance(given, str) else question_of(given)
        if not question.strip():
            raise InvalidInput("the question is empty; a prompt ends with something to answer")
        if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
            raise InvalidInput(f"a budget must be a whole number of tokens, 1 or more, not {budget!r}")
        session = session_id or (None if isinstance(given, str) else given.session_id)
        task = (
            Task(action="context.query", parameters={"content": question}, session_id=session)
            if isinstance(given, str)
            else replace(given, session_id=session)
        )
        told = self._system if system is None else system
        message = {"role": "system", "content": f"{told.rstrip()}\n\n{READING_RULE}" if told else READING_RULE}
        count = self._counter.safe_count_messages
        fixed = count([message, {"role": "user", "content": question}])
        allocation = self._budgeter.allocate(fixed, budget, system=count([message]))
        layout = Layout() if self._layouts is None or session is None else self._layouts.load(session)
        request = _Request(
            task, question, message, allocation, session, TokenCosts(self._counter), layout, (allocation,)
        )
        if request.is_new or layout.budget in (0, allocation.limit):  # a layout of an older version has no budget
            return request
        budgets = [layout.budget]
        while budgets[-1] < allocation.limit:
            budgets.append(2 * budgets[-1])
        system_tokens = count([message])
        return replace(
            request, steps=tuple(self._budgeter.allocate(fixed, one, system=system_tokens) for one in budgets)
        )

    def _ask(self, request: _Request, *, on_loop: bool = False) -> SourceQuery:
        return SourceQuery(self._sources, request.task, request.steps[-1].room, self._timeout_s, on_loop=on_loop)

    # -- assembling --------------------------------------------------------------------------------------

    def _assemble(self, request: _Request, asked: SourceQuery) -> Context:
        asked.wait()
        with self._snapshot():
            answers = asked.ask_local()
            local = [source for source in self._sources if source.local]
            before = [
                SourceQuery(local, request.task, step.room, self._timeout_s).ask_local()
                for step in request.steps[:-1]
            ]
            return self._assembled(request, answers, before)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """A block in which the local sources read one snapshot of each memory."""
        memories = {id(one.memory): one.memory for one in self._sources if one.local and one.memory is not None}
        with ExitStack() as scopes:
            for memory in memories.values():
                try:
                    scopes.enter_context(memory.store.reading())
                except StoreError as error:  # each source that needs it reports the error
                    log.warning("a memory cannot be read as of one moment (%s)", type(error).__name__)
            yield

    def _assembled(
        self, request: _Request, answers: Sequence[SourceAnswer], before: Sequence[Sequence[SourceAnswer]]
    ) -> Context:
        """The prompt from the answers of the sources. `before` has those of the local sources for all steps but the
        last."""
        kept, doubles = dedupe(_offers(answers), request.question)
        if self._layouts is not None and request.session_id is not None:
            steps = []
            for own in before:
                local = {id(answer.source): answer for answer in own}
                offers = _offers([local.get(id(answer.source), answer) for answer in answers])
                steps.append(dedupe(offers, request.question)[0])
            prompt = self._continued(request, [*steps, kept], self._layouts, request.session_id)
        else:
            prompt = self._built(request, kept, _Plan(is_conversation=request.session_id is not None))
        context = self._context(request, prompt, answers, doubles)
        self._count_uses(answers, context)
        return context

    def _built(self, request: _Request, offers: Sequence[Offer], plan: _Plan) -> Prompt:
        """Build a new prompt."""
        allocation = request.allocation
        selection = fit(
            offers,
            self._budgeter.config.ratios,
            allocation.room,
            request.costs,
            request.question,
            talk=plan.talk,
            is_conversation=plan.is_conversation,
            is_whole=plan.is_whole,
            quotes_room=plan.quotes_room,
            growing=plan.growing,
        )
        # The next prompt of a session may have the whole memory instead of an excerpt, or the source of a fact.
        passing = [
            one
            for one in selection.quotes
            if one.is_passing
            or (request.session_id and (plan.is_passing or one.is_abridged or _is_derived_fact(one)))
        ]
        others = {id(one) for one in passing}
        lasting = [one for one in selection.quotes if id(one) not in others]
        new: list[Part] = [QuotationPart(lasting, request.costs)] if lasting else []
        new += [CutMark(request.costs, request.allocation.limit)] if selection.is_cut else []
        new += conversation_parts(selection.exchanges, request.costs)
        new += [QuotationPart(passing, request.costs, lasting=False)] if passing else []
        prompt = Prompt([], new, selection)
        # Joined parts may take a token more than the sum of the parts.
        while self._tokens(request, prompt) > allocation.limit and prompt.drop_one():
            pass
        return prompt

    def _tokens(self, request: _Request, prompt: Prompt) -> int:
        """The exact size of a prompt. Sizes of messages add up."""
        return request.allocation.fixed + request.costs.messages(prompt.opening) + prompt.tokens

    def _context(
        self, request: _Request, prompt: Prompt, answers: Sequence[SourceAnswer], doubles: Sequence[DroppedItem]
    ) -> Context:
        tokens = self._tokens(request, prompt)
        if not check_focus_hard_limit(0, tokens, request.allocation.limit):
            raise OverBudget(
                f"the prompt takes {tokens:,} tokens and the budget is {request.allocation.limit:,}; "
                f"give at least {tokens:,}"
            )
        before = [request.system, *prompt.opening]
        kept = [message for part in prompt.kept for message in part.messages]
        new = [message for part in prompt.new for message in part.messages]
        lasting = sum(len(part.messages) for part in prompt.new if part.lasting)
        items = prompt.items()
        continued = len(before) + len(kept) if prompt.kept else 0
        return Context(
            [*before, *kept, *new, {"role": "user", "content": request.question}],
            items=items,
            dropped=[*doubles, *prompt.selection.dropped],
            tokens=tokens,
            budget=request.allocation.limit,
            sources=_reports(request, answers, items),
            notes=[
                *prompt.notes,
                *_room_notes(prompt),
                *(f"the source {one.source.name} is missing: {one.error}" for one in answers if one.error),
            ],
            prefix=continued,
            # The cache breakpoints: after the rules, after the previous prompt, and after the lasting part.
            breakpoints=sorted({0, max(0, continued - 1), len(before) + len(kept) + lasting - 1}),
        )

    @staticmethod
    def _count_uses(answers: Sequence[SourceAnswer], context: Context) -> None:
        """Tell the sources which of their records are in the prompt, with one call for each memory."""
        used: dict[object, tuple[ContextSource, list[int]]] = {}
        for source in (answer.source for answer in answers):
            own = source if source.memory is None else (id(source.memory), type(source).mark_used)
            mine = [item.seq for item in context.items if item.source == source.name and item.seq]
            used.setdefault(own, (source, []))[1].extend(mine)
        for source, records in used.values():
            try:
                if records:
                    source.mark_used(records)
            except LoomError as error:  # the prompt is correct without it
                log.warning("uses by the source %s were not recorded (%s)", source.name, type(error).__name__)

    # -- continuing a session ----------------------------------------------------------------------------

    def _continued(
        self, request: _Request, offers: Sequence[Sequence[Offer]], layouts: LayoutStore, session_id: str
    ) -> Prompt:
        """The prompt after the session's last one, from the offers for each of the request's steps.

        Its items are chosen for the budget of the last prompt. A larger budget adds to them, step by step, and a
        smaller one takes away from them. So at any moment of a session, a larger budget holds what a smaller one
        holds.
        """
        layout, limit = request.layout, request.limit
        begins: Sequence[Block] | None = ()
        if request.is_new:
            prompt = self._begun(request, offers[0], spoken_of(offers[0], request.costs))
        else:
            usual = replace(request, allocation=request.steps[0])
            prompt, begins = self._next(usual, offers[0], layouts)
            chosen = self._filling(request, offers[0])
            if self._tokens(request, prompt) > limit:
                prompt, begins = self._begun(request, *_only(prompt, offers[0])), ()
            elif limit < usual.limit:
                self._fill(request, chosen, prompt)
            else:
                self._fill(usual, chosen, prompt, to_the_end=True)
            for step, offered in zip(request.steps[1:], offers[1:], strict=True):
                larger = replace(request, allocation=min(step, request.allocation, key=lambda one: one.limit))
                if self._grow(larger, self._filling(request, offered), prompt):
                    begins = ()
        if begins is None:
            is_kept = layouts.append(session_id, layout, prompt.layout(), limit)
        else:
            is_kept = layouts.rewrite(session_id, layout, (*begins, *prompt.layout()), limit)
        if not is_kept:
            prompt.notes.append(
                "not stored as the session's last prompt: the store is read-only or busy, or another was first"
            )
        return prompt

    def _next(
        self, request: _Request, offers: Sequence[Offer], layouts: LayoutStore
    ) -> tuple[Prompt, Sequence[Block] | None]:
        """Append the new parts to the session's last prompt, or rewrite it if they no longer fit.

        Returns the prompt, with its free room, and the blocks of the layout at its beginning; None if all of them
        are.
        """
        layout = request.layout
        prompt = self._appended(request, offers, layouts, layout) if layout.blocks else None
        if prompt is not None:
            return prompt, None
        talk = spoken_of(offers, request.costs)
        wanted = self._wanted(request, offers, layout) + self._wished(request, offers)
        is_whole = fits_whole(talk, request.allocation.room - wanted, request.costs)
        if layout.generation % _REWRITE_EVERY and not is_whole:
            prompt = self._cut(request, offers, layouts, layout, talk)
        if prompt is not None:
            return prompt, layout.leading
        offers, _ = dedupe(self._with_earlier(offers, layouts, layout))
        return self._built(request, offers, self._plan(request, talk, is_whole)), ()

    def _begun(self, request: _Request, offers: Sequence[Offer], talk: Sequence[Exchange]) -> Prompt:
        """A prompt that begins a session's prompts, filled completely.

        The conversation is whole if it fits beside the best memories of other sessions. Otherwise these have up to
        half of the room, and recalled turns of this session up to three quarters together with them. The newest
        exchanges have the rest. Further memories of other sessions are not quoted then, so a larger budget loses
        nothing when the conversation becomes whole.
        """
        costs, weights = request.costs, self._budgeter.config.ratios
        fixed = request.allocation.fixed
        spoken = {turn.id for exchange in talk for turn in exchange.turns}
        needed = self._budgeter.allocate(fixed, fixed + max(1, spoken_tokens(talk, costs)))
        most = self._policy.recalled_first(needed.limit) + self._wished(replace(request, allocation=needed), offers)
        others = _beside(offers, spoken, request.session_id)
        best = fit(others, weights, most if talk else 0, costs, request.question, talk=())
        prompt = _prompt_of([], talk, best.quotes, replace(best, dropped=[]), costs)
        if self._tokens(request, prompt) <= request.limit:
            self._fill(request, offers, prompt)
        else:
            quotes = _beside(offers)
            of_talk = [
                replace(
                    offer,
                    candidates=tuple(one for one in offer.candidates if _repeats(one, spoken, request.session_id)),
                )
                for offer in quotes
            ]
            earlier = fit(of_talk, weights, int(needed.limit * _QUOTED_OF_A_CUT), costs, request.question, talk=())
            selection, silent = self._divided(
                request, talk, (_named(others, best), best), (_named(of_talk, earlier), earlier)
            )
            selection.leave_out((one for offer in quotes for one in offer.candidates), BEHIND)
            selection.dropped += left_out_turns(silent, 0, selection.present)
            prompt = _prompt_of([], selection.exchanges, selection.quotes, selection, costs)
            if silent:
                prompt.new.insert(0, CutMark(costs, request.limit))
            # Joined parts may take a token more than the sum of the parts.
            while self._tokens(request, prompt) > request.limit and prompt.drop_one():
                pass
        self._settle(request, prompt)
        return prompt

    def _divided(
        self,
        request: _Request,
        talk: Sequence[Exchange],
        others: tuple[Sequence[Offer], Selection],
        earlier: tuple[Sequence[Offer], Selection],
    ) -> tuple[Selection, deque[Exchange]]:
        """The newest exchange, then quotations in up to `_QUOTED_OF_A_CUT` of the room, then older exchanges; and the
        exchanges that are left out, the newest first.

        Quotations of other memories have their room before the newest exchange has all that it needs, those of the
        conversation's own turns after it.
        """
        costs = request.costs
        room = max(0, request.allocation.room - costs.cut_off)
        aside = min(sum(others[1].tokens.values()), room // 2)
        chosen = [others]
        if talk and talk[-1].tokens <= room - aside:
            chosen.append(earlier)
            needed = sum(sum(one.tokens.values()) for _, one in chosen)
            aside = max(aside, min(needed, int((room - talk[-1].tokens) * _QUOTED_OF_A_CUT)))
        while True:
            selection = Selection(costs, room - aside, normal_form(request.question))
            silent = deque(reversed(talk))
            while silent and selection.add_exchange(silent[0], selection.room):
                silent.popleft()
            if silent and selection.speak_part(silent[0]):
                silent.popleft()
            selection.exchanges.reverse()
            selection.room = aside
            for offers, _ in chosen:
                fit(offers, self._budgeter.config.ratios, aside, costs, request.question, talk=(), state=selection)
            held = all(_holds(selection, one.quotes) for _, one in chosen)
            if not held or not selection.room:
                return selection, silent
            aside -= selection.room  # the conversation has the room that the quotations leave

    def _settle(self, request: _Request, prompt: Prompt) -> None:
        """Move the best quotations of a new prompt to its beginning, where they stay in the session's next prompts.

        Quotations in two messages may take more tokens than in one, because a day stands above them in both.
        """
        once = next((one for one in prompt.new if isinstance(one, QuotationPart) and not one.lasting), None)
        if once is None:
            return
        talk = [part for part in prompt.new if not isinstance(part, QuotationPart)]
        most = request.allocation.room
        if not any(isinstance(part, CutMark) for part in talk):
            left = int(most * self._policy.low) - sum(part.tokens for part in talk)
            most = 0 if left < int(request.limit * self._policy.shown_once) else left
        stays: list[Candidate] = []
        for one in prompt.selection.quotes:
            if not one.seq or one.is_passing or one.is_abridged or _is_derived_fact(one) or one.reason == SHOWN_ONCE:
                continue
            most -= prompt.selection.tokens[one.id, one.place]
            if most < 0:
                break
            stays.append(one)
        chosen = {id(one) for one in stays}
        divided = {one.created_at.date() for one in once.candidates if id(one) not in chosen and one.created_at}
        for group in (stays, [one for one in stays if one.created_at and one.created_at.date() not in divided]):
            here = {id(one) for one in group}
            rest = [one for one in once.candidates if id(one) not in here]
            new = [
                *([QuotationPart(group, request.costs)] if group else []),
                *talk,
                *([QuotationPart(rest, request.costs, lasting=False)] if rest else []),
            ]
            if self._tokens(request, replace(prompt, new=new)) <= request.limit:
                prompt.new = new
                return

    def _grow(self, request: _Request, offers: Sequence[Offer], prompt: Prompt) -> bool:
        """Add to a prompt what a larger budget has room for. Returns whether it was rewritten.

        If the conversation was cut, it is whole again as soon as it fits beside all that the prompt would have
        otherwise: its quotations, and the best of the others.
        """
        costs = request.costs
        turns = {one.seq: one for offer in offers for one in offer.candidates if one.place is Place.TURN}
        talking = [part for part in (*prompt.kept, *prompt.new) if isinstance(part, ConversationPart)]
        turns |= {one.seq: one for part in talking for one in part.candidates}
        spoken = {one.id for one in turns.values()}
        if spoken <= {id for part in talking for id in part.whole_ids}:
            self._fill(request, offers, prompt)
            return False
        talk = exchanges_of(turns.values(), costs)
        most = int((request.allocation.fixed + spoken_tokens(talk, costs)) * self._policy.shown_once)
        present = {id for part in (*prompt.kept, *prompt.new) for id in part.whole_ids} | spoken
        state = Selection(costs, most, normal_form(request.question), present)
        others = fit(
            _beside(offers, spoken),
            self._budgeter.config.ratios,
            most,
            costs,
            request.question,
            state=state,
        )
        parts = [part for part in (*prompt.kept, *prompt.new) if isinstance(part, QuotationPart)]
        stays = [one for part in parts if part.lasting for one in part.candidates if one.id not in spoken]
        once = [one for part in parts if not part.lasting for one in part.candidates if not _repeats(one, spoken)]
        longer = _prompt_of(stays, talk, once, prompt.selection, costs)
        best = _of_sources(offers, others.quotes)
        if self._tokens(request, longer) <= request.limit:
            self._fill(request, best, longer)
            if _holds(longer.selection, others.quotes):
                self._fill(request, offers, longer)
                prompt.kept, prompt.new, prompt.selection = longer.kept, longer.new, longer.selection
                return True
        own = [
            replace(offer, candidates=tuple(one for one in offer.candidates if one.id in spoken)) for offer in offers
        ]
        self._fill(request, [*best, *own], prompt)
        return False

    def _filling(self, request: _Request, offers: Sequence[Offer]) -> list[Offer]:
        """The offers that may be quoted in room that would otherwise be free: all of them, unless the policy saves
        tokens."""
        best = max((one.score for one in _recalled(offers)), default=0.0)
        asks = is_question(request.question)
        return [
            replace(offer, candidates=tuple(one for one in offer.candidates if self._policy.fills(one, best, asks)))
            for offer in offers
        ]

    def _fill(
        self,
        request: _Request,
        offers: Sequence[Offer],
        prompt: Prompt,
        *,
        to_the_end: bool = False,
    ) -> None:
        """Fill the free room with quotations for this prompt only. The layout, and with it the beginning of the next
        prompt, is unchanged.

        Turns without a place in the conversation are quoted too, except calls of tools: a call and its results stay
        together in the conversation. For `to_the_end` see `fit`.
        """
        limit = request.limit
        room = limit - self._tokens(request, prompt)
        selection = prompt.selection
        once = next((one for one in prompt.new if isinstance(one, QuotationPart) and not one.lasting), None)
        before = [] if once is None else once.candidates
        present = {id for part in (*prompt.kept, *prompt.new) for id in part.whole_ids}
        present |= {one.id for one in before if one.is_passing}
        left = [
            replace(
                offer,
                candidates=tuple(
                    # A turn of the conversation is quoted if it has no place as a turn.
                    replace(one, place=Place.QUOTE, reason=SHOWN_ONCE) if one.place is Place.TURN else one
                    for one in offer.candidates
                    if one.id not in present and not _is_call(one)
                ),
            )
            for offer in offers
        ]
        others = [part for part in prompt.new if part is not once]
        quoted = _quoted((*prompt.kept, *others))
        while True:
            state = selection.beside(before, present, room)
            state.add_quoted(quoted)
            found = fit(
                left,
                self._budgeter.config.ratios,
                room,
                request.costs,
                request.question,
                to_the_end=to_the_end,
                state=state,
            )
            prompt.new = (
                [*others, QuotationPart(found.quotes, request.costs, lasting=False)] if found.quotes else others
            )
            over = self._tokens(request, prompt) - limit
            if over <= 0 or not room:
                break
            room = max(0, room - over)  # joined lines may take a token more than their sum
        earlier = {id(one) for one in before}
        selection.quotes = [one for one in selection.quotes if id(one) not in earlier] + found.quotes
        selection.tokens |= found.tokens
        taken = {one.id for one in found.quotes if not one.is_abridged}
        turns = {one.id for one in selection.dropped if one.reason in LEFT_OUT_TURNS}
        now = {one.id for one in found.dropped} - turns
        selection.dropped = [
            one
            for one in selection.dropped
            if one.id not in taken and one.id not in now and (one.id not in turns or one.reason in LEFT_OUT_TURNS)
        ]
        selection.dropped += [one for one in found.dropped if one.id in now]

    def _plan(self, request: _Request, talk: Sequence[Exchange], is_whole: bool) -> _Plan:
        """The plan of a rewrite: the conversation gets all the room it needs, and the rest is filled up to `low`.

        If the conversation alone is almost that large, recalled memories are shown once and do not stay. If it does
        not fit, it is cut so that it can grow again.
        """
        room = request.allocation.room
        low = int(room * self._policy.low)
        if not is_whole:
            return _Plan(talk=talk, is_whole=False, growing=max(0, room - low))
        left = low - spoken_tokens(talk, request.costs)
        aside = int(request.allocation.limit * self._policy.shown_once)
        passing = left < aside
        return _Plan(talk=talk, is_whole=True, quotes_room=aside if passing else left, is_passing=passing)

    def _wanted(self, request: _Request, offers: Sequence[Offer], layout: Layout) -> int:
        """The room that is reserved for the best recalled memories beside a whole conversation.

        After the conversation was cut under this budget, this is the maximum. Otherwise the conversation would be
        whole for a question that needs little and cut for the next question.
        """
        limit = request.allocation.limit
        most = self._policy.recalled_first(limit)
        if layout.cut_under >= limit:
            return most
        if not is_question(request.question):
            most = min(most, int(limit * self._policy.shown_once * self._policy.unasked))
        recalled = _recalled(offers)
        best = max((one.score for one in recalled), default=0.0)
        spoken = {one.id for offer in offers for one in offer.candidates if one.place is Place.TURN}
        tokens = 0
        for one in recalled:
            if tokens >= most:
                return most
            if one.id not in spoken and self._policy.accepts(one, best):
                tokens += request.costs.line(one)
        return tokens

    @staticmethod
    def _wished(request: _Request, offers: Sequence[Offer]) -> int:
        """The room that is reserved for the user's standing instructions, within their share."""
        costs, allocation = request.costs, request.allocation
        share = min(max(_WISHES_TOKENS, allocation.shares["instructions"]), allocation.limit // 4)
        wishes = [one for offer in offers for one in offer.candidates if one.place is Place.WISH]
        return min(share, costs.frame + costs.wishes + sum(map(costs.line, wishes))) if wishes else 0

    def _with_earlier(self, offers: Sequence[Offer], layouts: LayoutStore, layout: Layout) -> list[Offer]:
        """The offers for a rewrite: memories for this question, then memories for earlier questions, then everything
        else.

        Appended memories were the best hits for an earlier question, and subjects return. They help more than the
        hundredth hit for the current question.
        """
        numbers = [number for block in reversed(layout.quotes) for number in block.records]
        records = layouts.records(numbers)
        earlier = tuple(
            Candidate.of_record(records[number], **_NEEDED_BEFORE)
            for number in dict.fromkeys(numbers)
            if number in records and records[number].superseded_at is None
        )
        best = max((one.score for one in _recalled(offers)), default=0.0)

        def is_needed(offer: Offer, one: Candidate) -> bool:
            return offer.share != "l3_l4" or (_is_recalled(one) and self._policy.accepts(one, best))

        needed = [
            replace(offer, candidates=tuple(one for one in offer.candidates if is_needed(offer, one)))
            for offer in offers
        ]
        rest = [
            replace(offer, candidates=tuple(one for one in offer.candidates if not is_needed(offer, one)))
            for offer in offers
            if offer.share == "l3_l4"
        ]
        return [*needed, Offer("session", "l3_l4", earlier), *rest]

    def _appended(
        self, request: _Request, offers: Sequence[Offer], layouts: LayoutStore, layout: Layout
    ) -> Prompt | None:
        """The layout with the new parts appended, or None if it must be rewritten."""
        numbers = layout.records
        records = layouts.records(numbers)
        turns = [one for offer in offers for one in offer.candidates if one.place is Place.TURN]
        oldest = min((one.seq for one in turns), default=0)
        if len(records) < len(set(numbers)) or oldest > layout.last_turn > 0:
            return None  # a record was forgotten, or turns may be missing between the layout and the new ones
        if layout.is_cut and self._is_whole_now(request, offers, layout, turns):
            return None  # the current budget has room for the whole conversation
        present = {record.id for record in records.values()}
        new_turns = [one for one in turns if one.seq > layout.last_turn]
        if any(one.id in present for one in new_turns):
            return None  # a turn that did not fit was quoted: the conversation would have a gap
        talk = conversation_parts(exchanges_of(new_turns, request.costs), request.costs)
        prompt = Prompt(
            [part_of(block, records, request.costs) for block in layout.blocks], talk, Selection(request.costs, 0)
        )
        grown = self._grown(request, offers, prompt, _corrections(records, layouts))
        if grown is not None:  # turns that an earlier prompt cut stay out, and are named again
            there = present | grown.selection.present
            earlier = (one for one in turns if one.seq <= layout.last_turn and one.id not in there)
            grown.selection.dropped += [one.dropped(LEFT_OUT_BEFORE) for one in earlier]
        return grown

    def _is_whole_now(
        self, request: _Request, offers: Sequence[Offer], layout: Layout, turns: Sequence[Candidate]
    ) -> bool:
        """Whether the whole conversation fits. Usually the stored counts show that it does not."""
        room = request.allocation.room - self._wanted(request, offers, layout) - self._wished(request, offers)
        return sum(one.tokens for one in turns) <= room and fits_whole(
            spoken_of(offers, request.costs), room, request.costs
        )

    def _cut(
        self,
        request: _Request,
        offers: Sequence[Offer],
        layouts: LayoutStore,
        layout: Layout,
        talk: Sequence[Exchange],
    ) -> Prompt | None:
        """The quotations of the layout, the first ones unchanged, and the end of the conversation. None if the prompt
        would soon be full again, or would keep hardly any prefix."""
        rules, limit = self._policy, request.allocation.limit
        leading = [number for block in layout.leading for number in block.records]
        later = [number for block in layout.quotes for number in block.records if number not in set(leading)]
        records = layouts.records([*leading, *later])
        if len(records) < len({*leading, *later}):
            return None  # a record was forgotten
        kept = [part_of(block, records, request.costs) for block in layout.leading]
        gathered = [
            Candidate.of_record(records[number], **_NEEDED_BEFORE)
            for number in later
            if records[number].superseded_at is None
        ]
        new: list[Part] = [QuotationPart(gathered, request.costs)] if gathered else []
        quoted = self._tokens(request, Prompt(kept, new, Selection(request.costs, 0)))
        most = max(rules.conversation_tokens(limit), int(rules.low * limit) - quoted - request.costs.cut_off)
        spoken, silent = _newest(talk, most)
        new += [CutMark(request.costs, limit)] if silent else []
        prompt = Prompt(kept, [*new, *conversation_parts(spoken, request.costs)], Selection(request.costs, 0))
        present = {record.id for record in records.values()}
        if (
            (talk and not spoken)
            or any(turn.id in present for exchange in spoken for turn in exchange.turns)
            or sum(part.tokens for part in kept) < rules.core * limit
            or self._tokens(request, prompt) > rules.high * limit
        ):
            return None
        grown = self._grown(request, offers, prompt, _corrections(records, layouts))
        if grown is not None:
            free = limit - self._tokens(request, grown)
            grown.selection.dropped += left_out_turns(reversed(silent), free, grown.selection.present)
        return grown

    def _grown(
        self, request: _Request, offers: Sequence[Offer], prompt: Prompt, corrections: Sequence[Candidate]
    ) -> Prompt | None:
        """A prompt with the newly recalled memories appended; None if there is no room for them."""
        present = {id for part in (*prompt.kept, *prompt.new) for id in part.whole_ids}
        room = request.allocation.limit - self._tokens(request, prompt)
        selection = Selection(request.costs, room, normal_form(request.question), set(present))
        prompt.selection = selection
        selection.add_quoted(_quoted((*prompt.kept, *prompt.new)))
        quoted = sum(part.tokens for part in (*prompt.kept, *prompt.new) if isinstance(part, QuotationPart))
        wished = self._wished(request, offers)
        selection.room -= wished
        if room < wished or not self._add_recalled(request, selection, offers, present, corrections, quoted):
            return None
        selection.room += wished
        lasting, once = selection.quotes[: selection.lasting], selection.quotes[selection.lasting :]
        if lasting:
            prompt.new.append(QuotationPart(lasting, request.costs))
        passing = [*once, *self._states(selection, offers, request.allocation)]
        if passing:
            prompt.new.append(QuotationPart(passing, request.costs, lasting=False))
        there = present | {one.id for one in selection.quotes}
        others = (one for offer in offers for one in offer.candidates if one.place is not Place.TURN)
        selection.leave_out((one for one in others if one.id not in there), _ADDS_TOO_LITTLE)
        return prompt if self._tokens(request, prompt) <= request.allocation.limit else None

    def _add_recalled(
        self,
        request: _Request,
        selection: Selection,
        offers: Sequence[Offer],
        present: set[str],
        corrections: Sequence[Candidate],
        quoted: int,
    ) -> bool:
        """Take recalled memories that are not yet in the prompt. Returns False if a rewrite must make room for them.

        Quotations in the prompt (of `quoted` tokens) are replaced by any memories that may be shown. The conversation
        is cut only for the best of these.
        """
        rules = self._policy
        recalled = _recalled(offers)
        best = max((one.score for one in recalled), default=0.0)
        known = present | {one.id for one in corrections}
        fresh = [one for one in recalled if one.id not in known and rules.accepts(one, best)]
        need = 1.0 if is_question(request.question) else rules.unasked
        limit = request.allocation.limit
        selection.present -= {one.id for one in corrections}  # the prompt has another version
        for one in corrections:
            if not selection.add_quote(one, selection.room):
                return False
        stays = _take(selection, fresh, int(limit * rules.append * need))
        selection.end_lasting()
        kept = {one.id for one in stays}
        others = [one for one in fresh if one.id not in kept]
        wanted, room = int(limit * rules.shown_once * need), selection.room
        shown = _take(selection, others, min(wanted, room), may_be_brief=True)
        facts = [one for offer in offers for one in offer.candidates if _is_derived_fact(one)]
        _take(selection, facts, int(need * max(_FACTS_TOKENS, limit * _FACTS_SHARE)))
        enough = wanted if quoted >= wanted * _WORTH_A_REWRITE else min(wanted, rules.recalled_first(limit))
        return room >= enough or len(shown) == len(others)

    def _states(self, selection: Selection, offers: Sequence[Offer], allocation: BudgetAllocation) -> list[Candidate]:
        """The values that change by themselves, within their share and the free room."""
        left = dict(allocation.shares)
        left["instructions"] = max(_WISHES_TOKENS, left["instructions"])
        taken: list[Candidate] = []
        for offer in offers:
            for one in offer.candidates:
                if one.is_passing and (cost := selection.add_quote(one, left[offer.share])):
                    left[offer.share] -= cost
                    taken.append(one)
        return taken


def _prompt_of(
    stays: Sequence[Candidate],
    talk: Sequence[Exchange],
    once: Sequence[Candidate],
    selection: Selection,
    costs: TokenCosts,
) -> Prompt:
    """A new prompt of lasting quotations, a conversation, and quotations that are shown once."""
    new: list[Part] = [QuotationPart(stays, costs)] if stays else []
    new += conversation_parts(talk, costs)
    new += [QuotationPart(once, costs, lasting=False)] if once else []
    spoken = {turn.id for exchange in talk for turn in exchange.turns}
    tokens = {(id, Place.TURN): size for exchange in talk for id, size in exchange.tokens_by_turn().items()}
    chosen = replace(
        selection,
        quotes=[*stays, *once],
        tokens=tokens | selection.tokens,
        dropped=[one for one in selection.dropped if one.id not in spoken],
    )
    return Prompt([], new, chosen)


def _offers(answers: Iterable[SourceAnswer]) -> list[Offer]:
    return [Offer(answer.source.name, answer.source.share, answer.candidates) for answer in answers]


def _named(offers: Sequence[Offer], chosen: Selection) -> list[Offer]:
    """The offers of the memories that were chosen, in any form."""
    ids = {one.id for one in chosen.quotes}
    return [replace(offer, candidates=tuple(one for one in offer.candidates if one.id in ids)) for offer in offers]


def _only(prompt: Prompt, offers: Sequence[Offer]) -> tuple[list[Offer], list[Exchange]]:
    """The quotations and the conversation of a prompt, as offers."""
    parts = (*prompt.kept, *prompt.new)
    quotes = [one for part in parts if isinstance(part, QuotationPart) for one in part.candidates]
    talk = [exchange for part in parts if isinstance(part, ConversationPart) for exchange in part.exchanges]
    return _of_sources(offers, quotes), talk


def _of_sources(offers: Sequence[Offer], quotes: Iterable[Candidate]) -> list[Offer]:
    """Quotations as offers of the sources that offered them, in the order of these offers; others come last."""
    chosen = {(one.id, one.place): one for one in quotes}
    found = []
    for offer in offers:
        places = [(one.id, one.place) for one in offer.candidates]
        found.append(replace(offer, candidates=tuple(chosen.pop(at) for at in places if at in chosen)))
    return [*found, Offer("session", "l3_l4", tuple(chosen.values()))]


def _beside(offers: Sequence[Offer], spoken: Collection[str] = (), session_id: str | None = None) -> list[Offer]:
    """The offers without turns of the conversation, and without the quotations that `_repeats` accepts."""
    return [
        replace(
            offer,
            candidates=tuple(
                one
                for one in offer.candidates
                if one.place is not Place.TURN and not _repeats(one, spoken, session_id)
            ),
        )
        for offer in offers
    ]


def _repeats(candidate: Candidate, spoken: Collection[str], session_id: str | None = None) -> bool:
    """Whether a quotation repeats one of these turns or a turn of this session, or was derived from one. A fact is
    never a turn itself."""
    return candidate.place is Place.QUOTE and (
        (session_id is not None and candidate.session_id == session_id and candidate.kind != MemoryType.FACT)
        or candidate.id in spoken
        or any(one in spoken for one in candidate.stands_for)
    )


def _holds(selection: Selection, quotes: Iterable[Candidate]) -> bool:
    """Whether no quotation is missing or shorter for lack of room."""
    sizes = {one.id: len(one.text) for one in selection.quotes}
    short = {one.id for one in selection.dropped if one.reason in (NO_ROOM, BEHIND)}
    return all(
        one.id in selection.present or (sizes[one.id] >= len(one.text) if one.id in sizes else one.id not in short)
        for one in quotes
    )


_NEEDED_BEFORE: Mapping[str, Any] = {"source": "session", "reason": "needed before in this session"}


def _newest(exchanges: Sequence[Exchange], most: int) -> tuple[list[Exchange], list[Exchange]]:
    """The last exchanges without a gap, at least a few and as many as fit into this many tokens; and the exchanges
    before them."""
    first = max(0, len(exchanges) - _FEWEST_EXCHANGES)
    most -= sum(exchange.tokens for exchange in exchanges[first:])
    while first and exchanges[first - 1].tokens <= most:
        first -= 1
        most -= exchanges[first].tokens
    return list(exchanges[first:]), list(exchanges[:first])


def _is_recalled(candidate: Candidate) -> bool:
    return candidate.place is Place.QUOTE and bool(candidate.seq) and not candidate.stands_for


def _recalled(offers: Iterable[Offer]) -> list[Candidate]:
    """The recalled records, not abridged, best first."""
    return [one for offer in offers if offer.share == "l3_l4" for one in offer.candidates if _is_recalled(one)]


def _is_derived_fact(candidate: Candidate) -> bool:
    """Whether the candidate is a fact that the memory derived from records."""
    return candidate.kind == MemoryType.FACT and bool(candidate.stands_for) and not candidate.is_abridged


def _is_call(candidate: Candidate) -> bool:
    """Whether it is a turn of the conversation that calls tools."""
    return candidate.place is Place.TURN and bool((candidate.message or {}).get("tool_calls"))


def _quoted(parts: Iterable[Part]) -> list[Candidate]:
    """The memories that are quoted whole in these parts."""
    return [
        one for part in parts if isinstance(part, QuotationPart) for one in part.candidates if not one.is_abridged
    ]


def _take(
    selection: Selection, candidates: Sequence[Candidate], most: int, *, may_be_brief: bool = False
) -> list[Candidate]:
    """Take the quotations that fit into this many tokens, in order; return those taken.

    With `may_be_brief`, the best passages replace a quotation that would take a large part of the room.
    """
    taken: list[Candidate] = []
    largest = most // _LARGEST_PART
    selection.costs.prepare(candidates, min(most, selection.room))
    for one in candidates:
        part = selection.brief(one) if may_be_brief and one.tokens > largest else None
        if cost := selection.add_quote(one if part is None else part, most):
            most -= cost
            taken.append(one)
        elif most < LEAST_ITEM_TOKENS:
            break
    return taken


def _corrections(records: Mapping[int, Record], layouts: LayoutStore) -> list[Candidate]:
    """The current versions of the records in a layout that have since been superseded."""
    found: dict[int, Candidate] = {}
    for record in records.values():
        if record.superseded_at is not None:
            newest = layouts.newest(record.id)
            if newest is not None and newest.seq not in records:
                reason = f"replaces version {record.version}, which is in the prompt"
                found[newest.seq] = Candidate.of_record(newest, source="session", score=1.0, reason=reason)
    return [found[seq] for seq in sorted(found)]


def _reports(request: _Request, answers: Sequence[SourceAnswer], items: Sequence[ContextItem]) -> list[SourceReport]:
    """The number of offers of each source, and how many of them are in the prompt. `session` has the parts of the
    previous prompt."""
    used: dict[str, list[ContextItem]] = {}
    for item in items:
        used.setdefault(item.source, []).append(item)
    reports = []
    for answer in answers:
        source, mine = answer.source, used.pop(answer.source.name, [])
        reports.append(
            SourceReport(
                source.name,
                request.allocation.shares[source.share],
                len(answer.candidates),
                len(mine),
                sum(item.tokens for item in mine),
                answer.error,
            )
        )
    for name, others in used.items():
        reports.append(SourceReport(name, 0, len(others), len(others), sum(item.tokens for item in others)))
    return reports


def _room_notes(prompt: Prompt) -> list[str]:
    reasons = {one.reason for one in prompt.selection.dropped} & LEFT_OUT_TURNS
    told = (
        "earlier turns are left out, as in the previous prompt"
        if reasons == {LEFT_OUT_BEFORE}
        else "the window is full: earlier turns are left out"
    )
    return [f"{told}; they stay in memory and can be recalled"] if reasons else []
