"""A child process that damages the segments of a store and uses it, one seeded case after the other.

    python -m tests.index.segment_fuzzer FOLDER MODE FIRST LAST

It writes the case before it runs it, then its outcome: "right", or what went wrong. The parent sees a death by signal
in the last line. The address space is limited, so an allocation that follows a damaged number fails.

Modes: `read` opens segments into memory, `mapped` maps them; both damage the file as a program would. `decayed` maps
them and leaves the modification time as it was, as a failing disk does: a search may then answer wrongly, and nothing
else may happen. In every mode the answers are right after `check`, so no damage was written on under new checksums.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import loom
from loom.errors import LoomError
from loom.everyday import Memory
from loom.index import segments
from loom.models.embedders import FakeEmbedder

RECORDS, MORE = 48, 12
FORGOTTEN = "one-7"
TOPICS = ("harbour", "orchard", "glacier", "lantern", "meadow", "灯塔", "港口")
QUESTIONS = ["harbour lantern", "word7 orchard", "glacier", "word41", "灯塔 word30 meadow", "nothing of this"]
ROOM_BYTES = 1 << 30
Answers = list[list[tuple[str, float]]]


def text(number: int) -> str:
    chance = random.Random(number)
    return " ".join([f"word{number}", *chance.choices(TOPICS, k=chance.randint(1, 8))])


def opened(path: Path | None) -> Memory:
    return loom.open(path, embedder=FakeEmbedder(dimensions=16), index_tail_records=4, lease_s=1.0)


def write(memory: Memory, first: int, last: int) -> None:
    for start in range(first, last, 6):
        numbers = range(start, min(last, start + 6))
        memory.remember([{"id": f"one-{number}", "content": text(number)} for number in numbers])
        memory.flush()


def answers(memory: Memory) -> Answers:
    found = [memory.recall(question, limit=20) for question in QUESTIONS]
    return [[(hit.id, round(hit.score, 9)) for hit in hits] for hits in found]


def prepare(folder: Path) -> None:
    """The store that every case begins with, and the answers by what was written and forgotten."""
    with opened(folder / "agent.loom") as memory:
        write(memory, 0, RECORDS)
    right = {}
    for more in (False, True):
        for forgotten in (False, True):
            with opened(None) as memory:
                write(memory, 0, RECORDS + MORE * more)
                if forgotten:
                    memory.forget(FORGOTTEN)
                right[f"{more} {forgotten}"] = answers(memory)
    (folder / "right.json").write_text(json.dumps(right))


def parts(content: bytes | bytearray) -> dict[str, range]:
    """The bytes of a segment file by their function."""
    end = 16 + int.from_bytes(content[8:12], "little")
    start = -(-end // 64) * 64
    found = {"magic": range(8), "length": range(8, 12), "checksum": range(12, 16), "head": range(16, end)}
    for name, entry in json.loads(content[16:end])["arrays"].items():
        size = int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
        if size:
            found[name] = range(start + entry["offset"], start + entry["offset"] + size)
    return found


def flipped(content: bytearray, chance: random.Random) -> str:
    part, places = chance.choice(list(parts(content).items()))
    for _ in range(chance.choice((1, 1, 1, 3, 20))):
        content[chance.choice(places)] ^= 1 << chance.choice((7, *range(8)))
    return f"bits of {part}"


def overwritten(content: bytearray, chance: random.Random) -> str:
    part, places = chance.choice(list(parts(content).items()))
    size = min(len(places), chance.choice((4, 8, 64, 4096)))
    first = chance.choice(places[: len(places) - size + 1])
    content[first : first + size] = chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size)))
    return f"{size} bytes of {part}"


def cut(content: bytearray, chance: random.Random) -> str:
    del content[chance.choice((0, 16, 100, len(content) // 2, len(content) - 1, chance.randrange(len(content)))) :]
    return f"cut to {len(content)}"


def extended(content: bytearray, chance: random.Random) -> str:
    content += chance.randbytes(chance.choice((1, 64, 5000)))
    return f"extended to {len(content)}"


def moved(content: bytearray, chance: random.Random) -> str:
    places = chance.choice([places for places in parts(content).values() if len(places) > 8])
    middle = places[0] + len(places) // 2
    content[places[0] : places[-1] + 1] = content[middle : places[-1] + 1] + content[places[0] : middle]
    return "halves exchanged"


DAMAGES: list[Callable[[bytearray, random.Random], str]] = [
    flipped,
    flipped,
    flipped,
    overwritten,
    cut,
    extended,
    moved,
]


def damage(path: Path, chance: random.Random, decayed: bool) -> str:
    """Damage one or a few segment files in place, so that a process that has mapped them sees it."""
    folder = path.with_name(path.name + "-index")
    done: list[str] = []
    for victim in chance.sample(sorted(folder.glob("*.seg")), chance.choice((1, 1, 2))):
        content, before = bytearray(victim.read_bytes()), victim.stat()
        make = chance.choice(DAMAGES[:4] if decayed else DAMAGES)
        done.append(f"{victim.name.split('-')[0]}: {make(content, chance)}")
        with victim.open("rb+") as file:
            file.write(content)
            file.truncate(len(content))
        if decayed:
            os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    return ", ".join(done)


def run(base: Path, mode: str, number: int) -> str:
    chance = random.Random(number)
    right = json.loads((base / "right.json").read_text())
    folder = base / f"{mode}-{number}"
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*-[0-9]*[0-9]", "right.json"))
    path = folder / "agent.loom"
    live = chance.random() < 0.5
    if not live:
        damage(path, chance, mode == "decayed")
    done = {"write": False, "forget": False}
    with opened(path) as memory:
        actions: dict[str, Callable[[], Any]] = {
            "recall": lambda: answers(memory),
            "write": lambda: write(memory, RECORDS, RECORDS + MORE),
            "forget": lambda: memory.forget(FORGOTTEN),
            "flush": memory.flush,
            "check": memory.check,
        }
        if live:
            answers(memory)
        for place, name in enumerate(chance.sample(list(actions), len(actions))):
            if live and place == 0:
                damage(path, chance, mode == "decayed")
            try:
                found = actions[name]()
            except LoomError as error:
                print(f"  {name}: {type(error).__name__}", flush=True)
                continue
            done[name] = True
            wanted = right[f"{done['write']} {done['forget']}"]
            if name == "recall" and mode != "decayed" and as_listed(found) != wanted:
                return "recall answered wrongly"
        if not done["write"] or not done["forget"]:
            return "writing or forgetting was refused"
        if not memory.check().ok or as_listed(answers(memory)) != right["True True"]:
            return "the answers are wrong after check"
    shutil.rmtree(folder)
    return "right"


def as_listed(found: Any) -> Any:
    return json.loads(json.dumps(found))


def main(folder: str, mode: str, first: str, last: str) -> None:
    if mode != "read":
        segments.IN_MEMORY_BYTES = 0
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, used + ROOM_BYTES))
    for number in range(int(first), int(last)):
        print(f"case {mode} {number}", flush=True)
        print(run(Path(folder), mode, number), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        prepare(Path(sys.argv[1]))
    else:
        main(*sys.argv[1:])
