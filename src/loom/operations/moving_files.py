"""Operations that export and import memories as files of a documented format."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from loom.operations.answers import Exported, Imported, PartProblem
from loom.operations.table import About, operation
from loom.progress import report

if TYPE_CHECKING:
    from loom.everyday import Memory

__all__ = ["export", "import_"]

Format = Literal[
    "claude-code",
    "codex",
    "chatgpt",
    "claude-ai",
    "messages",
    "memory-graph",
    "mem0",
    "letta",
    "markdown",
    "loom-jsonl",
]

_GROUP = "upkeep"
_FILES = "it reads and writes files of the user's machine, which a model has no business with"


@operation(
    _GROUP,
    "write a memory as JSON Lines, a documented text format, or as Markdown",
    examples=("loom export memories.jsonl", "loom export diary --to markdown"),
    long=True,
    read_only=True,
    elsewhere={"mcp": _FILES},
)
def export(
    memory: "Memory",
    target: Annotated[
        Path, About("the file to write, replaced when complete; a new folder for markdown", shown_as="TARGET")
    ],
    *,
    to: Annotated[Literal["loom-jsonl", "markdown"], About("the form: lines to import again, or pages to read")] = (
        "loom-jsonl"
    ),
) -> Exported:
    """Writes every version of every record of one namespace, in the order of writing, as docs/importing.md describes.
    As markdown, writes the current versions into a folder with a file for each day. Other processes can write
    meanwhile. Memories that are forgotten later stay in the files. Tiers, vectors and uses are not exported; snapshot
    includes them."""
    from loom.importers import export_jsonl, export_markdown

    write = export_markdown if to == "markdown" else export_jsonl
    done = write(memory, target, progress=_report_records)
    return Exported(str(done.path), done.records, done.derived, done.size_bytes)


@operation(
    _GROUP,
    "import transcripts, exports of other programs, notes, and exports of loom",
    examples=(
        "loom import --from claude-code --project . --dry-run",
        "loom import chatgpt-export.zip --since 2026-01-01",
        "loom import memories.jsonl --store copy.loom",
    ),
    long=True,
    creates=True,
    idempotent=True,
    elsewhere={"mcp": _FILES},
)
def import_(
    memory: "Memory",
    source: Annotated[Path | None, About("a file, a zip archive or a folder", shown_as="SOURCE")] = None,
    *,
    from_: Annotated[
        Format | None, About("only this format; without SOURCE, the history of claude-code or codex here")
    ] = None,
    since: Annotated[datetime | None, About("only what was said at or after this time", shown_as="TIME")] = None,
    project: Annotated[
        str | None, About("only what an agent did in this folder, by its path or name", shown_as="FOLDER")
    ] = None,
    raw: Annotated[bool, About("keep keys and other secrets, which are masked otherwise")] = False,
    dry_run: Annotated[bool, About("count only; write nothing")] = False,
) -> Imported:
    """Recognises the format; docs/importing.md has the list. Importing again brings only what is new, so an
    import that was interrupted can be repeated. Parts that cannot be read are skipped and reported; it ends with 1
    then. Imported instructions hold after `loom confirm`. Exports of loom keep their ids and versions,
    and are not masked."""
    from loom.importers.histories import import_history

    done = import_history(
        memory,
        source,
        format_name=from_,
        since=since,
        project=project,
        raw=raw,
        dry_run=dry_run,
        progress=_report_records,
    )
    return Imported(
        done.formats,
        done.passed_over,
        done.records,
        done.present,
        done.derived,
        done.outside,
        done.masked,
        done.skipped,
        done.complete,
        done.dry_run,
        tuple(PartProblem(one.file, one.position, one.reason) for one in done.problems),
    )


def _report_records(done: int) -> None:
    report(done, None, "records")
