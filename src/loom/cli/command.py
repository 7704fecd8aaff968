"""Run one command: find the store, open it, run the operation, print the answer.

Exit codes: 0 success; 1 success with a negative answer (`check` found problems, nothing was forgotten, a move was
refused); 2 failure, reported in one line on standard error; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import loom
from loom.cli.arguments import arguments_of, parser
from loom.cli.printing import print_answer
from loom.cli.programs import COMMANDS, Place
from loom.cli.progress_bar import working
from loom.discovery import as_place, find_notebook_store, find_store, is_server
from loom.errors import InvalidInput, LoomError, StoreUnavailable
from loom.operations.table import Needs, Operation
from loom.steps import step
from loom.terminal import guarded_output, visible, visible_json

if TYPE_CHECKING:
    import argparse

    from loom.everyday import Memory
    from loom.operations.answers import Answer, Forgotten

__all__ = ["main"]

_NO = 1
_FAILED = 2
_INTERRUPTED = 130
_LARGEST_TEXT = 16 * 1024 * 1024
_LARGEST_LINES = 64 * _LARGEST_TEXT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return the exit code."""
    with guarded_output():
        try:
            code = _run(sys.argv[1:] if arguments is None else [*arguments])
            sys.stdout.flush()
        except LoomError as error:
            print(f"loom: {visible(error)}", file=sys.stderr)
            return _FAILED
        except BrokenPipeError:
            # The reader closed the pipe. Without this, Python reports it again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except KeyboardInterrupt:
            return _INTERRUPTED
        return code


def _run(arguments: Sequence[str]) -> int:
    # Make the parser of one command only: making all of them takes longer than starting Python.
    named = COMMANDS.keys() & arguments[:1]
    asked = parser(named or None).parse_args(arguments)
    if asked.command is None:
        print(parser().format_help(), end="")
        return 0
    operation = COMMANDS[asked.command]
    if asked.json and asked.jsonl:
        raise InvalidInput("--json prints one object and --jsonl one object per item: choose one of them")
    most = _LARGEST_LINES if getattr(asked, "lines", False) else _LARGEST_TEXT
    given = arguments_of(operation, asked, lambda: _standard_input(most))
    answer = _answered(operation, given, asked)
    if answer is None:
        return _NO
    _show(operation, answer, asked)
    return 0 if answer.ok else _NO


def _standard_input(most: int) -> str:
    data = sys.stdin.buffer.read(most + 1)
    if len(data) > most:
        raise InvalidInput(
            f"standard input has more than {most:,} bytes; split it, or use --lines for one memory per line"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"standard input is not UTF-8 (byte {error.start:,}); convert it first, for example with iconv"
        ) from None


def _answered(operation: Operation, given: Mapping[str, Any], asked: argparse.Namespace) -> Answer | None:
    """Return the answer; None if the user declined."""
    if operation.needs is Needs.NOTHING:
        return operation.call(None, given)
    if operation.name.startswith("notebook-"):
        found = find_notebook_store(asked.store, folder=given.get("folder", "."))
    else:
        found = find_store(asked.store)
    place = Place(as_place(found.path), found.why, asked.namespace, asked.node)
    if operation.needs is Needs.PLACE:
        return operation.call(place, given)
    if operation.needs is Needs.FILE:
        with working(operation.name, shown=operation.long):
            return operation.call(place.path, given)
    with _opened(operation, place, given) as memory:
        if operation.asks and "ids" not in given and not given.get("preview") and not asked.yes:
            preview = operation.call(memory, {**given, "preview": True})
            if not _agreed(operation, preview, asked):  # type: ignore[arg-type]
                return None
        with working(operation.name, shown=operation.long):
            return operation.call(memory, given)


def _opened(operation: Operation, place: Place, given: Mapping[str, Any]) -> Memory:
    """Open the memory of a place with only what the operation needs.

    A dry run without a store gets an empty memory that has no file.
    """
    path = place.path
    dry_run = bool(given.get("dry_run"))
    if dry_run and not path.exists():
        return loom.open(embedder="none", derive=False)
    if not path.exists():
        if not operation.creates:
            raise StoreUnavailable(
                f'there is no memory at {path} ({place.why}); `loom remember "..."` creates it, or name another with '
                "--store FILE or LOOM_STORE"
            )
        if not place.why.startswith("named"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    writable = is_server(path) or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    looks_only = dry_run or (operation.read_only and not (operation.catches_up and writable))
    return loom.open(
        path,
        namespace=place.namespace,
        node_id=place.node,
        embedder=None if operation.by_meaning else "none",
        derive=None if operation.derives else False,
        read_only=looks_only or None,
    )


def _agreed(operation: Operation, preview: Forgotten, asked: argparse.Namespace) -> bool:
    """Show the memories that would be forgotten, and ask for confirmation."""
    if not preview.records:
        return True
    print_answer(preview, sys.stderr)
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"{operation.name} with a filter asks for confirmation, but there is no terminal: add --yes to continue, "
            "or --preview to only show the memories"
        )
    print("Forget them for good? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().casefold() in ("y", "yes"):
        return True
    print("nothing was forgotten", file=sys.stderr)
    return False


@step("shell.show")
def _show(operation: Operation, answer: Answer, asked: argparse.Namespace) -> None:
    if asked.json:
        print(visible_json(answer.to_json(), indent=2))
    elif asked.jsonl:
        whole = answer.to_json()
        items = whole[answer.rows] if answer.rows else [whole]
        for item in items:
            print(visible_json(item if isinstance(item, dict) else {"name": item}))
    else:
        print_answer(answer, sys.stdout)
