"""One file, two processes: what one has committed, the other finds at once, without a server between them.

Run it with: python examples/two_processes.py
"""

from __future__ import annotations

import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import loom

PROJECTS = ("heron", "otter", "lynx")


def write(path: Path, told: Connection) -> None:
    """The writer: one decision for each project, and a word to the reader after each commit."""
    with loom.open(path) as memory:
        for number, project in enumerate(PROJECTS, start=1):
            memory.remember(f"Project {project} is deployed to server {number}.", session_id=project)
            told.send(project)
    told.send(None)


def read(path: Path) -> None:
    """The reader has the file open all the time, and may not write."""
    # 'spawn', because it is the same on Linux and macOS; a forked child may use loom as well.
    context = multiprocessing.get_context("spawn")
    with loom.open(path, read_only=True) as memory:
        listening, telling = context.Pipe(duplex=False)
        writer = context.Process(target=write, args=(path, telling))
        writer.start()
        telling.close()  # so that recv() ends should the writer die
        while (project := listening.recv()) is not None:
            hit = memory.recall(f"Where is {project} deployed?", limit=1)[0]
            print(f"the reader found: {hit.content}")
        writer.join()
        print(f"{memory.get_stats()['records']} records, written by another process")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shared.loom"
        loom.open(path).close()  # a reader needs a file to open
        read(path)


if __name__ == "__main__":
    main()
