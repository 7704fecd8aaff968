"""Doc values in segments: equal to the rows of the database, and read from the rows where a segment has none."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import ForgetPending
from loom.index.doc_values import DocValues, DocValuesTable, of_row, packed
from loom.index.segments import Segment, open_segment, write_segment
from loom.index.text_index import TextIndex, build, merge, without
from loom.recall.candidates import Candidates, Probe, find_candidates
from loom.storage.contract import AtMost, Draft, Filter
from loom.storage.search_view import search_text
from loom.storage.sqlite.projections import TailLimit, index_folder
from loom.storage.sqlite.store import SqliteStore

NOW = datetime(2024, 5, 15, tzinfo=UTC)
IN_SEGMENTS = TailLimit(1)
PROBE = Probe({"heron": 1.0, "pier": 1.0}, seeds=6, reach=2)
EVERYTHING = Filter()


def row(number: int, **other: Any) -> tuple[Any, ...]:
    """The columns of a record that doc values are made from."""
    values = {"session": 7, "created_at": 10**15, "importance": 0.5, "name": "Ann", "role": "user", "tokens": 3}
    return (number, *(values | other).values())


def segment_of(numbers: list[int]) -> Segment:
    header, arrays = build([(number, ["heron"]) for number in numbers], packed(map(row, numbers)))
    return Segment(header, arrays)


def saying(number: int, words: str, **columns: Any) -> Draft:
    return Draft(f"r{number}", words, NOW + timedelta(minutes=number), tokens=len(words), **columns)


@contextmanager
def indexed(drafts: list[Draft]) -> Iterator[Path]:
    """A closed store with these records in segments, in the namespace "mine" beside another one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.loom"
        with (
            closing(SqliteStore(path, namespace="mine", tail=IN_SEGMENTS)) as store,
            closing(SqliteStore(path, namespace="other", tail=IN_SEGMENTS)) as other,
        ):
            for number, draft in enumerate(drafts):
                if number % 3 == 1:
                    with other.transaction() as transaction:
                        transaction.append([saying(number, "a heron of somebody else")])
                with store.transaction() as transaction:
                    transaction.append([draft])
            store.flush()
        yield path


@contextmanager
def indexed_at_once(path: Path, drafts: list[Draft]) -> Iterator[SqliteStore]:
    """An open store with these records in segments, under consecutive numbers."""
    with closing(SqliteStore(path, tail=IN_SEGMENTS)) as store:
        with store.transaction() as transaction:
            transaction.append(drafts)
        store.flush()
        yield store


def text_segments(path: Path) -> list[Segment]:
    folder = index_folder(path)
    assert folder is not None
    return [open_segment(file) for file in folder.glob("text-*.seg")]


def change_doc_values(path: Path, change: Callable[[np.ndarray[Any, Any]], None]) -> None:
    """Rewrite the doc values in all segments of a closed store."""
    for segment in text_segments(path):
        assert segment.path is not None
        arrays = {name: array.copy() for name, array in segment.arrays.items()}
        change(arrays["doc_values"])
        write_segment(segment.path, segment.header, arrays)


def zeroed(rows: np.ndarray[Any, Any]) -> None:
    rows[:] = 0


def told(found: Candidates) -> dict[str, Any]:
    values = {one.name: getattr(found, one.name) for one in fields(found)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def ask(store: SqliteStore, wanted: Filter = EVERYTHING, probe: Probe = PROBE) -> dict[str, Any]:
    found = told(store.search(lambda view: find_candidates(view, probe, 30, 10, wanted)))
    assert found.pop("meaning") is not None  # NaN is not equal to itself
    return found


speakers = st.sampled_from([None, "Ann", "本"])
turns = st.tuples(
    st.sampled_from(["the heron", "on the pier", "苍鹭 and the heron on the pier", "nothing of it"]),
    st.sampled_from([None, "s1", "s2"]),
    st.sampled_from([None, "user", "assistant"]),
    speakers,
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
filters = st.sampled_from(
    [
        Filter(),
        Filter(derived=False),
        Filter(role="user"),
        Filter(session_id="s1"),
        Filter(history=True),
        Filter(min_importance=0.3),
        Filter(until=NOW + timedelta(minutes=9)),
    ]
)


@settings(max_examples=40)
@given(st.lists(turns, min_size=1, max_size=24), st.lists(st.integers(0, 23), max_size=4), filters)
def test_a_search_learns_the_same_from_segments_as_from_rows(
    said: list[tuple[str, str | None, str | None, str | None, float]], changed: list[int], wanted: Filter
) -> None:
    drafts = [
        saying(number, words, session_id=session, role=role, name=name, importance=importance)
        for number, (words, session, role, name, importance) in enumerate(said)
    ]
    drafts += [
        saying(number, f"{said[number][0]} again {place}", revises=True)
        for place, number in enumerate(changed)
        if number < len(said)
    ]
    drafts += [Draft("drawn", "drawn: a heron", NOW, kind="fact", sources=("r0",), drawn=True)]
    with indexed(drafts) as path:
        with closing(SqliteStore(path, namespace="mine", tail=IN_SEGMENTS)) as store:
            from_segments = ask(store, wanted)
        change_doc_values(path, zeroed)
        with closing(SqliteStore(path, namespace="mine", tail=IN_SEGMENTS)) as store:
            assert from_segments == ask(store, wanted)


@pytest.mark.parametrize(
    ("beside", "then", "wanted"),
    [
        ({}, [saying(2, "four", revises=True)], Filter()),
        ({"kind": "fact", "sources": ("r0",), "drawn": True}, [], Filter(derived=False)),
        ({"importance": 0.1}, [], Filter(min_importance=0.3)),
    ],
    ids=["an older version", "drawn", "kept out by the filter"],
)
def test_what_the_filter_does_not_admit_is_no_context(
    tmp_path: Path, beside: Mapping[str, Any], then: list[Draft], wanted: Filter
) -> None:
    words = ["one", "two", "three", "the heron"]
    drafts = [saying(number, text, session_id="s") for number, text in enumerate(words)]
    drafts[2] = saying(2, "three", session_id="s", **beside)
    with indexed_at_once(tmp_path / "a.loom", [*drafts, *then]) as store:
        (heron,) = search_text(store, {"heron": 1.0}, 3, Filter())
        assert ask(store, wanted)["keys"] == [heron.seq - 3, heron.seq - 2, heron.seq]
        assert ask(store, Filter(history=True))["keys"] == [heron.seq - 2, heron.seq - 1, heron.seq]


def test_no_row_of_an_indexed_record_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    connect, this_thread = sqlite3.connect, threading.get_ident()

    def note(query: str) -> None:
        if threading.get_ident() == this_thread:  # not those of the background worker
            queries.append(query)

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(note)
        return connection

    def rows_read(store: SqliteStore) -> list[str]:
        queries.clear()
        assert len(ask(store)["keys"]) == 8
        return [query for query in queries if "FROM records r" in query or "CROSS JOIN records" in query]

    monkeypatch.setattr(sqlite3, "connect", traced)
    path = tmp_path / "a.loom"
    words = ["by the sea"] * 4 + ["the heron", "on the pier", "the heron", "on the pier"] + ["by the sea"] * 4
    drafts = [saying(number, text, session_id="s") for number, text in enumerate(words)]
    with indexed_at_once(path, drafts) as store:
        ask(store)
        assert rows_read(store) == []
    change_doc_values(path, zeroed)
    with closing(SqliteStore(path, tail=IN_SEGMENTS)) as store:
        ask(store)
        assert rows_read(store) != [], "the rows are read where segments have no doc values"


gaps = st.lists(st.integers(1, 4), min_size=1, max_size=60)


@given(gaps, st.lists(st.integers(0, 250), max_size=40), st.sets(st.integers(0, 59)))
def test_numbers_are_found_whatever_is_missing_between_them(
    steps: list[int], wanted: list[int], unknown: set[int]
) -> None:
    numbers = [int(number) for number in np.cumsum(steps)]
    rows = [row(number, tokens=None if place in unknown else place) for place, number in enumerate(numbers)]
    table = DocValuesTable(numbers[0], np.array(numbers), packed(rows))
    asked = sorted({number for number in wanted if numbers[0] <= number <= numbers[-1]})
    known, left = table.find(asked)
    here = [one for one in rows if one[0] in asked]
    assert known == {one[0]: of_row(one) for one in here if one[6] is not None}
    assert left == [one[0] for one in here if one[6] is None]


@pytest.mark.parametrize(
    "damage",
    [
        {"importance": "much"},
        {"created_at": "yesterday"},
        {"session": b"\0"},
        {"tokens": 2**40},
        {"tokens": "three"},
        {"name": 4},
    ],
)
def test_a_damaged_row_is_left_for_the_database_to_refuse(damage: Mapping[str, Any]) -> None:
    table = DocValuesTable(1, np.array([1, 2]), packed([row(1, **damage), row(2)]))
    assert table.find([1, 2]) == ({2: of_row(row(2))}, [1])


def test_speakers_and_roles_are_hashes_and_none_is_0() -> None:
    nobody, ann, ben = (of_row(row(1, name=name, role=name)) for name in (None, "Ann", "Ben"))
    assert (nobody.name, nobody.role) == (0, 0)
    assert len({nobody.name, ann.name, ben.name}) == len({nobody.role, ann.role, ben.role}) == 3
    assert of_row(row(1, session=None)).session == 0


@pytest.mark.parametrize(
    ("first", "second"), [([1, 2, 5], [7, 8]), ([1, 5, 9], [2, 7])], ids=["in a row", "interlocked"]
)
def test_merging_and_removing_keep_doc_values_with_their_records(first: list[int], second: list[int]) -> None:
    segments = [segment_of(numbers) for numbers in (first, second)]
    for index, number in enumerate(first + second):
        arrays = segments[index >= len(first)].arrays
        place = (first + second)[len(first) :].index(number) if index >= len(first) else index
        assert arrays["doc_values"][place, 0] == number
    header, arrays = merge(segments)
    merged = Segment(header, arrays)
    everything = sorted(first + second)
    assert TextIndex([merged]).doc_values(everything)[0].keys() == {*everything}
    gone = {everything[0], everything[3]}
    rest = TextIndex([Segment(*without(merged, gone))])
    assert rest.doc_values(everything) == ({one: of_row(row(one)) for one in everything if one not in gone}, [])


def test_a_record_that_is_indexed_before_it_is_counted_is_counted_once(tmp_path: Path) -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return 100 + len(text)

    words = [f"the heron {number}" for number in range(300)]  # more than are counted at once
    with closing(SqliteStore(tmp_path / "a.loom", tail=IN_SEGMENTS)) as store:
        store.count_with({"letters": count})
        with store.transaction() as transaction:
            transaction.append(
                [Draft(text, text, NOW, tokens=AtMost(500), counter="letters", session_id="s") for text in words]
            )
        store.flush()
        assert ask(store, probe=Probe({"299": 1.0}))["tokens"] == [100 + len(words[299])]
    assert sorted(counted) == sorted(words)


def test_a_record_that_the_indexing_process_could_not_count_is_counted_by_another(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path, tail=IN_SEGMENTS)) as store:
        with store.transaction() as transaction:
            drafts = [Draft(f"r{number}", "the heron", NOW, tokens=AtMost(50), counter="x") for number in range(3)]
            numbers = [one.seq for one in transaction.append(drafts)]
        store.flush()
        assert search_text(store, {"heron": 1.0}, 3, Filter())
    assert TextIndex(text_segments(path)).doc_values(numbers) == ({}, numbers)
    with closing(SqliteStore(path, tail=IN_SEGMENTS)) as store:
        store.count_with({"x": len})
        assert ask(store)["tokens"] == [9, 9, 9]


def set_lease_of_another_process(path: Path, expires_at: int) -> None:
    """Another process is forgetting until then, in microseconds, and is not to be overtaken."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT OR REPLACE INTO leases (name, owner, number, expires_at) "
            "SELECT 'worker-' || number, 'urgent another process', 99, ? FROM namespaces",
            (expires_at,),
        )


@pytest.mark.parametrize("reopened", [False, True])
def test_a_forgotten_record_is_no_context_while_segments_hold_it(tmp_path: Path, reopened: bool) -> None:
    def is_in_segments(seq: int) -> bool:
        return any(seq in segment.arrays["keys"] for segment in text_segments(path))

    path = tmp_path / "a.loom"
    store = SqliteStore(path, tail=IN_SEGMENTS)
    with store.transaction() as transaction:
        written = transaction.append([saying(number, f"heron {number}", session_id="s") for number in range(6)])
    store.flush()
    forgotten = written[2].seq
    set_lease_of_another_process(path, int(time.time() * 1e6) + 3_600_000_000)
    with pytest.raises(ForgetPending):
        store.forget(Filter(ids=["r2"]), timeout_s=0.05)
    if reopened:
        store.close()
        store = SqliteStore(path, tail=IN_SEGMENTS)
    with closing(store):
        assert is_in_segments(forgotten)
        assert ask(store)["keys"] == [one.seq for one in written if one.id != "r2"]
        set_lease_of_another_process(path, 0)
        store.flush()
        assert ask(store)["keys"] == [one.seq for one in written if one.id != "r2"]
        assert not is_in_segments(forgotten)


def _not_a_number(rows: np.ndarray[Any, Any]) -> None:
    rows[:, 3] = np.array([np.nan]).view(np.int64)


def _moved(rows: np.ndarray[Any, Any]) -> None:
    rows[:] = np.roll(rows, 1, axis=0)


@pytest.mark.parametrize("damage", [zeroed, _not_a_number, _moved])
def test_invalid_doc_values_are_read_from_the_rows_instead(
    tmp_path: Path, damage: Callable[[np.ndarray[Any, Any]], None]
) -> None:
    path = tmp_path / "a.loom"
    with indexed_at_once(path, [saying(number, f"heron {number}", session_id="s") for number in range(6)]) as store:
        expected = ask(store)
    change_doc_values(path, damage)
    with closing(SqliteStore(path, tail=IN_SEGMENTS)) as store:
        assert ask(store) == expected


def test_doc_values_take_48_bytes() -> None:
    assert packed([row(1)]).nbytes == 48
    assert DocValues._fields[0] == "seq"
