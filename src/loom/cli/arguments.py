"""The arguments of the command line, generated from the table of operations with argparse."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable, Collection
from typing import Any, NoReturn

import loom
from loom.cli.programs import COMMANDS
from loom.errors import InvalidInput
from loom.operations.table import Needs, Operation, Parameter

__all__ = ["GLOBAL_OPTIONS", "arguments_of", "help_of", "parser"]

_WIDTH = 78

GLOBAL_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--store",),
        {"metavar": "FILE", "help": "the store (default: LOOM_STORE, the nearest .loom/memory.loom, or your own)"},
    ),
    (("--namespace",), {"metavar": "NAME", "help": "the namespace (default)"}),
    (("--node",), {"metavar": "NAME", "help": "the agent in the namespace (default: default)"}),
    (("--json",), {"action": "store_true", "help": "print one JSON object"}),
    (("--jsonl",), {"action": "store_true", "help": "print one JSON object per item, each on its own line"}),
)


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line that names the help."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"loom: {message}. See `{self.prog} --help`.\n")


def parser(only: Collection[str] | None = None) -> argparse.ArgumentParser:
    """Make the parser of the command line; with `only`, for these commands alone, which takes less time."""
    top = _Top(prog="loom", formatter_class=argparse.RawDescriptionHelpFormatter, add_help=True)
    top.add_argument("--version", action="version", version=f"loom {loom.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", dest="command", parser_class=_Parser)
    for name, operation in COMMANDS.items():
        if only is None or name in only:
            _add_command(commands, operation)
    return top


class _Top(_Parser):
    """The first page of help: the commands by group."""

    def format_help(self) -> str:
        groups: dict[str, list[Operation]] = {}
        for operation in COMMANDS.values():
            groups.setdefault(operation.group, []).append(operation)
        lines = [
            "usage: loom COMMAND ...",
            "",
            "A durable memory for LLM agents in one local file.",
            "",
            "  " + 'loom remember "We chose the authorization-code flow."',
            "  " + 'loom recall "Which flow did we choose?"',
        ]
        for group, operations in groups.items():
            lines += ["", f"{group}:"]
            lines += [
                f"  {one.name:<19}{textwrap.shorten(one.summary, 60, placeholder=' ...')}" for one in operations
            ]
        lines += ["", "`loom COMMAND --help` has the arguments and examples. `loom doctor` says which store is used."]
        return "\n".join(lines) + "\n"


def _add_command(commands: Any, operation: Operation) -> None:
    title = f"{operation.summary[0].upper()}{operation.summary[1:]}."
    examples = "".join(f"\n  {example}" for example in operation.examples)
    command = commands.add_parser(
        operation.name,
        help=operation.summary,
        description=f"{title}\n\n{textwrap.fill(operation.details, _WIDTH)}",
        epilog=f"example{'s' * (len(operation.examples) > 1)}:{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for parameter in operation.parameters:
        names, options = _argument(parameter)
        command.add_argument(*names, **options)
    if operation.asks:
        command.add_argument("--yes", action="store_true", help="do not ask")
    for names, options in GLOBAL_OPTIONS:
        if operation.needs is not Needs.NOTHING or "json" in names[0]:
            command.add_argument(*names, **options)


def _argument(parameter: Parameter) -> tuple[tuple[str, ...], dict[str, Any]]:
    about = parameter.about
    options: dict[str, Any] = {"help": help_of(parameter).replace("%", "%%")}
    if parameter.type is not bool:
        options["type"] = _reader(parameter)
        options["metavar"] = about.shown_as or ("|".join(parameter.choices) or parameter.name.upper())
    if parameter.positional:
        if parameter.is_list:
            options["nargs"] = "+" if parameter.required else "*"
        elif not parameter.required:
            options["nargs"] = "?"
        return (parameter.name,), options
    options["dest"] = parameter.name
    if parameter.type is bool:
        options["action"] = "store_true"
    elif parameter.is_list or parameter.type is dict:
        options["action"] = "append"
    options["required"] = parameter.required
    return (f"--{parameter.name.rstrip('_').replace('_', '-')}",), options


def help_of(parameter: Parameter) -> str:
    """Return the help of an argument, with its default."""
    default, told = parameter.default, parameter.about.help
    if parameter.about.stdin:
        return f"{told}; - reads standard input"
    if parameter.required or default is None or default is False or parameter.positional:
        return told
    return f"{told} (default: {default:g})" if isinstance(default, float) else f"{told} (default: {default})"


def _reader(parameter: Parameter) -> Callable[[str], Any]:
    """Return the function that converts the text of an argument to a value. The table checks the value."""
    kind = parameter.type

    def read(text: str) -> Any:
        if kind in (int, float):
            try:
                return kind(text.replace(",", ""))
            except ValueError:
                called = "a whole number" if kind is int else "a number"
                raise argparse.ArgumentTypeError(f"{text!r} is not {called}") from None
        if kind is dict:
            return _pair(text)
        return text.casefold() if parameter.choices else text

    return read


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def arguments_of(operation: Operation, asked: argparse.Namespace, read_stdin: Callable[[], str]) -> dict[str, Any]:
    """Return the given arguments of an operation, with `-` replaced by standard input."""
    given = {one.name: value for one in operation.parameters if (value := _given(one, asked)) is not None}
    typed = True
    for parameter in operation.parameters:
        if parameter.about.stdin and parameter.name in given:
            values = given[parameter.name] if parameter.is_list else [given[parameter.name]]
            if values.count("-") > 1:
                raise InvalidInput("standard input can be read only once: pass - once")
            typed = "-" not in values
            values = [read_stdin() if one == "-" else one for one in values]
            given[parameter.name] = values if parameter.is_list else values[0]
    if typed and given.keys().isdisjoint({"role", "trust"}):
        given = {**operation.defaults_for_people, **given}
    return given


def _given(parameter: Parameter, asked: argparse.Namespace) -> Any:
    value = getattr(asked, parameter.name)
    if value is False or value == []:
        return None
    return dict(value) if parameter.type is dict and value is not None else value
