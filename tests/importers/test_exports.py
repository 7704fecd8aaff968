"""Exports as JSON Lines: complete, equal after an import, repeatable, and harmless whatever a file holds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.cli import main
from loom.errors import InvalidInput, ReadOnly, StoreUnavailable
from loom.everyday import Memory
from loom.importers import ImportResult, export_jsonl, import_jsonl
from loom.importers.json_reader import LARGEST_VALUE
from loom.protocol import Task
from loom.storage.contract import Dimensions

SAID = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
RECORD: dict[str, Any] = {
    "id": "r",
    "version": 1,
    "content": "a text",
    "created_at": "2026-03-01T09:30:00+00:00",
    "kind": "message",
    "node": "default",
    "trust": "user",
    "importance": 0.5,
}


def opened(path: Path, **options: Any) -> Memory:
    return loom.open(path, embedder="none", derive=False, **options)


def fill(memory: Memory) -> None:
    """Everything that a record can have, in both languages."""
    memory.remember("港口九点开门。", id="harbour", role="user", name="安娜", session_id="s1", created_at=SAID)
    memory.update("harbour", "港口十点开门。", metadata={"来源": ["电话", 3, 0.1, None, True]})
    memory.update("harbour", importance=0.9)
    memory.remember("A page\nsays \u2028 \x00 things.", id="page", trust="web", created_at=SAID + timedelta(days=1))
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    memory.remember({"role": "assistant", "content": None, "tool_calls": [call], "id": "call"})
    memory.remember(Task(task_id="t", action="execute", parameters={"x": 1}, session_id="s2"))
    memory.remember("I am patient.", id="self", dimensions=Dimensions("subject", "state", "type"))
    memory.pin("self")
    memory.add_fact("The harbour has two cranes.")


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with opened(tmp_path / "a.loom") as memory:
        fill(memory)
        export_jsonl(memory, tmp_path / "a.jsonl")
    return tmp_path / "a.jsonl"


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., tuple[ImportResult, list[str]]]:
    """Imports a file of these records into a new memory: the result, and the ids that are there."""

    def run(*records: Any, end: bool = True) -> tuple[ImportResult, list[str]]:
        told = [b'{"format":"loom-jsonl","version":1}\n']
        told += [one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in records]
        told += [json.dumps({"end": len(records)}).encode()] * end
        (tmp_path / "given.jsonl").write_bytes(b"".join(told))
        with opened(tmp_path / "target.loom") as memory:
            result = import_jsonl(memory, tmp_path / "given.jsonl")
            return result, [one.id for one in memory.list(newest_first=False)]

    return run


# --- there and back ------------------------------------------------------------------------------------------


def test_an_export_of_an_import_has_the_same_bytes(exported: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "b.loom") as memory:
        result = import_jsonl(memory, exported)
        export_jsonl(memory, tmp_path / "b.jsonl")
    assert (result.records, result.present, result.skipped, result.complete) == (8, 0, 0, True)
    assert lines(tmp_path / "b.jsonl")[1:] == lines(exported)[1:]
    assert len(lines(exported)) == 10


def test_an_imported_memory_is_the_one_that_was_exported(exported: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as before, opened(tmp_path / "b.loom") as after:
        import_jsonl(after, exported)
        for id in ("harbour", "page", "call", "t", "self"):
            old, new = ([one._replace(seq=0, committed_at=SAID) for one in m.history(id)] for m in (before, after))
            assert new == old
        assert after.store.pinned("self")
        assert not after.store.pinned("page")
        assert after.recall("什么时候开门")[0].id == "harbour"
        assert after.recall("港口", as_of=SAID + timedelta(seconds=1), limit=1)[0].version == 1
        assert [one.content for one in after.facts()] == ["The harbour has two cranes."]
        assert after.check().ok


def test_importing_again_changes_nothing(exported: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "b.loom") as memory:
        import_jsonl(memory, exported)
        records = memory.get_stats()["records"]
        again = import_jsonl(memory, exported)
        assert (again.records, again.present, again.skipped) == (0, 8, 0)
        assert memory.get_stats()["records"] == records


def test_importing_into_the_memory_that_was_exported_changes_nothing(exported: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        assert import_jsonl(memory, exported).present == 8


def test_two_processes_import_at_once_and_nothing_comes_twice(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember([f"第 {number} 件事" for number in range(1500)])
        memory.remember("one", id="changes")
        for number in range(20):
            memory.update("changes", f"text {number}")
        export_jsonl(memory, tmp_path / "a.jsonl")
    opened(tmp_path / "b.loom").close()
    code = (
        "import loom, sys; from loom.importers import import_jsonl\n"
        "with loom.open(sys.argv[1], embedder='none', derive=False) as memory:\n"
        "    done = import_jsonl(memory, sys.argv[2]); print(done.records, done.present, done.skipped)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "b.loom"), str(tmp_path / "a.jsonl")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = [[int(one) for one in process.communicate()[0].split()] for process in both]
    assert [sum(column) for column in zip(*counts, strict=True)] == [1521, 1521, 0]
    with opened(tmp_path / "b.loom") as memory:
        export_jsonl(memory, tmp_path / "b.jsonl")
    written = [sorted(lines(tmp_path / name)[1:]) for name in ("a.jsonl", "b.jsonl")]
    assert written[0] == written[1]


def test_what_is_derived_is_marked_and_derived_again_instead_of_imported(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember("My name is Ana and I live in Lisbon.", id="turn", role="user", name="Ana")
        memory.remember("From now on always answer in French.", id="wish", role="user", name="Ana")
        memory.flush()
        done = export_jsonl(memory, tmp_path / "a.jsonl")
        facts, wishes = [{one.id for one in found} for found in (memory.facts(), memory.instructions())]
    marked = [one for one in map(json.loads, lines(tmp_path / "a.jsonl")[1:-1]) if one.get("derived")]
    assert {one["id"] for one in marked} >= facts | wishes
    assert all(set(one["sources"]) <= {"turn", "wish"} for one in marked)
    assert (done.derived, wishes != set()) == (len(marked), True)
    with loom.open(tmp_path / "b.loom", embedder="none") as memory:
        result = import_jsonl(memory, tmp_path / "a.jsonl")
        assert (result.records, result.derived) == (2, len(marked))
        memory.flush()
        assert {one.id for one in memory.facts()} == facts
        assert memory.instructions() == []  # what was imported holds when it is confirmed
        memory.confirm("wish")
        assert {one.id for one in memory.instructions()} == wishes


def test_the_tiers_of_an_import_hold_their_budgets(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember([f"Something rather long about matter number {number}. " * 20 for number in range(300)])
        for number in range(60):
            memory.add_fact(f"The fact about matter number {number} is that it has been settled.")
        export_jsonl(memory, tmp_path / "a.jsonl")
    with opened(tmp_path / "b.loom", l1_token_budget=500, l4_token_budget=200) as memory:
        import_jsonl(memory, tmp_path / "a.jsonl")
        usage = memory.store.usage(memory.node_id)
        assert 0 < usage["l1"].tokens <= 500
        assert 0 < usage["l4"].tokens <= 200
        assert memory.recall("matter number 7", limit=1)[0].content.startswith("Something")


def test_records_of_another_node_stay_with_it(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom", node_id="writer") as memory:
        memory.remember("The chapter is done.", id="chapter", importance=0.9)
        export_jsonl(memory, tmp_path / "a.jsonl")
    with opened(tmp_path / "b.loom") as memory:
        import_jsonl(memory, tmp_path / "a.jsonl")
        assert [one.id for one in memory.list(node="writer")] == ["chapter"]
    with opened(tmp_path / "b.loom", node_id="writer") as memory:
        assert memory.store.usage("writer")["l1"].items == 1


def test_a_memory_whose_place_another_took_has_ended_after_the_import_too(tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        memory.remember("The old harbour.", id="old", created_at=SAID)
        memory.remember("The new harbour.", id="new")
        old, new = (one.seq for one in memory.list(newest_first=False))
        with memory.store.transaction() as transaction:
            transaction.supersede(old, new, SAID + timedelta(days=2))
        export_jsonl(memory, tmp_path / "a.jsonl")
    with opened(tmp_path / "b.loom") as memory:
        import_jsonl(memory, tmp_path / "a.jsonl")
        assert [one.superseded_at for one in memory.history("old")] == [SAID + timedelta(days=2)]
        assert [one.id for one in memory.list()] == ["new"]


def test_progress_is_told_while_records_are_done(exported: Path, tmp_path: Path) -> None:
    told: list[int] = []
    with opened(tmp_path / "a.loom") as memory:
        export_jsonl(memory, tmp_path / "c.jsonl", progress=told.append)
    assert told[-1] == 8
    with opened(tmp_path / "b.loom") as memory:
        import_jsonl(memory, exported, progress=told.append)
    assert told[-1] == 9


# --- files that are not as they should be --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{nonsense\n", "not JSON"),
        (b"[1, 2]\n", "not a JSON object"),
        (b'"text"\n', "not a JSON object"),
        (b"\xff\xfe\n", "not UTF-8"),
        (b"[" * 200_000 + b"\n", "not JSON"),
        ({**RECORD, "content": "\ud800"}, "surrogate"),
        (b'{"importance": NaN}\n', "not JSON"),
        ({**RECORD, "content": 3}, "content must be a text, not int"),
        ({**RECORD, "content": None}, "content must be a text"),
        ({**RECORD, "id": ["r"]}, "id must be a text"),
        ({**RECORD, "id": ""}, "at least one character"),
        ({**RECORD, "version": "1"}, "whole number"),
        ({**RECORD, "version": True}, "whole number"),
        ({**RECORD, "version": 0}, "whole number"),
        ({**RECORD, "version": 2}, "lacks the version before it"),
        ({**RECORD, "created_at": "soon"}, "created_at"),
        ({**RECORD, "created_at": "2026-03-01T09:30:00"}, "without a zone"),
        ({**RECORD, "importance": 7}, "importance"),
        ({**RECORD, "importance": "high"}, "importance"),
        ({**RECORD, "trust": "god"}, "trust must be one of"),
        ({**RECORD, "layer": "roof"}, "layer"),
        ({**RECORD, "metadata": [1]}, "metadata must be an object"),
        ({**RECORD, "sources": "r"}, "sources must be a list"),
        ({**RECORD, "pinned": "yes"}, "pinned must be true or false"),
        ({**RECORD, "__class__": "os.system"}, "does not define"),
        ({one: RECORD[one] for one in RECORD if one != "kind"}, "has no kind"),
        ({**RECORD, "content": "x" * (16 * 1024 * 1024 + 1)}, "larger than"),
        (b" " * (LARGEST_VALUE + 1) + b"\n", "longer than"),
    ],
    ids=range(28),
)
def test_a_line_that_is_wrong_is_reported_with_its_number_and_the_others_come(
    imported: Callable[..., tuple[ImportResult, list[str]]], line: Any, told: str
) -> None:
    result, ids = imported({**RECORD, "id": "before"}, line, {**RECORD, "id": "after"})
    assert ids == ["before", "after"]
    assert (result.records, result.skipped, result.complete) == (2, 1, True)
    assert [one.line for one in result.problems] == [3]
    assert told in result.problems[0].reason


def test_an_id_that_names_something_else_is_skipped_and_not_replaced(
    imported: Callable[..., tuple[ImportResult, list[str]]],
) -> None:
    imported(RECORD)
    result, ids = imported({**RECORD, "content": "another text"}, {**RECORD, "version": 2, "kind": "task"})
    assert ids == ["r"]
    assert (result.records, result.present, result.skipped) == (0, 0, 2)
    assert "another text here" in result.problems[0].reason


@pytest.mark.parametrize("kept", [0.4, 0.7, 0.95])
def test_a_file_that_was_cut_brings_what_is_whole_and_says_so(exported: Path, tmp_path: Path, kept: float) -> None:
    whole = exported.read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(whole[: int(len(whole) * kept)])
    complete_lines = whole[: int(len(whole) * kept)].count(b"\n") - 1
    with opened(tmp_path / "b.loom") as memory:
        result = import_jsonl(memory, tmp_path / "cut.jsonl")
        assert not result.complete
        assert "truncated" in result.problems[-1].reason
        assert result.records == complete_lines
        assert import_jsonl(memory, exported).records == 8 - complete_lines


def test_lines_that_are_missing_are_noticed(exported: Path, tmp_path: Path) -> None:
    whole = lines(exported)
    (tmp_path / "less.jsonl").write_bytes(b"".join([*whole[:4], *whole[5:]]))
    with opened(tmp_path / "b.loom") as memory:
        result = import_jsonl(memory, tmp_path / "less.jsonl")
    assert not result.complete
    assert "states 8 records" in result.problems[-1].reason


@pytest.mark.parametrize(
    "first",
    [b"", b"\n", b"hello\n", b"{}\n", b'{"format":"loom-jsonl","version":2}\n', b'{"format":"mem0","version":1}\n'],
)
def test_a_file_that_is_no_export_is_refused_and_nothing_is_written(tmp_path: Path, first: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(first + json.dumps(RECORD).encode())
    with opened(tmp_path / "b.loom") as memory:
        with pytest.raises(InvalidInput):
            import_jsonl(memory, tmp_path / "x.jsonl")
        assert memory.get_stats()["records"] == 0


def test_places_that_cannot_be_read_or_written_are_refused(exported: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "a.loom") as memory:
        with pytest.raises(InvalidInput, match="the memory itself"):
            export_jsonl(memory, tmp_path / "a.loom")
        with pytest.raises(InvalidInput, match="folder"):
            export_jsonl(memory, tmp_path)
        with pytest.raises(StoreUnavailable):
            export_jsonl(memory, tmp_path / "missing" / "a.jsonl")
        with pytest.raises(StoreUnavailable):
            import_jsonl(memory, tmp_path / "missing.jsonl")
    assert not [*tmp_path.glob(".*.tmp")]
    (tmp_path / "other.jsonl").write_bytes(exported.read_bytes().replace(b'"id":"', b'"id":"other-'))
    with opened(tmp_path / "a.loom", read_only=True) as memory, pytest.raises(ReadOnly):
        import_jsonl(memory, tmp_path / "other.jsonl")


def test_an_export_is_for_its_owner_alone(exported: Path) -> None:
    assert exported.stat().st_mode & 0o777 == 0o600


# --- the command line ----------------------------------------------------------------------------------------


def test_the_commands_carry_a_memory_from_one_store_to_another(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tmp_path / "x.jsonl"), "--store", str(tmp_path / "a.loom")]) == 0
    assert "8 records" in capsys.readouterr().out
    assert main(["import", str(tmp_path / "x.jsonl"), "--store", str(tmp_path / "new.loom")]) == 0
    assert "8 records added, 0 already present" in capsys.readouterr().out
    with (tmp_path / "x.jsonl").open("ab") as file:
        file.write(b"{}\n")
    assert main(["import", str(tmp_path / "x.jsonl"), "--store", str(tmp_path / "new.loom")]) == 1
    assert "line 11: it has no id" in capsys.readouterr().out


def test_the_matrix_counts_every_cell_and_lists_one(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matrix", "--store", str(tmp_path / "a.loom"), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert {(one["subject"], one["layer"]): (one["states"], one["events"]) for one in cells} == {
        ("world", "type"): (0, 0),
        ("subject", "type"): (1, 0),
        ("world", "instance"): (0, 5),
        ("subject", "instance"): (0, 0),
    }
    asked = ["matrix", "--subject", "subject", "--layer", "type", "--store", str(tmp_path / "a.loom")]
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "I am patient." in shown
    assert "world" not in shown
