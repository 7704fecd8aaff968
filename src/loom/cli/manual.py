"""Generate docs/cli.md from the table of operations: `python -m loom.cli.manual > docs/cli.md`."""

from __future__ import annotations

import sys

from loom.cli.arguments import GLOBAL_OPTIONS, help_of
from loom.cli.programs import COMMANDS
from loom.operations.catalogue import WAITING
from loom.operations.table import Operation, Parameter

__all__ = ["manual"]

_BEGINNING = """# The command line

`loom COMMAND ...`. This page is generated from the table of operations (`python -m loom.cli.manual > docs/cli.md`).
`loom COMMAND --help` shows the same in a terminal. Six of the operations are also MCP tools: [mcp.md](mcp.md).

```bash
loom remember "We chose the authorization-code flow." --name Ana
loom recall "Which flow did we choose?"
loom doctor
```

## Which store

The store is the first of these that exists:

1. `--store FILE`;
2. the variable `LOOM_STORE`;
3. `.loom/memory.loom` in this folder or one above it, as long as the folders belong to the same user. `mkdir .loom`
   gives a project its own memory;
4. `.notes/memory.loom` of a notebook in this folder or one above it. Commands of notebooks use that of `--folder`;
5. `loom/memory.loom` in the user's data folder (`XDG_DATA_HOME`, else `~/.local/share`).

`loom remember`, `loom import` and `loom chat` create a store that does not exist; the other commands report that
there is none. `loom doctor` says which store is used and why.

## Output

On a terminal, output has colours and columns that fit its width (`NO_COLOR` switches the colours off); elsewhere it
is plain text. `--json` prints one object, `--jsonl` one object per item, each on its own line. Missing values are
left out; times are ISO 8601 in UTC. Characters that would control a terminal are shown as escapes.

A command that takes longer than half a second shows its progress on standard error if that is a terminal: a bar if
the total is known, otherwise a count or the seconds.

Exit codes: 0 success; 1 success with a negative answer (`check` found problems, nothing matched, a move was refused);
2 failure, with one line on standard error; 130 interrupted.

`-` in place of a text reads standard input, in UTF-8. `forget` with a filter shows the memories that would be
forgotten and asks for confirmation; `--yes` skips the question.

A short command leaves embedding and deriving to a later process; none of this work is lost. `loom recall`,
`loom context` and `loom facts` do some of it, and `loom flush` does all of it.

## Options of most commands

| option | meaning |
|---|---|
"""


def manual() -> str:
    """Return the page as Markdown."""
    parts = [_BEGINNING]
    for names, options in GLOBAL_OPTIONS:
        shown = f"{names[0]} {options['metavar']}" if "metavar" in options else names[0]
        parts.append(f"| `{shown}` | {options['help']} |\n")
    group = ""
    for operation in COMMANDS.values():
        if operation.group != group:
            group = operation.group
            parts.append(f"\n## {group[0].upper()}{group[1:]}\n")
        parts.append(_section(operation))
    if WAITING:
        parts.append("\n## Planned\n\n| command | waits for |\n|---|---|\n")
        parts += [f"| {name} | {reason} |\n" for name, reason in WAITING.items()]
    return "".join(parts)


def _section(operation: Operation) -> str:
    summary = f"{operation.summary[0].upper()}{operation.summary[1:]}."
    lines = [f"\n### loom {operation.name}\n", f"{summary} {operation.details}\n", "```bash"]
    lines += [*operation.examples, "```"]
    if operation.parameters:
        lines += ["", "| argument | meaning |", "|---|---|"]
        lines += [
            f"| `{_argument(one)}` | {help_of(one).replace('; - reads', '; `-` reads')} |"
            for one in operation.parameters
        ]
    if operation.asks:
        lines.append("| `--yes` | do not ask |")
    notes = {"Changes no memory.": operation.read_only, "Cannot be undone.": operation.destructive}
    if any(notes.values()):
        lines += ["", " ".join(note for note, holds in notes.items() if holds)]
    return "\n".join(lines) + "\n"


def _argument(parameter: Parameter) -> str:
    shown = parameter.about.shown_as or "|".join(parameter.choices) or parameter.name.upper()
    if parameter.positional:
        many = "..." if parameter.is_list else ""
        return f"{shown}{many}" if parameter.required else f"[{shown}{many}]"
    option = f"--{parameter.name.rstrip('_').replace('_', '-')}"
    return option if parameter.type is bool else f"{option} {shown}".replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(manual())
