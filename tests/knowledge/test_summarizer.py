"""Summaries: within the budget, true to the source, the newest version, cause before effect. Requirements 119-123."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.context import compact_messages
from loom.errors import InvalidInput
from loom.knowledge.model_extraction import is_supported
from loom.knowledge.summarizer import COMPRESS_CONFIG, COMPRESS_PROMPT, KEEP_FROM, Summarizer, Turn, turns_of_messages
from loom.text.tokens import EstimateCounter, TiktokenCounter

COUNTER = TiktokenCounter()


def turns(*lines: str) -> list[Turn]:
    """`Ana: text` as turns; a line that begins with `tool:` comes from a tool."""
    made = []
    for number, line in enumerate(lines):
        who, _, text = line.partition(": ")
        tool = who == "tool"
        made.append(Turn(str(number), text, None if tool else who, "tool" if tool else "user"))
    return made


WORK = turns(
    "Ana: Good morning! Did you sleep well?",
    "Ben: Not really, the neighbours had a party, but never mind.",
    "Ana: The nightly export crashes with a MemoryError since the upgrade.",
    "Ben: Hmm, that is odd. Let me think about it for a while, maybe the buffer is too small.",
    "tool: 2026-05-01 02:00:00 INFO start\n2026-05-01 02:11:09 ERROR MemoryError: cannot allocate 8 GB",
    "Ben: I fixed it by streaming the rows in src/export.py instead of loading them all.",
    "tool: 58 passed in 4.20s",
    "Ana: Great, thank you so much! You are a star.",
    "Ben: No problem at all. Coffee?",
    "Ana: We decided to keep the CSV format for the partners.",
    "Ben: The export now takes 6 minutes.",
    "Ana: Wonderful, talk to you tomorrow!",
)
CHINESE_WORK = turns(
    "王敏: 大家早上好，今天天气真不错。",
    "李强: 是啊，就是有点困，昨晚没睡好。",
    "王敏: 夜间导出又报错了，提示内存不足，MemoryError。",
    "李强: 嗯，让我想想，可能是缓冲区太小了吧。",
    "李强: 已经修复了，在 src/export.py 里改成了流式读取。",
    "王敏: 太好了，辛苦辛苦！",
    "李强: 测试全部通过，一共58个用例。",
    "王敏: 我们决定继续用 CSV 格式给合作方。",
    "李强: 现在导出一次需要6分钟。",
    "王敏: 好的，明天见！",
)


def summary(told: list[Turn], share: float) -> str:
    budget = int(sum(COUNTER.count(turn.text) for turn in told) * share)
    return Summarizer(token_counter=COUNTER).summarize(told, budget=budget).text


# --- what is kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "needed"),
    [
        (WORK, ["MemoryError", "src/export.py", "58 passed", "CSV", "6 minutes"]),
        (CHINESE_WORK, ["MemoryError", "src/export.py", "58", "CSV", "6分钟"]),
    ],
)
def test_errors_fixes_results_decisions_and_numbers_survive(told: list[Turn], needed: list[str]) -> None:
    text = summary(told, 0.5)
    assert [one for one in needed if one not in text] == []
    for chat in ("morning", "Coffee", "star", "天气", "辛苦"):
        assert chat not in text


def test_problem_solution_and_result_stand_in_that_order() -> None:
    text = summary(WORK, 0.4)
    places = [text.index(word) for word in ("MemoryError", "src/export.py", "58 passed")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("我们所有的录音加起来一共四十一个小时。", "四十一个小时"),
        ("我们决定在冰箱里放一个月。", "一个月"),
        ("We decided that the check takes two and a half hours.", "two and a half hours"),
        ("We decided that everyone in the on-call rota can flip the flag.", "on-call"),
        ("We decided that the limit is twenty a day.", "twenty a day"),
        ("We decided that the desk is open from seven to one.", "seven to one"),
        ("We decided to leave the heating on.", "on"),
        ("我们决定酒吧用一台发电机。", "酒吧"),
        ("我们决定成都的仓库用一把钥匙。", "成都"),
        ("我们决定成都的仓库用一把钥匙。", "一把"),
        ("我们决定还款的上限不是三千。", "不是三千"),
        ("我们决定那台相机不再维修。", "那台相机不"),
    ],
)
def test_shortening_changes_no_number_and_no_compound(said: str, kept: str) -> None:
    full = Turn("t1", said)
    for budget in range(6, 20):
        text = Summarizer(token_counter=COUNTER).summarize([full], budget=budget).text
        assert not text or kept in text


@pytest.mark.parametrize(
    ("said", "speaker", "short"),
    [
        ("I raised the limit of the importer from 80 to 92 percent.", "Dario", "raised limit"),
        ("我把导入的上限从80调到92了。", "王敏", "导入上限"),
    ],
)
def test_a_telegram_need_not_say_who_did_it(said: str, speaker: str, short: str) -> None:
    told = [Turn("t1", said, speaker)]
    texts = {Summarizer(token_counter=COUNTER).summarize(told, budget=budget).text for budget in range(6, 30)}
    assert any(text.startswith(speaker) for text in texts)
    assert any(text.startswith(short) and "92" in text for text in texts)


def test_whose_home_it_is_stays_in_the_shortest_telegram() -> None:
    told = [Turn("t1", "I live in Lisbon now, by the way.", "Dario")]
    texts = {Summarizer(token_counter=COUNTER).summarize(told, budget=budget).text for budget in range(1, 20)}
    assert "" in texts
    assert all("Dario" in text for text in texts if "Lisbon" in text)
    assert any("Lisbon" in text for text in texts)


def test_statements_of_one_turn_stand_side_by_side_in_their_language() -> None:
    told = [Turn("1", "我们决定用第二台服务器。端口是8080号。"), Turn("2", "We chose Postgres. The port is 5432.")]
    chinese, english = Summarizer(token_counter=COUNTER).summarize(told, budget=100).text.split("\n")
    assert "；" in chinese
    assert "; " not in chinese
    assert "; " in english


def test_when_room_is_short_the_chain_of_the_fix_outlasts_decisions() -> None:
    text = Summarizer(token_counter=COUNTER).summarize(WORK, budget=24).text
    assert "MemoryError" in text
    assert "src/export.py" in text
    assert "CSV" not in text


def test_what_names_nothing_new_waits_for_what_does() -> None:
    told = turns(
        "Ana: We decided to raise the limit to 840 MB.",
        "Ben: We agreed on 840 MB as the limit.",
        "Ana: The new office of the sales people is in Lisbon.",
    )
    text = Summarizer(token_counter=COUNTER).summarize(told, budget=14).text
    assert text.count("840") == 1
    assert "Lisbon" in text


def test_each_turn_is_heard_before_one_is_heard_twice() -> None:
    told = turns(
        "Ana: The white tank holds 43 litres.",
        "Ben: The small tank holds 44 litres.",
        "Cleo: The blue tank holds 40 litres. The green tank holds 41 litres. The black tank holds 42 litres.",
    )
    assert Summarizer(token_counter=COUNTER).summarize(told, budget=21).sources == ("0", "1", "2")


def test_of_what_repeats_the_newest_version_is_kept() -> None:
    told = turns(
        "Ana: The learning rate is 3e-4.",
        "Ben: The limit is 40 MB.",
        "Ana: The learning rate is now 1e-4.",
        "Ben: As I said, the limit is 40 MB.",
    )
    result = Summarizer(token_counter=COUNTER).summarize(told, budget=60)
    assert "1e-4" in result.text
    assert "3e-4" not in result.text
    assert result.text.count("40 MB") == 1
    assert result.sources == ("2", "3")


def test_a_correction_is_worked_into_what_it_corrects() -> None:
    told = turns("Ana: The release is scheduled for March 20.", "Ben: No, it's March 27, not March 20.")
    result = Summarizer(token_counter=COUNTER).summarize(told, budget=40)
    assert "release" in result.text
    assert "March 27" in result.text
    assert "March 20" not in result.text


def test_sources_are_the_turns_that_are_in_it() -> None:
    result = Summarizer(token_counter=COUNTER).summarize(WORK, budget=60)
    assert result.method == "extractive"
    assert result.sources == tuple(dict.fromkeys(kept.source for kept in result.kept))
    assert set(result.sources) <= {turn.id for turn in WORK}
    assert all(kept.text in result.text for kept in result.kept)


def test_the_same_dialogue_gives_the_same_summary() -> None:
    assert Summarizer().summarize(WORK, budget=50) == Summarizer().summarize([*WORK], budget=50)


def test_importance_decides_between_equals() -> None:
    told = [
        Turn("a", "The blue tank holds 40 litres.", importance=0.1),
        Turn("b", "The green tank holds 40 litres.", importance=0.9),
        Turn("c", "The black tank holds 40 litres.", importance=0.1),
    ]
    assert Summarizer(token_counter=COUNTER).summarize(told, budget=9).sources == ("b",)


def test_shortening_keeps_numbers_and_negation() -> None:
    told = turns("Ana: The basic limit is 40 MB so uploads above 12 GB crash.", "Ben: I do not eat meat, haha.")
    texts = [Summarizer(token_counter=COUNTER).summarize(told, budget=budget).text for budget in range(8, 40)]
    assert all("12 GB" in text for text in texts if "40 MB" in text)
    assert all("not" in text for text in texts if "meat" in text)
    assert "40 MB" in texts[-1]


def test_a_problem_that_was_solved_goes_before_one_that_stands_alone() -> None:
    told = turns(
        "Ana: The red importer crashes on Windows.",
        "Ben: I fixed it by pinning libfoo to 2.1.",
        "Ana: The old exporter crashes on Windows.",
    )
    assert Summarizer(token_counter=COUNTER).summarize(told, budget=21).sources == ("0", "1")


def test_a_long_report_is_cut_and_says_so() -> None:
    told = [Turn("1", "ERROR: " + "x1y2 " * 400, role="tool"), Turn("2", "We decided to stop the import.")]
    text = Summarizer(token_counter=COUNTER).summarize(told, budget=400).text
    assert "…" in text
    assert "stop the import" in text


# --- the budget and the truth -------------------------------------------------------------------------------

LINES = st.sampled_from(
    [turn.text for turn in (*WORK, *CHINESE_WORK)]
    + ["", "…", "I moved to Lisbon in May, by the way.", "\x00", "`x` 是 5"]
)


@settings(max_examples=40)
@given(st.lists(LINES, max_size=12), st.integers(0, 120), st.booleans())
def test_a_summary_never_exceeds_its_budget_nor_its_source(lines: list[str], budget: int, exact: bool) -> None:
    told = [Turn(str(number), line, "Ana") for number, line in enumerate(lines)]
    counter = COUNTER if exact else EstimateCounter()
    result = Summarizer(token_counter=counter).summarize(told, budget=budget)
    assert result.tokens == counter.safe_count(result.text) <= budget
    assert is_supported(result.text, "\n".join(lines) + "\nAna")


def test_nothing_said_gives_an_empty_summary() -> None:
    assert Summarizer().summarize([], budget=100).text == ""
    assert Summarizer().summarize(turns("Ana: Hi!", "Ben: Hello, how are you?"), budget=100).text == ""


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 0, not -1"):
        Summarizer().summarize(WORK, budget=-1)


# --- with a language model ----------------------------------------------------------------------------------


def test_a_faithful_answer_within_the_budget_is_used() -> None:
    asked: list[str] = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        return "MemoryError in the export; fixed by streaming in src/export.py; 58 passed."

    result = Summarizer(model, COUNTER).summarize(WORK, budget=60)
    assert result.method == "model"
    assert result.tokens <= 60
    assert result.sources == tuple(turn.id for turn in WORK)
    assert COMPRESS_PROMPT in asked[0]
    assert "at most 60 tokens" in asked[0]
    assert WORK[2].text in asked[0]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "was empty"),
        ("word " * 100, "had"),
        ("It now takes 7 minutes.", "stated a number"),
        ("It was fixed by Boris.", "stated a number, name"),
    ],
)
def test_any_other_answer_is_replaced_by_the_rules(answer: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = Summarizer(lambda prompt: answer, COUNTER).summarize(WORK, budget=60)
    assert result == Summarizer(token_counter=COUNTER).summarize(WORK, budget=60)
    assert why in caplog.text
    assert "Boris" not in caplog.text


def test_the_prompt_has_the_scores_and_says_that_six_is_kept() -> None:
    for score in ("10", "8", "7", "6", "5", "2"):
        assert f": {score}\n" in COMPRESS_PROMPT
    assert "6 points or more" in COMPRESS_PROMPT
    assert KEEP_FROM == 0.6
    assert COMPRESS_CONFIG == {
        "model": "google/gemini-2.0-flash-001",
        "base_url": "https://openrouter.ai/api/v1",
        "temperature": 0,
        "prompt": COMPRESS_PROMPT,
    }


@pytest.mark.parametrize(
    "line",
    [
        "what was done recently: keep more of its detail",
        "what was discussed early: keep only the conclusion",
        "what was said more than once, or corrected: keep only the newest version",
        "Drop repeated thinking",
        "problem, then solution, then result",
        "keep the final state",
        "Keep the order of time",
        "the present state and the events that matter",
    ],
)
def test_decay_reinforcement_and_order_are_in_the_prompt_and_reach_the_model(line: str) -> None:
    """Requirements 120, 121, 123: the model is told them with each dialogue, whatever the mode."""
    asked: list[str] = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        return "We chose the authorization-code flow."

    said = [{"role": "user", "content": f"We chose the authorization-code flow, step {at}."} for at in range(40)]
    compact_messages(said, summarizer=Summarizer(model))
    assert asked
    assert all(line in prompt for prompt in asked)


# --- chat messages ------------------------------------------------------------------------------------------

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "name": "Ana", "content": "I moved to Lisbon in May."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "test", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "name": "pytest", "content": "3 failed, 9 passed in 1.2s"},
    {"role": "user", "content": [{"type": "text", "text": "We decided to use Redis."}, {"type": "image_url"}]},
]


def test_chat_messages_become_turns() -> None:
    made = turns_of_messages(
        [{**MESSAGES[0], "id": "m1", "created_at": datetime(2026, 5, 1, tzinfo=UTC)}, *MESSAGES[1:]]
    )
    assert [turn.id for turn in made] == ["m1", "1", "2", "3"]
    assert [turn.speaker for turn in made] == ["Ana", None, None, None]
    assert [turn.role for turn in made] == ["user", "assistant", "tool", "user"]
    assert made[0].created_at == datetime(2026, 5, 1, tzinfo=UTC)
    assert "Redis" in made[3].text


def test_messages_are_compacted_to_state_and_events() -> None:
    text = Summarizer().summarize_messages(MESSAGES, budget=60).text
    for needed in ("Ana moved to Lisbon", "3 failed, 9 passed", "use Redis"):
        assert needed in text


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a chat message must be a dict"):
        turns_of_messages(["hello"])  # type: ignore[list-item]
