"""No stored text, name or argument can control the terminal of a user of `loom`."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

import loom
from loom import cli
from loom.cli import demo
from loom.storage.contract import Draft
from loom.terminal import guarded_output, visible

# Clear the screen, set the title, C1's CSI, turn the order of characters around, go back over the line.
STEERS = "\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil\u2066\r\x08\x00\u200f\u2028"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0041]")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A memory in which every text and name steers."""
    monkeypatch.setenv("LOOM_DERIVE", "false")
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    folder = tmp_path / f"folder{STEERS}".replace("\x00", "")
    folder.mkdir()
    path = folder / "a.loom"
    with loom.open(path, embedder="none", derive=False) as memory:
        memory.remember(f"turn {STEERS}", id=f"id{STEERS}", session_id=f"s{STEERS}", name=f"n{STEERS}")
        drawn = Draft(
            f"fact{STEERS}",
            f"The port is 80{STEERS}\nand a forged line",
            datetime(2026, 3, 1, tzinfo=UTC),
            kind="fact",
            trust="user",
            data={"fact_type": "domain_knowledge", "confidence": 0.9},
            sources=(f"id{STEERS}",),
            drawn=True,
        )
        with memory.store.transaction() as transaction:
            transaction.append([drawn])
    with loom.open(path, embedder="none", derive=False, namespace="other") as memory:
        memory.remember("x")
    return path


def test_no_command_prints_what_steers(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = f"id{STEERS}"
    store = ["--store", file]
    for arguments in (
        ["recall", "turn", *store],
        ["list", *store],
        ["list", "--kind", "fact", *store],
        ["list", "--json", *store],
        ["list", "--jsonl", *store],
        ["get", hostile, *store],
        ["history", hostile, *store],
        ["context", "turn", "--explain", *store],
        ["facts", *store],
        ["facts", "port", "--history", *store],
        ["summaries", *store],
        ["stats", *store],
        ["tiers", *store],
        ["doctor", *store],
        ["check", *store],
        ["check", "--no-repair", *store],
        ["promote", hostile, *store],
        ["demote", hostile, *store],
        ["pin", hostile, *store],
        ["promote", f"missing{STEERS}", *store],
        ["undo", f"missing{STEERS}", *store],
        ["undo", f"fact{STEERS}", *store],
        ["archive", *store],
        ["snapshot", file.parent / "one.hctx", *store],
        ["restore", file.parent / "one.hctx", "--store", file.parent / "two.loom"],
        ["restore", file.parent / "one.hctx", *store, "--into", "other", "--take", "default"],
        ["restore", file.parent / "one.hctx", "--store", file.parent / "two.loom"],
        ["stats", "--store", file.parent / f"missing{STEERS}".replace("\0", "")],
        ["forget", "--session-id", f"s{STEERS}", "--preview", *store],
        ["forget", hostile, *store],
        ["trust", file.parent / "missing"],
        ["settings", "--config", file.parent / "missing.toml"],
    ):
        assert cli.main([str(argument) for argument in arguments]) in (0, 1, 2)
        printed = capsys.readouterr()
        assert printed.out + printed.err
        assert not STEERING.search(printed.out + printed.err), arguments


def test_usage_errors_do_not_steer(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["recall", "f", "--limit", STEERS], [STEERS], ["settings", STEERS]):
        with pytest.raises(SystemExit):
            cli.main(arguments)
        said = capsys.readouterr().err
        assert said
        assert not STEERING.search(said)


def test_a_text_with_line_ends_cannot_forge_lines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["facts", "--store", str(file)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0] == r"The port is 80" + visible(STEERS) + r"\nand a forged line"


def test_trusting_a_folder_shows_its_settings_without_steering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "loom.toml").write_text(f"# {STEERS}\n", encoding="utf-8")
    assert cli.main(["trust", str(tmp_path)]) == 0
    assert not STEERING.search(capsys.readouterr().out)


def test_the_demonstration_marks_what_steers(monkeypatch: pytest.MonkeyPatch) -> None:
    def steering(session: demo.Session) -> demo.Session:
        turns = tuple(replace(turn, text=f"{turn.text} {STEERS}") for turn in session.turns)
        return replace(session, turns=turns)

    monkeypatch.setattr(demo, "CONVERSATION", tuple(map(steering, demo.CONVERSATION)))
    output = io.StringIO()
    demo.run(Console(file=output, width=120, highlight=False), embedder="none")
    assert "\\x1b[2J" in output.getvalue()
    assert not STEERING.search(output.getvalue())


def test_the_demonstration_keeps_its_own_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    assert cli.main(["demo"]) == 0
    assert "\x1b[" in output.getvalue()


def test_logged_and_foreign_output_is_guarded_too(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded_output():
        logging.StreamHandler().emit(logging.makeLogRecord({"msg": STEERS}))
        print("kept:\ttab\nline", "é 中 👩\u200d🔬")
        sys.stdout.writelines([STEERS])
    printed = capsys.readouterr()
    assert not STEERING.search(printed.out + printed.err)
    assert "kept:\ttab\nline é 中 👩\u200d🔬" in printed.out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminals_encoding_lacks_is_marked_and_not_an_error(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, write_through=True))
    with guarded_output():
        print("中 \udcff")
    assert raw.getvalue().decode(encoding) == ("中 \\udcff\n" if encoding == "utf-8" else "\\u4e2d \\udcff\n")


def test_a_path_that_is_no_text_is_printed(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from loom.cli import main; main()",
            "stats",
            "--store",
            os.fsencode(tmp_path) + b"/\xff\x1b[2J.loom",
        ],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert b"Traceback" not in done.stderr
    assert rb"\udcff\x1b[2J.loom" in done.stderr
    assert b"\x1b" not in done.stderr


def test_marks_are_escapes_and_plain_text_stays() -> None:
    assert visible("a\x1b[0m\x9b\u202e\n\t\x7f") == r"a\x1b[0m\x9b\u202e\n\t\x7f"
    assert visible("plain é 中文 👩\u200d🔬 עברית") == "plain é 中文 👩\u200d🔬 עברית"
    assert visible("\U000e0041\ud800") == r"\U000e0041\ud800"
