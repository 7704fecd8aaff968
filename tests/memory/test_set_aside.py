"""A record that background work cannot handle: it is set aside and named, and the work on the others continues."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

import loom
from loom.errors import LanguageModelError
from loom.index.analysis import index_terms
from loom.knowledge.extraction import FactExtractor
from loom.knowledge.summarizer import Summarizer
from loom.memory import CompactionConfig
from loom.memory.derivation import Derivation
from loom.models.embedders import FakeEmbedder
from loom.storage import blocks
from loom.storage.contract import MAX_ATTEMPTS, Draft, Filter, FlushReport, Record, Retention
from loom.storage.sqlite import archive, projections
from loom.storage.sqlite.store import SqliteStore
from loom.text.tokens import TiktokenCounter
from loom.tiers.jobs import MigrationTrigger, QueuedMove
from loom.tiers.migration import Tiers
from loom.types import MemoryTier

GOOD = "We decided to use PostgreSQL for the orders service because it has row-level security."
AFTER = "I live in Berlin."
BAD = "This one breaks the work."


def flushed(memory: loom.Memory) -> FlushReport:
    """Flush until every retry was made: each flush is one attempt."""
    for _ in range(MAX_ATTEMPTS):
        report = memory.flush()
    return report


def found(memory: loom.Memory, id: str) -> Record:
    record = memory.store.get(id)
    assert record is not None
    return record


def damage(path: Path, id: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE records SET content = 'altered' WHERE id = ?", (id,))
        connection.commit()


def assert_named(memory: loom.Memory, id: str, kind: str) -> None:
    report = flushed(memory)
    assert report.failed == {kind: 1}
    assert not report.complete
    (named,) = report.set_aside
    assert repr(id) in named
    assert kind in named
    assert memory.check(repair=False).set_aside == report.set_aside
    assert memory.get_stats()["set_aside"] == list(report.set_aside)


class TestDerivation:
    def test_goes_on_after_a_task_without_parameters(self, tmp_path: Path) -> None:
        with loom.open(tmp_path / "a.loom", embedder="none") as memory:
            memory.remember(loom.Task(action="node.thinking"))
            memory.remember(GOOD, role="user", name="Ana")
            assert memory.flush().complete
            assert any("PostgreSQL" in fact.content for fact in memory.facts())

    def test_goes_on_after_a_record_that_cannot_be_read_for_facts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = FactExtractor.extract_with_mentions

        def draw(self: FactExtractor, source: Any, **given: Any) -> Any:
            if source.content == BAD:
                raise KeyError("no such thing")
            return original(self, source, **given)

        monkeypatch.setattr(FactExtractor, "extract_with_mentions", draw)
        with loom.open(tmp_path / "a.loom", embedder="none") as memory:
            bad = memory.remember(BAD, role="user", name="Ana").id
            memory.remember(GOOD, role="user", name="Ana")
            assert_named(memory, bad, "derive")
            assert any("PostgreSQL" in fact.content for fact in memory.facts())
        monkeypatch.undo()
        with loom.open(tmp_path / "a.loom", embedder="none") as memory:  # another process may succeed
            assert memory.flush().complete

    def test_goes_on_after_a_record_whose_facts_cannot_be_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = Derivation.learn

        def learn(self: Derivation, transaction: Any, fact: Any, source: Any, lenders: Sequence[str] = ()) -> Any:
            if source.content == AFTER:
                raise RuntimeError("not this one")
            return original(self, transaction, fact, source, lenders)

        monkeypatch.setattr(Derivation, "learn", learn)
        with loom.open(tmp_path / "a.loom", embedder="none") as memory:
            bad = memory.remember(AFTER, role="user", name="Ana").id
            memory.remember(GOOD, role="user", name="Ana")
            assert_named(memory, bad, "derive")
            assert any("PostgreSQL" in fact.content for fact in memory.facts())

    def test_goes_on_after_a_damaged_record(self, tmp_path: Path) -> None:
        path = tmp_path / "a.loom"
        with loom.open(path, embedder="none", derive=False) as memory:
            bad = memory.remember(AFTER, role="user", name="Ana", session_id="s").id
            memory.remember(GOOD, role="user", name="Ana", session_id="s")
        damage(path, bad)
        with loom.open(path, embedder="none") as memory:
            report = flushed(memory)
            assert report.failed == {"count": 1, "derive": 1}
            assert any("PostgreSQL" in fact.content for fact in memory.facts())

    def test_says_that_a_model_does_not_answer_and_sets_nothing_aside(self, tmp_path: Path) -> None:
        def unanswered(prompt: str) -> str:
            raise LanguageModelError("it is down")

        with loom.open(tmp_path / "a.loom", embedder="none", llm=unanswered) as memory:
            memory.remember(GOOD, role="user", name="Ana")
            report = memory.flush()
            assert not report.complete
            assert report.failed == {}
            assert any("LanguageModelError" in one for one in report.errors)


class TestWhatStandsForOthers:
    """Summaries in the place of a stretch, and records that have their places back."""

    BUDGETS: ClassVar[dict[str, Any]] = {"l1_token_budget": 300, "l2_token_budget": 400, "l3_token_budget": 2_000}

    @staticmethod
    def talk(memory: loom.Memory, session: str) -> None:
        for number in range(40):
            text = (
                f"We decided to run job {number} of {session} on BLUE because the red one has no room left.",
                f"Job {number} failed with TimeoutError after {number + 30} s; raising the limit to 120 fixed it.",
                "Right, let me think about this for a moment, I am not sure yet what we could do, it is a long day.",
                "Okay! That sounds fine to me, thanks a lot, and by the way the coffee here has become really good.",
            )[number % 4]
            memory.remember(text, role="user", name="Ana", session_id=session, importance=0.7)

    def test_summaries_go_on_after_a_stretch_that_cannot_be_summed_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = Summarizer.summarize

        def summarize(self: Summarizer, turns: Sequence[Any], **given: Any) -> Any:
            if any("of second" in str(turn) for turn in turns):
                raise KeyError("no such thing")
            return original(self, turns, **given)

        monkeypatch.setattr(Summarizer, "summarize", summarize)
        config = CompactionConfig(trigger_threshold=0.2, target_ratio=0.05, cooldown_seconds=0)
        with loom.open(tmp_path / "a.loom", embedder="none", compaction=config, **self.BUDGETS) as memory:
            for session in ("first", "second", "third"):
                self.talk(memory, session)
            report = flushed(memory)
            summed_up = {one.session_id for one in memory.summaries()}
            assert "third" in summed_up
            assert "second" not in summed_up
            assert set(report.failed) == {"compact"}
            assert not report.complete
            assert all("compact failed" in named for named in report.set_aside)
            bad = memory.store.scan(Filter(session_id="second", derived=False), limit=100).records
            assert any(repr(record.id) in report.set_aside[0] for record in bad)
            assert memory.check(repair=False).set_aside == report.set_aside
            monkeypatch.undo()
            memory.compact()
            assert {one.session_id for one in memory.summaries()} >= {"second", "third"}
            assert memory.flush().complete

    def test_places_are_given_back_beside_a_record_that_cannot_have_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = CompactionConfig(enabled=False, target_ratio=0.05)
        with loom.open(tmp_path / "a.loom", embedder="none", compaction=config, **self.BUDGETS) as memory:
            self.talk(memory, "first")
            memory.flush()
            assert memory.compact().summaries
            summary = memory.summaries()[0]
            gone, bad, *others = summary.sources
            seq = found(memory, bad).seq
            original = Tiers.restore_residency

            def restore(self: Tiers, transaction: Any, records: Sequence[Record]) -> Any:
                if seq in [record.seq for record in records]:
                    raise RuntimeError("not this one")
                return original(self, transaction, records)

            monkeypatch.setattr(Tiers, "restore_residency", restore)
            memory.forget(gone)  # the summary goes with it
            assert_named(memory, bad, "restore")
            held = {one.id for one in memory.store.scan(Filter(tier="l3"), limit=1000).records}
            assert set(others) <= held
            assert bad not in held


class TestMergingFacts:
    def test_goes_on_after_facts_that_cannot_be_merged(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        original = Tiers.replace

        def replace(self: Tiers, transaction: Any, draft: Draft, *rest: Any) -> Any:
            if "caching" in draft.content:
                raise RuntimeError("not this one")
            return original(self, transaction, draft, *rest)

        monkeypatch.setattr(Tiers, "replace", replace)
        with loom.open(tmp_path / "a.loom", embedder=FakeEmbedder(), l4_fact_limit=4) as memory:
            said = ("makes reads quick", "makes reads very quick", "makes all reads quick", "makes our reads quick")
            for topic in ("caching", "batching", "paging"):
                for one in said:
                    memory.add_fact(f"{topic} of the whole catalogue {one}", confidence=0.7)
            report = flushed(memory)
            merged = [fact.content for fact in memory.facts(limit=100) if len(fact.sources) > 1]
            assert any("batching" in content for content in merged)
            assert not any("caching" in content for content in merged)
            assert set(report.failed) == {"merge"}
            assert memory.check(repair=False).set_aside == report.set_aside
            assert memory.store.count(Filter(tier="l4", kind="fact")) <= 4


class TestMoves:
    def test_go_on_after_one_that_cannot_be_made(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
            ids = [memory.remember(f"The number {number} is remembered.").id for number in range(4)]
            store = memory.store
            seqs = [found(memory, id).seq for id in ids]
            original = Tiers.promote_records

            def promote(self: Tiers, transaction: Any, records: Sequence[int], *rest: Any, **given: Any) -> Any:
                if seqs[1] in records:
                    raise RuntimeError("not this one")
                return original(self, transaction, records, *rest, **given)

            monkeypatch.setattr(Tiers, "promote_records", promote)
            migration, node = memory.manager.migration, memory.manager.node_id
            with store.transaction() as transaction:
                transaction.leave(seqs, "l2", node, "removed")
            with store.transaction() as transaction:
                move = QueuedMove(MemoryTier.L4, MemoryTier.L2, MigrationTrigger.EXPLICIT_ACCESS, 50, 0, 2**51)
                migration.enqueue_move(transaction, seqs, move)
            report = flushed(memory)
            assert sum(report.failed.values()) == 1
            assert repr(ids[1]) in report.set_aside[0]
            assert [store.resides(seq, "l2", node) for seq in seqs] == [True, False, True, True]


class TestStoreWork:
    def test_counting_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        original = TiktokenCounter.count

        def count(self: TiktokenCounter, text: str) -> int:
            if text == BAD:
                raise RuntimeError("not this one")
            return int(original(self, text))

        monkeypatch.setattr(TiktokenCounter, "count", count)
        with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
            counter = memory.manager.counter
            assert isinstance(counter, TiktokenCounter)
            bad = memory.remember(BAD).id
            good = memory.remember(GOOD).id
            assert_named(memory, bad, "count")
            assert found(memory, good).tokens == original(counter, GOOD)
            assert found(memory, bad).tokens >= 1  # the largest that it can be, until it is counted
            assert [hit.id for hit in memory.recall("PostgreSQL")] == [good]

    def test_indexing_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        original = index_terms

        def analyse(name: Any, role: Any, at: Any, metadata: Any, content: str, holds: int = 0) -> list[str]:
            if content == BAD:
                raise RuntimeError("not this one")
            return original(name, role, at, metadata, content, holds)

        monkeypatch.setattr(projections, "index_terms", analyse)
        limits = SqliteStore(tmp_path / "a.loom", tail=projections.TailLimit(records=2))
        with closing(limits), loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
            bad = memory.remember(BAD).id
            good = [memory.remember(f"{GOOD} {number}").id for number in range(3)]
            assert {hit.id for hit in memory.recall("PostgreSQL")} == {*good}
            report = flushed(memory)
            assert report.failed == {"index": 1}
            assert repr(bad) in report.set_aside[0]
            assert memory.get_stats()["indexed"] >= 3  # beyond the bad one; the last may be in the tail
            assert {hit.id for hit in memory.recall("PostgreSQL")} == {*good}
            assert memory.check().ok

    @pytest.mark.parametrize("column", ["content", "data"])
    def test_archiving_goes_on_after_bytes_that_are_no_text(self, tmp_path: Path, column: str) -> None:
        path = tmp_path / "a.loom"
        texts = {f"n{number}": f"{GOOD} {number}" for number in range(6)}
        with loom.open(path, embedder="none", derive=False) as memory:
            for id, text in texts.items():
                memory.remember(text, id=id)
            assert memory.flush().complete
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"UPDATE records SET {column} = CAST(x'ff{'20' * 40}fe' AS TEXT) WHERE id = 'n2'")
            connection.commit()
        with loom.open(path, embedder="none", derive=False) as memory:
            assert memory.store.archive().records == 5
            report = memory.flush()
            assert report.failed == {"archive": 1}
            (named,) = report.set_aside
            assert "'n2'" in named
            assert "archive" in named
            assert any("'n2'" in problem for problem in memory.check(repair=False).problems)
            assert memory.get_stats()["set_aside"] == list(report.set_aside)
            for id, text in texts.items():
                if id != "n2":
                    assert found(memory, id).content == text
            memory.remember(f"{GOOD} later", id="later")
            assert memory.store.archive().records == 6

    def test_archiving_goes_on_after_a_text_that_cannot_be_compressed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = blocks.compress

        def compress(texts: Sequence[Any], *given: Any) -> Any:
            if any(text.content.startswith(BAD) for text in texts):
                raise RuntimeError("not this one")
            return original(texts, *given)

        monkeypatch.setattr(archive, "compress", compress)
        with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
            for number in range(5):
                memory.remember(f"{GOOD} {number}")
            bad = memory.remember(f"{BAD} It has as many words as the others.").id
            for number in range(5, 9):
                memory.remember(f"{GOOD} {number}")
            assert memory.store.archive().records == 9
            assert_named(memory, bad, "archive")
            monkeypatch.undo()
            assert memory.store.archive().records == 10  # to ask for it is another attempt
            assert memory.flush().complete
            assert found(memory, bad).content.startswith(BAD)
            assert memory.check().ok

    def test_a_block_whose_texts_do_not_come_back_is_not_stored(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = blocks.compress

        def compress(texts: Sequence[Any], *given: Any) -> Any:
            changed = [
                text._replace(content=text.content.replace("words", "WORDS"))
                if text.content.startswith(BAD)
                else text
                for text in texts
            ]
            return original(changed, *given)

        monkeypatch.setattr(archive, "compress", compress)
        with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
            for number in range(5):
                memory.remember(f"{GOOD} {number}")
            text = f"{BAD} It has as many words as the others."
            bad = memory.remember(text).id
            assert memory.store.archive().records == 5
            assert_named(memory, bad, "archive")
            assert found(memory, bad).content == text
            monkeypatch.undo()
            assert memory.store.archive().records == 6
            assert found(memory, bad).content == text
            assert memory.check().ok


def make_unreadable(path: Path, id: str, column: str = "content") -> None:
    """Give a record bytes that are no text, as damage of the file does. SQLite cannot give them as text."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE records SET {column} = CAST(x'ff61' AS TEXT) WHERE id = ?", (id,))
        connection.commit()


class TestRecordsWithBytesThatAreNoText:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
            memory.remember(BAD, id="bad")
            for number in range(4):
                memory.remember(f"{GOOD} {number}", id=f"good {number}")
        return tmp_path / "a.loom"

    @pytest.mark.parametrize("column", ["content", "name", "metadata", "role"])
    def test_indexing_and_counting_go_on(self, path: Path, column: str) -> None:
        make_unreadable(path, "bad", column)
        limits = SqliteStore(path, tail=projections.TailLimit(records=2))
        with closing(limits), loom.open(path, embedder="none", derive=False) as memory:
            report = flushed(memory)
            assert report.failed == {"count": 1, "index": 1}
            assert all("'bad'" in named for named in report.set_aside)
            assert memory.get_stats()["indexed"] == 5
            assert memory.get_stats()["set_aside"] == list(report.set_aside)
            assert memory.check(repair=False).set_aside == report.set_aside
            assert found(memory, "good 1").tokens > 0
            assert {hit.id for hit in memory.recall("PostgreSQL")} == {f"good {number}" for number in range(4)}

    def test_a_tail_with_such_a_record_is_searched(self, path: Path) -> None:
        make_unreadable(path, "bad")
        with loom.open(path, embedder="none", read_only=True) as memory:
            assert {hit.id for hit in memory.recall("PostgreSQL")} == {f"good {number}" for number in range(4)}

    @pytest.mark.parametrize("column", ["content", "name", "metadata"])
    def test_embedding_goes_on(self, path: Path, column: str) -> None:
        make_unreadable(path, "bad", column)
        with loom.open(path, embedder=FakeEmbedder(), derive=False) as memory:
            report = flushed(memory)
            assert report.failed == {"count": 1, "embed": 1}
            assert all("'bad'" in named for named in report.set_aside)
            assert memory.get_stats()["set_aside"] == list(report.set_aside)
            assert len(memory.store.vectors([found(memory, "good 3").seq])) == 1

    def test_retention_goes_on_after_an_id_that_is_no_text(self, path: Path) -> None:
        make_unreadable(path, "bad", "id")
        for _ in range(MAX_ATTEMPTS):  # a process applies the rule once a minute
            with loom.open(path, embedder="none", derive=False) as memory:
                memory.store.set_retention(Retention(max_records=2))
                report = memory.flush()
                assert [memory.get(f"good {number}") is None for number in range(4)] == [True, True, False, False]
        assert report.failed["retain"] == 1
        assert any("(number" in named and "retain failed" in named for named in report.set_aside)
