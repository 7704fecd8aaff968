"""Standing instructions and preferences: the sentences of a user's turn that bind later answers.

"Always show types when I ask for code" applies to later requests that share no word with it; "show me the types"
applies once. Rules in English and Chinese find them. Code, logs, quotations and passed-on texts contain none.
`loom.memory.standing` stores them, and `loom.recall.conditions` chooses those that apply to a question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from loom.knowledge.instruction_changes import withdrawn_topic
from loom.knowledge.instruction_cues import (
    CHINESE,
    ENGLISH,
    FOREIGN_TEXT,
    OF_OTHERS,
    QUOTED,
    SESSION_ONLY,
    UNSTATED,
    Cues,
)
from loom.text.scripts import is_chinese
from loom.text.sentences import statements
from loom.types import InstructionKind, InstructionScope

__all__ = ["LONGEST_INSTRUCTION", "StandingInstruction", "find_instructions", "instructions_of"]

LONGEST_INSTRUCTION: Final = 320
"""The most characters of an instruction."""

# The characters of a turn that are read: the middle of a book contains no instructions.
_MOST_CHARS = 40_000
_SHORTEST = 4
# The types of message parts with typed text.
_OWN_PARTS = frozenset({"text", "input_text"})
_OPENING = re.compile(
    r"(?:(?:ok(?:ay)?|so|and|also|but|oh|hey|hi|hello|please|well|then|now|thanks|thank you|sure|(?:yes|"
    r"no)(?=[,!.，！])|plus|"
    r"btw|by the way|remember(?=:)|"
    r"one more thing|another thing|important|reminder|fyi|just|finally|first|second|lastly|alright|right|great|"
    r"请注意|另外|还有|对了|顺便|好的|好|嗯)(?:[,:!.，：！]\s*|\s+)|[-*•]\s+|\d+[.)]\s+)+",
    re.IGNORECASE,
)
# The end of the instruction in a long sentence, where the present request begins.
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


class StandingInstruction(NamedTuple):
    """A sentence that binds later answers, word for word, with its place in the turn.

    `condition` has the words that say when it applies ("when I ask for code"); None if there are none.
    """

    text: str
    span: tuple[int, int]
    kind: InstructionKind
    condition: str | None
    scope: InstructionScope


def find_instructions(text: str, read: Sequence[str] = ()) -> list[StandingInstruction]:
    """The standing instructions and preferences in a user's turn, in their order there. Deterministic.

    `read` are sentences that a model classified as such. A sentence counts if it occurs in the turn word for word,
    outside of code and quotations, and no rule found it.
    """
    text = text[:_MOST_CHARS]
    found = [*_found(text)]
    return [*found, *_as_read(text, read, found)] if read else found


def _as_read(text: str, read: Sequence[str], found: Sequence[StandingInstruction]) -> Iterator[StandingInstruction]:
    """The sentences that a model read and no rule found, without the words of others and one-time requests."""
    own = _own_words(text)
    spans = [one.span for one in found]
    machine = [(one.start, one.end) for one in statements(own) if one.machine or one.quoted]
    for sentence in read:
        said = sentence.strip()
        start = own.find(said) if _SHORTEST <= len(said) <= LONGEST_INSTRUCTION else -1
        span = (start, start + len(said))
        if start < 0 or any(span[0] < end and begin < span[1] for begin, end in (*spans, *machine)):
            continue
        cues = CHINESE if is_chinese(said) else ENGLISH
        plain = said.replace("’", "'").lower()
        if said.endswith(("?", "？")) or _holds_once(plain, cues):
            continue
        spans.append(span)
        prefers = any(pattern.search(plain) for pattern in cues.preferences)
        yield StandingInstruction(
            said,
            span,
            InstructionKind.PREFERENCE if prefers else InstructionKind.INSTRUCTION,
            _condition(said, cues),
            InstructionScope.SESSION if SESSION_ONLY.search(said) else InstructionScope.EVERYWHERE,
        )


def instructions_of(
    content: str, message: Mapping[str, Any] | None = None, read: Sequence[str] = ()
) -> list[StandingInstruction]:
    """The standing instructions of a stored turn.

    Only the text parts of a chat message count: results of tools and files are not the user's words.
    """
    parts = None if message is None else message.get("content")
    if not isinstance(parts, list):
        return find_instructions(content, read)
    found: list[StandingInstruction] = []
    for part in parts:
        own = part.get("text") if isinstance(part, Mapping) and part.get("type") in _OWN_PARTS else part
        if isinstance(own, str) and own and (start := content.find(own)) >= 0:
            found += [
                one._replace(span=(start + one.span[0], start + one.span[1])) for one in find_instructions(own, read)
            ]
    return found


def _found(text: str) -> Iterator[StandingInstruction]:
    for statement in statements(_own_words(text)):
        if statement.machine or statement.quoted or statement.end - statement.start < _SHORTEST:
            continue
        said = statement.text
        opening = _OPENING.match(said)
        start = opening.end() if opening else 0
        cues = CHINESE if is_chinese(said) else ENGLISH
        if not said.rstrip().endswith(("?", "？")) and withdrawn_topic(said[start:].replace("’", "'")) is not None:
            span = (statement.start, statement.end)
            yield StandingInstruction(
                text[slice(*span)].strip(), span, InstructionKind.WITHDRAWAL, None, InstructionScope.EVERYWHERE
            )
            continue
        judged = _judge(said[start:].replace("’", "'").lower(), cues)
        if judged is None:
            continue
        kind, (begin, end) = judged
        first, last = _passage(said, start + begin, start + end, cues)
        span = (statement.start + first, statement.start + last)
        yield StandingInstruction(
            text[slice(*span)].strip(),
            span,
            kind,
            _condition(said[start:] if first <= start else said[first:], cues),
            InstructionScope.SESSION if SESSION_ONLY.search(said) else InstructionScope.EVERYWHERE,
        )


def _condition(said: str, cues: Cues) -> str | None:
    """The words that state the condition, or None."""
    when = cues.condition.search(said)
    return None if when is None else when.group().strip(" ，,") or None


def _own_words(text: str) -> str:
    """The text with blanks in place of quotations and passed-on texts, so that offsets stay the same."""
    text = QUOTED.sub(lambda match: " " * len(match.group()), text)
    for match in FOREIGN_TEXT.finditer(text):
        line_end = text.find("\n", match.end())
        inline = text[match.end() : line_end if line_end >= 0 else len(text)].strip()
        end = line_end if inline and line_end >= 0 else len(text)
        text = text[: match.end()] + re.sub(r"\S", " ", text[match.end() : end]) + text[end:]
    return text


def _judge(said: str, cues: Cues) -> tuple[InstructionKind, tuple[int, int]] | None:
    """The kind of a sentence without its opening words, and the position of the words that determine it."""
    if _holds_once(said, cues):
        return None
    for kind, patterns in (
        (InstructionKind.INSTRUCTION, () if OF_OTHERS.search(said) else cues.instructions),
        (InstructionKind.PREFERENCE, cues.preferences),
    ):
        for pattern in patterns:
            match = pattern.search(said)
            if match is None or _is_asked(said, match, cues):
                continue
            if kind is not InstructionKind.PREFERENCE or not UNSTATED.search(said, 0, match.start()):
                return kind, match.span()
    return None


def _is_asked(said: str, match: re.Match[str], cues: Cues) -> bool:
    """Whether the words are part of a question. A question in a later clause does not count."""
    if not said.rstrip().endswith(("?", "？", "吗", "呢")):
        return False
    rest = said[match.end() :].rstrip("?？ ")
    if cues is CHINESE:
        _, comma, after = rest.rpartition("，")
        return not comma or _TAG.search(after) is not None
    clause_start = max(said.rfind(mark, 0, match.start()) for mark in (", ", "; ", ": ")) + 1
    asked = said[clause_start : match.end()].strip()
    return cues.asks.search(asked) is not None or _ASKS_NEXT.search(rest) is None


def _holds_once(said: str, cues: Cues) -> bool:
    """Whether the sentence is about a single occasion, or about the past."""
    return cues.once.search(said) is not None and cues.lasting.search(said) is None


def _passage(said: str, begin: int, end: int, cues: Cues) -> tuple[int, int]:
    """The instruction in a sentence: all of a short sentence, or the clauses at the cue of a long one."""
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
