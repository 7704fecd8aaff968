"""Opening read-only works in a folder without write permission, and leaves no file behind."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
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
for line in sys.stdin:
    try:
        print(*read(line.rstrip(), read_only=True), flush=True)
    except LoomError as error:
        print(type(error).__name__, error, flush=True)
"""


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The folders of two stores, by whether the process that wrote it was killed."""
    folders = {killed: tmp_path_factory.mktemp("original") for killed in (False, True)}
    for killed, folder in folders.items():
        run(_FILL, folder / "a.loom", "killed" if killed else "closed")
        assert killed == (folder / "a.loom-wal").exists()
    return folders


@pytest.fixture(scope="module")
def nobody() -> Iterator[Callable[[Path], str]]:
    """The reads of a store by a process without permissions: the counts of three answers, or an error."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root, and root may write everywhere")
    with subprocess.Popen(
        [sys.executable, "-c", _READ_AS_NOBODY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told, answers = process.stdin, process.stdout

        def read(path: Path) -> str:
            told.write(f"{path}\n")
            return answers.readline().rstrip()

        yield read
        told.close()
        assert process.wait(timeout=60) == 0


@pytest.fixture
def shelf() -> Iterator[Path]:
    """An empty folder that another user can reach: each run of pytest closes the folders of all its runs."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder).resolve()


def run(script: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def filled(originals: dict[bool, Path], folder: Path, *, killed: bool) -> Path:
    shutil.copytree(originals[killed], folder, dirs_exist_ok=True)
    return folder / "a.loom"


def listed(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def given_to_nobody(folder: Path, *, writable: bool) -> None:
    for place in (folder, *folder.rglob("*")):
        os.chown(place, 65534, 65534)
        mode = 0o500 if place.is_dir() else 0o400
        place.chmod(mode | 0o200 if writable else mode)


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize(("killed", "lost"), [(False, ""), (True, ""), (True, "a.loom-shm"), (False, "a.loom-index")])
def test_it_works_without_the_right_to_write_and_leaves_the_folder_as_it_was(
    originals: dict[bool, Path],
    nobody: Callable[[Path], str],
    shelf: Path,
    killed: bool,
    lost: str,
    writable: bool,
) -> None:
    path = filled(originals, shelf, killed=killed)
    if lost.endswith("index"):
        shutil.rmtree(shelf / lost)
    elif lost:
        (shelf / lost).unlink()
    given_to_nobody(shelf, writable=writable)
    before = listed(shelf)
    whole = not lost.endswith("index")  # records are found without the index; check() says that it is missing
    assert nobody(path) == f"20 1 {whole}"
    after = listed(shelf)
    shared = "a.loom-shm"  # its bytes are locks and marks of readers
    assert {**after, shared: b""} == {**before, shared: b""}
    assert (shared in after) == (shared in before)


def test_what_may_not_be_read_is_not_answered_with_advice_to_open_it_read_only(
    originals: dict[bool, Path], nobody: Callable[[Path], str], shelf: Path
) -> None:
    path = filled(originals, shelf, killed=False)
    given_to_nobody(shelf, writable=False)
    path.chmod(0)
    said = nobody(path)
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


def test_a_writer_in_the_same_process_keeps_its_locks_beside_a_reader_of_a_killed_store(
    originals: dict[bool, Path], tmp_path: Path
) -> None:
    path = filled(originals, tmp_path, killed=True)
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


def test_a_read_during_which_the_file_changes_says_so(originals: dict[bool, Path], tmp_path: Path) -> None:
    path = filled(originals, tmp_path, killed=False)
    with loom.open(path, embedder="none", read_only=True) as reader:
        with pytest.raises(StoreBusy, match="try again"):
            read_while_another_writes(reader, path)
        assert len(reader.list().records) == 21


def test_a_missing_file_stays_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist"):
        loom.open(tmp_path / "a.loom", embedder="none", read_only=True)
    assert [*tmp_path.iterdir()] == []
