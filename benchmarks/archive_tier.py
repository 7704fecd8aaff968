"""The tokens that the archive tier saves over its whole content, including stand-ins and summaries.

    python -m benchmarks.archive_tier [--data PATH/locomo10.json] [--profile loom] [--at-once] [--list 5] [--save]

The turns of dialogues are remembered with an importance of 0.7, so that each passes through the working tier into the
archive. Without `--data` they are ours (`benchmarks/dialogues`, those for development too). After each session the
memory does its background work, as a memory in use does; with `--at-once` only at the end. Ends with 1 unless the
tier saves more than 90 % of the tokens of its originals and no stand-in is longer than its original.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import loom
from benchmarks import dialogues, figures
from benchmarks.recall import data
from loom.storage.contract import Record
from loom.types import MemoryType

__all__ = ["Said", "TierFigures", "main", "own_turns", "remember", "tier_figures"]

TARGET = 0.9
_IMPORTANCE = 0.7


class Said(NamedTuple):
    """One turn of a dialogue."""

    session: str
    name: str | None
    role: str | None
    text: str


class TierFigures(NamedTuple):
    """The content of the archive tier of a memory. `saved` is a share of the tokens of the originals."""

    tokens: int
    originals: int
    saved: float
    summaries: int
    rejected: int
    stand_ins: int
    longer: int
    reported: float | None


def own_turns(development: bool = True) -> Iterator[Said]:
    """The turns of the marked dialogues, each a session of its own."""
    held = [*dialogues.load()]
    if development:
        held += dialogues.load(dialogues.FOLDER / "development")
    for dialogue in held:
        for turn in dialogue.utterances:
            yield Said(dialogue.id, turn.speaker, turn.role, turn.text)


def turns_of(path: Path) -> Iterator[Said]:
    """The turns of a file with conversations."""
    for dialogue in data.load(path)[1]:
        for turn in dialogue.turns:
            yield Said(f"{dialogue.name} {turn.session}", turn.name, turn.role, turn.text)


def remember(memory: loom.Memory, turns: Iterator[Said], at_once: bool = False) -> int:
    """Remember turns, with the background work after each session. Returns the number of turns."""
    count = 0
    for _, session in itertools.groupby(turns, key=lambda turn: turn.session):
        for turn in session:
            memory.remember(
                turn.text, session_id=turn.session, name=turn.name, role=turn.role, importance=_IMPORTANCE
            )
            count += 1
        if not at_once:
            memory.flush()
    memory.flush()
    return count


def tier_figures(memory: loom.Memory) -> TierFigures:
    """Count the archive tier from its residents and their originals, not from the store's own sums."""
    store = memory.store
    sizes = store.sizes("default", "l3")
    records, _ = store.readable(sizes)
    originals = longer = 0
    summaries = [record for record in records.values() if record.kind == MemoryType.SUMMARY]
    for record in records.values():
        behind: Sequence[Record] = store.sources(record.id) if record in summaries else [record]
        original = sum(one.tokens for one in behind)
        originals += original
        longer += sizes[record.seq] > original
    tokens = sum(sizes.values())
    reported = memory.get_stats()["archive_compression"]
    rejected = sum(not one.faithful for one in memory.summaries(limit=100_000, history=True))
    saved = 1 - tokens / max(1, originals)
    standing = len(records) - len(summaries)
    return TierFigures(tokens, originals, saved, len(summaries), rejected, standing, longer, reported)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.archive_tier", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, help="a copy of LoCoMo, or a file in the common form")
    parser.add_argument("--profile", default="loom")
    parser.add_argument("--at-once", action="store_true", help="no background work before the end")
    parser.add_argument("--list", type=int, default=0, metavar="N", help="print the first N summaries")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    chosen = parser.parse_args(arguments)
    turns = own_turns() if chosen.data is None else turns_of(chosen.data)
    with loom.open(profile=chosen.profile, embedder="none") as memory:
        count = remember(memory, turns, chosen.at_once)
        found = tier_figures(memory)
        for summary in memory.summaries()[: chosen.list]:
            print(f"\n{summary.original_tokens:,} tokens, fidelity {summary.fidelity:.2f}\n{summary.text}")
    print(f"\n{count:,} turns, profile {chosen.profile!r}")
    print(f"  the tier holds {found.tokens:,} tokens for {found.originals:,} of originals: {found.saved:.1%} saved")
    print(f"  summaries {found.summaries:,}, rejected {found.rejected:,}, stand-ins {found.stand_ins:,}")
    print(f"  longer than their originals: {found.longer:,}")
    shown = "nothing yet" if found.reported is None else f"{found.reported:.1%}"
    print(f"  the monitor reports {shown}")
    good = found.saved > TARGET and not found.longer
    print(f"more than {TARGET:.0%} saved, and no stand-in longer than its original: {'yes' if good else 'NO'}")
    if chosen.save:
        kind = "own" if chosen.data is None else chosen.data.stem.partition("_")[0]
        kept: dict[str, Any] = {**found._asdict(), "turns": count}
        figures.save(f"archive_tier-{kind}", sys.argv[1:] if arguments is None else arguments, kept)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
