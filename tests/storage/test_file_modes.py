"""Only its owner may read a file, under any umask, unless the user says otherwise."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import loom
from loom.errors import InvalidInput, StoreFull, StoreUnavailable
from loom.storage.files import disk_errors
from loom.storage.sqlite.store import SqliteStore

# In a process of its own: a umask holds for all threads of one.
_EVERYTHING = """
import json, os, sys
from pathlib import Path
import loom
os.umask(int(sys.argv[2], 8))
folder = Path(sys.argv[1])
settings = {"file_mode": sys.argv[3]} if len(sys.argv) > 3 else {}
seen = {}
def look():
    for path in folder.rglob("*"):
        name = "temporary" if path.suffix == ".tmp" else path.name
        try:
            seen.setdefault(name, set()).add(oct(path.stat().st_mode & 0o777))
        except FileNotFoundError:  # the worker was quicker
            pass
sys.addaudithook(lambda event, given: look() if event in ("os.rename", "os.remove") else None)
memory = loom.open(folder / "a.loom", embedder="none", index_tail_records=5, **settings)
for number in range(20):
    memory.remember(f"note {number}")
memory.flush()
look()
memory.backup(folder / "b.loom")
memory.snapshot(folder / "c.hctx")
memory.restore(folder / "c.hctx")
mode = {"file_mode": int(sys.argv[3], 8)} if len(sys.argv) > 3 else {}
loom.restore(folder / "c.hctx", folder / "d.loom", **mode)
look()
memory.close()
files = {name: sorted(modes) for name, modes in seen.items() if modes and not name.endswith(".seg")}
segments = sorted({mode for name, modes in seen.items() if name.endswith(".seg") for mode in modes})
print(json.dumps([files, segments]))
"""


def modes(folder: Path, umask: str, *file_mode: str) -> tuple[dict[str, list[str]], list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _EVERYTHING, str(folder), umask, *file_mode],
        capture_output=True,
        text=True,
        check=True,
    )
    files, segments = json.loads(done.stdout)
    return files, segments


@pytest.mark.parametrize("umask", ["000", "022", "077", "277"])
def test_everything_is_for_the_owner_alone_under_any_umask(tmp_path: Path, umask: str) -> None:
    files, segments = modes(tmp_path, umask)
    assert {"a.loom", "a.loom-wal", "a.loom-shm", "a.loom-index", "b.loom", "c.hctx", "d.loom"} <= files.keys()
    assert files.pop("a.loom-index") == ["0o700"]
    assert "temporary" in files
    assert {mode for found in files.values() for mode in found} == {"0o600"}
    assert segments == ["0o600"]


def test_others_may_read_where_the_user_says_so(tmp_path: Path) -> None:
    files, segments = modes(tmp_path, "077", "640")
    assert files.pop("a.loom-index") == ["0o750"]
    staged = files.pop("temporary")
    assert set(staged) <= {"0o600", "0o640"}
    assert {mode for found in files.values() for mode in found} == {"0o640"}
    assert segments == ["0o640"]


def test_a_mode_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="file_mode"):
        loom.open(tmp_path / "a.loom", file_mode="777")
    assert not list(tmp_path.iterdir())


def test_files_that_exist_keep_their_mode(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "a.loom").close()
    os.chmod(tmp_path / "a.loom", 0o644)
    store = SqliteStore(tmp_path / "a.loom")
    store.backup(tmp_path / "b.loom")
    os.chmod(tmp_path / "b.loom", 0o664)
    store.backup(tmp_path / "b.loom")
    store.close()
    assert [os.stat(tmp_path / name).st_mode & 0o777 for name in ("a.loom", "b.loom")] == [0o644, 0o664]


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreUnavailable)]
)
def test_a_full_disk_has_an_error_of_its_own(number: int, kind: type[Exception]) -> None:
    with (
        pytest.raises(kind, match=f"the copy was not made: {os.strerror(number)}"),
        disk_errors("the copy was not made"),
    ):
        raise OSError(number, os.strerror(number))


def test_a_file_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(loom.LoomError, match="is a file and not a folder"):
        SqliteStore(tmp_path / "file" / "a.loom")
