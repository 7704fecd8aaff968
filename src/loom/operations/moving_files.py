"""Operations that export and import memories as files of a documented format."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from loom.operations.answers import Exported, Imported, LineProblem
from loom.operations.table import About, operation
from loom.progress import report

if TYPE_CHECKING:
    from loom.everyday import Memory

__all__ = ["export", "import_"]

_GROUP = "upkeep"
_FILES = "it reads and writes files of the user's machine, which a model has no business with"


@operation(
    _GROUP,
    "write a memory as JSON Lines, a documented text format",
    examples=("loom export memories.jsonl", "loom export team.jsonl --namespace team"),
    long=True,
    read_only=True,
    elsewhere={"mcp": _FILES},
)
def export(
    memory: "Memory",
    target: Annotated[Path, About("the file to write; replaced when the new one is complete", shown_as="TARGET")],
) -> Exported:
    """Writes every version of every record of one namespace, in the order of writing, as docs/importing.md describes.
    Others may go on writing meanwhile. Memories that are forgotten later stay in the file. Tiers, vectors and uses
    are
    not exported; snapshot includes them."""
    from loom.importers.exporting import export_jsonl

    done = export_jsonl(memory, target, progress=_report_records)
    return Exported(str(done.path), done.records, done.derived, done.size_bytes)


@operation(
    _GROUP,
    "bring the records of an export into a memory",
    examples=("loom import memories.jsonl", "loom import memories.jsonl --store copy.loom"),
    long=True,
    creates=True,
    idempotent=True,
    elsewhere={"mcp": _FILES},
)
def import_(
    memory: "Memory", source: Annotated[Path, About("a file that export has written", shown_as="SOURCE")]
) -> Imported:
    """Ids and versions stay the same, and existing versions are not imported twice: an interrupted import can be
    repeated. Facts, summaries and instructions are derived again. Invalid lines are skipped and reported. Ends with 1
    if
    lines were skipped or the file was truncated."""
    from loom.importers.importing import import_jsonl

    done = import_jsonl(memory, source, progress=_report_records)
    problems = tuple(LineProblem(one.line, one.reason) for one in done.problems)
    return Imported(done.records, done.present, done.derived, done.skipped, done.complete, problems)


def _report_records(done: int) -> None:
    report(done, None, "records")
