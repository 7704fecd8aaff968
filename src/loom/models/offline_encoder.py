"""Reads only those parts of the offline model's files that the texts so far need.

The package behind `OfflineEmbedder` unpacks 65 MB of weights and builds a table of every prefix of 128,000 pieces
before its first text, which takes 0.7 s of CPU. Common pieces have low numbers, so most texts need only the beginning
of the weights and the prefixes of few pieces. The vectors have the same bits as those of the package.
"""

from __future__ import annotations

import mmap
import struct
import threading
import zipfile
import zlib
from array import array
from collections.abc import Callable, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loom.forks import renew_after_fork

__all__ = ["RowStream", "load_encoder"]

# The header of a member of an archive: the lengths of its name and of its further fields.
_LOCAL_HEADER = struct.Struct("<26xHH")
# Rows are unpacked this many at a time.
_AHEAD_ROWS = 128
_PACKED_BYTES = 16_384


def load_encoder(folder: Path, package: str) -> Callable[[list[str]], npt.NDArray[np.float32]]:
    """A function that maps texts to the model's vectors. `folder` has the files of the installed `package`."""
    tokenizers, backends = import_module(f"{package}.pure_tokenizer"), import_module(f"{package}.backends.numpy")
    tokenizer = _growing_tokenizer(tokenizers, (folder / "sp.model").read_bytes())
    encode: Callable[[list[str]], npt.NDArray[np.float32]] = _growing_backend(
        backends, folder / "weights.npz", tokenizer
    ).encode
    return encode


# --- pieces ----------------------------------------------------------------------------------------------


def _growing_tokenizer(module: Any, data: bytes) -> Any:
    """The package's tokenizer with a table of prefixes that grows with the texts."""

    class GrowingTokenizer(module.UsePureTokenizer):  # type: ignore[misc]
        def __init__(self) -> None:
            pieces, scores, end = _pieces(data)
            self._pieces = pieces
            self._scores = array("f", scores)
            self._unk_id, self._bos_id, self._eos_id = module._UNK, module._BOS, module._EOS
            self._unk_score = min(self._scores) - 10.0
            self._max_len = max(map(len, pieces))
            self._waiting = _by_beginning(pieces)
            # A character is a prefix if a piece begins with it; 0 means that it is not a piece itself.
            self._prefixes = {begin[0]: 0 for begin in self._waiting}
            self._prefixes |= {piece: number + 1 for number, piece in enumerate(pieces) if len(piece) == 1}
            self._normalizer = module._Normalizer(_charsmap(module, data, end))

        def _viterbi(self, normalized: str) -> Any:
            for begin in {normalized[at : at + 2] for at in range(len(normalized) - 1)}:
                if begin in self._waiting:
                    self._grow(begin)
            return super()._viterbi(normalized)

        def _grow(self, begin: str) -> None:
            """Add the pieces that begin with these two characters. Two threads may add the same ones at once."""
            own: dict[str, int] = {}
            for number in self._waiting.get(begin, ()):
                piece = self._pieces[number]
                for length in range(2, len(piece)):
                    own.setdefault(piece[:length], 0)
                own[piece] = number + 1
            self._prefixes |= own
            self._waiting.pop(begin, None)

    return GrowingTokenizer()


def _pieces(data: bytes) -> tuple[list[str], npt.NDArray[np.float32], int]:
    """The pieces at the beginning of a model file, their scores, and the end of the last one.

    A piece is a message of fewer than 128 bytes: its text, its score, and for a few a type.
    """
    texts: list[bytes] = []
    ends: list[int] = []
    place = 0
    while data[place] == 0x0A:
        text_end = place + 4 + data[place + 3]
        texts.append(data[place + 4 : text_end])
        ends.append(text_end)
        place += 2 + data[place + 1]
    at = np.array(ends)
    raw = np.frombuffer(data, dtype=np.uint8)
    if not texts or not (raw[at] == 0x15).all():
        raise ValueError("the pieces do not have the expected form")
    scores = raw[at[:, np.newaxis] + np.arange(1, 5)].copy().view("<f4").ravel()
    return b"\n".join(texts).decode().split("\n"), scores, place


def _by_beginning(pieces: Sequence[str]) -> dict[str, list[int]]:
    """The numbers of the pieces by their first two characters."""
    found: dict[str, list[int]] = {}
    for number, piece in enumerate(pieces):
        if len(piece) > 1:
            found.setdefault(piece[:2], []).append(number)
    return found


def _charsmap(module: Any, data: bytes, start: int) -> bytes:
    (trainer, size), *_ = module._parse_fields(data, start, len(data))[3]
    (rules, length), *_ = module._parse_fields(data, trainer, trainer + size)[2]
    return data[rules : rules + length]


# --- weights ---------------------------------------------------------------------------------------------


class RowStream:
    """A compressed table of bytes. Rows are unpacked from the beginning, up to the last row that is read."""

    def __init__(self, packed: memoryview, columns: int) -> None:
        self._packed = packed
        self._columns = columns
        self._unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
        self._place = 0
        header = self._read(10)
        self._read(int.from_bytes(header[8:10], "little"))  # skip the shape and the type, which the caller knows

    def read_rows(self, count: int) -> npt.NDArray[np.uint8]:
        """The next `count` rows."""
        rows = np.frombuffer(self._read(count * self._columns), dtype=np.uint8)
        return rows.reshape(count, self._columns)

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            # Every call copies the rest of a piece, so pieces are small.
            given: bytes | memoryview = self._unpacking.unconsumed_tail
            if not given:
                given = self._packed[self._place : self._place + _PACKED_BYTES]
                self._place += len(given)
            if not given or self._unpacking.eof:
                raise ValueError("the weights end too early")
            parts.append(self._unpacking.decompress(given, size))
            size -= len(parts[-1])
        return b"".join(parts)


def _growing_backend(module: Any, path: Path, tokenizer: Any) -> Any:
    """The package's network. Only the part of its table of pieces that the texts so far need is unpacked."""
    parts: int = module._NUM_CHUNKS
    names = [f"q{number + 1}.npy" for number in range(parts)]

    class GrowingBackend(module.NumpyBackend):  # type: ignore[misc]
        def __init__(self) -> None:
            packed, dense = _contents(path, names)
            self._packed = packed
            self.sp = tokenizer
            self._threadpool = None  # `loom.blas` limits the threads
            # The system provides a page of memory only when a row is written to it.
            self.table = np.empty((parts * module._VOCAB_ROWS, module._EMB_DIM), dtype=np.uint8)
            self._filled = [0] * parts
            _set_layers(self, dense, len(module._ORDERS), module._EMB_DIM, module._CNN_DIM)
            self.after_fork()
            renew_after_fork(self)

        def after_fork(self) -> None:
            """In a child process, start unpacking again: a thread that was unpacking does not exist there."""
            self._lock = threading.Lock()
            self._streams: list[RowStream | None] = [None] * parts
            self._unpacked = [0] * parts

        def _encode_batch(self, group: Any, n_tokens: int, out: Any) -> None:
            highest = [0] * parts
            for piece in {piece for pieces in group for piece in pieces}:
                part = piece % parts
                highest[part] = max(highest[part], piece // parts + 1)
            for part, rows in enumerate(highest):
                if rows > self._filled[part]:
                    with self._lock:
                        self._fill(part, rows)
            super()._encode_batch(group, n_tokens, out)

        def _fill(self, part: int, rows: int) -> None:
            """Unpack the first `rows` rows of a part of the table."""
            while self._unpacked[part] < rows:
                stream = self._streams[part]
                if stream is None:
                    stream = self._streams[part] = RowStream(self._packed[part], module._EMB_DIM)
                first = self._unpacked[part]
                some = stream.read_rows(min(_AHEAD_ROWS, module._VOCAB_ROWS - first))
                self.table[part + first * parts :: parts][: len(some)] = some
                self._unpacked[part] = first + len(some)
            self._filled[part] = max(self._filled[part], self._unpacked[part])
            if self._filled[part] == module._VOCAB_ROWS:
                self._streams[part] = None

    return GrowingBackend()


def _contents(path: Path, packed: Sequence[str]) -> tuple[list[memoryview], dict[str, npt.NDArray[Any]]]:
    """The named members of an archive, still compressed, and all others as arrays."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        dense = {
            name.removesuffix(".npy"): np.load(BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist()
            if name not in packed
        }
        found: list[memoryview] = []
        for name in packed:
            info = archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_DEFLATED:
                raise ValueError(f"{name} is not compressed in the expected way")
            start = info.header_offset
            start += _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack_from(mapped, start))
            found.append(mapped[start : start + info.compress_size])
    return found, dense


def _set_layers(network: Any, dense: dict[str, npt.NDArray[Any]], orders: int, embedding: int, branch: int) -> None:
    """Set the layers of the network under the names that its encoder reads."""
    sizes = (2, 3, 5)
    network.proj_W = np.concatenate([dense[f"proj{size}"] for size in sizes], axis=1)
    for name, packed in (("proj_b", "proj_b"), ("ln_g_all", "ln_g"), ("ln_b_all", "ln_b")):
        setattr(network, name, np.concatenate([dense[f"{packed}{size}"] for size in sizes]))
    for name in ("w1", "b1", "w2", "b2"):
        setattr(network, name, [dense[f"{name}_{size}"] for size in sizes])
    for name in ("scale", "lo", "ln_g", "ln_b", "cnn_W", "cnn_b", "d0", "d1", "d2", "d3", "p1", "p3"):
        setattr(network, name, dense[name])
    network.eps = float(dense["eps"])
    network._feat_dim = embedding + orders * branch
