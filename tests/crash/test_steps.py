"""The steps that crash tests die at: each has a stable name, is reached by replacing it, and is used by a test."""

from __future__ import annotations

import ast
import re
import types
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import steps
from tests.crash.children import arm

SOURCE = Path(loom.__file__).parent
CRASH, STRESS = Path(__file__).parent, Path(__file__).parents[1] / "stress"
NAMES = sorted(steps.names())


def constants(file: Path) -> set[str]:
    """The strings in a file."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.fixture(scope="module")
def armed() -> set[str]:
    """The strings in the tests that kill or stop a process."""
    files = [*CRASH.glob("test_kill_*.py"), *STRESS.glob("test_*.py")]
    return set().union(*map(constants, files))


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_one_that_a_test_kills_or_stops_a_process_at(name: str, armed: set[str]) -> None:
    assert name in armed


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_found_where_it_is_defined(name: str) -> None:
    owner, attribute = steps.find(name)
    assert isinstance(vars(owner)[attribute], types.FunctionType)


def test_no_module_imports_a_step_by_name() -> None:
    """Replacing the step in its own module would not reach that one."""
    functions: dict[str, set[str]] = {}
    for owner, attribute in map(steps.find, NAMES):
        if isinstance(owner, types.ModuleType):
            functions.setdefault(owner.__name__, set()).add(attribute)
    assert functions
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                taken = functions.get(node.module or "", set()) & {alias.name for alias in node.names}
                assert not taken, f"{file.name} imports {taken} from {node.module}; call it through the module"


@pytest.mark.parametrize("target", ["no.such.step", "loom.storage.sqlite.forgetting:scrub"])
def test_what_is_no_step_and_not_of_the_standard_library_cannot_be_armed(target: str) -> None:
    with pytest.raises(LookupError, match=re.escape(target)):
        arm({"target": target, "when": "before"})


def test_a_step_is_the_function_itself_and_its_name_belongs_to_it_alone() -> None:
    def first() -> None: ...

    register: Any = steps.step("transaction.append")
    with pytest.raises(ValueError, match=re.escape("transaction.append")):
        register(first)
    owner, attribute = steps.find("transaction.append")
    original = getattr(owner, attribute)
    assert register(original) is original
