"""Messages without words are routine in agents: empty tool results, calls alone, images. They are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import loom
from loom.context.dialogue import compact_messages
from loom.errors import InvalidInput
from loom.everyday import Memory
from loom.memory.core import LoomMemory
from loom.models.embedders import FakeEmbedder
from loom.protocol import Task
from loom.text.sanitizer import ContentSanitizer

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "remove_file", "arguments": '{"path": "a.txt"}'}}

WORDLESS: list[tuple[dict[str, Any], str]] = [
    ({"role": "tool", "content": "", "tool_call_id": "c1"}, ""),
    ({"role": "tool", "content": None, "tool_call_id": "c1"}, ""),
    ({"role": "tool", "content": " \n", "tool_call_id": "c1"}, " \n"),
    ({"role": "assistant", "content": ""}, ""),
    ({"role": "assistant", "content": []}, ""),
    ({"role": "user", "content": [{"type": "text", "text": ""}]}, ""),
    ({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}]}, ""),
    ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}, ""),
    ({"role": "user", "content": [IMAGE]}, "[image]"),
    ({"role": "user", "content": [IMAGE, {"type": "input_audio", "input_audio": {}}]}, "[image]\n[audio]"),
    ({"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}, "[image]"),
    ({"role": "user", "content": [{"type": "document", "source": {}}]}, "[document]"),
    ({"role": "user", "content": [{"type": "tool_result", "content": [IMAGE]}]}, "[image]"),
    ({"role": "user", "content": [{"type": "<b>\x1b"}]}, ""),
    ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 'remove_file({"path": "a.txt"})'),
    ({"role": "assistant", "tool_calls": [CALL]}, 'remove_file({"path": "a.txt"})'),
    ({"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "sh", "input": "ls"}}]}, "sh(ls)"),
    ({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}, "f({})"),
    ({"role": "assistant", "content": None, "refusal": "I cannot do that."}, "I cannot do that."),
]


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with loom.open(tmp_path / "m.loom", embedder=FakeEmbedder()) as opened:
        yield opened


@pytest.mark.parametrize(("message", "content"), WORDLESS)
def test_a_message_without_words_does_not_abort_the_turn(
    memory: Memory, message: dict[str, Any], content: str
) -> None:
    turn = [{"role": "user", "content": "Delete the file a.txt"}, message, {"role": "user", "content": "Thank you"}]
    receipts = memory.remember(turn, session_id="s")
    kept = memory.get(receipts[1].id)
    assert kept is not None
    assert kept.content == content
    # Results of tools are not the user's words, although Anthropic's API has them in that role.
    assert kept.role == ("tool" if "tool_result" in str(message.get("content")) else message["role"])
    if set(message) != {"role", "content"} or not isinstance(message["content"], str):
        assert kept.data == message
    listed = memory.list(session_id="s", newest_first=False).records
    assert [record.id for record in listed] == [receipt.id for receipt in receipts]
    assert memory.flush().complete
    assert memory.check().ok
    assert all(hit.content.strip() for hit in memory.recall("Which file was deleted?"))
    assert memory.context("Go on", session_id="s", budget=1000).messages
    assert memory.forget(receipts[1].id).records == 1
    assert memory.check().ok


def test_a_call_and_its_empty_result_come_back_together(memory: Memory) -> None:
    memory.remember(
        [
            {"role": "user", "content": "Delete the file a.txt"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "", "tool_call_id": "c1"},
            {"role": "assistant", "content": "Done."},
        ],
        session_id="s",
    )
    messages = memory.context("And b.txt?", session_id="s", budget=2000).messages
    roles = [message["role"] for message in messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert messages[2]["tool_calls"][0]["function"]["name"] == "remove_file"
    assert messages[3]["tool_call_id"] == messages[2]["tool_calls"][0]["id"]


def test_empty_messages_outlive_archive_snapshot_and_restore(memory: Memory, tmp_path: Path) -> None:
    messages = [{**message, "id": f"m{number}"} for number, (message, _) in enumerate(WORDLESS)]
    memory.remember(messages, session_id="s")
    before = [(record.id, record.content, record.data) for record in memory.list(limit=100).records]
    memory.archive()
    memory.snapshot(tmp_path / "s.hctx")
    loom.restore(tmp_path / "s.hctx", tmp_path / "restored.loom")
    with loom.open(tmp_path / "restored.loom", embedder="none") as restored:
        for each in (memory, restored):
            assert [(record.id, record.content, record.data) for record in each.list(limit=100).records] == before
            assert each.check().ok
    assert len(before) == len(WORDLESS)


def test_the_same_empty_message_again_changes_nothing(memory: Memory) -> None:
    message = {"role": "tool", "content": "", "tool_call_id": "c1", "id": "one"}
    assert memory.remember(message).created
    assert not memory.remember(message).created


def test_a_sanitizer_is_not_asked_about_nothing() -> None:
    with loom.open(embedder="none", sanitizer=ContentSanitizer()) as memory:
        assert memory.remember({"role": "tool", "content": "", "tool_call_id": "c1"}).tokens == 1


@pytest.mark.parametrize("what", ["", " \n", {}, {"role": "user"}, {"id": "x"}, {"metadata": {}}])
def test_what_holds_nothing_at_all_is_still_refused(memory: Memory, what: Any) -> None:
    with pytest.raises(InvalidInput):
        memory.remember(what)


def test_tasks_without_anything_are_kept(tmp_path: Path) -> None:
    tiers = LoomMemory("n", store=tmp_path / "t.loom", embedder="none")
    tiers.add_task(Task(task_id="one", action=""))
    tiers.add_task(Task(task_id="two", action="execute", parameters={"content": ""}, result=""))
    assert {task.task_id for task in tiers.get_l1_tasks()} == {"one", "two"}
    assert tiers.store.flush().complete
    tiers.close()


def test_compaction_takes_messages_without_words() -> None:
    words = {"role": "user", "content": "We decided to keep the invoices for ten years. " * 30}
    turns: list[dict[str, Any]] = [{"role": "system", "content": "You help."}]
    for message, _ in WORDLESS:
        if message["role"] == "tool":
            turns.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
        turns += [message, words]
    done = compact_messages(turns, keep_tokens=300)
    assert done.tokens < done.tokens_before
    assert "ten years" in done.compact_memory
    shown = [call["id"] for message in done for call in message.get("tool_calls") or () if "id" in call]
    answered = [message["tool_call_id"] for message in done if message.get("tool_call_id")]
    assert len(answered) <= len(shown)
    assert [*done.originals, *done[2:]] == turns[1:]


def test_a_windows_budget_bounds_how_many_empty_messages_it_holds() -> None:
    with loom.open(embedder="none", derive=False, l1_token_budget=50) as memory:
        memory.remember([{"role": "assistant", "content": ""}] * 200)
        assert memory.get_stats()["l1_items"] == 50
