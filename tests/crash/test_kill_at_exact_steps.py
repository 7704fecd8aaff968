"""SIGKILL before and after every named step of the background work, of a commit and of forgetting."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom.everyday import Memory
from loom.index.segments import open_segment
from loom.models.embedders import FakeEmbedder
from tests.crash.processes import Child, Point, assert_found, assert_sound, named, point, unique_word

# So short that the lease of a killed process is over when the next one wants it.
LEASE_S = 0.2
TAIL = 4


def reopened(path: Path, **options: Any) -> Memory:
    return loom.open(
        path,
        embedder=FakeEmbedder(dimensions=16, seed=options.pop("seed_of_embedder", 0)),
        index_tail_records=TAIL,
        lease_s=LEASE_S,
        **options,
    )


# Each call number is chosen so that the step belongs to a text segment, a vector segment or a merge.
INDEX_STEPS = [
    point("projection.write_file", "before"),
    point("os:replace", "before"),  # the file is there under its temporary name
    point("os:replace", "before", 2),
    point("projection.write_file", "after"),  # the file is there, and not published
    point("projection.write_file", "after", 2),
    point("projection.write_file", "after", 7),
    point("projection.write_file", "after", 9),
    point("projection.record", "before"),  # in the publishing transaction, with nothing done
    point("projection.record", "after"),  # all done but the commit
    point("projection.record", "after", 2),
    point("projection.delete_files", "before"),  # published, and the replaced files still there
    point("projection.delete_files", "before", 9),
    point("projection.delete_files", "after", 9),
    point("projection.merge", "before"),
    point("projection.merge", "after", 20),
    point("lease.take", "after"),
    point("lease.give_back", "before", 3),
    point("transaction.put_vectors", "before", 2),
    point("transaction.put_vectors", "after", 2),
    point("embedding.delete_jobs", "after", 3),
]


@pytest.mark.parametrize("step", INDEX_STEPS, ids=named)
def test_a_kill_in_the_background_work_costs_nothing(tmp_path: Path, step: Point) -> None:
    path = tmp_path / "agent.loom"
    options = {"seed_of_embedder": 0, "index_tail_records": TAIL, "lease_s": LEASE_S}
    with Child("write_and_flush", path=str(path), first=0, count=60, armed=step, **options) as child:
        acknowledged = [int(line) for line in child.wait_for_death()]
    with reopened(path) as memory:
        assert_found(memory, texts(acknowledged))
        assert_sound(memory)
        memory.remember("life goes on afterwards", id="afterwards")
        assert memory.flush().complete
        stats = memory.get_stats()
        assert stats["vectors"] == stats["records"]
        assert stats["records"] - len(acknowledged) in (1, 2)
        assert_found(memory, texts(acknowledged))
        assert_sound(memory)


def texts(numbers: list[int]) -> dict[str, str]:
    return {f"one-{number}": f"{unique_word(number)} written alone" for number in numbers}


COMMIT_STEPS = [
    (point("transaction.append", "before", 5), 4),
    (point("transaction.append", "after", 5), 4),
    (point("maintenance.wrote", "before", 5), 5),  # committed, not yet acknowledged
]


@pytest.mark.parametrize(("step", "kept"), COMMIT_STEPS, ids=named)
def test_a_write_is_there_from_its_commit_on_and_not_before(tmp_path: Path, step: Point, kept: int) -> None:
    path = tmp_path / "agent.loom"
    with Child("write_one_by_one", path=str(path), first=0, count=10, armed=step) as child:
        assert child.wait_for_death() == ["0", "1", "2", "3"]
    with loom.open(path, embedder="none") as memory:
        assert memory.get_stats()["records"] == kept
        assert_found(memory, texts(list(range(kept))))
        assert_sound(memory)


# -- forgetting ------------------------------------------------------------------------------------------------

SECRET = 24
KEPT = 10

BEFORE_THE_COMMIT = [
    point("forget.remove", "before"),
    point("forget.remove", "after"),
]
AFTER_THE_COMMIT = [
    point("forget.scrub", "before"),  # rows removed, nothing scrubbed
    point("forget.resume", "before"),
    point("projection.remove", "before"),
    point("projection.write_file", "before"),
    point("projection.write_file", "after"),  # rewritten, and not published
    point("projection.record", "after"),
    point("projection.delete_files", "before"),  # published, and the file with the secret still there
    point("projection.remove", "after"),  # text done, vectors not
    point("projection.delete_files", "before", 2),
    point("projection.remove", "after", 2),
    point("wal.truncate", "before"),  # segments rewritten, the WAL whole
    point("wal.truncate", "after"),  # the WAL cut, the job not struck off
    point("forget.resume", "after"),
    point("forget.scrub", "after"),
]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of some secrets among records that stay, all of it indexed and embedded."""
    path = tmp_path_factory.mktemp("original") / "agent.loom"
    with reopened(path) as memory:
        for number in range(SECRET + KEPT):
            memory.remember(
                f"{unique_word(number)} written alone",
                id=f"one-{number}",
                session_id="secret" if number < SECRET else "kept",
            )
        assert memory.flush().complete
        assert memory.get_stats()["indexed"] >= SECRET
    return path


@pytest.fixture
def secrets(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original.parent, tmp_path / "copy")
    return tmp_path / "copy" / original.name


def die_while_forgetting(path: Path, step: Point) -> None:
    # Without an embedder its worker does not wake up at opening, so each step is this forget's own.
    options = {"index_tail_records": TAIL, "lease_s": LEASE_S}
    with Child("forget_session", path=str(path), session="secret", armed=step, **options) as child:
        assert child.wait_for_death() == []


@pytest.mark.parametrize("step", BEFORE_THE_COMMIT, ids=named)
def test_a_kill_before_forgetting_is_committed_leaves_everything(secrets: Path, step: Point) -> None:
    die_while_forgetting(secrets, step)
    with reopened(secrets) as memory:
        assert_found(memory, texts(list(range(SECRET + KEPT))))
        assert_sound(memory)


@pytest.mark.parametrize("step", AFTER_THE_COMMIT, ids=named)
def test_a_kill_while_forgetting_is_taken_up_again_until_nothing_is_left(secrets: Path, step: Point) -> None:
    with reopened(secrets, read_only=True) as memory:
        numbers = [record.seq for record in memory.list(session_id="secret", limit=SECRET).records]
    die_while_forgetting(secrets, step)
    with reopened(secrets) as memory:
        for number in range(SECRET):
            assert memory.get(f"one-{number}") is None
        assert memory.list(session_id="secret").records == ()
        memory.flush()
        assert memory.store.jobs("scrub") == []
        assert_found(memory, texts(list(range(SECRET, SECRET + KEPT))))
        assert_sound(memory)
    assert files_that_hold(secrets, numbers) == []
    assert_no_bytes(secrets, [unique_word(number) for number in range(SECRET)])


def test_forgetting_resumes_by_itself_when_the_file_is_opened(secrets: Path) -> None:
    die_while_forgetting(secrets, point("forget.scrub", "before"))
    with Child("serve", path=str(secrets), index_tail_records=TAIL, lease_s=LEASE_S) as child:
        assert child.line() == "open"
        while child.ask("stats")["jobs"]:  # no call of flush: the worker woke up at opening
            pass
        child.finish()


def test_nothing_is_left_of_a_record_whose_unpublished_index_file_survived_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "agent.loom"
    options = {"seed_of_embedder": 0, "index_tail_records": TAIL, "lease_s": LEASE_S}
    step = point("projection.write_file", "after", 2)
    with Child("write_and_flush", path=str(path), first=0, count=60, armed=step, **options) as child:
        child.wait_for_death()
    with reopened(path) as memory:
        numbers = [record.seq for record in memory.list(limit=100).records]
        memory.forget([f"one-{number}" for number in range(60)])
        memory.flush()
    assert files_that_hold(path, numbers) == []


def files_that_hold(path: Path, numbers: list[int]) -> list[str]:
    """The index files, named by the database or not, that still have one of these records."""
    folder = path.with_name(path.name + "-index")
    return [
        file.name
        for file in (sorted(folder.iterdir()) if folder.is_dir() else [])
        if file.suffix == ".tmp" or np.isin(open_segment(file).arrays["keys"], numbers).any()
    ]


def assert_no_bytes(path: Path, words: list[str]) -> None:
    """No file of the store holds one of these words. Only for a store that this process has closed:
    closing any descriptor of an open one drops SQLite's locks.
    """
    for file in sorted(path.parent.rglob(path.name + "*")):
        content = file.read_bytes() if file.is_file() else b""
        assert [word for word in words if word.encode() in content] == [], file.name
