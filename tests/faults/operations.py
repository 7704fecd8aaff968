"""The operations that faults are injected into, and what may be in the store after each of them.

Everything here runs in a child process, through the public face of the package alone. The texts of a store are a
mapping from id to text; an operation is a function on a stage, and a function from the texts before it to the texts
after it.
"""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import loom
from loom.errors import LoomError
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder

__all__ = [
    "AFTERWARDS",
    "HARMS",
    "OPERATIONS",
    "Harm",
    "Operation",
    "Stage",
    "Texts",
    "act",
    "look",
    "make_template",
    "texts_in",
]

Texts = Mapping[str, str]

STORE = "agent.loom"
SNAPSHOT = "kept.hctx"
BACKUP = "kept.loom"
NEW = "new.loom"
MOMENT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
_LETTERS = "bcdfghjklmnpqrstvwxz"

# A few records fill an index segment, and a process that ends leaves its lease at once.
_SETTINGS: Mapping[str, Any] = {
    "index_tail_records": 5,
    "lease_s": 0.5,
    "busy_timeout_s": 0.3,
    "close_timeout_s": 1.0,
    "derive": False,
}


def word(number: int) -> str:
    """A word that no other number has."""
    return f"xu{_LETTERS[number // 20 % 20]}a{_LETTERS[number % 20]}ok"


def _texts(first: int, count: int) -> dict[str, str]:
    return {f"id-{number}": f"{word(number)} was said in the harbour" for number in range(first, first + count)}


BEFORE = _texts(0, 24)
LATER = _texts(24, 8)  # in the store, and neither in the snapshot nor in the backup that are there already
FRESH = _texts(100, 1)
BATCH = _texts(120, 12)
AFTERWARDS = _texts(200, 3)


@dataclass
class Stage:
    """One folder with a store in it, opened in this process."""

    folder: Path
    namespace: str = "default"
    _memory: Memory | None = field(default=None, init=False)

    @property
    def memory(self) -> Memory:
        if self._memory is None:
            self._memory = self.opened(STORE, self.namespace)
        return self._memory

    def opened(self, name: str, namespace: str = "default") -> Memory:
        embedder = FakeEmbedder(dimensions=16)
        return loom.open(self.folder / name, namespace=namespace, embedder=embedder, **_SETTINGS)

    def close(self) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    def reopen(self) -> None:
        self.close()
        self.memory.recall("harbour", limit=3)

    def remember(self, texts: Texts) -> None:
        self.memory.remember([{"id": name, "content": text} for name, text in texts.items()], created_at=MOMENT)


def texts_in(memory: Memory) -> dict[str, str]:
    """Every text of a memory, listed and got."""
    listed = {record.id: record.content for record in memory.list(limit=1000).records}
    for name, text in listed.items():
        record = memory.get(name)
        assert record is not None, f"{name} is listed and cannot be got"
        assert record.content == text
    return listed


def make_template(folder: Path) -> None:
    """A store with records in segments, in the archive and in the tail, a snapshot and a backup."""
    stage = Stage(folder)
    stage.remember(BEFORE)
    stage.memory.flush()
    stage.memory.archive()
    stage.memory.snapshot(folder / SNAPSHOT)
    stage.memory.backup(folder / BACKUP)
    stage.remember(LATER)
    stage.memory.flush()
    stage.close()


# -- the operations ------------------------------------------------------------------------------------------


def _same(texts: Texts) -> Texts:
    return texts


@dataclass(frozen=True)
class Operation:
    """`act` runs with the fault, after `prepare`; `result` maps the texts before to those after.

    `made` reads a file that the operation makes: its texts are `earlier` (None where there is no such file), or
    those of the store at that time.
    """

    act: Callable[[Stage], object]
    result: Callable[[Texts], Texts] = _same
    prepare: Callable[[Stage], object] = lambda _: None
    namespace: str = "default"
    made: Callable[[Stage], Texts | None] | None = None
    earlier: Texts | None = None
    complete: Texts = field(default_factory=lambda: {**BEFORE, **LATER})


def _flush(stage: Stage) -> None:
    report = stage.memory.flush(timeout_s=5.0)
    assert all(isinstance(count, int) for count in (*report.waiting.values(), *report.failed.values()))


def _of_snapshot(stage: Stage) -> Texts | None:
    target = stage.folder / "read back.loom"
    loom.restore(stage.folder / SNAPSHOT, target)
    return _of_store(stage, target.name)


def _of_store(stage: Stage, name: str) -> Texts | None:
    if not (stage.folder / name).exists():
        return None
    with closing(stage.opened(name)) as memory:
        return texts_in(memory)


OPERATIONS: Mapping[str, Operation] = {
    "remember": Operation(
        lambda stage: stage.memory.remember(FRESH["id-100"], id="id-100", created_at=MOMENT),
        lambda texts: {**texts, **FRESH},
    ),
    "remember a batch": Operation(lambda stage: stage.remember(BATCH), lambda texts: {**texts, **BATCH}),
    "flush": Operation(_flush, prepare=lambda stage: stage.remember(BATCH)),
    "forget": Operation(
        lambda stage: stage.memory.forget(["id-3", "id-25", "id-26"]),
        lambda texts: {name: text for name, text in texts.items() if name not in ("id-3", "id-25", "id-26")},
    ),
    "archive": Operation(lambda stage: stage.memory.archive()),
    "snapshot": Operation(
        lambda stage: stage.memory.snapshot(stage.folder / SNAPSHOT), made=_of_snapshot, earlier=BEFORE
    ),
    "restore into a new file": Operation(
        lambda stage: loom.restore(stage.folder / SNAPSHOT, stage.folder / NEW),
        made=lambda stage: _of_store(stage, NEW),
        complete=BEFORE,
    ),
    "restore into a namespace": Operation(
        lambda stage: stage.memory.restore(stage.folder / SNAPSHOT, namespace="default"),
        lambda texts: {**texts, **BEFORE},
        namespace="another",
    ),
    "backup": Operation(
        lambda stage: stage.memory.backup(stage.folder / BACKUP),
        made=lambda stage: _of_store(stage, BACKUP),
        earlier=BEFORE,
    ),
    "vacuum": Operation(lambda stage: stage.memory.vacuum(), prepare=lambda stage: stage.memory.forget("id-5")),
    "recall": Operation(lambda stage: stage.memory.recall(word(7), limit=5)),
    "check": Operation(lambda stage: stage.memory.check()),
    "close and open": Operation(Stage.reopen, prepare=lambda stage: stage.remember(BATCH)),
}


# -- what others do to the files in the meantime -------------------------------------------------------------


def _cut(path: Path, part: float) -> None:
    with suppress(FileNotFoundError), open(path, "r+b") as file:  # a segment may be merged away in the meantime
        file.truncate(int(path.stat().st_size * part))


def _segments(folder: Path) -> list[Path]:
    found = sorted(folder.glob(f"{STORE}*/*.seg"))
    assert found, "no index segments where they are looked for"
    return found


def _to_segments(do: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: list(map(do, _segments(folder)))


@dataclass(frozen=True)
class Harm:
    """Something that another program does to the files between two operations.

    Where it is `lasting`, what the store held may be gone; later acknowledged writes may not be, unless their loss is
    reported.
    """

    do: Callable[[Path], object]
    lasting: bool = False


HARMS: Mapping[str, Harm] = {
    "index folder removed": Harm(lambda folder: shutil.rmtree(_segments(folder)[0].parent, ignore_errors=True)),
    "segments removed": Harm(_to_segments(lambda path: path.unlink(missing_ok=True))),
    "segments emptied": Harm(_to_segments(lambda path: _cut(path, 0))),
    "segments cut": Harm(_to_segments(lambda path: _cut(path, 0.6))),
    "store removed": Harm(lambda folder: (folder / STORE).unlink(), lasting=True),
    "store replaced": Harm(lambda folder: os.replace(folder / BACKUP, folder / STORE), lasting=True),
    "store emptied": Harm(lambda folder: _cut(folder / STORE, 0), lasting=True),
    "store cut": Harm(lambda folder: _cut(folder / STORE, 0.5), lasting=True),
    "log removed": Harm(lambda folder: (folder / f"{STORE}-wal").unlink(), lasting=True),
    "log emptied": Harm(lambda folder: _cut(folder / f"{STORE}-wal", 0), lasting=True),
    "folder moved away": Harm(lambda folder: folder.rename(folder.with_name("elsewhere")), lasting=True),
}


# -- the two halves of a case, each in a process of its own --------------------------------------------------


def act(
    folder: Path, operation: Operation, begin: Callable[[], object], end: Callable[[], object], used: bool = False
) -> dict[str, Any]:
    """Carry an operation out between `begin` and `end`, then write once more; what was raised, and by which step.

    With `used`, the index is in use before that, so that its files are mapped.
    """
    stage = Stage(folder, operation.namespace)
    operation.prepare(stage)
    if used:
        stage.memory.recall("harbour")
    told: dict[str, Any] = {"before": texts_in(stage.memory)}
    begin()
    try:
        told["error"] = _raised(lambda: operation.act(stage))
    finally:
        end()
    told["then"] = _raised(lambda: stage.remember(AFTERWARDS))
    told["close"] = _raised(stage.close)
    return told


def look(folder: Path, operation: Operation) -> dict[str, Any]:
    """Open what is there, read all of it, check it, and use it; `refused` where that is an error of ours."""
    try:
        return _looked(folder, operation)
    except LoomError as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def _looked(folder: Path, operation: Operation) -> dict[str, Any]:
    stage = Stage(folder, operation.namespace)
    report = stage.memory.check()
    told: dict[str, Any] = {
        "problems": report.problems,
        "repaired": report.repaired,
        "texts": texts_in(stage.memory),
        "made": operation.made(stage) if operation.made else None,
    }
    stage.memory.remember(f"{word(300)} at the end", id="at-the-end")
    told["complete"] = stage.memory.flush().complete
    sample = [*list(told["texts"].items())[::4], ("at-the-end", word(300))]
    told["lost words"] = [
        name for name, text in sample if name not in [hit.id for hit in stage.memory.recall(text.split()[0], limit=3)]
    ]
    told["sound"] = stage.memory.check().ok
    stage.close()
    told["left"] = [path.name for path in folder.rglob("*.tmp*")]
    return told


def _raised(step: Callable[[], object]) -> dict[str, Any] | None:
    try:
        step()
    except LoomError as error:
        return {"ours": True, "kind": type(error).__name__, "message": str(error)}
    except Exception as error:
        return {"ours": False, "kind": type(error).__name__, "message": traceback.format_exc()}
    return None
