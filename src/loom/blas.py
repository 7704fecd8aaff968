"""One thread for numpy's matrix products, while this package computes them.

Its matrices are small: with the default threads, OpenBLAS spends more time on waking and waiting for them than on the
product. Embedding a question took 33 ms CPU on two idle cores and 69 on busy ones, with one thread 2.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Final

from loom.forks import renew_after_fork

__all__ = ["one_thread"]

# The names of OpenBLAS in numpy's wheels, in those of conda and in distributions.
_NAMES: Final = (
    "scipy_openblas_{}64_",
    "scipy_openblas_{}",
    "openblas_{}64_",
    "openblas_{}_64",
    "openblas_{}",
)


class _Limit:
    """Holds the number of threads at one while any thread of ours is inside; the last one out puts it back.

    OpenBLAS has one number for the whole process. Products that other threads begin meanwhile have one thread too,
    for the milliseconds that ours take; what the process has set is untouched afterwards.
    """

    def __init__(self, get: Callable[[], int], put: Callable[[int], object]) -> None:
        self.get = get
        self.put = put
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = self.get()
                if self._before > 1:
                    self.put(1)
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside = max(0, self._inside - 1)  # a fork inside has set it to 0
            # Another number than one was set by somebody else meanwhile, and stays.
            if self._inside == 0 and self._before > 1 and self.get() == 1:
                self.put(self._before)

    def after_fork(self) -> None:
        """In a child: the other threads of the parent are not there to leave."""
        self._lock = threading.Lock()
        if self._inside and self._before > 1:
            self.put(self._before)
        self._inside = 0


def _functions() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """OpenBLAS's getter and setter, where numpy is linked with it."""
    try:
        numpy_core = importlib.import_module("numpy._core._multiarray_umath")
        # A library that is loaded already; its symbols include those of the libraries it needs.
        library = ctypes.CDLL(str(numpy_core.__file__))
    except (ImportError, OSError, AttributeError):
        return None
    for name in _NAMES:
        get = getattr(library, name.format("get_num_threads"), None)
        put = getattr(library, name.format("set_num_threads"), None)
        if get is not None and put is not None:
            get.restype, get.argtypes = ctypes.c_int, []
            put.restype, put.argtypes = None, [ctypes.c_int]
            return get, put
    return None


@cache
def one_thread() -> _Limit:
    """A context in which products have one thread; without OpenBLAS it changes nothing."""
    limit = _Limit(*(_functions() or (lambda: 1, lambda _: None)))
    renew_after_fork(limit)
    return limit
