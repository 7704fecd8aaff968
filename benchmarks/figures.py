"""Puts the figures of saved results into the documents.

    python -m benchmarks.figures [--check]

A benchmark writes its results with `save` into `benchmarks/results/NAME.json`, with the command. A document marks a
figure with a comment after it, and a table or an output with a comment on each side:

    75.9 %<!--=summaries:kept .1%--> of the facts survive.

    <!-- from working_tier:table -->
    ...
    <!-- end -->

The key is a path into the figures; the format is that of `format()`, and `%` writes a space before the sign. A value
that is a list of rows becomes a table, its first row the header; text becomes a block. `<!-- from NAME:command -->`
gives the command. `--check` writes nothing, and ends with 1 if a document would change.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

__all__ = ["ROOT", "documents", "main", "rendered", "save", "saving_output", "without_saved"]

ROOT = Path(__file__).parent.parent
_RESULTS = Path(__file__).parent / "results"
# A number with its sign and unit, and the comment that names its source.
_FIGURE = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?: ?%)?<!--=([\w.-]+):([^ >]+?)(?: ([^>]*?))?-->")
_BLOCK = re.compile(r"^<!-- from ([\w.-]+):(\S+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def save(name: str, arguments: Sequence[str], figures: Mapping[str, Any], *, folder: Path = _RESULTS) -> None:
    """Write the results of `python -m benchmarks.NAME ARGUMENTS`.

    Paths are reduced to the name of the file. The part after a hyphen in the name distinguishes several results of
    one benchmark. In keys, "_" replaces everything except letters, digits and hyphens.
    """
    words = [Path(word).name if "/" in word else word for word in arguments if word != "--save"]
    command = " ".join(["python -m", f"benchmarks.{name.partition('-')[0]}", *words])
    text = json.dumps({"command": command, "figures": _keyed(figures)}, ensure_ascii=False, indent=1)
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


@contextlib.contextmanager
def saving_output(
    name: str, arguments: Sequence[str] | None, *, is_wanted: bool, folder: Path = _RESULTS
) -> Iterator[dict[str, Any]]:
    """A block whose printed lines are saved as `output`, beside the figures that it puts into the dictionary.

    Nothing is saved unless `is_wanted`. `arguments` are those of the command, None for the process's own.
    """
    found: dict[str, Any] = {}
    if not is_wanted:
        yield found
        return
    printed = _Copied(sys.stdout)
    with contextlib.redirect_stdout(printed):
        yield found
    given = sys.argv[1:] if arguments is None else arguments
    save(name, given, {**found, "output": printed.getvalue()}, folder=folder)


class _Copied(io.StringIO):
    """Copies everything that is written to another stream."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text)
        return super().write(text)

    def flush(self) -> None:
        self._stream.flush()


def _keyed(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {re.sub(r"[^\w-]+", "_", str(key)): _keyed(one) for key, one in value.items()}


def documents() -> list[Path]:
    """The pages that may have figures. Pages next to data describe the origin of a set, which no command repeats."""
    return [
        *sorted(ROOT.glob("README*.md")),
        *sorted((ROOT / "docs").glob("*.md")),
        ROOT / "benchmarks" / "README.md",
        ROOT / "benchmarks" / "recall" / "README.md",
    ]


def rendered(text: str, *, folder: Path = _RESULTS) -> str:
    """A document with every marked figure, table and output from the saved results."""
    text = _FIGURE.sub(lambda found: _figure(found[1], found[2], found[3] or "", folder), text)
    return _BLOCK.sub(lambda found: _block(found[1], found[2], folder), text)


def without_saved(text: str) -> str:
    """A document without the figures, tables and outputs that come from saved results."""
    return _BLOCK.sub("", _FIGURE.sub("", text))


def _figure(name: str, key: str, form: str, folder: Path) -> str:
    shown = format(_value(name, key, folder), form)
    shown = re.sub(r"(?<=\d)%$", " %", shown)
    return f"{shown}<!--={name}:{key}{' ' + form if form else ''}-->"


def _block(name: str, key: str, folder: Path) -> str:
    value = _value(name, key, folder)
    shown = f"```text\n{value.strip(chr(10))}\n```" if isinstance(value, str) else _table(value)
    return f"<!-- from {name}:{key} -->\n{shown}\n<!-- end -->"


def _table(rows: Sequence[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _value(name: str, key: str, folder: Path) -> Any:
    """A value of a saved result: `command`, or a path into its figures."""
    file = folder / f"{name}.json"
    if not file.exists():
        raise KeyError(f"{name}:{key}: there is no {file.name} among the saved results")
    saved = json.loads(file.read_text(encoding="utf-8"))
    if key == "command":
        return saved["command"]
    value = saved["figures"]
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            known = ", ".join(value) if isinstance(value, dict) else "no further keys"
            raise KeyError(f"{name}:{key}: no {part!r} in {file.name}, which has {known}")
        value = value[part]
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.figures", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if a document would change")
    check = parser.parse_args(arguments).check
    stale = 0
    for document in documents():
        before = document.read_text(encoding="utf-8")
        after = rendered(before)
        if after != before:
            stale += 1
            print(f"{document.relative_to(ROOT)}: {'would change' if check else 'rewritten'}")
            if not check:
                document.write_text(after, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
