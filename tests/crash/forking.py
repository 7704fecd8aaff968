"""Child processes that are forked from a process in which everything is imported, because importing takes most of
the time of a test that kills a process.

One such process serves each process of pytest. It has one thread and nothing open, so a child of it is like a program
that has just imported its modules. On Linux the child becomes a child of the test (a subreaper adopts it), which can
wait for it. Elsewhere the same code runs in a new interpreter.

`python -m tests.crash.forking <descriptor>` is the process that forks.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO, Any, ClassVar

__all__ = ["ROOT", "Forked", "Process", "run", "start", "subreaper"]

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_CHILD_SUBREAPER = 36
_LARGEST = 1 << 20
# The rooms that open and search a store. Others are imported by the children that use them.
_ROOMS = ["everyday", "cli", "index", "storage", "snapshots", "recall", "tiers", "knowledge", "memory", "context"]
_ROLES = ("children", "tier_children", "pool_children")


class Forked:
    """A child process, as `subprocess.Popen` would show it: `stdin` and `stdout` are text."""

    def __init__(self, pid: int, stdin: IO[str], stdout: IO[str]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        code = self._waited(0)
        assert code is not None
        return code

    def _waited(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[str]


def start(program: str, *arguments: str, stderr: int) -> Process:
    """Start a module with a `main`, or the text of a program, with these arguments. Its errors go to a descriptor."""
    adopt = subreaper()
    if adopt is None:
        words = ["-m", program] if _is_module(program) else ["-c", program]
        return subprocess.Popen(
            [sys.executable, *words, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            bufsize=1,
        )
    given, to_child = os.pipe()
    from_child, said = os.pipe()
    request = json.dumps({"program": program, "arguments": arguments, "environ": dict(os.environ)})
    adopt(True)
    try:
        pid = _Nursery.of_this_process().fork(request, [given, said, stderr])
    finally:
        adopt(False)
        os.close(given)
        os.close(said)
    stdin = io.TextIOWrapper(os.fdopen(to_child, "wb", -1), line_buffering=True)
    return Forked(pid, stdin, os.fdopen(from_child, encoding="utf-8"))


def run(program: str, *arguments: str) -> CompletedProcess[str]:
    """Start a program with empty input, and wait until it ends."""
    with tempfile.TemporaryFile("w+") as errors:
        process = start(program, *arguments, stderr=errors.fileno())
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            process.stdin.close()
            told = process.stdout.read()
            code = process.wait()
        errors.seek(0)
        return CompletedProcess([program, *arguments], code, told, errors.read())


def _is_module(program: str) -> bool:
    return all(part.isidentifier() for part in program.split("."))


def subreaper() -> Callable[[bool], None] | None:
    """A function that lets this process adopt orphans below it, or None where that is unknown."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def adopt(orphans: bool) -> None:
        if prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(orphans), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")

    return adopt


class _Nursery:
    """The process that forks, and the socket to it."""

    _own: ClassVar[dict[int, _Nursery]] = {}

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forking", str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a fork copies one thread only
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    @classmethod
    def of_this_process(cls) -> _Nursery:
        # By process: a fork of the test must not use the socket of its parent.
        own = cls._own.get(os.getpid())
        if own is None:
            own = cls._own[os.getpid()] = cls()
            atexit.register(own.close)
        return own

    def fork(self, request: str, descriptors: list[int]) -> int:
        socket.send_fds(self._socket, [request.encode()], descriptors)
        answer = self._socket.recv(64)
        assert answer, "the process that forks the children has ended"
        return int(answer)

    def close(self) -> None:
        if self._process.poll() is None:
            self._socket.close()
            self._process.wait()


# --- the process that forks ------------------------------------------------------------------------------------


def _imported() -> None:
    """Import what children need."""
    for room in _ROOMS:
        module = importlib.import_module(f"loom.{room}")
        for one in pkgutil.walk_packages(getattr(module, "__path__", ()), f"loom.{room}."):
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(one.name)
    for role in _ROLES:
        importlib.import_module(f"tests.crash.{role}")


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork a child for each request. Returns its request in the child, and None in this process at the end."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _LARGEST, 3)
        if not message:
            return None
        reading, writing = os.pipe()
        middle = os.fork()
        if middle == 0:
            child = os.fork()
            if child:
                # The end of this process gives the child to the test.
                os.write(writing, str(child).encode())
                os._exit(0)
            os.close(reading)
            os.close(writing)
            connection.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            request: dict[str, Any] = json.loads(message)
            return request
        os.waitpid(middle, 0)
        os.close(writing)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(os.read(reading, 64))
        os.close(reading)


def main() -> None:
    _imported()
    connection = socket.socket(fileno=int(sys.argv[1]))
    request = serve(connection)
    if request is None:
        return
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    program = request["program"]
    sys.argv = [program, *request["arguments"]]
    if _is_module(program):
        importlib.import_module(program).main()
    else:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
