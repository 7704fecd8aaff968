"""Files of killed backups, snapshots, exports and restores: opening a store beside them sweeps them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import loom
from loom.importers import export_jsonl
from loom.protocol import new_id

_COPY = """
import os, signal, sys, loom
from pathlib import Path
folder, verb, end = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
def stop(*_):
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    print("waiting", flush=True)
    sys.stdin.readline()
    return real(*_)
def stop_at(name):
    global real
    real = getattr(os, name)
    setattr(os, name, stop)
with loom.open(folder / "source.loom", embedder="none", derive=False) as memory:
    if verb == "backup":
        stop_at("replace")
        memory.backup(folder / "copy.loom")
    elif verb == "snapshot":
        stop_at("replace")
        memory.snapshot(folder / "copy.snapshot")
    elif verb == "export":
        from loom.importers import export_jsonl
        stop_at("replace")
        export_jsonl(memory, folder / "copy.jsonl")
    else:
        memory.snapshot(folder / "taken.snapshot")
        stop_at("rename")
        loom.restore(folder / "taken.snapshot", folder / "copy.loom")
"""


def opened(path: Path) -> loom.Memory:
    return loom.open(path, embedder="none", derive=False)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".tmp" in path.name)


def copying(folder: Path, verb: str, end: str) -> subprocess.Popen[str]:
    with opened(folder / "source.loom") as memory:
        memory.remember("To be copied.")
    return subprocess.Popen(
        [sys.executable, "-c", _COPY, str(folder), verb, end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("verb", ["backup", "snapshot", "export", "restore"])
def test_opening_a_store_sweeps_what_a_killed_process_left_beside_it(tmp_path: Path, verb: str) -> None:
    killed = copying(tmp_path, verb, "killed")
    killed.communicate()
    assert killed.returncode == -9
    assert left(tmp_path)
    with opened(tmp_path / "a.loom"):
        assert left(tmp_path) == []


@pytest.mark.parametrize("verb", ["backup", "snapshot", "export", "restore"])
def test_a_copy_that_is_being_made_is_left_alone(tmp_path: Path, verb: str) -> None:
    living = copying(tmp_path, verb, "waits")
    assert living.stdout is not None
    assert living.stdout.readline() == "waiting\n"
    before = left(tmp_path)
    assert before
    with opened(tmp_path / "a.loom") as memory:
        memory.backup(tmp_path / "other.loom")
        assert left(tmp_path) == before
    living.communicate("go on\n")
    assert living.returncode == 0
    assert left(tmp_path) == []
    assert any(path.name.startswith("copy.") for path in tmp_path.iterdir())


def test_files_of_dead_processes_are_swept_with_their_logs_and_no_others(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    name = f".copy.loom.{dead.pid}-{new_id()}.tmp"
    gone = [name, f"{name}-journal", f".other.{dead.pid}-{new_id()}.tmp-wal", f".mine.{os.getpid()}-{new_id()}.tmp"]
    kept = [f".copy.loom.{os.getppid()}-{new_id()}.tmp", ".copy.loom.notes.tmp", f"copy.{dead.pid}-{new_id()}.tmp"]
    for path in (*gone, *kept):
        (tmp_path / path).write_bytes(b"x")
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("To be copied.")
    assert left(tmp_path) == sorted(kept)


def test_a_file_whose_writer_holds_its_lock_is_left_alone_though_its_process_is_not_seen(tmp_path: Path) -> None:
    """Like a file of a process in another container."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    copy = tmp_path / f".copy.loom.{dead.pid}-{new_id()}.tmp"
    copy.write_bytes(b"x")
    with open(copy, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        opened(tmp_path / "a.loom").close()
        assert left(tmp_path) == [copy.name]
    opened(tmp_path / "a.loom").close()
    assert left(tmp_path) == []


def test_opening_read_only_sweeps_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("To be read.")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".copy.loom.{dead.pid}-{new_id()}.tmp").write_bytes(b"x")
    with loom.open(tmp_path / "a.loom", embedder="none", read_only=True) as memory:
        assert len(memory.list().records) == 1
    assert len(left(tmp_path)) == 1


@pytest.mark.parametrize("verb", ["snapshot", "export", "restore"])
def test_a_file_is_synced_whole_before_it_gets_its_name(
    tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renamed first, a file can be empty or cut after a power failure, and the one that it replaced is gone."""
    target = tmp_path / f"copy.{verb}"
    synced: dict[tuple[int, int], int] = {}
    renamed: list[tuple[int, int | None]] = []
    naming = "rename" if verb == "restore" else "replace"
    fsync, rename = os.fsync, getattr(os, naming)

    def syncing(descriptor: int) -> None:
        fsync(descriptor)
        state = os.fstat(descriptor)
        synced[state.st_dev, state.st_ino] = state.st_size

    def renaming(source: Path, name: Path) -> None:
        if Path(name) == target:
            state = os.stat(source)
            renamed.append((state.st_size, synced.get((state.st_dev, state.st_ino))))
        rename(source, name)

    with opened(tmp_path / "a.loom") as memory:
        memory.remember([f"To be copied: {number}." for number in range(50)])
        assert memory.flush().complete
        memory.snapshot(tmp_path / "taken")
        monkeypatch.setattr(os, "fsync", syncing)
        monkeypatch.setattr(os, naming, renaming)
        if verb == "snapshot":
            memory.snapshot(target)
        elif verb == "restore":
            loom.restore(tmp_path / "taken", target)
        else:
            export_jsonl(memory, target)
        monkeypatch.undo()
    folder = tmp_path.stat()
    assert [(size, size) for size, _ in renamed] == renamed
    assert len(renamed) == 1
    assert target.stat().st_size == renamed[0][0] > 0
    assert (folder.st_dev, folder.st_ino) in synced


def test_forgetting_sweeps_index_files_that_a_killed_process_left(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False, index_tail_records=5) as memory:
        ids = [memory.remember(f"The harbour number {number}.").id for number in range(12)]
        memory.flush()
        folder = tmp_path / "a.loom-index"
        names = ("text-1-KILLED.seg", "text-1-KILLED.seg.tmp", "vectors-1-KILLED.seg.tmp")
        orphans = [folder / name for name in names]
        others = folder / "text-77-OTHER.seg"
        for path in (*orphans, others):
            path.write_bytes(b"hashes of words")
        memory.forget(ids[0])
        assert not [path for path in orphans if path.exists()]
        assert others.exists(), "a file of another namespace"
        assert len(memory.recall("harbour", limit=20)) == 11
