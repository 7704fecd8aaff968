"""The marked dialogues: reading them, and checking whether a text keeps a mark.

The data lies beside this file as JSON; README.md says how it was marked, when it may be changed, and its sha256,
which `load` compares. `benchmarks.extraction` and `benchmarks.summaries` measure with it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

__all__ = ["FOLDER", "LANGUAGES", "TYPES", "Dialogue", "Mark", "Utterance", "checksum", "load", "sentences"]

FOLDER: Final = Path(__file__).parent
LANGUAGES: Final = {"en": "English", "zh": "Chinese"}
TYPES: Final = (
    "decision",
    "error",
    "fix",
    "number",
    "reason",
    "date",
    "plan",
    "practice",
    "api",
    "tool",
    "identity",
    "place",
    "preference",
)

_CJK: Final = re.compile(r"[\u3400-\u9fff]")
_CODE: Final = re.compile(r"```.*?```", re.DOTALL)
_SENTENCE_END: Final = re.compile(r"\n+|(?<=[.!?])\s+|(?<=[。！？…])(?![。！？…”』」》）])")


@dataclass(frozen=True, slots=True)
class Mark:
    """One fact that a turn states. A text keeps it if it has one of the alternatives of every group of `keys`.

    A `minor` one may be extracted or left out; both are right.
    """

    id: str
    type: str
    says: str
    keys: tuple[tuple[str, ...], ...]
    same_as: str | None
    supersedes: str | None
    minor: bool

    def kept_in(self, text: str) -> bool:
        compared = _comparable(text)
        return all(any(_pattern(key).search(compared) for key in group) for group in self.keys)


@dataclass(frozen=True, slots=True)
class Utterance:
    """One turn of a dialogue, with its marks and the number of its sentences that are small talk."""

    id: str
    session: str
    at: datetime
    speaker: str
    role: str
    text: str
    marks: tuple[Mark, ...]
    small_talk: int

    @property
    def language(self) -> str:
        """The main language, without pasted code. A Chinese character counts as three Latin letters."""
        prose = _CODE.sub("", self.text)
        latin = sum(sign.isascii() and sign.isalpha() for sign in prose)
        return "zh" if 3 * len(_CJK.findall(prose)) >= latin else "en"


@dataclass(frozen=True, slots=True)
class Dialogue:
    id: str
    topic: str
    utterances: tuple[Utterance, ...]


@functools.lru_cache(maxsize=4_096)
def _comparable(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


@functools.lru_cache(maxsize=4_096)
def _pattern(key: str) -> re.Pattern[str]:
    """Spaces around Chinese characters do not count; 5 is not found in 15 or 5.2, nor "error" in "terror"."""
    key = _comparable(key)
    if _CJK.search(key):
        body = r"\s*".join(re.escape(sign) for sign in key if not sign.isspace())
    else:
        body = r"\s+".join(re.escape(word) for word in key.split())
    before = after = ""
    if key[0].isdigit():
        before = r"(?<!\d)(?<!\d[.,])"
    elif key[0].isascii() and key[0].isalpha():
        before = r"(?<![a-z0-9])"
    if key[-1].isdigit():
        after = r"(?!\d)(?!\.\d)(?!,\d{3}(?!\d))"
    return re.compile(before + body + after)


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, as the baselines take them."""
    return [sentence for piece in _SENTENCE_END.split(text) if (sentence := piece.strip())]


def checksum(folder: Path = FOLDER) -> str:
    """sha256 over the files in the order of their names, each as its name, a newline and its bytes."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.json")):
        digest.update(path.name.encode() + b"\n" + path.read_bytes())
    return digest.hexdigest()


def load(folder: Path = FOLDER) -> list[Dialogue]:
    """Every dialogue, by name. Refuses data whose checksum is not that in README.md."""
    found = checksum(folder)
    if found not in (folder / "README.md").read_text(encoding="utf-8"):
        raise SystemExit(f"the dialogues in {folder} are not those of its README.md: their sha256 is {found}")
    return [_dialogue(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]


def _dialogue(data: dict[str, Any]) -> Dialogue:
    return Dialogue(data["id"], data["topic"], tuple(_utterance(turn) for turn in data["turns"]))


def _utterance(turn: dict[str, Any]) -> Utterance:
    marks = tuple(
        Mark(
            fact["id"],
            fact["type"],
            fact["says"],
            tuple(tuple(group) for group in fact["keys"]),
            fact.get("same_as"),
            fact.get("supersedes"),
            fact.get("minor", False),
        )
        for fact in turn["facts"]
    )
    return Utterance(
        turn["id"],
        turn["session"],
        datetime.fromisoformat(turn["at"]),
        turn["speaker"],
        turn["role"],
        turn["text"],
        marks,
        turn["small_talk"],
    )
