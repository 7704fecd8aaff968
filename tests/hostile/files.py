"""Damaged files: index segments, snapshots, and the blocks of the archive in the database."""

from __future__ import annotations

import functools
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import loom
from loom.errors import LoomError, SnapshotError
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from tests.hostile.texts import word
from tests.storage.whole_stores import forged

__all__ = ["damaged_blocks", "damaged_segments", "damaged_snapshot", "forged_snapshot"]

TEXTS = {f"id-{number}": f"{word(number)} {'was said in the harbour ' * (number % 5 + 1)}" for number in range(120)}
_SETTINGS: dict[str, Any] = {"index_tail_records": 20, "derive": False, "busy_timeout_s": 2.0, "lease_s": 0.5}


def opened(path: Path, **settings: Any) -> Memory:
    return loom.open(path, embedder=FakeEmbedder(dimensions=16), **_SETTINGS, **settings)


@functools.cache
def template() -> Path:
    """A closed store with several segments of words and vectors, and blocks in its archive."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-template-"))
    texts = list(TEXTS.items())
    with opened(folder / "agent.loom") as memory:
        for first in range(0, 100, 25):
            memory.remember([{"id": name, "content": text} for name, text in texts[first : first + 25]])
            memory.flush()
        memory.archive()
        memory.remember([{"id": name, "content": text} for name, text in texts[100:]])
        memory.flush()
        memory.snapshot(folder / "kept.hctx")
    return folder


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Other bytes than these: bits flipped, cut, lengthened, written over or moved; half the time near the start."""
    result = bytearray(content)
    while bytes(result) == content:
        place = chance.randrange(max(1, min(len(result), 256 if chance.random() < 0.5 else len(result))))
        match chance.choice(["flip", "flip", "flip", "cut", "lengthen", "zero", "noise", "move"]):
            case "flip":
                spread = [chance.randrange(len(result)) for _ in range(40)] if result else []
                places = chance.choice([[place], [place, place + 1], spread])
                for one in places:
                    if one < len(result):
                        result[one] ^= 1 << chance.randrange(8)
            case "cut":
                del result[place:]
            case "lengthen":
                result += chance.randbytes(chance.choice([1, 64, 4096]))
            case "zero":
                result[place : place + 64] = bytes(len(result[place : place + 64]))
            case "noise":
                result[place : place + 16] = chance.randbytes(len(result[place : place + 16]))
            case "move":
                piece = result[place : place + 32]
                del result[place : place + 32]
                result[chance.randrange(len(result) + 1) :][:0] = piece
    return bytes(result)


def assert_texts(memory: Memory, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        record = memory.get(name)
        assert record is not None, f"{name} is gone"
        assert record.content == text, f"{name} has another text"


def assert_true_hits(memory: Memory, name: str, texts: dict[str, str]) -> None:
    """Recall returns only remembered texts, each at most once."""
    with suppress(LoomError):
        hits = memory.recall(texts[name].split()[0], limit=5)
        assert len({hit.id for hit in hits}) == len(hits)
        assert all(texts.get(hit.id) == hit.content for hit in hits)


def damaged_segments(chance: random.Random, folder: Path) -> None:
    """Index files are damaged while the store is closed or open; it is used, merged and repaired."""
    shutil.copytree(template(), folder, dirs_exist_ok=True)
    texts = dict(TEXTS)

    def harm() -> None:
        segments = sorted(folder.glob("agent.loom*/*.seg"))
        assert segments, "no index segments where they are looked for"
        for path in chance.sample(segments, chance.randint(1, len(segments))):
            with suppress(FileNotFoundError):  # merged away in the meantime
                match chance.choice(["damage", "damage", "damage", "unlink", "swap"]):
                    case "damage":
                        content = damaged(path.read_bytes(), chance)
                        # In place, so that a map of the file has the damage too.
                        with open(path, "r+b") as file:
                            file.write(content)
                            file.truncate()
                    case "unlink":
                        path.unlink()
                    case "swap":
                        path.write_bytes(chance.choice(segments).read_bytes())

    def forget(memory: Memory) -> None:
        name = chance.choice(sorted(texts))
        memory.forget(name)
        del texts[name]

    def remember(memory: Memory) -> None:
        number = 1000 + len(texts)
        new = {f"id-{one}": f"{word(one)} came later" for one in range(number, number + chance.choice([1, 25]))}
        memory.remember([{"id": name, "content": text} for name, text in new.items()])
        texts.update(new)

    uses: list[Callable[[Memory], object]] = [
        lambda memory: assert_true_hits(memory, chance.choice(sorted(texts)), texts),
        lambda memory: memory.context("harbour", budget=500),
        lambda memory: memory.flush(timeout_s=5),
        lambda memory: memory.vacuum(),
        lambda memory: memory.vacuum(),
        lambda memory: memory.check(repair=False),
        lambda memory: memory.get_stats(),
        forget,
        remember,
    ]
    while_open = chance.random() < 0.3
    if not while_open:
        harm()
    with opened(folder / "agent.loom") as memory:
        if while_open:
            memory.recall(word(3))
            harm()
        for use in chance.choices(uses, k=chance.randint(1, 5)):
            with suppress(LoomError):
                use(memory)
        assert_texts(memory, texts)
        assert memory.check().ok
    with opened(folder / "agent.loom") as memory:
        assert_texts(memory, texts)
        assert memory.flush().complete
        report = memory.check()
        assert report.ok, report.problems
        lost = [name for name in chance.sample(sorted(texts), 40) if name not in found(memory, texts[name])]
        assert not lost, f"never found by their own word any more: {lost}"


def found(memory: Memory, text: str) -> list[str]:
    return [hit.id for hit in memory.recall(text.split()[0], limit=3)]


def damaged_snapshot(chance: random.Random, folder: Path) -> None:
    """A snapshot with other bytes is refused, and leaves nothing behind."""
    path = folder / "damaged.hctx"
    path.write_bytes(damaged((template() / "kept.hctx").read_bytes(), chance))
    if chance.random() < 0.5:
        refused(lambda: loom.restore(path, folder / "new.loom"))
        assert [one.name for one in folder.iterdir()] == [path.name]
    else:
        with loom.open(embedder="none", derive=False) as memory:
            memory.remember("what was there", id="here")
            refused(lambda: memory.restore(path, namespace="default"))
            assert [record.id for record in memory.list().records] == ["here"]


def refused(restore: Callable[[], object]) -> None:
    try:
        restore()
    except SnapshotError:
        return
    raise AssertionError("a damaged snapshot was restored")


_VALUES: list[Any] = [
    *(None, True, -1, 0, 2**63, -(2**63) - 1, 1e308, float("nan")),
    *("", "x" * 100_000, "\0", "l9", [], {}, [[[]]]),
]


def forged_snapshot(chance: random.Random, folder: Path) -> None:
    """A snapshot with false rows and right checksums: refused, or restored as a store that is sound."""

    def change(rows: dict[int, list[Any]]) -> None:
        section = chance.choice(sorted(rows))
        if not rows[section]:
            return
        place = chance.randrange(len(rows[section]))
        row = rows[section][place]
        match chance.choice(["value", "value", "value", "drop", "repeat", "many", "swap"]):
            case "value" if isinstance(row, list) and row:
                row[chance.randrange(len(row))] = chance.choice(_VALUES)
            case "value" if isinstance(row, bytes):
                rows[section][place] = damaged(row, chance)
            case "value":
                rows[section][place] = chance.choice(_VALUES)
            case "drop":
                del rows[section][place]
            case "repeat":
                rows[section].insert(place, row)
            case "many":
                rows[section][place:place] = [row] * 20_000
            case "swap":
                other = chance.choice(sorted(rows))
                rows[section], rows[other] = rows[other], rows[section]

    path = forged(template() / "kept.hctx", folder / "forged.hctx", change)
    target = folder / "new.loom"
    try:
        loom.restore(path, target)
    except LoomError:
        assert [one.name for one in folder.iterdir()] == [path.name]
        return
    with opened(target) as memory:
        with suppress(LoomError):
            memory.flush(timeout_s=5)
        report = memory.check()
        for name, text in TEXTS.items():
            try:
                record = memory.get(name)
            except LoomError:
                assert not report.ok
                continue
            assert record is None or record.content == text or report.ok  # a forger may write what he likes
        with suppress(LoomError):
            memory.recall("harbour")


def damaged_blocks(chance: random.Random, folder: Path) -> None:
    """Bytes of the archive are damaged in the database: an error names it, and nothing else is lost."""
    shutil.copytree(template(), folder, dirs_exist_ok=True)
    path = folder / "agent.loom"
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if "block" in name or "dictionar" in name
        ]
        cells = [
            (table, column, rowid, value)
            for table in tables
            for (_, column, *_) in connection.execute(f"PRAGMA table_info({table})").fetchall()
            for rowid, value in connection.execute(f"SELECT rowid, {column} FROM {table}")
            if value is not None
        ]
        assert any(isinstance(value, bytes) for *_, value in cells), "no blocks where they are looked for"
        for table, column, rowid, value in chance.sample(cells, chance.choice([1, 1, 3])):
            other: Any = damaged(value, chance) if isinstance(value, bytes) else chance.choice(_CELLS)
            with suppress(sqlite3.IntegrityError):
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (other, rowid))
    texts = dict(TEXTS)
    try:
        memory = opened(path)
    except LoomError:
        return
    with closing(memory):
        wrong = unreadable(memory, texts)
        assert not (wrong and memory.check().ok), f"check() does not name the damage of {sorted(wrong)}"
        uses: list[Callable[[], object]] = [
            lambda: memory.recall("harbour"),
            lambda: memory.archive(),
            lambda: memory.vacuum(),
            lambda: memory.snapshot(folder / "new.hctx"),
            lambda: memory.context("harbour", budget=500),
            lambda: memory.forget(texts.popitem()[0]),
        ]
        for use in chance.sample(uses, 3):
            with suppress(LoomError):
                use()
        assert not unreadable(memory, texts) - wrong, "using a damaged store damages it further"
        memory.remember(f"{word(5000)} goes on", id="goes-on")
        assert wrong or found(memory, word(5000))[0] == "goes-on"


_CELLS = [0, 1, -1, 2**62, "", "x", b"", b"\0" * 100]


def unreadable(memory: Memory, texts: dict[str, str]) -> set[str]:
    """The ids that cannot be read; the text of every other is right."""
    wrong = set()
    for name, text in texts.items():
        try:
            record = memory.get(name)
        except LoomError:
            wrong.add(name)
            continue
        assert record is not None, f"{name} is gone without an error"
        assert record.content == text, f"{name} has another text"
    return wrong
