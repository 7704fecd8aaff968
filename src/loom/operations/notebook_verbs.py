"""Operations on a notebook: its files, the versions and variants of its knowledge, packages, attached folders."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from loom.discovery import STORE_NAME
from loom.errors import InvalidInput
from loom.operations.answers import (
    Difference,
    Disagreement,
    Listing,
    MemoryItem,
    NotebookFile,
    NotebookFiles,
    PackageFolder,
    PackageMerged,
    Synced,
    TrialItem,
    Trials,
    VariantUsed,
)
from loom.operations.table import About, operation

if TYPE_CHECKING:
    from loom.everyday import Memory
    from loom.notebook.book import Notebook
    from loom.notebook.pages import Page

__all__ = [
    "notebook_compare",
    "notebook_diff",
    "notebook_export",
    "notebook_files",
    "notebook_forget",
    "notebook_import",
    "notebook_keep",
    "notebook_restore",
    "notebook_rollback",
    "notebook_sync",
    "notebook_use",
    "open_notebook",
]

_GROUP = "notebook"
_FILES = "it is about files of the user's machine; a model edits its notes with its own tools"

Folder = Annotated[Path, About("the folder of the notebook", shown_as="FOLDER")]
Agent = Annotated[
    str | None,
    About("the agent whose notes these are (default: the only agent there, else the node)", shown_as="NAME"),
]
PagePath = Annotated[
    str, About("the path of the page in the folder; 'knowledge' is the knowledge in use", shown_as="PAGE")
]


def open_notebook(memory: "Memory", folder: Path, agent: str | None) -> "Notebook":
    """Open the notebook of a folder on a memory."""
    from loom.notebook.book import Notebook

    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder; name the folder of the notebook with --folder")
    notes = folder / ".notes"
    # The index of the store lies beside the folders of the agents.
    names = sorted(one.name for one in notes.glob("*/") if not one.name.startswith(STORE_NAME))
    if agent is None and len(names) > 1 and memory.node_id not in names:
        raise InvalidInput(f"{folder} has notes of {', '.join(names)}; choose one with --agent")
    chosen = names[0] if agent is None and len(names) == 1 else memory.node_id
    found = Notebook(folder, agent=agent or chosen, memory=memory)
    if found.minimal_mode:
        raise InvalidInput(f"the profile of {memory.store.location} is minimal: such a notebook has no pages")
    return found


def _page(notebook: "Notebook", path: str) -> "Page":
    pages = {page.path: page for page in (*notebook.knowledge_pages(), notebook.world_page)}
    if path == "knowledge":
        return notebook.knowledge_page
    found = pages.get(Path(path).as_posix())
    if found is None:
        raise InvalidInput(f"{path!r} is not a page of this notebook; its pages are {', '.join(pages)}")
    return found


@operation(
    _GROUP,
    "synchronise the files of a notebook with its memory",
    examples=(
        "loom notebook-sync",
        "loom notebook-sync --folder project --sessions",
        "loom notebook-sync --attach ~/vault --write",
    ),
    creates=True,
    idempotent=True,
    long=True,
    elsewhere={"mcp": _FILES},
)
def notebook_sync(
    memory: "Memory",
    *,
    folder: Folder = Path("."),
    agent: Agent = None,
    sessions: Annotated[bool, About("also compare the files of all sessions")] = False,
    attach: Annotated[
        list[Path] | None,
        About("also read this folder of Claude Code's memory, Obsidian, or AGENTS.md", shown_as="FOLDER"),
    ] = None,
    write: Annotated[bool, About("write what the memory changed to the attached folders")] = False,
) -> Synced:
    """Shows the files that were read and written, conflicts, missing files, and removed sections. Ends with 1 if a
    file needs a decision or could not be read: resolve a conflict in its file; for a missing file, run
    notebook-restore or notebook-forget."""
    notebook = open_notebook(memory, folder, agent)
    for other in attach or ():
        notebook.attach(other, writable=write)
    return Synced.of(notebook.sync(sessions=sessions))


@operation(
    _GROUP,
    "the pages of a notebook, with their versions",
    examples=("loom notebook-files", "loom notebook-files --agent writer --json"),
    read_only=True,
    idempotent=True,
    elsewhere={"mcp": _FILES},
)
def notebook_files(memory: "Memory", *, folder: Folder = Path("."), agent: Agent = None) -> NotebookFiles:
    """Lists the pages as the memory has them; run notebook-sync to read later edits."""
    notebook = open_notebook(memory, folder, agent)
    items = []
    for page in (*notebook.knowledge_pages(), notebook.world_page):
        versions = notebook.pages.history(page)
        if versions:
            last = versions[-1]
            items.append(NotebookFile(page.path, last.version, str(last.trust), last.tokens, last.created_at))
    return NotebookFiles(notebook.agent, notebook.variants.in_use, tuple(items))


@operation(
    _GROUP,
    "what changed in a page between two versions",
    examples=("loom notebook-diff knowledge 1", "loom notebook-diff world_state.md 3 5"),
    read_only=True,
    idempotent=True,
    elsewhere={"mcp": _FILES},
)
def notebook_diff(
    memory: "Memory",
    page: PagePath,
    older: Annotated[int, About("the earlier version", least=1, shown_as="OLDER")],
    newer: Annotated[int | None, About("the later version (default: the newest)", least=1, shown_as="NEWER")] = None,
    *,
    folder: Folder = Path("."),
    agent: Agent = None,
) -> Difference:
    """Shows a unified diff. The id of a page is page:PATH; history shows whole versions."""
    notebook = open_notebook(memory, folder, agent)
    return Difference(notebook.pages.diff(_page(notebook, page), older, newer))


@operation(
    _GROUP,
    "make an earlier version of a page the newest one again",
    examples=("loom notebook-rollback knowledge 3",),
    elsewhere={"mcp": _FILES},
)
def notebook_rollback(
    memory: "Memory",
    page: PagePath,
    version: Annotated[int, About("the version to go back to", least=1, shown_as="VERSION")],
    *,
    folder: Folder = Path("."),
    agent: Agent = None,
) -> MemoryItem:
    """Applies to the file and the memory. Later versions stay in the history."""
    notebook = open_notebook(memory, folder, agent)
    return MemoryItem.of(notebook.pages.rollback(_page(notebook, page), version))


@operation(
    _GROUP,
    "restore a page whose file was deleted or emptied",
    examples=("loom notebook-restore knowledge",),
    idempotent=True,
    elsewhere={"mcp": _FILES},
)
def notebook_restore(
    memory: "Memory", page: PagePath, *, folder: Folder = Path("."), agent: Agent = None
) -> MemoryItem:
    """Writes the file again. The deletion counts as a mistake."""
    notebook = open_notebook(memory, folder, agent)
    chosen = _page(notebook, page)
    notebook.pages.restore(chosen)
    return MemoryItem.of(notebook.pages.history(chosen)[-1])


@operation(
    _GROUP,
    "forget a page for good, or its earlier versions, with its file",
    examples=("loom notebook-forget knowledge --earlier", "loom notebook-forget .notes/writer/knowledge/old.md"),
    destructive=True,
    elsewhere={"mcp": _FILES},
)
def notebook_forget(
    memory: "Memory",
    page: PagePath,
    *,
    earlier: Annotated[bool, About("only the earlier versions: text that was removed from the page")] = False,
    folder: Folder = Path("."),
    agent: Agent = None,
) -> Listing:
    """Confirms that a missing file or section was deleted on purpose. Copies in a version control system are not
    removed. Shows the rest of the page."""
    notebook = open_notebook(memory, folder, agent)
    chosen = _page(notebook, page)
    (notebook.pages.forget_earlier if earlier else notebook.pages.forget)(chosen)
    return Listing(tuple(map(MemoryItem.of, notebook.pages.history(chosen))), None)


@operation(
    _GROUP,
    "how the tasks of each variant of the knowledge ended",
    examples=("loom notebook-compare", "loom notebook-compare --versions"),
    read_only=True,
    idempotent=True,
    elsewhere={"mcp": _FILES},
)
def notebook_compare(
    memory: "Memory",
    *,
    versions: Annotated[bool, About("list each version separately")] = False,
    folder: Folder = Path("."),
    agent: Agent = None,
) -> Trials:
    """Every finished session records the variant in use. A session without a verdict is neither a success nor a
    failure."""
    trials = open_notebook(memory, folder, agent).variants.compare(versions=versions)
    return Trials(tuple(map(TrialItem.of, trials)))


@operation(
    _GROUP,
    "keep the knowledge in use as a variant",
    examples=("loom notebook-keep short",),
    elsewhere={"mcp": _FILES},
)
def notebook_keep(
    memory: "Memory",
    name: Annotated[str, About("the name of the variant", shown_as="NAME")],
    *,
    folder: Folder = Path("."),
    agent: Agent = None,
) -> MemoryItem:
    """Writes `variants/NAME.md` beside the knowledge. An existing variant of that name gets a new version."""
    return MemoryItem.of(open_notebook(memory, folder, agent).variants.keep(name))


@operation(
    _GROUP,
    "use another variant of the knowledge from now on",
    examples=("loom notebook-use short", "loom notebook-use main"),
    idempotent=True,
    elsewhere={"mcp": _FILES},
)
def notebook_use(
    memory: "Memory",
    name: Annotated[str, About("the name of the variant; main is the knowledge itself", shown_as="NAME")],
    *,
    folder: Folder = Path("."),
    agent: Agent = None,
) -> VariantUsed:
    """Applies to prompts, to new knowledge, and to the records of sessions."""
    notebook = open_notebook(memory, folder, agent)
    before = notebook.variants.in_use
    notebook.variants.use(name)
    return VariantUsed(name, before)


@operation(
    _GROUP,
    "write an agent's knowledge as a package for other agents",
    examples=("loom notebook-export house-style --agent writer",),
    idempotent=True,
    elsewhere={"mcp": _FILES},
)
def notebook_export(
    memory: "Memory",
    target: Annotated[Path, About("the folder of the package", shown_as="TARGET")],
    *,
    name: Annotated[str | None, About("the name of the package (default: the agent's)", shown_as="NAME")] = None,
    folder: Folder = Path("."),
    agent: Agent = None,
) -> PackageFolder:
    """Contains the knowledge in use and the other files under `knowledge`, with a description. Replaces an earlier
    package in the folder."""
    made = open_notebook(memory, folder, agent).export_knowledge(target, name)
    return PackageFolder(made.name, made.agent, str(made.folder), made.files)


@operation(
    _GROUP,
    "import a package of knowledge",
    examples=("loom notebook-import house-style", "loom notebook-import house-style --merge"),
    creates=True,
    idempotent=True,
    elsewhere={"mcp": _FILES},
)
def notebook_import(
    memory: "Memory",
    source: Annotated[Path, About("the folder of the package", shown_as="SOURCE")],
    *,
    merge: Annotated[bool, About("merge it into the agent's own knowledge")] = False,
    folder: Folder = Path("."),
    agent: Agent = None,
) -> PackageMerged:
    """Without --merge, the package stays separate, under `packages`. A later version is merged with local changes.
    Its text is unverified unless the folder of the package is trusted. Ends with 1 if there are conflicts, which are
    marked in the file."""
    done = open_notebook(memory, folder, agent).import_knowledge(source, merge=merge)
    disagreements = tuple(Disagreement(*pair) for pair in done.disagreements)
    return PackageMerged(done.package.name, done.merged, done.conflicts, disagreements)
