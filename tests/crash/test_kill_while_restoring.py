"""SIGKILL at every named step of a snapshot and of a restore: what was there before is there, or all of what came."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loom.storage.base import Draft
from loom.storage.snapshot_staging import restore
from loom.storage.snapshots import describe
from tests.crash.processes import ROOT
from tests.storage.whole_stores import MOMENT, everything, lived_in, opened_store

_CHILD = """
import json, os, sys
from tests.crash.children import arm
from loom.storage.sqlite import SqliteStore
from loom.storage import snapshot_merging, snapshot_staging, snapshots
from loom.memory.core import LoomMemory
given = json.loads(sys.argv[1])
arm(given["armed"])
if given["verb"] == "restore":
    snapshot_staging.restore(given["chain"], given["path"])
elif given["verb"] == "snapshot":
    SqliteStore(given["path"]).snapshot(given["chain"][-1], parent=given["parent"])
else:
    memory = LoomMemory("agent", store=given["path"], namespace="mine", embedder="none", derive=False)
    memory.restore(given["chain"])
os._exit(0)
"""


def point(target: str, when: str, call: int = 1) -> dict[str, Any]:
    return {"target": target, "when": when, "call": call}


def named(step: Any) -> str:
    return (
        f"{step['when']} {step['target'].rpartition(':')[2]} {step['call']}" if isinstance(step, dict) else str(step)
    )


def killed(verb: str, path: Path, chain: list[Path], step: dict[str, Any], parent: Path | None = None) -> None:
    given = {
        "verb": verb,
        "path": str(path),
        "chain": [str(one) for one in chain],
        "armed": step,
        "parent": None if parent is None else str(parent),
    }
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(given)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("chain")
    with opened_store(folder / "a.loom") as store:
        lived_in(store, 25)
        store.snapshot(folder / "0.hctx")
        lived_in(store, 25, first=30)
        store.snapshot(folder / "1.hctx", parent=folder / "0.hctx")
    return [folder / "0.hctx", folder / "1.hctx"]


# Whether the new file is there under its name after the kill.
SNAPSHOT_STEPS = [
    (point("loom.storage.snapshots:_start", "after"), False),
    (point("loom.storage.snapshots:_write", "before"), False),
    (point("loom.storage.snapshots:_write_records", "after"), False),
    (point("loom.storage.snapshots:_write", "after"), False),
    (point("loom.storage.snapshot_format:SnapshotWriter.finish", "before"), False),
    (point("loom.storage.snapshot_format:SnapshotWriter.finish", "after"), False),
    (point("os:fsync", "after"), False),
    (point("os:replace", "before"), False),
    (point("os:replace", "after"), True),
    (point("loom.storage.snapshots:sync_folder", "after"), True),
]


@pytest.mark.parametrize(("step", "there"), SNAPSHOT_STEPS, ids=named)
def test_a_snapshot_is_there_whole_or_the_one_before_it(
    tmp_path: Path, chain: list[Path], step: dict[str, Any], there: bool
) -> None:
    restore(chain, tmp_path / "a.loom")
    target = tmp_path / "target.hctx"
    target.write_bytes(chain[0].read_bytes())
    killed("snapshot", tmp_path / "a.loom", [target], step, parent=chain[1])
    found = describe(target)
    assert (found.sha256 == describe(chain[0]).sha256) is not there
    assert (found.parent == describe(chain[1]).sha256) is there
    with opened_store(tmp_path / "a.loom") as store:
        assert store.check(repair=False).problems == ()
        store.snapshot(target, parent=chain[1])
    restore([*chain, target], tmp_path / "b.loom")


RESTORE_STEPS = [
    (point("loom.storage.snapshot_staging:Stage.prepare", "before"), False),
    (point("loom.storage.snapshot_staging:Stage.prepare", "after"), False),
    (point("loom.storage.snapshot_staging:Stage._read_forgotten", "after"), False),
    (point("loom.storage.snapshot_staging:Stage._records", "before"), False),
    (point("loom.storage.snapshot_staging:Stage._records", "after"), False),
    (point("loom.storage.snapshot_staging:Stage._apply", "after"), False),
    (point("loom.storage.snapshot_staging:Stage._records", "after", 2), False),
    (point("loom.storage.snapshot_staging:Stage._complete", "before"), False),
    (point("loom.storage.snapshot_staging:Stage._complete", "after"), False),
    (point("loom.storage.snapshot_staging:Stage.read", "after"), False),
    (point("loom.storage.snapshot_staging:_publish", "before"), False),
    (point("os:fsync", "after"), False),
    (point("os:rename", "before"), False),
    (point("os:rename", "after"), True),
    (point("loom.storage.snapshot_staging:_publish", "after"), True),
]


@pytest.mark.parametrize(("step", "there"), RESTORE_STEPS, ids=named)
def test_a_restored_file_is_there_whole_or_not_at_all(
    tmp_path: Path, chain: list[Path], step: dict[str, Any], there: bool
) -> None:
    path = tmp_path / "a.loom"
    killed("restore", path, chain, step)
    assert path.exists() is there
    if not there:
        restore(chain, path)
    restore(chain, tmp_path / "b.loom")
    with opened_store(path) as store, opened_store(tmp_path / "b.loom") as other:
        assert store.check(repair=False).problems == ()
        assert everything(store) == everything(other)


MERGE_STEPS = [
    (point("loom.storage.snapshot_staging:Stage.prepare", "after"), False),
    (point("loom.storage.snapshot_staging:Stage._records", "after"), False),
    (point("loom.storage.snapshot_staging:Stage.read", "after"), False),
    (point("loom.storage.snapshot_merging:Merge._records", "before"), False),
    (point("loom.storage.snapshot_merging:Merge._records", "after"), False),
    (point("loom.storage.snapshot_merging:Merge._places", "after"), False),
    (point("loom.storage.snapshot_merging:Merge._entries", "after"), False),
    (point("loom.storage.snapshot_merging:Merge._note", "after"), False),
    (point("loom.storage.snapshot_merging:Merge.run", "after"), False),
    (point("loom.memory.migration:Tiers.make_room", "after", 2), False),
    (point("loom.storage.upkeep:Upkeep.wrote", "before"), True),
]


@pytest.mark.parametrize(("step", "there"), MERGE_STEPS, ids=named)
def test_a_namespace_has_all_of_a_snapshot_or_nothing(
    tmp_path: Path, chain: list[Path], step: dict[str, Any], there: bool
) -> None:
    path = tmp_path / "a.loom"
    with opened_store(path, "mine") as store:
        with store.transaction() as transaction:
            drafts = [Draft(f"own{number}", f"here before {number}", MOMENT, tokens=20) for number in range(12)]
            numbers = [one.seq for one in transaction.append(drafts)]
            transaction.enter(numbers, "l2", "agent", "written")
        state = everything(store, "settings", "store", "namespaces")
    killed("merge", path, chain, step)
    with opened_store(path, "mine") as store:
        assert store.check(repair=False).problems == ()
        assert (everything(store, "settings", "store", "namespaces") == state) is not there
        done = store.restore(chain)
        assert (done.records == 0) is there
        assert done.records + done.present > 40
        assert store.check(repair=False).problems == ()
    if step["target"] != "loom.storage.snapshot_staging:Stage.prepare":  # it has no name from then on
        assert list(tmp_path.glob(".*")) == []
