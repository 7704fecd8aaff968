"""SIGKILL while records are archived, or forgotten out of the archive: every text is there, and archiving resumes."""

from __future__ import annotations

import contextlib
import json
import random
import runpy
import shutil
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loom.storage.contract import Draft, Filter
from loom.storage.sqlite.store import SqliteStore
from tests.crash.children import unique_word
from tests.crash.forking import Process, start
from tests.crash.processes import ROOT, Point, named, point
from tests.small_archive import SMALL

MAKER = ROOT / "tests" / "data" / "archives" / "make_trained.py"
TRAINED = MAKER.with_name("trained.loom")
LEASE_S = 0.2
RECORDS = 400
SHARED = "the words that all of them share, 大家都有的一句话,"

# A child with one thing to do; `arm` kills it before or after the n-th call of a step.
_CHILD = """
import json, os, sys
from tests.crash.children import arm, say
from tests.small_archive import SMALL
from loom.storage.contract import Filter
from loom.storage.sqlite.store import SqliteStore
given = json.loads(sys.argv[1])
if given["armed"]:
    arm(given["armed"])
store = SqliteStore(given["path"], lease_s=given["lease_s"], limits=SMALL)
say("open")
if given["verb"] == "archive":
    say(store.archive().records)
elif given["verb"] == "forget":
    say(store.forget(Filter(ids=given["ids"], history=True)).records)
elif given["verb"] == "vacuum":
    say(store.vacuum())
os._exit(0)
"""


@contextlib.contextmanager
def child(path: Path, verb: str, armed: Point | None = None, says: str = "open\n", **more: Any) -> Iterator[Process]:
    given = {"path": str(path), "verb": verb, "armed": armed, "lease_s": LEASE_S, **more}
    process = start(_CHILD, json.dumps(given), stderr=2)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == says
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()


def opened(path: Path) -> SqliteStore:
    return SqliteStore(path, lease_s=LEASE_S, limits=SMALL)


def text_of(number: int) -> str:
    return f"{unique_word(number)} {SHARED} and then {' '.join(unique_word(number * 40 + one) for one in range(40))}"


def data_of(number: int) -> dict[str, Any] | None:
    return {"number": number, "tags": ["a", "标签"]} if number % 2 else None


def fill(path: Path) -> None:
    store = opened(path)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    with store.transaction() as transaction:
        transaction.append([Draft(f"r{n}", text_of(n), moment, data=data_of(n)) for n in range(RECORDS)])
    store.close()


def assert_whole(store: SqliteStore, gone: frozenset[int] = frozenset()) -> None:
    records = store.scan(Filter(history=True), limit=RECORDS + 1, newest_first=False).records
    expected = [(f"r{n}", text_of(n), data_of(n)) for n in range(RECORDS) if n not in gone]
    assert [(one.id, one.content, one.data) for one in records] == expected
    report = store.check(repair=False)
    assert report.ok, report.problems


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.loom"
    fill(path)
    return path


ARCHIVING = [
    point("archive.pack", "before"),
    point("archive.pack", "after"),
    point("archive.publish", "before"),
    point("archive.insert_block", "before"),
    point("archive.insert_block", "after", 3),
    point("archive.publish", "after"),
    point("transaction.advance", "after"),
    point("archive.some", "after"),
    point("archive.statistics", "before"),
]


@pytest.mark.parametrize("step", ARCHIVING, ids=named)
def test_a_kill_at_any_step_of_archiving_loses_nothing(path: Path, step: Point) -> None:
    with child(path, "archive", step) as process:
        assert process.wait() == -signal.SIGKILL
    store = opened(path)
    assert_whole(store)
    assert store.archive().records == RECORDS
    assert_whole(store)
    store.close()


FORGETTING = [
    point("archive.remove", "before"),
    point("archive.empty_block", "after", 2),
    point("archive.rewrite_block", "after"),
    point("archive.remove", "after"),
]


@pytest.mark.parametrize("step", FORGETTING, ids=named)
def test_a_kill_while_records_leave_their_blocks_leaves_them_all(path: Path, step: Point) -> None:
    store = opened(path)
    store.archive()
    store.close()
    leaving = frozenset(range(0, RECORDS, 3))
    ids = [f"r{number}" for number in leaving]
    with child(path, "forget", step, ids=ids) as process:
        assert process.wait() == -signal.SIGKILL
    store = opened(path)
    assert_whole(store)
    assert store.forget(Filter(ids=ids, history=True)).records == len(ids)
    assert_whole(store, leaving)
    store.close()


def test_a_kill_after_the_commit_of_a_forget_leaves_none_of_them(path: Path) -> None:
    store = opened(path)
    store.archive()
    store.close()
    leaving = frozenset(range(5, RECORDS, 4))
    step = point("forget.scrub", "before")
    with child(path, "forget", step, ids=[f"r{number}" for number in leaving]) as process:
        assert process.wait() == -signal.SIGKILL
    store = opened(path)
    assert_whole(store, leaving)
    assert store.flush().complete
    assert store.jobs("scrub") == []
    store.close()
    content = path.read_bytes()  # closed, and no other process has it open
    assert not any(unique_word(number).encode() in content for number in leaving)


UPGRADING = [
    point("upgrade.copy_block", "before"),
    point("upgrade.copy_block", "after", 4),
]


@pytest.mark.parametrize("step", UPGRADING, ids=named)
def test_a_kill_while_blocks_get_another_dictionary_leaves_the_old_format_whole(tmp_path: Path, step: Point) -> None:
    path = tmp_path / "a.loom"
    shutil.copy(TRAINED, path)
    with child(path, "archive", step, says="") as process:
        assert process.wait() == -signal.SIGKILL
    store = opened(path)
    records = store.scan(Filter(history=True), limit=1000).records
    assert {record.id: record.content for record in records} == runpy.run_path(str(MAKER))["texts"]()
    assert store.check(repair=False).ok
    store.close()


def test_kills_at_random_moments_of_archiving_lose_nothing(path: Path) -> None:
    chance = random.Random(11)
    for _ in range(6):
        with child(path, "archive") as process:
            time.sleep(chance.random() * 0.25)  # chooses the moment; waits for nothing
            process.kill()
        store = opened(path)
        assert_whole(store)
        store.close()
    store = opened(path)
    assert store.archive().records == RECORDS
    assert_whole(store)
    store.close()


def test_kills_at_random_moments_of_a_vacuum_leave_the_archive_whole(path: Path) -> None:
    chance = random.Random(12)
    store = opened(path)
    store.archive()
    leaving = frozenset(range(0, RECORDS, 5))
    store.forget(Filter(ids=[f"r{number}" for number in leaving], history=True))
    store.close()
    for _ in range(4):
        with child(path, "vacuum") as process:
            time.sleep(chance.random() * 0.05)  # chooses the moment; waits for nothing
            process.kill()
        store = opened(path)
        assert_whole(store, leaving)
        store.close()
