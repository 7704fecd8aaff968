"""The instructions of CONTRIBUTING.md: their changes are made to a copy of the package, which is then used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from loom.importers.recognising import FORMATS
from loom.operations.upkeep import Format
from tests.importers.samples import SAMPLES
from tests.test_documentation import Block, blocks, table

ROOT = Path(__file__).parent.parent
CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def steps(title: str) -> dict[str, str]:
    """The blocks of a how-to by their language."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    first = text.count("\n", 0, text.index(f"\n## {title}\n")) + 1
    last = text.count("\n", 0, text.index("\n## ", text.index(f"\n## {title}\n") + 1)) + 1
    found: list[Block] = [block for block in blocks(CONTRIBUTING) if first < block.line < last]
    assert len({block.language for block in found}) == len(found) > 0
    return {block.language: block.code for block in found}


def change(root: Path, diff: str) -> None:
    """Apply a diff without line numbers. The lines around each change must be in the file once."""
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        text = (root / name).read_text(encoding="utf-8")
        for hunk in body.removesuffix("\n").split("\n@@\n"):
            lines = hunk.split("\n")
            before = "\n".join(line[1:] for line in lines if line[:1] != "+") + "\n"
            after = "\n".join(line[1:] for line in lines if line[:1] != "-") + "\n"
            assert text.count(before) == 1, f"{name} has {text.count(before)} times:\n{before}"
            text = text.replace(before, after)
        (root / name).write_text(text, encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tree with the package, the tests and the settings of the project."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    for name in ("pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    return tmp_path


def run(copy: Path, *arguments: str, code: int = 0) -> str:
    """Run Python with the changed package. Returns what it wrote."""
    environ = {**os.environ, "PYTHONPATH": str(copy / "src"), "LOOM_EMBEDDER": "none", "HOME": str(copy)}
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environ, capture_output=True, text=True, check=False
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_a_signal_is_scored_and_explained(copy: Path) -> None:
    change(copy, steps("How to add a signal to recall")["diff"])
    program = """
import loom
memory = loom.open()
memory.remember("The harbour opens at nine.", id="short")
memory.remember("The harbour " + "is busy with boats and people " * 9 + "and opens at nine.", id="long")
explained = memory.recall("When does the harbour open?", explain=True)
print(sorted(one.id for one in explained.candidates if one.signals.get("brief")))
print([hit.why for hit in explained.hits if hit.id == "short"])
"""
    told = run(copy, "-c", program).splitlines()
    assert told[0] == "['short']"
    assert "says it briefly" in told[1]


def test_a_tier_policy_keeps_the_properties_of_all_policies(copy: Path) -> None:
    change(copy, steps("How to add a tier policy")["diff"])
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/properties/test_eviction_properties.py")
    program = """
import loom
from loom.types import MemoryTier
memory = loom.open(profile="lcr", l2_token_budget=120)
for number in range(12):
    memory.remember("one two three four five six seven eight", id=f"short {number}")
    if number == 3:
        memory.remember("many words " * 30, id="long")
print(sorted(record.id for record in memory.list(tier=MemoryTier.L2).records))
"""
    assert "long" not in run(copy, "-c", program)


def test_a_backend_passes_the_suite_and_is_opened_by_its_url(copy: Path) -> None:
    how = steps("How to add a storage backend")
    (copy / "test_the_backend.py").write_text(how["python"], encoding="utf-8")
    ran = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(copy), "test_the_backend.py")
    assert "passed" in ran or "100%" in ran
    shutil.copy(ROOT / "tests" / "storage" / "plain_store.py", copy / "src" / "loom" / "storage")
    change(copy, how["diff"])
    program = """
import loom
from loom.discovery import as_place
memory = loom.open("plain://here")
memory.remember("The harbour opens at nine.")
print(type(memory.store).__name__, memory.recall("When does the harbour open?")[0].content, as_place("plain://here"))
try:
    loom.open("plain://here", read_only=True)
except loom.LoomError as error:
    print(type(error).__name__)
"""
    expected = "PlainStore The harbour opens at nine. plain://here\nUnsupportedStore\n"
    assert run(copy, "-c", program) == expected


def test_an_importer_is_recognised_and_asked_for_by_its_name(copy: Path) -> None:
    how = steps("How to add an importer")
    (copy / "src" / "loom" / "importers" / "diary.py").write_text(how["python"], encoding="utf-8")
    change(copy, how["diff"])
    notes = copy / "notes.jsonl"
    notes.write_text('{"day": "2026-03-01", "note": "The harbour opens at nine."}\n{"day": "2026-03-02"}\n')
    importing = ("-c", "from loom.cli import main; raise SystemExit(main())", "import", "--store", "a.loom")
    told = run(copy, *importing, str(notes), code=1)
    assert "diary" in told
    assert "it has no note" in told
    notes.write_text('{"day": "2026-03-01", "note": "The harbour opens at nine."}\n')
    again = json.loads(run(copy, *importing, "--from", "diary", "--json", str(notes)))
    assert (again["records"], again["present"]) == (0, 1)
    assert "diary" in run(copy, "-m", "loom.cli.manual")


def test_every_format_can_be_asked_for_and_has_a_row_and_a_sample() -> None:
    rows = table(ROOT / "docs" / "importing.md", "--from")
    assert [*get_args(Format)] == [*FORMATS] == [*rows]
    assert {name for _, _, name in SAMPLES.values()} == {*FORMATS} - {"loom-jsonl"}
