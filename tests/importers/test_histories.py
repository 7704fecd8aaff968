"""Histories of other programs: recognised, complete, repeatable, masked, and never obeyed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.cli import main
from loom.errors import InvalidInput, StoreUnavailable
from loom.everyday import Memory
from loom.importers import export_jsonl, import_history
from loom.importers.codex import RolloutState, read_line
from loom.importers.messages import HistoryMessage
from tests.importers.samples import ANSWERED, ASKED, RESULT, SAMPLES, SECRET, STANDING, chatgpt_conversation, document

CHATS = ["claude-code", "codex", "chatgpt", "claude-ai", "openai", "anthropic", "langchain", "letta"]
NOTES = ["memory-graph", "mem0", "markdown"]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with loom.open(embedder="none") as opened:
        yield opened


def written(folder: Path, sample: str) -> Path:
    name, make, _ = SAMPLES[sample]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(make())
    return folder / name


def texts(memory: Memory) -> list[str]:
    return [one.content for one in memory.list(limit=1000, newest_first=False)]


# --- formats -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_format_is_recognised_by_its_contents(memory: Memory, tmp_path: Path, sample: str) -> None:
    _, make, name = SAMPLES[sample]
    other = tmp_path / ("notes.md" if sample == "markdown" else "renamed.json")
    other.write_bytes(make())
    done = import_history(memory, other)
    assert (done.formats, done.skipped, done.complete) == ({name: 1}, 0, True)
    assert any("nine" in text for text in texts(memory))


@pytest.mark.parametrize("sample", CHATS)
def test_a_conversation_keeps_roles_trust_and_order(memory: Memory, tmp_path: Path, sample: str) -> None:
    import_history(memory, written(tmp_path, sample))
    records = [one for one in memory.list(limit=50, newest_first=False) if one.role and one.role != "system"]
    said = [(one.role, one.trust) for one in records if not one.metadata.get("subagent")]
    assert said[0] == ("user", "user")
    assert said[1] == ("assistant", "agent")
    assert ("tool", "tool") in said
    assert said[-2:] == [("assistant", "agent"), ("user", "user")]
    assert ASKED in records[0].content
    by_words = {one.content.splitlines()[-1]: one for one in records}
    assert by_words[ANSWERED].role == "assistant"
    assert by_words[STANDING].role == "user"
    assert next(one for one in records if one.role == "tool").content.startswith("opens: 09:00")
    calls = [one for one in records if one.role == "assistant" and one.data is not None]
    assert calls, "the call of a tool is kept as data"


@pytest.mark.parametrize("sample", SAMPLES)
def test_importing_again_brings_nothing(memory: Memory, tmp_path: Path, sample: str) -> None:
    path = written(tmp_path, sample)
    first = import_history(memory, path)
    again = import_history(memory, path)
    assert first.records > 0
    assert (again.records, again.present, again.skipped) == (0, first.records, 0)


@pytest.mark.parametrize("sample", SAMPLES)
def test_secrets_are_masked_everywhere_unless_raw_is_asked_for(tmp_path: Path, sample: str) -> None:
    path = written(tmp_path, sample)
    for raw in (False, True):
        with loom.open(embedder="none") as memory:
            done = import_history(memory, path, raw=raw)
            kept = repr([(one.content, one.data, one.metadata) for one in memory.list(limit=100)])
        has_one = SECRET.encode() in SAMPLES[sample][1]()
        assert (SECRET in kept) == (raw and has_one)
        assert (done.masked > 0) == (not raw and has_one)


@pytest.mark.parametrize("sample", SAMPLES)
def test_nothing_imported_is_a_standing_instruction_until_it_is_confirmed(
    memory: Memory, tmp_path: Path, sample: str
) -> None:
    import_history(memory, written(tmp_path, sample))
    memory.flush()
    assert memory.instructions() == []
    waiting = memory.instructions(unconfirmed=True)
    if sample in NOTES:
        assert waiting == []  # these are not the user's words
        return
    assert [one.text for one in waiting] == [STANDING]
    assert [one.text for one in memory.confirm(waiting[0].id)] == [STANDING]
    memory.flush()
    assert [one.text for one in memory.instructions()] == [STANDING]
    assert memory.instructions(unconfirmed=True) == []
    with pytest.raises(InvalidInput, match="waits for confirmation"):
        memory.confirm(waiting[0].id)


def test_an_own_export_gives_no_instructions_by_itself(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember(STANDING, role="user")
        export_jsonl(memory, tmp_path / "a.jsonl")
    with loom.open(tmp_path / "b.loom", embedder="none") as memory:
        assert import_history(memory, tmp_path / "a.jsonl").records == 1
        memory.flush()
        assert memory.instructions() == []
        memory.confirm(memory.instructions(unconfirmed=True)[0].id)
        assert [one.text for one in memory.instructions()] == [STANDING]


def test_snapshots_and_backups_keep_what_is_unconfirmed(tmp_path: Path) -> None:
    path = written(tmp_path, "openai")
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
        import_history(memory, path)
        memory.snapshot(tmp_path / "a.hctx")
        memory.backup(tmp_path / "b.loom")
    loom.restore(tmp_path / "a.hctx", tmp_path / "c.loom")
    for name in ("b.loom", "c.loom"):
        with loom.open(tmp_path / name, embedder="none") as memory:
            memory.flush()
            assert memory.instructions() == []
            assert [one.text for one in memory.instructions(unconfirmed=True)] == [STANDING]
    with loom.open(embedder="none") as memory:
        memory.restore(tmp_path / "a.hctx")
        memory.flush()
        assert memory.instructions() == []
        memory.forget(memory.instructions(unconfirmed=True)[0].id)
        assert memory.instructions(unconfirmed=True) == []


def test_a_withdrawal_that_was_imported_ends_nothing(memory: Memory, tmp_path: Path) -> None:
    memory.remember("Always show types when I ask for code.", role="user")
    memory.flush()
    path = tmp_path / "chat.json"
    path.write_bytes(document([{"role": "user", "content": "Forget what I said about types."}]))
    import_history(memory, path)
    memory.flush()
    assert [one.text for one in memory.instructions()] == ["Always show types when I ask for code."]


def test_only_the_branch_that_the_user_sees_is_imported(memory: Memory, tmp_path: Path) -> None:
    import_history(memory, written(tmp_path, "chatgpt"))
    said = "\n".join(texts(memory))
    assert "airport" not in said
    assert "hidden turn" not in said
    first = memory.list(newest_first=False, limit=1).records[0]
    assert (first.session_id, first.metadata["conversation"]) == ("c-1", "Harbour hours")
    assert first.created_at == datetime.fromtimestamp(1772357400.5, UTC)


def test_without_a_current_node_the_newest_leaf_is_followed_and_a_cycle_ends(memory: Memory, tmp_path: Path) -> None:
    conversation = chatgpt_conversation()
    del conversation["current_node"]
    conversation["mapping"]["wish"]["message"]["create_time"] += 60
    conversation["mapping"]["sys"]["parent"] = "sys"
    (tmp_path / "c.json").write_bytes(document([conversation]))
    assert import_history(memory, tmp_path / "c.json").records >= 4
    assert "airport" not in "\n".join(texts(memory))


def test_an_archive_and_its_folder_give_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    written(folder, "chatgpt")
    (folder / "user.json").write_text('{"id": "user-1", "email": "ana@example.org"}')
    (folder / "chat.html").write_text("<html></html>")
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for one in folder.iterdir():
            archive.write(one, one.name)
    with loom.open(embedder="none") as memory:
        done = import_history(memory, folder)
        assert (done.formats, done.passed_over, done.records) == ({"chatgpt": 1}, 1, 5)
        zipped = import_history(memory, tmp_path / "export.zip")
        assert (zipped.records, zipped.present, zipped.passed_over) == (0, 5, 1)


def test_a_folder_of_markdown_is_imported_by_sections(memory: Memory, tmp_path: Path) -> None:
    written(tmp_path / "notes" / "places", "markdown")
    (tmp_path / "notes" / "plain.md").write_text("No heading, one thought.\n")
    (tmp_path / "notes" / ".hidden.md").write_text("Not for others.\n")
    done = import_history(memory, tmp_path / "notes")
    assert (done.formats, done.records) == ({"markdown": 2}, 3)
    hours = memory.recall("When does the harbour open?")[0]
    assert hours.content.startswith("Harbour / Hours\n\n")
    assert "# no heading" in hours.content
    record = memory.get(hours.id)
    assert record is not None
    assert record.metadata["file"] == "places/harbour.md"
    assert record.metadata["tags"] == ["places", "hours"]
    assert (record.trust, record.kind) == ("unknown", "context")


# --- filters and counts --------------------------------------------------------------------------------------


def test_since_and_project_narrow_what_is_imported(memory: Memory, tmp_path: Path) -> None:
    path = written(tmp_path, "claude-code")
    late = import_history(memory, path, since="2026-03-01T09:30:06Z")
    assert (late.records, late.outside) == (3, 3)
    for project, count in (("harbour", 6), ("/home/ana", 6), ("/home/ana/harbour", 6), ("/home/bo", 0), ("ship", 0)):
        done = import_history(memory, path, project=project)
        assert done.records + done.present == count, project


@pytest.mark.parametrize("turns", [True, False])
def test_what_a_fork_of_codex_repeats_is_left_out_where_its_turns_have_ids(
    memory: Memory, tmp_path: Path, turns: bool
) -> None:
    old, fork = "0196f0bc-0ab6-76d2-8f76-c300be734bcf", "0196f0bc-4bf1-7c03-9491-6ed91755085c"

    def turn(id: str, said: str) -> list[dict[str, Any]]:
        content = [{"type": "input_text", "text": said}]
        started = {"type": "event_msg", "payload": {"type": "task_started", **({"turn_id": id} if turns else {})}}
        return [
            started,
            {"type": "response_item", "payload": {"type": "message", "role": "user", "content": content}},
        ]

    lines = [
        *({"type": "session_meta", "payload": {"id": id}} for id in (fork, old)),
        *turn("0196f0bc-0ad7-7da3-935b-22bc6f73aa5a", "from the session before"),
        *turn("0196f0bc-5311-7da3-935b-22bc6f73aa5a", "the fork's own"),
    ]
    (tmp_path / "rollout.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert import_history(memory, tmp_path / "rollout.jsonl").skipped == 0
    assert texts(memory) == [*([] if turns else ["from the session before"]), "the fork's own"]


def test_a_dry_run_counts_and_writes_nothing(memory: Memory, tmp_path: Path) -> None:
    path = written(tmp_path, "codex")
    planned = import_history(memory, path, dry_run=True)
    assert (planned.records, planned.masked, planned.dry_run, len(memory.list())) == (5, 1, True, 0)
    import_history(memory, path, since="2026-03-01T09:30:06Z")
    planned = import_history(memory, path, dry_run=True)
    assert (planned.records, planned.present, len(memory.list())) == (3, 2, 2)


def test_a_dry_run_of_an_own_export_counts(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
        memory.remember("one", id="a")
        memory.update("a", "two")
        export_jsonl(memory, tmp_path / "a.jsonl")
        assert import_history(memory, tmp_path / "a.jsonl", dry_run=True).present == 2
    with loom.open(embedder="none") as memory:
        planned = import_history(memory, tmp_path / "a.jsonl", dry_run=True)
        assert (planned.records, len(memory.list())) == (2, 0)


def test_without_a_path_the_history_of_this_user_is_found(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    with pytest.raises(StoreUnavailable, match="are expected"):
        import_history(memory, format_name="claude-code")
    written(tmp_path / "claude" / "projects" / "-home-ana-harbour", "claude-code")
    written(tmp_path / "codex" / "sessions" / "2026" / "03" / "01", "codex")
    assert import_history(memory, format_name="claude-code").records == 6
    assert import_history(memory, format_name="codex").records == 5
    with pytest.raises(InvalidInput, match="name a file or a folder"):
        import_history(memory, format_name="chatgpt")


def test_what_was_changed_here_is_left_alone_and_what_is_here_with_a_mask_is_reported(
    memory: Memory, tmp_path: Path
) -> None:
    path = written(tmp_path, "mem0")
    import_history(memory, path)
    first = memory.list(newest_first=False, limit=1).records[0]
    memory.update(first.id, "The harbour opens at ten.")
    again = import_history(memory, path, raw=True)
    assert (again.records, again.present, again.skipped) == (0, 1, 1)
    assert "another text" in again.problems[0].reason


# --- what cannot be read -------------------------------------------------------------------------------------


def test_a_malformed_line_is_reported_with_its_position_and_skipped(memory: Memory, tmp_path: Path) -> None:
    path = written(tmp_path, "claude-code")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[6] = lines[6][:40] + b"\n"
    lines[9] = b"\xff\xfe" + lines[9]
    path.write_bytes(b"".join(lines))
    done = import_history(memory, path)
    assert [(one.position, one.is_cut) for one in done.problems] == [("line 7", False), ("line 10", False)]
    assert (done.records, done.skipped, done.complete) == (4, 2, True)


def test_a_malformed_conversation_costs_only_itself(memory: Memory, tmp_path: Path) -> None:
    good = json.dumps(chatgpt_conversation()).encode()
    path = tmp_path / "conversations.json"
    path.write_bytes(b"[" + good + b', {"mapping": nope}, 7, {"mapping": {"a": {"message": 5}}}, ' + good[:-9])
    done = import_history(memory, path)
    assert done.records == 5
    assert [one.position for one in done.problems][:2] == [f"byte {len(good) + 3:,}", "conversation 3"]
    assert not done.complete
    assert done.problems[-1].is_cut


def test_links_in_a_folder_are_not_followed(memory: Memory, tmp_path: Path) -> None:
    outside = written(tmp_path / "elsewhere", "codex")
    written(tmp_path / "history", "claude-code")
    (tmp_path / "history" / "linked.jsonl").symlink_to(outside)
    (tmp_path / "history" / "folder").symlink_to(outside.parent)
    done = import_history(memory, tmp_path / "history")
    assert done.formats == {"claude-code": 1}
    assert [(one.file, one.reason) for one in done.problems] == [
        ("linked.jsonl", "it is a symbolic link, which is not followed")
    ]


def test_a_member_that_grows_out_of_proportion_is_given_up(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom.importers.source_files.UNBOUNDED_UP_TO", 1 << 16)
    line = json.dumps({"role": "user", "content": "a" * 20_000}) + "\n"
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../chat.jsonl", line * 1000)
    done = import_history(memory, tmp_path / "bomb.zip")
    assert "250 times its size" in done.problems[-1].reason
    assert not done.complete
    assert done.records < 1000
    assert not (tmp_path.parent / "chat.jsonl").exists()


def test_encrypted_members_links_and_damaged_archives_are_reported(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", SAMPLES["chatgpt"][1]())
        link = zipfile.ZipInfo("memory.json")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("other.json", SAMPLES["openai"][1]())
        archive.writestr("secret.json", b"[]")
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.rindex(mark) + offset] |= 1
    data[data.index(ANSWERED.encode())] ^= 0xFF
    path.write_bytes(data)
    done = import_history(memory, path)
    reasons = {one.file.partition(":")[2]: one.reason for one in done.problems}
    assert "symbolic link" in reasons["memory.json"]
    assert "encrypted" in reasons["secret.json"]
    assert not done.complete


@pytest.mark.parametrize(
    ("name", "data"),
    [("empty.json", b""), ("text.json", b"hello"), ("numbers.json", b"[1, 2]"), ("user.json", b'{"id": 1}')],
)
def test_a_file_of_no_format_is_refused_before_anything_is_written(
    memory: Memory, tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInput, match="has no known format"):
        import_history(memory, tmp_path / name)
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        import_history(memory, tmp_path / "missing.json")
    with pytest.raises(InvalidInput, match="there is no format"):
        import_history(memory, tmp_path / name, format_name="cloude-code")


def test_a_pipe_is_refused_and_not_waited_for(memory: Memory, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InvalidInput, match="not a regular file"):
        import_history(memory, tmp_path / "pipe.jsonl")
    written(tmp_path, "codex")
    assert import_history(memory, tmp_path).formats == {"codex": 1}


# --- interruptions and other processes -----------------------------------------------------------------------

_IMPORT = """
import sys, loom
from loom.importers import import_history
with loom.open(sys.argv[1], embedder="none", derive=False) as memory:
    def told(count): print(count, flush=True)
    import_history(memory, sys.argv[2], progress=told)
"""


def long_chat(path: Path, messages: int) -> Path:
    with path.open("w") as file:
        for number in range(messages):
            role = "user" if number % 2 == 0 else "assistant"
            file.write(json.dumps({"role": role, "content": f"message {number} of the harbour log"}) + "\n")
    return path


def importing(store: Path, source: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _IMPORT, str(store), str(source)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_an_import_that_was_killed_is_continued_without_loss_or_duplicates(tmp_path: Path) -> None:
    source, store = long_chat(tmp_path / "chat.jsonl", 3000), tmp_path / "memory.loom"
    with importing(store, source) as child:
        assert child.stdout is not None
        reached = [int(child.stdout.readline()) for _ in range(3)][-1]
        child.send_signal(signal.SIGKILL)
    with loom.open(store, embedder="none", derive=False) as memory:
        kept = memory.get_stats()["records"]
        assert reached <= kept < 3000
        done = import_history(memory, source)
        assert (done.present, done.records) == (kept, 3000 - kept)
        said = texts_of_all(memory)
    assert said == [f"message {number} of the harbour log" for number in range(3000)]


def texts_of_all(memory: Memory) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        page = memory.list(limit=1000, newest_first=False, after=after)
        found += [one.content for one in page]
        if page.next is None:
            return found
        after = page.next


def test_two_imports_at_once_and_one_after_an_export_make_equal_stores(tmp_path: Path) -> None:
    source, store = long_chat(tmp_path / "chat.jsonl", 1500), tmp_path / "memory.loom"
    with loom.open(store, embedder="none"):
        pass
    children = [importing(store, source) for _ in range(2)]
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    with loom.open(store, embedder="none", derive=False) as memory:
        assert sorted(texts_of_all(memory)) == sorted(f"message {n} of the harbour log" for n in range(1500))
        export_jsonl(memory, tmp_path / "one.jsonl")
    with loom.open(tmp_path / "copy.loom", embedder="none", derive=False) as memory:
        import_history(memory, tmp_path / "one.jsonl")
        export_jsonl(memory, tmp_path / "two.jsonl")
    one, two = ((tmp_path / name).read_bytes().splitlines()[1:] for name in ("one.jsonl", "two.jsonl"))
    assert one == two


# --- the command ---------------------------------------------------------------------------------------------


def test_the_command_imports_reports_and_confirms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", str(tmp_path / "memory.loom")]
    path = written(tmp_path, "claude-code")
    assert main(["import", str(path), "--dry-run", *store]) == 0
    assert "6 records would be added" in capsys.readouterr().out
    assert main(["import", str(path), "--project", "harbour", *store]) == 0
    shown = capsys.readouterr().out
    assert "6 records added" in shown
    assert "1 had keys or other secrets, which were masked" in shown
    path.write_bytes(path.read_bytes() + b"{cut")
    assert main(["import", str(path), "--from", "claude-code", "--json", *store]) == 1
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (told["present"], told["skipped"], told["complete"]) == (6, 1, False)
    assert told["problems"][0]["position"] == "line 13"
    assert main(["instructions", "--unconfirmed", "--json", *store]) == 0
    waiting = json.loads(capsys.readouterr().out)["instructions"]
    assert [one["text"] for one in waiting] == [STANDING]
    assert main(["confirm", waiting[0]["id"], *store]) == 0
    assert STANDING in capsys.readouterr().out
    assert main(["import", str(path), "--from", "codex", *store]) == 2
    assert RESULT not in capsys.readouterr().err


def test_the_example_answers_its_three_questions_from_the_transcript() -> None:
    example = Path(__file__).parents[2] / "examples" / "own_history.py"
    words = [sys.executable, str(example)]
    environ = {**os.environ, "LOOM_EMBEDDER": "none"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environ, check=True)
    answers = [part.splitlines()[1] for part in done.stdout.split("\n\n")[1:]]
    for answer, expected in zip(
        answers, ("version 4.2", "Mara reviews the change on 12 May", "40 seconds"), strict=True
    ):
        assert expected in answer
    assert "sk-live" not in done.stdout


def test_hooks_and_imports_give_a_line_of_codex_one_id(tmp_path: Path) -> None:
    lines = written(tmp_path, "codex").read_bytes().splitlines(keepends=True)

    def ids(unit: str, places: list[int]) -> list[str]:
        state = RolloutState()
        read = [read_line("x", f"{unit} {place:,}", line, state) for place, line in zip(places, lines, strict=True)]
        return [message.id for found in read for message in found if isinstance(message, HistoryMessage)]

    by_line = ids("line", list(range(1, len(lines) + 1)))
    assert by_line == ids("byte", [sum(map(len, lines[:number])) for number in range(len(lines))])
    assert len(by_line) == len(set(by_line)) >= 5
