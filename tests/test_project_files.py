"""The files around the code: workflows, hooks, issue forms, the documentation site and the wheels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", sorted((GITHUB / "workflows").glob("*.yml"))),
        ("vendor.github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        (
            "vendor.github-issue-forms",
            [form for form in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if form.stem != "config"],
        ),
    ],
    ids=["workflows", "issue config", "issue forms"],
)
def test_files_for_github_are_of_its_schemas(schema: str, files: list[Path]) -> None:
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_workflows_run_only_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for workflow in (GITHUB / "workflows").glob("*.yml"):
        called = set(re.findall(r"\bmake ([a-z-]+)", workflow.read_text(encoding="utf-8")))
        assert called
        assert called <= targets


def test_hooks_before_a_commit_run_the_tools_of_make_lint() -> None:
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert lint is not None
    tools = {line.split()[0].removeprefix("$(BIN)/") for line in lint[1].splitlines()}
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert {Path(entry).name for entry in re.findall(r"entry: (\S+)", hooks)} == tools
    assert set(re.findall(r"repo: (\S+)", hooks)) == {"local"}


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "trees")]
    ran = subprocess.run(
        [*command, "docs", str(tmp_path / "site")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "recall()" in (tmp_path / "site" / "reference" / "loom.html").read_text(encoding="utf-8")
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert pages == {page.stem for page in (tmp_path / "site").glob("*.html")} - {"genindex", "search"}


@pytest.mark.parametrize("pure", [False, True], ids=["with kernels", "pure"])
def test_a_wheel_has_its_types_and_its_kernels_if_it_is_not_pure(tmp_path: Path, pure: bool) -> None:
    # In a copy: building replaces the kernels of the tree, which other tests have loaded.
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "_kernels.so"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    environ = {**os.environ, **({"PURE_WHEEL": "1"} if pure else {})}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=tree, env=environ, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "loom/py.typed" in names
    assert ("loom/index/_kernels.so" in names) is not pure
    assert wheel.name.endswith("-py3-none-any.whl") is pure
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the list of files comes from the repository")
def test_the_source_distribution_has_every_file_of_the_repository(tmp_path: Path) -> None:
    """So that its tests and documents can be run, which open files of all kinds."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    missing = {name for name in tracked.split("\0") if name and (ROOT / name).exists()} - names
    assert {name for name in missing if not name.startswith(".ci/")} == set()
