"""Carry a memory elsewhere: a full snapshot, one that continues it, a new file, and a guest in another memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import loom

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    with loom.open(folder / "agent.loom") as memory:
        for number in range(200):
            memory.remember(f"Container {number} waits at the gate. 第{number}号集装箱在北门等候。", id=f"c{number}")
        full = memory.snapshot(folder / "monday.hctx")
        memory.update("c7", "Container 7 has left for Lisbon.")
        memory.forget("c8")
        more = memory.snapshot(folder / "tuesday.hctx", parent=full.path)
        print(f"full: {full.records} records in {full.size_bytes:,} bytes; since then {more.size_bytes:,} bytes")

    restored = loom.restore([full.path, more.path], folder / "copy.loom")
    with loom.open(folder / "copy.loom") as copy:
        print(f"{restored.records} records came back; container 7: {copy.recall('Lisbon')[0].content}")
        assert copy.get("c8") is None

    with loom.open(folder / "team.loom") as team:
        team.remember("The team meets on Fridays.", id="friday")
        done = team.restore([full.path, more.path])
        again = team.restore([full.path, more.path])
        print(f"into the team's memory: {done.records} came, the second time {again.records}")
