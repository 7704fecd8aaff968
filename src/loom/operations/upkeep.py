"""Operations of an operator: counts, checks, archives, snapshots, backups, exports and imports."""

from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import loom
from loom.errors import InvalidInput, NotAStore, NotFound, StoreUnavailable
from loom.operations.answers import (
    Archived,
    BackedUp,
    Checked,
    Exported,
    Imported,
    Migrated,
    NamespaceArchive,
    NamespaceCheck,
    NamespaceMove,
    Namespaces,
    PartProblem,
    RestoredFile,
    SnapshotFile,
    Stats,
    Tenant,
    Tenants,
    Vacuumed,
)
from loom.operations.knowledge_verbs import tier_items
from loom.operations.table import About, operation
from loom.progress import report

if TYPE_CHECKING:
    from loom.everyday import Memory
    from loom.storage.contract import Store

__all__ = [
    "archive",
    "backup",
    "check",
    "export",
    "import_",
    "migrate",
    "namespaces",
    "restore",
    "snapshot",
    "stats",
    "tenants",
    "vacuum",
]

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
_OPERATOR = "it concerns the whole file, beyond the namespace that a model may use"
_FILES = "it reads and writes files of the user's machine, which a model must not change"

_COUNTS = ("records", "derived", "superseded", "tokens", "vectors", "indexed", "segments", "entries", "file_bytes")
_COUNTS_OF_SERVERS = ("awaiting_vacuum",)


@operation(
    _GROUP,
    "counts, sizes and tiers of a memory",
    guidance="How much is remembered, how full each tier is, and how much background work is queued.",
    examples=("loom stats", "loom stats --namespace team --json"),
    read_only=True,
    idempotent=True,
)
def stats(memory: "Memory") -> Stats:
    """Counts one namespace and the tiers of one node; file_bytes is the size of the whole file."""
    counts = memory.get_stats()
    return Stats(
        str(memory.store.location),
        memory.store.namespace,
        memory.node_id,
        memory.settings.profile,
        None if memory.store.space is None else memory.store.space[0],
        tier_items(memory),
        {name: counts[name] for name in (*_COUNTS, *_COUNTS_OF_SERVERS) if name in counts},
        counts["backlog"],
        tuple(counts["set_aside"]),
    )


@operation(
    _GROUP,
    "the namespaces of the store",
    examples=("loom namespaces",),
    read_only=True,
    idempotent=True,
    elsewhere={"mcp": _OPERATOR},
)
def namespaces(file: Path) -> Namespaces:
    """No operation crosses from one namespace to another."""
    return Namespaces(tuple(_namespaces(file)))


@operation(
    _GROUP,
    "the roles of a PostgreSQL server that may use only some namespaces",
    examples=(
        "loom tenants --store postgresql://loom@host/memory",
        "loom tenants acme --add team --store postgresql://loom@host/memory",
        "loom tenants acme --remove team --store postgresql://loom@host/memory",
    ),
    idempotent=True,
    elsewhere={"mcp": _OPERATOR},
)
def tenants(
    file: Path,
    role: Annotated[str | None, About("with --add or --remove: the role", shown_as="ROLE")] = None,
    *,
    add: Annotated[str | None, About("let the role use this namespace too", shown_as="NAMESPACE")] = None,
    remove: Annotated[str | None, About("let the role no longer use this namespace", shown_as="NAMESPACE")] = None,
) -> Tenants:
    """Row-level security hides the rows of other namespaces from such a role, even in SQL that it runs itself. --add
    creates the namespace and the role if they are missing; a new role has no password. Shows the roles and their
    namespaces."""
    from loom.storage import add_tenant, remove_tenant
    from loom.storage import tenants as listed

    if (role is None) != (add is None and remove is None):
        raise InvalidInput("a role needs --add or --remove, and these options need a role")
    if role is not None and add is not None:
        add_tenant(file, role, add)
    if role is not None and remove is not None:
        remove_tenant(file, role, remove)
    return Tenants(tuple(Tenant(*one) for one in listed(file)))


@operation(
    _GROUP,
    "verify the store, and rebuild what can be rebuilt",
    examples=("loom check", "loom check --no-repair --json"),
    long=True,
    idempotent=True,
    elsewhere={"mcp": _OPERATOR},
)
def check(
    file: Path, *, no_repair: Annotated[bool, About("only verify: open the file read-only")] = False
) -> Checked:
    """Verifies the file, the checksum of every record and the indexes of every namespace. Missing or damaged indexes
    are rebuilt from the records. Ends with 1 if problems remain."""
    found: list[NamespaceCheck] = []
    for name in _namespaces(file):
        with closing(_opened(file, name, read_only=no_repair)) as store:
            report = store.check(repair=not no_repair)
        told = (report.problems, report.repaired, report.set_aside)
        found.append(NamespaceCheck(name, report.records, report.ok, *map(tuple, told)))
    return Checked(str(file), tuple(found))


@operation(
    _GROUP,
    "compress the text of older records and free the space",
    examples=("loom archive --older-than 30",),
    long=True,
    idempotent=True,
    elsewhere={"mcp": _OPERATOR},
)
def archive(
    file: Path,
    *,
    older_than: Annotated[float, About("only memories older than this", least=0, shown_as="DAYS")] = 0.0,
) -> Archived:
    """Reads are unaffected. Without --older-than, everything is compressed."""
    done: list[NamespaceArchive] = []
    freed = 0
    for name in _namespaces(file):
        with closing(_opened(file, name, read_only=False)) as store:
            made = store.archive(store.clock() - timedelta(days=older_than))
            freed += max(store.vacuum(), 0)
        done.append(NamespaceArchive(name, made.records, made.blocks, made.raw_bytes, made.stored_bytes))
    return Archived(tuple(done), freed)


@operation(
    _GROUP,
    "give free space back to the disk and tidy the index",
    examples=("loom vacuum",),
    long=True,
    idempotent=True,
    elsewhere={"mcp": _OPERATOR},
)
def vacuum(file: Path) -> Vacuumed:
    """Other processes can read meanwhile; writers wait."""
    freed = 0
    for name in _namespaces(file):
        with closing(_opened(file, name, read_only=False)) as store:
            freed += store.vacuum()
    return Vacuumed(max(freed, 0))


@operation(
    _GROUP,
    "write a consistent copy of the store, which may be in use",
    examples=("loom backup monday.loom",),
    long=True,
    read_only=True,
    elsewhere={"mcp": _OPERATOR},
)
def backup(file: Path, target: Annotated[Path, About("the copy to write", shown_as="TARGET")]) -> BackedUp:
    """The copy is a complete store. Memories that are forgotten later stay in it."""
    with closing(_opened(file, _namespaces(file)[0], read_only=True)) as store:
        store.backup(target)
    return BackedUp(str(target), target.stat().st_size)


@operation(
    _GROUP,
    "write everything that the store holds to a compressed, checksummed file",
    examples=("loom snapshot monday.hctx", "loom snapshot tuesday.hctx --since monday.hctx"),
    long=True,
    read_only=True,
    elsewhere={"mcp": _OPERATOR},
)
def snapshot(
    file: Path,
    target: Annotated[Path, About("the snapshot to write; replaced when the new one is complete", shown_as="TARGET")],
    *,
    since: Annotated[Path | None, About("the snapshot that this one continues", shown_as="SNAPSHOT")] = None,
    only: Annotated[list[str] | None, About("only this namespace; may be repeated", shown_as="NAMESPACE")] = None,
) -> SnapshotFile:
    """Includes all tiers, versions, uses, facts, entries and vectors of every namespace, or of those named by --only.
    With --since, includes only the changes since an earlier snapshot. Other processes can write meanwhile."""
    from loom.snapshots.taking import take

    names = only or _namespaces(file)
    with closing(_opened(file, names[0], read_only=True)) as store:
        made = take(store, target, parent=since, namespaces=names)
    return SnapshotFile(
        str(made.path), made.sha256, made.parent, tuple(made.namespaces), made.records, made.size_bytes
    )


@operation(
    _GROUP,
    "create a store from a snapshot, or merge one into a namespace of an existing store",
    examples=(
        "loom restore monday.hctx tuesday.hctx --store copy.loom",
        "loom restore monday.hctx --into guest",
    ),
    long=True,
    elsewhere={"mcp": _OPERATOR},
)
def restore(
    file: Path,
    snapshots: Annotated[
        list[Path], About("a full snapshot and those that continue it, oldest first", shown_as="SNAPSHOT")
    ],
    *,
    into: Annotated[str | None, About("merge into this namespace of an existing store", shown_as="NAMESPACE")] = None,
    take: Annotated[
        str | None, About("with --into: the namespace of the snapshot to merge", shown_as="NAMESPACE")
    ] = None,
    forgotten: Annotated[bool, About("with --into: also memories that the store has forgotten since")] = False,
) -> RestoredFile:
    """Without --into, the store must not exist yet; on a server, the namespaces of the snapshot must be empty. A
    snapshot that is damaged or does not continue the one before is refused, and nothing is changed."""
    if into is None:
        file.parent.mkdir(parents=True, exist_ok=True)
        done = loom.restore(snapshots, file)
    else:
        _namespaces(file)  # refuses a missing file, which would be created below
        with loom.open(file, namespace=into, embedder="none", derive=False) as memory:
            done = memory.restore(snapshots, namespace=take, forgotten=forgotten)
    return RestoredFile(
        str(done.path or file), tuple(done.namespaces), done.records, done.present, done.forgotten, into
    )


@operation(
    _GROUP,
    "copy a memory into another store: a file, a server or a snapshot",
    examples=(
        "loom migrate agent.loom postgresql://host/memories",
        "loom migrate postgresql://host/memories copy.loom --only team",
        "loom migrate agent.loom agent.hctx",
    ),
    long=True,
    idempotent=True,
    elsewhere={"mcp": _OPERATOR},
)
def migrate(
    source: Annotated[str, About("a file, a snapshot, or the URL of a server", shown_as="SOURCE")],
    target: Annotated[str, About("the same; created if it does not exist", shown_as="TARGET")],
    *,
    only: Annotated[list[str] | None, About("only this namespace; may be repeated", shown_as="NAMESPACE")] = None,
) -> Migrated:
    """Copies every namespace, or those named by --only, and compares every memory and entry at the end. The source is
    not changed. Each namespace is copied in one transaction. If the command is interrupted, run it again to copy the
    rest."""
    from loom.discovery import as_place

    with TemporaryDirectory(prefix="loom-migrate-") as folder:
        origin, goal = as_place(source), as_place(target)
        if origin.suffix == _SNAPSHOT and origin.is_file():
            staged = Path(folder, "source.loom")
            loom.restore(origin, staged)
            origin = staged
        names = only or _namespaces(origin)
        if goal.suffix == _SNAPSHOT:
            made = snapshot(origin, goal, only=names)
            return Migrated(str(as_place(source)), str(goal), (), made.records)
        moved = [_moved(origin, goal, name, Path(folder)) for name in names]
    return Migrated(str(as_place(source)), str(goal), tuple(moved), sum(one.records for one in moved))


_SNAPSHOT = ".hctx"


def _moved(origin: Path, goal: Path, name: str, folder: Path) -> NamespaceMove:
    """Copy a namespace. If the target already has budgets for nodes, they apply in the same transaction."""
    from loom.snapshots.moving import move_namespace
    from loom.storage.contract import LAYOUTS

    with closing(_opened(origin, name, read_only=True)) as held:
        if _is_new(goal, name):
            with closing(_opened(goal, name, read_only=False)) as store:
                done = move_namespace(held, store, folder, without=(LAYOUTS,))
        else:
            with loom.open(goal, namespace=name, embedder="none", derive=False) as memory:
                room = memory.tiers.make_room_of
                done = move_namespace(held, memory.store, folder, without=(LAYOUTS,), then=room)
    return NamespaceMove(name, done.records, done.present, done.forgotten)


def _is_new(goal: Path, name: str) -> bool:
    """Whether the target has nothing in a namespace. Settings and budgets are then copied too."""
    try:
        with closing(_opened(goal, name, read_only=True)) as store, store.copying() as rows:
            return next(iter(rows.rows("records")), None) is None
    except (NotAStore, NotFound, StoreUnavailable):
        return True


def _namespaces(path: Path) -> list[str]:
    """Return the namespaces. Opens read-only, so that a missing, empty or foreign file is refused and not created."""
    with closing(_opened(path, "default", read_only=True)) as store:
        return store.namespaces()


def _opened(path: Path, namespace: str, *, read_only: bool) -> "Store":
    """Open the store without settings and without an embedder, so that neither changes in the store."""
    from loom.storage import open_store
    from loom.text.tokens import counters_by_name

    store = open_store(path, namespace=namespace, read_only=read_only, all_namespaces=True)
    store.count_with({name: counter.limit_count for name, counter in counters_by_name().items()})
    return store


# --- exports and imports -----------------------------------------------------------------------------------


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
    to: Annotated[Literal["loom-jsonl", "markdown"], About("the format: lines to import again, or pages to read")] = (
        "loom-jsonl"
    ),
) -> Exported:
    """Writes every version of every record of one namespace, in the order of writing; docs/importing.md describes the
    format. With markdown, writes the current versions into a folder with a file for each day. Other processes can
    write meanwhile. Memories that are forgotten later stay in the files. Tiers, vectors and uses are not exported; a
    snapshot includes them."""
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
    """Recognises the format; docs/importing.md has the list. Importing again adds only new records, so an interrupted
    import can be repeated. Parts that cannot be read are skipped and reported, and the command then ends with 1.
    Imported instructions take effect with `loom confirm`. Records from exports of loom keep their ids and
    versions, and are not masked."""
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
        tuple(map(PartProblem.of, done.problems)),
    )


def _report_records(done: int) -> None:
    report(done, None, "records")
