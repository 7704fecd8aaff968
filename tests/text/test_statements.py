"""A text as statements: their bounds, their kinds, and the details that must not be lost. Requirement 121."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.text.scripts import is_chinese
from loom.text.sentences import statements
from loom.text.specifics import specifics
from loom.text.statement_kinds import WEIGHTS, StatementKind
from loom.text.statements import Statement, clauses, cuts

K = StatementKind


def texts(text: str) -> list[str]:
    return [statement.text for statement in statements(text)]


def kind(text: str) -> StatementKind:
    return max((statement.kind for statement in statements(text)), key=WEIGHTS.__getitem__)


# --- splitting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We ship on Friday. The rest waits!", ["We ship on Friday.", "The rest waits!"]),
        ("Pi is 3.14 and v1.2.3 is out.", ["Pi is 3.14 and v1.2.3 is out."]),
        ("Ask Dr. Chen, e.g. about tea. Then go.", ["Ask Dr. Chen, e.g. about tea.", "Then go."]),
        ("See https://example.com/a.b?c=d. Good.", ["See https://example.com/a.b?c=d.", "Good."]),
        ("接口好了。测试通过！真的吗？", ["接口好了。", "测试通过！", "真的吗？"]),
        ("先这样；之后再看。", ["先这样；", "之后再看。"]),
        ("It works.我们用它。", ["It works.", "我们用它。"]),
        ("- one thing\n- another thing", ["one thing", "another thing"]),
        ("1. 第一步\n2. 第二步", ["第一步", "第二步"]),
        ("a line that was wrapped\nin the middle of it.", ["a line that was wrapped\nin the middle of it."]),
        ("A first line\nA second line", ["A first line", "A second line"]),
        ("", []),
        (" \n\t\n ", []),
    ],
)
def test_a_text_is_cut_where_its_statements_end(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_code_is_one_statement_and_its_report_lines_are_statements_of_their_own() -> None:
    found = statements("Look:\n```\nx = 1\nraise ValueError('no')\n3 failed, 9 passed in 1.2s\n```\nOdd.")
    assert [(one.text, one.kind) for one in found[1:-1]] == [
        ("x = 1\nraise ValueError('no')", K.CODE),
        ("3 failed, 9 passed in 1.2s", K.TEST),
    ]
    assert found[1].machine
    assert found[-1].text == "Odd."


def test_of_a_traceback_only_the_error_is_a_statement() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\nKeyError: 4711'
    (found,) = statements(trace)
    assert (found.text, found.kind, found.machine) == ("KeyError: 4711", K.ERROR, True)


def test_each_line_of_a_log_is_a_statement() -> None:
    log = "2026-04-11 02:00:01 INFO start\n2026-04-11 02:00:02 ERROR disk is full\n"
    assert [one.kind for one in statements(log)] == [K.CODE, K.ERROR]


def test_quoted_lines_and_quoted_sentences_are_marked() -> None:
    assert [one.quoted for one in statements('> We chose MySQL.\nI disagree.\n"We chose MySQL."')] == [
        True,
        False,
        True,
    ]
    assert not statements('"We chose MySQL."')[0].asserted


@given(st.text(alphabet="ab1 .,;:!?。，？！；\n\t\"'`“”-#>我决定因为错误了[](){}…／", max_size=300))
def test_statements_are_pieces_of_the_text_in_order_and_lose_no_letter(text: str) -> None:
    found = statements(text)
    end = 0
    for one in found:
        assert text[one.start : one.end] == one.text
        assert one.start >= end
        end = one.end
        for clause in clauses(one):
            assert text[clause.start : clause.end] == clause.text
        for part in cuts(one):
            assert text[part.start : part.end] == part.text
    if "`" not in text and "#" not in text and "-" not in text and "[" not in text and "1" not in text:
        kept = "".join(one.text for one in found)
        for letter in "ab我决定因为错误":
            assert kept.count(letter) == text.count(letter)


# --- what a statement does ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I fixed the login by adding a retry.", K.FIX),
        ("重启之后就好了。", K.FIX),
        ("The upload fails with a timeout.", K.ERROR),
        ("服务器又宕机了。", K.ERROR),
        ("I created src/app/routes.py for it.", K.CHANGE),
        ("在 setup.cfg 里加了 timeout 选项。", K.CHANGE),
        ("All 48 tests pass.", K.TEST),
        ("单测全部通过。", K.TEST),
        ("We decided to keep the old format.", K.DECISION),
        ("我们最终选择了方案二。", K.DECISION),
        ("I prefer tea to coffee.", K.PREFERENCE),
        ("我不喝牛奶。", K.PREFERENCE),
        ("My sister works at a museum.", K.IDENTITY),
        ("我叫高文。", K.IDENTITY),
        ("She lives in Graz.", K.PLACE),
        ("我住在南京。", K.PLACE),
        ("The exam is on June 3.", K.EVENT),
        ("考试在6月3日。", K.EVENT),
        ("The tank holds 40 litres.", K.NUMBER),
        ("油箱一共有40升。", K.NUMBER),
        ("We build it with Bazel.", K.TOOL),
        ("打包用 Bazel。", K.TOOL),
        ("GET /v1/users returns a list.", K.API),
        ("POST /v1/users 接口返回 id。", K.API),
        ("Never store passwords in plain text.", K.PRACTICE),
        ("上线前必须备份。", K.PRACTICE),
        ("It broke because of the heat.", K.ERROR),
        ("因为天气太热。", K.REASON),
        ("Could you check it?", K.QUESTION),
        ("你看到了吗？", K.QUESTION),
        ("Maybe we could use Rust.", K.HYPOTHESIS),
        ("如果用 Rust 会更快。", K.HYPOTHESIS),
        ("Please send me the file.", K.REQUEST),
        ("帮我看看这个文件。", K.REQUEST),
        ("Thanks a lot!", K.SMALL_TALK),
        ("辛苦了！", K.SMALL_TALK),
        ("The weather is lovely.", K.THOUGHT),
    ],
)
def test_a_statement_is_told_by_what_it_does(text: str, expected: StatementKind) -> None:
    assert kind(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        "We haven't decided yet.",
        "还没决定用哪个。",
        "Trying to get it fixed is tough.",
        "I wonder whether the 40 tests pass.",
        "There were no errors.",
        "I'm not a doctor.",
    ],
)
def test_what_is_open_denied_or_wondered_about_is_not_asserted(text: str) -> None:
    assert not any(one.asserted for one in statements(text))


def test_a_clause_keeps_what_it_does_beside_a_question() -> None:
    (found,) = statements("The nightly import job is broken again, can you have a look?")
    assert [one.kind for one in clauses(found)] == [K.ERROR, K.QUESTION]
    assert found.kind is K.ERROR


def test_a_sentence_is_cut_at_commas_between_parts_of_several_words() -> None:
    (found,) = statements("The file has a peak of 182 kW, on Saturday at 22:40, with 1,200 guests, Ana says.")
    assert [part.text for part in cuts(found)] == [
        "The file has a peak of 182 kW",
        "on Saturday at 22:40",
        "with 1,200 guests",
        "Ana says.",
    ]


def test_what_denies_something_is_not_cut() -> None:
    (found,) = statements("Never open the red valve, the blue valve, the green valve.")
    parts = [part.text for part in cuts(found)]
    assert all("Never" in part or part in [clause.text for clause in clauses(found)] for part in parts)
    (found,) = statements("Don't copy red folders, blue folders, or green ones.")
    assert [part.text for part in cuts(found)] == [found.text]


def test_what_follows_if_is_supposed_too() -> None:
    (found,) = statements("如果磁盘满了，我们决定删除日志。")
    assert {one.kind for one in clauses(found)} == {K.HYPOTHESIS}


def test_weights_are_the_scores_of_the_attention_prompt_by_ten() -> None:
    assert (WEIGHTS[K.FIX], WEIGHTS[K.CHANGE], WEIGHTS[K.TEST]) == (1.0, 0.8, 0.7)
    assert (WEIGHTS[K.DECISION], WEIGHTS[K.STATE], WEIGHTS[K.THOUGHT]) == (0.6, 0.5, 0.2)
    assert set(WEIGHTS) == set(StatementKind)
    assert Statement("x", 0, 1, K.FIX).weight == 1.0


# --- what must not be lost ----------------------------------------------------------------------------------


def test_numbers_dates_names_and_identifiers_are_found() -> None:
    found = specifics("On March 4 Ana set max_size to 1,250 in src/pool.py, not 3.5.")
    assert found.numbers == ("4", "1,250", "3.5")
    assert found.dates == ("March 4",)
    assert found.names == ("Ana",)
    assert found.identifiers == ("max_size", "src/pool.py")
    assert found.negated


def test_they_are_found_in_chinese() -> None:
    found = specifics("我叫林悦，3月4日把 max_size 改成50，没有读《三体》。")
    assert "50" in found.numbers
    assert found.dates == ("3月4日",)
    assert found.names == ("《三体》", "林悦")
    assert found.identifiers == ("max_size",)
    assert found.negated


def test_words_that_only_contain_a_negation_do_not_negate() -> None:
    assert not specifics("这个不错，非常好。").negated
    assert not specifics("Another notable knot.").negated


def test_a_text_is_chinese_when_chinese_leads() -> None:
    assert is_chinese("我们用 Redis 做缓存")
    assert not is_chinese("We call it 缓存 in the Chinese docs")
    assert not is_chinese("plain")


# --- hostile input ------------------------------------------------------------------------------------------

HOSTILE = {
    "letters": "a",
    "dots": ".",
    "signs": ".!?,;:",
    "quotes": "\"'(“",
    "digits": "1,",
    "spaces": " ",
    "lines": "\n",
    "ticks": "`",
    "fences": "```\n",
    "Chinese": "我",
    "Chinese cues": "我们决定因为",
    "English cues": "we decided because I always ",
    "dates": "May 1 ",
    "logs": "2026-01-01 00:00:00 ERROR x\n",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_text_without_end_is_cut_into_statements_of_bounded_length(piece: str) -> None:
    # A pattern that looks back or ahead without bound would take hours on this, not a second.
    text = piece * (400_000 // len(piece))
    found = statements(text)
    assert all(len(one.text) <= 600 or one.kind is K.CODE for one in found)
    assert sum(len(one.text) for one in found) <= len(text)
