"""Passages: together they are the text, none is too long, and code and tables are whole where they can be."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.text.passages import LONG_UNITS, Passage, passages, units

PROSE = "The tide was low and the boats lay on the sand. Nobody minded, for the evening was warm. "
CHINESE = "退潮以后，船都停在沙滩上。傍晚很暖和，谁也不着急。"
CODE = "```python\n" + "\n".join(f"value_{n} = compute({n})" for n in range(12)) + "\n```\n"
TABLE = "| city | rain |\n|---|---|\n" + "".join(f"| town {n} | {n * 7} mm |\n" for n in range(12))

blocks = st.one_of(
    st.just(PROSE * 3),
    st.just(CHINESE * 4),
    st.just(CODE),
    st.just(TABLE),
    st.just("## A heading\n"),
    st.just("**In bold:**\n"),
    st.just("- first\n- second\n  goes on\n1. third\n"),
    st.just("2024-05-01T10:00:00 INFO started\n2024-05-01T10:00:01 ERROR failed\n" * 8),
    st.just(json.dumps({"rows": list(range(80))})),
    st.just("~~~\nnever closed\n"),
    st.just("# Alone\n" + "\n" * 900),
    st.text(max_size=80),
)
texts = st.lists(blocks, max_size=12).flatmap(
    lambda parts: st.sampled_from(["\n\n", "\n", ""]).map(lambda between: between.join(parts))
)


def shown(text: str, part: Passage) -> str:
    return text[part.start : part.end]


@given(texts)
def test_passages_are_the_text_in_its_order_without_gaps(text: str) -> None:
    found = passages(text)
    assert "".join(shown(text, part) for part in found) == text
    assert (found[0].start, found[-1].end) == (0, len(text))
    assert all(one.end == after.start for one, after in pairwise(found))
    assert passages(text) == found


@given(texts)
def test_no_passage_is_longer_than_a_passage_may_be_and_none_is_empty(text: str) -> None:
    found = passages(text)
    assert all(units(shown(text, part)) <= LONG_UNITS for part in found)
    assert len(found) == 1 or all(part.start < part.end for part in found)


@given(texts)
def test_what_stands_above_a_passage_is_before_it_and_short(text: str) -> None:
    for part in passages(text):
        for start, end in (*part.above, *filter(None, (part.fence, part.fence_after))):
            assert 0 <= start < end <= part.end
            assert end - start <= 240
        assert all(start < part.start for start, _ in part.above)


@given(texts, st.sampled_from([CODE, TABLE]))
def test_code_and_tables_are_whole_in_one_passage(text: str, block: str) -> None:
    text = f"{text.replace('~', '-').replace('`', '-')}\n\n{block}\n{PROSE * 6}"
    assert any(block in shown(text, part) for part in passages(text))


def test_a_short_text_and_an_empty_one_are_one_passage() -> None:
    assert passages("") == [Passage(0, 0)]
    assert passages(PROSE) == [Passage(0, len(PROSE))]
    assert passages("字" * 250) == [Passage(0, 250)]
    assert len(passages("字" * 251)) == 2


def test_a_heading_begins_a_passage_and_stands_above_those_that_follow_it() -> None:
    text = f"# Harbour\n\n{PROSE * 5}\n\n## Boats\n\n" + "\n\n".join([PROSE * 5] * 4)
    found = passages(text)
    boats = next(part for part in found if shown(text, part).startswith("## Boats"))
    assert [text[start:end] for start, end in boats.above] == ["# Harbour"]
    assert [text[start:end] for start, end in found[-1].above] == ["# Harbour", "## Boats"]
    assert not any(shown(text, part).rstrip().endswith("## Boats") for part in found)


def test_the_sentence_that_introduces_a_list_stands_above_its_later_items() -> None:
    items = "".join(f"{n}. Point number {n} is that {PROSE.lower()}\n" for n in range(1, 30))
    text = f"These are the rules of the harbour:\n\n{items}\n{PROSE * 12}"
    found = passages(text)
    inside = [part for part in found if shown(text, part)[:2].strip(". ").isdigit() and part.start > 40]
    assert inside
    assert all(text[slice(*part.above[-1])] == "These are the rules of the harbour:" for part in inside)
    assert all(shown(text, part).rstrip()[-1] == "." for part in found)
    assert found[-1].above == ()


def test_parts_of_a_long_code_block_know_their_fence_and_end_with_a_line() -> None:
    code = "```rust\n" + "".join(f"let value_{n} = compute({n});\n" for n in range(200)) + "```\n"
    text = f"{PROSE}\n\n{code}\n{PROSE}"
    found = [part for part in passages(text) if "value_" in shown(text, part)]
    assert len(found) > 3
    assert found[0].fence is None
    assert [text[slice(*part.fence)] for part in found[1:] if part.fence] == ["```rust\n"] * (len(found) - 1)
    assert [part.fence_after is not None for part in found] == [True] * (len(found) - 1) + [False]
    assert all(shown(text, part).endswith("\n") for part in found[:-1])


def test_parts_of_a_long_table_have_its_head_above_them_and_whole_rows() -> None:
    rows = "".join(f"| town {n} | {n * 7} mm |\n" for n in range(200))
    text = f"{PROSE}\n\n| city | rain |\n|---|---|\n{rows}\n{PROSE}"
    found = [part for part in passages(text) if "| town" in shown(text, part)]
    assert len(found) > 3
    assert all(text[slice(*part.above[-1])] == "| city | rain |\n|---|---|\n" for part in found[1:])
    assert all(shown(text, part).startswith("| town") for part in found[1:])


def test_a_table_without_outer_bars_is_a_table() -> None:
    rows = "".join(f"town {n} | {n * 7} mm\n" for n in range(200))
    text = f"Rain of this year\ncity | rain\n---|---\n{rows}"
    assert all(text[slice(*part.above[-1])] == "city | rain\n---|---\n" for part in passages(text)[1:])


@pytest.mark.parametrize(
    ("text", "ending"),
    [(PROSE * 60, ". "), (CHINESE * 60, "。"), ("2024-05-01 10:00 ERROR disk\n" * 200, "\n"), ("word " * 900, " ")],
)
def test_long_prose_and_logs_are_divided_between_sentences_lines_or_words(text: str, ending: str) -> None:
    assert len(passages(text)) > 3
    assert all(shown(text, part).endswith(ending) for part in passages(text))


@pytest.mark.parametrize("text", ["x" * 50_000, "字" * 20_000, "\n" * 9_000, " " * 9_000, "```" + "a" * 9_000])
def test_a_text_without_any_place_to_divide_is_divided_by_its_length(text: str) -> None:
    found = passages(text)
    assert "".join(shown(text, part) for part in found) == text
    assert all(0 < units(shown(text, part)) <= LONG_UNITS for part in found)
    assert len(found) <= 2 + 4 * units(text) // LONG_UNITS
