"""SIGKILL while a namespace is forgotten, and inside the upgrade to format 5: the next call finishes the work."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

import loom
from tests.crash.forking import run

STORES = Path(__file__).parent.parent / "data" / "stores"

_KILLED = """
import os, signal, sys
import loom
from loom import steps
path, step, work = sys.argv[1:]
owner, name = steps.find(step)
def die(*given, **named):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, die)
with loom.open(path, namespace="operator", embedder="none", all_namespaces=True) as memory:
    if work == "forget":
        memory.forget_namespace("guest")
"""


def killed_at(path: Path, step: str, work: str) -> None:
    done = run(_KILLED, str(path), step, work)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("step", ["forget.remove_all", "vacuum.shrink", "forget.remove_name"])
def test_a_namespace_is_forgotten_by_the_next_call(tmp_path: Path, step: str) -> None:
    path = tmp_path / "a.loom"
    for name in ("guest", "other"):
        with loom.open(path, namespace=name, embedder="none") as memory:
            for number in range(20):
                memory.remember(f"note {number} of {name}")
    killed_at(path, step, "forget")
    with loom.open(path, namespace="operator", embedder="none", all_namespaces=True) as memory:
        assert "guest" in memory.namespaces()
        memory.forget_namespace("guest")
        assert memory.namespaces() == ("other", "operator")
        assert memory.check().ok
    with loom.open(path, namespace="other", embedder="none") as memory:
        assert memory.get_stats()["records"] == 20
        assert memory.check().ok


def test_a_store_of_format_4_is_whole_after_a_kill_in_its_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "v4.loom"
    shutil.copy(STORES / "v4.loom", path)
    killed_at(path, "upgrade.copy", "open")
    with loom.open(path, embedder="none") as memory:
        assert memory.get("english") is not None
        assert memory.check().ok
