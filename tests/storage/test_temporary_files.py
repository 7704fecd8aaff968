"""Copies that a killed backup, snapshot or restore left: the next one for the same file removes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import loom


def test_only_old_files_of_dead_processes_are_swept(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / f".copy.loom.{dead.pid}-01ABC.tmp"
    recent = tmp_path / f".copy.loom.{dead.pid}-01ABD.tmp"
    living = tmp_path / f".copy.loom.{os.getpid()}-01ABE.tmp"
    foreign = tmp_path / ".copy.loom.notes.tmp"
    for path in (left, recent, living, foreign):
        path.write_bytes(b"x")
    for path in (left, living, foreign):
        os.utime(path, (0, 0))
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
        memory.remember("To be copied.")
        memory.backup(tmp_path / "copy.loom")
    assert not left.exists()
    assert recent.exists()
    assert living.exists()
    assert foreign.exists()
