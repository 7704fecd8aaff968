"""The everyday commands: texts from standard input, JSON, asking before forgetting, chat, completion."""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loom import cli
from loom.cli.completion import script
from loom.testing import Fail, ScriptedModel

LOOM = [sys.executable, "-c", "import sys; from loom.cli import main; sys.exit(main())"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "agent.loom"))
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(key, raising=False)

    def call(*arguments: object, given: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        code = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def objects(lines: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_a_text_is_remembered_recalled_updated_and_forgotten(run: Run) -> None:
    assert run("remember", "Heron goes live on 12 May.", "--id", "date", "--name", "Ana")[0] == 0
    assert "12 May" in run("recall", "When does Heron go live?")[1]
    assert run("update", "date", "Heron goes live on 9 June.")[0] == 0
    assert "9 June" in run("get", "date")[1]
    assert run("history", "date")[1].index("12 May") < run("history", "date")[1].index("9 June")
    code, out, _ = run("forget", "date")
    assert code == 0
    assert out.startswith("forgotten  ")
    assert run("recall", "When does Heron go live?")[1] == "nothing is known about that\n"
    code, out, err = run("get", "date")
    assert (code, out) == (2, "")
    assert "loom list" in err


def test_standard_input_is_one_text_or_one_a_line(run: Run) -> None:
    log = "第一行\nsecond line\n\nthird line\n".encode()
    (whole,) = objects(run("remember", "-", "--jsonl", given=log)[1])
    assert json.loads(run("get", whole["id"], "--json")[1])["content"] == log.decode()
    kept = objects(run("remember", "--lines", "-", "--jsonl", given=log)[1])
    assert len(kept) == 3
    told = json.loads(run("get", kept[0]["id"], "--json")[1])
    assert (told["content"], told["trust"]) == ("第一行", "unknown")


def test_what_is_typed_is_the_users_and_what_is_piped_is_not(run: Run) -> None:
    run("remember", "typed", "--id", "typed")
    run("remember", "-", "--id", "piped", given=b"piped")
    run("remember", "-", "--id", "said", "--trust", "tool", given=b"piped")
    trusts = [json.loads(run("get", id, "--json")[1])["trust"] for id in ("typed", "piped", "said")]
    assert trusts == ["user", "unknown", "tool"]


@pytest.mark.parametrize(
    ("arguments", "given", "told"),
    [
        (["remember", "-"], b"\xff\xfe", "not UTF-8"),
        (["remember", "-"], b"", "empty"),
        (["remember", "--lines", "-"], b"\n \n", "empty"),
        (["remember", "-", "-"], b"x", "once"),
        (["remember", "-"], b"x" * (16 * 1024 * 1024 + 1), "--lines"),
        (["recall", "x", "--json", "--jsonl"], b"", "choose one"),
        (["recall", "x", "--since", "soon"], b"", "not a time"),
        (["list", "--limit", "0"], b"", "at least 1"),
        (["remember", "x", "--importance", "7"], b"", "at most 1"),
    ],
)
def test_what_makes_no_sense_is_one_line_with_the_way_out(
    run: Run, arguments: list[str], given: bytes, told: str
) -> None:
    run("remember", "something")
    code, out, err = run(*arguments, given=given)
    assert (code, out) == (2, "")
    assert err.startswith("loom: ")
    assert err.count("\n") == 1
    assert told in err


def test_json_is_one_object_and_jsonl_an_object_a_line(run: Run) -> None:
    for number in range(3):
        run(
            "remember",
            f"note {number}",
            "--session-id",
            "s",
            "--metadata",
            f"number={number}",
            "--metadata",
            "kind=odd",
        )
    listing = json.loads(run("list", "--limit", "2", "--json")[1])
    assert [memory["metadata"]["number"] for memory in listing["memories"]] == [2, 1]
    rest = objects(run("list", "--after", listing["next"], "--jsonl")[1])
    assert [memory["content"] for memory in rest] == ["note 0"]
    assert [one["content"] for one in objects(run("recall", "note", "--where", "number=1", "--jsonl")[1])] == [
        "note 1"
    ]
    assert json.loads(run("recall", "zebra", "--json")[1]) == {"hits": [], "tokens": 0}


def test_json_holds_any_text_and_steers_no_terminal(run: Run) -> None:
    text = "tab\t中文 \x1b[2J \x7f\x9b \u202e\u2028 \U000e0041 end"
    run("remember", text, "--id", "x")
    printed = run("get", "x", "--json")[1]
    assert json.loads(printed)["content"] == text
    assert not set(printed) & set("\x1b\x7f\x9b\u202e\u2028\U000e0041")
    assert "中文" in printed


# --- forgetting ----------------------------------------------------------------------------------------------


def test_forgetting_by_a_filter_without_a_terminal_shows_and_refuses(run: Run) -> None:
    run("remember", "secret plan", "--session-id", "trial")
    code, out, err = run("forget", "--session-id", "trial")
    assert (code, out) == (2, "")
    assert "secret plan" in err
    assert "--yes" in err
    assert "secret plan" in run("list")[1]
    assert "would be forgotten" in run("forget", "--session-id", "trial", "--preview")[1]
    assert run("forget", "--session-id", "trial", "--yes")[:2] == (0, "forgotten  1 record\n")
    assert run("list")[1] == "no memories\n"
    assert run("forget", "--session-id", "trial", "--yes")[:2] == (1, "nothing matches\n")


@pytest.mark.parametrize(("said", "code", "left"), [("n", 1, 1), ("", 1, 1), ("y", 0, 0), ("yes", 0, 0)])
def test_at_a_terminal_forgetting_by_a_filter_asks(run: Run, said: str, code: int, left: int) -> None:
    run("remember", "secret plan", "--session-id", "trial")
    master, slave = pty.openpty()
    os.write(master, f"{said}\n".encode())
    done = subprocess.run(
        [*LOOM, "forget", "--session-id", "trial"],
        stdin=slave,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(master)
    os.close(slave)
    assert "secret plan" in done.stderr
    assert "[y/N]" in done.stderr
    assert done.returncode == code
    assert json.loads(run("stats", "--json")[1])["counts"]["records"] == left


def test_colours_are_for_terminals_alone(run: Run, tmp_path: Path) -> None:
    run("remember", "The harbour opens at nine.")
    command = [*LOOM, "recall", "harbour"]
    environ = {**os.environ, "TERM": "xterm"}
    environ.pop("NO_COLOR", None)

    def on_a_terminal(environ: dict[str, str]) -> bytes:
        master, slave = pty.openpty()
        subprocess.run(command, stdout=slave, stdin=subprocess.DEVNULL, env=environ, check=True)
        os.close(slave)
        shown = os.read(master, 65536)
        os.close(master)
        return shown

    assert b"\x1b[" in on_a_terminal(environ)
    assert b"\x1b[" not in on_a_terminal({**environ, "NO_COLOR": "1"})
    assert b"\x1b[" not in subprocess.run(command, env=environ, capture_output=True, check=True).stdout


def test_a_standing_instruction_is_listed_and_withdrawn(run: Run) -> None:
    run("remember", "Always answer in British English, please.", "--id", "said")
    (one,) = objects(run("instructions", "--jsonl")[1])
    assert "British English" in str(one["text"])
    assert one["sources"] == ["said"]
    assert "British English" in run("instructions")[1]
    assert "British English" in run("withdraw", one["id"])[1]
    assert run("instructions")[1] == "no instructions\n"
    assert ", until " in run("instructions", "--history")[1]


# --- chat ----------------------------------------------------------------------------------------------------


def test_chat_without_a_key_is_scripted_and_says_so(run: Run) -> None:
    run("remember", "The harbour opens at nine.")
    code, out, err = run("chat", given=b"When does the harbour open?\n\n")
    assert (code, err) == (0, "")
    assert "demonstration without a model" in out
    assert "The harbour opens at nine." in out
    assert json.loads(run("stats", "--json")[1])["counts"]["records"] == 3


def test_chat_shows_the_model_the_memory_and_remembers_the_turns(run: Run) -> None:
    run("remember", "The harbour opens at nine.")
    with ScriptedModel(["At nine o'clock.", Fail(400)]) as model:
        code, out, _ = run(
            "chat", "--model", f"{model.openai_url}#any", "--session-id", "evening", given=b"Harbour?\nAgain?\n"
        )
        assert "opens at nine" in model.requests[0].text
    assert code == 0
    assert "At nine o'clock." in out
    assert "tokens of prompt" in out
    assert "the model failed" in out
    turns = objects(run("list", "--session-id", "evening", "--oldest-first", "--jsonl")[1])
    assert [(turn["role"], turn["content"]) for turn in turns] == [
        ("user", "Harbour?"),
        ("assistant", "At nine o'clock."),
        ("user", "Again?"),
    ]


# --- completion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_knows_every_command_and_the_shell_accepts_it(run: Run, shell: str) -> None:
    code, out, _ = run("completion", shell)
    assert code == 0
    assert all(name in out for name in cli.COMMANDS)
    assert "session-id" in out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=out, text=True, check=True)


@pytest.mark.parametrize(
    ("line", "word"),
    [("loom rec", "recall"), ("loom recall --sess", "--session-id"), ("loom promote x --to l", "l1")],
)
def test_bash_completes(line: str, word: str) -> None:
    words = line.split()
    ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _loom; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "-c", f"{script('bash', cli.COMMANDS)}\n{ask}"], capture_output=True, text=True, check=True
    )
    assert word in done.stdout.split()
