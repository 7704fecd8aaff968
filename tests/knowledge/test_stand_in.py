"""The stand-in: short, the same every time, and honest about what it leaves out. Requirements 21, 44, 49; C-1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.drafts import NO_ATTRIBUTES, Drafter
from loom.knowledge.stand_ins import beginning, stand_in, stand_in_task
from loom.memory.core import LoomMemory
from loom.protocol import Task, utc_now
from loom.storage.contract import Record
from loom.text.tokens import TiktokenCounter
from loom.types import MemoryType

COUNTER = TiktokenCounter()
DRAFTER = Drafter("drafts", COUNTER, utc_now)
# A stand-in that is longer than this is none.
SHORT = 120
OMITTED = "[…]"

ENGLISH = " ".join(f"step {number} moved the queue to the other host and waited" for number in range(200))
CHINESE = "".join(f"第{number}步把队列移到另一台主机并等待确认" for number in range(200))


@pytest.fixture(scope="module")
def memory() -> Iterator[LoomMemory]:
    with LoomMemory("stand-ins", embedder="none", token_counter=COUNTER) as opened:
        yield opened


def kept(memory: LoomMemory, **fields: Any) -> Record:
    receipt = memory.add_task(Task(**fields))
    record = memory.get(receipt.id)
    assert record is not None
    return record


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["English", "Chinese"])
def test_a_long_task_becomes_few_tokens_that_begin_as_it_began(memory: LoomMemory, text: str) -> None:
    record = kept(memory, action="node.tool_result", parameters={"content": text}, result=text)
    summary = stand_in(record)
    assert COUNTER.count(summary.text) <= SHORT < record.tokens / 10
    assert summary.action == "node.tool_result"
    assert summary.param_summary.startswith(f"content: {text[:20]}")
    assert summary.result_summary.startswith(text[:20])


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["English", "Chinese"])
def test_what_is_left_out_is_marked_where_it_is_missing_and_the_size_of_the_whole_is_told(
    memory: LoomMemory, text: str
) -> None:
    record = kept(memory, action="execute", parameters={"content": text}, result="done")
    summary = stand_in(record)
    assert summary.param_summary.endswith(OMITTED)
    assert OMITTED not in summary.result_summary
    assert summary.tags == [f"{record.tokens} tokens in all"]
    assert f"{record.tokens} tokens" in summary.text


@pytest.mark.parametrize("text", ["the disk is full", "磁盘已满"])
def test_a_short_task_is_kept_whole_and_claims_no_omission(memory: LoomMemory, text: str) -> None:
    summary = stand_in(kept(memory, action="execute", parameters={"content": text}, result=text))
    assert summary.text == f"execute: content: {text} -> {text}"
    assert summary.tags == []


def test_it_carries_what_the_flow_needs(memory: LoomMemory) -> None:
    """Requirement 21: task_id, importance, session_id and created_at beside the four parts."""
    tags = ["release", "harbour", "may", "more than three"]
    task = Task(action="node.planning", parameters={"goal": "ship it"}, session_id="s1", metadata={"tags": tags})
    memory.add_task(task)
    record = memory.get(task.task_id)
    assert record is not None
    summary = stand_in(record)
    assert (summary.task_id, summary.session_id, summary.importance) == (task.task_id, "s1", 0.8)
    assert summary.created_at == task.created_at
    assert summary.tags == tags[:3]


def test_the_same_memory_gives_the_same_stand_in(memory: LoomMemory) -> None:
    record = kept(memory, action="execute", parameters={"b": {"z": 1, "a": [1, 2]}, "a": ENGLISH})
    again = memory.get(record.id)
    assert again is not None
    assert stand_in(record) == stand_in(again)


@pytest.mark.parametrize("error", ["ConnectionResetError: peer went away", "连接被对方重置"])
def test_an_error_is_kept(memory: LoomMemory, error: str) -> None:
    record = kept(memory, action="node.error", parameters={"content": ENGLISH}, error=error)
    assert f"error: {error}" in stand_in(record).text


def test_a_long_error_keeps_its_beginning_and_says_that_there_was_more(memory: LoomMemory) -> None:
    summary = stand_in(kept(memory, action="node.error", error=f"ValueError: {ENGLISH}"))
    assert summary.result_summary.startswith("error: ValueError: step 0")
    assert summary.result_summary.endswith(OMITTED)
    assert summary.tags


def test_a_result_beside_an_error_is_shown_or_marked_as_left_out(memory: LoomMemory) -> None:
    """A mark shows that a part is left out."""
    record = kept(memory, action="node.error", parameters={"n": 1}, result={"rows": "the first half"}, error="Boom")
    summary = stand_in(record)
    assert "Boom" in summary.text
    assert "the first half" in summary.text or (OMITTED in summary.text and summary.tags)


def test_values_that_are_no_text_are_shown_as_json_in_their_own_script(memory: LoomMemory) -> None:
    summary = stand_in(kept(memory, action="execute", parameters={"城市": ["北京", 3, None, True]}))
    assert summary.param_summary == '城市: ["北京", 3, null, true]'


def test_several_lines_become_one(memory: LoomMemory) -> None:
    summary = stand_in(kept(memory, action="execute", parameters={"code": "a = 1\n\n\tb = 2\r\n"}))
    assert summary.param_summary == "code: a = 1 b = 2"
    assert "\n" not in summary.text


@pytest.mark.parametrize("text", ["我们选择授权码模式", "We take the later train,\nand Ana brings the tickets."])
def test_a_short_message_stands_for_itself(memory: LoomMemory, text: str) -> None:
    record = memory.get(memory.l1.add({"role": "user", "name": "Ana", "content": text}).id)
    assert record is not None
    assert stand_in(record).text == text.replace("\n", " ")


ENGLISH_TURN = (
    "Hello again, I hope you had a quiet weekend and that the garden is doing well in this rain. "
    "I have been thinking about what you said the other day, and maybe you have a point there. "
    "Anyway, we decided to move the nightly backup to 03:40 and to keep seven copies. "
    "What do you think, should we tell the others as well? It would be nice to hear from you soon. "
    "The restore failed with error 112 because the disk was full."
)
CHINESE_TURN = (
    "早上好，周末过得怎么样？我这边一直在下雨，哪儿也没去，就在家里看了看书，顺便想了想你上次说的那件事情。"
    "也许你说得有道理，不过我还想再看看。我们决定把夜间备份改到凌晨三点四十分，保留七份。"
    "你觉得要不要也告诉其他人？希望早点听到你的回复，最近大家都挺忙的，我也不想催得太急。"
    "恢复失败了，错误码 112，因为磁盘已满。"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ENGLISH_TURN, ("we decided to move the nightly backup to 03:40", "The restore failed with error 112")),
        (CHINESE_TURN, ("我们决定把夜间备份改到凌晨三点四十分", "恢复失败了")),
    ],
    ids=["English", "Chinese"],
)
def test_a_long_turn_is_told_by_what_was_decided_and_what_happened_and_not_by_its_first_words(
    memory: LoomMemory, text: str, told: tuple[str, ...]
) -> None:
    """Requirements 44 and 70: the archive tier has key facts."""
    record = memory.get(memory.l1.add({"role": "user", "name": "Ana", "content": text}).id)
    assert record is not None
    said = stand_in(record).text
    assert all(one in said for one in told)
    assert said.startswith(OMITTED)
    assert COUNTER.count(said) < record.tokens * 0.7


def test_of_equally_heavy_statements_the_denser_one_is_told(memory: LoomMemory) -> None:
    """Requirement 3: by importance, and among equals by information density."""
    vague = "We decided to move the crates to the other hall and to send the rest by train."
    dense = "We decided to move 340 crates from Porto to Lisbon on 12 May with Ana and Rui."
    record = memory.get(memory.l1.add({"role": "user", "content": f"{vague} {vague} {vague} {dense}"}).id)
    assert record is not None
    assert dense in stand_in(record).text


@given(
    text=st.one_of(
        st.text(min_size=1, max_size=900, alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"])),
        st.text(min_size=1, max_size=900, alphabet="网络超时重试了三次，端口。a1 "),
        st.lists(st.sampled_from([*ENGLISH_TURN.split(". "), *CHINESE_TURN.split("。")]), max_size=9).map(". ".join),
    )
)
def test_the_stand_in_of_a_message_is_never_longer_than_the_message(text: str) -> None:
    draft = DRAFTER.draft(text or "-", None, NO_ATTRIBUTES._replace(name="Ana"))
    assert COUNTER.count(stand_in(draft).text) <= COUNTER.count(draft.content)


def test_a_fact_stands_for_itself(memory: LoomMemory) -> None:
    record = memory.get(memory.add_fact("the port is 8080").id)
    assert record is not None
    assert record.kind == MemoryType.FACT
    assert stand_in(record).text == "the port is 8080"


def test_as_a_task_it_says_that_it_stands_for_another(memory: LoomMemory) -> None:
    """The form in which L1 shows a task that is too large for it; C-1."""
    record = kept(memory, action="execute", parameters={"content": ENGLISH}, session_id="s9")
    task = stand_in_task(record)
    assert task.task_id == record.id
    assert task.session_id == "s9"
    assert task.action == "execute"
    assert task.metadata["stand_in"] is True
    assert task.metadata["tokens"] == record.tokens
    assert OMITTED in task.parameters["summary"]


@given(
    text=st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=4000),
    weight=st.sampled_from([8.0, 24.0, 48.0]),
)
def test_the_beginning_of_a_text_is_one_line_and_is_marked_exactly_where_it_is_cut(text: str, weight: float) -> None:
    line = " ".join(text.split())
    short = beginning(text, weight)
    assert len(short.splitlines()) <= 1
    if short.endswith(f" {OMITTED}") and short != line:
        assert line.startswith(short.removesuffix(f" {OMITTED}"))
    else:
        assert short == line


@given(
    text=st.one_of(
        st.text(min_size=1, max_size=600, alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"])),
        st.text(min_size=1, max_size=600, alphabet="网络超时重试了三次，端口。a1 "),
        st.text(min_size=1, max_size=3000, alphabet="etaoin shrdlu"),
    ),
    outcome=st.one_of(st.none(), st.text(max_size=80, alphabet="ok 完成12")),
)
def test_it_is_never_much_longer_than_the_original(text: str, outcome: str | None) -> None:
    """Stand-ins must save tokens in a tier, whatever the script."""
    task = Task(task_id="t", action="execute", parameters={"content": text}, result=outcome)
    draft = DRAFTER.task(task, None, NO_ATTRIBUTES)
    # The arrow, the colon, and where something is left out its mark and the size.
    assert COUNTER.count(stand_in(draft).text) <= draft.tokens + 16


@pytest.mark.parametrize("part", ["action", "error", "source_agent", "session_id"])
def test_it_is_short_and_on_one_line_whichever_part_of_the_task_is_long(part: str) -> None:
    fields: dict[str, Any] = {"action": "execute", "parameters": {"a": "b"}}
    fields[part] = ENGLISH.replace("waited", "waited\n")
    draft = DRAFTER.task(Task(**fields), None, NO_ATTRIBUTES)
    text = stand_in(draft).text
    assert COUNTER.count(text) <= SHORT
    assert len(text.splitlines()) == 1


def test_it_is_short_and_on_one_line_when_the_speakers_name_is_long() -> None:
    draft = DRAFTER.draft("hello", None, NO_ATTRIBUTES._replace(name=ENGLISH))
    assert COUNTER.count(stand_in(draft).text) <= SHORT
