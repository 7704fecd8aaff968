"""Import a transcript of Claude Code, and ask it three questions: `python examples/own_history.py [TRANSCRIPT]`.

Without a path, a small transcript is written to a temporary folder. No model is needed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import loom
from loom.importers import import_history

TURNS = (
    ("user", "The nightly job fails since Tuesday. Look into it, please."),
    ("assistant", "The parser cannot read dates with a comma. I pinned it: the parser stays at version 4.2."),
    ("user", "Good. The deploy key is sk-live-4f9a8b7c6d5e4f3a2b1c0d9e. Mara reviews the change on 12 May."),
    ("assistant", "The change is ready for Mara. The tests of the importer take 40 seconds now."),
)

QUESTIONS = (
    "To which version did we pin the parser?",
    "Who reviews the change, and when?",
    "How long do the tests of the importer take?",
)


def written(folder: Path) -> Path:
    """A transcript as Claude Code writes it: a JSON object a line."""
    path = folder / "5e7dc3f1.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number, (role, text) in enumerate(TURNS):
            line = {
                "type": role,
                "uuid": f"turn-{number}",
                "sessionId": "5e7dc3f1",
                "timestamp": f"2026-05-07T09:{number:02}:00Z",
                "cwd": "/home/ana/nightly",
                "message": {"role": role, "content": text},
            }
            file.write(json.dumps(line) + "\n")
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, loom.open(Path(folder, "memory.loom")) as memory:
        source = Path(sys.argv[1]) if len(sys.argv) > 1 else written(Path(folder))
        done = import_history(memory, source)
        print(f"{done.records} messages, secrets masked in {done.masked}")
        for question in QUESTIONS:
            best = memory.recall(question, limit=1)
            print(f"\n{question}\n  {best[0].content if best else 'nothing fits'}")


if __name__ == "__main__":
    main()
