"""Tables of earlier formats: their upgrade, partitions, and hosts with programs of two formats."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import UnsupportedStore
from loom.storage import open_store
from loom.storage.contract import Draft, Filter, Store
from tests.postgres_server import PostgresServer
from tests.storage.whole_stores import MOMENT, Clock, lived_in

pytest.importorskip("psycopg")

import psycopg

FORMAT_1 = Path(__file__).parent.parent / "data" / "stores" / "postgres_format_1.sql.gz"

Execute = Callable[..., list[tuple[Any, ...]]]

_CONTENTS = (
    "SELECT r.namespace, r.seq, r.id, r.version, r.content, r.metadata, r.block IS NULL, "
    "(SELECT s.by FROM SCHEMA.supersessions s WHERE s.record = r.seq), "
    "ARRAY(SELECT e.derived FROM SCHEMA.edges e WHERE e.source = r.seq ORDER BY 1), "
    "ARRAY(SELECT m.tier FROM SCHEMA.moves m WHERE m.record = r.seq ORDER BY m.seq), "
    "(SELECT sum(a.count) FROM SCHEMA.accesses a WHERE a.record = r.seq), "
    "(SELECT md5(v.data) FROM SCHEMA.vectors v WHERE v.record = r.seq), "
    "EXISTS (SELECT 1 FROM SCHEMA.derivations d WHERE d.record = r.seq) "
    "FROM SCHEMA.records r ORDER BY r.seq",
    "SELECT namespace, scope, owner, key, version, deleted, content, checksum FROM SCHEMA.entries ORDER BY seq",
    "SELECT namespace, key, md5(data) FROM SCHEMA.blobs ORDER BY seq",
    "SELECT namespace, kind, record, data, attempts FROM SCHEMA.jobs ORDER BY namespace, kind, record, seq",
    "SELECT namespace, file, part, md5(data) FROM SCHEMA.segment_chunks ORDER BY 1, 2, 3",
    "SELECT number, namespace, records, md5(data) FROM SCHEMA.blocks ORDER BY number",
)


@pytest.fixture
def execute(postgres_server: PostgresServer, postgres_url: str) -> Iterator[Execute]:
    """Executes a statement on the tables of the memory, without loom."""
    schema = postgres_url.partition("schema=")[2].partition("&")[0]
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:

        def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement.replace("SCHEMA", schema).encode(), values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture
def of_format_1(postgres_url: str, execute: Execute) -> str:
    """The URL of a database that a program of format 1 wrote."""
    script = gzip.decompress(FORMAT_1.read_bytes()).decode().replace("CREATE SCHEMA", "CREATE schema")
    execute(script.replace("loom_format_1", "SCHEMA"))
    return postgres_url


def held(execute: Execute) -> list[list[tuple[Any, ...]]]:
    return [execute(query) for query in _CONTENTS]


def opened(url: str, namespace: str = "default", **options: Any) -> Store:
    return open_store(url, namespace=namespace, clock=Clock(10_000), **options)


def test_a_database_of_format_1_is_divided_and_keeps_everything(of_format_1: str, execute: Execute) -> None:
    before = held(execute)
    assert all(before)
    for namespace in ("default", "other"):
        store = opened(of_format_1, namespace)
        try:
            assert store.check().ok
            assert store.get("r3") is not None
            lived_in(store, first=100)  # type: ignore[arg-type]
            store.forget(Filter(ids=["r3"]))
            assert store.flush().waiting.get("scrub", 0) == 0
            assert store.check().ok
        finally:
            store.close()
    (formats,) = execute("SELECT format, min_writer FROM SCHEMA.store")
    assert formats == (3, 2)
    kinds = execute("SELECT relname, relkind FROM pg_class WHERE relnamespace = 'SCHEMA'::regnamespace")
    assert {("records", "p"), ("edges", "p"), ("records_1", "r")} <= {*kinds}
    assert not [name for name, _ in kinds if name.endswith("_old")]


def test_an_upgrade_changes_no_row_and_one_that_fails_changes_no_table(of_format_1: str, execute: Execute) -> None:
    before = held(execute)
    execute("CREATE TABLE SCHEMA.records_old ()")  # in the way of the upgrade
    with pytest.raises(loom.LoomError):
        opened(of_format_1)
    assert held(execute) == before
    assert execute("SELECT format FROM SCHEMA.store") == [(1,)]
    execute("DROP TABLE SCHEMA.records_old")
    opened(of_format_1).close()
    assert execute("SELECT format FROM SCHEMA.store") == [(3,)]
    after = held(execute)
    for was, now in zip(before, after, strict=True):
        assert [row for row in now if row in was] == was


def test_a_host_that_only_reads_format_1_goes_on_during_and_after_the_upgrade(
    of_format_1: str, execute: Execute
) -> None:
    reader = opened(of_format_1, read_only=True)  # it reads the undivided tables
    try:
        assert execute("SELECT format FROM SCHEMA.store") == [(1,)]
        count = reader.count(Filter())
        writer = opened(of_format_1)
        with writer.transaction() as transaction:
            transaction.append([Draft("new", "a text of the newer host", MOMENT)])
        assert reader.count(Filter()) == count + 1
        record = reader.get("new")
        assert record is not None
        assert record.content == "a text of the newer host"
        writer.forget(Filter(ids=["r4"]))
        assert reader.get("r4") is None
        writer.close()
    finally:
        reader.close()


def test_a_database_of_format_2_gets_a_table_and_hosts_of_that_format_go_on(
    postgres_url: str, execute: Execute
) -> None:
    with loom.open(postgres_url, embedder="none") as memory:
        memory.remember("a text", id="x")
    execute("DROP TABLE SCHEMA.writers")
    execute("UPDATE SCHEMA.store SET format = 2, min_reader = 1, min_writer = 2")
    before = held(execute)
    with loom.open(postgres_url, embedder="none") as memory:
        assert held(execute) == before
        memory.remember("an important text", id="y", importance=0.9)
    assert execute("SELECT format, min_reader, min_writer FROM SCHEMA.store") == [(3, 1, 2)]
    assert execute("SELECT count(*) FROM SCHEMA.writers") == [(1,)]


def test_rows_of_processes_that_ended_long_ago_are_removed(postgres_url: str, execute: Execute) -> None:
    def write(id: str) -> None:
        with loom.open(postgres_url, embedder="none") as memory:
            memory.remember("an important text", id=id, importance=0.9)

    write("x")
    write("y")
    ((rows,),) = execute("SELECT count(*) FROM SCHEMA.writers")
    assert rows >= 2
    execute("UPDATE SCHEMA.writers SET at = at - interval '25 hours'")
    write("z")
    ((left,),) = execute("SELECT count(*) FROM SCHEMA.writers")
    assert 0 < left < rows


def test_tables_of_a_newer_program_are_used_as_far_as_it_allows(postgres_url: str, execute: Execute) -> None:
    with loom.open(postgres_url, embedder="none") as memory:
        memory.remember("a text", id="x")
    execute("UPDATE SCHEMA.store SET format = 9")
    with loom.open(postgres_url, embedder="none") as memory:  # newer, and open to programs of this format
        memory.remember("another text", id="y")
    execute("UPDATE SCHEMA.store SET min_writer = 9")
    with pytest.raises(UnsupportedStore, match="format 9"):
        loom.open(postgres_url, embedder="none")
    with loom.open(postgres_url, embedder="none", read_only=True) as memory:
        assert memory.get("y") is not None
    execute("UPDATE SCHEMA.store SET min_reader = 9")
    with pytest.raises(UnsupportedStore, match="can read"):
        loom.open(postgres_url, embedder="none", read_only=True)


def test_every_namespace_is_in_the_partitions_of_one_number(postgres_url: str, execute: Execute) -> None:
    url = postgres_url.replace("partitions=2", "partitions=4")
    for name in "abcdef":
        store = open_store(url, namespace=name, clock=Clock())
        lived_in(store)  # type: ignore[arg-type]
        store.close()
    places = execute(
        "SELECT DISTINCT namespace, substring(tableoid::regclass::text FROM '[0-9]+$') FROM SCHEMA.records "
        "UNION SELECT namespace, substring(tableoid::regclass::text FROM '[0-9]+$') FROM SCHEMA.edges "
        "UNION SELECT namespace, substring(tableoid::regclass::text FROM '[0-9]+$') FROM SCHEMA.entries "
        "UNION SELECT namespace, substring(tableoid::regclass::text FROM '[0-9]+$') FROM SCHEMA.vectors"
    )
    assert len(places) == 6
    assert len({number for _, number in places}) > 1
    for name in "abcdef":
        store = open_store(url.replace("partitions=4", "partitions=64"), namespace=name)  # as they were created
        assert store.check().ok
        store.close()
