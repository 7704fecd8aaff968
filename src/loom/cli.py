"""The command `loom`: a demonstration, and looking after a memory file from the shell.

Exit codes: 0 done, 1 `check` found problems, 2 what was asked could not be done (said in one line on
stderr). Nothing here needs more than the core, except the demonstration, which needs rich.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import loom
from loom.errors import LoomError
from loom.terminal import guarded_output, visible

if TYPE_CHECKING:
    from loom.everyday import Memory
    from loom.storage.contract import Store

__all__ = ["main", "parser"]

_PROBLEMS = 1
_FAILED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    with guarded_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    asked = parser().parse_args(arguments)
    try:
        code: int = asked.run(asked)
        sys.stdout.flush()
    except LoomError as error:
        print(f"loom: {visible(error)}", file=sys.stderr)
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

    for name, (run, summary, more, example, arguments) in _commands().items():
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.\n\n{_wrapped(more)}",
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=run)
        for names, options in arguments:
            command.add_argument(*names, **options)
    return top


class _Command(NamedTuple):
    """What a command does, its help, and its arguments."""

    run: Callable[[argparse.Namespace], int]
    summary: str
    more: str
    example: str
    arguments: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]


def _argument(*names: str, **options: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return names, options


def _commands() -> dict[str, _Command]:
    file = _argument("file", type=Path, help="the memory file")
    memory_id = _argument("id", help="the id of the memory")
    limit = _argument("--limit", type=int, default=20, metavar="N", help="at most this many (20)")
    node = (
        _argument("--namespace", default="default", metavar="NAME", help="whose memory (default)"),
        _argument("--node", default="default", metavar="NAME", help="which agent of it (default)"),
    )
    return {
        "demo": _Command(
            _demo,
            "load a small conversation, ask it questions, show what was recalled and why",
            "Runs in a temporary folder and leaves nothing behind. Needs rich: " + _INSTALL,
            "loom demo",
            (),
        ),
        "check": _Command(
            _check,
            "verify a memory file, and rebuild what can be rebuilt",
            "Verifies the file, the checksum of every record and the indexes of every namespace. Indexes that are "
            "missing or damaged are rebuilt from the records. Exits with 1 where problems remain.",
            "loom check agent.loom",
            (file, _argument("--no-repair", action="store_true", help="only look: open the file read-only")),
        ),
        "stats": _Command(
            _stats,
            "counts, sizes and tiers of a memory file",
            "Opens the file read-only. One block for each namespace, with the tiers of its nodes; file_bytes is the "
            "whole file.",
            "loom stats agent.loom",
            (file,),
        ),
        "facts": _Command(
            _facts,
            "what a memory knows: facts derived from what was said and done",
            "The newest first, or with a question those that answer it, best first. Each with its type, how sure it "
            "is, since when it holds, and the ids it was derived from. Opens the file read-only.",
            'loom facts agent.loom "Which database do we use?"',
            (
                file,
                _argument("question", nargs="?", help="what to look for; without it, everything"),
                limit,
                _argument("--as-of", type=_moment, metavar="TIME", help="what held at a time, such as 2026-03-01"),
                _argument("--history", action="store_true", help="also what no longer holds"),
                *node,
            ),
        ),
        "summaries": _Command(
            _summaries,
            "the summaries that stand for stretches of dialogue, and how faithful they are",
            "The newest first. Opens the file read-only.",
            "loom summaries agent.loom",
            (
                file,
                limit,
                _argument("--history", action="store_true", help="also those that were rejected or undone"),
                *node,
            ),
        ),
        "promote": _Command(
            _promote,
            "bring a memory back towards the prompt",
            "To the working tier, or into the window of recent memories, where it stays until others are brought "
            "there.",
            "loom promote agent.loom turn-17 --to l1",
            (
                file,
                memory_id,
                _argument(
                    "--to",
                    type=str.lower,
                    choices=("l1", "l2"),
                    default="l2",
                    help="the window (l1) or the working tier (l2)",
                ),
                *node,
            ),
        ),
        "demote": _Command(
            _demote,
            "let a memory go one tier down, away from the prompt",
            "It stays in the log and is still found.",
            "loom demote agent.loom turn-17",
            (file, memory_id, *node),
        ),
        "undo": _Command(
            _undo,
            "withdraw a fact or a summary that the memory has derived by itself",
            "What it stood for has its place back. The originals were never touched.",
            "loom undo agent.loom summary_01M7H88YD44HRX3GSM1NB3F86E",
            (file, _argument("id", help="the id that `loom facts` or `loom summaries` shows"), *node),
        ),
        "archive": _Command(
            _archive,
            "compress the words of older records, and give the space back",
            "Reads are unaffected. Without --older-than, everything is compressed.",
            "loom archive agent.loom --older-than 30",
            (
                file,
                _argument("--older-than", type=float, default=0.0, metavar="DAYS", help="only what is older"),
            ),
        ),
        "snapshot": _Command(
            _snapshot,
            "write everything a memory holds to a compressed, checksummed file",
            "All tiers, versions, uses, facts, entries and vectors, of every namespace unless some are named. With "
            "--since, only what has changed since an earlier snapshot. Others may go on writing meanwhile.",
            "loom snapshot agent.loom monday.hctx",
            (
                file,
                _argument("target", type=Path, help="the snapshot to write; replaced when the new one is complete"),
                _argument("--since", type=Path, metavar="SNAPSHOT", help="the snapshot that this one continues"),
                _argument("--namespace", action="append", metavar="NAME", help="only this one; may be repeated"),
            ),
        ),
        "restore": _Command(
            _restore,
            "make a memory file of a snapshot, or bring one into a namespace of an existing file",
            "Takes a full snapshot and those that continue it, oldest first. The file must not exist, unless --into "
            "names a namespace of it. A snapshot that is damaged or does not belong is refused, and nothing is "
            "changed.",
            "loom restore monday.hctx tuesday.hctx agent.loom",
            (
                _argument("snapshots", type=Path, nargs="+", metavar="snapshot", help="the chain, oldest first"),
                _argument("file", type=Path, help="the memory file to make"),
                _argument("--into", metavar="NAME", help="a namespace of an existing file instead of a new file"),
                _argument("--namespace", metavar="NAME", help="with --into: which namespace of the snapshot"),
                _argument(
                    "--forgotten", action="store_true", help="with --into: also what was forgotten there since"
                ),
            ),
        ),
        "settings": _Command(
            _settings,
            "the settings that hold here, and where each comes from",
            "Shows what opening a memory in this folder would use: environment (LOOM_*), file, profile. What the "
            "memory file itself has settled is not part of it.",
            "LOOM_PROFILE=chat loom settings",
            (
                _argument(
                    "--config", type=Path, metavar="FILE", help="read this TOML file instead of looking for one"
                ),
            ),
        ),
        "trust": _Command(
            _trust,
            "use a folder's loom.toml and memories although somebody else may have written them",
            "Notes the folder and the digest of its loom.toml in your configuration folder. Read the file before: it "
            "is shown. A loom.toml that changes has to be trusted again.",
            "loom trust ~/project",
            (
                _argument("folder", type=Path, nargs="?", default=Path("."), help="the folder (this one)"),
                _argument("--withdraw", action="store_true", help="trust it no longer"),
            ),
        ),
    }


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write it like 2026-03-01 or 2026-03-01T09:30"
        ) from error
    return moment if moment.tzinfo else moment.astimezone()


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 78)


_INSTALL = 'pip install "loomkeep[cli]"'


def _demo(_: argparse.Namespace) -> int:
    if find_spec("rich") is None:
        print(f"loom: the demonstration needs rich: {_INSTALL}", file=sys.stderr)
        return _FAILED
    from rich.console import Console

    from loom.demo import run

    # rich colours by escape sequences of its own; the demonstration marks those in what it shows.
    run(Console(highlight=False, file=getattr(sys.stdout, "unguarded", sys.stdout)))
    return 0


def _check(asked: argparse.Namespace) -> int:
    problems = 0
    for namespace in _namespaces(asked.file):
        with _opened(asked.file, namespace, read_only=asked.no_repair) as store:
            report = store.check(repair=not asked.no_repair)
        print(f"{visible(namespace)}: {_counted(report.records)}, {'ok' if report.ok else 'damaged'}")
        for line in report.repaired:
            print(f"  repaired: {visible(line)}")
        for line in report.problems:
            print(f"  problem: {visible(line)}")
        problems += len(report.problems)
    return _PROBLEMS if problems else 0


def _counted(records: int) -> str:
    return f"{records:,} record{'' if records == 1 else 's'}"


def _stats(asked: argparse.Namespace) -> int:
    for namespace in _namespaces(asked.file):
        with _opened(asked.file, namespace, read_only=True) as store:
            stats = store.stats()
            nodes = {node: (store.settings(node), store.usage(node)) for node in store.nodes()}
        print(visible(namespace))
        width = max(map(len, stats))
        for name, value in stats.items():
            print(f"  {name:<{width}}  {value:>14,}")
        for node, (settings, usage) in nodes.items():
            print(f"  node {visible(node)}, profile {visible(settings.get('profile', 'unknown'))}")
            for tier in ("l1", "l2", "l3", "l4"):
                held = usage.get(tier)
                items, tokens = (held.items, held.tokens) if held else (0, 0)
                budget = settings.get(f"{tier}_token_budget", 0)
                print(f"    {tier}  {tokens:>9,} of {budget:>9,} tokens  {_counted(items)}")
            working = usage.get("l2")
            if working and (asked_for := working.hits + working.misses):
                print(f"    at hand when asked for: {working.hits / asked_for:.1%} of {asked_for:,} uses")
    return 0


def _facts(asked: argparse.Namespace) -> int:
    with _memory(asked, read_only=True) as memory:
        found = memory.facts(asked.question, limit=asked.limit, as_of=asked.as_of, history=asked.history)
        for fact in found:
            ended = f", until {fact.superseded_at:%Y-%m-%d %H:%M}" if fact.superseded_at else ""
            print(visible(fact.content))
            since = f"since {fact.created_at:%Y-%m-%d %H:%M}{ended}"
            print(f"  {visible(fact.id)}  {fact.fact_type}, {fact.confidence:.0%} sure, {since}")
            if fact.sources:
                print(f"  from {', '.join(map(visible, fact.sources))}")
    if not found:
        print("no facts" + (" that answer this" if asked.question else ""))
    return 0


def _summaries(asked: argparse.Namespace) -> int:
    with _memory(asked, read_only=True) as memory:
        found = memory.summaries(limit=asked.limit, history=asked.history)
    for summary in found:
        state = "stands" if summary.superseded_at is None else "undone" if summary.faithful else "rejected"
        print(
            f"{visible(summary.id)}  session {visible(summary.session_id or '-')}, {len(summary.sources)} records, "
            f"{summary.tokens:,} of {summary.original_tokens:,} tokens, fidelity {summary.fidelity:.2f}, {state}"
        )
        print("\n".join(f"  {line}" for line in map(visible, summary.text.splitlines())))
    if not found:
        print("no summaries")
    return 0


def _promote(asked: argparse.Namespace) -> int:
    with _memory(asked, read_only=False) as memory:
        done = memory.promote(asked.id, asked.to)
    if asked.id in done.refused:
        print(f"{visible(asked.id)} stays where it is: {visible(done.refused[asked.id])}")
        return 1
    print(f"{visible(asked.id)} is in {asked.to.upper()} now")
    return 0


def _demote(asked: argparse.Namespace) -> int:
    with _memory(asked, read_only=False) as memory:
        tier = memory.demote(asked.id)
    print(f"{visible(asked.id)} is {'in the log alone' if tier is None else f'in {tier.upper()}'} now")
    return 0


def _undo(asked: argparse.Namespace) -> int:
    with _memory(asked, read_only=False) as memory:
        undone = memory.undo(asked.id)
    restored = f"; {_counted(len(undone.restored))} back in place" if undone.restored else ""
    print(f"{visible(undone.id)} is withdrawn{restored}")
    return 0


def _archive(asked: argparse.Namespace) -> int:
    from datetime import timedelta

    for namespace in _namespaces(asked.file):
        with _opened(asked.file, namespace, read_only=False) as store:
            done = store.archive(store.clock() - timedelta(days=asked.older_than))
            freed = store.vacuum()
        print(
            f"{visible(namespace)}: {_counted(done.records)} in {done.blocks:,} "
            f"block{'' if done.blocks == 1 else 's'}, {done.raw_bytes:,} bytes as "
            f"{done.stored_bytes:,} ({done.ratio:.2f}:1); the file shrank by {max(freed, 0):,} bytes"
        )
    return 0


def _snapshot(asked: argparse.Namespace) -> int:
    names = asked.namespace or _namespaces(asked.file)
    with _opened(asked.file, names[0], read_only=True) as store:
        from loom.snapshots.taking import take

        made = take(store, asked.target, parent=asked.since, namespaces=names)
    listed = ", ".join(map(visible, made.namespaces))
    print(f"{visible(made.path)}: {_counted(made.records)} of {listed}, {made.size_bytes:,} bytes")
    print(f"  sha256 {made.sha256}")
    if made.parent is not None:
        print(f"  continues {visible(made.parent)}")
    return 0


def _restore(asked: argparse.Namespace) -> int:
    if asked.into is None:
        done = loom.restore(asked.snapshots, asked.file)
        listed = ", ".join(map(visible, done.namespaces))
        print(f"{visible(done.path)}: {_counted(done.records)} of {listed}")
        return 0
    _namespaces(asked.file)  # so that a file that is missing is refused and not made
    with loom.open(asked.file, namespace=asked.into, embedder="none", derive=False) as memory:
        done = memory.restore(asked.snapshots, namespace=asked.namespace, forgotten=asked.forgotten)
    print(
        f"{visible(done.path)}, {visible(asked.into)}: {_counted(done.records)} came, "
        f"{done.present:,} there already, {done.forgotten:,} forgotten since"
    )
    return 0


def _memory(asked: argparse.Namespace, *, read_only: bool) -> Memory:
    """A memory that exists, as its file has it, without a model and without drawing anything new."""
    _namespaces(asked.file)  # so that a file that is missing is refused and not made
    return loom.open(
        asked.file, namespace=asked.namespace, node_id=asked.node, embedder="none", derive=False, read_only=read_only
    )


def _settings(asked: argparse.Namespace) -> int:
    from loom.settings import load_settings

    print(load_settings(file=asked.config, leave_out_refused=True).explain())
    return 0


def _trust(asked: argparse.Namespace) -> int:
    from loom.trust import SETTINGS_FILE, trust_folder, withdraw_trust

    if asked.withdraw:
        done = withdraw_trust(asked.folder)
        print(f"{visible(asked.folder)} {'is no longer trusted' if done else 'was not trusted'}")
        return 0
    place = trust_folder(asked.folder)
    file = Path(place, SETTINGS_FILE)
    print(f"{visible(place)} is trusted" + ("" if file.is_file() else f"; it holds no {SETTINGS_FILE}"))
    if file.is_file():
        shown = map(visible, file.read_text(encoding="utf-8", errors="replace").splitlines())
        print("\n".join(f"  {line}" for line in shown))
    return 0


def _namespaces(path: Path) -> list[str]:
    """Read-only, so that a file that is missing, empty or something else is refused and not made."""
    with _opened(path, "default", read_only=True) as store:
        return store.namespaces()


def _opened(path: Path, namespace: str, *, read_only: bool) -> closing[Store]:
    """The store without settings and without an embedder: looking at a file changes neither."""
    from loom.storage import open_store
    from loom.text.tokens import counters_by_name

    store = open_store(path, namespace=namespace, read_only=read_only, all_namespaces=True)
    store.count_with({name: counter.count for name, counter in counters_by_name().items()})
    return closing(store)
