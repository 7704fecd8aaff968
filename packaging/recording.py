"""docs/shell.svg: a terminal in which the commands are run and their output is shown as it is.

python packaging/recording.py
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).parents[1] / "docs" / "shell.svg"
LOOM = "import sys; from loom.cli import main; sys.exit(main())"
WIDTH = 96

COMMANDS = (
    'loom remember "We chose the authorization-code flow, it is the safest." --name Ana --id flow',
    'loom remember "供应商的发票到了，编号 INV-2041，月底前付清。" --name Wei --id invoice',
    'loom recall "Which OAuth flow did we choose?" --limit 1',
    'loom recall "发票的编号是多少？" --limit 1',
    "loom forget flow",
    "loom list",
)


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "LOOM_STORE": "memory.loom", "LOOM_EMBEDDER": "none", "FORCE_COLOR": "1"}
        environ["PYTHONPATH"] = os.pathsep.join([str(TARGET.parents[1] / "src"), *sys.path])
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), command), soft_wrap=False)
            line = command.replace("loom ", f"{shlex.quote(sys.executable)} -c {shlex.quote(LOOM)} ", 1)
            done = subprocess.run(
                line, shell=True, cwd=folder, env=environ, capture_output=True, text=True, check=True
            )
            console.print(Text.from_ansi(done.stdout.rstrip("\n")))
    # The fonts of the reader's machine: a picture should load nothing.
    picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="loom"), flags=re.DOTALL)
    TARGET.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
