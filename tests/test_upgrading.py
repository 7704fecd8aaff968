"""The commands of docs/upgrading.md, run line by line on files and on a server."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

import loom
from loom import cli
from tests.postgres_server import PostgresServer
from tests.test_documentation import blocks

ROOT = Path(__file__).parent.parent
UPGRADING = ROOT / "docs" / "upgrading.md"
SERVER = "postgresql://host/memory"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOM_EMBEDDER", "none")


def commands(first: str) -> list[list[str]]:
    """The commands of the block that begins with this one."""
    (block,) = (block for block in blocks(UPGRADING, "bash") if block.code.startswith(first))
    return [shlex.split(line, comments=True) for line in block.code.splitlines()]


def do(command: list[str]) -> None:
    match command:
        case ["loom", "flush", *arguments]:
            assert cli.main(["flush", *arguments]) in (0, 1), command  # 1: vectors wait for an embedder
        case ["loom", *arguments]:
            assert cli.main(arguments) == 0, command
        case ["cp", source, target]:
            for left in ("-wal", "-shm"):
                Path(f"{target}{left}").unlink(missing_ok=True)
            shutil.rmtree(f"{target.removesuffix('.loom')}.loom-index", ignore_errors=True)
            shutil.copy(source, target)
        case ["pip", "install", *_]:
            pass
        case _:
            pytest.fail(f"nothing here knows how to run {command}")


def test_a_file_of_an_earlier_version_is_upgraded_and_checked_by_the_commands() -> None:
    shutil.copy(ROOT / "tests" / "data" / "stores" / "v5.loom", "agent.loom")
    backup, *others = commands("loom backup --store agent.loom")
    shutil.copy("agent.loom", backup[-1])  # what the backup of the earlier version has
    for command in others:
        do(command)
    with loom.open("agent.loom", read_only=True) as memory:
        assert memory.get_stats()["records"] > 0


def test_a_file_is_rolled_back_and_keeps_the_later_writes() -> None:
    with loom.open("agent.loom") as memory:
        memory.remember("The harbour opens at nine.", id="harbour")
        memory.backup("before.loom")
        memory.update("harbour", "The harbour opens at ten.")
        memory.remember("The ferry leaves at noon.", id="ferry")
    for command in commands("loom export --store agent.loom"):
        do(command)
    with loom.open("agent.loom") as memory:
        assert [one.content[-5:] for one in memory.history("harbour")] == ["nine.", " ten."]
        assert memory.recall("When does the ferry leave?")[0].id == "ferry"
        assert memory.check().ok


def test_a_memory_on_a_server_is_rolled_back_into_another_schema(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    again = postgres_server.store_url(tmp_path / "again")
    lines = [
        [again if word == f"{SERVER}?schema=again" else postgres_url if word == SERVER else word for word in command]
        for command in commands(f"loom backup --store {SERVER}")
    ]
    assert again in lines[2]
    with loom.open(postgres_url) as memory:
        memory.remember("The harbour opens at nine.", id="harbour")
        memory.pin("harbour")
    do(lines[0])
    with loom.open(postgres_url) as memory:
        memory.update("harbour", "The harbour opens at ten.")
        memory.remember("The ferry leaves at noon.", id="ferry")
    for line in lines[1:]:
        do(line)
    with loom.open(again) as memory:
        assert [one.content[-5:] for one in memory.history("harbour")] == ["nine.", " ten."]
        assert memory.recall("When does the ferry leave?")[0].id == "ferry"
        assert memory.check().ok


def test_a_file_of_an_earlier_format_is_opened_for_writing_before_it_is_only_read() -> None:
    shutil.copy(ROOT / "tests" / "data" / "stores" / "v5.loom", "agent.loom")
    with pytest.raises(loom.LoomError, match="open it once for writing"):
        loom.open("agent.loom", read_only=True)
    loom.open("agent.loom").close()
    loom.open("agent.loom", read_only=True).close()
