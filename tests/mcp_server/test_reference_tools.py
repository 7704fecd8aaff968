"""The nine tools of the reference memory server: the same answers over the same file."""

from __future__ import annotations

import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from loom.mcp.reference import GraphFile, reference_tools
from tests.mcp_server.sessions import LOOM, environment, talk, text_of

NINE = [
    "create_entities",
    "create_relations",
    "add_observations",
    "delete_entities",
    "delete_observations",
    "delete_relations",
    "read_graph",
    "search_nodes",
    "open_nodes",
]
ANA = {"name": "Ana", "entityType": "person", "observations": ["likes trains"]}
HERON = {"name": "Heron", "entityType": "project", "observations": ["goes live on 12 May", "预订网站"]}
LEADS = {"from": "Ana", "to": "Heron", "relationType": "leads"}

# Every call of a session, in order, and nothing that depends on the server's name.
SESSION: list[tuple[str, dict[str, Any]]] = [
    ("read_graph", {}),
    ("create_entities", {"entities": [ANA, HERON, {**ANA, "observations": []}]}),
    ("create_entities", {"entities": [ANA, {"name": "Wei", "entityType": "person", "observations": []}]}),
    ("create_relations", {"relations": [LEADS, {"from": "Wei", "to": "Heron", "relationType": "works on"}]}),
    ("create_relations", {"relations": [LEADS]}),
    ("add_observations", {"observations": [{"entityName": "Wei", "contents": ["喝绿茶", "喝绿茶"]}]}),
    ("add_observations", {"observations": [{"entityName": "Wei", "contents": ["喝绿茶", "hates coffee"]}]}),
    ("add_observations", {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}),
    ("search_nodes", {"query": "TRAINS"}),
    ("search_nodes", {"query": "预订"}),
    ("search_nodes", {"query": "zebra"}),
    ("open_nodes", {"names": ["Heron", "Missing"]}),
    ("delete_observations", {"deletions": [{"entityName": "Wei", "observations": ["喝绿茶"]}]}),
    ("delete_observations", {"deletions": [{"entityName": "Nobody", "observations": ["x"]}]}),
    ("delete_relations", {"relations": [LEADS]}),
    ("read_graph", {}),
    ("delete_entities", {"entityNames": ["Heron", "Missing"]}),
    ("read_graph", {}),
]


def server(file: Path) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=[*LOOM, "mcp", "--reference", str(file)], env=environment()
    )


async def session(client: Client) -> list[tuple[bool, str, Any]]:
    answers = []
    for name, arguments in SESSION:
        result = await client.call_tool(name, arguments)
        answers.append((bool(result.is_error), text_of(result), result.structured_content))
    return answers


def test_the_tools_have_the_names_and_the_resource_of_the_reference(tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"

    async def use(client: Client) -> list[str]:
        await client.call_tool("create_entities", {"entities": [ANA]})
        graph = await client.read_resource("memory://knowledge-graph")
        assert json.loads(graph.contents[0].text)["entities"] == [ANA]  # type: ignore[union-attr]
        return [tool.name for tool in (await client.list_tools()).tools]

    assert talk(server(file), use) == NINE


def test_the_file_has_the_form_of_the_reference(tmp_path: Path) -> None:
    file = GraphFile(tmp_path / "memory.jsonl")
    tools = reference_tools()
    tools["create_entities"].run(file, {"entities": [HERON]})
    tools["create_relations"].run(file, {"relations": [LEADS]})
    assert file.path.read_text(encoding="utf-8").split("\n") == [
        '{"type":"entity","name":"Heron","entityType":"project","observations":["goes live on 12 May","预订网站"]}',
        '{"type":"relation","from":"Ana","to":"Heron","relationType":"leads"}',
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".memory.jsonl.lock", "memory.jsonl"]


def test_answers_of_a_session(tmp_path: Path) -> None:
    answers = talk(server(tmp_path / "memory.jsonl"), session)
    assert [error for error, _, _ in answers].count(True) == 1
    created, again = answers[1][2]["entities"], answers[2][2]["entities"]
    assert [one["name"] for one in created][:2] == ["Ana", "Heron"]
    assert [one["name"] for one in again] == ["Wei"]
    assert answers[4][2] == {"relations": []}
    assert answers[6][2]["results"][0]["addedObservations"] == ["hates coffee"]
    assert next(one["name"] for one in answers[8][2]["entities"]) == "Ana"
    assert answers[11][2]["relations"] == [LEADS, {"from": "Wei", "to": "Heron", "relationType": "works on"}]
    assert answers[-1][2]["relations"] == []


@pytest.mark.parametrize("line", ["{", "[]", '{"type":"entity"}', '{"type":"song","name":"x"}', "\x00"])
def test_a_damaged_line_is_named_and_the_file_is_left_alone(tmp_path: Path, line: str) -> None:
    file = tmp_path / "memory.jsonl"
    file.write_text(json.dumps({"type": "relation", **LEADS}) + "\n" + line)
    before = file.read_bytes()

    async def use(client: Client) -> str:
        result = await client.call_tool("create_entities", {"entities": [ANA]})
        assert result.is_error
        return text_of(result)

    assert "line 2" in talk(server(file), use)
    assert file.read_bytes() == before


@pytest.mark.parametrize("arguments", [{}, {"entities": "x"}, {"entities": [{"name": "x"}]}, {"entities": [3]}])
def test_wrong_arguments_change_nothing(tmp_path: Path, arguments: dict[str, Any]) -> None:
    async def use(client: Client) -> bool:
        return bool((await client.call_tool("create_entities", arguments)).is_error)

    assert talk(server(tmp_path / "memory.jsonl"), use)
    assert not (tmp_path / "memory.jsonl").exists()


def create_many(path: str, who: int) -> None:
    file = GraphFile(path)
    for number in range(25):
        entity = {"name": f"{who}-{number}", "entityType": "note", "observations": []}
        reference_tools()["create_entities"].run(file, {"entities": [entity]})


def test_servers_on_one_file_lose_nothing_of_each_other(tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=create_many, args=(str(file), who)) for who in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    assert len(GraphFile(file).read().entities) == 75
