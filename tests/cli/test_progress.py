"""Long commands say how far they are: the operations report it, and a terminal shows it as a bar."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.cli.programs import COMMANDS
from loom.cli.progress_bar import line, working
from loom.models.embedders import FakeEmbedder
from loom.progress import Progress, followed, has_listener, listening, report

RECORDS = 600


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, a snapshot and an export of it."""
    place = tmp_path_factory.mktemp("long")
    with loom.open(place / "a.loom", embedder="none", derive=False) as memory:
        memory.remember([f"Note {number}: the tide at pier {number} turns early." for number in range(RECORDS)])
        memory.flush()
    COMMANDS["snapshot"].call(place / "a.loom", {"target": place / "a.hctx"})
    return place


def check(folder: Path, tmp_path: Path) -> None:
    COMMANDS["check"].call(folder / "a.loom", {"no_repair": True})


def backup(folder: Path, tmp_path: Path) -> None:
    COMMANDS["backup"].call(folder / "a.loom", {"target": tmp_path / "copy.loom"})


def snapshot(folder: Path, tmp_path: Path) -> None:
    COMMANDS["snapshot"].call(folder / "a.loom", {"target": tmp_path / "copy.hctx"})


def restore(folder: Path, tmp_path: Path) -> None:
    COMMANDS["restore"].call(tmp_path / "copy.loom", {"snapshots": [folder / "a.hctx"]})


def restore_into(folder: Path, tmp_path: Path) -> None:
    loom.open(tmp_path / "copy.loom", embedder="none").close()
    COMMANDS["restore"].call(tmp_path / "copy.loom", {"snapshots": [folder / "a.hctx"], "into": "default"})


def archive(folder: Path, tmp_path: Path) -> None:
    backup(folder, tmp_path)
    COMMANDS["archive"].call(tmp_path / "copy.loom", {})


def vacuum(folder: Path, tmp_path: Path) -> None:
    backup(folder, tmp_path)
    COMMANDS["vacuum"].call(tmp_path / "copy.loom", {})


def flush(folder: Path, tmp_path: Path) -> None:
    backup(folder, tmp_path)
    with loom.open(tmp_path / "copy.loom", embedder=FakeEmbedder(dimensions=16), derive=False) as memory:
        COMMANDS["flush"].call(memory, {})


WORKS: dict[Callable[[Path, Path], None], dict[str, int | None]] = {
    check: {"records": RECORDS},
    backup: {"pages": None},
    snapshot: {"records": RECORDS, "vectors": 0},
    restore: {"bytes": None},
    restore_into: {"bytes": None, "records": RECORDS},
    archive: {"records": RECORDS, "steps": 3},
    vacuum: {"steps": 3},
    flush: {"jobs": None},
}
"""What reports its progress, and the totals of what it counts, where they are known here."""


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_it_reports_what_is_done_up_to_all_of_it(
    folder: Path, tmp_path: Path, work: Callable[[Path, Path], None]
) -> None:
    told: list[Progress] = []
    with listening(told.append):
        work(folder, tmp_path)
    for unit, total in WORKS[work].items():
        mine = [one for one in told if one.unit == unit]
        assert mine
        assert [one.done for one in mine] == sorted(one.done for one in mine)
        assert mine[-1].done == mine[-1].total
        assert total is None or mine[-1].total == total
        assert not total or mine[0].done < mine[-1].done


def test_every_command_that_takes_long_shows_that_it_is_at_work() -> None:
    named = {one.__name__.partition("_")[0] for one in WORKS} | {"export", "import"}
    assert named <= {name for name, operation in COMMANDS.items() if operation.long}


def test_without_a_listener_nothing_is_counted() -> None:
    def count() -> int:
        raise AssertionError("counted")

    assert [*followed([1, 2], count, "items")] == [1, 2]
    assert not has_listener()
    told: list[Progress] = []
    with listening(told.append):
        assert [*followed([1, 2], lambda: 2, "items")] == [1, 2]
    report(1, 2, "items")
    assert told == [(0, 2, "items"), (2, 2, "items")]


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (None, "\\ check, 3 s"),
        (Progress(1200, None, "records"), "\\ check: 1,200 records, 3 s"),
        (Progress(0, 0, "records"), "\\ check: 0 records, 3 s"),
        (Progress(12_000, 48_000, "records"), "[#####...............]  25% check: 12,000 of 48,000 records, 3 s"),
        (Progress(9, 8, "pages"), "[####################] 100% check: 9 of 8 pages, 3 s"),
    ],
)
def test_the_line_says_how_far_it_is(progress: Progress | None, shown: str) -> None:
    assert line("check", progress, 3.2, 3) == shown


class Screen(io.StringIO):
    """A terminal that tells when something has been written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_the_line_is_drawn_while_the_work_goes_on_and_gone_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with working("check", after_s=0):
        report(1, 4, "records")
        assert screen.written.wait(60)
    assert "check" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("shown", [True, False])
def test_nothing_is_drawn_elsewhere_than_on_a_terminal(monkeypatch: pytest.MonkeyPatch, shown: bool) -> None:
    screen: Any = io.StringIO() if shown else Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with working("check", shown=shown, after_s=0):
        assert not has_listener()
        report(1, 4, "records")
    assert screen.getvalue() == ""
