"""Snapshots: everything is restored, changes come as increments, and restoring harms nothing that exists."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import loom
from loom.errors import (
    Conflict,
    IdConflict,
    InvalidInput,
    NotFound,
    ReadOnly,
    SnapshotError,
    StoreUnavailable,
)
from loom.snapshots.format import SnapshotWriter
from loom.snapshots.merging import restore_into
from loom.snapshots.staging import restore
from loom.snapshots.taking import describe, take
from loom.storage.contract import Draft, Filter
from loom.storage.search_view import search_text
from loom.storage.sqlite.store import SqliteStore
from tests.storage.whole_stores import MOMENT, Clock, everything, lived_in, opened_store

DATA = Path(__file__).parent.parent / "data" / "snapshots"


def write(store: SqliteStore, texts: dict[str, str], **more: object) -> None:
    with store.transaction() as transaction:
        transaction.append([Draft(id, text, MOMENT, **more) for id, text in texts.items()])  # type: ignore[arg-type]


def texts(store: SqliteStore) -> dict[str, str]:
    return {record.id: record.content for record in store.scan(Filter(), limit=1000).records}


# --- a new store ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_restored_store_holds_every_row_of_the_original(tmp_path: Path, where: str) -> None:
    with opened_store(tmp_path / "a.loom" if where == "file" else None) as store:
        lived_in(store)
        made = take(store, tmp_path / "a.hctx")
        before = everything(store)
        assert made == describe(tmp_path / "a.hctx")
        assert (made.parent, made.namespaces, made.records) == (None, ("default",), len(before["records"]))
    done = restore(tmp_path / "a.hctx", tmp_path / "b.loom")
    assert done.records == made.records
    with opened_store(tmp_path / "b.loom") as store:
        assert everything(store) == before
        assert store.check(repair=False).problems == ()


def test_two_snapshots_of_the_same_state_differ_in_their_moment_only(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom", clock=lambda: MOMENT) as store:
        lived_in(store)
        assert take(store, tmp_path / "a.hctx").sha256 == take(store, tmp_path / "b.hctx").sha256


def test_words_in_the_archive_come_back_as_words(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        assert store.archive().records > 0
        take(store, tmp_path / "a.hctx")
        before = everything(store)
    restore(tmp_path / "a.hctx", tmp_path / "b.loom")
    with opened_store(tmp_path / "b.loom", clock=Clock(10_000)) as store:
        assert everything(store) == before
        assert store.archived().records == 0
        assert store.archive().records > 0
        assert store.check(repair=False).problems == ()


def test_a_restored_store_is_searched_and_written_as_before(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
        position = store.changes(0, limit=1000)[-1].seq
        found = search_text(store, {"harbour": 1.0}, 5, Filter())
    restore(tmp_path / "a.hctx", tmp_path / "b.loom")
    with opened_store(tmp_path / "b.loom") as store:
        assert search_text(store, {"harbour": 1.0}, 5, Filter()) == found
        write(store, {"new": "later"})
        assert [change.detail for change in store.changes(position) if change.kind == "record"] == ["new"]
        assert store.flush().waiting.keys() <= {"embed", "derive", "later"}
        assert store.check(repair=False).problems == ()


def test_several_namespaces_are_one_snapshot_and_others_stay_out(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    for name in ("default", "second", "third"):
        with opened_store(path, name) as store:
            lived_in(store, 20)
            write(store, {"only": f"said in {name}"})
    with opened_store(path) as store:
        made = take(store, tmp_path / "a.hctx", namespaces=["third", "default"])
        assert made.namespaces == ("default", "third")
        with pytest.raises(NotFound, match="fourth"):
            take(store, tmp_path / "b.hctx", namespaces=["fourth"])
        with pytest.raises(InvalidInput):
            take(store, tmp_path / "b.hctx", namespaces="default")
    restore(tmp_path / "a.hctx", tmp_path / "b.loom")
    with opened_store(tmp_path / "b.loom") as store:
        assert store.namespaces() == ["default", "third"]
        assert texts(store)["only"] == "said in default"
        assert store.check(repair=False).problems == ()
    with opened_store(tmp_path / "b.loom", "third") as store:
        assert texts(store)["only"] == "said in third"


def test_a_snapshot_is_one_state_while_others_write(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with opened_store(path) as store:
        write(store, {f"a{number}": f"text {number}" for number in range(300)})
        stop = threading.Event()

        def go_on() -> None:
            number = 0
            while not stop.is_set():
                number += 1  # two at a time: a snapshot has both or none
                write(store, {f"left{number}": "pair", f"right{number}": "pair"})

        writer = threading.Thread(target=go_on)
        writer.start()
        try:
            for number in range(5):
                take(store, tmp_path / f"{number}.hctx")
        finally:
            stop.set()
            writer.join()
    for number in range(5):
        restore(tmp_path / f"{number}.hctx", tmp_path / f"{number}.loom")
        with opened_store(tmp_path / f"{number}.loom") as store:
            found = set(texts(store))
            assert {name[4:] for name in found if name.startswith("left")} == {
                name[5:] for name in found if name.startswith("right")
            }


def test_a_read_only_store_can_be_snapshotted_and_not_restored_into(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
    with opened_store(tmp_path / "a.loom", read_only=True) as store:
        take(store, tmp_path / "a.hctx")
        with pytest.raises(ReadOnly):
            restore_into(store, tmp_path / "a.hctx")


def test_nothing_that_exists_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with opened_store(path) as store:
        lived_in(store, 20)
        with pytest.raises(InvalidInput, match="cannot replace its own store"):
            take(store, path)
        take(store, tmp_path / "a.hctx")
        with pytest.raises(InvalidInput, match="parent"):
            take(store, tmp_path / "a.hctx", parent=tmp_path / "a.hctx")
        with pytest.raises(StoreUnavailable):
            take(store, tmp_path / "nowhere" / "a.hctx")
        with pytest.raises(StoreUnavailable, match="folder"):
            take(store, tmp_path)
        with pytest.raises(StoreUnavailable, match="exists"):
            restore(tmp_path / "a.hctx", path)
    for suffix in ("-wal", "-journal"):
        left = tmp_path / f"new.loom{suffix}"
        left.write_bytes(b"a log of something else")
        with pytest.raises(StoreUnavailable, match="exists"):
            restore(tmp_path / "a.hctx", tmp_path / "new.loom")
        left.unlink()
    with pytest.raises(StoreUnavailable, match=r"missing\.hctx"):
        restore(tmp_path / "missing.hctx", tmp_path / "new.loom")
    assert not (tmp_path / "new.loom").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("content", [b"notes of the user", b"HCT", bytes(5000), b"SQLite format 3\0" + bytes(90)])
def test_a_snapshot_never_replaces_a_file_that_is_no_snapshot(tmp_path: Path, content: bytes) -> None:
    target = tmp_path / "notes.txt"
    target.write_bytes(content)
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store, 20)
        with pytest.raises(StoreUnavailable, match=r"notes\.txt exists and is not a snapshot"):
            take(store, target)
    assert target.read_bytes() == content
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


@pytest.mark.parametrize("in_use", [False, True])
def test_a_snapshot_never_replaces_another_memory(tmp_path: Path, in_use: bool) -> None:
    other = tmp_path / "other.loom"
    with loom.open(other, embedder="none") as memory:
        memory.remember("the only copy", id="one")
        with loom.open(tmp_path / "a.loom", embedder="none") as mine:
            mine.remember("something else")
            if in_use:
                with pytest.raises(StoreUnavailable, match="is not a snapshot"):
                    mine.snapshot(other)
            memory.remember("one more", id="two")
    with loom.open(tmp_path / "a.loom", embedder="none") as mine, pytest.raises(StoreUnavailable, match="snapshot"):
        mine.snapshot(other)
    with loom.open(other, embedder="none") as memory:
        assert {record.content for record in memory.list().records} == {"the only copy", "one more"}
        assert memory.check().ok


def test_a_snapshot_replaces_an_earlier_one_also_a_damaged_one_and_an_empty_file(tmp_path: Path) -> None:
    target = tmp_path / "a.hctx"
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store, 20)
        for before in (b"", b"HCTX" + bytes(100)):
            target.write_bytes(before)
            take(store, target)
            assert take(store, target).records == 21
    restore(target, tmp_path / "b.loom")


def test_a_file_that_appears_while_the_snapshot_is_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.hctx"
    finish = SnapshotWriter.finish

    def finish_late(writer: SnapshotWriter) -> bytes:
        target.write_bytes(b"notes of the user")
        return finish(writer)

    monkeypatch.setattr(SnapshotWriter, "finish", finish_late)
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store, 20)
        with pytest.raises(StoreUnavailable, match="is not a snapshot"):
            take(store, target)
    assert target.read_bytes() == b"notes of the user"
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="asks for locks in the form that Linux has")
def test_reading_a_memory_as_a_snapshot_keeps_the_locks_of_the_process_that_has_it_open(tmp_path: Path) -> None:
    """Closing a plain file drops every lock of the process on it; SQLite would not notice."""
    path = tmp_path / "a.loom"
    with opened_store(path) as store:
        lived_in(store, 20)
        before = locks_on(path)
        assert before
        for ask in (
            lambda: restore(path, tmp_path / "new.loom"),
            lambda: restore_into(store, path),
            lambda: describe(path),
            lambda: take(store, tmp_path / "b.hctx", parent=path),
        ):
            with pytest.raises(SnapshotError, match="database"):
                ask()
        assert locks_on(path) == before


def locks_on(path: Path) -> list[str]:
    """The POSIX locks of this process on a database and its files, as another process sees them."""
    script = (
        "import fcntl, struct, sys\n"
        "for path in sys.argv[1:]:\n"
        "    with open(path, 'rb+') as file:\n"
        "        for place in [*range(120, 130), 1 << 30, (1 << 30) + 1, (1 << 30) + 2]:\n"
        "            asked = struct.pack('hhqqi', fcntl.F_WRLCK, 0, place, 1, 0)\n"
        "            kind = struct.unpack('hhqqi', fcntl.fcntl(file, fcntl.F_GETLK, asked))[0]\n"
        "            if kind != fcntl.F_UNLCK: print(path[-6:], place, kind)\n"
    )
    files = [str(found) for found in sorted(path.parent.glob(f"{path.name}*")) if found.is_file()]
    done = subprocess.run([sys.executable, "-c", script, *files], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_damaged_record_is_not_carried_on(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with opened_store(path) as store:
        lived_in(store, 20)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET content = 'other' WHERE id = 'r5'")
    connection.close()
    with opened_store(path) as store, pytest.raises(loom.LoomError, match="r5"):
        take(store, tmp_path / "a.hctx")
    assert not (tmp_path / "a.hctx").exists()
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


# --- incremental ------------------------------------------------------------------------------------------


def chain_of(folder: Path) -> tuple[list[Path], list[dict[str, list[tuple[object, ...]]]]]:
    """Three snapshots, each continuing the one before, and the contents of the store at each."""
    files: list[Path] = []
    states = []
    with opened_store(folder / "a.loom") as store:
        for number in range(3):
            lived_in(store, 30, first=30 * number)
            if number:
                with store.transaction() as transaction:
                    transaction.put_entry("gone0", "again", writer="w")
                    transaction.delete_blob(f"blob{30 * (number - 1)}")
                    transaction.pin("r5", number % 2 == 0)
                store.forget(Filter(ids=["r3", f"r{30 * number - 1}"], history=True))
                store.archive()
            files.append(folder / f"{number}.hctx")
            take(store, files[-1], parent=files[-2] if number else None)
            states.append(everything(store))
    return files, states


def test_a_chain_restores_the_state_at_each_of_its_snapshots(tmp_path: Path) -> None:
    files, states = chain_of(tmp_path)
    for length in (1, 2, 3):
        path = tmp_path / f"r{length}.loom"
        restore(files[:length], path)
        with opened_store(path) as store:
            assert everything(store) == states[length - 1]
            assert store.check(repair=False).problems == ()


def test_an_incremental_snapshot_holds_what_is_new_only(tmp_path: Path) -> None:
    files, _ = chain_of(tmp_path)
    for file in files[1:]:
        assert describe(file).records < 40
    assert describe(files[2]).parent == describe(files[1]).sha256


def test_a_chain_that_is_not_whole_or_out_of_order_is_refused(tmp_path: Path) -> None:
    files, _ = chain_of(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    strangers, _ = chain_of(other)
    first, second, third = files
    wrong: list[Sequence[Path]] = [
        [second],
        [second, third],
        [first, third],
        [first, third, second],
        [second, first],
        [first, first],
        [first, second, second],
        [strangers[0], second],
        [first, strangers[1]],
    ]
    for chain in wrong:
        with pytest.raises(SnapshotError):
            restore(chain, tmp_path / "new.loom")
        assert not (tmp_path / "new.loom").exists()
    with pytest.raises(InvalidInput):
        restore([], tmp_path / "new.loom")


def test_a_parent_of_another_store_or_of_a_copy_that_went_its_own_way_is_refused(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        write(store, {"a": "one"})
        store.backup(tmp_path / "copy.loom")
        write(store, {"b": "here"})
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "copy.loom") as store:
        with pytest.raises(SnapshotError, match="earlier state"):
            take(store, tmp_path / "b.hctx", parent=tmp_path / "a.hctx")
        write(store, {"c": "there", "d": "more", "e": "and more"})
        with pytest.raises(SnapshotError, match="earlier state"):
            take(store, tmp_path / "b.hctx", parent=tmp_path / "a.hctx")
    with opened_store(tmp_path / "other.loom") as store, pytest.raises(SnapshotError, match="earlier state"):
        take(store, tmp_path / "b.hctx", parent=tmp_path / "a.hctx")
    assert not (tmp_path / "b.hctx").exists()


def test_a_restored_store_continues_the_chain(tmp_path: Path) -> None:
    files, _ = chain_of(tmp_path)
    restore(files, tmp_path / "b.loom")
    with opened_store(tmp_path / "b.loom") as store:
        write(store, {"afterwards": "in the copy"})
        store.forget(Filter(ids=["r40"], history=True))
        take(store, tmp_path / "b.hctx", parent=files[-1])
        state = everything(store)
    restore([*files, tmp_path / "b.hctx"], tmp_path / "c.loom")
    with opened_store(tmp_path / "c.loom") as store:
        assert everything(store) == state


def test_an_incremental_snapshot_takes_new_namespaces_and_no_other_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with opened_store(path, "second") as store:
        write(store, {"x": "in the second"})
    with opened_store(path) as store:
        write(store, {"a": "one"})
        take(store, tmp_path / "0.hctx")
        with pytest.raises(SnapshotError, match="namespaces"):
            take(store, tmp_path / "1.hctx", parent=tmp_path / "0.hctx", namespaces=["default", "second"])
        with opened_store(path, "third") as third:
            write(third, {"y": "in the third"})
        with pytest.raises(SnapshotError, match="namespaces"):
            take(store, tmp_path / "1.hctx", parent=tmp_path / "0.hctx", namespaces=["third"])
        take(store, tmp_path / "1.hctx", parent=tmp_path / "0.hctx", namespaces=["default", "third"])
    restore([tmp_path / "0.hctx", tmp_path / "1.hctx"], tmp_path / "b.loom")
    with opened_store(tmp_path / "b.loom", "third") as store:
        assert texts(store) == {"y": "in the third"}


def test_another_embedder_in_between_leaves_none_of_the_old_vectors(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "0.hctx")
        store.use_embedder("another", 4, None, reconfigure=True)
        take(store, tmp_path / "1.hctx", parent=tmp_path / "0.hctx")
        state = everything(store, "spaces")
    restore([tmp_path / "0.hctx", tmp_path / "1.hctx"], tmp_path / "b.loom")
    with opened_store(tmp_path / "b.loom") as store:
        assert everything(store, "spaces") == state
        assert store.space == ("another", 4)


def test_what_was_forgotten_or_deleted_between_two_snapshots_is_in_no_byte_of_the_restored_file(
    tmp_path: Path,
) -> None:
    secrets = {f"secret{number}": f"xylophone{number:04} in the drawer" for number in range(200)}
    with opened_store(tmp_path / "a.loom") as store:
        write(store, secrets)
        write(store, {"kept": "stays"})
        with store.transaction() as transaction:
            for number in range(200):
                transaction.put_entry(f"e{number}", f"clarinet{number:04}", writer="w")
            transaction.put_blob("blob", b"bassoon" * 1000)
        take(store, tmp_path / "0.hctx")
        store.forget(Filter(ids=list(secrets), history=True))
        with store.transaction() as transaction:
            for number in range(0, 200, 2):
                transaction.delete_entry(f"e{number}")
            transaction.delete_blob("blob")
        take(store, tmp_path / "1.hctx", parent=tmp_path / "0.hctx")
    restore([tmp_path / "0.hctx", tmp_path / "1.hctx"], tmp_path / "b.loom")
    held = (tmp_path / "b.loom").read_bytes()  # no process has it open
    assert b"clarinet0001" in held
    for word in (b"xylophone", b"clarinet0002", b"bassoon"):
        assert word not in held


# --- into a namespace ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_snapshot_comes_into_an_empty_namespace_with_all_that_it_has(tmp_path: Path, where: str) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
        before, stats = everything(store), store.stats()
        tiers, uses = store.residents("agent", "l2"), store.usage("agent")
    with opened_store(tmp_path / "b.loom" if where == "file" else None, "mine") as store:
        with store.transaction() as transaction:
            transaction.put_entry("first", 1, writer="w")
        done = restore_into(store, tmp_path / "a.hctx")
        assert (done.records, done.present, done.forgotten) == (len(before["records"]), 0, 0)
        after = everything(store)
        assert store.check(repair=False).problems == ()
        assert store.usage("agent") == uses
        assert [
            (one.tokens, one.importance, one.uses, one.last_at, one.previous_at)
            for one in store.residents("agent", "l2")
        ] == [(one.tokens, one.importance, one.uses, one.last_at, one.previous_at) for one in tiers]
        entered = [one.entered - tiers[0].entered for one in tiers]
        now = store.residents("agent", "l2")
        assert [one.entered - now[0].entered for one in now] == entered
        assert [row[4:24] for row in by_number(after)] == [row[4:24] for row in by_number(before)]
        same = stats.keys() - {"file_bytes", "indexed", "segments", "entries"}
        assert {name: store.stats()[name] for name in same} == {name: stats[name] for name in same}
        for table in ("moves", "residents", "supersessions", "derivations", "vectors", "pins", "accesses", "jobs"):
            assert len(after[table]) == len(before[table]), table
        assert store.neighbours("fact0")[0] == ("r3", "r4")
        assert store.pinned("r5")
        assert store.blob("shared blob") == b"written at 0"
        entry = store.entry("pool/\0plan", scope="shared", owner="team")
        assert entry is not None
        assert (entry.version, entry.content) == (2, {"步骤": []})
        assert store.settings("agent")["l2_token_budget"] == 5000
        assert store.retention is not None
        assert len(search_text(store, {"harbour": 1.0}, 50, Filter())) > 20


def by_number(rows: dict[str, list[tuple[object, ...]]]) -> list[tuple[object, ...]]:
    return sorted(rows["records"])


def test_the_same_snapshot_twice_changes_nothing(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "b.loom", "mine") as store:
        write(store, {"mine": "was here before"})
        first = restore_into(store, tmp_path / "a.hctx")
        state = everything(store)
        second = restore_into(store, tmp_path / "a.hctx")
        assert (second.records, second.present) == (0, first.records)
        assert (second.entries, second.blobs, second.vectors) == (0, 0, 0)
        assert everything(store) == state


def test_a_later_snapshot_of_the_same_store_brings_what_is_new(tmp_path: Path) -> None:
    files, states = chain_of(tmp_path)
    with opened_store(tmp_path / "b.loom", "mine") as store:
        restore_into(store, files[0])
        write(store, {"mine": "written between"})
        done = restore_into(store, files[:2])
        assert 0 < done.records < len(states[1]["records"])
        assert store.check(repair=False).problems == ()
        found = texts(store)
        assert found["mine"] == "written between"
        again = restore_into(store, files[:2])
        assert again.records == 0
        assert texts(store) == found
    restore(files[:2], tmp_path / "c.loom")
    with opened_store(tmp_path / "c.loom") as store:
        there = texts(store)
    # What the source forgot in between is a matter of the source: it stays where it was restored.
    assert there.items() <= found.items()


def test_an_id_with_another_text_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "b.loom", "mine") as store:
        write(store, {"r20": "something else entirely"})
        state = everything(store)
        with pytest.raises(IdConflict, match="r20"):
            restore_into(store, tmp_path / "a.hctx")
        assert everything(store) == state


@pytest.mark.parametrize("kind", ["entry", "blob"])
def test_an_entry_or_a_blob_that_says_something_else_is_refused_and_nothing_changes(
    tmp_path: Path, kind: str
) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "b.loom", "mine") as store:
        with store.transaction() as transaction:
            if kind == "entry":
                transaction.put_entry("pool/\0plan", "another plan", writer="w", scope="shared", owner="team")
            else:
                transaction.put_blob("shared blob", b"other bytes")
        state = everything(store)
        with pytest.raises(Conflict):
            restore_into(store, tmp_path / "a.hctx")
        assert everything(store) == state


def test_an_entry_that_was_deleted_in_the_snapshots_store_does_not_delete_ours(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "b.loom", "mine") as store:
        with store.transaction() as transaction:
            transaction.put_entry("gone0", "ours", writer="w")
        restore_into(store, tmp_path / "a.hctx")
        entry = store.entry("gone0")
        assert entry is not None
        assert entry.content == "ours"


def test_a_record_that_is_here_under_the_same_id_and_text_is_taken_for_the_same(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        write(store, {"a": "one", "b": "two", "c": "three"})
        write(store, {"b": "two, changed"}, revises=True)
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "b.loom", "mine") as store:
        write(store, {"b": "two"})
        with store.transaction() as transaction:
            transaction.enter([1], "l2", "default", "written")
        done = restore_into(store, tmp_path / "a.hctx")
        assert (done.records, done.present) == (3, 1)
        assert [record.content for record in store.history("b")] == ["two", "two, changed"]
        assert store.history("b")[0].superseded_at is not None
        assert store.residents("default", "l2") == []
        assert texts(store) == {"a": "one", "b": "two, changed", "c": "three"}
        assert store.check(repair=False).problems == ()


def test_what_the_target_has_drawn_otherwise_stands(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        write(store, {"a": "one"})
        write(store, {"fact": "theirs"}, kind="fact", drawn=True, sources=("a",))
        write(store, {"fact": "theirs, later"}, kind="fact", drawn=True, sources=("a",), revises=True)
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "b.loom", "mine") as store:
        write(store, {"b": "two"})
        write(store, {"fact": "ours"}, kind="fact", drawn=True, sources=("b",))
        done = restore_into(store, tmp_path / "a.hctx")
        assert (done.records, done.left) == (1, 2)
        assert [record.content for record in store.history("fact")] == ["ours"]
        assert store.check(repair=False).problems == ()


def test_what_was_forgotten_in_the_target_stays_forgotten_unless_it_is_asked_for(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
        store.forget(Filter(ids=["r20", "r0"], history=True))
        with store.transaction() as transaction:
            transaction.delete_blob("shared blob")
            transaction.delete_entry("pool/\0plan", scope="shared", owner="team")
        state = everything(store)
        done = restore_into(store, tmp_path / "a.hctx")
        assert (done.records, done.forgotten) == (0, 3)  # r0 had two versions
        assert everything(store) == state
        done = restore_into(store, tmp_path / "a.hctx", forgotten=True)
        assert done.records == 3
        assert len(store.history("r0")) == 2
        assert store.get("r20") is not None
        assert store.entry("pool/\0plan", scope="shared", owner="team") is None
        assert store.check(repair=False).problems == ()


def test_what_was_forgotten_after_a_restore_into_another_store_stays_forgotten_too(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "b.loom", "mine") as store:
        write(store, {"mine": "before"})
        restore_into(store, tmp_path / "a.hctx")
        store.forget(Filter(ids=["r20"], history=True))
        store.vacuum()
        assert restore_into(store, tmp_path / "a.hctx").forgotten == 1
        assert store.get("r20") is None


def test_vectors_of_another_model_are_made_again(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "b.loom", "mine") as store:
        store.use_embedder("mine", 4, None)
        done = restore_into(store, tmp_path / "a.hctx")
        assert done.vectors == 0
        assert store.space == ("mine", 4)
        assert len(store.jobs("embed", limit=1000)) == done.records


def test_which_namespace_is_taken_from_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    for name in ("default", "second"):
        with opened_store(path, name) as store:
            write(store, {"x": f"said in {name}"})
    with opened_store(path) as store:
        take(store, tmp_path / "a.hctx", namespaces=["default", "second"])
    with opened_store(tmp_path / "b.loom", "mine") as store:
        with pytest.raises(NotFound, match="mine"):
            restore_into(store, tmp_path / "a.hctx")
        restore_into(store, tmp_path / "a.hctx", namespace="second")
        assert texts(store) == {"x": "said in second"}
    with opened_store(path, "copy") as store:  # beside the original, in the same file
        restore_into(store, tmp_path / "a.hctx", namespace="default")
        assert texts(store) == {"x": "said in default"}
        assert store.check(repair=False).problems == ()


def test_another_process_finds_what_was_restored_at_once(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store)
        take(store, tmp_path / "a.hctx")
    with opened_store(tmp_path / "b.loom") as store:
        write(store, {"mine": "lighthouse"})
        assert len(search_text(store, {"harbour": 1.0}, 5, Filter())) == 0
        script = (
            "import sys\nfrom loom.snapshots.merging import restore_into\n"
            "from loom.storage.sqlite.store import SqliteStore\n"
            "store = SqliteStore(sys.argv[1]); print(restore_into(store, sys.argv[2]).records); store.close()"
        )
        arguments = [str(tmp_path / "b.loom"), str(tmp_path / "a.hctx")]
        subprocess.run([sys.executable, "-c", script, *arguments], check=True)
        assert len(search_text(store, {"harbour": 1.0}, 5, Filter())) == 5


# --- files of earlier releases ------------------------------------------------------------------------------


def test_a_chain_of_format_1_opens_for_ever(tmp_path: Path) -> None:
    """What is in it is written in tests/data/snapshots/make_v1_snapshot.py."""
    for name in ("v1.hctx", "v1-continued.hctx"):
        shutil.copy(DATA / name, tmp_path / name)
    chain = [tmp_path / "v1.hctx", tmp_path / "v1-continued.hctx"]
    assert describe(chain[0]).sha256 == "cfdb1151ab2617fbccade867a2b2a09a15c924a33dd8ce97e3faca4a88f97a2d"
    assert describe(chain[1]).parent == describe(chain[0]).sha256
    restore(chain, tmp_path / "b.loom")
    with opened_store(tmp_path / "b.loom") as store:
        assert store.check(repair=False).problems == ()
        assert store.get("r12") is None
        assert store.get("r14") is None
        changed = store.get("r0")
        assert changed is not None
        assert (changed.version, changed.content) == (2, "changed 改了")
        assert store.blob("blob0") == bytes(range(256)) * 3000
        lower = [one.record for one in store.residents("agent", "l3")]
        assert [record.id for record in store.records(lower).values()] == ["r2", "r3"]
        assert [use.count for use in store.accesses(lower, "agent").values()] == [1, 2]
        assert store.pinned("r5")
        assert "later" in texts(store)
