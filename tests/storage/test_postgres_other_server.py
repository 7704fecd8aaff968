"""A commit whose answer is lost in a failover: the server that answers afterwards is another one.

`make soak` does the same with streaming standbys under load; here the other server is a copy of the first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import StoreUnavailable
from loom.everyday import Memory
from loom.storage.contract import Filter
from tests.postgres_server import OwnServer, Programs, copy_of, find_programs, running_server

pytest.importorskip("psycopg")

from tests.postgres_proxy import Way, way_to

pytestmark = pytest.mark.usefixtures("postgres_server")
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def programs() -> Programs:
    found = find_programs()
    if found is None:
        pytest.skip("the programs of a server are needed to start others")
    return found


@pytest.fixture(scope="module")
def primary(programs: Programs) -> Iterator[OwnServer]:
    with running_server(programs) as server:
        yield server


@pytest.fixture
def on_the_way(primary: OwnServer, tmp_path: Path) -> Iterator[tuple[Memory, Way, str]]:
    """A memory on the first server, the proxy before the server, and the name of its schema."""
    with way_to(primary, tmp_path / "way") as (server, way):
        url = server.store_url(tmp_path)
        with loom.open(url, embedder="none", derive=False) as memory:
            memory.remember("first", id="first")
            yield memory, way, url.partition("schema=")[2].partition("&")[0]


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def lost(way: Way, thread: ThreadPoolExecutor, write: Callable[[], Any]) -> Future[Any]:
    """Write in a thread. The commit is on the first server; its answer is lost, and the server with it."""
    way.fail_over()
    written = thread.submit(write)
    deadline = time.monotonic() + WITHIN_S
    while not way.has_failed_over:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    return written


@contextmanager
def opened(server: OwnServer, schema: str, folder: Path) -> Iterator[Memory]:
    """The same memory by another host, which is at the other server already."""
    with loom.open(server.store_url(folder, schema), embedder="none", derive=False) as memory:
        yield memory


def entry(memory: Memory, way: Way) -> Callable[[], None]:
    def write() -> None:
        with memory.store.transaction() as transaction:
            transaction.put_entry("key", "value", writer="w")
            way.cut_at(b"COMMIT", answered=True)

    return write


def entries(memory: Memory) -> int:
    return len(memory.store.entries())


@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "after writes of others"])
def test_a_write_that_the_other_server_has_returns(
    primary: OwnServer,
    on_the_way: tuple[Memory, Way, str],
    thread: ThreadPoolExecutor,
    tmp_path: Path,
    goes_on: bool,
) -> None:
    memory, way, schema = on_the_way
    written = lost(way, thread, entry(memory, way))
    with copy_of(primary) as copy:
        if goes_on:
            with opened(copy, schema, tmp_path / "other") as other:
                other.remember(["one", "two"], importance=0.9)
        way.lead_to(copy)
        written.result(WITHIN_S)
        assert entries(memory) == 1
        assert memory.check().ok


@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "after its numbers were given to others"])
def test_a_write_that_the_other_server_has_not_is_refused_and_may_be_repeated(
    primary: OwnServer,
    on_the_way: tuple[Memory, Way, str],
    thread: ThreadPoolExecutor,
    tmp_path: Path,
    goes_on: bool,
) -> None:
    memory, way, schema = on_the_way
    with copy_of(primary) as copy:
        written = lost(way, thread, entry(memory, way))
        if goes_on:
            with opened(copy, schema, tmp_path / "other") as other:
                for number in range(5):  # as many transactions and sequence numbers as the first server has given
                    other.remember(f"of another {number}", importance=0.9)
        way.lead_to(copy)
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            written.result(WITHIN_S)
        assert entries(memory) == 0
        with memory.store.transaction() as transaction:
            transaction.put_entry("key", "value", writer="w")
        assert entries(memory) == 1
        assert memory.store.count(Filter()) == (6 if goes_on else 1)
        assert memory.check().ok


@pytest.mark.parametrize("has_it", [True, False])
@pytest.mark.parametrize("id", [None, "of the caller"])
def test_a_remember_is_on_the_other_server_once(
    primary: OwnServer,
    on_the_way: tuple[Memory, Way, str],
    thread: ThreadPoolExecutor,
    has_it: bool,
    id: str | None,
) -> None:
    memory, way, _ = on_the_way
    memory.remember("this prepares the statement", id=None if id is None else "before")

    def write() -> Any:
        return memory.remember("a text", id=id)

    def lose() -> Future[Any]:
        way.lose_next_answer()
        return lost(way, thread, write)

    written = lose() if has_it else None
    with copy_of(primary) as copy:
        written = written or lose()
        way.lead_to(copy)
        receipt = written.result(WITHIN_S)
        assert [record.id for record in memory.list() if record.content == "a text"] == [receipt.id]
        assert id in (None, receipt.id)
        assert memory.check().ok
