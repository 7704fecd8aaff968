"""Tenants: roles of a server that may use some namespaces only, through loom and with SQL of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

import loom
from loom.errors import InvalidInput, LoomError, NotFound, StoreUnavailable, UnsupportedStore
from loom.models.embedders import FakeEmbedder
from loom.storage import add_tenant, open_store, remove_tenant, tenants
from loom.storage.contract import Filter
from tests.postgres_server import PostgresServer
from tests.storage.whole_stores import Clock, lived_in

pytest.importorskip("psycopg")

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

Execute = Callable[..., list[tuple[Any, ...]]]


def schema_of(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


def as_role(url: str, role: str) -> str:
    """The URL for another role, whose password is its name."""
    base, _, query = url.partition("?")
    options = dict(parse_qsl(query))
    ours = {name: options.pop(name) for name in ("schema", "partitions", "cache") if name in options}
    given = conninfo_to_dict(base + "?" + urlencode(options)) | {"user": role, "password": role}
    return "postgresql:///?" + urlencode(given | ours)


@pytest.fixture
def owner(postgres_server: PostgresServer) -> Iterator[Callable[..., Any]]:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        yield connection.execute


@pytest.fixture
def roles(postgres_url: str, owner: Callable[..., Any]) -> tuple[str, str]:
    """Two tenants: `a` uses the namespace "red", `b` uses "blue". Both have everything that a store holds."""
    names = f"{schema_of(postgres_url)}_a", f"{schema_of(postgres_url)}_b"
    for role, namespace in zip(names, ("red", "blue"), strict=True):
        add_tenant(postgres_url, role, namespace)
        owner(f"ALTER ROLE {role} PASSWORD '{role}'".encode())
        store = open_store(postgres_url, namespace=namespace, clock=Clock(), tail=(8, 1 << 20))
        lived_in(store)  # type: ignore[arg-type]
        store.archive()
        store.flush()
        store.close()
    return names


@pytest.fixture
def execute(postgres_server: PostgresServer, postgres_url: str, roles: tuple[str, str]) -> Iterator[Execute]:
    """Executes a statement as the tenant of "red"."""
    given = conninfo_to_dict(postgres_server.url) | {"user": roles[0], "password": roles[0]}
    with psycopg.connect(make_conninfo("", **given), autocommit=True) as connection:

        def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement.replace("SCHEMA", schema_of(postgres_url)).encode(), values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


def open_tenant(url: str, role: str, namespace: str) -> AbstractContextManager[Any]:
    return closing(open_store(as_role(url, role), namespace=namespace))


def test_a_tenant_uses_every_verb_in_its_own_namespace(
    postgres_url: str, roles: tuple[str, str], tmp_path: Path
) -> None:
    url = as_role(postgres_url, roles[0])
    with loom.open(url, namespace="red", embedder=FakeEmbedder(), index_tail_records=8, reconfigure=True) as memory:
        first = memory.remember("We moved the harbour office to Porto on Monday.", role="user", name="Ana")
        memory.remember(
            [{"role": "user", "content": f"Ship number {number} is at the north gate."} for number in range(40)]
        )
        memory.update(first.id, "We moved the harbour office to Lisbon on Monday.")
        memory.pin(first.id)
        memory.flush()
        assert "Lisbon" in memory.recall("Where is the harbour office?", limit=3)[0].content
        assert memory.context("ship number 7", budget=500).messages
        assert len(memory.history(first.id)) == 2
        assert memory.list(limit=5)
        memory.unpin(first.id)
        memory.store.archive()
        assert memory.forget(first.id).records == 2
        assert memory.get(first.id) is None
        assert memory.get_stats()["vectors"] >= 40
        assert memory.check().ok
        memory.backup(tmp_path / "copy.loom")
        memory.snapshot(tmp_path / "copy.hctx")
        memory.store.vacuum()  # may not, and the note of it stays
        assert memory.get_stats()["awaiting_vacuum"] == 2  # one when the namespace was filled
    with loom.open(postgres_url, namespace="red", embedder="none", derive=False) as memory:
        memory.store.vacuum()
        assert memory.get_stats()["awaiting_vacuum"] == 0
    with loom.open(tmp_path / "copy.loom", namespace="red", embedder="none") as copy:
        assert len(copy.list(limit=100)) >= 40
    store = open_store(url, namespace="red", all_namespaces=True)
    assert store.namespaces() == ["red"]
    store.close()


def test_a_tenant_opens_no_other_namespace_and_makes_none(postgres_url: str, roles: tuple[str, str]) -> None:
    url = as_role(postgres_url, roles[0])
    for namespace in ("blue", "default"):
        with pytest.raises(StoreUnavailable, match="refuses this role"):
            open_store(url, namespace=namespace)
        reader = open_store(url, namespace=namespace, read_only=True)
        assert reader.count(Filter()) == 0
        reader.close()


def test_bare_sql_reaches_no_row_of_another_tenant(
    postgres_url: str, execute: Execute, owner: Callable[..., Any]
) -> None:
    schema = schema_of(postgres_url)
    numbers = dict(owner(f"SELECT name, number FROM {schema}.namespaces".encode()).fetchall())
    red, blue = numbers["red"], numbers["blue"]
    tables = [
        name
        for (name,) in owner(
            "SELECT table_name FROM information_schema.columns WHERE table_schema = %s AND column_name = 'namespace'",
            [schema],
        ).fetchall()
    ]
    assert {"records", "records_0", "records_1", "edges_1", "settings", "heads", "jobs", "pins"} <= {*tables}
    held = 0
    for table in sorted(tables):
        every = {found for (found,) in owner(f"SELECT DISTINCT namespace FROM {schema}.{table}".encode())}
        seen = {found for (found,) in execute(f"SELECT DISTINCT namespace FROM SCHEMA.{table}")}
        assert seen == every & {red}, table
        held += blue in every
        if table == "tenants":
            continue
        execute(f"SELECT 1 FROM SCHEMA.{table} FOR UPDATE")  # waits for no row of another
        if table != "heads":
            assert execute(f"DELETE FROM SCHEMA.{table} WHERE namespace = {blue} RETURNING 1") == []
        if red in every:
            for target in (table, table.rstrip("0123456789").rstrip("_")):
                with pytest.raises((errors.InsufficientPrivilege, errors.CheckViolation)):
                    execute(f"UPDATE SCHEMA.{target} SET namespace = {blue}")
        with pytest.raises(errors.InsufficientPrivilege):
            execute(f"TRUNCATE SCHEMA.{table}")
    assert held > 15


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO SCHEMA.settings VALUES (BLUE, '', 'space', '1')",
        "INSERT INTO SCHEMA.jobs VALUES (BLUE, 'embed', 1, 1)",
        "INSERT INTO SCHEMA.edges VALUES (BLUE << 40, BLUE << 40, RED)",  # the number of another, in a row of its own
        "INSERT INTO SCHEMA.tenants VALUES (current_user, BLUE)",
        "UPDATE SCHEMA.tenants SET namespace = BLUE",
        "INSERT INTO SCHEMA.namespaces (name) VALUES ('green')",
        "UPDATE SCHEMA.store SET min_writer = 99",
        "UPDATE SCHEMA.spaces SET name = 'other'",
        "UPDATE SCHEMA.heads SET seq = BLUE << 40",
        "INSERT INTO SCHEMA.leases VALUES ('worker-BLUE', 'me', 1, 1)",
        "ALTER TABLE SCHEMA.records DISABLE ROW LEVEL SECURITY",
        "CREATE TABLE SCHEMA.mine (a int)",
        "SET ROLE loom_owner",
    ],
)
def test_bare_sql_changes_nothing_beyond_the_own_namespace(
    postgres_url: str, execute: Execute, owner: Callable[..., Any], statement: str
) -> None:
    schema = schema_of(postgres_url)
    numbers = dict(owner(f"SELECT name, number FROM {schema}.namespaces".encode()).fetchall())
    (user,) = owner("SELECT current_user").fetchone()
    text = statement.replace("BLUE", str(numbers["blue"])).replace("RED", str(numbers["red"]))
    with pytest.raises((errors.InsufficientPrivilege, errors.CheckViolation)):
        execute(text.replace("loom_owner", user))
    (held,) = owner(
        f"SELECT count(*) FROM {schema}.leases WHERE name = 'worker-{numbers['blue']}'".encode()
    ).fetchone()
    assert (held, execute("SELECT name FROM SCHEMA.leases")) == (1, [(f"worker-{numbers['red']}",)])


def test_a_tenant_may_get_a_second_namespace_and_lose_both(postgres_url: str, roles: tuple[str, str]) -> None:
    a, b = roles
    url = as_role(postgres_url, a)
    add_tenant(postgres_url, a, "green")
    add_tenant(postgres_url, a, "green")
    assert tenants(postgres_url) == [(a, "green"), (a, "red"), (b, "blue")]
    with loom.open(url, namespace="green", embedder="none") as memory:
        memory.remember("in green")
    for namespace in ("green", "red"):
        remove_tenant(postgres_url, a, namespace)
    with pytest.raises(NotFound):
        remove_tenant(postgres_url, a, "red")
    with pytest.raises(LoomError):
        open_store(url, namespace="green")
    with loom.open(postgres_url, namespace="green", embedder="none") as memory:
        assert len(memory.list()) == 1


def test_a_role_that_nothing_restricts_is_no_tenant(postgres_url: str, owner: Callable[..., Any]) -> None:
    (user,) = owner("SELECT current_user").fetchone()
    with pytest.raises(InvalidInput, match="nothing would restrict"):
        add_tenant(postgres_url, user, "red")
    with pytest.raises(InvalidInput, match="a role and a namespace"):
        add_tenant(postgres_url, "", "red")
    with pytest.raises(UnsupportedStore, match="a file has no tenants"):
        tenants("agent.loom")


def test_the_command_lists_adds_and_removes_tenants(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    from loom.cli import main

    role = f"{schema_of(postgres_url)}_c"

    def command(*arguments: str) -> Any:
        assert main(["tenants", *arguments, "--store", postgres_url, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["tenants"]

    open_store(postgres_url).close()
    assert command() == []
    assert command(role, "--add", "red") == [{"role": role, "namespace": "red"}]
    assert command(role, "--remove", "red") == []
    assert main(["tenants", role, "--store", postgres_url]) != 0


def test_tenants_of_format_2_go_on_after_the_owner_has_upgraded_the_tables(
    postgres_url: str, roles: tuple[str, str], owner: Callable[..., Any]
) -> None:
    schema = schema_of(postgres_url)
    owner(f"DROP TABLE {schema}.writers".encode())
    owner(f"UPDATE {schema}.store SET format = 2".encode())
    with pytest.raises(UnsupportedStore, match="as their owner"):
        open_store(as_role(postgres_url, roles[0]), namespace="red")
    open_store(postgres_url, namespace="red").close()
    with open_tenant(postgres_url, roles[0], "red") as store, store.transaction() as transaction:
        transaction.put_entry("key", "value", writer="w")
    with open_tenant(postgres_url, roles[1], "blue") as store, store.engine.server.lent() as raw:
        assert raw.execute(f"SELECT 1 FROM {schema}.writers WHERE namespace = 1".encode()).fetchone() is None
