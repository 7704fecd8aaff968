"""Dialogues with questions: files that the caller has, and sets of our own writing beside this module.

A file is LoCoMo as it is published (Maharana et al. 2024, https://github.com/snap-research/locomo, CC BY-NC 4.0) or a
list of dialogues in the common form: `{"id", "items": [{"id", "session", "time", "text", "name" or "role"}],
"questions": [{"question", "evidence": [item ids], "category"}]}`. None of them is part of the project.
A set of our own is a text: `# DATE TIME` opens a session and `# note DATE TIME` a record without one, each turn is
 `speaker: words`, and after `== KIND` come questions, `question = session.turn, ...`, with what answers them. A line
 that starts with `|` and a space, or is `|` alone, is the next line of the turn before it, with its indentation.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

__all__ = [
    "OWN_SETS",
    "SETS_OF_STORES",
    "Dialogue",
    "Question",
    "Turn",
    "load",
    "load_locomo",
    "load_own",
    "load_stores",
    "parse",
    "some_of",
]

OWN_SETS = ("chinese", "agent", "chinese-check")
# No constant was ever chosen on the last set, so it shows whether the figures of the others generalise.
SETS_OF_STORES = ("chinese-assistant", "agents")
# Folders of dialogues, each a store of its own. They run only on request.

_FOLDER = Path(__file__).parent / "sets"
_ROLES = ("user", "assistant", "tool")
_ROLE_OF_NAME = {"助手": "assistant"}
_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Turn:
    """One memory of a dialogue. `caption` is the text of an attached image."""

    id: str
    session: str | None
    name: str | None
    role: str | None
    said_at: datetime
    text: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its kind, and the ids of the turns with the answer."""

    text: str
    kind: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The turns of one store, in their order, and the questions about them."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def load(path: Path) -> tuple[str, list[Dialogue]]:
    """The name of the set in a file, and its dialogues. The format is recognised; an unknown one raises
    ValueError."""
    samples = json.loads(path.read_text(encoding="utf-8"))
    first = samples[0] if isinstance(samples, list) and samples else {}
    if "conversation" in first:
        return "locomo", [_conversation(sample) for sample in samples]
    if "items" in first and "questions" in first:
        return re.split(r"[-_.]", path.stem.lower())[0], [_common(sample) for sample in samples]
    raise ValueError(f"{path} is neither LoCoMo nor of the common form: a list of dialogues with items and questions")


def _common(sample: dict[str, Any]) -> Dialogue:
    turns = [
        Turn(
            id=str(item["id"]),
            session=str(item["session"]),
            name=item.get("name"),
            role=item.get("role"),
            said_at=datetime.fromisoformat(item["time"]).replace(tzinfo=UTC),
            text=item["text"],
        )
        for item in sample["items"]
    ]
    known = {turn.id for turn in turns}
    questions = [
        Question(asked["question"], _kind(asked["category"]), evidence)
        for asked in sample["questions"]
        if (evidence := tuple(dict.fromkeys(str(id) for id in asked["evidence"] if str(id) in known)))
    ]
    return Dialogue(str(sample["id"]), tuple(turns), tuple(questions))


def _kind(category: object) -> str:
    name = str(category)
    return _CATEGORIES[int(name)] if name.isdigit() else name.replace("_", " ")


def some_of(dialogues: Sequence[Dialogue], most: int) -> list[Dialogue]:
    """The dialogues with at most this many questions of each kind in total, chosen evenly from all dialogues."""
    places: dict[str, list[tuple[int, int]]] = {}
    for at, dialogue in enumerate(dialogues):
        for number, question in enumerate(dialogue.questions):
            places.setdefault(question.kind, []).append((at, number))
    kept = {place for of_kind in places.values() for place in of_kind[:: max(1, -(-len(of_kind) // most))][:most]}
    return [
        replace(
            dialogue,
            questions=tuple(asked for number, asked in enumerate(dialogue.questions) if (at, number) in kept),
        )
        for at, dialogue in enumerate(dialogues)
    ]


def load_locomo(path: Path) -> list[Dialogue]:
    """The conversations of a LoCoMo file; questions of categories 1 to 4 that have evidence."""
    return [_conversation(sample) for sample in json.loads(path.read_text(encoding="utf-8"))]


def _conversation(sample: dict[str, Any]) -> Dialogue:
    talk = sample["conversation"]
    turns: list[Turn] = []
    number = 1
    while f"session_{number}_date_time" in talk:
        said_at = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for place, turn in enumerate(talk.get(f"session_{number}", [])):
            turns.append(
                Turn(
                    id=turn["dia_id"],
                    session=f"session_{number}",
                    name=turn["speaker"],
                    role="user",
                    said_at=said_at + timedelta(seconds=place),
                    text=turn["text"],
                    caption=turn.get("blip_caption", ""),
                )
            )
        number += 1
    known = {turn.id for turn in turns}
    questions: list[Question] = []
    for asked in sample["qa"]:
        found = [f"D{int(s)}:{int(t)}" for item in asked.get("evidence", []) for s, t in _EVIDENCE.findall(item)]
        evidence = tuple(dict.fromkeys(item for item in found if item in known))
        if evidence and asked["category"] in _CATEGORIES:
            questions.append(Question(asked["question"], _CATEGORIES[asked["category"]], evidence))
    return Dialogue(str(sample.get("sample_id", "locomo")), tuple(turns), tuple(questions))


def load_own(name: str) -> Dialogue:
    """One of `OWN_SETS`."""
    return parse(name, (_FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


def load_stores(name: str, sets: Path = _FOLDER) -> list[Dialogue]:
    """The dialogues of one of `SETS_OF_STORES`, by file name. Raises ValueError if SHA256SUMS lists others."""
    folder = sets / name
    found = {path.name: path.read_bytes() for path in sorted(folder.glob("*.txt"))}
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {file}\n" for file, content in found.items())
    if sums != (folder / "SHA256SUMS").read_text(encoding="utf-8"):
        raise ValueError(f"the files of {name} are not those of its SHA256SUMS, these are:\n{sums}")
    return [parse(Path(file).stem, content.decode()) for file, content in found.items()]


def parse(name: str, text: str) -> Dialogue:
    """A dialogue from its text. Evidence that names no turn is an error."""
    turns: dict[str, Turn] = {}
    questions: list[Question] = []
    session, place, kind = 0, 0, ""
    said_at = datetime(2024, 1, 1, tzinfo=UTC)
    is_note = False
    for line in filter(None, map(str.strip, text.splitlines())):
        if place and not kind and (line == "|" or line.startswith("| ")):
            key = f"{session}.{place}"
            turns[key] = replace(turns[key], text=f"{turns[key].text}\n{line[2:]}")
        elif line.startswith("# "):
            session, place = session + 1, 0
            is_note = line.startswith("# note ")
            said_at = datetime.strptime(line[-16:], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
        elif line.startswith("== "):
            kind = line[3:]
        elif kind:
            asked, _, found = line.rpartition(" = ")
            evidence = tuple(found.split(", "))
            missing = [item for item in evidence if item not in turns]
            if missing or not asked:
                raise ValueError(f"{name}: {line!r} names no turn {', '.join(missing)}")
            questions.append(Question(asked, kind, evidence))
        else:
            place += 1
            speaker, _, words = ("", "", line) if is_note else line.partition(": ")
            role = speaker if speaker in _ROLES else _ROLE_OF_NAME.get(speaker, "user")
            key = f"{session}.{place}"
            turns[key] = Turn(
                id=key,
                session=None if is_note else f"session-{session}",
                name=speaker if speaker and speaker not in _ROLES and role == "user" else None,
                role=role,
                said_at=said_at + timedelta(seconds=20 * place),
                text=words,
            )
    return Dialogue(name, tuple(turns.values()), tuple(questions))
