"""The verbs of a memory: remember, recall, derive, move and forget.

`LoomMemory`, `MemoryManager` and `Memory` have all of them under these names. `LoomMemory` adds the names of the
design documents. Opening and closing are here too.
"""

from __future__ import annotations

import builtins
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from loom.checks import (
    checked_instance,
    checked_list,
    checked_member,
    checked_number,
    checked_object,
    checked_path,
    checked_whole,
    if_given,
)
from loom.drafts import Attributes, AttributeValues, Drafter, Rememberable, attributes_of, checked_text
from loom.errors import Closed, InvalidInput, LoomError, NotFound, OverBudget, SettingsConflict
from loom.forks import made_once
from loom.models.embedders import EmbeddingProvider, embed_texts, embedder_from_name
from loom.protocol import Clock, Closing, Task, checked_time, closest, utc_now
from loom.recall.conditions import asks_about_the_past, turns_to_raise
from loom.recall.feedback import Feedback, LearnedWeights
from loom.recall.hits import Hit
from loom.recall.relevance import Weights
from loom.recall.reranking import MemoryReranker
from loom.recall.search import Explanation, Nearest, Reranker, question_vector, recall
from loom.settings import SETTINGS, Settings, SettingValues, load_settings
from loom.storage import open_store
from loom.storage.contract import (
    COMPACT,
    COUNT,
    DERIVE,
    LAYOUTS,
    MERGE,
    RESTORE,
    RETAIN,
    STANDING,
    ArchiveStats,
    CheckReport,
    Filter,
    FlushReport,
    ForgetReceipt,
    Page,
    Record,
    Retention,
    Store,
    Usage,
    Vector,
    check_limit,
)
from loom.text.sanitizer import ContentSanitizer
from loom.text.tokens import TokenCounter, counter_by_name, counters_by_name
from loom.tiers.controller import TierController
from loom.tiers.jobs import Migration, Promotion
from loom.tiers.migration import Tiers
from loom.tiers.monitor import MONITOR_ACTION, Monitor
from loom.tiers.quotas import ALARM_ACTION
from loom.types import (
    Fact,
    FactType,
    Filters,
    Instruction,
    InstructionKind,
    MemoryTier,
    MemoryType,
    Receipt,
    StoredSummary,
    known_tier,
    record_as_fact,
    record_as_instruction,
    record_as_summary,
)

if TYPE_CHECKING:
    from loom.context import Context
    from loom.events import EventBus, Subscription
    from loom.memory.compaction import CompactionConfig, CompactionResult, MemoryCompactor
    from loom.memory.derivation import Derivation, UndoResult
    from loom.memory.standing import StandingInstructions
    from loom.memory.vector_mirror import VectorMirror
    from loom.memory.vector_store import VectorStoreProvider
    from loom.models.language_model import LanguageModelLike
    from loom.snapshots.staging import Restored
    from loom.snapshots.taking import Snapshot

__all__ = ["MemoryOptions", "MemoryVerbs", "checked_id"]

log = logging.getLogger("loom.memory")

_ANYTHING = Filter()
_NOT_DERIVED = Filter(derived=False)
# The cells of the matrix, in the order in which they are shown.
_CELLS = tuple((subject, layer) for layer in ("type", "instance") for subject in ("world", "subject"))
# A question in both languages, which loads the word lists of both.
_WARMING = "When did they warm up last week? 他们上周什么时候热身？"
# Feedback may concern one of this many best hits.
_JUDGED = 30


class MemoryOptions(SettingValues, total=False):
    """The options for opening a memory: every setting, and further options.

    With an `event_bus`, every task published there is remembered once. `embedder` is a provider or the name of one
    (`embedding_provider` is its other name, `enable_l4_vectorization=False` disables it); the default is the offline
    embedder if it is installed. `token_counter` replaces the counter that the setting `counter` names. `vector_store`
    is the caller's own vector store: it gets a copy of each vector and nominates by meaning. `reranker` decides the
    order of every recall that names no other, in prompts too. `sanitizer` cleans each text before it is stored; the
    text is then no longer verbatim. `llm` (a callable from prompt to answer) derives facts, names and summaries in
    the background; by default rules do.

    The file holds the settings that all processes must share; giving other values raises `SettingsConflict`, unless
    `reconfigure` is True. `config` names the TOML file with settings. With `all_namespaces` the memory may also list,
    snapshot and forget the other namespaces of the file; no variable and no settings file can set it. With `warm_up`
    a thread loads what the first recall needs: see `MemoryVerbs.warm_up`.
    """

    event_bus: EventBus | None
    embedder: EmbeddingProvider | str | None
    embedding_provider: EmbeddingProvider | None
    enable_l4_vectorization: bool
    token_counter: TokenCounter | None
    vector_store: VectorStoreProvider | None
    reranker: Reranker | None
    sanitizer: ContentSanitizer | None
    llm: LanguageModelLike | None
    compaction: CompactionConfig | None
    reconfigure: bool
    clock: Clock
    config: str | Path | None
    all_namespaces: bool
    warm_up: bool


class MemoryVerbs(Closing):
    """A memory over a store, and its verbs. Thread-safe; many processes may share a file.

    `store` is a store to share (it stays open when this memory closes), a path, or None for a memory in this process.
    Settings that are not given come from the environment, a TOML file, the memory file or the profile. Use it as a
    context manager, or call `close()`.

    The parts of a memory are `node_id`, the node whose memory it is; `store`, to share with a pool or another node;
    `counter`, the token counter; `embedder`, None if recall is by words alone; `drafter`, which makes drafts of
    records for this node; `tiers`, for writing into them and moving between them; and `migration`, promotions and
    demotions as jobs: triggers, pressure and the queue.
    """

    _elsewhere = "open its file there: loom.open(path)"

    def __init__(
        self,
        node_id: str | None = None,
        *,
        store: Store | str | Path | None = None,
        event_bus: EventBus | None = None,
        embedder: EmbeddingProvider | str | None = None,
        embedding_provider: EmbeddingProvider | None = None,
        enable_l4_vectorization: bool = True,
        token_counter: TokenCounter | None = None,
        vector_store: VectorStoreProvider | None = None,
        reranker: Reranker | None = None,
        sanitizer: ContentSanitizer | None = None,
        llm: LanguageModelLike | None = None,
        compaction: CompactionConfig | None = None,
        reconfigure: bool = False,
        clock: Clock = utc_now,
        config: str | Path | None = None,
        all_namespaces: bool = False,
        warm_up: bool = False,
        **values: Unpack[SettingValues],
    ) -> None:
        settings: dict[str, Any] = {**values, "node_id": node_id}
        given = embedding_provider if embedder is None else embedder
        for name, part, *attributes in (
            ("embedder", None if isinstance(given, str) else given, "name", "embed", "embed_batch"),
            ("token_counter", token_counter, "name", "count", "limit_count"),
            ("event_bus", event_bus, "register_handler"),
            ("sanitizer", sanitizer, "sanitize"),
            ("clock", clock, "__call__"),
        ):
            if part is not None or name == "clock":
                checked_object(part, name, *attributes)
        if reranker is not None and not isinstance(reranker, MemoryReranker):
            checked_object(reranker, "reranker", "__call__")
        if not enable_l4_vectorization:
            given = "none"
        if isinstance(given, str):
            settings["embedder"] = given
        if token_counter is not None:
            settings["counter"] = token_counter.name
        _check_options(type(self).__name__, settings)
        loaded = load_settings(settings, file=config)
        self._owns_store = store is None or isinstance(store, str | Path)
        self.store: Store = (
            _open_store(store, loaded, clock, all_namespaces)
            if store is None or isinstance(store, str | Path)
            else checked_store(store)
        )
        self._subscription: Subscription | None = None
        self._warming: threading.Thread | None = None
        try:
            counters = counters_by_name() | ({} if token_counter is None else {token_counter.name: token_counter})
            self.store.count_with({name: counter.limit_count for name, counter in counters.items()})
            self.node_id = loaded.node_id
            self._controller = TierController(self.node_id, event_bus)
            self.verdicts = Feedback(self.store, self.node_id)

            def tiers_under(agreed: Settings) -> Tiers:
                counter = counter_by_name(agreed.counter) if token_counter is None else token_counter
                return Tiers(self.store, self.node_id, agreed, counter, self._controller)

            self.tiers = tiers_under(_agree(self.store, loaded, reconfigure, tiers_under))
            self.counter = self.tiers.counter
            self.embedder = _choose_embedder(self.store, loaded, given, reconfigure)
            self.drafter = Drafter(
                self.node_id, self.counter, self.store.clock, sanitizer, counts_later=self.store.counts_later
            )
            self._mirror = None if vector_store is None else _mirror_of(self.store, vector_store)
        except BaseException:
            if self._owns_store:
                self.store.close()
            raise
        self.migration = Migration(self.tiers)
        self.store.retry_jobs(self.migration.kind, COUNT, RETAIN, DERIVE, RESTORE, COMPACT, MERGE)
        self.store.add_chore(self.migration, self.migration.work)
        self._controller.attach(self.tiers, self.migration)
        if self._controller.is_active:
            self.store.add_chore(self._controller, self._controller.work)
        self._reranker = reranker
        self._llm = llm
        self._compaction = compaction
        self._asked: tuple[tuple[str, Vector | None], ...] = ()
        if self.tiers.settings.derive:
            # The deriving modules are loaded later: opening does not wait for them.
            self.store.add_chore(self, lambda publish, thorough: self.derivation.work(publish, thorough))
        if event_bus is not None:
            self._subscription = event_bus.register_handler("*", self._on_task, blocking=True)
        if warm_up:
            self._warming = threading.Thread(target=self._warm_up_unseen, name="loom-warm-up", daemon=True)
            self._warming.start()

    # -- parts ----------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings in force. `settings.explain()` says where each came from."""
        return self.tiers.settings

    @property
    def monitor(self) -> Monitor:
        """The measures of this memory, each with its target and its alarm. `monitor.table()` is for people."""
        return self._controller.refreshed_monitor()

    @made_once
    def compactor(self) -> MemoryCompactor:
        """Summarises stretches of the archive tier when it is nearly full."""
        from loom.knowledge.summarizer import Summarizer
        from loom.memory.compaction import MemoryCompactor

        summarizer = Summarizer(self._llm, token_counter=self.counter)
        return MemoryCompactor(self._compaction, self, self.counter, summarizer=summarizer)

    @made_once
    def derivation(self) -> Derivation:
        """Derives facts and summaries from the log in the background, and undoes them."""
        from loom.knowledge.extraction import FactExtractor
        from loom.memory.derivation import Derivation

        extractor = FactExtractor(self._llm)
        return Derivation(self.store, self.tiers, extractor, self.compactor, self.embedder, self.standing)

    @made_once
    def standing(self) -> StandingInstructions:
        """The standing instructions of this node: what the user wants later answers to follow."""
        from loom.memory.standing import StandingInstructions

        return StandingInstructions(self.store, self.node_id, self.counter, self._question_vector)

    # -- remembering -----------------------------------------------------------------------------------

    @overload
    def remember(
        self, what: Rememberable, *, id: str | None = None, **attributes: Unpack[AttributeValues]
    ) -> Receipt: ...

    @overload
    def remember(
        self, what: builtins.list[Any] | tuple[Any, ...], **attributes: Unpack[AttributeValues]
    ) -> builtins.list[Receipt]: ...

    def remember(
        self, what: Any, *, id: str | None = None, **attributes: Unpack[AttributeValues]
    ) -> Receipt | builtins.list[Receipt]:
        """Store a text, a `Task`, a chat message, or a list of these (in one transaction, all or none).

        A message is a dict in the form of OpenAI or Anthropic, an object of their SDKs (anything with `model_dump`),
        or a part of one: a content block, a tool call, a tool result. The attributes are `role`, `name`,
        `session_id`, `created_at`, `importance`, `metadata`, `trust`, `kind` and `dimensions`. Fields of a message
        override them.

        Returns when it is committed. Remembering the same text under the same id again changes nothing. Another text
        under an existing id raises `IdConflict` (use `update`). A `Task` whose status, result or error changed
        becomes the next version of its id. `trust` is user, agent, tool, web or unknown; the default follows from the
        role, and messages with tool results have the trust tool.
        """
        said = attributes_of("remember", attributes)
        if isinstance(what, list | tuple):
            if id is not None:
                raise InvalidInput("one id cannot name a list; give each message its own 'id'")
            return self.tiers.write([self.drafter.draft(item, None, said) for item in what])
        return self.tiers.write([self.drafter.draft(what, id, said, count_later=True)])[0]

    def update(
        self,
        id: str,
        text: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        importance: float | None = None,
    ) -> Receipt:
        """Store a new version of a memory. Earlier versions stay, for `history` and `as_of`.

        Values that are not given are unchanged, including the text.
        """
        if text is None and metadata is None and importance is None:
            raise InvalidInput("update() needs a new text, new metadata or a new importance; none of them was given")
        old = self._require("update", id)
        attributes = Attributes(
            old.role,
            old.name,
            old.session_id,
            None,
            old.importance if importance is None else importance,
            old.metadata if metadata is None else metadata,
            old.trust,
            old.kind,
            old.dimensions,
        )
        is_fact = old.kind == MemoryType.FACT  # the metadata of a fact outlives its wording
        data = old.data if is_fact or text is None else None
        wording = old.content if text is None else checked_text(text, "update")
        draft = self.drafter.text(wording, id, attributes, data, revises=True)
        return self.tiers.write([draft], MemoryTier.L4 if is_fact else None)[0]

    def _on_task(self, task: Task) -> None:
        """Store a task from the bus. The same task is stored only once; this memory's own alarms are ignored.

        A task that names only other nodes of this namespace belongs to them.
        """
        if task.action.startswith((ALARM_ACTION, MONITOR_ACTION)):
            return
        named = {task.source_agent, task.target_agent} - {""}
        try:
            # Look up the names, because a tree may have a thousand nodes, each of which receives every task.
            if self.node_id in named or not any(self.store.settings(name) for name in named):
                self.remember(task)
        except Closed:
            subscription, self._subscription = self._subscription, None
            if subscription is not None:
                subscription.cancel()
                log.warning("node %s stops listening to its bus: its store was closed", self.node_id)

    # -- finding again ---------------------------------------------------------------------------------

    @overload
    def recall(
        self,
        /,
        question: str,
        *,
        limit: int = 10,
        min_score: float = 0.0,
        diversity: float = 0.0,
        reranker: Reranker | None = None,
        explain: Literal[False] = False,
        wanted: Filter | None = None,
        **filters: Unpack[Filters],
    ) -> builtins.list[Hit]: ...

    @overload
    def recall(
        self,
        /,
        question: str,
        *,
        limit: int = 10,
        min_score: float = 0.0,
        diversity: float = 0.0,
        reranker: Reranker | None = None,
        explain: Literal[True],
        wanted: Filter | None = None,
        **filters: Unpack[Filters],
    ) -> Explanation: ...

    def recall(
        self,
        /,
        question: str,
        *,
        limit: int = 10,
        min_score: float = 0.0,
        diversity: float = 0.0,
        reranker: Reranker | None = None,
        explain: bool = False,
        wanted: Filter | None = None,
        **filters: Unpack[Filters],
    ) -> builtins.list[Hit] | Explanation:
        """The memories that answer a question, best first: of every node of the namespace, unless filtered.

        `since` and `until` bound when a memory was created. `as_of` asks what was valid at a time, `known_at` what
        had been stored by then. `where` compares metadata. Further filters: see `Filter`, which may also be given as
        a whole (`wanted`). Derived records are left out, because their sources say the same; a filter on `kind` or
        `derived` includes them.

        `min_score` (0 to 1) drops hits below it. A score of 0.9 or more means that the hit covers the whole question;
        docs/recall.md has the cost of a cut. `diversity` (0 to 1) separates hits that say nearly the same. `reranker`
        is called with the question and the best hits and returns a score for each. With `explain=True` the result is
        an `Explanation`: the hits, how the question was understood, and every candidate with the contribution of each
        signal.
        """
        if wanted is None or filters:
            if wanted is not None:
                raise InvalidInput("recall() takes wanted=Filter(...) or filters by their names, not both")
            wanted = Filter.of("recall", **filters)
        checked_instance(wanted, Filter, "recall(wanted=)")
        found = self.search(
            checked_id("recall", question, "a question"),
            limit=limit,
            wanted=wanted,
            min_score=min_score,
            diversity=diversity,
            reranker=reranker,
            explain=explain,
        )
        return found if explain else found.hits

    def search(
        self,
        question: str,
        *,
        limit: int = 10,
        wanted: Filter | None = None,
        weights: Weights | None = None,
        min_score: float = 0.0,
        diversity: float = 0.0,
        reranker: Reranker | None = None,
        seeds: int = 0,
        explain: bool = False,
    ) -> Explanation:
        """Recall with a full explanation: see `loom.recall`."""
        checked_id("search", question, "a question")
        if weights is not None:  # not with `if_given`: every recall comes here, most without weights
            checked_instance(weights, Weights, "search(weights=)")
        checked_whole(seeds, "search(seeds=)")
        if wanted is None or wanted == _ANYTHING:
            wanted = _NOT_DERIVED
        elif checked_instance(wanted, Filter, "search(wanted=)").derived is None and wanted.kind is None:
            wanted = replace(wanted, derived=False)
        started = time.perf_counter()
        found = recall(
            self.store,
            question,
            limit=limit,
            wanted=wanted,
            embedder=self.embedder,
            embed=self._question_vector,
            weights=weights or self.verdicts.weights,
            min_score=min_score,
            diversity=diversity,
            reranker=self._reranker if reranker is None else reranker,
            node=self.node_id,
            seeds=seeds,
            standing=self._standing_turns(question),
            explain=explain,
            nearest=self._nearest(),
        )
        self._controller.searched(time.perf_counter() - started)
        return found

    def _standing_turns(self, question: str) -> dict[int, float]:
        """The turns in which the user gave instructions whose condition a question meets: sequence numbers with
        strengths."""
        # Without instructions, no module is imported: a fork during an import would leave the child waiting.
        if not self.store.sizes(self.node_id, STANDING) or asks_about_the_past(question):
            return {}
        applying = self.standing.applying(question)
        if not applying:
            return {}
        return turns_to_raise(question, [(one.said_in, one.wish, score) for one, score in applying])

    def _nearest(self) -> Nearest | None:
        """The candidates of the caller's own vector store, which is first brought up to date."""
        mirror = self._mirror
        if mirror is None or self.embedder is None:
            return None
        try:
            mirror.follow()
        except LoomError:
            raise
        except Exception as error:  # the caller's store may raise anything; the answer lacks only this signal
            log.warning("the vector store failed (%s); our own index answers", type(error).__name__)
            return None
        return mirror.nearest

    def feedback(self, question: str, id: str, *, helpful: bool) -> LearnedWeights:
        """Say whether a recalled memory helped. The signals that found it then count for more or less in every
        recall of this namespace, a little at a time and within bounds. The verdict itself is not stored."""
        hits = self.recall(checked_id("feedback", question, "a question"), limit=_JUDGED)
        return self.verdicts.judge(checked_id("feedback", id), hits, helpful)

    def context(
        self,
        query: str | Task,
        *,
        budget: int | None = None,
        session_id: str | None = None,
        system: str | None = None,
        sources: Iterable[object] = (),
        source_timeout_s: float = 2.0,
    ) -> Context:
        """The best prompt for a question within a hard token budget, with the reason why each item is in or out.

        The result is a list of messages, the question last; `explain()` shows where the budget went. With a
        `session_id` it contains the turns of that session and continues the layout of the session's last prompt, so
        that it begins with the same tokens. Without one the call is stateless. `system` is the text of the system
        message. `sources` are additional ones: objects with `get_context(task, max_items)`, or callables with these
        arguments. The default `budget` is the setting `prompt_token_budget`. Being in a prompt counts as a use.
        """
        if not isinstance(query, str | Task):
            raise InvalidInput(f"context() takes a question, a text or a Task, not {type(query).__name__}")
        checked_number(source_timeout_s, "context(source_timeout_s=)", 0)
        asked = [*checked_list(sources, "context(sources=)")]
        session = session_id or (query.session_id if isinstance(query, Task) else None)
        # Imported by name, because prompts belong to a package above this one.
        orchestrator = import_module("loom.context.defaults").default_orchestrator(
            self, session=session, sources=asked, source_timeout_s=source_timeout_s
        )
        most = self.settings.prompt_token_budget if budget is None else budget
        try:
            built: Context = orchestrator.build(query=query, system=system, session_id=session_id, budget=most)
        except OverBudget as error:
            self._controller.refused(error)
            raise
        self._controller.prompted(built.tokens, built.budget)
        return built

    def get(self, id: str) -> Record | None:
        """The newest version of a memory, or None. Counts as a use of it."""
        record = self.store.get(checked_id("get", id))
        if record is not None:
            self.tiers.use(record.seq)
            self._controller.used(record.seq, record.session_id)
        return record

    def history(self, id: str) -> builtins.list[Record]:
        """Every version of a memory, oldest first; empty if there is no such memory."""
        return self.store.history(checked_id("history", id))

    def list(
        self,
        /,
        *,
        limit: int = 50,
        after: int | None = None,
        newest_first: bool = True,
        **filters: Unpack[Filters],
    ) -> Page:
        """A page of memories in the order of writing. Pass `page.next` as `after` for the next page.

        Derived records (facts, summaries) are listed only if a filter on `kind` or `derived` asks for them.
        """
        if not filters.keys() & {"kind", "derived", "ids"}:
            filters["derived"] = False
        return self.store.scan(Filter.of("list", **filters), limit=limit, after=after, newest_first=newest_first)

    def matrix(self) -> dict[tuple[str, str], dict[str, int]]:
        """The number of memories in each cell of the matrix of three dimensions, as states and as events.

        The keys are the subject ("world", "subject") and the layer ("type", "instance"). World types are usually
        implicit in prompts, so that cell is mostly empty. `list(subject=..., layer=...)` lists a cell.
        """
        with self.store.reading():
            return {
                (subject, layer): {
                    flow: self.store.count(Filter(subject=subject, layer=layer, flow=flow))
                    for flow in ("state", "event")
                }
                for subject, layer in _CELLS
            }

    # -- derived records ----------------------------------------------------------------------

    def facts(
        self,
        question: str | None = None,
        *,
        limit: int = 50,
        fact_type: FactType | str | None = None,
        session_id: str | None = None,
        as_of: datetime | str | None = None,
        history: bool = False,
    ) -> builtins.list[Fact]:
        """The facts that answer a question, best first; without a question, the newest first.

        They are derived in the background (`flush` waits for it). With `as_of`, the facts that held at that time.
        With `history`, also those that no longer hold.
        """
        kind = None if fact_type is None else checked_member(FactType, fact_type, "fact_type")
        wanted = Filter.of(
            "facts", node=self.node_id, kind=str(MemoryType.FACT), session_id=session_id, as_of=as_of, history=history
        )
        found: builtins.list[Fact] = []
        asked, after = limit, None
        while True:
            if question is None:
                page = self.store.scan(wanted, limit=limit, after=after)
                records, after = list(page.records), page.next
            else:
                hits = self.recall(checked_id("facts", question, "a question"), limit=asked, wanted=wanted)
                records = self._records_of(hits)
                found, after = [], asked if len(records) == asked else None
                asked *= 4
            found += [fact for fact in map(self._as_fact, records) if kind in (None, fact.fact_type)]
            if len(found) >= limit or after is None:
                return found[:limit]

    def summaries(
        self, session_id: str | None = None, *, limit: int = 50, history: bool = False
    ) -> builtins.list[StoredSummary]:
        """The summaries of stretches of dialogue, newest first; with `history`, also withdrawn ones."""
        wanted = Filter(node=self.node_id, kind=str(MemoryType.SUMMARY), session_id=session_id, history=history)
        page = self.store.scan(wanted, limit=limit)
        return [record_as_summary(record, self.store.neighbours(record.id)[0]) for record in page.records]

    def instructions(
        self,
        question: str | None = None,
        *,
        session_id: str | None = None,
        limit: int = 50,
        history: bool = False,
        unconfirmed: bool = False,
    ) -> builtins.list[Instruction]:
        """The user's standing instructions and preferences that are in force, newest first.

        With a question, those whose condition it meets, best first. With a `session_id`, also those of that session
        alone. With `history`, also those that were changed or withdrawn. With `unconfirmed`, only those of imported
        messages, which are not in force until `confirm`; the id of each is that of its message. Instructions are
        derived in the background from the user's own words (`flush` waits for that).
        """
        if unconfirmed:
            if question is not None or history:
                raise InvalidInput("instructions(unconfirmed=True) takes neither a question nor history=True")
            check_limit(limit)
            return self.standing.unconfirmed(limit)
        if history:
            if question is not None:
                raise InvalidInput("instructions() takes a question or history=True, not both")
            wanted = Filter(node=self.node_id, kind=str(MemoryType.INSTRUCTION), derived=True, history=True)
            page = self.store.scan(wanted, limit=limit)
            found = (record_as_instruction(one, self.store.neighbours(one.id)[0]) for one in page.records)
            return [one for one in found if one.kind is not InstructionKind.WITHDRAWAL]
        check_limit(limit)
        if question is None:
            return [one.instruction for one in self.standing.in_force(session_id)[:limit]]
        asked = checked_id("instructions", question, "a question")
        return [one.instruction for one, _ in self.standing.applying(asked, session_id)[:limit]]

    def _question_vector(self, question: str) -> Vector | None:
        """The vector of a question. Keeps the last two, since a prompt needs two of them repeatedly."""
        if self.embedder is None:
            return None
        for text, vector in self._asked:
            if text == question:
                return vector
        vector = question_vector(self.embedder, question)
        self._asked = ((question, vector), *self._asked[:1])
        return vector

    def confirm(self, id: str) -> builtins.list[Instruction]:
        """Put the standing instructions of an imported message into force: those of `instructions(unconfirmed=True)`.

        Takes the id of the message; raises `InvalidInput` if that message has no unconfirmed instructions.
        """
        return self.standing.confirm(checked_id("confirm", id))

    def withdraw(self, id: str) -> Instruction:
        """End a standing instruction and return it. `instructions` lists the ids.

        It stays in the log for `instructions(history=True)`. If the user says it again, it is in force again;
        forgetting its source removes it for good.
        """
        return self.standing.withdraw(checked_id("withdraw", id))

    def sources_of(self, record: Record) -> tuple[str, ...]:
        """The ids of the sources of a record; for a version of a fact, the sources of this version, not of the whole
        chain."""
        sources = self.store.neighbours(checked_instance(record, Record, "the record of sources_of()").id)[0]
        if record.version > 1 or record.superseded_at is not None:
            told = (self.store.get(one) for one in sources)
            until = record.superseded_at
            sources = tuple(
                one.id
                for one in told
                if one is not None
                and one.created_at >= record.created_at
                and (until is None or one.created_at < until)
            )
        return sources

    def _as_fact(self, record: Record) -> Fact:
        return record_as_fact(record, self.store.uses(record.seq, self.node_id), self.sources_of(record))

    def _records_of(self, hits: Sequence[Hit]) -> builtins.list[Record]:
        """The records of hits, each in the version that was found."""
        found: builtins.list[Record] = []
        for hit in hits:
            record = self.store.get(hit.id)
            if record is not None and record.version != hit.version:
                record = {one.version: one for one in self.store.history(hit.id)}.get(hit.version)
            if record is not None:
                found.append(record)
        return found

    def compact(self) -> CompactionResult:
        """Summarise stretches of the archive tier now, until it is down to its target. The background worker also
        does this when needed."""
        return self.compactor.compact()

    def undo(self, id: str) -> UndoResult:
        """Withdraw a derived summary, merged fact or fact.

        Its sources take their places again. The original records were never changed.
        """
        return self.derivation.undo(checked_id("undo", id))

    # -- moving ----------------------------------------------------------------------------------------

    def promote(self, id: str, to: MemoryTier | str = MemoryTier.L2) -> Promotion:
        """Move a memory towards the prompt: to the working tier, or with `to="l1"` into the window of recent records,
        where it stays until others are promoted there. The result names the moved ids, or the reason if nothing
        moved."""
        return self.migration.promote([checked_id("promote", id)], known_tier(to))

    def demote(self, id: str) -> MemoryTier | None:
        """Move a memory one tier down, away from the prompt. Returns its new tier, or None if it is now only in the
        log."""
        return self.migration.demote([checked_id("demote", id)])[id]

    def pin(self, id: str) -> None:
        """Protect a memory from retention rules."""
        self._set_pin("pin", id)

    def unpin(self, id: str) -> None:
        """Undo `pin`."""
        self._set_pin("unpin", id)

    def _set_pin(self, verb: str, id: str) -> None:
        self._require(verb, id)
        with self.store.transaction() as transaction:
            transaction.pin(id, verb == "pin")

    def _require(self, verb: str, id: str) -> Record:
        record = self.store.get(checked_id(verb, id))
        if record is None:
            raise NotFound(f"there is no memory with the id {id!r}")
        return record

    # -- forgetting ------------------------------------------------------------------------------------

    def forget(
        self, /, id: str | Iterable[str] | None = None, *, timeout_s: float = 10.0, **filters: Unpack[Filters]
    ) -> ForgetReceipt:
        """Remove memories for good: every version, every index entry, everything derived from them.

        Takes an id, several ids, or filters. The receipt counts what was removed; it is falsy if nothing matched.
        Existing backups, snapshots and exports still contain the memories.
        """
        if id is not None:
            if not isinstance(id, Iterable):
                raise InvalidInput(f"forget() takes an id or several ids, not {type(id).__name__}")
            filters["ids"] = [id] if isinstance(id, str) else [*id]
        filters["history"] = True
        wanted = Filter.of("forget", **filters)
        if not replace(wanted, where=wanted.where or None, history=False).narrows:
            raise InvalidInput("forget() needs an id or a filter, so that nothing is forgotten by accident")
        checked_number(timeout_s, "forget(timeout_s=)", 0)
        self.tiers.clear_cache()
        receipt = self.store.forget(wanted, timeout_s)
        if self._mirror is not None:
            self._mirror.forgotten()
        return receipt

    def forget_entries(
        self, scope: str, *, owner: str | None = None, key: str | None = None, timeout_s: float = 10.0
    ) -> int:
        """Forget the values of a scope (`local`, `shared`, `global`) or of pools (`pool`) for good, with their
        history.

        `owner` is a node or the id of a pool; without it, all owners. With `key`, only that key. Returns the number
        of keys that had a value. The key itself stays, without a value, until its namespace is forgotten.
        """
        checked_number(timeout_s, "forget_entries(timeout_s=)", 0)
        return self.store.forget_entries(scope, owner=owner, key=key, timeout_s=timeout_s)

    def namespaces(self) -> tuple[str, ...]:
        """The names of the namespaces in the file. For a memory opened with `all_namespaces=True`."""
        return tuple(self.store.namespaces())

    def forget_namespace(self, name: str, timeout_s: float = 10.0) -> ForgetReceipt:
        """Forget a namespace for good: its memories, entries, blobs, settings and name.

        For a memory opened with `all_namespaces=True`. A memory that is open on that namespace can no longer write.
        Raises `NotFound` if there is no such namespace. It rewrites the whole file, as `vacuum` does.
        """
        checked_number(timeout_s, "forget_namespace(timeout_s=)", 0)
        return self.store.forget_namespace(name, timeout_s)

    @property
    def retention(self) -> Retention | None:
        """The retention rule; None if there is none, which is the default."""
        return self.store.retention

    def set_retention(self, retention: Retention | None) -> None:
        """Set the rule by which memories are forgotten automatically (off by default); None switches it off."""
        self.store.set_retention(retention)

    def apply_retention(self) -> ForgetReceipt:
        """Apply the retention rule now. The background worker does so by itself."""
        return self.store.apply_retention()

    # -- maintenance ------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Load what the first recall and the first prompt of a process need: the model, word lists, indexes, code.

        It writes nothing, counts no use and contacts no server. An embedder is loaded by its own `warm_up`, if it has
        one. Calling it is optional. `loom.open(..., warm_up=True)` does it in a thread.
        """
        load = getattr(self.embedder, "warm_up", None)
        if load is not None:
            load()
        embedder = None if load is None else self.embedder
        recall(self.store, _WARMING, limit=1, wanted=_NOT_DERIVED, embedder=embedder, node=self.node_id)
        self.counter.count(_WARMING)
        import_module("loom.context.defaults")

    def _warm_up_unseen(self) -> None:
        try:
            self.warm_up()
        except Closed:
            return
        except LoomError as error:  # the first recall raises it for its caller
            log.warning("node %s could not warm up (%s)", self.node_id, type(error).__name__)

    def flush(self, timeout_s: float | None = None) -> FlushReport:
        """Wait until everything committed before this call is embedded and indexed."""
        if_given(checked_number, timeout_s, "flush(timeout_s=)", 0)
        return self.store.flush(timeout_s)

    def check(self, repair: bool = True) -> CheckReport:
        """Verify everything that is stored. Rebuild what can be rebuilt."""
        return self.store.check(repair)

    def backup(self, path: str | Path) -> None:
        """Write a consistent copy of the file while others continue to use it."""
        self.store.backup(checked_path(path, "the path of backup()"))

    def snapshot(
        self,
        path: str | Path,
        *,
        parent: str | Path | None = None,
        namespaces: Sequence[str] | None = None,
    ) -> Snapshot:
        """Write this memory to a `.hctx` file, compressed and checksummed, while others continue to use it.

        It holds all tiers, versions, uses, facts, entries and vectors of its namespace, or of the namespaces named.
        With a `parent`, only the changes since that snapshot; restoring then needs the whole chain. `loom.restore`
        makes a new memory file from it. Memories that are forgotten later stay in the snapshot.
        """
        from loom.snapshots.taking import take

        return take(self.store, path, parent=parent, namespaces=namespaces)

    def restore(
        self,
        snapshot: str | Path | Sequence[str | Path],
        *,
        namespace: str | None = None,
        forgotten: bool = False,
    ) -> Restored:
        """Add the content of a snapshot to this memory: all of it, or nothing if an error occurs.

        Several paths are a chain, the full snapshot first. `namespace` names the namespace in the snapshot if there
        are several or it has another name. Content that is already present is not duplicated. An id with another text
        in this memory raises `IdConflict`. Content that this memory has forgotten since stays forgotten, unless
        `forgotten` is True.
        """
        from loom.snapshots.merging import restore_into

        return restore_into(
            self.store,
            snapshot,
            namespace=namespace,
            forgotten=forgotten,
            without=(LAYOUTS,),  # layouts contain sequence numbers, which differ here
            then=self.tiers.make_room_of,
        )

    def archive(self, before: datetime | str | None = None) -> ArchiveStats:
        """Compress the text of everything stored before a time (default: now). Reads are unaffected.

        A memory also does this by itself after `archive_after_days`. The next `vacuum` shrinks the file.
        """
        return self.store.archive(if_given(checked_time, before, "before"))

    def vacuum(self) -> int:
        """Return free space to the disk and compact the index. Returns the number of bytes by which the file
        shrank."""
        return self.store.vacuum()

    def get_stats(self) -> dict[str, Any]:
        """Usage, budget and count of each tier, the backlog and the store's counts, as stored now.

        `backlog` counts queued work (embedding: until it is done, L4 cannot be searched by meaning). `set_aside`
        names the records that background work gave up, with the reason. `lost` is the range of sequence numbers that
        are known to have been committed and are gone, or None. `l2_hit_rate` is None until something was read; it is
        counted in profiles that admit by use.
        """
        usage, budgets = self.store.usage(self.node_id), self.tiers.rules().budgets
        stats: dict[str, Any] = {}
        for tier in MemoryTier:
            held = usage.get(tier, Usage())
            stats |= {
                f"{tier}_token_usage": held.tokens,
                f"{tier}_token_budget": budgets[tier],
                f"{tier}_items": held.items,
            }
        working = usage.get(MemoryTier.L2, Usage())
        lookups = working.hits + working.misses
        counts = self.store.stats()
        archive = self.store.archived()
        return {
            **stats,
            "l2_hits": working.hits,
            "l2_misses": working.misses,
            "l2_hit_rate": working.hits / lookups if lookups else None,
            "backlog": counts["jobs"],
            **counts,
            "set_aside": self.store.set_aside(),
            "lost": self.store.lost,
            "archived": archive.records,
            "archive_ratio": round(archive.ratio, 2) if archive.records else None,
            **self.monitor.as_dict(),
            **self.verdicts.as_dict(),
        }

    def close(self) -> None:
        """Stop listening, and close the store if this memory opened it. Safe to call twice."""
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None
        warming, self._warming = self._warming, None
        if warming is not None and warming is not threading.current_thread():
            warming.join(self.settings.close_timeout_s)
        self.store.remove_chores(self, self.migration, self._controller)
        if self._owns_store:
            self.store.close()

    def __repr__(self) -> str:
        store = self.store
        return f"<{type(self).__name__} {self.node_id!r} {store.location} namespace={store.namespace!r}>"


def checked_id(verb: str, given: object, what: str = "an id") -> str:
    """A text that was given to a verb as an id or a question."""
    if not isinstance(given, str):
        raise InvalidInput(f"{verb}() takes {what}, and {what} must be a text, not {type(given).__name__}")
    return given


def _mirror_of(store: Store, vectors: VectorStoreProvider) -> VectorMirror:
    from loom.memory.vector_mirror import VectorMirror

    return VectorMirror(store, vectors)


def checked_store(store: object) -> Any:
    """A store that is already open; a memory is not one."""
    if isinstance(store, type) or not all(hasattr(store, name) for name in ("transaction", "update_settings")):
        raise InvalidInput(
            f"a store is a path, a store that is open (memory.store), or None for one in this process, not "
            f"{type(store).__name__}"
        )
    return store


def _check_options(name: str, given: Iterable[str]) -> None:
    known = MemoryOptions.__optional_keys__ | SETTINGS.keys()
    for option in given:
        if option not in known:
            raise InvalidInput(
                f"{name}() has no option {option!r}; {closest(option, known)}the options are "
                f"{', '.join(sorted(known))}"
            )


def _open_store(path: str | Path | None, settings: Settings, clock: Clock, all_namespaces: bool) -> Store:
    return open_store(
        path,
        namespace=settings.namespace,
        read_only=settings.read_only,
        durability=settings.durability,
        busy_timeout_s=settings.busy_timeout_s,
        close_timeout_s=settings.close_timeout_s,
        tail=(settings.index_tail_records, settings.index_tail_bytes),
        lease_s=settings.lease_s,
        archive_after_days=settings.archive_after_days or None,
        clock=clock,
        all_namespaces=all_namespaces,
        file_mode=int(settings.file_mode, 8),
    )


def _agree(store: Store, wanted: Settings, reconfigure: bool, tiers_under: Callable[[Settings], Tiers]) -> Settings:
    """The settings of this node, the same in every process that has the file open.

    Budgets may be smaller than before: records that must leave do so in the transaction that changes the budgets.
    """
    agreed = wanted

    def decide(stored: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal agreed
        agreed = wanted.agree_with(stored, reconfigure=reconfigure)
        return agreed.for_store()

    store.update_settings(wanted.node_id, decide, lambda transaction: tiers_under(agreed).make_room(transaction))
    return agreed


def _choose_embedder(
    store: Store, settings: Settings, given: EmbeddingProvider | str | None, reconfigure: bool
) -> EmbeddingProvider | None:
    """The embedder of this process. A default embedder is replaced by the one with which the file was embedded."""
    asked = (given is not None and given != "auto") or (
        settings.is_given("embedder") and settings.embedder not in ("auto", "none")
    )
    provider = embedder_from_name(settings.embedder) if given is None or isinstance(given, str) else given
    if provider is None:
        return None

    try:
        store.use_embedder(
            provider.name,
            provider.dimensions,
            lambda texts: embed_texts(provider, texts),
            reconfigure=reconfigure and asked,
        )
    except SettingsConflict:
        if asked:
            raise
        return None
    # A read-only store may have no embeddings, or those of another model.
    return provider if store.space == (provider.name, provider.dimensions) else None
