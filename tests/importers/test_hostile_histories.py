"""Whatever a file contains, an import ends, reports problems and stores the valid messages, and the memory is
sound."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import loom
from loom.errors import InvalidInput
from loom.everyday import Memory
from loom.importers import import_history
from tests.importers.samples import SAMPLES, json_lines

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1e308, 10**400, "", "x", "\x00", "\ud800", [], {}, [[]], [None], {"a": None}, {"": []}]
)
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with loom.open(embedder="none", derive=False) as opened:
        yield opened
        assert opened.check().ok


def assert_imported_or_refused(memory: Memory, path: Path, data: bytes) -> None:
    """Exactly the reported new messages are stored; a refused file adds nothing; no other error is raised."""
    path.write_bytes(data)
    before = memory.get_stats()["records"]
    try:
        done = import_history(memory, path)
    except InvalidInput:
        assert memory.get_stats()["records"] == before
        return
    assert memory.get_stats()["records"] == before + done.records
    assert done.complete or done.problems


@pytest.mark.parametrize("sample", SAMPLES)
def test_bytes_that_are_cut_changed_or_doubled(memory: Memory, tmp_path: Path, sample: str) -> None:
    name, make, _ = SAMPLES[sample]
    whole = make()

    @QUICK
    @given(st.data())
    def run(data: st.DataObject) -> None:
        changed = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(changed)))
            match data.draw(st.sampled_from(["cut", "flip", "insert", "double"])):
                case "cut":
                    del changed[place:]
                case "flip":
                    changed[place : place + 1] = data.draw(st.binary(min_size=1, max_size=1))
                case "insert":
                    changed[place:place] = data.draw(st.binary(max_size=8))
                case "double":
                    changed[place:place] = changed[place : place + 200]
        assert_imported_or_refused(memory, tmp_path / name, bytes(changed))

    run()


@pytest.mark.parametrize("sample", [one for one in SAMPLES if one != "markdown"])
def test_values_of_wrong_types_anywhere(memory: Memory, tmp_path: Path, sample: str) -> None:
    name, make, _ = SAMPLES[sample]
    whole = make()
    parts = [json.loads(line) for line in whole.splitlines()] if name.endswith(".jsonl") else json.loads(whole)

    @QUICK
    @given(st.data())
    def run(data: st.DataObject) -> None:
        changed = parts
        for _ in range(data.draw(st.integers(1, 3))):
            changed = replaced(changed, data)
        is_lines = name.endswith(".jsonl") and isinstance(changed, list)
        written = [json.dumps(one) for one in changed] if is_lines else [json.dumps(changed)]
        assert_imported_or_refused(memory, tmp_path / name, "\n".join(written).encode())

    run()


def replaced(value: Any, data: st.DataObject) -> Any:
    """A copy in which one part, at any depth, is another value."""
    keys = [*value] if isinstance(value, dict) else [*range(len(value))] if isinstance(value, list) else []
    if not keys or data.draw(st.integers(0, 5)) == 0:
        return data.draw(ODD)
    key = data.draw(st.sampled_from(keys))
    copy = value.copy()
    copy[key] = replaced(value[key], data)
    return copy


@pytest.mark.parametrize("sample", ["claude-code", "openai", "chatgpt", "letta"])
def test_nesting_without_end(memory: Memory, tmp_path: Path, sample: str) -> None:
    name, make, _ = SAMPLES[sample]
    deep = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    whole = make()
    start = whole.index(b'"content"') + 9
    start = whole.index(b":", start) + 1
    end = whole.index(b"\n", start)
    assert_imported_or_refused(memory, tmp_path / name, whole[:start] + deep + whole[end:])


def test_a_message_nested_too_deep_to_store_is_skipped(memory: Memory, tmp_path: Path) -> None:
    value: Any = "x"
    for _ in range(120):
        value = [value]
    path = tmp_path / "chat.jsonl"
    call = {"type": "tool_use", "name": "look", "input": {"deep": value}}
    path.write_bytes(json_lines({"role": "assistant", "content": [call]}, {"role": "user", "content": "after it"}))
    done = import_history(memory, path)
    assert (done.records, done.skipped) == (1, 1)


def test_memory_stays_bounded_whatever_the_size_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.importers.json_reader.CHUNK", 1 << 18)
    monkeypatch.setattr("loom.importers.recognising.LONGEST_LINE_LOOKED_AT", 1 << 18)
    monkeypatch.setattr("loom.importers.histories.BATCH_CHARS", 1 << 18)
    sizes = {}
    for megabytes in (2, 8):
        path = tmp_path / f"{megabytes}.json"
        with path.open("wb") as file:
            file.write(b"[")
            one = json.dumps({"role": "user", "content": "the same words " * 600}).encode()
            for number in range(megabytes * 1024 * 1024 // len(one)):
                file.write(b", " * (number > 0) + one)
            file.write(b"]")
        with loom.open(embedder="none", derive=False) as memory:
            tracemalloc.start()
            done = import_history(memory, path, dry_run=True)
            sizes[megabytes] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert done.records == megabytes * 1024 * 1024 // len(one)
    assert sizes[8] < 1.3 * sizes[2]
