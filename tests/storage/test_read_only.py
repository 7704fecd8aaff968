"""Opening read-only: it works in a folder that may not be written, and leaves no file behind."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import loom
from loom.errors import StoreBusy, StoreUnavailable

_FILL = """
import os, sys, loom
memory = loom.open(sys.argv[1], embedder="none", index_tail_records=8)
for number in range(20):
    memory.remember(f"note {number} about harbours")
memory.flush()
memory.remember("the last note is about lighthouses")
if sys.argv[2] == "killed":
    os._exit(0)
memory.close()
"""

# The interpreter itself may be out of this user's reach, so everything is imported before.
_READ_AS_NOBODY = """
import os, sys, tempfile, loom
from pathlib import Path
from loom.errors import LoomError
def read(path, **options):
    with loom.open(path, embedder="none", **options) as memory:
        if not options:
            memory.remember("note")
        return len(memory.recall("harbours", limit=50)), len(memory.recall("lighthouses")), memory.check().ok
b"x".decode("unicode_escape")
with tempfile.TemporaryDirectory() as folder:
    read(Path(folder) / "b.loom")
    read(Path(folder) / "b.loom", read_only=True)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    print(*read(sys.argv[1], read_only=True))
except LoomError as error:
    print(type(error).__name__, error)
"""


def run(script: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def filled(folder: Path, *, killed: bool) -> Path:
    path = folder / "a.loom"
    run(_FILL, path, "killed" if killed else "closed")
    assert killed == (folder / "a.loom-wal").exists()
    return path


def listed(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def given_to_nobody(folder: Path, *, writable: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root, and root may write everywhere")
    for place in (folder, *folder.rglob("*")):
        os.chown(place, 65534, 65534)
        mode = 0o500 if place.is_dir() else 0o400
        place.chmod(mode | 0o200 if writable else mode)
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize(("killed", "lost"), [(False, ""), (True, ""), (True, "a.loom-shm"), (False, "a.loom-index")])
def test_it_works_without_the_right_to_write_and_leaves_the_folder_as_it_was(
    tmp_path: Path, killed: bool, lost: str, writable: bool
) -> None:
    folder = tmp_path / "shelf"
    folder.mkdir()
    path = filled(folder, killed=killed)
    if lost.endswith("index"):
        shutil.rmtree(folder / lost)
    elif lost:
        (folder / lost).unlink()
    given_to_nobody(folder, writable=writable)
    before = listed(folder)
    whole = not lost.endswith("index")  # records are found without the index; check() says that it is missing
    assert run(_READ_AS_NOBODY, path) == f"20 1 {whole}"
    after = listed(folder)
    shared = "a.loom-shm"  # its bytes are locks and marks of readers
    assert {**after, shared: b""} == {**before, shared: b""}
    assert (shared in after) == (shared in before)


def test_what_may_not_be_read_is_not_answered_with_advice_to_open_it_read_only(tmp_path: Path) -> None:
    path = filled(tmp_path, killed=False)
    given_to_nobody(tmp_path, writable=False)
    path.chmod(0)
    said = run(_READ_AS_NOBODY, path)
    assert said.startswith("StoreUnavailable")
    assert "read_only" not in said
    assert "may be written" not in said
    assert "copy" in said


def test_a_reader_sees_what_a_later_writer_commits_and_what_it_leaves(tmp_path: Path) -> None:
    path = tmp_path / "a.loom"
    with loom.open(path, embedder="none") as writer:
        writer.remember("the first", id="1")
    with loom.open(path, embedder="none", read_only=True) as reader:
        assert reader.get("1") is not None
        assert not (tmp_path / "a.loom-shm").exists()
        run(_FILL, path, "closed")
        assert len(reader.list().records) == 22
        with loom.open(path, embedder="none") as writer:
            writer.remember("the second", id="2")
            assert reader.get("2") is not None
            writer.remember("the third", id="3")
            assert reader.get("3") is not None
        assert reader.get("3") is not None


def test_a_writer_in_the_same_process_keeps_its_locks_beside_a_reader_of_a_killed_store(tmp_path: Path) -> None:
    path = filled(tmp_path, killed=True)
    (tmp_path / "a.loom-shm").unlink()
    with loom.open(path, embedder="none", read_only=True) as reader:
        assert len(reader.list().records) == 21
        with loom.open(path, embedder="none") as writer:
            assert len(reader.list().records) == 21
            with writer.store.transaction():
                assert len(reader.list().records) == 21
                locked = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
                found = subprocess.run(
                    [sys.executable, "-c", locked, str(path)], capture_output=True, text=True, check=False
                )
                assert "database is locked" in found.stderr
        assert len(reader.list().records) == 21


def read_while_another_writes(reader: loom.Memory, path: Path) -> None:
    with reader.store.reading():
        reader.get("1")
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE strange (one)")
            other.commit()


def test_a_read_during_which_the_file_changes_says_so(tmp_path: Path) -> None:
    path = filled(tmp_path, killed=False)
    with loom.open(path, embedder="none", read_only=True) as reader:
        with pytest.raises(StoreBusy, match="try again"):
            read_while_another_writes(reader, path)
        assert len(reader.list().records) == 21


def test_a_missing_file_stays_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist"):
        loom.open(tmp_path / "a.loom", embedder="none", read_only=True)
    assert [*tmp_path.iterdir()] == []
