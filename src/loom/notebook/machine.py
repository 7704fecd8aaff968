"""The machine that runs a task process. All state is in the file, so a killed run continues at the right step.

    machine = Machine(folder / "task_process.md", functions={"fetch": fetch}, do=agent_does)
    report = machine.run(max_steps=1000)

Each step reads the file, carries out one item, and replaces the file atomically. Only registered functions can be
called. An item that is only text is passed to `do`; without `do`, the process waits there for a person.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from loom.checks import checked_whole
from loom.errors import InvalidInput, LoomError, NotFound
from loom.notebook.expressions import Value, evaluate
from loom.notebook.grammar import (
    Add,
    Assign,
    Branch,
    Call,
    Continue,
    Goto,
    Instruction,
    Retry,
    Run,
    Stop,
    labelled,
    parse,
)
from loom.notebook.note_files import locked, read_text, write_text
from loom.notebook.process import TaskProcess

__all__ = ["Machine", "Outcome", "Report", "Steps"]

_DEEPEST = 20
# Variables that every condition may use, even if they are not set yet.
_GIVEN: Mapping[str, Value] = {"error": "", "result": ""}


class Outcome(StrEnum):
    """The reason why a run ended."""

    DONE = "done"
    WAITING = "waiting"
    """A person or an agent must carry out an item; `Machine.complete` reports it done."""
    FAILED = "failed"
    OUT_OF_STEPS = "out of steps"


class Report(NamedTuple):
    """The result of a run. `process` is the state in the file, and `message` explains the outcome."""

    outcome: Outcome
    steps: int
    process: TaskProcess
    message: str = ""


@dataclass(slots=True)
class Steps:
    """The steps that a run has left, shared with its sub-processes."""

    left: int
    used: int = 0

    def spend(self) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        self.used += 1
        return True


# The beginning of a message that names a file and a line, and the variables that name the sub-processes.
_PLACE = re.compile(r"[^/\s]+\.md, line \d")
_BEGUN = re.compile(r"run_\d+")

Transition = Callable[[TaskProcess], TaskProcess]
"""The change of a process by one step. It may be applied a second time, to a file that was edited meanwhile."""

_TRIES = 20


class _Halt(Exception):
    """Stops a run. `then` is the change of the process."""

    def __init__(self, outcome: Outcome, message: str, then: Transition) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.then = then


class Machine:
    """Runs the process in a file. Items may call `functions` by their names.

    `do` carries out an item that is text: it receives the text and the variables, and returns a result or raises an
    error. If the program is killed during a function, the function is called again, so it must be safe to repeat. The
    file may be edited while the process runs; only a change of the current item stops the run.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        do: Callable[[str, Mapping[str, Value]], Any] | None = None,
        depth: int = 0,
    ) -> None:
        self.path = Path(path)
        self._functions = dict(functions or {})
        self._do = do
        self._depth = depth

    def state(self) -> TaskProcess:
        """Return the process in the file."""
        if not self.path.exists():
            raise NotFound(f"there is no task process at {self.path}")
        return TaskProcess.parse(read_text(self.path), str(self.path))

    def run(self, max_steps: int = 1000) -> Report:
        """Run until the process ends, waits, fails, or has made `max_steps` steps."""
        return self.go_on(Steps(checked_whole(max_steps, "max_steps", 1)))

    def step(self) -> Report:
        """Carry out one item."""
        return self.run(1)

    def complete(self, result: Value = "", *, error: str = "") -> TaskProcess:
        """Report the item at which the process waits as done or failed. The rules decide the next step."""
        with locked(self.path.parent):
            process = self.state()
            if process.current is None:
                raise InvalidInput(f"{self.path}: all items are done")
            try:
                then = self._judged(process.in_phase("executing"), result, error)
            except _Halt as halt:
                then = halt.then
            return self._commit(process, lambda now: then(now.in_phase("executing")))

    # -- steps -----------------------------------------------------------------------------------------

    def go_on(self, steps: Steps) -> Report:
        """Do the same as `run`, with steps shared with other processes."""
        while True:
            with locked(self.path.parent):
                process = self.state()
                if process.is_finished:
                    if process.current is None and process.phase != "done":
                        process = self._commit(process, lambda now: now.in_phase("done"))
                    return Report(Outcome.DONE, steps.used, process)
                if not steps.spend():
                    message = (
                        f"stopped after {steps.used:,} steps at item {process.pointer} of {self.path.name}: run it "
                        "again to continue, or look for a loop"
                    )
                    return Report(Outcome.OUT_OF_STEPS, steps.used, process, message)
                try:
                    self._commit(process, self._stepped(process, steps))
                except _Halt as halt:
                    return Report(halt.outcome, steps.used, self._commit(process, halt.then), str(halt))
                except InvalidInput as error:
                    line = process.current.line + 1 if process.current is not None else 1
                    message = f"{self.path.name}, line {line}: {error}"
                    failed = self._commit(process, lambda now: now.assigned("error", message).in_phase("failed"))  # noqa: B023
                    return Report(Outcome.FAILED, steps.used, failed, message)

    def _commit(self, process: TaskProcess, then: Transition) -> TaskProcess:
        """Write the change of a process to its file. Edits made meanwhile are kept."""
        for _ in range(_TRIES):
            now = self.state()
            if (now.pointer, _text(now)) != (process.pointer, _text(process)):
                raise InvalidInput(f"the current item of {self.path.name} was changed while it was carried out")
            made = then(now)
            if read_text(self.path) == now.text:
                write_text(self.path, made.text)
                return made
        raise InvalidInput(f"{self.path.name} is edited continuously; run it again later")

    def _stepped(self, process: TaskProcess, steps: Steps) -> Transition:
        """Carry out the current item and return the change of the process."""
        text = _text(process)
        instruction = parse(text)
        then = (
            self._done_by_another(process, text) if instruction is None else self._done(process, instruction, steps)
        )
        return lambda now: then(now if now.phase == "executing" else now.in_phase("executing"))

    def _done_by_another(self, process: TaskProcess, text: str) -> Transition:
        if self._do is None:
            raise _Halt(Outcome.WAITING, f"waits for: {text}", lambda now: now.in_phase("waiting"))
        do = self._do
        return self._tried(process, lambda: do(text, dict(process.variables)))

    def _done(self, process: TaskProcess, instruction: Instruction, steps: Steps) -> Transition:
        match instruction:
            case Assign(name, expression):
                value = _value(process, expression)
                return lambda now: now.assigned(name, value).ticked()
            case Branch(condition, then, otherwise):
                return self._done(process, then if _value(process, condition) else otherwise, steps)
            case Goto(place):
                process.place_of(place)  # raises before anything is written
                return lambda now: now.moved(now.place_of(place))
            case Add(expression, at_end):
                text = str(_value(process, expression))
                return lambda now: now.with_item(text, at_end=at_end).ticked()
            case Call():
                return self._called(process, instruction)
            case Run():
                return self._ran(process, instruction, steps)
            case Retry():
                return lambda now: now
            case Continue():
                return TaskProcess.ticked
            case Stop():
                return lambda now: now.ticked().in_phase("stopped")

    def _called(self, process: TaskProcess, call: Call) -> Transition:
        function = self._functions.get(call.function)
        if function is None:
            known = ", ".join(self._functions) or "none"
            raise InvalidInput(f"there is no function {call.function!r}; the registered functions are {known}")
        arguments = {name: _value(process, expression) for name, expression in call.arguments}
        return self._tried(process, lambda: function(**arguments), call.result)

    def _tried(self, process: TaskProcess, work: Callable[[], Any], into: str | None = None) -> Transition:
        try:
            result, error = _as_value(work()), ""
        except Exception as failure:  # rules judge every failure
            result, error = "", _reason(failure)
        return self._judged(process, result, error, into)

    def _ran(self, process: TaskProcess, run: Run, steps: Steps) -> Transition:
        """Run the sub-process of an item to its end; start it if it was not started before."""
        if self._depth >= _DEEPEST:
            raise InvalidInput(f"processes are nested deeper than {_DEEPEST} levels")
        name = f"run_{process.pointer}"
        begun = str(process.variables.get(name) or "")
        if not begun:
            begun = self._instance(run.file, {key: _value(process, one) for key, one in run.arguments})
            process = self._commit(process, lambda now: now.assigned(name, begun))
        path = self._beside(begun)
        report = Machine(path, functions=self._functions, do=self._do, depth=self._depth + 1).go_on(steps)
        if report.outcome is not Outcome.DONE:
            phase = "executing" if report.outcome is Outcome.OUT_OF_STEPS else str(report.outcome)
            # A failure names its own file and line already.
            message = report.message if _PLACE.match(report.message) else f"{begun}: {report.message}"
            raise _Halt(report.outcome, message, lambda now: now.in_phase(phase))
        result = report.process.variables.get("result", "")
        then = self._judged(process.assigned(name, ""), result, "", run.result)
        return lambda now: then(now.assigned(name, ""))

    def _instance(self, file: str, variables: Mapping[str, Value]) -> str:
        """Write the file of a new process whose program is in another file, and return its name."""
        program = self._beside(file)
        if not program.exists():
            raise InvalidInput(f"there is no process {file!r} in the folder of {self.path.name}")
        process = TaskProcess.parse(read_text(program), file).moved(1, phase="executing")
        for name in filter(_BEGUN.fullmatch, process.variables):
            process = process.assigned(name, "")  # the program file may itself be a process that is running
        for name, value in variables.items():
            process = process.assigned(name, value)
        number = 1
        while (path := program.with_name(f"{program.stem}.{number}.md")).exists():
            number += 1
        write_text(path, process.text)
        return path.name

    def _beside(self, file: str) -> Path:
        """Return the path of a file in the folder of this process. Other folders are refused."""
        if Path(file).name != file or not file.endswith(".md") or file.startswith("."):
            raise InvalidInput(f"{file!r} is not the name of a Markdown file in the same folder")
        return self.path.parent / file

    def _judged(self, process: TaskProcess, result: Value, error: str, into: str | None = None) -> Transition:
        """Return the change of a process after an item was carried out.

        The first rule whose result is not CONTINUE decides. Without rules, an error ends the run.
        """

        def noted(now: TaskProcess) -> TaskProcess:
            told = now.assigned("result", result).assigned("error", error)
            return told if into is None or error else told.assigned(into, result)

        judged = noted(process)
        rules = [one for rule in judged.rules if isinstance(one := parse(rule, any_case=True), Branch)]
        for rule in rules:
            chosen: Instruction = rule
            while isinstance(chosen, Branch):
                chosen = chosen.then if _value(judged, chosen.condition) else chosen.otherwise
            if not isinstance(chosen, Continue):
                then = self._done(judged, chosen, Steps(0))
                return lambda now: then(noted(now))
        if error and not rules:
            raise _Halt(Outcome.FAILED, error, lambda now: noted(now).in_phase("failed"))
        return lambda now: noted(now).ticked()


def _text(process: TaskProcess) -> str:
    """Return the current item without its label."""
    return "" if process.current is None else labelled(process.current.text)[1]


def _value(process: TaskProcess, expression: str) -> Value:
    return evaluate(expression, {**_GIVEN, **process.variables})


def _as_value(result: Any) -> Value:
    """Return the result of a function as a value. Results other than texts, numbers and booleans become JSON."""
    if result is None:
        return ""
    if isinstance(result, bool | int | float | str):
        return result
    return json.dumps(result, ensure_ascii=False, default=str)


def _reason(error: Exception) -> str:
    told = str(error) if isinstance(error, LoomError) else f"{type(error).__name__}: {error}"
    return told or type(error).__name__
