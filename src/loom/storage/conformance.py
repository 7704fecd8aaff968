"""The suite that every backend of the storage contract inherits.

    class TestMyStore(StoreConformance):
        def make_store(self, folder, namespace="default"):
            return MyStore(folder / "store", namespace=namespace)

Methods named `test_...` take a `folder` (an empty directory) and test the guarantees of `loom.storage.contract`. Any
runner that finds such methods can run them; this module imports no runner and no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Barrier, Event, Lock
from typing import Any

import numpy as np

from loom.errors import (
    Closed,
    IdConflict,
    InvalidInput,
    LoomError,
    StoreBusy,
    UnknownFilter,
    VersionConflictError,
    WrongDimension,
)
from loom.storage.contract import (
    AtMost,
    Dimensions,
    Draft,
    Entry,
    Filter,
    Page,
    Publish,
    Record,
    Store,
    Written,
)
from loom.storage.search_view import SearchView, search_text, search_vectors

__all__ = ["StoreConformance"]

NOON = datetime(2026, 2, 3, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _draft(record_id: str, content: str, **more: Any) -> Draft:
    return Draft(id=record_id, content=content, created_at=more.pop("created_at", NOON), **more)


def _in_another_thread(work: Callable[[], object]) -> None:
    """Run a function in another thread, and raise its exception here."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(work).result()


@contextmanager
def _raises(expected: type[BaseException], mention: str = "") -> Iterator[None]:
    caught: BaseException | None = None
    try:
        yield
    except expected as error:
        caught = error
    assert caught is not None, f"{expected.__name__} was not raised"
    assert mention in str(caught), f"{caught} does not mention {mention!r}"


def _with_store(test: Callable[[StoreConformance, Store], None]) -> Callable[[StoreConformance, Path], None]:
    """Run a test with the store of its folder, and close the store at the end."""

    def run(self: StoreConformance, folder: Path) -> None:
        with self.store(folder) as store:
            test(self, store)

    run.__name__ = test.__name__
    return run


class StoreConformance:
    """Inherit, override `make_store`, and run every `test_...` method with an empty folder."""

    dimensions = 8
    """The length of the vectors that the suite writes."""

    def make_store(self, folder: Path, namespace: str = "default") -> Store:
        """Open the store in a folder, which is empty at the first call. A second call opens the same store.

        A backend in memory may return a new store at each call; it must then set `durable` to False.
        """
        raise NotImplementedError

    durable = True
    """Whether `make_store` on the same folder finds earlier writes, and namespaces share a database."""

    @contextmanager
    def store(self, folder: Path, namespace: str = "default") -> Iterator[Store]:
        opened = self.make_store(folder, namespace)
        try:
            yield opened
        finally:
            opened.close()

    # -- helpers -----------------------------------------------------------------------------------

    @staticmethod
    def write(store: Store, *drafts: Draft) -> list[Written]:
        with store.transaction() as transaction:
            return transaction.append(drafts)

    @staticmethod
    def need(store: Store, record_id: str) -> Record:
        found = store.get(record_id)
        assert found is not None, f"{record_id} is missing"
        return found

    @staticmethod
    def put(store: Store, *place: Any, **more: Any) -> Entry:
        with store.transaction() as transaction:
            return transaction.put_entry(*place, **more)

    @staticmethod
    def need_entry(store: Store, key: str, **place: Any) -> Entry:
        found = store.entry(key, **place)
        assert found is not None, f"{key} is missing"
        return found

    @staticmethod
    def ids(page: Page) -> list[str]:
        return [record.id for record in page.records]

    @staticmethod
    def found(store: Store, words: dict[str, float], limit: int = 100, **filters: Any) -> list[str]:
        matches = search_text(store, words, limit, Filter.of(**filters))
        assert [match.score for match in matches] == sorted((match.score for match in matches), reverse=True)
        records = store.records(match.seq for match in matches)
        return [records[match.seq].id for match in matches]

    # -- records -----------------------------------------------------------------------------------

    @_with_store
    def test_a_record_is_given_back_exactly_as_it_was_written(self, store: Store) -> None:
        draft = Draft(
            id="x",
            content="Text\n with \x00 NUL, 汉字, \U0001f600 and 'quotes'",
            created_at=NOON + timedelta(microseconds=7),
            kind="fact",
            node="agent",
            session_id="s",
            role="user",
            name="Ana",
            trust="web",
            dimensions=Dimensions("subject", "state", "type"),
            importance=0.25,
            tokens=17,
            counter="counter",
            metadata={"a": [1, 2.5, None, True, "text"], "deep": {"b": {}}, "": "empty key"},
            data={"any": ["thing"]},
        )
        (written,) = self.write(store, draft)
        record = self.need(store, "x")
        assert (written.seq, written.version, written.created) == (record.seq, 1, True)
        for name in [
            "id",
            "content",
            "created_at",
            "kind",
            "node",
            "session_id",
            "role",
            "name",
            "trust",
            "dimensions",
            "importance",
            "tokens",
            "counter",
            "metadata",
            "data",
        ]:
            assert getattr(record, name) == getattr(draft, name), name
        assert record.version == 1
        assert record.superseded_at is None
        assert record.committed_at.utcoffset() == timedelta(0)
        assert store.records([record.seq, record.seq + 999]) == {record.seq: record}
        assert store.records([]) == {}

    @_with_store
    def test_a_record_that_is_counted_later_has_its_count_for_every_reader(self, store: Store) -> None:
        store.count_with({"words": lambda text: len(text.split())})
        drafts = [_draft(f"r{n}", "word " * n, tokens=AtMost(5 * n), counter="words", tier="l1") for n in (1, 2, 40)]
        written = self.write(store, *drafts, _draft("counted", "two words", tokens=2, tier="l1"))
        with store.transaction() as transaction:
            transaction.enter([one.seq for one in written], "l2", "default", "admitted")
        for _ in range(2):
            found = store.records(one.seq for one in written)
            assert [found[one.seq].tokens for one in written] == [1, 2, 40, 2]
            assert self.need(store, "r40").tokens == 40
            assert sorted(store.window("default")) == [(one.seq, found[one.seq].tokens) for one in written]
            usage = store.usage("default")
            assert (usage["l1"].tokens, usage["l2"].tokens) == (45, 45)
            assert store.original_tokens("default", "l2") == 45
            assert store.check().ok
            store.flush()

    @_with_store
    def test_a_record_that_replaces_others_in_a_tier_counts_as_their_newest_versions(self, store: Store) -> None:
        self.write(store, _draft("one", "first words", tokens=20), _draft("two", "second words", tokens=30))
        self.write(store, _draft("one", "first words, changed", tokens=50, revises=True))
        summary = _draft("both", "words", tokens=3, kind="summary", drawn=True, replaces=True)
        written = self.write(
            store, summary._replace(sources=("one", "two")), _draft("alone", "third words", tokens=7)
        )
        with store.transaction() as transaction:
            transaction.enter([one.seq for one in written], "l3", "default", "demoted", [3, 5])
        assert store.usage("default")["l3"].tokens == 8
        assert store.original_tokens("default", "l3") == 50 + 30 + 7

    @_with_store
    def test_numbers_only_grow_and_order_the_writes(self, store: Store) -> None:
        seqs = [self.write(store, _draft(f"r{number}", "text"))[0].seq for number in range(5)]
        seqs += [one.seq for one in self.write(store, *(_draft(f"b{number}", "text") for number in range(5)))]
        assert seqs == sorted(set(seqs))
        store.forget(Filter(ids=["b4"]))
        assert self.write(store, _draft("b4", "text"))[0].seq > seqs[-1]

    @_with_store
    def test_the_same_id_and_content_again_changes_nothing(self, store: Store) -> None:
        first = self.write(store, _draft("x", "text", data={"a": 1}))[0]
        again = self.write(store, _draft("x", "text", data={"a": 1}))[0]
        assert (again.seq, again.version, again.created) == (first.seq, 1, False)
        twice = self.write(store, _draft("y", "text"), _draft("y", "text"))
        assert [one.created for one in twice] == [True, False]
        assert store.count(Filter(history=True)) == 2

    @_with_store
    def test_other_content_under_an_id_is_a_conflict_unless_it_revises(self, store: Store) -> None:
        self.write(store, _draft("x", "one"))
        with _raises(IdConflict, "'x'"):
            self.write(store, _draft("x", "two"))
        with _raises(IdConflict):
            self.write(store, _draft("x", "one", data={"new": 1}))
        assert self.need(store, "x").content == "one"
        revised = self.write(store, _draft("x", "two", revises=True, created_at=NOON + HOUR))[0]
        assert (revised.version, revised.created) == (2, True)
        assert self.need(store, "x").content == "two"
        old, new = reversed(store.scan(Filter(ids=["x"], history=True)).records)
        assert (old.version, old.superseded_at) == (1, NOON + HOUR)
        assert (new.version, new.superseded_at) == (2, None)
        third, same = self.write(store, _draft("x", "three", revises=True), _draft("x", "three", revises=True))
        assert (third.version, same.created) == (3, False)
        assert store.count(Filter()) == 1

    @_with_store
    def test_an_error_in_the_middle_leaves_nothing(self, store: Store) -> None:
        self.write(store, _draft("taken", "text"))
        before = store.changes(0)
        with _raises(IdConflict):
            self.write(store, _draft("a", "text"), _draft("taken", "other"), _draft("b", "text"))
        with _raises(RuntimeError), store.transaction() as transaction:
            (written,) = transaction.append([_draft("c", "text")])
            transaction.enter([written.seq], "l2", "default")
            transaction.put_entry("key", 1, writer="w")
            transaction.put_blob("blob", b"bytes")
            transaction.pin("taken", True)
            transaction.enqueue("later", [written.seq])
            raise RuntimeError
        with _raises(InvalidInput), store.transaction() as transaction:
            transaction.append([_draft("d", "text")])
            transaction.append([_draft("e", "text", metadata={"bad": float("nan")})])
        assert store.changes(0) == before
        assert store.count(Filter(history=True)) == 1
        assert store.entry("key") is None
        assert store.blob("blob") is None
        assert self.ids(store.scan(Filter(pinned=True))) == []

    @_with_store
    def test_a_transaction_sees_its_own_writes(self, store: Store) -> None:
        with store.transaction() as transaction:
            transaction.append([_draft("x", "one")])
            transaction.append([_draft("x", "two", revises=True)])
            transaction.put_entry("key", 1, writer="w", expected_version=0)
            transaction.put_entry("key", 2, writer="w", expected_version=1)
        assert self.need(store, "x").version == 2
        assert self.need_entry(store, "key").version == 2

    @_with_store
    def test_a_reading_block_sees_one_moment_and_its_own_writes(self, store: Store) -> None:
        self.write(store, _draft("before", "one"))
        with store.reading(), store.reading():
            assert store.get("before") is not None
            _in_another_thread(lambda: self.write(store, _draft("meanwhile", "two")))
            if self.durable:
                assert store.get("meanwhile") is None
                assert store.count(Filter()) == 1
                assert self.found(store, {"two": 1.0}) == []
            self.write(store, _draft("own", "three"))
            assert store.get("own") is not None
            assert self.found(store, {"two": 1.0}) == ["meanwhile"]
        assert store.count(Filter()) == 3

    def test_what_is_committed_is_there_after_reopening(self, folder: Path) -> None:
        if not self.durable:
            return
        with self.store(folder) as store:
            self.write(store, _draft("x", "harbours"))
            with store.transaction() as transaction:
                transaction.put_entry("key", {"a": 1}, writer="w")
                transaction.put_blob("blob", b"bytes")
                transaction.pin("x", True)
            before = store.changes(0)
        with self.store(folder) as store:
            assert self.need(store, "x").content == "harbours"
            assert store.changes(0) == before
            assert store.blob("blob") == b"bytes"
            assert self.found(store, {"harbour": 1.0}) == ["x"]
            assert self.ids(store.scan(Filter(pinned=True))) == ["x"]

    @_with_store
    def test_reads_never_share_what_they_give(self, store: Store) -> None:
        given: dict[str, Any] = {"list": [1]}
        self.write(store, _draft("x", "text", metadata=given, data={"list": [1]}))
        given["list"].append(2)
        first = self.need(store, "x")
        assert first.metadata == {"list": [1]}
        first.metadata["list"].append(3)
        first.data["list"].append(3)
        assert self.need(store, "x").metadata == {"list": [1]}
        assert self.need(store, "x").data == {"list": [1]}

    # -- scanning ----------------------------------------------------------------------------------

    def _varied(self, store: Store) -> None:
        self.write(
            store,
            _draft("1", "harbour one", session_id="s1", role="user", name="Ana", importance=0.1, trust="user"),
            _draft("2", "harbour two", session_id="s2", kind="fact", importance=0.5, created_at=NOON + HOUR),
            _draft("3", "harbour three", node="other", trust="web", importance=0.9, created_at=NOON + 2 * HOUR),
            _draft(
                "4",
                "harbour four",
                dimensions=Dimensions("subject", "state", "type"),
                role="tool",
                created_at=NOON + 3 * HOUR,
                metadata={
                    "text": "red",
                    "number": 7,
                    "real": 2.5,
                    "yes": True,
                    "no": False,
                    "none": None,
                    "list": ["red", 7, True],
                    "deep": {"text": "red"},
                },
            ),
            _draft("5", "harbour five", metadata={"text": "7", "number": 0, "yes": 1, "list": []}),
        )
        with store.transaction() as transaction:
            transaction.enter([self.need(store, "1").seq, self.need(store, "2").seq], "l2", "default")
            transaction.enter([self.need(store, "2").seq], "l3", "default")
            transaction.enter([self.need(store, "3").seq], "l2", "other")
            transaction.enter([self.need(store, "5").seq], "l2", "default")
            transaction.leave([self.need(store, "5").seq], "l2", "default")
            transaction.pin("2", True)
            transaction.pin("3", True)
            transaction.pin("3", False)

    FILTERS: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "12345"),
        ({"ids": ["1", "3", "nobody"]}, "13"),
        ({"ids": []}, ""),
        ({"node": "other"}, "3"),
        ({"node": ["other", "default"]}, "12345"),
        ({"session_id": "s1"}, "1"),
        ({"session_id": ["s1", "s2"]}, "12"),
        ({"session_id": []}, ""),
        ({"tier": "l2"}, "123"),
        ({"tier": ["l3", "l4"]}, "2"),
        ({"kind": "fact"}, "2"),
        ({"role": "user"}, "1"),
        ({"role": ["user", "tool"]}, "14"),
        ({"name": "Ana"}, "1"),
        ({"trust": "web"}, "3"),
        ({"subject": "subject"}, "4"),
        ({"flow": "state"}, "4"),
        ({"layer": "type"}, "4"),
        ({"layer": "instance"}, "1235"),
        ({"min_importance": 0.5}, "2345"),
        ({"min_importance": 0.6}, "3"),
        ({"since": NOON + HOUR}, "234"),
        ({"until": NOON + HOUR}, "15"),
        ({"since": NOON + HOUR, "until": NOON + 3 * HOUR}, "23"),
        ({"pinned": True}, "2"),
        ({"pinned": False}, "1345"),
        ({"where": {"text": "red"}}, "4"),
        ({"where": {"text": ["red", "7"]}}, "45"),
        ({"where": {"text": 7}}, ""),
        ({"where": {"number": 7}}, "4"),
        ({"where": {"number": 7.0}}, "4"),
        ({"where": {"number": "7"}}, ""),
        ({"where": {"number": False}}, ""),
        ({"where": {"real": 2.5}}, "4"),
        ({"where": {"yes": True}}, "4"),
        ({"where": {"yes": 1}}, "5"),
        ({"where": {"no": False}}, "4"),
        ({"where": {"none": None}}, "4"),
        ({"where": {"list": "red"}}, "4"),
        ({"where": {"list": 7}}, "4"),
        ({"where": {"list": True}}, "4"),
        ({"where": {"list": "blue"}}, ""),
        ({"where": {"deep": "red"}}, ""),
        ({"where": {"absent": "red"}}, ""),
        ({"where": {"text": []}}, ""),
        ({"where": {"text": "red", "number": 7}}, "4"),
        ({"where": {"text": "red", "number": 8}}, ""),
        ({"where": {"text') OR 1=1 --": "red"}}, ""),
        ({"tier": "l2", "session_id": "s2", "pinned": True}, "2"),
    )
    """Filters and the ids of the five varied records that each admits."""

    @_with_store
    def test_every_filter_admits_what_it_says(self, store: Store) -> None:
        self._varied(store)
        for filters, expected in self.FILTERS:
            wanted = Filter.of(**filters)
            assert self.ids(store.scan(wanted, newest_first=False)) == list(expected), filters
            assert store.count(wanted) == len(expected), filters
            assert sorted(self.found(store, {"harbour": 1.0}, **filters)) == list(expected), filters

    @_with_store
    def test_a_filter_that_makes_no_sense_is_refused(self, store: Store) -> None:
        with _raises(UnknownFilter, "colour"):
            store.scan(Filter.of(colour="red"))
        bad: list[dict[str, Any]] = [
            {"where": {"a": {"b": 1}}},
            {"where": {"a": object()}},
            {"session_id": [7]},
            {"since": datetime(2026, 1, 1)},  # noqa: DTZ001
            {"known_at": datetime(2026, 1, 1)},  # noqa: DTZ001
        ]
        for filters in bad:
            with _raises(InvalidInput):
                store.scan(Filter.of(**filters))
            with _raises(InvalidInput):
                search_text(store, {"word": 1.0}, 5, Filter.of(**filters))
        for limit in (0, -1):
            with _raises(InvalidInput, "limit"):
                store.scan(Filter(), limit=limit)
            with _raises(InvalidInput, "limit"):
                search_text(store, {"word": 1.0}, limit, Filter())

    @_with_store
    def test_pages_hold_everything_once_in_order(self, store: Store) -> None:
        self.write(store, *(_draft(f"{number:02}", "text", session_id=str(number % 3)) for number in range(25)))
        for newest_first in (True, False):
            for size in (1, 4, 9, 25, 100):
                for session in (None, "1"):
                    wanted = Filter(session_id=session)
                    pages = store.pages(wanted, limit=size, newest_first=newest_first)
                    seen = [id for page in pages for id in self.ids(page)]
                    order = [f"{number:02}" for number in range(25) if session is None or number % 3 == 1]
                    assert seen == (order[::-1] if newest_first else order)

    @_with_store
    def test_validity_and_knowledge_are_two_times(self, store: Store) -> None:
        self.write(store, _draft("x", "one"))
        first = self.need(store, "x").committed_at
        self.write(store, _draft("x", "two", revises=True, created_at=NOON + HOUR))
        second = self.need(store, "x").committed_at
        assert second > first
        instant = timedelta(microseconds=1)

        def said(**times: Any) -> list[str]:
            return [record.content for record in store.scan(Filter.of(**times)).records]

        assert said() == ["two"]
        assert said(as_of=NOON - instant) == []
        assert said(as_of=NOON) == ["one"]
        assert said(as_of=NOON + HOUR - instant) == ["one"]
        assert said(as_of=NOON + HOUR) == ["two"]
        assert said(known_at=first - instant) == []
        assert said(known_at=first) == ["one"]
        assert said(known_at=second - instant) == ["one"]
        assert said(known_at=second) == ["two"]
        assert said(as_of=NOON + HOUR, known_at=first) == ["one"]
        assert said(as_of=NOON, known_at=second) == ["one"]
        assert said(history=True) == ["two", "one"]
        assert said(history=True, known_at=first) == ["one"]
        assert self.found(store, {"one": 1.0}) == []
        assert self.found(store, {"one": 1.0}, as_of=NOON) == ["x"]
        assert self.found(store, {"one": 1.0}, history=True) == ["x"]

    @_with_store
    def test_at_every_moment_one_version_at_most_is_valid_also_when_one_is_dated_back(self, store: Store) -> None:
        self.write(store, _draft("x", "one"))
        self.write(store, _draft("x", "two", revises=True, created_at=NOON - HOUR))
        self.write(store, _draft("x", "three", revises=True, created_at=NOON + HOUR))

        def said(moment: datetime) -> list[str]:
            return [record.content for record in store.scan(Filter(as_of=moment)).records]

        assert said(NOON - 2 * HOUR) == []
        assert said(NOON - HOUR) == ["two"]
        assert said(NOON) == ["two"]
        assert said(NOON + HOUR) == ["three"]

    # -- searching ---------------------------------------------------------------------------------

    @_with_store
    def test_words_find_the_records_that_hold_them(self, store: Store) -> None:
        self.write(
            store,
            _draft("a", "harbour harbour harbour"),
            _draft("b", "a harbour among many other things that are told at length"),
            _draft("c", "rivers"),
            _draft("d", "数据库备份在凌晨运行"),
        )
        assert self.found(store, {"harbour": 1.0}) == ["a", "b"]
        assert self.found(store, {"harbour": 1.0}, limit=1) == ["a"]
        assert self.found(store, {"备份": 1.0}) == ["d"]
        assert self.found(store, {"river": 1.0, "harbour": 0.001})[0] == "c"
        assert self.found(store, {"absent": 1.0}) == []
        assert self.found(store, {}) == []

    @_with_store
    def test_a_rare_record_is_found_among_many_that_match_better(self, store: Store) -> None:
        self.write(store, *(_draft(f"n{number:03}", "harbour harbour", session_id="many") for number in range(300)))
        self.write(store, _draft("rare", "a harbour in a long sentence that scores low", session_id="rare"))
        self.write(store, *(_draft(f"m{number:03}", "harbour harbour", session_id="many") for number in range(300)))
        store.flush()
        assert self.found(store, {"harbour": 1.0}, limit=5, session_id="rare") == ["rare"]
        assert self.found(store, {"harbour": 1.0}, limit=5, ids=["rare", "n005"]) == ["n005", "rare"]
        assert len(self.found(store, {"harbour": 1.0}, limit=450, session_id="many")) == 450

    @_with_store
    def test_search_follows_every_change(self, store: Store) -> None:
        for number in range(40):
            self.write(store, _draft(f"n{number}", f"harbour number{number}"))
            assert len(self.found(store, {"harbour": 1.0})) == number + 1
        self.write(store, _draft("n3", "moved inland", revises=True))
        assert "n3" not in self.found(store, {"harbour": 1.0})
        assert self.found(store, {"inland": 1.0}) == ["n3"]
        store.forget(Filter(ids=["n4", "n5"]))
        store.flush()
        assert len(self.found(store, {"harbour": 1.0})) == 37

    def _vectors(self, store: Store, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        store.use_embedder("given", self.dimensions, None)
        numbers = np.random.default_rng(3).normal(size=(count, self.dimensions)).astype(np.float32)
        written = self.write(
            store, *(_draft(f"v{number:03}", "text", session_id=str(number % 7)) for number in range(count))
        )
        with store.transaction() as transaction:
            transaction.put_vectors([one.seq for one in written], numbers)
        return numbers

    @_with_store
    def test_vectors_find_the_nearest_first(self, store: Store) -> None:
        numbers = self._vectors(store, 60)
        unit = numbers / np.linalg.norm(numbers, axis=1, keepdims=True)
        for place in (0, 17, 59):
            matches = search_vectors(store, numbers[place], 10, Filter())
            records = store.records(match.seq for match in matches)
            exact = np.argsort(-(unit @ unit[place]), kind="stable")[:10]
            assert [records[match.seq].id for match in matches] == [f"v{number:03}" for number in exact]
            assert abs(matches[0].score - 1.0) < 0.01
            narrowed = search_vectors(store, numbers[place], 5, Filter(session_id="3"))
            best = [number for number in np.argsort(-(unit @ unit[place]), kind="stable") if number % 7 == 3][:5]
            names = store.records(match.seq for match in narrowed)
            assert [names[match.seq].id for match in narrowed] == [f"v{number:03}" for number in best]
        store.forget(Filter(ids=["v017"]))
        gone = search_vectors(store, numbers[17], 60, Filter())
        assert len(gone) == 59

    @_with_store
    def test_vectors_of_another_length_are_refused(self, store: Store) -> None:
        numbers = self._vectors(store, 3)
        seq = self.need(store, "v000").seq
        wrong = np.ones((1, self.dimensions + 1), dtype=np.float32)
        with _raises(WrongDimension), store.transaction() as transaction:
            transaction.put_vectors([seq], wrong)
        with _raises(WrongDimension):
            search_vectors(store, wrong[0], 3, Filter())
        with _raises(WrongDimension), store.transaction() as transaction:
            transaction.put_vectors([seq], np.full((1, self.dimensions), np.nan, dtype=np.float32))
        with store.transaction() as transaction:
            transaction.put_vectors([seq], numbers[1:2])
            transaction.put_vectors([10**9], numbers[:1])
        matches = search_vectors(store, numbers[1], 3, Filter())
        assert len(matches) == 3
        assert {match.seq for match in matches[:2]} == {seq, self.need(store, "v001").seq}

    def _dialogue(self, store: Store) -> list[int]:
        """Write alternating turns of two sessions, and two without a session. Returns all sequence numbers."""
        sessions = ["s", "t", "s", "t", None, "s", "t", "s", None]
        turns = [
            _draft(
                f"turn{place}", f"heron {place}", session_id=session, name=("Ana", None)[place % 2], tokens=place + 1
            )
            for place, session in enumerate(sessions)
        ]
        return [one.seq for one in self.write(store, *turns)]

    @_with_store
    def test_a_search_reads_the_records_that_a_filter_admits(self, store: Store) -> None:
        turns = self._dialogue(store)
        of_s = [turns[place] for place in (0, 2, 5, 7)]
        self.write(store, _draft("turn7", "pier", session_id="s", revises=True))
        self.write(store, _draft("d", "x", sources=("turn0",), drawn=True))
        newest, derived = self.need(store, "turn7").seq, self.need(store, "d").seq

        def ask(view: SearchView) -> None:
            assert view.admitted([*turns, derived, 10**9], Filter(session_id="s")) == {*of_s[:3]}
            assert view.admitted([*turns, derived], Filter()) == {*turns, derived} - {turns[7]}
            assert view.admitted([*turns, derived], Filter(derived=False)) == {*turns} - {turns[7]}
            found = view.numbers(Filter(session_id="s"), 4)
            assert found is not None
            assert found.tolist() == [*of_s[:3], newest]
            assert view.numbers(Filter(session_id="s"), 3) is None
            assert view.derived == 1
            assert [*view.records([turns[1], 10**9])] == [turns[1]]
            assert view.text.frequencies(["heron", "pier", "stork"]) == [9, 1, 0]
            assert view.uses([turns[0]], "nobody") == {}

        store.search(ask)

    @_with_store
    def test_a_search_reads_doc_values_and_neighbours(self, store: Store) -> None:
        turns = self._dialogue(store)
        store.flush()

        def ask(view: SearchView) -> None:
            known = view.doc_values([*turns, turns[-1] + 10**9], Filter())
            assert [*known] == turns
            ana = [one.name for one in known.values()]
            assert [one.seq for one in known.values()] == turns
            assert [one.tokens for one in known.values()] == [*range(1, 10)]
            assert ana[0] == ana[2] != ana[1] == 0
            sessions = [one.session for one in known.values()]
            assert [sessions.index(one) for one in sessions] == [0, 1, 0, 1, 4, 0, 1, 0, 4]
            assert sessions[4] == 0
            assert view.doc_values([*turns], Filter(session_id="t")).keys() == {turns[1], turns[3], turns[6]}
            assert view.doc_values([*turns], Filter(session_id="u"), [turns[0]]).keys() <= {turns[0]}
            assert view.mixed(turns, 4) == set()
            chain = [known[seq] for seq in turns]

            def beside(place: int, limit: int, before: bool, **filters: Any) -> list[int]:
                found = view.beside(chain[place], Filter.of(**filters), limit, before=before)
                assert found == [chain[turns.index(one.seq)] for one in found]
                return [turns.index(one.seq) for one in found]

            assert beside(5, 9, before=True) == [2, 0]
            assert beside(2, 1, before=False) == [5]
            assert beside(2, 9, before=False, ids=["turn7"]) == [7]
            assert beside(7, 9, before=False) == []
            assert beside(4, 2, before=True) == [3, 2]  # without a session: in log order
            assert beside(4, 9, before=False) == [5, 6, 7, 8]

        store.search(ask)

    @_with_store
    def test_a_search_counts_uses_of_a_node(self, store: Store) -> None:
        turns = self._dialogue(store)
        store.touch(turns[:2], "agent")
        store.touch(turns[:1], "agent")
        assert store.search(lambda view: view.uses(turns, "agent")) == {turns[0]: 2, turns[1]: 1}

    @_with_store
    def test_a_search_finds_the_names_that_a_model_read(self, store: Store) -> None:
        turns = self._dialogue(store)
        self.write(store, _draft("turn0", "heron again", session_id="s", revises=True))
        read = {"of": "turn2", "version": 1, "names": {"Grey Heron": "it"}}
        earlier = {"of": "turn0", "version": 1, "names": {"Pier": "there"}}
        names = self.write(
            store,
            _draft("n2", "", kind="names", metadata=read, sources=("turn2", "turn0"), drawn=True),
            _draft("n0", "", kind="names", metadata=earlier, sources=("turn0",), drawn=True),
            _draft("own", "", kind="names", metadata=read),
        )
        held = [one.seq for one in names]

        def ask(view: SearchView) -> None:
            of_all = sorted(view.names_read(turns, None))
            assert [(one.seq, one.source) for one in of_all] == [(held[0], turns[2]), (held[1], turns[0])]
            assert sorted(view.names_read(held, None, held=True)) == of_all
            assert view.names_read(turns[1:2], None) == []
            assert view.names_read(turns, NOON - 1000 * HOUR) == []

        store.search(ask)

    @_with_store
    def test_a_search_follows_supersessions_to_what_holds_now(self, store: Store) -> None:
        moments = [NOON + day * HOUR for day in range(4)]
        said = [_draft(f"turn{at}", "heron", created_at=moment) for at, moment in enumerate(moments)]
        turns = [one.seq for one in self.write(store, *said)]
        facts = [
            self.write(
                store,
                _draft("fact", f"heron {at}", created_at=moment, sources=(f"turn{at}",), drawn=True, revises=True),
            )[0].seq
            for at, moment in enumerate(moments[:3])
        ]
        first, second, third = facts

        def ask(view: SearchView) -> None:
            assert view.replacements(turns[:1], None, None) == [(first, third)]
            assert view.replacements(turns[1:2], None, None) == [(first, second), (second, third)]
            assert view.replacements(turns[2:3], None, None) == [(second, third)]
            assert view.replacements([first], None, None) == [(first, third)]
            assert view.replacements(turns[:1], moments[1], None) == [(first, second)]
            assert view.replacements(turns[:3], None, NOON - 1000 * HOUR) == []
            assert view.replacements(turns[3:], None, None) == []

        store.search(ask)
        with store.transaction() as transaction:
            transaction.supersede(third, third, NOON)  # withdrawn: none is valid
        assert store.search(lambda view: view.replacements(turns[:1], None, None)) == []

    @_with_store
    def test_a_search_gives_what_it_is_answered_and_raises_what_it_raises(self, store: Store) -> None:
        self._dialogue(store)
        assert store.search(lambda view: view.text.documents) == 9
        with _raises(ZeroDivisionError):
            store.search(lambda view: view.text.documents // 0)

    # -- entries and blobs -------------------------------------------------------------------------

    @_with_store
    def test_entries_change_by_compare_and_set(self, store: Store) -> None:
        def put(content: Any, **more: Any) -> Any:
            return self.put(store, "key", content, writer=more.pop("writer", "w"), **more)

        with _raises(VersionConflictError, "version 0"):
            put(1, expected_version=1)
        one = put({"a": [1]}, expected_version=0, writer="one", metadata={"x": 1, "y": 1})
        assert (one.version, one.created_by, one.updated_by) == (1, "one", "one")
        with _raises(VersionConflictError, "version 1"):
            put(2, expected_version=0)
        two = put({"a": [2]}, expected_version=1, writer="two", metadata={"y": 2, "z": 2})
        assert (two.version, two.created_by, two.updated_by) == (2, "one", "two")
        assert two.metadata == {"x": 1, "y": 2, "z": 2}
        assert two.created_at == one.created_at
        assert two.updated_at > one.updated_at
        with _raises(VersionConflictError):
            put(3, expected_version=1)
        assert put("text").version == 3
        read = self.need_entry(store, "key")
        assert (read.content, read.version) == ("text", 3)

    @_with_store
    def test_reading_an_entry_never_shares_it(self, store: Store) -> None:
        given = {"list": [1]}
        made = self.put(store, "key", given, writer="w", metadata={"m": [1]})
        given["list"].append(2)
        made.content["list"].append(3)
        made.metadata["m"].append(3)
        first = self.need_entry(store, "key")
        first.content["list"].append(4)
        first.metadata["m"].append(4)
        again = self.need_entry(store, "key")
        assert again.content == {"list": [1]}
        assert again.metadata == {"m": [1]}

    @_with_store
    def test_a_deleted_entry_is_gone_and_its_versions_go_on(self, store: Store) -> None:
        with store.transaction() as transaction:
            transaction.put_entry("key", 1, writer="one", metadata={"old": True})
            transaction.put_entry("key", 2, writer="one")
        with _raises(VersionConflictError), store.transaction() as transaction:
            transaction.delete_entry("key", expected_version=1)
        with store.transaction() as transaction:
            assert transaction.delete_entry("key", expected_version=2)
            assert not transaction.delete_entry("key")
        assert store.entry("key") is None
        assert store.entries() == []
        with _raises(VersionConflictError, "version 0"), store.transaction() as transaction:
            transaction.put_entry("key", 3, writer="two", expected_version=2)
        again = self.put(store, "key", 3, writer="two", expected_version=0)
        assert again.version > 2
        assert (again.created_by, again.metadata) == ("two", {})

    @_with_store
    def test_entries_are_apart_by_scope_and_owner_and_listed_by_prefix(self, store: Store) -> None:
        places: list[dict[str, Any]] = [
            {},
            {"scope": "shared"},
            {"scope": "shared", "owner": "a"},
            {"scope": "shared", "owner": "b"},
        ]
        for number, place in enumerate(places):
            self.put(store, "key", number, writer="w", expected_version=0, **place)
        for number, place in enumerate(places):
            assert self.need_entry(store, "key", **place).content == number
        for key in ("plan/a", "plan/b", "plan%", "other"):
            self.put(store, key, key, writer="w", owner="list")
        assert {entry.key for entry in store.entries("plan/", owner="list")} == {"plan/a", "plan/b"}
        assert {entry.key for entry in store.entries("plan%", owner="list")} == {"plan%"}
        assert len(store.entries(owner="list")) == 4
        assert len(store.entries(owner="list", limit=2)) == 2
        assert store.count_entries(owner="list") == 4
        assert store.count_entries(owner="nobody") == 0
        assert store.entries("key", owner="list") == []

    @_with_store
    def test_of_several_owners_the_first_that_has_an_entry_answers(self, store: Store) -> None:
        for owner in ("near", "far"):
            self.put(store, "key", owner, writer="w", owner=owner)

        def found(*owners: str) -> Any:
            entry = store.entry("key", owner=owners)
            return None if entry is None else entry.content

        assert found("nobody", "near", "far") == "near"
        with store.transaction() as transaction:
            transaction.delete_entry("key", owner="near")
        assert found("nobody", "near", "far") == "far"
        assert found("nobody", "near") is None
        assert found() is None

    @_with_store
    def test_entries_have_a_history_that_a_deletion_ends(self, store: Store) -> None:
        for number in (1, 2, 3):
            self.put(store, "key", number, writer=f"w{number}")
        found = [(one.version, one.content, one.updated_by) for one in store.entry_history("key")]
        assert found == [(1, 1, "w1"), (2, 2, "w2"), (3, 3, "w3")]
        assert store.entry_history("other") == []
        with store.transaction() as transaction:
            assert transaction.delete_entry("key") == 4
        assert store.entry_history("key") == []
        self.put(store, "key", 5, writer="w")
        assert [(one.version, one.content) for one in store.entry_history("key")] == [(5, 5)]

    @_with_store
    def test_changed_entries_are_told_as_they_are_now_in_the_order_of_change(self, store: Store) -> None:
        start = store.last_entry_change()
        for key in ("a/1", "a/2", "b/1", "a/1"):
            self.put(store, key, key, writer="w", owner="one")
        with store.transaction() as transaction:
            transaction.put_entry("a/9", 0, writer="w", owner="two")
            transaction.delete_entry("a/2", owner="one", writer="who deletes")

        def told(since: int, prefix: str = "", owner: str | tuple[str, ...] = "one", **more: Any) -> list[Any]:
            changes = store.entry_changes(since, prefix, owner=owner, **more)
            assert [change.seq for change in changes] == sorted(change.seq for change in changes)
            return [(change.key, change.version, change.entry is None, change.writer) for change in changes]

        b1, a1 = ("b/1", 1, False, "w"), ("a/1", 2, False, "w")
        a2, a9 = ("a/2", 2, True, "who deletes"), ("a/9", 1, False, "w")
        assert told(start) == told(0) == [b1, a1, a2]
        assert told(start, "a/") == [a1, a2]
        assert told(0, owner=("one", "two")) == [b1, a1, a9, a2]
        assert told(0, limit=1) == [b1]
        first = store.entry_changes(0, owner="one")[0]
        assert told(first.seq) == [a1, a2]
        assert told(store.last_entry_change()) == []
        with _raises(InvalidInput, "limit"):
            store.entry_changes(0, limit=0)

    @_with_store
    def test_an_entry_that_is_not_valid_text_is_refused(self, store: Store) -> None:
        for key, content in (("key", "\ud800"), ("\ud800", 1)):
            with _raises(InvalidInput, "surrogate"), store.transaction() as transaction:
                transaction.put_entry(key, content, writer="w")
        assert store.entries() == []

    @_with_store
    def test_blobs_are_kept_replaced_and_deleted(self, store: Store) -> None:
        big = bytes(range(256)) * 4000
        with store.transaction() as transaction:
            transaction.put_blob("a", big)
            transaction.put_blob("b", b"")
            transaction.put_blob("c", b"first")
            transaction.put_blob("c", b"second")
        assert store.blob("a") == big
        assert store.blob("b") == b""
        assert store.blob("c") == b"second"
        assert store.blob("nobody") is None
        with store.transaction() as transaction:
            assert transaction.delete_blob("c")
            assert not transaction.delete_blob("c")
        assert store.blob("c") is None

    # -- changes, edges, forgetting ----------------------------------------------------------------

    @_with_store
    def test_changes_are_the_whole_story_in_order(self, store: Store) -> None:
        start = store.changes(0)
        since = start[-1].seq if start else 0
        one = self.write(store, _draft("x", "one"))[0].seq
        two = self.write(store, _draft("x", "two", revises=True))[0].seq
        with store.transaction() as transaction:
            transaction.enter([two], "l2", "default", "important")
            transaction.leave([two], "l2", "default")
            transaction.put_entry("key", 1, writer="w")
            transaction.pin("x", True)
        self.write(store, _draft("y", "three"))
        told = store.changes(since)
        assert [change.seq for change in told] == sorted({change.seq for change in told})
        kinds = [(change.kind, change.record) for change in told]
        for expected in (("record", one), ("record", two), ("supersede", one), ("enter", two), ("leave", two)):
            assert expected in kinds, expected
        assert kinds.index(("enter", two)) < kinds.index(("leave", two))
        assert [change.detail for change in told if change.kind == "entry"] == ["key"]
        assert [change.kind for change in told].count("pin") == 1
        for size in (1, 2, 3):
            pieces = []
            last = since
            while piece := store.changes(last, limit=size):
                assert len(piece) <= size
                pieces += piece
                last = piece[-1].seq
            assert pieces == told
        store.forget(Filter(ids=["x"], history=True))
        after = store.changes(told[-1].seq)
        assert {change.record for change in after if change.kind == "forget"} == {one, two}
        assert not {one, two} & {change.record for change in store.changes(since) if change.kind == "record"}

    @_with_store
    def test_edges_lead_both_ways(self, store: Store) -> None:
        self.write(
            store,
            _draft("a", "one"),
            _draft("b", "two"),
            _draft("s", "summary", sources=("a", "b")),
            _draft("f", "fact", sources=("s",)),
        )
        assert store.neighbours("s") == (("a", "b"), ("f",))
        assert store.neighbours("a") == ((), ("s",))
        assert store.neighbours("nobody") == ((), ())

    @_with_store
    def test_forgetting_takes_versions_and_derivatives_and_nothing_else(self, store: Store) -> None:
        self.write(store, _draft("a", "one"), _draft("b", "two"), _draft("s", "sum", sources=("a",)))
        self.write(store, _draft("a", "newer", revises=True))
        receipt = store.forget(Filter(ids=["a"]))
        assert (receipt.ids, receipt.records, receipt.derived) == (("a",), 3, 1)
        assert self.ids(store.scan(Filter(history=True))) == ["b"]
        assert not store.forget(Filter(ids=["a"]))
        assert store.forget(Filter(ids=["nobody"])).records == 0
        assert store.neighbours("b") == ((), ())
        for word in ("one", "newer", "sum"):
            assert self.found(store, {word: 1.0}, history=True) == []
        assert self.write(store, _draft("a", "again"))[0].version == 1

    # -- many at once ------------------------------------------------------------------------------

    def handles(self, folder: Path, stack: ExitStack, count: int) -> list[Store]:
        """Several handles on one store, or one handle several times if a second would open another store."""
        opened = [stack.enter_context(self.store(folder)) for _ in range(count if self.durable else 1)]
        return (opened * count)[:count]

    @staticmethod
    def together(*works: Callable[[], None]) -> None:
        """Run all functions at once, each in its own thread, and raise their exceptions here."""
        start = Barrier(len(works))

        def begin(work: Callable[[], None]) -> None:
            start.wait()
            work()

        with ThreadPoolExecutor(len(works)) as threads:
            for one in [threads.submit(begin, work) for work in works]:
                one.result()

    def test_whoever_follows_the_changes_misses_none_of_many_writers(self, folder: Path) -> None:
        writers, each = 4, 25
        with ExitStack() as stack:
            stores = self.handles(folder, stack, writers + 1)
            seen: list[int] = []
            done = Event()

            def write(number: int) -> None:
                for one in range(each):
                    with stores[number].transaction() as transaction:
                        transaction.append([_draft(f"{number}-{one}", "text", tier="l1")])
                        transaction.put_entry(f"key {number}", one, writer="w")
                        transaction.append([_draft(f"{number}-{one} again", "text")])

            def follow() -> None:
                ends = False
                while not ends:
                    ends = done.is_set()
                    while told := stores[-1].changes(seen[-1] if seen else 0, limit=7):
                        seen.extend(change.seq for change in told)

            with ThreadPoolExecutor(1) as threads:
                follower = threads.submit(follow)
                try:
                    self.together(*(partial(write, number) for number in range(writers)))
                finally:
                    done.set()
                follower.result()
            assert seen == sorted(set(seen))
            assert seen == [change.seq for change in stores[0].changes(0, limit=10_000)]
            assert len(seen) == writers * each * 3

    def test_a_budget_that_is_read_and_kept_in_a_transaction_holds_for_many_writers(self, folder: Path) -> None:
        writers, each, budget = 4, 40, 30
        with ExitStack() as stack:
            stores = self.handles(folder, stack, writers)

            def write(number: int) -> None:
                for one in range(each):
                    with stores[number].transaction() as transaction:
                        (written,) = transaction.append([_draft(f"{number}-{one}", "text", tokens=3)])
                        transaction.enter([written.seq], "l2", "node", "admitted")
                        excess = transaction.totals("node")["l2"].tokens - budget
                        for record, size in transaction.sizes("node", "l2").items():
                            if excess > 0:
                                excess -= size
                                transaction.leave([record], "l2", "node", "full")

            self.together(*(partial(write, number) for number in range(writers)))
            sizes = stores[0].sizes("node", "l2")
            usage = stores[0].usage("node")["l2"]
            assert (usage.items, usage.tokens) == (len(sizes), sum(sizes.values())) == (10, 30)
            moved = [change.kind for change in stores[0].changes(0, limit=10_000)]
            assert (moved.count("enter"), moved.count("leave")) == (writers * each, writers * each - 10)
            assert stores[0].check(repair=False).ok

    def test_of_many_writers_exactly_one_makes_each_version_of_an_entry(self, folder: Path) -> None:
        writers, each = 4, 40
        with ExitStack() as stack:
            stores = self.handles(folder, stack, writers)
            made: list[int] = []

            def write(number: int) -> None:
                store = stores[number]
                left = each
                while left:
                    known = store.entry("key")
                    version = 0 if known is None else known.version
                    count = 0 if known is None else known.content
                    try:
                        entry = self.put(store, "key", count + 1, writer=f"w{number}", expected_version=version)
                    except VersionConflictError:
                        continue
                    made.append(entry.version)
                    left -= 1

            self.together(*(partial(write, number) for number in range(writers)))
            assert sorted(made) == list(range(1, writers * each + 1))
            last = self.need_entry(stores[0], "key")
            assert (last.content, last.version) == (writers * each, writers * each)
            assert [one.version for one in stores[0].entry_history("key")] == sorted(made)

    @_with_store
    def test_a_read_does_not_wait_for_a_transaction_that_is_open(self, store: Store) -> None:
        if not self.durable:
            return
        self.write(store, _draft("x", "harbour", tier="l1", tokens=1))
        with ThreadPoolExecutor(1) as threads, store.transaction() as transaction:
            transaction.append([_draft("x", "changed", revises=True), _draft("y", "harbour")])
            transaction.put_entry("key", 1, writer="w")

            def read() -> tuple[Any, ...]:
                return (
                    self.need(store, "x").content,
                    store.count(Filter()),
                    store.window("default"),
                    store.entry("key"),
                    self.found(store, {"harbour": 1.0}),
                    [change.kind for change in store.changes(0)],
                )

            content, count, window, entry, found, kinds = threads.submit(read).result(timeout=60)
            assert (content, count, len(window), entry, found) == ("harbour", 1, 1, None, ["x"])
            assert kinds == ["record"]
            store.touch([window[0][0]], "default")
            assert threads.submit(store.uses, window[0][0], "default").result(timeout=60) == 1
        assert self.need(store, "x").content == "changed"

    @_with_store
    def test_a_transaction_waits_no_longer_than_it_is_told_to(self, store: Store) -> None:
        def write() -> None:
            with store.transaction(wait_s=0.01) as transaction:
                transaction.put_entry("key", 2, writer="w")

        with ThreadPoolExecutor(1) as threads:
            with store.transaction() as transaction:
                transaction.put_entry("key", 1, writer="w")
                with _raises(StoreBusy):
                    threads.submit(write).result(timeout=60)
            threads.submit(write).result(timeout=60)
        entry = self.need_entry(store, "key")
        assert (entry.content, entry.version) == (2, 2)

    def test_one_handle_at_a_time_does_the_background_work(self, folder: Path) -> None:
        workers, each = 3, 20
        with ExitStack() as stack:
            stores = self.handles(folder, stack, workers)
            alone, never = Lock(), Event()
            left = [each] * workers

            def chore(number: int, publish: Publish, waited_for: bool) -> bool:
                assert alone.acquire(blocking=False), "two handles do the background work of one namespace"
                try:
                    with publish() as transaction:
                        known = transaction.entry("count")
                        count = 0 if known is None else known.content
                        transaction.put_entry("count", count + (left[number] > 0), writer=f"w{number}")
                    left[number] -= left[number] > 0
                    never.wait(0.001)  # lets another handle begin
                finally:
                    alone.release()
                return left[number] > 0

            owners = [object() for _ in range(workers)]
            for number, (store, owner) in enumerate(zip(stores, owners, strict=True)):
                store.add_chore(owner, partial(chore, number))
            self.together(*(partial(self._flushed, store) for store in stores))
            assert (self.need_entry(stores[0], "count").content, left) == (workers * each, [0] * workers)
            for store, owner in zip(stores, owners, strict=True):
                store.remove_chores(owner)

    @staticmethod
    def _flushed(store: Store) -> None:
        assert store.flush(timeout_s=60).complete

    # -- namespaces, life --------------------------------------------------------------------------

    def test_nothing_crosses_a_namespace(self, folder: Path) -> None:
        if not self.durable:
            return
        with self.store(folder, "one") as one, self.store(folder, "two") as two:
            assert (one.namespace, two.namespace) == ("one", "two")
            for store in (one, two):
                self.write(store, _draft("x", f"harbour of {store.namespace}", session_id="s"))
                self.write(store, _draft("d", "derived", sources=("x",)))
                with store.transaction() as transaction:
                    transaction.put_entry("key", store.namespace, writer="w", expected_version=0)
                    transaction.put_blob("blob", store.namespace.encode())
            with one.transaction() as transaction:
                transaction.pin("x", True)
                transaction.enter([self.need(one, "x").seq], "l2", "default")
            assert self.need(one, "x").content == "harbour of one"
            assert self.ids(two.scan(Filter(pinned=True))) == []
            assert self.ids(two.scan(Filter(tier="l2"))) == []
            assert two.count(Filter(history=True)) == 2
            for store in (one, two):
                own = self.need(store, "x")
                matches = search_text(store, {"harbour": 1.0}, 10, Filter())
                assert [match.seq for match in matches] == [own.seq]
                assert store.blob("blob") == store.namespace.encode()
                assert self.need_entry(store, "key").content == store.namespace
            assert two.records([self.need(one, "x").seq]) == {}
            theirs = {change.seq for change in two.changes(0)}
            assert not theirs & {change.seq for change in one.changes(0)}
            assert one.forget(Filter(session_id="s")).records == 2
            assert self.need(two, "x").content == "harbour of two"
            assert two.neighbours("x") == ((), ("d",))
            with one.transaction() as transaction:
                transaction.delete_entry("key")
                transaction.delete_blob("blob")
            assert two.entry("key") is not None
            assert two.blob("blob") == b"two"

    @_with_store
    def test_flush_and_check_find_nothing_left_to_do(self, store: Store) -> None:
        self._varied(store)
        assert store.flush(timeout_s=60).complete
        report = store.check()
        assert report.ok
        assert report.records == 5

    def test_a_backup_holds_everything(self, folder: Path) -> None:
        with self.store(folder) as store:
            self._varied(store)
            store.backup(folder / "copy")
            assert (folder / "copy").exists()
            with _raises(LoomError):
                store.backup(folder / "missing" / "copy")

    def test_a_closed_store_refuses_everything_and_closes_twice(self, folder: Path) -> None:
        store = self.make_store(folder)
        self.write(store, _draft("x", "text"))
        store.close()
        store.close()
        uses: tuple[Callable[[], object], ...] = (
            lambda: store.get("x"),
            lambda: store.scan(Filter()),
            lambda: store.count(Filter()),
            lambda: store.records([1]),
            lambda: search_text(store, {"text": 1.0}, 5, Filter()),
            lambda: store.neighbours("x"),
            lambda: store.entry("key"),
            lambda: store.entries(),
            lambda: store.entry_history("key"),
            lambda: store.entry_changes(0),
            lambda: store.last_entry_change(),
            lambda: store.blob("blob"),
            lambda: store.changes(0),
            lambda: store.forget(Filter(ids=["x"])),
            lambda: store.flush(),
            lambda: store.check(),
            lambda: store.backup(folder / "copy"),
            lambda: self.write(store, _draft("y", "text")),
        )
        for use in uses:
            with _raises(Closed):
                use()
