"""Shortening messages: a text keeps its beginning and its end, and a mark says how much is missing.

A tool call and its results are one step. Either both stay structured, with shorter texts, or both are left out. Pure
functions of the messages and a number of tokens: the same input gives the same result, so a layout can repeat it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loom.context.items import Message

__all__ = ["ShorterMessages", "answers_a_call", "left_out", "shorter_messages", "shorter_text", "steps_of"]

Count = Callable[[str], int]
Size = Callable[[Sequence[Message]], int]

# A message is not shortened below this size; its whole step is left out instead.
_LEAST_MESSAGE = 40
# The share of a shortened text that is its beginning.
_BEGINNING = 2 / 3
# The most characters by which a cut may move to fall between two words.
_WORD = 24
_TRIES = 6
# A text is shortened to a multiple of this size, or of about a thirtieth of it.
_STEP = 4
_BLOCK = ("<memory>\n", "\n</memory>")
# The mark between the speaker of an unverified quotation and its text, and the last position at which it is searched.
_QUOTED = ": “"
_LONGEST_SPEAKER = 160


def left_out(tokens: int) -> str:
    """The mark at the place where a text is cut."""
    return f"[… {tokens:,} tokens left out]"


def shorter_text(text: str, most: int, count: Count, total: int | None = None) -> str:
    """The beginning and the end of a text in at most `most` tokens, with the mark between them.

    A text that fits is returned unchanged. If not even the mark fits, the result is empty. `total` is the number of
    tokens of the text, if it is known; a text of megabytes is then not counted again.
    """
    total = count(text) if total is None else total
    if total <= most:
        return text
    # The search below is inexact. For rounded sizes, the text never becomes shorter with more room.
    step = max(_STEP, 1 << max(0, most.bit_length() - 6))
    most -= most % step
    best = left_out(total)
    if count(best) > most:
        return ""
    each = len(text) / total
    size = count(best)
    low, high = 0, len(text)
    kept = int((most - size) * each)
    for _ in range(_TRIES):
        kept = min(max(kept, low + 1), high - 1)
        if kept <= low:
            break
        shown = _ends_of(text, kept, total, each)
        size = count(shown)
        if size <= most:
            best, low = shown, kept
            if most - size <= max(2, most // 50):
                break
        else:
            high = kept
        kept += int((most - size) * each) or (1 if size <= most else -1)
    return best


def _ends_of(text: str, kept: int, total: int, each: float) -> str:
    """A text with about `kept` of its characters."""
    first = int(kept * _BEGINNING)
    last = len(text) - (kept - first)
    space = text.rfind(" ", max(0, first - _WORD), first + 1)
    first = space if space > 0 else first
    space = text.find(" ", last, last + _WORD)
    last = space + 1 if space >= 0 else last
    mark = left_out(max(1, round((last - first) / each)))
    return " ".join(part for part in (text[:first].rstrip(), mark, text[last:].lstrip()) if part)


@dataclass(frozen=True, slots=True)
class ShorterMessages:
    """Messages in fewer tokens. `origins` has the position of the original of each, -1 for a note; `sizes` has their
    tokens; `cut` has the positions of the originals that were shortened."""

    messages: tuple[Message, ...]
    origins: tuple[int, ...]
    sizes: tuple[int, ...]
    cut: frozenset[int]


def shorter_messages(messages: Sequence[Message], most: int, count: Count, size: Size) -> ShorterMessages | None:
    """Shorten messages to at most `most` tokens. Returns None if not even parts of the first and the last step fit.

    Short messages stay whole, long ones are cut to the same length. If there are too many, the first and the last
    ones stay, and a note replaces the others.
    """
    sizes = [size([message]) for message in messages]
    steps = steps_of(messages)
    floors = [sum(min(sizes[at], _least(messages[at])) for at in step) for step in steps]
    whole = sum(sizes)
    note = size([_note(messages, whole)])
    kept = set(range(len(steps)))
    if sum(floors) > most:
        kept, room = set(), most - note
        for index in dict.fromkeys([len(steps) - 1, 0, *range(len(steps) - 2, 0, -1)]):
            if floors[index] > room:
                break
            kept.add(index)
            room -= floors[index]
        if not {0, len(steps) - 1} <= kept:
            return None
        # With more room other steps are added, and no message becomes shorter.
        most = note + sum(floors[index] for index in kept)
    for slack in range(_TRIES):
        room = most - (note if len(kept) < len(steps) else 0) - 4 * slack
        found = _cut_to(messages, sizes, steps, kept, room, count, size)
        if sum(found.sizes) <= most:
            return found
    return None


def steps_of(messages: Sequence[Mapping[str, Any]]) -> list[range]:
    """The positions of the messages of each step: a single message, or calls with their results."""
    found: list[range] = []
    for at, message in enumerate(messages):
        if found and (message.get("role") in ("tool", "function") or answers_a_call(message)):
            found[-1] = range(found[-1].start, at + 1)
        else:
            found.append(range(at, at + 1))
    return found


def answers_a_call(message: Mapping[str, Any]) -> bool:
    """Whether a message holds results of tools, in Anthropic's form."""
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(part, Mapping) and part.get("type") == "tool_result" for part in content
    )


def _least(message: Message) -> int:
    return _LEAST_MESSAGE * max(1, len(message.get("tool_calls") or ()))


def _note(messages: Sequence[Message], tokens: int) -> Message:
    names = dict.fromkeys(call["function"]["name"] for one in messages for call in one.get("tool_calls") or ())
    calls = f", with calls of {', '.join(list(names)[:4])} and their results" if names else ""
    return {"role": "user", "content": f"[{len(messages)} messages left out{calls}: {tokens:,} tokens]"}


def _cut_to(
    messages: Sequence[Message],
    sizes: Sequence[int],
    steps: Sequence[range],
    kept: set[int],
    room: int,
    count: Count,
    size: Size,
) -> ShorterMessages:
    cap = _even(
        [(sizes[at], len(messages[at].get("tool_calls") or ()) or 1) for index in kept for at in steps[index]], room
    )
    shown: list[Message] = []
    origins: list[int] = []
    cut: set[int] = set()
    gone: list[int] = []

    def tell() -> None:
        if gone:
            shown.append(_note([messages[at] for at in gone], sum(sizes[at] for at in gone)))
            origins.append(-1)
            cut.update(gone)
            gone.clear()

    for index, step in enumerate(steps):
        if index not in kept:
            gone.extend(step)
            continue
        tell()
        for at in step:
            message = messages[at]
            most = int(cap * (len(message.get("tool_calls") or ()) or 1))
            if sizes[at] > most:
                message = _shorter_message(message, most, count, size)
                cut.add(at)
            shown.append(message)
            origins.append(at)
    tell()
    return ShorterMessages(tuple(shown), tuple(origins), tuple(size([message]) for message in shown), frozenset(cut))


def _even(sizes: Sequence[tuple[int, int]], room: int) -> float:
    """The limit of each part, so that together the parts take `room`. A part counts as often as its weight."""
    left, weights = float(room), sum(weight for _, weight in sizes)
    for size, weight in sorted(sizes, key=lambda one: one[0] / one[1]):
        if size * weights > left * weight:
            return max(1.0, left / weights)
        left -= size
        weights -= weight
    return float(room)


def _shorter_message(message: Message, most: int, count: Count, size: Size) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        bare = size([{**message, "content": ""}])
        return {**message, "content": _shorter_content(message["content"], max(1, most - bare), count)}
    said = message.get("content") or ""
    given = [call["function"]["arguments"] for call in calls]
    bare = size([_with_calls(message, "", [""] * len(calls))])
    parts = [said, *given] if said else given
    cap = int(_even([(count(part), 1) for part in parts], max(1, most - bare)))
    shorter = [_shorter_arguments(one, cap, count) for one in given]
    return _with_calls(message, shorter_text(said, cap, count) if said else "", shorter)


def _with_calls(message: Message, said: str, arguments: Sequence[str]) -> Message:
    calls = [
        {**call, "function": {**call["function"], "arguments": given}}
        for call, given in zip(message["tool_calls"], arguments, strict=True)
    ]
    return {**message, "content": said or None, "tool_calls": calls}


def _shorter_content(text: str, most: int, count: Count) -> str:
    """Shorten a quotation inside its block, after its speaker and trust."""
    begins, ends = "", ""
    if text.startswith(_BLOCK[0]) and text.endswith(_BLOCK[1]):
        begins, ends = _BLOCK
        speaker = text.find(_QUOTED)
        if 0 <= speaker < _LONGEST_SPEAKER and text.endswith(f"”{ends}"):
            begins, ends = text[: speaker + len(_QUOTED)], f"”{ends}"
    inside = text[len(begins) : len(text) - len(ends)]
    room = most - (count(begins) + count(ends) if begins else 0)
    return f"{begins}{shorter_text(inside, room, count) or '[…]'}{ends}"


def _shorter_arguments(arguments: str, most: int, count: Count) -> str:
    """Shorten arguments to about this many tokens. The result is a JSON object, in which the texts are shortened, or
    a single text replaces everything if that is not enough."""
    if count(arguments) <= most:
        return arguments
    value = json.loads(arguments)
    cap = most
    for _ in range(_TRIES):
        shown = json.dumps(_shorter_within(value, cap, count), ensure_ascii=False)
        if count(shown) <= most:
            return shown
        cap //= 2
    told = shorter_text(arguments, max(1, most - _LEAST_MESSAGE // 2), count) or left_out(count(arguments))
    return json.dumps({"shortened": told}, ensure_ascii=False)


def _shorter_within(value: Any, most: int, count: Count) -> Any:
    if isinstance(value, str):
        return shorter_text(value, most, count) or left_out(count(value))
    if isinstance(value, Mapping):
        return {key: _shorter_within(one, most, count) for key, one in value.items()}
    if isinstance(value, list):
        return [_shorter_within(one, most, count) for one in value]
    return value
