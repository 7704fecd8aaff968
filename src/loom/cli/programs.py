"""Commands that are programs rather than operations on a memory, such as doctor, mcp, chat and demo.

`COMMANDS` has all commands: the operations of the table, then these programs.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import loom
from loom.errors import InvalidInput
from loom.operations.answers import Answer, Diagnosis, KeptOfProject, Synced
from loom.operations.catalogue import OPERATIONS
from loom.operations.notebook_verbs import Folder, open_notebook
from loom.operations.table import About, Operation, entry_of, operation

__all__ = ["COMMANDS", "PROGRAMS", "Ended", "Place"]

_GROUP = "programs"
_SHELL = {"mcp": "it is a program of the shell"}


class Place(NamedTuple):
    """The place of a command: the path of the store, how it was found, and the namespace and node."""

    path: Path
    why: str
    namespace: str | None
    node: str | None


@dataclass(frozen=True, slots=True)
class Ended(Answer):
    """The end of a program, which has printed its own output."""

    code: int = 0

    @property
    def ok(self) -> bool:
        return self.code == 0


def _needs_extra(module: str, extra: str, what: str) -> None:
    if find_spec(module) is None:
        raise InvalidInput(f'{what} needs the package {module}: pip install "loomkeep[{extra}]"')


@operation(
    _GROUP,
    "which store is used and why, and whether everything that it needs works",
    examples=("loom doctor", "loom doctor --json"),
    read_only=True,
    elsewhere=_SHELL,
)
def doctor(place: Place) -> Diagnosis:
    """Checks the store, settings, tokenizer, embedder, kernels, permissions, disk and extras, and says how to fix
    each problem. Ends with 1 if there is a problem."""
    from loom.operations.surroundings import diagnose

    return diagnose(place.path, place.why)


@operation(
    _GROUP,
    "serve this memory to Claude Code, Codex, Cursor and other MCP clients",
    examples=("loom mcp", "loom mcp --store ~/team.loom --namespace ana", "loom mcp --reference memory.jsonl"),
    elsewhere=_SHELL,
)
def mcp(
    place: Place,
    *,
    read_only: Annotated[bool, About("only the tools that change nothing")] = False,
    project: Annotated[bool, About("the memory that the plugins keep of this project")] = False,
    reference: Annotated[
        Path | None, About("the nine tools and the file of the reference memory server instead", shown_as="FILE")
    ] = None,
) -> Ended:
    """Speaks MCP over standard input and output; a client starts it. Needs the extra mcp. docs/mcp.md has the
    settings of the clients."""
    _needs_extra("mcp", "mcp", "the MCP server")
    import logging

    from loom.mcp.memory_server import MemoryHolder, make_server, serve

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="loom: %(message)s")
    if reference is not None:
        from loom.mcp.reference import GraphFile, make_reference_server

        serve(make_reference_server(GraphFile(reference)))
        return Ended()
    path = place.path
    if project and not place.why.startswith("named"):
        from loom.hooks.projects import memory_of_project

        path = memory_of_project(Path(os.environ.get("CLAUDE_PROJECT_DIR") or "."), os.environ)

    def opened() -> "loom.Memory":
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return loom.open(path, namespace=place.namespace, node_id=place.node, read_only=read_only or None)

    holder = MemoryHolder(opened, path.exists)
    serve(make_server(holder, read_only=read_only), holder.close)
    return Ended()


@operation(
    _GROUP,
    "answer a hook of a coding agent; its plugin calls this",
    examples=("loom hook claude-code < event.json",),
    elsewhere=_SHELL,
)
def hook(
    agent: Annotated[Literal["claude-code", "codex"], About("the agent", shown_as="claude-code|codex")],
) -> Ended:
    """Reads an event from standard input, stores the new messages of its transcript, and prints the memories that
    belong to the prompt. Ends with 0 even after an error; docs/plugins.md says where the log is."""
    from loom.cli.hook_program import run_hook

    return Ended(run_hook(agent))


@operation(
    _GROUP,
    "what the plugins of coding agents kept of this project, and how to forget it",
    examples=("loom kept", "loom kept --forget-session 5e7dc3f1 --yes", "loom kept --forget-all --yes"),
    elsewhere=_SHELL,
)
def kept(
    *,
    folder: Annotated[Path, About("the folder of the project", shown_as="FOLDER")] = Path("."),
    forget_session: Annotated[str | None, About("forget this session", shown_as="ID")] = None,
    forget_all: Annotated[bool, About("forget everything that was kept of the project")] = False,
    yes: Annotated[bool, About("do not ask")] = False,
) -> KeptOfProject:
    """Shows the file, the newest sessions, and the last hooks with their time, tokens and errors. The next hook does
    not store forgotten messages again."""
    from loom.cli.hook_program import kept_of_project

    return kept_of_project(folder, forget_session, forget_all, yes)


@operation(
    _GROUP,
    "talk to a model with this memory, and see what was recalled and what it cost",
    examples=("loom chat", "loom chat --model https://host/v1#model --session-id evening"),
    elsewhere=_SHELL,
)
def chat(
    place: Place,
    *,
    model: Annotated[
        str | None,
        About("https://host/v1#model (default: by OPENAI_API_KEY or ANTHROPIC_API_KEY)", shown_as="ADDRESS"),
    ] = None,
    session_id: Annotated[str | None, About("the session to continue (default: a new one)", shown_as="ID")] = None,
    budget: Annotated[int, About("the most tokens of a prompt", least=256, most=10_000_000, shown_as="N")] = 4000,
) -> Ended:
    """Each line is a turn; an empty line or the end of input ends the conversation. Turns are remembered. Without an
    API key or an address, a scripted demonstration answers, and says so."""
    from loom.cli.chat import run

    return Ended(run(place, model, session_id, budget))


@operation(
    _GROUP,
    "watch a notebook: read edits, and write what the memory learns",
    examples=("loom notebook-watch", "loom notebook-watch --folder project --attach ~/vault"),
    elsewhere=_SHELL,
)
def notebook_watch(
    place: Place,
    *,
    folder: Folder = Path("."),
    agent: Annotated[
        str | None, About("the agent whose notes these are (default: the only agent there)", shown_as="NAME")
    ] = None,
    attach: Annotated[
        list[Path] | None, About("also watch this folder of another program", shown_as="FOLDER")
    ] = None,
    write: Annotated[bool, About("write what the memory changed to the attached folders")] = False,
) -> Ended:
    """Prints a line for each file until it is interrupted. Needs the extra watch."""
    _needs_extra("watchfiles", "watch", "watching")
    from loom.cli.printing import print_answer

    place.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with loom.open(place.path, namespace=place.namespace, node_id=place.node) as memory:
        notebook = open_notebook(memory, folder, agent)
        for other in attach or ():
            notebook.attach(other, writable=write)
        for done in notebook.watch():
            print_answer(Synced.of(done), sys.stdout)
            sys.stdout.flush()
    return Ended()


@operation(
    _GROUP,
    "load a small conversation, ask it questions, show what was recalled and why",
    examples=("loom demo",),
    read_only=True,
    elsewhere=_SHELL,
)
def demo() -> Ended:
    """Runs in a temporary folder and leaves nothing behind. Needs rich, which the extra cli installs."""
    _needs_extra("rich", "cli", "the demonstration")
    from rich.console import Console

    from loom.cli.demo import run

    # rich writes escape sequences for its colours. The demonstration escapes any that occur in the texts it shows.
    run(Console(highlight=False, file=getattr(sys.stdout, "unguarded", sys.stdout)))
    return Ended()


@operation(
    _GROUP,
    "print the script that completes commands in a shell",
    examples=(
        'eval "$(loom completion bash)"',
        "loom completion zsh > ~/.zfunc/_loom",
        "loom completion fish > ~/.config/fish/completions/loom.fish",
    ),
    read_only=True,
    elsewhere=_SHELL,
)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], About("the shell", shown_as="bash|zsh|fish")],
) -> Ended:
    """Completes commands, options and their choices."""
    from loom.cli.completion import script

    getattr(sys.stdout, "unguarded", sys.stdout).write(script(shell, COMMANDS))
    return Ended()


PROGRAMS: Final[Mapping[str, Operation]] = {
    one.name: one
    for one in (entry_of(function) for function in (doctor, mcp, hook, kept, chat, notebook_watch, demo, completion))
}
COMMANDS: Final[Mapping[str, Operation]] = {**OPERATIONS, **PROGRAMS}
