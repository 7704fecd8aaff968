"""Our own matrix products have one thread, and the process keeps the number it has set."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from loom.blas import one_thread
from loom.models.embedders import Matrix, OfflineModel


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Whatever the machine has: a process that asked for two."""
    limit = one_thread()
    before = limit.get()
    limit.put(2)
    if limit.get() != 2:
        pytest.skip("numpy is not linked with OpenBLAS here, or has one thread at most")
    yield
    limit.put(before)


def test_inside_there_is_one_thread_and_outside_what_was_before() -> None:
    with one_thread():
        assert one_thread().get() == 1
        with one_thread():
            assert one_thread().get() == 1
        assert one_thread().get() == 1
    assert one_thread().get() == 2
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert one_thread().get() == 2


def test_a_number_that_is_set_meanwhile_stays() -> None:
    with one_thread():
        one_thread().put(2)
    assert one_thread().get() == 2


def test_the_last_of_several_threads_puts_it_back() -> None:
    seen: list[int] = []
    first_in, second_out = threading.Event(), threading.Event()

    def long() -> None:
        with one_thread():
            first_in.set()
            second_out.wait(30)
            seen.append(one_thread().get())

    thread = threading.Thread(target=long)
    thread.start()
    first_in.wait(30)
    with one_thread():
        pass
    assert one_thread().get() == 1
    second_out.set()
    thread.join()
    assert seen == [1]
    assert one_thread().get() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_was_forked_inside_has_the_number_of_before() -> None:
    with one_thread():
        child = os.fork()
        if child == 0:
            outside = one_thread().get() == 2
            with one_thread():
                inside = one_thread().get() == 1
            os._exit(0 if inside and outside and one_thread().get() == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert one_thread().get() == 2


def test_embedding_has_one_thread() -> None:
    seen: list[int] = []

    def encode(texts: list[str]) -> Matrix:
        seen.append(one_thread().get())
        return np.ones((len(texts), 512), dtype=np.float32)

    OfflineModel(encode).raw(["a", "b"])
    assert set(seen) == {1}
    assert one_thread().get() == 2
