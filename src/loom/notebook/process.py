"""`task_process.md`: the state of a task as Markdown, which is read and changed in place.

    # Task Process
    ## 当前状态 / ## State            - 指令指针: 3 / - Pointer: 3      - 阶段: executing / - Phase: executing
    ## 变量 / ## Variables            - a: 48
    ## TODO列表 / ## TODO             - [x] done      - [ ] to do  ← 当前
    ## 动态指令 / ## Rules            IF error THEN RETRY ELSE CONTINUE

Everything else in the file belongs to its author. A change affects only the lines concerned; every other byte stays
as it is, including line ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loom.errors import InvalidInput
from loom.notebook.expressions import Value, literal, value_of
from loom.notebook.grammar import labelled

__all__ = ["Item", "TaskProcess", "new_process"]

_MARKS = {True: "← 当前", False: "← current"}
_CURRENT = re.compile(r"\s*←\s*(?:当前|current)\s*$", re.IGNORECASE)
_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*\s*$")
_ITEM = re.compile(r"(\s*[-*+]\s+\[)([ xX])(\]\s*)(.*)$")
_FIELD = re.compile(r"(\s*[-*+]\s+)([^:：]{1,60}?)(\s*[:：]\s*)(.*)$")
_FENCE = re.compile(r"\s*(?:```|~~~)")

_SECTIONS = {
    "state": ("当前状态", "state", "current state"),
    "variables": ("变量", "variables"),
    "todo": ("todo列表", "todo", "todo list", "任务列表"),
    "rules": ("动态指令", "rules", "dynamic instructions"),
}
# The headings of new sections, in English and in Chinese.
_HEADINGS = {
    "state": ("State", "当前状态"),
    "variables": ("Variables", "变量"),
    "todo": ("TODO", "TODO列表"),
    "rules": ("Rules", "动态指令"),
}
_POINTER = ("指令指针", "pointer", "instruction pointer")
_PHASE = ("阶段", "phase")


@dataclass(frozen=True, slots=True)
class Item:
    """An item of the TODO list: its text (without the mark of the current item), its state, and its line from 0."""

    text: str
    done: bool
    line: int

    @property
    def label(self) -> str | None:
        return labelled(self.text)[0]


@dataclass(frozen=True, slots=True)
class TaskProcess:
    """A task process, as its file describes it. Immutable: a change returns a new one, whose `text` is the new file.

    `pointer` is the place of the current item, from 1. After the last item, it is one more than the number of items.
    """

    text: str
    pointer: int = 1
    phase: str = "executing"
    items: tuple[Item, ...] = ()
    variables: Mapping[str, Value] = field(default_factory=dict)
    rules: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, name: str = "task_process.md") -> TaskProcess:
        """Parse a file. Missing parts have defaults. Raises `InvalidInput`, with the line, if the pointer is
        invalid."""
        lines = _lines(text)
        places = _sections(lines)
        items = tuple(
            Item(_CURRENT.sub("", found[4]), found[2] != " ", at)
            for at in _within(lines, places, "todo")
            if (found := _ITEM.match(_bare(lines[at])))
        )
        pointer, phase = None, "executing"
        for at in _within(lines, places, "state"):
            told = _FIELD.match(_bare(lines[at]))
            if told is None:
                continue
            key, value = told[2].strip().lower(), told[4].strip()
            if key in _POINTER:
                pointer = _pointer(value, len(items), f"{name}, line {at + 1}")
            elif key in _PHASE and value:
                phase = value
        if pointer is None:
            pointer = next((at for at, item in enumerate(items, 1) if not item.done), len(items) + 1)
        variables = {
            found[2].strip(): value_of(found[4])
            for at in _within(lines, places, "variables")
            if (found := _FIELD.match(_bare(lines[at])))
        }
        rules = tuple(_rule(lines[at]) for at in _within(lines, places, "rules") if _rule(lines[at]))
        return cls(text, pointer, phase, items, variables, rules)

    @property
    def current(self) -> Item | None:
        """The current item; None at the end."""
        return self.items[self.pointer - 1] if self.pointer <= len(self.items) else None

    @property
    def is_finished(self) -> bool:
        """True if all items are done, or one of them was STOP."""
        return self.current is None or self.phase == "stopped"

    def place_of(self, target: int | str) -> int:
        """Return the place of an item, by its number or label."""
        if isinstance(target, int):
            if not 1 <= target <= len(self.items) + 1:
                raise InvalidInput(f"there is no item {target}; the list has {len(self.items)}")
            return target
        places = [at for at, item in enumerate(self.items, 1) if item.label == target]
        if len(places) != 1:
            raise InvalidInput(f"{len(places) or 'no'} items have the label @{target}; exactly one must have it")
        return places[0]

    # -- changing --------------------------------------------------------------------------------------

    def moved(self, pointer: int, *, phase: str | None = None) -> TaskProcess:
        """Return the process with the pointer at another item. Moving back reopens the items in between."""
        lines = _lines(self.text)
        for at, item in enumerate(self.items, 1):
            done = item.done if at < pointer or at > self.pointer else False
            if pointer <= self.pointer and done != item.done:
                lines[item.line] = _ticked(lines[item.line], done)
        return self._rewritten(lines, pointer, self.phase if phase is None else phase)

    def ticked(self) -> TaskProcess:
        """Return the process with the current item done and the pointer at the next one."""
        lines = _lines(self.text)
        if self.current is not None:
            lines[self.current.line] = _ticked(lines[self.current.line], True)
        return self._rewritten(lines, self.pointer + 1, self.phase)

    def in_phase(self, phase: str) -> TaskProcess:
        """Return the process in another phase."""
        return self._rewritten(_lines(self.text), self.pointer, phase)

    def assigned(self, name: str, value: Value) -> TaskProcess:
        """Return the process with a value assigned to a variable."""
        lines = _lines(self.text)
        for at in _within(lines, _sections(lines), "variables"):
            found = _FIELD.match(_bare(lines[at]))
            if found is not None and found[2].strip() == name:
                lines[at] = f"{found[1]}{found[2]}{found[3]}{literal(value)}{_ending(lines[at])}"
                break
        else:
            _add(lines, "variables", f"- {name}: {literal(value)}", self.text)
        return TaskProcess.parse("".join(lines))

    def with_item(self, text: str, *, at_end: bool = False) -> TaskProcess:
        """Return the process with an additional item, after the current one or at the end of the list."""
        line = " ".join(text.split())
        if not line:
            raise InvalidInput("an item of the TODO list needs a text")
        lines = _lines(self.text)
        after = self.items[-1] if at_end and self.items else self.current or (self.items[-1] if self.items else None)
        if after is None:
            _add(lines, "todo", f"- [ ] {line}", self.text)
        else:
            _insert(lines, after.line + 1, [f"- [ ] {line}"], self.text)
        return TaskProcess.parse("".join(lines)).moved(self.pointer, phase=self.phase)

    def _rewritten(self, lines: list[str], pointer: int, phase: str) -> TaskProcess:
        """Return the process of these lines with the given pointer and phase, and the current item marked."""
        for at, item in enumerate(self.items, 1):
            line, ending = _bare(lines[item.line]), _ending(lines[item.line])
            marked = _CURRENT.search(line) is not None
            if at == pointer and not marked:
                lines[item.line] = f"{line.rstrip()}  {_MARKS[_is_chinese(self.text)]}{ending}"
            elif at != pointer and marked:
                lines[item.line] = f"{_CURRENT.sub('', line)}{ending}"
        _put_field(lines, _POINTER, str(pointer), self.text)
        _put_field(lines, _PHASE, phase, self.text)
        return TaskProcess.parse("".join(lines))


def new_process(
    steps: Sequence[str],
    *,
    rules: Sequence[str] = (),
    variables: Mapping[str, Value] | None = None,
    chinese: bool = False,
) -> TaskProcess:
    """Return a new process with these steps, rules and variables."""
    state, values, todo, told = (names[chinese] for names in _HEADINGS.values())
    pointer, phase = (names[0] if chinese else names[1].capitalize() for names in (_POINTER, _PHASE))
    lines = ["# Task Process", "", f"## {state}", f"- {pointer}: 1", f"- {phase}: executing", ""]
    if variables:
        lines += [f"## {values}", *(f"- {name}: {literal(value)}" for name, value in variables.items()), ""]
    lines += [f"## {todo}", *(f"- [ ] {' '.join(step.split())}" for step in steps), ""]
    if rules:
        lines += [f"## {told}", *rules, ""]
    return TaskProcess.parse("\n".join(lines)).moved(1)


# --- lines -------------------------------------------------------------------------------------------------


def _lines(text: str) -> list[str]:
    """Split a text into lines with their ends. Only line feeds end a line, so that all other bytes are preserved."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _bare(line: str) -> str:
    return line.rstrip("\r\n")


def _ending(line: str) -> str:
    return line[len(_bare(line)) :]


def _is_chinese(text: str) -> bool:
    return any(name in text for name in ("当前状态", "TODO列表", "指令指针", "动态指令", "变量"))


def _insert(lines: list[str], at: int, new: Sequence[str], text: str) -> None:
    """Insert lines with the line ends of a text. Adds a line end to the line before if it has none."""
    end = "\r\n" if "\r\n" in text else "\n"
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += end
    lines[at:at] = [f"{line}{end}" for line in new]


def _add(lines: list[str], meaning: str, line: str, text: str) -> None:
    """Add a line to a section. A new section comes first (state), before the list (variables) or last."""
    places = _sections(lines)
    heading = f"## {_HEADINGS[meaning][_is_chinese(text)]}"
    if meaning in places:
        _insert(lines, _end_of_section(lines, places[meaning]), [line], text)
    elif meaning == "state":
        _insert(lines, int(bool(lines) and lines[0].startswith("# ")), ["", heading, line, ""], text)
    elif meaning == "variables":
        _insert(lines, places["todo"].start - 1 if "todo" in places else len(lines), [heading, line, ""], text)
    else:
        _insert(lines, len(lines), [heading, line], text)


def _ticked(line: str, done: bool) -> str:
    found = _ITEM.match(_bare(line))
    return line if found is None else f"{found[1]}{'x' if done else ' '}{found[3]}{found[4]}{_ending(line)}"


def _rule(line: str) -> str:
    return re.sub(r"^\s*(?:[-*+]\s+)?", "", _bare(line)).strip()


def _fenced(lines: Sequence[str]) -> list[bool]:
    """Return, for each line, whether it is in a code block, fences included."""
    found: list[bool] = []
    inside = False
    for line in lines:
        is_fence = _FENCE.match(line) is not None
        found.append(inside or is_fence)
        inside ^= is_fence
    return found


def _sections(lines: Sequence[str]) -> dict[str, range]:
    """Return the sections by their meaning: the lines between their heading and the next one of its level.

    If two sections have the same meaning, the first counts. Headings in code blocks do not count.
    """
    found: dict[str, range] = {}
    opened: tuple[str, int, int] | None = None
    code = _fenced(lines)
    headings = [
        (at, len(one[1]), one[2])
        for at, line in enumerate(lines)
        if not code[at] and (one := _HEADING.match(_bare(line)))
    ]
    for at, level, name in [*headings, (len(lines), 0, "")]:
        if opened is not None and level <= opened[2]:
            found.setdefault(opened[0], range(opened[1], at))
            opened = None
        meaning = _meaning(name)
        if opened is None and meaning is not None:
            opened = (meaning, at + 1, level)
    return found


def _meaning(heading: str) -> str | None:
    name = re.split(r"[（(]", heading, maxsplit=1)[0].strip().lower()
    return next((meaning for meaning, names in _SECTIONS.items() if name in names), None)


def _within(lines: Sequence[str], places: Mapping[str, range], meaning: str) -> list[int]:
    """Return the lines of a section that are not in code blocks."""
    code = _fenced(lines)
    return [at for at in places.get(meaning, range(0)) if not code[at]]


def _end_of_section(lines: Sequence[str], place: range) -> int:
    """Return the place after the last line of a section that is not blank."""
    at = place.stop
    while at > place.start and not lines[at - 1].strip():
        at -= 1
    return at


def _pointer(value: str, items: int, where: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value):
        raise InvalidInput(f"{where}: the pointer is {value[:40]!r}; it must be the number of an item")
    if not 1 <= int(value) <= items + 1:
        there = "there is 1 item" if items == 1 else f"there are {items} items"
        raise InvalidInput(f"{where}: the pointer is {value}, and {there}")
    return int(value)


def _put_field(lines: list[str], names: Sequence[str], value: str, text: str) -> None:
    """Write a field of the state to its line. Adds the line, or a section at the beginning, if it is missing."""
    for at in _within(lines, _sections(lines), "state"):
        found = _FIELD.match(_bare(lines[at]))
        if found is not None and found[2].strip().lower() in names:
            if found[4].strip() != value:
                lines[at] = f"{found[1]}{found[2]}{found[3]}{value}{_ending(lines[at])}"
            return
    _add(lines, "state", f"- {names[0] if _is_chinese(text) else names[1].capitalize()}: {value}", text)
