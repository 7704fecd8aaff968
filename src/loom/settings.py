"""Profiles and settings: the budgets, rules and surroundings of an open memory.

Only this module and `loom.trust` read the environment (`LOOM_*`) and TOML files. An argument takes precedence over
the environment, the environment over the file, the file over the profile. Nothing is read at import.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypedDict

from loom.checks import checked_member, checked_number, checked_path
from loom.discovery import STORE_VARIABLE
from loom.errors import InvalidInput, SettingsConflict, UntrustedFolder
from loom.protocol import closest
from loom.trust import SETTINGS_FILE, TRUSTED_VARIABLE, config_folder, is_trusted, read_with_doubts

__all__ = [
    "EVICTION_WEIGHTS",
    "PROFILES",
    "SETTINGS",
    "SHARED_SETTINGS",
    "Admission",
    "Eviction",
    "EvictionWeights",
    "FractalConfig",
    "GrowthTrigger",
    "Profile",
    "SettingRule",
    "SettingValues",
    "Settings",
    "Watermark",
    "load_settings",
]


# --- profiles ------------------------------------------------------------------------------------------


class Admission(StrEnum):
    """The rules by which records enter L2."""

    IMPORTANCE = "importance"
    """Records whose importance is strictly above the threshold of the profile."""
    WRITE_AND_USE = "write_and_use"
    """Every record when it is written, and again when it is used."""
    FREQUENCY = "frequency"
    """Records that were used `l2_admission_uses` times, of any importance."""


class Eviction(StrEnum):
    """The rules by which records leave L2 when it is full."""

    LEAST_IMPORTANT = "least_important"
    """The lowest importance first; among equals, the record whose second-last use is oldest (LRU-2)."""
    WEIGHTED = "weighted"
    """The lowest weighted sum of recency (LRU-2), frequency and relevance to the present work first."""
    LEAST_USED = "least_used"
    """The fewest uses first; among equals, the record with the oldest use."""


@dataclass(frozen=True, slots=True)
class EvictionWeights:
    """The weights alpha, beta and gamma of the score for staying in L2; their sum is 1."""

    recency: float
    frequency: float
    relevance: float

    def __post_init__(self) -> None:
        weights = (self.recency, self.frequency, self.relevance)
        if min(weights) < 0 or not math.isclose(sum(weights), 1.0, abs_tol=1e-9):
            raise InvalidInput(f"eviction weights must be at least 0 and sum to 1, not {weights}")


EVICTION_WEIGHTS: Mapping[str, EvictionWeights] = MappingProxyType(
    {
        "default": EvictionWeights(0.5, 0.3, 0.2),
        "dialogue": EvictionWeights(0.7, 0.2, 0.1),
        "knowledge": EvictionWeights(0.3, 0.5, 0.2),
        "context": EvictionWeights(0.3, 0.2, 0.5),
        "without_vectors": EvictionWeights(0.7, 0.3, 0.0),
    }
)
"""Weights by kind of work; `without_vectors` applies if relevance is unknown."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Shares of a budget: eviction begins when usage reaches `high` and ends at or below `low`."""

    high: float
    low: float

    def __post_init__(self) -> None:
        if not 0.0 < self.low <= self.high <= 1.0:
            raise InvalidInput(f"a watermark needs 0 < low <= high <= 1, not high={self.high} low={self.low}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named set of budgets and rules. Budgets are tokens; a setting of the same name overrides one.

    A record returns to L2 when its hot score reaches `promotion_threshold`, but only after a number of other records,
    the share `promotion_rest` of those in L2, were written or moved since it left. L3 starts eviction at `l3_high` of
    its budget and moves the oldest `l3_oldest_share` of its summaries to L4. `prompt_watermark` controls the
    compaction of a built prompt, `dialogue_token_limit` that of the raw dialogue in the message list of a model.
    `minimal_mode` makes a notebook keep its compact memory alone. In every profile the log keeps all records.
    """

    name: str
    description: str
    prompt_token_budget: int
    l1_token_budget: int
    l2_token_budget: int
    l3_token_budget: int
    l4_token_budget: int
    l4_fact_limit: int
    admission: Admission
    l2_admission_threshold: float
    eviction: Eviction
    eviction_weights: EvictionWeights
    l2_admission_uses: int = 2
    promotion_threshold: float = 0.7
    promotion_rest: float = 0.1
    l2_watermark: Watermark = Watermark(0.85, 0.80)
    l3_high: float = 0.90
    l3_oldest_share: float = 0.20
    prompt_watermark: Watermark = Watermark(0.80, 0.60)
    dialogue_token_limit: int = 70_000
    minimal_mode: bool = False


_LOOM = Profile(
    name="loom",
    description="Four tiers led by importance: the default for agents that work on many things.",
    prompt_token_budget=8192,
    l1_token_budget=8_000,
    l2_token_budget=16_000,
    l3_token_budget=32_000,
    l4_token_budget=100_000,
    l4_fact_limit=150,
    admission=Admission.IMPORTANCE,
    l2_admission_threshold=0.6,
    eviction=Eviction.LEAST_IMPORTANT,
    eviction_weights=EVICTION_WEIGHTS["default"],
)

_LCR = Profile(
    name="lcr",
    description="A virtual memory led by use: a hard prompt window over a large working set and archive.",
    prompt_token_budget=8192,
    l1_token_budget=6 * 1024,  # the rest of the window beside 1K of system and 1K of functions
    l2_token_budget=128 * 1024,
    l3_token_budget=1024 * 1024,
    l4_token_budget=100_000,
    l4_fact_limit=150,
    admission=Admission.WRITE_AND_USE,
    l2_admission_threshold=0.0,
    eviction=Eviction.WEIGHTED,
    eviction_weights=EVICTION_WEIGHTS["default"],
    l2_watermark=Watermark(1.0, 0.98),  # used completely; eviction in small groups is cheap
)

_CHAT = replace(
    _LOOM,
    name="chat",
    description="Long conversations: more of the recent turns, ordinary messages admitted, recency decides.",
    l1_token_budget=16_000,
    # A plain message has importance 0.5 and would never exceed 0.6.
    l2_admission_threshold=0.4,
    eviction=Eviction.WEIGHTED,
    eviction_weights=EVICTION_WEIGHTS["dialogue"],
)

_TASK = replace(
    _LOOM,
    name="task",
    description="Autonomous work: a larger working set in which what matters to the present step stays.",
    l2_token_budget=32_000,
    l3_token_budget=64_000,
    eviction=Eviction.WEIGHTED,
    eviction_weights=EVICTION_WEIGHTS["context"],
)

_MINIMAL = replace(
    _LOOM,
    name="minimal",
    description="Small dialogue agents: small tiers and prompts; a notebook keeps its compact memory alone.",
    prompt_token_budget=4096,
    l1_token_budget=4_000,
    l2_token_budget=4_000,
    l3_token_budget=8_000,
    l4_token_budget=16_000,
    l4_fact_limit=50,
    minimal_mode=True,
)

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {profile.name: profile for profile in (_LOOM, _LCR, _CHAT, _TASK, _MINIMAL)}
)


# --- the rules of each setting -------------------------------------------------------------------------

_MIB = 1024 * 1024
_LARGEST = 2**53  # the largest whole number that both JSON readers and SQLite keep exactly
_LONGEST_TEXT = 255
_FILE_MODES = ("600", "640", "644", "660", "664", "666")


@dataclass(frozen=True, slots=True)
class SettingRule:
    """The accepted values of a setting. `kind` is int, float, bool or str; bounds are inclusive."""

    kind: type
    help: str
    minimum: float = 0
    maximum: float = _LARGEST
    choices: tuple[str, ...] = ()
    shared: bool = False

    @property
    def accepts(self) -> str:
        """The accepted values, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return f"a text of 1 to {_LONGEST_TEXT} characters without control characters"
        return f"a {'whole ' * (self.kind is int)}number from {self.minimum:g} to {self.maximum:.16g}"

    def allows(self, value: object) -> bool:
        if self.kind is bool or self.kind is str:
            if not isinstance(value, self.kind):
                return False
            return value in self.choices if self.choices else self.kind is bool or _is_clean(str(value))
        if isinstance(value, bool) or not isinstance(value, int if self.kind is int else int | float):
            return False
        return self.minimum <= value <= self.maximum  # never true of NaN

    def parse(self, text: str) -> object:
        """Convert a text from the environment to a value; return the text itself if it is not one."""
        if self.kind is bool:
            return _TRUTH.get(text.strip().lower(), text)
        if self.kind is str:
            return text
        try:
            return self.kind(text)
        except ValueError:
            return text


_TRUTH = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _is_clean(text: str) -> bool:
    # Undecodable bytes of the environment become surrogates, which no store accepts.
    return 0 < len(text) <= _LONGEST_TEXT and not any(
        letter < " " or letter == "\x7f" or "\ud800" <= letter <= "\udfff" for letter in text
    )


def _setting(default: str | float, meaning: str, *bounds: Any, **accepts: Any) -> Any:
    """Define a field of `Settings`: its default, which determines its type, and the other fields of its rule."""
    return field(default=default, metadata={"rule": SettingRule(type(default), meaning, *bounds, **accepts)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an open memory. `load_settings` makes them from all sources.

    The rules (`SETTINGS`), the `LOOM_*` variables, the keys of `loom.toml` and the arguments of `loom.open` are
    generated from the fields of this class.

    A `Settings` that is made directly has the given values: only `load_settings` applies the budgets of a profile.
    `sources` has the source of each value (argument, environment, file, profile, store or default);
    `dataclasses.replace` does not update it. `notes` name the file that was read, refused values with the reasons,
    and unknown variables of the environment.
    """

    namespace: str = _setting("default", "whose memory this is; nothing crosses from one to another")
    node_id: str = _setting("default", "the agent that remembers, within the namespace")
    profile: str = _setting(_LOOM.name, "the named set of budgets and rules", choices=tuple(PROFILES), shared=True)
    strategy: str = _setting(
        "importance_based",
        "the records that enter the working tier: by the profile's rule, or by the number of uses",
        choices=("importance_based", "simple"),
        shared=True,
    )
    prompt_token_budget: int = _setting(
        _LOOM.prompt_token_budget, "tokens of a built prompt where the caller names none", 1
    )
    l1_token_budget: int = _setting(_LOOM.l1_token_budget, "tokens of the recent tier", 1, shared=True)
    l2_token_budget: int = _setting(_LOOM.l2_token_budget, "tokens of the working tier", 1, shared=True)
    l3_token_budget: int = _setting(_LOOM.l3_token_budget, "tokens of the archive tier's summaries", 1, shared=True)
    l4_token_budget: int = _setting(_LOOM.l4_token_budget, "resident tokens of the knowledge tier", 1, shared=True)
    l4_fact_limit: int = _setting(_LOOM.l4_fact_limit, "resident facts of the knowledge tier", 1, shared=True)
    counter: str = _setting("cl100k_base", "the token counter behind every stored count", shared=True)
    durability: str = _setting(
        "commit",
        "what a write survives: a crash of the process (commit) or power loss (fsync)",
        choices=("commit", "fsync"),
    )
    busy_timeout_s: float = _setting(30.0, "seconds to wait for another writer", 0, 86_400)
    embedder: str = _setting("auto", "an embedder's name, auto (the installed one) or none", shared=True)
    index_tail_records: int = _setting(2_000, "records that may await indexing before a writer helps", 1)
    index_tail_bytes: int = _setting(4 * _MIB, "bytes of text that may await indexing before a writer helps", 1024)
    lease_s: float = _setting(10.0, "seconds after which a silent worker loses its lease", 0.1, 86_400)
    close_timeout_s: float = _setting(5.0, "seconds that close() waits for background work", 0, 86_400)
    derive: bool = _setting(True, "derive facts and summaries from what is remembered, in the background")
    tune: bool = _setting(False, "adjust the weights of eviction and the promotion threshold to measurements")
    predict_demand: bool = _setting(False, "make room in the working tier before it is needed, in the background")
    preload: bool = _setting(False, "return archived records before they are probably used, in the background")
    archive_after_days: float = _setting(
        30.0, "days after which the text of a record is compressed; 0 for never", 0, 36_500
    )
    read_only: bool = _setting(False, "open for reading only")
    file_mode: str = _setting(
        _FILE_MODES[0], "mode of new files, whatever the umask; existing ones keep theirs", choices=_FILE_MODES
    )
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    notes: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        sources = dict(self.sources)
        for name in SETTINGS:
            value = _checked(name, getattr(self, name), sources.get(name, "argument"))
            object.__setattr__(self, name, value)
            sources.setdefault(name, "default" if value == _DEFAULTS[name] else "argument")
        object.__setattr__(self, "sources", MappingProxyType(sources))

    @property
    def rules(self) -> Profile:
        """The profile under the strategy: admission, eviction, watermarks. Budgets are fields of the settings."""
        profile = PROFILES[self.profile]
        if self.strategy == "simple":
            return replace(profile, admission=Admission.FREQUENCY, eviction=Eviction.LEAST_USED)
        return profile

    def is_given(self, name: str) -> bool:
        """Whether this value was given, and does not come from the profile or the default."""
        return self.sources[name].split(" ", 1)[0] in ("argument", "environment", "file")

    def explain(self) -> str:
        """Return one line for each setting with its name, value and source; then the notes."""
        width = max(map(len, SETTINGS))
        told = [f"{name:<{width}}  {getattr(self, name)!r}  ({self.sources[name]})" for name in SETTINGS]
        return "\n".join([*told, *(f"# {note}" for note in self.notes)])

    def agree_with(self, stored: Mapping[str, Any], *, reconfigure: bool = False) -> Settings:
        """Return these settings with values that were not given taken from `stored`, the settings of a store.

        A given value that differs raises `SettingsConflict`, or replaces the stored one with `reconfigure`; a new
        profile brings its own budgets. Only names in `SHARED_SETTINGS` are compared.
        """
        theirs = {name: _checked(name, stored[name], "store") for name in SHARED_SETTINGS & stored.keys()}
        adopted: dict[str, Any] = {}
        conflicts: list[str] = []
        for name in sorted(theirs):
            own, other = getattr(self, name), theirs[name]
            if own == other or (name == "embedder" and (own == "none" or other in _WISHES)):
                continue
            if not self.is_given(name) or (name == "embedder" and own == "auto"):
                adopted[name] = other
            else:
                conflicts.append(f"{name} is {other!r} in the store and {own!r} by {self.sources[name]}")
        if conflicts and not reconfigure:
            raise SettingsConflict(
                f"{'; '.join(conflicts)}. Leave it out to use the store's, or open with reconfigure=True to "
                "change it for every process."
            )
        if self.is_given("profile") and self.profile != theirs.get("profile", self.profile):
            adopted = {name: value for name, value in adopted.items() if name not in _FROM_PROFILE}
        sources = {**self.sources, **dict.fromkeys(adopted, "store")}
        if "profile" in adopted:
            for name in _FROM_PROFILE - theirs.keys():
                if not self.is_given(name):
                    adopted[name] = getattr(PROFILES[adopted["profile"]], name)
                    sources[name] = f"profile {adopted['profile']}"
        return replace(self, **adopted, sources=sources)

    def for_store(self) -> dict[str, Any]:
        """Return the shared settings in the form that the file stores for a node."""
        return {name: getattr(self, name) for name in _STORED_PER_NODE}

    def follow(self, stored: Mapping[str, Any]) -> Settings:
        """Return these settings with the current values of the file; the same object if none differs."""
        changed = {
            name: stored[name] for name in _STORED_PER_NODE & stored.keys() if stored[name] != getattr(self, name)
        }
        return replace(self, **changed) if changed else self


_DEFAULTS = {one.name: one.default for one in fields(Settings)}

SETTINGS: Mapping[str, SettingRule] = MappingProxyType(
    {one.name: one.metadata["rule"] for one in fields(Settings) if one.metadata}
)
"""The rule of each setting, by name."""

SHARED_SETTINGS: frozenset[str] = frozenset(name for name, rule in SETTINGS.items() if rule.shared)
"""Settings on which all processes that open a node of a store must agree. The file holds them.

The embedders `auto` and `none` concern one process and agree with any other.
"""

# The file stores the embedder as its embedding space, which all nodes share, and the other settings for each node.
_STORED_PER_NODE = SHARED_SETTINGS - {"embedder"}
_FROM_PROFILE = frozenset(SETTINGS) & {one.name for one in fields(Profile)}
_WISHES = frozenset({"auto", "none"})


class SettingValues(TypedDict, total=False):
    """The settings as keyword arguments, for type checkers and editors; None means not given.

    Without `node_id`, which is a separate argument of memories, and `embedder`, which may also be a provider.
    """

    namespace: str | None
    profile: str | None
    strategy: str | None
    prompt_token_budget: int | None
    l1_token_budget: int | None
    l2_token_budget: int | None
    l3_token_budget: int | None
    l4_token_budget: int | None
    l4_fact_limit: int | None
    counter: str | None
    durability: str | None
    busy_timeout_s: float | None
    index_tail_records: int | None
    index_tail_bytes: int | None
    lease_s: float | None
    close_timeout_s: float | None
    derive: bool | None
    tune: bool | None
    predict_demand: bool | None
    preload: bool | None
    archive_after_days: float | None
    read_only: bool | None
    file_mode: str | None


# --- loading -------------------------------------------------------------------------------------------

_PREFIX = "LOOM_"
_CONFIG_VARIABLE = "LOOM_CONFIG"
_ADDRESSES = ("http://", "https://")
_warned: set[str] = set()


def load_settings(
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
    leave_out_refused: bool = False,
) -> Settings:
    """Load settings from arguments, environment, file and profile, in this order of precedence.

    `overrides` are the arguments; None means not given. `environ` is the environment of the process by default. The
    file is `file`, else the one that `LOOM_CONFIG` names (no file if it is empty), else `loom.toml` in the working
    folder, else `loom/config.toml` in `XDG_CONFIG_HOME` or `~/.config`. Its top-level keys are the names of the
    settings.

    A `loom.toml` in the working folder raises `UntrustedFolder` if it may belong to another user, or if it would send
    texts over the network, until the folder is trusted (`loom.trust`). With `leave_out_refused` it is ignored
    instead, and the notes say why. Named files are always used.

    Raises `InvalidInput` for an unknown name in the arguments or the file, for an invalid value in any source, even
    if it is overridden, and for a named file that cannot be read. An unknown `LOOM_*` variable is logged once.
    """
    environment = os.environ if environ is None else environ
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    notes: list[str] = []
    from_file, in_folder = _file_layer(environment, file, leave_out_refused, notes)
    found = {**from_file, **_from_environment(environment, notes), **_layer(given.items(), "argument")}
    if in_folder is not None and not is_trusted(".", in_folder, environment):
        _refuse_addresses(found, leave_out_refused, notes)
    profile = PROFILES[found["profile"][0] if "profile" in found else _LOOM.name]
    layers = {name: (getattr(profile, name), f"profile {profile.name}") for name in _FROM_PROFILE} | found
    sources = dict.fromkeys(SETTINGS, "default") | {name: source for name, (_, source) in layers.items()}
    return Settings(**{name: value for name, (value, _) in layers.items()}, sources=sources, notes=tuple(notes))


_TRUST_IT = (
    "Read the file. If you trust it, run `loom trust` in that folder once, or name the file: config=, "
    f"{_CONFIG_VARIABLE}. To continue without any file, set {_CONFIG_VARIABLE} to an empty value."
)


def _file_layer(
    environ: Mapping[str, str], file: str | os.PathLike[str] | None, leave_out: bool, notes: list[str]
) -> tuple[dict[str, tuple[Any, str]], bytes | None]:
    """Read the settings file: the named one, that of the working folder if it may be used, or the user's own.

    For the file of the working folder, its content is returned too.
    """
    named = environ.get(_CONFIG_VARIABLE) if file is None else file if file == "" else checked_path(file, "config")
    if named is not None:
        return (_from_file(named, _content(named)[0], notes) if named else {}), None
    if os.path.isfile(SETTINGS_FILE):
        content, doubts = _content(SETTINGS_FILE, environ)
        if not doubts or is_trusted(".", content, environ):
            return _from_file(SETTINGS_FILE, content, notes), content
        problem = f"{os.path.abspath(SETTINGS_FILE)} was not read: it {doubts}"
        if not leave_out:
            raise UntrustedFolder(f"{problem}. {_TRUST_IT}")
        notes.append(f"refused: {problem}")
    folder = config_folder(environ)
    own = os.path.join(folder, "config.toml") if folder else ""
    return (_from_file(own, _content(own)[0], notes) if os.path.isfile(own) else {}), None


def _refuse_addresses(found: dict[str, tuple[Any, str]], leave_out: bool, notes: list[str]) -> None:
    """Remove settings that send texts over the network from the file of an untrusted folder."""
    there = {
        name: value
        for name, (value, source) in found.items()
        if source == f"file {SETTINGS_FILE}" and isinstance(value, str) and value.lower().startswith(_ADDRESSES)
    }
    for name, value in there.items():
        problem = f"{name} = {value!r} in {os.path.abspath(SETTINGS_FILE)} would send texts over the network"
        if not leave_out:
            raise UntrustedFolder(f"{problem}, and the folder is not trusted. {_TRUST_IT}")
        notes.append(f"refused: {problem}")
        del found[name]


def _content(path: str, environ: Mapping[str, str] | None = None) -> tuple[bytes, str]:
    try:
        return read_with_doubts(path, environ)
    except OSError as error:
        raise InvalidInput(f"the settings file {path} cannot be read: {error.strerror}") from error


def _from_file(path: str, content: bytes, notes: list[str]) -> dict[str, tuple[Any, str]]:
    import tomllib

    try:
        held = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deeply
        raise InvalidInput(f"the settings file {path} is not valid TOML: {error}") from error
    notes.append(f"read: {os.path.abspath(path)}")
    return _layer(held.items(), f"file {path}")


def _from_environment(environ: Mapping[str, str], notes: list[str]) -> dict[str, tuple[Any, str]]:
    layer: dict[str, tuple[Any, str]] = {}
    for variable in sorted(environ):
        if not variable.startswith(_PREFIX) or variable in (_CONFIG_VARIABLE, TRUSTED_VARIABLE, STORE_VARIABLE):
            continue
        name = variable.removeprefix(_PREFIX).lower()
        rule = SETTINGS.get(name)
        if rule is None:
            notes.append(_unknown_variable(variable, name))
            continue
        source = f"environment {variable}"
        layer[name] = (_checked(name, rule.parse(environ[variable]), source), source)
    return layer


def _unknown_variable(variable: str, name: str) -> str:
    """Log once that a variable names no setting: other programs may use the same prefix."""
    hint = closest(name.upper(), map(str.upper, SETTINGS), _PREFIX)
    note = f"the variable {variable!a} names no setting of loom and is ignored; {hint}".rstrip("; ")
    if variable not in _warned:
        import logging

        _warned.add(variable)
        logging.getLogger("loom.settings").warning("%s", note)
    return note


def _layer(items: Iterable[tuple[str, object]], source: str) -> dict[str, tuple[Any, str]]:
    return {name: (_checked(name, value, source), source) for name, value in items}


def _checked(name: str, value: object, source: str) -> Any:
    """Convert `value` to the type of the setting, or raise `InvalidInput` with all that is needed to correct it."""
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."
    rule = SETTINGS.get(name)
    if rule is None:
        raise InvalidInput(
            f"unknown setting {name!r} (value {shown}, from {source}); {closest(name, SETTINGS)}The settings are "
            f"{', '.join(SETTINGS)}."
        )
    if not rule.allows(value):
        raise InvalidInput(f"setting {name!r} must be {rule.accepts}, not {shown} (from {source})")
    if rule.kind is str:
        return str.__str__(value)  # a member of an enum becomes plain text
    return rule.kind(value)


# --- growth --------------------------------------------------------------------------------------------


class GrowthTrigger(StrEnum):
    """The modes in which an agent divides its work among children."""

    NEVER = "never"
    ALWAYS = "always"
    MANUAL = "manual"
    """Only when the caller asks for it."""
    COMPLEXITY = "complexity"
    """If the estimated complexity of the task reaches the threshold."""


@dataclass(frozen=True, slots=True)
class FractalConfig:
    """The rule by which an agent grows children. `complexity_threshold` (0..1) applies to `COMPLEXITY` only."""

    growth_trigger: GrowthTrigger = GrowthTrigger.COMPLEXITY
    complexity_threshold: float = 0.7

    def __post_init__(self) -> None:
        trigger = checked_member(GrowthTrigger, self.growth_trigger, "growth_trigger")
        object.__setattr__(self, "growth_trigger", trigger)
        checked_number(self.complexity_threshold, "complexity_threshold", 0.0, 1.0)
