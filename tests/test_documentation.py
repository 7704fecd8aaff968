"""Documents that cannot lie: their code runs, their names exist, their links lead somewhere."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import loom
from loom import cli
from loom.cli.manual import manual
from loom.context.strategies import EventWeights
from loom.fractal.memory import MemoryEntry, MemoryScope
from loom.memory.compaction import CompactionConfig
from loom.memory.compression import L4Compressor
from loom.settings import EVICTION_WEIGHTS, PROFILES, SETTINGS, SHARED_SETTINGS, Settings, load_settings
from loom.testing import Call, Request, ScriptedModel
from loom.text.statement_kinds import WEIGHTS, StatementKind
from loom.tiers.migration import TierRules
from loom.types import Fact, MemoryQuery, MemoryTier, MemoryType, MemoryUnit, TaskSummary

ROOT = Path(__file__).parent.parent
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
DOCUMENTS = (
    *READMES,
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
)
ARCHITECTURE, GLOSSARY = ROOT / "docs" / "architecture.md", ROOT / "docs" / "glossary.md"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


class Block(NamedTuple):
    language: str
    code: str
    line: int


def blocks(document: Path, language: str | None = None) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    found = [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 2)
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]
    return [block for block in found if language in (None, block.language)]


def prose(document: Path) -> str:
    """The text without its code blocks."""
    return re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def with_code(language: str) -> list[Path]:
    return [document for document in DOCUMENTS if blocks(document, language)]


# --- code ----------------------------------------------------------------------------------------------------


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which documents run: empty, and without a model to load."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOM_EMBEDDER", "none")
    monkeypatch.delenv("LOOM_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    return tmp_path


def customer_service(request: Request) -> str | Call:
    """The model behind the SDKs in the documents: it looks an order up before it answers."""
    if '"role": "tool"' in request.text or '"type": "tool_result"' in request.text:
        return "It left the warehouse on Monday."
    return Call("order_state", {"order": "4711"})


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModel]:
    """The addresses to which the SDKs of both providers send their requests."""
    with ScriptedModel([customer_service], repeat=True) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.openai_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(name, "none")
        yield model


@pytest.mark.usefixtures("empty_folder", "models")
@pytest.mark.parametrize("document", with_code("python"), ids=relative)
def test_every_python_block_runs(document: Path) -> None:
    run_blocks(document)


def run_blocks(document: Path) -> None:
    """Run the Python of a document as one program, and close what it left open, as the end of a program does."""
    namespace: dict[str, Any] = {"__name__": "documentation"}
    try:
        for block in blocks(document, "python"):
            # Empty lines before it, so that an error names the line of the document.
            code = "\n" * (block.line - 1) + block.code
            exec(compile(code, str(document), "exec"), namespace)
    finally:
        for value in namespace.values():
            if type(value).__module__.partition(".")[0] in ("openai", "anthropic"):
                value.close()


@pytest.mark.parametrize("document", with_code("toml"), ids=relative)
def test_every_toml_block_is_a_settings_file(document: Path, tmp_path: Path) -> None:
    for block in blocks(document, "toml"):
        assert tomllib.loads(block.code)
        file = tmp_path / "loom.toml"
        file.write_text(block.code, encoding="utf-8")
        load_settings(environ={}, file=file)


@pytest.mark.parametrize("document", with_code("bash"), ids=relative)
def test_every_command_in_a_bash_block_exists(document: Path) -> None:
    for block in blocks(document, "bash"):
        subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)
        for line in block.code.splitlines():
            check_command(shlex.split(line, comments=True))


def check_command(words: list[str]) -> None:
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if "|" in words:
        pipe = words.index("|")
        check_command(words[:pipe])
        check_command(words[pipe + 1 :])
        return
    for redirection in ("<", ">"):
        if redirection in words:
            words = words[: words.index(redirection)]
    match words:
        case []:
            pass
        case ["make", *targets]:
            assert {target for target in targets if "=" not in target} <= make_targets(), words
        case ["git", *_] | ["mkdir", _] | ["cp", _, _] | ["pre-commit", "install"] | ["pip", "install", "pre-commit"]:
            pass
        case ["codex", "plugin", "marketplace", "add", _] | ["codex", "plugin", "add", "loom@loom"]:
            pass  # tests/hooks runs both
        case ["claude" | "codex", "mcp", "add", _, "--", *command]:
            check_command(command)
        case ["eval", command]:
            check_command(shlex.split(command.removeprefix("$(").removesuffix(")")))
        case ["loom", *arguments]:
            cli.parser().parse_args(arguments)
        case ["pip", "install", package] | ["pip", "install", "--upgrade", package]:
            extras = re.search(r"\[(.*)\]", package)
            assert extras is None or set(extras[1].split(",")) <= declared_extras(), words
        case ["python" | ".venv/bin/python", "-m", module, *_]:
            place = ROOT / module.replace(".", "/")
            assert place.with_suffix(".py").exists() or place.is_dir(), words
        case ["python" | ".venv/bin/python", script, *_]:
            assert (ROOT / script).exists(), words
        case _:
            pytest.fail(f"nothing here knows how to check {' '.join(words)!r}")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def declared_project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def declared_extras() -> set[str]:
    return set(declared_project()["optional-dependencies"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_block_says_its_language(document: Path) -> None:
    for block in blocks(document):
        assert block.language in ("python", "toml", "bash", "text", "json", "diff"), f"line {block.line}"
        if block.language == "json":
            assert json.loads(block.code)


def test_every_advice_to_install_names_this_distribution_and_an_extra_of_it() -> None:
    name, extras = declared_project()["name"], declared_extras()
    named = 0
    for file in (*DOCUMENTS, *sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))):
        text = file.read_text(encoding="utf-8")
        for package, extra in re.findall(r"pip install (?:--upgrade )?[\"']?(\w[\w-]*)(?:\[(\w+)\])?", text):
            assert package == name, relative(file)
            assert extra == "" or extra in extras, relative(file)
            named += 1
    assert named > 10


def test_the_page_of_commands_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == manual(), (
        "python -m loom.cli.manual > docs/cli.md"
    )


# --- examples ------------------------------------------------------------------------------------------------


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        "chinese",
        "knowledge",
        "quickstart",
        "research_team",
        "tiers",
        "tree_of_nodes",
        "two_processes",
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_and_prints_what_it_found(example: Path, empty_folder: Path) -> None:
    expected = {
        "quickstart": ["authorization-code flow", "moved to Monday", "on 3 March: The release is on Friday"],
        "two_processes": ["heron is deployed to server 1", "lynx is deployed to server 3", "3 records"],
        "chinese": ["十二号机柜", "PostgreSQL 16", "INV-2041，金额三千二百元"],
        "research_team": ["report, version 1, by writer", "5 versions by 3 readers", "inherits style"],
        "tree_of_nodes": ["root: spent", "      inherits", "tool calls: 4 of 4", "failed: BudgetExceeded"],
        "context": ["Bookings must stay in the Frankfurt…", "someone (web, unverified)", "are as before: True"],
        "tiers": ["of 90 tokens", "node.error: invalid input syntax", "41,207 rows exported in 12 seconds"],
        "notebook": ["next: write chapter one", "read from the file: .notes/writer", "<<<<<<< this file"],
        "knowledge": ["Ana lives in Paris", "in March: Place: Ana lives in Berlin", "决策", "True that everyone"],
    }
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(example)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    for words in expected.get(example.stem, ["\n"]):
        assert words in ran.stdout
    assert list(empty_folder.iterdir()) == []


# --- the two READMEs -----------------------------------------------------------------------------------------


def headings(document: Path) -> list[str]:
    return [line.split(" ")[0] for line in prose(document).splitlines() if re.match("#+ ", line)]


def test_both_readmes_have_the_same_outline() -> None:
    english, chinese = READMES
    assert headings(english) == headings(chinese)
    assert len(re.findall("^- ", prose(english), re.MULTILINE)) == len(
        re.findall("^- ", prose(chinese), re.MULTILINE)
    )


def test_both_readmes_have_the_same_code() -> None:
    english, chinese = (
        [(block.language, without_words(block)) for block in blocks(document)] for document in READMES
    )
    assert english == chinese


def without_words(block: Block) -> str:
    """The code of a block without its comments and texts, which are in the language of the document."""
    if block.language == "python":
        tree = ast.parse(block.code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = ""
        return ast.dump(tree)
    lines = [shlex.split(line, comments=True) for line in block.code.splitlines()]
    return str([[word for word in words if word.isascii() and " " not in word][:2] for words in lines if words])


@pytest.mark.usefixtures("empty_folder")
def test_the_agents_of_the_readme_look_the_order_up(models: ScriptedModel) -> None:
    run_blocks(READMES[0])
    asked = [request.path.rpartition("/")[2] for request in models.requests]
    assert asked == ["completions", "completions", "completions", "messages", "messages"]
    with loom.open("support.loom") as memory:
        for session in ("ana", "ben"):
            (result,) = memory.list(session_id=session, trust="tool")
            assert result.content == "Order 4711 left the warehouse on Monday."


def test_both_readmes_name_the_same_things() -> None:
    english, chinese = (
        {name for name in re.findall(r"`([^`]+)`", prose(document)) if name.isascii()} for document in READMES
    )
    assert english == chinese


# --- links and names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose(document)):
        if "://" not in target:
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_module_that_is_named_exists(document: Path) -> None:
    for name in re.findall(r"`(loom(?:\.[a-z_]+)+)`", prose(document)):
        if not name.endswith((".toml", ".open")):
            path = ROOT / "src" / name.replace(".", "/")
            assert path.with_suffix(".py").exists() or path.is_dir(), name


def table(document: Path, first_column: str) -> dict[str, list[str]]:
    """The table whose first heading this is: its rows by their first cell, without the quotes."""
    for part in re.findall(r"(?:^\|.*\n)+", document.read_text(encoding="utf-8"), re.MULTILINE):
        lines = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in part.splitlines()]
        if lines[0][0] == first_column:
            return {cells[0]: cells[1:] for cells in lines[2:]}
    raise AssertionError(f"{relative(document)} has no table that begins with {first_column!r}")


def test_the_table_of_components_has_every_package() -> None:
    packages = {f"loom.{path.parent.name}" for path in (ROOT / "src" / "loom").glob("*/__init__.py")}
    assert set(table(ARCHITECTURE, "component")) == packages


def test_the_order_of_imports_is_that_of_the_contract() -> None:
    (line,) = (block.code.strip() for block in blocks(ARCHITECTURE, "text") if " < protocol < " in block.code)
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    layers = [set(re.findall(r"loom\.(\w+)", layer)) for layer in contract["layers"]]
    assert [set(layer.split(", ")) for layer in line.split(" < ")] == layers[::-1]


def test_the_glossary_defines_every_word_once_and_says_where_it_lives() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE
    )
    words = [row[0] for row in rows if row[0] not in ("term", "---")]
    assert len(words) == len(set(words)) > 50
    assert all("`" in place for word, _, place, _ in rows if word in words)


def test_the_glossary_has_the_default_budgets_of_the_tiers() -> None:
    rows, default = table(GLOSSARY, "tier"), PROFILES["loom"]
    for tier in MemoryTier:
        assert rows[tier.upper()][2].startswith(f"{getattr(default, f'{tier}_token_budget'):,}")
    assert rows["prompt"][2].startswith(f"{default.prompt_token_budget:,}")
    assert f"{default.l4_fact_limit} facts" in rows["L4"][2]


def test_the_table_of_settings_is_the_settings() -> None:
    defaults = Settings()
    expected = {
        name: [
            f"LOOM_{name.upper()}",
            str(getattr(defaults, name)),
            "yes" if name in SHARED_SETTINGS else "no",
            rule.help,
            rule.accepts,
        ]
        for name, rule in SETTINGS.items()
    }
    assert table(ROOT / "docs" / "settings.md", "name") == expected


def test_the_table_of_profiles_is_the_profiles() -> None:
    expected = {
        profile.name: [
            str(profile.prompt_token_budget),
            str(profile.l1_token_budget),
            str(profile.l2_token_budget),
            str(profile.l3_token_budget),
            str(profile.l4_token_budget),
            str(profile.l4_fact_limit),
            profile.description,
        ]
        for profile in PROFILES.values()
    }
    assert table(ROOT / "docs" / "settings.md", "profile") == expected


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_variable_that_is_named_is_a_setting(document: Path) -> None:
    for name in re.findall(r"LOOM_([A-Z][A-Z0-9_]*)", document.read_text(encoding="utf-8")):
        assert (
            name in ("CONFIG", "TRUSTED_FOLDERS", "STORE", "REQUIRE_ALL", "HOOKS", "HOOK_TOKENS", "HOOK_SECONDS")
            or name.lower() in SETTINGS
        )


def test_the_changelog_knows_this_version() -> None:
    versions = re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == loom.__version__
    assert versions == sorted(versions, key=lambda version: [int(part) for part in version.split(".")], reverse=True)


# --- requirements --------------------------------------------------------------------------------------------

REQUIREMENTS = ROOT / "docs" / "requirements.md"
THIS_MILESTONE = {
    *range(1, 27),
    *range(30, 154),
    *(27, 28, 29),
}


def test_every_requirement_of_the_milestone_has_a_row_with_a_test_or_is_later() -> None:
    rows = table(REQUIREMENTS, "no.")
    assert {int(number) for number in rows} >= THIS_MILESTONE
    for number, cells in rows.items():
        proof, state = cells[2], cells[3]
        assert re.match("(done|partly: |departure: |planned|later)", state), number
        assert ("::" in proof) != (state == "later"), number


def test_none_of_the_153_requirements_is_missing_without_a_word() -> None:
    text = REQUIREMENTS.read_text(encoding="utf-8")
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    assert len(rows) == len(set(rows))
    planned = re.search(r"^Planned, [^:]*: ([\d, ]+)\.$", text, re.MULTILINE)
    named = set() if planned is None else {int(number) for number in planned[1].split(",")}
    assert {*rows} | named == {*range(1, 154)}


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", REQUIREMENTS.read_text(encoding="utf-8"))
    assert len(named) > 40
    defined: dict[str, set[str]] = {}
    for file, name in named:
        if file not in defined:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            defined[file] = {node.name for node in ast.walk(tree) if isinstance(node, definitions)}
        assert name in defined[file], f"{file}::{name}"


def test_tiers_and_kinds_have_the_values_of_the_requirements() -> None:
    assert [(tier.name, tier.value) for tier in MemoryTier] == [
        ("L1", "l1"),
        ("L2", "l2"),
        ("L3", "l3"),
        ("L4", "l4"),
    ]
    # The aliases are other names of the same members.
    assert (MemoryTier.L1_RAW_IO, MemoryTier.L4_GLOBAL) == (MemoryTier.L1, MemoryTier.L4)
    assert {"task", "context", "fact", "summary"} <= {kind.value for kind in MemoryType}


def test_defaults_have_the_numbers_of_the_requirements() -> None:
    config = CompactionConfig()
    assert (config.trigger_threshold, config.target_ratio, config.min_importance) == (0.8, 0.6, 0.3)
    merging = L4Compressor()
    assert (merging.threshold, merging.similarity_threshold, merging.min_cluster_size) == (150, 0.75, 3)
    assert merging.fidelity_threshold == 0.5
    assert {name: (one.recency, one.frequency, one.relevance) for name, one in EVICTION_WEIGHTS.items()} == {
        "default": (0.5, 0.3, 0.2),
        "dialogue": (0.7, 0.2, 0.1),
        "knowledge": (0.3, 0.5, 0.2),
        "context": (0.3, 0.2, 0.5),
        "without_vectors": (0.7, 0.3, 0.0),
    }
    kinds = StatementKind
    scored = (kinds.FIX, kinds.CHANGE, kinds.TEST, kinds.DECISION, kinds.STATE, kinds.THOUGHT)
    assert [10 * WEIGHTS[kind] for kind in scored] == [10, 8, 7, 6, 5, 2]
    assert WEIGHTS[kinds.ERROR] == 0.8  # an error is kept with its fix
    events = EventWeights()
    assert (events.time, events.action, events.relevance, events.node) == (0.4, 0.25, 0.2, 0.15)
    assert TierRules.of(Settings()).budgets == {"l1": 8_000, "l2": 16_000, "l3": 32_000, "l4": 100_000}


def test_units_summaries_facts_and_queries_have_the_fields_of_the_requirements() -> None:
    expected = {
        MemoryUnit: "id content tier type importance token_count created_at accessed_count",
        TaskSummary: "task_id action param_summary result_summary tags importance session_id created_at",
        Fact: "content fact_type confidence tags access_count",
        MemoryQuery: "query tier type limit min_importance",
    }
    for kind, names in expected.items():
        assert set(names.split()) <= {field.name for field in fields(kind)}, kind
    assert Fact("Tea is ready.").id.startswith("fact_")
    unit = MemoryUnit("Tea is ready.", metadata={"role": "user"})
    assert unit.to_message() == {"role": "user", "content": "Tea is ready."}


def test_scopes_and_entries_are_those_of_the_requirements() -> None:
    assert [scope.name for scope in MemoryScope] == ["LOCAL", "SHARED", "INHERITED", "GLOBAL"]
    names = {field.name for field in fields(MemoryEntry)}
    assert {"id", "content", "scope", "version", "created_by", "updated_by"} <= names
    assert str(MemoryEntry("tea", "ready")) == "ready"


def test_a_tasks_importance_and_session_become_the_records() -> None:
    task = loom.Task(
        action="brew",
        session_id="kitchen",
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
        metadata={"importance": 0.8, "_container_depth": 2},
    )
    with loom.open(embedder="none") as memory:
        memory.remember(task)
        record = memory.get(task.task_id)
    assert record is not None
    assert (record.importance, record.session_id, record.created_at) == (0.8, "kitchen", task.created_at)
    assert record.data["metadata"]["_container_depth"] == 2
