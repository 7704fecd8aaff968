"""`loom hook` and `loom kept`: the hooks of coding agents, and the list of stored conversations."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import loom
from loom.errors import InvalidInput
from loom.hooks.answering import answer_event
from loom.hooks.projects import log_of, memory_of_project
from loom.hooks.reports import read_reports
from loom.operations.answers import HookRun, KeptOfProject, KeptSession
from loom.storage.contract import Record

__all__ = ["kept_of_project", "run_hook"]

_LARGEST_EVENT = 16 * 1024 * 1024
_SESSIONS = 20
_LOOKED_AT = 2000
_HOOKS = 8
_PROMPT_CHARS = 60


def run_hook(agent: str) -> int:
    """Answer the event on standard input. Always returns 0."""
    try:
        event: Any = json.loads(sys.stdin.buffer.read(_LARGEST_EVENT))
    except (ValueError, RecursionError, OSError):
        return 0
    answer = answer_event(agent, event, os.environ) if isinstance(event, dict) else None
    if answer is not None:
        print(json.dumps(answer))
    return 0


def kept_of_project(folder: Path, session: str | None, everything: bool, agreed: bool) -> KeptOfProject:
    """The records kept of a project, after the requested ones are forgotten."""
    path = memory_of_project(folder, os.environ)
    reports = read_reports(log_of(path), _HOOKS)
    hooks = tuple(map(HookRun.of, reports))
    if (session or everything) and not agreed:
        raise InvalidInput(
            "forgetting is permanent: add --yes to continue, or omit the option to only show the sessions"
        )
    # With the folder, `loom import --store` can create the file before the first hook does.
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        return KeptOfProject(str(path), str(log_of(path)), 0, 0, (), hooks)
    with loom.open(path, embedder="none", derive=False) as memory:
        forgotten = 0
        if session:
            forgotten = memory.forget(session_id=session, timeout_s=60).records
        elif everything:
            # The metadata `imported` of a hook's record names the agent; records without it stay.
            forgotten = memory.forget(where={"imported": ["claude-code", "codex"]}, timeout_s=60).records
        newest = memory.list(limit=_LOOKED_AT).records
        return KeptOfProject(
            str(path), str(log_of(path)), memory.get_stats()["records"], forgotten, _sessions(newest), hooks
        )


def _sessions(newest: tuple[Record, ...]) -> tuple[KeptSession, ...]:
    """The newest sessions among the newest records."""
    counts = Counter(one.session_id for one in newest if one.session_id)
    last: dict[str, Record] = {}
    prompts: dict[str, str] = {}
    for one in newest:
        if one.session_id is not None:
            last.setdefault(one.session_id, one)
            if one.role == "user" and one.trust == "user":
                prompts.setdefault(one.session_id, " ".join(one.content.split())[:_PROMPT_CHARS])
    return tuple(
        KeptSession(id, counts[id], record.created_at, prompts.get(id, ""))
        for id, record in [*last.items()][:_SESSIONS]
    )
