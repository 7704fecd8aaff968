"""The effects that a working folder of another user can and cannot have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import loom
from loom.cli import main
from loom.errors import InvalidInput, UntrustedFolder
from loom.settings import load_settings
from loom.trust import trust_folder, withdraw_trust

AWAY = 'embedder = "http://collector.example/v1#m"\n'

Give = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, and a home beside it."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir(mode=0o755)
    home.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    for variable in ("XDG_CONFIG_HOME", "LOOM_CONFIG", "LOOM_TRUSTED_FOLDERS", "SUDO_UID"):
        monkeypatch.delenv(variable, raising=False)
    return work


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Make a file belong to another user: by chown if permitted, else by pretending to be another user from now
    on."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, 54321, -1)
        else:
            other = os.geteuid() + 1
            monkeypatch.setattr(os, "geteuid", lambda: other)

    return give


def put(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


# --- settings that reach the network ---


def test_an_address_in_a_found_file_is_refused_until_the_folder_is_trusted(folder: Path) -> None:
    put(folder / "loom.toml", AWAY)
    with pytest.raises(UntrustedFolder, match="collector") as refusal:
        loom.open()
    assert "loom trust" in str(refusal.value)
    assert str(folder / "loom.toml") in str(refusal.value)
    assert loom.trust_folder() == os.path.realpath(folder)
    assert load_settings().embedder == "http://collector.example/v1#m"
    assert withdraw_trust()
    assert not withdraw_trust()
    with pytest.raises(UntrustedFolder):
        load_settings()


@pytest.mark.parametrize("address", ["HTTP://x.example/v1#m", "https://127.0.0.1/v1#m"])
def test_any_address_is_refused(folder: Path, address: str) -> None:
    put(folder / "loom.toml", f'embedder = "{address}"')
    with pytest.raises(UntrustedFolder):
        load_settings()


def test_a_file_that_changed_after_it_was_trusted_is_refused_again(folder: Path) -> None:
    file = put(folder / "loom.toml", AWAY)
    trust_folder(folder)
    put(file, AWAY.replace("collector", "other"))
    with pytest.raises(UntrustedFolder, match="other"):
        load_settings()


def test_a_file_of_more_than_a_megabyte_is_refused(folder: Path) -> None:
    (folder / "loom.toml").write_text("# " + "x" * 1024 * 1024 + "\n")
    with pytest.raises(InvalidInput, match="is larger than 1,048,576 bytes"):
        load_settings(environ={})


def test_a_file_that_appeared_after_its_folder_was_trusted_is_refused(folder: Path) -> None:
    trust_folder(folder)
    put(folder / "loom.toml", AWAY)
    with pytest.raises(UntrustedFolder):
        load_settings()


def test_an_address_that_an_argument_or_the_environment_overrides_is_no_matter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder / "loom.toml", AWAY + 'profile = "chat"')
    assert load_settings({"embedder": "none"}).profile == "chat"
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    assert load_settings().profile == "chat"


def test_a_file_that_the_user_named_is_used_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(folder / "loom.toml", AWAY)
    assert load_settings(file="loom.toml").embedder.startswith("http:")
    monkeypatch.setenv("LOOM_CONFIG", str(file))
    assert load_settings().embedder.startswith("http:")
    monkeypatch.setenv("LOOM_CONFIG", "")
    assert load_settings().embedder == "auto"


def test_the_users_own_file_may_name_an_address(folder: Path) -> None:
    own = folder.parent / "home" / ".config" / "loom" / "config.toml"
    own.parent.mkdir(parents=True)
    put(own, AWAY)
    assert load_settings().embedder.startswith("http:")


# --- files of somebody else ---


def test_a_file_of_another_owner_is_refused_until_the_folder_is_trusted(folder: Path, give_away: Give) -> None:
    give_away(put(folder / "loom.toml", 'profile = "chat"'))
    with pytest.raises(UntrustedFolder, match="another user"):
        load_settings()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_owner_is_read_once_its_folder_is_trusted(folder: Path, give_away: Give) -> None:
    give_away(put(folder / "loom.toml", 'profile = "chat"'))
    trust_folder(folder)
    assert load_settings().profile == "chat"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
def test_a_link_of_another_owner_is_refused(folder: Path) -> None:
    target = put(folder.parent / "mine.toml", 'profile = "chat"')
    link = folder / "loom.toml"
    link.symlink_to(target)
    assert load_settings().profile == "chat"
    os.lchown(link, 54321, -1)
    with pytest.raises(UntrustedFolder):
        load_settings()


def test_files_that_everybody_can_write_or_replace_are_refused(folder: Path) -> None:
    file = put(folder / "loom.toml", 'profile = "chat"')
    assert load_settings().profile == "chat"
    file.chmod(0o666)
    with pytest.raises(UntrustedFolder, match="written by everybody"):
        load_settings()
    file.chmod(0o644)
    folder.chmod(0o777)
    with pytest.raises(UntrustedFolder, match="everybody can write"):
        load_settings()


def test_a_memory_of_another_owner_is_refused_until_its_folder_is_trusted(folder: Path, give_away: Give) -> None:
    with loom.open("agent.loom", embedder="none", derive=False) as memory:
        memory.remember("planted", id="one")
    give_away(folder / "agent.loom")
    for read_only in (False, True):
        with pytest.raises(UntrustedFolder, match="another user"):
            loom.open("agent.loom", embedder="none", derive=False, read_only=read_only)
    assert main(["stats", "--store", "agent.loom"]) == 2
    if os.geteuid() == 0:
        trust_folder(folder)
        with loom.open(folder / "agent.loom", embedder="none", derive=False) as memory:
            assert memory.get("one") is not None


def test_the_environment_can_name_trusted_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / "loom.toml", AWAY)
    monkeypatch.setenv("LOOM_TRUSTED_FOLDERS", f"/elsewhere{os.pathsep}{folder}")
    assert load_settings().embedder.startswith("http:")
    monkeypatch.setenv("LOOM_TRUSTED_FOLDERS", ".")  # means nothing: it would be every folder
    with pytest.raises(UntrustedFolder):
        load_settings()


# --- the list ---


def test_the_list_is_for_the_users_eyes_only(folder: Path) -> None:
    trust_folder(folder)
    kept = folder.parent / "home" / ".config" / "loom"
    assert [path.name for path in kept.iterdir()] == ["trusted.json"]
    assert (kept / "trusted.json").stat().st_mode & 0o777 == 0o600
    assert kept.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"folders": 3}', '{"folders": {"/": 3}}', "[" * 100_000, "\0"])
def test_a_damaged_list_trusts_nothing_and_can_be_written_again(folder: Path, damage: str) -> None:
    put(folder / "loom.toml", AWAY)
    trust_folder(folder)
    put(folder.parent / "home" / ".config" / "loom" / "trusted.json", damage)
    with pytest.raises(UntrustedFolder):
        load_settings()
    trust_folder(folder)
    assert load_settings().embedder.startswith("http:")


def test_a_list_that_others_can_write_trusts_nothing(folder: Path) -> None:
    put(folder / "loom.toml", AWAY)
    trust_folder(folder)
    (folder.parent / "home" / ".config" / "loom" / "trusted.json").chmod(0o666)
    with pytest.raises(UntrustedFolder):
        load_settings()


def test_only_a_folder_can_be_trusted_and_only_with_a_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="not a folder"):
        trust_folder(put(folder / "loom.toml", ""))
    monkeypatch.delenv("HOME")
    with pytest.raises(InvalidInput, match="LOOM_TRUSTED_FOLDERS"):
        trust_folder(folder)


# --- telling ---


def test_explain_names_what_was_read_and_what_was_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], give_away: Give
) -> None:
    file = put(folder / "loom.toml", 'profile = "chat"\n' + AWAY)
    told = load_settings(leave_out_refused=True).explain()
    assert f"# read: {file}" in told
    assert "# refused: embedder = 'http://collector.example/v1#m'" in told
    assert "embedder             'auto'  (default)" in told
    assert main(["settings"]) == 0
    assert "# refused: embedder" in capsys.readouterr().out
    give_away(file)
    told = load_settings(leave_out_refused=True).explain()
    assert f"# refused: {file} was not read: it belongs to another user" in told
    assert "'chat'" not in told


def test_the_command_shows_what_it_trusts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder / "loom.toml", AWAY)
    assert main(["trust"]) == 0
    assert "collector.example" in capsys.readouterr().out
    assert load_settings().embedder.startswith("http:")
    assert main(["trust", str(folder), "--withdraw"]) == 0
    with pytest.raises(UntrustedFolder):
        load_settings()
    assert main(["trust", str(folder / "missing")]) == 2
