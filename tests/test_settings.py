"""The sources of settings, their precedence, and refused values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.errors import InvalidInput, SettingsConflict
from loom.settings import (
    EVICTION_WEIGHTS,
    PROFILES,
    SETTINGS,
    SHARED_SETTINGS,
    Admission,
    Eviction,
    EvictionWeights,
    FractalConfig,
    GrowthTrigger,
    Settings,
    Watermark,
    load_settings,
)

NO_FILE = {"LOOM_CONFIG": ""}


@pytest.fixture(autouse=True)
def _empty_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# --- precedence ---

ARGUMENT = {"l1_token_budget": 1}
ENVIRONMENT = {"LOOM_L1_TOKEN_BUDGET": "2"}
FILE = "l1_token_budget = 3\n"


@pytest.mark.parametrize(
    ("argument", "environment", "file", "value", "source"),
    [
        (True, True, True, 1, "argument"),
        (True, True, False, 1, "argument"),
        (True, False, True, 1, "argument"),
        (True, False, False, 1, "argument"),
        (False, True, True, 2, "environment LOOM_L1_TOKEN_BUDGET"),
        (False, True, False, 2, "environment LOOM_L1_TOKEN_BUDGET"),
        (False, False, True, 3, "file loom.toml"),
        (False, False, False, 6144, "profile lcr"),
    ],
)
def test_argument_beats_environment_beats_file_beats_profile(
    argument: bool, environment: bool, file: bool, value: int, source: str
) -> None:
    if file:
        written(Path("loom.toml"), FILE)
    arguments: dict[str, object] = {"profile": "lcr", **(ARGUMENT if argument else {"l1_token_budget": None})}
    settings = load_settings(arguments, environ=ENVIRONMENT if environment else {})
    assert settings.l1_token_budget == value
    assert settings.sources["l1_token_budget"] == source


@pytest.mark.parametrize(
    ("arguments", "environ", "file", "profile"),
    [
        ({"profile": "chat"}, {"LOOM_PROFILE": "task"}, 'profile = "lcr"', "chat"),
        ({}, {"LOOM_PROFILE": "task"}, 'profile = "lcr"', "task"),
        ({}, {}, 'profile = "lcr"', "lcr"),
        ({}, {}, "", "loom"),
    ],
)
def test_the_profile_is_chosen_by_the_same_precedence_and_brings_its_budgets(
    arguments: dict[str, object], environ: dict[str, str], file: str, profile: str
) -> None:
    written(Path("loom.toml"), file)
    settings = load_settings(arguments, environ=environ)
    assert settings.profile == profile
    assert settings.rules is PROFILES[profile]
    assert settings.l2_token_budget == PROFILES[profile].l2_token_budget


def test_a_budget_of_a_lower_source_still_beats_the_profile_of_a_higher_one() -> None:
    settings = load_settings({"profile": "lcr"}, environ=NO_FILE | {"LOOM_L2_TOKEN_BUDGET": "5"})
    assert (settings.l2_token_budget, settings.l3_token_budget) == (5, 1024 * 1024)


def test_without_any_source_the_defaults_are_those_of_a_bare_settings() -> None:
    assert load_settings(environ={}) == Settings()


def test_the_process_environment_is_read_unless_another_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_NODE_ID", "agent-7")
    assert load_settings().node_id == "agent-7"
    assert load_settings(environ={}).node_id == "default"


# --- which file ---


def test_the_settings_file_is_the_first_that_is_there(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environ = {"HOME": str(home)}
    assert load_settings(environ=environ).node_id == "default"
    written(home / ".config/loom/config.toml", 'node_id = "home"')
    assert load_settings(environ=environ).node_id == "home"
    environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert load_settings(environ=environ).node_id == "default"
    written(tmp_path / "xdg/loom/config.toml", 'node_id = "xdg"')
    assert load_settings(environ=environ).node_id == "xdg"
    written(Path("loom.toml"), 'node_id = "folder"')
    assert load_settings(environ=environ).node_id == "folder"
    environ["LOOM_CONFIG"] = str(written(tmp_path / "named.toml", 'node_id = "named"'))
    assert load_settings(environ=environ).node_id == "named"
    given = written(tmp_path / "given.toml", 'node_id = "given"')
    assert load_settings(environ=environ, file=given).node_id == "given"


def test_a_relative_xdg_folder_is_ignored() -> None:
    written(Path("here/loom/config.toml"), 'node_id = "xdg"')
    assert load_settings(environ={"XDG_CONFIG_HOME": "here"}).node_id == "default"


def test_an_empty_loom_config_means_no_file() -> None:
    written(Path("loom.toml"), 'node_id = "folder"')
    assert load_settings(environ=NO_FILE).node_id == "default"


def test_a_file_that_was_named_and_is_missing_is_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(InvalidInput, match=r"missing\.toml cannot be read: No such file"):
        load_settings(environ={}, file=missing)
    with pytest.raises(InvalidInput, match=r"missing\.toml cannot be read: No such file"):
        load_settings(environ={"LOOM_CONFIG": str(missing)})


@pytest.mark.parametrize(
    "content", [b"node_id = ", b"node_id = '\xff'", b"\x00", b"node_id = " + b"[" * 50_000], ids=range(4)
)
def test_a_file_that_is_not_toml_is_an_error_that_names_it(content: bytes) -> None:
    Path("loom.toml").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"loom\.toml is not valid TOML"):
        load_settings(environ={})


# --- what is refused ---


def test_an_unknown_name_is_refused_in_arguments_and_file_with_a_suggestion() -> None:
    path = written(Path("other.toml"), "l1_token_bugdet = 5")
    for arguments, environ, file, source in (
        ({"l1_token_bugdet": 5}, {}, None, "argument"),
        ({}, {}, path, "file other.toml"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            load_settings(arguments, environ=environ, file=file)
        message = str(refusal.value)
        assert "unknown setting 'l1_token_bugdet'" in message
        assert "5" in message
        assert f"from {source}" in message
        assert "did you mean 'l1_token_budget'?" in message
        assert all(name in message for name in SETTINGS)


def test_an_unknown_variable_is_named_once_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    environ = NO_FILE | {"LOOM_L1_TOKEN_BUGDET": "5", "LOOM_KEEPER_HOME": "/x", "LOOM_LEASE_S": "3"}
    settings = [load_settings(environ=environ) for _ in range(3)]
    assert settings[0].lease_s == 3.0
    assert settings[0].l1_token_budget == Settings().l1_token_budget
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "'LOOM_KEEPER_HOME'" in told[0]
    assert "'LOOM_L1_TOKEN_BUGDET'" in told[1]
    assert "did you mean 'LOOM_L1_TOKEN_BUDGET'?" in told[1]
    assert "did you mean 'LOOM_L1_TOKEN_BUDGET'?" in settings[2].explain()


def test_a_memory_opens_whatever_other_programs_keep_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_SOMETHING_ELSE", "\udcff")
    with loom.open(embedder="none") as memory:
        assert memory.remember("x")


def test_a_wrong_value_is_refused_in_every_source_even_where_it_would_be_overridden() -> None:
    path = written(Path("other.toml"), 'l1_token_budget = "lots"')
    for arguments, environ, file, source in (
        ({"l1_token_budget": "lots"}, {}, None, "argument"),
        ({"l1_token_budget": 5}, {"LOOM_L1_TOKEN_BUDGET": "lots"}, None, "environment LOOM_L1_TOKEN_BUDGET"),
        ({"l1_token_budget": 5}, {"LOOM_L1_TOKEN_BUDGET": "6"}, path, "file other.toml"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            load_settings(arguments, environ=environ, file=file)
        assert (
            str(refusal.value) == "setting 'l1_token_budget' must be a whole number from 1 to "
            f"9007199254740992, not 'lots' (from {source})"
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("l1_token_budget", 0),
        ("l1_token_budget", -1),
        ("l1_token_budget", True),
        ("l1_token_budget", 8000.0),
        ("l1_token_budget", 2**60),
        ("busy_timeout_s", float("nan")),
        ("busy_timeout_s", float("inf")),
        ("busy_timeout_s", -0.1),
        ("busy_timeout_s", False),
        ("lease_s", 0),
        ("read_only", 1),
        ("read_only", "true"),
        ("durability", "maybe"),
        ("profile", "LOOM"),
        ("namespace", ""),
        ("namespace", "a\nb"),
        ("namespace", "a\x00"),
        ("namespace", "\ud800"),
        ("namespace", "x" * 256),
        ("node_id", 5),
        ("counter", ["cl100k_base"]),
    ],
)
def test_an_unacceptable_value_is_refused_as_argument_and_by_settings_itself(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=name):
        load_settings({name: value}, environ=NO_FILE)
    with pytest.raises(InvalidInput, match=name):
        Settings(**{name: value})


def test_a_long_value_is_shown_short() -> None:
    with pytest.raises(InvalidInput) as refusal:
        load_settings({"namespace": "x" * 10_000}, environ=NO_FILE)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("Yes", True), ("on", True), ("0", False), ("FALSE", False), ("off", False)],
)
def test_the_environment_says_yes_and_no_in_the_usual_words(text: str, value: bool) -> None:
    assert load_settings(environ=NO_FILE | {"LOOM_READ_ONLY": text}).read_only is value


@pytest.mark.parametrize("variable", ["LOOM_READ_ONLY", "LOOM_LEASE_S", "LOOM_L1_TOKEN_BUDGET", "LOOM_EMBEDDER"])
def test_an_empty_variable_is_refused_rather_than_guessed_at(variable: str) -> None:
    with pytest.raises(InvalidInput, match=variable):
        load_settings(environ=NO_FILE | {variable: ""})


def test_variables_of_others_are_left_alone() -> None:
    environ = NO_FILE | {"LOOMING_NODE_ID": "x", "loom_node_id": "y", "NODE_ID": "z"}
    assert load_settings(environ=environ) == Settings()


def test_whole_numbers_serve_as_seconds() -> None:
    written(Path("loom.toml"), "lease_s = 3")
    settings = load_settings({"busy_timeout_s": 2}, environ={"LOOM_CLOSE_TIMEOUT_S": "1"})
    assert (settings.busy_timeout_s, settings.close_timeout_s, settings.lease_s) == (2.0, 1.0, 3.0)
    assert type(settings.lease_s) is float


# --- the record ---


def test_settings_and_their_rules_have_the_same_names() -> None:
    assert [one.name for one in fields(Settings) if one.name not in ("sources", "notes")] == list(SETTINGS)
    assert set(SETTINGS) >= SHARED_SETTINGS


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().l1_token_budget = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        Settings().sources["l1_token_budget"] = "argument"  # type: ignore[index]


def test_explain_tells_value_and_source_of_every_setting() -> None:
    lines = load_settings({"profile": "lcr"}, environ={"LOOM_LEASE_S": "3"}).explain().splitlines()
    assert [line.split()[0] for line in lines] == list(SETTINGS)
    told = {line.split()[0]: line for line in lines}
    assert told["profile"].endswith("'lcr'  (argument)")
    assert told["lease_s"].endswith("3.0  (environment LOOM_LEASE_S)")
    assert told["l2_token_budget"].endswith("131072  (profile lcr)")
    assert told["counter"].endswith("'cl100k_base'  (default)")


def test_only_what_somebody_asked_for_counts_as_given() -> None:
    written(Path("loom.toml"), "l2_token_budget = 9")
    settings = load_settings({"l1_token_budget": 8000}, environ={"LOOM_COUNTER": "o200k_base"})
    given = {name for name in SETTINGS if settings.is_given(name)}
    assert given == {"l1_token_budget", "l2_token_budget", "counter"}
    assert {name for name in SETTINGS if Settings(l3_token_budget=7).is_given(name)} == {"l3_token_budget"}


# --- agreement with a store ---

STORED = {
    "profile": "lcr",
    "l1_token_budget": 111,
    "l2_token_budget": 222,
    "l3_token_budget": 333,
    "l4_token_budget": 444,
    "l4_fact_limit": 55,
    "counter": "o200k_base",
    "embedder": "small",
}


def test_what_was_not_given_comes_from_the_store() -> None:
    settings = load_settings({"namespace": "n"}, environ=NO_FILE).agree_with(STORED)
    assert {name: getattr(settings, name) for name in STORED} == STORED
    assert {settings.sources[name] for name in STORED} == {"store"}
    assert settings.namespace == "n"
    assert settings.prompt_token_budget == PROFILES["lcr"].prompt_token_budget
    assert settings.sources["prompt_token_budget"] == "profile lcr"


def test_giving_another_value_than_the_stores_is_a_conflict_that_names_both() -> None:
    settings = load_settings({"l1_token_budget": 8000}, environ=NO_FILE | {"LOOM_COUNTER": "cl100k_base"})
    with pytest.raises(SettingsConflict) as conflict:
        settings.agree_with(STORED)
    assert "l1_token_budget is 111 in the store and 8000 by argument" in str(conflict.value)
    assert "counter is 'o200k_base' in the store and 'cl100k_base' by environment LOOM_COUNTER" in str(conflict.value)
    assert "reconfigure=True" in str(conflict.value)


def test_giving_the_stores_own_values_is_no_conflict() -> None:
    assert load_settings(STORED, environ=NO_FILE).agree_with(STORED) == load_settings(STORED, environ=NO_FILE)


def test_reconfigure_lets_the_given_values_win_and_keeps_the_stores_others() -> None:
    settings = load_settings({"l1_token_budget": 8000}, environ=NO_FILE).agree_with(STORED, reconfigure=True)
    assert (settings.l1_token_budget, settings.l2_token_budget, settings.profile) == (8000, 222, "lcr")


def test_reconfigure_to_another_profile_brings_that_profiles_budgets() -> None:
    settings = load_settings({"profile": "chat", "l3_token_budget": 7}, environ=NO_FILE)
    agreed = settings.agree_with(STORED, reconfigure=True)
    assert (agreed.profile, agreed.l1_token_budget, agreed.l3_token_budget) == ("chat", 16_000, 7)
    assert agreed.counter == "o200k_base"


@pytest.mark.parametrize(
    ("own", "stored", "agreed"),
    [
        ("auto", "small", "small"),
        ("none", "small", "none"),
        ("small", "none", "small"),
        ("small", "auto", "small"),
        ("small", "small", "small"),
    ],
)
def test_the_wish_for_any_or_no_embedder_agrees_with_every_store(own: str, stored: str, agreed: str) -> None:
    settings = load_settings({"embedder": own}, environ=NO_FILE).agree_with({"embedder": stored})
    assert settings.embedder == agreed


def test_another_embedder_than_the_stores_is_a_conflict() -> None:
    with pytest.raises(SettingsConflict, match="embedder is 'small' in the store and 'large' by argument"):
        load_settings({"embedder": "large"}, environ=NO_FILE).agree_with({"embedder": "small"})


def test_settings_of_one_process_are_not_taken_from_the_store() -> None:
    settings = load_settings(environ=NO_FILE).agree_with({"lease_s": 99, "unheard_of": 1})
    assert settings == Settings()


def test_a_store_holds_every_shared_setting_but_the_embedder_which_it_holds_as_a_space() -> None:
    held = load_settings(STORED, environ=NO_FILE).for_store()
    assert held.keys() == SHARED_SETTINGS - {"embedder"}
    assert {name: held[name] for name in STORED if name != "embedder"} == {
        name: value for name, value in STORED.items() if name != "embedder"
    }


def test_settings_follow_what_another_process_has_stored() -> None:
    settings = load_settings({"lease_s": 3.0}, environ=NO_FILE)
    followed = settings.follow({"l2_token_budget": 222, "lease_s": 99, "embedder": "small"})
    assert (followed.l2_token_budget, followed.lease_s, followed.embedder) == (222, 3.0, "auto")
    assert settings.follow(settings.for_store()) is settings


# --- profiles ---


def test_the_profile_loom_has_the_numbers_of_the_design() -> None:
    loom = PROFILES["loom"]
    budgets = (loom.l1_token_budget, loom.l2_token_budget, loom.l3_token_budget, loom.l4_token_budget)
    assert budgets == (8_000, 16_000, 32_000, 100_000)
    assert (loom.l4_fact_limit, loom.l2_admission_threshold) == (150, 0.6)
    assert (loom.admission, loom.eviction) == (Admission.IMPORTANCE, Eviction.LEAST_IMPORTANT)
    assert loom.l2_watermark == Watermark(high=0.85, low=0.80)
    assert (loom.l3_high, loom.l3_oldest_share) == (0.90, 0.20)
    assert loom.prompt_watermark == Watermark(high=0.80, low=0.60)
    assert loom.dialogue_token_limit == 70_000


def test_the_profile_lcr_has_the_numbers_of_the_design() -> None:
    lcr = PROFILES["lcr"]
    assert lcr.prompt_token_budget == 8192
    assert lcr.l1_token_budget == 8192 - 1024 - 1024
    assert (lcr.l2_token_budget, lcr.l3_token_budget) == (128 * 1024, 1024 * 1024)
    assert (lcr.admission, lcr.eviction) == (Admission.WRITE_AND_USE, Eviction.WEIGHTED)
    assert lcr.eviction_weights == EvictionWeights(0.5, 0.3, 0.2)


def test_every_profile_differs_from_every_other_in_what_it_does() -> None:
    seen = [
        tuple(getattr(profile, one.name) for one in fields(profile) if one.name not in ("name", "description"))
        for profile in PROFILES.values()
    ]
    assert len(set(seen)) == len(PROFILES) == 5


def test_every_profile_is_described_in_one_sentence_and_gives_valid_settings() -> None:
    for name, profile in PROFILES.items():
        assert profile.name == name
        assert profile.description.count(".") == 1
        assert profile.description.endswith(".")
        assert load_settings({"profile": name}, environ=NO_FILE).profile == name


def test_eviction_weights_are_those_of_the_design() -> None:
    assert {name: (one.recency, one.frequency, one.relevance) for name, one in EVICTION_WEIGHTS.items()} == {
        "default": (0.5, 0.3, 0.2),
        "dialogue": (0.7, 0.2, 0.1),
        "knowledge": (0.3, 0.5, 0.2),
        "context": (0.3, 0.2, 0.5),
        "without_vectors": (0.7, 0.3, 0.0),
    }


@pytest.mark.parametrize("weights", [(0.5, 0.5, 0.5), (1.2, -0.2, 0.0), (float("nan"), 0.5, 0.5)])
def test_weights_that_do_not_sum_to_one_are_refused(weights: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidInput, match="sum to 1"):
        EvictionWeights(*weights)


@pytest.mark.parametrize("marks", [(0.5, 0.6), (1.1, 0.5), (0.5, 0.0)])
def test_a_watermark_that_cannot_work_is_refused(marks: tuple[float, float]) -> None:
    with pytest.raises(InvalidInput, match="0 < low <= high <= 1"):
        Watermark(*marks)


# --- growth ---


def test_growth_is_by_complexity_at_seven_tenths_unless_said_otherwise() -> None:
    assert FractalConfig() == FractalConfig(GrowthTrigger.COMPLEXITY, 0.7)
    assert FractalConfig("never").growth_trigger is GrowthTrigger.NEVER  # type: ignore[arg-type]
    assert set(GrowthTrigger) == {"never", "always", "manual", "complexity"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"growth_trigger": "sometimes"}, "one of never, always, manual, complexity"),
        ({"complexity_threshold": 1.5}, "from 0 to 1, not 1.5"),
        ({"complexity_threshold": "high"}, "from 0 to 1, not 'high'"),
    ],
)
def test_a_growth_that_does_not_exist_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        FractalConfig(**arguments)
