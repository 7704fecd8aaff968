"""No text makes a function that reads texts slow: four times the text takes about four times the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter_ns
from typing import Any

import pytest

from loom.context.rendering import neutralised
from loom.drafts import message_text
from loom.echoes import echo_spans
from loom.fractal.answers_by_words import judged_by_words
from loom.fractal.utils import pieces_of_work, should_use_fractal
from loom.index.analysis import index_terms
from loom.knowledge.extraction import FactExtractor
from loom.knowledge.homes import home_in
from loom.knowledge.revisions import revision_in
from loom.knowledge.summarizer import Summarizer
from loom.memory import FidelityChecker
from loom.models.endpoint import parsed_json
from loom.recall.questions import understand
from loom.terminal import visible
from loom.text import (
    dates,
    duplicates,
    entities,
    frames,
    passages,
    personal,
    scripts,
    sentences,
    specifics,
    statement_kinds,
    statements,
    thesaurus,
    time_terms,
    unstated,
    words,
)
from loom.text.sanitizer import ContentSanitizer
from loom.text.tokens import default_counter

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MICROS = 1_772_000_000_000_000

READERS: dict[str, Callable[[str], Any]] = {
    "asked_times": lambda text: time_terms.asked_times(text, NOW),
    "relative_words": lambda text: dates.relative_words(text, NOW),
    "spans": lambda text: dates.spans(text, NOW),
    "time_terms": lambda text: time_terms.time_terms(text, NOW),
    "may_merge": lambda text: duplicates.may_merge(text, text.lower() + " x"),
    "normal_form": duplicates.normal_form,
    "protected": duplicates.protected,
    "answer_marks": lambda text: entities.answer_marks(text, ()),
    "entity_marks": lambda text: entities.entity_marks(text, {"entities": [text]}),
    "name_nodes": lambda text: entities.name_nodes(text, {}),
    "only_asks": entities.only_asks,
    "outside_frame": frames.outside_frame,
    "sanitizer": ContentSanitizer().sanitize,
    "clauses": lambda text: [statements.clauses(one) for one in sentences.statements(text)],
    "cuts": lambda text: [statements.cuts(one) for one in sentences.statements(text)],
    "is_acknowledgement": lambda text: unstated.is_acknowledgement(text, assistant=True),
    "is_data": unstated.is_data,
    "echo_spans": echo_spans,
    "pieces_of_work": pieces_of_work,
    "judged_by_words": lambda text: judged_by_words(text[: len(text) // 2], text),
    "is_personal": personal.is_personal,
    "revision_in": revision_in,
    "home_in": lambda text: (home_in(text, chinese=False), home_in(text, chinese=True)),
    "is_chinese": scripts.is_chinese,
    "kind_of": statements.kind_of,
    "passages": lambda text: passages.passages(f"{text}{perf_counter_ns()}"),  # never one that is known already
    "specifics": specifics.specifics,
    "without_opening": statement_kinds.without_opening,
    "concepts": thesaurus.concepts,
    "tokens": default_counter().count,
    "content_terms": words.content_terms,
    "query_terms": words.query_terms,
    "simplified": words.simplified,
    "terms": words.terms,
    "complexity": should_use_fractal,
    "index_terms": lambda text: index_terms("Ana", "user", MICROS, None, text),
    "understand": lambda text: understand(text, NOW),
    "neutralised": lambda text: (neutralised(text), neutralised(text, trusted=False)),
    "facts": FactExtractor().extract,
    "summary": lambda text: Summarizer().summarize_messages([{"role": "user", "content": text}], budget=50),
    "fidelity": lambda text: FidelityChecker().check("a", [text]),
    "message": lambda text: message_text({"role": "user", "content": [{"type": "text", "text": text}]}),
    "visible": visible,
}

# What is repeated: single characters that patterns skip or gather, and pairs at which they begin again.
SINGLE = [
    "a",
    "A",
    "1",
    *" \n\t\x00.,-_/'\"([{<=:@#`\\",
    "一",
    "十",
    "和",
    "第",
    "。",
    "“",
    "é",
    "\u0301",
    "\u200b",
    "😀",
]
PAIRS = [
    "a ",
    "a.",
    "a-",
    "a'",
    "Aa",
    "A ",
    "A. ",
    "1,",
    "1.",
    "1-",
    "1:",
    " \n",
    "\n-",
    "- ",
    "1. ",
    "a\n",
    "(a",
    "<a",
]
WORDS = [
    "a@",
    "a=",
    "http://",
    "www.",
    "二十",
    "第一",
    "Mr. ",
    "May ",
    "5 May ",
    "not ",
    "```",
    "<|",
    "-----",
    "sk-",
    "$1",
]
ATOMS = [*SINGLE, *PAIRS, *WORDS]

SMALL, LARGE = 2_000, 8_000
# Sixteen would be quadratic. What takes less than this at the larger size is no matter.
MOST_TIMES, NO_MATTER_S = 10.0, 0.05


def work_s(read: Callable[[str], Any], text: str) -> float:
    """The least CPU time of a few runs."""
    taken = []
    for _ in range(3):
        began = time.thread_time()
        read(text)
        taken.append(time.thread_time() - began)
        if taken[-1] < NO_MATTER_S / MOST_TIMES:
            break
    return min(taken)


@pytest.mark.parametrize("name", READERS)
def test_the_work_grows_with_the_text_and_not_with_its_square(name: str) -> None:
    read = READERS[name]
    read("warm up 一 1")
    slow = {}
    for atom in ATOMS:
        small = work_s(read, (atom * SMALL)[:SMALL])
        if small < NO_MATTER_S / 16:
            continue
        large = work_s(read, (atom * LARGE)[:LARGE])
        if large > NO_MATTER_S and large > MOST_TIMES * small:
            slow[atom] = f"{small * 1000:.1f} ms, then {large * 1000:.1f} ms"
    assert not slow


def test_many_different_names_are_not_looked_for_one_by_one() -> None:
    def holding(names: list[str]) -> duplicates.Protected:
        return duplicates.Protected((), (), (), (), tuple(names), (), "".join(names))

    def compare(number: int) -> float:
        names = [f"王{chr(0x4E00 + n // 100)}{chr(0x5E00 + n % 100)}" for n in range(number)]
        one, other = holding(names), holding([*names[1:], names[0]])
        return work_s(lambda _: duplicates.may_merge(one, other), "")

    assert compare(8_000) < max(NO_MATTER_S, MOST_TIMES * compare(2_000))


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 4_000, b'"' * 8_001, b"[{" * 4_000, b'\\"[' * 3_000])
def test_an_answer_that_is_no_json_is_refused_in_linear_time(text: bytes) -> None:
    def parse(_: str) -> None:
        with pytest.raises(ValueError, match=r"nested|Expecting|Unterminated|Extra|delimiter|Invalid"):
            parsed_json(text * repeat)

    repeat = 1
    small = work_s(parse, "")
    repeat = 4
    assert work_s(parse, "") < max(NO_MATTER_S, MOST_TIMES * small)
