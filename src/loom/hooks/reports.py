"""The log of the hooks: a line for each event, with its time, tokens and outcome, and never any content."""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

__all__ = ["HookReport", "append_report", "read_reports"]

_LARGEST_LOG: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class HookReport:
    """The outcome of one hook. `kept` counts new messages in the memory, `quoted` the memories in the prompt."""

    at: str
    agent: str
    event: str
    session_id: str = ""
    took_ms: int = 0
    kept: int = 0
    skipped: int = 0
    quoted: int = 0
    tokens: int = 0
    error: str = ""


def append_report(path: Path, report: HookReport) -> None:
    """Append a line. A log beyond its limit replaces the previous log."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size > _LARGEST_LOG:
        path.replace(path.with_suffix(".previous.jsonl"))
    line = json.dumps({name: value for name, value in asdict(report).items() if value not in ("", 0)})
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


def read_reports(path: Path, most: int) -> list[HookReport]:
    """Return the last reports, the oldest first, without truncated lines."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = deque(file, most)
    return [one for one in (_report(line) for line in lines) if one is not None]


def _report(line: str) -> HookReport | None:
    try:
        told: Any = json.loads(line)
        names = {one.name for one in fields(HookReport)}
        return HookReport(**{name: value for name, value in told.items() if name in names})
    except (ValueError, TypeError, AttributeError):
        return None
