"""Compute the matrix products of this package with one thread of OpenBLAS.

The matrices are small: with its default threads, OpenBLAS spends more time on waking and waiting for them than on the
product. Embedding a question took 33 ms of CPU on two idle cores and 69 ms on busy ones; with one thread it takes 2
ms.
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

# The symbols of OpenBLAS in the wheels of numpy, in conda packages and in distributions.
_NAMES: Final = (
    "scipy_openblas_{}64_",
    "scipy_openblas_{}",
    "openblas_{}64_",
    "openblas_{}_64",
    "openblas_{}",
)


class _Limit:
    """Limits OpenBLAS to one thread while any thread is inside the context; the last one to leave restores the
    number.

    The number applies to the whole process. Products that other threads begin meanwhile also use one thread, for the
    few milliseconds of the context. Afterwards the setting of the process is in effect again.
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
            # If other code has set another number meanwhile, that number stays.
            if self._inside == 0 and self._before > 1 and self.get() == 1:
                self.put(self._before)

    def after_fork(self) -> None:
        """Reset the state in a forked child, which has no other threads of the parent."""
        self._lock = threading.Lock()
        if self._inside and self._before > 1:
            self.put(self._before)
        self._inside = 0


def _functions() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """Return the getter and setter of OpenBLAS, or None if numpy is not linked with it."""
    try:
        numpy_core = importlib.import_module("numpy._core._multiarray_umath")
        # The library is already loaded; its symbols include those of its dependencies.
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
    """Return a context in which products use one thread. Without OpenBLAS it has no effect."""
    limit = _Limit(*(_functions() or (lambda: 1, lambda _: None)))
    renew_after_fork(limit)
    return limit
