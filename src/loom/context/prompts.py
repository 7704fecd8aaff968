"""The system text of an agent with a notebook: its template, its knowledge, and the state of its task.

Texts are cut by tokens. The status block and the current item of a task process are never cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from loom.context.rendering import neutralised
from loom.text.tokens import TokenCounter, default_counter

__all__ = ["build_minimal_prompt", "fit_task_state"]

_CURRENT = re.compile(r"(?:←|<-) ?(?:当前|current)", re.IGNORECASE)
_STATUS = re.compile(r"^##\s*(?:当前状态|Current state|State\b|Status)", re.IGNORECASE)
_HEADING = re.compile(r"^#{1,6}\s")
_LEFT_OUT = "[…]"
# The number of lines before and after that count as near. A process has one status and one current item.
_MOST_ANCHORS = 32


def build_minimal_prompt(
    base_template: str,
    knowledge_content: str = "",
    *,
    minimal_mode: bool = True,
    compact_memory: str = "",
    task_state: str = "",
    own_sessions: Sequence[str] = (),
    task_state_tokens: int = 1250,
    token_counter: TokenCounter | None = None,
) -> str:
    """A system prompt that contains an agent's memory.

    In the minimal mode the compacted memory follows (## 历史记忆); in the full one the state of the task
    (## 任务状态), within `task_state_tokens`, and the agent's own last three sessions (## 个人历史).
    """
    prompt = base_template + knowledge_content
    if minimal_mode:
        return prompt + (f"\n## 历史记忆\n{_quoted(compact_memory)}" if compact_memory else "")
    if task_state:
        prompt += f"\n## 任务状态\n{_quoted(fit_task_state(task_state, task_state_tokens, token_counter))}"
    if own_sessions:
        told = "\n\n".join(_quoted(session) for session in list(own_sessions)[-3:])
        prompt += f"\n## 个人历史\n{told}"
    return prompt


def _quoted(text: str) -> str:
    """Quote notes as data: no mark in them can end the section or open a role."""
    return neutralised(text, trusted=False)


def fit_task_state(text: str, budget: int, token_counter: TokenCounter | None = None) -> str:
    """A task process in at most this many tokens: its status and current item first, then the lines near them.

    If not even these fit, they are returned anyway: a hidden step does more harm than a few tokens.
    """
    counter = default_counter() if token_counter is None else token_counter
    if counter.safe_count(text) <= budget:
        return text
    lines = text.splitlines()
    kept = _status_lines(lines) | {at for at, line in enumerate(lines) if _CURRENT.search(line)}
    anchors = sorted(kept)[:_MOST_ANCHORS] or [len(lines) - 1]
    nearest = sorted(
        (at for at in range(len(lines)) if at not in kept),
        key=lambda at: (not _HEADING.match(lines[at]), min(abs(at - anchor) for anchor in anchors), at),
    )
    room = budget - counter.safe_count(_joined(lines, kept))
    added: list[int] = []
    for at in nearest:
        cost = counter.safe_count(f"{lines[at]}\n{_LEFT_OUT}\n")
        if cost <= room:
            room -= cost
            added.append(at)
    while added and counter.safe_count(_joined(lines, kept | set(added))) > budget:
        added.pop()
    return _joined(lines, kept | set(added))


def _status_lines(lines: Sequence[str]) -> set[int]:
    found: set[int] = set()
    inside = False
    for at, line in enumerate(lines):
        if _HEADING.match(line):
            inside = bool(_STATUS.match(line))
        if inside and line.strip():
            found.add(at)
    return found


def _joined(lines: Sequence[str], kept: set[int]) -> str:
    shown: list[str] = []
    before = -1
    for at in sorted(kept):
        if any(line.strip() for line in lines[before + 1 : at]):
            shown.append(_LEFT_OUT)
        shown.append(lines[at])
        before = at
    if before < len(lines) - 1:
        shown.append(_LEFT_OUT)
    return "\n".join(shown)
