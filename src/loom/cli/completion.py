"""Completion scripts for bash, zsh and fish, generated from the table of operations."""

from __future__ import annotations

from collections.abc import Mapping

from loom.operations.table import Needs, Operation, Parameter

__all__ = ["script"]


def script(shell: str, commands: Mapping[str, Operation]) -> str:
    """Return the script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _options(operation: Operation) -> dict[str, Parameter | None]:
    options: dict[str, Parameter | None] = {
        f"--{one.name.rstrip('_').replace('_', '-')}": one for one in operation.parameters if not one.positional
    }
    if operation.asks:
        options["--yes"] = None
    if operation.needs is not Needs.NOTHING:
        options |= dict.fromkeys(("--store", "--namespace", "--node"))
    return options | dict.fromkeys(("--json", "--jsonl", "--help"))


def _choices(operation: Operation) -> dict[str, str]:
    """Return the choices of options, by option, and of the first argument under ''."""
    found = {
        f"--{one.name.rstrip('_').replace('_', '-')}": " ".join(one.choices)
        for one in operation.parameters
        if one.choices
    }
    first = next((one for one in operation.parameters if one.positional and one.choices), None)
    return found | ({"": " ".join(first.choices)} if first else {})


def _bash(commands: Mapping[str, Operation]) -> str:
    lines = [
        "_loom() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"',
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        COMPREPLY=($(compgen -W "{" ".join(commands)} --version --help" -- "$word"))',
        "        return",
        "    fi",
        '    case "$command:$before" in',
    ]
    for name, operation in commands.items():
        lines += [
            f'        {name}:{option}) COMPREPLY=($(compgen -W "{values}" -- "$word")); return ;;'
            for option, values in _choices(operation).items()
            if option
        ]
    lines += [
        '        *:--store) COMPREPLY=($(compgen -f -- "$word")); return ;;',
        "    esac",
        '    case "$command" in',
    ]
    for name, operation in commands.items():
        words = " ".join([*_options(operation), *filter(None, [_choices(operation).get("")])])
        lines.append(f'        {name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;')
    return "\n".join([*lines, "    esac", "}", "complete -o default -F _loom loom", ""])


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def _zsh(commands: Mapping[str, Operation]) -> str:
    lines = ["#compdef loom", "_loom() {", "    local -a commands", "    commands=("]
    lines += [f"        '{name}:{_quoted(one.summary)}'" for name, one in commands.items()]
    lines += [
        "    )",
        "    if (( CURRENT == 2 )); then _describe command commands; return; fi",
        "    case $words[2] in",
    ]
    for name, operation in commands.items():
        specs = []
        for option, parameter in _options(operation).items():
            told = _quoted(parameter.about.help) if parameter else option.strip("-")
            values = _choices(operation).get(option)
            takes = f":{option.strip('-')}:({values})" if values else ""
            if option == "--store":
                takes = ":file:_files"
            specs.append(f"'{option}[{told}]{takes}'")
        first = _choices(operation).get("")
        specs.append(f"'*:argument:({first})'" if first else "'*:argument:_files'")
        lines.append(f"        {name}) _arguments {' '.join(specs)} ;;")
    return "\n".join([*lines, "    esac", "}", "compdef _loom loom", ""])


def _fish(commands: Mapping[str, Operation]) -> str:
    names = " ".join(commands)
    lines = ["complete -c loom -f"]
    for name, operation in commands.items():
        summary = operation.summary.replace("'", "\\'")
        lines.append(f"complete -c loom -n 'not __fish_seen_subcommand_from {names}' -a {name} -d '{summary}'")
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        choices = _choices(operation)
        for option, parameter in _options(operation).items():
            told = parameter.about.help.replace("'", "\\'") if parameter else ""
            takes = f" -x -a '{choices[option]}'" if option in choices else " -r -F" if option == "--store" else ""
            lines.append(f"complete -c loom {seen} -l {option[2:]} -d '{told}'{takes}")
        if "" in choices:
            lines.append(f"complete -c loom {seen} -a '{choices['']}'")
    return "\n".join([*lines, ""])
