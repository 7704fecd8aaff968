"""The public names of the package are pinned, and importing it is cheap."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import loom

SOURCE = Path(loom.__file__).parent
MODULES = sorted(
    ".".join(("loom", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
)

UNKNOWN = "no_such_name"

PUBLIC: dict[str, set[str]] = {
    "loom": {
        "Agent",
        "Context",
        "ContextOrchestrator",
        "Dimensions",
        "EventBus",
        "Filter",
        "Hit",
        "LoomError",
        "Memory",
        "MemoryTier",
        "Receipt",
        "Record",
        "Retention",
        "Task",
        "TaskStatus",
        "open",
        "restore",
        "trust_folder",
    },
    "loom.errors": {
        "BudgetExceeded",
        "Closed",
        "Conflict",
        "CorruptStore",
        "EmbeddingError",
        "ForgetPending",
        "IdConflict",
        "InvalidInput",
        "LanguageModelError",
        "LoomError",
        "NotAStore",
        "NotFound",
        "NotPermitted",
        "OverBudget",
        "ReadOnly",
        "SettingsConflict",
        "SnapshotError",
        "StoreBusy",
        "StoreError",
        "StoreFull",
        "StoreUnavailable",
        "TextTooLarge",
        "ToolUnavailable",
        "UnknownFilter",
        "UnsupportedStore",
        "UntrustedFolder",
        "VersionConflictError",
        "WrongDimension",
    },
    "loom.everyday": {"AsyncMemory", "Memory", "OpenOptions", "Rememberable", "open_memory"},
    "loom.fractal": {
        "BudgetTracker",
        "BudgetUsage",
        "BudgetViolation",
        "NodeContainer",
        "QualityEvaluator",
        "QualityMetrics",
        "RecursiveBudget",
        "ResultSynthesizer",
        "estimate_task_complexity",
        "should_use_fractal",
    },
    "loom.memory.shared_pool": {"PoolChange", "PoolEntry", "PoolWatch", "SharedMemoryPool", "VersionConflictError"},
    "loom.storage": {"add_tenant", "open_store", "remove_tenant", "tenants"},
    "loom.storage.contract": {
        "COMPACT",
        "COUNT",
        "Origin",
        "RowWrites",
        "Rows",
        "DERIVE",
        "EMBED",
        "FOCUS",
        "HEARD",
        "LAYOUTS",
        "MAX_ATTEMPTS",
        "MERGE",
        "MAX_TEXT_BYTES",
        "RESTORE",
        "RETAIN",
        "STANDING",
        "TIERS",
        "TRUSTS",
        "UNCONFIRMED",
        "WINDOW",
        "Access",
        "Administration",
        "ArchiveStats",
        "AtMost",
        "Background",
        "BlobWrites",
        "Blobs",
        "Change",
        "CheckReport",
        "Chore",
        "Decide",
        "Dimensions",
        "Draft",
        "Embed",
        "Entries",
        "Entry",
        "EntryChange",
        "EntryWrites",
        "Filter",
        "FlushReport",
        "ForgetReceipt",
        "Job",
        "JobWrites",
        "Jobs",
        "LeaseLost",
        "Match",
        "Page",
        "Progress",
        "Publish",
        "Reads",
        "Record",
        "RecordWrites",
        "Records",
        "Residency",
        "ResidencyWrites",
        "Resident",
        "Retention",
        "Searches",
        "Store",
        "Transaction",
        "Usage",
        "Uses",
        "Vector",
        "Written",
        "check_limit",
        "concerns_everything",
        "fit_window",
        "pass_on_general",
    },
    "loom.storage.values": {
        "Origin",
        "COMPACT",
        "COUNT",
        "DERIVE",
        "EMBED",
        "FOCUS",
        "HEARD",
        "LAYOUTS",
        "MAX_ATTEMPTS",
        "MERGE",
        "MAX_TEXT_BYTES",
        "RESTORE",
        "RETAIN",
        "STANDING",
        "TIERS",
        "TRUSTS",
        "UNCONFIRMED",
        "WINDOW",
        "Access",
        "ArchiveStats",
        "AtMost",
        "Change",
        "CheckReport",
        "Dimensions",
        "Draft",
        "Entry",
        "EntryChange",
        "Filter",
        "FlushReport",
        "ForgetReceipt",
        "Job",
        "LeaseLost",
        "Match",
        "Page",
        "Progress",
        "Record",
        "Resident",
        "Retention",
        "Usage",
        "Vector",
        "Written",
        "check_limit",
        "concerns_everything",
        "fit_window",
        "pass_on_general",
    },
    "loom.storage.search_view": {
        "Keys",
        "NamesRead",
        "Nominate",
        "Scores",
        "SearchView",
        "Searching",
        "best_admitted",
        "search_text",
        "search_vectors",
    },
    "loom.storage.tables": {
        "TABLES",
        "Row",
        "Table",
        "entry_values",
        "guarded",
        "named",
        "record_guard_4",
        "shifted",
    },
    "loom.storage.sqlite.store": {"SqliteStore", "as_sqlite"},
    "loom.storage.conformance": {"StoreConformance"},
    "loom.storage.databases": {"Connection", "Cursor", "Engine", "Taken", "Wanted"},
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module: str) -> None:
    assert set(importlib.import_module(module).__all__) == PUBLIC[module]


@pytest.mark.parametrize("name", sorted(PUBLIC["loom"]))
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(loom, name) is not None
    assert name in dir(loom)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=UNKNOWN):
        getattr(loom, UNKNOWN)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_and_what_it_offers(module: str, request: pytest.FixtureRequest) -> None:
    if module.startswith("loom.storage.postgres.") and not request.config.option.require_all:
        pytest.importorskip("psycopg")
    path = SOURCE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "a module docstring says what lives here"
    loaded = importlib.import_module(module)
    offered = loaded.__all__
    assert len(set(offered)) == len(offered)
    for name in offered:
        assert hasattr(loaded, name), f"{name} is in __all__ and does not exist"


# --- the layout ----------------------------------------------------------------------------------------------

# What the tables of the design documents place in each module: 001 (files of loom/memory), 002 §1.2 and §2.2.
DOCUMENTED: dict[str, str] = {
    "loom.memory.manager": "MemoryManager",
    "loom.memory.core": "LoomMemory",
    "loom.memory.types": "MemoryTier MemoryType MemoryUnit TaskSummary Fact MemoryQuery",
    "loom.memory.compaction": "MemoryCompactor",
    "loom.memory.compression": "L4Compressor FidelityChecker FidelityResult",
    "loom.memory.fact_extractor": "FactExtractor",
    "loom.memory.reranker": "MemoryReranker RerankSignal",
    "loom.memory.shared_pool": "SharedMemoryPool",
    "loom.memory.tokenizer": "TokenCounter TiktokenCounter AnthropicCounter EstimateCounter",
    "loom.memory.vector_store": "VectorStoreProvider InMemoryVectorStore EmbeddingProvider",
    "loom.memory.sanitizers": "ContentSanitizer",
    "loom.memory.segment_store": "SegmentStore",
    "loom.memory.factory": "MemoryFactory",
    "loom.memory.layers": "MemoryLayer CircularBufferLayer PriorityQueueLayer",
    "loom.memory.orchestrator": "ContextOrchestrator",
    "loom.memory.task_context": "ContextSource ContextBudgeter BudgetConfig MessageConverter EventCandidate",
    "loom.memory.context": "ContextStrategy PriorityContextStrategy SlidingWindowStrategy ContextManager",
    "loom.memory.knowledge_context": "KnowledgeContextSource",
    "loom.fractal.container": "NodeContainer",
    "loom.fractal.memory": "MemoryScope MemoryEntry FractalMemory ACCESS_POLICIES",
    "loom.fractal.budget": "RecursiveBudget BudgetTracker BudgetViolation QualityEvaluator QualityMetrics",
    "loom.fractal.synthesizer": "ResultSynthesizer",
    "loom.fractal.utils": "estimate_task_complexity should_use_fractal",
    "loom.fractal.resolvers": "ConflictResolver ParentWinsResolver ChildWinsResolver MergeResolver",
    "loom.fractal.sync": "MemorySyncManager",
}

# Documented modules whose file name another module or package of ours has as well.
SHARED_NAMES = {"loom.fractal.memory", "loom.memory.context", "loom.memory.orchestrator", "loom.memory.types"}

MOST_FILES = 22


@pytest.mark.parametrize("module", DOCUMENTED)
def test_a_module_of_the_documents_gives_the_names_of_their_tables(module: str) -> None:
    """Requirements 12, 13 and 15."""
    loaded = importlib.import_module(module)
    for name in DOCUMENTED[module].split():
        assert name in loaded.__all__
        assert getattr(loaded, name) is not None


@pytest.mark.parametrize(
    "module", [f"loom.memory.{name}" for name in ("orchestrator", "task_context", "context", "knowledge_context")]
)
def test_the_context_names_under_memory_are_those_of_the_context_package(module: str) -> None:
    """Requirement 13: resolved when they are asked for, so that memory does not import context."""
    assert "loom.context" not in _imported_by(f"import {module}")
    loaded, context = importlib.import_module(module), importlib.import_module("loom.context")
    for name in loaded.__all__:
        assert getattr(loaded, name) is getattr(context, name)
    with pytest.raises(AttributeError, match=UNKNOWN):
        getattr(loaded, UNKNOWN)


def test_no_two_modules_share_a_name_unless_the_documents_give_it() -> None:
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        homes.setdefault(module.rpartition(".")[2], []).append(module)
    shared = {module for modules in homes.values() if len(modules) > 1 for module in modules}
    assert shared & DOCUMENTED.keys() >= SHARED_NAMES
    for modules in homes.values():
        assert len(set(modules) - SHARED_NAMES) <= 1, modules


def test_no_package_has_more_modules_than_a_listing_can_show() -> None:
    for folder in (SOURCE, *(path for path in SOURCE.rglob("*") if path.is_dir())):
        assert len(list(folder.glob("*.py"))) <= MOST_FILES, folder.name


# --- importing -----------------------------------------------------------------------------------------------


def _imported_by(statement: str) -> set[str]:
    script = f"import json, sys\n{statement}\njson.dump(sorted(sys.modules), sys.stdout)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_loom_loads_nothing_heavy() -> None:
    extra = _imported_by("import loom") - _imported_by("")
    heavy = {"numpy", "rs_bpe", "asyncio", "sqlite3", "onnxruntime", "rich", "hashlib", "dataclasses", "http.client"}
    assert not heavy & extra
    assert {name for name in extra if name.startswith("loom")} == {"loom"}


def test_using_a_memory_needs_no_event_loop_and_no_network_client() -> None:
    used = "memory.remember('text'); memory.context('text'); memory.close()"
    loaded = _imported_by(f"import loom\nmemory = loom.open(embedder='none')\n{used}")
    assert not {"asyncio", "http.client", "ssl", "rich", "onnxruntime"} & loaded


def test_the_package_says_its_version_and_is_typed() -> None:
    """`make` installs again when the version changes; elsewhere `pip install --editable .` does."""
    assert loom.__version__.count(".") == 2
    assert importlib.metadata.version("loomkeep") == loom.__version__
    assert (SOURCE / "py.typed").is_file()


# --- private names -------------------------------------------------------------------------------------------

TESTS = Path(__file__).parent
# Methods of named tuples, the end of a forked child, and names that the design documents give.
OTHERS_NAMES = {"_asdict", "_exit", "_extract_keywords", "_fields", "_loom_memory", "_make", "_replace"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in OTHERS_NAMES


def _names_used(node: ast.AST) -> list[str]:
    """The names that a node reads of another object, imports from the package, or gives to `setattr`."""
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        return [] if own else [node.attr]
    if isinstance(node, ast.ImportFrom):
        return [alias.name for alias in node.names] if (node.module or "").startswith("loom") else []
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("setattr", "getattr"):
        said = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return [part for one in said for part in one.replace(":", ".").split(".")]
    return []


def _is_script(text: str) -> bool:
    """Whether a string is a program that uses the package."""
    return "import loom" in text or "from loom" in text


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError:  # a piece of a script
        return ast.Module([], [])


def _private_names(source: str) -> list[str]:
    """The private names that a test uses, also in the scripts that it runs in other processes."""
    found: list[str] = []
    for node in ast.walk(_parsed(source)):
        found += filter(_is_private, _names_used(node))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_script(node.value):
            found += _private_names(node.value)
    return found


@pytest.mark.parametrize("file", sorted(TESTS.rglob("*.py")), ids=lambda file: str(file.relative_to(TESTS)))
def test_tests_use_no_private_name_of_the_package(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    defined = (ast.FunctionDef, ast.ClassDef)
    own = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, defined)}
    assert set(_private_names(source)) - own == set()


def test_no_module_imports_a_private_name_of_another() -> None:
    wrong = [
        f"{file.relative_to(SOURCE)}:{node.lineno}: {alias.name}"
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("loom")
        for alias in node.names
        if _is_private(alias.name)
    ]
    assert wrong == []
