"""SIGKILL at every named step of a snapshot and of a restore: the earlier content is there, or all of the new one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom.snapshots.merging import restore_into
from loom.snapshots.staging import restore
from loom.snapshots.taking import describe, take
from loom.storage.contract import Draft
from tests.crash.processes import ROOT, Point, named, point
from tests.storage.whole_stores import MOMENT, everything, lived_in, opened_store

# Forks a child for each line: dozens of kills for one start. Nothing is open in it and no thread runs.
_NURSERY = """
import json, os, sys, traceback
from tests.crash.children import arm
from loom.storage.sqlite.store import SqliteStore
from loom.snapshots import merging
from loom.snapshots import staging, taking
from loom.snapshots.taking import take
from loom.memory.core import LoomMemory

def run(verb, path, chain, armed, parent):
    arm(armed)
    if verb == "restore":
        staging.restore(chain, path)
    elif verb == "snapshot":
        take(SqliteStore(path), chain[-1], parent=parent)
    else:
        LoomMemory("agent", store=path, namespace="mine", embedder="none", derive=False).restore(chain)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            run(**json.loads(line))
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    """A process whose children are killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _NURSERY], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def killed(self, verb: str, path: Path, chain: list[Path], step: Point, parent: Path | None = None) -> None:
        given = {
            "verb": verb,
            "path": str(path),
            "chain": [str(one) for one in chain],
            "armed": step,
            "parent": None if parent is None else str(parent),
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()
        assert int(self.process.stdout.readline()) == -signal.SIGKILL, "the step was not reached"


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.process.communicate()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("chain")
    with opened_store(folder / "a.loom") as store:
        lived_in(store, 25)
        take(store, folder / "0.hctx")
        lived_in(store, 25, first=30)
        take(store, folder / "1.hctx", parent=folder / "0.hctx")
    return [folder / "0.hctx", folder / "1.hctx"]


# Whether the new file is there under its name after the kill.
SNAPSHOT_STEPS = [
    (point("snapshot.start", "after"), False),
    (point("snapshot.write", "before"), False),
    (point("snapshot.write_rows", "after", 3), False),
    (point("snapshot.write", "after"), False),
    (point("snapshot.finish", "before"), False),
    (point("snapshot.finish", "after"), False),
    (point("os:fsync", "after"), False),
    (point("os:replace", "before"), False),
    (point("os:replace", "after"), True),
    (point("os:fsync", "after", 2), True),  # of the folder
]


@pytest.mark.parametrize(("step", "there"), SNAPSHOT_STEPS, ids=named)
def test_a_snapshot_is_there_whole_or_the_one_before_it(
    tmp_path: Path, nursery: Nursery, chain: list[Path], step: Point, there: bool
) -> None:
    restore(chain, tmp_path / "a.loom")
    target = tmp_path / "target.hctx"
    target.write_bytes(chain[0].read_bytes())
    nursery.killed("snapshot", tmp_path / "a.loom", [target], step, parent=chain[1])
    found = describe(target)
    assert (found.sha256 == describe(chain[0]).sha256) is not there
    assert (found.parent == describe(chain[1]).sha256) is there
    with opened_store(tmp_path / "a.loom") as store:
        assert store.check(repair=False).problems == ()
        take(store, target, parent=chain[1])
    restore([*chain, target], tmp_path / "b.loom")


RESTORE_STEPS = [
    (point("stage.prepare", "before"), False),
    (point("stage.prepare", "after"), False),
    (point("stage.read_forgotten", "after"), False),
    (point("stage.rows", "before", 2), False),
    (point("stage.rows", "after", 2), False),
    (point("stage.apply", "after"), False),
    (point("stage.rows", "after", 10), False),
    (point("stage.complete", "before"), False),
    (point("stage.complete", "after"), False),
    (point("stage.read", "after"), False),
    (point("restore.publish", "before"), False),
    (point("os:fsync", "after"), False),
    (point("os:rename", "before"), False),
    (point("os:rename", "after"), True),
    (point("restore.publish", "after"), True),
]


@pytest.mark.parametrize(("step", "there"), RESTORE_STEPS, ids=named)
def test_a_restored_file_is_there_whole_or_not_at_all(
    tmp_path: Path, nursery: Nursery, chain: list[Path], step: Point, there: bool
) -> None:
    path = tmp_path / "a.loom"
    nursery.killed("restore", path, chain, step)
    assert path.exists() is there
    if not there:
        restore(chain, path)
    restore(chain, tmp_path / "b.loom")
    with opened_store(path) as store, opened_store(tmp_path / "b.loom") as other:
        assert store.check(repair=False).problems == ()
        assert everything(store) == everything(other)


MERGE_STEPS = [
    (point("stage.prepare", "after"), False),
    (point("stage.rows", "after", 2), False),
    (point("stage.read", "after"), False),
    (point("merge.records", "before"), False),
    (point("transaction.add_rows", "before"), False),
    (point("transaction.add_rows", "after"), False),
    (point("merge.records", "after"), False),
    (point("merge.places", "after"), False),
    (point("merge.entries", "after"), False),
    (point("merge.note", "after"), False),
    (point("merge.run", "after"), False),
    (point("tiers.make_room", "after", 2), False),
    (point("maintenance.wrote", "before"), True),
]


@pytest.mark.parametrize(("step", "there"), MERGE_STEPS, ids=named)
def test_a_namespace_has_all_of_a_snapshot_or_nothing(
    tmp_path: Path, nursery: Nursery, chain: list[Path], step: Point, there: bool
) -> None:
    path = tmp_path / "a.loom"
    with opened_store(path, "mine") as store:
        with store.transaction() as transaction:
            drafts = [Draft(f"own{number}", f"here before {number}", MOMENT, tokens=20) for number in range(12)]
            numbers = [one.seq for one in transaction.append(drafts)]
            transaction.enter(numbers, "l2", "agent", "written")
        state = everything(store, "settings", "store", "namespaces")
    nursery.killed("merge", path, chain, step)
    with opened_store(path, "mine") as store:
        assert store.check(repair=False).problems == ()
        assert (everything(store, "settings", "store", "namespaces") == state) is not there
        done = restore_into(store, chain)
        assert (done.records == 0) is there
        assert done.records + done.present > 40
        assert store.check(repair=False).problems == ()
    if step["target"] != "stage.prepare":  # it has no name from then on
        assert list(tmp_path.glob(".*")) == []
