"""The nine tools of the reference memory server (`@modelcontextprotocol/server-memory`) over its JSONL file.

Names, schemas, answers and the file format are the same, so a client can switch in both directions by changing one
line. There are three differences: a lock protects the changes of several servers on one file, a damaged line is an
error that names it, and a file that cannot be read is never overwritten.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import mcp_types as types
from mcp.server.lowlevel import Server

from loom.errors import CorruptStore, InvalidInput, LoomError, NotFound, StoreUnavailable
from loom.mcp.memory_server import server_of

__all__ = ["GRAPH", "GraphFile", "ReferenceTool", "make_reference_server", "reference_tools"]

Json = dict[str, Any]
GRAPH: Final = "memory://knowledge-graph"

_TEXT: Json = {"type": "string"}


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _several(item: Json, description: str = "") -> Json:
    return {"type": "array", "items": item} | ({"description": description} if description else {})


def _record(**fields: Json) -> Json:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


_ENTITY: Final = _record(
    name=_text("The name of the entity"),
    entityType=_text("The type of the entity"),
    observations=_several(_TEXT, "An array of observation contents associated with the entity"),
)
_RELATION: Final = _record(
    **{
        "from": _text("The name of the entity where the relation starts"),
        "to": _text("The name of the entity where the relation ends"),
        "relationType": _text("The type of the relation"),
    }
)
_ADDED: Final = _record(
    entityName=_text("The name of the entity to add the observations to"),
    contents=_several(_TEXT, "An array of observation contents to add"),
)
_DELETED: Final = _record(
    entityName=_text("The name of the entity containing the observations"),
    observations=_several(_TEXT, "An array of observations to delete"),
)
_RESULT: Final = _record(entityName=_TEXT, addedObservations=_several(_TEXT))
_DONE: Final = _record(success={"type": "boolean"}, message=_TEXT)


_GRAPH_SCHEMA: Final = _record(entities=_several(_ENTITY), relations=_several(_RELATION))


class Graph(NamedTuple):
    """Entities and relations, in order of creation."""

    entities: list[Json]
    relations: list[Json]


class GraphFile:
    """The file, with one entity or relation per line. A change reads and atomically replaces it, under a lock."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> Graph:
        """Read the graph; it is empty if there is no file."""
        try:
            content = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Graph([], [])
        except (OSError, UnicodeDecodeError) as error:
            raise StoreUnavailable(f"{self.path} cannot be read: {error}") from None
        graph = Graph([], [])
        for number, line in enumerate(content.split("\n"), 1):
            if line.strip():
                self._add(graph, line, number)
        return graph

    def _add(self, graph: Graph, line: str, number: int) -> None:
        try:
            item = json.loads(line)
            kind = item["type"]
            schema, held = {"entity": (_ENTITY, graph.entities), "relation": (_RELATION, graph.relations)}[kind]
            held.append({name: item[name] for name in schema["properties"]})
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CorruptStore(
                f"line {number} of {self.path} is neither an entity nor a relation; correct or remove it. "
                "Nothing was changed."
            ) from None

    @contextmanager
    def changing(self) -> Iterator[Graph]:
        """Yield the graph for changes. The changed graph replaces the file when the block ends without an error."""
        with self._locked():
            graph = self.read()
            yield graph
            self._write(graph)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(
                self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise StoreUnavailable(f"{self.path} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, graph: Graph) -> None:
        lines = [_line({"type": "entity", **one}) for one in graph.entities]
        lines += [_line({"type": "relation", **one}) for one in graph.relations]
        # Imported late: the server answers before it loads what a change needs.
        from loom.storage.files import disk_errors
        from loom.storage.temporary import replacing

        with disk_errors(f"{self.path} cannot be written"), replacing(self.path) as file:
            file.write("\n".join(lines).encode())


def _line(item: Json) -> str:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"))


# --- the tools -----------------------------------------------------------------------------------------------


class ReferenceTool(NamedTuple):
    """A tool of the reference server. `run` returns its answer and the name of the answer in structured content."""

    title: str
    description: str
    parameters: Json
    output: Json
    run: Callable[[GraphFile, Json], tuple[Any, Json]]
    changes: bool = True
    destroys: bool = False


def _create_entities(file: GraphFile, given: Json) -> tuple[Any, Json]:
    with file.changing() as graph:
        known = {one["name"] for one in graph.entities}
        made = [one for one in given["entities"] if one["name"] not in known]
        graph.entities.extend(made)
    return made, {"entities": made}


def _create_relations(file: GraphFile, given: Json) -> tuple[Any, Json]:
    with file.changing() as graph:
        made = [one for one in given["relations"] if one not in graph.relations]
        graph.relations.extend(made)
    return made, {"relations": made}


def _add_observations(file: GraphFile, given: Json) -> tuple[Any, Json]:
    results: list[Json] = []
    with file.changing() as graph:
        for asked in given["observations"]:
            name = asked["entityName"]
            entity = next((one for one in graph.entities if one["name"] == name), None)
            if entity is None:
                raise NotFound(f"Entity with name {name} not found")
            added = [one for one in asked["contents"] if one not in entity["observations"]]
            entity["observations"].extend(added)
            results.append({"entityName": name, "addedObservations": added})
    return results, {"results": results}


def _done(message: str) -> tuple[Any, Json]:
    return message, {"success": True, "message": message}


def _delete_entities(file: GraphFile, given: Json) -> tuple[Any, Json]:
    names = set(given["entityNames"])
    with file.changing() as graph:
        graph.entities[:] = [one for one in graph.entities if one["name"] not in names]
        graph.relations[:] = [one for one in graph.relations if names.isdisjoint((one["from"], one["to"]))]
    return _done("Entities deleted successfully")


def _delete_observations(file: GraphFile, given: Json) -> tuple[Any, Json]:
    with file.changing() as graph:
        for asked in given["deletions"]:
            entity = next((one for one in graph.entities if one["name"] == asked["entityName"]), None)
            if entity is not None:
                entity["observations"] = [one for one in entity["observations"] if one not in asked["observations"]]
    return _done("Observations deleted successfully")


def _delete_relations(file: GraphFile, given: Json) -> tuple[Any, Json]:
    with file.changing() as graph:
        graph.relations[:] = [one for one in graph.relations if one not in given["relations"]]
    return _done("Relations deleted successfully")


def _read_graph(file: GraphFile, _: Json) -> tuple[Any, Json]:
    graph = file.read()._asdict()
    return graph, graph


def _around(graph: Graph, entities: list[Json]) -> tuple[Any, Json]:
    """Return these entities, and the relations of any of them."""
    names = {one["name"] for one in entities}
    relations = [one for one in graph.relations if one["from"] in names or one["to"] in names]
    found = {"entities": entities, "relations": relations}
    return found, found


def _search_nodes(file: GraphFile, given: Json) -> tuple[Any, Json]:
    graph, query = file.read(), given["query"].lower()

    def matches(entity: Json) -> bool:
        return any(query in one.lower() for one in (entity["name"], entity["entityType"], *entity["observations"]))

    return _around(graph, [one for one in graph.entities if matches(one)])


def _open_nodes(file: GraphFile, given: Json) -> tuple[Any, Json]:
    graph = file.read()
    return _around(graph, [one for one in graph.entities if one["name"] in given["names"]])


def reference_tools() -> dict[str, ReferenceTool]:
    """Return the nine tools by name."""
    return {
        "create_entities": ReferenceTool(
            "Create Entities",
            "Create multiple new entities in the knowledge graph",
            _record(entities=_several(_ENTITY)),
            _record(entities=_several(_ENTITY)),
            _create_entities,
        ),
        "create_relations": ReferenceTool(
            "Create Relations",
            "Create multiple new relations between entities in the knowledge graph. "
            "Relations should be in active voice",
            _record(relations=_several(_RELATION)),
            _record(relations=_several(_RELATION)),
            _create_relations,
        ),
        "add_observations": ReferenceTool(
            "Add Observations",
            "Add new observations to existing entities in the knowledge graph",
            _record(observations=_several(_ADDED)),
            _record(results=_several(_RESULT)),
            _add_observations,
        ),
        "delete_entities": ReferenceTool(
            "Delete Entities",
            "Delete multiple entities and their associated relations from the knowledge graph",
            _record(entityNames=_several(_TEXT, "An array of entity names to delete")),
            _DONE,
            _delete_entities,
            destroys=True,
        ),
        "delete_observations": ReferenceTool(
            "Delete Observations",
            "Delete specific observations from entities in the knowledge graph",
            _record(deletions=_several(_DELETED)),
            _DONE,
            _delete_observations,
            destroys=True,
        ),
        "delete_relations": ReferenceTool(
            "Delete Relations",
            "Delete multiple relations from the knowledge graph",
            _record(relations=_several(_RELATION, "An array of relations to delete")),
            _DONE,
            _delete_relations,
            destroys=True,
        ),
        "read_graph": ReferenceTool(
            "Read Graph", "Read the entire knowledge graph", _record(), _GRAPH_SCHEMA, _read_graph, changes=False
        ),
        "search_nodes": ReferenceTool(
            "Search Nodes",
            "Search for nodes in the knowledge graph based on a query",
            _record(query=_text("The search query to match against entity names, types, and observation content")),
            _GRAPH_SCHEMA,
            _search_nodes,
            changes=False,
        ),
        "open_nodes": ReferenceTool(
            "Open Nodes",
            "Open specific nodes in the knowledge graph by their names",
            _record(names=_several(_TEXT, "An array of entity names to retrieve")),
            _GRAPH_SCHEMA,
            _open_nodes,
            changes=False,
        ),
    }


def _checked(value: Any, schema: Mapping[str, Any], place: str) -> Any:
    """Check a value against a schema and drop unknown properties, like the reference server."""
    kind = schema["type"]
    if kind == "string" and isinstance(value, str):
        with suppress(UnicodeEncodeError):
            value.encode()
            return value
    elif kind == "array" and isinstance(value, list):
        return [_checked(one, schema["items"], f"{place}[{index}]") for index, one in enumerate(value)]
    elif kind == "object" and isinstance(value, Mapping):
        missing = [name for name in schema["required"] if name not in value]
        if missing:
            raise InvalidInput(f"{place} needs {', '.join(missing)}")
        return {name: _checked(value[name], one, f"{place}.{name}") for name, one in schema["properties"].items()}
    raise InvalidInput(f"{place} must be of type {kind}")


def _called(tool: ReferenceTool, file: GraphFile, arguments: Mapping[str, Any]) -> types.CallToolResult:
    try:
        answer, structured = tool.run(file, _checked(arguments, tool.parameters, "arguments"))
    except LoomError as error:
        return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
    text = answer if isinstance(answer, str) else json.dumps(answer, indent=2, ensure_ascii=False)
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=structured)


def make_reference_server(file: GraphFile) -> Server[Any]:
    """Make a server with the nine tools and the resource of the reference memory server."""
    tools = reference_tools()
    graph = types.Resource(
        uri=GRAPH,
        name="knowledge-graph",
        title="Knowledge Graph",
        description="The full knowledge graph with all entities and relations",
        mime_type="application/json",
    )
    return server_of(
        "memory-server",
        tools,
        lambda name: _listed(name, tools[name]),
        lambda name, arguments: _called(tools[name], file, arguments),
        graph,
        lambda: json.dumps(file.read()._asdict(), indent=2, ensure_ascii=False),
    )


def _listed(name: str, tool: ReferenceTool) -> types.Tool:
    return types.Tool(
        name=name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.parameters,
        output_schema=tool.output,
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.changes,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.destroys or not tool.changes,
            open_world_hint=False,
        ),
    )
