"""Bad files, full disks and bad values: each gets its own clear error, and the store is unharmed."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom.errors import (
    CorruptStore,
    IdConflict,
    InvalidInput,
    LoomError,
    NotAStore,
    SettingsConflict,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TextTooLarge,
    UnknownFilter,
    UnsupportedStore,
    WrongDimension,
)
from loom.everyday import Memory
from loom.index.segments import open_segment, write_segment
from loom.index.vector_index import CODE_VERSION
from loom.memory import LoomMemory, MemoryTier
from loom.models.embedders import FakeEmbedder
from loom.storage.contract import MAX_TEXT_BYTES, Dimensions, Draft, Filter
from loom.storage.search_view import search_text, search_vectors
from loom.storage.sqlite import schema
from loom.storage.sqlite.engine import Engine
from loom.storage.sqlite.store import SqliteStore

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DATA = Path(__file__).parent.parent / "data" / "stores"


def digest(path: Path) -> str:
    """Only for files that no store of this process has open."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def filled(path: Path, count: int = 30, **settings: Any) -> dict[str, str]:
    """A closed store with some records, and the text of each id."""
    texts = {f"id{number}": f"note {number} about harbours " + "x" * (number * 37 % 900) for number in range(count)}
    settings.setdefault("embedder", "none")
    with loom.open(path, **settings) as memory:
        for record_id, text in texts.items():
            memory.remember(
                text,
                id=record_id,
                metadata={"n": record_id},
                session_id="s",
                trust="web",
                role="tool",
                name="Ana",
                importance=0.25,
                created_at=NOW,
            )
        memory.flush()
    return texts


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with loom.open(tmp_path / "a.loom", embedder="none") as opened:
        opened.remember("what was there before", id="before")
        yield opened
        assert [record.id for record in opened.list(limit=1, newest_first=False).records] == ["before"]
        assert opened.check().ok


# --- what is not a store ----------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        b"hello, this is a text file",
        b"x",
        random.Random(1).randbytes(4096 * 3),
        b"\x00" * 8192,
        b"SQLite format 3\x00" + b"\x07" * 4000,
    ],
    ids=["text", "one byte", "noise", "zeros", "half a header"],
)
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path, content: bytes, read_only: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(NotAStore, match=r"notes\.txt"):
        loom.open(path, read_only=read_only)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, read_only: bool, journal: str
) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, content TEXT)")
        connection.execute("INSERT INTO records VALUES (1, 'theirs')")
        connection.commit()
    before = digest(path)
    with pytest.raises(NotAStore, match="another program"):
        loom.open(path, read_only=read_only)
    assert digest(path) == before
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT content FROM records").fetchall() == [("theirs",)]


def test_an_empty_file_becomes_a_store_but_holds_nothing_to_read(tmp_path: Path) -> None:
    path = tmp_path / "empty.loom"
    path.touch()
    with pytest.raises(NotAStore, match="empty"):
        loom.open(path, read_only=True)
    assert path.stat().st_size == 0
    with loom.open(path, embedder="none") as memory:
        memory.remember("now there is something", id="x")
    with loom.open(path, embedder="none", read_only=True) as memory:
        assert memory.get("x") is not None


def test_a_file_with_another_name_is_refused_while_it_has_one(tmp_path: Path) -> None:
    """SQLite would keep a separate log for each name."""
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember("One.", id="one")
    os.link(tmp_path / "a.loom", tmp_path / "b.loom")
    for name in ("a.loom", "b.loom"):
        with pytest.raises(UnsupportedStore, match="has other names"):
            loom.open(tmp_path / name, embedder="none")
    (tmp_path / "b.loom").unlink()
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        assert memory.get("one") is not None


def test_places_that_cannot_hold_a_store_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is a folder"):
        loom.open(tmp_path)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        loom.open(tmp_path / "missing" / "a.loom")
    with pytest.raises(StoreUnavailable, match="does not exist"):
        loom.open(tmp_path / "missing.loom", read_only=True)
    with pytest.raises(InvalidInput, match="read-only"):
        loom.open(read_only=True)
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable):
        loom.open(tmp_path / "file" / "a.loom")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StoreError):
        loom.open(tmp_path / "loop")
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    filled(path, 3)
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = digest(path)
    for read_only in (False, True):
        with pytest.raises(UnsupportedStore, match="upgrade"):
            loom.open(path, read_only=read_only)
    assert digest(path) == before


def test_a_text_index_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    filled(path, 3)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE settings SET value = '999' WHERE key = 'analyzer'")
    with pytest.raises(LoomError, match="newer"):
        loom.open(path, embedder="none")


# --- damage -----------------------------------------------------------------------------------------------


def read_everything(path: Path, texts: dict[str, str], read_only: bool = False) -> str:
    """Use a store that may be damaged. Whatever is answered must be right; the only errors are our own."""
    try:
        memory = loom.open(path, embedder="none", read_only=read_only, busy_timeout_s=1.0, close_timeout_s=1.0)
    except LoomError as error:
        return type(error).__name__
    outcome = "read"
    try:
        for record_id, text in texts.items():
            try:
                record = memory.get(record_id)
            except LoomError as error:
                outcome = type(error).__name__
                continue
            if record is not None:
                assert record.content == text
                assert record.metadata == {"n": record_id}
                assert (record.session_id, record.trust, record.kind, record.node) == (
                    "s",
                    "web",
                    "message",
                    "default",
                )
                assert (record.role, record.name, record.importance) == ("tool", "Ana", 0.25)
                assert (record.created_at, record.dimensions) == (NOW, Dimensions())
        uses: list[Callable[[], list[tuple[str, str]]]] = [
            lambda: [(one.id, one.content) for one in memory.list(limit=100).records],
            lambda: [(one.id, one.content) for one in memory.recall("harbours", limit=50)],
        ]
        for use in uses:
            try:
                for record_id, content in use():
                    assert texts[record_id] == content
            except LoomError as error:
                outcome = type(error).__name__
        try:
            report = memory.check()
            if not report.ok:
                outcome = "reported"
        except LoomError as error:
            outcome = type(error).__name__
    finally:
        try:
            memory.close()
        except LoomError as error:
            outcome = type(error).__name__
    return outcome


def test_a_file_cut_short_never_gives_a_wrong_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    texts = filled(path)
    content = path.read_bytes()
    outcomes = set()
    for size in (15, 99, 100, 1000, 4096, 8192, len(content) // 2, len(content) - 4096, len(content) - 1):
        copy = tmp_path / f"cut{size}.loom"
        copy.write_bytes(content[:size])
        outcome = read_everything(copy, texts)
        if outcome != "read" or size < len(content) - 1:  # the very last byte may be one that no row has
            outcomes.add(outcome)
    assert outcomes <= {"NotAStore", "CorruptStore", "StoreError", "reported"}
    assert "CorruptStore" in outcomes or "reported" in outcomes


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_flipped_bits_give_an_error_or_the_right_answer(tmp_path: Path, first: int) -> None:
    path = tmp_path / "a.loom"
    texts = filled(path, index_tail_records=8)
    content = path.read_bytes()
    outcomes = []
    for seed in range(first, first + 20):
        random_ = random.Random(seed)
        damaged = bytearray(content)
        for _ in range(random_.choice([1, 1, 1, 2, 5, 50])):
            place = random_.randrange(len(damaged)) if random_.random() < 0.7 else random_.randrange(4096)
            damaged[place] ^= 1 << random_.randrange(8)
        copy = tmp_path / f"flip{seed}.loom"
        copy.write_bytes(damaged)
        outcomes.append(read_everything(copy, texts, read_only=seed % 3 == 0))
        for leftover in tmp_path.glob(f"flip{seed}.loom*"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    assert set(outcomes) <= {"read", "reported", "CorruptStore", "StoreError", "NotAStore", "UnsupportedStore"}
    assert {"read"} != set(outcomes), "no flip was noticed at all"


@pytest.mark.parametrize("column", ["trust", "role", "name", "session", "created_at", "importance", "kind", "node"])
def test_no_part_of_a_record_can_change_unnoticed(tmp_path: Path, column: str) -> None:
    path = tmp_path / "a.loom"
    filled(path, 5)
    with closing(sqlite3.connect(path)) as connection, connection:
        value = 1 if column in ("created_at", "importance") else "'user'"
        connection.execute(f"UPDATE records SET {column} = {value} WHERE id = 'id3'")
    with loom.open(path, embedder="none") as memory:
        with pytest.raises(CorruptStore, match="'id3'"):
            memory.get("id3")
        assert any("'id3'" in problem for problem in memory.check().problems)


def test_no_part_of_an_entry_can_change_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path)) as store, store.transaction() as transaction:
        transaction.put_entry("plan", {"step": "alpha"}, writer="one")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE entries SET content = replace(content, 'alpha', 'omega')")
    with closing(SqliteStore(path)) as store:
        with pytest.raises(CorruptStore, match="'plan'"):
            store.entry("plan")
        assert any("'plan'" in problem for problem in store.check().problems)


@pytest.mark.parametrize(
    ("column", "value"), [("created_at", "9000000000000000000"), ("metadata", "'{'"), ("subject", "'nobody'")]
)
def test_a_value_that_cannot_be_is_damage_and_not_the_callers_fault(tmp_path: Path, column: str, value: str) -> None:
    path = tmp_path / "a.loom"
    filled(path, 5)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE records SET {column} = {value} WHERE id = 'id3'")
    with loom.open(path, embedder="none") as memory:
        with pytest.raises(CorruptStore):
            memory.get("id3")
        with pytest.raises(CorruptStore):
            memory.list()


def test_a_damaged_text_is_an_error_and_check_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    filled(path, 5)
    content = path.read_bytes()
    assert content.count(b"note 3 about harbours") == 1
    path.write_bytes(content.replace(b"note 3 about harbours", b"note 8 about harbours"))
    with loom.open(path, embedder="none") as memory:
        with pytest.raises(CorruptStore, match="'id3'"):
            memory.get("id3")
        with pytest.raises(CorruptStore, match="checksum"):
            memory.list()
        assert memory.get("id2") is not None
        report = memory.check()
        assert not report.ok
        assert any("'id3'" in problem for problem in report.problems)
        assert memory.remember("writing goes on", id="new").created
        assert memory.get("new") is not None
        assert memory.forget("id3").records == 1
        assert memory.check().ok


def test_a_damaged_blob_is_an_error_and_check_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with closing(SqliteStore(path)) as store, store.transaction() as transaction:
        transaction.put_blob("picture", b"blob content of some length")
    path.write_bytes(path.read_bytes().replace(b"blob content of some", b"blob content of sime"))
    with closing(SqliteStore(path)) as store:
        with pytest.raises(CorruptStore, match="'picture'"):
            store.blob("picture")
        assert any("picture" in problem for problem in store.check().problems)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "missing", "another store's", "garbage"])
def test_a_damaged_index_is_rebuilt_from_the_records(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.loom"
    filled(path, 60, index_tail_records=8, embedder=FakeEmbedder())
    filled(tmp_path / "b.loom", 60, index_tail_records=8, embedder=FakeEmbedder())
    folder = tmp_path / "a.loom-index"
    files = sorted(folder.iterdir())
    assert len(files) >= 2
    for number, file in enumerate(files):
        content = bytearray(file.read_bytes())
        if damage == "flip":
            content[20 + number] ^= 4
            file.write_bytes(content)
        elif damage == "cut":
            file.write_bytes(content[: len(content) // 2])
        elif damage == "empty":
            file.write_bytes(b"")
        elif damage == "missing":
            file.unlink()
        elif damage == "garbage":
            file.write_bytes(os.urandom(500))
        else:
            others = sorted((tmp_path / "b.loom-index").glob(f"{file.name.partition('-')[0]}-*"))
            file.write_bytes(others[0].read_bytes())
    with loom.open(path, embedder=FakeEmbedder(), index_tail_records=8) as memory:
        assert {hit.id for hit in memory.recall("harbours", limit=100)} == {f"id{number}" for number in range(60)}
        assert memory.check().ok
        assert memory.check().repaired == ()
        assert memory.recall("note 17", limit=1)[0].id == "id17"


@pytest.mark.parametrize("first", ["ask", "check", "rest"])
def test_vectors_indexed_by_another_version_are_indexed_again_and_nothing_else(tmp_path: Path, first: str) -> None:
    path = tmp_path / "a.loom"
    filled(path, 60, index_tail_records=8, embedder=FakeEmbedder())
    folder = tmp_path / "a.loom-index"
    words = {file.name for file in folder.glob("text-*")}
    for file in folder.glob("vectors-*"):
        segment = open_segment(file)
        arrays = {name: np.array(array) for name, array in segment.arrays.items()}
        write_segment(file, {**segment.header, "code_version": 1}, arrays)
    with loom.open(path, embedder=FakeEmbedder(), index_tail_records=8) as memory:
        if first == "check":
            assert any("vectors" in line for line in memory.check().repaired)
        elif first == "rest":
            memory.vacuum()
        assert memory.recall("note 17", limit=1)[0].id == "id17"
        assert memory.check().repaired == ()
        assert first == "rest" or {file.name for file in folder.glob("text-*")} == words
        versions = {open_segment(file).header["code_version"] for file in folder.glob("vectors-*")}
        assert versions == {CODE_VERSION}


def test_bits_flipped_inside_index_arrays_are_found_and_repaired_by_check(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    filled(path, 40, index_tail_records=8)
    file = sorted((tmp_path / "a.loom-index").iterdir())[0]
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with loom.open(path, embedder="none", index_tail_records=8) as memory:
        dry = memory.check(repair=False)
        assert any("index" in problem for problem in dry.problems)
        report = memory.check()
        assert report.ok
        assert any("rebuilt" in line for line in report.repaired)
        assert len(memory.recall("harbours", limit=100)) == 40
        assert memory.check().repaired == ()


def test_random_flips_in_the_index_never_reach_a_caller_as_a_foreign_error(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    texts = filled(path, 60, index_tail_records=8)
    originals = {file: file.read_bytes() for file in sorted((tmp_path / "a.loom-index").iterdir())}
    main = path.read_bytes()
    random_ = random.Random(5)
    for _ in range(40):
        shutil.rmtree(tmp_path / "a.loom-index")
        (tmp_path / "a.loom-index").mkdir()
        for file, content in originals.items():
            damaged = bytearray(content)
            for _ in range(random_.choice([0, 1, 3, 30])):
                damaged[random_.randrange(len(damaged))] ^= 1 << random_.randrange(8)
            file.write_bytes(damaged)
        path.write_bytes(main)
        assert read_everything(path, texts) in ("read", "reported", "CorruptStore", "DamagedSegment")
        with loom.open(path, embedder="none") as memory:
            assert memory.check().ok
            assert len(memory.recall("harbours", limit=100)) == 60


# --- folders and disks ------------------------------------------------------------------------------------

_IN_READ_ONLY_MOUNT = """
import subprocess, sys
from pathlib import Path
import loom
from loom.errors import LoomError, ReadOnly, StoreUnavailable
folder = Path(sys.argv[1])
subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
def refused(call):
    try:
        call()
    except LoomError as error:
        return type(error).__name__
    return "done"
print("open", refused(lambda: loom.open(folder / "a.loom", embedder="none")))
print("new", refused(lambda: loom.open(folder / "new.loom", embedder="none")))
with loom.open(folder / "a.loom", embedder="none", read_only=True) as memory:
    print("get", memory.get("id3").content[:6])
    print("recall", len(memory.recall("harbours", limit=50)))
    print("list", len(memory.list().records))
    print("check", memory.check().ok)
    print("write", refused(lambda: memory.remember("more")))
    print("backup", refused(lambda: memory.backup(folder / "copy.loom")))
"""


def unshared(script: str, *arguments: object) -> str:
    """Run a script in mount name space of its own; skips where this machine does not allow one."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting a file system needs root and unshare")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow a mount name space")
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if "permission denied" in done.stderr and "mount" in done.stderr:
        pytest.skip("this machine does not allow mounting")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_a_read_only_folder_reading_works_and_writing_says_why_not(tmp_path: Path) -> None:
    filled(tmp_path / "a.loom", 30, index_tail_records=8)
    lines = dict(line.split(" ", 1) for line in unshared(_IN_READ_ONLY_MOUNT, tmp_path).splitlines())
    assert lines == {
        "open": "StoreUnavailable",
        "new": "StoreUnavailable",
        "get": "note 3",
        "recall": "30",
        "list": "30",
        "check": "True",
        "write": "ReadOnly",
        "backup": "StoreUnavailable",
    }


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_READONLY, StoreUnavailable),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable),
        (sqlite3.SQLITE_PERM, StoreUnavailable),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_IOERR, StoreUnavailable),
        (sqlite3.SQLITE_CORRUPT, CorruptStore),
        (sqlite3.SQLITE_NOTADB, NotAStore),
    ],
)
def test_what_sqlite_says_while_writing_becomes_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[LoomError]
) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember("before", id="before")
        with monkeypatch.context() as patch:

            def failing(_: Engine) -> sqlite3.Connection:
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorcode = code
                raise error

            patch.setattr(Engine, "writing_connection", failing)
            with pytest.raises(expected):
                memory.remember("during")
        assert memory.remember("after", id="after").created
        assert [record.id for record in memory.list().records] == ["after", "before"]


_ON_A_FULL_DISK = """
import os, subprocess, sys
from pathlib import Path
import loom
from loom.errors import ForgetPending, LoomError, StoreFull
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], check=True)
(folder / "ballast").write_bytes(b"b" * 300_000)  # room for some writes, and for the counts of what has none yet
memory = loom.open(folder / "a.loom", embedder="none", index_tail_records=20)
kept, error = [], None
for number in range(100_000):
    try:
        memory.remember(f"note {number} about harbours " + "x" * 700, id=f"id{number}")
        kept.append(f"id{number}")
    except LoomError as caught:
        error = caught
        break
print("error", type(error).__name__)
print("some", len(kept) > 50)
def batch():
    return [{"role": "user", "content": f"batch {n} " + "y" * 3000, "id": f"b{n}"} for n in range(200)]
try:
    memory.remember(batch())
    print("batch", "done")
except LoomError as caught:
    print("batch", type(caught).__name__)
print("whole", memory.store.count(loom.Filter()) == len(kept))
print("reads", all(memory.get(one) is not None for one in kept))
print("recall", len(memory.recall("harbours", limit=5)))
(folder / "ballast").unlink()
memory.remember("there is room again", id="later")
print("again", memory.recall("room again", limit=1)[0].id)
print("flush", memory.flush(timeout_s=20).failed)
print("check", memory.check().problems)
memory.close()
with loom.open(folder / "a.loom", embedder="none") as again:
    print("reopened", again.store.count(loom.Filter()) == len(kept) + 1, again.check().ok)
"""


def test_a_full_disk_is_told_nothing_is_half_written_and_writing_goes_on_when_there_is_room(tmp_path: Path) -> None:
    lines = dict(line.split(" ", 1) for line in unshared(_ON_A_FULL_DISK, tmp_path).splitlines())
    assert lines == {
        "error": "StoreFull",
        "some": "True",
        "batch": "StoreFull",
        "whole": "True",
        "reads": "True",
        "recall": "5",
        "again": "later",
        "flush": "{}",
        "check": "()",
        "reopened": "True True",
    }


def test_a_size_limit_is_kept_and_nothing_is_half_written(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    kept = 0
    with closing(SqliteStore(path, max_bytes=600_000)) as store:

        def write(first: int, count: int) -> None:
            with store.transaction() as transaction:
                transaction.append(
                    [
                        Draft(id=f"id{number}", content=f"note {number} " + "x" * 5000, created_at=NOW)
                        for number in range(first, first + count)
                    ]
                )

        full = ""
        while not full:
            try:
                write(kept, 1)
                kept += 1
            except StoreFull as error:
                full = str(error)
        assert "no space" in full
        assert kept > 20
        with pytest.raises(StoreFull):
            write(10_000, 50)
        assert store.count(Filter()) == kept
        assert store.get(f"id{kept - 1}") is not None
        assert search_text(store, {"note": 1.0}, 5, Filter())
        assert store.check().ok
        assert os.stat(path).st_size <= 600_000 + 4096
    with closing(SqliteStore(path)) as store:
        with store.transaction() as transaction:
            transaction.append([Draft(id="more", content="with a larger limit", created_at=NOW)])
        assert store.count(Filter()) == kept + 1


# --- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u3000", None, 7, b"bytes", [["nested"]]])
def test_what_is_not_a_text_is_refused(memory: Memory, text: Any) -> None:
    with pytest.raises(InvalidInput):
        memory.remember(text)
    with pytest.raises(InvalidInput):
        memory.update("before", text)


def test_a_text_over_the_limit_is_refused_and_one_at_the_limit_is_kept(memory: Memory) -> None:
    for text in ("x" * (MAX_TEXT_BYTES + 1), "汉" * (MAX_TEXT_BYTES // 3 + 1)):
        with pytest.raises(TextTooLarge, match="Split"):
            memory.remember(text)
        with pytest.raises(TextTooLarge):
            memory.update("before", text)
    largest = "y" * (MAX_TEXT_BYTES - 5) + " zebu"
    memory.remember(largest, id="largest")
    record = memory.get("largest")
    assert record is not None
    assert record.content == largest
    assert memory.recall("zebu")[0].id == "largest"


def test_ten_megabytes_and_nul_bytes_are_kept_verbatim_and_found(memory: Memory) -> None:
    words = [f"word{number}" for number in range(1000)]
    text = ("\x00\x01 " + " ".join(words) + "\r\n\x00 全角文字 \U0001f600 ") * 1300
    text += "needleword\x00tail"
    assert len(text.encode()) > 10_000_000
    memory.remember(text, id="long")
    memory.remember("a\x00b nulneedle\x00", id="nul")
    memory.flush()
    record = memory.get("long")
    assert record is not None
    assert record.content == text
    assert record.tokens > 1_000_000
    assert memory.recall("needleword")[0].id == "long"
    assert memory.recall("全角文字")[0].id == "long"
    (hit,) = memory.recall("nulneedle")
    assert hit.content == "a\x00b nulneedle\x00"


_HALF = "half \ud83d of a pair"


@pytest.mark.parametrize(
    "said",
    [
        {"what": _HALF},
        {"what": [_HALF]},
        {"what": {"role": "user", "content": [{"type": "text", "text": "whole"}], "extra": _HALF}},
        {"id": _HALF},
        {"role": _HALF},
        {"name": _HALF},
        {"session_id": _HALF},
        {"kind": _HALF},
        {"metadata": {"a": ["deep", {"b": _HALF}]}},
        {"metadata": {_HALF: 1}},
    ],
    ids=lambda said: "+".join(said),
)
def test_a_lone_surrogate_is_refused_wherever_it_stands(memory: Memory, said: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="surrogate"):
        memory.remember(**{"what": "text", **said})


def test_a_lone_surrogate_in_a_question_or_filter_finds_nothing_or_is_refused(memory: Memory) -> None:
    bad = "\ud83d"
    for use in (
        lambda: memory.recall(bad),
        lambda: memory.get(bad),
        lambda: memory.list(session_id=bad),
        lambda: memory.list(where={"a": bad}),
        lambda: memory.list(where={bad: 1}),
        lambda: memory.forget(bad),
        lambda: memory.history(bad),
    ):
        try:
            assert not use() or use() == memory.list(ids=["nobody"])
        except InvalidInput:
            continue


def test_an_id_used_twice_with_another_text_is_refused(memory: Memory) -> None:
    with pytest.raises(IdConflict, match="'before'"):
        memory.remember("another text", id="before")
    bad_ids: list[Any] = ["", 7, b"id"]
    for bad in bad_ids:
        with pytest.raises(InvalidInput):
            memory.remember("text", id=bad)


def test_an_unknown_filter_is_refused_and_names_those_there_are(memory: Memory) -> None:
    unknown: Any = {"colour": "red"}
    uses: dict[str, Callable[[], object]] = {
        "recall": lambda: memory.recall("text", **unknown),
        "list": lambda: memory.list(**unknown),
        "forget": lambda: memory.forget(**unknown),
    }
    for verb, use in uses.items():
        with pytest.raises(UnknownFilter, match=rf"{verb}\(\) has no filter 'colour'.*session_id"):
            use()


def test_times_without_a_zone_are_refused(memory: Memory) -> None:
    naive = datetime(2026, 3, 1)  # noqa: DTZ001
    for use in (
        lambda: memory.remember("text", created_at=naive),
        lambda: memory.recall("text", since=naive),
        lambda: memory.recall("text", until=naive),
        lambda: memory.recall("text", as_of=naive),
        lambda: memory.recall("text", known_at=naive),
        lambda: memory.list(since=naive),
        lambda: memory.forget(until=naive),
        lambda: memory.facts(as_of=naive),
        lambda: memory.archive(naive),
    ):
        with pytest.raises(InvalidInput, match=r"a time without a zone; add tzinfo=.*datetime.now\(timezone.utc\)"):
            use()


@pytest.mark.parametrize("moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_ends_of_time_are_kept(memory: Memory, moment: datetime) -> None:
    memory.remember("far away", id="far", created_at=moment)
    record = memory.get("far")
    assert record is not None
    assert record.created_at == moment
    assert [hit.id for hit in memory.recall("far away", since=moment - (moment - NOW) / 2)] == (
        ["far"] if moment > NOW else []
    )


@pytest.mark.parametrize(
    "said",
    [
        {"importance": -0.01},
        {"importance": 1.01},
        {"importance": float("nan")},
        {"importance": "high"},
        {"trust": "nobody"},
        {"trust": ""},
        {"trust": 7},
        {"metadata": {"a": float("nan")}},
        {"metadata": {"a": float("inf")}},
        {"metadata": {"a": object()}},
        {"metadata": {"a": b"bytes"}},
        {"metadata": {"a": {1, 2}}},
        {"metadata": [1]},
        {"metadata": "text"},
        {"role": 7},
        {"name": ["b"]},
        {"session_id": 7},
        {"kind": 7},
        {"created_at": "yesterday"},
        {"created_at": 1_700_000_000},
        {"dimensions": "world"},
    ],
)
def test_a_bad_value_about_a_memory_is_refused(memory: Memory, said: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        memory.remember("text", **said)


def test_numbers_of_any_size_survive_in_metadata_and_never_match_another(memory: Memory) -> None:
    numbers = [2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 + 1, 10**30, 1e300, 0.1, -0.0]
    for place, number in enumerate(numbers):
        memory.remember("number", id=f"n{place}", metadata={"n": number})
    for place, number in enumerate(numbers):
        record = memory.get(f"n{place}")
        assert record is not None
        assert record.metadata == {"n": number}
    for place, number in enumerate(numbers):
        try:
            found = {record.id for record in memory.list(where={"n": number}).records}
        except InvalidInput:
            assert abs(number) >= 2**63
            continue
        if abs(number) < 2**63:
            assert found == {f"n{place}"}


def test_bad_values_in_filters_are_refused(memory: Memory) -> None:
    bad: list[dict[str, Any]] = [
        {"where": {"a": {"b": 1}}},
        {"where": {"a": object()}},
        {"where": {7: 1}},
        {"where": "text"},
        {"session_id": 7},
        {"session_id": [7]},
        {"since": "yesterday"},
        {"min_importance": "high"},
    ]
    for filters in bad:
        for use in (lambda: memory.recall("text", **filters), lambda: memory.list(**filters)):  # noqa: B023
            with pytest.raises(InvalidInput):
                use()


def test_a_vector_of_another_length_is_refused(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder=FakeEmbedder(16)) as memory:
        memory.remember("text", id="x")
        memory.flush()
        record = memory.get("x")
        assert record is not None
        for vectors in (np.ones((1, 15), np.float32), np.ones((2, 16), np.float32), np.ones(16, np.float32)):
            with pytest.raises(WrongDimension), memory.store.transaction() as transaction:
                transaction.put_vectors([record.seq], vectors)
        with pytest.raises(WrongDimension, match="NaN"), memory.store.transaction() as transaction:
            transaction.put_vectors([record.seq], np.full((1, 16), np.nan, np.float32))
        with pytest.raises(WrongDimension, match="16"):
            search_vectors(memory.store, np.ones(15, np.float32), 5, Filter())
        assert memory.get_stats()["vectors"] == 1
        assert memory.check().ok


class _Liar(FakeEmbedder):
    """States 16 dimensions and answers with 15."""

    def embed_batch(self, texts: Any) -> Any:
        return np.ones((len(texts), 15), dtype=np.float32)


def test_an_embedder_that_answers_with_another_length_harms_nothing(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder=_Liar(16)) as memory:
        memory.remember("harbours", id="x")
        memory.flush(timeout_s=0.2)
        (job,) = memory.store.jobs("embed")
        assert job.attempts >= 1
        assert memory.get_stats()["vectors"] == 0
        assert [
            hit.id
            for hit in memory.store.records(
                match.seq for match in search_text(memory.store, {"harbour": 1.0}, 5, Filter())
            ).values()
        ] == ["x"]


# --- settings that must agree -----------------------------------------------------------------------------


def test_another_budget_than_the_files_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with loom.open(path, embedder="none", l1_token_budget=1234):
        pass
    with loom.open(path, embedder="none") as memory:
        assert memory.settings.l1_token_budget == 1234
    with pytest.raises(SettingsConflict, match=r"l1_token_budget.*1234.*reconfigure"):
        loom.open(path, embedder="none", l1_token_budget=999)
    with pytest.raises(SettingsConflict, match="counter"):
        loom.open(path, embedder="none", counter="o200k_base")
    with loom.open(path, embedder="none", l1_token_budget=1234) as memory:
        assert memory.settings.l1_token_budget == 1234
    with loom.open(path, embedder="none", node_id="another", l1_token_budget=999) as memory:
        assert memory.settings.l1_token_budget == 999
    with loom.open(path, embedder="none", l1_token_budget=999, reconfigure=True) as memory:
        assert memory.settings.l1_token_budget == 999
    with loom.open(path, embedder="none") as memory:
        assert memory.settings.l1_token_budget == 999


def test_another_embedder_than_the_files_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with loom.open(path, embedder=FakeEmbedder(16)) as memory:
        memory.remember("harbours and rivers", id="x")
        memory.flush()
    for other in (FakeEmbedder(32), FakeEmbedder(16, seed=1)):
        with pytest.raises(SettingsConflict, match=r"fake-16-0.*reconfigure"):
            loom.open(path, embedder=other)
    with loom.open(path, embedder="none") as memory:
        assert memory.get_stats()["vectors"] == 1
        assert memory.recall("harbours")[0].id == "x"
    with loom.open(path, embedder=FakeEmbedder(32), reconfigure=True) as memory:
        assert memory.recall("harbours")[0].id == "x"
        assert memory.flush().complete
        assert memory.store.space == ("fake-32-0", 32)
        assert memory.get_stats()["vectors"] == 1
        assert "meaning" in memory.recall("harbours")[0].signals
        assert memory.check().ok
    with pytest.raises(SettingsConflict):
        loom.open(path, embedder=FakeEmbedder(16))


def test_an_unusable_setting_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"l1_token_budget": 0},
        {"l1_token_budget": "many"},
        {"durability": "maybe"},
        {"profile": "nobody"},
        {"namespace": ""},
        {"embedder": "nobody"},
        {"counter": "nobody"},
        {"busy_timeout_s": -1},
    ]
    for settings in bad:
        with pytest.raises(LoomError):
            loom.open(tmp_path / "a.loom", **settings)
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        assert memory.remember("works").created


# --- stores of earlier versions ---------------------------------------------------------------------------


def test_the_tiers_of_a_stored_file_are_as_they_were_left(tmp_path: Path) -> None:
    """What is in it is written in tests/data/stores/make_v2.py."""
    path = tmp_path / "v2.loom"
    shutil.copy(DATA / "v2.loom", path)
    with LoomMemory("one", store=path, namespace="tiers", embedder="none") as memory:
        stats = memory.get_stats()
        budgets = {tier: (stats[f"{tier}_token_usage"], stats[f"{tier}_token_budget"]) for tier in MemoryTier}
        assert budgets == {"l1": (50, 60), "l2": (57, 80), "l3": (50, 70), "l4": (90, 90)}
        assert [task.task_id for task in memory.get_l1_tasks()] == ["t29", "large"]
        assert [task.task_id for task in memory.get_l2_tasks()] == ["t29", "t28", "t27"]
        assert [summary.task_id for summary in memory.get_l3_summaries()] == ["t26", "large"]
        assert [summary.task_id for summary in memory.l4.retrieve()][:-1] == ["t22", "t23", "t24", "t25"]
        assert [fact.content for fact in memory.search_facts("港口的代码")] == ["港口的代码是 NLRTM"]
        assert memory.store.check().ok
        with LoomMemory("two", store=memory.store, embedder="none") as second:
            assert [task.task_id for task in second.get_l1_tasks()] == ["t29"]


@pytest.mark.parametrize(
    ("name", "read_only"), [("v3.loom", False), ("v4.loom", False), ("v5.loom", False), ("v6.loom", True)]
)
def test_archive_and_knowledge_of_a_stored_file_are_as_they_were_left(
    tmp_path: Path, name: str, read_only: bool
) -> None:
    """What is in it is written in tests/data/stores/make_v3.py."""
    path = tmp_path / name
    shutil.copy(DATA / name, path)
    store = SqliteStore(path, namespace="knowledge", read_only=read_only)
    archived = store.archived()
    assert (archived.records, archived.blocks > 1) == (123, True)
    record = store.get("m17")
    assert record is not None
    assert record.content == "Container 17 of the blue line waits at the north gate. 第17号集装箱在北门等候。" * 8
    assert record.data == {"container": 17, "gate": "north"}
    assert [one.content[-10:] for one in store.history("gate")] == ["north gate", "south gate"]
    assert store.neighbours("gate")[0] == ("m1", "m2", "m3")
    assert [one.id for one in store.scan(Filter(derived=True)).records] == ["summary", "gate"]
    summary = store.get("summary")
    assert summary is not None
    assert store.resides(summary.seq, "l3", "default")
    assert store.replaced([record.seq, summary.seq]) == set()
    assert store.check().ok
    if not read_only:
        assert store.forget(Filter(ids=["m4"])).derived == 1
        assert store.get("summary") is None
        assert store.get("m17") == record
        assert store.check().ok
    store.close()


@pytest.mark.parametrize(
    ("name", "read_only"), [("v4.loom", False), ("v5.loom", False), ("v6.loom", False), ("v6.loom", True)]
)
def test_what_waits_in_a_stored_file_for_its_count_has_it_for_every_reader(
    tmp_path: Path, name: str, read_only: bool
) -> None:
    """What is in it is written in tests/data/stores/make_v4.py."""
    path = tmp_path / name
    shutil.copy(DATA / name, path)
    with loom.open(path, namespace="waiting", embedder="none", read_only=read_only) as memory:
        for _ in range(2):
            assert [record.tokens for record in memory.list(newest_first=False).records] == [7, 9, 241]
            assert memory.get_stats()["tokens"] == 7 + 9 + 241
            assert memory.check().ok
            memory.flush()  # which counts them, where it may write


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.loom")))
def test_a_store_of_every_released_format_still_opens(tmp_path: Path, name: str, read_only: bool) -> None:
    """What is in it is written in tests/data/stores/make_v1.py."""
    path = tmp_path / name
    shutil.copy(DATA / name, path)
    if read_only and name != f"v{schema.current_version()}.loom":
        with pytest.raises(UnsupportedStore, match="open it once for writing"):
            loom.open(path, embedder="none", read_only=True)
        loom.open(path, embedder="none").close()
    with loom.open(path, embedder="none", read_only=read_only) as memory:
        assert memory.settings.l1_token_budget == 4321
        assert {record.id for record in memory.list().records} == {"english", "chinese", "port", "task", "chat"}
        assert [hit.id for hit in memory.recall("Which authorization flow did we choose?")] == ["english"]
        assert [hit.id for hit in memory.recall("备份什么时候运行")] == ["chinese"]
        versions = memory.history("port")
        assert [(record.version, record.content) for record in versions] == [
            (1, "The port is 8080."),
            (2, "The port is 9090."),
        ]
        assert versions[0].superseded_at == versions[1].created_at
        english = memory.store.get("english")
        assert english is not None
        assert (english.role, english.name, english.session_id, english.trust) == ("user", "Ana", "s1", "user")
        assert english.created_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        assert english.importance == 0.75
        assert english.metadata == {"topic": "login", "tags": ["a", "b"], "deep": {"n": None}}
        assert (english.tokens, english.counter) == (11, "cl100k_base")
        assert memory.store.tiers(english.seq, "default") == ("l1", "l2")
        task = memory.store.get("task")
        assert task is not None
        assert loom.Task.from_dict(task.data).result == {"done": True}
        chat = memory.store.get("chat")
        assert chat is not None
        assert chat.data["content"] == [{"type": "text", "text": "a part"}]
        assert memory.store.pinned("chinese")
        assert not memory.store.pinned("english")
        assert memory.store.get("forgotten") is None
        assert memory.recall("secretword") == []
        assert memory.store.neighbours("chat") == (("english",), ())
        entry = memory.store.entry("plan", scope="shared", owner="team")
        assert entry is not None
        assert (entry.version, entry.content, entry.metadata) == (2, {"step": 2}, {"by": "hand", "seen": True})
        assert (entry.created_by, entry.updated_by) == ("one", "two")
        assert memory.store.blob("bytes") == bytes(range(256))
        assert memory.store.space == ("fake-16-0", 16)
        assert memory.store.retention == loom.Retention(max_records=1000)
        assert memory.check().ok
        assert memory.get_stats()["vectors"] == 6
    if not read_only:
        with loom.open(path, embedder=FakeEmbedder(16), derive=False) as memory:
            assert memory.remember("it goes on", id="new").created
            assert memory.flush().complete
            assert memory.get_stats()["vectors"] == 7
            assert memory.recall("goes on")[0].id == "new"
        with loom.open(path, namespace="other", embedder="none") as memory:
            assert [record.content for record in memory.list().records] == ["in another namespace"]


def test_there_is_a_store_of_this_format() -> None:
    assert (DATA / f"v{schema.current_version()}.loom").is_file()
