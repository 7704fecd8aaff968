"""Traces: the writes of agents and their later uses of memories, recorded from dialogues that a real memory followed.

Before each turn of a user, the agent recalls memories about it and uses the hits; then the turn is written. Days
later somebody returns to an earlier matter with a question. A trace has no text: for each turn it has the time in
seconds, the session, the numbers of the used records, and the written tokens.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

import loom
from benchmarks import dialogues
from benchmarks.recall.data import OWN_SETS, load_locomo, load_own
from benchmarks.recall.data import Dialogue as AskedDialogue

__all__ = ["FOLDER", "Trace", "TraceStep", "load", "locomo_lives", "own_lives", "record", "save"]

FOLDER = Path(__file__).parent
BEGAN_AT = datetime(2026, 1, 1, tzinfo=UTC)
RECALLED = 4
LIVE = 5  # matters in progress at the same time
LOOKS_BACK = 0.5  # how often somebody returns to an earlier matter after a sitting
QUESTIONS = 4


class TraceStep(NamedTuple):
    """One turn: the used records, by their number in the order of writing, and the written tokens.

    `tokens` is 0 if nothing was written.
    """

    at: float
    session: str
    used: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    steps: tuple[TraceStep, ...]

    @property
    def tokens(self) -> int:
        return sum(step.tokens for step in self.steps)


# --- lives: who says what, and when ------------------------------------------------------------------------


class Said(NamedTuple):
    """Something that an agent hears or says. For a question the agent recalls; the question is not stored."""

    at: float
    session: str
    text: str
    recalls: bool
    kept: bool


class _Turn(NamedTuple):
    text: str
    by_user: bool


class _Matter(NamedTuple):
    """A dialogue divided into sittings, and the questions that each sitting answers."""

    name: str
    sittings: tuple[tuple[_Turn, ...], ...]
    questions: tuple[tuple[str, ...], ...]


class _Clock:
    """The clock of a life, in seconds: people take half a minute to write, agents a few seconds, and there are
    nights."""

    def __init__(self, random: np.random.Generator, now: float = 0.0) -> None:
        self._random = random
        self.now = now

    def turn(self, by_user: bool) -> float:
        seconds = self._random.lognormal(math.log(30.0 if by_user else 4.0), 0.8)
        self.now = round(self.now + float(seconds), 1)
        return self.now

    def pause(self) -> None:
        self.now = round(self.now + float(self._random.lognormal(math.log(3 * 3600.0), 1.0)), 1)


def _marked(language: str) -> list[_Matter]:
    """The development dialogues of a language, talks first. The questions are about their marks."""
    matters: list[_Matter] = []
    for dialogue in dialogues.load(dialogues.FOLDER / "development"):
        if not dialogue.id.startswith(language):
            continue
        sittings: dict[str, list[_Turn]] = {}
        asked: dict[str, list[str]] = {}
        for one in dialogue.utterances:
            sittings.setdefault(one.session, []).append(_Turn(one.text, one.role == "user"))
            asked.setdefault(one.session, []).extend(mark.says for mark in one.marks if not mark.minor)
        matters.append(_Matter(dialogue.id, tuple(map(tuple, sittings.values())), tuple(map(tuple, asked.values()))))
    return matters


def _asked(dialogue: AskedDialogue) -> _Matter:
    """A dialogue with questions, as one matter. Each question belongs to the sitting with its last evidence."""
    sittings: dict[str, list[_Turn]] = {}
    home: dict[str, str] = {}
    for turn in dialogue.turns:
        session = turn.session or f"note {turn.id}"
        sittings.setdefault(session, []).append(_Turn(turn.text, turn.role != "assistant"))
        home[turn.id] = session
    order = {session: place for place, session in enumerate(sittings)}
    asked: list[list[str]] = [[] for _ in sittings]
    for question in dialogue.questions:
        asked[max(order[home[one]] for one in question.evidence)].append(question.text)
    return _Matter(dialogue.name, tuple(map(tuple, sittings.values())), tuple(map(tuple, asked)))


def _sittings(matters: Sequence[_Matter], random: np.random.Generator) -> Iterator[tuple[_Matter, int]]:
    """The sittings of a life: a few matters are in progress at a time, and each continues in its own order."""
    waiting = deque(matters)
    live: list[tuple[_Matter, int]] = []
    while waiting or live:
        while waiting and len(live) < LIVE:
            live.append((waiting.popleft(), 0))
        place = int(random.integers(len(live)))
        matter, sitting = live[place]
        yield matter, sitting
        if sitting + 1 < len(matter.sittings):
            live[place] = (matter, sitting + 1)
        else:
            del live[place]


def _life(matters: Sequence[_Matter], seed: int, past: Sequence[str] = (), from_s: float = 0.0) -> Iterator[Said]:
    """One sitting after another, with questions about earlier ones in between."""
    random = np.random.default_rng(seed)
    clock = _Clock(random, from_s)
    asked = list(past)
    for number, (matter, sitting) in enumerate(_sittings(matters, random)):
        clock.pause()
        for turn in matter.sittings[sitting]:
            yield Said(clock.turn(turn.by_user), f"s{number}", turn.text, turn.by_user, True)
        yield from _look_back(asked, f"q{number}", clock, random)
        asked.extend(matter.questions[sitting])


def _look_back(past: Sequence[str], session: str, clock: _Clock, random: np.random.Generator) -> Iterator[Said]:
    """Sometimes, questions about one earlier matter: consecutive questions are about the same one."""
    if not past or random.random() > LOOKS_BACK:
        return
    clock.pause()
    begin = int(random.integers(len(past)))
    for question in past[begin : begin + QUESTIONS]:
        yield Said(clock.turn(True), session, question, True, False)


def _side_by_side(matters: Sequence[_Matter], seed: int) -> Iterator[Said]:
    """Several sessions at once: an agent that serves a team, turn by turn in any order."""
    random = np.random.default_rng(seed)
    clock = _Clock(random)
    waiting = iter(matters)
    live: list[tuple[str, Iterator[_Turn]]] = []
    past: list[str] = []
    for number in range(sum(len(sitting) for matter in matters for sitting in matter.sittings) * 2):
        while len(live) < LIVE and (matter := next(waiting, None)) is not None:
            live.append((matter.name, iter([turn for sitting in matter.sittings for turn in sitting])))
            past.extend(question for questions in matter.questions for question in questions)
        if not live:
            return
        place = int(random.integers(len(live)))
        turn = next(live[place][1], None)
        if turn is None:
            del live[place]
            yield from _look_back(past, f"q{number}", clock, random)
            continue
        yield Said(clock.turn(turn.by_user), live[place][0], turn.text, turn.by_user, True)


def _after_import(matters: Sequence[_Matter], seed: int) -> Iterator[Said]:
    """A third of the matters arrive at once, twenty turns a second, like an import; then the work continues."""
    third = len(matters) // 3
    at = 0.0
    for matter in matters[:third]:
        for turn in (turn for sitting in matter.sittings for turn in sitting):
            at = round(at + 0.05, 2)
            yield Said(at, matter.name, turn.text, False, True)
    past = [question for matter in matters[:third] for questions in matter.questions for question in questions]
    yield from _life(matters[third:], seed, past, at)


def own_lives() -> dict[str, Iterable[Said]]:
    """Lives made of dialogues of our own. The seeds only determine the order of events."""
    english, chinese = _marked("en"), _marked("zh")
    mixed = [matter for pair in zip(english, chinese, strict=False) for matter in pair]
    return {
        "english": _life(english, 1),
        "chinese": _life(chinese, 2),
        "both": _life(mixed, 3),
        "team": _side_by_side(mixed[:40], 4),
        "import": _after_import(mixed[20:60], 5),
        "sets": _life([_asked(load_own(name)) for name in OWN_SETS], 6),
    }


def locomo_lives(path: Path) -> dict[str, Iterable[Said]]:
    """The conversations of a LoCoMo file, each a life of its own."""
    return {
        f"locomo {number}": _life([_asked(dialogue)], 10 + number)
        for number, dialogue in enumerate(load_locomo(path))
    }


# --- recording ---------------------------------------------------------------------------------------------


def record(name: str, life: Iterable[Said]) -> Trace:
    """Follow a life with a real memory, by words alone: the agent uses the memories that are recalled for a turn."""
    steps: list[TraceStep] = []
    now = BEGAN_AT
    with loom.open(embedder="none", derive=False, clock=lambda: now) as memory:
        written = 0
        for said in life:
            now = BEGAN_AT + timedelta(seconds=said.at)
            used: tuple[int, ...] = ()
            if said.recalls:
                used = tuple(int(hit.id) for hit in memory.recall(said.text, limit=RECALLED))
            tokens = 0
            if said.kept:
                tokens = memory.remember(said.text, id=f"{written:06}", session_id=said.session).tokens
                written += 1
            steps.append(TraceStep(said.at, said.session, used, tokens))
    return Trace(name, tuple(steps))


def save(trace: Trace, folder: Path = FOLDER) -> Path:
    path = folder / f"{trace.name}.jsonl"
    lines = (
        json.dumps([step.at, step.session, step.used, step.tokens], separators=(",", ":")) for step in trace.steps
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Trace:
    steps = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return Trace(path.stem, tuple(TraceStep(at, session, tuple(used), tokens) for at, session, used, tokens in steps))
