"""Damaged, forged and hostile snapshots are refused with a reason, in bounded memory, and change nothing."""

from __future__ import annotations

import io
import json
import random
import shutil
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom.errors import SnapshotError, StoreFull
from loom.snapshots.format import FRAME_BYTES, LARGEST_ROW, Header, SnapshotReader, SnapshotWriter
from loom.snapshots.merging import restore_into
from loom.snapshots.sections import BLOB_PIECE, KNOWN_SECTIONS, VECTOR, Section, check_row_size
from loom.snapshots.staging import restore
from loom.snapshots.taking import describe, take
from loom.storage.contract import MAX_TEXT_BYTES, Draft
from loom.storage.sqlite.store import SqliteStore
from tests.storage.whole_stores import MOMENT, everything, forged, lived_in, opened_store, rows_of

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    with opened_store(folder / "a.loom") as store:
        lived_in(store, 25)
        take(store, folder / "a.hctx")
    return folder / "a.hctx"


def refused(path: Path, match: str = "nothing was changed") -> None:
    """Neither a new store nor an open one accepts it, and nothing of it remains."""
    target = path.parent / "new.loom"
    before = set(path.parent.iterdir())
    with pytest.raises(SnapshotError, match=match):
        restore(path, target)
    assert set(path.parent.iterdir()) == before
    with opened_store(None, "mine") as store:
        state = everything(store)
        with pytest.raises(SnapshotError, match=match):
            restore_into(store, path)
        assert everything(store) == state


# --- the file -----------------------------------------------------------------------------------------------


def test_a_snapshot_cut_at_any_length_is_refused(snapshot: Path, tmp_path: Path) -> None:
    whole = snapshot.read_bytes()
    cut = tmp_path / "cut.hctx"
    lengths = {*range(130), *range(len(whole) - 60, len(whole)), *range(130, len(whole), 397)}
    for length in sorted(lengths):
        cut.write_bytes(whole[:length])
        with pytest.raises(SnapshotError):
            restore(cut, tmp_path / "new.loom")
    assert [path.name for path in tmp_path.iterdir()] == ["cut.hctx"]
    cut.write_bytes(whole + b"\0")
    refused(cut)


def test_any_flipped_bit_is_noticed(snapshot: Path, tmp_path: Path) -> None:
    whole = snapshot.read_bytes()
    flipped = tmp_path / "flipped.hctx"
    chance = random.Random(5)
    places = [*range(64), *range(len(whole) - 42, len(whole), 3), *chance.sample(range(64, len(whole)), 80)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        flipped.write_bytes(damaged)
        with pytest.raises(SnapshotError):
            restore(flipped, tmp_path / "new.loom")
    assert [path.name for path in tmp_path.iterdir()] == ["flipped.hctx"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bytes_that_are_cut_moved_or_written_over_are_refused_and_never_crash(
    snapshot: Path, tmp_path: Path, data: st.DataObject
) -> None:
    whole = bytearray(snapshot.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(whole) - 1))
        kind = data.draw(st.sampled_from(["write", "cut", "insert"]))
        piece = data.draw(st.binary(min_size=1, max_size=40))
        if kind == "write":
            whole[place : place + len(piece)] = piece
        elif kind == "cut":
            del whole[place : place + len(piece)]
        else:
            whole[place:place] = piece
    if bytes(whole) == snapshot.read_bytes():
        return
    path = tmp_path / "mixed.hctx"
    path.write_bytes(whole)
    with pytest.raises(SnapshotError):
        restore(path, tmp_path / "new.loom")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "HCTX"),
        (b"HCTX", "HCTX"),
        (b"SQLite format 3\0" * 100, "HCTX"),
        (b"hctx" + bytes(500), "HCTX"),
        (bytes(5000), "HCTX"),
    ],
)
def test_something_else_is_refused(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "else.hctx"
    path.write_bytes(content)
    refused(path, match)


def sealed(parts: list[bytes], index: Any = None, header: bytes = b"") -> bytes:
    """A file of these frames with an index, a foot and a right SHA-256."""
    import hashlib

    body = (header or Header(1, 100).pack()) + b"".join(parts)
    listed = json.dumps({"sections": index if index is not None else []}).encode()
    body += frame(0xFFFF, listed) + struct.pack("<Q", len(body))
    return body + hashlib.sha256(body).digest()


def frame(section: int, raw: bytes, **other: Any) -> bytes:
    stored: bytes = other.get("stored", zstd.compress(raw))
    checksum = other.get("checksum", zlib.crc32(raw))
    sizes = (other.get("raw_bytes", len(raw)), other.get("stored_bytes", len(stored)))
    return struct.pack("<HHIII", section, other.get("nothing", 0), *sizes, checksum) + stored


def read_all(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "made.hctx"
    path.write_bytes(content)
    with open(path, "rb") as file:
        for _, rows in SnapshotReader(file).sections(KNOWN_SECTIONS):
            for _ in rows:
                pass


ROW = struct.pack("<I", 3) + b"[1]"


def test_versions_and_flags_that_are_not_known_are_refused(snapshot: Path, tmp_path: Path) -> None:
    whole = snapshot.read_bytes()
    for place, value, match in ((4, 2, "format 2"), (4, 0, "format 0"), (6, 1, "flags"), (6, 2, "flags")):
        head = bytearray(whole[:60])
        head[place : place + 2] = value.to_bytes(2, "little")
        path = tmp_path / "other.hctx"
        path.write_bytes(bytes(head) + zlib.crc32(head).to_bytes(4, "little") + whole[64:])
        refused(path, match)


def test_a_flipped_bit_in_the_header_is_noticed_at_opening(snapshot: Path, tmp_path: Path) -> None:
    head = bytearray(snapshot.read_bytes())
    head[9] ^= 1  # in the moment
    path = tmp_path / "flipped.hctx"
    path.write_bytes(head)
    refused(path, "its header does not match its checksum")


@pytest.mark.parametrize(
    ("parts", "index", "match"),
    [
        ([frame(4, ROW), frame(2, ROW)], [[4, 1, 1, 7, 16], [2, 1, 1, 7, 16]], "out of order"),
        ([frame(4, ROW), frame(5, ROW), frame(4, ROW)], [[4, 2, 2, 14, 32], [5, 1, 1, 7, 16]], "index|order"),
        ([frame(77, ROW)], [[77, 1, 1, 7, 16]], "unknown"),
        ([frame(4, ROW)], [], "not in the index"),
        ([frame(4, ROW)], [[4, 1, 2, 7, 16]], "cannot match the index"),
        ([frame(4, ROW)], [[4, 1, 0, 7, 16]], "does not match the index"),
        ([frame(4, ROW)], [[4, 1, 1, 7, 16], [5, 1, 1, 7, 16]], "missing|match the index"),
        ([frame(4, ROW, nothing=1)], [[4, 1, 1, 7, 16]], "states "),
        ([frame(4, ROW, raw_bytes=1 << 31)], [[4, 1, 1, 7, 16]], "states "),
        ([frame(4, ROW, stored_bytes=(1 << 32) - 1)], [[4, 1, 1, 7, 16]], "states "),
        ([frame(4, ROW, stored_bytes=1 << 20)], [[4, 1, 1, 7, 16]], "truncated"),
        ([frame(4, ROW, raw_bytes=6)], [[4, 1, 1, 6, 16]], "the size that it states"),
        ([frame(4, ROW, raw_bytes=8)], [[4, 1, 1, 8, 16]], "the size that it states"),
        ([frame(4, ROW, checksum=5)], [[4, 1, 1, 7, 16]], "checksum"),
        ([frame(4, ROW, stored=b"no zstd at all.")], [[4, 1, 1, 7, 15]], "decompressed"),
        ([frame(4, ROW, stored=zstd.compress(ROW) + b"x")], [[4, 1, 1, 7, 17]], "the size that it states"),
        ([frame(4, ROW[:-1])], [[4, 1, 1, 6, 15]], "truncated"),
        ([frame(4, ROW[:2])], [[4, 1, 0, 2, 11]], "truncated"),
        ([frame(4, struct.pack("<I", LARGEST_ROW + 1))], [[4, 1, 1, 4, 13]], "states "),
        ([], [[1]], "index"),
        ([], [[1, -1, 0, 0, 0]], "its index is not valid"),
        ([], [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1]], "its index is not valid"),
        ([], [[1, True, 1, 1, 1]], "its index is not valid"),
        ([], {"sections": 4}, "index"),
    ],
)
def test_frames_that_do_not_add_up_are_refused(tmp_path: Path, parts: list[bytes], index: Any, match: str) -> None:
    with pytest.raises(SnapshotError, match=match):
        read_all(sealed(parts, index), tmp_path)


def test_an_unknown_section_that_is_optional_is_passed_over(tmp_path: Path) -> None:
    parts = [frame(4, ROW), frame(0x8001, ROW)]
    stored = len(zstd.compress(ROW))
    read_all(sealed(parts, [[4, 1, 1, 7, stored], [0x8001, 1, 1, 7, stored]]), tmp_path)


def test_a_frame_that_unpacks_to_gigabytes_is_refused_without_unpacking_it(tmp_path: Path) -> None:
    bomb = zstd.compress(bytes(64 << 20), level=19)
    wide = zstd.compress(bytes(64 << 20), options={zstd.CompressionParameter.window_log: 27})
    for stored in (bomb, wide):
        assert len(stored) < FRAME_BYTES
        content = sealed([frame(4, b"", stored=stored, raw_bytes=FRAME_BYTES)], [[4, 1, 1, FRAME_BYTES, len(stored)]])
        tracemalloc.start()
        with pytest.raises(SnapshotError):
            read_all(content, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 << 20


def test_what_says_it_needs_more_room_than_the_disk_has_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "huge.hctx"
    path.write_bytes(sealed([frame(1, ROW)], [[1, 1, 1, FRAME_BYTES, 16]]))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=FRAME_BYTES - 1))
    with pytest.raises(StoreFull, match="nothing was changed"):
        restore(path, tmp_path / "new.loom")
    assert [path.name for path in tmp_path.iterdir()] == ["huge.hctx"]


@pytest.mark.parametrize(
    ("index", "match"),
    [
        ([[4, 1, 1, FRAME_BYTES + 1, 16]], "too small"),
        ([[4, 5, 1, 7, 16]], "too small"),
        ([[4, 1, 1 << 40, 7, 16]], "too small"),
        ([[4, 1, 1, 7, 1 << 40]], "too small"),
        ([[4, 1 << 40, 1, 1 << 41, 1 << 40]], "too small"),
        ([[4, 1, 1, 7, 16], [5, 1, 1, 7, 16]], "too small"),
    ],
)
def test_an_index_that_names_more_than_the_file_can_hold_is_refused_at_opening(
    tmp_path: Path, index: Any, match: str
) -> None:
    path = tmp_path / "made.hctx"
    path.write_bytes(sealed([frame(4, ROW)], index))
    with open(path, "rb") as file, pytest.raises(SnapshotError, match=match):
        SnapshotReader(file)


def test_a_frame_that_declares_another_size_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    stored = zstd.compress(ROW * 2)
    content = sealed([frame(4, ROW, stored=stored)], [[4, 1, 1, 7, len(stored)]])
    with pytest.raises(SnapshotError, match="the size that it states"):
        read_all(content, tmp_path)


@pytest.mark.parametrize("piece", ["\x01", "[{,:", '"\\u0041', "\U0001f600", "港"])
def test_a_row_with_the_largest_text_of_any_characters_may_be_read(snapshot: Path, piece: str) -> None:
    row = json.loads(rows_of(snapshot)[Section.RECORDS][0])
    row[21] = piece * (MAX_TEXT_BYTES // len(piece.encode()))
    row[20] = json.dumps({"said": piece * 200_000})
    for readable in (True, False):
        check_row_size(Section.RECORDS, json.dumps(row, ensure_ascii=not readable, indent=1).encode())


def test_what_could_not_be_restored_is_not_taken(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        with store.transaction() as transaction:
            transaction.append([Draft("one", "text", MOMENT, data=[[]] * 4_000_000)])
        with pytest.raises(SnapshotError, match="bytes of memory"):
            take(store, tmp_path / "a.hctx")
    assert not (tmp_path / "a.hctx").exists()


def test_a_row_of_many_frames_comes_back_whole(tmp_path: Path) -> None:
    rows = [b"a" * 5, bytes(range(256)) * 20_000, b"", b"z" * (FRAME_BYTES - 4), b"end"]
    file = io.BytesIO()
    writer = SnapshotWriter(file, Header(1, 2))
    writer.begin(7)
    for row in rows:
        writer.add(row)
    writer.finish()
    path = tmp_path / "rows.hctx"
    path.write_bytes(file.getvalue())
    with open(path, "rb") as read:
        assert [list(found) for _, found in SnapshotReader(read).sections({7: LARGEST_ROW})] == [rows]


# --- contents behind right checksums ------------------------------------------------------------------------


def put(section: Section, column: int, value: Any, row: int = 0) -> Callable[[dict[int, list[Any]]], None]:
    def change(rows: dict[int, list[Any]]) -> None:
        rows[section][row][column] = value

    return change


def again(section: Section) -> Callable[[dict[int, list[Any]]], None]:
    def change(rows: dict[int, list[Any]]) -> None:
        rows[section].append(rows[section][-1])

    return change


def without(section: Section) -> Callable[[dict[int, list[Any]]], None]:
    def change(rows: dict[int, list[Any]]) -> None:
        del rows[section]

    return change


def binary(section: Section, make: Callable[[bytes], bytes]) -> Callable[[dict[int, list[Any]]], None]:
    def change(rows: dict[int, list[Any]]) -> None:
        rows[section][0] = make(rows[section][0])

    return change


HUGE = 1 << 63
FORGERIES: dict[str, Callable[[dict[int, list[Any]]], None]] = {
    "no start": without(Section.START),
    "two starts": again(Section.START),
    "start of another shape": lambda rows: rows[1][0].pop(),
    "a position of another file": put(Section.START, 2, 5),
    "no namespaces": put(Section.START, 5, []),
    "a namespace without a name": put(Section.START, 5, [[1, ""]]),
    "a namespace number out of range": put(Section.START, 5, [[HUGE, "default"]]),
    "a surrogate in a namespace's name": put(Section.START, 5, [[1, "\ud800"]]),
    "a full one that begins in the middle": put(Section.START, 4, 7),
    "dimensions out of range": put(Section.START, 7, [[1, "of-the-tests", 1 << 30]]),
    "a space that is not there": put(Section.START, 8, [[1, 9]]),
    "a record without an id": put(Section.RECORDS, 2, ""),
    "a record's id is a number": put(Section.RECORDS, 2, 7),
    "a surrogate in an id": put(Section.RECORDS, 2, "\udc00"),
    "a surrogate in a text": put(Section.RECORDS, 21, "a\ud800b"),
    "a number above 64 bits": put(Section.RECORDS, 0, HUGE * 4),
    "a negative number": put(Section.RECORDS, 0, -1),
    "a number beyond the position": put(Section.RECORDS, 0, 99_999),
    "a record twice": again(Section.RECORDS),
    "the same number for two records": put(Section.RECORDS, 0, 2),
    "a version that skips": put(Section.RECORDS, 3, 5),
    "a namespace that is not there": put(Section.RECORDS, 1, 3),
    "a time beyond the years": put(Section.RECORDS, 17, 1 << 60),
    "importance as text": put(Section.RECORDS, 14, "1.0"),
    "a boolean for a number": put(Section.RECORDS, 15, True),
    "negative tokens": put(Section.RECORDS, 15, -4),
    "metadata that is no JSON": put(Section.RECORDS, 19, "{"),
    "metadata that is no object": put(Section.RECORDS, 19, "[1]"),
    "metadata nested too deep": put(Section.RECORDS, 19, '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "data with NaN": put(Section.RECORDS, 20, "NaN"),
    "a text above 16 MB": put(Section.RECORDS, 21, "x" * (16 * 1024 * 1024 + 1)),
    "an unknown dimension": put(Section.RECORDS, 12, "nowhere"),
    "a record of another shape": lambda rows: rows[4][0].pop(),
    "a row that is an object": lambda rows: rows[4].__setitem__(0, {"seq": 1}),
    "a row that is no JSON": lambda rows: rows[4].__setitem__(0, b"\xff\xfe"),
    "a row with invalid UTF-8": lambda rows: rows[4].__setitem__(0, b'["\xc3\x28"]'),
    "a row with Infinity": lambda rows: rows[4].__setitem__(0, b"[Infinity]"),
    "a row nested too deep": lambda rows: rows[4].__setitem__(0, b"[" * 200_000),
    "a number of a million digits": lambda rows: rows[4].__setitem__(0, b"[" + b"9" * 1_000_000 + b"]"),
    "superseded by nobody": put(Section.SUPERSESSIONS, 2, 999),
    "superseded twice": again(Section.SUPERSESSIONS),
    "drawn from nothing": put(Section.DERIVATIONS, 0, 999),
    "an edge to nobody": put(Section.EDGES, 0, 999),
    "an edge with one end": lambda rows: rows[7].append([1, None, None]),
    "a move of nobody": put(Section.MOVES, 0, 999),
    "a reason that says more than a word": put(Section.MOVES, 6, "because; DROP TABLE records"),
    "a resident that is nobody": put(Section.RESIDENTS, 3, 999),
    "a resident of the window": put(Section.RESIDENTS, 2, "l1"),
    "a resident twice": again(Section.RESIDENTS),
    "negative sizes in a tier": put(Section.RESIDENTS, 4, -100),
    "a window that begins after the end": put(Section.TIERS, 5, 99_999),
    "a pin on nobody": put(Section.PINS, 2, 999),
    "uses of nobody": put(Section.ACCESSES, 1, 999),
    "uses that are none": put(Section.ACCESSES, 3, 0),
    "an entry without its checksum": put(Section.ENTRIES, 13, 1),
    "an entry with other content": put(Section.ENTRIES, 12, '"other"'),
    "an entry's version again": again(Section.ENTRIES),
    "a deleted entry with content": put(Section.ENTRIES, 6, 1),
    "a blob larger than its bytes": put(Section.BLOBS, 4, 1 << 40),
    "a blob shorter than its bytes": put(Section.BLOBS, 4, 10),
    "a blob with another checksum": put(Section.BLOBS, 3, 1),
    "a blob twice": again(Section.BLOBS),
    "a blob without its bytes": without(Section.BLOB_BYTES),
    "bytes without a blob": without(Section.BLOBS),
    "a piece beside its blob": binary(Section.BLOB_BYTES, lambda row: BLOB_PIECE.pack(1, 0) + row[16:]),
    "a piece beyond its blob": binary(Section.BLOB_BYTES, lambda row: row[:8] + b"\xff" * 8 + row[16:]),
    "a piece of nothing": binary(Section.BLOB_BYTES, lambda _: b"12"),
    "a vector of another length": binary(Section.VECTORS, lambda row: row + b"\0\0"),
    "a vector of nobody": binary(Section.VECTORS, lambda row: VECTOR.pack(60, 999, 1) + row[20:]),
    "a vector of another namespace": binary(Section.VECTORS, lambda row: VECTOR.pack(60, 1, 7) + row[20:]),
    "a vector of NaN": binary(Section.VECTORS, lambda row: row[:20] + np.full(8, np.nan, dtype=np.float16).tobytes()),
    "a vector cut short": binary(Section.VECTORS, lambda row: row[:10]),
    "work further than the log": put(Section.PROGRESS, 2, 99_999),
    "a job about nobody": put(Section.JOBS, 2, 999),
    "a job with words": put(Section.JOBS, 4, '["DROP"]'),
    "a job from the future": put(Section.JOBS, 3, 99_999),
    "a setting that is no JSON": put(Section.SETTINGS, 3, "{"),
    "an analyser that is no number": lambda rows: _setting(rows, "analyzer", '"x"'),
    "a retention rule of another kind": lambda rows: _setting(rows, "retention", '{"drop":1}'),
    "a retention rule that keeps nothing": lambda rows: _setting(rows, "retention", '{"max_records":-1}'),
    "a space in the settings only": lambda rows: _setting(rows, "space", "5"),
    "earlier restores that make no sense": lambda rows: rows[3].append([1, "", "restored", '{"a":[["x",1]]}']),
}


SIZE = 48 << 20
BOMBS: dict[str, Callable[[dict[int, list[Any]]], None]] = {
    "a row of empty lists": lambda rows: rows[Section.RECORDS].__setitem__(0, b"[" + b"[]," * (SIZE // 3) + b"[]]"),
    "a row of numbers": lambda rows: rows[Section.RECORDS].__setitem__(0, b"[" + b"1e9," * (SIZE // 4) + b"1]"),
    "a first row of empty lists": lambda rows: rows[Section.START].__setitem__(0, b"[" + b"[]," * (5 << 20) + b"[]]"),
    "metadata of empty objects": lambda rows: put(Section.RECORDS, 19, '{"a":[' + "{}," * (SIZE // 3) + "{}]}")(rows),
    "data of short texts": lambda rows: put(Section.RECORDS, 20, "[" + '"ab",' * (SIZE // 5) + "1]")(rows),
    "data with one wide character": lambda rows: put(
        Section.RECORDS, 20, json.dumps("a" * SIZE + "\U0001f600", ensure_ascii=False)
    )(rows),
    "a long text with one wide character": lambda rows: put(Section.RECORDS, 21, "a" * SIZE + "\U0001f600")(rows),
    "an id of 48 MB": lambda rows: put(Section.RECORDS, 2, "a" * SIZE)(rows),
    "an entry of empty lists": lambda rows: put(Section.ENTRIES, 12, "[" + "[]," * (SIZE // 3) + "[]]")(rows),
    "a setting of empty lists": lambda rows: put(Section.SETTINGS, 3, "[" + "[]," * (5 << 20) + "[]]")(rows),
    "a job of many numbers": lambda rows: put(Section.JOBS, 4, "[" + "9," * (7 << 20) + "9]")(rows),
    "a vector of 48 MB": binary(Section.VECTORS, lambda row: row + bytes(SIZE)),
    "a piece of a blob of 48 MB": binary(Section.BLOB_BYTES, lambda row: row + bytes(SIZE)),
    "an unknown section of large rows": lambda rows: rows.__setitem__(0x8001, [bytes(SIZE)] * 3),
}

# Each in a process forked for it, so that one start serves all of them and each has all of the memory.
_RESTORE_IN_LITTLE_MEMORY = """
import os, resource, sys
from pathlib import Path
from loom.errors import SnapshotError
from loom.snapshots.staging import restore
for line in sys.stdin:
    path = line.rstrip()
    if os.fork() == 0:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        room = used + (640 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        try:
            restore(path, path + ".loom")
            print("restored", flush=True)
        except SnapshotError as error:
            print("refused:", error, flush=True)
        except BaseException as error:
            print("failed:", repr(error), flush=True)
        os._exit(0)
    _, status = os.wait()
    if status:
        print("killed:", os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.fixture(scope="module")
def restored_in_little_memory() -> Iterator[Callable[[Path], str]]:
    """The outcome of restoring a snapshot in a process that may take 640 MiB more than at its start."""
    with subprocess.Popen(
        [sys.executable, "-c", _RESTORE_IN_LITTLE_MEMORY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        paths, answers = process.stdin, process.stdout

        def restored(path: Path) -> str:
            print(path, file=paths, flush=True)
            return answers.readline()

        yield restored
        paths.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="measures the child by /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_unpacks_to_large_rows_is_refused_in_bounded_memory(
    snapshot: Path, tmp_path: Path, restored_in_little_memory: Callable[[Path], str], name: str
) -> None:
    path = forged(snapshot, tmp_path / "bomb.hctx", BOMBS[name])
    assert path.stat().st_size < 200_000
    answer = restored_in_little_memory(path)
    if name == "an unknown section of large rows":  # which is passed over
        assert answer == "restored\n"
    else:
        assert answer.startswith("refused: ")
        assert "nothing was changed" in answer


@pytest.mark.skipif(sys.platform != "linux", reason="measures the child by /proc")
def test_a_frame_that_does_not_tell_its_size_is_decompressed_to_what_the_file_says_and_no_further(
    tmp_path: Path, restored_in_little_memory: Callable[[Path], str]
) -> None:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 20})
    zeros = bytes(16 << 20)
    stored = b"".join(compressor.compress(zeros) for _ in range(64)) + compressor.flush()
    path = tmp_path / "bomb.hctx"
    path.write_bytes(sealed([frame(4, ROW, stored=stored)], [[4, 1, 1, len(ROW), len(stored)]]))
    assert path.stat().st_size < 200_000
    assert "the size that it states" in restored_in_little_memory(path)


def test_a_frame_with_a_larger_window_than_a_frame_needs_is_refused(tmp_path: Path) -> None:
    """The window of a frame that does not tell its size is the memory that decompression takes."""
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    stored = compressor.compress(ROW) + compressor.flush()
    assert zstd.get_frame_info(stored).decompressed_size is None
    content = sealed([frame(4, ROW, stored=stored)], [[4, 1, 1, len(ROW), len(stored)]])
    with pytest.raises(SnapshotError, match="cannot be decompressed"):
        read_all(content, tmp_path)


def _setting(rows: dict[int, list[Any]], key: str, value: str) -> None:
    next(row for row in rows[Section.SETTINGS] if row[2] == key)[3] = value


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_snapshot_with_right_checksums_is_refused(snapshot: Path, tmp_path: Path, name: str) -> None:
    refused(forged(snapshot, tmp_path / "forged.hctx", FORGERIES[name]))


def test_a_row_outside_of_the_range_of_a_snapshot_is_named(snapshot: Path, tmp_path: Path) -> None:
    """Before it is stored: no other check has to notice it."""
    later = forged(snapshot, tmp_path / "later.hctx", put(Section.RECORDS, 0, 99_999))
    refused(later, "sequence number 99999 is outside of the range of this snapshot")
    elsewhere = forged(snapshot, tmp_path / "elsewhere.hctx", put(Section.RECORDS, 1, 77))
    refused(elsewhere, "a row is of namespace 77")


def test_a_snapshot_that_was_taken_apart_and_put_together_again_is_sound(snapshot: Path, tmp_path: Path) -> None:
    """The steps of the other tests without a forgery succeed, so it is the forgery that is refused."""
    path = forged(snapshot, tmp_path / "same.hctx", lambda rows: None)
    restore(path, tmp_path / "b.loom")
    restore(snapshot, tmp_path / "c.loom")
    with opened_store(tmp_path / "b.loom") as one, opened_store(tmp_path / "c.loom") as other:
        assert everything(one) == everything(other)


def test_names_that_look_like_paths_are_names(snapshot: Path, tmp_path: Path) -> None:
    def rename(rows: dict[int, list[Any]]) -> None:
        rows[Section.START][0][0] = "../../store"
        rows[Section.START][0][5] = [[1, "../../../etc/passwd"]]
        rows[Section.BLOBS][0][2] = "/tmp/blob"

    path = forged(snapshot, tmp_path / "paths.hctx", rename)
    inside = tmp_path / "inside"
    inside.mkdir()
    restore(path, inside / "b.loom")
    assert [found.name for found in inside.iterdir()] == ["b.loom"]
    with opened_store(inside / "b.loom", "../../../etc/passwd") as store:
        assert store.blob("/tmp/blob") is not None
        assert store.flush().failed == {}


def test_a_forged_parent_is_noticed_when_the_chain_is_restored(tmp_path: Path) -> None:
    with opened_store(tmp_path / "a.loom") as store:
        lived_in(store, 25)
        take(store, tmp_path / "0.hctx")
        lived_in(store, 25, first=30)
        take(store, tmp_path / "1.hctx", parent=tmp_path / "0.hctx")
    other = forged(tmp_path / "0.hctx", tmp_path / "x.hctx", put(Section.RECORDS, 21, "other words"))
    with pytest.raises(SnapshotError, match="continues"):
        restore([other, tmp_path / "1.hctx"], tmp_path / "new.loom")
    for change in (
        put(Section.START, 0, "another store"),
        put(Section.START, 4, 3),
        put(Section.RECORDS, 0, 1),
        put(Section.BLOBS, 3, 7),
    ):
        forgery = forged(tmp_path / "1.hctx", tmp_path / "y.hctx", change)
        with pytest.raises(SnapshotError):
            restore([tmp_path / "0.hctx", forgery], tmp_path / "new.loom")
    assert not (tmp_path / "new.loom").exists()


def test_describing_a_snapshot_verifies_its_frames(snapshot: Path, tmp_path: Path) -> None:
    assert describe(snapshot).records == 26
    damaged = bytearray(snapshot.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    path = tmp_path / "damaged.hctx"
    path.write_bytes(damaged)
    with pytest.raises(SnapshotError, match=r"damaged\.hctx"):
        describe(path)


def test_a_store_that_is_open_goes_on_after_a_refusal(snapshot: Path, tmp_path: Path) -> None:
    path = forged(snapshot, tmp_path / "forged.hctx", put(Section.JOBS, 2, 999))
    store = SqliteStore(tmp_path / "b.loom")
    lived_in(store, 25)
    state = everything(store)
    with pytest.raises(SnapshotError, match="nothing was changed"):
        restore_into(store, path)
    assert everything(store) == state
    lived_in(store, 25, first=50)
    assert store.check(repair=False).problems == ()
    store.close()
