"""Exports as Markdown: a folder that people read, complete or not there."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import loom
from loom.cli import main
from loom.errors import InvalidInput
from loom.importers import export_markdown, import_history

SAID = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def test_a_memory_becomes_a_file_for_each_day_and_one_for_what_was_derived(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none") as memory:
        memory.remember("港口九点开门。", id="harbour", role="user", name="安娜", session_id="s1", created_at=SAID)
        memory.update("harbour", "港口十点开门。")
        memory.remember(
            "My name is Ana and I live in Lisbon.", role="user", name="Ana", created_at=SAID.replace(day=2)
        )
        memory.remember("# not a heading\n```\ncode\n```", role="assistant", created_at=SAID.replace(day=2))
        memory.flush()
        done = export_markdown(memory, tmp_path / "diary")
        assert done.derived >= 1
    names = sorted(one.name for one in (tmp_path / "diary").iterdir())
    assert "2026-03-02.md" in names
    assert "derived.md" in names
    second = (tmp_path / "diary" / "2026-03-02.md").read_text()
    assert second.startswith("# 2026-03-02\n\n## 2026-03-02 09:30 Ana (user)\n\nMy name is Ana")
    assert "````text\n# not a heading\n```\ncode\n```\n````" in second
    said = "".join(one.read_text() for one in (tmp_path / "diary").iterdir())
    assert "港口十点开门。" in said
    assert "九点" not in said
    with loom.open(embedder="none", derive=False) as memory:
        assert import_history(memory, tmp_path / "diary").formats == {"markdown": len(names)}


def test_many_days_need_few_open_files_and_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    with loom.open(tmp_path / "a.loom", embedder="none", derive=False) as memory:
        for number in range(200):
            day = SAID.replace(year=2020 + number % 100 // 28, day=1 + number % 28)
            memory.remember(f"entry {number}", created_at=day)
        done = export_markdown(memory, tmp_path / "diary")
        assert done.records == 200
        said = "".join(one.read_text() for one in (tmp_path / "diary").iterdir())
        assert said.count("\nentry ") == 200
        with pytest.raises(InvalidInput, match="exists; name a new folder"):
            export_markdown(memory, tmp_path / "diary")


def test_the_command_writes_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", str(tmp_path / "a.loom")]
    assert main(["remember", "The harbour opens at nine.", *store]) == 0
    assert main(["export", str(tmp_path / "diary"), "--to", "markdown", *store]) == 0
    assert "1 record" in capsys.readouterr().out
    assert not [one for one in tmp_path.iterdir() if one.name.endswith(".tmp")]
