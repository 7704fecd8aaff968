"""Real child processes for the crash and stress tests: started, listened to, stopped and killed.

A child runs one role of `tests.crash.children`. It writes a line as soon as a write is acknowledged to it, in
one `write` call, so that whatever the parent reads was acknowledged before the kill.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

from loom.everyday import Memory
from tests.crash.children import unique_word
from tests.crash.forking import ROOT, start
from tests.tally import count

__all__ = ["ROOT", "Child", "Point", "assert_found", "assert_sound", "named", "point", "unique_word"]

Point = dict[str, Any]
"""Where a child is killed or stopped; see `tests.crash.children.arm`."""

# Counted once, however often they are looked for.
_looked_for: set[tuple[str, str]] = set()


def point(target: str, when: str, call: int = 1, signal: str = "SIGKILL") -> Point:
    """Before or after the n-th call of a step."""
    return {"target": target, "when": when, "call": call, "signal": signal}


def named(value: object) -> str:
    """A point, or another parameter of a test, as the id of that test."""
    return f"{value['when']} {value['target']} {value['call']}" if isinstance(value, dict) else str(value)


class Child:
    """A process that plays a role (see `tests.crash.forking`); killed at the latest when the block ends."""

    roles: ClassVar = "tests.crash.children"
    """The module with the roles."""

    def __init__(self, role: str, **arguments: Any) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self.process = start(self.roles, role, json.dumps(arguments), stderr=self._errors.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        count(processes=1, kills=self.process.wait() == -signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._errors.close()

    def line(self) -> str:
        """The next line it writes; it must write one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise AssertionError(f"the child ended with {code} instead of answering:\n{self.complaints()}")
        return line.rstrip("\n")

    def rest(self) -> list[str]:
        """Everything it still writes until it ends."""
        assert self.process.stdout is not None
        return [line.rstrip("\n") for line in self.process.stdout]

    def ask(self, verb: str, **arguments: Any) -> Any:
        """For the role `serve`: what a verb of its memory answers. An error there fails the test."""
        self.tell(verb, **arguments)
        return self.answer()

    def tell(self, verb: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([verb, arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        answer = json.loads(self.line())
        if isinstance(answer, Mapping) and "error" in answer:
            raise AssertionError(f"the child answered with an error: {answer['error']}\n{self.complaints()}")
        return answer

    def finish(self) -> list[str]:
        """Close its input, read the rest, and see that it ended well."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        lines = self.rest()
        code = self.process.wait()
        assert code == 0, f"the child ended with {code}:\n{self.complaints()}"
        return lines

    def kill(self) -> list[str]:
        """Send SIGKILL. Returns the lines that the process had written before."""
        self.process.send_signal(signal.SIGKILL)
        lines = self.rest()
        self.process.wait()
        return lines

    def wait_for_death(self) -> list[str]:
        """Wait until the process kills itself at its armed point. Returns the lines that it had written before."""
        lines = self.rest()
        code = self.process.wait()
        assert code == -signal.SIGKILL, f"the child ended with {code}, not killed:\n{self.complaints()}"
        return lines

    def wait_until_stopped(self) -> None:
        """Wait until all of the process is stopped, at its armed point."""
        found = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert found is not None
        assert found.si_code == os.CLD_STOPPED, f"the child ended instead of stopping:\n{self.complaints()}"

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")


def assert_found(memory: Memory, texts: Mapping[str, str]) -> None:
    """`get` returns each id with its text, and `recall` finds it first by its first word, which no other text has."""
    place = memory.store.location
    count(written=len({(place, name) for name in texts} - _looked_for))
    _looked_for.update((place, name) for name in texts)
    for name, text in texts.items():
        record = memory.get(name)
        count(lost=record is None)
        assert record is not None, f"{name} was acknowledged and is gone"
        assert record.content == text
        hits = memory.recall(text.split()[0], limit=1)
        assert [hit.id for hit in hits] == [name], f"{name} is not recalled by its own word"


def assert_sound(memory: Memory) -> None:
    """Nothing is damaged, and nothing was repaired.

    A killed process may leave an index file that it had not published yet; removing it is not a repair.
    """
    report = memory.check()
    assert report.problems == ()
    assert [line for line in report.repaired if "nothing refers to" not in line] == []
    assert memory.check().repaired == ()
