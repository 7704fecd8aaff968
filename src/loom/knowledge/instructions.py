"""Standing instructions and preferences: which sentences of a user's turn bind later answers, and when they apply.

"Always show types when I ask for code" holds for later requests that share no word with it; "show me the types"
holds for once. Rules decide, in English and Chinese. Code, logs, quotations and passed-on texts make none.
Storing them is done in `loom.memory.instructions`; `loom.recall.instructions` chooses those that a question meets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from loom.knowledge.instruction_cues import (
    CHINESE,
    ENGLISH,
    FOREIGN_TEXT,
    MAY_INSTRUCT,
    QUOTED,
    SESSION_ONLY,
    UNSTATED,
    Cues,
)
from loom.text.scripts import is_chinese
from loom.text.sentences import statements

__all__ = ["LONGEST_INSTRUCTION", "InstructionKind", "InstructionScope", "StandingInstruction", "find_instructions"]

LONGEST_INSTRUCTION: Final = 320
"""The characters that an instruction may have."""

# More of a turn is not read: instructions are not given in the middle of a book.
_MOST_CHARS = 40_000
_SHORTEST = 4
_OPENING = re.compile(
    r"(?:(?:ok(?:ay)?|so|and|also|but|oh|hey|hi|hello|please|well|then|now|thanks|thank you|sure|yes|no|plus|"
    r"btw|by the way|"
    r"one more thing|another thing|important|reminder|rule|fyi|just|finally|first|second|lastly|alright|right|great|"
    r"请注意|另外|还有|对了|顺便|好的|好|嗯)(?:[,:!.，：！]\s*|\s+)|[-*•]\s+|\d+[.)]\s+)+",
    re.IGNORECASE,
)
# Where the part of a long sentence ends that says what is wanted, and the present request begins.
_ENGLISH_TURN = re.compile(
    r"[,;:.]? (?=(?:so |and |but |then |now )?(?:can|could|would|will|how|what|which|is there|do you|please "
    r"help|given|considering|"
    r"should i|what's|i'm not sure|i am not sure|i was wondering|maybe)\b)|[;:] |, (?=(?:and )?i(?:'m| am|'ve| "
    r"have) )",
    re.IGNORECASE,
)
_ASKS_NEXT = re.compile(
    r"[,;.] ?(?:so |and |but |then )?(?:can|could|would|will|how|what|which|is|are|do|does|should|may|where|who|"
    r"when|given|"
    r"considering|maybe)\b"
)
_TAG = re.compile(r"真的吗|对吗|对吧|是吗|是吧|行吗|好吗|可以吗$")
_CHINESE_TURN = re.compile(r"[，；](?=(?:你|那|请问|能|可以|怎么|如果|有没有|该|应该|帮我|我们|我在|目前))")


class InstructionKind(StrEnum):
    """What a standing instruction is."""

    INSTRUCTION = "instruction"
    """What the user told the assistant to do, or not to do."""
    PREFERENCE = "preference"
    """What the user likes, avoids or is used to."""


class InstructionScope(StrEnum):
    """Where a standing instruction holds."""

    EVERYWHERE = "everywhere"
    """In every session of the node that was told."""
    SESSION = "session"
    """In the session in which it was given."""


class StandingInstruction(NamedTuple):
    """A sentence that binds later answers, word for word, with its place in the turn.

    `condition` has the words that say when it applies ("when I ask for code"), None where it says nothing of that.
    """

    text: str
    span: tuple[int, int]
    kind: InstructionKind
    condition: str | None
    scope: InstructionScope


def find_instructions(text: str) -> list[StandingInstruction]:
    """The standing instructions and preferences in a user's turn, in its order. Deterministic."""
    text = text[:_MOST_CHARS]
    if MAY_INSTRUCT.search(text) is None:
        return []
    return [*_found(text)]


def _found(text: str) -> Iterator[StandingInstruction]:
    own = _own_words(text)
    for statement in statements(own):
        if statement.machine or statement.quoted or statement.end - statement.start < _SHORTEST:
            continue
        said = statement.text
        opening = _OPENING.match(said)
        start = opening.end() if opening else 0
        cues = CHINESE if is_chinese(said) else ENGLISH
        judged = _judge(said[start:].replace("’", "'").lower(), cues)
        if judged is None:
            continue
        kind, (begin, end) = judged
        first, last = _passage(said, start + begin, start + end, cues)
        span = (statement.start + first, statement.start + last)
        words = text[slice(*span)].strip()
        when = cues.condition.search(said[start:] if first <= start else said[first:])
        yield StandingInstruction(
            words,
            span,
            kind,
            when.group().strip(" ，,") if when is not None else None,
            InstructionScope.SESSION if SESSION_ONLY.search(said) else InstructionScope.EVERYWHERE,
        )


def _own_words(text: str) -> str:
    """The text with blanks in the place of quotations and of texts that are passed on, so that offsets stay."""
    text = QUOTED.sub(lambda match: " " * len(match.group()), text)
    for match in FOREIGN_TEXT.finditer(text):
        line_end = text.find("\n", match.end())
        inline = text[match.end() : line_end if line_end >= 0 else len(text)].strip()
        end = line_end if inline and line_end >= 0 else len(text)
        text = text[: match.end()] + re.sub(r"\S", " ", text[match.end() : end]) + text[end:]
    return text


def _judge(said: str, cues: Cues) -> tuple[InstructionKind, tuple[int, int]] | None:
    """What a sentence without its opening words is, and where the words are that say so."""
    for kind, patterns in (
        (InstructionKind.INSTRUCTION, cues.instructions),
        (InstructionKind.PREFERENCE, cues.preferences),
    ):
        for pattern in patterns:
            match = pattern.search(said)
            if match is None or _is_asked(said, match, cues) or _holds_once(said, cues):
                continue
            if kind is InstructionKind.PREFERENCE and UNSTATED.search(said, 0, match.start()):
                continue
            return kind, match.span()
    return None


def _is_asked(said: str, match: re.Match[str], cues: Cues) -> bool:
    """Whether the words are part of a question. What is asked after them, in another clause, does not matter."""
    if not said.rstrip().endswith(("?", "？", "吗", "呢")):
        return False
    rest = said[match.end() :].rstrip("?？ ")
    if cues is CHINESE:
        _, comma, after = rest.rpartition("，")
        return not comma or _TAG.search(after) is not None
    clause_start = max(said.rfind(mark, 0, match.start()) for mark in (", ", "; ", ": ")) + 1
    before = said[clause_start : match.end()].strip()
    if cues.asks.search(before) is not None:
        return True
    return _ASKS_NEXT.search(rest) is None


def _holds_once(said: str, cues: Cues) -> bool:
    """Whether the sentence speaks of this one time, or of the past."""
    return cues.once.search(said) is not None and cues.lasting.search(said) is None


def _passage(said: str, begin: int, end: int, cues: Cues) -> tuple[int, int]:
    """The part of a sentence that says what is wanted: all of a short one, of a long one the clauses around "
    "the cue."""
    turn = _CHINESE_TURN if cues is CHINESE else _ENGLISH_TURN
    longest = LONGEST_INSTRUCTION // 2 if cues is CHINESE else LONGEST_INSTRUCTION
    is_asking = said.rstrip().endswith(("?", "？"))
    if not is_asking and len(said) <= longest:
        return 0, len(said)
    after = turn.search(said, end)
    last = after.start() if after is not None else len(said)
    before = [match.end() for match in turn.finditer(said, 0, begin)]
    first = before[-1] if before and last - before[-1] >= 24 and (last > longest or is_asking) else 0
    if last - first > longest:
        last = first + longest
        cut = max(said.rfind(mark, max(end, first + longest // 2), last) for mark in (",", "，", " "))
        last = cut if cut > end else min(last, len(said))
    return first, max(last, end)
