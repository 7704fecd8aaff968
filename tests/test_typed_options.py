"""The options of `open` and the filters of the verbs are typed: a type checker refuses one that does not exist."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

from loom.drafts import Attributes, AttributeValues
from loom.memory.verbs import MemoryOptions, MemoryVerbs
from loom.settings import SETTINGS, Settings, SettingValues
from loom.storage.contract import Filter
from loom.types import Filters

RIGHT = """
import loom

with loom.open("agent.loom", node_id="a", l1_token_budget=500, derive=False, embedder="none") as memory:
    memory.remember("text", role="user", created_at="2026-03-01T09:00:00+00:00")
    memory.remember([{"role": "user", "content": "text"}], session_id="s1")
    hits = memory.recall("text", session_id="s1", since="2026-03-01T00:00:00+00:00", where={"a": 1})
    hits[0].score + 1.0
    memory.recall("text", explain=True, tier="l1").hits
    memory.list(kind=["fact", "summary"], pinned=True)
    memory.forget(until="2026-03-01T00:00:00+00:00")
    loom.Context.to_dict(memory.context("text", budget=500))


async def use(memory: loom.Memory) -> None:
    page = await memory.aio.list(kind="fact")
    [record.content for record in page]
"""

WRONG = {
    "an option of open": "loom.open(l1_token_bugdet=500)",
    "the type of a setting": 'loom.open(l1_token_budget="500")',
    "an attribute of remember": 'memory.remember("text", sesion_id="s1")',
    "a filter of recall": 'memory.recall("text", sesion_id="s1")',
    "the type of a filter": 'memory.recall("text", min_importance="high")',
    "a filter of list": 'memory.list(sesion_id="s1")',
    "a filter of forget": 'memory.forget(sesion_id="s1")',
    "an option of LoomMemory": 'LoomMemory("a", l1_token_bugdet=500)',
    "an option of MemoryManager": 'MemoryManager("a", l1_token_bugdet=500)',
}


def test_a_type_checker_accepts_what_is_right_and_refuses_what_is_misspelt(tmp_path: Path) -> None:
    header = "import loom\nfrom loom.memory import LoomMemory, MemoryManager\n\nmemory = loom.open()\n"
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(header + "\n".join(WRONG.values()) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path)]
    checked = subprocess.run(
        [*command, str(tmp_path / "right.py"), str(tmp_path / "wrong.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert checked.returncode == 1, checked.stderr
    assert not [line for line in errors if "right.py" in line]
    first = len(header.splitlines()) + 1
    refused = {int(line.split("wrong.py:")[1].split(":")[0]) for line in errors}
    assert refused == set(range(first, first + len(WRONG)))


def test_the_typed_settings_are_the_settings() -> None:
    typed = get_type_hints(SettingValues)
    assert typed.keys() == SETTINGS.keys() - {"node_id", "embedder"}
    for name, kind in typed.items():
        assert get_args(kind) == (SETTINGS[name].kind, type(None))
    assert MemoryOptions.__optional_keys__ >= SETTINGS.keys() - {"node_id"}


def test_the_typed_options_are_those_that_a_memory_is_opened_with() -> None:
    taken = inspect.signature(MemoryVerbs).parameters
    named = MemoryOptions.__optional_keys__ - SettingValues.__optional_keys__
    assert [*taken][-1] == "values"  # the settings
    assert named == taken.keys() - {"node_id", "store", "values"}


def test_the_rule_of_a_setting_has_the_type_of_its_field() -> None:
    kinds = get_type_hints(Settings)
    assert {name: rule.kind for name, rule in SETTINGS.items()} == {name: kinds[name] for name in SETTINGS}


def test_the_typed_filters_are_the_fields_of_a_filter() -> None:
    typed = get_type_hints(Filters)
    own = get_type_hints(Filter)
    assert [*typed] == [one.name for one in fields(Filter)]
    for name, kind in typed.items():
        assert {*get_args(kind)} - {str} == {*get_args(own[name])} - {str}


def test_the_typed_attributes_are_the_attributes() -> None:
    assert get_type_hints(AttributeValues) == get_type_hints(Attributes)


def test_no_name_has_to_be_given() -> None:
    assert not Filters.__required_keys__ | AttributeValues.__required_keys__ | MemoryOptions.__required_keys__
