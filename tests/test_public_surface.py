"""What the package offers: the public names, pinned, and an import that costs next to nothing."""

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
        "OverBudget",
        "ReadOnly",
        "SettingsConflict",
        "SnapshotError",
        "StoreBusy",
        "StoreError",
        "StoreFull",
        "StoreUnavailable",
        "TextTooLarge",
        "UnknownFilter",
        "UnsupportedStore",
        "UntrustedFolder",
        "VersionConflictError",
        "WrongDimension",
    },
    "loom.everyday": {"AsyncMemory", "Memory", "Rememberable", "open_memory"},
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
    "loom.storage.contract": {
        "FOCUS",
        "HEARD",
        "MAX_TEXT_BYTES",
        "TIERS",
        "TRUSTS",
        "Access",
        "Candidates",
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
        "Lease",
        "Match",
        "Nominated",
        "Page",
        "Probe",
        "Record",
        "Resident",
        "Retention",
        "Store",
        "Transaction",
        "Usage",
        "Vector",
        "Written",
    },
    "loom.storage.sqlite.store": {"SqliteStore"},
    "loom.storage.conformance": {"StoreConformance"},
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
def test_every_module_says_what_it_is_and_what_it_offers(module: str) -> None:
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
    "loom.memory.compression": "L4Compressor",
    "loom.memory.fact_extractor": "FactExtractor",
    "loom.memory.reranker": "MemoryReranker",
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


# --- tests ---------------------------------------------------------------------------------------------------

TESTS = Path(__file__).parent
TESTED_FROM_OUTSIDE = ("agent", "context", "fractal", "memory", "models", "recall", "tiers")
# Methods of named tuples, the end of a forked child, and the property that document 000 shows.
NOT_PRIVATE = {"_asdict", "_exit", "_fields", "_loom_memory", "_replace"}


def _private_names(tree: ast.Module) -> set[str]:
    """Names with an underscore that a test takes from elsewhere: as an attribute, an import or a name to patch."""
    own = {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            patched = (one.value for one in node.args[:2] if isinstance(one, ast.Constant))
            found |= {one.rpartition(".")[2] for one in patched if isinstance(one, str)}
    return {name for name in found - own - NOT_PRIVATE if name.startswith("_") and not name.startswith("__")}


@pytest.mark.parametrize(
    "test",
    [*TESTS.glob("test_*.py"), *(file for folder in TESTED_FROM_OUTSIDE for file in (TESTS / folder).glob("*.py"))],
    ids=lambda path: path.stem,
)
def test_a_test_uses_public_names_alone(test: Path) -> None:
    assert _private_names(ast.parse(test.read_text(encoding="utf-8"))) == set()


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
