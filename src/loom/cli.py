"""The command `loom`: a demonstration, and looking after a memory file from the shell.

Exit codes: 0 done, 1 `check` found problems, 2 what was asked could not be done (said in one line on
stderr). Nothing here needs more than the core, except the demonstration, which needs rich.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import loom
from loom.errors import LoomError

if TYPE_CHECKING:
    from loom.storage.sqlite import SqliteStore

__all__ = ["main", "parser"]

_PROBLEMS = 1
_FAILED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    asked = parser().parse_args(arguments)
    try:
        code: int = asked.run(asked)
        sys.stdout.flush()
    except LoomError as error:
        print(f"loom: {error}", file=sys.stderr)
        return _FAILED
    except BrokenPipeError:
        # Whoever read our output has had enough; without this Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return code


def parser() -> argparse.ArgumentParser:
    """The commands and their help."""
    top = argparse.ArgumentParser(
        prog="loom",
        description="A durable memory for LLM agents in one local file.",
        epilog="example:\n  loom demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"loom {loom.__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = _command(
        commands,
        "demo",
        "load a small conversation, ask it questions, show what was recalled and why",
        "Runs in a temporary folder and leaves nothing behind. Needs rich: " + _INSTALL,
        "loom demo",
    )
    demo.set_defaults(run=_demo)

    check = _command(
        commands,
        "check",
        "verify a memory file, and rebuild what can be rebuilt",
        "Verifies the file, the checksum of every record and the indexes of every namespace. Indexes that are "
        "missing or damaged are rebuilt from the records. Exits with 1 where problems remain.",
        "loom check agent.loom",
    )
    check.add_argument("file", type=Path, help="the memory file")
    check.add_argument("--no-repair", action="store_true", help="only look: open the file read-only")
    check.set_defaults(run=_check)

    stats = _command(
        commands,
        "stats",
        "counts, sizes and tiers of a memory file",
        "Opens the file read-only. One block for each namespace, with the tiers of its nodes; file_bytes is the "
        "whole file.",
        "loom stats agent.loom",
    )
    stats.add_argument("file", type=Path, help="the memory file")
    stats.set_defaults(run=_stats)

    settings = _command(
        commands,
        "settings",
        "the settings that hold here, and where each comes from",
        "Shows what opening a memory in this folder would use: environment (LOOM_*), file, profile. What the "
        "memory file itself has settled is not part of it.",
        "LOOM_PROFILE=chat loom settings",
    )
    settings.add_argument(
        "--config", type=Path, metavar="FILE", help="read this TOML file instead of looking for one"
    )
    settings.set_defaults(run=_settings)
    return top


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, more: str, example: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{_wrapped(more)}",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 78)


_INSTALL = 'pip install "loom-memory[cli]"'


def _demo(_: argparse.Namespace) -> int:
    if find_spec("rich") is None:
        print(f"loom: the demonstration needs rich: {_INSTALL}", file=sys.stderr)
        return _FAILED
    from loom.demo import run

    run()
    return 0


def _check(asked: argparse.Namespace) -> int:
    problems = 0
    for namespace in _namespaces(asked.file):
        with _opened(asked.file, namespace, read_only=asked.no_repair) as store:
            report = store.check(repair=not asked.no_repair)
        print(f"{namespace}: {_counted(report.records)}, {'ok' if report.ok else 'damaged'}")
        for line in report.repaired:
            print(f"  repaired: {line}")
        for line in report.problems:
            print(f"  problem: {line}")
        problems += len(report.problems)
    return _PROBLEMS if problems else 0


def _counted(records: int) -> str:
    return f"{records:,} record{'' if records == 1 else 's'}"


def _stats(asked: argparse.Namespace) -> int:
    for namespace in _namespaces(asked.file):
        with _opened(asked.file, namespace, read_only=True) as store:
            stats = store.stats()
            nodes = {node: (store.settings(node), store.usage(node)) for node in store.nodes()}
        print(namespace)
        width = max(map(len, stats))
        for name, value in stats.items():
            print(f"  {name:<{width}}  {value:>14,}")
        for node, (settings, usage) in nodes.items():
            print(f"  node {node}, profile {settings.get('profile', 'unknown')}")
            for tier in ("l1", "l2", "l3", "l4"):
                held = usage.get(tier)
                items, tokens = (held.items, held.tokens) if held else (0, 0)
                budget = settings.get(f"{tier}_token_budget", 0)
                print(f"    {tier}  {tokens:>9,} of {budget:>9,} tokens  {_counted(items)}")
    return 0


def _settings(asked: argparse.Namespace) -> int:
    from loom.settings import load_settings

    print(load_settings(file=asked.config).explain())
    return 0


def _namespaces(path: Path) -> list[str]:
    """Read-only, so that a file that is missing, empty or something else is refused and not made."""
    with _opened(path, "default", read_only=True) as store:
        return store.namespaces()


def _opened(path: Path, namespace: str, *, read_only: bool) -> closing[SqliteStore]:
    """The store without settings and without an embedder: looking at a file changes neither."""
    from loom.storage.sqlite import SqliteStore

    return closing(SqliteStore(path, namespace=namespace, read_only=read_only))
