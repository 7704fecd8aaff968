"""SIGKILL in the middle of `loom migrate`: a namespace is there whole or not at all; another run adds the rest."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import cli
from loom.errors import NotAStore, NotFound, StoreUnavailable
from loom.storage import open_store
from loom.storage.contract import Filter
from tests.crash.processes import Child, Point, assert_sound, named, point

NAMESPACES = ("default", "team")

# In the transaction of the first namespace, at its end, and in that of the second.
STEPS = [
    point("merge.records", "after"),
    point("merge.entries", "before"),
    point("merge.run", "after"),
    point("merge.records", "after", 2),
    point("merge.run", "after", 2),
]


@pytest.fixture(autouse=True)
def without_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")


def fill(place: str | Path) -> None:
    for namespace in NAMESPACES:
        with loom.open(place, namespace=namespace, embedder="none", derive=False) as memory:
            memory.remember(
                [{"content": f"Crate {number} of {namespace}.", "id": f"c{number}"} for number in range(40)]
            )
            memory.update("c3", f"Crate 3 of {namespace} is empty.")
            with memory.store.transaction() as transaction:
                transaction.put_entry("plan", {"leave": namespace}, writer="ana")


def held(place: str | Path, namespace: str) -> tuple[list[tuple[Any, ...]], Any]:
    """The records and the entry of a namespace; nothing if there is no namespace or no store."""
    try:
        with closing(open_store(place, namespace=namespace, read_only=True)) as store:
            found = store.scan(Filter(history=True), limit=1_000).records
            plan = store.entry("plan")
    except (NotAStore, NotFound, StoreUnavailable):
        return [], None
    return sorted((one.id, one.version, one.content) for one in found), plan and plan.content


def migration_that_is_killed(source: str | Path, target: str | Path, armed: Point) -> None:
    fill(source)
    whole = {name: held(source, name) for name in NAMESPACES}
    assert all(len(records) == 41 for records, _ in whole.values())
    words = ["migrate", str(source), str(target)]
    with Child("shell", words=words, armed=armed) as child:
        child.wait_for_death()
    there = [held(target, name) for name in NAMESPACES]
    assert there == [whole["default"] if armed["call"] == 2 else ([], None), ([], None)]
    assert cli.main(words) == 0
    for name in NAMESPACES:
        assert held(target, name) == whole[name]
        with loom.open(target, namespace=name, embedder="none") as memory:
            assert_sound(memory)


@pytest.mark.parametrize("armed", STEPS, ids=named)
def test_a_migration_to_a_server_that_is_killed_is_finished_by_another_run(
    tmp_path: Path, postgres_url: str, armed: Point
) -> None:
    migration_that_is_killed(tmp_path / "a.loom", postgres_url, armed)


@pytest.mark.parametrize("armed", STEPS[1::2], ids=named)
def test_a_migration_from_a_server_that_is_killed_is_finished_by_another_run(
    tmp_path: Path, postgres_url: str, armed: Point
) -> None:
    migration_that_is_killed(postgres_url, tmp_path / "a.loom", armed)
