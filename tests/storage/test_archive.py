"""The archive: records in compressed blocks are read, found, changed and forgotten like all others."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

import loom
from loom import steps
from loom.errors import CorruptStore, ReadOnly
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from loom.storage.blocks import Block, shipped
from loom.storage.contract import MAX_TEXT_BYTES, ArchiveStats, Draft, Filter, Record, Retention, Store
from loom.storage.search_view import search_text
from loom.storage.sqlite.store import SqliteStore, as_sqlite
from tests.small_archive import SMALL

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STORES = Path(__file__).parent.parent / "data" / "stores"
EVERYTHING = Filter(history=True)
PHRASE = "the hidden rendezvous of the harbour master"


# --- what the tests are made of -----------------------------------------------------------------------------


def words(chance: random.Random, count: int) -> str:
    """Words that no other text shares."""
    return " ".join("".join(chance.choices("bcdfghjklmnpqrstvwxz", k=9)) for _ in range(count))


def notes(count: int, seed: int = 1) -> list[Draft]:
    """Records in two languages, some with data, all with words of their own."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        person = chance.choice(["Ana", "Ben", "小王", "老张"])
        thing = chance.choice(["缓存", "index", "发票", "bridge"])
        said = f"{person} says that the {thing} number {number} was repaired，费用是 {number * 7} 元."
        text = f"{said} {words(chance, 25)}"
        data = (
            {"task": number, "state": "done", "tags": ["a", thing], "cost": number / 7} if number % 3 == 0 else None
        )
        found.append(
            Draft(
                f"n{number}",
                text,
                NOW + timedelta(minutes=number),
                session_id=f"s{number % 4}",
                role="user" if number % 2 else "assistant",
                name=person,
                importance=(number % 10) / 10,
                tokens=len(text) // 4,
                metadata={"thing": thing},
                data=data,
            )
        )
    return found


def put(store: Store, drafts: Sequence[Draft]) -> None:
    with store.transaction() as transaction:
        transaction.append(drafts)


def draft(id: str, text: str, **more: Any) -> Draft:
    return Draft(id, text, NOW, **more)


def everything(store: Store) -> list[Record]:
    return list(store.scan(EVERYTHING, limit=10_000, newest_first=False).records)


def opened(path: Path | None = None, **options: Any) -> SqliteStore:
    """A store with an archive that a few hundred records fill."""
    return SqliteStore(path, limits=SMALL, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.loom"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    made = opened(path, lease_s=0.5)
    yield made
    made.close()


_EXECUTE = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
answers = []
for statement, values in json.load(sys.stdin):
    values = [bytes.fromhex(one[1:]) if str(one)[:1] == "x" else one for one in values]
    rows = connection.execute(statement, values).fetchall()
    answers.append([[one.hex() if isinstance(one, bytes) else one for one in row] for row in rows])
connection.close()
json.dump(answers, sys.stdout)
"""


def outside(path: Path, *statements: str | tuple[str, Sequence[Any]]) -> list[Any]:
    """Run SQL in another process: closing the file here would drop the locks of a store that has it open.

    Bytes are given as x and hexadecimal digits, and answered in hexadecimal digits. Returns the rows of the last one.
    """
    given = [one if isinstance(one, tuple) else (one, ()) for one in statements]
    done = subprocess.run(
        [sys.executable, "-c", _EXECUTE, str(path)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[list[Any]] = json.loads(done.stdout)
    return answers[-1]


def stored_texts(path: Path) -> Iterator[bytes]:
    """The contents of all blocks."""
    for number, raw_bytes, data in outside(path, "SELECT number, raw_bytes, data FROM blocks WHERE records > 0"):
        payload = zstd.decompress(bytes.fromhex(data), zstd_dict=shipped())
        assert len(payload) == raw_bytes, number
        yield payload


_SCAN = """
import json, os, sys
needles = [one.encode() for one in json.load(sys.stdin)]
found = set()
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
        found.update(f"{name}: {needle.decode()}" for needle in needles if needle in content)
json.dump(sorted(found), sys.stdout)
"""


def left_of(path: Path, needles: Sequence[str]) -> list[str]:
    """The places that still have these words: the raw bytes of any file, or an opened block."""
    done = subprocess.run(
        [sys.executable, "-c", _SCAN, str(path.parent)],
        input=json.dumps(list(needles)),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stdout)
    held = b"\0\0".join(stored_texts(path))
    return found + [f"archive: {needle}" for needle in needles if needle.encode() in held]


def blocks_of(path: Path) -> list[tuple[int, list[str]]]:
    """The blocks, and the ids of the records in each."""
    rows = outside(path, "SELECT block, id FROM records WHERE block IS NOT NULL ORDER BY block, seq")
    return [(number, [row[1] for row in rows if row[0] == number]) for number in sorted({row[0] for row in rows})]


# --- the same as before ---------------------------------------------------------------------------------------


def test_every_record_comes_back_byte_for_byte(store: SqliteStore) -> None:
    put(store, notes(300))
    before = everything(store)
    stats = store.archive()
    assert everything(store) == before
    assert stats.records == 300
    assert stats.blocks > 1
    assert stats == store.archived()
    assert stats.ratio > 1.3
    assert store.check().ok
    assert [store.get(record.id) for record in before] == before
    assert list(store.records([record.seq for record in before]).values()) == before


def test_blocks_are_of_up_to_64_kilobytes_at_level_9_with_the_dictionary_of_the_package(path: Path) -> None:
    """Requirement 127."""
    store = SqliteStore(path)
    put(store, notes(800))
    store.archive()
    store.close()
    rows = outside(path, "SELECT dictionary, raw_bytes, data FROM blocks WHERE records > 0 ORDER BY number")
    assert len(rows) >= 4
    for dictionary, raw_bytes, data in rows:
        assert dictionary == -1
        texts = list(Block(bytes.fromhex(data), raw_bytes, shipped()).texts())
        assert sum(len(f"{text.content}{text.data or ''}".encode()) for text in texts) <= 64 * 1024
        payload = zstd.decompress(bytes.fromhex(data), zstd_dict=shipped())
        assert zstd.compress(payload, level=9, zstd_dict=shipped()).hex() == data
    assert all(raw_bytes > 56 * 1024 for _, raw_bytes, _ in rows[:-1])


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TEXTS, VALUES, st.booleans()), min_size=1, max_size=12))
def test_any_text_and_any_data_comes_back(items: list[tuple[str, Any, bool]]) -> None:
    store = opened()
    try:
        put(
            store,
            [
                draft(f"i{number}", text + ("long enough " * 10 if long else ""), data=data)
                for number, (text, data, long) in enumerate(items)
            ],
        )
        before = everything(store)
        store.archive()
        assert everything(store) == before
        assert [repr(record.data) for record in everything(store)] == [repr(record.data) for record in before]
        assert store.check().ok
    finally:
        store.close()


def answers(memory: Memory) -> dict[str, Any]:
    """The answers of a memory to every kind of read, without uses and the times of the reads."""
    store = memory.store
    later = NOW + timedelta(minutes=60)
    asked = ["Ana index 21", "发票 费用", "bridge repaired", "replaced 第二版"]
    ids = [f"n{number}" for number in range(0, 120, 7)]
    filters: list[dict[str, Any]] = [
        {"session_id": "s1"},
        {"role": "user"},
        {"name": "小王"},
        {"min_importance": 0.7},
        {"since": later},
        {"until": later},
        {"where": {"thing": "缓存"}},
        {"ids": ids},
        {"history": True},
        {"as_of": later},
        {"known_at": memory.history("n7")[0].committed_at},
        {"pinned": True},
    ]
    return {
        "recall": [[(hit.id, hit.content) for hit in memory.recall(one, limit=10)] for one in asked],
        "filtered": [[hit.id for hit in memory.recall("index", limit=20, **one)] for one in filters],
        "list": [[record.content for record in memory.list(limit=200, **one).records] for one in filters],
        "count": [store.count(Filter.of(**one)) for one in filters],
        "history": [memory.history(one) for one in ids],
        "get": [store.get(one) for one in ids],
        "absent": [memory.get("nobody"), memory.history("nobody")],
        "neighbours": [store.neighbours(one) for one in ids],
        "stats": {
            key: value
            for key, value in store.stats().items()
            if key in ("records", "tokens", "superseded", "vectors")
        },
        "changes": [(one.kind, one.record, one.detail) for one in store.changes(0, 10_000)],
    }


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    with loom.open(path, embedder=FakeEmbedder(), index_tail_records=50, derive=False, lease_s=0.5) as opened:
        put(opened.store, notes(120))
        for number in (7, 14, 35):
            opened.update(f"n{number}", f"replaced, 第二版 of number {number}, long enough to be archived as well")
        opened.pin("n21")
        assert opened.flush().complete
        yield opened


def test_every_question_is_answered_as_before(memory: Memory) -> None:
    before = answers(memory)
    assert memory.store.archive().records == 123
    assert answers(memory) == before
    as_sqlite(memory.store).rebuild("text")
    as_sqlite(memory.store).rebuild("vectors")
    assert memory.flush().complete
    assert answers(memory) == before
    assert memory.check().ok


def test_a_vacuum_a_backup_and_a_reopening_change_no_answer(memory: Memory, path: Path) -> None:
    before = answers(memory)
    memory.store.archive()
    memory.vacuum()
    assert answers(memory) == before
    memory.backup(path.with_name("copy.loom"))
    with loom.open(path.with_name("copy.loom"), embedder=FakeEmbedder(), derive=False) as copy:
        assert answers(copy) == before
        assert copy.check().ok
        assert copy.store.archived() == memory.store.archived()
    with loom.open(path, embedder=FakeEmbedder(), derive=False, read_only=True) as reader:
        assert answers(reader) == before
        assert reader.check().ok
        with pytest.raises(ReadOnly):
            reader.store.archive()


def test_archived_texts_are_embedded_again_as_they_were(memory: Memory, path: Path) -> None:
    memory.store.archive()
    memory.close()
    other = FakeEmbedder(dimensions=24, seed=9)
    with loom.open(path, embedder=other, derive=False, reconfigure=True) as again:
        assert again.flush().complete
        for number in range(0, 120, 13):
            record = again.store.get(f"n{number}")
            assert record is not None
            (best,) = again.recall(f"{record.name}: {record.content}", limit=1, ids=[record.id])
            fresh = again.recall(record.content, limit=1, ids=[record.id])[0]
            # Names of speakers are left out of a question's vector; another text would be near 0.
            assert max(best.signals["meaning"], fresh.signals["meaning"]) > 0.9
        assert again.get_stats()["vectors"] == 123


def test_an_archived_record_is_updated_like_any_other(store: SqliteStore) -> None:
    put(store, notes(60))
    store.archive()
    same = notes(60)[5]
    with store.transaction() as transaction:
        (written,) = transaction.append([same])
        assert not written.created  # the same text and data again is still seen to be the same
        (revised,) = transaction.append([same._replace(content="another text for the same record", revises=True)])
        assert revised.version == 2
    first, second = store.history("n5")
    assert (first.content, second.content) == (same.content, "another text for the same record")
    assert first.superseded_at is not None
    store.archive()
    assert [one.content for one in store.history("n5")] == [same.content, second.content]
    assert store.check().ok


@pytest.mark.parametrize("archived", [0, 60, 120])
def test_retention_by_bytes_counts_archived_texts_at_their_full_size(path: Path, archived: int) -> None:
    texts = [one.content for one in notes(120)]
    clock = iter(NOW + timedelta(seconds=number) for number in range(10_000))
    store = opened(path, clock=lambda: next(clock))
    for number, one in enumerate(notes(120)):
        put(store, [one])
        if number + 1 == archived:
            store.archive()
    store.set_retention(Retention(max_bytes=sum(len(text.encode()) for text in texts[-30:])))
    store.apply_retention()
    assert [record.content for record in everything(store)] == texts[-30:]
    assert store.check().ok
    store.close()


def test_only_what_was_committed_before_the_moment_is_archived(path: Path) -> None:
    moments = iter(NOW + timedelta(days=number) for number in range(1000))
    store = opened(path, clock=lambda: next(moments))
    for one in notes(20):
        put(store, [one])
    middle = everything(store)[10].committed_at
    assert store.archive(before=middle).records == 10
    assert store.archive(before=middle).records == 10
    assert store.archive().records == 20
    assert store.archived().blocks == 2
    store.close()


def test_namespaces_have_archives_of_their_own(path: Path) -> None:
    first, second = opened(path, namespace="one"), opened(path, namespace="two")
    for store, seed in ((first, 1), (second, 2)):
        put(store, notes(100, seed))
    before = everything(first), everything(second)
    assert first.archive().records == 100
    assert second.archived() == ArchiveStats()
    assert (everything(first), everything(second)) == before
    second.archive()
    first.forget(Filter(ids=[f"n{number}" for number in range(100)]))
    assert everything(second) == before[1]
    assert first.archived().records == 0
    assert first.check().ok
    assert second.check().ok
    first.vacuum()
    assert everything(second) == before[1]
    first.close()
    second.close()


def test_a_store_in_memory_archives_too() -> None:
    store = opened()
    put(store, notes(200))
    before = everything(store)
    assert store.archive().records == 200
    assert everything(store) == before
    store.forget(Filter(ids=["n3"]))
    assert [record.id for record in everything(store)] == [record.id for record in before if record.id != "n3"]
    assert store.check().ok
    store.close()


def test_an_empty_store_has_nothing_to_archive(store: SqliteStore) -> None:
    assert store.archive() == ArchiveStats()
    assert store.archived().ratio == 1.0


def test_a_store_of_format_2_is_upgraded_and_archived(path: Path) -> None:
    shutil.copy(STORES / "v2.loom", path)
    for name in ("default", "tiers"):
        store = opened(path, namespace=name)
        before = everything(store)
        assert before
        assert store.archive().records > 0
        assert everything(store) == before
        store.vacuum()
        assert everything(store) == before
        assert store.check().ok
        alone = next(record.id for record in before if not store.neighbours(record.id)[1])
        store.forget(Filter(ids=[alone], history=True))
        assert everything(store) == [record for record in before if record.id != alone]
        store.close()


def test_a_vacuum_after_archiving_shrinks_the_file(store: SqliteStore, path: Path) -> None:
    chance = random.Random(3)
    sentences = [f"The {words(chance, 2)} was moved to another place by {words(chance, 1)}. " for _ in range(60)]
    put(store, [draft(f"t{number}", "".join(chance.choices(sentences, k=40))) for number in range(600)])
    before = everything(store)
    store.vacuum()
    full = path.stat().st_size
    stats = store.archive()
    store.vacuum()
    assert stats.ratio > 4
    assert path.stat().st_size < full / 3
    assert everything(store) == before


def test_the_background_archives_what_is_older_than_was_asked_for(path: Path) -> None:
    moment = [NOW]
    store = opened(path, archive_after_days=30, clock=lambda: moment[0])
    put(store, notes(400))
    for days in (21, 10):  # the first are 31 days old then, the second 10
        moment[0] += timedelta(days=days)
        put(store, [one._replace(id=f"{days}-{one.id}") for one in notes(100)])
    before = everything(store)
    store.vacuum()  # does what the worker does at rest
    stats = store.archived()
    assert 0 < stats.records <= 400
    newest = outside(path, "SELECT max(seq) FROM records WHERE block IS NOT NULL")[0][0]
    assert newest <= before[399].seq
    assert everything(store) == before
    store.close()


# --- large ones -----------------------------------------------------------------------------------------------

_LARGE = """
import random, resource, sys
from datetime import UTC, datetime
from loom.storage.contract import Draft, Filter
from loom.storage.sqlite.store import SqliteStore, as_sqlite
chance = random.Random(1)
vocabulary = ["".join(chance.choices("abcdefgh", k=8)) for _ in range(20_000)] + ["港口的主人", "会议"] * 500
text = " ".join(chance.choices(vocabulary, k=2_000_000)).encode()[:16 * 1024 * 1024].decode(errors="ignore")
now = datetime(2026, 1, 1, tzinfo=UTC)
store = SqliteStore(sys.argv[1])
with store.transaction() as transaction:
    transaction.append([Draft("large", text, now, data={"half": text[: 1 << 20]})])
    transaction.append([Draft(f"s{n}", f"a small one beside it, with the number {n}", now) for n in range(50)])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
stats = store.archive()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
record = store.get("large")
assert record.content == text and record.data == {"half": text[: 1 << 20]}
assert store.check().ok
store.forget(Filter(ids=["large"]))
assert store.get("s49").content.endswith("49") and store.check().ok
store.close()
print(len(text.encode()), stats.records, grown)
"""


def test_the_largest_text_is_archived_without_taking_many_times_its_size(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _LARGE, str(path)], capture_output=True, text=True, check=True)
    size, records, grown_kb = map(int, done.stdout.split())
    assert size > MAX_TEXT_BYTES - 16
    assert records == 51
    assert grown_kb < 400_000  # text, data, payload, frame, and their copies: measured at some 170 MB


# --- several processes ----------------------------------------------------------------------------------------

_ARCHIVE = """
import sys
from loom.storage.sqlite.store import SqliteStore, as_sqlite
store = SqliteStore(sys.argv[1], lease_s=1.0)
print("open", flush=True)
for line in sys.stdin:
    print(store.archive().records, flush=True)
store.close()
"""


class Archiver:
    """Another process that archives on request."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ARCHIVE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.answer() == "open"

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        self.process.stdout.close()


def test_another_process_archives_while_this_one_reads_and_writes(store: SqliteStore, path: Path) -> None:
    put(store, notes(400))
    expected = {record.id: record.content for record in everything(store)}
    other = Archiver(path)
    chance = random.Random(4)
    for turn in range(6):
        other.tell()
        for number in range(40):
            wanted = chance.choice(list(expected))
            found = store.get(wanted)
            assert found is not None
            assert found.content == expected[wanted]
            one = draft(f"w{turn}-{number}", f"written meanwhile, {words(chance, 12)}")
            put(store, [one])
            expected[one.id] = one.content
            if number % 10 == 0:
                gone = chance.choice(list(expected))
                store.forget(Filter(ids=[gone], history=True), timeout_s=60.0)
                del expected[gone]
        assert int(other.answer()) > 0
    other.tell()
    assert int(other.answer()) == len(expected)
    assert {record.id: record.content for record in everything(store)} == expected
    assert store.check().ok
    other.end()


def test_two_processes_that_archive_at_once_archive_each_record_once(store: SqliteStore, path: Path) -> None:
    put(store, notes(500))
    before = everything(store)
    first, second = Archiver(path), Archiver(path)
    first.tell()
    second.tell()
    store.archive()
    assert (first.answer(), second.answer()) == ("500", "500")
    first.end()
    second.end()
    assert everything(store) == before
    assert sum(row[0] for row in outside(path, "SELECT records FROM blocks")) == 500
    assert store.check().ok


# --- damage ---------------------------------------------------------------------------------------------------


@pytest.fixture
def archived(path: Path) -> tuple[Path, list[tuple[int, list[str]]]]:
    """A closed store with three blocks or more, and the contents of each."""
    store = opened(path)
    put(store, notes(400))
    store.archive()
    store.close()
    blocks = blocks_of(path)
    assert len(blocks) >= 3
    return path, blocks


Damage = Callable[[Path, int], object]


def flip(path: Path, number: int) -> object:
    data = bytearray.fromhex(outside(path, ("SELECT data FROM blocks WHERE number = ?", (number,)))[0][0])
    for place in random.Random(number).sample(range(len(data)), 3):
        data[place] ^= 0x41
    return outside(path, ("UPDATE blocks SET data = ? WHERE number = ?", ("x" + data.hex(), number)))


def forged(payload: bytes, raw_bytes: int | None = None, beside: str = "") -> Damage:
    """Put another payload in the block, with a checksum that is right."""

    def damage(path: Path, number: int) -> object:
        data = zstd.compress(payload)
        size = len(payload) if raw_bytes is None else raw_bytes
        return outside(
            path,
            (
                f"UPDATE blocks SET dictionary = 0, data = ?, checksum = ?, raw_bytes = ?{beside} WHERE number = ?",
                ("x" + data.hex(), zlib.crc32(data), size, number),
            ),
        )

    return damage


def statement(sql: str) -> Damage:
    return lambda path, number: outside(path, (sql, (number,)))


DAMAGES: dict[str, Damage] = {
    "flipped bytes": flip,
    "truncated": statement("UPDATE blocks SET data = substr(data, 1, length(data) / 2) WHERE number = ?"),
    "nothing in it": statement("UPDATE blocks SET data = x'' WHERE number = ?"),
    "a number in the place of bytes": statement("UPDATE blocks SET data = 7 WHERE number = ?"),
    "row gone": statement("DELETE FROM blocks WHERE number = ?"),
    "emptied": statement("UPDATE blocks SET records = 0, raw_bytes = 0, checksum = 0, data = x'' WHERE number = ?"),
    "raw_bytes too small": statement("UPDATE blocks SET raw_bytes = 10 WHERE number = ?"),
    "raw_bytes too large": statement("UPDATE blocks SET raw_bytes = raw_bytes + 1 WHERE number = ?"),
    "raw_bytes beyond all bounds": statement("UPDATE blocks SET raw_bytes = 1 << 40 WHERE number = ?"),
    "raw_bytes negative": statement("UPDATE blocks SET raw_bytes = -5 WHERE number = ?"),
    "raw_bytes a text": statement("UPDATE blocks SET raw_bytes = 'many' WHERE number = ?"),
    "another dictionary": statement("UPDATE blocks SET dictionary = 999999 WHERE number = ?"),
    "a payload of zeros": forged(bytes(40_000)),
    "a table that lies": forged(b"\xff" * 8 + bytes(4000)),
    "an empty payload of no records": forged(bytes(8)),
    "a bomb": forged(bytes(300 << 20), 40_000),
}


@pytest.mark.parametrize("damage", list(DAMAGES.values()), ids=list(DAMAGES))
def test_damage_to_a_block_costs_its_own_records_only(
    archived: tuple[Path, list[tuple[int, list[str]]]], damage: Damage
) -> None:
    path, blocks = archived
    number, lost = blocks[1]
    expected = {one.id: one.content for one in notes(400) if one.id not in lost}
    damage(path, number)
    with loom.open(path, embedder="none", derive=False, l1_token_budget=100) as memory:
        store = memory.store
        for wanted in (lost[0], lost[-1]):
            with pytest.raises(CorruptStore, match=f"{wanted!r}.*archive block {number}"):
                store.get(wanted)
            with pytest.raises(CorruptStore):
                store.history(wanted)
        for wanted, content in expected.items():
            record = store.get(wanted)
            assert record is not None
            assert record.content == content
        some = list(expected)[:: len(expected) // 5]
        assert {record.id for record in store.scan(Filter(ids=some)).records} == set(some)
        for wanted in some:
            own_word = expected[wanted].split()[-1]
            assert [hit.id for hit in memory.recall(own_word, limit=1)] == [wanted]
        report = memory.check()
        assert not report.ok
        assert any(f"archive block {number} " in problem for problem in report.problems)
        assert not any(
            f"archive block {other} " in line for other, _ in blocks if other != number for line in report.problems
        )
        assert memory.check(repair=False).problems == report.problems
        # Life goes on: what is new is written, archived and read; what is damaged can be forgotten.
        memory.remember("something new that is long enough to be archived by itself", id="new")
        store.archive()
        assert store.get("new") is not None
        memory.forget(lost[0])
        assert store.get(lost[0]) is None
        with pytest.raises(CorruptStore):
            store.get(lost[1])
        assert not memory.check().ok
        memory.forget(lost)
        assert memory.check().ok
        assert {record.id: record.content for record in everything(store) if record.id != "new"} == expected


def test_a_block_whose_bytes_are_marked_as_text_is_read_all_the_same(path: Path) -> None:
    store = opened(path)
    put(store, notes(100))
    before = everything(store)
    store.archive()
    store.close()
    outside(path, "UPDATE blocks SET data = CAST(data AS TEXT)")  # one bit in SQLite's header of a row
    store = opened(path)
    assert everything(store) == before
    assert store.check().ok
    store.close()


def test_a_record_that_names_another_block_is_reported(archived: tuple[Path, list[tuple[int, list[str]]]]) -> None:
    path, blocks = archived
    (first, _), (second, ids), *_ = blocks
    outside(path, ("UPDATE records SET block = ? WHERE id = ?", (first, ids[0])))
    store = opened(path)
    with pytest.raises(CorruptStore, match=f"{ids[0]!r}"):
        store.get(ids[0])
    problems = store.check().problems
    assert any(f"block {first} " in problem for problem in problems)
    assert any(f"block {second} " in problem for problem in problems)
    store.close()


def test_blocks_that_were_exchanged_are_noticed(archived: tuple[Path, list[tuple[int, list[str]]]]) -> None:
    path, blocks = archived
    (first, ids), (second, _), *_ = blocks
    outside(
        path,
        f"UPDATE blocks SET number = -1 WHERE number = {first}",
        f"UPDATE blocks SET number = {first} WHERE number = {second}",
        f"UPDATE blocks SET number = {second} WHERE number = -1",
    )
    store = opened(path)
    with pytest.raises(CorruptStore):
        store.get(ids[0])
    assert len(store.check().problems) >= 2
    store.close()


def with_a_phrase(store: SqliteStore, sharing: int = 60, seed: int = 5) -> list[str]:
    """Records of words that nothing shares, and some that share one phrase; the ids of those."""
    chance = random.Random(seed)
    plain = [draft(f"f{number}", words(chance, 60)) for number in range(400)]
    shared = [draft(f"s{number}", f"{PHRASE} {words(chance, 5)}") for number in range(sharing)]
    mixed = plain + shared
    chance.shuffle(mixed)
    put(store, mixed)
    return [one.id for one in shared]


# --- forgetting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5, 60, 399])
def test_nothing_of_what_is_forgotten_is_left_in_any_byte_or_block(
    store: SqliteStore, path: Path, count: int
) -> None:
    put(store, notes(400))
    store.archive()
    before = {record.id: record for record in everything(store)}
    gone = random.Random(count).sample(list(before), count)
    marks = [word for id in gone for word in before[id].content.split()[-3:]]
    assert store.forget(Filter(ids=gone, history=True)).records == count
    assert left_of(path, marks) == []
    assert {record.id: record for record in everything(store)} == {
        id: record for id, record in before.items() if id not in gone
    }
    assert store.check().ok
    store.vacuum()
    assert store.check().ok
    assert len(everything(store)) == 400 - count


def test_the_other_records_of_the_block_stay_as_they_are(archived: tuple[Path, list[tuple[int, list[str]]]]) -> None:
    path, blocks = archived
    _, ids = blocks[0]
    store = opened(path)
    before = everything(store)
    store.forget(Filter(ids=[ids[1]]))
    assert everything(store) == [record for record in before if record.id != ids[1]]
    assert [number for number, _ in blocks_of(path)][:-1] == [number for number, _ in blocks[1:]]
    store.close()


def test_rows_of_short_texts_leave_no_copies_in_the_gaps_of_pages(tmp_path: Path) -> None:
    # A row that grows makes SQLite move rows between full pages; the copies in the gaps outlive a forget.
    for seed in (23, 39, 3):
        chance = random.Random(seed)
        path = tmp_path / f"{seed}" / "a.loom"
        path.parent.mkdir()
        store = opened(path)
        marks: list[str] = []
        share = chance.choice([0.5, 0.8, 0.95, 1.0])
        for _ in range(10):
            drafts = []
            for _ in range(60):
                mark, id = f"mk{chance.getrandbits(64):016x}", f"mk{chance.getrandbits(64):016x}"
                short = chance.choice(["", "o", "ok", "yes"]) if chance.random() < share else ""
                text = short or f"{mark} " + "word " * chance.randint(1, 60)
                drafts.append(draft(id, text))
                marks += [mark, id]
            put(store, drafts)
        store.archive()
        store.forget(Filter(ids=marks[1::2]))
        assert left_of(path, marks) == []
        store.close()


def test_forgotten_texts_leave_the_memory_of_another_reader(store: SqliteStore, path: Path) -> None:
    put(store, notes(200))
    store.archive()
    reader = opened(path, read_only=True)
    assert reader.get("n7") is not None
    mark = notes(200)[7].content.split()[-1]
    store.forget(Filter(ids=["n7"]))
    search_text(reader, {"index": 1.0}, 5, Filter())
    for one in (reader, store):
        held = [text.content for block in one.engine.archive.blocks.values() for text in block.texts()]
        assert not any(mark in content for content in held)
    reader.close()


@pytest.mark.parametrize("place", [1, 2, 5, 8])
def test_a_forget_that_fails_in_the_middle_harms_no_reader(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    shared = with_a_phrase(store)
    store.archive()
    before = everything(store)
    owner, name = steps.find("archive.insert_block")
    original = getattr(owner, name)
    calls = [0]

    def fail_in_the_middle(*given: Any) -> None:
        calls[0] += 1
        if calls[0] == place:
            raise sqlite3.OperationalError("database or disk is full")
        original(*given)

    monkeypatch.setattr(owner, name, fail_in_the_middle)
    with pytest.raises(loom.LoomError):
        store.forget(Filter(ids=shared))
    monkeypatch.undo()
    assert calls[0] == place
    left = [record for record in before if record.id not in shared]
    assert everything(store) in (before, left)
    put(store, [one._replace(id=f"later-{one.id}") for one in notes(300)])  # takes the numbers that were given back
    store.archive()
    assert everything(store)[: len(left)] in (before[: len(left)], left)
    assert store.check().ok
    store.forget(Filter(ids=shared))
    assert store.flush().complete
    assert everything(store)[: len(left)] == left
    assert left_of(path, ["rendezvous"]) == []


def test_a_derived_record_in_the_archive_goes_with_its_source(store: SqliteStore, path: Path) -> None:
    put(store, notes(60))
    put(store, [draft("summary", "a summary of the kestrelmark matter, in some more words", sources=("n5", "n6"))])
    store.archive()
    receipt = store.forget(Filter(ids=["n5"]))
    assert (receipt.records, receipt.derived) == (2, 1)
    assert left_of(path, ["kestrelmark"]) == []
    assert store.get("n6") is not None
    assert store.check().ok


# --- any history ----------------------------------------------------------------------------------------------


class AnyHistory(RuleBasedStateMachine):
    """Random writing, archiving and forgetting beside a dictionary that does the same in plain Python."""

    ids = Bundle("ids")

    @initialize(seed=st.integers(0, 10_000))
    def begin(self, seed: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "a.loom"
        self.chance = random.Random(seed)
        self.store = opened(self.path)
        self.expected: dict[str, list[tuple[str, Any]]] = {}
        self.gone: list[str] = []
        self.count = 0

    def text(self, size: int) -> str:
        self.count += 1
        shared = self.chance.choice([PHRASE, "我们决定把会议推迟到下周", ""])
        return (
            f"{shared} mark{self.count}end {words(self.chance, size)}"
            if size
            else self.chance.choice(["", "ok", "\0"])
        )

    @rule(target=ids, count=st.integers(1, 40), size=st.sampled_from([0, 8, 60, 400]), data=VALUES)
    def remember(self, count: int, size: int, data: Any) -> Any:
        drafts = [draft(f"r{self.count}-{n}-{size}", self.text(size), data=data) for n in range(count)]
        put(self.store, drafts)
        for one in drafts:
            self.expected[one.id] = [(one.content, one.data)]
        return multiple(*(one.id for one in drafts))

    @rule(id=ids, size=st.sampled_from([8, 100]))
    def update(self, id: str, size: int) -> None:
        if id in self.expected:
            one = draft(id, self.text(size), revises=True)
            put(self.store, [one])
            self.expected[id].append((one.content, None))

    @rule()
    def archive(self) -> None:
        self.store.archive()

    @rule(ids=st.lists(consumes(ids), min_size=1, max_size=12))
    def forget(self, ids: list[str]) -> None:
        self.store.forget(Filter(ids=ids, history=True))
        for id in ids:
            self.gone += [
                word for text, _ in self.expected.pop(id, []) for word in text.split() if word[:4] == "mark"
            ]

    @rule()
    def vacuum(self) -> None:
        self.store.vacuum()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = opened(self.path)

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "store"):
            return
        found: dict[str, list[tuple[str, Any]]] = {}
        for record in everything(self.store):
            found.setdefault(record.id, []).append((record.content, record.data))
        assert found == self.expected
        report = self.store.check(repair=False)
        assert report.ok, report.problems

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            assert left_of(self.path, self.gone) == []
            self.folder.cleanup()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(
    max_examples=8, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_vacuum_keeps_a_block_that_records_name_whatever_its_count_says(
    archived: tuple[Path, list[tuple[int, list[str]]]],
) -> None:
    path, blocks = archived
    number, ids = blocks[1]
    outside(path, ("UPDATE blocks SET records = 0 WHERE number = ?", (number,)))
    store = opened(path)
    try:
        store.vacuum()
        assert all(store.get(id) is not None for id in ids)
    finally:
        store.close()


def test_check_reads_a_block_that_is_marked_as_one_of_another_namespace(
    archived: tuple[Path, list[tuple[int, list[str]]]],
) -> None:
    path, blocks = archived
    number = blocks[1][0]
    outside(path, ("UPDATE blocks SET namespace = 77 WHERE number = ?", (number,)))
    flip(path, number)
    store = opened(path)
    try:
        problems = [problem for problem in store.check().problems if f"block {number} " in problem]
        assert any("namespace" in problem for problem in problems)
        assert any("damaged" in problem for problem in problems)
    finally:
        store.close()
