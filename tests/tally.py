"""Counts of the work of a long run, and their table in docs/reliability.md.

Tests call `count`. Nothing is written unless SOAK_TALLY names a file; then every call appends a line to it, so that
any number of processes may count. `make soak` sums up with `python -m tests.tally build`, which prints one line and
writes build/soak.json; `python -m tests.tally build --update` puts these figures into the document.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sqlite3
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["COUNTED", "count", "main", "scaled", "summed", "updated"]

DOCUMENT = Path(__file__).parent.parent / "docs" / "reliability.md"

COUNTED = {
    "kills": "processes killed by SIGKILL",
    "faults": "faults injected",
    "cases": "hostile inputs",
    "processes": "processes started",
    "written": "records acknowledged and looked for again",
    "lost": "records lost",
}
"""What is counted, and how the table calls it."""


def scaled(number: int) -> int:
    """The number of repetitions in a long test: `number` times SOAK_SCALE, which is 1 unless set, and at least
    once."""
    return max(1, round(number * float(os.environ.get("SOAK_SCALE", "1"))))


def count(**numbers: int) -> None:
    """Add to the counts of the run."""
    path = os.environ.get("SOAK_TALLY")
    if path and any(numbers.values()):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(numbers).encode() + b"\n")
        finally:
            os.close(descriptor)


def summed(folder: Path) -> dict[str, Any]:
    """The figures of the run whose files are in this folder: soak.jsonl and pytest's soak.xml."""
    counts: Counter[str] = Counter()
    lines = (folder / "soak.jsonl").read_text(encoding="utf-8") if (folder / "soak.jsonl").exists() else ""
    for line in lines.splitlines():
        counts.update(json.loads(line))
    suites = list(ElementTree.parse(folder / "soak.xml").getroot().iter("testsuite"))
    tests, broken = (
        sum(int(suite.attrib[name]) for suite in suites for name in names)
        for names in (("tests",), ("failures", "errors"))
    )
    return {
        **{name: counts[name] for name in COUNTED},
        "tests": tests,
        "failed": broken,
        "scale": os.environ.get("SOAK_SCALE", "1"),
        "minutes": round(sum(float(suite.attrib["time"]) for suite in suites) / 60),
        "on": f"{datetime.now(UTC):%Y-%m-%d}",
        "with": f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores",
    }


def line(figures: Mapping[str, Any]) -> str:
    """The figures as one line."""
    counts = ", ".join(f"{figures[name]:,} {words}" for name, words in COUNTED.items())
    return f"soak: {counts}; {figures['tests'] - figures['failed']} of {figures['tests']} tests passed"


def updated(text: str, figures: Mapping[str, Any]) -> str:
    """The document with the table of these figures between its markers."""
    rows = {words: f"{figures[name]:,}" for name, words in COUNTED.items()}
    rows |= {"tests passed": f"{figures['tests'] - figures['failed']} of {figures['tests']}"}
    rows |= {
        "scale (`SCALE`)": figures["scale"],
        "minutes": str(figures["minutes"]),
        "day": figures["on"],
        "machine": figures["with"],
    }
    table = "\n".join(["| | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows.items())])
    found = re.subn(
        r"(<!-- soak -->\n).*?(<!-- /soak -->)", lambda match: f"{match[1]}{table}\n{match[2]}", text, flags=re.S
    )
    if not found[1]:
        raise SystemExit("there are no markers <!-- soak --> and <!-- /soak --> in the document")
    return found[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.tally", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="where soak.jsonl and soak.xml are")
    parser.add_argument("--update", action="store_true", help="put the figures into docs/reliability.md")
    asked = parser.parse_args(arguments)
    kept = asked.folder / "soak.json"
    if asked.update:
        figures = json.loads(kept.read_text(encoding="utf-8"))
        DOCUMENT.write_text(updated(DOCUMENT.read_text(encoding="utf-8"), figures), encoding="utf-8")
    else:
        figures = summed(asked.folder)
        kept.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(line(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
