"""Fault injection: system calls of a real process fail at a chosen step.

`Nursery` is a process with the shim in it, which forks one child for each half of a case: one meets the fault, the
next, without it, opens what is there. `python -m tests.faults.injection <shim> <requests> <answers>` is that process.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.faults import operations
from tests.faults.operations import AFTERWARDS, HARMS, OPERATIONS, Operation
from tests.tally import count

__all__ = ["ACTIONS", "KINDS", "Fault", "Nursery", "build_shim", "what_is_wrong"]

ROOT = Path(__file__).resolve().parents[2]
_LONGEST_S = 60.0

KINDS = ("open", "read", "write", "sync", "truncate", "rename", "unlink", "map", "lock", "stat", "list")
"""The kinds of system call, in the order of the shim."""

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "open": ("EACCES", "EIO", "ENOSPC", "EMFILE", "EINTR"),
    "read": ("EIO", "EINTR", "short"),
    "write": ("ENOSPC", "EIO", "EINTR", "short", "torn"),
    "sync": ("EIO", "ENOSPC", "EINTR"),
    "truncate": ("EIO", "ENOSPC", "EINTR"),
    "rename": ("EACCES", "EIO", "ENOSPC"),
    "unlink": ("EACCES", "EIO"),
    "map": ("ENOMEM", "EIO"),
    "lock": ("EIO", "ENOLCK"),
    "stat": ("EIO", "EACCES"),
    "list": ("EIO", "EACCES"),
}
"""What may happen to each."""

_HALVES = {"short": -1, "torn": -2}

# SQLite does not tell why a file failed, only what failed.
_SQLITE_WORDS = "disk I/O error|unable to open|readonly database|malformed|busy_timeout_s|locked like one"
_FULL = f"no space left for|{os.strerror(errno.ENOSPC)}"
_WORDS = {"short": _FULL, "torn": f"{_FULL}|{os.strerror(errno.EIO)}"}


@dataclass(frozen=True)
class Fault:
    """The `nth` call of a kind fails; with `lasting`, all later ones do too."""

    kind: str
    nth: int
    action: str
    lasting: bool = False

    @property
    def harmless(self) -> bool:
        """Whether POSIX asks every program to carry on: an interrupted or short transfer is tried again."""
        transfers = ("open", "read", "write")
        return not self.lasting and self.kind in transfers and self.action in ("EINTR", "short")

    def is_named_by(self, message: str) -> bool:
        """Whether an error says what went wrong, in the words of the system or of SQLite."""
        words = _WORDS.get(self.action) or f"no space left for|{os.strerror(getattr(errno, self.action))}"
        return re.search(f"{words}|{_SQLITE_WORDS}", message) is not None

    def __str__(self) -> str:
        return f"{self.action} at {self.kind} {self.nth}{' and from then on' if self.lasting else ''}"


def build_shim(folder: Path) -> Path | None:
    """The compiled shim, or None where it cannot be had."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    shim = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    return shim


class Nursery:
    """A process with the shim, out of which every case is forked."""

    def __init__(self, shim: Path) -> None:
        self._errors = tempfile.TemporaryFile("ab+")  # noqa: SIM115 - lives as long as the process
        requests, self._to = os.pipe()
        self._from, answers = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.injection", str(shim), str(requests), str(answers)],
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": str(shim)},
            pass_fds=(requests, answers),
            stdout=self._errors,
            stderr=self._errors,
        )
        os.close(requests)
        os.close(answers)
        self._answers = os.fdopen(self._from, encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        self._process.wait()
        self._answers.close()
        self._errors.close()

    def ask(
        self, half: str, folder: Path, operation: str, fault: Fault | None = None, harm: str | None = None
    ) -> dict[str, Any]:
        """The report of a child; `died` if it ended without one."""
        request = {
            "half": half,
            "folder": str(folder),
            "operation": operation,
            "fault": fault and asdict(fault),
            "harm": harm,
        }
        os.write(self._to, json.dumps(request).encode() + b"\n")
        line = self._answers.readline()
        assert line, f"the nursery ended:\n{self._complaints()}"
        count(processes=1)
        told: dict[str, Any] = json.loads(line)
        if "died" in told:
            told["trace"] = self._complaints()
        return told

    def _complaints(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        self._errors.truncate(0)
        return text


def what_is_wrong(
    nursery: Nursery, folder: Path, operation: str, fault: Fault | None = None, harm: str | None = None
) -> Iterator[str]:
    """Every promise that one operation breaks when it meets a fault or a harm; yields nothing where all hold."""
    met = nursery.ask("act", folder, operation, fault, harm)
    lasting = harm is not None and HARMS[harm].lasting
    count(faults=1 if harm else met.get("injected", 0))
    if "died" in met:
        yield f"the process ended with {met['died']}: {met['trace']}"
    for step in ("error", "then", "close"):
        error = met.get(step)
        if error is None:
            continue
        if not error["ours"]:
            yield f"{step}: a foreign error: {error['message']}"
        elif step != "error" and not lasting:
            yield f"{step}: still failing when the fault was gone: {error['kind']}: {error['message']}"
        elif fault is not None and fault.harmless:
            yield f"an error for what is only to be tried again: {error['kind']}: {error['message']}"
        elif fault is not None and not fault.is_named_by(error["message"]):
            yield f"an error that does not name the fault: {error['kind']}: {error['message']}"
    yield from (f"in a thread: {trace}" for trace in met.get("threads", ()))
    found = nursery.ask("look", folder, operation)
    if "died" in found:
        yield f"using it again ends with {found['died']}: {found['trace']}"
    if "before" in met and lasting:
        yield from _lost_in_silence(OPERATIONS[operation], met, found)
    elif "refused" in found:
        yield f"it does not open again: {found['refused']}"
    elif "before" in met and "texts" in found:
        yield from _wrong_texts(OPERATIONS[operation], met, found)
        if found["left"] and not (fault and fault.kind == "unlink"):
            yield f"files are left behind: {found['left']}"


def _lost_in_silence(operation: Operation, met: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Writes acknowledged after the damage are kept, or their loss is reported: by an error, or by check()."""
    told = any(met[step] for step in ("error", "then", "close")) or "refused" in found or found.get("problems")
    new = dict(operation.result(met["before"]))
    acknowledged = {name for name in new if name not in met["before"]} | set(AFTERWARDS)
    missing = acknowledged - found.get("texts", {}).keys()
    count(written=len(acknowledged), lost=0 if told else len(missing))
    if missing and not told:
        yield f"acknowledged and gone, and nobody is told: {sorted(missing)}"


def _wrong_texts(operation: Operation, met: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    old, new = dict(met["before"]), dict(operation.result(met["before"]))
    later = {} if met["then"] else AFTERWARDS
    allowed = [{**new, **later}] + ([{**old, **later}] if met["error"] else [])
    count(written=len(allowed[0]))
    if found["texts"] not in allowed:
        missing = {**old, **later}.keys() & new.keys() - found["texts"].keys()
        count(lost=len(missing))
        yield f"neither the old nor the new state: missing {sorted(missing)}, has {sorted(found['texts'])}"
    if operation.made is not None:
        whole = [dict(operation.complete)] + ([operation.earlier] if met["error"] else [])
        if found["made"] not in [None if texts is None else dict(texts) for texts in whole]:
            yield f"what was made holds {found['made'] and sorted(found['made'])}"
    for promise, kept in (
        ("check() finds problems", not found["problems"]),
        ("check() finds problems afterwards", found["sound"]),
        ("flush() is not complete", found["complete"]),
        ("texts are not recalled by their words", not found["lost words"]),
    ):
        if not kept:
            yield f"{promise}: {found['problems'] or found['lost words']}"


# -- inside the nursery --------------------------------------------------------------------------------------


def _serve(shim: ctypes.CDLL, requests: int, answers: int) -> None:
    with os.fdopen(requests, encoding="utf-8") as lines:
        for line in lines:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                _live(shim, json.loads(line), write)
            os.close(write)
            with os.fdopen(read, "rb") as pipe:
                told = pipe.read()
            _, status = os.waitpid(child, 0)
            if status or not told:
                code = os.waitstatus_to_exitcode(status)
                told = json.dumps({"died": signal.Signals(-code).name if code < 0 else f"exit code {code}"}).encode()
            os.write(answers, told + b"\n")


def _live(shim: ctypes.CDLL, request: Mapping[str, Any], pipe: int) -> None:
    """One half of a case; never returns."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(_LONGEST_S, exit=True)
    threads: list[str] = []
    threading.excepthook = lambda met: threads.append("".join(traceback.format_exception(met.exc_value)))
    folder, operation = Path(request["folder"]), OPERATIONS[request["operation"]]
    try:
        if request["half"] == "act":
            shim.shim_watch(os.fsencode(folder))
            harm = request["harm"] and functools.partial(HARMS[request["harm"]].do, folder)
            begin = harm or _arming(shim, request["fault"])
            told = operations.act(folder, operation, begin, shim.shim_disarm, used=bool(harm))
            told["counts"] = {kind: shim.shim_count(number) for number, kind in enumerate(KINDS)}
            told["injected"] = shim.shim_injected()
        else:
            told = operations.look(folder, operation)
        told["threads"] = threads
        os.write(pipe, json.dumps(told).encode())
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _arming(shim: ctypes.CDLL, fault: Mapping[str, Any] | None) -> Callable[[], object]:
    if fault is None:
        return lambda: shim.shim_arm(-1, 0, 0, 0)
    action = _HALVES.get(fault["action"]) or getattr(errno, fault["action"])
    arguments = (KINDS.index(fault["kind"]), fault["nth"], action, int(fault["lasting"]))
    return lambda: shim.shim_arm(*arguments)


def _main() -> None:
    shim = ctypes.CDLL(sys.argv[1])
    shim.shim_count.restype = shim.shim_injected.restype = ctypes.c_long
    shim.shim_arm.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    with tempfile.TemporaryDirectory() as folder:  # what is loaded at its first use is loaded before the forks
        operations.make_template(Path(folder))
        for operation in OPERATIONS.values():
            operations.act(Path(folder), operation, lambda: None, lambda: None)
        operations.look(Path(folder), OPERATIONS["snapshot"])
    _serve(shim, int(sys.argv[2]), int(sys.argv[3]))


if __name__ == "__main__":
    _main()
