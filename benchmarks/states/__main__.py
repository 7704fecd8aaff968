"""Whether compaction keeps the newest form of a state, and leaves other statements alone.

    python -m benchmarks.states [--sealed [2]] [--list-misses] [--save]

Each pair of statements is in a dialogue of its own, which `compact_messages` summarises without a model. If the
second statement replaces the first, its words in braces must be in the summary and those of the first must not.
Otherwise both must be there, as they are if each statement is alone. `--sealed` reads a list on which no rule was
chosen. Intervals: 95 %, by Wilson. Ends with 1 below 90 % right in a language, or if the sealed list is not that of
`SHA256SUMS`.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, Final

from benchmarks import figures
from loom.context import compact_messages
from loom.text.scripts import has_han

__all__ = ["Pair", "Said", "is_right", "load", "main"]

_FOLDER: Final = Path(__file__).parent
_LANGUAGES: Final = ("English", "Chinese")
RIGHT: Final = 0.9
_SUMMARY_TOKENS: Final = 400
_TALK: Final = {
    "English": (
        "Thanks, that helps a lot.",
        "Shall I go through the rest of it with you?",
        "Yes please, take your time.",
        "Could you say a bit more about why?",
        "Hm, let me think about that for a moment.",
        "Fine, go ahead.",
    ),
    "Chinese": (
        "谢谢，很有帮助。",
        "要我接着往下看吗？",
        "好的，慢慢来。",
        "能多说一点原因吗？",
        "嗯，让我想想。",
        "行，继续吧。",
    ),
}
_MARK: Final = re.compile(r"\{([^}]+)\}")
_SPEAKER: Final = re.compile(r"\[(\w+)\] ")


@dataclass(frozen=True, slots=True)
class Said:
    """One statement of a pair: its text, the words that distinguish it from the other one, and its speaker."""

    text: str
    keys: tuple[str, ...]
    speaker: str | None

    @classmethod
    def of(cls, line: str) -> Said:
        speaker = _SPEAKER.match(line)
        line = line[speaker.end() :] if speaker else line
        return cls(_MARK.sub(r"\1", line), tuple(_MARK.findall(line)), speaker[1] if speaker else None)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two statements, the older one first, whether the newer replaces it, and the kind of the example."""

    first: Said
    second: Said
    replaces: bool
    example: str

    @property
    def language(self) -> str:
        return "Chinese" if has_han(self.first.text) else "English"


def load(name: str) -> list[Pair]:
    """The pairs of `development` or `sealed`, in their order."""
    pairs = []
    for block in (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("# ")[1:]:
        head, first, second = block.strip().split("\n")
        pairs.append(Pair(Said.of(first), Said.of(second), head == "replaces", head.partition(": ")[2] or head))
    return pairs


def _summary(said: Sequence[Said], language: str) -> str:
    """The summary of a dialogue with these statements and small talk around them."""
    talk = _TALK[language]
    messages: list[dict[str, Any]] = []
    for one in said:
        messages.append({"role": "user", "content": one.text} | ({"name": one.speaker} if one.speaker else {}))
        messages += [{"role": "assistant", "content": talk[0]}, {"role": "user", "content": talk[4]}]
    for number in range(12):
        messages.append({"role": "assistant", "content": talk[number % len(talk)]})
        messages.append({"role": "user", "content": talk[(number + 3) % len(talk)]})
    done = compact_messages(messages, keep_tokens=60, summary_tokens=_SUMMARY_TOKENS)
    return "\n".join((*done.rules, done.summary.text if done.summary else ""))


def _times(key: str, text: str) -> int:
    found = re.findall(
        rf"(?<!\w){re.escape(key)}(?!\w)" if key.isascii() and not has_han(text) else re.escape(key), text
    )
    return len(found)


def is_right(pair: Pair) -> bool:
    """Whether the summary of a pair has the required words and no others."""
    together = _summary((pair.first, pair.second), pair.language)
    alone = [_summary((one,), pair.language) for one in (pair.first, pair.second)]
    if pair.replaces:
        return all(_times(key, together) for key in pair.second.keys) and all(
            _times(key, together) <= _times(key, alone[1]) for key in pair.first.keys
        )
    return all(
        _times(key, together) >= min(1, _times(key, text))
        for said, text in zip((pair.first, pair.second), alone, strict=True)
        for key in said.keys
    )


def _share(right: int, pairs: int) -> tuple[float, float, float]:
    """A share with its interval by Wilson."""
    if not pairs:
        return 0.0, 0.0, 0.0
    share, z = right / pairs, 1.96
    middle = (share + z * z / (2 * pairs)) / (1 + z * z / pairs)
    width = z * sqrt(share * (1 - share) / pairs + z * z / (4 * pairs * pairs)) / (1 + z * z / pairs)
    return share, middle - width, middle + width


def _is_sealed() -> bool:
    for line in (_FOLDER / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, name = line.split()
        if hashlib.sha256((_FOLDER / name).read_bytes()).hexdigest() != digest:
            print(f"{name} is not the file that was sealed")
            return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.states", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sealed", nargs="?", type=int, const=1, choices=(1, 2), help="read a sealed list")
    parser.add_argument("--list-misses", action="store_true", help="print the pairs that went wrong")
    parser.add_argument("--save", action="store_true", help="keep the result for the documents")
    options = parser.parse_args(arguments)
    if options.sealed and options.list_misses:
        parser.error("the sealed list is not looked at: --list-misses is refused")
    name = {None: "development", 1: "sealed", 2: "sealed-2"}[options.sealed]
    judged = [(pair, is_right(pair)) for pair in load(name)]
    found: dict[str, Any] = {}
    good = True
    for language in ("all", *_LANGUAGES):
        print(f"  {language}")
        for title, replaces in (("all", None), ("replaced", True), ("left alone", False)):
            some = [
                right
                for pair, right in judged
                if language in ("all", pair.language) and replaces in (None, pair.replaces)
            ]
            share, low, high = _share(sum(some), len(some))
            print(f"    {title:<12}{share:>7.1%} [{low:.1%}, {high:.1%}] of {len(some)}")
            found[f"{language} {title}"] = {"right": share, "low": low, "high": high, "pairs": len(some)}
            good = good and share >= RIGHT
    examples = sorted({pair.example for pair, _ in judged})
    for example in examples:
        some = [right for pair, right in judged if pair.example == example]
        print(f"  {example:<24}{sum(some):>4} of {len(some)}")
    wrong = sum(not right for pair, right in judged if pair.example == "other subjects")
    print(f"  of different subjects, merged: {wrong}")
    found["other_subjects_merged"] = wrong
    for pair, right in judged if options.list_misses else ():
        if not right:
            print(f"\n  {pair.example}: {pair.first.text} / {pair.second.text}")
            print("    " + _summary((pair.first, pair.second), pair.language).replace("\n", "\n    "))
    if options.save:
        figures.save(f"states-{name}", sys.argv[1:] if arguments is None else arguments, found)
    print(f"\n  at least {RIGHT:.0%} right everywhere: {'yes' if good else 'NO'}")
    return 0 if good and _is_sealed() else 1


if __name__ == "__main__":
    sys.exit(main())
