"""A memory under arbitrary use, compared with a plain dictionary with the same content: they always agree."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import loom
from loom.errors import IdConflict
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from tests.postgres_server import new_store_url

IDS = [f"id{number}" for number in range(8)]
SIZES = st.sampled_from([0, 0, 3, 40, 900, 6000])


@dataclass
class Kept:
    """The model's state of one id: its texts, oldest first, each with a word of its own."""

    texts: list[str]
    words: list[str]
    session: str
    pinned: bool = False


@dataclass
class Model:
    kept: dict[str, Kept] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def copy(self) -> Model:
        kept = {
            key: Kept(list(one.texts), list(one.words), one.session, one.pinned) for key, one in self.kept.items()
        }
        return Model(kept, list(self.order))

    def written(self, record_id: str) -> None:
        if record_id in self.order:
            self.order.remove(record_id)
        self.order.append(record_id)


class MemoryMachine(RuleBasedStateMachine):
    """Remember, update, forget, pin, flush, reopen, back up and restore, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="loom-machine-"))
        self.model = Model()
        self.saved: Model | None = None
        self.words = 0
        self.forgotten: list[str] = []
        self.memory: Memory

    @initialize(in_file=st.booleans(), embedded=st.booleans(), tail=st.sampled_from([1, 3, 7]))
    def open_it(self, in_file: bool, embedded: bool, tail: int) -> None:
        self._begin(in_file, embedded, tail)

    def _begin(self, in_file: bool, embedded: bool, tail: int) -> None:
        self.path = self.folder / "a.loom" if in_file else None
        self.embedder = FakeEmbedder(16) if embedded else "none"
        self.tail = tail
        self.memory = self._opened()

    def place(self) -> Path | str | None:
        """The location of the memory."""
        return self.path

    def _opened(self) -> Memory:
        return loom.open(self.place(), embedder=self.embedder, index_tail_records=self.tail)

    def _word(self) -> str:
        """A word of letters only, never used before: one term, and a mark in the bytes."""
        self.words += 1
        return "zq" + "".join(chr(ord("a") + int(digit)) for digit in f"{self.words:05}") + "jx"

    def _text(self, word: str, size: int) -> str:
        return f"harbour {word} " + "lorem ipsum dolor " * (size // 18)

    @rule(record_id=st.sampled_from(IDS), session=st.sampled_from(["s1", "s2"]), size=SIZES)
    def remember(self, record_id: str, session: str, size: int) -> None:
        word = self._word()
        text = self._text(word, size)
        if record_id in self.model.kept:
            try:
                self.memory.remember(text, id=record_id, session_id=session)
            except IdConflict:
                return
            raise AssertionError("another text under an id that exists was taken")
        receipt = self.memory.remember(text, id=record_id, session_id=session)
        assert (receipt.id, receipt.version, receipt.created) == (record_id, 1, True)
        self.model.kept[record_id] = Kept([text], [word], session)
        self.model.written(record_id)

    @rule(record_id=st.sampled_from(IDS))
    def remember_again(self, record_id: str) -> None:
        if kept := self.model.kept.get(record_id):
            receipt = self.memory.remember(kept.texts[-1], id=record_id)
            assert (receipt.version, receipt.created) == (len(kept.texts), False)

    @rule(record_id=st.sampled_from(IDS), size=SIZES)
    def update(self, record_id: str, size: int) -> None:
        if kept := self.model.kept.get(record_id):
            word = self._word()
            kept.texts.append(self._text(word, size))
            kept.words.append(word)
            assert self.memory.update(record_id, kept.texts[-1]).version == len(kept.texts)
            self.model.written(record_id)

    @rule(record_ids=st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True))
    def forget(self, record_ids: list[str]) -> None:
        gone = [record_id for record_id in record_ids if record_id in self.model.kept]
        versions = sum(len(self.model.kept[record_id].texts) for record_id in gone)
        receipt = self.memory.forget(record_ids)
        assert sorted(receipt.ids) == sorted(gone)
        assert receipt.records == versions
        for record_id in gone:
            self.forgotten += self.model.kept.pop(record_id).words
            self.model.order.remove(record_id)

    @rule(session=st.sampled_from(["s1", "s2"]))
    def forget_a_session(self, session: str) -> None:
        gone = [record_id for record_id, kept in self.model.kept.items() if kept.session == session]
        assert sorted(self.memory.forget(session_id=session).ids) == sorted(gone)
        for record_id in gone:
            self.forgotten += self.model.kept.pop(record_id).words
            self.model.order.remove(record_id)

    @rule(record_id=st.sampled_from(IDS), pinned=st.booleans())
    def pin(self, record_id: str, pinned: bool) -> None:
        if kept := self.model.kept.get(record_id):
            (self.memory.pin if pinned else self.memory.unpin)(record_id)
            kept.pinned = pinned

    @rule(most=st.integers(1, 4))
    def retain(self, most: int) -> None:
        self.memory.set_retention(loom.Retention(max_records=most))
        loose = [record_id for record_id in self.model.order if not self.model.kept[record_id].pinned]
        gone = loose[:-most]
        # The background worker may have been there first.
        assert set(self.memory.apply_retention().ids) <= set(gone)
        self.memory.set_retention(None)
        for record_id in gone:
            self.forgotten += self.model.kept.pop(record_id).words
            self.model.order.remove(record_id)

    @rule()
    def flush(self) -> None:
        assert self.memory.flush().complete

    @rule()
    def vacuum(self) -> None:
        self.memory.vacuum()

    @precondition(lambda self: self.path is not None)
    @rule()
    def reopen(self) -> None:
        self.memory.close()
        self.memory = self._opened()

    @precondition(lambda self: self.path is not None)
    @rule()
    def lose_the_index(self) -> None:
        self.memory.close()
        shutil.rmtree(self.folder / "a.loom-index", ignore_errors=True)
        self.memory = self._opened()

    @rule()
    def back_up(self) -> None:
        self.memory.backup(self.folder / "copy.loom")
        self.saved = self.model.copy()

    @precondition(lambda self: self.path is not None and self.saved is not None)
    @rule()
    def restore(self) -> None:
        assert self.saved is not None
        assert self.path is not None
        self.memory.close()
        for leftover in ("a.loom-wal", "a.loom-shm"):
            (self.folder / leftover).unlink(missing_ok=True)
        shutil.copy(self.folder / "copy.loom", self.path)
        self.model = self.saved.copy()
        self.forgotten = []
        self.memory = self._opened()

    @rule(record_id=st.sampled_from(IDS))
    def get_and_read_the_history(self, record_id: str) -> None:
        kept = self.model.kept.get(record_id)
        record = self.memory.get(record_id)
        history = self.memory.history(record_id)
        if kept is None:
            assert record is None
            assert history == []
            return
        assert record is not None
        assert (record.content, record.version, record.session_id) == (kept.texts[-1], len(kept.texts), kept.session)
        assert [one.content for one in history] == kept.texts
        assert [one.superseded_at is None for one in history] == [False] * (len(kept.texts) - 1) + [True]

    @rule(record_id=st.sampled_from(IDS))
    def recall_by_its_own_word(self, record_id: str) -> None:
        if kept := self.model.kept.get(record_id):
            assert self.memory.recall(kept.words[-1], limit=1)[0].id == record_id
            for old in kept.words[:-1]:
                assert all(old not in hit.content for hit in self.memory.recall(old, limit=10))
                assert self.memory.recall(old, limit=10, history=True)[0].id == record_id

    @rule(session=st.sampled_from(["s1", "s2"]))
    def recall_in_a_session(self, session: str) -> None:
        expected = {record_id for record_id, kept in self.model.kept.items() if kept.session == session}
        assert {hit.id for hit in self.memory.recall("harbour", limit=50, session_id=session)} == expected

    @invariant()
    def the_list_is_the_dictionary(self) -> None:
        if not hasattr(self, "memory"):
            return
        page = self.memory.list(limit=100, newest_first=False)
        assert [record.id for record in page.records] == self.model.order
        pinned = {record.id for record in self.memory.list(limit=100, pinned=True).records}
        assert pinned == {record_id for record_id, kept in self.model.kept.items() if kept.pinned}
        assert self.memory.get_stats()["records"] == sum(len(kept.texts) for kept in self.model.kept.values())

    def teardown(self) -> None:
        try:
            if hasattr(self, "memory"):
                for word in self.forgotten:
                    assert all(word not in hit.content for hit in self.memory.recall(word, history=True))
                report = self.memory.check()
                assert report.problems == ()
                self.memory.close()
                if self.path is not None:
                    content = self.path.read_bytes()  # closed, so no lock of ours can be lost
                    assert [word for word in self.forgotten if word.encode() in content] == []
        finally:
            shutil.rmtree(self.folder)


MemoryMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestMemoryMachine = MemoryMachine.TestCase


class MemoryMachineOnPostgres(MemoryMachine):
    """Without operations on files."""

    @initialize(embedded=st.booleans(), tail=st.sampled_from([1, 3, 7]))
    def open_it(self, embedded: bool, tail: int) -> None:
        self.url = new_store_url(self.folder)
        self._begin(False, embedded, tail)

    def place(self) -> Path | str | None:
        return self.url


@pytest.mark.usefixtures("postgres_server")
class TestMemoryMachineOnPostgres(MemoryMachineOnPostgres.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(MemoryMachine.TestCase.settings, max_examples=6)
